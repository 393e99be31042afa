"""What requests to models cost: by the price of the settings, else by the list that comes with pydantic-ai (the extra
`llm`)."""

from __future__ import annotations

from decimal import Decimal

from prose_kernel.runtime.session_options import Price

_FRAME = 200
"""Tokens around a message: roles, separators."""

_MILLION = 1_000_000


def affordable(provider: str, model: str, asked: int, dollars: float, price: Price | None = None) -> int | None:
    """How many tokens an answer may have, for so many US dollars and `asked` tokens of input; None where the price is
    not known. 0 when the input alone costs more."""
    million = cost_of(provider, model, 0, _MILLION, price)
    if not million:
        return None
    rest = dollars - float(cost_of(provider, model, asked, 0, price) or 0)
    return max(int(rest / float(million) * _MILLION), 0)


def cost_of(provider: str, model: str, tokens_in: int, tokens_out: int, price: Price | None = None) -> Decimal | None:
    """US dollars for so many tokens; None where neither the settings nor the price list say."""
    if price is not None:
        return (Decimal(repr(price.input)) * tokens_in + Decimal(repr(price.output)) * tokens_out) / _MILLION
    try:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        return calc_price(usage, model, provider_id=provider).total_price
    except (ImportError, LookupError):
        return None


def is_known(provider: str, model: str, price: Price | None = None) -> bool:
    """Whether the model has a price, by the settings or by the list."""
    return cost_of(provider, model, 1, 1, price) is not None


def most_of(provider: str, model: str, sent: int, answer: int | None, price: Price | None = None) -> float | None:
    """US dollars for `sent` bytes of input and an answer of at most `answer` tokens, or as long as the model's window
    allows. None where the price, or without a limit the window, is not known."""
    if answer is None:
        answer = _window(provider, model)
    found = cost_of(provider, model, sent + _FRAME, answer, price) if answer is not None else None
    return float(found) if found is not None else None


def _window(provider: str, model: str) -> int | None:
    try:
        from genai_prices import Usage, calc_price

        return calc_price(Usage(), model, provider_id=provider).model.context_window
    except (ImportError, LookupError):
        return None
