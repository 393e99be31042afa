"""The compact markers of in-context mode, in which the transcript is the state (openprose.md 7.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from prose_kernel.runtime import events as ev
from prose_kernel.runtime.values import ExecText, Reference, Value, full_text, kind_of
from prose_kernel.state.trace import loop_pass, marker, one_line

ANNOUNCEMENT: Final = (
    "State: in context. Nothing is written to disk, and nothing is left when this run ends. "
    "Meant for fewer than 30 statements, 5 concurrent branches, 2 imports and 5 minutes."
)
_LONGEST: Final = 100_000
_STATUS: Final = {"done": "✓", "failed": "✗", "cancelled": "–"}


class InContextTrace:
    """A listener that keeps the last 100,000 markers of a run as text.

    It calls `announce` with the mode at the start and, if `show` is true, with every marker.
    """

    def __init__(self, announce: Callable[[str], None] | None = None, *, show: bool = False) -> None:
        self._announce = announce
        self._show = show
        self._lines: deque[str] = deque(maxlen=_LONGEST)
        self._branches: dict[int, list[tuple[str, str]]] = {}

    @property
    def text(self) -> str:
        """All markers so far, one on each line."""
        return "".join(f"{line}\n" for line in self._lines)

    def __call__(self, event: ev.Event) -> None:
        if isinstance(event, ev.RunStarted):
            if self._announce is not None:
                self._announce(ANNOUNCEMENT)
            return
        text = self._marker(event)
        if text is None:
            return
        line = "  " * event.place.depth + one_line(text)
        self._lines.append(line)
        if self._show and self._announce is not None:
            self._announce(line)

    def _marker(self, event: ev.Event) -> str | None:
        match event:
            case ev.LoopPass():
                return loop_pass(event.index, event.maximum)
            case ev.LoopLeft():
                return None if event.reason in ("end", "raised") else _left(event)
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
            text = full_text(value)
            return one_line(text if len(text) <= 20 else f"{text[:19]}…")
        case _:
            return kind_of(value)


def _left(event: ev.LoopLeft) -> str:
    return f"{loop_pass(event.index, event.maximum)} exit({event.reason})"


def _signs(branches: list[tuple[str, str]]) -> str:
    return " ".join(name + sign for name, sign in branches)
