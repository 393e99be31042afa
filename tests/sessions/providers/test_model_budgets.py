"""Budgets while a model answers: how long its answer may be, and what becomes of one that ends there."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine.fakes import FakeClock
from sessions.providers.models import Live, asked
from stubs.model_server import StubServer

from prose_kernel.errors import BudgetSpent
from prose_kernel.language.budgets import parse
from prose_kernel.runtime import budgets
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.ports import Usage
from prose_kernel.sessions.usage import CountedSessions, UsageTotals


def limited_to(text: str) -> Budget:
    return Budget("run", "the run", parse(text), FakeClock())


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_model_is_asked_for_no_more_than_is_left(stub: StubServer, wire: str, tmp_path: Path) -> None:
    async with Live(stub, wire, "length-0", tmp_path) as live:
        with budgets.counting((limited_to("50 tokens"),), lambda: "here"), pytest.raises(BudgetSpent, match="here"):
            async with budgets.limited(session=True):
                await live.run()
    assert stub.last is not None
    assert 50 in stub.last.body.values()  # max_tokens, whatever the format calls it


async def test_money_is_turned_into_tokens_where_prices_are_known(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "anthropic", "claude-sonnet-4-6", tmp_path) as live:
        with budgets.counting((limited_to("0.01 usd"),), lambda: "here"):
            async with budgets.limited(session=True):
                await live.run()
        assert stub.last is not None
        assert 300 < stub.last.body["max_tokens"] < 700  # a million cost 15 dollars
        with budgets.counting((limited_to("0.0000001 usd"),), lambda: "here"), pytest.raises(BudgetSpent):
            async with budgets.limited(session=True):
                await live.run(asked("word " * 100))


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_large_budget_asks_for_no_more_than_without_one(stub: StubServer, wire: str, tmp_path: Path) -> None:
    """A server refuses to be asked for more tokens than its model can give."""
    sent = []
    async with Live(stub, wire, "words-3", tmp_path) as live:
        for text in ("1000 sessions", "200k tokens"):
            with budgets.counting((limited_to(text),), lambda: "here"):
                async with budgets.limited(session=True):
                    await live.run()
            assert stub.last is not None
            sent.append({name: value for name, value in stub.last.body.items() if "max" in name})
    assert sent[0] == sent[1]


async def test_too_few_tokens_for_an_answer_are_not_asked_for(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "chat", "words-3", tmp_path) as live:
        with budgets.counting((limited_to("15 tokens"),), lambda: "here"), pytest.raises(BudgetSpent):
            async with budgets.limited(session=True):
                await live.run()
    assert stub.last is None


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_stream_ends_where_the_budget_does(stub: StubServer, wire: str, tmp_path: Path) -> None:
    """Also when the server would go on for ever; what came until then is counted."""
    budget = limited_to("30 tokens")
    async with Live(stub, wire, "drip", tmp_path) as live:
        with budgets.counting((budget,), lambda: "here"), pytest.raises(BudgetSpent):
            await CountedSessions(live.sessions, UsageTotals()).run(asked(), live.shown.append)
    assert 30 <= budget.spent.tokens < 60


async def test_of_two_budgets_the_one_that_ended_the_answer_is_told(stub: StubServer, tmp_path: Path) -> None:
    run, block = limited_to("1 session"), Budget("block b 1", "block 'b'", parse("50 tokens"), FakeClock())
    async with Live(stub, "chat", "length-0", tmp_path) as live:
        with budgets.counting((run, block), lambda: "here"), pytest.raises(BudgetSpent, match="block 'b'"):
            async with budgets.limited(session=True):
                await live.run()


async def test_what_is_told_after_the_end_changes_nothing() -> None:
    """An agent may report its cost when its session is over."""
    budget = limited_to("1 usd")
    with budgets.counting((budget,), lambda: "here"):
        async with budgets.limited(session=True):
            request = budgets.current()
    assert request is not None
    request.tell(Usage(1, cost=2.0))
    budget.count("here", Usage(1, cost=2.0))
    request.tell(Usage(1, cost=2.0))
