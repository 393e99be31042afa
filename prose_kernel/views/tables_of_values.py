"""Arrays of objects as tables: the same rows and columns in a notebook and in a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prose_kernel.errors import RunError
from prose_kernel.language.shortening import fitted, screen_width
from prose_kernel.runtime.command_data import Sample, parsed, sample
from prose_kernel.runtime.json_text import json_text
from prose_kernel.runtime.values import ExecText, Value, full_text, plain
from prose_kernel.views.display import Display
from prose_kernel.views.safety import LITERAL, clip, html_text, inline_text, visible

ROWS: Final = 30
COLUMNS: Final = 12
_CELL: Final = 60
_NARROWEST: Final = 6
"""Columns of a terminal that a cell keeps before columns are left out."""
_GAP: Final = 2
_NUMBER: Final = re.compile(r"(?=.*\d)[-+]?(\d{1,3}([ ',]\d{3})+|\d+)?([.,]\d+)?([eE][-+]?\d+)?\s?%?")
_QUIET: Final = 'style="opacity: 0.65"'


@dataclass(frozen=True, slots=True)
class ValueTable:
    """The beginning of an array of objects. `columns` and cells are one line each, as text of the value; `rest` says
    what is left out, "" for nothing; `more_rows` and `more_columns` count it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    more_rows: int = 0
    more_columns: int = 0
    remark: str = ""

    @property
    def rest(self) -> str:
        found = [(self.more_rows, "row"), (self.more_columns, "column")]
        counted = [f"{count:,} more {word}{'s' if count > 1 else ''}" for count, word in found if count > 0]
        return ", ".join([*counted, *([self.remark] if self.remark else [])])

    @property
    def text(self) -> str:
        """Aligned columns under a line; numbers stand on the right."""
        return self.fitted(0)

    def fitted(self, width: int) -> str:
        """The same in lines of at most `width` columns of a terminal (0: as wide as it is): long cells are cut, and the
        last columns left out where that is not enough."""
        widths = [max(map(screen_width, column)) for column in zip(*self._visible(), strict=True)]
        table, widths = self._narrowed(widths, width) if width else (self, widths)
        head, *rows = table._visible()
        lines = [table._line(head, widths), (" " * _GAP).join("-" * width for width in widths)]
        lines += [table._line(row, widths) for row in rows]
        return "\n".join([*lines, f"… ({table.rest})"] if table.rest else lines)

    def _visible(self) -> list[tuple[str, ...]]:
        return [tuple(visible(cell) for cell in row) for row in (self.columns, *self.rows)]

    def _narrowed(self, widths: list[int], most: int) -> tuple[ValueTable, list[int]]:
        """As many columns as fit, none of them narrower than it has to be."""
        count = len(widths)
        while count > 1 and sum(min(one, _NARROWEST) for one in widths[:count]) + _GAP * (count - 1) > most:
            count -= 1
        kept = widths[:count]
        room = max(most - _GAP * (count - 1), count)
        while (over := sum(kept) - room) > 0 and max(kept) > 1:
            widest = max(kept)
            second = max((one for one in kept if one < widest), default=0)
            share = kept.count(widest)
            target = max(second, widest - -(-over // share), 1)
            kept = [target if one == widest else one for one in kept]
        cut = replace(
            self,
            columns=tuple(map(fitted, map(visible, self.columns), kept)),
            rows=tuple(tuple(map(fitted, map(visible, row), kept)) for row in self.rows),
            numeric=self.numeric[:count],
            more_columns=self.more_columns + len(widths) - count,
        )
        return cut, kept

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            " " * (width - screen_width(cell)) + cell if right else cell + " " * (width - screen_width(cell))
            for cell, width, right in zip(cells, widths, self.numeric, strict=True)
        ]
        return (" " * _GAP).join(padded).rstrip()

    @property
    def html(self) -> str:
        """A table without classes or ids, as a sanitiser leaves it."""
        left, right = 'style="text-align: left"', 'style="text-align: right"'
        sides = [right if numeric else left for numeric in self.numeric]
        head = "".join(f"<th {s}>{html_text(c)}</th>" for s, c in zip(sides, self.columns, strict=True))
        body = "".join(
            "<tr>" + "".join(f"<td {s}>{html_text(c)}</td>" for s, c in zip(sides, row, strict=True)) + "</tr>"
            for row in self.rows
        )
        return f'<table style="margin: 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    @property
    def markdown(self) -> str:
        """A table of Markdown, for what shows no HTML."""
        lines = [f"| {' | '.join(map(inline_text, self.columns))} |"]
        lines.append(f"|{'|'.join(' ---: ' if right else ' --- ' for right in self.numeric)}|")
        lines += [f"| {' | '.join(map(inline_text, row))} |" for row in self.rows]
        return "\n".join([*lines, "", f"… ({inline_text(self.rest)})"] if self.rest else lines)

    def display(self, title: str = "") -> Display:
        """The table as a display of its own, below a title."""
        above = f"<div><code>{html_text(title)}</code></div>" if title else ""
        more = f"<div {_QUIET}>{html_text(self.rest)}</div>" if self.rest else ""
        return Display(
            {
                "text/html": f"<div {LITERAL}>{above}{self.html}{more}</div>",
                "text/markdown": f"{inline_text(title)}\n\n{self.markdown}" if title else self.markdown,
                "text/plain": f"{visible(title)}\n{self.text}" if title else self.text,
            }
        )


def table_of(value: Value) -> ValueTable | None:
    """The table of an array of objects, or of a command's output that is declared to be one; None for all else.

    Of an output that is cut, the table holds the rows that are whole.
    """
    if isinstance(value, ExecText) and value.format in ("jsonl", "csv"):
        return _sampled(value)
    if isinstance(value, ExecText) and value.format == "json":
        try:
            value = parsed(value)
        except RunError:
            return None  # shown as the text that it is
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return None
    objects: list[dict[str, Value]] = [row for row in value if isinstance(row, dict)]
    return _table(objects, len(objects), texts=False)


def sample_table(found: Sample, *, texts: bool) -> ValueTable | None:
    """The table of the first rows. `texts`: all values are text, and those that read as numbers count as such."""
    table = _table(found.rows, found.total, texts=texts)
    if table is None:
        return None
    remarks = [found.problem] if found.problem else []
    if found.more:
        table = replace(table, more_rows=0)
        remarks.append("more rows, not counted")
    return replace(table, remark=", ".join(remarks))


def _sampled(value: ExecText) -> ValueTable | None:
    text, cut = value.text.removeprefix("\ufeff"), value.result.stdout_truncated
    if cut:
        text = text[: text.rfind("\n") + 1]
    found = sample(io.StringIO(text, newline=""), value.format, ROWS)
    if found is None or (found.problem and not cut):
        return None
    table = _table(found.rows, found.total, texts=value.format == "csv")
    if table is None or not cut:
        return table
    return replace(table, more_rows=0, remark="more rows, which the value does not keep")


def _table(objects: Sequence[Mapping[str, Value]], total: int, *, texts: bool) -> ValueTable | None:
    columns = tuple(dict.fromkeys(name for row in objects for name in row))
    if not columns:
        return None
    shown = columns[:COLUMNS]
    rows = tuple(tuple(_cell(row.get(name)) for name in shown) for row in objects[:ROWS])
    counts = _reads_as_number if texts else _is_number
    numeric = tuple(_are_numbers([row.get(name) for row in objects[:ROWS]], counts, texts) for name in shown)
    return ValueTable(shown, rows, numeric, max(total - len(rows), 0), max(len(columns) - COLUMNS, 0))


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return clip(json_text(plain(value)), _CELL)
    return clip(full_text(value).rstrip("\n"), _CELL)


def _are_numbers(column: list[Value], counts: Callable[[Value], bool], texts: bool) -> bool:
    """Whether all that stands in a column is numbers; an empty cell does not count against it."""
    empty = (None, "") if texts else (None,)
    known = [value for value in column if value not in empty]
    return bool(known) and all(map(counts, known))


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _reads_as_number(value: Value) -> bool:
    return isinstance(value, str) and value.strip() != "" and _NUMBER.fullmatch(value.strip()) is not None
