"""Help for the word at the cursor: a binding, keyword, property, agent, block, imported program or magic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError
from prose_kernel.language.incomplete_text import kind_at
from prose_kernel.language.typed_answers import type_words
from prose_kernel.notebook.cell_scan import draft_language
from prose_kernel.notebook.magics import tables
from prose_kernel.notebook.magics.registry import all_magics, cell_magics
from prose_kernel.runs.languages import Language
from prose_kernel.runtime.values import Reference
from prose_kernel.views import cards
from prose_kernel.views import document as doc
from prose_kernel.views.escaping import preview
from prose_kernel.views.word_help import documentation, entry_of, is_property, word_at

if TYPE_CHECKING:
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.runs.run_machines import BoundName


def inspect(cells: Cells, code: str, cursor: int, detail: int = 0) -> doc.Block | None:
    """Return the documentation of the word at the cursor or just before it, or None.

    In a text only interpolated names have documentation, in a comment nothing. `detail` 1 shows a whole binding.
    """
    word, start = word_at(code, cursor)
    if not word:
        return None
    language, code = draft_language(code, cells.language)
    if called := _called(cells, code, cursor, language):
        return doc.Listing(called)
    where, _ = kind_at(code, start, language.delimiters)
    interpolated = code[:start].endswith("{")
    if where == "comment" or (where != "code" and not interpolated):
        return None
    return describe(cells, word, language, whole=detail > 0, property_first=is_property(code, start, word))


def _called(cells: Cells, code: str, cursor: int, language: Language) -> str:
    """Return the contract of the target of a call at the cursor, or the description of one of its inputs."""
    start = code.rfind("\n", 0, cursor) + 1
    if code.startswith("%call ", start):
        from prose_kernel.notebook.magics.calls import script

        language, code = script(), f"{code[:start]} {code[start + 1 :]}"
    if "call" not in code:
        return ""
    try:
        targets = cells.targets(language)
    except UsageError:  # a setting is invalid
        return ""
    return "" if targets is None else language.describe_call(code, cursor, targets)


def describe(
    cells: Cells, word: str, language: Language, *, whole: bool = True, property_first: bool = False
) -> doc.Block | None:
    """Return help for a word: bindings, agents, functions and imported programs come before words of the language."""
    if word.startswith("%%"):
        return next((_usage(*one) for one in cell_magics() if word in " ".join(one).split()), None)
    if word.startswith("%"):
        return _magic(word[1:])
    word = word.removeprefix("@")
    if property_first and word in language.words().properties:
        return documentation(word, language.words().properties[word], language)
    entry = entry_of(language, word)
    return _defined(cells, word, whole) or (documentation(word, entry, language) if entry else _magic(word))


def _defined(cells: Cells, word: str, whole: bool) -> doc.Block | None:
    if (named := cells.names().get(word)) is not None:
        return tables.binding(cells, word) if whole else _brief(word, named)
    found = next((one for one in cells.definitions() if one.definition.name == word), None)
    if found is None:
        return None
    text = doc.Listing(found.definition.text.rstrip(), found.language.magic)
    return doc.group(doc.line(doc.Strong(found.definition.kind)), text, gap="\n\n")


def _brief(name: str, named: BoundName) -> doc.Group:
    text, rest = preview(cards.readable(named.info.value, named.language), lines=30, characters=4000)
    value, kind = named.info.value, named.kind
    if isinstance(value, Reference) and value.schema is not None:
        kind += f": {type_words(value.schema)}"
    return doc.group(doc.paragraph(f"`{name}` {kind}", f"{name}: {kind}"), doc.Listing(text, rest=rest), gap="\n\n")


def _magic(word: str) -> doc.Block | None:
    found = all_magics().get(word)
    return _usage(found.usage, found.summary) if found is not None else None


def _usage(usage: str, summary: str) -> doc.Block:
    return doc.group(doc.paragraph(f"`{usage}`", usage), doc.paragraph(summary), gap="\n\n")
