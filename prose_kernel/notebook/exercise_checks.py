"""Check the answers to exercises: the values of the run, and the actions of the program that ran last.

A check changes nothing: expressions are evaluated outside of the run, without providers and people, and events are read
from the run's records (`views/run_record.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from prose_kernel.errors import CompileError, RunError, UsageError
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.values import ExecText, full_text
from prose_kernel.views import document as doc
from prose_kernel.views.display import Display, ForwardingOutput, Output
from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.language.flow import FlowStep
    from prose_kernel.notebook.cells import Cells
    from prose_kernel.notebook.exercises import Check, Exercise
    from prose_kernel.runs.languages import Language
    from prose_kernel.views.run_record import ActivityRecord

_SHOWN: Final = 200
_MAX_RECORDED: Final = 100_000
"""Characters of a cell's output that a check can see."""
_NO_PROGRAM: Final = "no program has run yet"


class CheckResult(Struct, frozen=True):
    """The result of one requirement; `found` describes the actual state."""

    check: Check
    passed: bool
    found: str = ""


async def findings(cells: Cells, exercise: Exercise, language: Language) -> tuple[CheckResult, ...]:
    """Check every requirement of an exercise. Raises `UsageError` for a check that cannot be evaluated."""
    return tuple([await _finding(cells, check, language) for check in exercise.checks])


async def _finding(cells: Cells, check: Check, language: Language) -> CheckResult:
    feature = check.feature
    if feature == "value":
        return await _value(cells, check, language)
    if not cells.record.cells:
        return CheckResult(check, False, _NO_PROGRAM)
    if feature == "output":
        text = cells.exercises.printed.strip()
        return CheckResult(
            check, _matches(check, text), f"it printed {_quoted(text)}" if text else "it printed nothing"
        )
    if feature == "step":
        return _step(cells, check)
    return _activity_finding(cells.record.cells[-1].activities, check)


# ---------------------------------------------------------------- progress


class OutputRecorder(ForwardingOutput):
    """An `Output` that records the output and results of programs for checks, and passes everything on."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._parts: list[str] = []
        self._size = 0

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def _record(self, text: str) -> None:
        if self._size < _MAX_RECORDED:
            self._parts.append(text)
            self._size += len(text)

    def stream(self, name: Stream, text: str) -> None:
        if name == "stdout":
            self._record(text)
        self._output.stream(name, text)

    def result(self, display: Display) -> None:
        self._record(display.data.get("text/plain", ""))
        self._output.result(display)


class ExerciseProgress:
    """The answers to exercises so far. An exercise is named `NOTEBOOK/NAME`."""

    def __init__(self) -> None:
        self._cell: OutputRecorder | None = None
        self._program: OutputRecorder | None = None
        self._failed: dict[str, int] = {}
        self._solved: set[str] = set()

    def listen(self, output: Output, cwd: Path) -> Output:
        """Return an output for a cell; it records what programs print if this directory has exercises."""
        if not (cwd / "checks").is_dir():
            return output
        self._cell = OutputRecorder(output)
        return self._cell

    def program_begins(self) -> None:
        self._program = self._cell

    @property
    def printed(self) -> str:
        """The output and results of the last program."""
        return self._program.text if self._program is not None else ""

    def attempts(self, exercise: str) -> int:
        """Return the number of failed attempts since the last one that passed."""
        return self._failed.get(exercise, 0)

    def attempted(self, exercise: str, *, passed: bool) -> None:
        self._failed[exercise] = 0 if passed else self.attempts(exercise) + 1
        if passed:
            self._solved.add(exercise)

    def is_solved(self, exercise: str) -> bool:
        """Return whether an attempt has passed, even if a later one has failed."""
        return exercise in self._solved


# ---------------------------------------------------------------- values


async def _value(cells: Cells, check: Check, language: Language) -> CheckResult:
    assert check.value is not None
    workspace = cells.started_workspace
    if workspace is None or not workspace.begun:
        return CheckResult(check, False, _NO_PROGRAM)
    try:
        value = await workspace.machine_of(language).evaluate(check.value)
    except RunError as problem:
        return CheckResult(check, False, problem.message)
    except UsageError as problem:  # a call in the expression needs an answer, or never ends
        return CheckResult(check, False, str(problem))
    except CompileError as problem:
        first = next((one.message for one in problem.diagnostics), str(problem))
        raise UsageError(f"the check {check.value!r} isn't an expression of {language.title}: {first}") from None
    if check.is_ is msgspec.UNSET and check.contains is None and check.matches is None:
        return CheckResult(check, value is True, f"it is {_quoted(language.text_of(value))}")
    text = language.text_of(value)
    passed = _same(value, check.is_) if check.is_ is not msgspec.UNSET else _matches(check, text)
    return CheckResult(check, passed, f"it is {language.kind_of(value)}: {_quoted(text)}")


def _same(value: Any, expected: Any) -> bool:
    """Return whether two values are equal data; `true` is not equal to 1."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, str | ExecText) and isinstance(expected, str):
        return full_text(value).rstrip("\n") == expected.rstrip("\n")
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        return value.keys() == expected.keys() and all(_same(value[key], expected[key]) for key in value)
    return bool(value == expected)


