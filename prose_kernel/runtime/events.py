"""The events of a run: everything that a listener can observe.

An event has a kind, a place, and the request or result that it is about, but no text formatted for a person. Listeners
are called in order, synchronously, in the machine's event loop, and must not affect the run. Durations and run ids in
results are volatile: a listener that writes an event down puts them only into metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct, field

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
    ShownFile,
    Stream,
    ToolUse,
)
from prose_kernel.runtime.values import Value


class BranchStep(Struct, frozen=True):
    """One level of concurrency around a statement: the number of the `parallel` construct, and the branch in it.

    `parallel` numbers the constructs of a run in source order; `index` is the branch or iteration, from 0; `label` is
    the branch name, `_1` (its position) for an unnamed branch, or `i0` for an iteration.
    """

    parallel: int
    index: int
    label: str


class Place(NamedTuple):
    """The place of an event.

    `ordinal` is the 1-based number of the top-level executable statement, counted over the run (7.3); `depth` the
    nesting of block frames; `program` the chain of import directories, empty for the root program. `kind` is the kind
    of the statement or expression: `exec`, `session`, `parallel`, `let`; `at` the path of the branch, to which each
    request adds its own step.
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


class Event(Struct, frozen=True):
    place: Place


class RunStarted(Event, frozen=True):
    """The run has begun (once; cells continue it). `program_file` is the name shown in the trace."""

    program_file: str


class RunEnded(Event, frozen=True):
    """The run is over: completed, or failed with an uncaught error. A notebook's run ends with its kernel.

    `outputs` is the number of its outputs or exports.
    """

    error: RunError | None = None
    outputs: int = 0


class CellStarted(Event, frozen=True):
    """A cell, or the text of a file, begins to run. `valued` is the kind of the statement that determines its value, ""
    without one."""

    index: int
    valued: str = ""


class Bound(Event, frozen=True):
    """A statement bound a value to a name. `previous` means that the name had a value before.

    `spawned` is the kind of spawn whose result was bound directly; `looped` means that the statement is in a loop.
    """

    name: str
    kind: Literal["input", "output", "let", "const"]
    value: Value
    key: Key
    spawned: Literal["exec", "session", "resume"] | None = None
    previous: bool = False
    looped: bool = False


class StatementDone(Event, frozen=True):
    """A top-level statement that bound nothing ended, with its value (None if it has none)."""

    value: Value


class CommandStarted(Event, frozen=True):
    """A command starts. `spawn` is a number, unique in the run, shared by all events of one command or session.

    `bound_to` is the name that will take the value. `consumed` means that the surrounding code uses the value, by a
    name or otherwise; without it the exec is bare. `format` is the declared format of its output.
    """

    spawn: int
    request: CommandRequest
    command: str
    bound_to: str | None
    consumed: bool = False
    format: str = ""


class CommandOutput(Event, frozen=True):
    """A command printed `text`. `omitted` describes output before it that isn't displayed."""

    spawn: int
    stream: Stream
    text: str
    omitted: Omitted = NOTHING_OMITTED


class CommandFinished(Event, frozen=True):
    """The last attempt of a command has ended; `Retried` reports earlier ones. `raised` means that the result became an
    error of the program (`on-fail: throw`)."""

    spawn: int
    request: CommandRequest
    command: str
    bound_to: str | None
    result: CommandResult
    on_fail: Literal["throw", "continue", "ignore"]
    raised: bool
    directory_changed: str | None = None
    consumed: bool = False


class FileShown(Event, frozen=True):
    """A command has ended, and the file named by its `display` property was read."""

    spawn: int
    file: ShownFile


class SessionStarted(Event, frozen=True):
    spawn: int
    request: SessionRequest
    bound_to: str | None


class SessionProgressed(Event, frozen=True):
    """`tool` is a finished call of a tool, which took `seconds` (volatile)."""

    spawn: int
    kind: Literal["text", "note", "tool"]
    text: str
    tool: ToolUse | None = None
    seconds: float = 0.0


