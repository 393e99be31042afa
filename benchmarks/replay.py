"""Recordings: the cost of a replayed session, and a cassette of 10,000 records.

Each figure stands beside a floor that anything of the kind pays: reading the same lines with `json.loads`, hashing the
same prompts and decoding the one line that answers. `python benchmarks/replay.py [--json] [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from prose_kernel.cassettes.recorded_answers import RecordedSessions
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import CassetteMiss
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import ContextItem, SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.session_options import CassetteMode, CassetteOptions, Surroundings

PROMPT = "Review part {n}: say what is wrong, one line each, and what to do about it. " * 25
CONTEXT = "What part {n} is about, and what was found in it so far, in full sentences.\n" * 130
ANSWER = "Part {n} is sound. Its third paragraph repeats the first; take it out.\n" * 15


class Person:
    available = True

    async def ask(self, prompt: str) -> str:
        raise EOFError

    def show(self, text: str) -> None:
        raise AssertionError(text)


class Answering:
    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        return SessionResult(ANSWER.replace("{n}", request.at), "", "vendor", "model", {"model": "big-1"})


def request(number: int) -> SessionRequest:
    """Return a session with a prompt of 2 KB and a context of 10 KB."""
    context = ContextItem("notes", "bindings/notes.md", content=CONTEXT.replace("{n}", str(number)))
    task = PROMPT.replace("{n}", str(number))
    return SessionRequest("session", task, f"c1/{number}/s0", "You review.", model="sonnet", context=(context,))


def sessions(directory: str, mode: CassetteMode) -> tuple[RecordedSessions, Cassettes]:
    cassettes = Cassettes(CassetteOptions(mode=mode), Surroundings(directory), SystemClock())
    return RecordedSessions(Answering(), cassettes, asker=Person()), cassettes


def spent(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def each(port: RecordedSessions, numbers: range) -> float:
    """Return the seconds per session, one after the other."""
    began = time.perf_counter()
    for number in numbers:
        await port.run(request(number), lambda _: None)
    return (time.perf_counter() - began) / len(numbers)


def floor(lines: list[bytes], numbers: range) -> float:
    """Return the seconds per session for hashing the request and decoding the line of its answer."""
    began = time.perf_counter()
    for number in numbers:
        asked = request(number)
        assert asked.context is not None
        hashlib.sha256(f"{asked.system}{asked.task}{asked.context[0].content}".encode()).hexdigest()
        json.loads(lines[number + 1])
    return (time.perf_counter() - began) / len(numbers)


def measure(count: int) -> dict[str, float]:
    numbers = range(count)
    with tempfile.TemporaryDirectory() as directory:
        port, cassettes = sessions(directory, "record")
        recorded = asyncio.run(each(port, numbers))
        cassettes.close()
        data = Path(directory, "cassettes", "session.jsonl").read_bytes()
        lines = data.splitlines()
        assert len(lines) == count + 1
        loaded, hit, plain, bare = 9e9, 9e9, 9e9, 9e9
        for _ in range(3):  # alternately, so that other load affects all
            port, cassettes = sessions(directory, "replay")
            loaded = min(loaded, spent(lambda cassettes=cassettes: cassettes.store))  # type: ignore[misc]
            hit = min(hit, asyncio.run(each(port, numbers)))
            plain = min(plain, spent(lambda: [json.loads(line) for line in data.splitlines()]))
            bare = min(bare, floor(lines, numbers))
        missed = asyncio.run(misses(port, count))
    return {
        "records": count,
        "bytes": len(data),
        "load_seconds": loaded,
        "load_over_json": loaded / plain,
        "replay_seconds": hit,
        "replay_over_floor": hit / bare,
        "record_seconds": recorded,
        "miss_seconds": missed,
    }


async def misses(port: RecordedSessions, count: int) -> float:
    """Return the seconds for a miss without a record at its path. Each reads all records; the first decodes them."""
    began, tries = time.perf_counter(), 5
    for number in range(count, count + tries):
        try:
            await port.run(request(number), lambda _: None)
        except CassetteMiss:
            continue
        raise AssertionError("there is no such record")
    return (time.perf_counter() - began) / tries


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options.add_argument("--quick", action="store_true", help="fewer records")
    chosen = options.parse_args()
    rows = [measure(count) for count in ((100, 1_000) if chosen.quick else (100, 1_000, 10_000))]
    if chosen.json:
        print(json.dumps({"sizes": rows}))
        return
    print(
        f"{'records':>8} {'MB':>6} {'load':>9} {'load:json':>10} {'replay':>10} {'replay:floor':>13}"
        f" {'record':>10} {'miss':>9}"
    )
    for row in rows:
        print(
            f"{row['records']:>8.0f} {row['bytes'] / 1e6:>6.1f} {row['load_seconds'] * 1e3:>6.1f} ms"
            f" {row['load_over_json']:>10.2f} {row['replay_seconds'] * 1e6:>7.0f} us {row['replay_over_floor']:>13.2f}"
            f" {row['record_seconds'] * 1e6:>7.0f} us {row['miss_seconds'] * 1e3:>6.1f} ms"
        )


if __name__ == "__main__":
    main()
