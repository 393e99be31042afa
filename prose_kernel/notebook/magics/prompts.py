"""The output of `%prompt`: each session as it would be sent, in sections with their sizes, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prose_kernel.models.request import headline
from prose_kernel.views.display import Display, table
from prose_kernel.views.safety import fenced, inline_text, visible
from prose_kernel.views.session_cards import clip_block

if TYPE_CHECKING:
    from prose_kernel.run.session_description import Description
    from prose_kernel.run.session_services import SessionServices
    from prose_kernel.runtime.machine import Preview

SESSIONS = 20
"""Sessions that are shown whole; of the rest only the number."""


def prompts_display(previews: Sequence[Preview], services: SessionServices) -> Display:
    """All sessions of a text. What differs from run to run is not in it."""
    if not previews:
        text = "There is no session in it."
        return Display({"text/markdown": text, "text/plain": text})
    shown = [_one(preview, services) for preview in previews[:SESSIONS]]
    if more := len(previews) - len(shown):
        text = f"… and {more:,} more session{'s' if more > 1 else ''}"
        shown.append((text, text))
    markdown, plain = ("\n\n---\n\n".join(part[0] for part in shown), "\n\n".join(part[1] for part in shown))
    return Display({"text/markdown": markdown, "text/plain": plain})


def _one(preview: Preview, services: SessionServices) -> tuple[str, str]:
    line = preview.source.location(preview.span.start).line
    where = f"line {line}" + (f", for {preview.bound_to}" if preview.bound_to else "")
    if preview.note:
        return inline_text(f"{preview.note} ({where})"), visible(f"{preview.note} ({where})")
    if preview.request is None:
        problem = str(preview.problem) if preview.problem is not None else "the reason is unknown"
        text = f"session ({where}) would fail: {problem}"
        return inline_text(text), visible(text)
    told = services.describe(preview.request)
    head = f"{headline(preview.request)} ({where})"
    rows = [row for row in told.facts if row[0] != "recording"] + _recording(preview, told)
    facts_table = table(("", ""), rows, code=()).data
    facts = "\n".join(f"  {line}" for line in facts_table["text/plain"].split("\n")[1:])
    sections = _sections(told)
    markdown = [f"**{inline_text(head)}**", facts_table["text/markdown"]]
    markdown += [f"{inline_text(title)}\n\n{fenced(text)}" for title, text in sections]
    plain = [f"{visible(head)}\n{facts}", *(f"{title}\n{_indented(text)}" for title, text in sections)]
    return "\n\n".join(markdown), "\n\n".join(plain)


def _sections(told: Description) -> list[tuple[str, str]]:
    """The parts of the message, each with its size."""
    parts = [("tools", told.schemas)] if told.schemas else []
    parts += [("system prompt", told.system)] if told.system else []
    parts += [(part.section, part.text) for part in told.message.parts]
    return [(f"{name}, {_count(len(text))}:", clip_block(text)) for name, text in parts]


def _count(characters: int) -> str:
    return f"{characters:,} character{'s' if characters != 1 else ''}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in visible(text).split("\n"))


def _recording(preview: Preview, told: Description) -> list[tuple[str, str]]:
    """What is recorded for it; on a miss, what is nearest and what differs."""
    if preview.unknown and told.found is not None:
        names = ", ".join(preview.unknown)
        return [("recording", f"cannot be told before the run: it depends on {names}")]
    rows = [("recording", told.recording)]
    message, hint = getattr(told.found, "message", ""), getattr(told.found, "hint", "")
    rows += [("", line) for text in (message, hint) for line in text.split("\n") if line]
    return rows
