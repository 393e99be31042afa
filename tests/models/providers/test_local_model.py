"""End to end with a real small model in a real llama.cpp server: tests of the connection, not of the answers.

`make local-model` installs what it needs (90 MB of weights and the server); without it these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stubs.local_model import weights

from prose_kernel.models.providers.model_judge import ModelJudge
from prose_kernel.models.providers.model_servers import ModelServers
from prose_kernel.models.providers.model_sessions import ModelSessions
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import JudgeRequest, SessionProgress, SessionRequest
from prose_kernel.runtime.session_options import ModelServer, SessionOptions, Surroundings

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(weights() is None, reason="*** NO LOCAL MODEL: `make local-model` installs it"),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = subprocess.Popen(
        [sys.executable, "-m", "stubs.local_model"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()  # the end of its input ends the server
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()


def llamacpp(url: str, where: Surroundings, tokens: int) -> ModelServers:
    own = ModelServer(base_url=f"{url}/v1", model="smollm2", tools=False, max_tokens=tokens, timeout=120.0)
    return ModelServers(SessionOptions(servers={"llamacpp": own}), where, SystemClock())


def sessions(servers: ModelServers) -> ModelSessions:
    def bench(*_: object) -> None:
        raise AssertionError("this server's models call no tools")

    return ModelSessions(servers, "llamacpp", session_tools=bench)  # type: ignore[arg-type]


def ask(text: str) -> SessionRequest:
    return SessionRequest("session", text, "c1/s0", system="You are brief.")


async def test_a_session_streams_an_answer(url: str, tmp_path: Path) -> None:
    shown: list[SessionProgress] = []
    servers = llamacpp(url, Surroundings(str(tmp_path)), 60)
    result = await sessions(servers).run(ask("Say hello."), shown.append)
    await servers.close()
    texts = [part.text for part in shown if part.kind == "text"]
    assert result.text and "".join(texts) == result.text and len(texts) > 1
    assert (result.provider, result.origin, result.details["model"]) == ("llamacpp", "model", "smollm2")
    assert result.usage is not None
    assert result.usage.tokens_in > 10 and result.usage.tokens_out > 1 and result.usage.cost is None


async def test_sessions_run_in_parallel_and_one_can_be_cancelled(url: str, tmp_path: Path) -> None:
    servers = llamacpp(url, Surroundings(str(tmp_path)), 1000)
    provider = sessions(servers)
    begun = asyncio.Event()
    long = asyncio.create_task(provider.run(ask("Count from 1 to 1000, in words."), lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    await servers.close()
    servers = llamacpp(url, Surroundings(str(tmp_path)), 20)
    provider = sessions(servers)
    results = await asyncio.gather(*(provider.run(ask(f"Say the number {n}."), lambda _: None) for n in range(4)))
    await servers.close()
    assert all(result.text for result in results)


async def test_a_judge_answers_in_the_form_asked_for(url: str, tmp_path: Path) -> None:
    servers = llamacpp(url, Surroundings(str(tmp_path)), 400)
    judge = ModelJudge(servers, "llamacpp")
    request = JudgeRequest("the draft is about a frog", "c1/j0", bindings={"draft": "A frog jumps into the pond."})
    verdict = await judge.decide(request)
    assert verdict.by == "model" and verdict.answer in (True, False, None) and verdict.reason
    pick = await judge.choose(JudgeRequest("the colour of grass", "c1/j1"), ("green", "red"))
    assert pick.label in ("green", "red") and pick.reason
    await servers.close()
