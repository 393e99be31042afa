"""Run texts to the end of their run, describe its result, and check the values that a program is given beforehand.

The Python API, the command line and tests all run their texts through `to_end`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from prose_kernel.errors import Interrupted, ProseError, RunError, UsageError
from prose_kernel.language.nearest import Nearest, did_you_mean, nearest_hint

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Diagnostic
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.workspace import Workspace

R = TypeVar("R")
Status = Literal["completed", "failed", "interrupted"]


@dataclass(frozen=True, slots=True)
class Usage:
    """The consumption of a run. `cost` is in US dollars, as far as prices are known; `replayed` counts answers from
    recordings."""

    sessions: int = 0
    judgements: int = 0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    replayed: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a program or a cell.

    `value` is the value of its last statement, `outputs` and `bindings` are values by name, as JSON data. Texts are
    unchanged, so output of commands ends with its newline. `error` is set if the status is `failed`; it has `code`,
    `message`, `hint` and `location` (`line`, `column`, `text`). `run_id` and `directory` are None for a run in memory.
    """

    status: Status
    value: object = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    bindings: Mapping[str, object] = field(default_factory=dict, repr=False)
    error: ProseError | None = None
    usage: Usage = Usage()
    run_id: str | None = None
    directory: Path | None = None

    def raise_for_error(self) -> Result:
        """Raise `error` if the program failed, and `RunError` if it was interrupted; else return the result."""
        if self.error is not None:
            raise self.error
        if self.status == "interrupted":
            raise Interrupted
        return self


@dataclass(frozen=True, slots=True)
class Program:
    """A program without errors. `inputs` and `gates` are names in the order of the text; `warnings` are diagnostics."""

    name: str
    language: str
    inputs: tuple[str, ...]
    gates: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]
    compiled: Compiled = field(repr=False)


async def to_end(
    current: Callable[[], Workspace], texts: Awaitable[object], result: Callable[[ProseError | None], Awaitable[R]]
) -> R:
    """Run texts in a workspace, end the run, and return its `result`, which is called while the run is still open.

    `current` returns the workspace, which a text may have replaced. `result` gets the error that ended the texts,
    `Interrupted` after an interrupt. A `RunError` from ending the run takes its place, unless the texts ended with a
    `RunError`, too. The workspace is always closed.
    """
    error: ProseError | None = None
    cause: RunError | None = None
    try:
        try:
            await texts
        except ProseError as problem:
            error = problem
        cause = error if isinstance(error, RunError) else None
        try:
            await current().end(cause)
        except RunError as unkept:
            error = error if cause is not None else unkept
            cause = cause or unkept
        return await result(error)
    finally:
        await current().close(cause)


class AcceptedValues:
    """The inputs and gates for which a program, or the cells of a notebook, can be given values beforehand."""

    def __init__(self) -> None:
        self._inputs: dict[str, None] = {}
        self._gates: dict[str, None] = {}
        self._all_gates: set[str] | None = set()

    def add(self, program: Any, language: Language, load: Callable[[str], Any]) -> None:
        """Add one text. `load` returns the contract of an import."""
        self._inputs.update(dict.fromkeys(language.inputs(program)))
        self._gates.update(dict.fromkeys(sorted(language.gates(program))))
        found = language.all_gates(program, load)
        self._all_gates = None if found is None or self._all_gates is None else self._all_gates | found

    def check_inputs(self, names: Iterable[str], option: str) -> None:
        """Raise `UsageError` for a name that is neither an input nor a gate."""
        for name in names:
            if name not in self._inputs and name not in self._gates:
                asked = f"its inputs are {', '.join(self._inputs)}" if self._inputs else "it has no inputs"
                hint = nearest_hint(name, (*self._inputs, *self._gates))
                raise UsageError(f"{option}{name}: the program has no such input; {asked}", hint=hint)

    def check_gates(self, names: Iterable[str], option: str) -> None:
        """Raise `UsageError` for a name that isn't a gate."""
        for name in names:
            if ":" in name and self._all_gates is None:
                continue  # a gate of an import whose gates are known only at run time
            if name not in self._gates and name not in (self._all_gates or ()):
                known = sorted(self._gates if self._all_gates is None else self._all_gates | self._gates.keys())
                has = f"its gates are {', '.join(known)}" if known else "it has no gates"
                hint = did_you_mean(Nearest()(name, known) or _in_a_module(name, known))
                raise UsageError(f"{option}{name}: the program has no such gate; {has}", hint=hint)


def _in_a_module(name: str, known: Iterable[str]) -> str | None:
    """Return the gate of an import whose name ends in `name`; None unless there is exactly one."""
    found = [one for one in known if one.endswith(f":{name}")]
    return found[0] if len(found) == 1 else None
