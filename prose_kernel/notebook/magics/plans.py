"""The output of `%plan`: the sessions, commands and gates that a program will come to, as far as that is known before
it runs, and what its sessions cost at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prose_kernel.views.display import Display
from prose_kernel.views.safety import fenced, inline_text, visible
from prose_kernel.views.session_cards import clip_block

if TYPE_CHECKING:
    from prose_kernel.run.session_services import SessionServices
    from prose_kernel.runtime.machine import Preview

SHOWN = 100
"""Sessions, commands and gates that are shown; the rest is counted."""
_TEXT = 4_000


def plan_display(found: Sequence[Preview], uncounted: Sequence[str], services: SessionServices) -> Display:
    """Everything in source order, each with its text and what is not known of it, and the sum at the end. `uncounted`
    is what the sum leaves out."""
    shown = [_one(number, preview, services) for number, preview in enumerate(found[:SHOWN], 1)]
    markdown, plain = [part for part, _, _ in shown], [part for _, part, _ in shown]
    if more := len(found) - len(shown):
        text = f"… and {more:,} more"
        markdown, plain = [*markdown, text], [*plain, text]
    if any(preview.kind == "session" for preview in found):
        costs = [cost for (_, _, cost), preview in zip(shown, found, strict=False) if preview.kind == "session"]
        left = [f"{more:,} more"] if more else []
        total = _total(costs, [*uncounted, *left])
        markdown, plain = [*markdown, inline_text(total)], [*plain, total]
    head = _head(found)
    return Display(
        {"text/markdown": "\n\n".join([f"**{head}**", *markdown]), "text/plain": "\n\n".join([head, *plain])}
    )


def _head(found: Sequence[Preview]) -> str:
    counts = {kind: sum(preview.kind == kind for preview in found) for kind in ("session", "command", "gate")}
    said = [f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count]
    return f"The program comes to {', '.join(said)}." if said else "The program asks nobody and runs no command."


def _one(number: int, preview: Preview, services: SessionServices) -> tuple[str, str, float | None]:
    """As Markdown, as text, and what it costs at most: None for what is not known."""
    line = preview.source.location(preview.span.start).line
    where = f"line {line}" + (f", for {preview.bound_to}" if preview.bound_to else "")
    cost: float | None = 0.0
    notes: list[str] = []
    match preview:
        case _ if preview.note:
            what, text, cost = preview.note, "", None
        case _ if preview.problem is not None:
            what, text = f"{preview.kind} would fail: {preview.problem}", ""
        case _ if preview.command is not None:
            what, text = "command", preview.command.command
        case _ if preview.gate is not None:
            what, text = f"gate {preview.gate.name}, until {preview.gate.timeout_text}", preview.gate.prompt
        case _:
            assert preview.request is not None
            from prose_kernel.run.session_description import most_cost

            told = services.describe(preview.request)
            cost = most_cost(told, services)
            cost = None if cost and preview.unknown else cost
            what = f"session: {preview.request.agent}" if preview.request.agent else "session"
            text = preview.request.task
            notes = [f"answered by {told.who}", *([f"model {told.model}"] if told.model else [])]
            each = " for each request" if cost and told.tools else ""
            notes.append(f"at most {dollars(cost)}{each}" if cost is not None else "cost unknown")
            cost = None if each else cost  # a session with tools makes as many requests as it likes
    if preview.unknown:
        notes.append(f"depends on {', '.join(preview.unknown)}")
    head = f"{what} ({where})" + "".join(f" · {note}" for note in notes)
    body = clip_block(text, _TEXT)
    plain = "\n".join(
        [f"{number}. {visible(head)}", *(f"    {row}".rstrip() for row in visible(body).split("\n") if body)]
    )
    return f"**{number}.** {inline_text(head)}" + (f"\n\n{fenced(body)}" if body else ""), plain, cost


def _total(costs: Sequence[float | None], uncounted: Sequence[str]) -> str:
    """The sum, and what is not in it."""
    known, unknown = [cost for cost in costs if cost is not None], sum(cost is None for cost in costs)
    said = [f"{_sessions(len(known))} at most {dollars(sum(known))}"] if known else []
    said += [f"{_sessions(unknown)} an amount that is not known"] if unknown else []
    return f"Cost: {', '.join(said)}. Not counted: {', '.join(['retries', *uncounted])}."


def _sessions(count: int) -> str:
    return f"{count:,} session{'s' if count != 1 else ''}"


def dollars(cost: float) -> str:
    return f"${cost:.4f}" if cost else "$0"
