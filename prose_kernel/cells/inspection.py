"""Help for the word at the cursor: a binding, keyword, property, agent, block, imported program or magic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prose_kernel import languages
from prose_kernel.cells import tables
from prose_kernel.cells.registry import MAGICS
from prose_kernel.cells.scan import inside
from prose_kernel.languages import WordDoc, Words
from prose_kernel.presentation import cards
from prose_kernel.presentation.display import Display
from prose_kernel.presentation.safety import fenced, preview
from prose_kernel.runtime.values import kind_of

if TYPE_CHECKING:
    from prose_kernel.cells.runner import Cells

_WORD = re.compile(r"%?[A-Za-z_][\w-]*")


def inspect(cells: Cells, code: str, cursor: int, detail: int = 0) -> Display | None:
    """What is known about the word that the cursor is in or just behind; None for nothing.

    In a text only an interpolated name is looked up; in a comment nothing. `detail` 1 shows a binding whole.
    """
    word, start = word_at(code, cursor)
    if not word:
        return None
    where, _ = inside(code, start)
    if where == "comment" or (where != "code" and not _interpolated(code, start)):
        return None
    return describe(cells, word, whole=detail > 0, property_first=_is_property(code, start, word))


def word_at(code: str, cursor: int) -> tuple[str, int]:
    """The word at a cursor position and where it starts; an empty word when there is none."""
    begin = code.rfind("\n", 0, max(cursor, 0)) + 1
    end = code.find("\n", cursor)
    line = code[begin : end if end >= 0 else len(code)]
    for match in _WORD.finditer(line):
        if match.start() <= cursor - begin <= match.end():
            return match.group(), begin + match.start()
    return "", cursor


def _interpolated(code: str, start: int) -> bool:
    return start > 0 and code[start - 1] == "{"


def _is_property(code: str, start: int, word: str) -> bool:
    line = code[code.rfind("\n", 0, start) + 1 : start]
    return line != "" and not line.strip() and code[start + len(word) :].lstrip(" ").startswith(":")


def describe(cells: Cells, word: str, *, whole: bool = True, property_first: bool = False) -> Display | None:
    """What is known about a word: bindings, agents, blocks and imported programs before the language's own words."""
    if word.startswith("%"):
        return _magic(word[1:])
    if property_first and word in _words().properties:
        return _entry(word, _words().properties[word])
    return _defined(cells, word, whole) or _language(word) or _magic(word)


def _defined(cells: Cells, word: str, whole: bool) -> Display | None:
    workspace = cells.started
    if workspace is None:
        return None
    machine = workspace.machine
    infos = machine.bindings()
    if word in infos:
        return tables.binding(cells, word) if whole else _brief(word, infos[word].kind, infos[word].value)
    found = next((one for one in machine.definitions() if one.name == word), None)
    if found is None:
        return None
    text = found.text.rstrip()
    return Display(
        {"text/markdown": f"**{found.kind}**\n\n{fenced(text, 'prose')}", "text/plain": f"{found.kind}\n\n{text}"}
    )


def _brief(name: str, declared: str, value: object) -> Display:
    text, rest = preview(cards.readable(value), lines=30, characters=4000)  # type: ignore[arg-type]
    kind = kind_of(value)  # type: ignore[arg-type]
    tail = f"\n… ({rest})" if rest else ""
    shown = f"{name}: {declared}, {kind}\n\n{text}{tail}"
    return Display({"text/markdown": f"`{name}` {declared}, {kind}\n\n{fenced(text)}{tail}", "text/plain": shown})


def _words() -> Words:
    return languages.default().words()


def _language(word: str) -> Display | None:
    entry = _words().keywords.get(word) or _words().properties.get(word.replace("on_fail", "on-fail"))
    return _entry(word, entry) if entry else None


def _entry(word: str, entry: WordDoc) -> Display:
    notes = [f"In: {', '.join(entry.owners)}."] if entry.owners else []
    if entry.values:
        notes.append(f"Values: {', '.join(entry.values)}.")
    text = " ".join([entry.summary, *notes])
    return Display(
        {
            "text/markdown": f"**{word}**: {text}\n\n{fenced(entry.example, 'prose')}",
            "text/plain": f"{word}: {text}\n\n{entry.example}",
        }
    )


def _magic(word: str) -> Display | None:
    found = MAGICS.get(word)
    if found is None:
        return None
    text = f"{found.usage}\n\n{found.summary}"
    return Display({"text/markdown": f"`{found.usage}`\n\n{found.summary}", "text/plain": text})
