"""Operators and truth (openprose.md 3.10, 3.11), without any requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, cast

from prose_kernel.errors import ValueTypeError
from prose_kernel.language.text import clipped
from prose_kernel.runtime.command_data import require_whole
from prose_kernel.runtime.json_data import joined
from prose_kernel.runtime.values import (
    ErrorValue,
    ExecText,
    Reference,
    Value,
    inserted_text,
    kind_of,
    plain,
    require_short,
)

Number = int | float

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_DIGITS: Final = 4000
_BIG: Final = 10**_DIGITS
_SMALL: Final = 2**62

_TRUE: Final = frozenset(["yes", "y", "true", "1", "ok", "keep", "pass", "passed", "approved"])
_FALSE: Final = frozenset(["no", "n", "false", "0", "none", "null", "drop", "reject", "rejected", "fail", "failed"])
_FIRST_WORD = re.compile(r"\s*(\w+)[ \t]*(?=\n|$|[^\w\s])")


# ---------------------------------------------------------------- numbers


def as_number(value: Value) -> Number | None:
    """Return a number, also from a text; None for everything else. Raises E220 for cut output."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    text = _text(value)
    if text is None:
        return None
    text = text.strip()
    if len(text) > _DIGITS or _NUMBER.fullmatch(text) is None:
        return None
    return float(text) if "." in text else int(text)


def _text(value: Value) -> str | None:
    """Return the text of a text value; None for other kinds."""
    if isinstance(value, str):
        return value
    if isinstance(value, ExecText):
        require_whole(value)
        return value.text
    if isinstance(value, Reference):
        return value.read()
    return None


def _sum(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        result = left + right
        if not -_SMALL < result < _SMALL and not -_BIG < result < _BIG:
            raise ValueTypeError("the number has more than 4,000 digits")
        return result
    # Add the decimal digits that people see: 0.1 + 0.2 is 0.3.
    exact = float(Decimal(repr(left)) + Decimal(repr(right)))
    if exact - exact != 0:
        raise ValueTypeError("the number is too large")
    return exact


# ---------------------------------------------------------------- comparison


def equal(left: Value, right: Value, *, fold: bool = False) -> bool:
    """Return whether two values are equal by `==`, or with `fold` by the operator `is`."""
    if left is None or right is None:
        return left is None and right is None
    require_whole(left)
    require_whole(right)
    if isinstance(left, (list, dict, ErrorValue)) or isinstance(right, (list, dict, ErrorValue)):
        return _same_data(left, right)
    a, b = as_number(left), as_number(right)
    if a is not None and b is not None:
        return a == b
    one, other = inserted_text(left).strip(), inserted_text(right).strip()
    return one.casefold() == other.casefold() if fold else one == other


def _same_data(left: Value, right: Value) -> bool:
    """Compare data as JSON, without recursion. A boolean isn't a number; the order of keys does not matter."""
    stack: list[tuple[object, object]] = [(_data(left), _data(right))]
    seen: dict[tuple[int, int], object] = {}  # a list may occur in several places: compare it once
    while stack:
        a, b = stack.pop()
        if isinstance(a, (list, dict)):
            if (id(a), id(b)) in seen:
                continue
            seen[id(a), id(b)] = a, b  # kept, so that the ids are not reused
        if isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return False
            stack.extend((_data(x), _data(y)) for x, y in zip(a, b, strict=True))
        elif isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            stack.extend((_data(a[k]), _data(b[k])) for k in a)
        elif isinstance(a, bool) or isinstance(b, bool):
            if a is not b:
                return False
        elif a != b:
            return False
    return True


def _data(value: object) -> object:
    if isinstance(value, (ExecText, Reference)):
        return plain(value)
    return dict(value.fields) if isinstance(value, ErrorValue) else value


def _ordered(test: Callable[[Number, Number], bool], sign: str) -> Callable[[Value, Value], Value]:
    def compare(left: Value, right: Value) -> Value:
        require_whole(left)
        require_whole(right)
        a, b = as_number(left), as_number(right)
        if a is None or b is None:
            raise _not_numbers(sign, left if a is None else right)
        return test(a, b)

    return compare


def _not_numbers(sign: str, value: Value) -> ValueTypeError:
    return ValueTypeError(f"`{sign}` needs two numbers; {_described(value)} is not a number")


def _described(value: Value) -> str:
    text = _text(value)
    if text is None:
        return f"this {kind_of(value)}" if value is not None else "null"
    return f'"{clipped(" ".join(text.split()), 40, "...")}"'


# ---------------------------------------------------------------- sums


def add(left: Value, right: Value) -> Value:
    """Evaluate `+`: arrays are joined or extended, numbers added, other values concatenated as text."""
    if isinstance(left, list):
        return joined(left, right if isinstance(right, list) else [right])
    if isinstance(right, list):
        return [left, *right]
    if _is_number(left) or _is_number(right):
        a, b = as_number(left), as_number(right)
        if a is not None and b is not None:
            return _sum(a, b)
    require_whole(left)
    require_whole(right)
    one, other = inserted_text(left), inserted_text(right)
    require_short(len(one) + len(other))
    return one + other


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def subtract(left: Value, right: Value) -> Value:
    a, b = as_number(left), as_number(right)
    if a is None or b is None:
        raise _not_numbers("-", left if a is None else right)
    return _sum(a, -b)


OPERATORS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "==": lambda a, b: equal(a, b),
    "!=": lambda a, b: not equal(a, b),
    "is": lambda a, b: equal(a, b, fold=True),
    "<": _ordered(lambda a, b: a < b, "<"),
    "<=": _ordered(lambda a, b: a <= b, "<="),
    ">": _ordered(lambda a, b: a > b, ">"),
    ">=": _ordered(lambda a, b: a >= b, ">="),
    "+": add,
    "-": subtract,
}


# ---------------------------------------------------------------- truth


def truth(value: Value) -> bool | None:
    """Return the truth of a value by the table of 3.10; None for free text that the table does not decide."""
    if isinstance(value, bool):
        return value
    if value is None or isinstance(value, ErrorValue):
        return False
    if isinstance(value, (int, float)):
        return value != 0
    if isinstance(value, Reference) and value.schema is not None:
        return truth(cast("Value", plain(value)))
    if isinstance(value, (list, dict)):
        return len(value) > 0
    return _truth_of_text(inserted_text(value))


def _truth_of_text(text: str) -> bool | None:
    if not text or text.isspace():
        return False
    found = _FIRST_WORD.match(text)
    word = found.group(1).casefold() if found else ""
    if word in _TRUE:
        return True
    return False if word in _FALSE else None
