"""Show the steps of a machine for `%step`: the names that each statement reads and binds, its requests, its decisions.

A hook records each statement before it runs, a listener its effects; the end of the program makes one display of them.
Branches run at the same time, so each has a lane below the statement that started it, in source order. So the display
is the same in every run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct, field

from prose_kernel.language.source import Source, Span
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.statement_hook import StatementHook
from prose_kernel.views.cards import verdict
from prose_kernel.views.document import Table, counted
from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.language.flow import FlowStep
    from prose_kernel.runs.languages import Language
    from prose_kernel.runtime.execution_context import ExecutionContext, Node
    from prose_kernel.runtime.values import Value

ROWS: Final = 300
"""The most statements of one program that are shown; the rest is counted."""
_NOTES: Final = 12
_VALUE: Final = 60
_LINES_BEFORE: Final = 200


class _Row(Struct):
    """One statement that ran, and the lanes of the branches that it has started."""

    source: Source
    span: Span
    reads: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    more: int = 0
    lanes: dict[tuple[int, int], _Lane] = field(default_factory=dict)

    def note(self, text: str) -> None:
        if len(self.notes) < _NOTES:
            self.notes.append(text)
        else:
            self.more += 1


class _Lane(Struct):
    label: str = ""
    rows: list[_Row] = field(default_factory=list)


class StepDisplay(StatementHook):
    """A `StatementHook` and a listener of events for one program."""

    def __init__(self, language: Language, reads: Callable[[Source], Iterable[FlowStep]]) -> None:
        self._language = language
        self._flow = reads
        self._reads: dict[int, tuple[list[int], list[tuple[str, ...]]]] = {}
        self._sources: list[Source] = []  # keeps them alive, so that their ids stay unique
        self._lanes: dict[tuple[ev.BranchStep, ...], _Lane] = {(): _Lane()}
        self._count = 0

    # ------------------------------------------------------------ the hook

    def before(self, s: ExecutionContext, node: Node) -> None:
        self._count += 1
        if self._count > ROWS:
            return
        names = self._names(s.source, node.span)
        seen = self._values(s, node, names) if names else ()
        self._lane(s.branches).rows.append(_Row(s.source, node.span, seen))

    def _names(self, source: Source, span: Span) -> tuple[str, ...]:
        """Return the names that a statement reads, without the steps in its bodies."""
        known = self._reads.get(id(source))
        if known is None:
            steps = sorted((step.span.start, step.reads) for step in _flat(self._flow(source)))
            known = self._reads[id(source)] = [at for at, _ in steps], [names for _, names in steps]
            self._sources.append(source)
        first = source.text.find("\n", span.start)
        end = min(span.end, first if first >= 0 else span.end)
        begins, names = known
        inside = names[bisect_left(begins, span.start) : bisect_left(begins, max(end, span.start + 1))]
        return tuple(dict.fromkeys(name for each in inside for name in each))

    def _values(self, s: ExecutionContext, node: Node, names: tuple[str, ...]) -> tuple[str, ...]:
        seen: dict[str, Value] = {}
        for scope in reversed(s.frames(node)[0].scopes):
            seen.update(scope.names())
        return tuple(f"{name} = {self._shown(seen[name])}" for name in names if name in seen)

    def _shown(self, value: Value) -> str:
        text = self._language.text_of(value)
        return clip(text, _VALUE) if text.strip() else "(empty)"

    def _lane(self, branches: tuple[ev.BranchStep, ...]) -> _Lane:
        found = self._lanes.get(branches)
        if found is None:
            *before, last = branches
            above = self._lane(tuple(before))
            found = self._lanes[branches] = _Lane(last.label)
            if above.rows:
                above.rows[-1].lanes[last.parallel, last.index] = found
        return found

    # ------------------------------------------------------------ the listener

    def __call__(self, event: ev.Event) -> None:
        row = self._row_of(event)
        if row is not None:
            shown = self._handlers[type(event)](self, event)
            if shown:
                row.note(shown)

    def _row_of(self, event: ev.Event) -> _Row | None:
        """Return the statement of an event: the last one that encloses its place."""
        place = event.place
        branches = place.branches
        while True:
            rows = self._lanes[branches].rows if branches in self._lanes else []
            for row in reversed(rows[-_LINES_BEFORE:]):
                encloses = row.span.start <= place.span.start and place.span.end <= row.span.end
                if row.source is place.source and encloses:
                    return row
            if not branches:
                return None
            branches = branches[:-1]

    def on_bound(self, event: ev.Bound) -> str:
        return f"{event.name} := {self._shown(event.value)}"

    def on_command_finished(self, event: ev.CommandFinished) -> str:
        code = event.result.exit_code
        return f"ran `{clip(event.command, _VALUE)}`" + (f": exit code {code}" if code else "")

    def on_session_finished(self, event: ev.SessionFinished) -> str:
        agent = event.request.agent or "the session"
        if event.result is None:
            return f"asked {agent}: failed" if event.final else f"asked {agent}: failed, is tried again"
        return f"asked {agent}: {self._shown(event.value)}"

    def on_judged(self, event: ev.Judged) -> str:
        is_verdict = event.answer is None or isinstance(event.answer, bool)
        shown = verdict(event.answer) if is_verdict else self._shown(event.answer)
        by = {"rules": "a rule", "authored": "the recording"}.get(event.by, event.by)
        return f"{clip(event.question, _VALUE)} → {shown}, says {by}"

    def on_arm_chosen(self, event: ev.ArmChosen) -> str:
        return f"takes branch {event.arm}" if event.arm else "takes no branch"

    def on_loop_pass(self, event: ev.LoopPass) -> str:
        return f"pass {event.index + 1}"

    def on_loop_left(self, event: ev.LoopLeft) -> str:
        return f"leaves the loop: {clip(event.reason, _VALUE)}"

    def on_gate_resolved(self, event: ev.GateResolved) -> str:
        decision = event.decision
        return f"{decision.status} by {decision.by}" if decision.status != "timeout" else "timed out"

    _handlers: ClassVar = ev.handlers(vars()) | {
        ev.BlockEntered: lambda self, event: f"enters {event.block}",
        ev.Caught: lambda self, event: f"catches {event.error.type}",
        ev.Failed: lambda self, event: f"fails: {clip(event.error.message, _VALUE)}",
        ev.FinallyEntered: lambda self, event: "goes to finally",
        ev.OptionChosen: lambda self, event: f"takes {event.label}",
        ev.ProgramCalled: lambda self, event: f"calls {event.alias}",
        ev.Retried: lambda self, event: f"attempt {event.attempt + 1}" + (f": {event.why}" if event.why else ""),
        ev.Warned: lambda self, event: f"warning {event.code}",
    }
    kinds: ClassVar = frozenset(_handlers)

    # ------------------------------------------------------------ the display

    def table(self) -> Table | None:
        """Return the table of executed statements; None if no statement ran."""
        rows = list(self._table(self._lanes[()], ""))
        if not rows:
            return None
        if (more := self._count - ROWS) > 0:
            rows.append(("", f"… and {counted(more, 'more statement')}", "", ""))
        return Table(("line", "statement", "reads", "what happens"), rows, (1,))

    def _table(self, lane: _Lane, branch: str) -> Iterator[tuple[str, str, str, str]]:
        for row in lane.rows:
            line = row.source.location(row.span.start).line
            other = "" if row.source.name == "cell" else f"{row.source.name}:"
            text = row.source.text[row.span.start : row.span.end].partition("\n")[0]
            notes = "; ".join(row.notes) + (f"; … {row.more:,} more" if row.more else "")
            yield f"{other}{line}{branch}", clip(text, 2 * _VALUE), "; ".join(row.reads), notes
            for _, inner in sorted(row.lanes.items()):
                yield from self._table(inner, f"{branch} {inner.label}")


def _flat(steps: Iterable[FlowStep]) -> Iterator[FlowStep]:
    for step in steps:
        yield step
        for way in step.ways:
            yield from _flat(way.steps)
