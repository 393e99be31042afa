"""The environment of a ProseScript script: its interface, and the targets that it may call (docs/reference/prose-md.md
3.1, 3.3, 3.5, 3.6).

`language/contracts` makes a `ScriptSource` for the fences of one section: the text of the file, where its script is in
it, and the `Interface` of the node. `compile_source` checks it under the profile `prosescript`. `CallTargets.find`
looks up `call NAME`, when a script is checked and again when it runs; `machine/openprose/contract_text.py` runs the
script found in its own frame, or uses one session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from prose_kernel.language.source import Source

if TYPE_CHECKING:
    from prose_kernel.language.openprose.names import Variable
    from prose_kernel.language.source import Span

MODIFIERS: Final = ("retry", "backoff")
"""Modifiers that apply to any call, in the block below it (3.5)."""
SESSION_MODIFIERS: Final = ("prompt", "model", "context", "timeout")
"""Modifiers of the session that renders a target, unless the target declares an input of the name."""

NodeKind = Literal["function", "responsibility", "gateway", "delegation", "cell"]
"""The kind of node that a script belongs to; `cell` is a notebook cell, or a text without a contract."""

TargetKind = Literal["function", "responsibility", "helper", "instance"]
"""The kind of a call target. `responsibility` is an inline one, callable as a function with W321 (strict E315)."""


@dataclass(frozen=True, slots=True)
class CallInput:
    """A declared input. One that is `optional` and not given has the value `default`, which is plain data."""

    name: str
    optional: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class CallOutput:
    """A declared output, in the order of declaration."""

    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The resolved target of a call.

    `name` is the target's own name, even if the call uses another. `open` targets take any further inputs (3.5).
    `through_slot`: E026 and E027 are judged when the call is reached; inputs that are not declared become context, or
    are dropped where there is a script. `has_script`: it runs in its own frame, else one session renders it. `unit` is
    for the renderer. The language only shows `about`, what it takes and gives, and `place`, the address of the file
    that holds it with the name of the node there ("" for a program).
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
        """Return whether undeclared inputs are accepted, or judged only at run time."""
        return self.open or self.through_slot or self.kind in ("helper", "instance")

    def is_modified_by(self, name: str) -> bool:
        """Whether a name that is not a declared input modifies the session of the call (3.5)."""
        return name in SESSION_MODIFIERS and not (self.has_script and name in ("prompt", "context"))

    @property
    def inline(self) -> str:
        """The name of an inline node, "" for anything else."""
        node = getattr(self.unit, "node", None)
        return self.name if getattr(node, "inline", False) else ""

    @property
    def about(self) -> str:
        return str(getattr(self.unit, "about", ""))

    @property
    def place(self) -> tuple[str, str] | None:
        found: tuple[str, str] | None = getattr(self.unit, "place", None)
        return found


@dataclass(frozen=True, slots=True)
class CallProblem:
    """Why nothing can be called: E313 to E316, E330, E215, with a message. With `code` E313 and no hint, the checker
    looks for a block, an agent or a similar name (`near` are the callable names)."""

    code: str
    message: str
    hint: str | None = None
    near: tuple[str, ...] = ()


class CallTargets(Protocol):
    """Finds what one script may call (3.5). Answers are the same for the life of a run."""

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        """The target of `call name`, or with `path` of `call "name"` or `use "name"`. `uses` maps the aliases of the
        script's own `use` lines to their paths (3.5 step 4)."""

    def names(self, uses: Mapping[str, str]) -> tuple[str, ...]:
        """The names that may be called, the nearest first."""

    def texts(self) -> dict[str, str]:
        """The texts of the files that calls have led to so far, and of those that these call, by address."""

    def element(self, value: str) -> CallTarget | None:
        """The target of an element of a list slot: `value` is the name of its function. None when it is none."""


@dataclass(frozen=True, slots=True)
class Interface:
    """The names that a script starts with and the results that it must return (3.3, 3.7).

    `fixed` are immutable names: parameters, named needs, `event` (E137). `prior` are the names of the prior truth,
    which any declaration hides silently. `variables` are those of a delegation: slots, `config`, its keys, the listed
    inputs; in a delegation every further name that is read and never declared is an input too (`free_inputs`).
    `outputs` are checked against the value of `return`; `errors` are the declared errors, `stages` the texts under the
    `####` headings of the Execution, `targets` the callable targets, None if calls cannot be checked.
    """

    kind: NodeKind = "cell"
    name: str = ""
    fixed: tuple[str, ...] = ()
    prior: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    outputs: tuple[CallOutput, ...] = ()
    errors: tuple[str, ...] = ()
    stages: Mapping[str, str] = field(default_factory=dict)
    targets: CallTargets | None = None

    def known(self) -> dict[str, Variable]:
        """Return the initial names of the script in the form that checker and machine use for earlier names."""
        from prose_kernel.language.openprose.names import Variable

        kinds = {**dict.fromkeys(self.variables, "let"), **dict.fromkeys(self.prior, "let")}
        kinds.update(dict.fromkeys(self.fixed, "input"))
        return {name: Variable(kind) for name, kind in kinds.items()}  # type: ignore[arg-type]  # a literal


CELL: Final = Interface()
"""The interface of a text without a contract."""


def interface_of(source: Source) -> Interface:
    """The interface that a text is read with."""
    return source.interface if isinstance(source, ScriptSource) else CELL


@dataclass(frozen=True, eq=False)
class ScriptSource(Source):
    """A script as a source. Its `text` is the whole file that it is a part of, so spans are places of the file.

    `fences` are the parts of the file that are the script, in order, without the lines of openers and closers; each
    has the indentation of its opener in columns. None: all of the text is the script. `file` shares its lines with
    the other scripts of the file.
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
