"""Nothing is lost, and few messages carry it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from notebook.kernels import Client, kernel

LINES = 200_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A kernel that displays everything."""
    directory = tmp_path_factory.mktemp("flood")
    (directory / "prose.toml").write_text("display_cap = 0\ndisplay_lines = 0\n")
    with kernel(directory, forks=True) as client:
        yield client


@pytest.fixture(scope="module")
def cutting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A kernel with default settings."""
    with kernel(tmp_path_factory.mktemp("cutting"), forks=True) as client:
        yield client


def lines() -> str:
    return "".join(f"{i}\n" for i in range(1, LINES + 1))


def test_200_000_lines_arrive_complete_in_few_messages(client: Client) -> None:
    ran = client.run(f'exec "seq {LINES}"')
    assert ran.status == "ok"
    assert ran.text() == lines()
    assert len(ran.outputs) <= 30


def test_a_slow_reader_gets_everything(client: Client) -> None:
    request = client.send(f'exec "seq {LINES}"')
    client.reply(request)  # read nothing before: all of it waits in the sockets by now
    text, idle = "", False
    while not idle:
        message = client.channels.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") == request:
            text += message["content"].get("text", "") if message["content"].get("name") == "stdout" else ""
            idle = message["content"].get("execution_state") == "idle"
    assert text == lines()


def test_both_streams_of_a_flood_arrive(client: Client) -> None:
    ran = client.run('exec "for i in $(seq 20000); do echo out $i; echo err $i >&2; done"')
    assert ran.text() == "".join(f"out {i}\n" for i in range(1, 20001))
    assert ran.text("stderr") == "".join(f"err {i}\n" for i in range(1, 20001))
    assert len(ran.outputs) < 100


def test_a_line_of_a_megabyte(client: Client) -> None:
    ran = client.run("exec \"head -c 1000000 /dev/zero | tr '\\\\0' x\"")
    assert ran.text() == "x" * 1_000_000


NOTE = "… 198,900 lines (1,284,302 bytes) not displayed; `let NAME = exec …` with `max-output:` keeps all of it"


def test_a21_the_middle_of_a_flood_is_left_out(cutting: Client) -> None:
    ran = cutting.run(f'exec "seq {LINES}"')
    expected = [*range(1, 1001), *range(LINES - 99, LINES + 1)]
    assert ran.text().splitlines() == [str(i) for i in expected]
    assert ran.kinds[-4:] == ["stream", "display_data", "stream", "display_data"]
    assert ran.displays[0] == NOTE
    assert "stdout was 1,288,895 bytes; the value keeps its first 30,000 characters" in ran.displays[1]


def test_a21_a_person_sees_the_last_line_and_then_the_same(cutting: Client) -> None:
    code = 'exec "seq 2000; until [ -e go ]; do sleep 0.02; done; rm go; seq 2001 3000"'
    cutting.run('exec "touch go"')
    quiet = cutting.run(code)
    request = cutting.send(code, allow_stdin=True)
    shown = cutting.until(request, lambda m: m["msg_type"] == "display_data")["content"]
    assert shown["data"]["text/plain"].startswith("… ") and "not displayed" not in shown["data"]["text/plain"]
    (cutting.directory / "go").touch()
    live = cutting.finish(request)
    (update,) = [c for c in live.of("update_display_data") if "not displayed" in c["data"]["text/plain"]]
    assert update["transient"] == shown["transient"]
    assert update["data"] == quiet.of("display_data")[0]["data"]
    assert live.text().endswith(quiet.text()[-400:])


def test_a21_a_branch_says_in_its_text_what_is_left_out(cutting: Client) -> None:
    ran = cutting.run('parallel:\n  exec "seq 5000"\n  exec "echo hi"')
    lines = ran.text().splitlines()
    assert lines[1000:1002] == [
        "[_1] … 3,900 lines (19,500 bytes) not displayed; `let NAME = exec …` keeps all of it",
        "[_1] 4901",
    ]
    assert lines[-1] == "[_2] hi"


def test_a21_a_magic_command_is_cut_too_and_a_value_is_not(cutting: Client) -> None:
    ran = cutting.run("%exec seq 3000")
    assert len(ran.text().splitlines()) == 1_100
    assert ran.displays[0].startswith("… 1,900 lines (9,500 bytes) not displayed")
    assert cutting.run('let all = exec "seq 3000"').status == "ok"
    assert "13,893" in cutting.run("%bindings").displays[0]


def test_many_cells_of_many_commands(client: Client) -> None:
    ran = client.run('repeat 100 as i:\n  exec "echo {i}"')
    assert ran.text() == "".join(f"{i}\n" for i in range(100))
    assert ran.status == "ok"


def test_branches_are_shown_in_source_order(client: Client) -> None:
    code = 'parallel:\n  slow = exec "sleep 0.3; echo a"\n  exec "echo b; echo c"\n  exec "sleep 0.1; echo d >&2"'
    first = client.run(code)
    assert first.text() == "[_2] b\n[_2] c\n" and first.text("stderr") == "[_3] d\n"
    assert [m["content"] for m in client.run(code).outputs] == [m["content"] for m in first.outputs]
    assert first.kinds == ["display_data", "stream", "stream"]


def test_a_person_sees_progress_that_ends_the_same(client: Client) -> None:
    code = 'parallel:\n  slow = exec "sleep 0.5; echo a"\n  exec "echo b"'
    quiet = client.run(code)
    live = client.run(code, allow_stdin=True)
    assert "update_display_data" in live.kinds and "update_display_data" not in quiet.kinds
    kept = {}
    saved = []
    for message in live.outputs:
        content = dict(message["content"])
        shown = content.pop("transient", {}).get("display_id")
        if message["msg_type"] == "update_display_data":
            kept[shown].update(content)
        else:
            saved.append((message["msg_type"], content))
            if shown:
                kept[shown] = content
    expected = []
    for message in quiet.outputs:
        content = dict(message["content"])
        content.pop("transient", None)
        expected.append((message["msg_type"], content))
    assert saved == expected


def test_hostile_output_is_harmless(client: Client) -> None:
    ran = client.run(r'''exec """printf '\\033]0;t\\007\\033[31mred\\033[0m<script>x</script>\\000\\b\\n'"""''')
    assert ran.text() == "␛]0;t␇\x1b[31mred\x1b[0m<script>x</script>␀␈\n"
    ran = client.run(r'''let x = exec """printf '<img src=x onerror=alert(1)>\\033[2J'"""''')
    (result,) = ran.of("execute_result")
    assert "<img" not in result["data"]["text/html"]
    assert "\x1b" not in result["data"]["text/plain"]


def test_a21_a_console_that_cannot_replace_displays_reads_how_much_is_left_out(cutting: Client) -> None:
    client = cutting
    client.channels.session.metadata = {}  # `jupyter console` names no cell
    try:
        ran = client.run('parallel:\n  a = exec "echo 1"\nexec "seq 1 3000"', allow_stdin=True)
    finally:
        client.channels.session.metadata = {"cellId": "a"}
    assert "update_display_data" not in ran.kinds
    assert ran.displays[0].startswith("parallel, 1 branch: 1 done")
    assert any(shown.startswith("… 1,900 lines") for shown in ran.displays), ran.displays
