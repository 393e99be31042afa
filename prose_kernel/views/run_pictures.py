"""Draw a run for people: the outcomes in a diagram, the timeline, the profile (from `run_record`).

Each has two versions. The saved one contains only facts that are equal in all runs: order, branches, retries, origins
of answers. The version for a person (`Display.person`) adds times, tokens and cost, and draws the timeline to scale.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.views.bundle import bundle
from prose_kernel.views.diagram import DiagramText, Mark, fence, mermaid, outline
from prose_kernel.views.display import Display
from prose_kernel.views.document import Table, paragraph, plain_text
from prose_kernel.views.escaping import Html, clip, visible
from prose_kernel.views.file_displays import image_html
from prose_kernel.views.flow_drawing import flow_svg
from prose_kernel.views.run_record import ActivityRecord, CellRecord, Figures, Lane, Lanes, Total, lanes

ROWS: Final = 100
"""The most rows of a timeline."""
NOTHING: Final = "Nothing that takes time has run: no command, session or gate."
"""The text instead of a timeline or profile without rows."""
_LONGEST_TEXT: Final = 2_000
"""The most characters of a graph for screen readers."""
STATEMENTS: Final = 200
"""The most rows of a profile."""

# ---------------------------------------------------------------- the diagram


def graph_display(parts: Sequence[DiagramText]) -> Display:
    """Return the graph as a picture, as a Mermaid diagram for GitHub, and as indented lines."""
    plain = [replace(part, marks=_without_figures(part.marks)) for part in parts]
    saved = _drawn_graph(plain)
    return Display(saved) if plain == list(parts) else Display(saved, person=_drawn_graph(parts))


def _drawn_graph(parts: Sequence[DiagramText]) -> dict[str, str]:
    text = outline(parts)
    picture = flow_svg(parts, styled=True).encode()
    return {
        "text/html": image_html("image/svg+xml", picture, clip(text, _LONGEST_TEXT)),
        "text/markdown": fence(mermaid(parts)),
        "text/plain": text,
    }


def _without_figures(marks: Mapping[Span, Mark] | None) -> dict[Span, Mark] | None:
    return None if marks is None else {span: replace(mark, figures="") for span, mark in marks.items()}


def marks(cells: Sequence[CellRecord], source: Source) -> dict[Span, Mark]:
    """Return the outcomes of the statements of one text; other cells may run them, too (in a block or function)."""
    return {total.span: _mark(total) for total in merged(cells) if total.source is source}


def _mark(total: Total) -> Mark:
    state, label, others = "done", "✓ done", ""
    if total.failed == total.times:
        state, label = "failed", "✗ failed"
    elif total.cancelled == total.times:
        state, label = "cancelled", "cancelled"
    else:
        counts = ((total.failed, "failed"), (total.cancelled, "cancelled"))
        others = ", ".join(f"{count:,} {word}" for count, word in counts if count)
    times = f" ×{total.times:,}" if total.times > 1 else ""
    by = clip(", ".join(sorted(total.by)), 40)
    return Mark(state, ", ".join(filter(None, (label + times, others, by))), figures_text(total.figures))


def figures_text(figures: Figures) -> str:
    """Return seconds, tokens and cost in a few words."""
    tokens = figures.tokens_in + figures.tokens_out
    parts = [seconds(figures.seconds), f"{tokens:,} tokens" if tokens else "", cost(figures)]
    return ", ".join(part for part in parts if part)


def seconds(count: float) -> str:
    """Return a duration as text: `12 ms`, `3.4 s`, `5 min 06 s`."""
    if count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 60:
        return f"{count:.1f} s"
    minutes, rest = divmod(round(count), 60)
    return f"{minutes:,} min {rest:02} s"


def cost(figures: Figures) -> str:
    """Return the cost in US dollars; "" if it is zero."""
    known = f"${figures.cost:.4f}" if figures.cost else ""
    unknown = f"{figures.unpriced:,} unknown" if figures.unpriced else ""
    return " + ".join(part for part in (known, unknown) if part)


# ---------------------------------------------------------------- the timeline


class _Row(Struct):
    """The row of one activity: its branch, and its start and end in the order of steps."""

    branch: str
    depth: int
    activity: ActivityRecord
    start: int
    end: int

    @property
    def outcome(self) -> str:
        waits = len(self.activity.waits)
        parts = [
            {"done": "✓", "failed": "✗ failed", "cancelled": "cancelled", "running": "running"}[self.activity.state],
            f"{waits} {'retries' if waits > 1 else 'retry'}" if waits else "",
            self.activity.by,
        ]
        return ", ".join(part for part in parts if part)

    @property
    def figures(self) -> str:
        waited, figures = sum(length for _, length in self.activity.waits), self.activity.figures
        found = cost(figures) if self.activity.by == "rule" else figures_text(figures)
        return found + (f", {seconds(waited)} waited" if waited else "")

    @property
    def label(self) -> str:
        sign = {"command": "$ ", "session": "", "gate": "", "judgement": "? "}[self.activity.kind]
        return sign + self.activity.label


def timeline_display(cells: Sequence[CellRecord], nothing: str = NOTHING) -> Display:
    """Return the timeline: branches one below the other; its axis is steps in the saved form, seconds for a person."""
    shown, rest = _rows(cells, ROWS)
    if not shown:
        return bundle(paragraph(nothing))
    saved, person = (
        {"image/svg+xml": _svg(shown, rest, cells, timed), "text/plain": _timeline_text(shown, rest, timed)}
        for timed in (False, True)
    )
    took = sum((cell.ended or cell.began) - cell.began for cell in cells)
    return Display(saved, {"seconds": round(took, 3)}, person)


def timeline_svg(cells: Sequence[CellRecord], max_rows: int, *, timed: bool) -> Html:
    """Return the timeline for a page with its own colours; "" for cells without activities."""
    shown, rest = _rows(cells, max_rows)
    return Html(_svg(shown, rest, cells, timed, styled=False) if shown else "")


def _rows(cells: Sequence[CellRecord], max_rows: int) -> tuple[list[_Row], str]:
    """Return the first rows of a timeline, and the number of omitted rows in words."""
    rows: list[_Row] = []
    at = 0
    for cell in cells:
        at = _add_rows(lanes(cell.activities), "", 0, at, rows)
    more = max(0, len(rows) - max_rows) + sum(cell.left_out for cell in cells)
    return rows[:max_rows], f"… and {more:,} more" if more else ""


def _add_rows(lane: Lane, branch: str, depth: int, at: int, rows: list[_Row]) -> int:
    """Append the rows of a line of control that begins at step `at`; return the step at which it ends."""
    for item in lane.items:
        if isinstance(item, Lanes):
            ends = [_add_rows(one, "/".join(step.label for step in one.steps), depth + 1, at, rows) for one in item]
            at = max(ends, default=at)
        else:
            rows.append(_Row(branch, depth, item, at, at + 1))
            at += 1
    return at


def _timeline_text(rows: Sequence[_Row], rest: str, timed: bool) -> str:
    cells = [
        (f"[{row.branch}]" if row.branch else "", row.label, row.outcome, *((row.figures,) if timed else ()))
        for row in rows
    ]
    head = ("branch", "what", "outcome", *(("figures",) if timed else ()))
    text = plain_text(Table(head, [tuple(clip(cell, 80) for cell in cell_row) for cell_row in cells]))
    return f"{text}\n{rest}" if rest else text


_WIDTH: Final = 900
_LEFT: Final = 330
_RIGHT: Final = 250
_HEIGHT: Final = 22
_STYLE: Final = (
    ".bg{fill:#ffffff}.t{fill:#24292f}.q{fill:#57606a}.axis{stroke:#d0d7de}"
    ".done{fill:#4c9f70}.failed{fill:#d6453d}.cancelled{fill:#b08800}.running{fill:#3b82c4}.wait{fill:#8b949e}"
    "@media (prefers-color-scheme:dark){.bg{fill:#161b22}.t{fill:#e6edf3}.q{fill:#9da7b3}.axis{stroke:#30363d}}"
)


def _svg(rows: Sequence[_Row], rest: str, cells: Sequence[CellRecord], timed: bool, *, styled: bool = True) -> str:
    """Return the timeline as a picture, with its own background for any theme if `styled`. It contains no script, and
    its description for screen readers has the same content as the bars."""
    scale = _Scale(rows, cells, timed)
    height = _HEIGHT * (len(rows) + 1 + bool(rest)) + 12
    total = f", {seconds(scale.length)}" if timed else ""
    title = f"Timeline of {len(rows)} activit{'ies' if len(rows) > 1 else 'y'}{total}"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f"<title>{_text(title)}</title>",
        f"<desc>{_text('; '.join(_label(row, timed) for row in rows))}</desc>",
    ]
    if styled:
        out += [f"<style>{_STYLE}</style>", f'<rect class="bg" width="{_WIDTH}" height="{height}" rx="4"/>']
    out.append(f'<text class="q" x="8" y="16">{_text(title)}</text>')
    for number, row in enumerate(rows):
        out += _drawn(row, 12 + _HEIGHT * (number + 1), scale, timed)
    if rest:
        out.append(f'<text class="q" x="8" y="{height - 8}">{_text(rest)}</text>')
    return "\n".join([*out, "</svg>"])


class _Scale:
    """Positions on the axis: steps, or the seconds of cells one after the other."""

    def __init__(self, rows: Sequence[_Row], cells: Sequence[CellRecord], timed: bool) -> None:
        self._timed = timed
        self._offsets: list[tuple[float, float, float]] = []
        at = 0.0
        for cell in cells:
            last = max((one.end or one.begin for one in cell.activities), default=0.0)
            ended = cell.ended if cell.ended is not None else last
            self._offsets.append((cell.began, ended, at - cell.began))
            at += max(ended - cell.began, 0.0)
        self.length = at if timed else float(max(row.end for row in rows))

    def of(self, row: _Row) -> tuple[float, float]:
        """Return the left end and the width of a bar."""
        if not self._timed:
            return self._x(row.start), self._x(row.end) - self._x(row.start)
        begin = self.moment(row.activity.begin)
        end = self.moment(row.activity.end if row.activity.end is not None else row.activity.begin)
        return begin, max(end - begin, 2.0)

    def moment(self, when: float) -> float:
        for began, ended, offset in self._offsets:
            if began <= when <= ended:
                return self._x(when + offset)
        return self._x(self.length)

    def width(self, length: float) -> float:
        return self._x(length) - self._x(0)

    def _x(self, place: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (place / self.length if self.length else 0.0)


def _drawn(row: _Row, y: int, scale: _Scale, timed: bool) -> Iterator[str]:
    left, width = scale.of(row)
    indent = 8 + 12 * min(row.depth, 8)
    name = f"[{row.branch}] {row.label}" if row.branch else row.label
    label = ", ".join(filter(None, (row.outcome, row.figures if timed else "")))
    yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y + 18}" y2="{y + 18}"/>'
    yield f'<text class="t" x="{indent}" y="{y + 14}">{_text(clip(name, 50 - 2 * min(row.depth, 8)))}</text>'
    yield f'<rect class="bar {row.activity.state}" x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="13" rx="2">'
    yield f"<title>{_text(_label(row, timed))}</title></rect>"
    if timed:
        for when, length in row.activity.waits:
            place = f'x="{scale.moment(when):.1f}" y="{y + 6}"'
            yield f'<rect class="wait" {place} width="{scale.width(length):.1f}" height="7"/>'
    yield f'<text class="q" x="{_WIDTH - _RIGHT + 8}" y="{y + 14}">{_text(clip(label, 40))}</text>'


def _label(row: _Row, timed: bool) -> str:
    name = f"branch {row.branch}: {row.label}" if row.branch else row.label
    return clip(f"{name}: {', '.join(filter(None, (row.outcome, row.figures if timed else '')))}", 200)


def _text(text: str) -> str:
    """Escape text for an SVG element, and remove characters that XML forbids."""
    return html.escape("".join(c for c in visible(text) if c.isprintable()), quote=False)


# ---------------------------------------------------------------- the profile


def profile_display(cells: Sequence[CellRecord], nothing: str = NOTHING) -> Display:
    """Return statements with their counts and answerers; for a person also time, tokens and cost, the slowest first."""
    totals = merged(cells)
    if not totals:
        return bundle(paragraph(nothing))
    numbers = {id(cell.source): number for number, cell in enumerate(cells, 1)} if len(cells) > 1 else {}
    in_order = sorted(totals, key=lambda total: (numbers.get(id(total.source), 0), total.source.name, total.span))
    head = ("line", "statement", "times", "failed", "answered by")
    saved = bundle(Table(head, [_row(total, numbers) for total in in_order[:STATEMENTS]]))
    spent = Figures()
    for total in totals:
        spent.add(total.figures)
    by_time = sorted(in_order, key=lambda total: (-total.figures.seconds, -total.figures.cost))
    rows = [(*_row(total, numbers), *_figure_cells(total.figures, spent.seconds)) for total in by_time[:STATEMENTS]]
    times, failed = (f"{sum(getattr(total, name) for total in totals):,}" for name in ("times", "failed"))
    rows.append(("", "all", times, failed, "", *_figure_cells(spent)))
    person = bundle(Table((*head, "time", "share", "tokens in", "tokens out", "cost"), rows))
    facts = structs.asdict(spent)
    return Display(saved.data, {**facts, "seconds": round(spent.seconds, 3)}, person.data)


def merged(cells: Sequence[CellRecord]) -> list[Total]:
    """Return the totals of each statement over all of these cells."""
    found: dict[tuple[int, Span], Total] = {}
    for cell in cells:
        for key, total in cell.totals.items():
            if key not in found:
                found[key] = replace(total, figures=replace(total.figures), by=dict(total.by))
                continue
            known = found[key]
            for name in ("times", "failed", "cancelled"):
                setattr(known, name, getattr(known, name) + getattr(total, name))
            known.figures.add(total.figures)
            known.by.update(total.by)
    return list(found.values())


def _row(total: Total, numbers: Mapping[int, int]) -> tuple[str, ...]:
    line = total.source.line_column(total.span.start)[0]
    place = numbers.get(id(total.source))
    name = total.source.name if total.source.name != "cell" else ""
    if place is not None and not name:
        name = f"cell {total.source.number(place)}"
    where = f"{name}:{line}" if name else str(line)
    text = clip(total.source.line_text(line).strip() or total.label, 80)
    failed, by = f"{total.failed:,}" if total.failed else "", clip(", ".join(sorted(total.by)), 60)
    return where, text, f"{total.times:,}", failed, by


def _figure_cells(figures: Figures, of: float | None = None) -> tuple[str, ...]:
    share = f"{figures.seconds / of:.0%}" if of else ""
    tokens = (f"{count:,}" if count else "" for count in (figures.tokens_in, figures.tokens_out))
    return (seconds(figures.seconds), share, *tokens, cost(figures))
