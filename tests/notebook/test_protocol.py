"""The wire protocol: exactly one reply for each request, whatever it is and whenever it comes."""

from __future__ import annotations

import json

import pytest
from notebook.kernels import Client


def test_kernel_info_is_honest(client: Client) -> None:
    info = client.ask("kernel_info_request", {})["content"]
    assert info["status"] == "ok"
    assert info["language_info"]["name"] == "prose"
    assert info["language_info"]["file_extension"] == ".prose"
    assert info["language_info"]["codemirror_mode"] == {"name": "prose", "mime": "text/x-yaml"}
    assert info["supported_features"] == ["debugger"]


@pytest.mark.parametrize("code", ["", "\n\n", "# only a comment", "  # indented\n\n# two"])
def test_empty_cells_are_fine(client: Client, code: str) -> None:
    ran = client.run(code)
    assert (ran.status, ran.outputs) == ("ok", [])


def test_a_reply_holds_what_the_protocol_wants(client: Client) -> None:
    content = client.run("").content
    assert content["payload"] == [] and content["user_expressions"] == {}
    assert content["execution_count"] == client.run("").content["execution_count"] - 1


def test_silent_cells_show_nothing_and_do_not_count(client: Client) -> None:
    count = client.run("").content["execution_count"]
    ran = client.run('exec "echo loud"', silent=True)
    assert (ran.status, ran.outputs) == ("ok", [])
    assert client.run("").content["execution_count"] == count + 1


def test_user_expressions_are_bindings(client: Client) -> None:
    content = client.run("let a = 40 + 2", user_expressions={"x": "a", "y": "nothing"}).content
    assert content["user_expressions"]["x"]["data"] == {"text/plain": "42"}
    assert content["user_expressions"]["y"]["status"] == "error"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("execute_request", {}),
        ("execute_request", {"code": 5}),
        ("complete_request", {}),
        ("inspect_request", {"code": None}),
        ("is_complete_request", {}),
        ("history_request", {}),
        ("nonsense_request", {}),
    ],
)
def test_malformed_requests_get_an_error_reply(client: Client, kind: str, content: dict[str, object]) -> None:
    reply = client.ask(kind, content)
    assert reply["msg_type"] == kind.replace("_request", "_reply")
    assert reply["content"]["status"] == "error"
    assert client.run("").status == "ok"


def test_there_are_no_subshells(client: Client) -> None:
    reply = client.ask("create_subshell_request", {}, channel="control")
    assert reply["content"]["status"] == "error"
    reply = client.ask("execute_request", {"code": 'exec "echo hi"'}, subshell_id="abc")
    assert reply["content"]["status"] == "error"
    assert client.run("").status == "ok"


def test_comm_info_is_answered(client: Client) -> None:
    assert client.ask("comm_info_request", {})["content"] == {"comms": {}, "status": "ok"}


def test_code_that_is_not_text_is_answered(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.channels.session, "pack", lambda content: json.dumps(content, default=str).encode())
    ran = client.run("let x = \ud800")
    assert ran.status == "error" and ran.error["ename"] == "SyntaxError"


@pytest.mark.parametrize(
    ("code", "status", "indent"),
    [
        ('exec "ls"', "complete", None),
        ("", "complete", None),
        ("# c", "complete", None),
        ("%bindings", "complete", None),
        ("repeat 3:", "incomplete", "  "),
        ('session """\nmore', "incomplete", ""),
        ("let x = [1,", "incomplete", None),
        ("let = = 3", "invalid", None),
    ],
)
def test_is_complete(client: Client, code: str, status: str, indent: str | None) -> None:
    content = client.ask("is_complete_request", {"code": code})["content"]
    assert content["status"] == status
    if indent is not None:
        assert content["indent"] == indent


@pytest.mark.parametrize(
    ("code", "status", "indent"),
    [
        ("repeat 2:", "incomplete", "  "),
        ("repeat 2:\n  ", "incomplete", "  "),
        ("repeat 2:\n  if true:", "incomplete", "    "),
        ('repeat 2:\n  exec "true"', "incomplete", "  "),
        ('repeat 2:\n  exec "true"\n', "incomplete", "  "),
        ('repeat 2:\n  exec "true"\n  ', "complete", None),
        ('repeat 2:\n  exec "true"\n\n', "complete", None),
        ('try:\n  exec "true"\n  ', "incomplete", ""),
        ("%%task", "incomplete", ""),
        ("%%task\n", "incomplete", ""),
        ("%%task\nmake", "incomplete", ""),
        ("%%task\nmake\n", "complete", None),
        ("%%task\nmake\n\nmake test", "incomplete", ""),
        ("%%task\nmake\n\n", "complete", None),
        ("%%task\nmake\n  ", "complete", None),
    ],
)
def test_a20_a_console_can_end_a_block(client: Client, code: str, status: str, indent: str | None) -> None:
    content = client.ask("is_complete_request", {"code": code})["content"]
    assert (content["status"], content.get("indent")) == (status, indent)


