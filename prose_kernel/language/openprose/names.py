"""The names that earlier cells or the caller have defined before a text is checked.

The checker of a file starts with `Known()`, the checker of a cell with the current state of the machine (openprose.md
3.1, notebook rule).
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
    """A variable of the root frame.

    `from_exec`: the value comes directly from `exec` (E138). `answer`: the schema of a typed answer. `hides_code`: the
    value comes from a command whose exit code may hide a failure (W052).
    """

    kind: VariableKind
    from_exec: bool = False
    answer: Schema | None = None
    hides_code: bool = False


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """An agent. `persist` is None, `true`, `project`, `user` or a directory; `output` is the schema of its answers."""

    persist: str | None = None
    output: Schema | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """The inputs and outputs of an imported program (6.1, 6.2), or the `schema` in a file of JSON Schema.

    - `inputs`: for each declared input, whether a call must supply it (it is before the first executable statement)
    - `outputs`: the names of its root outputs; None while unknown (a remote program that isn't fetched yet)
    - `gates`: the names of its gates and, as `MODULE:GATE`, of its imports' gates; None if some are unknown
    """

    inputs: Mapping[str, bool] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    schema: Schema | None = None
    gates: frozenset[str] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Known:
    """The names defined before a text, by kind.

    - `blocks`: the parameters of each block, and of each function of another language
    - `bodies`: the definitions of blocks, for the exports of a bare `do` (3.6) and the names that they declare; a block
      without one is a function of another language and may export any name
    - `targets`, `uses`: the call targets of scripts, for completion, and the paths of imports by their aliases
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
