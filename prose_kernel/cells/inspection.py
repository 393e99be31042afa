"""What is known about the word at the cursor: a binding's content, a keyword's use, an agent, a block, a magic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prose_kernel.cells import keywords, tables
from prose_kernel.cells.registry import MAGICS
from prose_kernel.cells.scan import inside
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
    if property_first and word in keywords.PROPERTIES:
        return _entry(word, keywords.PROPERTIES[word])
    return _defined(cells, word, whole) or _language(word) or _magic(word)


def _defined(cells: Cells, word: str, whole: bool) -> Display | None:
    workspace = cells.started
    if workspace is None:
        return None
    machine = workspace.machine
    infos = machine.bindings()
    if word in infos:
        return tables.binding(cells, word) if whole else _brief(word, infos[word].kind, infos[word].value)
    for kind, registry in (("agent", machine.agents), ("block", machine.blocks)):
        if word in registry:
            entry = registry[word]
            text = entry.source.text[entry.node.span.start : entry.node.span.end].rstrip()
            return Display(
                {"text/markdown": f"**{kind}**\n\n{fenced(text, 'prose')}", "text/plain": f"{kind}\n\n{text}"}
            )
    contract = machine.known().programs.get(word)
    if contract is not None:
        inputs = ", ".join(f"{name}: …" for name in contract.inputs)
        outputs = ", ".join(contract.outputs or ())
        text = f"{word}({inputs})" + (f"\n\noutputs: {outputs}" if outputs else "")
        return Display({"text/markdown": f"**program**\n\n{fenced(text, 'prose')}", "text/plain": f"program\n\n{text}"})
    return None


def _brief(name: str, declared: str, value: object) -> Display:
    text, rest = preview(cards.readable(value), lines=30, characters=4000)  # type: ignore[arg-type]
    kind = kind_of(value)  # type: ignore[arg-type]
    tail = f"\n… ({rest})" if rest else ""
    shown = f"{name}: {declared}, {kind}\n\n{text}{tail}"
    return Display({"text/markdown": f"`{name}` {declared}, {kind}\n\n{fenced(text)}{tail}", "text/plain": shown})


def _language(word: str) -> Display | None:
    entry = keywords.KEYWORDS.get(word) or keywords.PROPERTIES.get(word.replace("on_fail", "on-fail"))
    return _entry(word, entry) if entry else None


def _entry(word: str, entry: keywords.Entry) -> Display:
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
