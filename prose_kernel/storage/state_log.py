"""Writes the append-only log of a run, `state.md`, as a listener of events (openprose.md 7.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final

from prose_kernel.errors import RunError
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock
from prose_kernel.runtime.values import full_text
from prose_kernel.storage.run_directory import RunDirectory

Where = tuple[str, ...]
Entry = Any
"""The entry of an event: a line of `state.md`, or a row if the trace is in a database."""


DEEPEST: Final = 40
"""How many enclosing calls the indentation of a line shows."""

_LONG: Final = 1000
"""The most passes of a loop that are all logged; of a longer loop, only the first and the last `_ENDS` are."""
_ENDS: Final = 100


class _LongLoop:
    """The lines of a loop that may have more than a thousand passes.

    Its first hundred passes are written as they happen. Later ones wait here, because only the loop's end shows which
    are its last hundred: at most 900 passes, and only a hundred once the loop is known to be long.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.omitted = 0
        self.waiting: deque[list[Entry]] = deque()

    def begin(self) -> None:
        """Begin a pass."""
        self.begun += 1
        if self.begun > _ENDS:
            self.waiting.append([])
        while self.begun > _LONG and len(self.waiting) > _ENDS:
            self.waiting.popleft()
            self.omitted += 1

    def take(self, entry: Entry) -> bool:
        """Keep an entry of the current pass; return False if it may be written immediately."""
        if not self.waiting:
            return False
        self.waiting[-1].append(entry)
        return True


def _constrained(event: ev.Constrained) -> str:
    hints = ", ".join(f"{name}={full_text(value)}" for name, value in event.bounds.items())
    violated = f"{len(event.violations)} of {event.requirements} violated"
    return f"constrain {event.name}: {violated}" + (f" ({hints})" if hints else "")


_MARKERS: Final[dict[type[ev.Event], Callable[[Any], str]]] = {
    ev.ArmChosen: lambda event: f"if:{event.arm}",
    ev.OptionChosen: lambda event: f"choice:{event.label}",
    ev.PipeProgressed: lambda event: f"pipe:{event.operation} {event.index}/{event.total}",
    ev.BlockEntered: lambda event: f"block:{event.block}#{event.execution_id}",
    ev.BlockLeft: lambda event: f"#{event.execution_id} done",
    ev.Constrained: _constrained,
    ev.TryEntered: lambda event: "try",
    ev.Caught: lambda event: f"catch {event.name}" if event.name else "catch",
    ev.FinallyEntered: lambda event: "finally",
    ev.Retried: lambda event: f"retry:{event.attempt}/{event.maximum}",
    ev.GateOpened: lambda event: f"gate:{event.request.id} pending",
    ev.GateResolved: lambda event: f"gate:{event.request.id} {event.decision.status}",
}
"""The lines of events that need no other state."""


