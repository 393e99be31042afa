"""The documentation of a language's words, hints for words of other languages, and the types of completions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, toml


class WordEntry(Struct, frozen=True):
    """The documentation of a word: a sentence, an example, and for a property its values and owners (`agent`)."""

    summary: str
    example: str
    values: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


class Catalogue(Struct, frozen=True):
    """The tables of a language's `words.toml`: the documentation of words, and the meaning of kinds of error values."""

    keywords: dict[str, WordEntry]
    properties: dict[str, WordEntry]
    functions: dict[str, WordEntry] = {}
    script_keywords: dict[str, WordEntry] = {}
    script_properties: dict[str, WordEntry] = {}
    error_kinds: dict[str, str] = {}


_LOOKALIKES = {
    **dict.fromkeys("\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}", "-"),
    "\u2260": "!=",
    "\u2264": "<=",
    "\u2265": ">=",
}
_DIRECTION_MARKS = "\N{ARABIC LETTER MARK}\N{LEFT-TO-RIGHT MARK}\N{RIGHT-TO-LEFT MARK}"


def ascii_sign(character: str) -> str:
    """Return the ASCII sign, of at most two characters, that a character is or looks like; "" for none."""
    if character.isascii():
        return character
    from unicodedata import normalize

    plain = _LOOKALIKES.get(character) or normalize("NFKC", character)
    return plain if plain.isascii() and len(plain) <= 2 and not plain.isalnum() else ""


def invisible_hint(character: str) -> str | None:
    """Return a hint for a character that looks like a space or is invisible; None for any other."""
    if character.isascii():
        return None
    from unicodedata import bidirectional, category, name

    kind = category(character)
    if kind == "Zs":
        advice = "write a plain space instead of"
    elif kind == "Cf" and (character in _DIRECTION_MARKS or bidirectional(character) not in ("AL", "AN", "L", "R")):
        advice = "remove"  # others, such as the Arabic number sign, are visible
    else:
        return None
    return f"{advice} this {name(character, 'character').lower()}"


@cache
def catalogue(language: str) -> Catalogue:
    """Return the words of a language, read from its file on first use."""
    return toml.decode((Path(__file__).parent / language / "words.toml").read_bytes(), type=Catalogue)


@cache
def hints(language: str) -> dict[str, dict[str, str]]:
    """Return the tables of a language's `hints.toml`, read on first use. Each word of a key gets the key's hint; the
    keys of `lines` are patterns."""
    tables = toml.decode((Path(__file__).parent / language / "hints.toml").read_bytes())
    lines = tables.pop("lines", {})
    found = {
        name: {word: hint for words, hint in table.items() for word in words.split()} for name, table in tables.items()
    }
    return {**found, "lines": lines}


class Offer(NamedTuple):
    """One completion: the text to insert, its kind (`variable`, `agent`, `keyword` …), a short note.

    The kinds `programs`, `directories` and `files` stand for all paths of that kind.
    """

    text: str
    kind: str
    note: str = ""


class Completion(NamedTuple):
    """The offers for the text from `start` to the cursor."""

    start: int
    offers: Iterable[Offer] = ()
