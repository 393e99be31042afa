"""A process that uses an engine, to be killed from outside: `python host.py STATE_DIR FORK COMMAND...`.

Prints its engine's marker, runs all commands, and waits for ever. With FORK it forks itself while they run, and prints
the copy's pid. It ends when the test run is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runtime.ports import CommandRequest


async def main(state_dir: str, fork: str, *texts: str) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # when the parent process ends
    engine = Engine(state_dir=Path(state_dir))
    commands = ShellCommands(engine, "bash")
    print(engine.marker, flush=True)

    async def run(text: str) -> None:
        await commands.run(CommandRequest(text, "/", 3600.0))
        print("one ended", flush=True)

    running = asyncio.gather(*map(run, texts))
    if fork:
        while not any("\n+" in file.read_text() for file in Path(state_dir).glob("jobs-*")):  # the commands run
            await asyncio.sleep(0.01)
        copy = os.fork()
        if copy == 0:
            time.sleep(60)
            os._exit(0)
        print(copy, flush=True)
    await running
    print("all ended", flush=True)
    await asyncio.sleep(120)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
