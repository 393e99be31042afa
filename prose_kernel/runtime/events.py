"""Everything that can happen in a run, in the language's words. One vocabulary, many listeners.

An event says what happened, where (`place`), and with which request or result. It never holds anything formatted for a
person. Listeners are called in order, synchronously, in the machine's loop; a listener never changes what happens.
Durations and run ids in results are volatile: a listener that writes something down puts them into metadata only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from prose_kernel.errors import RunError
from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.ports import (
    NOTHING_OMITTED,
    CommandRequest,
    CommandResult,
    GateDecision,
    GateRequest,
    Key,
    Omitted,
    SessionRequest,
    SessionResult,
    Stream,
    ToolUse,
)
from prose_kernel.runtime.values import Value


@dataclass(frozen=True, slots=True)
class BranchStep:
    """One level of concurrency around a statement: which parallel construct, which branch.

    `parallel` numbers the constructs of a run in source order; `index` is the branch or iteration, from 0; `label` is
    the branch name, or its letter-less position `_1` for unnamed branches, or `i0` for iterations.
    """

    parallel: int
    index: int
    label: str


class Place(NamedTuple):
    """Where something happens.

    `ordinal` is the 1-based number of the top-level executable statement, counted over the run (7.3);
    `depth` the nesting of block frames; `program` the chain of import directories, empty for the root program.
    `kind` is the kind of the statement or expression: `exec`, `session`, `parallel`, `let`; `at` the path of the branch
    there, to which requests add a step of their own.
    """

    source: Source
    span: Span
    ordinal: int
    depth: int = 0
    execution_id: int | None = None
    block: str | None = None
    branches: tuple[BranchStep, ...] = ()
    program: tuple[str, ...] = ()
    kind: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    place: Place


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The run has begun (once; cells continue it). `program_file` is the name shown in the trace."""

    program_file: str


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run is over: completed, or failed with an uncaught error. A notebook's run ends with its kernel."""

    error: RunError | None = None


@dataclass(frozen=True, slots=True)
class CellStarted(Event):
    """A cell, or the one text of a file, begins to execute. `valued` is the kind of the statement that will give it its
    value, "" without one."""

    index: int
    valued: str = ""


@dataclass(frozen=True, slots=True)
class Bound(Event):
    """A statement bound a value to a name. `previous` tells that the name had a value before.

    `spawned` says what made the value, when it came straight from a spawn.
    """

    name: str
    kind: Literal["input", "output", "let", "const"]
    value: Value
    key: Key
    spawned: Literal["exec", "session", "resume"] | None = None
    previous: bool = False


@dataclass(frozen=True, slots=True)
class StatementDone(Event):
    """A top-level statement that bound nothing ended, with its value (None when it has none)."""

    value: Value


@dataclass(frozen=True, slots=True)
class CommandStarted(Event):
    """`spawn` is unique in the run and ties the events of one command or session together.

    `bound_to` is the name that will take the value. `consumed` tells that the value is used by what stands around the
    exec, by a name or otherwise; without it the exec is bare.
    """

    spawn: int
    request: CommandRequest
    command: str
    bound_to: str | None
    consumed: bool = False


@dataclass(frozen=True, slots=True)
class CommandOutput(Event):
    """`omitted` came before `text` and is displayed by nobody."""

    spawn: int
    stream: Stream
    text: str
    omitted: Omitted = NOTHING_OMITTED


@dataclass(frozen=True, slots=True)
class CommandFinished(Event):
    """`raised` tells that the outcome became an error of the program (`on-fail: throw`)."""

    spawn: int
    request: CommandRequest
    command: str
    bound_to: str | None
    result: CommandResult
    on_fail: Literal["throw", "continue", "ignore"]
    raised: bool
    directory_changed: str | None = None
    consumed: bool = False


@dataclass(frozen=True, slots=True)
class SessionStarted(Event):
    spawn: int
    request: SessionRequest
    bound_to: str | None


@dataclass(frozen=True, slots=True)
class SessionProgressed(Event):
    spawn: int
    kind: Literal["text", "note", "tool"]
    text: str
    tool: ToolUse | None = None


@dataclass(frozen=True, slots=True)
class SessionFinished(Event):
    """Success has `result`, `key` and the answer as a value; failure has `error`, and `final` when no retry follows."""

    spawn: int
    request: SessionRequest
    bound_to: str | None
    key: Key
    result: SessionResult | None = None
    value: Value = None
    error: RunError | None = None
    final: bool = True


@dataclass(frozen=True, slots=True)
class Retried(Event):
    """Retry `attempt` of `maximum` is about to start, after `delay` seconds."""

    spawn: int
    attempt: int
    maximum: int
    delay: float


@dataclass(frozen=True, slots=True)
class ParallelStarted(Event):
    """`labels` are the branch names in source order (None for an unnamed one); for iterations `count` alone is set."""

    parallel: int
    labels: tuple[str | None, ...]
    count: int
    iterations: bool
    strategy: Literal["all", "first", "any"] = "all"


@dataclass(frozen=True, slots=True)
class BranchFinished(Event):
    """`place.branches` already ends with the branch itself."""

    parallel: int
    index: int
    label: str | None
    status: Literal["done", "failed", "cancelled"]
    value: Value = None
    error: RunError | None = None


@dataclass(frozen=True, slots=True)
class ParallelJoined(Event):
    parallel: int


@dataclass(frozen=True, slots=True)
class LoopPass(Event):
    """A pass begins; `index` from 0, `maximum` None when unbounded. Emitted before the condition is tested."""

    index: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class LoopLeft(Event):
    """`reason` is `max`, `break`, `no-progress`, or the condition's text with its markers; `end` for a fixed loop,
    `raised` when an error, a `return` or an interrupt leaves it."""

    index: int
    maximum: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class BlockEntered(Event):
    block: str
    execution_id: int
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class BlockLeft(Event):
    block: str
    execution_id: int


@dataclass(frozen=True, slots=True)
class Judged(Event):
    """A question was answered. `answer` is a boolean, None for uncertain, a label, or extracted data; `details` is
    volatile metadata. `at` is the path of the question."""

    question: str
    answer: Value
    by: str
    reason: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    at: str = ""


@dataclass(frozen=True, slots=True)
class ArmChosen(Event):
    """`arm` counts from 1; 0 means that no arm ran. For `else` it is the number after the last arm."""

    arm: int


@dataclass(frozen=True, slots=True)
class OptionChosen(Event):
    label: str


@dataclass(frozen=True, slots=True)
class TryEntered(Event):
    pass


@dataclass(frozen=True, slots=True)
class Caught(Event):
    name: str | None
    error: RunError


@dataclass(frozen=True, slots=True)
class FinallyEntered(Event):
    pass


@dataclass(frozen=True, slots=True)
class PipeProgressed(Event):
    """`index` items of `total` are about to be done: 1-based number of the item that begins."""

    operation: Literal["map", "filter", "pmap", "reduce"]
    index: int
    total: int


@dataclass(frozen=True, slots=True)
class GateOpened(Event):
    request: GateRequest


@dataclass(frozen=True, slots=True)
class GateResolved(Event):
    request: GateRequest
    decision: GateDecision


@dataclass(frozen=True, slots=True)
class ProgramCalled(Event):
    alias: str
    directory: str


@dataclass(frozen=True, slots=True)
class ProgramReturned(Event):
    alias: str
    error: RunError | None = None


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """A statement failed. Emitted once for each error, where it arose; it may still be caught."""

    error: RunError


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """A run-time warning (W011, W118, E219 with fallback …)."""

    code: str
    message: str


Listener = Callable[[Event], None]
