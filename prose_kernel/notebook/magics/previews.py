"""The output of `%prompt` and `%plan`, which show programs before they run. `%prompt` shows each session as it would be
sent, in sections with their sizes; `%plan` the known sessions, commands and gates, and the highest cost of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prose_kernel.models.session_prompt import headline
from prose_kernel.views import document as doc
from prose_kernel.views.request_text import declared, planned_requests
from prose_kernel.views.session_cards import clip_block

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.planned_run import PlannedRun
    from prose_kernel.runs.provider_chain import SessionServices
    from prose_kernel.runs.session_description import Description
    from prose_kernel.runtime.machine import Preview

SESSIONS = 20
"""The most sessions that `%prompt` shows; the rest is counted."""
SHOWN = 100
"""The most sessions, commands and gates that `%plan` shows; the rest is counted."""
_TEXT = 4_000


def _where(preview: Preview) -> str:
    line = preview.source.location(preview.span.start).line
    return f"line {line}" + (f", for {preview.bound_to}" if preview.bound_to else "")


# ---------------------------------------------------------------- %prompt


def prompts(previews: Sequence[Preview], services: SessionServices) -> doc.Block:
    """Return all sessions of a text. Nothing in the output differs from run to run."""
    if not previews:
        return doc.paragraph("There is no session in it.")
    shown = [_prompt(preview, services) for preview in previews[:SESSIONS]]
    if more := len(previews) - len(shown):
        shown.append(doc.paragraph(f"… and {doc.counted(more, 'more session')}"))
    rule = doc.Rich(doc.paragraph("---"))
    return doc.group(*[block for one in shown for block in (rule, one)][1:], gap="\n\n")


def _prompt(preview: Preview, services: SessionServices) -> doc.Block:
    where = _where(preview)
    if preview.note:
        return doc.line(f"{preview.note} ({where})")
    if preview.request is None:
        problem = str(preview.problem) if preview.problem is not None else "the reason is unknown"
        return doc.line(f"session ({where}) would fail: {problem}")
    description = services.describe(preview.request)
    head = doc.line(doc.Strong(f"{headline(preview.request)} ({where})"))
    rows = [row for row in description.facts if row[0] != "recording"] + _recording(preview, description)
    facts = doc.group(head, doc.Table(("", ""), rows, (), indent=2))
    sections = (doc.group(doc.line(title), doc.Listing(text, indent=4)) for title, text in _sections(description))
    return doc.group(facts, *sections, gap="\n\n")


def _sections(description: Description) -> list[tuple[str, str]]:
    """Return the titles, with sizes, and the texts of the parts of the message."""
    parts = [("tools", description.schemas)] if description.schemas else []
    parts += [("system prompt", description.system)] if description.system else []
    parts += [(part.section, part.text) for part in description.message.parts]
    return [(f"{name}, {doc.counted(len(text), 'character')}:", clip_block(text)) for name, text in parts]


def _recording(preview: Preview, description: Description) -> list[tuple[str, str]]:
    """Return rows about the recording. On a miss: the nearest record, its differences, and how to record in replay."""
    if preview.unknown and description.found is not None:
        names = ", ".join(preview.unknown)
        return [("recording", f"unknown before the run: it depends on {names}")]
    rows = [("recording", description.recording)]
    message = getattr(description.found, "message", "")
    hint = getattr(description.found, "hint", "") if description.mode == "replay" else ""
    rows += [("", line) for text in (message, hint) for line in text.split("\n") if line]
    return rows


# ---------------------------------------------------------------- %plan


def plan(found: Sequence[Preview], left_out: Sequence[str], services: SessionServices) -> doc.Group:
    """Return all requests in source order, each with its text and its unknown inputs, and the total cost at the end.
    `left_out` names the costs that the total omits."""
    shown = [_planned(number, preview, services) for number, preview in enumerate(found[:SHOWN], 1)]
    blocks: list[doc.Block] = [doc.line(doc.Strong(_head(found))), *(block for block, _ in shown)]
    if more := len(found) - len(shown):
        blocks.append(doc.paragraph(f"… and {more:,} more"))
    if any(preview.kind == "session" for preview in found):
        costs = [cost for (_, cost), preview in zip(shown, found, strict=False) if preview.kind == "session"]
        blocks.append(doc.line(_total(costs, [*left_out, *([f"{more:,} more"] if more else [])])))
    return doc.group(*blocks, gap="\n\n")


def plan_of_cell(planned: PlannedRun, gap: str, rerun: str) -> doc.Group:
    """Return the requests of a cell that has run before: which keep their answers, and why the others are asked."""
    rows = [
        ("kept" if one.kept else "asked", one.text, "; ".join([*([one.why] if one.why else []), *one.files]))
        for one in planned_requests(planned)
    ]
    blocks: list[doc.Block] = [doc.Table(("", "request", "why, files"), rows[:SHOWN], (1,))]
    if not rows:
        blocks = [doc.paragraph("The cell asks nothing.")]
    if more := len(rows) - SHOWN:
        blocks += [doc.paragraph(f"… and {more:,} more")] if more > 0 else []
    if gap or planned.stopped:
        blocks.append(doc.paragraph("The rest depends on that answer."))
    if rerun != "keep":
        blocks.append(doc.paragraph('With rerun = "ask", the cell asks everything again; %rerun stale keeps answers.'))
    return doc.group(*blocks, gap="\n\n")


def uncounted(compiled: Compiled, language: Language) -> list[str]:
    """Return the names of costs that the total leaves out."""
    from prose_kernel.language.flow import kinds_of

    left_out = ["conditions that a model decides"] if list(language.judged_texts(compiled.program)) else []
    if "loop" in kinds_of(language.flow(compiled.program, compiled.source)):
        left_out.append("further passes of loops whose length is not known")
    return left_out


def _head(found: Sequence[Preview]) -> str:
    counts = {kind: sum(preview.kind == kind for preview in found) for kind in ("session", "command", "gate")}
    sums = [doc.counted(count, kind) for kind, count in counts.items() if count]
    return f"The program comes to {', '.join(sums)}." if sums else "The program makes no requests and runs no command."


def _planned(number: int, preview: Preview, services: SessionServices) -> tuple[doc.Block, float | None]:
    """Return a request, and its highest cost, or None if that is unknown."""
    cost: float | None = 0.0
    notes: list[str] = []
    match preview:
        case _ if preview.note:
            title, text, cost = preview.note, "", None
        case _ if preview.problem is not None:
            title, text = f"{preview.kind} would fail: {preview.problem}", ""
        case _ if preview.command is not None:
            title, text, notes = "command", preview.command.command, declared(preview.command)
        case _ if preview.gate is not None:
            title, text = f"gate {preview.gate.name}, until {preview.gate.timeout_text}", preview.gate.prompt
        case _:
            assert preview.request is not None
            from prose_kernel.runs.session_description import max_cost

            description = services.describe(preview.request)
            cost = max_cost(description, services)
            cost = None if cost and preview.unknown else cost
            title = f"session: {preview.request.agent}" if preview.request.agent else "session"
            text = preview.request.task
            notes = [f"answered by {description.who}", *([f"model {description.model}"] if description.model else [])]
            each = " for each request" if cost and description.tools else ""
            notes.append(f"at most {dollars(cost)}{each}" if cost is not None else "cost unknown")
            cost = None if each else cost  # a session with tools may make any number of requests
    if preview.unknown:
        notes.append(f"depends on {', '.join(preview.unknown)}")
    head = f"{title} ({_where(preview)})" + "".join(f" · {note}" for note in notes)
    body = doc.Listing(clip_block(text, _TEXT), indent=4) if text else None
    return doc.group(doc.line(doc.Strong(f"{number}."), " ", head), body), cost


def _total(costs: Sequence[float | None], uncounted: Sequence[str]) -> str:
    """Return the total cost, and the costs that it omits."""
    known, unknown = [cost for cost in costs if cost is not None], sum(cost is None for cost in costs)
    amounts = [f"{doc.counted(len(known), 'session')} at most {dollars(sum(known))}"] if known else []
    amounts += [f"{doc.counted(unknown, 'session')} an amount that is not known"] if unknown else []
    return f"Cost: {', '.join(amounts)}. Not counted: {', '.join(['retries', *uncounted])}."


def dollars(cost: float) -> str:
    return f"${cost:.4f}" if cost else "$0"
