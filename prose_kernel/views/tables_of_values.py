"""Show arrays of objects as tables: with the same rows and columns in a notebook and in a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from prose_kernel.errors import RunError
from prose_kernel.language.structs import replace
from prose_kernel.language.text import fitted, screen_width
from prose_kernel.runtime.command_data import Sample, parsed, sample
from prose_kernel.runtime.json_data import json_text
from prose_kernel.runtime.values import ExecText, Value, full_text, plain
from prose_kernel.views import document as doc
from prose_kernel.views.bundle import bundle, data_html, quiet
from prose_kernel.views.display import Display
from prose_kernel.views.document import plain_text
from prose_kernel.views.escaping import LITERAL, clip, tag, visible

ROWS: Final = 30
COLUMNS: Final = 12
_CELL: Final = 60
_NARROWEST: Final = 6
"""The least width of a cell in a terminal; if cells would be narrower, columns are omitted."""
_GAP: Final = 2
_NUMBER: Final = re.compile(r"(?=.*\d)[-+]?(\d{1,3}([ ',]\d{3})+|\d+)?([.,]\d+)?([eE][-+]?\d+)?\s?%?")


class ValueTable(Struct, frozen=True):
    """The beginning of an array of objects. Column names and cells are texts of one line; `more_rows` and
    `more_columns` count omitted ones, which `rest` describes ("" for none)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    more_rows: int = 0
    more_columns: int = 0
    remark: str = ""

    @property
    def rest(self) -> str:
        found = [(self.more_rows, "more row"), (self.more_columns, "more column")]
        counts = [doc.counted(count, noun) for count, noun in found if count > 0]
        return ", ".join(filter(None, [*counts, self.remark]))

    @property
    def document(self) -> doc.Table:
        numbers = [at for at, numeric in enumerate(self.numeric) if numeric]
        return doc.Table(self.columns, self.rows, (), numbers, data=True, rest=self.rest)

    @property
    def text(self) -> str:
        """The table as text: aligned columns under a line, with numbers on the right."""
        return plain_text(self.document)

    def fitted(self, width: int) -> str:
        """Return the table in at most `width` terminal columns (0: unlimited): long cells are cut, then the last
        columns omitted."""
        cells = ([screen_width(visible(cell)) for cell in row] for row in (self.columns, *self.rows))
        return (self._narrowed(list(map(max, zip(*cells, strict=True))), width) if width else self).text

    def _narrowed(self, widths: list[int], width: int) -> ValueTable:
        """Return the columns that fit, none narrower than necessary."""
        count = len(widths)
        while count > 1 and sum(min(one, _NARROWEST) for one in widths[:count]) + _GAP * (count - 1) > width:
            count -= 1
        kept = widths[:count]
        room = max(width - _GAP * (count - 1), count)
        while (over := sum(kept) - room) > 0 and max(kept) > 1:
            widest = max(kept)
            second = max((one for one in kept if one < widest), default=0)
            share = kept.count(widest)
            target = max(second, widest - -(-over // share), 1)
            kept = [target if one == widest else one for one in kept]
        return replace(
            self,
            columns=tuple(map(fitted, map(visible, self.columns), kept)),
            rows=tuple(tuple(map(fitted, map(visible, row), kept)) for row in self.rows),
            numeric=self.numeric[:count],
            more_columns=self.more_columns + len(widths) - count,
        )

    def display(self, title: str = "") -> Display:
        """Return the table as a separate display, below a title."""
        above = tag("div", tag("code", title)) if title else ""
        more = quiet(self.rest) if self.rest else ""
        shown = doc.group(doc.line(title) if title else None, self.document)
        markup = tag("div", above, data_html(self.document), more, class_=LITERAL)
        return Display({"text/html": markup, **bundle(shown).data})


def table_of(value: Value) -> ValueTable | None:
    """Return the table of an array of objects, or of a command's output that is declared to be one; else None.

    The table of a cut output has its complete rows.
    """
    if isinstance(value, ExecText) and value.format in ("jsonl", "csv"):
        return _sampled(value)
    if isinstance(value, ExecText) and value.format == "json":
        try:
            value = parsed(value)
        except RunError:
            return None  # shown as text
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return None
    objects: list[dict[str, Value]] = [row for row in value if isinstance(row, dict)]
    return _table(objects, len(objects), texts=False)


def sample_table(found: Sample, *, texts: bool) -> ValueTable | None:
    """Return the table of the first rows. `texts`: all values are texts, and texts of numbers count as numbers."""
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
    numeric = tuple(_are_numbers([row.get(name) for row in objects[:ROWS]], texts) for name in shown)
    return ValueTable(shown, rows, numeric, max(total - len(rows), 0), max(len(columns) - COLUMNS, 0))


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return clip(json_text(plain(value)), _CELL)
    return clip(full_text(value).rstrip("\n"), _CELL)


def _are_numbers(column: list[Value], texts: bool) -> bool:
    """Return whether all cells of a column are numbers; empty cells are ignored."""
    known = [value for value in column if value not in ((None, "") if texts else (None,))]
    if texts:
        return bool(known) and all(isinstance(one, str) and _NUMBER.fullmatch(one.strip()) for one in known)
    return bool(known) and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in known)
