"""Starts a kernel, runs cells in it, and records the arrival time of every message."""

from __future__ import annotations

import compileall
import os
import queue
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_client import KernelManager

import prose_kernel

# Installed packages have byte code, also the floor's. A checkout may have none; then a start would measure Python's
# compiler.
compileall.compile_dir(Path(prose_kernel.__file__).parent, quiet=1)

FLOOR = [sys.executable, str(Path(__file__).with_name("floor_kernel.py")), "-f", "{connection_file}"]
PROSE = [sys.executable, "-m", "prose_kernel", "-f", "{connection_file}"]


@dataclass
class Cell:
    """The result of one execution: seconds from request to idle, and the stream messages with their arrival times."""

    seconds: float
    status: str
    messages: int = 0
    text: str = ""
    arrivals: list[tuple[float, str]] = field(default_factory=list)


class Bench:
    """One running kernel with its client. `started` is the seconds from process start to the end of the first cell."""

    def __init__(self, command: list[str], cwd: Path, first: str, **variables: str) -> None:
        self.manager = KernelManager()
        self.manager.kernel_spec.argv = command
        self.manager.kernel_spec.interrupt_mode = "message"
        begin = time.perf_counter()
        whole = {"PROSE_DISPLAY_CAP": "0", "PROSE_DISPLAY_LINES": "0"}  # the floor displays everything
        self.manager.start_kernel(cwd=str(cwd), env={**os.environ, **whole, **variables})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.run(first)
        self.started = time.perf_counter() - begin

    @property
    def pid(self) -> int:
        return self.manager.provisioner.pid

    def memory(self) -> float:
        """Resident memory in MB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6

    def send(self, code: str) -> str:
        return self.client.execute(code, allow_stdin=False, store_history=False)

    def run(self, code: str, on_message: Callable[[dict], None] | None = None) -> Cell:
        begin = time.perf_counter()
        request = self.send(code)
        cell = self.collect(request, on_message)
        cell.seconds = time.perf_counter() - begin
        return cell

    def collect(self, request: str, on_message: Callable[[dict], None] | None = None, timeout: float = 120) -> Cell:
        """Read IOPub up to the request's idle, then its reply."""
        cell, pieces = Cell(0.0, "ok"), []
        while True:
            message = self.client.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") != request:
                continue
            if on_message:
                on_message(message)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                cell.messages += 1
                pieces.append(content["text"])
                cell.arrivals.append((time.time(), content["text"]))
            elif kind == "status" and content["execution_state"] == "idle":
                break
        cell.text = "".join(pieces)
        while True:
            reply = self.client.get_shell_msg(timeout=timeout)
            if reply["parent_header"].get("msg_id") == request:
                cell.status = reply["content"]["status"]
                return cell

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel()

    def drain(self) -> None:
        while True:
            try:
                self.client.get_iopub_msg(timeout=0.05)
            except queue.Empty:
                return
