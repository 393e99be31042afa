"""Help about the words of a language: the word at a cursor, its documentation, matching completions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prose_kernel.language.word_catalogue import Offer, WordEntry
from prose_kernel.runs import languages, reference_pages
from prose_kernel.runs.languages import Language
from prose_kernel.views import document as doc

_WORD: Final = re.compile(r"%?[A-Za-z_][\w-]*")
_PATHS: Final = 200
"""The most entries of one directory that are offered."""
_ORDER: Final = {"variable": 0, "property": 1, "value": 2, "agent": 3, "block": 4, "function": 4, "keyword": 5}


def word_at(code: str, cursor: int) -> tuple[str, int]:
    """Return the word at a cursor position and its start; an empty word if there is none."""
    begin = code.rfind("\n", 0, max(cursor, 0)) + 1
    end = code.find("\n", cursor)
    line = code[begin : end if end >= 0 else len(code)]
    for match in _WORD.finditer(line):
        if match.start() <= cursor - begin <= match.end():
            return match.group(), begin + match.start()
    return "", cursor


def is_property(code: str, start: int, word: str) -> bool:
    """Return whether the word names a property: it is the only word before a `:`, or before a `=` in brackets."""
    after = code[start + len(word) :].lstrip(" ")
    line = code[code.rfind("\n", 0, start) + 1 : start]
    if after.startswith("=") and not after.startswith("=="):
        return code[:start].rstrip()[-1:] in ("(", ",", "{")
    return line != "" and not line.strip() and after.startswith(":")


def entry_of(language: Language, word: str, *, property_first: bool = False) -> WordEntry | None:
    keywords, properties = language.words()
    name = word.replace("on_fail", "on-fail")
    if property_first and name in properties:
        return properties[name]
    return keywords.get(word) or properties.get(name)


def documentation(word: str, entry: WordEntry, language: Language) -> doc.Group:
    notes = [f"In: {', '.join(entry.owners)}."] if entry.owners else []
    if entry.values:
        notes.append(f"Values: {', '.join(entry.values)}.")
    text = " ".join([entry.summary, *notes])
    head = doc.paragraph(f"**{word}**: {text}", f"{word}: {text}")
    return doc.group(head, doc.Listing(entry.example, language.magic), gap="\n\n")


def with_section(found: doc.Block, word: str, language: Language) -> doc.Block:
    """Return the documentation of a word, and the section of the reference with more details."""
    section = reference_pages.about(word, language.name)
    if section is None:
        return found
    more = doc.paragraph(f"Reference: {section.page} {section.key}, {section.title}")
    return doc.group(found, more, gap="\n\n")


def matching(offers: Iterable[Offer], prefix: str) -> list[Offer]:
    """Return the offers that begin with `prefix`, names before keywords; each text once."""
    found: dict[str, Offer] = {}
    for offer in offers:
        if offer.text.startswith(prefix) and offer.text != prefix:
            found.setdefault(offer.text, offer)
    return sorted(found.values(), key=lambda offer: (_ORDER.get(offer.kind, 9), offer.text))


def paths(base: Path, typed: str, kind: str) -> list[Offer]:
    """Return completions of the last part of a typed path: `programs`, `directories` or any `files`."""
    parent, _, prefix = typed.rpartition("/")
    named = parent + "/" if parent or typed.startswith("/") else ""
    folder = base / os.path.expanduser(named)
    return list(_entries(folder, prefix, kind)) if typed or kind != "files" else []


def _entries(folder: Path, prefix: str, kind: str) -> Iterable[Offer]:
    try:
        with os.scandir(folder) as entries:
            found = sorted((e for e in entries if e.name.startswith(prefix)), key=lambda e: e.name)[:_PATHS]
    except (OSError, ValueError):
        return
    for entry in found:
        if entry.name.startswith(".") and not prefix.startswith("."):
            continue
        if entry.is_dir():
            yield Offer(entry.name + "/", "path")
        elif kind == "files" or (kind == "programs" and entry.name.endswith((*languages.suffixes(), ".md"))):
            yield Offer(entry.name, "path")
