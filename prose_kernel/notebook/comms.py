"""Comms of the kernel: channels that front ends open for other messages than cells (Jupyter messaging, Custom
Messages). Their messages are handled while a cell runs."""

# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc"
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from prose_kernel.notebook.kernel import ProseKernel
    from prose_kernel.notebook.lab_extension import Panel
    from prose_kernel.notebook.messages import Message

KINDS: Final = ("comm_open", "comm_msg", "comm_close")
"""Message types of comms. They have no replies."""
MAX_OPEN: Final = 64
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
    """The open channels of the kernel, and the targets that they can be opened to. Invalid messages are ignored."""

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
        while len(self.comms) >= MAX_OPEN:
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
