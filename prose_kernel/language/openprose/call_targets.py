"""The environment of a ProseScript script: its interface, and the targets that it may call (docs/reference/prose-md.md
3.1, 3.3, 3.5, 3.6).

`language/contracts` makes a `ScriptSource` from the fences of one section: the text of the file, the positions of the
script in it, and the `Interface` of the node. `compile_source` checks it under the profile `prosescript`.
`CallTargets.find` looks up `call NAME`, both when a script is checked and when it runs;
`machine/openprose/contract_text.py` then runs the target's script in a frame of its own, or starts one session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.language.source import Source

if TYPE_CHECKING:
    from prose_kernel.language.openprose.program_interface import Variable
    from prose_kernel.language.source import Span

MODIFIERS: Final = ("retry", "backoff")
"""Modifiers that apply to any call, in the block below it (3.5)."""
SESSION_MODIFIERS: Final = ("prompt", "model", "context", "timeout")
"""Modifiers of the session that renders a target, unless the target declares an input with that name."""

NodeKind = Literal["function", "responsibility", "gateway", "delegation", "cell"]
"""The kind of node that a script belongs to; `cell` is a notebook cell, or a text without a contract."""

TargetKind = Literal["function", "responsibility", "helper", "instance"]
"""The kind of a call target. A `responsibility` is an inline one, which a call treats as a function, with W321 (strict:
E315)."""


class CallInput(Struct, frozen=True):
    """A declared input. If it is `optional` and missing in a call, its value is `default`, which is plain data."""

    name: str
    optional: bool = False
    default: Any = None


class CallOutput(Struct, frozen=True):
    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The resolved target of a call.

    - `name`: the target's own name, even if the call uses another
    - `inputs`, `outputs`: in the order of declaration
    - `open`: the target accepts undeclared inputs (3.5)
    - `has_script`: the target's script runs in a frame of its own; otherwise one session renders the target
    - `through_slot`: E026 and E027 are checked when the call is reached; undeclared inputs become context, or are
      dropped if the target has a script
    - `unit`: the node, program, helper or instance, for the machine; the language reads only its `about` and `place`
    """

    name: str
    kind: TargetKind = "function"
    inputs: tuple[CallInput, ...] = ()
    outputs: tuple[CallOutput, ...] = ()
    open: bool = False
    has_script: bool = False
    through_slot: bool = False
    unit: Any = field(default=None, compare=False, repr=False)

    @property
    def takes_any(self) -> bool:
        """Whether undeclared inputs are accepted, or checked only at run time."""
        return self.open or self.through_slot or self.kind in ("helper", "instance")

    def is_modified_by(self, name: str) -> bool:
        """Return whether a name that isn't a declared input modifies the session of the call (3.5)."""
        return name in SESSION_MODIFIERS and not (self.has_script and name in ("prompt", "context"))

    @property
    def inline(self) -> str:
        """The name of an inline node, "" for anything else."""
        node = getattr(self.unit, "node", None)
        return self.name if getattr(node, "inline", False) else ""

    @property
    def about(self) -> str:
        """The inputs and outputs, as text for users."""
        return str(getattr(self.unit, "about", ""))

    @property
    def place(self) -> tuple[str, str] | None:
        """The address of the target's file, and the name of its node there ("" for a program)."""
        found: tuple[str, str] | None = getattr(self.unit, "place", None)
        return found


class CallProblem(Struct, frozen=True):
    """The reason why a name cannot be called: E313 to E316, E330 or E215.

    For E313 without a hint, the checker suggests a block, an agent or a similar name; `near` are the callable names.
    """

    code: str
    message: str
    hint: str | None = None
    near: tuple[str, ...] = ()


class CallTargets(Protocol):
    """Finds the targets that one script may call (3.5). Its answers don't change during a run."""

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        """Return the target of `call name`, or with `path` that of `call "name"` or `use "name"`. `uses` maps the
        aliases of the script's `use` lines to their paths (3.5 step 4)."""

    def names(self, uses: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names that may be called, the nearest first."""

    def texts(self) -> dict[str, str]:
        """Return the texts, by address, of the files that calls have reached so far, directly or indirectly."""

    def element(self, value: str) -> CallTarget | None:
        """Return the target in a slot whose function has the name `value`, None without one. A loop over a list slot
        calls its elements by their names."""


class Interface(Struct, frozen=True):
    """The names that a script starts with and the results that it must return (3.3, 3.7).

    - `fixed`: immutable names: parameters, named needs, `event` (E137)
    - `prior`: the names of the prior truth, which any declaration hides silently
    - `variables`: the initial names of a delegation: slots, `config`, its keys, the listed inputs; any further name
      that the delegation reads and never declares is an input too (`free_inputs`)
    - `outputs`: the names that the value of `return` is checked against
    - `errors`, `stages`: the declared errors, and the texts under the `####` headings of the Execution, by name
    - `targets`: the callable targets; None if calls cannot be checked
    """

    kind: NodeKind = "cell"
    name: str = ""
    fixed: tuple[str, ...] = ()
    prior: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    outputs: tuple[CallOutput, ...] = ()
    errors: tuple[str, ...] = ()
    stages: Mapping[str, str] = struct_field(default_factory=dict)
    targets: CallTargets | None = None

    def known(self) -> dict[str, Variable]:
        """Return the script's initial names in the form that the checker and the machine use for earlier cells."""
        from prose_kernel.language.openprose.program_interface import Variable

        kinds = {**dict.fromkeys(self.variables, "let"), **dict.fromkeys(self.prior, "let")}
        kinds.update(dict.fromkeys(self.fixed, "input"))
        return {name: Variable(kind) for name, kind in kinds.items()}  # type: ignore[arg-type]  # a literal


CELL: Final = Interface()
"""The interface of a text without a contract."""


def interface_of(source: Source) -> Interface:
    """Return the interface of a text: that of its node for a script, else an empty one."""
    return source.interface if isinstance(source, ScriptSource) else CELL


@dataclass(frozen=True, eq=False)
class ScriptSource(Source):
    """A script as a source. Its `text` is the whole file that contains it, so spans are positions in the file.

    `fences` are the spans of the script's fences, in order, without the opening and closing lines, each with the
    indentation of its opener; None means that the whole text is the script. `file` shares its line table with the other
    scripts of the file.
    """

    fences: tuple[tuple[Span, int], ...] | None = field(default=None, repr=False)
    interface: Interface = field(default_factory=lambda: CELL, repr=False)
    file: Source | None = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScriptSource) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return self.text, self.name, self.fences, self.interface.name

    @cached_property
    def line_starts(self) -> list[int]:
        return self.file.line_starts if self.file is not None else super().line_starts
