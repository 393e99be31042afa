"""The cost of a session in addition to the vendor's own client: the same requests to the same stub server, alternately.

The floor is the vendor's SDK used directly, streaming, without tools or checks. The stub server (tests/stubs) runs in a
process of its own. `python benchmarks/models.py [--quick] [--json]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prose_kernel.runtime.asker import Unattended

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from prose_kernel.access.approvals import Approvals  # noqa: E402
from prose_kernel.access.session_permissions import Policy  # noqa: E402
from prose_kernel.models.providers.model_judge import ModelJudge  # noqa: E402
from prose_kernel.models.providers.model_servers import ModelServers  # noqa: E402
from prose_kernel.models.providers.model_sessions import ModelSessions  # noqa: E402
from prose_kernel.models.tools.session_tools import SessionTools  # noqa: E402
from prose_kernel.runtime.clock import SystemClock  # noqa: E402
from prose_kernel.runtime.ports import JudgeRequest, SessionProgress, SessionRequest  # noqa: E402
from prose_kernel.runtime.session_options import ModelServer, SessionOptions, Surroundings  # noqa: E402

MESSAGE = "Write a haiku about a pond. " * 20
Call = Callable[[str], Awaitable[object]]


@contextmanager
def stub() -> Iterator[str]:
    """Start the stub model server in a separate process, and return its address."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "tests")}
    server = subprocess.Popen(
        [sys.executable, "-m", "stubs.model_server"], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def servers(url: str, wire: str, cwd: str, limit: int) -> ModelServers:
    """Return the settings of the stub for a wire format."""
    server = ModelServer("anthropic", url, key="")
    if wire == "openai":
        server = ModelServer("openai", f"{url}/v1", key="")
    return ModelServers(SessionOptions(servers={wire: server}, max_parallel=limit), Surroundings(cwd), SystemClock())


def provider(found: ModelServers, wire: str, model: str, cwd: str) -> ModelSessions:
    """Return sessions as a run has them: with permissions, tools and an assembled message."""
    where = Surroundings(cwd)
    approvals = Approvals(Unattended(), SystemClock())

    def bench(request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionTools:
        return SessionTools(request, Policy.of(request.permissions, {}, cwd), approvals, where, on_progress)

    return ModelSessions(found, wire, model, session_tools=bench)


def sdk(url: str, wire: str) -> tuple[Any, Call]:
    """The vendor's client, and one streamed call with it."""
    if wire == "anthropic":
        from anthropic import AsyncAnthropic

        claude = AsyncAnthropic(base_url=url, api_key="none", max_retries=0)

        async def call(model: str) -> object:
            asked: list[Any] = [{"role": "user", "content": MESSAGE}]
            async with claude.messages.stream(model=model, max_tokens=4096, messages=asked) as stream:
                return [text async for text in stream.text_stream]

        return claude, call
    from openai import AsyncOpenAI

    openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    async def chat(model: str) -> object:
        asked: list[Any] = [{"role": "user", "content": MESSAGE}]
        stream = await openai.chat.completions.create(model=model, messages=asked, stream=True)
        return [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]

    return openai, chat


def session(live: ModelSessions) -> Call:
    async def call(model: str) -> object:
        live._model = model
        return await live.run(SessionRequest("session", MESSAGE, "c1/s0"), lambda _: None)

    return call


async def timed(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def one_by_one(url: str, cwd: str, rounds: int) -> list[dict[str, Any]]:
    """Return the medians of single calls, floor and session alternately."""
    rows = []
    for wire in ("anthropic", "openai"):
        client, floor = sdk(url, wire)
        found = servers(url, wire, cwd, 8)
        ours = session(provider(found, wire, "ok-0", cwd))
        judge = ModelJudge(found, wire, "json-0")
        question = JudgeRequest("the draft sings", "c1/j0", bindings={"draft": MESSAGE})
        for _ in range(3):
            await floor("ok-0")
            await ours("ok-0")
            await judge.decide(question)
        times: dict[str, list[float]] = {"floor": [], "session": [], "judge": []}
        for _ in range(rounds):
            times["floor"].append(await timed(floor("ok-0")))
            times["session"].append(await timed(ours("ok-0")))
            times["judge"].append(await timed(judge.decide(question)))
        middle = {name: statistics.median(values) * 1000 for name, values in times.items()}
        rows.append(row(f"one session, {wire} ({rounds} in turn, p50)", middle["floor"], middle["session"], "ms"))
        rows.append(row(f"one judgement, {wire} (p50)", middle["floor"], middle["judge"], "ms"))
        await found.close()
        await client.close()
    return rows


async def at_once(url: str, cwd: str, number: int) -> list[dict[str, Any]]:
    """Measure many sessions: all at the same time, and eight at a time."""
    rows = []
    for name, model, limit in ((f"{number} sessions of 500 ms, all at once", "ok-500", number),
                               (f"{number} sessions of 50 ms, 8 at a time", "ok-50", 8)):  # fmt: skip
        client, floor = sdk(url, "openai")
        gate = asyncio.Semaphore(limit)

        async def gated(model: str = model, gate: asyncio.Semaphore = gate, floor: Call = floor) -> None:
            async with gate:
                await floor(model)

        found = servers(url, "openai", cwd, limit)
        ours = session(provider(found, "openai", model, cwd))
        await ours("ok-0")
        await floor("ok-0")
        low = await timed(asyncio.gather(*(gated() for _ in range(number))))
        high = await timed(asyncio.gather(*(ours(model) for _ in range(number))))
        rows.append(row(name, low, high, "s"))
        await found.close()
        await client.close()
    return rows


async def first_session(url: str, cwd: str) -> dict[str, Any]:
    """Measure the first session of a process, which loads the library, and the longest pause of the event loop."""
    found = servers(url, "anthropic", cwd, 8)
    live = provider(found, "anthropic", "ok-0", cwd)
    longest, stop = 0.0, False

    async def pulse() -> None:
        nonlocal longest
        while not stop:
            started = time.perf_counter()
            await asyncio.sleep(0.005)
            longest = max(longest, time.perf_counter() - started - 0.005)

    beating = asyncio.create_task(pulse())
    whole = await timed(live.run(SessionRequest("session", MESSAGE, "c1/s0"), lambda _: None))
    stop = True
    await beating
    await found.close()
    return {"name": "first session of a process", "ours": whole * 1000, "unit": "ms", "longest_pause": longest * 1000}


def row(name: str, floor: float, ours: float, unit: str) -> dict[str, Any]:
    return {"name": name, "floor": floor, "ours": ours, "unit": unit, "ratio": ours / floor, "more": ours - floor}


def shown(rows: list[dict[str, Any]]) -> str:
    lines = ["| Work | SDK alone | Prose | Ratio | More |", "| --- | --- | --- | --- | --- |"]
    for each in rows:
        unit = each["unit"]
        if "floor" in each:
            more = f"{each['more']:.1f} {unit}" if unit == "ms" else f"{each['more']:.2f} s"
            figures = f"{each['floor']:.2f} {unit} | {each['ours']:.2f} {unit} | {each['ratio']:.2f}"
            lines.append(f"| {each['name']} | {figures} | {more} |")
        else:
            pause = f"longest pause of the loop {each['longest_pause']:.0f} ms"
            lines.append(f"| {each['name']} | – | {each['ours']:.0f} ms | – | {pause} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    asked = parser.parse_args()
    rounds, number = (30, 50) if asked.quick else (200, 200)

    async def measure(url: str, cwd: str) -> list[dict[str, Any]]:
        first = await first_session(url, cwd)
        return [*await one_by_one(url, cwd, rounds), *await at_once(url, cwd, number), first]

    with stub() as url, tempfile.TemporaryDirectory() as cwd:
        rows = asyncio.run(measure(url, cwd))
    print(json.dumps(rows, indent=2) if asked.json else shown(rows))


if __name__ == "__main__":
    main()
