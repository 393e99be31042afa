"""Reads the output of a command as data (docs/reference/openprose.md 5.4): JSON, JSONL, CSV, lines.

The value of `exec` remains a text. A path, an index or a loop over it works on the data in the text. The text must be
complete, because half a list would look like a list (E220).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from msgspec import Struct

from prose_kernel.errors import ValueTypeError
from prose_kernel.runtime.data_formats import LONGEST_ROW, NotData, json_value, parse, rows
from prose_kernel.runtime.values import ExecText, Value, full_text, inserted_text, require_writable

LONGEST_OUTPUT: Final = 100_000_000
"""The largest value of `max-output`."""

_NAMES: Final = {"json": "JSON", "jsonl": "JSONL", "csv": "CSV", "lines": "lines"}
_METADATA_HINT: Final = "use a marker, `if **result shows a failure**:`, or pass it as context"
_LINES_HINT: Final = 'to use its lines, write `format: "lines"` below the `exec`'


# ---------------------------------------------------------------- whole values


def require_whole(value: Value) -> None:
    """Raise E220 if the value, or a part of it, is cut output of a command."""
    if isinstance(value, (str, int, float)):
        return
    stack: list[Value] = [value]
    seen: set[int] = set()  # a list may occur in several places: check it once
    while stack:
        part = stack.pop()
        if isinstance(part, ExecText):
            if part.result.stdout_truncated:
                raise _cut_error(part)
        elif isinstance(part, (list, dict)) and id(part) not in seen:
            seen.add(id(part))
            stack += part if isinstance(part, list) else part.values()


def _cut_error(value: ExecText) -> ValueTypeError:
    printed, kept = value.result.stdout_bytes, len(value.text)
    of = f" of {printed:,} bytes" if printed else ""
    message = f"the value is cut: it holds only the first {kept:,} characters{of} that the command printed"
    if printed <= LONGEST_OUTPUT:
        hint = f"to keep all of it, write `max-output: {max(printed, 2 * kept)}` below the `exec`"
    else:
        hint = "let the command write to a file, and print only the part that you need"
    return ValueTypeError(message, code="E220", hint=hint)


# ---------------------------------------------------------------- data


def parsed(value: ExecText, *, position: bool = False) -> Value:
    """Return the data in the text, for a path or (`position`) an index.

    Raises E220 if the text is cut, E138 for invalid JSON, E209 for a value that does not fit its declaration.
    """
    require_whole(value)
    try:
        return cast("Value", parse(value.text, value.format or "json"))
    except NotData as problem:
        raise _not_data(value, problem, _LINES_HINT if position else _METADATA_HINT) from None


def _not_data(value: ExecText, problem: NotData, hint: str) -> ValueTypeError:
    where = f"line {problem.line}, column {problem.column} of the data"
    if value.format:
        return ValueTypeError(f"the output is not {_NAMES[value.format]}: {problem.reason} at {where}")
    message = f"the output of the command is text, not JSON: {problem.reason} at {where}"
    return ValueTypeError(message, code="E138", hint=hint)


# ---------------------------------------------------------------- the first rows of long data


class Sample(Struct, frozen=True, omit_defaults=True):
    """The first rows of data, and the total number of rows. `problem` describes an error after these rows and its
    place; `more` means that the text continues and the remaining rows were not counted."""

    rows: tuple[dict[str, Any], ...]
    total: int
    problem: str = ""
    more: bool = False


def sample(lines: Iterable[str], form: str, most: int, size: int = 0) -> Sample | None:
    """Return the first `most` rows of a text in the format `jsonl` or `csv`; None for data without objects. The text is
    read line by line and never kept. Rows after the first `size` characters are not counted (0: all are)."""
    kept: list[dict[str, Any]] = []
    total = read = 0
    problem = ""

    def measured() -> Iterator[str]:
        nonlocal read
        for line in lines:
            read += len(line)
            yield line

    try:
        for row in rows(measured(), LONGEST_ROW) if form == "csv" else _objects(measured(), most):
            total += 1
            if len(kept) < most:
                if not isinstance(row, dict):
                    return None
                kept.append(row)
            if size and read > size:
                return Sample(tuple(kept), total, more=True)
    except NotData as found:
        problem = f"{found.reason} at line {found.line:,}, column {found.column:,} of the data"
    return Sample(tuple(kept), total, problem) if kept else None


def _objects(lines: Iterable[str], most: int) -> Iterator[object]:
    """Yield the first `most` values of JSON Lines, then None for each later one, to be counted."""
    count = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            count += 1
            if count <= most and len(line) >= LONGEST_ROW:
                raise NotData(f"a line of more than {LONGEST_ROW:,} characters", number, 1)
            yield json_value(line.rstrip("\r\n"), number) if count <= most else None


# ---------------------------------------------------------------- text for a command


def input_text(value: Value) -> str | bytes:
    """Return a value as standard input: text and images unchanged, arrays and objects as JSON, nothing for null. Raises
    E209, E220."""
    require_whole(value)
    require_writable(value)
    if isinstance(value, ExecText) and value.result.image:
        return value.result.image
    return "" if value is None else full_text(value)


def variable_text(value: Value) -> str:
    """Return a value as an environment variable, in the form in which it is inserted into a text. Raises E209, E220."""
    require_whole(value)
    return inserted_text(value)
