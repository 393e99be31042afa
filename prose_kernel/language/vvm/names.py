"""The names that a VVM program may use before it binds any: the standard library, and what earlier cells have bound.

`Known` is what the checker starts from. A file starts from `Known()`, a cell from what the machine holds by then
(docs/reference/vvm.md 9.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

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

OPTIONAL: Final[Mapping[str, int]] = MappingProxyType({"perm": 5, "reduce": 1})
"""How many of the last parameters of a library function may be missing."""


def misfit(parameters: Sequence[str], count: int, keywords: Iterable[str], optional: int = 0) -> str | None:
    """Why a call with `count` positional arguments and these keywords does not fit `parameters`; None where it does."""
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


@dataclass(frozen=True, slots=True)
class Known:
    """Names that are bound before this text: by earlier cells, or in another language of the run.

    `variables` holds every bound name of the module scope, functions among them or not; `functions` the parameters of
    those that are functions; `skills` the source of each skill. Only the keys of agents are used. `hidden` are names of
    another language that VVM cannot spell (`release-notes`).
    """

    variables: frozenset[str] = frozenset()
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    agents: Mapping[str, Any] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def binds(self, name: str) -> bool:
        """Whether the module scope has a binding of this name already."""
        return name in self.variables or name in self.functions
