"""Four channels that keep no order between them: what was meant for which cell, and who may answer."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest
from notebook.kernels import Client, Message
from waiting import processes

from prose_kernel.processes.watchdog import WARNING

SLEEP = 'exec "sleep 60"'


def test_an_interrupt_does_not_come_too_early(client: Client) -> None:
    """It overtakes the cell that it was sent after."""
    for code in [SLEEP] * 10 + ["let x = 1\n" * 50_000]:
        request = client.send(code)
        client.interrupt()
        assert client.finish(request).error["ename"] == "KeyboardInterrupt"
    assert client.run('exec "echo fine"').text() == "fine\n"


def test_an_interrupt_does_not_come_too_late(client: Client) -> None:
    """It arrives when the cell that it was sent for is over, and another one runs."""
    for _ in range(20):
        assert client.run("let a = 1").status == "ok"
        client.interrupt()
        assert client.run('exec "echo fine"').text() == "fine\n"
    request = client.send("exec \"trap '' INT TERM; echo started; while :; do sleep 0.05; done\"")
    client.until_text(request, "started")
    for _ in range(20):
        client.interrupt()
    assert client.finish(request).error["ename"] == "KeyboardInterrupt"
    assert client.run('exec "echo fine"').text() == "fine\n"


@pytest.mark.parametrize(("session", "hours"), [("another", 0.001), (None, 2)])
def test_clocks_that_disagree_do_not_stop_an_interrupt(client: Client, session: str | None, hours: float) -> None:
    request = client.send('exec "echo started; sleep 60"')
    client.until_text(request, "started")
    message = client.channels.session.msg("interrupt_request", {})
    message["header"]["date"] -= timedelta(hours=hours)
    message["header"]["session"] = session or message["header"]["session"]
    client.channels.control_channel.send(message)
    assert client.finish(request).error["ename"] == "KeyboardInterrupt"


def test_an_interrupt_without_a_waiter_is_over(client: Client) -> None:
    assert client.ask("interrupt_request", {}, channel="control")["content"]["status"] == "ok"
    assert client.run('exec "echo fine"').text() == "fine\n"


def test_cells_do_not_run_on_the_control_channel(client: Client) -> None:
    reply = client.ask("execute_request", {"code": "let sneaked = 1"}, channel="control")
    assert reply["content"]["status"] == "error"
    assert client.run("let a = sneaked").status == "error"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("execute_request", {"code": 5}),
        ("execute_request", {"code": "let ran = 1", "user_expressions": "x"}),
        ("complete_request", {"code": "le", "cursor_pos": "x"}),
        ("inspect_request", {"code": "exec", "cursor_pos": 1.5}),
        ("history_request", {"hist_access_type": "tail", "n": "many"}),
        ("history_request", {"hist_access_type": "range", "session": "x"}),
        ("history_request", {"hist_access_type": "search", "pattern": 5}),
    ],
)
def test_fields_of_the_wrong_type(client: Client, kind: str, content: Message) -> None:
    reply = client.ask(kind, content)["content"]
    assert (reply["status"], reply["ename"]) == ("error", "BadRequest")
    assert client.run("let a = ran").status == "error"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("complete_request", {"code": "le", "cursor_pos": 10**30}),
        ("complete_request", {"code": "le", "cursor_pos": -5}),
        ("inspect_request", {"code": "exec", "cursor_pos": None}),
        ("history_request", {"hist_access_type": "tail", "n": 10**30}),
        ("history_request", {"hist_access_type": "range", "session": -(10**30), "stop": None}),
        ("execute_request", {"code": "", "user_expressions": {"a": 5, "b": ["x"]}}),
    ],
)
def test_absurd_values_are_answered(client: Client, kind: str, content: Message) -> None:
    assert client.ask(kind, content)["content"]["status"] == "ok"


def test_a_request_that_fails_before_its_cell_shows_the_error(client: Client) -> None:
    """Some clients look at the reply only, others only at the outputs."""
    message = client.channels.session.msg("execute_request", {"code": None})
    client.channels.shell_channel.send(message)
    assert client.finish(message["header"]["msg_id"]).error["ename"] == "BadRequest"


def test_only_who_was_asked_answers(client: Client) -> None:
    other = client.manager.client()
    other.session = client.manager.session.clone()
    other.session.session = "somebody-else"
    other.start_channels()
    try:
        request = client.send('input name: "Who?"', allow_stdin=True)
        question = client.channels.get_stdin_msg(timeout=30)
        other.input("not me")
        session, stdin = client.channels.session, client.channels.stdin_channel
        stdin.socket.send_multipart([b"no message at all"])
        stdin.send({**session.msg("input_reply"), "content": b"[]"})
        stdin.send(session.msg("something_else", {"value": "no answer"}))
        stdin.send(session.msg("input_reply", {"value": "too late"}, parent={"header": {"msg_id": "an-old-question"}}))
        client.ask("kernel_info_request", {}, channel="control")  # all of it is there before the answer
        stdin.send(session.msg("input_reply", {"value": "me"}, parent=question))
        assert client.finish(request).displays == ["name: text = me"]
    finally:
        other.stop_channels()


def test_a_watchdog_that_cannot_be_kept_is_reported(client: Client) -> None:

    shown = ""
    with_kernel = f"watchdog_process.py {client.pid} "
    for _ in range(100):
        shown += client.run('exec "true"').text()
        if WARNING in shown:
            break
        for pid in processes(with_kernel):
            os.kill(pid, signal.SIGKILL)
    assert shown.count(WARNING) == 1
    assert WARNING not in client.run('exec "true"').text()