class SessionFinished(Event, frozen=True):
    """A successful session has `result`, `key` and the answer as `value`; a failed one has `error`, and `final` if no
    retry follows. `consumed` means that the surrounding code uses the answer."""

    spawn: int
    request: SessionRequest
    bound_to: str | None
    key: Key
    result: SessionResult | None = None
    value: Value = None
    error: RunError | None = None
    final: bool = True
    consumed: bool = False


class Retried(Event, frozen=True):
    """Retry `attempt` of `maximum` starts after `delay` seconds. `why` is the failure of a command, for which there is
    no other event."""

    spawn: int
    attempt: int
    maximum: int
    delay: float
    why: str = ""


class ParallelStarted(Event, frozen=True):
    """`labels` are the branch names in source order (None for unnamed branches); iterations have `items` instead."""

    parallel: int
    labels: tuple[str | None, ...]
    count: int
    iterations: bool
    strategy: Literal["all", "first", "any"] = "all"
    items: Sequence[Value] = ()


class BranchFinished(Event, frozen=True):
    """`place.branches` already ends with the branch itself. `command` is the result of the last command in it that
    failed without an error: such a branch is `done` for the program but shown as failed."""

    parallel: int
    index: int
    label: str | None
    status: Literal["done", "failed", "cancelled"]
    value: Value = None
    error: RunError | None = None
    command: CommandResult | None = None


class ParallelJoined(Event, frozen=True):
    parallel: int


class LoopPass(Event, frozen=True):
    """A pass begins, before its condition is tested. `index` counts from 0; `maximum` is None for an unbounded loop."""

    index: int
    maximum: int | None


class LoopLeft(Event, frozen=True):
    """`reason` is `max`, `break`, `no-progress`, the condition's text with its markers, `end` for a loop with a fixed
    number of passes, or `raised` if an error, a `return` or an interrupt left it."""

    index: int
    maximum: int | None
    reason: str


class BlockEntered(Event, frozen=True):
    block: str
    execution_id: int
    arguments: tuple[Value, ...]


class BlockLeft(Event, frozen=True):
    block: str
    execution_id: int


class JudgeAsked(Event, frozen=True):
    """A question is about to be asked; `Judged` follows if it is decided. `at` is the path of the question."""

    question: str
    at: str = ""


class Judged(Event, frozen=True):
    """A question was answered. `answer` is a boolean, None for uncertain, a label, or extracted data; `details` is
    volatile metadata. `at` is the path of the question; `about` is the text of the value that a VVM criterion
    judges."""

    question: str
    answer: Value
    by: str
    reason: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    at: str = ""
    about: str | None = None


class ArmChosen(Event, frozen=True):
    """`arm` counts from 1; 0 means that no arm ran. For `else` it is the number after the last arm."""

    arm: int


class OptionChosen(Event, frozen=True):
    label: str


class Constrained(Event, frozen=True):
    """A value was checked against requirements: their number, the violated ones, and the bounds as hints."""

    name: str
    requirements: int
    violations: tuple[str, ...]
    bounds: Mapping[str, Value]


class TryEntered(Event, frozen=True):
    pass


class Caught(Event, frozen=True):
    name: str | None
    error: RunError


class FinallyEntered(Event, frozen=True):
    pass


class PipeProgressed(Event, frozen=True):
    """An operation over `total` items begins with item number `index`, which counts from 1."""

    operation: Literal["map", "filter", "pmap", "reduce"]
    index: int
    total: int


class GateOpened(Event, frozen=True):
    request: GateRequest


class GateResolved(Event, frozen=True):
    request: GateRequest
    decision: GateDecision


class ProgramCalled(Event, frozen=True):
    """`path` is the path of the import, as written; `inputs` are the inputs that a call must supply."""

    alias: str
    directory: str
    path: str = ""
    inputs: Mapping[str, bool] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()


