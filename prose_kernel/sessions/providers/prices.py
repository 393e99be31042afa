"""What a request to a model costs at most, by the price list that comes with pydantic-ai (the extra `llm`)."""

from __future__ import annotations

from decimal import Decimal

_FRAME = 200
"""Tokens around a message: roles, separators."""


def affordable(provider: str, model: str, sent: int, dollars: float) -> int | None:
    """How many tokens an answer may have, for so many US dollars and `sent` bytes of input; None where prices are not
    known. 0 when the input alone costs more."""
    try:
        from genai_prices import Usage, calc_price

        asked = calc_price(Usage(input_tokens=sent // 4), model, provider_id=provider).total_price
        million = calc_price(Usage(output_tokens=1_000_000), model, provider_id=provider).total_price
    except (ImportError, LookupError):
        return None
    return max(int((dollars - float(asked)) / float(million) * 1_000_000), 0) if million else None


def cost_of(provider: str, model: str, tokens_in: int, tokens_out: int) -> Decimal | None:
    """US dollars for so many tokens; None where the price list is not installed or does not know the model."""
    try:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        return calc_price(usage, model, provider_id=provider).total_price
    except (ImportError, LookupError):
        return None


def most_of(provider: str, model: str, sent: int, answer: int | None) -> float | None:
    """US dollars for `sent` bytes of input and an answer of at most `answer` tokens, or as long as the model's window
    allows. None where the price list is not installed or does not know the model."""
    try:
        from genai_prices import Usage, calc_price

        found = calc_price(Usage(input_tokens=sent + _FRAME), model, provider_id=provider)
        answer = answer if answer is not None else found.model.context_window
        if answer is None:
            return None
        usage = Usage(input_tokens=sent + _FRAME, output_tokens=answer)
        return float(calc_price(usage, model, provider_id=provider).total_price)
    except (ImportError, LookupError):
        return None
