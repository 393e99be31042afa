"""What differs between two values of a name: lines of texts, places in data."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Final

from prose_kernel.language.shortening import clipped

LINES: Final = 4_000
"""Lines of each text that are compared one by one."""
SHOWN: Final = 400
"""Lines of a difference that are shown."""
DEEP: Final = 1_000
"""Characters of the path of a place in data; what lies deeper is compared as a whole."""
_MISSING: Final = object()


def difference(old: object, new: object, old_text: str, new_text: str) -> list[str]:
    """What differs, line by line; the texts are the values as people read them. Nothing where they are equal."""
    if isinstance(old, (dict, list)) and type(old) is type(new):
        found = _shortened(_of_data(old, new))
        if found:
            return found
    before, after = old_text.splitlines(), new_text.splitlines()
    if max(len(before), len(after)) > LINES:
        same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(before), len(after)) if same is None else same
        head = f"{len(before):,} lines before, {len(after):,} now; the first difference is in line {at + 1:,}:"
        return [head, *_shortened(_unified(before[at : at + 20], after[at : at + 20]))]
    return _shortened(_unified(before, after))


def _unified(before: list[str], after: list[str]) -> Iterator[str]:
    lines = difflib.unified_diff(before, after, lineterm="", n=2)
    return (line for number, line in enumerate(lines) if number > 1)  # without the names of files


def _shortened(lines: Iterator[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if len(found) == SHOWN:
            found.append("…")
            break
        found.append(clipped(line, 500))
    return found


def _of_data(old: object, new: object) -> Iterator[str]:
    """The places in which two values differ: `- $.a: 1`, `+ $.a: 2`."""
    agenda: list[tuple[str, object, object]] = [("$", old, new)]
    while agenda:
        path, one, other = agenda.pop()
        deep = len(path) > DEEP
        if not deep and isinstance(one, dict) and isinstance(other, dict):
            keys = list(dict.fromkeys([*one, *other]))
            agenda += [(_key(path, key), one.get(key, _MISSING), other.get(key, _MISSING)) for key in reversed(keys)]
        elif not deep and isinstance(one, list) and isinstance(other, list):
            pairs = list(_aligned(one, other))
            agenda += [(f"{path}[{at}]", a, b) for at, a, b in reversed(pairs)]
        elif not _same(one, other):
            yield from (f"- {path}: {_said(one)}" for _ in [0] if one is not _MISSING)
            yield from (f"+ {path}: {_said(other)}" for _ in [0] if other is not _MISSING)


def _aligned(one: list[object], other: list[object]) -> Iterator[tuple[int, object, object]]:
    """The items of two lists by their places; what was put in or taken out in one place moves no others."""
    head = 0
    while head < min(len(one), len(other)) and _same(one[head], other[head]):
        head += 1
    tail = 0
    while tail < min(len(one), len(other)) - head and _same(one[-1 - tail], other[-1 - tail]):
        tail += 1
    before, after = one[head : len(one) - tail], other[head : len(other) - tail]
    for at in range(max(len(before), len(after))):
        yield head + at, before[at] if at < len(before) else _MISSING, after[at] if at < len(after) else _MISSING


def _same(one: object, other: object) -> bool:
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except RecursionError:
        return False


def _key(path: str, key: object) -> str:
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{json.dumps(str(key))}]"


def _said(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:200]
    except (RecursionError, ValueError):
        return "…"
