"""Requests through the batch interfaces of both vendors: gathered, waited for, cancelled, found again after the process."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from models.providers.models import Live, asked
from stubs.model_server import ANSWER, StubServer
from waiting import eventually

from prose_kernel.errors import ProviderError, ProviderOverloaded
from prose_kernel.run import settings
from prose_kernel.run.workspace import Start, Workspace
from prose_kernel.runtime.ports import JudgeRequest
from prose_kernel.runtime.session_options import ModelOptions
from prose_kernel.runtime.values import plain

pytestmark = pytest.mark.parametrize("wire", ["anthropic", "responses"])
RUN = ".prose/runs/r"


def live(stub: StubServer, wire: str, model: str, cwd: Path, **more: Any) -> Live:
    options = {"sonnet": ModelOptions(batch=True, max_tokens=1000)}
    quick = {"batch_wait": 1.0, "batch_poll": 0.02}
    return Live(stub, wire, "sonnet", cwd, aliases={"sonnet": model}, options=options, **{**quick, **more})


async def test_what_waits_at_the_same_time_goes_in_one_batch(stub: StubServer, wire: str, tmp_path: Path) -> None:
    async with live(stub, wire, "echo-0", tmp_path, limit=2) as provider:
        tasks = [f"Number {number}." for number in range(20)]
        results = await asyncio.gather(*(provider.run(asked(task, context=())) for task in tasks))
    assert [result.text.split("\n")[0] for result in results] == tasks
    assert [len(batch.requests) for batch in stub.batches.batches] == [20]
    assert stub.stats.requests == 0  # none by itself
    assert results[0].usage.requests == 1 and results[0].details["sampling"] == {"max_tokens": 1000, "batch": True}


async def test_a_batch_is_full_at_its_size(stub: StubServer, wire: str, tmp_path: Path) -> None:
    async with live(stub, wire, "ok-0", tmp_path, batch_size=2, batch_wait=600.0) as provider:
        await asyncio.gather(*(provider.run(asked(f"{number}")) for number in range(4)))
    assert [len(batch.requests) for batch in stub.batches.batches] == [2, 2]


async def test_half_the_price_is_counted(stub: StubServer, wire: str, tmp_path: Path) -> None:
    known = {"anthropic": "claude-sonnet-4-6", "responses": "gpt-5.4"}[wire]
    async with live(stub, wire, known, tmp_path) as provider:
        batched = await provider.run()
    async with Live(stub, wire, known, tmp_path) as provider:
        alone = await provider.run()
    assert batched.text == alone.text == ANSWER
    assert batched.usage.cost == pytest.approx(alone.usage.cost / 2)


async def test_each_round_of_a_session_with_tools_is_one_of_the_next_batch(
    stub: StubServer, wire: str, tmp_path: Path
) -> None:
    (tmp_path / "because").write_text("a note")
    async with live(stub, wire, "tool-0-read", tmp_path, rounds=2) as provider:
        results = await asyncio.gather(*(provider.run(asked(f"{number}")) for number in range(3)))
    assert [result.text for result in results] == ["Done: a note"] * 3
    assert [len(batch.requests) for batch in stub.batches.batches] == [3, 3]


async def test_waiting_long_uses_no_rounds_up(stub: StubServer, wire: str, tmp_path: Path) -> None:
    stub.batches.held = True
    async with live(stub, wire, "ok-0", tmp_path, rounds=2) as provider:
        running = asyncio.create_task(provider.run())
        await eventually(lambda: stub.batches.batches and stub.batches.batches[0].polls > 4)
        stub.batches.held = False
        assert (await running).text == ANSWER


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [("err-500", ProviderOverloaded, "the server failed inside"), ("expired-1", ProviderError, "the server reports")],
)
async def test_a_failed_request_fails_its_session_alone(
    stub: StubServer, wire: str, tmp_path: Path, model: str, error: type[ProviderError], said: str
) -> None:
    aliases = {"sonnet": "ok-0", "haiku": model}
    options = dict.fromkeys(aliases, ModelOptions(batch=True))
    async with Live(
        stub, wire, "sonnet", tmp_path, aliases=aliases, options=options, batch_wait=0.2, batch_poll=0.02
    ) as provider:
        good, bad = await asyncio.gather(provider.run(), provider.run(asked(model="haiku")), return_exceptions=True)
    assert good.text == ANSWER
    assert isinstance(bad, error) and said in str(bad) and bad.retryable


async def test_a_refused_submission_fails_what_waited(stub: StubServer, wire: str, tmp_path: Path) -> None:
    stub.batches.refuse = 500
    async with live(stub, wire, "ok-0", tmp_path) as provider:
        failed = await asyncio.gather(*(provider.run(asked(str(n))) for n in range(2)), return_exceptions=True)
        assert [str(each) for each in failed] == [f"{provider.name}: the server failed inside"] * 2
        assert (await provider.run()).text == ANSWER  # the next attempt is another batch


async def test_cancelling_all_cancels_the_batch_and_one_leaves_the_others(
    stub: StubServer, wire: str, tmp_path: Path
) -> None:
    stub.batches.held = True
    async with live(stub, wire, "ok-0", tmp_path) as provider:
        first, second = (asyncio.create_task(provider.run(asked(task))) for task in ("One", "Two"))
        await eventually(lambda: stub.batches.batches and stub.batches.batches[0].polls > 0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not stub.batches.batches[0].cancelled
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await eventually(lambda: stub.batches.batches[0].cancelled)


async def test_a_vendor_that_is_silent_when_a_batch_is_cancelled_holds_nobody(
    stub: StubServer, wire: str, tmp_path: Path
) -> None:
    stub.batches.held = stub.batches.keeps_cancels = True
    async with live(stub, wire, "ok-0", tmp_path) as provider:
        waiting = asyncio.create_task(provider.run(asked("One")))
        await eventually(lambda: stub.batches.batches and stub.batches.batches[0].polls > 0)
        waiting.cancel()
        done, _ = await asyncio.wait([waiting], timeout=15)  # the server's own `timeout` is 30
        assert done and waiting.cancelled()


async def test_a_resumed_run_finds_what_a_killed_one_had_asked(stub: StubServer, wire: str, tmp_path: Path) -> None:
    stub.batches.held = True
    file, left = tmp_path / RUN / "batches.jsonl", tmp_path / "left.jsonl"
    async with live(stub, wire, "echo-0", tmp_path, run_directory=RUN) as provider:
        same = [asyncio.create_task(provider.run(asked("Twice", context=()))) for _ in range(2)]
        await eventually(lambda: file.exists() and len(file.read_text().splitlines()) == 2)
        shutil.copy(file, left)  # as it is if the process is killed now
        stub.batches.held = False
        await asyncio.gather(*same)
    assert len(file.read_text().splitlines()) == 4  # nothing of it waits any more
    left.write_text(left.read_text() + '{"key": "torn\n')
    shutil.copy(left, file)
    async with live(stub, wire, "echo-0", tmp_path, run_directory=RUN) as provider:
        results = await asyncio.gather(*(provider.run(asked("Twice", context=())) for _ in range(3)))
    assert all(result.text.startswith("Twice") for result in results)
    assert [len(batch.requests) for batch in stub.batches.batches] == [2, 1]  # the third was never asked before


async def test_a_judge_may_be_asked_by_batches(stub: StubServer, wire: str, tmp_path: Path) -> None:
    async with live(stub, wire, "json-0", tmp_path) as provider:
        verdicts = await asyncio.gather(*(provider.judge.decide(JudgeRequest("so", f"c1/j{n}")) for n in range(3)))
    assert [verdict.reason for verdict in verdicts] == ["because"] * 3
    assert [len(batch.requests) for batch in stub.batches.batches] == [3]


async def test_a_parallel_for_is_one_batch(stub: StubServer, wire: str, tmp_path: Path) -> None:
    name, kind = ("gateway", 'kind = "anthropic"') if wire == "anthropic" else ("openai", "")
    url = stub.url if wire == "anthropic" else stub.openai_url
    (tmp_path / "prose.toml").write_text(
        f'provider = "{name}"\n[providers.{name}]\n{kind}\nkey = ""\nbase_url = "{url}"\nbatch_wait = 1\n'
        f'batch_poll = 0.02\n[models.{name}.default]\nmodel = "ok-0"\nbatch = true\n'
    )
    loaded = settings.load(tmp_path, {"HOME": str(tmp_path)}, cassette_mode="off")
    here = Workspace(loaded, Start(tmp_path, "main.prose", notebook=False), asker=ScriptedPerson(available=False))
    try:
        await here.execute('let all = ["a", "b", "c"] | pmap:\n  session "Look at {item}"\n', "main.prose")
        assert plain(here.machine.bindings()["all"].value) == [ANSWER] * 3
    finally:
        await here.close()
    assert [len(batch.requests) for batch in stub.batches.batches] == [3]
