"""A stand-in for a kernel with tasks, to be killed from outside: `python kernel.py DIRECTORY STATE COMMAND...`.

Starts each command as a task, prints `ready`, and waits for ever.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.options import TaskOptions
from prose_kernel.processes.tasks.records import Pointer
from prose_kernel.processes.tasks.service import TaskService
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.services import TaskCaller


async def main(directory: str, state: str, *commands: str) -> None:
    base = Path(directory)
    base.mkdir(exist_ok=True)
    engine = Engine(state_dir=Path(state))
    service = TaskService(
        engine,
        base / "runs" / "one",
        directory,
        SystemClock(),
        TaskOptions(shell="bash", snapshot_every=0.01),
        pointer=Pointer(base, "one", "notebook"),
    )
    for cmd in commands:
        receipt = await service.start({"cmd": cmd, "yield_time_ms": 0}, TaskCaller())
        print(receipt.disposition, flush=True)
    print(engine.marker, flush=True)
    print("ready", flush=True)
    await asyncio.sleep(120)  # if a test forgets to kill it


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
