"""Writes the trace of a run to a database: rows of `execution` (append-only), the run, imports and agents (7.7)."""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

from prose_kernel.errors import Interrupted, RunError
from prose_kernel.language.text import clipped
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import Clock
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.row_writer import RowWriter
from prose_kernel.storage.database.store import prefix
from prose_kernel.storage.state_log import Entry, Trace, Where, last_line, one_line

K = TypeVar("K")

_LONGEST: Final = 1000
"""The most characters of a statement in a row."""
_MOST_OPEN: Final = 100_000


class DatabaseTrace(Trace):
    """Writes one row for each line that `state.md` would have, with the line in `metadata.line`.

    `metadata.event` is the kind of event. The other keys are those of the reference, and `program`, the names of the
    enclosing calls of imported programs, if any. `parent_id` is the row that has opened the enclosing construct: a
    `parallel`, a pass of a loop, or a block.
    """

    def __init__(self, writes: RowWriter, clock: Clock) -> None:
        super().__init__(writes.home, clock)
        self._writes = writes
        self._time = clock
        self._last = 0
        self._parallels: dict[int, int] = {}
        self._blocks: dict[tuple[Where, int], int] = {}
        self._passes: dict[tuple[Where, tuple[ev.BranchStep, ...]], list[_Loop]] = {}
        self._statuses = writes.database.dialect.statuses

    def on_session_finished(self, event: ev.SessionFinished) -> None:
        memory = event.request.memory
        if event.error is None and memory is not None and memory.directory:
            self._writes.remember(memory, event.request.task, prefix(event.place.program))
        super().on_session_finished(event)

    def on_block_entered(self, event: ev.BlockEntered) -> None:
        place, program = event.place, ".".join(event.place.program)
        row = (program, event.execution_id, place.execution_id, event.block, place.depth + 1)
        self._writes.add(schema.X_FRAMES, row[:2], *row)
        self._log_marker(event)

    def on_program_called(self, event: ev.ProgramCalled) -> None:
        self._import(event)
        super().on_program_called(event)

    def on_loop_left(self, event: ev.LoopLeft) -> None:
        super().on_loop_left(event)
        self._loop_over(event.place)

    def on_branch_finished(self, event: ev.BranchFinished) -> None:
        super().on_branch_finished(event)
        self._passes.pop((event.place.program, event.place.branches), None)

    _handlers: ClassVar = Trace._handlers | ev.handlers(vars())

    # ------------------------------------------------------------ rows

    def _entry_in_a_loop(self, event: ev.Event, text: str) -> Entry:
        return self._entry(f"{self._prefix(event.place)}{one_line(text)}", event)

    def _entry(self, line: str, event: ev.Event | None) -> Entry:
        if event is None:
            return self._remark("left out", "skipped", line, None)
        self._last = number = self._last + 1
        now = timestamp(self._time.now())
        place = event.place
        kind, status, details = _entry(event)
        error = details.pop("error", None)
        of_loop = isinstance(event, ev.LoopPass | ev.LoopLeft)
        parent = self._parent(place, inside=not of_loop)
        self._track(event, number)
        if of_loop and (loop := self._loop_of(place)) is not None:
            details["loop_id"] = loop.first
        metadata: dict[str, object] = {"event": kind, "line": line, **details}
        if place.program:
            metadata["program"] = place.program
        if place.execution_id is not None:
            metadata.setdefault("execution_id", place.execution_id)
        return (
            number,
            place.ordinal,
            self._writes.sql.clean(clipped(place.source.slice(place.span), _LONGEST, tidy=True)),
            self._statuses.get(status, status),
            now,
            now if status in ("completed", "failed", "skipped", "joined", "exited") else None,
            self._writes.sql.clean(error) if isinstance(error, str) else None,
            parent,
            self._writes.sql.json(metadata),
        )

    def _remark(self, kind: str, status: str, line: str, error: str | None, program: Where = ()) -> Entry:
        """Return a row without a statement."""
        self._last = number = self._last + 1
        now = timestamp(self._time.now())
        metadata: dict[str, object] = {"event": kind, "line": line}
        if program:
            metadata["program"] = program
        return number, None, None, status, now, now, error, None, self._writes.sql.json(metadata)

    def _append(self, chain: Where, entry: Entry) -> None:
        self._writes.add(schema.EXECUTION, entry[0], *entry)

    def _write_heading(self, chain: Where, program: str) -> None:
        if not chain:
            mode = self._writes.database.dialect.name
            self._writes.set_run(program_path=self._writes.sql.clean(program), status="running", state_mode=mode)

    def _write_end(self, chain: Where, error: RunError | None) -> None:
        interrupted = isinstance(error, Interrupted)
        status = "completed" if error is None else "failed"
        message = self._writes.sql.clean(error.message) if error is not None else None
        self._append(chain, self._remark("end", status, last_line(self._time, error), message, chain))
        if not chain:
            self._writes.set_run(status="interrupted" if interrupted else status)

    # ------------------------------------------------------------ enclosing constructs

    def _parent(self, place: ev.Place, *, inside: bool) -> int | None:
        """Return the row of the innermost construct that encloses a place: its row was written last.

        If not `inside`, the place is the loop itself.
        """
        found = [self._parallels.get(step.parallel, 0) for step in place.branches[-1:]]
        if place.execution_id is not None:
            found.append(self._blocks.get((place.program, place.execution_id), 0))
        around = self._passes.get((place.program, place.branches), [])
        if not inside and self._loop_of(place) is not None:
            around = around[:-1]
        if around:
            found.append(around[-1].current)
        return max(found, default=0) or None

    def _track(self, event: ev.Event, number: int) -> None:
        place = event.place
        match event:
            case ev.ParallelStarted():
                _bounded(self._parallels)[event.parallel] = number
            case ev.ParallelJoined():
                self._parallels.pop(event.parallel, None)
            case ev.BlockEntered():
                _bounded(self._blocks)[place.program, event.execution_id] = number
            case ev.BlockLeft():
                self._blocks.pop((place.program, event.execution_id), None)
            case ev.GateOpened():
                self._writes.gate_opened(event.request.id, number)
            case ev.LoopPass():
                loop = self._loop_of(place)
                if loop is None or event.index == 0:
                    loops = self._passes.setdefault((place.program, place.branches), [])
                    loops.append(_Loop(place, number))
                else:
                    loop.current = number

    def _loop_of(self, place: ev.Place) -> _Loop | None:
        loops = self._passes.get((place.program, place.branches))
        return loops[-1] if loops and loops[-1].place.span == place.span else None

    def _loop_over(self, place: ev.Place) -> None:
        if self._loop_of(place) is not None:
            key = place.program, place.branches
            self._passes[key].pop()
            if not self._passes[key]:
                del self._passes[key]

    def _import(self, event: ev.ProgramCalled) -> None:
        alias = f"{prefix(event.place.program)}{event.alias}"
        digest = self._writes.sources.get((*event.place.program, event.directory))
        inputs, outputs = self._writes.sql.json(event.inputs), self._writes.sql.json(event.outputs)
        self._writes.add(
            schema.IMPORTS,
            alias,
            alias,
            event.path,
            timestamp(self._time.now()),
            inputs,
            outputs,
            digest and f"sha256:{digest}",
        )


