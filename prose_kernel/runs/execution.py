"""One execution of the Python API: a workspace for a program or for cells, made from the arguments of `runs/api.py`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import difflib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from prose_kernel.access import plain_files
from prose_kernel.errors import CompileError, Interrupted, ProseError, RunError, UsageError
from prose_kernel.judging.function import FunctionJudge, JudgeFunction
from prose_kernel.models.providers.function import FunctionSessions, Provider
from prose_kernel.runs import languages
from prose_kernel.runs.context import Start
from prose_kernel.runs.loop_thread import LoopThread
from prose_kernel.runs.result import Program, Result, Status, Usage
from prose_kernel.runs.settings import Settings, every, load
from prose_kernel.runs.workspace import Workspace, refuse_unknown_inputs
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.json_text import json_text
from prose_kernel.runtime.ports import Overrides, Store
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.values import DataView, Value, verbatim

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled, Language
    from prose_kernel.runs.session_chain import SessionServices

T = TypeVar("T")
_TEXT: Final = "program"
"""The name of a program that is given as text, in messages and in the run's log."""
_POLL_SECONDS: Final = 0.05
_UNATTENDED: Final = "the program was started from Python without an asker"


class Options(TypedDict, total=False):
    """The options that all functions of this module take by name.

    `provider` answers sessions, `judge` decides conditions that no rule decides: functions in place of the ones that
    the settings choose. `store` keeps the bindings (a `Store`; then the run has no directory and cannot be resumed).
    `cwd` is the directory of commands and relative paths, by default the current one. `gates` decides gates by name in
    advance. `listener` is called with each event, in the loop of the run.
    """

    provider: Provider
    judge: JudgeFunction
    store: Store
    cwd: str | Path
    gates: Mapping[str, bool]
    listener: Callable[[Event], None]


