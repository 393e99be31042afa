"""The report of a calibration, for the notebook and the terminal (docs/how-to/judge.md)."""

from __future__ import annotations

from collections.abc import Iterator

from prose_kernel.judging.calibration import NO_ANSWER, WORDS, Calibration, JudgeAnswer, Share
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import clip

WORST = 10
"""The most misses that are shown."""


def parts(found: Calibration) -> Iterator[doc.Block]:
    """Yield the parts of the report in order. The consumption varies from run to run, so it is only in the metadata."""
    yield doc.paragraph(summary(found))
    answers = [*WORDS.values(), NO_ANSWER]
    rows = [(label, *(f"{given[word]:,}" for word in answers)) for label, given in found.confusion.items()]
    yield doc.Table(("right answer", *(f"said {word}" if word != NO_ANSWER else word for word in answers)), rows, ())
    rows = [
        (name, f"{share.count:,}", f"{share.of:,}", percent(share.share), interval(share))
        for name, share in found.categories.items()
    ]
    yield doc.Table(("category", "right", "of", "share", "95 % interval"), rows, ())
    if misses := found.misses:
        head = ("worst misses", "right answer", "said", "condition", "its reason")
        yield doc.Table(head, [_miss(answer) for answer in misses[:WORST]], ())
        if len(misses) > WORST:
            yield doc.paragraph(f"and {len(misses) - WORST} more misses")


def summary(found: Calibration) -> str:
    """Return two sentences: how often the judge is right, and how often an `if` takes the right branch."""
    right, leads = found.accuracy, found.leads_right
    return (
        f"{found.judge}: {right.count:,} of {right.of:,} right, {percent(right.share)} (95 % interval "
        f"{interval(right)}). An `if` would go the right way in {percent(leads.share)}."
    )


def consumed(found: Calibration) -> str:
    """Return the cost of the new answers, and how many answers came from a recording."""
    usage, parts = found.usage, []
    if usage.requests:
        tokens = f"{usage.tokens_in:,} tokens in, {usage.tokens_out:,} out"
        cost = "cost unknown" if usage.cost is None else f"${usage.cost:.4f}"
        parts.append(f"{usage.requests:,} requests, {tokens}, {cost}")
    if found.replayed:
        parts.append(f"{found.replayed:,} answers from the recording")
    if len(models := found.models) > 1:
        parts.append("answered by " + ", ".join(f"{name} ({count:,})" for name, count in models.most_common()))
    return "; ".join(parts) or "nothing was consumed"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def interval(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.1f} to {percent(high)}"


def _miss(answer: JudgeAnswer) -> tuple[str, ...]:
    item, reason = answer.item, answer.verdict.reason if answer.verdict is not None else answer.problem
    return item.name, WORDS[item.label], answer.word, clip(item.text, 100), clip(reason, 120)


def as_json(found: Calibration) -> dict[str, object]:
    """Return the whole result as data, for programs."""
    low, high = found.accuracy.interval
    usage = found.usage
    return {
        "judge": found.judge,
        "items": found.accuracy.of,
        "right": found.accuracy.count,
        "accuracy": round(found.accuracy.share, 4),
        "interval": [round(low, 4), round(high, 4)],
        "leads_right": round(found.leads_right.share, 4),
        "confusion": found.confusion,
        "categories": {name: {"right": one.count, "of": one.of} for name, one in found.categories.items()},
        "models": found.models,
        "misses": [
            {
                "id": answer.item.name,
                "category": answer.item.category,
                "condition": answer.item.text,
                "label": WORDS[answer.item.label],
                "said": answer.word,
                "reason": answer.verdict.reason if answer.verdict is not None else answer.problem,
                "why": answer.item.why,
            }
            for answer in found.misses
        ],
        "usage": {name: getattr(usage, name) for name in ("requests", "tokens_in", "tokens_out", "cost")}
        | {"replayed": found.replayed},
    }
