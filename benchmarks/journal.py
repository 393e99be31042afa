"""The journal: its cost for a cell, its size, and the time to resume a run with many recorded answers.

A cell with one trivial command, with the journal and without it, in turn: as processor time of this process without a
kernel, and as wall time from the request to the reply in one.
The floor of a resumed run is decoding the same lines with `json.loads`.

`python benchmarks/journal.py [--json] [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from kernels import PROSE, Bench

from prose_kernel.runs.restored_files import FileRestoration
from prose_kernel.runs.resumption import record_at, resumption
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.earlier_answers import EarlierAnswers
from prose_kernel.runtime.journal_records import Answered, Asked, Head, Record, Text
from prose_kernel.runtime.ports import CommandRequest, CommandResult, ContextItem, SessionRequest, SessionResult
from prose_kernel.runtime.requests import Keys, describe
from prose_kernel.storage.file_history import FileHistory
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import NAME, read
from prose_kernel.storage.runs import Directories, all_runs

CELL = 'exec "true"'
LOOP = 'let n = 0\nrepeat {count}:\n  let r = exec "echo said"\n  n = n + 1\noutput done = n\n'


def workspace(place: Path, journal: str = "on", *, run_keep_files: bool = False, **more: Any) -> Workspace:
    chosen: dict[str, Any] = {"journal": journal, "cassette_mode": "off", "autodetect": False}
    chosen["run_keep_files"] = run_keep_files
    notebook = "resumption" not in more
    return Workspace(
        Settings().changed(**chosen), Start(place, "main.prose", notebook=notebook), asker=Unattended(), **more
    )


async def cells(rounds: int, each: int) -> dict[str, float]:
    """Return the processor time of a cell with one trivial command: the median of alternating rounds."""
    kinds = ("off", "on", "durable")
    spent: dict[str, list[float]] = {kind: [] for kind in kinds}
    walls: dict[str, list[float]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as place:
        runs = {kind: workspace(Path(place), kind) for kind in kinds}
        for run in runs.values():
            await run.execute(CELL)
        for turn in range(rounds):
            for kind in kinds[turn % 3 :] + kinds[: turn % 3]:
                began, wall = time.process_time(), time.perf_counter()
                for _ in range(each):
                    await runs[kind].execute(CELL)
                spent[kind].append((time.process_time() - began) / each)
                walls[kind].append((time.perf_counter() - wall) / each)
        for run in runs.values():
            await run.close()
    on = [a / b for a, b in zip(spent["on"], spent["off"], strict=True)]
    durable = [a / b for a, b in zip(walls["durable"], walls["off"], strict=True)]
    return {
        "cell_off_seconds": statistics.median(spent["off"]),
        "cell_on_seconds": statistics.median(spent["on"]),
        "on_over_off": statistics.median(on),
        "durable_wall_over_off": statistics.median(durable),
    }


def in_kernels(rounds: int) -> dict[str, float]:
    """Return the wall time of the same cell in a kernel, from request to reply: the median of alternating rounds."""
    with tempfile.TemporaryDirectory() as place:
        kernels = {kind: Bench(PROSE, Path(place), CELL, PROSE_JOURNAL=kind) for kind in ("off", "on")}
        spent: dict[str, list[float]] = {kind: [] for kind in kernels}
        try:
            for turn in range(rounds):
                for kind in ("off", "on") if turn % 2 else ("on", "off"):
                    spent[kind].append(kernels[kind].run(CELL).seconds)
        finally:
            for kernel in kernels.values():
                kernel.close()
    off, on = statistics.median(spent["off"]), statistics.median(spent["on"])
    return {"kernel_off_seconds": off, "kernel_on_seconds": on, "kernel_on_over_off": on / off}


def recorded(place: Path, count: int) -> Path:
    """Return the journal of a run that has `count` answers and was killed before the last one."""
    path = place / ".prose" / "runs" / "20260101-000000-abcdef" / "journal.jsonl"
    file = JournalFile(path)
    file.append(Head(path.parent.name, "main.prose", "openprose", str(place)))
    file.append(Text(1, "openprose", "main.prose", LOOP.replace("{count}", str(count)), directory=str(place)))
    result = codec.encode(
        CommandResult("exited", 0, "said\n", "", stdout_bytes=5, cwd_after=str(place), duration=0.004)
    )
    for number in range(count - 1):
        key = f"c1/2/x{number}"
        request = CommandRequest("echo said", str(place), 120.0, at=key)
        described = describe(request)
        file.append(Asked(key, "command", described.digest((path.parent.name.encode(),)), described.shown))
        file.append(Answered(key, result))
    file.close()
    return path


async def resumed(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        path = recorded(place, count)
        size = path.stat().st_size
        began = time.process_time()
        with path.open("rb") as file:
            for line in file:
                json.loads(line[9:])
        floor = time.process_time() - began
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, wall = time.process_time(), time.perf_counter()
        run = workspace(place, resumption=resumption(path))
        await run.restore()
        await run.execute(LOOP.replace("{count}", str(count)), "main.prose")
        seconds = time.perf_counter() - wall
        spent = time.process_time() - began
        assert run.outputs()["done"][0] == count
        await run.close()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {
        "answers": count,
        "bytes_an_answer": size / count,
        "resume_seconds": seconds,
        "resume_cpu_seconds": spent,
        "resume_over_json": spent / floor,
        "memory_mb": grown,
    }


def kept(count: int) -> dict[str, float]:
    """Measure the key of a session, and the lookup of kept answers of an earlier run. The floor of an answer is
    decoding its two records with `json.loads`."""
    keys, context = Keys("/work"), tuple(ContextItem(f"c{n}", text="context " * 200) for n in range(3))
    task = "words " * 100
    requests = [
        SessionRequest("session", f"Task {n}: {task}", f"c1/{n}/s0", "system", context=context) for n in range(count)
    ]
    began = time.process_time()
    made = [keys.of(request) for request in requests]
    key = (time.process_time() - began) / count
    records: list[Record] = []
    for request, found in zip(requests, made, strict=True):
        records.append(Asked(request.at, "session", "", id=found.digest, parts=found.parts))
        records.append(Answered(request.at, codec.encode(SessionResult("answer " * 50, origin="model"))))
    written = [codec.dumps(record) for record in records]
    began = time.process_time()
    for line in written:
        json.loads(line)
    floor = (time.process_time() - began) / count
    began = time.process_time()
    earlier = EarlierAnswers("run", enumerate(codec.loads(line, Record) for line in written))
    for request, found in zip(requests, made, strict=True):
        one = earlier.find(Asked(request.at, "session", "", id=found.digest, parts=found.parts), request)
        assert one is not None
        assert one.files_of_answer(request, keys) is None
        assert one.value_for("c1/1/s0", SessionResult, "run", lambda file: None).replayed
        earlier.use(request.at, one, request)
    spent = (time.process_time() - began) / count
    return {"answers": count, "key_seconds": key, "kept_seconds": spent, "kept_over_json": spent / floor}


def listed(runs: int, answers: int) -> dict[str, float]:
    """Measure what `prose runs` reads of many runs. The floor opens their journals and adds up the sizes."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        source = recorded(place, answers)
        where = place / "runs"
        for number in range(runs):
            run = where / f"20260101-{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}-{number:06x}"
            run.mkdir(parents=True)
            shutil.copyfile(source, run / NAME)
        began = time.process_time()
        for entry in os.scandir(where):
            with Path(entry.path, NAME).open("rb") as file:
                file.read(1 << 16)
                os.fstat(file.fileno())
        floor = time.process_time() - began
        began = time.process_time()
        for kept in all_runs([Directories(where)]):
            _ = kept.state, kept.program, kept.texts, kept.answers, kept.size
        spent = time.process_time() - began
    return {"runs": runs, "answers": answers, "list_cpu_seconds": spent, "list_over_floor": spent / floor}


