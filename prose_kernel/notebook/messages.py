"""Jupyter messages: send the outputs of a cell on IOPub, keep them for a page that was reloaded while the cell ran,
answer every request, even a malformed one, and open comms.
"""

# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc"
from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.resource_errors import shortage
from prose_kernel.views.display import Display, Output, Problem

if TYPE_CHECKING:
    from prose_kernel.notebook.kernel import ProseKernel
    from prose_kernel.notebook.kernel import ProseKernel as Kernel
    from prose_kernel.notebook.lab_extension import Panel


Message = dict[str, Any]


def error_content(problem: Problem) -> dict[str, object]:
    """Return the message content of an error."""
    return {"ename": problem.ename, "evalue": problem.evalue, "traceback": problem.lines("%explain")}


def replaces_displays(request: Message) -> bool:
    """Return whether the front end that sent a request replaces displays.

    `jupyter console` ignores `update_display_data`, so it would show the beginning of a session's answer forever. It
    uses jupyter_client, which numbers its messages, and sends no cell id; front ends that have cells send one.
    """
    return "cellId" in request.get("metadata", {}) or not _NUMBERED.search(request["header"]["msg_id"])


_NUMBERED = re.compile(r"_\d+_\d+\Z")

# ---------------------------------------------------------------- outputs so far


OUTPUTS_REQUEST: Final = "prose_outputs_request"
"""The request of a page: `{"cells": [ids]}`, the cells that ran when it was left. The answer has these and the running
cell: `{"cells": [{cell, request, count, done, number, outputs: [{kind, content}]}]}`."""
MAX_CELLS: Final = 200
"""The most cells whose outputs are kept."""
MAX_CHARACTERS: Final = 5_000_000
"""The most characters that are kept of one cell; later output is omitted, with a note."""

Content = dict[str, Any]


class CellLog(Struct):
    """The outputs of one execution of a cell. `request` is the id of the execute request."""

    cell: str
    request: str
    count: int
    lock: threading.Lock
    done: bool = False
    number: int = 0
    _outputs: list[tuple[str, Content, list[str]]] = field(default_factory=list)
    _clear: bool = False
    _size: int = 0

    def add(self, kind: str, content: Content) -> int:
        """Add an output that is about to be sent, and return its number in this execution."""
        with self.lock:
            self.number += 1
            if kind == "clear_output":
                self._clear = True
                if not content.get("wait"):
                    self._cleared()
            elif kind == "update_display_data":
                self._replace(content)
            else:
                self._cleared()
                self._append(kind, content)
            return self.number

    def as_data(self) -> dict[str, object]:
        with self.lock:
            shown = [
                {"kind": kind, "content": content | {"text": "".join(texts)} if texts else content}
                for kind, content, texts in self._outputs
            ]
            return {
                "cell": self.cell,
                "request": self.request,
                "count": self.count,
                "done": self.done,
                "number": self.number,
                "outputs": shown,
            }

    def _cleared(self) -> None:
        if self._clear:
            self._outputs, self._clear, self._size = [], False, 0

    def _append(self, kind: str, content: Content) -> None:
        text = content.get("text", "") if kind == "stream" else ""
        full = self._size > MAX_CHARACTERS
        self._size += len(text) if text else sum(map(len, content.get("data", {}).values()))
        if self._size > MAX_CHARACTERS and kind != "error":
            if not full:
                note = "… what was shown after this is not restored; `%report` has it\n"
                self._outputs.append(("stream", {"name": "stderr"}, [note]))
            return
        last = self._outputs[-1] if self._outputs else None
        if text and last is not None and last[0] == "stream" and last[1]["name"] == content["name"]:
            last[2].append(text)
        else:
            self._outputs.append((kind, content, [text] if text else []))

    def _replace(self, content: Content) -> None:
        wanted = content["transient"]["display_id"]
        for at, (kind, former, _) in enumerate(self._outputs):
            if kind == "display_data" and former["transient"].get("display_id") == wanted:
                self._outputs[at] = (kind, content, [])


