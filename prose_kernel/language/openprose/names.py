"""The names that a program may use from outside: those that earlier cells, or the caller, have defined.

`Known` is what the checker starts from. A file starts from `Known()`; a cell from the current state of the machine
(openprose.md 3.1, notebook rule).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prose_kernel.language.openprose.call_targets import CallTargets
    from prose_kernel.language.openprose.tree import Block
    from prose_kernel.language.typed_answers import Schema

VariableKind = Literal["let", "const", "input", "output"]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the root frame; `from_exec` if its value comes directly from `exec` (E138), `answer` the known
    part of its typed answer, `hides_code` if it comes from a command whose exit code may hide a failure."""

    kind: VariableKind
    from_exec: bool = False
    answer: Schema | None = None
    hides_code: bool = False


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """An agent; `persist` is None, `true`, `project`, `user` or a directory, `output` the schema of its answers."""

    persist: str | None = None
    output: Schema | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """The inputs and outputs of an imported program (6.1, 6.2).

    `inputs` maps each declared input to whether a call must supply it (if it is before the first executable statement);
    `outputs` are the names of its root outputs, None while unknown (a remote program not fetched yet). A file with a
    JSON Schema has only `schema`. `gates` are the names of its gates and, as `MODULE:GATE`, of those of its imports;
    None while they are not all known.
    """

    inputs: Mapping[str, bool] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    schema: Schema | None = None
    gates: frozenset[str] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Known:
    """Names defined before this text, by registry.

    `bodies` holds the definitions of `blocks`; the checker uses them only for the exports of a bare `do` (3.6) and the
    names that they declare. A block without one is trusted to export anything: it is a function of another language.
    `targets` are what scripts may call, for completion; `uses` are the paths of their aliases.
    """

    variables: Mapping[str, Variable] = field(default_factory=dict)
    soft_exports: frozenset[str] = frozenset()
    agents: Mapping[str, KnownAgent] = field(default_factory=dict)
    blocks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    programs: Mapping[str, Contract | None] = field(default_factory=dict)
    skills: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    bodies: Mapping[str, Block] = field(default_factory=dict)
    targets: CallTargets | None = None
    uses: Mapping[str, str] = field(default_factory=dict)
