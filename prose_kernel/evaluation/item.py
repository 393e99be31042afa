"""Make one run of an evaluation (a case, a variant, a repetition) in memory, and evaluate its assertions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final
from urllib.parse import quote

from msgspec import Struct, field

from prose_kernel.cassettes.recordings import SharedCassettes
from prose_kernel.errors import BudgetSpent, CompileError, ProseError, RunError, Undecided
from prose_kernel.evaluation.assertions import Assertions, FinishedRun
from prose_kernel.evaluation.dataset import EXPECTED, DatasetCase
from prose_kernel.evaluation.programs import Prepared
from prose_kernel.evaluation.results import CaseResult, Check, Status
from prose_kernel.evaluation.spec import Spec
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped, one_line
from prose_kernel.models.providers.model_servers import SharedConnections
from prose_kernel.runs.workspace import Start, Workspace, uncancel
from prose_kernel.runtime import budgets
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.events import Event, Judged, SessionFinished, SessionStarted
from prose_kernel.runtime.ports import Clock, Usage, reported
from prose_kernel.runtime.values import Value, full_text

NAMES: Final = (EXPECTED, "case", "result")
"""Names that assertions may use in addition to those of the program and the columns."""
SHOWN: Final = 2_000
"""The most characters of an output that a result keeps for the page."""
_INSTANT: Final = frozenset({"scripted", "dry-run"})
"""Origins of answers whose durations only depend on the load of this machine."""


class Meter(Struct):
    """Measures the consumption of the sessions and judgements of a run; replayed ones count as when recorded."""

    clock: Clock
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0
    sessions: int = 0
    _begun: dict[int, float] = field(default_factory=dict)

    kinds = frozenset({SessionStarted, SessionFinished, Judged})

    def __call__(self, event: Event) -> None:
        match event:
            case SessionStarted():
                self.sessions += 1
                self._begun[event.spawn] = self.clock.monotonic()
            case SessionFinished(result=result):
                begun = self._begun.pop(event.spawn, None)
                if result is not None and result.replayed:
                    return  # `recorded` counts it
                if begun is not None and (result is None or result.origin not in _INSTANT):
                    self.seconds += self.clock.monotonic() - begun
                self.consumed(result.usage if result is not None else None)
            case Judged(details=details):
                self.judged(details)

    def judged(self, details: Mapping[str, object]) -> None:
        """Count a live judgement; `recorded` counts replayed ones."""
        if not details.get("replayed"):
            self.consumed(reported(details.get("usage")))

    def recorded(self, usage: Mapping[str, float], seconds: float) -> None:
        """Count a replayed answer."""
        self.seconds += seconds
        if usage:
            tokens_in, tokens_out = int(usage.get("in", 0)), int(usage.get("out", 0))
            self.consumed(Usage(1, tokens_in, tokens_out, usage.get("cost")))

    def consumed(self, usage: Usage | None) -> None:
        if usage is None:
            return
        self.tokens_in += usage.tokens_in
        self.tokens_out += usage.tokens_out
        self.cost += usage.cost or 0.0
        self.unpriced += usage.cost is None and bool(usage.requests)


class EvaluationItem(Struct, frozen=True):
    """A run to make: a case, a variant, and the number of the repetition, from 1."""

    case: DatasetCase
    prepared: Prepared
    repetition: int
    key: str

    @property
    def at(self) -> str:
        """The prefix of all paths of the run, so that each has its own recordings."""
        names = quote(self.case.id, safe=""), quote(self.prepared.variant.name, safe="")
        return f"case={names[0]}/variant={names[1]}/r{self.repetition}/"


class SharedParts(Struct, frozen=True):
    """The parts that all runs of an evaluation share."""

    spec: Spec
    assertions: Assertions
    recordings: SharedCassettes
    connections: SharedConnections
    meters: dict[str, Meter]
    budget: Budget | None
    clock: Clock
    warnings: set[str] = field(default_factory=set)


class ItemRun:
    """A run, which can be interrupted from any thread. `run` may be called once."""

    def __init__(self, item: EvaluationItem, shared: SharedParts) -> None:
        self.item = item
        self.shared = shared
        self.over_time = False
        self._workspace: Workspace | None = None
        self._judging: Callable[[], object] | None = None
        self._interrupted = False
        self._meter = Meter(shared.clock)

    def interrupt(self) -> None:
        """End the run, from any thread; a second call kills its remaining commands."""
        self._interrupted = True
        if self._judging is not None:
            self._judging()
        elif self._workspace is not None:
            self._workspace.interrupt()

    async def run(self) -> CaseResult:
        """Make the run and return its result. Raises `BudgetSpent` if the budget of the evaluation is spent, and
        `CancelledError` if the run is interrupted."""
        item, shared = self.item, self.shared
        if item.case.broken:
            return self._result("error", item.case.broken)
        shared.meters[item.at] = self._meter
        timer = asyncio.get_running_loop().call_later(shared.spec.seconds, self._time_is_up)
        try:
            return await self._run_to_result()
        finally:
            timer.cancel()
            del shared.meters[item.at]

    def _time_is_up(self) -> None:
        self.over_time = True
        self.interrupt()

    async def _run_to_result(self) -> CaseResult:
        item, shared = self.item, self.shared
        prepared = item.prepared
        start = Start(
            shared.spec.path.parent,
            prepared.name,
            notebook=prepared.is_notebook,
            supplied=prepared.inputs(item.case),
            decisions=shared.spec.decisions,
            language=prepared.language,
            at=item.at,
            recordings=shared.recordings,
            connections=shared.connections,
        )
        shown: list[str] = []
        asker = Unattended(shown.append, why=UNATTENDED, magic="")
        workspace = self._workspace = Workspace(prepared.settings, start, asker=asker, listeners=[self._meter])
        error: RunError | None = None
        try:
            return await self._run_and_check(workspace)
        except asyncio.CancelledError:
            if not self.over_time:
                raise
            uncancel()
            return self._result("error", f"it did not end within {shared.spec.seconds:g} s")
        except BudgetSpent as spent:
            if spent.budget == EVALUATION:
                raise
            error = spent
            return self._result("error", _message_of(spent))
        except RunError as problem:
            error = problem
            return self._result("error", _message_of(problem), no_answer=problem.no_answer)
        except CompileError as problem:
            message = problem.first.render().split("\n")[0] if problem.first is not None else str(problem)
            return self._result("error", message)
        except ProseError as problem:
            return self._result("error", _message_of(problem), no_answer=isinstance(problem, Undecided))
        finally:
            self._workspace = self._judging = None
            await workspace.close(error)
            shared.warnings.update(one for one in shown if one.startswith("Warning: "))

    async def _run_and_check(self, workspace: Workspace) -> CaseResult:
        item, shared = self.item, self.shared
        prepared, budget = item.prepared, shared.budget
        machine = workspace.machine_of(prepared.language)
        machine.host.budget = budget
        prepared.bind(workspace, item.case)
        value: Value = None
        for text in prepared.texts(item.case):
            compiled = prepared.compiled(workspace, text)
            value = await workspace.run(compiled, language=text.language, interrupted=lambda: self._interrupted)
        outputs = {name: given for name, (given, _) in workspace.outputs().items()}
        own: dict[str, Value] = dict(item.case.columns)
        known = own | dict(zip(NAMES, (own.get(EXPECTED), own, value), strict=True))
        bound = workspace.bindings()
        for name, given in known.items():
            if name not in bound:
                machine.adopt(name, given)
        ran = FinishedRun(item, machine, workspace.values(), outputs, value, self._meter.judged)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            if self._judging is not None:  # otherwise the run is being closed
                task.cancel()

        self._judging = partial(loop.call_soon_threadsafe, cancel)
        with budgets.counting((budget,), lambda: "an assertion") if budget is not None else nullcontext():
            checks, no_answer = await shared.assertions.check(ran)
        return self._judged(checks, no_answer, outputs or {"result": value})

    def _judged(self, checks: Sequence[Check], no_answer: bool, outputs: Mapping[str, Value]) -> CaseResult:
        score = self.shared.assertions.score(checks)
        threshold = self.shared.spec.threshold
        broken = next((check for check in checks if check.error), None)
        passed = all(check.passed for check in checks) if threshold is None else score >= threshold
        status: Status = "error" if broken is not None else "passed" if passed else "failed"
        error = f"{broken.name}: {broken.reason}" if broken is not None else ""
        shown = {name: _shown(value) for name, value in outputs.items()}
        result = self._result(status, error, no_answer)
        return replace(result, score=score, checks=tuple(checks), outputs=shown)

    def _result(self, status: Status, error: str, no_answer: bool = False) -> CaseResult:
        item, meter = self.item, self._meter
        return CaseResult(
            item.key,
            item.case.id,
            item.prepared.variant.name,
            item.repetition,
            status,
            error=error,
            no_answer=no_answer,
            seconds=round(meter.seconds, 3),
            tokens_in=meter.tokens_in,
            tokens_out=meter.tokens_out,
            cost=meter.cost,
            unpriced=meter.unpriced,
            sessions=meter.sessions,
        )


UNATTENDED: Final = "an evaluation asks no person"
EVALUATION: Final = "evaluation"
"""The key of the budget of a whole evaluation. No program can catch the error that it is spent."""


def _message_of(problem: ProseError) -> str:
    where = problem.location if isinstance(problem, RunError) else None
    line = f"line {where.line}: " if where is not None else ""
    code = f" [{problem.code}]" if isinstance(problem, RunError) else ""
    return one_line(f"{line}{problem}{code}", 400)


def _shown(value: Value) -> str:
    try:
        text = full_text(value)
    except (ProseError, OSError):
        return "(cannot be read)"
    return clipped(text, SHOWN, f"… ({len(text):,} characters)", kept=SHOWN)
