"""Read the cases of an evaluation from JSON Lines or CSV, line by line."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.runtime.data_formats import NotData, numbered_rows

LARGEST_LINE: Final = 10_000_000
"""The most characters of a case."""
LONGEST_ID: Final = 200
EXPECTED: Final = "expected"


class DatasetCase(Struct, frozen=True):
    """A case of the data set. `line` is its line number; `broken` is the reason if a counted line isn't a case."""

    id: str
    line: int
    columns: Mapping[str, Any] = field(default_factory=dict)
    broken: str = ""


def read(path: Path, shown: str, id_column: str, *, count_broken: bool = False) -> list[DatasetCase]:
    """Return the cases of a file. Raises `UsageError` for an unreadable or empty file, a repeated id, and, unless
    `count_broken`, a broken line."""
    try:
        with io.TextIOWrapper(plain_files.reading(path, None), "utf-8-sig", newline="") as file:
            found = list(_numbered(_lines(path, file, shown, count_broken), id_column, shown))
    except OSError as problem:
        raise UsageError(f"cannot read {shown}: {reason_of(problem)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not UTF-8 text") from None
    if not found:
        raise UsageError(f"{shown} has no cases", hint="a case is a line: JSON Lines, or CSV with a line of names")
    return found


def _lines(path: Path, file: Any, shown: str, count_broken: bool) -> Iterator[DatasetCase]:
    """Yield the lines as cases without ids."""
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".ndjson", ".csv", ".tsv"):
        raise UsageError(f"{shown} isn't a data set", hint="names end with .jsonl or .csv")
    read = _csv(file) if kind in (".csv", ".tsv") else _json(file)
    for case in read:
        if case.broken and not count_broken:
            hint = 'broken_lines = "count" continues, and counts such lines as errors'
            raise UsageError(f"{shown} line {case.line}: {case.broken}", hint=hint)
        yield case


def _json(file: Any) -> Iterator[DatasetCase]:
    number = 0
    while line := file.readline(LARGEST_LINE + 1):
        number += 1
        if len(line) > LARGEST_LINE:
            yield DatasetCase("", number, broken=f"longer than {LARGEST_LINE:,} characters")
            while line and not line.endswith("\n"):
                line = file.readline(LARGEST_LINE)
            continue
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as problem:
            yield DatasetCase("", number, broken=_not_json(problem))
            continue
        if "\\ud" in line.lower() and not _is_text(data):
            yield DatasetCase("", number, broken="half of a surrogate pair isn't a character")
        elif not isinstance(data, dict):
            yield DatasetCase("", number, broken='a case is an object: {"question": ..., "expected": ...}')
        else:
            yield DatasetCase("", number, data)


def _is_text(data: object) -> bool:
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_json(problem: Exception) -> str:
    if isinstance(problem, RecursionError):
        return "nested too deeply"
    if isinstance(problem, json.JSONDecodeError):
        return f"not JSON: {problem.msg[0].lower()}{problem.msg[1:]} (column {problem.colno})"
    return "not JSON that can be read here: a number is too long"


def _csv(file: Any) -> Iterator[DatasetCase]:
    try:
        for line, row in numbered_rows(file, LARGEST_LINE):
            if isinstance(row, NotData):
                yield DatasetCase("", line, broken=row.reason)
            else:
                yield DatasetCase("", line, row)
    except NotData as problem:
        yield DatasetCase("", problem.line, broken=problem.reason)


def _numbered(cases: Iterator[DatasetCase], id_column: str, shown: str) -> Iterator[DatasetCase]:
    """Yield the cases with ids: the value of the id column, or a digest, which does not depend on other lines."""
    seen: dict[str, int] = {}
    for case in cases:
        if case.broken:
            yield DatasetCase(f"line {case.line}", case.line, broken=case.broken)
            continue
        columns = dict(case.columns)
        given = columns.get(id_column)
        if given is None or given == "":
            name = _digest(columns)
            again = seen.get(name, 0)
            seen[name] = again + 1
            yield DatasetCase(f"{name}~{again}" if again else name, case.line, columns)
            continue
        name = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        if len(name) > LONGEST_ID:
            raise UsageError(f"{shown} line {case.line}: the id has more than {LONGEST_ID} characters")
        if name in seen:
            raise UsageError(f"{shown} line {case.line}: a second case with the id {name!r} (line {seen[name]})")
        seen[name] = case.line
        yield DatasetCase(name, case.line, columns)


def _digest(columns: Mapping[str, Any]) -> str:
    """Return a digest of a case's inputs, without its expected result, which may change."""
    asked = {name: value for name, value in columns.items() if name != EXPECTED}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
