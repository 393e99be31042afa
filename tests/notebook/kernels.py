"""A real kernel process and a client that reads everything it sends."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import forked
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import LocalProvisioner

REPOSITORY = Path(__file__).parents[2]
TIMEOUT = 30.0
ENCRYPTION = {"supported_encryption": ["curve"]}

Message = dict[str, Any]


def specification(module: str = "prose_kernel", interrupt_mode: str = "message", *options: str) -> KernelSpec:
    argv = [sys.executable, "-m", module, *options, "-f", "{connection_file}"]
    return KernelSpec(
        argv=argv, display_name="Prose", language="prose", interrupt_mode=interrupt_mode, metadata=ENCRYPTION
    )


KERNELS = {name: REPOSITORY / "kernelspec" / name / "kernel.json" for name in ("prose", "vvm")}
"""Their specifications, for `forked.as_kernels`."""


def vvm_specification() -> KernelSpec:
    return specification("prose_kernel", "message", "--language=vvm")


@dataclass
class Ran:
    """The result of one execute request: the reply, and its outputs in order."""

    reply: Message
    outputs: list[Message] = field(default_factory=list)

    @property
    def content(self) -> dict[str, Any]:
        return dict(self.reply["content"])

    @property
    def status(self) -> str:
        return str(self.content["status"])

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [m["content"] for m in self.outputs if m["msg_type"] == kind]

    @property
    def kinds(self) -> list[str]:
        return [m["msg_type"] for m in self.outputs]

    def text(self, name: str = "stdout") -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == name)

    @property
    def displays(self) -> list[str]:
        """Plain text of every display and result."""
        shown = [m["content"] for m in self.outputs if m["msg_type"] in ("display_data", "execute_result")]
        return [content["data"]["text/plain"] for content in shown]

    @property
    def error(self) -> dict[str, Any]:
        (error,) = self.of("error")
        return error


class Client:
    """One kernel and its channels; every wait has an end."""

    def __init__(self, manager: Any, directory: Path) -> None:
        self.manager = manager
        self.directory = directory
        self.channels = manager.client()
        self.channels.session.metadata = {"cellId": "a"}  # as a front end that has cells
        self.channels.start_channels()
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """Until the kernel answers and its outputs arrive. `wait_for_ready` of Jupyter waits 0.2 seconds longer, each time."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            request = self.channels.kernel_info()
            with suppress(Empty):  # the request was lost, or its outputs because we were not subscribed yet
                self.reply(request, timeout=1)
                self.until(request, _is_idle, timeout=0.05)
                return
            if not self.manager.is_alive():
                raise RuntimeError("the kernel died")
        raise RuntimeError("the kernel is not ready in time")

    # ------------------------------------------------------------ executing

    def send(self, code: str, *, allow_stdin: bool = False, **options: Any) -> str:
        return str(self.channels.execute(code, allow_stdin=allow_stdin, **options))

    def finish(self, request: str, answers: Sequence[str | None] = (), timeout: float = TIMEOUT) -> Ran:
        """Read until the request's reply and its idle; input requests get the answers in turn (None: no answer)."""
        waiting = list(answers)
        outputs: list[Message] = []
        deadline = time.monotonic() + timeout
        while True:
            if waiting:
                with suppress(Empty):
                    self.channels.get_stdin_msg(timeout=0.01)
                    answer = waiting.pop(0)
                    if answer is not None:
                        self.channels.input(answer)
            try:
                message = self.channels.get_iopub_msg(
                    timeout=0.05 if waiting else max(deadline - time.monotonic(), 0.1)
                )
            except Empty:
                assert time.monotonic() < deadline, f"no idle in time; so far {[m['msg_type'] for m in outputs]}"
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    break
            elif message["msg_type"] != "execute_input":
                outputs.append(message)
        return Ran(self.reply(request), outputs)

    def reply(self, request: str, timeout: float = TIMEOUT) -> Message:
        while True:
            reply: Message = self.channels.get_shell_msg(timeout=timeout)
            if reply["parent_header"].get("msg_id") == request:
                return reply

    def run(self, code: str, answers: Sequence[str | None] = (), **options: Any) -> Ran:
        return self.finish(self.send(code, **options), answers)

    def until(self, request: str, seen: Callable[[Message], bool], timeout: float = TIMEOUT) -> Message:
        """Read IOPub until a message of the request that `seen` accepts."""
        while True:
            message: Message = self.channels.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") == request and seen(message):
                return message

    def until_text(self, request: str, text: str) -> None:
        seen = ""

        def found(message: Message) -> bool:
            nonlocal seen
            seen += message["content"].get("text", "")
            return text in seen

        self.until(request, found)

    def ask(self, kind: str, content: dict[str, Any], channel: str = "shell", **header: Any) -> Message:
        """Send any request and return its reply."""
        message = self.channels.session.msg(kind, content)
        message["header"].update(header)
        target = self.channels.shell_channel if channel == "shell" else self.channels.control_channel
        target.send(message)
        get = self.channels.get_shell_msg if channel == "shell" else self.channels.get_control_msg
        while True:
            reply: Message = get(timeout=TIMEOUT)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return reply

    # ------------------------------------------------------------ the process

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def close(self) -> None:
        self.channels.stop_channels()
        with suppress(Exception):
            self.manager.shutdown_kernel(now=True)


def _is_idle(message: Message) -> bool:
    return bool(message["msg_type"] == "status" and message["content"]["execution_state"] == "idle")


class _Forks(LocalProvisioner):
    """Starts a kernel as a fork (`forked.py`)."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        _, _, module, *arguments = cmd
        self.process = forked.Kernel(module, arguments, kwargs["cwd"], kwargs["env"])
        self.pid = self.pgid = self.process.pid
        self.cwd = kwargs["cwd"]
        return dict(self.connection_info)


def _free_ports() -> Iterator[int]:
    """Ports that no other worker of the tests uses, and that no connection gets: those below the range that Linux
    hands out. Jupyter lets the system choose, and until the kernel binds a port another process may have got it."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5
    first, count = 12_000 + 4_000 * worker, 4_000
    for number in itertools.count(os.getppid() * 61):
        port = first + number % count
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        yield port


_PORTS = _free_ports()


@contextmanager
def kernel(directory: Path, *, spec: KernelSpec | None = None, forks: bool = False, **options: str) -> Iterator[Client]:
    """A kernel in `directory`, with all of Jupyter's files below it; options are the manager's.

    With `forks` it and those that replace it are forked from a process that has everything loaded.
    """
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    ports = {"cache_ports": False, **dict(zip(names, _PORTS, strict=False))} if "transport" not in options else {}
    manager = KernelManager(**ports, **options)
    manager._kernel_spec = spec or specification()
    if forks:
        manager.provisioner = _Forks(kernel_id=manager.kernel_id, kernel_spec=manager.kernel_spec, parent=manager)
    places = {
        f"JUPYTER_{name}_DIR": str(directory / ".jupyter" / name.lower()) for name in ("DATA", "CONFIG", "RUNTIME")
    }
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests"), str(directory / "packages")])
    variables = {**os.environ, **places, "IPYTHONDIR": str(directory / ".ipython"), "PYTHONPATH": paths}
    manager.start_kernel(env=variables, cwd=str(directory))
    client: Client | None = None
    try:
        client = Client(manager, directory)
        yield client
    finally:
        if client is not None:
            client.close()
        else:
            manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
