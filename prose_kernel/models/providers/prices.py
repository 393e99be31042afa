"""The prices of requests to models: from the settings, else from the list in pydantic-ai (the extra `llm`)."""

from __future__ import annotations

from decimal import Decimal

from prose_kernel.runtime.session_options import Price

_FRAME = 200
"""The number of tokens around a message: roles, separators."""

_MILLION = 1_000_000


def affordable(provider: str, model: str, asked: int, dollars: float, price: Price | None = None) -> int | None:
    """Return how many tokens an answer may have for `dollars` (US) and `asked` tokens of input; None if the price is
    unknown. 0 if the input already costs more."""
    million = cost_of(provider, model, 0, _MILLION, price)
    if not million:
        return None
    rest = dollars - float(cost_of(provider, model, asked, 0, price) or 0)
    return max(int(rest / float(million) * _MILLION), 0)


def cost_of(provider: str, model: str, tokens_in: int, tokens_out: int, price: Price | None = None) -> Decimal | None:
    """Return the US dollars for these tokens; None if neither the settings nor the price list has the model."""
    if price is not None:
        return (Decimal(repr(price.input)) * tokens_in + Decimal(repr(price.output)) * tokens_out) / _MILLION
    try:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        return calc_price(usage, model, provider_id=provider).total_price
    except (ImportError, LookupError):
        return None


def is_known(provider: str, model: str, price: Price | None = None) -> bool:
    """Return whether the model has a price, in the settings or in the list."""
    return cost_of(provider, model, 1, 1, price) is not None


def most_of(provider: str, model: str, sent: int, answer: int | None, price: Price | None = None) -> float | None:
    """Return the US dollars for `sent` bytes of input and an answer of at most `answer` tokens, or as long as the
    model's window allows. None if the price is unknown, or without a limit the window."""
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
