"""Test a contract file of kind `test`: run its subject with the fixtures, and judge every assertion (prose-md.md 7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from prose_kernel.cli import result_text
from prose_kernel.cli.execution import Cell, Request, RunEnd
from prose_kernel.errors import Interrupted, ProseError, RunError, Undecided, UsageError
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.tests import Assertion, ContractCase, read_test
from prose_kernel.language.contracts.units import Unit
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped
from prose_kernel.runs import languages
from prose_kernel.runtime.ports import JudgeRequest
from prose_kernel.runtime.values import Value, inserted_text
from prose_kernel.testing.options import SuiteOptions
from prose_kernel.testing.program_snapshots import TestedRun, settings_of
from prose_kernel.views.problems import message_line
from prose_kernel.views.test_results import Outcome, StateDifference, Statement, Tested

USAGE, NO_ANSWER = 2, 3
_SEEN: Final = 100
"""The most characters of a value that a report shows."""


def test_contract(path: Path, name: str, options: SuiteOptions) -> Tested:
    """Test a contract file. `name` is its name in messages."""
    from prose_kernel.cli.compile import compile_file

    try:
        compiled = compile_file(str(path), typed=name)
    except UsageError as problem:
        return _unusable(name, str(problem))
    found = "\n".join(one.render() for one in compiled.diagnostics)
    if not compiled.ok:
        return _unusable(name, found)
    unit: Unit = compiled.program.node
    test = read_test(unit)
    assert test.subject is not None  # otherwise there is an error
    outcomes, lines, status, interrupted = [], [found] if found else [], 0, False
    for case in test.cases:
        if case.missing and case.item is not None:
            outcomes.append(Outcome(case.name, "skipped", why=f"no value for {', '.join(case.missing)}"))
            continue
        begin = time.monotonic()
        run = _SubjectRun(path, test.subject, case, options)
        try:
            judged = run.judged()
        except UsageError as problem:
            return _unusable(name, str(problem))
        lines += [f"{name}{f', {case.name}' if case.name else ''}", *(one.line() for one in judged)]
        failed = [one.finding(unit) for one in judged if not one.holds]
        held = len(judged) - len(failed)
        if run.is_late:
            failed = [StateDifference(f"✗ the subject did not end within {options.seconds:g} s and was interrupted")]
            lines.append(failed[0].message)
        lines.append("---test PASS" if not failed else f"---test FAIL ({held}/{len(case.assertions)} assertions)")
        title, took = case.name or "test", time.monotonic() - begin
        outcomes.append(Outcome(title, "failed" if failed else "passed", tuple(failed), seconds=took))
        status = max(status, run.status, 1 if failed else 0)
        if interrupted := run.watch.interrupted:
            break
    return Tested(name, tuple(outcomes), (), interrupted, report="\n".join(lines), exit=status)


test_contract.__test__ = False  # type: ignore[attr-defined]  # tells pytest that it isn't a test


def _unusable(name: str, found: str) -> Tested:
    return Tested(name, (Outcome("test", "failed", (StateDifference(found),)),), report=found, exit=USAGE)


class Judged(Struct, frozen=True):
    """An assertion with its outcome. `saw` describes the observed values or error."""

    assertion: Assertion
    holds: bool
    saw: str

    def line(self) -> str:
        words = ("" if self.assertion.holds else "not ") + self.assertion.shown
        return f"✓ {words}" if self.holds else f"✗ {words} ({self.saw})"

    def finding(self, unit: Unit) -> StateDifference:
        item = self.assertion.item
        if item is None:
            return StateDifference(self.line())
        source = unit.file.source
        line, column = source.line_column(item.head.start)
        return StateDifference(self.line(), Statement(line, column, source.line_text(line)))


class _SubjectRun(TestedRun):
    """A run of the subject. Its assertions are judged before the run is closed."""

    def __init__(self, path: Path, subject: Unit, case: ContractCase, options: SuiteOptions) -> None:
        cwd = path.parent.resolve()
        chosen = settings_of(cwd, options, cassette=path.name.removesuffix(SUFFIX))
        file = Path(subject.file.address)
        name = file.relative_to(cwd).as_posix() if file.is_relative_to(cwd) else str(file)
        settings, cell = chosen.changed(journal="off"), Cell(subject.file.source.text, name)
        language = languages.of_file(name)
        super().__init__(Request(cwd, name, notebook=False, language=language, settings=settings, cells=[cell]))
        self.subject = subject
        self.case = case
        self.seconds = options.seconds
        self.results: list[Judged] = []
        self.status = 0
        self.is_late = False

    def judged(self) -> list[Judged]:
        """Run the subject, and return its judged assertions. Raises `UsageError` for invalid settings."""
        asyncio.run(self.tested(self.seconds))
        return self.results

    async def feed(self, cell: Cell) -> None:
        from prose_kernel.language.contracts.compile import with_optional_inputs

        compiled: Any = self.compile(cell.text, cell.name)
        compiled = replace(compiled, program=with_optional_inputs(compiled.program, self.case.missing))
        values: Mapping[str, Any] = self.case.values
        await self.workspace.run(compiled, values)

    async def ended(self, error: ProseError | None) -> RunEnd:
        self.is_late = self.watch.over
        outputs = {name: value for name, (value, _) in self.workspace.outputs().items()}
        failed = UsageError("it was interrupted") if isinstance(error, Interrupted) else error
        for number, assertion in enumerate(() if self.is_late else self.case.assertions):
            self.results.append(await self._judge(assertion, number, outputs, failed))
        if isinstance(error, RunError) and error.no_answer:
            self.status = NO_ANSWER
        elif error is not None and not isinstance(error, RunError):
            self.status = USAGE
        return await super().ended(error)

    async def _judge(
        self, assertion: Assertion, number: int, outputs: Mapping[str, Value], error: ProseError | None
    ) -> Judged:
        failure = result_text.code_of(error) if error is not None else ""
        code = f" [{failure}]" if failure else ""
        reason = (
            f"the subject failed: {message_line(str(error))}{code}" if error is not None else "the subject did not fail"
        )
        if assertion.is_about_error:
            return Judged(assertion, (assertion.wants_error == (error is not None)) == assertion.holds, reason)
        if error is not None:
            return Judged(assertion, False, reason)
        run = self.workspace.current
        assert run is not None  # the subject has run
        request = JudgeRequest(assertion.condition, f"t{number}", self.request.program_file, dict(outputs))
        try:
            verdict = await run.services.judge.decide(request)
        except Undecided as problem:
            self.status = NO_ANSWER
            return Judged(assertion, False, f"it could not be judged: {problem}")
        saw = "; ".join(_seen(assertion, outputs)) or "there are no outputs"
        if verdict.answer is None:
            return Judged(assertion, False, f"uncertain; {saw}")
        return Judged(assertion, verdict.answer == assertion.holds, saw)


def _seen(assertion: Assertion, outputs: Mapping[str, Value]) -> Iterator[str]:
    name = assertion.name.partition(".")[0]
    for output, value in outputs.items():
        if name in ("", output) or name not in outputs:
            yield f"{output} is {clipped(' '.join(inserted_text(value).split()), _SEEN)}"
