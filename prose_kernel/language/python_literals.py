"""Writes Python values as expressions of a language, with the spelling of each language; reads and writes numbers, for
both."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from msgspec import Struct

from prose_kernel.errors import UsageError

_NUMBER: Final = re.compile(r"[0-9]++(?>(?:\.[0-9]++)?)")
_MAX_DIGITS: Final = 4_000  # CPython cannot read or write longer integers


@dataclass(frozen=True, slots=True)
class GivenFile:
    """An image or PDF from Python, which has no literal. `path` is its file, `description` describes it in words."""

    path: str
    description: str


class Spelling(Struct, frozen=True):
    """How a language writes values. `negative` is the form of a negative number, with `{}` for its digits; `file`
    returns the value that represents a file, if the language has one."""

    language: str
    null: str
    text: Callable[[str], str]
    key: Callable[[str], str]
    negative: str = "-{}"
    file: Callable[[GivenFile], object] | None = None

    def expression(self, value: object, label: str) -> str:
        """Return a Python value as an expression. Raises `UsageError`, which begins with `label`, if there is none."""
        match value:
            case None:
                return self.null
            case bool():
                return "true" if value else "false"
            case int() | float() if isinstance(value, int) or math.isfinite(value):
                return number(value) if value >= 0 else self.negative.format(number(-value))
            case str():
                return self.text(value)
            case GivenFile() if self.file is not None:
                return self.expression(self.file(value), label)
            case list() | tuple():
                return f"[{', '.join(self.expression(item, label) for item in value)}]"
            case dict() if all(isinstance(key, str) for key in value):
                return f"{{{', '.join(f'{self.key(k)}: {self.expression(v, label)}' for k, v in value.items())}}}"
            case _:
                raise UsageError(
                    f"{label}: {_description(value)} has no counterpart in {self.language}",
                    hint="text, numbers, booleans, None, lists, and dicts whose keys are text can be given",
                )


def number(value: int | float) -> str:
    """Return a finite number as both languages write it: without an exponent, and with no more digits than it needs."""
    if isinstance(value, int):
        return format(Decimal(value), "f")  # `str` refuses more than 4,300 digits
    shown = format(Decimal(repr(value)), "f")
    return shown if "." in shown else f"{shown}.0"


def read_number(text: str) -> int | float | None:
    """Return the value of a number; None if the text isn't a number, or if it is too large."""
    if len(text) > _MAX_DIGITS or _NUMBER.fullmatch(text) is None:
        return None
    if "." not in text:
        return int(text)
    value = float(text)
    return None if value == math.inf else value


def _description(value: object) -> str:
    """Return the description of a value that no expression can represent."""
    match value:
        case float():  # not a number, or infinite
            return str(value)
        case dict():
            return "a dict with a key that isn't text"
        case _:
            return f"a value of type {type(value).__name__}"
