"""A process that runs commands on a cluster; tests kill or stop it: `python host.py ADDRESS DIRECTORY LEASE COMMAND...`.

It prints the mark of its commands, then the outcome of each one. It ends when the process of the tests is killed."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from pathlib import Path

from prose_kernel.remote.commands import LinkOptions, RemoteCommands
from prose_kernel.runtime.ports import CommandRequest


async def main(address: str, directory: str, lease: str, *texts: str) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # when the process that started this ends
    commands = RemoteCommands(address, Path(directory), link=LinkOptions(grace=0.4, lease=float(lease)))
    await commands.connect()
    print(commands.mark, flush=True)

    async def run(text: str) -> None:
        print((await commands.run(CommandRequest(text, directory, 3600.0))).outcome, flush=True)

    await asyncio.gather(*map(run, texts))
    await asyncio.to_thread(commands.close)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
