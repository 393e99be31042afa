"""A process that runs commands on a cluster, to be killed or stopped from outside: `python host.py ADDRESS DIRECTORY
LEASE COMMAND...`. Prints the mark of its commands, then how each one ended. A killed test run takes it along."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from pathlib import Path

from prose_kernel.remote.commands import LinkOptions, RemoteCommands
from prose_kernel.runtime.ports import CommandRequest


async def main(address: str, directory: str, lease: str, *texts: str) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # when the process that started this is gone
    commands = RemoteCommands(address, Path(directory), link=LinkOptions(grace=0.4, lease=float(lease)))
    await commands.connect()
    print(commands.mark, flush=True)

    async def run(text: str) -> None:
        print((await commands.run(CommandRequest(text, directory, 3600.0))).outcome, flush=True)

    await asyncio.gather(*map(run, texts))
    await asyncio.to_thread(commands.close)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
