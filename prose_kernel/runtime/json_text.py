"""JSON of values of any depth and numbers of any size.

Python's own writer gives up at about a thousand levels, and at whole numbers of more than 4,300 digits. A program can
make both; so whoever writes, stores or shows a value does it with `json_text`, and looks into one with `mapped`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

MOST: Final = 10_000_000
"""Members of a value, and of those in it, that are written out."""

LONGEST_TEXT: Final = 100_000_000
"""Characters of a text that a program makes (amendment A32)."""

_DIGITS: Final = 4000
"""Python writes whole numbers of up to 4,300 digits at once."""


def json_text(
    data: object,
    *,
    separators: tuple[str, str] = (", ", ": "),
    sort: bool = False,
    ascii_only: bool = False,
    other: Callable[[Any], object] = str,
) -> str:
    """Data as JSON on one line; `other` makes plain data of what JSON does not know."""
    encoder = _encoder(separators, sort, ascii_only, other)
    try:
        return encoder.encode(data)
    except (RecursionError, ValueError):
        return "".join(_pieces(data, encoder))


@lru_cache(maxsize=16)
def _encoder(
    separators: tuple[str, str], sort: bool, ascii_only: bool, other: Callable[[Any], object]
) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=ascii_only, sort_keys=sort, check_circular=False, separators=separators, default=other
    )


def _pieces(data: object, encoder: json.JSONEncoder) -> Iterator[str]:
    order: Callable[[Iterable[str]], list[str]] = sorted if encoder.sort_keys else list
    comma, colon = encoder.item_separator, encoder.key_separator
    agenda: list[Any] = [(data,)]  # texts, and values in tuples of one
    while agenda:
        item = agenda.pop()
        if type(item) is str:
            yield item
            continue
        inner = item[0]
        if isinstance(inner, list):
            agenda.append("]")
            parts = [part for element in reversed(inner) for part in ((element,), comma)]
            agenda.extend(parts[:-1])
            yield "["
        elif isinstance(inner, dict):
            agenda.append("}")
            parts = []
            for key in reversed(order(inner)):
                parts += [(inner[key],), encoder.encode(key) + colon, comma]
            agenda.extend(parts[:-1])
            yield "{"
        elif type(inner) is int:
            yield int_text(inner)
        else:
            yield encoder.encode(inner)


def int_text(number: int) -> str:
    """A whole number of any size in decimal digits."""
    try:
        return str(number)
    except ValueError:
        pass
    if number < 0:
        return "-" + int_text(-number)
    pieces: list[str] = []
    agenda: list[tuple[int, int]] = [(number, 0)]  # a number, and the digits that it is padded to
    while agenda:
        part, width = agenda.pop()
        digits = int(part.bit_length() * 0.30103)
        if digits < _DIGITS and width <= _DIGITS:
            pieces.append(str(part).zfill(width))
            continue
        low = max(digits, width) // 2
        high, rest = divmod(part, 10**low)
        agenda += [(rest, low), (high, max(width - low, 0))]
    return "".join(pieces)


class Extent(NamedTuple):
    """How large a value is: levels of lists and objects, members at all levels, characters of its texts.

    A list that is in several places is counted in each of them, because it is written in each.
    """

    levels: int
    members: int
    characters: int


def extent(value: object) -> Extent:
    """The extent of a value. Linear in its different lists and objects, however often each of them occurs."""
    found: dict[int, Extent] = {}
    agenda: list[Any] = [value]
    while agenda:
        top = agenda[-1]
        if id(top) in found:
            agenda.pop()
            continue
        members = top if isinstance(top, list) else top.values() if isinstance(top, dict) else ()
        inner = [item for item in members if isinstance(item, (list, dict))]
        unknown = [item for item in inner if id(item) not in found]
        if unknown:
            agenda.extend(unknown)
            continue
        levels, count, characters = 0, len(members), sum([len(item) for item in members if type(item) is str])
        for item in inner:
            below = found[id(item)]
            levels = max(levels, below.levels)
            count += below.members
            characters += below.characters
        found[id(top)] = Extent(levels + 1, count, characters)
        agenda.pop()
    return found[id(value)]


def too_large(value: object) -> str:
    """The note that replaces a value whose text would not fit into memory, "" for one whose text does.

    Sixty assignments `x = [x, x]` are more text than there is room for.
    """
    if not isinstance(value, (list, dict)):
        return ""
    _, members, characters = extent(value)
    if members > MOST:
        return f"too large to be written out: it has {int_text(members)} members"
    if characters > LONGEST_TEXT:
        return f"too large to be written out: its texts have {int_text(characters)} characters"
    return ""


def mapped(value: object, leaf: Callable[[Any], object]) -> Any:
    """A copy of lists and objects, however deep, with `leaf` of all that is neither. What is one stays one."""
    whole: list[object] = [None]
    met: dict[int, Any] = {}
    agenda: list[tuple[Iterable[tuple[Any, Any]], Any]] = [(((0, value),), whole)]
    while agenda:
        items, target = agenda.pop()
        for key, item in items:
            if id(item) in met:
                target[key] = met[id(item)]
            elif isinstance(item, list):
                target[key] = met[id(item)] = inner = [None] * len(item)
                agenda.append((enumerate(item), inner))
            elif isinstance(item, dict):
                target[key] = met[id(item)] = fields = dict.fromkeys(item)
                agenda.append((item.items(), fields))
            else:
                target[key] = leaf(item)
    return whole[0]