class OutputsSoFar:
    """The outputs of the newest execution of each of the last cells (docs/reference/jupyter.md 6).

    JupyterLab shows the outputs of an execution only in the page that requested it: a reloaded page doesn't know the
    request, and drops them. So the kernel keeps the current outputs of its last cells (streams joined, displays
    replaced, cleared outputs removed). The extension requests them on the control channel (`prose_outputs_request`),
    shows them, and continues with the later messages: each message has its cell and a number, so that none is lost or
    shown twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # cells run on the main thread, the request is answered on the control thread
        self._logs: dict[str, CellLog] = {}

    def begin(self, cell: str, request: str, count: int) -> CellLog:
        log = CellLog(cell, request, count, self._lock)
        with self._lock:
            self._logs.pop(cell, None)
            self._logs[cell] = log
            while len(self._logs) > MAX_CELLS:
                del self._logs[next(iter(self._logs))]
        return log

    def answer(self, content: object) -> dict[str, object]:
        """Return the content of the reply to a page."""
        wanted = content.get("cells", ()) if isinstance(content, Mapping) else ()
        named = {key for key in wanted if isinstance(key, str)} if isinstance(wanted, Sequence) else set()
        with self._lock:
            logs = [log for log in self._logs.values() if not log.done or log.cell in named]
        return {"status": "ok", "cells": [log.as_data() for log in logs]}


# ---------------------------------------------------------------- outputs


class CellOutput(Output):
    """`Output` over IOPub. The parent of every message is the request of the cell, whatever else is running."""

    def __init__(self, kernel: Kernel, parent: Message, execution_count: int, log: CellLog | None = None) -> None:
        """Make the output of a cell. `log` records the outputs for pages that are loaded again."""
        self.log = log
        self._kernel = kernel
        self._parent = parent
        self.in_place = replaces_displays(parent)
        self._count = execution_count
        self.pages: list[dict[str, object]] = []
        self.shown: str | None = None

    def _send(self, kind: str, content: dict[str, object]) -> None:
        kernel, log = self._kernel, self.log
        metadata = None if log is None else {"prose": {"cell": log.cell, "number": log.add(kind, content)}}
        ident = kernel._topic(kind)
        kernel.session.send(kernel.iopub_socket, kind, content, parent=self._parent, ident=ident, metadata=metadata)

    def stream(self, name: Stream, text: str) -> None:
        self._send("stream", {"name": name, "text": text})

    def display(self, display: Display, display_id: str | None = None) -> None:
        transient = {"display_id": display_id} if display_id else {}
        content = {"data": dict(display.data), "metadata": display.metadata, "transient": transient}
        self._send("display_data", content)

    def update(self, display: Display, display_id: str) -> None:
        transient = {"display_id": display_id}
        content = {"data": dict(display.data), "metadata": display.metadata, "transient": transient}
        self._send("update_display_data", content)

    def result(self, display: Display) -> None:
        self.shown = display.data.get("text/plain")
        content = {"execution_count": self._count, "data": dict(display.data), "metadata": display.metadata}
        self._send("execute_result", content)

    def error(self, problem: Problem) -> None:
        self._send("error", error_content(problem))

    def clear(self, *, wait: bool = False) -> None:
        self._send("clear_output", {"wait": wait})

    def page(self, display: Display) -> None:
        self.pages.append({"source": "page", "data": dict(display.data), "start": 0})


class SilentOutput(CellOutput):
    """The output of `silent` requests: nothing is published."""

    def _send(self, kind: str, content: dict[str, object]) -> None:
        return


# ---------------------------------------------------------------- requests

Handler = Callable[[Any, Any, Message], Awaitable[None] | None]


class Guarded(dict[str, Handler]):
    """Handlers that always reply: unknown and malformed requests, and our defects, cause an error reply."""

    def __init__(self, kernel: Kernel, handlers: Mapping[str, Handler]) -> None:
        super().__init__({kind: _guard(kernel, handler) for kind, handler in handlers.items()})
        self._kernel = kernel

    def get(self, kind: str, default: Any = None) -> Any:
        found = super().get(kind)
        if found is not None or not kind.endswith("_request"):
            return found

        async def unknown(stream: Any, ident: Any, parent: Message) -> None:
            self._kernel.error_reply(stream, ident, parent, "NotSupported", f"this kernel does not know {kind}")

        return unknown


_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "execute_request": ("code",),
    "complete_request": ("code",),
    "inspect_request": ("code",),
    "is_complete_request": ("code",),
    "history_request": ("hist_access_type",),
}
_FIELDS: Mapping[str, type] = {
    "code": str,
    "user_expressions": dict,
    "cursor_pos": int,
    "detail_level": int,
    "hist_access_type": str,
    "session": int,
    "start": int,
    "stop": int,
    "n": int,
    "pattern": str,
}
"""The types of the fields of requests, if they are given and not null."""
_LARGEST = 1 << 62


def _wrong(kind: str, content: object) -> str | None:
    """Return why the content of a request cannot be used, or None. Removes nulls and limits absurd numbers."""
    if not isinstance(content, dict):
        return "its content is not a mapping"
    if kind not in _REQUIRED:
        return None
    for name in [name for name, value in content.items() if value is None]:
        del content[name]
    for name in _REQUIRED[kind]:
        if name not in content:
            return f"{name} is missing"
    for name, value in content.items():
        wanted = _FIELDS.get(name)
        if wanted is not None and not isinstance(value, wanted):
            return f"{name} is of the wrong type"
        if wanted is int and isinstance(value, int):
            content[name] = max(-_LARGEST, min(value, _LARGEST))
    return None


def _guard(kernel: Kernel, handler: Handler) -> Handler:
    async def guarded(stream: Any, ident: Any, parent: Message) -> None:
        kind = parent["header"]["msg_type"]
        content: Any = parent.get("content")
        wrong = _wrong(kind, content)
        if wrong is not None and kind.startswith("comm_"):
            return  # no client waits for an answer
        if wrong is not None:
            kernel.error_reply(stream, ident, parent, "BadRequest", f"malformed {kind}: {wrong}")
            return
        parent["metadata"] = metadata if isinstance(metadata := parent.get("metadata"), dict) else {}
        if kind in ("complete_request", "inspect_request"):
            content.setdefault("cursor_pos", len(content["code"]))
        if kind == "shutdown_request":
            content.setdefault("restart", False)
        try:
            result = handler(stream, ident, parent)
            if result is not None:
                await result
        except Exception as error:
            kernel.log.error("while answering %s", kind, exc_info=True)
            if kind.startswith("comm_"):
                return
            if (found := shortage(error)) is not None:
                kernel.error_reply(stream, ident, parent, "ResourceError", f"{found.message}; {found.hint}")
                return
            kernel.error_reply(stream, ident, parent, "InternalError", f"{type(error).__name__} inside prose_kernel")

    return guarded


# ---------------------------------------------------------------- comms

COMM_KINDS: Final = ("comm_open", "comm_msg", "comm_close")
"""Message types of comms. They have no replies."""
MAX_COMMS: Final = 64
"""The most channels open at the same time; the oldest are closed first. Reloaded pages leave some open."""


class Comm:
    """A channel of the kernel."""

    def __init__(self, comm_id: str, target_name: str, publish: Callable[[str, dict[str, Any]], None]) -> None:
        self.comm_id = comm_id
        self.target_name = target_name
        self._publish = publish

    def send(self, data: dict[str, Any]) -> None:
        self._publish("comm_msg", {"comm_id": self.comm_id, "data": data})

    def close(self) -> None:
        self._publish("comm_close", {"comm_id": self.comm_id, "data": {}})


class Comms:
    """The open channels of the kernel, and the targets that they can be opened to (Jupyter messaging, Custom Messages):
    front ends open them for other messages than cells. Their messages are handled while a cell runs. Invalid ones are
    ignored."""

    def __init__(self, kernel: ProseKernel) -> None:
        self._kernel = kernel
        self.targets: dict[str, Panel] = {}
        self.comms: dict[str, Comm] = {}

    def get_comm(self, comm_id: str) -> Comm | None:
        """Return an open channel; the base class calls this to find widgets."""
        return self.comms.get(comm_id)

    def handlers(self) -> dict[str, Callable[[Any, Any, Message], None]]:
        return {"comm_open": self._open, "comm_msg": self._message, "comm_close": self._close}

    def _publish(self, kind: str, content: dict[str, Any]) -> None:
        kernel = self._kernel
        kernel.session.send(kernel.iopub_socket, kind, content, ident=kernel._topic(kind))

    def _open(self, stream: Any, ident: Any, message: Message) -> None:
        content = message["content"]
        comm_id, name = content.get("comm_id"), content.get("target_name")
        if not isinstance(comm_id, str) or not isinstance(name, str):
            return
        comm, target = Comm(comm_id, name, self._publish), self.targets.get(name)
        if target is None:
            comm.close()
            return
        while len(self.comms) >= MAX_COMMS:
            self._end(next(iter(self.comms.values())))
        self.comms[comm_id] = comm
        target.opened(comm)

    def _message(self, stream: Any, ident: Any, message: Message) -> None:
        content = message["content"]
        comm, data = self.comms.get(str(content.get("comm_id"))), content.get("data")
        if comm is not None and isinstance(data, dict):
            self.targets[comm.target_name].received(comm, data)

    def _close(self, stream: Any, ident: Any, message: Message) -> None:
        comm = self.comms.pop(str(message["content"].get("comm_id")), None)
        if comm is not None:
            self.targets[comm.target_name].closed(comm)

    def _end(self, comm: Comm) -> None:
        del self.comms[comm.comm_id]
        self.targets[comm.target_name].closed(comm)
        comm.close()
