"""Arrays of objects as tables: the same rows and columns in a notebook and in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prose_kernel.errors import RunError
from prose_kernel.presentation.safety import clip, html_text, visible
from prose_kernel.runtime.command_data import parsed
from prose_kernel.runtime.json_text import json_text
from prose_kernel.runtime.values import ExecText, Value, full_text, plain

ROWS: Final = 30
COLUMNS: Final = 12
_CELL: Final = 60


@dataclass(frozen=True, slots=True)
class ValueTable:
    """The beginning of an array of objects. `columns` and cells are one line each, as text of the value; `rest` says
    what is left out, "" for nothing."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    rest: str = ""

    @property
    def text(self) -> str:
        """Aligned columns under a line; numbers stand on the right."""
        head = tuple(visible(name) for name in self.columns)
        rows = [tuple(visible(cell) for cell in row) for row in self.rows]
        widths = [max(map(_width, column)) for column in zip(head, *rows, strict=True)]
        lines = [self._line(head, widths), "  ".join("-" * width for width in widths)]
        lines += [self._line(row, widths) for row in rows]
        return "\n".join([*lines, f"… ({self.rest})"] if self.rest else lines)

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            " " * (width - _width(cell)) + cell if right else cell + " " * (width - _width(cell))
            for cell, width, right in zip(cells, widths, self.numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

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


def table_of(value: Value) -> ValueTable | None:
    """The table of an array of objects, or of a command's output that is declared to be one; None for all else."""
    if isinstance(value, ExecText) and value.format in ("json", "jsonl", "csv"):
        try:
            value = parsed(value)
        except RunError:
            return None  # shown as the text that it is
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return None
    objects: list[dict[str, Value]] = [row for row in value if isinstance(row, dict)]
    columns = tuple(dict.fromkeys(name for row in objects for name in row))
    if not columns:
        return None
    shown = columns[:COLUMNS]
    rows = tuple(tuple(_cell(row.get(name)) for name in shown) for row in objects[:ROWS])
    numeric = tuple(all(_is_number(row.get(name)) for row in objects[:ROWS]) for name in shown)
    return ValueTable(shown, rows, numeric, _rest(len(objects) - ROWS, len(columns) - COLUMNS))


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return clip(json_text(plain(value)), _CELL)
    return clip(full_text(value).rstrip("\n"), _CELL)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _rest(rows: int, columns: int) -> str:
    found = [(rows, "row"), (columns, "column")]
    return ", ".join(f"{count:,} more {word}{'s' if count > 1 else ''}" for count, word in found if count > 0)


def _width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
