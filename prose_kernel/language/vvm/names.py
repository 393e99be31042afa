"""The reserved words of VVM (docs/reference/vvm.md 1.3), and the names that a program may use before it binds any: the
standard library, and the names of earlier cells.

The checker starts with `KnownNames()` for a file; for a cell, with the names that the machine holds by then
(docs/reference/vvm.md 9.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct, field

RESERVED: Final = frozenset(
    {
        "import", "from", "as", "export", "agent", "def", "return", "match", "case", "choose", "by", "option",
        "constrain", "require", "with", "input", "if", "elif", "else", "while", "for", "in", "try", "except",
        "finally", "raise", "pass", "break", "continue", "and", "or", "not", "it", "true", "false", "error"
    }
)  # fmt: skip
OPERATORS: Final = frozenset({"and", "or", "not", "in"})
CONSTANTS: Final = frozenset({"true", "false", "it"})
CLAUSES: Final = frozenset({"elif", "else", "except", "finally"})
"""The words that continue a statement above them."""

LIBRARY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "len": ("value",),
        "range": ("n",),
        "perm": ("read", "write", "execute", "bash", "network"),
        "pack": (),
        "map": ("items", "f"),
        "pmap": ("items", "f"),
        "filter": ("items", "pred"),
        "reduce": ("items", "f", "init"),
        "refine": ("seed", "max", "done", "step"),
    }
)
"""The functions of the standard library with their parameters (docs/reference/vvm.md 5). `pack` takes any keywords."""

OPTIONAL_COUNTS: Final[Mapping[str, int]] = MappingProxyType({"perm": 5, "reduce": 1})
"""The number of optional parameters of a library function; they are the last ones."""


def argument_mismatch(parameters: Sequence[str], count: int, keywords: Iterable[str], optional: int = 0) -> str | None:
    """Return why a call with `count` positional arguments and these keywords does not fit; None if it does."""
    if count > len(parameters):
        return f"{count} given, {len(parameters)} wanted"
    given = set(parameters[:count])
    for key in keywords:
        if key not in parameters:
            return f"no parameter '{key}'"
        if key in given:
            return f"'{key}' is given twice"
        given.add(key)
    missing = [key for key in parameters[: len(parameters) - optional] if key not in given]
    if not missing:
        return None
    return f"'{missing[0]}' is missing" if len(missing) == 1 else f"{', '.join(missing)} are missing"


class KnownNames(Struct, frozen=True):
    """Names that are bound before this text: by earlier cells, or in another language of the run.

    `variables` holds the bound names of the module scope, with or without its functions; `functions` the parameters of
    each function; `skills` the source of each skill. Only the keys of `agents` are used. `hidden` holds names of
    another language that VVM cannot spell (`release-notes`).
    """

    variables: frozenset[str] = frozenset()
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    agents: Mapping[str, Any] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def binds(self, name: str) -> bool:
        """Return whether the module scope already binds this name."""
        return name in self.variables or name in self.functions
