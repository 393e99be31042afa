"""Notebooks of another kernel whose cells use `%%prose` or `%%vvm`: their own kernel runs them, as for nbval.

What is known here of a cell is what the kernel sends: outputs and the status of the reply, not the statement that an
output is of, and not which recordings were used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from prose_kernel.errors import UsageError
from prose_kernel.testing.notebook_run import CellRun
from prose_kernel.testing.notebook_source import CodeCell, NotebookSource
from prose_kernel.testing.options import Options
from prose_kernel.testing.outputs import Output

STARTED = 60.0
"""Seconds that a kernel may take to start."""
GRACE = 10.0


def run_cells(
    book: NotebookSource,
    options: Options,
    wanted: Callable[[CodeCell], bool],
    judged: Callable[[CodeCell, CellRun], bool],
) -> None:
    """Run all cells that are wanted; `judged` hears of each, and says whether another one follows.

    Raises `UsageError` for a kernel that is not installed or does not start.
    """
    from jupyter_client.kernelspec import NoSuchKernel
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name=book.kernel or "python3")
    overrides = {f"PROSE_{name.upper()}": str(value) for name, value in options.overrides.items()}
    if options.live:
        overrides["JPY_SESSION_NAME"] = str(book.path.resolve())  # names the recording
    here = str(book.path.resolve().parent)
    try:
        manager.start_kernel(cwd=here, env={**os.environ, **overrides}, stderr=-3)
    except NoSuchKernel:
        raise UsageError(
            f"its kernel {book.kernel or 'python3'} is not installed",
            hint="jupyter kernelspec list names those that are",
        ) from None
    client = manager.blocking_client()
    client.start_channels()
    try:
        try:
            client.wait_for_ready(timeout=STARTED)
        except RuntimeError:
            raise UsageError(f"its kernel {manager.kernel_name} did not start") from None
        for cell in book.cells:
            if wanted(cell) and not judged(cell, _run(manager, client, cell, options.seconds)):
                break
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _run(manager: Any, client: Any, cell: CodeCell, seconds: float) -> CellRun:
    outputs = _Outputs()
    begin = time.monotonic()
    try:
        reply = client.execute_interactive(
            cell.text, allow_stdin=False, stop_on_error=False, output_hook=outputs.hear, timeout=seconds
        )
    except TimeoutError:
        manager.interrupt_kernel()
        return CellRun(outputs.found, over_time=True, failed=True)
    except KeyboardInterrupt:
        manager.interrupt_kernel()
        return CellRun(outputs.found, interrupted=True, failed=True)
    failed = reply["content"]["status"] != "ok"
    return CellRun(outputs.found, failed=failed, seconds=time.monotonic() - begin)


class _Outputs:
    """The outputs of a cell, made of the messages of a kernel."""

    def __init__(self) -> None:
        self.found: list[Output] = []
        self._displays: dict[str, int] = {}
        self._clear = False

    def hear(self, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "clear_output":
            self._clear = True
            if not content.get("wait"):
                self._empty()
            return
        if kind == "update_display_data":
            number = self._displays.get((content.get("transient") or {}).get("display_id", ""))
            if number is not None:
                self.found[number].update(data=content["data"], metadata=content["metadata"])
            return
        if kind not in ("stream", "display_data", "execute_result", "error"):
            return
        if self._clear:
            self._empty()
        if display_id := (content.get("transient") or {}).get("display_id"):
            self._displays[display_id] = len(self.found)
        self.found.append({"output_type": kind, **{k: v for k, v in content.items() if k != "transient"}})

    def _empty(self) -> None:
        self._clear = False
        self.found.clear()
        self._displays.clear()
