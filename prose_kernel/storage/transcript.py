"""Writes a run as compact markers: for in-context mode, in which the transcript is the state (openprose.md 7.6), and
for VVM (docs/reference/vvm.md 8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Final

from prose_kernel.errors import RunError
from prose_kernel.language.text import clipped
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.values import ExecText, Reference, Value, full_text, kind_of
from prose_kernel.storage.state_log import indentation, loop_pass, marker, one_line

ANNOUNCEMENT: Final = (
    "State: in context. Nothing is written to disk, and nothing is left when this run ends. "
    "Meant for fewer than 30 statements, 5 concurrent branches, 2 imports and 5 minutes."
)
_LONGEST: Final = 100_000
_STATUS: Final = {"done": "✓", "failed": "✗", "cancelled": "–"}


class InContextTrace:
    """A listener that keeps the last 100,000 markers of a run as text. `announce` gets the mode at the start."""

    def __init__(self, announce: Callable[[str], None] | None = None) -> None:
        self._announce = announce
        self._lines: deque[str] = deque(maxlen=_LONGEST)
        self._branches: dict[int, list[tuple[str, str]]] = {}

    @property
    def text(self) -> str:
        """All markers so far, one per line."""
        return "".join(f"{line}\n" for line in self._lines)

    def __call__(self, event: ev.Event) -> None:
        if isinstance(event, ev.RunStarted) and self._announce is not None:
            self._announce(ANNOUNCEMENT)
        self._lines += self.lines_of(event)

    def lines_of(self, event: ev.Event) -> list[str]:
        """Return the markers of an event, one per line."""
        start = indentation(event.place)
        return [start + one_line(text) for text in self._markers(event)]

    def _markers(self, event: ev.Event) -> Iterable[str]:
        """Return the lines of an event, without indentation."""
        text = self._marker(event)
        return () if text is None else (text,)

    def _marker(self, event: ev.Event) -> str | None:
        match event:
            case ev.LoopPass():
                return loop_pass(event.index, event.maximum)
            case ev.LoopLeft():
                shown = loop_pass(event.index, event.maximum)
                return None if event.reason in ("end", "raised") else f"{shown} exit({event.reason})"
            case ev.Bound() | ev.CommandFinished() | ev.SessionFinished() | ev.Failed():
                return _statement(event)
            case ev.ParallelStarted() | ev.BranchFinished() | ev.ParallelJoined():
                return self._concurrent(event)
            case ev.BlockEntered():
                return f"#{event.execution_id} {event.block}({', '.join(map(_short, event.arguments))})"
            case ev.TryEntered():
                return "try→"
            case ev.FinallyEntered():
                return "finally→"
            case ev.Caught():
                return f"catch→ {event.name}" if event.name else "catch→"
            case ev.GateOpened():
                return f"gate:{event.request.id} → pending"
            case ev.GateResolved():
                return f"gate:{event.request.id} → {event.decision.status}"
            case ev.ProgramCalled():
                return f"use {event.directory} → {event.alias}"
            case ev.ProgramReturned():
                return f"{event.alias}() → {'✓' if event.error is None else f'✗ {event.error.message}'}"
            case ev.RunEnded():
                return "---end" if event.error is None else f"---error {event.error.message}"
            case _:
                return marker(event)

    def _concurrent(self, event: ev.ParallelStarted | ev.BranchFinished | ev.ParallelJoined) -> str | None:
        match event:
            case ev.ParallelStarted(iterations=True):
                return None
            case ev.ParallelStarted():
                names = [label or f"_{at}" for at, label in enumerate(event.labels, 1)]
                self._branches[event.parallel] = [(name, "→") for name in names]
                return f"∥ [{' '.join(names)}]"
            case ev.BranchFinished() if event.parallel in self._branches:
                branches = self._branches[event.parallel]
                branches[event.index] = branches[event.index][0], _STATUS[event.status]
                return None if all(sign != "→" for _, sign in branches) else f"∥ [{_signs(branches)}]"
            case ev.ParallelJoined() if event.parallel in self._branches:
                return f"∥ [{_signs(self._branches.pop(event.parallel))}] done"
            case _:
                return None


_OPENPROSE_EVENTS: Final = (ev.CommandFinished, ev.GateOpened, ev.GateResolved, ev.ProgramCalled, ev.ProgramReturned)
"""Events of the run's other languages."""


