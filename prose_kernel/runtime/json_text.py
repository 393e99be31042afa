"""JSON of values with numbers of any size.

Python's own writer refuses whole numbers of more than 4,300 digits. A program can make them; so use `json_text` to
write, store or show a value, and `mapped` to look into one. Values nest 500 levels at most (`runtime.data_size`): all
functions here recurse, with one Python frame a level.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from prose_kernel.runtime.data_size import measure

MOST: Final = 10_000_000
"""Members of a value, and of those in it, that are written out."""

LONGEST_TEXT: Final = 100_000_000
"""Characters of a text that a program makes (amendment A32)."""


def json_text(
    data: object,
    *,
    separators: tuple[str, str] = (", ", ": "),
    sort: bool = False,
    ascii_only: bool = False,
    other: Callable[[Any], object] = str,
) -> str:
    """Data as JSON on one line; `other` makes plain data of what JSON does not know."""
    if type(data) is int:
        return int_text(data)
    encoder = _encoder(separators, sort, ascii_only, other)
    try:
        return encoder.encode(data)
    except ValueError:
        return _written(data, encoder)


@lru_cache(maxsize=16)
def _encoder(
    separators: tuple[str, str], sort: bool, ascii_only: bool, other: Callable[[Any], object]
) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=ascii_only, sort_keys=sort, check_circular=False, separators=separators, default=other
    )


def _written(data: Any, encoder: json.JSONEncoder) -> str:
    if type(data) is int:
        return int_text(data)
    if not isinstance(data, (list, dict)):
        return encoder.encode(data)
    parts = []
    if isinstance(data, list):
        for item in data:
            parts.append(_written(item, encoder))
        return f"[{encoder.item_separator.join(parts)}]"
    for key in sorted(data) if encoder.sort_keys else data:
        parts.append(encoder.encode(key) + encoder.key_separator + _written(data[key], encoder))
    return f"{{{encoder.item_separator.join(parts)}}}"


def indented(compact: str) -> str:
    """JSON of `json_text`, with a line for each member, as `json.dumps(indent=2)` writes it."""
    import msgspec  # the language's own commands start without it

    text = compact.encode("utf-8", "surrogatepass")
    try:
        return msgspec.json.format(text, indent=2).decode("utf-8", "surrogatepass")
    except msgspec.DecodeError:
        return compact  # NaN or Infinity, which no program can make


def int_text(number: int) -> str:
    """A whole number of any size in decimal digits."""
    try:
        return str(number)
    except ValueError:
        pass
    if number < 0:
        return "-" + int_text(-number)
    low = int(number.bit_length() * 0.30103) // 2
    high, rest = divmod(number, 10**low)
    return int_text(high) + int_text(rest).zfill(low)


def too_large(value: object) -> str:
    """The note that replaces a value whose text would not fit into memory, "" for one whose text does.

    Sixty assignments `x = [x, x]` are more text than there is room for.
    """
    size = measure(value)
    if size.members > MOST:
        return f"too large to be written out: it has {int_text(size.members)} members"
    if size.characters > LONGEST_TEXT:
        return f"too large to be written out: its texts have {int_text(size.characters)} characters"
    return ""


def mapped(value: object, leaf: Callable[[Any], object], same: frozenset[type] = frozenset()) -> Any:
    """A copy of lists and objects with `leaf` of all that is neither. What is one stays one.

    `leaf` returns values of the types `same` as they are, so it isn't called for lists of nothing else.
    """
    return _mapped(value, leaf, same, {}) if isinstance(value, (list, dict)) else leaf(value)


def _mapped(value: Any, leaf: Callable[[Any], object], same: frozenset[type], met: dict[int, Any]) -> Any:
    copy: Any
    if isinstance(value, list) and same.issuperset(map(type, value)):
        copy = met[id(value)] = value.copy()
        return copy
    copy, items = ([None] * len(value), enumerate(value)) if isinstance(value, list) else ({}, value.items())
    for key, item in items:
        if isinstance(item, (list, dict)):
            known = met.get(id(item))
            copy[key] = _mapped(item, leaf, same, met) if known is None else known
        else:
            copy[key] = leaf(item)
    met[id(value)] = copy
    return copy
