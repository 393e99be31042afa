"""Nothing is lost, and few messages carry it."""

from __future__ import annotations

from notebook.kernels import Client

LINES = 200_000


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


def test_more_than_the_display_cap_is_cut_visibly(client: Client) -> None:
    ran = client.run("exec \"head -c 20000000 /dev/zero | tr '\\\\0' x\"")
    text = ran.text()
    assert len(text) < 9_000_000 and "display stopped, capture continues" in text[-200:]
    assert "stdout was 20,000,000 bytes" in ran.displays[-1]


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
