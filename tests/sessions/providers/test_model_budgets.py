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
