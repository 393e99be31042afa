"""Equality, order and sums (docs/reference/vvm.md 3.2, 3.6), for values of any depth.

Python's own `==` says `True == 1`, even inside containers, so it is only used for texts and numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isinf
from typing import Any, Final

from prose_kernel.errors import VvmRaise
from prose_kernel.language.vvm.certain_errors import ADD_HINT
from prose_kernel.machine.vvm.values import a_type_of
from prose_kernel.runtime.data_size import joined
from prose_kernel.runtime.values import LONGEST_TEXT, LanguageValue, Value

LONGEST_LIST: Final = 10_000_000
"""The most items of a list that `+` may build. A value that doubles in a loop would otherwise exhaust the kernel's
memory."""

_LONGEST: Final[dict[type, int]] = {str: LONGEST_TEXT, list: LONGEST_LIST}
_NUMBERS: Final = (int, float)


def equal(left: Value, right: Value) -> bool:
    """Return whether two values are structurally equal. Raises R206 if a function or agent is compared."""
    kind = type(left)
    if kind is type(right) and (kind is int or kind is str):
        return left == right
    return _equal(left, right, set())


def _equal(a: Any, b: Any, seen: set[tuple[int, int]]) -> bool:
    """`seen` are the pairs assumed to be equal, so that a list in many places is compared only once."""
    if isinstance(a, LanguageValue) or isinstance(b, LanguageValue):
        which = a if isinstance(a, LanguageValue) else b
        raise VvmRaise(f"cannot compare {a_type_of(which)}", code="R206")
    kind, other = type(a), type(b)
    if kind is not other:
        return kind in _NUMBERS and other in _NUMBERS and bool(a == b)
    if kind is not list and kind is not dict:
        return bool(a == b)
    keys = range(len(a)) if kind is list else sorted(a)
    if len(a) != len(b) or (kind is dict and a.keys() != b.keys()):
        return False
    if (id(a), id(b)) in seen:
        return True
    seen.add((id(a), id(b)))
    for key in keys:  # noqa: SIM110 - `all` would take two frames a level
        if not _equal(a[key], b[key], seen):
            return False
    return True


def _unsupported(operator: str, left: Value, right: Value, reason: str | None = None) -> VvmRaise:
    """Return R205. `reason` replaces the types of the values. `except` shows a program only the message."""
    hint = ADD_HINT if operator == "+" and not reason and str in (type(left), type(right)) else None
    reason = reason or f"{a_type_of(left)} and {a_type_of(right)}"
    return VvmRaise(f"unsupported operand types for {operator}: {reason}", code="R205", hint=hint)


def _compared(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], Value]:
    def operate(left: Value, right: Value) -> Value:
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return compare(left, right)
        raise _unsupported(sign, left, right)

    return operate


def _add(left: Any, right: Any) -> Value:
    kind, other = type(left), type(right)
    if kind is other and (kind is int or kind in _LONGEST):
        if kind is not int and len(left) + len(right) > _LONGEST[kind]:
            what = "characters" if kind is str else "items"
            raise _unsupported("+", left, right, f"the result would have more than {_LONGEST[kind]:,} {what}")
        return joined(left, right) if kind is list else left + right
    if kind in _NUMBERS and other in _NUMBERS:
        return _floats("+", left, right)
    raise _unsupported("+", left, right)


def _subtract(left: Any, right: Any) -> Value:
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return left - right if kind is other is int else _floats("-", left, right)
    raise _unsupported("-", left, right)


def _floats(operator: str, left: Any, right: Any) -> Value:
    try:
        number = float(left) + float(right) if operator == "+" else float(left) - float(right)
    except OverflowError:
        reason = "the whole number is too large to be added to one with a decimal point"
        raise _unsupported(operator, left, right, reason) from None
    if isinf(number):
        raise _unsupported(operator, left, right, "the result is too large for a number with a decimal point")
    return number


OPERATORS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "==": equal,
    "!=": lambda a, b: not equal(a, b),
    "<": _compared("<", lambda a, b: a < b),
    "<=": _compared("<=", lambda a, b: a <= b),
    ">": _compared(">", lambda a, b: a > b),
    ">=": _compared(">=", lambda a, b: a >= b),
    "+": _add,
    "-": _subtract,
}
