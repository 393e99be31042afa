"""Totals of a run: sessions, judgements, tokens and cost for each provider and model. A missing price list, or one
without the model: no price is guessed, and nothing fails."""

from __future__ import annotations

import sys

import pytest

from prose_kernel.models.usage_and_prices import UsageLine, UsageTotals, affordable, cost_of, highest_cost
from prose_kernel.runtime.ports import Finding, Pick, SessionResult, Usage, Verdict


def session_result(provider: str, model: str, usage: Usage | None, *, replayed: bool = False) -> SessionResult:
    return SessionResult("x", provider=provider, details={"model": model}, usage=usage, replayed=replayed)


def test_empty_totals_are_zero() -> None:
    totals = UsageTotals()
    assert totals.lines == () and totals.total == UsageLine("total", "")


def test_sessions_and_judgements_are_added_by_provider_and_model() -> None:
    totals = UsageTotals()
    totals.session(session_result("openai", "gpt", Usage(1, 10, 2, None)))
    totals.session(session_result("anthropic", "claude", Usage(2, 100, 20, 0.5)))
    totals.session(session_result("anthropic", "claude", Usage(1, 50, 5, 0.25)))
    usage = {"requests": 1, "tokens_in": 7, "tokens_out": 3, "cost": 0.125}
    details = {"provider": "anthropic", "model": "claude", "usage": usage}
    totals.judgement(Verdict(True, "model", details=details))
    totals.judgement(Pick("a", "model", details={**details, "usage": None}))
    totals.judgement(Finding("x", "human"))
    totals.judgement(Verdict(True, "rules"))
    assert totals.lines == (
        UsageLine("anthropic", "claude", 2, 2, 0, 4, 157, 28, 0.875, 0),
        UsageLine("human", "", judgements=1),
        UsageLine("openai", "gpt", 1, 0, 0, 1, 10, 2, 0.0, 1),
    )
    assert totals.total == UsageLine("total", "", 3, 3, 0, 5, 167, 30, 0.875, 1)


def test_replayed_sessions_cost_nothing() -> None:
    totals = UsageTotals()
    totals.session(session_result("anthropic", "claude", Usage(1, 50, 5, 0.25), replayed=True))
    details = {"provider": "anthropic", "model": "claude", "usage": {"cost": 1.0}, "replayed": True}
    totals.judgement(Verdict(None, "model", details=details))
    assert totals.lines == (UsageLine("anthropic", "claude", 1, 1, replayed=2),)


UNKNOWN = [("anthropic", "nope"), ("nobody", "gpt-6-luna"), ("", ""), ("openai", "x" * 10_000), ("openai", "\ud800")]


@pytest.mark.parametrize(("provider", "model"), UNKNOWN)
def test_a_price_list_without_the_model(provider: str, model: str) -> None:
    assert cost_of(provider, model, 5, 5) is None
    assert affordable(provider, model, 100, 1.0) is None
    assert highest_cost(provider, model, 100, None) is None


def test_without_a_price_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cost_of("anthropic", "claude-haiku-4-5", 1_000_000, 0) == 1
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert cost_of("anthropic", "claude-haiku-4-5", 1_000_000, 0) is None
    assert affordable("anthropic", "claude-haiku-4-5", 100, 1.0) is None
