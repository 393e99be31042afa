"""The kernel: sends one reply to each Jupyter request, and outputs on IOPub (docs/reference/jupyter.md 1.2, 6).

One event loop on the main thread runs cells and answers other requests meanwhile; commands run on the engine's thread.
Interrupts cancel the running cell; `ipykernel`'s base class would end the process. Completion, inspection and kernel
info are answered while a cell runs. Only features that exist are advertised. Malformed and unknown requests get an
error reply instead of silence.
"""

# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc"
from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ipykernel.kernelbase import Kernel

from prose_kernel._version import __version__
from prose_kernel.language.text import encodable
from prose_kernel.notebook.cells import Cells, FrontEnd
from prose_kernel.notebook.input_history import InputHistory
from prose_kernel.notebook.lab_extension import TARGET, Panel
from prose_kernel.notebook.messages import (
    COMM_KINDS,
    OUTPUTS_REQUEST,
    CellOutput,
    Comms,
    Guarded,
    Message,
    OutputsSoFar,
    SilentOutput,
    error_content,
)
from prose_kernel.notebook.notebook_files import language_info
from prose_kernel.notebook.stdin import QUESTION_REQUEST, StdinChannel
from prose_kernel.runs import languages
from prose_kernel.runs.forced_interrupt import may_stop
from prose_kernel.runs.languages import Language
from prose_kernel.runs.provenance import Cell
from prose_kernel.views.display import Problem

if TYPE_CHECKING:
    from prose_kernel.debugger.jupyter import KernelDebugger

CONCURRENT = frozenset(
    {
        "complete_request",
        "inspect_request",
        "is_complete_request",
        "history_request",
        "kernel_info_request",
        "comm_info_request",
        "connect_request",
        *COMM_KINDS,
    }
)
"""Messages that are answered while a cell runs."""

_ESCALATE_SECONDS = 0.2
"""How long an interrupt waits for the loop before it stops code that never yields to the loop."""
_SHUTDOWN_SECONDS = 5.0
_MAX_MAGIC_CELLS = 1_000
"""The most cells with magics that are kept for the debugger."""
_CLOCK_TOLERANCE = timedelta(seconds=10)
"""Two dates further apart than this are from different clocks, or the clock was set in between."""


class _Notebook(FrontEnd):
    """The notebook of a kernel: its front end runs stale cells."""

    def __init__(self, kernel: ProseKernel) -> None:
        self._kernel = kernel

    def rerun(self, cells: Sequence[Cell]) -> bool:
        return self._kernel.panel.rerun(cells)