class Trace:
    """Writes one line for each event into the `state.md` of the run, or of the imported program in which it happened.

    Lines are written with the next flush, or earlier if there are many. The trace itself holds only the last marker of
    a loop and a few errors. Never raises.
    """

    def __init__(self, home: RunDirectory, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._logs: dict[Where, Callable[[str], None]] = {}
        self._held: tuple[ev.LoopPass, int | None] | None = None
        self._loops: dict[tuple[Where, tuple[ev.BranchStep, ...]], list[tuple[ev.Place, _LongLoop | None]]] = {}
        self._iterations: dict[int, ev.ParallelStarted] = {}
        self._failures: deque[tuple[RunError, str]] = deque(maxlen=64)
        self._spawned: dict[tuple[ev.BranchStep, ...], int] = {}
        self._calls: dict[tuple[object, ...], list[str]] = {}
        self._worth_keeping = False

    def __call__(self, event: ev.Event) -> None:
        self._handlers.get(type(event), Trace._log_marker)(self, event)

    def _log_marker(self, event: ev.Event) -> None:
        if (text := marker(event)) is not None:
            self._line(event, text)

    # ------------------------------------------------------------ lines

    def _entry(self, line: str, event: ev.Event | None) -> Entry:
        """Return the entry of a line; `event` is None for a remark about the log itself."""
        return f"{line}\n"

    def _entry_in_a_loop(self, event: ev.Event, text: str) -> Entry:
        """Return the entry of a line in a loop, outside branches. It is cheap, because most lines of a long loop are
        never written."""
        return event.place, text

    def _append(self, chain: Where, entry: Entry) -> None:
        log = self._logs.get(chain)
        if log is None:
            log = self._logs[chain] = self._home.log(chain)
        log(entry if isinstance(entry, str) else f"{self._prefix(entry[0])}{one_line(entry[1])}\n")

    def _line(self, event: ev.Event, text: str) -> None:
        self._release()
        place = event.place
        if self._loops and not place.branches:
            self._keep(place, self._entry_in_a_loop(event, text))
        elif not (place.branches and self._is_omitted(place)):
            self._keep(place, self._entry(f"{self._prefix(place)}{one_line(text)}", event))
        if not self._worth_keeping:
            self._worth_keeping = True
            self._home.keep()

    # ------------------------------------------------------------ long loops

    def _keep(self, place: ev.Place, entry: Entry) -> None:
        """Write an entry, unless an enclosing long loop keeps it until the loop's end."""
        loops, branches = self._loops, place.branches
        for steps in range(len(branches), -1, -1) if loops else ():
            for _, loop in reversed(loops.get((place.program, branches[:steps]), ())):
                if loop is not None and loop.take(entry):
                    return
        self._append(place.program, entry)

    def _is_omitted(self, place: ev.Place) -> bool:
        """Return whether a line belongs to a middle iteration of a long `parallel for`, which is not logged."""
        for step in place.branches:
            construct = self._iterations.get(step.parallel)
            if construct is not None and construct.count > _LONG and _ENDS <= step.index < construct.count - _ENDS:
                return True
        return False

    def _begin_pass(self, event: ev.LoopPass) -> None:
        place = event.place
        key = place.program, place.branches
        loops = self._loops.get(key)
        if loops is None:
            loops = self._loops[key] = []
        if event.index == 0:
            short = event.maximum is not None and event.maximum <= _LONG
            loops.append((place, None if short else _LongLoop()))
        loop = loops[-1][1] if loops else None
        if loop is not None:
            loop.begin()

    def _end_loop(self, place: ev.Place) -> None:
        """Write the waiting entries of a loop that has ended in any way, and the number of omitted passes."""
        key = place.program, place.branches
        loops = self._loops.get(key)
        if not loops or loops[-1][0].span != place.span:
            return  # the loop has had no pass
        begun, loop = loops.pop()
        if not loops:
            del self._loops[key]
        if loop is not None:
            self._log_omitted(begun, loop.omitted)
            for entry in (entry for entries in loop.waiting for entry in entries):
                self._keep(place, entry)

    def _log_omitted(self, place: ev.Place, passes: int) -> None:
        if passes:
            self._keep(place, self._entry(f"{self._prefix(place)}… {passes:,} passes", None))

    def on_loop_pass(self, event: ev.LoopPass) -> None:
        # 7.3: the marker comes before the condition is tested; a loop that ends there shows one line, with `exit`.
        self._release()
        construct = self._construct(event)
        if construct is None:
            self._begin_pass(event)
        maximum = event.maximum if construct is None else construct.count
        if maximum is None or event.index < maximum:
            self._held = event, maximum

    def _release(self) -> None:
        if self._held is not None:
            (event, maximum), self._held = self._held, None
            self._line(event, loop_pass(event.index, maximum))

    def _construct(self, event: ev.LoopPass) -> ev.ParallelStarted | None:
        """Return the `parallel for` of which this pass is an iteration; None for another loop."""
        branches = event.place.branches
        if not branches:
            return None
        construct = self._iterations.get(branches[-1].parallel)
        return construct if construct is not None and construct.place.span == event.place.span else None

    def _prefix(self, place: ev.Place) -> str:
        """Return `N→ ` or `N{letter}→ `, indented by two spaces for each enclosing block. Iterations have no letter."""
        start = f"{indentation(place)}{place.ordinal}" if place.depth else str(place.ordinal)
        inner = place.branches[-1] if place.branches else None
        if inner is not None and inner.parallel not in self._iterations:
            start += letter(inner.index)
        return f"{start}→ "

    def _failure(self, event: ev.Event, error: RunError) -> None:
        start = self._prefix(event.place)
        if any(seen is error and at == start for seen, at in self._failures):
            return
        self._failures.append((error, start))
        self._line(event, f"✗ {error.message}")

    def _end(self, chain: Where, error: RunError | None) -> None:
        self._release()
        for loops in [loops for (program, _), loops in self._loops.items() if program == chain]:
            for place, _ in reversed(tuple(loops)):
                self._end_loop(place)
        self._write_end(chain, error)

    def _write_heading(self, chain: Where, program: str) -> None:
        self._append(chain, f"# run:{self._home.run_id} {one_line(program)}\n\n")

    def _write_end(self, chain: Where, error: RunError | None) -> None:
        self._append(chain, f"{last_line(self._clock, error)}\n")

    # ------------------------------------------------------------ events

    def on_run_started(self, event: ev.RunStarted) -> None:
        self._write_heading(event.place.program, event.program_file)

    def on_run_ended(self, event: ev.RunEnded) -> None:
        self._end(event.place.program, event.error)

    def on_program_called(self, event: ev.ProgramCalled) -> None:
        self._release()
        self._write_heading((*event.place.program, event.directory), event.alias)
        self._calls.setdefault(call(event), []).append(event.directory)

    def on_program_returned(self, event: ev.ProgramReturned) -> None:
        if called := self._calls.get(call(event)):
            inside = (*event.place.program, called.pop())
            self._end(inside, event.error)
            self._logs.pop(inside, None)
        if event.error is None:
            self._line(event, f"import:{event.alias} ✓")
        else:
            self._failure(event, event.error)

    def on_failed(self, event: ev.Failed) -> None:
        self._failure(event, event.error)

    def on_bound(self, event: ev.Bound) -> None:
        branches = event.place.branches
        if branches and branches[-1].label == event.name and branches[-1].parallel not in self._iterations:
            return  # the line of the branch shows it
        self._line(event, f"input {event.name} ✓" if event.kind == "input" else f"{event.name} ✓")

    def on_command_started(self, event: ev.CommandStarted) -> None:
        self._release()

    def on_session_started(self, event: ev.SessionStarted) -> None:
        self._release()

    def on_command_finished(self, event: ev.CommandFinished) -> None:
        if event.bound_to is None and not event.raised:
            self._spawn_done(event, None)

    def on_session_finished(self, event: ev.SessionFinished) -> None:
        if event.bound_to is None and event.error is None:
            request = event.request
            self._spawn_done(event, request.label or (request.agent if request.kind == "resume" else None))

    def _spawn_done(self, event: ev.Event, name: str | None) -> None:
        place = event.place
        self._line(event, f"{name} ✓" if name else "✓")
        if place.branches:
            self._spawned[place.branches] = place.span.start

    def on_parallel_started(self, event: ev.ParallelStarted) -> None:
        if event.iterations:
            self._iterations[event.parallel] = event
        else:
            names = ",".join(label or f"_{at}" for at, label in enumerate(event.labels, 1))
            self._line(event, f"∥start {names}")

    def on_branch_finished(self, event: ev.BranchFinished) -> None:
        spawned = self._spawned.pop(event.place.branches, None)
        if event.status == "failed" and isinstance(event.error, RunError):
            self._failure(event, event.error)
        elif event.parallel in self._iterations:
            return
        elif event.status == "cancelled":
            self._line(event, "cancelled")
        elif event.label or spawned != event.place.span.start:  # else the line of its only session shows it
            self._line(event, f"{event.label} ✓" if event.label else "✓")

    def on_parallel_joined(self, event: ev.ParallelJoined) -> None:
        construct = self._iterations.pop(event.parallel, None)
        if construct is None:
            self._line(event, "∥done")
            return
        self._release()
        self._log_omitted(event.place, construct.count - 2 * _ENDS if construct.count > _LONG else 0)

    def on_loop_left(self, event: ev.LoopLeft) -> None:
        if event.reason not in ("end", "raised"):
            held = self._held[0] if self._held is not None else None
            if held is not None and held.index == event.index and held.place == event.place:
                self._held = None
            self._line(event, f"{loop_pass(event.index, event.maximum)} exit({event.reason})")
        self._release()
        self._end_loop(event.place)

    _handlers: ClassVar = ev.handlers(vars())
    kinds: ClassVar = frozenset((*_handlers, *_MARKERS))


def indentation(place: ev.Place) -> str:
    """Return two spaces for each enclosing call, up to `DEEPEST`: calls of VVM may be 100,000 deep."""
    return "  " * min(place.depth, DEEPEST) if place.depth else ""


def marker(event: ev.Event) -> str | None:
    """Return the line of an event that needs no other state; None for events without a line."""
    line = _MARKERS.get(type(event))
    return line(event) if line is not None else None


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


def last_line(clock: Clock, error: RunError | None) -> str:
    """Return the line of a program that has ended."""
    time = timestamp(clock.now(), "seconds")
    return f"---end {time}" if error is None else f"---error {time} {one_line(error.message)}"


def loop_pass(index: int, maximum: int | None) -> str:
    """Return the marker of a pass, counted from 1; beyond the maximum it shows the maximum (`loop:M/M exit(max)`)."""
    if maximum is None:
        return f"loop:{index + 1}/-"
    return f"loop:{min(index + 1, maximum)}/{maximum}"