class Bridge:
    """Waits in the caller's thread for work on a loop in another thread."""

    def __init__(self) -> None:
        self._thread = LoopThread()

    def wait(self, work: Coroutine[Any, Any, T], interrupt: Callable[[], None]) -> T:
        """Return the result of the work. A `KeyboardInterrupt` is raised after the end of the work, which it calls for;
        a second one ends what is left."""
        future, pressed = self._thread.submit(work), None
        while not future.done():
            try:
                # a signal that another thread receives does not wake a thread which waits without a limit
                concurrent.futures.wait([future], timeout=_POLL_SECONDS)
            except KeyboardInterrupt as key:
                pressed = key
                interrupt()
        result = future.result()
        if pressed is not None:
            raise pressed
        return result

    def close(self) -> None:
        self._thread.close()

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class Execution:
    """A workspace, and the program that it is made for, if there is one."""

    def __init__(self, workspace: Workspace, program: Program | None = None) -> None:
        self.workspace = workspace
        self._program = program

    @classmethod
    def of(
        cls,
        program: str | Path | Program,
        inputs: Mapping[str, object] | None,
        settings: Settings | Mapping[str, object] | None,
        asker: Asker | None,
        options: Options,
        language: str | None = None,
    ) -> Execution:
        """Compile a program that is not compiled yet. Raises `CompileError` and `UsageError`."""
        directory = directory_of(options)
        text, name, meant = _read(program, language, directory)
        start = Start(directory, name, notebook=False, language=meant)
        workspace = workspace_for(start, inputs, settings, asker, options)
        if not isinstance(program, Program):
            compiled = compiled_text(workspace, text, name, meant)
            warnings = tuple(compiled.diagnostics)
            declared, gates = tuple(meant.inputs(compiled.program)), tuple(meant.gates(compiled.program))
            program = Program(name, meant.name, declared, gates, warnings, compiled)
        refuse_unknown_inputs(inputs or (), program.compiled, meant)
        return cls(workspace, program)

    @property
    def program(self) -> Program:
        assert self._program is not None
        return self._program

    def bindings(self) -> Mapping[str, object]:
        return DataView({name: named.info.value for name, named in self.workspace.bindings().items()})

    async def whole(self) -> Result:
        """Run the program, and end the run."""
        workspace, error = self.workspace, None
        try:
            result = await self.text(self.program.compiled, workspace.language)
            error = result.error if isinstance(result.error, RunError) else None
            if result.status == "interrupted":
                error = Interrupted()
            result = replace(result, bindings=dict(result.bindings))  # they can be read as long as the run is open
            try:
                await workspace.end(error)
            except RunError as unkept:
                return result if error is not None else replace(result, status="failed", error=unkept)
            return result
        finally:
            await workspace.close(error)

    async def text(self, compiled: Compiled, language: Language) -> Result:
        """Run one text in the run."""
        status: Status = "completed"
        value: Value = None
        failure: ProseError | None = None
        try:
            value = await self._finished(self.workspace.run(compiled, language=language))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            status = "interrupted"
        except UsageError:
            raise
        except ProseError as problem:
            status, failure = "failed", problem
        run = self.workspace.current
        outputs = {name: verbatim(output) for name, (output, _) in self.workspace.outputs().items()}
        usage = _usage(run.started_services) if run is not None else Usage()
        where = run.directory if run is not None else None
        run_id = run.id if run is not None else None
        return Result(status, verbatim(value), outputs, self.bindings(), failure, usage, run_id, where)

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, which is interrupted, not cancelled, when the caller is cancelled: its commands end,
        and `finally` bodies run, before the cancellation continues."""
        task = asyncio.ensure_future(work)
        while True:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.done():
                    raise
                self.workspace.interrupt()
                await asyncio.wait([task])
                raise


def _usage(services: SessionServices | None) -> Usage:
    if services is None:
        return Usage()
    total = services.usage.total
    return Usage(**{name: getattr(total, name) for name in Usage.__dataclass_fields__})


def directory_of(options: Options) -> Path:
    return Path(options.get("cwd", ".")).absolute()


def language_named(name: str) -> Language:
    found = languages.LANGUAGES.get(name)
    if found is None:
        raise UsageError(f"there is no language `{name}`", hint=f"one of {', '.join(languages.LANGUAGES)}")
    return found


def _read(program: str | Path | Program, language: str | None, directory: Path) -> tuple[str, str, Language]:
    """The text of a program, its name, and its language. Raises `CompileError` (E109) and `UsageError`."""
    if isinstance(program, Program):
        return "", program.name, language_named(program.language)
    if isinstance(program, str):
        if program.endswith(languages.suffixes()) and "\n" not in program:
            raise UsageError("a program given as a string is its text", hint=f"for a file: Path({program!r})")
        return program, _TEXT, language_named(language or languages.default().name)
    path, name = directory / program, str(program)
    try:
        data = plain_files.read_named(path)
    except OSError as problem:
        raise UsageError(f"cannot read {name}: {problem.strerror}") from None
    meant = languages.of_file(name)
    return meant.decode(data, name).text, name, language_named(language) if language else meant


def workspace_for(
    start: Start,
    inputs: Mapping[str, object] | None,
    settings: Settings | Mapping[str, object] | None,
    asker: Asker | None,
    options: Options,
) -> Workspace:
    """Raises `UsageError` for settings that make no sense."""
    supplied = {name: one if isinstance(one, str) else json_text(one) for name, one in (inputs or {}).items()}
    start = replace(start, supplied=supplied, decisions=options.get("gates", {}), overrides=_overrides(options))
    if not isinstance(settings, Settings):
        settings = _loaded(start.cwd, settings or {})
    listener = options.get("listener")
    listeners = [listener] if listener is not None else []
    return Workspace(settings, start, asker=asker or Unattended(why=_UNATTENDED), listeners=listeners)


def _loaded(directory: Path, changes: Mapping[str, Any]) -> Settings:
    known = every()
    if (unknown := next((name for name in changes if name not in known), None)) is not None:
        near = difflib.get_close_matches(unknown, known, n=1)
        raise UsageError(f"there is no setting `{unknown}`", hint=f"did you mean {near[0]}?" if near else None)
    return load(directory, **changes)


def _overrides(options: Options) -> Overrides:
    provider, judge = options.get("provider"), options.get("judge")
    return Overrides(
        sessions=FunctionSessions(provider) if provider is not None else None,
        judge=FunctionJudge(judge) if judge is not None else None,
        store=options.get("store"),
    )


def compiled_text(workspace: Workspace, text: str, name: str, language: Language) -> Compiled:
    compiled = workspace.compile(text, name, language)
    if not compiled.ok:
        raise CompileError(compiled.diagnostics)
    return compiled
