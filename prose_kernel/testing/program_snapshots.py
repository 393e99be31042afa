"""Test a program: run each case of its snapshot like `prose run`, offline, and compare the results."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.cli import result_text
from prose_kernel.cli.execution import Cell, ProgramRun, Request, RunEnd
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import CompileError, Interrupted, ProseError, RunError, UsageError, usage_errors
from prose_kernel.language.structs import replace
from prose_kernel.language.text import as_argument, escaped
from prose_kernel.runs import languages, settings
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.events import Bound, BranchFinished, CommandOutput, Event, SessionFinished
from prose_kernel.runtime.values import verbatim
from prose_kernel.testing import snapshot_file
from prose_kernel.testing.notebook_run import remove_run
from prose_kernel.testing.options import SECONDS, EarlyEnd, SuiteOptions, time_limited
from prose_kernel.testing.snapshot_file import SUFFIX, CaseOptions, SnapshotCase
from prose_kernel.views.test_results import Outcome, StateDifference, Statement, Tested, difference

PROGRAM = "program"


def test_program(path: Path, name: str, options: SuiteOptions) -> Tested:
    """Test a program, and write its snapshot if `options` say so. `name` is its name in messages."""
    file = path.with_name(path.name + SUFFIX)
    stamp = plain_files.stamp_of(file)
    try:
        new = not os.path.lexists(file)
        if new and not options.update:
            shown = escaped(name)
            raise UsageError(f"there is no {shown}{SUFFIX}", hint=f"prose test --update {as_argument(name)} writes it")
        if not new and not path.exists():
            raise UsageError(f"{name} is missing", hint=f"delete {name}{SUFFIX}, or rename it with its program")
        cases = [SnapshotCase(path.name, f"# {path.name}", CaseOptions())] if new else snapshot_file.read(file)
        with usage_errors(f"cannot read {name}"):
            data = plain_files.read_named(path)
        text = languages.of_file(name).decode(data, name).text
    except (UsageError, CompileError) as problem:
        return Tested(name, (Outcome(PROGRAM, "failed", (StateDifference.of(problem),)),))
    return _Test(path, name, text, cases, file, stamp, options).run()


test_program.__test__ = False  # type: ignore[attr-defined]  # tells pytest that it isn't a test


class _Test:
    """A test of a program: one run of each case."""

    def __init__(
        self,
        path: Path,
        name: str,
        text: str,
        cases: Sequence[SnapshotCase],
        file: Path,
        stamp: plain_files.Stamp | None,
        options: SuiteOptions,
    ) -> None:
        self.path = path
        self.name = name
        self.text = text
        self.cases = cases
        self.file = file
        self.stamp = stamp
        self.options = options
        self.outcomes: list[Outcome] = []
        self.used: set[tuple[str, bytes]] = set()
        self.unused: dict[tuple[str, bytes], str] = {}
        self.interrupted = False

    def run(self) -> Tested:
        kept: list[SnapshotCase] = []
        for case in self.cases:
            if self.interrupted or (self.options.first and any(one.status == "failed" for one in self.outcomes)):
                kept.append(case)
                continue
            kept.append(self._case(case))
        changed = any(new is not old for new, old in zip(kept, self.cases, strict=True))
        if changed and self.options.update and not self.interrupted:
            snapshot_file.replace_tested(self.file, snapshot_file.written(kept), self.stamp)
        unused = tuple((file, raw, description) for (file, raw), description in self.unused.items())
        return Tested(self.name, tuple(self.outcomes), (), self.interrupted, frozenset(self.used), unused)

    def _case(self, case: SnapshotCase) -> SnapshotCase:
        """Run a case. Return the case to write to the file: itself, or with updated results."""
        begin = time.monotonic()
        try:
            result = asyncio.run(_run(self.path, self.text, case.options, self.options))
        except UsageError as problem:
            self.outcomes.append(Outcome(case.name, "failed", (StateDifference(str(problem)),)))
            return case
        self.interrupted = result.watch.interrupted
        if self.interrupted:
            return case
        self.used |= result.used
        findings = list(self._findings(case, result))
        unsaved = any(not finding.saved for finding in findings)
        status = "failed" if findings else "passed"
        if findings and self.options.update and not unsaved:
            status = "updated"
        outcome = Outcome(case.name, status, tuple(findings), seconds=time.monotonic() - begin)  # type: ignore[arg-type]
        self.outcomes.append(outcome)
        return case if unsaved or not findings else replace(case, status=result.status, sections=result.sections)

    def _findings(self, case: SnapshotCase, result: _Result) -> list[StateDifference]:
        seconds = case.options.seconds or self.options.seconds
        if result.watch.over:
            return [StateDifference(f"the program did not end within {seconds:g} s and was interrupted")]
        found = []
        if case.status is None:
            sections = ", ".join((f"exit status {result.status}", *result.sections))
            found.append(StateDifference(f"nothing was committed; there is now: {sections}", saved=True))
        elif case.status != result.status:
            description = f"exit status {result.status} instead of {case.status}"
            # with status 3, the program lacks an answer that a test cannot give, so there is no result to save
            found.append(StateDifference(description, result.at, saved=result.status != 3))
        if case.status is not None:
            found += self._sections(case, result)
        elif result.status == 3:
            detail = tuple(result.sections.get("Error", "").split("\n"))
            description = "an answer is missing"
            if detail[0].startswith(("InputError", "GateRejected")):
                description += f"; options in {self.file.name} give it (docs/how-to/testing-your-workflow.md)"
            found.append(StateDifference(description, result.at, detail))
        own = case.options.cassette or self.path.stem
        for (file, raw), description in result.unused.items():
            if Path(file).stem != Path(own).stem:
                self.unused[file, raw] = description
            elif not self.options.live and result.status == 0:
                found.append(
                    StateDifference(f"{description} is recorded and never used (prose cassette prune removes it)")
                )
        return found

    def _sections(self, case: SnapshotCase, result: _Result) -> list[StateDifference]:
        rules, found = self.options.rules, []
        names = [name for name in {**case.sections, **result.sections} if name not in case.options.ignore]
        for name in names:
            was, now = case.sections.get(name), result.sections.get(name)
            if was is not None and now is not None:
                if rules(was) != rules(now):
                    detail = difference(rules(was), rules(now))
                    found.append(
                        StateDifference(f"{name} differs", result.statement_of(name, detail), detail, saved=True)
                    )
            elif now is None:
                found.append(StateDifference(f"missing: {name}", detail=difference(was or "", ""), saved=True))
            else:
                detail = difference("", now or "")
                found.append(
                    StateDifference(f"not committed: {name}", result.statement_of(name, detail), detail, saved=True)
                )
        was_order = [name for name in case.sections if name in result.sections]
        now_order = [name for name in result.sections if name in case.sections]
        if was_order != now_order and not found:
            found.append(StateDifference(f"another order: {', '.join(now_order)}", saved=True))
        return found


# ---------------------------------------------------------------- the run of a case


class _Result(Struct):
    """The result of a case. `at` is the statement that failed, `statements` are the statements of sections, `pieces`
    the printed texts (stream, text, statement). `used` and `unused` are records of recordings (file, record)."""

    status: int
    sections: Mapping[str, str]
    watch: EarlyEnd
    at: Statement | None
    statements: Mapping[str, Statement]
    pieces: Sequence[tuple[str, str, Statement]]
    used: frozenset[tuple[str, bytes]]
    unused: Mapping[tuple[str, bytes], str]

    def statement_of(self, section: str, detail: Sequence[str] = ()) -> Statement | None:
        """Return the statement of a section. For printed text, it is the one that printed the first unexpected line."""
        if section == "Error":
            return self.at
        first = next((line[2:] for line in detail if line.startswith("+ ") and line[2:].strip()), "")
        pieces = [(text, at) for stream, text, at in self.pieces if stream == section]
        name, equals, _ = first.partition(" = ")  # a remark about a name
        printed = (at for text, at in pieces if first in snapshot_file.shown(text) or text == name + equals)
        return self.statements.get(section) or next(printed, pieces[0][1] if pieces else None)


async def _run(path: Path, text: str, case: CaseOptions, options: SuiteOptions) -> _Result:
    """Run a case, offline unless `live`, without questions. Raises `UsageError` for invalid options."""
    language = languages.of_file(path.name)
    cwd = (path.parent / case.directory).resolve()
    if not cwd.is_dir():
        raise UsageError(f"the option directory names no directory: {case.directory}")
    chosen = settings_of(
        cwd,
        options,
        provider=case.provider or None,
        script=case.script or None,
        cassette=case.cassette or None,
        profile="strict" if case.strict else None,
    )
    name = str(path) if cwd not in path.parents else path.relative_to(cwd).as_posix()
    decisions = {**dict.fromkeys(case.yes, True), **dict.fromkeys(case.no, False)}
    request = Request(
        cwd,
        name,
        notebook=False,
        supplied=case.input,
        decisions=decisions,
        language=language,
        settings=chosen,
        cells=[Cell(text, name)],
    )
    run = _ObservedRun(request)
    return run.result(await run.tested(case.seconds or options.seconds), case)


def settings_of(cwd: Path, options: SuiteOptions, **changes: Any) -> Settings:
    """Return the settings of a run under test. Raises `UsageError`."""
    chosen = settings.load(cwd, **options.overrides, **changes)
    if options.live:
        return chosen
    return chosen.changed(cassette_mode="off" if chosen.cassette.mode == "off" else "replay")


class TestedRun(ProgramRun):
    """A run under test, whose output is collected in `files`."""

    __test__ = False  # tells pytest that this class contains no tests

    def __init__(self, request: Request) -> None:
        self.files = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        super().__init__(request, Screen(*self.files.values()))
        self.watch = EarlyEnd()
        self._seconds = SECONDS
        self._directory: Path | None = None
        self.asker = Unattended(partial(self.screen.line, "stderr"), magic="")  # type: ignore[assignment]

    async def tested(self, seconds: float) -> RunEnd:
        """Run the program, at most for the given time, and remove the directory of its run."""
        self._seconds = seconds
        try:
            ended = await self.run_and_close()
        finally:
            if self._directory is not None:
                remove_run(self._directory)
        self.watch.interrupted |= ended.signal is not None and not self.watch.over
        return ended

    async def _run_texts(self) -> None:
        # inside the signal handlers of the run, because a third signal would end this process there
        with time_limited(self._seconds, self.workspace.interrupt) as self.watch:
            try:
                await super()._run_texts()
            except ProseError:
                if not self.watch.interrupted:
                    raise
        if self.watch.interrupted:
            raise Interrupted

    async def ended(self, error: ProseError | None) -> RunEnd:
        ended = await super().ended(error)
        self._directory = ended.run_directory
        return ended

    def _keep_image(self, name: str, data: bytes) -> str:
        return ""  # the directory of the run is removed with the test


class _ObservedRun(TestedRun):
    """A run that notes the statements of its outputs, and its values and used records before it is closed."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.bound: dict[str, object] = {}
        self.given: dict[str, object] = {}
        self.used: frozenset[tuple[str, bytes]] = frozenset()
        self.unused: dict[tuple[str, bytes], str] = {}
        self._statements: dict[str, Statement] = {}
        self._pieces: list[tuple[str, str, Statement]] = []

    def new_workspace(self, settings: Settings, start: Start) -> Workspace:
        workspace = super().new_workspace(settings, start)
        workspace.add_listener(self._note)
        return workspace

    def _note(self, event: Event) -> None:
        place = event.place
        line, column = place.source.line_column(place.span.start)
        at = Statement(line, column, place.source.line_text(line))
        if isinstance(event, Bound) and not place.program:
            self._statements[f"Output {event.name}"] = self._statements[f"Binding {event.name}"] = at
            self._pieces.append(("stderr", f"{event.name} = ", at))
        elif isinstance(event, BranchFinished) and event.label:
            self._pieces.append(("stderr", f"{event.label} = ", at))
        elif isinstance(event, CommandOutput):
            self._pieces.append((event.stream, event.text, at))
        elif isinstance(event, SessionFinished) and event.result is not None and event.result.text:
            self._pieces.append(("stdout", event.result.text, at))

    async def ended(self, error: ProseError | None) -> RunEnd:
        workspace, run = self.workspace, self.workspace.current
        self.bound = {name: verbatim(value) for name, value in workspace.values().items()}
        self.given = {name: verbatim(value) for name, (value, _) in workspace.outputs().items()}
        if run is not None and run.started_services is not None:
            cassettes = run.started_services.cassettes
            self.used = cassettes.used()
            self.unused = {(str(self.request.cwd / entry.file), entry.raw): entry.name for entry in cassettes.unused()}
        return await super().ended(error)

    def result(self, ended: RunEnd, case: CaseOptions) -> _Result:
        sections = {f"Output {name}": snapshot_file.data_text(value) for name, value in self.given.items()}
        if not sections and ended.products:
            sections["Result"] = snapshot_file.shown("\n".join(ended.products))
        wanted = self.bound if case.bindings is True else case.bindings or ()
        for name in wanted:
            if name not in self.bound:
                raise UsageError(f"the option bindings names {name}, which the program does not bind")
            sections[f"Binding {name}"] = snapshot_file.data_text(self.bound[name])
        place = str(self.request.cwd)
        for stream, file in self.files.items():
            if text := file.getvalue().replace(place, "«ws»"):
                sections[stream] = snapshot_file.shown(text)
        at = None
        if ended.error is not None:
            text = result_text.error_text(ended.error, ended.stderr_shown)
            sections["Error"] = snapshot_file.shown(text.replace(place, "«ws»"))
            at = _statement(ended.error)
        return _Result(ended.status, sections, self.watch, at, self._statements, self._pieces, self.used, self.unused)


def _statement(error: ProseError) -> Statement | None:
    if isinstance(error, RunError) and error.location is not None:
        return Statement(error.location.line, error.location.column, error.location.text)
    if isinstance(error, CompileError):
        first = error.first or error.diagnostics[0]
        return Statement(first.line, first.column, first.source_line)
    return None
