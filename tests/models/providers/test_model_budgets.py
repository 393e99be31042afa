"""Budgets while a model answers: the limit of an answer's length, and answers that end at this limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machine.fakes import FakeClock
from models.people import ScriptedPerson
from models.providers.models import Live, asked
from stubs.model_server import StubServer

from prose_kernel.errors import BudgetSpent, ProviderError, RunError, UsageError
from prose_kernel.language.durations_and_budgets import parse_budget
from prose_kernel.models.usage_and_prices import CountedSessions, UsageTotals
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import budgets
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.ports import Usage
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, Price


def limited_to(text: str) -> Budget:
    return Budget("run", "the run", parse_budget(text), FakeClock())


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_model_is_asked_for_no_more_than_is_left(stub: StubServer, wire: str, tmp_path: Path) -> None:
    async with Live(stub, wire, "length-0", tmp_path) as live:
        with budgets.counting((limited_to("50 tokens"),), lambda: "here"), pytest.raises(BudgetSpent, match="here"):
            async with budgets.limited(session=True):
                await live.run()
    assert stub.last is not None
    assert 50 in stub.last.body.values()  # the wire format's name for max_tokens


async def test_money_is_turned_into_tokens_where_prices_are_known(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "anthropic", "claude-sonnet-4-6", tmp_path) as live:
        with budgets.counting((limited_to("0.01 usd"),), lambda: "here"):
            async with budgets.limited(session=True):
                await live.run()
        assert stub.last is not None
        assert 300 < stub.last.body["max_tokens"] < 700  # a million tokens cost 15 dollars
        with budgets.counting((limited_to("0.0000001 usd"),), lambda: "here"), pytest.raises(BudgetSpent):
            async with budgets.limited(session=True):
                await live.run(asked("word " * 100))


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_large_budget_asks_for_no_more_than_without_one(stub: StubServer, wire: str, tmp_path: Path) -> None:
    """A server refuses requests for more tokens than its model can return."""
    sent = []
    async with Live(stub, wire, "words-3", tmp_path) as live:
        for text in ("1000 sessions", "200k tokens"):
            with budgets.counting((limited_to(text),), lambda: "here"):
                async with budgets.limited(session=True):
                    await live.run()
            assert stub.last is not None
            sent.append({name: value for name, value in stub.last.body.items() if "max" in name})
    assert sent[0] == sent[1]


async def test_a_request_with_too_few_tokens_left_is_not_sent(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "chat", "words-3", tmp_path) as live:
        with budgets.counting((limited_to("15 tokens"),), lambda: "here"), pytest.raises(BudgetSpent):
            async with budgets.limited(session=True):
                await live.run()
    assert stub.last is None


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_stream_ends_where_the_budget_does(stub: StubServer, wire: str, tmp_path: Path) -> None:
    """This holds even for an endless stream; the text up to the end is counted."""
    budget = limited_to("30 tokens")
    async with Live(stub, wire, "drip", tmp_path, tools=False) as live:
        with budgets.counting((budget,), lambda: "here"), pytest.raises(BudgetSpent):
            await CountedSessions(live.sessions, UsageTotals()).run(asked(), live.shown.append)
    assert 30 <= budget.spent.tokens < 60


async def test_of_two_budgets_the_one_that_ended_the_answer_is_reported(stub: StubServer, tmp_path: Path) -> None:
    run, block = limited_to("1 session"), Budget("block b 1", "block 'b'", parse_budget("50 tokens"), FakeClock())
    async with Live(stub, "chat", "length-0", tmp_path) as live:
        with budgets.counting((run, block), lambda: "here"), pytest.raises(BudgetSpent, match="block 'b'"):
            async with budgets.limited(session=True):
                await live.run()


async def test_an_event_after_the_end_changes_nothing() -> None:
    """An agent may report its cost after the end of its session."""
    budget = limited_to("1 usd")
    with budgets.counting((budget,), lambda: "here"):
        async with budgets.limited(session=True):
            request = budgets.current()
    assert request is not None
    request.report(Usage(1, cost=2.0))
    budget.count("here", Usage(1, cost=2.0))
    request.report(Usage(1, cost=2.0))


# ---------------------------------------------------------------- A24


def of_stub(stub: StubServer, cwd: Path, **more: Any) -> Workspace:
    """Return a run whose sessions the stub answers: a thousand output tokens of `haiku` cost a dollar."""
    price = Price(input=0.0, output=1000.0)
    options = {"haiku": ModelOptions(price=price)}
    server = ModelServer(
        "openai", stub.openai_url, key="", model="ok-20", aliases={"haiku": "ok-20"}, options=options, tools=False
    )
    chosen = {"provider": "gateway", "providers": {"gateway": server}, "cassette_mode": "off", **more}
    start = Start(cwd, "p.prose", notebook=False)
    return Workspace(Settings().changed(**chosen), start, asker=ScriptedPerson(available=False))


TWENTY = "parallel for i in [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]:\n"


@pytest.mark.parametrize("model", ["haiku", '"ok-20"'])
async def test_a24_the_settings_give_a_model_a_price(stub: StubServer, tmp_path: Path, model: str) -> None:
    """The price also applies if the program names the model itself. An answer of the stub costs about half a cent."""
    here = of_stub(stub, tmp_path, budget="0.04 usd")
    with pytest.raises(BudgetSpent):
        await here.execute(TWENTY + f'  session "Say {{i}}"\n    model: {model}\n')
    assert here.opened.budget is not None
    spent = here.opened.budget.spent
    each = spent.usd / spent.sessions
    assert each > 0 and spent.usd < 0.04 + each
    await here.close()


async def test_a24_tokens_are_exceeded_by_one_request_at_most(stub: StubServer, tmp_path: Path) -> None:
    here = of_stub(stub, tmp_path, budget="120 tokens", providers={"gateway": plain(stub)})
    with pytest.raises(BudgetSpent):
        await here.execute(TWENTY + '  session "Say {i}"\n')
    assert here.opened.budget is not None
    spent = here.opened.budget.spent
    assert 120 - 16 <= spent.tokens <= 120 + spent.tokens / spent.requests
    await here.close()


def plain(stub: StubServer) -> ModelServer:
    return ModelServer("openai", stub.openai_url, key="", model="ok-20", tools=False)


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ("1 usd", 'exec "touch ran"\nsession "One"\n'),
        ("off", 'exec "touch ran"\nblock b() (budget: "1 usd"):\n  session "One"\ndo b()\n'),
        ("off", 'exec "touch ran"\nagent a:\n  model: "ok-1"\nsession: a\n  prompt: "One"\n  budget: "$1"\n'),
    ],
)
async def test_a24_money_without_a_price_is_refused_before_anything_runs(
    stub: StubServer, tmp_path: Path, budget: str, text: str
) -> None:
    providers = {"gateway": plain(stub)}
    here = of_stub(stub, tmp_path, budget=budget, providers=providers)
    with pytest.raises(UsageError, match="its price is not known") as refused:
        await here.execute(text)
    assert refused.value.hint is not None and 'unpriced = "allow"' in refused.value.hint
    assert not (tmp_path / "ran").exists()
    await here.close()
    here = of_stub(stub, tmp_path, budget=budget, providers=providers, unpriced="allow")
    await here.execute(text)
    assert stub.stats.requests == 1
    await here.close()


async def test_a24_a_replay_needs_no_price(stub: StubServer, tmp_path: Path) -> None:
    providers, text = {"gateway": plain(stub)}, 'session "One"\n'
    here = of_stub(stub, tmp_path, providers=providers, cassette_mode="auto")
    await here.execute(text)
    await here.close()
    here = of_stub(stub, tmp_path, budget="1 usd", providers=providers, cassette_mode="replay")
    await here.execute(text)
    await here.close()
    for mode in ("auto", "record"):  # these modes may call the model
        here = of_stub(stub, tmp_path, budget="1 usd", providers=providers, cassette_mode=mode)
        with pytest.raises(UsageError, match="its price is not known"):
            await here.execute(text)
        await here.close()
    assert stub.stats.requests == 1
    (tmp_path / "other").mkdir()
    here = of_stub(stub, tmp_path / "other", budget="1 usd", providers=providers, cassette_mode="replay")
    with pytest.raises(UsageError, match="its price is not known"):  # nothing is recorded there
        await here.execute(text)
    await here.close()


async def test_a24_a_model_that_is_named_while_the_program_runs_is_refused_before_its_request(
    stub: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "other.prose").write_text('session "One"\n  model: "ok-1"\n')
    here = of_stub(stub, tmp_path, budget="1 usd")
    with pytest.raises(RunError, match="its price is not known"):
        await here.execute('use "./other.prose" as other\nother()\n')
    assert stub.stats.requests == 0
    await here.close()


@pytest.mark.parametrize(("model", "counted"), [("cut", False), ("drop", False), ("err-500", True)])
async def test_a24_tokens_of_an_attempt_that_broke_off_are_unknown(
    stub: StubServer, tmp_path: Path, model: str, counted: bool
) -> None:
    usage = UsageTotals()
    async with Live(stub, "chat", model, tmp_path) as live:
        with pytest.raises(ProviderError):
            await CountedSessions(live.sessions, usage).run(asked(), lambda _: None)
    lines = [(line.requests, line.uncounted) for line in usage.lines]
    assert lines == ([] if counted else [(1, 1)])


async def test_a24_estimates_count_tools_and_schemas(stub: StubServer, tmp_path: Path) -> None:
    """When a stream has begun, the request counts too."""
    seen: dict[bool, int] = {}
    more: dict[bool, int] = {}
    for tools in (False, True):
        budget = limited_to("100k tokens")
        async with Live(stub, "chat", "cut", tmp_path, tools=tools) as live:
            with budgets.counting((budget,), lambda: "here"), pytest.raises(ProviderError):
                await CountedSessions(live.sessions, UsageTotals()).run(asked(), lambda _: None)
        assert stub.last is not None
        sent = len(json.dumps(stub.last.body)) // 4
        seen[tools] = budget.spent.tokens
        more[tools] = sent
    assert 0.6 < (seen[True] - seen[False]) / (more[True] - more[False]) < 1.1


async def test_a49_any_name_of_a_model_is_legal_and_one_without_a_meaning_is_reported(
    stub: StubServer, tmp_path: Path
) -> None:
    here = of_stub(stub, tmp_path)
    text = '# models\nsession "a"\n  model: "ok-3"\nsession "b"\n  model: haiku\nsession "c"\n  model: "gateway:ok-4"\n'
    compiled = here.compile(text)
    assert [(one.code, one.line) for one in compiled.diagnostics] == [("W117", 3)]
    await here.execute(text)
    assert stub.stats.by_model == {"ok-3": 1, "ok-20": 1, "ok-4": 1}
    await here.close()
    strict = of_stub(stub, tmp_path, profile="strict")
    assert [one.code for one in strict.compile(text).diagnostics] == ["E008", "E008"]
    await strict.close()


@pytest.mark.parametrize(("budget", "exact"), [("10 sessions", True), ("150 tokens", False), ("200 tokens", False)])
async def test_a24_a_replay_ends_where_the_budget_did(
    stub: StubServer, tmp_path: Path, budget: str, exact: bool
) -> None:
    """This includes running sessions that the budget ended; they have no recorded answer."""
    text = f'let got = []\ntry:\n  {TWENTY.rstrip()}\n    session "Issue {{i}} of the project"\ncatch as e:\n  got = [e.code, e.message]\noutput n = got\n'
    found = []
    for mode in ("auto", "replay", "replay"):
        more = {"providers": {"gateway": plain(stub)}, "cassette_mode": mode, "cassette": "c"}
        here = of_stub(stub, tmp_path, budget=budget, **more)
        await here.execute(text, "p.prose")
        found.append(here.outputs()["n"][0])
        await here.close()
        if mode == "auto":
            asked = stub.stats.requests
    assert stub.stats.requests == asked
    assert [one[0] for one in found] == ["E221"] * 3
    assert found[1] == found[2]
    assert not exact or found[0] == found[1]


async def test_a43_a_server_that_asks_for_a_day_is_not_retried(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "chat", "err-429", tmp_path, clock=FakeClock()) as live:
        throttle = live.servers._connection(live.servers.chain("gateway", None, "err-429")[0])[1]
        throttle._busy(86_400.0, 0)
        with pytest.raises(ProviderError) as refused:
            await live.run()
    assert (refused.value.retryable, stub.stats.requests) == (False, 0)
