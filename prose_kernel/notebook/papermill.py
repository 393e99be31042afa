"""Let papermill pass parameters to notebooks of our kernels; it loads this module through its entry point for engines.

A translator writes the cell that papermill injects. papermill has no entry point for translators, but it loads the
engines of all installed packages when it is imported; this module registers the translators then. The engine itself is
papermill's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from papermill.engines import NBClientEngine
from papermill.exceptions import PapermillException
from papermill.models import Parameter
from papermill.translators import Translator, papermill_translators

from prose_kernel.errors import UsageError
from prose_kernel.language.incomplete_text import literals
from prose_kernel.language.source import Source
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language

_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_TYPES = {'"': "text", "[": "list", "{": "object", "t": "boolean", "f": "boolean", "n": "NoneType", "(": "NoneType"}


def translator(language: Language) -> type[Translator]:
    """Return a translator that writes parameters as statements of a language, and reads the ones of a cell."""

    class LanguageTranslator(Translator):  # type: ignore[misc]
        @classmethod
        def codify(cls, parameters: Mapping[str, object], comment: str = "Parameters") -> str:
            """Return the text of the injected cell. Raises `PapermillException` for a value without counterpart."""
            lines = [f"# {comment}\n"]
            for name, value in parameters.items():
                named = isinstance(name, str) and _NAME.fullmatch(name)  # `on:` in YAML is a boolean
                if not named or not _bindable(language, name):
                    raise PapermillException(f"parameter {name}: not a name in {language.title}")
                try:
                    lines.append(language.bind(name, value, f"parameter {name}"))
                except UsageError as problem:
                    raise PapermillException(f"{problem}; {problem.hint}") from None
            return "".join(lines)

        @classmethod
        def inspect(cls, parameters_cell: Any) -> list[Parameter]:
            """Return the parameters that a cell declares; a comment after one is its help."""
            return _declared(parameters_cell["source"], language)

    return LanguageTranslator


def _bindable(language: Language, name: str) -> bool:
    """Return whether a name can be bound: it has the form of a name, and isn't a reserved word."""
    return language.compile(Source.of(language.bind(name, 0, name), "parameters")).ok


def _declared(text: str, language: Language) -> list[Parameter]:
    words = "|".join(language.declared[kind] for kind in ("let", "const") if kind in language.declared)
    binder = rf"(?:{words})[ \t]+" if words else ""
    form = re.compile(rf"^{binder}([A-Za-z_][\w-]*)[ \t]*=(?!=)[ \t]*(.+)$", re.MULTILINE)
    regions = literals(text, language.delimiters)
    comments = {found.start: text[found.start : found.end] for found in regions if found.kind == "comment"}
    found = []
    for match in form.finditer(text):
        start = next((at for at in comments if match.start(2) <= at < match.end(2)), match.end(2))
        value = text[match.start(2) : start].strip()
        kind = _TYPES.get(value[:1], "number" if value[:1].isdigit() or value[:1] == "-" else "None")
        found.append(Parameter(match[1], kind, value, comments.get(start, "").lstrip("# ").strip()))
    return found


class ProseEngine(NBClientEngine):  # type: ignore[misc]
    """papermill's engine, under our name."""


for _language in languages.LANGUAGES.values():
    papermill_translators.register(_language.magic, translator(_language))
