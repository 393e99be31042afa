"""Request options of a model's alias: sampling, seeds, effort, prompt caching. Unsupported options are errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machine.fakes import lines
from models.people import ScriptedPerson
from models.providers.models import WIRES, Live, asked
from stubs.model_server import StubServer

from prose_kernel.errors import ProviderError, RunError
from prose_kernel.models.usage_and_prices import CountedSessions, UsageTotals
from prose_kernel.runs import settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.ports import JudgeRequest
from prose_kernel.runtime.session_options import ModelOptions


def live(stub: StubServer, wire: str, model: str, cwd: Path, **options: Any) -> Live:
    return Live(stub, wire, "sonnet", cwd, aliases={"sonnet": model}, options={"sonnet": ModelOptions(**options)})


@pytest.mark.parametrize(
    ("wire", "model", "options", "sent"),
    [
        ("anthropic", "claude-sonnet-4-6", {"temperature": 0.0, "top_p": 0.5}, {"temperature": 0.0, "top_p": 0.5}),
        ("anthropic", "claude-opus-4-6", {"effort": "low"}, {"output_config": {"effort": "low"}}),
        ("responses", "gpt-5.5", {"effort": "high"}, {"reasoning": {"effort": "high"}}),
        ("responses", "gpt-5.4", {"effort": "off", "temperature": 0.5}, {"temperature": 0.5}),
        ("responses", "gpt-4.1", {"temperature": 1.5, "top_p": 1.0}, {"temperature": 1.5, "top_p": 1.0}),
        ("chat", "ok-0", {"temperature": 0.5, "seed": 7, "max_tokens": 9}, {"temperature": 0.5, "seed": 7}),
    ],
)
async def test_options_of_the_alias_are_sent(
    stub: StubServer, wire: str, model: str, options: dict[str, Any], sent: dict[str, Any], tmp_path: Path
) -> None:
    async with live(stub, wire, model, tmp_path, **options) as provider:
        result = await provider.run()
    assert stub.last is not None
    for name, value in sent.items():
        found = stub.last.body[name]
        assert (found | value if isinstance(value, dict) else value) == found
    assert result.details["sampling"] == options


@pytest.mark.parametrize(
    ("wire", "model", "options", "named"),
    [
        ("anthropic", "claude-sonnet-4-6", {"seed": 7}, "`seed` has"),
        ("anthropic", "claude-sonnet-5-5", {"temperature": 0.2, "top_p": 0.5}, "`temperature`, `top_p` have"),
        ("responses", "gpt-5.5", {"temperature": 0.2}, "`temperature` has"),
        ("responses", "gpt-5.4", {"temperature": 0.2, "effort": "high"}, "`temperature` has"),
        ("responses", "gpt-4.1", {"effort": "high", "seed": 1}, "`seed`, `effort` have"),
        ("chat", "ok-0", {"effort": "high", "cache": True}, "`effort`, `cache` have"),
    ],
)
async def test_an_option_that_would_do_nothing_is_an_error_and_nothing_is_sent(
    stub: StubServer, wire: str, model: str, options: dict[str, Any], named: str, tmp_path: Path
) -> None:
    async with live(stub, wire, model, tmp_path, **options) as provider:
        with pytest.raises(ProviderError) as caught:
            await provider.run()
    assert str(caught.value) == f"{provider.name}: {named} no effect on the model `{model}`"
    assert not caught.value.retryable and stub.stats.requests == 0


async def test_a_cached_prefix_is_marked_for_anthropic(stub: StubServer, tmp_path: Path) -> None:
    async with live(stub, "anthropic", "claude-sonnet-4-6", tmp_path, cache=True) as provider:
        await provider.run(asked(system="You review."))
    assert stub.last is not None
    body = stub.last.body
    assert body["tools"][-1]["cache_control"]["type"] == "ephemeral"
    assert body["system"][-1]["cache_control"]["type"] == "ephemeral"


async def test_a_cache_key_of_openai_is_the_same_for_the_same_beginning(stub: StubServer, tmp_path: Path) -> None:
    async with live(stub, "responses", "gpt-5.4", tmp_path, cache=True) as provider:
        for task, system in (("One", "You review."), ("Two", "You review."), ("Two", "You write.")):
            await provider.run(asked(task, system=system))
    first, second, third = (seen.body["prompt_cache_key"] for seen in stub.seen)
    assert first == second != third and first.startswith("prose-")


@pytest.mark.parametrize("wire", WIRES)
async def test_cached_tokens_are_counted(stub: StubServer, wire: str, tmp_path: Path) -> None:
    usage = UsageTotals()
    async with Live(stub, wire, "cached-0", tmp_path) as provider:
        await CountedSessions(provider.sessions, usage).run(asked("one two three four"), lambda _: None)
    assert stub.last is not None
    words = stub.last.asked.words
    assert (usage.total.tokens_in, usage.total.tokens_cached) == (words, words // 2)


async def test_a_judge_is_asked_with_the_sampling_of_its_alias(stub: StubServer, tmp_path: Path) -> None:
    async with live(stub, "anthropic", "json-0", tmp_path, temperature=0.0) as provider:
        await provider.judge.decide(JudgeRequest("it is so", "c1/j0"))
    assert stub.last is not None and stub.last.body["temperature"] == 0.0


PROGRAM = lines('let a = session "Say something"')


async def run(cwd: Path, stub: StubServer, table: str, mode: str) -> None:
    (cwd / "prose.toml").write_text(
        f'provider = "gateway"\n[providers.gateway]\nkind = "openai"\nbase_url = "{stub.openai_url}"\n'
        f'[models.gateway.default]\nmodel = "ok-0"\n{table}\n'
    )
    loaded = settings.load(cwd, {"HOME": str(cwd.parent)}, cassette_mode=mode)
    start = Start(cwd, "main.prose", notebook=False)
    here = Workspace(loaded, start, asker=ScriptedPerson(available=False))
    try:
        await here.execute(PROGRAM, "main.prose")
    finally:
        await here.close()


async def test_a_recording_contains_the_options_and_replays_without_them(stub: StubServer, tmp_path: Path) -> None:
    await run(tmp_path, stub, "temperature = 0.5\nseed = 7", "auto")
    cassette = next((tmp_path / "cassettes").glob("*.jsonl")).read_text()
    record = next(json.loads(line) for line in cassette.splitlines() if "something" in line)
    assert record["meta"]["sampling"] == {"temperature": 0.5, "seed": 7}
    await run(tmp_path, stub, "temperature = 1", "replay")
    assert stub.stats.requests == 1


async def test_an_option_without_effect_is_reported(stub: StubServer, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="`effort` has no effect on the model `ok-0`") as caught:
        await run(tmp_path, stub, 'effort = "high"', "auto")
    assert caught.value.hint and "take it out of the model's table in prose.toml" in caught.value.hint
