"""Render two runs of a program side by side as one HTML page (docs/how-to/edit-and-continue.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from prose_kernel.storage.run_history import RunDifference
from prose_kernel.views.document import Table
from prose_kernel.views.escaping import Html, html, tag
from prose_kernel.views.page import Section, as_html, page

if TYPE_CHECKING:
    from prose_kernel.storage.runs import KeptRun

_SHOWN: Final = 20_000
"""The most characters of an answer that are shown."""


class Side(Struct, frozen=True):
    """One of the two runs: its id, its state, and its consumption in words."""

    run: str
    state: str
    consumed: str

    @classmethod
    def of(cls, run: KeptRun, consumed: str) -> Side:
        return cls(run.id, run.state, consumed)


def comparison_page(
    program: str, sides: tuple[Side, Side], found: Iterable[RunDifference], redact: Callable[[str], str]
) -> str:
    """Return the page. `redact` removes secrets from a text."""
    differences = list(found)
    head = html(
        tag("h1", redact(program)),
        tag("div", " and ".join(f"run {side.run} ({side.state})" for side in sides), class_="quiet v"),
        tag("p", "No differences." if not differences else ""),
    )
    consumed = Table(("run", "consumed by what it asked itself"), [(side.run, side.consumed) for side in sides])
    judged = [one for one in differences if one.decision]
    others = [one for one in differences if not one.decision]
    sections = [
        _section("decisions", "Decisions that turned", judged, sides, redact),
        *(
            _section(f"{kind}s", title, [one for one in others if one.what == kind], sides, redact)
            for kind, title in (("answer", "Answers"), ("binding", "Bindings"), ("text", "Program"))
        ),
        Section("used", "Consumed", tag("div", as_html(consumed), class_="v")),
    ]
    return page(f"{redact(program)}: two runs", head, [one for one in sections if one is not None])


def _section(
    id_: str, title: str, found: Sequence[RunDifference], sides: tuple[Side, Side], redact: Callable[[str], str]
) -> Section | None:
    if not found:
        return None
    return Section(id_, title, html(*(_shown(one, sides, redact) for one in found)))


def _shown(one: RunDifference, sides: tuple[Side, Side], redact: Callable[[str], str]) -> Html:
    row = [_text(redact(text)) for text in (one.then, one.now)]
    lines = tag("pre", redact("\n".join(one.lines)))
    return html(
        tag("h3", tag("code", redact(one.at))),
        as_html(Table(tuple(side.run for side in sides), [row])),
        tag("details", tag("summary", "Difference"), lines),
    )


def _text(text: str) -> Html:
    if not text:
        return tag("span", "not there", class_="quiet")
    more = tag("span", f"… ({len(text):,} characters in all)", class_="cut") if len(text) > _SHOWN else ""
    return html(tag("pre", text[:_SHOWN]), more)