class MarkedTrace(InContextTrace):
    """A listener that keeps the last markers of a run as in VVM: a symbol for the kind of event, and a text."""

    START, VALUE, DONE, FAILED = "\N{ROUND PUSHPIN}", "\N{PACKAGE}", "\N{WHITE HEAVY CHECK MARK}", "\N{CROSS MARK}"
    AGAIN, WAITING, DECIDED, PARALLEL = (
        "\N{ANTICLOCKWISE DOWNWARDS AND UPWARDS OPEN CIRCLE ARROWS}",
        "\N{HOURGLASS WITH FLOWING SAND}",
        "\N{DIRECT HIT}",
        "\N{HIGH VOLTAGE SIGN}",
    )

    kinds: ClassVar[frozenset[type[ev.Event]]] = frozenset(
        {
            *(ev.RunStarted, ev.SessionStarted, ev.SessionFinished, ev.Retried, ev.Bound, ev.LoopPass, ev.Judged),
            *(ev.ArmChosen, ev.OptionChosen, ev.Constrained, ev.ParallelStarted, ev.ParallelJoined),
            *(ev.BlockEntered, ev.BlockLeft, ev.TryEntered, ev.Caught, ev.FinallyEntered, ev.Failed, ev.Warned),
            *(ev.RunEnded, *_OPENPROSE_EVENTS),
        }
    )

    def _markers(self, event: ev.Event) -> Iterator[str]:
        match event:
            case ev.RunStarted():
                yield f"{self.START} Run: {one_line(event.program_file)}"
            case ev.SessionStarted():
                if not event.request.attempt:
                    head = event.place.source.slice(event.place.span).lstrip().partition("\n")[0]
                    yield f"{self.START} {head}"
                model = f" (model={event.request.model})" if event.request.model else ""
                yield f"{self.WAITING} @{event.request.agent or 'agent'}{model}"
            case ev.SessionFinished(error=None):
                yield f"{self.VALUE} {_result(event)}"
            case ev.SessionFinished(error=RunError() as error):
                yield f"{self.FAILED} @{event.request.agent or 'agent'}: {error.message}"
            case ev.Retried():
                yield f"{self.AGAIN} attempt {event.attempt + 1} of {event.maximum + 1}"
            case ev.Bound():
                yield f"{self.DONE} {event.name} bound"
            case ev.LoopPass():
                yield f"{self.AGAIN} iteration {event.index + 1}"
            case ev.Judged():
                yield f"{self.DECIDED} ?{_short(event.question)} → {_short(event.answer)}"
            case ev.ArmChosen():
                yield f"{self.DECIDED} {f'arm {event.arm}' if event.arm else 'no arm'}"
            case ev.OptionChosen():
                yield f"{self.DECIDED} option {event.label}"
            case ev.Constrained():
                yield f"{self.DECIDED} {marker(event)}"
            case ev.ParallelStarted():
                yield f"{self.PARALLEL} {event.count or len(event.labels)} at once"
            case ev.ParallelJoined():
                yield f"{self.DONE} all of them have ended"
            case ev.BlockEntered():
                yield f"{self.START} {event.block}({', '.join(map(_short, event.arguments))})"
            case ev.BlockLeft():
                yield f"{self.VALUE} {event.block} returned"
            case ev.TryEntered():
                yield f"{self.START} try"
            case ev.Caught():
                yield f"{self.START} except as {event.name}: {event.error.message}"
            case ev.FinallyEntered():
                yield f"{self.START} finally"
            case ev.Failed():
                yield f"{self.FAILED} {event.error.message}"
            case ev.Warned():
                yield f"{self.FAILED} {event.code} {event.message}"
            case ev.RunEnded():
                yield (
                    f"{self.DONE} Completed" if event.error is None else f"{self.FAILED} Failed: {event.error.message}"
                )
            case _:
                yield from super()._markers(event) if isinstance(event, _OPENPROSE_EVENTS) else ()


def _result(event: ev.SessionFinished) -> str:
    """Return an answer in a few words; for an answer in a file, its place and summary."""
    value = event.value
    if isinstance(value, dict) and isinstance(value.get("ref"), str):
        return f"{value['ref']}: {value.get('summary') or ''}".rstrip(": ")
    return one_line(clipped(full_text(value), 80, tidy=True)) or "(empty)"


def _statement(event: ev.Bound | ev.CommandFinished | ev.SessionFinished | ev.Failed) -> str | None:
    start = f"{event.place.ordinal}→"
    match event:
        case ev.Bound():
            return f"{start} {event.name} ✓"
        case ev.CommandFinished():
            return None if event.bound_to or event.raised else f"{start} ✓"
        case ev.SessionFinished():
            return None if event.bound_to or event.error else f"{start} ✓"
        case ev.Failed():
            return f"{start} ✗ {event.error.message}"


def _short(value: Value) -> str:
    """Return an argument in a few characters, without reading a reference."""
    match value:
        case Reference():
            return value.key.name
        case str() | ExecText() | int() | float() | None:
            return one_line(clipped(full_text(value), 20))
        case _:
            return kind_of(value)


def _signs(branches: list[tuple[str, str]]) -> str:
    return " ".join(name + sign for name, sign in branches)
