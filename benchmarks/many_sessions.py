"""Sessions of a program that wait for 50 places: the cost of one, compared with the vendor's own client, and
its memory while it waits. Half as many are measured too: figures for one session should stay the same.

`python benchmarks/many_sessions.py [--number 1000] [--json]`; the stub server runs in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from prose_kernel.runtime.asker import Unattended

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from models import sdk, stub  # noqa: E402

from prose_kernel.runs.settings import Settings  # noqa: E402
from prose_kernel.runs.workspace import Start, Workspace  # noqa: E402
from prose_kernel.runtime.session_options import ModelServer  # noqa: E402

PLACES = 50
WARM = 'session "Warm up"\n  model: haiku\n'


def program(count: int) -> str:
    items = ", ".join(f'"{n}"' for n in range(count))
    return f'parallel for item in [{items}]:\n  session "{{item}}: say something"\n'


def workspace(url: str, cwd: str, model: str = "ok-20") -> Workspace:
    server = ModelServer("openai", f"{url}/v1", key="", model=model, aliases={"haiku": "ok-0"})
    settings = Settings().changed(
        state="in-context", provider="stub", providers={"stub": server}, max_parallel=PLACES, cassette_mode="off"
    )
    return Workspace(settings, Start(Path(cwd)), asker=Unattended())


async def floor(url: str, count: int) -> float:
    """Return the milliseconds of CPU for a call of the vendor's client."""
    client, call = sdk(url, "openai")
    gate = asyncio.Semaphore(PLACES)

    async def gated() -> None:
        async with gate:
            await call("ok-20")

    await call("ok-0")
    began = time.process_time()
    await asyncio.gather(*(gated() for _ in range(count)))
    spent = time.process_time() - began
    await client.close()
    return spent / count * 1000


async def ours(url: str, cwd: str, count: int) -> float:
    """Return the milliseconds of CPU for a session of a program: compiled, run, reported."""
    run = workspace(url, cwd)
    await run.execute(WARM)
    began = time.process_time()
    await run.execute(program(count))
    spent = time.process_time() - began
    await run.close()
    return spent / count * 1000


async def held(url: str, cwd: str, count: int) -> float:
    """Return the kilobytes of a waiting session. The server never answers the ones before it."""
    run = workspace(url, cwd, "hang")
    await run.execute(WARM)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    running = asyncio.create_task(run.execute(program(count)))
    size, last = 1, -count
    while size - last > count:  # bytes: until all of them are in the queue
        await asyncio.sleep(0.5)
        last, size = size, tracemalloc.get_traced_memory()[0]
    most = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await run.close()
    return most / count / 1024


async def measure(url: str, cwd: str, number: int) -> list[dict[str, Any]]:
    rows = []
    for count in (number // 2, number):
        low, high = await floor(url, count), await ours(url, cwd, count)
        kilobytes = await held(url, cwd, count)
        rows.append({"sessions": count, "floor": low, "ours": high, "ratio": high / low, "kilobytes": kilobytes})
    return rows


def shown(rows: list[dict[str, Any]]) -> str:
    lines = ["| Sessions over 50 places | SDK alone | Prose | Ratio | Memory while waiting |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for one in rows:
        figures = f"{one['floor']:.1f} ms | {one['ours']:.1f} ms | {one['ratio']:.2f} | {one['kilobytes']:.1f} KB"
        lines.append(f"| {one['sessions']} | {figures} |")
    return "\n".join([*lines, "", "CPU time and memory for one session."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    asked = parser.parse_args()
    with stub() as url, tempfile.TemporaryDirectory() as cwd:
        rows = asyncio.run(measure(url, cwd, asked.number))
    print(json.dumps(rows, indent=2) if asked.json else shown(rows))


if __name__ == "__main__":
    main()
