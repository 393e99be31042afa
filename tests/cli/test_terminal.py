"""Questions, progress, the banner and interrupts at a terminal, each with a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import forked
import pexpect
import pytest
from cli.screened import Screened

from prose_kernel.cli.terminal import Notify, Screen, TerminalAsker

Start = Callable[..., forked.Terminal]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that runs a program at a terminal of 100 columns."""
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    running: list[forked.Terminal] = []

    def start(text: str, *arguments: str, command: Sequence[str] = ()) -> forked.Terminal:
        (tmp_path / "p.prose").write_text(text)
        running.append(forked.Terminal(*(command or ("run", "p.prose", *arguments)), cwd=tmp_path, columns=100))
        return running[-1]

    yield start
    for child in running:
        child.end(wait=0)


def end(child: forked.Terminal) -> int | None:
    child.expect(pexpect.EOF)
    return child.end()


def test_an_input_is_asked_and_answered(start: Start) -> None:
    child = start('input name: "What is your name?"\noutput hello = "hello {name}"\n')
    child.expect_exact("prose")
    child.expect_exact("What is your name? ")
    child.sendline("Ada")
    child.expect("hello.*: hello Ada\r\n")
    assert end(child) == 0


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("notify", "stream", "called"),
    [
        ("off", Tty, ""),
        ("bell", Tty, "\a"),
        ("desktop", Tty, "\x1b]9;prose: a question waits for you\a"),
        ("bell", io.StringIO, ""),
    ],
)
def test_a_waiting_person_is_notified_at_a_terminal(notify: Notify, stream: type[io.StringIO], called: str) -> None:
    now, err = [0.0], stream()
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\n")
    os.close(writing)
    with os.fdopen(reading) as source:
        asker = TerminalAsker(source, Screen(io.StringIO(), err), True, notify, lambda: now[0])

        async def ask() -> None:
            now[0] = 10.0
            assert await asker.ask("First? ") == "one"
            now[0] = 19.9
            assert await asker.ask("Second? ") == "two"

        asyncio.run(ask())
    assert err.getvalue().replace("First? ", "").replace("Second? ", "").strip("\n") == called


@pytest.mark.parametrize("before", ["approve\n", "x\n" * 6000 + "approve\n"], ids=["a line", "more than fits"])
def test_a33_what_was_typed_before_a_gate_asks_decides_nothing(start: Start, before: str) -> None:
    child = start('input name: "Name?"\ngate go:\n  prompt: "Publish?"\noutput x = name\n')
    child.expect_exact("Name? ")
    child.send(f"me\n{before}")
    child.expect_exact("approve or reject? ")
    child.sendline("reject")
    child.expect_exact("[E213]")
    assert end(child) == 1


def test_end_of_input_means_non_interactive(start: Start) -> None:
    child = start('input name: "Name?"\noutput x = name\n')
    child.expect_exact("Name? ")
    child.send("\x04")
    child.expect_exact("[E212]")
    assert end(child) == 3


def test_a_gate_asks_until_the_answer_is_valid(start: Start) -> None:
    child = start('gate go:\n  prompt: "Publish?"\nexec "echo gone"\n')
    child.expect_exact("Publish?")
    child.expect_exact("approve or reject? ")
    for answer in ("", "perhaps"):
        child.sendline(answer)
        child.expect_exact("please answer approve or reject, with a comment after a colon if you like: ")
    child.sendline("yes: fine")
    child.expect_exact("gate go: approved by user (fine)")
    child.expect_exact("gone\r\n")
    assert end(child) == 0


def test_a_question_cannot_repaint_the_terminal(start: Start) -> None:
    child = start('let bad = exec "printf \'\\\\033[2Jwiped\'"\ngate go:\n  prompt: "Run {bad}?"\n')
    child.expect_exact("wiped?")
    assert "\x1b[2J" not in child.before
    child.expect_exact("approve or reject? ")
    child.sendline("no")
    assert end(child) == 1


@pytest.mark.parametrize("last", ["output y = x", 'throw "no: {x}"'], ids=["output", "error"])
def test_an_answer_of_a_session_cannot_repaint_the_terminal(start: Start, tmp_path: Path, last: str) -> None:
    (tmp_path / "said.yaml").write_text('"*": "\\e[32mgreen\\e[0m \\e[2J\\e]52;c;ZXZpbA==\\a said"\n')
    program = f'session "a"\nlet x = session "b"\n{last}\n'
    child = start(program, "--provider", "scripted", "--script", "said.yaml", "--cassette-mode", "off")
    child.expect(pexpect.EOF)
    shown = child.before
    assert "\x1b[32mgreen\x1b[0m ␛[2J␛]52;c;ZXZpbA==␇ said\r\n" in shown
    assert shown.count("said") == 3
    assert "\x1b[2J" not in shown
    assert "\x1b]" not in shown


def test_an_interrupt_ends_a_question(start: Start) -> None:
    child = start('try:\n  input name: "Name?"\nfinally:\n  exec "echo cleaned"\n')
    child.expect_exact("Name? ")
    child.send("\x03")
    child.expect_exact("cleaned")
    child.expect_exact("interrupted")
    assert end(child) == 130


