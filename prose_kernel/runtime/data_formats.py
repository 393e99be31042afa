"""Read text in a declared format as data: JSON, JSONL, CSV, lines (docs/reference/openprose.md 5.4)."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

from prose_kernel.runtime import csv_text, data_size
from prose_kernel.runtime.csv_text import NotData as NotData

_LARGE: Final = re.compile(r"[eE]\+?\d{3}|\d{309}")
"""Matches text that may contain a number too large for a float. Only then each number is checked."""


def parse(text: str, form: str) -> Any:
    """Return the data in a text of the format `json`, `jsonl`, `csv` or `lines`. Raises `NotData`."""
    return _PARSERS[form](text.removeprefix("\ufeff"))


def _json(text: str) -> object:
    return json_value(text, 1)


def json_value(text: str, line: int) -> object:
    """Return the value of one JSON text that begins in `line`. Raises `NotData`."""
    finite = _finite if _LARGE.search(text) else None
    try:
        return data_size.loads(text, parse_constant=_no_constant, parse_float=finite)
    except json.JSONDecodeError as error:
        raise NotData(error.msg.removesuffix(" at").lower(), line + error.lineno - 1, error.colno) from None
    except data_size.TooDeep:
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


def _csv(text: str) -> object:
    """Return an object for each row, with the names in the first row as keys and texts as values."""
    return list(csv_text.rows(io.StringIO(text, newline="")))


_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "json": _json,
    "jsonl": _json_lines,
    "csv": _csv,
    "lines": _lines,
}