class ProgramReturned(Event, frozen=True):
    alias: str
    error: RunError | None = None


class Failed(Event, frozen=True):
    """A statement failed. Emitted once for each error, at its origin; it may still be caught."""

    error: RunError


class Warned(Event, frozen=True):
    """A warning at run time (W011, W118, E219 with fallback, and others)."""

    code: str
    message: str


class StoreWaits(Event, frozen=True):
    """The run waits for the store, for at most `seconds`; `reason` None ends the wait. It belongs to no statement."""

    store: str
    reason: str | None = None
    seconds: float = 0.0


def handlers(methods: Mapping[str, Any]) -> dict[type[Event], Callable[..., Any]]:
    """Return the handler method for each kind of event, by its name: `on_command_started` for `CommandStarted`.

    A listener's class calls it with `vars()` below its methods. A name that fits no event is an error.
    """
    return {_KINDS[name]: method for name, method in methods.items() if name.startswith("on_")}


_KINDS: Final = {"on_" + re.sub(r"\B[A-Z]", r"_\g<0>", kind.__name__).lower(): kind for kind in Event.__subclasses__()}


Listener = Callable[[Event], None]
"""Receives events: only those of the classes in its attribute `kinds`, if it has one."""


class Audience(dict[type[Event], tuple[Listener, ...]]):
    """Listeners by kind of event: `audience[LoopPass]` are the listeners for it, found by one look-up in a dict.

    Machines check for listeners before they create a frequent event: one for each pass of a loop is costly. An
    audience may be a listener of other audiences, which follow its changes.
    """

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        super().__init__()
        self._listeners: list[Listener] = []
        self._around: list[Audience] = []
        for listener in listeners:
            self.add(listener)

    def __missing__(self, kind: type[Event]) -> tuple[Listener, ...]:
        found: list[Listener] = []
        for listener in self._listeners:
            if isinstance(listener, Audience):
                found += listener[kind]
            elif kind in getattr(listener, "kinds", (kind,)):
                found.append(listener)
        self[kind] = tuple(found)
        return self[kind]

    def __call__(self, event: Event) -> None:
        for listener in self[type(event)]:
            listener(event)

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)
        if isinstance(listener, Audience):
            listener._around.append(self)
        self._changed()

    def remove(self, listener: Listener) -> None:
        self._listeners.remove(listener)
        if isinstance(listener, Audience):
            listener._around.remove(self)
        self._changed()

    def has(self, listener: Listener) -> bool:
        return listener in self._listeners

    def _changed(self) -> None:
        self.clear()
        for audience in self._around:
            audience._changed()


class UnreportedBegins:
    """The begin events of open activities that no listener has received, but that listeners of later events need."""

    def __init__(self) -> None:
        self._open: dict[object, list[Event]] = {}

    def note(self, event: Event) -> None:
        match event:
            case CommandStarted() | SessionStarted():
                self._open[event.spawn] = [event]
            case CommandFinished() | SessionFinished():
                self._open.pop(event.spawn, None)
            case ParallelStarted():
                self._open["parallel", event.parallel] = [event]
            case BranchFinished():
                self._open.get(("parallel", event.parallel), []).append(event)
            case ParallelJoined():
                self._open.pop(("parallel", event.parallel), None)
            case GateOpened():
                self._open["gate", event.request.id] = [event]
            case GateResolved():
                self._open.pop(("gate", event.request.id), None)
            case RunStarted() | CellStarted():
                self._open[type(event)] = [event]

    def forget_activities(self) -> None:
        """Drop the activities of a text that has ended: after an interrupt, no events report their end."""
        self._open = {key: events for key, events in self._open.items() if key in (RunStarted, CellStarted)}

    def take(self) -> list[Event]:
        """Return these events in order, and forget them."""
        found, self._open = [event for events in self._open.values() for event in events], {}
        return found