def test_state_lives_on_and_cells_run_again(client: Client) -> None:
    code = 'const limit = 3\nagent a:\n  model: opus\nblock f(x):\n  return x\nlet y = do f("again")'
    for _ in range(3):
        ran = client.run(code)
        assert ran.status == "ok", ran.content
    assert client.run("let z = limit + 1").displays == ["z: number = 4"]


def test_an_error_leaves_state(client: Client) -> None:
    assert client.run("let a = 1").status == "ok"
    ran = client.run('let b = 2\nthrow "stop"\nlet c = 3')
    assert ran.status == "error"
    assert client.run("let sum = a + b").displays == ["sum: number = 3"]
    assert client.run("let d = c").error["ename"] == "SyntaxError"


def test_an_error_is_published_and_replied(client: Client) -> None:
    ran = client.run('exec "echo oops >&2; exit 3"')
    assert ran.kinds == ["stream", "error"]
    error = ran.error
    assert error["ename"] == "ExecError"
    assert {k: ran.content[k] for k in error} == error
    trace = "\n".join(error["traceback"])
    assert 'exec "echo oops >&2; exit 3"' in trace
    assert "^" in trace and "exit code 3" in trace and "oops" in trace
    assert "Traceback" not in trace and "/" not in error["evalue"]


def test_all_diagnostics_of_a_cell_are_shown_and_nothing_runs(client: Client) -> None:
    ran = client.run('exec "echo ran"\nlet a = nothing\nsession: nobody\n')
    assert ran.kinds == ["error"]
    assert ran.error["ename"] == "SyntaxError"
    trace = "\n".join(ran.error["traceback"])
    assert "line 2" in trace and "line 3" in trace and trace.count("^") == 2


def test_queued_cells_are_aborted_after_an_error(client: Client) -> None:
    requests = [client.send('exec "sleep 0.3"\nthrow "no"'), *(client.send("let x = 1") for _ in range(5))]
    statuses = [client.finish(request).status for request in requests]
    assert statuses == ["error", *["aborted"] * 5]
    assert client.run("let x = 2").status == "ok"


def test_queued_cells_run_when_the_front_end_says_so(client: Client) -> None:
    requests = [client.send('throw "no"', stop_on_error=False), client.send("let x = 1")]
    assert [client.finish(r).status for r in requests] == ["error", "ok"]


def test_looking_is_answered_while_a_cell_runs(client: Client) -> None:
    client.run("let plan = 1")
    request = client.send('exec "echo started; sleep 4717"')  # it ends only by the interrupt, after all answers
    client.until_text(request, "started")
    assert "plan" in client.ask("complete_request", {"code": "let x = pl", "cursor_pos": 10})["content"]["matches"]
    assert client.ask("inspect_request", {"code": "plan", "cursor_pos": 2, "detail_level": 0})["content"]["found"]
    assert client.ask("is_complete_request", {"code": "repeat 2:"})["content"]["status"] == "incomplete"
    assert client.ask("kernel_info_request", {})["content"]["status"] == "ok"
    assert client.ask("history_request", {"hist_access_type": "tail", "n": 1, "output": False, "raw": True})
    assert client.ask("comm_info_request", {})["content"]["comms"] == {}
    client.interrupt()
    assert client.finish(request).error["ename"] == "KeyboardInterrupt"


def test_outputs_are_messages_of_the_specification(client: Client) -> None:
    from jupyter_kernel_test.msgspec_v5 import validate_message

    for code in ('exec "echo hi"', "let x = [1, 2]", 'throw "no"', "%help", 'let x = exec "echo a"'):
        request = client.send(code)
        for message in client.finish(request).outputs:
            validate_message(message, message["msg_type"], request)


def test_history_is_kept(client: Client) -> None:
    client.run('exec "echo remembered"')
    content = {"hist_access_type": "tail", "n": 3, "output": True, "raw": True}
    rows = client.ask("history_request", content)["content"]["history"]
    assert rows[-1][2] == ['exec "echo remembered"', None]


def test_metadata_holds_what_varies(client: Client) -> None:
    ran = client.run('exec "exit 3"\n  on-fail: "continue"')
    (display,) = ran.of("display_data")
    assert display["metadata"]["prose"].keys() == {"duration", "max_rss", "cpu_s"}
    assert json.dumps(display["data"]).count("duration") == 0
