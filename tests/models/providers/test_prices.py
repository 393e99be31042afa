"""A missing price list, or one without the model: no price is guessed, and nothing fails."""

from __future__ import annotations

import sys

import pytest

from prose_kernel.models.usage import affordable, cost_of, highest_cost

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
