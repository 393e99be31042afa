"""The debugger of a kernel: answers `debug_request`, and sends `debug_event` (docs/how-to/debugging.md).

A request arrives on the control thread and is answered in the loop that runs the cells, in which a paused program
waits; so nothing needs a lock. The kernel loads this module with the first request.
"""

# mypy: disable-error-code="no-untyped-call,attr-defined,union-attr"
from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.debugger.adapter import Adapter
from prose_kernel.errors import UsageError
from prose_kernel.notebook.cell_scan import cell_language, draft_language, has_statements, segments
from prose_kernel.runtime.values import Value
from prose_kernel.views.cards import value_display
from prose_kernel.views.escaping import fenced, inline_code, preview

if TYPE_CHECKING:
    from prose_kernel.notebook.kernel import ProseKernel
    from prose_kernel.runs.languages import Language

_BUSY_SECONDS: Final = 5.0
"""How long a request waits for a program that computes without yielding to the loop."""


class KernelDebugger:
    """The connection between the channels of a kernel and its debug session."""

    def __init__(self, kernel: ProseKernel, loop: asyncio.AbstractEventLoop) -> None:
        self._kernel = kernel
        self._loop = loop
        self.directory = kernel.cells.cwd
        self._adapter = Adapter(kernel.cells.language, self._publish, self._read_cell, self)

    async def answer(self, request: object) -> dict[str, object]:
        """Return the reply to a request. Called on the control thread; interrupts must not wait for a busy program."""
        future = asyncio.run_coroutine_threadsafe(self._adapter.handle(request), self._loop)
        try:
            found: dict[str, object] = sendable(await asyncio.wait_for(asyncio.wrap_future(future), _BUSY_SECONDS))
            return found
        except TimeoutError:
            given: Mapping[str, Any] = request if isinstance(request, Mapping) else {}
            seq = given.get("seq")
            return {
                "type": "response",
                "seq": 0,
                "request_seq": seq if isinstance(seq, int) else 0,
                "success": False,
                "command": sendable(str(given.get("command", ""))),
                "message": "the kernel computes and cannot answer now",
                "body": {},
            }

    # ------------------------------------------------------------ cells

    def cell_starts(self, code: str) -> None:
        if self._adapter.started:
            self._adapter.debugger.cell_starts(code)

    def cell_ends(self) -> None:
        if self._adapter.started:
            self._adapter.debugger.cell_ends()

    # ------------------------------------------------------------ requests of the adapter

    def attached(self) -> None:
        """Start to pause programs for a client that has attached."""
        cells, debugger = self._kernel.cells, self._adapter.debugger
        for code in self._kernel.magic_cells:
            self._adapter.texts.cell_runs(code)
        cells.add_hook(debugger)
        cells.debugger = debugger

    def detached(self) -> None:
        """Stop pausing programs, because the client has left."""
        cells = self._kernel.cells
        cells.remove_hook(self._adapter.debugger)
        cells.debugger = None

    def _read_cell(self, code: str) -> tuple[Language, Sequence[str]]:
        default = self._kernel.cells.language
        try:
            language, text = cell_language(code, default)
        except UsageError:
            language, text = draft_language(code, default)
        found = [piece.text for piece in segments(text, language) if not piece.magic and has_statements(piece.text)]
        return language, found

    def names(self) -> Mapping[str, tuple[Value, Language]]:
        """Return the values of the run with their languages, for requests while no program is paused."""
        return {name: (named.info.value, named.language) for name, named in self._kernel.cells.names().items()}

    def journal_position(self) -> int:
        run = self._kernel.cells.current
        return run.journal.position if run is not None and run.journal is not None else 0

    def prepare_rewind(self) -> str:
        """Prepare to run the cell again. Return why that isn't possible, or an empty text."""
        run = self._kernel.cells.current
        if run is None or run.journal is None or not run.journal.abandon_text():
            return "going back needs the run's journal; the setting journal is off, or the run is kept in memory"
        return ""

    def interrupt(self) -> None:
        self._kernel.interrupt_cell()

    def rich(self, name: str, value: Value, language: Language) -> dict[str, Any]:
        """Return `value` in full: the answer of a session as Markdown, an array of objects as a table."""
        shown = value_display(value, language)
        head = f"{inline_code(name)}: {language.kind_of(value)}"
        if "text/html" in shown.data:
            return {"data": dict(shown.data), "metadata": {}}
        plain = shown.data["text/plain"]
        text, rest = preview(plain, lines=500, characters=50_000)
        body = shown.data.get("text/markdown", fenced(text) + (f"\n\n… ({rest})" if rest else ""))  # Markdown: sessions
        return {"data": {"text/markdown": f"{head}\n\n{body}", "text/plain": plain}, "metadata": {}}

    def _publish(self, event: str, message: dict[str, Any]) -> None:
        kernel = self._kernel
        kernel.session.send(
            kernel.iopub_socket,
            "debug_event",
            sendable(message),
            parent=kernel.running_request,
            ident=kernel._topic("debug_event"),
        )


def sendable(message: Any) -> Any:
    """Return a message without lone surrogates, which no channel can send; clients and programs may produce them."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
        return message
    except UnicodeEncodeError:
        return json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
