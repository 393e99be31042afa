"""The cost of a typed answer, compared with bare pydantic-ai and `output_type`: the same question to one stub server.

Both ask for the same three fields in the format of OpenAI's chat completions. The floor validates with pydantic, we do
with the JSON Schema; we also stream, and offer the tools of a session. `python benchmarks/typed_answers.py [--quick]`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Literal

from prose_kernel.runtime.asker import Unattended

sys.path.insert(0, str(Path(__file__).parent))

from models import MESSAGE, stub
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.language.typed_answers import object_of
from prose_kernel.models.providers.model_servers import ModelServers
from prose_kernel.models.providers.model_sessions import ModelSessions
from prose_kernel.models.tools.session_tools import SessionTools
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import SessionProgress, SessionRequest
from prose_kernel.runtime.session_options import ModelServer, SessionOptions, Surroundings
from prose_kernel.runtime.typed_answers import checked_answer

MODEL = "json-0-reject"
SCHEMA = object_of(
    {
        "verdict": {"type": "string", "enum": ["approve", "reject"]},
        "score": {"type": "number"},
        "reason": {"type": "string"},
    }
)


class Review(BaseModel):
    verdict: Literal["approve", "reject"]
    score: float
    reason: str


def options(url: str) -> SessionOptions:
    server = ModelServer("openai", f"{url}/v1", key="", judge_output="native")
    return SessionOptions(servers={"stub": server}, max_parallel=8)


def bench(cwd: str, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionTools:
    approvals = Approvals(Unattended(), SystemClock())
    return SessionTools(request, Policy.of(request.permissions, {}, cwd), approvals, Surroundings(cwd), on_progress)


async def spent(work: Awaitable[object]) -> tuple[float, float]:
    """Return the wall time and the CPU time of this process in milliseconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000


async def main(rounds: int) -> None:
    with stub() as url, tempfile.TemporaryDirectory() as cwd:
        library = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
        bare = Agent(OpenAIChatModel(MODEL, provider=library), output_type=NativeOutput(Review))
        servers = ModelServers(options(url), Surroundings(cwd), SystemClock())
        live = ModelSessions(servers, "stub", MODEL, session_tools=partial(bench, cwd))

        async def floor() -> object:
            return (await bare.run(MESSAGE)).output

        async def streamed() -> object:
            async with bare.run_stream(MESSAGE) as answer:
                return await answer.get_output()

        async def ours() -> object:
            result = await live.run(SessionRequest("session", MESSAGE, "c1/s0", output=SCHEMA), lambda _: None)
            return checked_answer(result.text, SCHEMA)

        works = {"pydantic-ai": floor, "pydantic-ai, streamed": streamed, "Prose": ours}
        for work in works.values():
            for _ in range(5):
                await work()
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                figures[name].append(await spent(work()))
        await servers.close()
    base = [statistics.median(column) for column in zip(*figures["pydantic-ai"], strict=True)]
    print(f"| Typed answer ({rounds} in turn, median) | Wall | Ratio | CPU | Ratio |\n| --- | --- | --- | --- | --- |")
    for name, rows in figures.items():
        wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {name} | {wall:.2f} ms | {wall / base[0]:.2f} | {cpu:.2f} ms | {cpu / base[1]:.2f} |")


if __name__ == "__main__":
    asyncio.run(main(20 if "--quick" in sys.argv else 200))
