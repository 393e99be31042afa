"""Parameters for notebooks of the Prose kernel; papermill loads this module through the entry point of its engines.

papermill asks a translator for the text of the cell that it injects, and has no entry point for translators; but it
loads the engines of all installed packages when it is imported, and the translator is registered then. The engine
itself is papermill's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from papermill.engines import NBClientEngine
from papermill.exceptions import PapermillException
from papermill.models import Parameter
from papermill.translators import Translator, papermill_translators

from prose_kernel.cells.python_values import expression
from prose_kernel.cells.scan import literals
from prose_kernel.errors import UsageError

_DECLARED = re.compile(r"^(?:let|const)[ \t]+([A-Za-z_][\w-]*)[ \t]*=[ \t]*(.+)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_TYPES = {'"': "text", "[": "list", "{": "object", "t": "boolean", "f": "boolean", "n": "NoneType"}


class ProseTranslator(Translator):  # type: ignore[misc]
    """Parameters as `let` statements."""

    @classmethod
    def codify(cls, parameters: Mapping[str, object], comment: str = "Parameters") -> str:
        """The text of the injected cell. Raises `PapermillException` for what has no counterpart."""
        lines = [f"# {comment}"]
        for name, value in parameters.items():
            if not _NAME.fullmatch(name):
                raise PapermillException(f"parameter {name}: not a name in Prose; use letters, digits, _ and -")
            try:
                lines.append(f"let {name} = {expression(value, f'parameter {name}')}")
            except UsageError as problem:
                raise PapermillException(f"{problem}; {problem.hint}") from None
        return "\n".join(lines) + "\n"

    @classmethod
    def inspect(cls, parameters_cell: Any) -> list[Parameter]:
        """The parameters that a cell declares; a comment behind one is its help."""
        text = parameters_cell["source"]
        comments = {found.start: text[found.start : found.end] for found in literals(text) if found.inside == "comment"}
        found = []
        for match in _DECLARED.finditer(text):
            start = next((at for at in comments if match.start(2) <= at < match.end(2)), match.end(2))
            value = text[match.start(2) : start].strip()
            kind = _TYPES.get(value[:1], "number" if value[:1].isdigit() or value[:1] == "-" else "None")
            found.append(Parameter(match[1], kind, value, comments.get(start, "").lstrip("# ").strip()))
        return found


class ProseEngine(NBClientEngine):  # type: ignore[misc]
    """papermill's own engine, under a name of ours."""


papermill_translators.register("prose", ProseTranslator)
