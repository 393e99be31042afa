"""Reads the items of a section: bullets with the names that they declare, defaults and remarks (prose-md.md 1.5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from prose_kernel.language.contracts.tree import MISSING, Block, Item
from prose_kernel.language.openprose.keywords import NAME
from prose_kernel.language.source import Span

PATH: Final = rf"{NAME}(?:\[\])?+(?>(?:\.{NAME}(?:\[\])?+)*)"

_BULLET: Final = re.compile(r" ?[-*+](?:[ \t]+|$)")
_NESTED: Final = re.compile(r"^[ \t]{2,}[-*+][ \t]+([^\n]+(?:\n(?![ \t]*[-*+][ \t])[ \t]+[^\n]+)*)", re.MULTILINE)
_QUOTED: Final = re.compile(rf"`({PATH})`")
_REMARK: Final = re.compile(r"[ \t]*\(((?>(?:[^()]|\([^()]*+\))*))\)")
_JOINED: Final = re.compile(rf"[ \t]*[,/][ \t]*`({PATH})`")
_BARE: Final = re.compile(rf"({NAME})(?>(?:[ \t]*\(((?>(?:[^()]|\([^()]*+\))*))\))?):(?=[ \t\n]|\Z)")
_SEPARATOR: Final = re.compile(r"\s*(?::|--?(?=\s)|\u2013|\u2014)?\s*")
OPTIONAL: Final = re.compile(r"\boptional\b", re.IGNORECASE)
DEFAULT: Final = re.compile(r"\bdefaults?\b(?:\s*(?:\bto\b|\bis\b|\bvalue\b|[:=]))*\s*", re.IGNORECASE)
_LITERAL: Final = re.compile(
    r'(`+)(?P<code>[^\n]*?)\1|(?P<text>"(?:[^"\\\n]|\\.)*+")|(?P<number>-?\d++(?>(?:\.\d++)?)(?!\w))'
    r"|(?P<word>true|false|null|none)\b|(?P<open>[\[{])",
    re.IGNORECASE,
)
_CLOSERS: Final = {"[": "]", "{": "}"}
NO_NAMES: Final = frozenset(
    ["postcondition", "postconditions", "freshness", "material", "immaterial", "canonicalization", "note"]
)
"""Words before a colon that aren't names in Requires and Maintains."""


def read_items(text: str, body: Span, fences: Iterable[Block], *, truth: bool = False) -> tuple[Item, ...]:
    """Return the items of a section's body; `truth` is for Requires and Maintains, where `NO_NAMES` declare nothing."""
    return tuple(_item(text, start, begin, end, truth) for start, begin, end in _bullets(text, body, fences))


def _bullets(text: str, body: Span, fences: Iterable[Block]) -> Iterator[tuple[int, int, int]]:
    """Yield the start, the start of the text, and the end of each item."""
    passed = iter([fence.span for fence in fences])
    fence = next(passed, None)
    at, open_at, begin, end = body.start, -1, 0, 0
    while at < body.end:
        stop = text.find("\n", at, body.end)
        after = body.end if stop < 0 else stop + 1
        if fence is not None and at >= fence.start:
            after, first, stop = fence.end, text[at : at + 1], fence.end
            fence = next(passed, None)
            bullet = None
        else:
            stop = after if stop < 0 else stop
            first = text[at : at + 1]
            bullet = _BULLET.match(text, at, stop) if first in " -*+" else None
        if bullet is not None or not (first.isspace() or first == ""):
            if open_at >= 0:
                yield open_at, begin, end
            open_at, begin = (at, bullet.end()) if bullet is not None else (-1, 0)
            end = stop
        elif open_at >= 0 and not text[at:stop].isspace() and at < stop:
            end = stop
        at = after
    if open_at >= 0:
        yield open_at, begin, end


def _item(text: str, start: int, begin: int, end: int, truth: bool) -> Item:
    words = text[begin:end]
    names, remark, rest = declared(words, truth)
    tail = " ".join(words[rest:].split())
    whole = f"{remark} {tail}"
    default = default_of(whole)
    head = Span(begin, begin + len(names[0]) + (2 if words[:1] == "`" else 0)) if names else Span(begin, end)
    optional = default is not MISSING or OPTIONAL.search(whole) is not None
    return Item(names, remark, tail, Span(start, end), head, optional, default, open=tail in ("...", "\u2026"))


def nested(text: str, item: Item) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the names declared by each bullet inside an item, and the bullet's text."""
    for line in _NESTED.finditer(text, item.span.start, item.span.end):
        names, _, _ = declared(line[1])
        yield names, " ".join(line[1].split())


def declared(words: str, truth: bool = False) -> tuple[tuple[str, ...], str, int]:
    """Return the names that a text declares at its beginning, the remark in parentheses, and the offset of the text
    after them."""
    names: list[str] = []
    remarks: list[str] = []
    if first := _QUOTED.match(words):
        at = first.end()
        names.append(first[1])
        while True:
            remark = _REMARK.match(words, at)
            behind = remark.end() if remark else at
            joined = _JOINED.match(words, behind)
            if remark:
                remarks.append(remark[1])
                at = behind
            if not joined:
                break
            names.append(joined[1])
            at = joined.end()
    elif (bare := _BARE.match(words)) and not (truth and bare[1].lower() in NO_NAMES):
        names.append(bare[1])
        remarks.extend([bare[2]] if bare[2] is not None else [])
        at = bare.end() - 1
    else:
        return (), "", 0
    separator = _SEPARATOR.match(words, at)
    return tuple(names), " ".join(remarks), separator.end() if separator else at


def default_of(words: str) -> Any:
    """Return the literal that follows `default` in a text, `MISSING` without one."""
    for word in DEFAULT.finditer(words):
        found = literal_at(words, word.end())
        if found is not MISSING:
            return found
    return MISSING


def literal_at(words: str, at: int) -> Any:
    """Return the value of the literal that begins at `at`, `MISSING` without one."""
    found = _LITERAL.match(words, at)
    if found is None:
        return MISSING
    if found["code"] is not None:
        return value_of(found["code"].strip())
    if found["word"]:
        return {"true": True, "false": False}.get(found["word"].lower())
    if found["open"]:
        end = _balanced(words, found.start("open"))
        return value_of(words[found.start("open") : end]) if end else MISSING
    return value_of(found["text"] or found["number"])


def value_of(text: str) -> Any:
    """Return the value of a literal: JSON if it can be parsed, else its text; `none` is None."""
    if text.lower() == "none":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _balanced(words: str, at: int) -> int:
    """Return the end of the bracket that opens at `at`, 0 if it is never closed."""
    expected: list[str] = []
    for place in range(at, len(words)):
        sign = words[place]
        if sign in _CLOSERS:
            expected.append(_CLOSERS[sign])
        elif expected and sign == expected[-1]:
            expected.pop()
            if not expected:
                return place + 1
    return 0
