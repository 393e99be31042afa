"""Evaluate assertions about a run: expressions, rules, criteria for the judge, Python functions."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.access.created_code import require_agreed
from prose_kernel.errors import BudgetSpent, CompileError, ProseError, RunError, Undecided, UsageError, reason_of
from prose_kernel.evaluation.results import Check
from prose_kernel.evaluation.spec import Assertion, Spec
from prose_kernel.judging import rules
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.language.text import one_line
from prose_kernel.runtime.machine import Machine
from prose_kernel.runtime.ports import JudgeRequest
from prose_kernel.runtime.python_calls import in_daemon_thread, start_thread
from prose_kernel.runtime.value_text import NAME, preview
from prose_kernel.runtime.values import Value, verbatim

if TYPE_CHECKING:
    from prose_kernel.evaluation.item import EvaluationItem

PARAMETERS: Final = ("output", "outputs", "bindings", "expected", "case", "variant", "repetition")
"""The names of the parameters that a Python function may have."""
_REASON: Final = 300


class NotEvaluated(ProseError):
    """An assertion could not be evaluated; `no_answer` is true if no judge could answer."""

    def __init__(self, reason: str, *, no_answer: bool = False) -> None:
        super().__init__(reason)
        self.no_answer = no_answer


class FinishedRun(Struct, frozen=True):
    """A finished run for assertions. `values` has its names and the columns of the case, `outputs` the outputs of the
    program. `judged` is called with the details of each judgement, to count them."""

    item: EvaluationItem
    machine: Machine
    values: Mapping[str, Value]
    outputs: Mapping[str, Value]
    result: Value
    judged: Callable[[Mapping[str, object]], None]


class Assertions:
    """The assertions of an evaluation. Raises `UsageError` for an assertion that can never be evaluated."""

    def __init__(self, spec: Spec) -> None:
        self._all = spec.assertions
        self._functions: dict[tuple[str, str], PythonFunction] = {}
        self._directory, modules = spec.path.parent, dict[str, ModuleType]()
        for number, one in enumerate(spec.assertions):
            if one.kind == "rule" and not rules.decidable(one.rule):
                raise spec.mistake(
                    ("assert", number, "rule"),
                    f"no rule reads `{one_line(one.rule, 80)}`",
                    'docs/reference/judge-rules.md has every form; in other words, ask the judge: judge = "..."',
                )
            if one.kind == "python" and (place := _function_key(self._directory, one.python)) not in self._functions:
                try:
                    limit = _load_seconds(spec, place)
                    self._functions[place] = PythonFunction(self._directory, one.python, limit, modules)
                except UsageError as problem:
                    raise spec.mistake(("assert", number, "python"), str(problem), problem.hint) from None

    async def check(self, ran: FinishedRun) -> tuple[list[Check], bool]:
        """Return the results of all assertions for a run, and whether one lacked a judge. Raises `BudgetSpent`."""
        found, no_answer = [], False
        for number, one in enumerate(self._all):
            try:
                score, reason = await self._score(one, number, ran)
                found.append(Check(one.name, score >= one.threshold, score, one_line(reason, _REASON)))
            except NotEvaluated as problem:
                no_answer |= problem.no_answer
                found.append(Check(one.name, False, 0.0, one_line(str(problem), _REASON), error=True))
        return found, no_answer

    async def _score(self, one: Assertion, number: int, ran: FinishedRun) -> tuple[float, str]:
        match one.kind:
            case "expression":
                return await _expression(one.expression, ran)
            case "rule":
                return _rule(one.rule, ran)
            case "judge":
                return await _judge(one.judge, number, ran)
            case _:
                return await self._functions[_function_key(self._directory, one.python)](ran, one.seconds)

    def score(self, checks: Sequence[Check]) -> float:
        """Return the score of a run: the weighted mean of its assertions."""
        weights = [one.weight for one in self._all]
        total = math.fsum(weights)
        if not total:
            return float(all(check.passed for check in checks))
        return math.fsum(w * check.score for w, check in zip(weights, checks, strict=True)) / total


async def _expression(text: str, ran: FinishedRun) -> tuple[float, str]:
    try:
        value = await ran.machine.evaluate(text)
    except CompileError as problem:
        raise NotEvaluated(f"the expression has an error: {problem}") from None
    except (RunError, UsageError) as problem:
        message = str(problem).replace(" while the debugger evaluates", " in an assertion")
        hint = getattr(problem, "hint", None) if isinstance(problem, RunError) else None
        raise NotEvaluated(message + (f" ({hint})" if hint else "")) from None
    named = [name for name in dict.fromkeys(NAME.findall(text)) if name in ran.values]
    return _number(value), ", ".join(f"{name} is {preview(ran.values[name])}" for name in named)


def _number(value: object) -> float:
    """Return the score of a result, from 0 to 1. Raises `NotEvaluated` for other values."""
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return float(min(max(value, 0), 1))
    raise NotEvaluated(f"true, false or a number from 0 to 1 is wanted, not {one_line(str(value), 60)!r}")


def _rule(text: str, ran: FinishedRun) -> tuple[float, str]:
    ruling = rules.decide(text, ran.values)
    if ruling.answer is None:
        raise NotEvaluated(f"no rule decides it: {ruling.why}")
    return float(ruling.answer), ruling.why


async def _judge(text: str, number: int, ran: FinishedRun) -> tuple[float, str]:
    request = JudgeRequest(text, f"{ran.item.at}a{number}/j0", ran.item.prepared.name, ran.values)
    try:
        verdict = await ran.machine.host.ports.judge.decide(request)
    except Undecided as problem:
        raise NotEvaluated(str(problem), no_answer=not problem.failed) from None
    except BudgetSpent:
        raise
    except ProseError as problem:
        raise NotEvaluated(str(problem)) from None
    ran.judged(verdict.details)
    if verdict.answer is None:
        raise NotEvaluated(f"the judge is uncertain: {verdict.reason}" if verdict.reason else "the judge is uncertain")
    return float(verdict.answer), verdict.reason


_LONGER: Final = "set a larger limit in the [[assert]], such as `seconds = 120`"
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class PythonFunction:
    """A function of a file, which is called in its own thread. After a call that exceeds its time limit, it is not
    called again, because the thread cannot be ended. `modules` are the files that are already loaded. Raises
    `UsageError` if there is no such function, or if its file is not loaded within `seconds`."""

    def __init__(
        self, directory: Path, python: str, seconds: float = 30, modules: dict[str, ModuleType] | None = None
    ) -> None:
        self._name = name = python.rpartition(":")[2]
        self._blocks = False
        self._function: Callable[..., Any] = _found(directory, python, seconds, {} if modules is None else modules)
        if inspect.iscoroutinefunction(self._function):
            raise UsageError(f"{name} is asynchronous", hint=f"write it without async: def {name}(...)")
        try:
            parameters = inspect.signature(self._function).parameters
        except (TypeError, ValueError):
            raise UsageError(f"{name} cannot be called") from None
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        named = [name for name, one in parameters.items() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
        for parameter in named:
            if parameter not in PARAMETERS and parameters[parameter].default is inspect.Parameter.empty:
                raise UsageError(f"{name} wants `{parameter}`", hint=f"it can ask for {', '.join(PARAMETERS)}")
        self._wanted = [name for name in PARAMETERS if takes_all or name in named]

    async def __call__(self, ran: FinishedRun, seconds: float) -> tuple[float, str]:
        if self._blocks:
            raise NotEvaluated(f"{self._name} has not ended before, and is not called again")
        outputs = {name: verbatim(value) for name, value in ran.outputs.items()}
        columns = ran.item.case.columns
        given: dict[str, Any] = {
            "output": next(iter(outputs.values())) if len(outputs) == 1 else verbatim(ran.result),
            "outputs": outputs,
            "bindings": {name: verbatim(value) for name, value in ran.values.items()},
            "expected": columns.get("expected"),
            "case": dict(columns),
            "variant": ran.item.prepared.variant.name,
            "repetition": ran.item.repetition,
        }
        return await self._called({name: given[name] for name in self._wanted}, seconds)

    async def _called(self, given: Mapping[str, Any], seconds: float) -> tuple[float, str]:
        def call() -> tuple[float, str]:
            try:
                return _scored(self._name, self._function(**given))
            except NotEvaluated:
                raise
            except BaseException as problem:  # also `SystemExit`, which ends only the function
                raise NotEvaluated(f"{self._name} raised {_raised(problem)}") from None

        try:
            return await asyncio.wait_for(in_daemon_thread(call, f"assertion {self._name}"), seconds)
        except TimeoutError:
            self._blocks = True
            raise NotEvaluated(f"{self._name} has not ended within {seconds:g} s") from None


def _raised(problem: BaseException) -> str:
    try:
        return f"{type(problem).__name__}: {problem}".rstrip(": ")
    except Exception:  # the exception has no valid text
        return type(problem).__name__


def _scored(name: str, value: object) -> tuple[float, str]:
    """Return score and reason of a function's result: a boolean or number, `False, "too long"`, or
    `{"score": 0.5, "reason": "..."}`."""
    reason: object = ""
    if isinstance(value, tuple) and len(value) == 2:
        value, reason = value
    elif isinstance(value, dict):
        fields: dict[str, object] = value
        value, reason = fields.get("score", value), fields.get("reason", "")
    if not isinstance(value, bool | int | float):
        shown = _ADDRESS.sub("", one_line(repr(value), 60))
        raise NotEvaluated(f"{name} gave {shown}: a boolean or a number is wanted, or a pair of it")
    return _number(value), str(reason)


def _function_key(directory: Path, python: str) -> tuple[str, str]:
    """Return the canonical path of a function's file, and the name of the function."""
    file, _, name = python.rpartition(":")
    path = directory / file
    return str(Path(os.path.realpath(path.parent), path.name)), name  # a link to a file is refused when it is read


