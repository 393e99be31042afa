"""Writes values as JSON, including numbers of any size.

Python's encoder refuses integers of more than 4,300 digits, which a program can compute. So use `json_text` to write,
store or show a value, and `mapped` to convert one. Values nest at most 500 levels (`runtime.data_size`), so the
functions here may recurse, with one Python frame for each level.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from prose_kernel.runtime.data_size import measure

MOST: Final = 10_000_000
"""The most members, including nested ones, of a value that is written out."""

LONGEST_TEXT: Final = 100_000_000
"""The most characters of a text that a program may build (amendment A32)."""


def json_text(
    data: object,
    *,
    separators: tuple[str, str] = (", ", ": "),
    sort: bool = False,
    ascii_only: bool = False,
    other: Callable[[Any], object] = str,
) -> str:
    """Return data as JSON on one line; `other` converts values that JSON does not have."""
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
    """Return JSON from `json_text` with one line for each member, as `json.dumps(indent=2)` does."""
    import msgspec  # not loaded by the commands that only read a program

    text = compact.encode("utf-8", "surrogatepass")
    try:
        return msgspec.json.format(text, indent=2).decode("utf-8", "surrogatepass")
    except msgspec.DecodeError:
        return compact  # NaN or Infinity, which no program can make


def int_text(number: int) -> str:
    """Return a whole number of any size in decimal digits."""
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
    """Return the note that replaces a value whose text would not fit into memory; "" if it fits.

    Sixty assignments `x = [x, x]` make a text that no memory can hold.
    """
    size = measure(value)
    if size.members > MOST:
        return f"too large to be written out: it has {int_text(size.members)} members"
    if size.characters > LONGEST_TEXT:
        return f"too large to be written out: its texts have {int_text(size.characters)} characters"
    return ""


def mapped(value: object, leaf: Callable[[Any], object], same: frozenset[type] = frozenset()) -> Any:
    """Return a copy of nested lists and objects with `leaf` applied to all other values. A list or object that occurs
    several times is copied once.

    `leaf` must return values of the types `same` unchanged, so lists of only such values are copied without it.
    """
    return _mapped(value, leaf, same, {}) if isinstance(value, (list, dict)) else leaf(value)


def _mapped(value: Any, leaf: Callable[[Any], object], same: frozenset[type], seen: dict[int, Any]) -> Any:
    copy: Any
    if isinstance(value, list) and same.issuperset(map(type, value)):
        copy = seen[id(value)] = value.copy()
        return copy
    copy, items = ([None] * len(value), enumerate(value)) if isinstance(value, list) else ({}, value.items())
    for key, item in items:
        if isinstance(item, (list, dict)):
            known = seen.get(id(item))
            copy[key] = _mapped(item, leaf, same, seen) if known is None else known
        else:
            copy[key] = leaf(item)
    seen[id(value)] = copy
    return copy
