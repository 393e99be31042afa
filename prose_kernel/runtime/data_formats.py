"""Reads text in a declared format as data: JSON, JSONL, CSV, lines (docs/reference/openprose.md 3.11, 5.4).

CSV is read row by row, so a file of any size needs the memory of one row. The first row names the columns; values are
text. Commas separate values. If the first line has none, a semicolon, a tab or a bar does, as in files of spreadsheets
and databases; a first line `sep=;` sets it explicitly.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prose_kernel.runtime import json_data


class NotData(ValueError):
    """The text is not in its format. `line` and `column` count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


_LARGE: Final = re.compile(r"[eE]\+?\d{3}|\d{309}")
"""Matches text that may contain a number too large for a float. Only then each number is checked."""


def parse(text: str, form: str) -> Any:
    """Return the data in a text of the format `json`, `jsonl`, `csv` or `lines`. Raises `NotData`."""
    return _PARSERS[form](text.removeprefix("\ufeff"))


def json_value(text: str, line: int) -> object:
    """Return the value of one JSON text that begins in `line`. Raises `NotData`."""
    finite = _finite if _LARGE.search(text) else None
    try:
        return json_data.loads(text, parse_constant=_no_constant, parse_float=finite)
    except json.JSONDecodeError as error:
        raise NotData(error.msg.removesuffix(" at").lower(), line + error.lineno - 1, error.colno) from None
    except json_data.TooDeep:
        raise NotData("nested too deeply", line, 1) from None
    except _Constant as error:
        at = text.find(str(error))
        before = text[:at]
        raise NotData(f"unexpected `{error}`", line + before.count("\n"), at - before.rfind("\n")) from None
    except ValueError:
        raise NotData("a number with too many digits", line, 1) from None


class _Constant(Exception):
    """NaN or Infinity, which JSON does not have, or a number that would become infinite."""


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Constant(digits)
    return number


def _no_constant(name: str) -> object:
    raise _Constant(name)


def _json_lines(text: str) -> object:
    numbered = enumerate(text.split("\n"), 1)
    return [json_value(line, number) for number, line in numbered if line.strip()]


def _lines(text: str) -> object:
    return (text.removesuffix("\n").replace("\r\n", "\n").split("\n")) if text else []


_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "json": lambda text: json_value(text, 1),
    "jsonl": _json_lines,
    "csv": lambda text: list(rows(io.StringIO(text, newline=""))),
    "lines": _lines,
}


# ---------------------------------------------------------------- CSV

DELIMITERS: Final = ",;\t|"
"""In the order in which they are tried."""

LONGEST: Final = csv.field_size_limit()
LONGEST_ROW: Final = 10_000_000
"""The most characters in a row of a file that is read line by line."""


class _Lines:
    """The lines of the row that is being read, needed to locate errors."""

    def __init__(self, lines: Iterable[str], longest: int) -> None:
        self._lines = iter(lines)
        self._longest = longest
        self._held = 0
        self._pushed_back: list[str] = []
        self.count = 0
        self.row: list[str] = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._pushed_back.pop() if self._pushed_back else next(self._lines)
        self.count += 1
        self._held = self._held + len(line) if self.row else len(line)
        if self._longest and self._held >= self._longest:
            raise NotData(f"a row of more than {self._longest:,} characters", self.count - len(self.row), 1)
        self.row.append(line)
        return line

    def first(self) -> str:
        """Return the first line that isn't empty, and read it again next; "" for an empty text."""
        for line in self:
            if line.strip("\r\n"):
                self.count -= 1
                self._pushed_back.append(line)
                self.row.clear()
                return line
        return ""

    @property
    def begins(self) -> int:
        """The number of the line in which the row begins."""
        return self.count - len(self.row) + 1


def rows(lines: Iterable[str], longest: int = 0) -> Iterator[dict[str, str]]:
    """Yield an object for each row of fewer than `longest` characters (0: any number). `lines` include their line ends.
    Raises `NotData`."""
    for _, row in numbered_rows(lines, longest):
        if isinstance(row, NotData):
            raise row
        yield row


def numbered_rows(lines: Iterable[str], longest: int = 0) -> Iterator[tuple[int, dict[str, str] | NotData]]:
    """Yield each row with the number of its first line. A row with too few or too many values is yielded as
    `NotData`."""
    source = _Lines(lines, longest)
    first = source.first()
    delimiter = _declared(first)
    if delimiter:
        next(source)
        source.row.clear()
    else:
        delimiter = _delimiter(first)
    names: list[str] = []
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as problem:
            raise _quote_problem(source, delimiter, str(problem)) from None
        if cells is None:
            return
        if not cells:
            pass
        elif not names:
            names = _header(cells, source, delimiter)
        elif len(cells) != len(names):
            yield source.begins, _uneven(len(cells), len(names), source, delimiter)
        else:
            yield source.begins, dict(zip(names, cells, strict=True))
        source.row.clear()


def _declared(line: str) -> str:
    declared = line.strip("\r\n").lower()
    return line[4] if len(declared) == 5 and declared.startswith("sep=") and line[4] in DELIMITERS else ""


def _delimiter(line: str) -> str:
    """Return the first of `DELIMITERS` that occurs in the line outside of quotes."""
    outside = "".join(line.split('"')[::2])
    return next((one for one in DELIMITERS if one in outside), ",")


# ---------------------------------------------------------------- places of CSV errors


def _header(cells: list[str], source: _Lines, delimiter: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    known: set[str] = set()
    for at, name in enumerate(names):
        if not name or name in known:
            problem = f"two columns are called `{name}`" if name else "a column without a name"
            raise NotData(problem, *_place(source, delimiter, at))
        known.add(name)
    return names


def _uneven(found: int, wanted: int, source: _Lines, delimiter: str) -> NotData:
    counted = f"{found} value{'s' if found != 1 else ''} for {wanted} column{'s' if wanted != 1 else ''}"
    return NotData(counted, *_place(source, delimiter, wanted if found > wanted else 0))


def _place(source: _Lines, delimiter: str, number: int) -> tuple[int, int]:
    """Return line and column of the start of a value of the row."""
    starts = _starts("".join(source.row), delimiter)
    return _line_column(source, starts[number] if number < len(starts) else 0)


def _line_column(source: _Lines, at: int) -> tuple[int, int]:
    before = "".join(source.row)[:at]
    return source.begins + before.count("\n"), at - (before.rfind("\n") + 1) + 1


def _starts(text: str, delimiter: str) -> list[int]:
    """Return the offsets at which the values of a row begin."""
    starts, quoted = [0], False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif character == delimiter and not quoted:
            starts.append(at + 1)
    return starts


def _quote_problem(source: _Lines, delimiter: str, problem: str) -> NotData:
    """Return the error for an unclosed quote, or for text after a closing one."""
    text = "".join(source.row)
    for start in _starts(text, delimiter):
        if not text.startswith('"', start):
            continue
        at = start + 1
        while (at := text.find('"', at)) >= 0 and text.startswith('""', at):
            at += 2
        if at < 0:
            return NotData("the quote that begins here is not closed", *_line_column(source, start))
        if text[at + 1 : at + 2] not in ("", delimiter, "\r", "\n"):
            return NotData("text after a closing quote", *_line_column(source, at + 1))
    reason = f"a value of more than {LONGEST:,} characters" if "limit" in problem else problem
    return NotData(reason, source.begins, 1)
