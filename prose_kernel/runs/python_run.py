"""A run of the Python API, made from the arguments of `runs/api.py`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from prose_kernel.access import plain_files
from prose_kernel.errors import Interrupted, ProseError, UsageError, usage_errors
from prose_kernel.judging.python_function import FunctionJudge, JudgeFunction, shown
from prose_kernel.language.nearest import Nearest, containing, did_you_mean
from prose_kernel.language.structs import replace
from prose_kernel.models.providers.python_function import FunctionSessions, Provider
from prose_kernel.runs import languages
from prose_kernel.runs.context import Start
from prose_kernel.runs.execution import AcceptedValues, Program, Result, Status, Usage, to_end
from prose_kernel.runs.settings import Settings, all_settings, load
from prose_kernel.runs.workspace import Workspace
from prose_kernel.runtime import json_data
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.json_data import json_text
from prose_kernel.runtime.ports import Overrides, Store
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.values import ReadMapping, Value, verbatim

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.provider_chain import SessionServices

T = TypeVar("T")
_TEXT: Final = "program"
"""The name, in messages and in the run's log, of a program that is given as text."""
_UNATTENDED: Final = "the program was started from Python without an asker"


class Options(TypedDict, total=False):
    """The options that all functions of `runs/api.py` take by name.

    `settings` are changes by name to those of `prose.toml` and the environment (`{"provider": "anthropic", "budget":
    "2 usd"}`), or complete `Settings`. `asker` is the person; without one a question that nothing else answers is an
    error of the program. `provider` answers sessions, `judge` decides conditions that no rule decides: functions in
    place of the ones that the settings choose. `store` keeps the bindings (a `Store`; then the run has no directory and
    cannot be resumed). `cwd` is the directory of commands and relative paths, by default the current one. `gates`
    decides gates by name in advance. `listener` is called with each event, in the loop of the run.
    """

    settings: Settings | Mapping[str, object] | None
    asker: Asker | None
    provider: Provider
    judge: JudgeFunction
    store: Store
    cwd: str | Path
    gates: Mapping[str, bool]
    listener: Callable[[Event], None]


