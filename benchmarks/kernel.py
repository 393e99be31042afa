"""The kernel and its floor, measured alternately in one run: ratios, not promises.

Usage: python benchmarks/kernel.py [--quick]
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernels import FLOOR, PROSE, Bench

QUICK = "--quick" in sys.argv
Row = tuple[str, str, str, str, str]


def median(values: list[float]) -> float:
    return statistics.median(values)


def interleaved(rounds: int, floor: Callable[[], float], prose: Callable[[], float]) -> tuple[float, float]:
    """Return the medians of both, measured alternately, so that other load affects both."""
    pairs = [(floor(), prose()) for _ in range(max(3, rounds // (5 if QUICK else 1)))]
    return median([a for a, _ in pairs]), median([b for _, b in pairs])


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def row(work: str, floor: float, prose: float, target: str) -> Row:
    return work, ms(floor), ms(prose), f"{prose / floor:.2f} x", target


def starts(cwd: Path) -> tuple[Row, Row]:
    memory: dict[str, float] = {}

    def start(name: str, command: list[str], first: str) -> float:
        bench = Bench(command, cwd, first)
        memory[name] = bench.memory()
        bench.close()
        return bench.started

    floor, prose = interleaved(10, lambda: start("floor", FLOOR, "true"), lambda: start("prose", PROSE, 'exec "true"'))
    kept = f"{memory['floor']:.0f} MB", f"{memory['prose']:.0f} MB"
    return (
        row("process start to first command's result (cold)", floor, prose, "<= 1.0 x"),
        ("memory after start", *kept, f"{memory['prose'] / memory['floor']:.2f} x", "<= 70 MB"),
    )


def timed(floor: Bench, prose: Bench) -> list[Row]:
    """Return the rows of one cell each: name, rounds, the cell of the floor and of this kernel, the target."""
    items = ", ".join(str(n) for n in range(64))
    many = ", ".join(str(n) for n in range(500))
    long_lines = "head -c 20000000 /dev/zero | tr '\\0' x | fold -w 4000"
    cells = [
        ("empty cell round trip (p50)", 200, "", "", "<= 1.3 x"),
        ("one trivial command a cell (p50)", 100, "true", 'exec "true"', "<= 1.6 x"),
        ("20 x echo in one cell", 20, "echo hello\n" * 20, 'exec "echo hello"\n' * 20, "<= 1.3 x"),
        ("64 x sleep 0.2 in parallel", 5, "&64 sleep 0.2",
         f'parallel for i in [{items}]:\n  exec "sleep 0.2"', "<= 1.1 x"),
        ("500 x /bin/true in parallel", 5, "&500 /bin/true",
         f'parallel for i in [{many}]:\n  exec "/bin/true"', "<= 1.2 x"),
        ("20 MB in long lines", 5, long_lines, f'exec """{long_lines}"""', "<= 2 x"),
    ]  # fmt: skip
    rows = []
    for work, rounds, bare, ours, target in cells:
        times = interleaved(rounds, lambda c=bare: floor.run(c).seconds, lambda c=ours: prose.run(c).seconds)
        rows.append(row(work, *times, target))
    return rows


def flood(floor: Bench, prose: Bench) -> Row:
    expected = "".join(f"{n}\n" for n in range(1, 200_001))
    messages = []

    def ours() -> float:
        cell = prose.run('exec "seq 1 200000"')
        assert cell.text == expected, f"lost output: {len(cell.text)} of {len(expected)} characters"
        messages.append(cell.messages)
        return cell.seconds

    times = interleaved(5, lambda: floor.run("seq 1 200000").seconds, ours)
    work, *rest, target = row(f"200,000 short lines, complete, {max(messages)} messages", *times, "<= 2 x, <= 30")
    return work, *rest, target


def cold(cwd: Path) -> list[Row]:
    """Return the figures of a first cell in a fresh kernel."""
    script, many = "seq 1 200000", ", ".join(str(n) for n in range(64))
    cells = [
        ("first flood of 200,000 lines", script, f'exec "{script}"', "<= 1.5 x"),
        ("first 20 x echo in one cell", "echo hello\n" * 20, 'exec "echo hello"\n' * 20, "-"),
        ("first 64 x true in parallel", "&64 true", f'parallel for i in [{many}]:\n  exec "true"', "-"),
    ]
    rows, first = [], []

    def fresh(command: list[str], code: str) -> float:
        bench = Bench(command, cwd, "")
        begin = time.time()
        cell = bench.run(code)
        if command is PROSE and script in code:
            first.append(cell.arrivals[0][0] - begin)
        bench.close()
        return cell.seconds

    for work, bare, ours, target in cells:
        times = interleaved(5, lambda c=bare: fresh(FLOOR, c), lambda c=ours: fresh(PROSE, c))
        rows.append(row(f"{work} (cold)", *times, target))
    rows.append(("first output of the first flood (cold)", "-", ms(median(first)), "-", "<= 60 ms"))
    return rows


def latency(floor: Bench, prose: Bench) -> list[Row]:
    script = "for i in $(seq 40); do date +%s.%N; sleep 0.05; done"

    def delays(bench: Bench, code: str) -> list[float]:
        return sorted(at - float(line) for at, text in bench.run(code).arrivals for line in text.split())

    bare, ours = delays(floor, script), delays(prose, f'exec "{script}"')
    return [
        row("print to arrival, a line every 50 ms, p50", median(bare), median(ours), "<= 3 x"),
        row("print to arrival, p99", bare[-1], ours[-1], "<= 60 ms"),
    ]


def interrupts(prose: Bench) -> list[Row]:
    rows = []
    for work, command, target in (
        ("interrupt to idle, children that obey", "sleep 4242 | sleep 4242", "<= 50 ms"),
        (
            "interrupt to idle, a background child that ignores INT",
            "sh -c 'sleep 4242 & sleep 4242; wait'",
            "<= 300 ms",
        ),
        (
            "interrupt to idle, children that ignore TERM",
            "trap '' INT TERM; while :; do sleep 4242; done",
            "no process left",
        ),
    ):
        request = prose.send(f'exec "echo go; {command}"')
        while prose.client.get_iopub_msg(timeout=30)["msg_type"] != "stream":
            pass
        begin = time.perf_counter()
        prose.manager.interrupt_kernel()
        status = prose.collect(request).status
        seconds = time.perf_counter() - begin
        rows.append((work, "-", ms(seconds), f"{status}, {left('sleep 4242')} left", target))
        prose.drain()
    return rows


def left(command: str) -> int:
    """Return the number of processes with that command line."""
    found = subprocess.run(["pgrep", "-fc", f"^{command}"], capture_output=True, text=True, check=False)
    return int(found.stdout or 0)


def orphans(cwd: Path) -> list[Row]:
    rows = []
    for work, kill in (("shutdown", False), ("kill -9 of the kernel", True)):
        prose = Bench(PROSE, cwd, "")
        prose.send('parallel:\n  exec "sleep 4343"\n  exec "sleep 4343 & wait"\n  exec "(sleep 4343)"')
        deadline = time.monotonic() + 10
        while left("sleep 4343") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        if kill:
            os.kill(prose.pid, signal.SIGKILL)
            begin = time.monotonic()
            while left("sleep 4343") and time.monotonic() - begin < 5:
                time.sleep(0.01)
        prose.close()
        rows.append((f"processes left after {work}", "-", str(left("sleep 4343")), "-", "0"))
    return rows


def many_bindings(prose: Bench) -> Row:
    def empty_cells() -> float:
        return median([prose.run("").seconds for _ in range(40 if QUICK else 200)])

    before = empty_cells()
    for batch in range(50):
        prose.run("\n".join(f'let b{batch}-{n} = "value {n}"' for n in range(100)))
    return row("empty cell after 5,000 bindings / before", before, empty_cells(), "<= 1.15 x")


def many_cells(floor: Bench, prose: Bench) -> Row:
    cells = 200 if QUICK else 2000
    bare, ours = [], []
    for n in range(cells):
        bare.append(floor.run("").seconds)
        ours.append(prose.run(f"let c = {n}").seconds)
    return row(f"{cells:,} cells of one assignment (p50)", median(bare), median(ours), "-")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        cwd = Path(directory)
        rows: list[Row] = [*starts(cwd), *cold(cwd)]
        floor, prose = Bench(FLOOR, cwd, ""), Bench(PROSE, cwd, "")
        try:
            rows += timed(floor, prose)
            rows.append(flood(floor, prose))
            rows += latency(floor, prose)
            rows += interrupts(prose)
            rows.append(many_cells(floor, prose))
            rows.append(many_bindings(prose))
        finally:
            floor.close()
            prose.close()
        rows += orphans(cwd)
    print("| Work | Floor | Prose | Ratio | Target |\n| --- | --- | --- | --- | --- |")
    for cells in rows:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
