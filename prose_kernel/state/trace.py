"""`state.md`: the append-only log of a run, written by a listener of events (openprose.md 7.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC
from typing import Protocol

from prose_kernel.errors import RunError
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.ports import Clock

Where = tuple[str, ...]


class TraceStore(Protocol):
    """The part of a store that a trace uses: append lines, and let the run directory be created."""

    run_id: str

    def log(self, chain: Where) -> Callable[[str], None]: ...

    def keep(self) -> None: ...


class Trace:
    """Writes one line for each event into the `state.md` of the run, or of the imported program in which it happened.

    The store writes the lines at its next flush, or earlier if there are many. The trace itself keeps only the last
    marker of a loop and a few errors. Never raises.
    """

    def __init__(self, store: TraceStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._logs: dict[Where, Callable[[str], None]] = {}
        self._held: tuple[ev.Place, int, int | None] | None = None
        self._iterations: dict[int, ev.ParallelStarted] = {}
        self._failures: deque[tuple[RunError, str]] = deque(maxlen=64)
        self._spawned: dict[tuple[ev.BranchStep, ...], int] = {}
        self._calls: dict[tuple[object, ...], list[str]] = {}
        self._worth = False

    def __call__(self, event: ev.Event) -> None:
        match event:
            case ev.LoopPass():
                self._hold(event)
            case ev.LoopLeft():
                self._loop_left(event)
            case ev.Bound():
                self._bound(event)
            case ev.CommandFinished():
                self._command_finished(event)
            case ev.SessionFinished():
                self._session_finished(event)
            case ev.ParallelStarted() | ev.BranchFinished() | ev.ParallelJoined():
                self._concurrent(event)
            case ev.Failed():
                self._failure(event.place, event.error)
            case ev.CommandStarted() | ev.SessionStarted():
                self._release()
            case ev.RunStarted() | ev.RunEnded() | ev.ProgramCalled() | ev.ProgramReturned():
                self._life(event)
            case _:
                if (text := marker(event)) is not None:
                    self._line(event.place, text)

    # ------------------------------------------------------------ lines

    def _append(self, chain: Where, text: str) -> None:
        log = self._logs.get(chain)
        if log is None:
            log = self._logs[chain] = self._store.log(chain)
        log(text)

    def _line(self, place: ev.Place, text: str) -> None:
        self._release()
        self._append(place.program, f"{self._prefix(place)}{one_line(text)}\n")
        if not self._worth:
            self._worth = True
            self._store.keep()

    def _hold(self, event: ev.LoopPass) -> None:
        # 7.3: the marker comes before the condition is tested; a loop that ends there shows one line, with `exit`.
        self._release()
        maximum = self._maximum(event)
        if maximum is None or event.index < maximum:
            self._held = event.place, event.index, maximum

    def _release(self) -> None:
        if self._held is not None:
            (place, index, maximum), self._held = self._held, None
            self._line(place, loop_pass(index, maximum))

    def _maximum(self, event: ev.LoopPass) -> int | None:
        """Return the number of passes if it is known; for an iteration of `parallel for`, the number of items."""
        branches = event.place.branches
        construct = self._iterations.get(branches[-1].parallel) if branches else None
        return construct.count if construct is not None and construct.place.span == event.place.span else event.maximum

    def _prefix(self, place: ev.Place) -> str:
        """Return `N→ ` or `N{letter}→ `, indented by two spaces for each enclosing block. Iterations have no letter."""
        letters = "".join(letter(step.index) for step in place.branches[-1:] if step.parallel not in self._iterations)
        return f"{'  ' * place.depth}{place.ordinal}{letters}→ "

    def _failure(self, place: ev.Place, error: RunError) -> None:
        start = self._prefix(place)
        if any(seen is error and at == start for seen, at in self._failures):
            return
        self._failures.append((error, start))
        self._line(place, f"✗ {error.message}")

    def _end(self, chain: Where, error: RunError | None) -> None:
        self._release()
        time = timestamp(self._clock)
        self._append(chain, f"---end {time}\n" if error is None else f"---error {time} {one_line(error.message)}\n")

    # ------------------------------------------------------------ events

    def _life(self, event: ev.RunStarted | ev.RunEnded | ev.ProgramCalled | ev.ProgramReturned) -> None:
        chain = event.place.program
        match event:
            case ev.RunStarted():
                self._append(chain, self._title(event.program_file))
            case ev.RunEnded():
                self._end(chain, event.error)
            case ev.ProgramCalled():
                self._release()
                self._append((*chain, event.directory), self._title(event.alias))
                self._calls.setdefault(call(event), []).append(event.directory)
            case ev.ProgramReturned():
                if called := self._calls.get(call(event)):
                    inside = (*chain, called.pop())
                    self._end(inside, event.error)
                    self._logs.pop(inside, None)
                if event.error is None:
                    self._line(event.place, f"import:{event.alias} ✓")
                else:
                    self._failure(event.place, event.error)

    def _title(self, program: str) -> str:
        return f"# run:{self._store.run_id} {one_line(program)}\n\n"

    def _bound(self, event: ev.Bound) -> None:
        branches = event.place.branches
        if branches and branches[-1].label == event.name and branches[-1].parallel not in self._iterations:
            return  # the line of the branch shows it
        self._line(event.place, f"input {event.name} ✓" if event.kind == "input" else f"{event.name} ✓")

    def _command_finished(self, event: ev.CommandFinished) -> None:
        if event.bound_to is None and not event.raised:
            self._spawn_done(event.place, None)

    def _session_finished(self, event: ev.SessionFinished) -> None:
        if event.bound_to is None and event.error is None:
            request = event.request
            self._spawn_done(event.place, request.label or (request.agent if request.kind == "resume" else None))

    def _spawn_done(self, place: ev.Place, name: str | None) -> None:
        self._line(place, f"{name} ✓" if name else "✓")
        if place.branches:
            self._spawned[place.branches] = place.span.start

    def _concurrent(self, event: ev.ParallelStarted | ev.BranchFinished | ev.ParallelJoined) -> None:
        match event:
            case ev.ParallelStarted(iterations=True):
                self._iterations[event.parallel] = event
            case ev.ParallelStarted():
                names = ",".join(label or f"_{at}" for at, label in enumerate(event.labels, 1))
                self._line(event.place, f"∥start {names}")
            case ev.BranchFinished(status="failed", error=RunError() as error):
                self._spawned.pop(event.place.branches, None)
                self._failure(event.place, error)
            case ev.BranchFinished() if event.parallel in self._iterations:
                self._spawned.pop(event.place.branches, None)
            case ev.BranchFinished(status="cancelled"):
                self._spawned.pop(event.place.branches, None)
                self._line(event.place, "cancelled")
            case ev.BranchFinished():
                spawned = self._spawned.pop(event.place.branches, None)
                if event.label or spawned != event.place.span.start:  # else the line of its only session shows it
                    self._line(event.place, f"{event.label} ✓" if event.label else "✓")
            case ev.ParallelJoined() if event.parallel in self._iterations:
                del self._iterations[event.parallel]
            case ev.ParallelJoined():
                self._line(event.place, "∥done")

    def _loop_left(self, event: ev.LoopLeft) -> None:
        if event.reason != "end":
            if self._held is not None and self._held[1] == event.index and self._held[0] == event.place:
                self._held = None
            self._line(event.place, f"{loop_pass(event.index, event.maximum)} exit({event.reason})")


def marker(event: ev.Event) -> str | None:
    """Return the line of an event that needs no other state; None for events without a line."""
    match event:
        case ev.ArmChosen():
            return f"if:{event.arm}"
        case ev.OptionChosen():
            return f"choice:{event.label}"
        case ev.PipeProgressed():
            return f"pipe:{event.operation} {event.index}/{event.total}"
        case ev.BlockEntered():
            return f"block:{event.block}#{event.execution_id}"
        case ev.BlockLeft():
            return f"#{event.execution_id} done"
        case ev.TryEntered():
            return "try"
        case ev.Caught():
            return f"catch {event.name}" if event.name else "catch"
        case ev.FinallyEntered():
            return "finally"
        case ev.Retried():
            return f"retry:{event.attempt}/{event.maximum}"
        case ev.GateOpened():
            return f"gate:{event.request.id} pending"
        case ev.GateResolved():
            return f"gate:{event.request.id} {event.decision.status}"
        case _:
            return None


def call(event: ev.ProgramCalled | ev.ProgramReturned) -> tuple[object, ...]:
    """Return a key that is equal for a program's call and its return."""
    place = event.place
    return event.alias, place.program, place.branches, place.execution_id


def letter(index: int) -> str:
    """Return the letter of a branch, from 0: `a` … `z`, `aa`, `ab` …"""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def one_line(text: str) -> str:
    """Return a text without line breaks, so that it cannot imitate other lines of the log."""
    return text if text.isprintable() else " ".join(text.split())


def timestamp(clock: Clock) -> str:
    """Return the time in ISO 8601, UTC, with `Z`, to the second."""
    return clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def loop_pass(index: int, maximum: int | None) -> str:
    """Return the marker of a pass, counted from 1; beyond the maximum it shows the maximum (`loop:M/M exit(max)`)."""
    if maximum is None:
        return f"loop:{index + 1}/-"
    return f"loop:{min(index + 1, maximum)}/{maximum}"
