"""What IPython shows of a `%%prose` cell: its outputs, its result, its error, and its questions at a terminal."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import queue
import re
import signal
import sys
import time
from typing import Any

from prose_kernel.errors import NoPerson
from prose_kernel.notebook.magics.registry import all_magics
from prose_kernel.notebook.messages import replaces_displays
from prose_kernel.runs.loop_thread import ctrl_c
from prose_kernel.runtime.asker import DECISIONS, NEXT_PART, PARTS_OF_A_PASTE, Form, discard_typed
from prose_kernel.runtime.ports import Stream
from prose_kernel.views.display import Display, Output, Problem
from prose_kernel.views.escaping import terminal

MAGIC = "%prose "
"""The prefix of the kernel's magics in a Python notebook."""


class CellResult:
    """The last value of a `%%prose` cell as IPython's result, displayed as in the kernel."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, object]]:
        return dict(self._display.data), self._display.metadata

    def __repr__(self) -> str:
        return self._display.data.get("text/plain", "")


class ProseCellError(Exception):
    """A `%%prose` or `%%vvm` cell failed. Raised as a subclass with the name of the problem (`ExecError` …)."""

    problem: Problem
    of_line: bool
    """Whether a `%prose` line failed: magics have no second `%` there, unlike in a `%%prose` cell."""

    def _render_traceback_(self) -> list[str]:
        lines = self.problem.lines("%prose explain")
        return [_as_python_magics(line) if self.of_line and line.startswith(_HINT) else line for line in lines]


_HINT = "\x1b[2mhint: "


def _as_python_magics(hint: str) -> str:
    """Return a hint with line magics as they are typed in Python: `%prose bindings` instead of `%bindings`."""
    return re.sub(rf"(?<![%\w])%(?=(?:{'|'.join(all_magics())})\b)", MAGIC, hint)


def as_exception(problem: Problem, *, of_line: bool = False) -> ProseCellError:
    """Return an exception with the name, text and traceback of a problem."""
    own = {"__module__": "prose_kernel", "problem": problem, "of_line": of_line}
    kind = type(problem.ename, (ProseCellError,), own)
    error = kind(problem.evalue)
    assert isinstance(error, ProseCellError)
    return error


# ---------------------------------------------------------------- outputs


class ShellOutput(Output):
    """`Output` through IPython's streams and display publisher. `whole_cell` is true if the cell has no other code
    that may display something."""

    def __init__(self, shell: Any, whole_cell: bool) -> None:
        self.whole_cell = whole_cell
        self._shell = shell
        self._last: Stream | None = None
        self.value: Display | None = None

    def stream(self, name: Stream, text: str) -> None:
        if self._last not in (None, name):
            self.flush()
        self._last = name
        (sys.stdout if name == "stdout" else sys.stderr).write(text)

    @property
    def in_place(self) -> bool:
        """Whether displays can be replaced later; a terminal would show them a second time."""
        kernel = getattr(self._shell, "kernel", None)
        return kernel is not None and replaces_displays(kernel.get_parent("shell"))

    def flush(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()

    def display(self, display: Display, display_id: str | None = None) -> None:
        self._publish(display, display_id, update=False)

    def update(self, display: Display, display_id: str) -> None:
        self._publish(display, display_id, update=True)

    def _publish(self, display: Display, display_id: str | None, *, update: bool) -> None:
        self.flush()
        transient = {"display_id": display_id} if display_id else {}
        self._shell.display_pub.publish(
            data=dict(display.data), metadata=display.metadata, transient=transient, update=update
        )

    def result(self, display: Display) -> None:
        self.value = display

    def error(self, problem: Problem) -> None:
        """Do nothing: IPython shows the error when the magic raises it."""

    def clear(self, *, wait: bool = False) -> None:
        self.flush()
        self._shell.display_pub.clear_output(wait)

    def page(self, display: Display) -> None:
        from IPython.core import page

        page.page({"data": dict(display.data), "text/plain": display.data["text/plain"]})


# ---------------------------------------------------------------- the person at a terminal


class TerminalAsker:
    """Asks the person at an IPython prompt, on the main thread, which waits for the cell anyway."""

    magic = MAGIC

    def __init__(self) -> None:
        self.questions: queue.Queue[tuple[str, bool, concurrent.futures.Future[str]]] = queue.Queue()

    @property
    def available(self) -> bool:
        return sys.stdin is not None and sys.stdin.isatty()

    async def ask(self, prompt: str) -> str:
        return await self._ask(prompt, decides=False)

    async def ask_form(self, prompt: str, form: Form) -> str:
        """Ask a question. A decision must be typed after it: text typed or pasted earlier is discarded."""
        return await self._ask(prompt, decides=form.kind in DECISIONS)

    async def _ask(self, prompt: str, *, decides: bool) -> str:
        if not self.available:
            raise NoPerson
        answer: concurrent.futures.Future[str] = concurrent.futures.Future()
        self.questions.put((prompt, decides, answer))
        return await asyncio.wrap_future(answer)

    def show(self, text: str) -> None:
        print(terminal(text))

    def serve(self) -> None:
        """Ask a waiting question; called on the main thread."""
        try:
            prompt, decides, answer = self.questions.get_nowait()
        except queue.Empty:
            return
        if answer.set_running_or_notify_cancel():
            try:
                for _ in range(PARTS_OF_A_PASTE):
                    if not (decides and discard_typed(sys.stdin.fileno())):
                        break
                    time.sleep(NEXT_PART)
                with ctrl_c(signal.default_int_handler):
                    answer.set_result(builtins.input(prompt))
            except EOFError as end:
                answer.set_exception(end)
            except KeyboardInterrupt:
                answer.set_exception(EOFError())
                raise