COMMAND = "for n in $(seq 20); do echo $n > made$n; done; sleep 0.2"
"""A command of a fifth of a second that changes twenty files."""


async def _worked(place: Path, commands: int, keeps: bool) -> tuple[float, Path]:
    """Return the processor time of a run with these commands, without its first one, and its directory."""
    run = workspace(place, run_keep_files=keeps)
    await run.execute(CELL)  # the first scan
    began = time.process_time()
    for _ in range(commands):
        await run.execute(f'exec "{COMMAND}"')
    spent = time.process_time() - began
    directory = run.opened.journal_file
    assert directory is not None
    await run.close()
    return spent, directory.parent


def with_files(files: int, commands: int, forks: int) -> dict[str, float]:
    """Measure the processor time of kept files: for the commands, for the first scan, and for going back."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for number in range(files):
            path = place / f"d{number // 50}" / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(2_000))
        without, _ = asyncio.run(_worked(place, commands, False))
        spent, run = asyncio.run(_worked(place, commands, True))
        history = FileHistory(place, place / ".prose" / "runs" / "first", lambda: 2, print)
        began = time.process_time()
        asyncio.run(history.watched("", _nothing))
        first = time.process_time() - began
        began = time.process_time()
        for number in range(forks):
            found = read(run / NAME)
            FileRestoration.before(found, record_at(found, f"c{2 + number % (commands - 1)}")).apply()
        fork = (time.process_time() - began) / forks
    part = (spent - without) / (commands * 0.2)
    return {"files": files, "keep_part_of_run": part, "first_scan_seconds": first, "fork_seconds": fork}


async def _nothing() -> None:
    """A request without work."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options.add_argument("--quick", action="store_true", help="fewer cells and answers")
    chosen = options.parse_args()
    counts = (1_000, 10_000) if chosen.quick else (1_000, 10_000, 100_000)
    cell = asyncio.run(cells(6 if chosen.quick else 30, 30))
    cell |= in_kernels(100 if chosen.quick else 1_000)
    rows = [asyncio.run(resumed(count)) for count in counts]
    lists = [listed(500 if chosen.quick else 5_000, answers) for answers in (10, 1_000)]
    keeping = kept(1_000 if chosen.quick else 10_000)
    filed = [with_files(files, 10, 100) for files in ((1_000,) if chosen.quick else (100, 1_000, 9_000))]
    if chosen.json:
        print(json.dumps({"cell": cell, "resume": rows, "list": lists, "keep": keeping, "files": filed}))
        return
    off, on = cell["cell_off_seconds"] * 1e3, cell["cell_on_seconds"] * 1e3
    print(f"one trivial command a cell, CPU: without {off:.2f} ms, with a journal {on:.2f} ms")
    print(f"ratio {cell['on_over_off']:.3f}; durable, wall: {cell['durable_wall_over_off']:.2f}")
    print(
        f"in a kernel, wall: without {cell['kernel_off_seconds'] * 1e3:.2f} ms, with a journal"
        f" {cell['kernel_on_seconds'] * 1e3:.2f} ms, ratio {cell['kernel_on_over_off']:.3f}"
    )
    print(f"{'answers':>8} {'bytes each':>11} {'resume':>9} {'CPU':>9} {'CPU:json':>9} {'memory':>9}")
    for row in rows:
        print(
            f"{row['answers']:>8.0f} {row['bytes_an_answer']:>11.0f} {row['resume_seconds']:>7.2f} s"
            f" {row['resume_cpu_seconds']:>7.2f} s {row['resume_over_json']:>9.1f} {row['memory_mb']:>6.1f} MB"
        )
    print(
        f"key of a session: {keeping['key_seconds'] * 1e6:.1f} µs; an answer of {keeping['answers']:,} that is kept:"
        f" {keeping['kept_seconds'] * 1e6:.1f} µs, {keeping['kept_over_json']:.1f} times decoding it as JSON"
    )
    for one in lists:
        print(
            f"list of {one['runs']:,} runs of {one['answers']:,} answers: {one['list_cpu_seconds']:.2f} s CPU,"
            f" {one['list_over_floor']:.1f} times opening their journals"
        )
    for one in filed:
        print(
            f"keep_files, {one['files']:,} files, commands of 0.2 s: {one['keep_part_of_run']:.1%} of their time;"
            f" first scan {one['first_scan_seconds']:.2f} s, going back {one['fork_seconds'] * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    main()
