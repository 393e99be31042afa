"""Run all cases of an evaluation in parallel, store results as runs end, and resume an interrupted evaluation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field, structs

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import check_replaced, write_whole
from prose_kernel.cassettes.cassette_index import scope
from prose_kernel.cassettes.recordings import SharedCassettes
from prose_kernel.errors import BudgetSpent, UsageError, usage_errors
from prose_kernel.evaluation import dataset
from prose_kernel.evaluation.assertions import Assertions
from prose_kernel.evaluation.item import EVALUATION, NAMES, EvaluationItem, ItemRun, Meter, SharedParts
from prose_kernel.evaluation.programs import Prepared, VariantPreparer
from prose_kernel.evaluation.results import (
    DIRECTORY,
    INTERRUPTED,
    CaseResult,
    ResultsFile,
    Summary,
    against_baseline,
    baseline_text,
    key_of,
    read_baseline,
    summary_of,
)
from prose_kernel.evaluation.spec import Spec
from prose_kernel.judging import rules
from prose_kernel.language.structs import replace
from prose_kernel.models.providers.model_servers import SharedConnections
from prose_kernel.runs import settings
from prose_kernel.runs.execution import AcceptedValues
from prose_kernel.runs.settings import Settings, budget_limits
from prose_kernel.runs.workspace import Start, Workspace, uncancel
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.clock import SystemClock

WARNINGS: Final = 5
"""The number of warnings of runs that are shown."""
NO_LIVE_MODEL: Final = ("human", "replay", "dry-run", "auto", None)


class EvaluationOptions(Struct, frozen=True):
    """Options of an evaluation. `parallel` defaults to that of the specification; `overrides` are settings."""

    parallel: int | None = None
    fresh: bool = False
    budget: str | None = None
    baseline: Path | None = None
    save_baseline: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


class Evaluation:
    """An evaluation from its specification to its summary. The constructor raises `UsageError`, and `run` also
    `CompileError`, before anything runs."""

    def __init__(
        self,
        spec: Spec,
        options: EvaluationOptions,
        on_result: Callable[[CaseResult, int, int], None] = lambda result, done, planned: None,
    ) -> None:
        self.spec = spec
        self.options = options
        self._on_result = on_result
        self._directory = spec.path.parent
        self._running: dict[ItemRun, None] = {}
        self._stopped = ""
        self._clock = SystemClock()
        self.used: frozenset[tuple[str, bytes]] = frozenset()
        """The lines of recordings that the runs have used, each with the path of its cassette."""
        count_broken = spec.broken_lines == "count"
        self.cases = dataset.read(self._directory / spec.dataset, spec.dataset, spec.id, count_broken=count_broken)
        self._at_once = options.parallel or spec.parallel
        self.variants = tuple(
            replace(one, settings=_with_limit(_with_mode(one.settings, options.overrides), self._at_once))
            for one in VariantPreparer(spec, options.overrides).all()
        )
        self._assertions = Assertions(spec)
        self._check_columns()
        self._baseline = read_baseline(options.baseline, options.baseline.name) if options.baseline else None
        if (path := options.save_baseline) is not None:
            check_replaced(path, path.name, "baseline", b'"variants"')
        self.notes = list(self._notes())

    @property
    def planned(self) -> int:
        """The number of runs."""
        return len(self.cases) * len(self.variants) * self.spec.repeat

    # ------------------------------------------------------------ checks before the first run

    def _check_columns(self) -> None:
        """Raise `UsageError` if an input has no default and no given value, and isn't a column of the data set."""
        whole = [case for case in self.cases if not case.broken]
        for prepared in self.variants:
            needed = [name for name in prepared.needed if name not in prepared.given]
            for case in whole:
                missing = [name for name in needed if name not in case.columns]
                if missing:
                    known = ", ".join(case.columns) or "no columns"
                    raise UsageError(
                        f"{self.spec.dataset} line {case.line}: the input `{missing[0]}` of {prepared.name} is missing",
                        hint=f"the line has {known}; a value for all cases is set by input.{missing[0]} = ...",
                    )

    async def _check(self) -> None:
        """Raise `UsageError` or `CompileError` if a provider or judge is invalid, a program has errors, or an assertion
        has an unknown name."""
        case = next(case for case in self.cases if not case.broken)
        columns = [*case.columns, *NAMES]
        accepted = AcceptedValues()
        for prepared in self.variants:
            start = Start(self._directory, prepared.name, notebook=prepared.is_notebook, language=prepared.language)
            workspace = Workspace(prepared.settings, start, asker=Unattended(magic=""))
            try:
                prepared.bind(workspace, case)
                for program in () if prepared.is_notebook else prepared.texts(case):
                    compiled = prepared.compiled(workspace, program)
                    load = workspace.imports.of(program.language).load_contract
                    accepted.add(compiled.program, program.language, load)
                for number, one in enumerate(self.spec.assertions):
                    about = (one.expression,) if one.expression else rules.subjects(one.rule)
                    for text in about:
                        wrong = prepared.expression_error(workspace, text, columns)
                        if wrong is not None:
                            of = f" (variant {prepared.variant.name})" if len(self.variants) > 1 else ""
                            key = ("assert", number, one.kind)
                            raise self.spec.mistake(key, f"{one.text}: {wrong.message}{of}", wrong.hint)
            finally:
                await workspace.close()
        if not any(prepared.is_notebook for prepared in self.variants):
            for word, names in (("yes", self.spec.yes), ("no", self.spec.no)):
                try:
                    accepted.check_gates(names, f"{word}: ")
                except UsageError as unknown:
                    raise self.spec.mistake((word,), str(unknown), unknown.hint) from None

    def _notes(self) -> Sequence[str]:
        """Return warnings about the evaluation that are not errors."""
        found = []
        seen: dict[str, str] = {}
        for one in self.variants:
            same = seen.setdefault(key_of(_identity(one)), one.variant.name)
            if same != one.variant.name:
                found.append(f"variant {one.variant.name} is the same as {same}: the difference is nothing but chance")
        if self.variants and all(case.broken for case in self.cases):
            raise UsageError(f"{self.spec.dataset} has no line that is a case: {self.cases[0].broken}")
        return found

    # ------------------------------------------------------------ run

    def items(self) -> list[EvaluationItem]:
        """Return all runs, grouped by case, so that variants can be compared even if the evaluation is stopped."""
        own = [[one.variant.name, *_identity(one)] for one in self.variants]
        common = [structs.asdict(one) for one in self.spec.assertions], self._assertions_digest(), self.spec.threshold
        heads = [key_of([identity, *common]) for identity in own]
        return [
            EvaluationItem(case, prepared, number, key_of([head, case.id, dict(case.columns), case.broken, number]))
            for case in self.cases
            for number in range(1, self.spec.repeat + 1)
            for prepared, head in zip(self.variants, heads, strict=True)
        ]

    def _assertions_digest(self) -> list[str]:
        files = sorted({one.python.rpartition(":")[0] for one in self.spec.assertions if one.python})
        return [key_of(plain_files.read_text(self._directory / name, errors="replace")) for name in files]

    async def run(self) -> Summary:
        """Make the runs that have no result yet, and return the summary. After an interruption (`interrupt`, or
        cancellation), it has the results so far."""
        await self._check()
        items = self.items()
        file = ResultsFile(
            self._directory / self.variants[0].settings.state_dir / DIRECTORY / f"{self.spec.stem}.jsonl"
        )
        keys = {item.key for item in items}
        former = {} if self.options.fresh else file.read()
        results = {key: one for key, one in former.items() if key in keys and one.status != "error"}
        if results:
            self.notes.append(f"{len(results):,} of {len(items):,} results were there; --fresh starts again")
        file.begin(results)
        await self._run_all([item for item in items if item.key not in results], results, file, len(items))
        if not self._stopped:
            file.end()
        ordered = [results[item.key] for item in items if item.key in results]
        return self._summed(ordered)

    def _summed(self, ordered: Sequence[CaseResult]) -> Summary:
        names = [one.variant.name for one in self.variants]
        summary = summary_of(self.spec, names, ordered, len(self.cases), notes=tuple(self.notes), stopped=self._stopped)
        if self._baseline is not None and self.options.baseline is not None:
            found = against_baseline(summary, self._baseline, self.options.baseline.name)
            summary = replace(summary, against=found)
        if (path := self.options.save_baseline) is not None and not self._stopped:
            if all(one.status == "error" for one in ordered):  # this baseline could never show a regression
                unstored = f"{path.name} is not written: every run has ended in an error"
                return replace(summary, notes=(*summary.notes, unstored))
            with usage_errors(f"cannot write {path.name}"):
                write_whole(path, baseline_text(summary))
        return summary

    async def _run_all(
        self, items: Sequence[EvaluationItem], results: dict[str, CaseResult], file: ResultsFile, planned: int
    ) -> None:
        meters: dict[str, Meter] = {}

        def used(at: str, meta: Any) -> None:
            if (meter := meters.get(scope(at))) is not None:
                meter.recorded(meta.usage, meta.ms / 1000)

        most = self._at_once * max(one.settings.max_parallel or 1 for one in self.variants)
        recordings, connections = SharedCassettes(used), SharedConnections(most)
        budget = self._budget()
        shared = SharedParts(self.spec, self._assertions, recordings, connections, meters, budget, self._clock)
        todo = iter(items)

        async def work() -> None:
            for item in todo:
                if self._stopped:
                    return
                result = await self._one(ItemRun(item, shared))
                if result is None:
                    return
                results[item.key] = result
                file.add(result)
                self._on_result(result, len(results), planned)

        workers = [asyncio.ensure_future(work()) for _ in range(min(self._at_once, len(items)))]
        try:
            with budget.open() if budget is not None else nullcontext():
                await self._finished(workers)
        finally:
            self.used = recordings.used()
            recordings.end()
            await connections.close()
            warnings = sorted(shared.warnings)
            more = [f"… and {len(warnings) - WARNINGS:,} more warnings"] if len(warnings) > WARNINGS else []
            self.notes += [*warnings[:WARNINGS], *more]

    async def _finished(self, workers: Sequence[asyncio.Future[None]]) -> None:
        """Wait until all workers have ended. If this task is cancelled, interrupt them first."""
        while pending := [one for one in workers if not one.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError:
                self.interrupt()
                uncancel()
        for one in workers:
            one.result()

    async def _one(self, run: ItemRun) -> CaseResult | None:
        self._running[run] = None
        try:
            return await run.run()
        except BudgetSpent as spent:
            self._stopped = self._stopped or str(spent)  # other runs may end their current requests, and get no more
        except asyncio.CancelledError:
            self._stopped = self._stopped or INTERRUPTED
            uncancel()
        finally:
            del self._running[run]
        return None

    def interrupt(self) -> None:
        """End all running runs, and begin no more. Existing results stay. May be called from any thread."""
        self._stopped = self._stopped or INTERRUPTED
        for run in tuple(self._running):
            run.interrupt()

    def _budget(self) -> Budget | None:
        text = self.options.budget or self.spec.budget or settings.load(self._directory).budget.run or "off"
        limits = budget_limits(text)
        return Budget(EVALUATION, "the evaluation", limits, self._clock) if limits is not None else None


def _with_mode(chosen: Settings, overrides: Mapping[str, Any]) -> Settings:
    """Set the mode of recordings, unless it is set: providers may be asked if one is chosen. In CI, they may be asked
    only if the command line says so."""
    mode = chosen.cassette.mode
    in_ci = settings.in_ci(os.environ)
    if mode is None or (in_ci and "cassette_mode" not in overrides):
        asked = chosen.provider not in NO_LIVE_MODEL or chosen.judge.provider not in ("off", "auto", None)
        mode = "auto" if asked and not in_ci else "replay"
    return chosen.changed(cassette_mode=mode)


def _with_limit(chosen: Settings, runs: int) -> Settings:
    """Share the limit of parallel sessions among all parallel runs; each run may have at least one session."""
    most = chosen.max_parallel or (4 if (chosen.provider or "").startswith("acp:") else 8)
    return chosen.changed(max_parallel=max(1, most // runs))


def _identity(prepared: Prepared) -> list[object]:
    """Return the properties of a variant that decide its results."""
    chosen = {name: value for name, value in prepared.settings.by_name().items() if name != "max_parallel"}
    texts = [(one.name, one.text) for one in prepared.source]
    return [texts, dict(prepared.given), {name: str(value) for name, value in chosen.items()}]
