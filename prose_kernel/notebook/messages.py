"""Jupyter messages: send the outputs of a cell on IOPub, and answer every request, even a malformed one."""

# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc"
from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.resource_errors import shortage
from prose_kernel.views.display import Display, Output, Problem

if TYPE_CHECKING:
    from prose_kernel.notebook.kernel import ProseKernel as Kernel
    from prose_kernel.notebook.outputs_so_far import CellLog

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
