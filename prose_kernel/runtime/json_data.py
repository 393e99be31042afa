"""JSON data: its size, and reading and writing its text, including numbers of any size.

Values nest at most 500 levels (amendment A32), which is checked whenever a list or object is built from others. So the
functions that write a value may recurse, with one Python frame for each level. Python's encoder refuses integers of
more than 4,300 digits, which a program can compute: use `json_text` to write, store or show a value.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

LEVELS: Final = 500
DEEPER: Final = f"nests more than {LEVELS} levels deep"
"""The end of a message about data or JSON."""
_BRACKETS: Final = re.compile(r"[][{}]")
_STRINGS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_LARGE: Final = 100
_KEPT: Final = 8


class Measure(NamedTuple):
    """The size of a value.

    `levels` counts nested lists and objects: 0 for a text, 1 for `[1]`. `members`, and `characters` in texts, count a
    list that occurs in several places once for each. `plain` means that it holds only JSON values.
    """

    levels: int
    members: int
    characters: int
    plain: bool


_LEAVES: Final = frozenset({str, int, float, bool, type(None)})
_PLAIN: Final = _LEAVES | {list, dict}

_LEAF: Final = Measure(0, 0, 0, True)
_OTHER: Final = Measure(0, 0, 0, False)

_known: Final = OrderedDict[int, tuple[Any, Measure]]()
"""The measures of the large values measured last, by identity. The values are kept, so their ids are not reused.

Otherwise a program that adds to a large list in a loop would measure the whole list each time. Threads run programs at
the same time: each operation is one call.
"""


def measure(value: object) -> Measure:
    """Return the size of a value, in time linear in the number of different lists and objects."""
    if not isinstance(value, (list, dict)):
        return _LEAF if type(value) in _PLAIN else _OTHER
    found: dict[int, Measure] = {}
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
        kinds = set(map(type, members))
        inner = [] if kinds <= _LEAVES else [item for item in members if isinstance(item, (list, dict))]
        unknown = [item for item in inner if id(item) not in found]
        if unknown:
            agenda.extend(unknown)
            continue
        found[id(top)] = _measured(members, kinds, [found[id(item)] for item in inner])
        if len(top) > _LARGE:
            _keep(top, found[id(top)])
        agenda.pop()
    if len(found) > _LARGE:
        _keep(value, found[id(value)])
    return found[id(value)]


def _measured(members: Collection[Any], kinds: set[type], inner: list[Measure]) -> Measure:
    """Return the measure of a list or object, from the types of its members and the measures of lists and objects."""
    characters = sum([len(item) for item in members if type(item) is str]) if str in kinds else 0
    plain = kinds <= _PLAIN
    if not inner:
        return Measure(1, len(members), characters, plain)
    levels, below, texts, all_plain = zip(*inner, strict=True)
    return Measure(1 + max(levels), len(members) + sum(below), characters + sum(texts), plain and all(all_plain))


def levels(value: object) -> int:
    """Return the number of nested lists and objects: 0 for a text, 1 for `[1]`."""
    return measure(value).levels


def joined(left: list[Any], right: list[Any]) -> list[Any]:
    """Return the concatenation of two lists, with its measure computed from theirs."""
    both = left + right
    if len(both) > _LARGE:
        levels, members, characters, plain = zip(measure(left), measure(right), strict=True)
        _keep(both, Measure(max(levels), sum(members), sum(characters), all(plain)))
    return both


def _keep(value: Any, size: Measure) -> None:
    _known.pop(id(value), None)
    while len(_known) >= _KEPT:
        _known.popitem(last=False)
    _known[id(value)] = value, size


# ---------------------------------------------------------------- reading


class TooDeep(ValueError):
    """JSON text with more than 500 levels."""


def no_constant(name: str) -> object:
    """Refuse NaN and Infinity, which are no JSON: a value of `parse_constant`."""
    raise ValueError(f"{name} is not JSON")


def loads(
    text: str,
    *,
    parse_constant: Callable[[str], object] | None = None,
    parse_float: Callable[[str], float] | None = None,
) -> Any:
    """Return the data of a JSON text. Raises `ValueError`: `TooDeep`, or the errors of `json.loads`."""
    try:
        found = json.loads(text, parse_constant=parse_constant, parse_float=parse_float)
    except RecursionError:
        raise TooDeep from None
    except json.JSONDecodeError as problem:
        if _may_be_deep(text) and _depth(text[: problem.pos]) > LEVELS:
            raise TooDeep from None  # no matter where the limit of this Python's parser is
        raise
    if _may_be_deep(text) and levels(found) > LEVELS:
        raise TooDeep
    return found


def is_deep_json(text: str) -> bool:
    """Return whether a complete text is JSON of more than 500 levels."""
    if not _may_be_deep(text):
        return False
    try:
        loads(text)
    except ValueError as problem:
        return isinstance(problem, TooDeep)
    return False


def _may_be_deep(text: str) -> bool:
    """Return whether a text has enough brackets for more than 500 levels; few texts do."""
    return text.count("[") + text.count("{") > LEVELS


def _depth(text: str) -> int:
    """Return how deeply the beginning of a JSON text nests."""
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKETS.findall(_STRINGS.sub("", text)))
    return max(accumulate(steps), default=0)


# ---------------------------------------------------------------- writing

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
