"""`jupyter console` with both kernels, at a real terminal: what a person types, and what the screen then holds."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import forked
import pexpect
import pytest
from notebook.kernels import KERNELS, REPOSITORY
from pexpect.spawnbase import SpawnBase
from waiting import gone

SECONDS = 40
SHELL = "ZMQTerminalInteractiveShell"
ENTER, TAB, UP, CTRL_C, CTRL_D = "\r", "\t", "\x1b[A", "\x03", "\x04"
READY = "\x1b[?2004h"
"""The editor of a prompt has begun: it asks the terminal to mark what is pasted."""
ENTERED = "\x1b[?2004l"
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(shown: str) -> str:
    return SEQUENCE.sub("", shown).replace("\r", "")


class Console:
    """One `jupyter console` and its kernel, as forks unless they are `real`. Between two calls it waits at an empty
    prompt."""

    def __init__(self, kernel: str, directory: Path, *, real: bool = False) -> None:
        self.place = directory / ".jupyter"
        folders = {f"JUPYTER_{name}_DIR": str(self.place / name.lower()) for name in ("DATA", "CONFIG", "RUNTIME")}
        if real:
            specs = self.place / "real" / "kernels" / kernel
            specs.mkdir(parents=True, exist_ok=True)
            text = KERNELS[kernel].read_text()
            (specs / "kernel.json").write_text(text.replace('"python"', f'"{sys.executable}"', 1))
        variables = {
            **os.environ,
            **folders,
            "JUPYTER_PATH": str(self.place / ("real" if real else "forks")),
            "IPYTHONDIR": str(directory / ".ipython"),
            "PYTHONPATH": str(REPOSITORY),
            "TERM": "xterm-256color",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        # After a second without an answer the front end decides by itself, and permanently, where a cell ends.
        words = ["--kernel", kernel, f"--{SHELL}.kernel_is_complete_timeout={SECONDS}"]
        self.child: SpawnBase
        if real:
            command = ["-m", "jupyter_console", *words]
            self.child = pexpect.spawn(sys.executable, command, cwd=directory, env=variables, encoding="utf-8")
            self.child.delaybeforesend = None
        else:
            code = "import runpy; runpy.run_module('jupyter_console', run_name='__main__')"
            self.child = forked.Terminal(code, *words, cwd=directory, env=variables, columns=100, package=REPOSITORY)
        self.child.timeout = SECONDS
        self.typed = ""
        self.until(READY)

    def until(self, text: str) -> str:
        """The output of the terminal before `text`."""
        self.child.expect_exact(text)
        return str(self.child.before)

    def type(self, *lines: str) -> None:
        """Type lines and press Enter after each; the last Enter has ended the cell when this returns."""
        self.child.send("".join(line + ENTER for line in lines))
        self.typed = self.until(ENTERED)

    def run(self, *lines: str) -> str:
        """The output of a cell, up to the next prompt."""
        self.type(*lines)
        return self.shown()

    def shown(self) -> str:
        return plain(self.until("\r\n" + READY))

    def answer(self, prompt: str, keys: str) -> str:
        """Wait for a question and answer it; what the cell shows after it."""
        self.until(prompt)
        self.child.send(keys)
        return self.shown()

    def interrupt(self) -> str | None:
        """Press Ctrl-C and return the output up to the next prompt; None if the console hangs.

        The front end has two race conditions, which are not under test. Python's `input()` loses a signal between
        showing its question and waiting for a key; a second Ctrl-C works. jupyter_console deadlocks if the signal
        arrives while it starts to wait for a message, because its signal handler needs the lock of that wait.
        """
        for _ in range(3):
            self.child.send(CTRL_C)
            if self.child.expect_exact(["\r\n" + READY, pexpect.TIMEOUT], timeout=SECONDS / 4) == 0:
                return plain(str(self.child.before))
        return None

    def edited(self, keys: str, *texts: str) -> None:
        """Press keys, read until the prompt shows all texts, and leave the line."""
        self.child.send(keys)
        seen = ""
        while not all(text in plain(seen) for text in texts):
            seen += self.child.read_nonblocking(4096, timeout=SECONDS)
        self.child.send(CTRL_C)

    def leave(self) -> None:
        self.child.send(CTRL_D)
        self.until("([y]/n)?")
        self.child.send("y" + ENTER)
        self.until("Shutting down kernel")
        self.child.expect(pexpect.EOF)
        self.child.close()

    def close(self) -> None:
        """As when the window of its terminal is closed."""
        if isinstance(self.child, forked.Terminal):
            self.child.end(0)
        else:
            self.child.close(force=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("console")
    (forks := made / ".jupyter" / "forks").mkdir(parents=True)
    with forked.as_kernels(forks, KERNELS):
        yield made


@pytest.fixture(scope="module")
def consoles(folder: Path) -> Iterator[dict[str, Console]]:
    opened = {name: Console(name, folder) for name in ("prose", "vvm")}
    yield opened
    for one in opened.values():
        one.close()


@pytest.fixture
def prose(consoles: dict[str, Console]) -> Console:
    return consoles["prose"]


@pytest.fixture
def vvm(consoles: dict[str, Console]) -> Console:
    return consoles["vvm"]


def test_a20_enter_continues_a_block_and_a_blank_line_ends_it(prose: Console, vvm: Console) -> None:
    assert prose.run("repeat 2:", 'exec "echo hi"', "").split() == ["hi", "hi"]
    assert plain(prose.typed).count("   ...:   ") >= 2, "the next line is indented"
    assert vvm.run("def double(n):", "return n + n", "") == ""
    assert vvm.run("double(21)").endswith("42\n")


@pytest.mark.parametrize("name", ["prose", "vvm"])
def test_a20_one_blank_line_ends_a_cell_of_another_kind(consoles: dict[str, Console], name: str) -> None:
    assert consoles[name].run("%%task", "echo of a task", "") == "of a task\n"
    assert consoles[name].run("%%prose", 'exec "echo one"', 'exec "echo two"', "") == "one\ntwo\n"


@pytest.mark.parametrize(("name", "code"), [("prose", "let x = 1"), ("vvm", "if true:\r  x = 1\r\r")])
def test_words_of_the_language_have_colours(consoles: dict[str, Console], name: str, code: str) -> None:
    consoles[name].run(code) if name == "prose" else consoles[name].run(*code.removesuffix(ENTER).split(ENTER))
    word = code.split()[0]
    coloured = re.findall(r"\x1b\[([0-9;]*)m" + word, consoles[name].typed)
    assert coloured and all(";" in style for style in coloured)
    assert re.search(r"\x1b\[0mx", consoles[name].typed), "a name has none"


def test_parallel_work_is_shown_once_and_without_control_characters(prose: Console) -> None:
    prose.type("parallel:", 'exec "echo left; sleep 0.2; echo left again"', 'exec "echo right"', "")
    shown = prose.until("\r\n" + READY)
    assert "\x1b[A" not in shown and "\r\x1b" not in shown
    assert sorted(line for line in plain(shown).splitlines() if line.startswith("[")) == [
        "[_1] left",
        "[_1] left again",
        "[_2] right",
    ]


def test_a_gate_is_answered_at_the_prompt(prose: Console) -> None:
    prose.type("gate send:", 'prompt: "Go on?"', "")
    assert prose.until("approve or reject?").lstrip().startswith("Go on?\r\n")
    prose.child.send("y" + ENTER)
    assert prose.shown().endswith("gate send: approved by user\n")


def test_an_input_is_typed_after_its_question(prose: Console) -> None:
    prose.type('input topic: "What about?"')
    assert "topic: text = ships" in prose.answer("What about? ", "ships" + ENTER)


def test_a_person_answers_a_session(prose: Console) -> None:
    assert prose.run("%provider human") == ""
    prose.type('let poem = session "Write one line"')
    assert "Roses are red" in prose.answer("> ", "Roses are red" + ENTER)


@pytest.mark.parametrize("keys", [CTRL_C, CTRL_D])
def test_a_question_is_left(prose: Console, keys: str) -> None:
    prose.type('input other: "And then?"')
    if keys == CTRL_C:
        prose.until("And then? ")
        said = prose.interrupt() or ""
    else:
        said = prose.answer("And then? ", keys)
    assert ("the cell was interrupted" if keys == CTRL_C else "the person's input has ended") in said
    assert prose.run('exec "echo still here"') == "still here\n"


def test_ctrl_c_ends_the_command_and_not_the_kernel(consoles: dict[str, Console], folder: Path) -> None:
    for _ in range(3):
        prose = consoles["prose"]
        prose.run('let kept = "still here"')
        prose.type('exec "echo begun; sleep 4731"')
        prose.until("begun\r\n")
        if (said := prose.interrupt()) is not None:
            break
        prose.close()  # see `interrupt`
        consoles["prose"] = Console("prose", folder)
    assert said is not None and "KeyboardInterrupt: the cell was interrupted" in said
    assert gone("sleep 4731")
    assert prose.run("output result = kept").endswith("still here\n")


def test_an_error_is_bold_with_the_caret_below_its_place(prose: Console) -> None:
    prose.type('let y = "🙂漢" + nothing')
    shown = prose.until("\r\n" + READY)
    assert "\x1b[1mError at line 1, column 16: Undefined variable `nothing` [E131]\x1b[0m\r\n" in shown
    line, caret = plain(shown).split("\n")[1:3]
    assert caret.index("^") == line.index("nothing") + 2, "two characters are twice as wide as others"


def test_tab_completes(prose: Console, vvm: Console) -> None:
    prose.run('let a_long_name = "x"')
    prose.edited("output o = a_lo" + TAB, "output o = a_long_name")
    prose.edited("%bound" + TAB, "%boundaries")
    vvm.run("another_name = 1")
    vvm.edited("anoth" + TAB, "another_name")


def test_help_fits_the_terminal(prose: Console) -> None:
    lines = prose.run("%help all").splitlines()
    assert any(line.startswith("%agents ") for line in lines)
    assert [line for line in lines if len(line) > 100 and line.startswith(" ")] == []


def test_leaving_ends_the_kernel_and_the_next_one_remembers_cells(folder: Path) -> None:
    running = set(folder.rglob("kernel-*.json"))
    first = Console("prose", folder, real=True)
    assert first.run("repeat 2:", 'exec "echo remembered"', "").split() == ["remembered", "remembered"]
    first.leave()
    assert set(folder.rglob("kernel-*.json")) == running
    second = Console("prose", folder)
    try:
        second.child.send(UP + ENTER + ENTER)
        second.typed = second.until(ENTERED)
        assert second.shown().split() == ["remembered", "remembered"]
    finally:
        second.close()


def test_a_closed_terminal_leaves_no_process(folder: Path) -> None:
    console = Console("prose", folder, real=True)
    console.type('exec "echo begun; sleep 4732"')
    console.until("begun\r\n")
    console.close()
    assert gone("sleep 4732")
