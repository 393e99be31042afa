"""Commands on the workers of a local cluster and without it, measured alternately.

What is measured is what the way there and back costs; a network adds its round trips. Medians; CPU of this process.
`python benchmarks/remote.py [--quick] [--json]`. Needs the extra `dask`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.remote.commands import RemoteCommands
from prose_kernel.runtime.ports import CommandRequest, Commands

Work = Callable[[Commands], Awaitable[object]]


class Bench:
    def __init__(self, directory: Path, rounds: int) -> None:
        self.directory = str(directory)
        self.rounds = rounds
        self.engine = Engine(state_dir=directory / "state")
        self.here = ShellCommands(self.engine, "bash")
        self.there = RemoteCommands("local", directory, shell="bash")

    def request(self, text: str) -> CommandRequest:
        return CommandRequest(text, self.directory, 60.0)

    async def one(self, commands: Commands) -> None:
        await commands.run(self.request("true"))

    def many(self, count: int, text: str) -> Work:
        async def run(commands: Commands) -> None:
            await asyncio.gather(*(commands.run(self.request(text)) for _ in range(count)))

        return run

    async def lines(self, commands: Commands) -> None:
        size = 0

        def take(stream: str, text: str, omitted: object = None) -> None:
            nonlocal size
            size += len(text)

        result = await commands.run(self.request("seq 200000"), take)  # type: ignore[arg-type]
        assert size == result.stdout_bytes

    async def interrupt(self, commands: Commands) -> float:
        running = [asyncio.ensure_future(commands.run(self.request(f"touch i{n}; sleep 60"))) for n in range(8)]
        while len(list(Path(self.directory).glob("i*"))) < 8:
            await asyncio.sleep(0.005)
        begin = time.perf_counter()
        commands.interrupt()  # type: ignore[attr-defined]
        await asyncio.gather(*running)
        took = time.perf_counter() - begin
        for path in Path(self.directory).glob("i*"):
            path.unlink()
        return took

    async def in_turn(self, work: Work, rounds: int | None = None) -> tuple[float, float, float, float]:
        """Return the seconds of both, and the seconds of CPU of this process."""
        found: list[list[float]] = [[], [], [], []]
        for _ in range(rounds or self.rounds):
            for index, commands in enumerate((self.here, self.there)):
                begin, cpu = time.perf_counter(), time.process_time()
                told = await work(commands)
                found[index].append(told if isinstance(told, float) else time.perf_counter() - begin)
                found[index + 2].append(time.process_time() - cpu)
        here, there, cpu_here, cpu_there = map(statistics.median, found)
        return here, there, cpu_here, cpu_there


async def measure(quick: bool) -> dict[str, tuple[float, float, float, float]]:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), 20 if quick else 100)
        begin = time.perf_counter()
        await bench.there.connect()
        connected = time.perf_counter() - begin
        await bench.in_turn(bench.one, 5)  # the first one starts engines and watchdogs
        found = {
            "a trivial command": await bench.in_turn(bench.one),
            "16 x `true` at once": await bench.in_turn(bench.many(16, "true"), bench.rounds // 4),
            "200 x `true`, 16 places": await bench.in_turn(bench.many(200, "true"), 3),
            "200,000 lines": await bench.in_turn(bench.lines, 5),
            "interrupt of 8 commands to idle": await bench.in_turn(bench.interrupt, 5),
            "connecting, with a cluster of its own": (0.0, connected, 0.0, 0.0),
        }
        await asyncio.to_thread(bench.there.close)
        await asyncio.to_thread(bench.engine.close)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if importlib.util.find_spec("distributed") is None:
        print("NOT MEASURED: the extra `dask` is not installed")
        return
    found = asyncio.run(measure(options.quick))
    if options.json:
        print(json.dumps(found))
        return
    print("| Work | Here | On a worker | Difference | CPU here | CPU there |\n| --- | --- | --- | --- | --- | --- |")
    for name, (here, there, cpu_here, cpu_there) in found.items():
        row = [f"{here * 1000:.1f} ms", f"{there * 1000:.1f} ms", f"{(there - here) * 1000:+.1f} ms"]
        print(f"| {name} | {' | '.join(row)} | {cpu_here * 1000:.1f} ms | {cpu_there * 1000:.1f} ms |")


if __name__ == "__main__":
    main()
