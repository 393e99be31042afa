"""Draw the flow of a program as an SVG picture for pages without scripts: boxes in a column, branches side by side.

A program is structured, so it needs no general graph layout: each kind of step has its layout around its inner steps.
Control enters at the middle of the top and leaves at the middle of the bottom. Data flow is written into the boxes: the
names that a step reads and binds. Colours come from the style sheet of the page, or are part of the picture.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from prose_kernel.language.flow import DEFINITIONS, FlowStep
from prose_kernel.language.source import Span
from prose_kernel.language.text import clipped
from prose_kernel.views.diagram import DiagramText, Mark, levels, mark_of, statements_inside, words
from prose_kernel.views.escaping import Html, clip, html_text

WIDEST: Final = 1300
"""The width in pixels above which a picture is drawn with less detail."""
_MARGIN: Final = 10
_STYLE: Final = (
    "svg{font:12px system-ui,sans-serif}text{fill:#24292f}"
    ".q{fill:#57606a;font-size:11px}.d{fill:#0550ae;font-size:11px}"
    ".bg{fill:#ffffff}.box{fill:#ffffff;stroke:#8c959f;stroke-width:1.5}.idle{stroke-dasharray:4 3}"
    ".done{stroke:#1a7f45;stroke-width:2}.failed{stroke:#c4302b;stroke-width:2}.cancelled{stroke:#8f6400}"
    ".running{stroke:#0550ae}.group{fill:none;stroke:#8c959f;stroke-dasharray:5 4}"
    ".flow{fill:none;stroke:#57606a;stroke-width:1.3}.tip{fill:#57606a}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.q{fill:#9da7b3}.d{fill:#79c0ff}.bg,.box{fill:#161b22}"
    ".done{stroke:#4cc27d}.failed{stroke:#ff7b72}.flow{stroke:#9da7b3}.tip{fill:#9da7b3}}"
)
_LINE: Final = 15
_LETTER: Final = 6.6
_GAP: Final = 22
_PAD: Final = 14
_WIDEST_ROW: Final = 900
_LABEL: Final = 36
_ROWS: Final = 3
_IN_COLUMNS: Final = frozenset({"if", "parallel", "try"})


class _Drawn(Struct):
    """A part of the picture, relative to its upper left corner. `leads_on`: control flow leaves it at the bottom."""

    width: float
    height: float
    parts: list[str]
    leads_on: bool = True

    @property
    def middle(self) -> float:
        return self.width / 2

    def at(self, x: float, y: float) -> str:
        return f'<g transform="translate({x:.0f} {y:.0f})">{"".join(self.parts)}</g>'


def flow_svg(parts: Sequence[DiagramText], links: Mapping[Span, str] | None = None, *, styled: bool = False) -> Html:
    """Return the picture. `links` maps spans of steps to the ids of page elements with details. With `styled` it
    includes colours and a background, which are readable in any theme."""
    whole = _Drawn(0, 0, [])
    for drawn, _ in levels(parts):
        whole = _whole(drawn, links or {})
        if whole.width <= WIDEST:
            break
    margin = _MARGIN if styled else 1
    width, height = f"{whole.width + 2 * margin:.0f}", f"{whole.height + 2 * margin:.0f}"
    corner = f'x="-{margin}" y="-{margin}"'
    ground = f'<style>{_STYLE}</style><rect class="bg" {corner} width="{width}" height="{height}"/>' if styled else ""
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}"'
        f' viewBox="-{margin} -{margin} {width} {height}"><title>Flow of the program</title>'
        f"{ground}{whole.at(0, 0)}</svg>"
    )


def _whole(parts: Sequence[DiagramText], links: Mapping[Span, str]) -> _Drawn:
    found: list[_Drawn] = []
    for part in parts:
        drawing = _Drawing(part.marks, links)
        defined = [drawing.definition(step) for step in part.steps if step.kind in DEFINITIONS]
        flow = drawing.sequence([step for step in part.steps if step.kind not in DEFINITIONS])
        pieces = [*([_row(defined)] if defined else []), *([flow] if flow.parts else [])]
        inner = _column(pieces, arrows=False) if pieces else _label("nothing to draw")
        found.append(_framed(inner, part.title) if part.title else inner)
    return _column(found, arrows=len(parts) > 1)


# ---------------------------------------------------------------- layout


def _column(pieces: Sequence[_Drawn], *, arrows: bool = True) -> _Drawn:
    """Place pieces one below the other, with an arrow from each to the next."""
    if not pieces:
        return _Drawn(0, 0, [])
    width = max(piece.width for piece in pieces)
    middle, y, parts = width / 2, 0.0, list[str]()
    for number, piece in enumerate(pieces):
        parts.append(piece.at(middle - piece.middle, y))
        y += piece.height
        if number < len(pieces) - 1:
            if arrows and piece.leads_on:
                parts.append(_arrow(middle, y, middle, y + _GAP))
            y += _GAP
    return _Drawn(width, y, parts, pieces[-1].leads_on)


def _row(pieces: Sequence[_Drawn]) -> _Drawn:
    """Place pieces without a control flow between them side by side, in as many rows as necessary."""
    x = y = height = width = 0.0
    parts = list[str]()
    for piece in pieces:
        if x and x + piece.width > _WIDEST_ROW:
            x, y, height = 0.0, y + height + _PAD, 0.0
        parts.append(piece.at(x, y))
        x += piece.width + _PAD
        width, height = max(width, x - _PAD), max(height, piece.height)
    return _Drawn(width, y + height, parts)


def _framed(inner: _Drawn, title: str) -> _Drawn:
    shown = clip(title, 60)
    width = max(inner.width + 2 * _PAD, _width(shown) + 2 * _PAD)
    top = _LINE + 12
    height = inner.height + top + _PAD
    parts = [
        f'<rect class="group" width="{width:.0f}" height="{height:.0f}" rx="8"/>',
        f'<text class="q" x="{_PAD}" y="{_LINE}">{html_text(shown)}</text>',
        inner.at(width / 2 - inner.middle, top),
    ]
    return _Drawn(width, height, parts, inner.leads_on)


def _label(shown: str) -> _Drawn:
    width = _width(shown)
    text = f'<text class="q" x="{width / 2:.0f}" y="11" text-anchor="middle">{html_text(shown)}</text>'
    return _Drawn(width, _LINE, [text])


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a line with a downward tip at its end; a line to another column turns in the middle."""
    half = (y + to_y) / 2
    aside = f"V{half:.0f}H{to_x:.0f}" if abs(x - to_x) > 1 else ""
    tip = f'<path class="tip" d="M{to_x - 4:.0f} {to_y - 6:.0f}h8l-4 6z"/>'
    return f'<path class="flow" d="M{x:.0f} {y:.0f}{aside}V{to_y - 5:.0f}"/>{tip}'


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a line without a tip, which turns just above its end, because elements next to its start may be taller."""
    return f'<path class="flow" d="M{x:.0f} {y:.0f}V{to_y - _GAP / 2:.0f}H{to_x:.0f}V{to_y:.0f}"/>'


def _width(shown: str) -> float:
    return sum(2 * _LETTER if unicodedata.east_asian_width(c) in "WF" else _LETTER for c in shown)


def _wrapped(shown: str) -> list[str]:
    """Wrap a label into a few lines."""
    lines = [""]
    for word in clip(shown, _LABEL * _ROWS - 4).split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= _LABEL and len(lines) < _ROWS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return [clipped(line, _LABEL + 6) for line in lines]


# ---------------------------------------------------------------- steps


class _Drawing:
    def __init__(self, marks: Mapping[Span, Mark] | None, links: Mapping[Span, str]) -> None:
        self._marks = marks
        self._links = links

    def sequence(self, steps: Iterable[FlowStep]) -> _Drawn:
        return _column([self.step(step) for step in steps])

    def definition(self, step: FlowStep) -> _Drawn:
        if step.kind != "block" or not step.ways:
            return self.box(step)
        return _framed(_column([self.sequence(way.steps) for way in step.ways]), words(step))

    def step(self, step: FlowStep) -> _Drawn:
        if not step.ways:
            drawn = self.box(step)
            drawn.leads_on = step.kind != "leave"
            return drawn
        if step.kind == "loop":
            return self._loop(step)
        if step.kind in _IN_COLUMNS:
            return self._columns(step)
        inner = _column([self.sequence(way.steps) for way in step.ways])
        return inner if step.text == "do" else _framed(inner, words(step))

    def _columns(self, step: FlowStep) -> _Drawn:
        """Return a step with its branches side by side below it, which join again."""
        head = self.box(step)
        ways = [(way.label if way.label != step.kind else "", self.sequence(way.steps)) for way in step.ways]
        if step.kind == "if" and not step.always:
            ways.append(("no" if step.ways[0].label == "yes" else "otherwise", _Drawn(30, 0, [])))
        columns = [_titled(label, drawn) for label, drawn in ways]
        width = sum(column.width for column in columns) + _PAD * (len(columns) - 1)
        whole = max(width, head.width)
        top = head.height + _GAP + 6
        height = max(column.height for column in columns)
        bottom = top + height + _GAP
        parts = [head.at(whole / 2 - head.middle, 0)]
        x, middle = (whole - width) / 2, whole / 2
        for column in columns:
            at = x + column.middle
            parts += [_arrow(middle, head.height, at, top), column.at(x, top)]
            if column.leads_on:
                parts.append(_line(at, top + column.height, middle, bottom))
            x += column.width + _PAD
        return _Drawn(whole, bottom, parts, any(column.leads_on for column in columns))

    def _loop(self, step: FlowStep) -> _Drawn:
        """Return a loop: its body below its head, and a line back up at the left."""
        head, body = self.box(step), _column([self.sequence(way.steps) for way in step.ways])
        inner = _column([head, body])
        left = 2 * _PAD
        x, top, bottom = left + inner.middle, head.height / 2, inner.height
        back = (
            f'<path class="flow" d="M{x:.0f} {bottom:.0f}v10H8V{top:.0f}H{x - head.middle - 5:.0f}"/>'
            f'<path class="tip" d="M{x - head.middle - 6:.0f} {top - 4:.0f}v8l6 -4z"/>'
            if body.leads_on
            else ""
        )
        parts = [inner.at(left, 0), back]
        return _Drawn(inner.width + 2 * left, bottom + (10 if body.leads_on else 0), parts)

    def box(self, step: FlowStep) -> _Drawn:
        """Return the box of one step: its words, its outcome, and the names that it reads and binds."""
        mark = mark_of(step, self._marks)
        lines = [("", line) for line in _wrapped(words(step))]
        if step.omitted:
            lines.append(("q", statements_inside(step.omitted)))
        if mark is not None:
            lines.append(("q", clip(", ".join(filter(None, (mark.words, mark.figures))), 44)))
        binds = step.binds if step.kind not in ("input", "value", "output") else ()
        reads = step.reads if step.kind not in DEFINITIONS else ()
        data = [f"← {', '.join(reads)}" if reads else "", f"→ {', '.join(binds)}" if binds else ""]
        if any(data):
            lines.append(("d", clip("  ".join(filter(None, data)), 44)))
        width = max(70.0, max(_width(line) for _, line in lines) + 2 * _PAD + 8)
        height = _LINE * len(lines) + 12
        state = mark.state if mark is not None else ""
        parts = [f'<path class="box {state}" d="{_outline(step.kind, width, height)}"/>']
        for number, (kind, line) in enumerate(lines):
            shown = f' class="{kind}"' if kind else ""
            place = f'x="{width / 2:.0f}" y="{_LINE * (number + 1) + 3}"'
            parts.append(f'<text{shown} {place} text-anchor="middle">{html_text(line)}</text>')
        if (link := self._links.get(step.span)) is not None:
            parts = [f'<a href="#{html_text(link)}">', *parts, "</a>"]
        return _Drawn(width, height, parts)


def _titled(label: str, drawn: _Drawn) -> _Drawn:
    if not label:
        return drawn
    title = _label(clip(label, 40))
    if not drawn.parts:
        return title
    width = max(title.width, drawn.width)
    parts = [title.at(width / 2 - title.middle, 0), drawn.at(width / 2 - drawn.middle, _LINE + 3)]
    return _Drawn(width, _LINE + 3 + drawn.height, parts, drawn.leads_on)


def _outline(kind: str, width: float, height: float) -> str:
    """Return the path of a box: round for sessions, pointed for questions and loops, slanted for inputs and outputs."""
    w, h = width, height
    match kind:
        case "session" | "agent":
            return _rounded(w, h, min(h / 2, 16))
        case "if" | "judgement" | "gate" | "loop":
            return f"M9 0H{w - 9:.0f}L{w:.0f} {h / 2:.0f}L{w - 9:.0f} {h}H9L0 {h / 2:.0f}z"
        case "input" | "output" | "import":
            return f"M9 0H{w:.0f}L{w - 9:.0f} {h}H0z"
        case "call" | "block" | "parallel":
            return f"M0 0H{w:.0f}V{h}H0zM5 0V{h}M{w - 5:.0f} 0V{h}"
        case _:
            return _rounded(w, h, 3)


def _rounded(w: float, h: float, r: float) -> str:
    corners = [f"a{r:.0f} {r:.0f} 0 0 1 {x * r:.0f} {y * r:.0f}" for x, y in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
    ends = (f"M{r:.0f} 0H{w - r:.0f}", f"V{h - r:.0f}", f"H{r:.0f}", f"V{r:.0f}")
    return "".join(end + corner for end, corner in zip(ends, corners, strict=True)) + "z"
