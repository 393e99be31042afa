"""Show the consumption of a run by provider and model, for `%usage` and for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prose_kernel.views.document import Table

if TYPE_CHECKING:
    from prose_kernel.models.usage_and_prices import UsageLine

_HEAD = ("provider", "model", "sessions", "judgements", "replayed", "requests", "tokens in", "tokens out", "cost")


def usage_table(lines: Sequence[UsageLine]) -> Table:
    """Return a table with one row for each provider and model."""
    rows = [_usage_row(line) for line in lines]
    return Table(_HEAD, rows, (), range(2, len(_HEAD)), empty="Nothing has been consumed in this run.")


def _usage_row(line: UsageLine) -> tuple[str, ...]:
    counts = (line.sessions, line.judgements, line.replayed, line.requests)
    tokens = [f"{count:,}" if count or not line.uncounted else "" for count in (line.tokens_in, line.tokens_out)]
    if line.tokens_cached:
        tokens[0] += f" ({line.tokens_cached:,} cached)"
    return (
        line.provider,
        line.model,
        *(f"{count:,}" for count in counts),
        *(_and_unknown(known, line.uncounted) for known in tokens),
        cost(line),
    )


def cost(line: UsageLine) -> str:
    """Return the cost in US dollars, with the number of requests whose price is unknown."""
    known = f"${line.cost:.4f}" if line.cost else "" if line.unpriced else "$0"
    return _and_unknown(known, line.unpriced)


def _and_unknown(known: str, unknown: int) -> str:
    return f"{known} + {unknown:,} unknown".removeprefix(" + ") if unknown else known