def _matches(check: Check, text: str) -> bool:
    if check.matches is not None:
        return re.search(check.matches, text) is not None
    if check.contains is not None:
        return check.contains in text
    return isinstance(check.is_, str) and text.strip() == check.is_.strip()


def _quoted(text: str) -> str:
    return f'"{clip(text, _SHOWN)}"' if text.strip() else "empty"


# ---------------------------------------------------------------- activities


def _activity_finding(activities: list[ActivityRecord], check: Check) -> CheckResult:
    feature = check.feature
    if feature == "parallel":
        branches: dict[int, set[int]] = {}
        for one in activities:
            for step in one.branches:
                branches.setdefault(step.parallel, set()).add(step.index)
        count = max((len(each) for each in branches.values()), default=0)
        wanted = check.parallel or 0
        passed = count >= wanted if check.at_least else count == wanted
        return CheckResult(check, passed, f"{_count(count, 'branch')} ran side by side")
    if feature in ("command", "session", "judged", "gate"):
        part = getattr(check, feature)
        if feature == "command" and check.gate is not None:
            gates = [number for number, one in enumerate(activities) if one.kind == "gate" and check.gate in one.label]
            activities = activities[gates[0] :] if gates else []
        if feature == "judged":
            decided = (one for one in activities if one.kind == "judgement" and one.state == "done")
            texts = [f"{one.label} → {one.verdict[0]}" for one in decided]
        else:
            texts = [one.label for one in activities if one.kind == feature]
        noun = {"judged": "condition"}.get(feature, feature)
        outcome = f"the last one: {_quoted(texts[-1])}" if texts else f"there was no {noun}"
        passed = any(part in text and (check.matches is None or _matches(check, text)) for text in texts)
        return CheckResult(check, passed, outcome)
    kind = feature.removesuffix("s")
    count = sum(one.kind == kind for one in activities)
    wanted = getattr(check, feature)
    outcome = f"there {'was' if count < 2 else 'were'} {_count(count, kind)}"
    return CheckResult(check, count >= wanted if check.at_least else count == wanted, outcome)


def _count(count: int, noun: str) -> str:
    return doc.counted(count, noun) if count else f"no {noun}"


def _step(cells: Cells, check: Check) -> CheckResult:
    kinds = _kinds(cells.record.cells[-1].flow())
    return CheckResult(check, check.step in kinds, f"the program has {', '.join(sorted(kinds)) or 'no steps'}")


def _kinds(steps: tuple[FlowStep, ...]) -> set[str]:
    found: set[str] = {step.kind for step in steps}
    return found.union(*[_kinds(way.steps) for step in steps for way in step.ways])


# ---------------------------------------------------------------- feedback


def feedback(name: str, exercise: Exercise, found: tuple[CheckResult, ...], attempt: int) -> doc.Group:
    """Return the text for the learner. `attempt` counts the failed checks before this one: each adds a hint."""
    wrong = [one for one in found if not one.passed]
    met = f"{len(found) - len(wrong):,} of {len(found):,} requirements are met"
    head = f"{name}: done, all requirements are met" if not wrong else f"{name}: not yet, {met}"
    checks = [
        ("✓ " if one.passed else "✗ ", doc.Backticked(one.check.expects), "" if one.passed else f" ({one.found})")
        for one in found
    ]
    hints = [
        doc.line(doc.Trusted(f"Hint {number}: ", f"  hint {number}: "), doc.Backticked(hint))
        for number, hint in enumerate(wrong[0].check.hints[:attempt] if wrong else (), 1)
    ]
    points = exercise.points if not wrong else 0
    facts = {"exercise": name, "points": points, "of": exercise.points}
    return doc.group(doc.line(doc.Strong(head)), doc.Items(checks), *hints, facts=facts)