class _Loop:
    """A running loop: its first row, which is its id, and the row of its current pass."""

    __slots__ = ("current", "first", "place")

    def __init__(self, place: ev.Place, number: int) -> None:
        self.place = place
        self.first = self.current = number


def _bounded(rows: dict[K, int]) -> dict[K, int]:
    """Return the dict, without its older half if it is large: constructs that fail are never closed."""
    if len(rows) > _MOST_OPEN:
        for key in list(rows)[: _MOST_OPEN // 2]:
            del rows[key]
    return rows


def _entry(event: ev.Event) -> tuple[str, str, dict[str, object]]:
    """Return an event's kind, its status in the reference's terms, and its details."""
    match event:
        case ev.Bound():
            return "bound", "completed", {"name": event.name, "kind": event.kind}
        case ev.CommandFinished():
            return "command", "completed", {}
        case ev.SessionFinished():
            return "session", "completed", {}
        case ev.Failed():
            return "failed", "failed", {"error": event.error.message}
        case ev.Retried():
            why = {"reason": event.why} if event.why else {}
            return "retry", "retry", {"attempt": event.attempt, "max": event.maximum, **why}
        case ev.LoopPass():
            return "loop", "iteration", {"iteration": event.index + 1, "max": event.maximum}
        case ev.LoopLeft():
            return "loop", "exited", {"iteration": event.index + 1, "max": event.maximum, "reason": event.reason}
        case ev.TryEntered() | ev.FinallyEntered():
            return "finally" if isinstance(event, ev.FinallyEntered) else "try", "started", {}
        case ev.Caught():
            return "catch", "completed", {"name": event.name}
        case ev.ArmChosen():
            return "if", "completed", {"arm": event.arm}
        case ev.OptionChosen():
            return "choice", "completed", {"label": event.label}
        case ev.PipeProgressed():
            return "pipe", "iteration", {"operation": event.operation, "iteration": event.index, "max": event.total}
        case ev.GateOpened():
            return "gate", "pending", {"gate": event.request.id}
        case ev.GateResolved():
            status = event.decision.status
            return (
                "gate",
                "completed" if status == "approved" else "failed",
                {"gate": event.request.id, "reason": status},
            )
        case _:
            return _structure_entry(event)


def _structure_entry(event: ev.Event) -> tuple[str, str, dict[str, object]]:
    match event:
        case ev.ParallelStarted():
            names = [label or f"_{at}" for at, label in enumerate(event.labels, 1)]
            return "parallel", "started", {"parallel_id": event.parallel, "branches": names, "strategy": event.strategy}
        case ev.ParallelJoined():
            return "parallel", "joined", {"parallel_id": event.parallel}
        case ev.BranchFinished():
            status = {"done": "completed", "failed": "failed", "cancelled": "skipped"}[event.status]
            details: dict[str, object] = {"parallel_id": event.parallel, "branch": event.label or f"_{event.index + 1}"}
            if event.error is not None:
                details["error"] = event.error.message
            return "branch", status, details
        case ev.BlockEntered():
            return "block", "started", {"block": event.block, "execution_id": event.execution_id}
        case ev.BlockLeft():
            return "block", "completed", {"block": event.block, "execution_id": event.execution_id}
        case ev.ProgramReturned():
            if event.error is None:
                return "import", "completed", {"alias": event.alias}
            return "import", "failed", {"alias": event.alias, "error": event.error.message}
        case _:
            return type(event).__name__.casefold(), "completed", {}
