"""Write to a terminal or pipe, show the progress of parallel work, and ask the user.

Results of a program go to stdout; questions, notes, progress and errors go to stderr, so that a pipe carries only the
results. On a terminal, running branches and sessions are shown live below the output.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TextIO

import click

from prose_kernel.cli import streams
from prose_kernel.cli.live_region import LiveRegion, can_redraw, terminal_size
from prose_kernel.errors import NoPerson, UsageError
from prose_kernel.runtime.asker import DECISIONS, NEXT_PART, PARTS_OF_A_PASTE, Form, discard_typed
from prose_kernel.runtime.ports import Stream
from prose_kernel.views.escaping import TerminalText, terminal, visible
from prose_kernel.views.live_text import LiveLine

Notify = Literal["off", "bell", "desktop"]
LONG_PAUSE = 10.0
"""Seconds after which a person may no longer be watching the terminal."""
MOTTO = "workflows you can write, run, pause, read and test"
RESET = "\x1b[0m"
PLAIN = (RESET, "\x1b[m")
SGR = re.compile(r"\x1b\[[0-9;:]*m")


class GuardedTerminal:
    """A terminal stream that shows all escape sequences except colours as text."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        self.unguarded.write(terminal(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class Screen:
    """Both output streams, and the live region below them.

    `products_to_stderr` is for `--format json`: stdout is then reserved for the object at the end.
    """

    def __init__(self, out: TextIO, err: TextIO, *, products_to_stderr: bool = False) -> None:
        out, err = (getattr(stream, "unguarded", stream) for stream in (out, err))
        self._files: dict[Stream, TextIO] = {"stdout": err if products_to_stderr else out, "stderr": err}
        self.colour = err.isatty() and not streams.without_colour()
        self._err = err
        self._region: LiveRegion | None = None
        if can_redraw(err):
            self._region = LiveRegion(lambda text: self._write("stderr", text), lambda: terminal_size(err), self.colour)
        self._asking = 0
        self._partial: dict[Stream, str] = {}
        self._open_lines: set[str] = set()
        self._texts: dict[Stream, TerminalText] = {"stdout": TerminalText(), "stderr": TerminalText()}
        self._coloured = False

    # -------------------------------------------------- writing

    def write(self, stream: Stream, text: str) -> None:
        """Show output of a command: unchanged on a pipe; on a terminal, only its colours have an effect."""
        if self.shares_terminal(stream):
            text = self._texts[stream].feed(text)
            if colours := SGR.findall(text):
                self._coloured = colours[-1] not in PLAIN
        self._forward(stream, text)

    @property
    def takes_bytes(self) -> bool:
        """Whether stdout is a pipe or a file, to which binary results can be written."""
        file = self._files["stdout"]
        return file is not self._err and not file.isatty() and hasattr(file, "buffer")

    def write_bytes(self, data: bytes) -> None:
        """Write the bytes of a result; only if `takes_bytes`."""
        file = self._files["stdout"]
        file.flush()
        file.buffer.write(data)
        file.flush()

    def _forward(self, stream: Stream, text: str) -> None:
        if not text:
            return
        surface = "terminal" if self.shares_terminal(stream) else stream
        if text.endswith("\n"):
            self._open_lines.discard(surface)
        else:
            self._open_lines.add(surface)
        if self._region is not None and self._region.visible and surface == "terminal":
            self._write_above(self._region, stream, text)
        else:
            self._write(stream, text)

    def line(self, stream: Stream, text: str, style: Callable[[str], str] = str) -> None:
        """Write a line of this command's own text. It never continues an unfinished line of a command's output."""
        surface = "terminal" if self.shares_terminal(stream) else stream
        start = "\n" if surface in self._open_lines else ""
        self._forward(stream, f"{self._end_of_colour(stream)}{start}{style(self.harmless(stream, text))}\n")

    def harmless(self, stream: Stream, text: str) -> str:
        """Return a text that may quote a program, a person or a file so that it is safe to show: on a terminal, control
        characters of a message have no effect, and a result may only have colours."""
        if not self.shares_terminal(stream):
            return text
        return visible(text) if stream == "stderr" else terminal(text)

    def note(self, text: str, colour: str | None = None) -> None:
        """Write a remark about the run to stderr, in a colour or dim if stderr shows colours."""
        style = functools.partial(click.style, fg=colour, dim=colour is None) if self.colour else str
        self.line("stderr", text, style)

    def _end_of_colour(self, stream: Stream) -> str:
        """Return the sequence that resets a colour left on by a command, which could make later text unreadable."""
        if not (self._coloured and self.shares_terminal(stream)):
            return ""
        self._coloured = False
        return RESET

    def fresh_line(self) -> None:
        """Make the next text on stderr begin a line."""
        ended = self._end_of_colour("stderr")
        self._forward("stderr", ended + ("\n" if self._open_lines & {"terminal", "stderr"} else ""))

    def signal_person(self, how: Notify) -> None:
        """Signal to the person at the terminal, if there is one. The signal contains no text of the program."""
        if how != "off" and self.shares_terminal("stderr"):
            self._write("stderr", "\a" if how == "bell" else "\x1b]9;prose: a question waits for you\a")

    def answered(self) -> None:
        """Note that the person has ended the line of a question."""
        self._open_lines.discard("terminal")

    def _write(self, stream: Stream, text: str) -> None:
        file = self._files[stream]
        file.write(text)
        file.flush()

    # -------------------------------------------------- the live region

    def banner(self) -> None:
        """Show the box at the start, only on a terminal with colours."""
        if self.colour:
            from rich.console import Console
            from rich.panel import Panel

            Console(file=self._err).print(Panel.fit(f"[bold]prose[/bold]  {MOTTO}", border_style="dim"))

    @property
    def redraws(self) -> bool:
        """Whether running activities can be shown below the output."""
        return self._region is not None

    @property
    def rows(self) -> int:
        """The number of rows for running activities."""
        return self._region.rows if self._region is not None else 0

    def show(self, lines: Sequence[LiveLine]) -> None:
        """Show these lines below the output instead of the former ones; without lines, remove the former ones.

        No lines are shown while a person is asked, and they do not begin below an unfinished line of output.
        """
        region = self._region
        if region is None or self._asking:
            return
        if not lines:
            self._close()
        elif region.visible or "terminal" not in self._open_lines:
            region.draw(lines, self._unfinished())

    def _unfinished(self) -> str:
        return next((text for text in reversed(self._partial.values()) if text), "")

    def rest(self) -> None:
        """Remove the live lines, and print unfinished lines of output."""
        for name, held in self._texts.items():
            self._forward(name, held.end())
        self._close()

    def _close(self) -> None:
        if self._region is None:
            return
        self._region.erase()
        for stream, text in self._partial.items():
            self._write(stream, text)
        self._partial.clear()

    @contextmanager
    def continuing(self) -> Iterator[None]:
        """Inside the block, live lines leave alone what the shell wrote while the process was stopped (Ctrl-Z)."""
        region = self._region
        if region is None:
            yield
            return
        before = signal.signal(signal.SIGCONT, lambda *_: region.leave())
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Show no live lines inside the block, in which a person is asked."""
        self._close()
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    def explain(self, code: str, docs_url: str | None) -> None:
        """Show on a terminal how to read about an error, as a link if the terminal supports links."""
        if not code or not self.shares_terminal("stderr"):
            return
        from prose_kernel.cli import hyperlinks

        url = hyperlinks.documentation(code, docs_url) if hyperlinks.understood(os.environ) else ""

        def styled(text: str) -> str:
            dim = click.style(text, dim=True, reset=False) if self.colour else text
            return (hyperlinks.linked(dim, url) if url else dim) + (RESET if self.colour else "")

        self.line("stderr", f"more: prose explain {code}", styled)

    def shares_terminal(self, stream: Stream) -> bool:
        return self._files[stream].isatty()

    def _write_above(self, region: LiveRegion, stream: Stream, text: str) -> None:
        """Write whole lines above the live lines; the start of a line waits until the line is complete."""
        whole, newline, rest = (self._partial.pop(stream, "") + text).rpartition("\n")
        if rest:
            self._partial[stream] = rest
        region.above(lambda: self._write(stream, whole + newline), self._unfinished())


class TerminalAsker:
    """The user at the terminal: an `Asker` over the lines of standard input.

    It reads through the event loop, so that a cancelled question (a deadline, an interrupt) ends immediately. `notify`
    is the signal for a question after a long time without one, as measured by `clock`.
    """

    magic = ""

    def __init__(
        self,
        source: TextIO,
        screen: Screen,
        available: bool,
        notify: Notify = "off",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._screen = screen
        self.available = available
        self._buffer = b""
        self._notify = notify
        self._clock = clock
        self._seen = clock()

    def show(self, text: str) -> None:
        """Show a text apart from the program's output. Its control characters are made visible: it may contain output
        of a command, which must not repaint the terminal on which a person decides."""
        with self._screen.quiet():
            self._screen.line("stderr", visible(text))

    async def ask(self, prompt: str) -> str:
        """Return the typed answer. Raises `NoPerson` without a terminal, `EOFError` at the end of input (Ctrl-D)."""
        if not self.available:
            raise NoPerson
        question = visible(prompt)
        with self._screen.quiet():
            self._screen.fresh_line()
            self._screen.write("stderr", question if question.endswith((" ", "\n")) else f"{question} ")
            if self._clock() - self._seen >= LONG_PAUSE:
                self._screen.signal_person(self._notify)
            try:
                answer = await self._read_line()
            except BaseException:
                self._screen.write("stderr", "\n")
                raise
            self._screen.answered()
            self._seen = self._clock()
            return answer

    async def ask_form(self, prompt: str, form: Form) -> str:
        """Ask like `ask`. For a decision (a gate, a permission, consent to a program), text that was typed or pasted
        before the question is discarded."""
        if self.available and form.kind in DECISIONS:
            for _ in range(PARTS_OF_A_PASTE):
                if not (discard_typed(self._source.fileno()) or self._buffer):
                    break
                self._buffer = b""
                await asyncio.sleep(NEXT_PART)
        return await self.ask(prompt)

    async def _read_line(self) -> str:
        while b"\n" not in self._buffer:
            data = await _read_when_ready(self._source.fileno())
            if not data:
                if not self._buffer:
                    raise EOFError
                break
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


async def _read_when_ready(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 65536)


def is_interactive(source: TextIO, err: TextIO) -> bool:
    """Return whether a user can be asked: stdin and stderr are terminals, and no CI system runs this process."""
    from prose_kernel.runs.settings import in_ci

    return source.isatty() and err.isatty() and not in_ci(os.environ)


def confirm(text: str, question: str, hint: str, refused: str = "nothing was changed") -> None:
    """Show a text and ask the person. Raises `UsageError` if they decline, or if no person can be asked."""
    from prose_kernel.access import peers

    if peers.inside_a_run() or not is_interactive(sys.stdin, sys.stderr):
        raise UsageError(text, hint=hint)
    click.echo(text, err=True)
    if not click.confirm(question, err=True):
        raise UsageError(refused)
