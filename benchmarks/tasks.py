"""Commands with a window and tasks, compared with a bare spawn of the same shell in a new session.

A command that ends in its window, one that is promoted at once, 200 tasks at a time, and a task that prints 1 GB beside
a reader that throws it away. Each turn is measured with its floor, in this process; medians.
`python benchmarks/tasks.py [--quick] [--json]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.options import TaskOptions
from prose_kernel.processes.tasks.service import TaskService
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.services import CommandCompleted, TaskCaller

PERSON = TaskCaller()
GIGABYTE = 1 << 30


def bare(command: str) -> None:
    """The floor: spawn, collect both pipes, wait."""
    subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", command],
        stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False,
    )  # fmt: skip


def bare_many(count: int) -> None:
    """The floor: start `count` shells at the same time, and wait for all of them."""
    shells = [
        subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", f"sleep 0.5; : {number}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        for number in range(count)
    ]  # fmt: skip
    for shell in shells:
        shell.communicate()


def bare_drain(size: int) -> None:
    """The floor: read in chunks of 64 KiB, keep nothing."""
    with subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-c", f"yes | head -c {size}"], stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        while os.read(shell.stdout.fileno(), 65536):
            pass


async def seconds(work: Awaitable[object]) -> float:
    begin = time.perf_counter()
    await work
    return time.perf_counter() - begin


class Bench:
    def __init__(self, directory: Path, rounds: int) -> None:
        self.rounds = rounds
        self.engine = Engine(state_dir=directory / "state")
        options = TaskOptions(shell="bash", at_once=1000, foreground=1000)
        self.service = TaskService(self.engine, directory / "run", str(directory), SystemClock(), options)

    async def window(self) -> None:
        await self.service.start({"cmd": "true"}, PERSON)

    async def promoted(self, number: int) -> float:
        """Return the seconds until the handle exists: spawn, both records, the log."""
        begin = time.perf_counter()
        receipt = await self.service.start({"cmd": f"sleep 0.05; : {number}", "yield_time_ms": 0}, PERSON)
        took = time.perf_counter() - begin
        assert not isinstance(receipt, CommandCompleted)
        await self.service.output(receipt.task_id, PERSON)
        return took

    async def many(self, count: int) -> None:
        async def one(number: int) -> None:
            receipt = await self.service.start({"cmd": f"sleep 0.5; : {number}", "yield_time_ms": 0}, PERSON)
            if not isinstance(receipt, CommandCompleted):
                await self.service.output(receipt.task_id, PERSON, timeout_ms=60_000)

        await asyncio.gather(*map(one, range(count)))

    async def drain(self, size: int) -> None:
        receipt = await self.service.start({"cmd": f"sleep 0.02; yes | head -c {size}", "yield_time_ms": 0}, PERSON)
        assert not isinstance(receipt, CommandCompleted)
        output = await self.service.output(receipt.task_id, PERSON, timeout_ms=600_000)
        assert output.task.bytes_seen == size

    async def in_turn(self, floor: Callable[[], None], work: Callable[[int], Awaitable[float]]) -> tuple[float, float]:
        floors, works = [], []
        for number in range(self.rounds):
            begin = time.perf_counter()
            floor()
            floors.append(time.perf_counter() - begin)
            works.append(await work(number))
        return statistics.median(floors), statistics.median(works)

    async def close(self) -> None:
        await self.service.close()
        await asyncio.to_thread(self.engine.close)


def memory() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


async def measure(quick: bool) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), 10 if quick else 50)
        await bench.window()  # starts the engine and the watchdog, and imports modules

        async def window(_: int) -> float:
            return await seconds(bench.window())

        found["a command that ends in its window"] = await bench.in_turn(lambda: bare("true"), window)
        found["a command that becomes a task at once, to its handle"] = await bench.in_turn(
            lambda: bare("true"), bench.promoted
        )
        count = 50 if quick else 200
        begin = time.perf_counter()
        bare_many(count)
        floor = time.perf_counter() - begin
        found[f"{count} tasks of half a second at once"] = floor, await seconds(bench.many(count))
        size = GIGABYTE // 16 if quick else GIGABYTE
        begin = time.perf_counter()
        bare_drain(size)
        floor = time.perf_counter() - begin
        before = memory()
        found[f"a task that prints {size >> 20} MiB"] = floor, await seconds(bench.drain(size))
        found["memory that it took (MB; floor: one log)"] = 16.0, memory() - before
        await bench.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measure(given.quick))
    if given.json:
        print(json.dumps({name: {"floor": floor, "prose": work} for name, (floor, work) in found.items()}))
        return
    for name, (floor, work) in found.items():
        if "MB" in name:
            print(f"{name:<56} {floor:10.1f} {work:10.1f}")
        else:
            print(f"{name:<56} {floor * 1000:7.1f} ms {work * 1000:7.1f} ms   x {work / floor:.2f}")


if __name__ == "__main__":
    main()
