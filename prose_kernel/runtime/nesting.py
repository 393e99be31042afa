"""How deeply data nests: 500 levels at most (amendment A32), checked where a list or object is made of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

LEVELS: Final = 500
DEEPER: Final = f"nests more than {LEVELS} levels deep"
"""Predicate of a message about data or JSON."""
_LARGE: Final = 100
_KEPT: Final = 8

_known: dict[int, tuple[Any, int]] = {}
"""Levels of the large values that were looked at last, by identity. The values are kept, so no other gets their ids.

A program that adds to a large list and puts it into an object in a loop would otherwise pay for the list each time.
"""


def levels(value: object) -> int:
    """Levels of lists and objects in a value: 0 for a text, 1 for `[1]`. Linear in its different lists and objects."""
    if not isinstance(value, (list, dict)):
        return 0
    found: dict[int, int] = {}
    agenda: list[Any] = [value]
    while agenda:
        top = agenda[-1]
        known = _known.get(id(top))
        if known is not None:
            found[id(top)] = known[1]
        if id(top) in found:
            agenda.pop()
            continue
        members = top if isinstance(top, list) else top.values()
        inner = [item for item in members if isinstance(item, (list, dict))]
        unknown = [item for item in inner if id(item) not in found]
        if unknown:
            agenda.extend(unknown)
            continue
        found[id(top)] = 1 + max([found[id(item)] for item in inner], default=0)
        if len(top) > _LARGE:
            _keep(top, found[id(top)])
        agenda.pop()
    if len(found) > _LARGE:
        _keep(value, found[id(value)])
    return found[id(value)]


def joined(left: list[Any], right: list[Any]) -> list[Any]:
    """The two lists as one, whose levels are known without looking through it again."""
    both = left + right
    if len(both) > _LARGE:
        _keep(both, max(levels(left), levels(right)))
    return both


def _keep(value: Any, count: int) -> None:
    _known.pop(id(value), None)
    while len(_known) >= _KEPT:
        del _known[next(iter(_known))]
    _known[id(value)] = value, count


class TooDeep(ValueError):
    """A text is JSON of more than 500 levels."""


def loads(
    text: str,
    *,
    parse_constant: Callable[[str], object] | None = None,
    parse_float: Callable[[str], float] | None = None,
) -> Any:
    """The data of a JSON text. Raises `ValueError`: `TooDeep`, or what `json.loads` raises."""
    try:
        found = json.loads(text, parse_constant=parse_constant, parse_float=parse_float)
    except RecursionError:
        raise TooDeep from None
    if _may_be_deep(text) and levels(found) > LEVELS:
        raise TooDeep
    return found


def is_deep_json(text: str) -> bool:
    """Whether a whole text is JSON of more than 500 levels."""
    if not _may_be_deep(text):
        return False
    try:
        loads(text)
    except ValueError as problem:
        return isinstance(problem, TooDeep)
    return False


def _may_be_deep(text: str) -> bool:
    """Few texts have enough brackets."""
    return text.count("[") + text.count("{") > LEVELS