def _load_seconds(spec: Spec, place: tuple[str, str]) -> float:
    """Return the time limit for loading a function's file: the largest limit of all assertions with this file."""
    directory = spec.path.parent
    return max(one.seconds for one in spec.assertions if _function_key(directory, one.python)[0] == place[0])


def _found(directory: Path, python: str, seconds: float, modules: dict[str, ModuleType]) -> Callable[..., Any]:
    (key, name), file = _function_key(directory, python), python.rpartition(":")[0]
    if key not in modules:
        modules[key] = _loaded(directory / file, file, seconds)
    module = modules[key]
    found = getattr(module, name, None)
    if not callable(found):
        names = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise UsageError(f"{file} has no function {name}", hint=nearest_hint(name, names))
    function: Callable[..., Any] = found
    return function


def _loaded(path: Path, file: str, seconds: float) -> ModuleType:
    require_agreed([path])
    try:
        text = plain_files.read(path, plain_files.SMALL)
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}") from None
    except OSError as problem:
        raise UsageError(f"{file} cannot be read: {reason_of(problem)}") from None
    title = f"prose_evaluation_{path.stem}"
    module = ModuleType(title)
    module.__file__ = str(path)
    sys.modules[title] = module  # dataclasses look up the module of their annotations there

    def load() -> None:  # from its source: another program may have written a compiled file into the cache
        exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102

    try:
        failed = start_thread(load, f"loading {file}").exception(seconds)
    except TimeoutError:  # raised by the wait; an error raised by the file is returned
        raise UsageError(f"{file} was not loaded within {seconds:g} s", hint=_LONGER) from None
    if failed is not None:
        raise UsageError(f"{file} cannot be loaded: {type(failed).__name__}: {failed}")
    return module