class ProseKernel(Kernel):
    """The Jupyter kernel. `language` is the language of cells that name none."""

    implementation = "prose_kernel"
    implementation_version = __version__
    _execute_sleep = 0.0  # outputs and reply are sent from one thread in order; there is nothing to wait for

    def __init__(self, *, language: Language | None = None, **options: Any) -> None:
        super().__init__(**options)
        language = language or languages.default()
        self.banner = f"prose_kernel {__version__}: {language.title} in Jupyter. %help lists the magics."
        self.language_info = language_info(language)
        self.help_links = []  # JupyterLab would frame them; its Help menu has the reference from the extension
        self.comm_manager = Comms(self)
        self.shell_handlers = Guarded(self, {**self.shell_handlers, **self.comm_manager.handlers()})
        # cells wait for each other on the shell channel; the control thread has another loop and must not run them
        inherited = {kind: handler for kind, handler in self.control_handlers.items() if kind != "execute_request"}
        self.asker = StdinChannel(self, lambda: self._request, lambda: self._output, on_answer=self._log_answer)
        self.outputs = OutputsSoFar()
        more = {QUESTION_REQUEST: self.asker.answer_question_request, OUTPUTS_REQUEST: self._outputs_request}
        self.control_handlers = Guarded(self, inherited | more)
        self._request: tuple[Any, Message] = ([], {})
        self._output: CellOutput | None = None
        self._cell: asyncio.Task[Problem | None] | None = None
        self._waiting: list[object] = []
        self._queued: set[object] = set()
        self._aborted: set[object] = set()
        self._cell_lock = threading.Lock()
        self._early_interrupt: Message | None = None
        self._forced = False
        self._delivered = threading.Event()
        self.magic_cells: dict[str, None] = {}
        """The texts of the last cells with magics, in which the debugger finds the places of programs."""
        self._debugger: KernelDebugger | None = None
        self.cells = Cells(Path.cwd(), self.asker, language, _Notebook(self))
        self.panel = Panel(self.cells, lambda seconds, work: self._loop.call_later(seconds, work))
        self.comm_manager.targets[TARGET] = self.panel
        self.history = InputHistory(_history_file())

    # ------------------------------------------------------------ start and shutdown

    def start(self) -> None:
        super().start()
        self._loop: asyncio.AbstractEventLoop = self.io_loop.asyncio_loop
        signal.signal(signal.SIGINT, self._on_sigint)
        # Import before the first message is answered, while the client still connects to the sockets. In a thread these
        # imports would compete with the output of an early cell, which would wait for them anyway.
        with suppress(Exception):  # the first cell will raise the same error, and can show it
            self.cells.warm_up()

    def pre_handler_hook(self) -> None:
        """Keep our SIGINT handler: the base class replaces it for each message."""

    def post_handler_hook(self) -> None:
        """See `pre_handler_hook`."""

    async def do_shutdown(self, restart: bool) -> dict[str, object]:
        """End the running cell, the run and all its processes. Called on the control thread."""
        future = asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop)
        with suppress(Exception):
            await asyncio.wait_for(asyncio.wrap_future(future), _SHUTDOWN_SECONDS)
        if threading.current_thread() is self.control_thread:  # its loop ends, so later requests are not answered
            self.control_stream.stop_on_recv()
            await asyncio.sleep(0)  # lets their tasks start
            later = asyncio.all_tasks() - {asyncio.current_task()}
            for task in later:
                task.cancel()
            await asyncio.wait([asyncio.gather(*later, return_exceptions=True)], timeout=1)  # a task may resist
        return {"status": "ok", "restart": restart}

    async def _shut_down(self) -> None:
        while self.cells.running:
            self.cells.interrupt()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SHUTDOWN_SECONDS / 3), self._main_asyncio_lock:
                    break
        await self.cells.close()
        self.history.close()

    async def _progressively_terminate_all_children(self) -> None:
        """Do nothing: the process engine has ended all its processes, and there are no others."""

    def close(self) -> None:
        """Release resources when the process ends without a shutdown request."""
        self.history.close()
        if self.cells.started_workspace is not None:
            with suppress(Exception):
                asyncio.run(self.cells.close())

    # ------------------------------------------------------------ dispatch

    async def dispatch_control(self, msg: Any) -> None:
        """Handle a message of the control channel. Messages after a shutdown are cancelled, which prints nothing."""
        with suppress(asyncio.CancelledError):
            await super().dispatch_control(msg)

    async def shell_main(self, subshell_id: str | None, msg: Any) -> None:
        """Handle a message of the shell channel. Cells wait for each other; requests that only read state do not."""
        header, ident = self._header(msg)
        if header.get("subshell_id"):
            self._refuse_subshell(header, ident)
        elif self._main_asyncio_lock.locked() and header.get("msg_type") in CONCURRENT:
            task = asyncio.create_task(self.dispatch_shell(msg), context=contextvars.copy_context())
            await task
            if self._cell is not None:  # undo the idle that this request has just published
                self._publish_status("busy", "shell", parent=self._request[1])
        else:
            turn = object()
            self._waiting.append(turn)
            async with self._main_asyncio_lock:
                self._waiting.remove(turn)
                self._aborting = turn in self._aborted
                self._aborted.discard(turn)
                await self.dispatch_shell(msg)

    def _header(self, msg: Any) -> tuple[dict[str, Any], Any]:
        try:
            ident, frames = self.session.feed_identities(msg, copy=False)
            return self.session.deserialize(frames, content=False, copy=False)["header"], ident
        except Exception:
            return {}, []

    def _refuse_subshell(self, header: dict[str, Any], ident: Any) -> None:
        parent = {"header": header}
        self._publish_status("busy", "shell", parent=parent)
        self.error_reply(self.shell_stream, ident, parent, "NotSupported", "this kernel has no subshells")
        self._publish_status("idle", "shell", parent=parent)

    def error_reply(self, stream: Any, ident: Any, parent: Message, name: str, message: str) -> None:
        kind = parent["header"]["msg_type"].rsplit("_", 1)[0] + "_reply"
        content: dict[str, object] = {
            "status": "error",
            "ename": name,
            "evalue": message,
            "traceback": [f"{name}: {message}"],
        }
        if kind == "execute_reply":
            content["execution_count"] = self.execution_count
            # some clients read only the reply, others only the outputs
            CellOutput(self, parent, self.execution_count).error(Problem(name, message, (f"{name}: {message}",)))
        self.session.send(stream, kind, content, parent=parent, ident=ident)

    async def _read_queue(self) -> None:
        """Read every request that has arrived by now. Called before an error reply, so that later requests run."""
        self.shell_stream.flush()
        for _ in range(3):  # let the requests just read take their places in the queue
            await asyncio.sleep(0)
        self._queued = set(self._waiting)

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Abort the execute requests that had arrived when the cell failed; those sent after its reply run."""
        self._aborted |= self._queued

    # ------------------------------------------------------------ execute

    def _publish_execute_input(self, code: str, parent: Message, execution_count: int) -> None:
        content = {"code": encodable(code), "execution_count": execution_count}
        metadata = {"prose": {"cell": parent.get("metadata", {}).get("cellId")}}
        ident = self._topic("execute_input")
        self.session.send(self.iopub_socket, "execute_input", content, parent=parent, ident=ident, metadata=metadata)

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: Mapping[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: Mapping[str, object] | None = None,
        cell_id: str | None = None,
    ) -> dict[str, object]:
        """Run a cell and return the content of its reply. By then all of its output has been sent."""
        parent = self.get_parent("shell")
        self._request = (self._get_shell_context_var(self._shell_parent_ident), parent)
        self.asker.available = allow_stdin
        metadata = parent.get("metadata", {})
        opening = self.cells.opening(code, None if silent else self.execution_count, metadata)
        cell = metadata.get("cellId")
        kept = isinstance(cell, str) and not silent
        log = self.outputs.begin(cell, parent["header"]["msg_id"], self.execution_count) if kept else None
        output = (SilentOutput if silent else CellOutput)(self, parent, self.execution_count, log)
        self._output = output
        live = allow_stdin and not silent and output.in_place
        if "%" in code:
            self.magic_cells[code] = None
            if len(self.magic_cells) > _MAX_MAGIC_CELLS:
                del self.magic_cells[next(iter(self.magic_cells))]
        if self._debugger is not None:
            self._debugger.cell_starts(code)
        with self._cell_lock:
            early, self._early_interrupt = self._early_interrupt, None
            self._cell = asyncio.ensure_future(self.cells.run(code, output, live=live, opening=opening))
        if early is not None and _compare_dates(parent["header"], early) < 0:
            self.interrupt_cell()  # it was meant for this cell, and overtook it on its own channel
        self.panel.cell_started()
        try:
            problem = await self._cell
        finally:
            self._loop.call_soon(self.panel.cell_ended)
            with self._cell_lock:
                self._cell = self._output = None
            self.asker.available = False
            if log is not None:
                log.done = True
            if self._debugger is not None:
                self._debugger.cell_ends()
        if store_history and not silent:
            self.history.add(self.execution_count, code, output.shown)
        if problem is not None:
            await self._read_queue()
            content = error_content(problem)
            return {"status": "error", "execution_count": self.execution_count, **content}
        return {
            "status": "ok",
            "execution_count": self.execution_count,
            "payload": output.pages,
            "user_expressions": self._expressions(user_expressions or {}),
        }

    def _expressions(self, wanted: Mapping[str, object]) -> dict[str, object]:
        """Return the values for `user_expressions`, which are names of bindings: a MIME bundle each."""
        if not wanted:
            return {}
        from prose_kernel.views.cards import value_display

        names = self.cells.names()
        found: dict[str, object] = {}
        for key, name in wanted.items():
            if isinstance(name, str) and (named := names.get(name)) is not None:
                data = dict(value_display(named.info.value, named.language).data)
                found[key] = {"status": "ok", "data": data, "metadata": {}}
            else:
                message = f"no binding is called {name}"
                found[key] = {"status": "error", "ename": "NameError", "evalue": message, "traceback": [message]}
        return found

    def _log_answer(self, line: str) -> None:
        """Add a typed answer to the outputs so far; no output is sent, because the front end shows the answer."""
        if self._output is not None and self._output.log is not None:
            self._output.log.add("stream", {"name": "stdin", "text": f"{line}\n"})

    def _outputs_request(self, stream: Any, ident: Any, parent: Message) -> None:
        """Send the outputs so far to a reloaded page; called on the control thread."""
        found = self.outputs.answer(parent.get("content"))
        self.session.send(stream, "prose_outputs_reply", found, parent, ident=ident)

    # ------------------------------------------------------------ interrupt

    async def interrupt_request(self, stream: Any, ident: Any, parent: Message) -> None:
        """End the running cell; called on the control thread, in either interrupt mode.

        Messages of two channels have no common order. If the sender's clock shows that the interrupt was sent before
        the running cell, it was meant for an earlier cell and is ignored; if no cell runs yet, the next cell compares.
        """
        header = parent["header"]
        with self._cell_lock:
            running = None if self._cell is None else self._request[1].get("header", {})
            if running is None:
                self._early_interrupt = header
        if running is not None and _compare_dates(header, running) >= 0:
            self.interrupt_cell()
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    def _publish_status(self, status: str, channel: str, parent: Message | None = None) -> None:
        """Publish a status as the base class does. If a cell runs, the idle status of a control request (usually an
        interrupt) is followed by busy. `jupyter console` takes any idle for the end of its cell: it would show the
        error of the interrupt after the next cell."""
        super()._publish_status(status, channel, parent)
        if channel == "control" and status == "idle":
            with self._cell_lock:  # the idle of the cell itself comes after this
                if self._cell is not None:
                    super()._publish_status("busy", "shell", self._request[1])

    def _on_sigint(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal: an interrupt without a message, or the second step if the loop didn't react in time."""
        if not self._forced:
            self._loop.call_soon_threadsafe(lambda: None)  # wakes the loop if it is waiting
            self.interrupt_cell()
            return
        self._forced = False
        if self._delivered.is_set():
            return  # the loop has cancelled the cell meanwhile
        if may_stop(frame):
            self._delivered.set()  # this exception is the cancellation; a second one would end `finally` bodies
            if (workspace := self.cells.started_workspace) is not None:
                workspace.note_stop()
            raise asyncio.CancelledError
        if self._cell is not None:  # something is being written or sent, which is finished first
            self._escalate_later(self._delivered, self._cell)

    def interrupt_cell(self) -> None:
        """Interrupt the running cell, from any thread."""
        cell = self._cell
        if cell is None or cell.done():
            return
        delivered = self._delivered = threading.Event()

        def deliver() -> None:
            if not delivered.is_set():
                delivered.set()
                self.cells.interrupt()

        self._loop.call_soon_threadsafe(deliver)
        self._escalate_later(delivered, cell)

    def _escalate_later(self, delivered: threading.Event, cell: asyncio.Task[Any]) -> None:
        timer = threading.Timer(_ESCALATE_SECONDS, self._escalate, (delivered, cell))
        timer.daemon = True
        with suppress(RuntimeError):  # no thread can be started: only code that never awaits is not interrupted
            timer.start()

    def _escalate(self, delivered: threading.Event, cell: asyncio.Task[Any]) -> None:
        """Interrupt code that never awaits, as Python does with Ctrl-C.

        With the lock, the cell cannot end before the signal, which would interrupt the next cell; and each signal of a
        timer is handled before another timer sends one, which would otherwise count as an interrupt by a person.
        """
        with self._cell_lock:
            if delivered.is_set() or self._cell is not cell or self._forced:
                return
            self._forced = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # ------------------------------------------------------------ other requests

    @property
    def kernel_info(self) -> dict[str, object]:
        from ipykernel._version import kernel_protocol_version

        return {
            "protocol_version": kernel_protocol_version,
            "implementation": self.implementation,
            "implementation_version": self.implementation_version,
            "language_info": self.language_info,
            "banner": self.banner,
            "help_links": self.help_links,
            "supported_features": ["debugger"],
        }

    async def do_complete(self, code: str, cursor_pos: int | None) -> dict[str, object]:
        from prose_kernel.notebook.completion import complete

        found = complete(self.cells, code, len(code) if cursor_pos is None else cursor_pos)
        return {
            "status": "ok",
            "matches": [match.text for match in found.matches],
            "cursor_start": found.start,
            "cursor_end": found.end,
            "metadata": {
                "_jupyter_types_experimental": [
                    {"start": found.start, "end": found.end, "text": m.text, "type": m.kind, "signature": m.note}
                    for m in found.matches
                ]
            },
        }

    async def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: object = ()
    ) -> dict[str, object]:
        found = self.cells.inspect(code, cursor_pos, detail_level)
        if found is None:
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}
        return {"status": "ok", "found": True, "data": dict(found.data), "metadata": found.metadata}

    async def do_is_complete(self, code: str) -> dict[str, object]:
        from prose_kernel.notebook.completion import completeness_of

        status, indent = completeness_of(code, self.cells.language)
        return {"status": status, "indent": indent} if status == "incomplete" else {"status": status}

    async def do_history(  # noqa: PLR0913 - the signature of the base class
        self,
        hist_access_type: str,
        output: bool = False,
        raw: bool = True,
        session: int = 0,
        start: int = 0,
        stop: int | None = None,
        n: int | None = None,
        pattern: str | None = None,
        unique: bool = False,
        **_: object,
    ) -> dict[str, object]:
        match hist_access_type:
            case "range":
                rows = self.history.range(session or 0, start or 0, stop)
            case "search":
                rows = self.history.search(encodable(pattern or "*"), n, unique)
            case _:
                rows = self.history.tail(n if n is not None else 10)
        return {
            "status": "ok",
            "history": [(s, line, (code, shown) if output else code) for s, line, code, shown in rows],
        }

    async def do_debug_request(self, msg: Message) -> dict[str, object]:
        """Answer a request of the Debug Adapter Protocol; called on the control thread."""
        if self._debugger is None:
            from prose_kernel.debugger.jupyter import KernelDebugger

            self._debugger = KernelDebugger(self, self._loop)
        return await self._debugger.answer(msg)

    @property
    def running_request(self) -> Message:
        """The request of the running cell; empty if no cell runs."""
        return self._request[1] if self._cell is not None else {}

    async def create_subshell_request(self, socket: Any, ident: Any, parent: Message) -> None:
        self.error_reply(socket, ident, parent, "NotSupported", "this kernel has no subshells")

    delete_subshell_request = list_subshell_request = create_subshell_request


def _compare_dates(one: Message, other: Message) -> int:
    """Compare when two headers were sent, by the clock of their session: -1, 1, or 0 if that is unknown."""
    first, second = one.get("date"), other.get("date")
    if one.get("session") != other.get("session") or not isinstance(first, datetime):
        return 0
    if not isinstance(second, datetime) or abs(first - second) > _CLOCK_TOLERANCE:
        return 0
    return (first > second) - (first < second)


def _history_file() -> Path | None:
    from jupyter_core.paths import jupyter_data_dir

    try:
        return Path(jupyter_data_dir()) / "prose" / "history.sqlite"
    except OSError:
        return None