class PythonRun:
    """A workspace for the cells of a session, or for one program."""

    def __init__(self, start: Start, inputs: Mapping[str, object] | None, options: Options) -> None:
        """Raises `UsageError` for an invalid argument or setting, `TypeError` for an unknown option."""
        if unknown := sorted(options.keys() - Options.__optional_keys__):
            raise TypeError(f"there is no option `{unknown[0]}`")
        for name, given in (("inputs", inputs), *options.items()):
            if given is not None:
                _require(name, given)
        supplied = {name: _supplied(name, one) for name, one in (inputs or {}).items()}
        overrides = Overrides(
            sessions=FunctionSessions(provider) if (provider := options.get("provider")) is not None else None,
            judge=FunctionJudge(judge) if (judge := options.get("judge")) is not None else None,
            store=options.get("store"),
        )
        start = replace(start, supplied=supplied, decisions=_decisions(options.get("gates") or {}), overrides=overrides)
        settings, asker, listener = options.get("settings"), options.get("asker"), options.get("listener")
        if not isinstance(settings, Settings):
            settings = _loaded(start.cwd, settings or {})
        listeners = [listener] if listener is not None else []
        self.workspace = Workspace(settings, start, asker=asker or Unattended(why=_UNATTENDED), listeners=listeners)
        self._program: Program | None = None
        self._value: Value = None
        self._interrupted = False

    @classmethod
    def of(
        cls,
        program: str | Path | Program,
        inputs: Mapping[str, object] | None,
        options: Options,
        language: str | None = None,
    ) -> PythonRun:
        """Return the run of a program, compiling it if necessary. Raises `CompileError` and `UsageError`."""
        directory = directory_of(options)
        text, name, meant = _read(program, language, directory)
        run = cls(Start(directory, name, notebook=False, language=meant), inputs, options)
        if not isinstance(program, Program):
            compiled = languages.without_errors(run.workspace.compile(text, name, meant))
            warnings = tuple(compiled.diagnostics)
            declared, gates = tuple(meant.inputs(compiled.program)), tuple(meant.gates(compiled.program))
            program = Program(name, meant.name, declared, gates, warnings, compiled)
        accepted = AcceptedValues()
        accepted.add(program.compiled.program, meant, run.workspace.imports.of(meant).load_contract)
        accepted.check_inputs(inputs or (), "input ")
        accepted.check_gates(options.get("gates") or (), "gate ")
        run._program = program
        return run

    @property
    def program(self) -> Program:
        assert self._program is not None
        return self._program

    def bindings(self) -> Mapping[str, object]:
        return ReadMapping(self.workspace.values(), verbatim)

    async def run_to_end(self) -> Result:
        """Run the program, and end the run."""

        async def result(error: ProseError | None) -> Result:
            found = self._result(error)
            return replace(found, bindings=dict(found.bindings))  # they can be read only while the run is open

        return await to_end(lambda: self.workspace, self._run(self.program.compiled, self.workspace.language), result)

    async def text(self, text: str, language: Language) -> Result:
        """Compile and run a text, and return its result. The run stays open for further texts."""
        self._interrupted = False
        compiled = languages.without_errors(self.workspace.compile(text, "cell", language))
        try:
            await self._run(compiled, language)
        except ProseError as error:
            return self._result(error)
        return self._result(None)

    def interrupt(self) -> None:
        """End the text that runs, or that has begun to be compiled, from any thread."""
        self._interrupted = True
        self.workspace.interrupt()

    async def _run(self, compiled: Compiled, language: Language) -> None:
        """Run a text. Raises `Interrupted` after `interrupt`, and `CancelledError` if the caller was cancelled."""
        self._value = None
        try:
            running = self.workspace.run(compiled, language=language, interrupted=lambda: self._interrupted)
            self._value = await self._run_shielded(running)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Interrupted from None

    def _result(self, error: ProseError | None) -> Result:
        """Return the result of a text that ended with `error`. Raises a `UsageError` again: nothing has run."""
        if isinstance(error, UsageError):
            raise error
        status: Status = "interrupted" if isinstance(error, Interrupted) else "failed" if error else "completed"
        run = self.workspace.current
        return Result(
            status,
            verbatim(self._value),
            {name: verbatim(output) for name, (output, _) in self.workspace.outputs().items()},
            self.bindings(),
            error if status == "failed" else None,
            _usage(run.started_services) if run is not None else Usage(),
            run.id if run is not None else None,
            run.directory if run is not None else None,
        )

    async def _run_shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. If the caller is cancelled, interrupt the work instead of cancelling it, so
        that its commands end and its `finally` bodies run before the cancellation continues, also a second one."""
        from prose_kernel.processes.cross_loop import await_answer

        return await await_answer(asyncio.ensure_future(work), self.interrupt)


def _usage(services: SessionServices | None) -> Usage:
    if services is None:
        return Usage()
    total = services.usage.total
    return Usage(**{name: getattr(total, name) for name in Usage.__dataclass_fields__})


def directory_of(options: Options) -> Path:
    """Return the absolute working directory of the run. Raises `UsageError` if it does not exist."""
    cwd = options.get("cwd", ".")
    _require("cwd", cwd)
    return Path(cwd).absolute()


def _is_mapping_by_name(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(name, str) for name in given)


def _has_members(*members: str) -> Callable[[object], bool]:
    return lambda given: not isinstance(given, type) and all(hasattr(given, member) for member in members)


def _is_directory(given: object) -> bool:
    return isinstance(given, (str, os.PathLike)) and os.path.isdir(Path(given))  # noqa: PTH112 - never raises


def _is_program(given: object) -> bool:
    return isinstance(given, (str, Program)) or (isinstance(given, Path) and "\0" not in str(given))


_FUNCTION: Final = "a function (models are chosen by `settings`)"
_ACCEPTED: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "program": (_is_program, "a text, the `Path` of a file, or a compiled program"),
    "language": (lambda given: isinstance(given, str), f"one of {', '.join(languages.LANGUAGES)}"),
    "inputs": (_is_mapping_by_name, "values by name"),
    "settings": (
        lambda given: isinstance(given, Settings) or _is_mapping_by_name(given),
        "values by name, or `Settings`",
    ),
    "asker": (_has_members("ask", "show", "available"), "an object like `Asker`"),
    "provider": (callable, _FUNCTION),
    "judge": (callable, _FUNCTION),
    "store": (_has_members("put", "read", "watch"), "an object like `MemoryStore()`"),
    "cwd": (_is_directory, "an existing directory"),
    "gates": (_is_mapping_by_name, "decisions by name"),
    "listener": (callable, "a function"),
}
"""For each argument, a function that checks its value, and a description of the accepted values."""


def _require(name: str, given: object) -> None:
    """Raise `UsageError` if the value of an argument has the wrong type."""
    accepts, words = _ACCEPTED[name]
    if not accepts(given):
        raise UsageError(f"argument {name}: {words}, not {shown(given)}")


def _supplied(name: str, value: object) -> str:
    """Return the text of an input: its value, as JSON if it is not a text. Raises `UsageError` if that fails."""
    if isinstance(value, str):
        return value
    _require_json(name, value, json_data.LEVELS)
    return json_text(value)


def _require_json(name: str, value: object, levels: int) -> None:
    if not isinstance(value, (dict, list, tuple)):
        _require_leaf(name, value)
    elif levels == 0:
        raise UsageError(f"input {name} {json_data.DEEPER}")
    elif isinstance(value, dict):
        for key, item in value.items():
            _require_leaf(name, key)
            _require_json(name, item, levels - 1)
    else:
        for item in value:
            _require_json(name, item, levels - 1)


def _require_leaf(name: str, value: object) -> None:
    if not isinstance(value, (str, int, float, NoneType)) or (isinstance(value, float) and not isfinite(value)):
        raise UsageError(f"input {name}: text, or data for JSON, not {shown(value)}")


def _decisions(gates: Mapping[str, Any]) -> Mapping[str, bool]:
    """Return the decisions. Raises `UsageError` for one that is not a bool: a text such as `no` would be true."""
    for name, decision in gates.items():
        if not isinstance(decision, bool):
            raise UsageError(f"`gates`: the decision about {name} is True or False, not {shown(decision)}")
    return gates


def language_named(name: str) -> Language:
    _require("language", name)
    found = languages.LANGUAGES.get(name)
    if found is None:
        raise UsageError(f"there is no language `{name}`", hint=f"one of {', '.join(languages.LANGUAGES)}")
    return found


def _read(program: str | Path | Program, language: str | None, directory: Path) -> tuple[str, str, Language]:
    """Return text, name and language of a program. Raises `CompileError` (E109) and `UsageError`."""
    _require("program", program)
    if isinstance(program, Program):
        return "", program.name, language_named(program.language)
    if isinstance(program, str):
        if program.endswith(languages.suffixes()) and "\n" not in program:
            raise UsageError("a program given as a string is its text", hint=f"for a file: Path({program!r})")
        return program, _TEXT, language_named(language or languages.default().name)
    path, name = directory / program, str(program)
    with usage_errors(f"cannot read {name}"):
        data = plain_files.read_named(path)
    meant = languages.of_file(name)
    return meant.decode(data, name).text, name, language_named(language) if language else meant


def _loaded(directory: Path, changes: Mapping[str, Any]) -> Settings:
    known = all_settings()
    if (unknown := next((name for name in changes if name not in known), None)) is not None:
        near = Nearest()(unknown, known) or containing(unknown, known)
        raise UsageError(f"there is no setting `{unknown}`", hint=did_you_mean(near))
    return load(directory, **{name: _converted(name, value, known[name].type) for name, value in changes.items()})


def _converted(name: str, value: object, kind: Any) -> Any:
    """Convert a value to the type of its setting, except texts, which `load` converts. Raises `UsageError`."""
    from prose_kernel.runs.toml_file import accepted, convert

    if value is None or isinstance(value, (str, Path)):
        if "\0" in str(value):
            raise UsageError(f"setting {name}: a text without the character U+0000, not {shown(value)}")
        return str(value) if isinstance(value, Path) else value
    try:
        return convert(value, kind)
    except ValueError as problem:
        raise UsageError(f"setting {name}: {str(problem) or accepted(kind)}, not {shown(value)}") from None