def test_in_ci_no_question_is_asked_even_at_a_terminal(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    child = start('input name: "Name?"\noutput x = name\n')
    child.expect_exact("[E212]")
    assert end(child) == 3


def test_ci_can_be_switched_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    child = start('input name: "Name?"\n')
    child.expect_exact("Name? ")
    child.sendline("Ada")
    assert end(child) == 0


def test_branches_are_shown_while_they_run_and_leave_only_their_output(start: Start) -> None:
    child = start("""parallel:
  slow = exec "while [ ! -e go ]; do sleep 0.05; done; echo late"
  quick = exec "echo early"
exec "echo after"
""")
    screen = Screened(child)
    screen.until("1 of 2", "✓ quick")
    assert screen.lines[-2].startswith("  ▸ slow") and screen.lines[-2].endswith("echo late")
    assert screen.lines[-1] == "  ✓ quick"
    Path(child.cwd, "go").touch()
    assert screen.end() == 0
    assert screen.lines[3:] == ["slow = late", "quick = early", "after"]


GO = "while [ ! -e go ]; do sleep 0.05; done"


def test_the_output_of_a_named_command_is_seen_while_it_runs_and_leaves_nothing(start: Start) -> None:
    child = start(f'let x = exec "echo compiling; {GO}"\noutput y = 1\n')
    screen = Screened(child)
    screen.until("x = $ echo compiling", "    compiling")
    assert "\x1b[2m    compiling\x1b[0m" in screen.raw
    Path(child.cwd, "go").touch()
    assert screen.end() == 0
    assert screen.lines[3:] == ["x = compiling", "y: 1"]


def test_a_loop_shows_its_pass_and_a_branch_its_last_line_unless_it_is_printed_anyway(start: Start) -> None:
    child = start(f"""repeat 3 as i:
  if i == 1:
    parallel for city in ["oslo", "rome"]:
      exec "echo I am {{city}}; {GO}"
""")
    screen = Screened(child)
    screen.until("repeat 3 as i", "pass 2 of 3", "0 of 2", "I am rome")
    shown = "\n".join(screen.lines)
    assert shown.count("I am oslo") == shown.count("I am rome") == 1  # oslo's is printed; rome's waits for its turn
    assert [line.split()[1] for line in screen.lines if line.startswith("  ▸")] == ["oslo", "rome"]
    Path(child.cwd, "go").touch()
    assert screen.end() == 0
    printed = [line for line in screen.lines if not line.startswith("hint: ")]  # from a warning about the command
    assert [line for line in printed if "I am" in line or "▸" in line] == ["I am oslo", "I am rome"]


def test_an_interrupt_leaves_no_live_line(start: Start) -> None:
    child = start('let x = exec "echo working; sleep 60"\n')
    screen = Screened(child)
    screen.until("    working")
    child.send("\x03")
    assert screen.end() == 130
    assert not [line for line in screen.lines if "▸" in line or "working" in line]


def test_a_terminal_that_becomes_narrower_is_left_clean(start: Start) -> None:
    child = start(f'let x = exec "echo {"long " * 15}; {GO}"\n')
    screen = Screened(child)
    screen.until("    long")
    child.resize(12, 30)
    widest = len(max(screen.lines, key=len))
    assert widest > 60
    screen.until("\n    long long long long long…")
    Path(child.cwd, "go").touch()
    assert screen.end() == 0
    assert not [line for line in screen.lines if "▸" in line]


def test_a_program_that_was_stopped_leaves_alone_what_the_shell_has_written_since(start: Start) -> None:
    child = start(f'let x = exec "echo working; {GO}"\n')
    screen = Screened(child)
    screen.until("    working")
    os.kill(child.process.pid, signal.SIGSTOP)
    os.kill(child.process.pid, signal.SIGCONT)
    screen.until("    working\n▸ x", "    working\n", seconds=10)
    Path(child.cwd, "go").touch()
    assert screen.end() == 0
    assert [line for line in screen.lines if line.startswith("▸")] == screen.lines[3:4]


def test_a_job_in_the_background_draws_no_live_lines(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text('let x = exec "echo working; sleep 1"\nexec "echo done"\n')
    prose = f"{sys.executable} -c 'from prose_kernel.cli.entry import main; main()'"
    jobs = f"set -m; {prose} run p.prose & wait; echo over"
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    child = pexpect.spawn("bash", ["-c", jobs], cwd=str(tmp_path), env=environment, encoding="utf-8", timeout=30)
    child.expect_exact("over")
    assert "done" in child.before and "▸" not in child.before and "\x1b" not in child.before
    child.expect(pexpect.EOF)
    child.close()


def test_live_lines_are_erased_while_a_person_is_asked(start: Start) -> None:
    child = start(f'parallel:\n  slow = exec "{GO}"\n  gate ready:\n    prompt: "Ready?"\n')
    screen = Screened(child)
    screen.until("Ready?", "approve or reject?")
    assert not [line for line in screen.lines if "▸" in line]
    child.sendline("approve")
    screen.until("▸ slow")
    Path(child.cwd, "go").touch()
    assert screen.end() == 0


@pytest.mark.parametrize(("name", "value", "live"), [("NO_COLOR", "1", True), ("TERM", "dumb", False)])
def test_without_colour_lines_are_plain_and_a_dumb_terminal_gets_none(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str, value: str, live: bool
) -> None:
    monkeypatch.setenv(name, value)
    screen = Screened(start('let x = exec "echo working; sleep 0.8"\nexec "echo after"\n'))
    assert screen.end() == 0
    assert ("▸" in screen.raw) is live and ("\x1b[J" in screen.raw) is live
    assert not re.search(r"\x1b\[[0-9;]*m", screen.raw)
    assert screen.lines == ["x = working", "after"]


@pytest.mark.parametrize(
    ("name", "value", "coloured"), [("NO_COLOR", "1", False), ("TERM", "dumb", False), ("A", "", True)]
)
def test_results_of_tests_have_colour_only_where_it_makes_sense(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str, value: str, coloured: bool
) -> None:
    monkeypatch.setenv(name, value)
    screen = Screened(start("output x = 1\n", command=("test", "p.prose")))
    assert screen.end() == 1
    assert "1 failed in 1 file" in screen.lines[-1]
    assert bool(re.search(r"\x1b\[[0-9;]*m", screen.raw)) is coloured


def test_the_live_region_keeps_output_whole(start: Start) -> None:
    child = start("""parallel:
  exec "printf a; sleep 0.2; printf b; sleep 0.2; echo c; printf end"
  exec "sleep 0.5"
exec "echo; echo after"
""")
    child.expect_exact("abc")
    child.expect_exact("end")
    child.expect_exact("after\r\n")
    assert end(child) == 0


def test_a_line_of_prose_never_continues_a_commands_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err)
    screen.write("stderr", "no newline")
    screen.note("a remark")
    screen.note("another")
    assert err.getvalue() == "no newline\na remark\nanother\n"


EVIL = "\\033]0;title\\007\\033[2J\\033[?1049h\\033P1;2q\\033[31mred\\033[0m"
EVIL_EXEC = f'exec """printf \'{EVIL}end\\\\n\'"""\n'


def test_a17_command_output_may_colour_a_terminal_and_nothing_else(start: Start) -> None:
    child = start(EVIL_EXEC)
    child.expect_exact("␛]0;title␇␛[2J␛[?1049h␛P1;2q\x1b[31mred\x1b[0mend\r\n")
    assert end(child) == 0


def test_a17_a_pipe_gets_the_bytes_unchanged(tmp_path: Path) -> None:
    (tmp_path / "p.prose").write_text(EVIL_EXEC)
    ran = forked.prose("run", "p.prose", cwd=tmp_path)
    assert ran.stdout == "\x1b]0;title\x07\x1b[2J\x1b[?1049h\x1bP1;2q\x1b[31mred\x1b[0mend\n"


def test_a17_a_colour_left_by_a_command_hides_no_question(start: Start) -> None:
    child = start('exec """printf \'\\033[8mhidden\'"""\ngate go:\n  prompt: "Publish?"\n')
    child.expect_exact("hidden")
    child.expect_exact("\x1b[0m")
    child.expect_exact("Publish?")
    child.expect_exact("approve or reject? ")
    child.sendline("no")
    assert end(child) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "\x1b]0;t\x07\x1b[2J.prose"],
        ["run", "p.prose", "--input", "\x1b]0;t\x07\x1b[2J=1"],
        ["\x1b]0;t\x07\x1b[2J"],
        ["compile", "\x1b]0;t\x07\x1b[2J.prose"],
        ["compile", "evil.prose"],
        ["run", "evil.prose"],
        ["cassette", "show", "\x1b]0;t\x07\x1b[2J"],
        ["explain", "\x1b]0;t\x07\x1b[2J"],
        ["tasks", "show", "\x1b]0;t\x07\x1b[2J"],
    ],
    ids=" ".join,
)
def test_a17_messages_that_repeat_input_cannot_control_the_terminal(
    start: Start, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "evil.prose").write_text('let x = "\x1b]0;t\x07\x1b[2J" + \x1b]0;t\x07\x1b[2J\n')
    child = start("output x = 1\n", command=arguments)
    child.expect(pexpect.EOF)
    assert "\x1b]" not in child.before and "\x1b[2J" not in child.before and "\x07" not in child.before
    assert any(shown in child.before for shown in ("␛", "x1b", "\N{REPLACEMENT CHARACTER}"))
    assert child.end() in (1, 2)


def test_a21_a_terminal_shows_the_beginning_and_the_end_of_a_flood(start: Start, tmp_path: Path) -> None:
    child = start('exec "seq 200000"\n')
    assert end(child) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before)
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip().isdigit()]
    assert [int(line) for line in lines] == [*range(1, 1001), *range(199_901, 200_001)]
    assert "… 198,900 lines (1,284,302 bytes) not displayed" in text
    ran = forked.prose("run", "p.prose", cwd=tmp_path)
    assert ran.stdout == "".join(f"{i}\n" for i in range(1, 200_001))
