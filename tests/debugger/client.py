"""A client of the debugger that sends the messages of JupyterLab."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from notebook.kernels import TIMEOUT, Client, kernel

Body = dict[str, Any]


class Lab:
    """One kernel, its cells, and the debugger of its open notebook."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seq = 0
        self.events: list[Body] = []
        self.outputs: dict[str, list[Body]] = {}
        self.idle: set[str] = set()

    # ------------------------------------------------------------ requests

    def reply(self, content: Any) -> Body:
        """Send a debug request on the control channel, and return the reply."""
        channels = self.client.channels
        message = channels.session.msg("debug_request", content)
        channels.control_channel.send(message)
        wanted = message["header"]["msg_id"]
        deadline = time.monotonic() + TIMEOUT
        while True:
            got = channels.get_control_msg(timeout=max(deadline - time.monotonic(), 0.1))
            if got["parent_header"].get("msg_id") == wanted:
                return dict(got["content"])

    def ask(self, command: str, **arguments: Any) -> Body:
        self.seq += 1
        found = self.reply({"type": "request", "seq": self.seq, "command": command, "arguments": arguments})
        assert found["type"] == "response"
        assert found["request_seq"] == self.seq
        assert found["command"] == command
        return found

    def body(self, command: str, **arguments: Any) -> Body:
        found = self.ask(command, **arguments)
        assert found["success"], found
        return dict(found["body"])

    def error_of(self, command: str, **arguments: Any) -> str:
        found = self.ask(command, **arguments)
        assert not found["success"], found
        return str(found["message"])

    # ------------------------------------------------------------ actions of a user in JupyterLab

    def start(self, *filters: str) -> Body:
        """Switch the debugger on."""
        self.body("debugInfo")
        capabilities = self.body("initialize", clientID="jupyterlab", adapterID="prose", linesStartAt1=True)
        self.body("attach")
        self.body("setExceptionBreakpoints", filters=list(filters))
        return capabilities

    def set_breakpoints(self, code: str, *lines: int | Body) -> list[Body]:
        """Set the breakpoints of a cell."""
        path = self.body("dumpCell", code=code)["sourcePath"]
        points = [line if isinstance(line, dict) else {"line": line} for line in lines]
        return list(self.body("setBreakpoints", source={"path": path}, breakpoints=points)["breakpoints"])

    def run(self, code: str) -> str:
        return self.client.send(code)

    def event(self, kind: str) -> Body:
        """Return the next event of a kind, and skip other events."""

        def found() -> Body | None:
            while self.events:
                event = self.events.pop(0)
                if event["event"] == kind:
                    return dict(event["body"])
            return None

        return self._read(found)

    def stopped(self, line: int | None = None, reason: str = "breakpoint") -> list[Body]:
        """Wait until the program is stopped, and return the frames of the call stack."""
        event = self.event("stopped")
        frames = list(self.body("stackTrace", threadId=1)["stackFrames"])
        assert (event["reason"], frames[0]["line"]) == (reason, line if line is not None else frames[0]["line"])
        return frames

    def resume(self, command: str = "continue") -> None:
        self.body(command, threadId=1)
        self.event("continued")

    def scopes(self, frame: int = 1) -> dict[str, dict[str, str]]:
        found = {}
        for scope in self.body("scopes", frameId=frame)["scopes"]:
            listed = self.body("variables", variablesReference=scope["variablesReference"])["variables"]
            found[scope["name"]] = {one["name"]: one["value"] for one in listed}
        return found

    def value(self, expression: str, frame: int = 1) -> str:
        return str(self.body("evaluate", expression=expression, frameId=frame, context="repl")["result"])

    def finish(self, request: str) -> Body:
        """Wait until the cell has ended, and return its reply."""
        self._read(lambda: {} if request in self.idle else None)
        return dict(self.client.reply(request)["content"])

    def text(self, request: str) -> str:
        return "".join(c.get("text", "") for c in self.outputs.get(request, ()))

    def _read(self, found: Callable[[], Body | None]) -> Body:
        deadline = time.monotonic() + TIMEOUT
        while (result := found()) is None:
            try:
                message = self.client.channels.get_iopub_msg(timeout=max(deadline - time.monotonic(), 0.1))
            except Empty:
                raise AssertionError(f"nothing came; events: {self.events}") from None
            kind, content = message["msg_type"], message["content"]
            parent = message["parent_header"].get("msg_id", "")
            if kind == "debug_event":
                self.events.append(content)
            elif kind == "status":
                if content["execution_state"] == "idle" and message["parent_header"]["msg_type"] == "execute_request":
                    self.idle.add(parent)
            else:
                self.outputs.setdefault(parent, []).append(content)
        return result


@contextmanager
def lab(directory: Path, spec: KernelSpec | None = None, *, forks: bool = False) -> Iterator[Lab]:
    """A separate kernel with a client of the debugger."""
    with kernel(directory, spec=spec, forks=forks) as client:
        yield Lab(client)
