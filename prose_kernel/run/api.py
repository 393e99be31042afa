"""The Python API: run programs, feed cells, watch events.

`run` and `Session` are for code without an event loop, and may be called from any thread, also while a loop is running
there: they use a loop in a thread of their own. `arun`, `AsyncSession` and `stream` run in the caller's loop.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, Unpack

from prose_kernel.access import plain_files
from prose_kernel.errors import CompileError, Interrupted, ProseError, RunError, UsageError
from prose_kernel.judging.function import FunctionJudge, JudgeFunction
from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.models.providers.function import FunctionSessions, Provider
from prose_kernel.run import languages
from prose_kernel.run.context import Start
from prose_kernel.run.loop_thread import LoopThread
from prose_kernel.run.settings import Settings, every, load
from prose_kernel.run.workspace import Workspace, refuse_unknown_inputs
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.json_text import json_text
from prose_kernel.runtime.ports import Overrides, Store
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.values import DataView, Value, verbatim

if TYPE_CHECKING:
    from prose_kernel.run.languages import Compiled, Language
    from prose_kernel.run.session_chain import SessionServices

T = TypeVar("T")
Status = Literal["completed", "failed", "interrupted"]
_TEXT: Final = "program"
"""The name of a program that is given as text, in messages and in the run's log."""
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


@dataclass(frozen=True, slots=True)
class Usage:
    """The consumption of a run. `cost` is in US dollars, as far as prices are known; `replayed` counts answers from
    recordings."""

    sessions: int = 0
    judgements: int = 0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    replayed: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """How a program or a cell has ended.

    `value` is that of its last statement, `outputs` and `bindings` are values by name, as JSON data; texts are those of
    the program, so output of commands ends with its newline. `error` is set when the status is `failed`: its `code`,
    `message`, `hint` and `location` (`line`, `column`, `text`) say what happened where. `run_id` and `directory` are
    None for a run in memory.
    """

    status: Status
    value: object = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    bindings: Mapping[str, object] = field(default_factory=dict, repr=False)
    error: ProseError | None = None
    usage: Usage = Usage()
    run_id: str | None = None
    directory: Path | None = None

    def raise_for_error(self) -> Result:
        """Raise `error` if the program failed, and `RunError` if it was interrupted; else return the result."""
        if self.error is not None:
            raise self.error
        if self.status == "interrupted":
            raise Interrupted
        return self


@dataclass(frozen=True, slots=True)
class Program:
    """A program without errors. `inputs` and `gates` are names in the order of the text, `warnings` its other
    diagnostics."""

    name: str
    language: str
    inputs: tuple[str, ...]
    gates: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]
    compiled: Compiled = field(repr=False)


# ---------------------------------------------------------------- functions


def compile(
    program: str | Path,
    *,
    language: str | None = None,
    settings: Settings | Mapping[str, object] | None = None,
    cwd: str | Path = ".",
) -> Program:
    """Check a program and the programs that it imports; nothing runs.

    `program` is a text, or the `Path` of a file. `language` is `openprose` or `vvm`; None: that of the file's suffix,
    for a text OpenProse. Raises `CompileError`, which holds all diagnostics, and `UsageError`.
    """
    return _Execution.of(program, None, settings, None, Options(cwd=cwd), language).program


def run(
    program: str | Path | Program,
    inputs: Mapping[str, object] | None = None,
    *,
    settings: Settings | Mapping[str, object] | None = None,
    asker: Asker | None = None,
    **options: Unpack[Options],
) -> Result:
    """Run a program and wait for its end.

    `inputs` are the values of its inputs: texts, or data that becomes JSON. `settings` are changes by name to those of
    `prose.toml` and the environment (`{"provider": "anthropic", "budget": "2 usd"}`), or complete `Settings`. `asker`
    is the person; without one a question that nothing else answers is an error of the program.

    Raises `CompileError` or `UsageError` if nothing has run; an error of the running program is in the result. Ctrl-C
    ends the program first, then raises `KeyboardInterrupt`.
    """
    with _Bridge() as bridge:
        execution = _Execution.of(program, inputs, settings, asker, options)
        return bridge.wait(execution.whole(), execution.workspace.interrupt)


async def arun(
    program: str | Path | Program,
    inputs: Mapping[str, object] | None = None,
    *,
    settings: Settings | Mapping[str, object] | None = None,
    asker: Asker | None = None,
    **options: Unpack[Options],
) -> Result:
    """`run` in the caller's event loop. Cancelling the call ends the program's commands and sessions first."""
    return await _Execution.of(program, inputs, settings, asker, options).whole()


def stream(
    program: str | Path | Program,
    inputs: Mapping[str, object] | None = None,
    *,
    settings: Settings | Mapping[str, object] | None = None,
    asker: Asker | None = None,
    **options: Unpack[Options],
) -> EventStream:
    """Run a program and iterate over its events (`prose_kernel.events`) while it runs::

        async with stream(program) as running:
            async for event in running:
                ...
        print(running.result)

    Takes the arguments of `run` and raises what it raises.
    """
    return EventStream(_Execution.of(program, inputs, settings, asker, options))


class EventStream:
    """A running program as an async iterator over its events; made by `stream`.

    `result` is set when the iteration has ended. Leaving the `async with` block early ends the program.
    """

    def __init__(self, execution: _Execution) -> None:
        self.result: Result | None = None
        self._execution = execution
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[Result] | None = None
        execution.workspace.add_listener(self._events.put_nowait)

    def interrupt(self) -> None:
        """End the program, from any thread; the iteration continues to its end, with the status `interrupted`."""
        self._execution.workspace.interrupt()

    async def __aenter__(self) -> EventStream:
        self._task = asyncio.create_task(self._execution.whole())
        self._task.add_done_callback(lambda task: self._events.put_nowait(None))
        return self

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.get() if self.result is None else None
        if event is not None:
            return event
        assert self._task is not None
        self.result = await self._task
        raise StopAsyncIteration

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


# ---------------------------------------------------------------- cells


class AsyncSession:
    """A run that is fed cell by cell, in the caller's event loop: `async with AsyncSession() as session`.

    Names stay bound from cell to cell; an error in one leaves them as they are. `language` is that of cells that name
    none. The other arguments are those of `run`.
    """

    def __init__(
        self,
        inputs: Mapping[str, object] | None = None,
        *,
        language: str = "openprose",
        settings: Settings | Mapping[str, object] | None = None,
        asker: Asker | None = None,
        **options: Unpack[Options],
    ) -> None:
        start = Start(_directory(options), "cells", language=_language(language))
        self._execution = _Execution(_workspace(start, inputs, settings, asker, options))
        self._error: RunError | None = None

    @property
    def bindings(self) -> Mapping[str, object]:
        """The bindings of the run as JSON data, in the order in which they were bound."""
        return self._execution.bindings()

    async def cell(self, text: str, *, language: str | None = None) -> Result:
        """Run a cell. Raises `CompileError` or `UsageError` if nothing of it has run."""
        workspace = self._execution.workspace
        meant = _language(language) if language is not None else workspace.language
        result = await self._execution.text(_compiled(workspace, text, "cell", meant), meant)
        self._error = result.error if isinstance(result.error, RunError) else None
        return result

    def interrupt(self) -> None:
        """End the cell that is running, from any thread."""
        self._execution.workspace.interrupt()

    async def close(self) -> None:
        """End the run and every process that it has left."""
        await self._execution.workspace.close(self._error)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Session:
    """`AsyncSession` for code without an event loop: `with Session() as session: session.cell("...")`.

    Its methods may be called from any thread; cells of several threads run one after the other.
    """

    def __init__(
        self,
        inputs: Mapping[str, object] | None = None,
        *,
        language: str = "openprose",
        settings: Settings | Mapping[str, object] | None = None,
        asker: Asker | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._session = AsyncSession(inputs, language=language, settings=settings, asker=asker, **options)
        self._bridge = _Bridge()
        self._turn = threading.Lock()

    @property
    def bindings(self) -> Mapping[str, object]:
        """The bindings of the run as JSON data, in the order in which they were bound."""
        return self._session.bindings

    def cell(self, text: str, *, language: str | None = None) -> Result:
        """Run a cell and wait for its end. Raises `CompileError` or `UsageError` if nothing of it has run. Ctrl-C ends
        the cell first, then raises `KeyboardInterrupt`."""
        with self._turn:
            return self._bridge.wait(self._session.cell(text, language=language), self._session.interrupt)

    def interrupt(self) -> None:
        """End the cell that is running, from another thread."""
        self._session.interrupt()

    def close(self) -> None:
        """End the run and every process that it has left."""
        with self._turn:
            self._bridge.wait(self._session.close(), self._session.interrupt)
            self._bridge.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# ---------------------------------------------------------------- inside


class _Bridge:
    """Waits in the caller's thread for work on a loop in another thread."""

    def __init__(self) -> None:
        self._thread = LoopThread()

    def wait(self, work: Coroutine[Any, Any, T], interrupt: Callable[[], None]) -> T:
        """Return the result of the work. A `KeyboardInterrupt` is raised after the end of the work, which it calls for;
        a second one ends what is left."""
        future, pressed = self._thread.submit(work), None
        while True:
            try:
                result = future.result()
            except KeyboardInterrupt as key:
                pressed = key
                interrupt()
                continue
            if pressed is not None:
                raise pressed
            return result

    def close(self) -> None:
        self._thread.close()

    def __enter__(self) -> _Bridge:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class _Execution:
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
    ) -> _Execution:
        """Compile a program that is not compiled yet. Raises `CompileError` and `UsageError`."""
        directory = _directory(options)
        text, name, meant = _read(program, language, directory)
        start = Start(directory, name, notebook=False, language=meant)
        workspace = _workspace(start, inputs, settings, asker, options)
        if not isinstance(program, Program):
            compiled = _compiled(workspace, text, name, meant)
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


def _directory(options: Options) -> Path:
    return Path(options.get("cwd", ".")).absolute()


def _language(name: str) -> Language:
    found = languages.LANGUAGES.get(name)
    if found is None:
        raise UsageError(f"there is no language `{name}`", hint=f"one of {', '.join(languages.LANGUAGES)}")
    return found


def _read(program: str | Path | Program, language: str | None, directory: Path) -> tuple[str, str, Language]:
    """The text of a program, its name, and its language. Raises `CompileError` (E109) and `UsageError`."""
    if isinstance(program, Program):
        return "", program.name, _language(program.language)
    if isinstance(program, str):
        if program.endswith(languages.suffixes()) and "\n" not in program:
            raise UsageError("a program given as a string is its text", hint=f"for a file: Path({program!r})")
        return program, _TEXT, _language(language or languages.default().name)
    path, name = directory / program, str(program)
    try:
        data = plain_files.read_named(path)
    except OSError as problem:
        raise UsageError(f"cannot read {name}: {problem.strerror}") from None
    meant = languages.of_file(name)
    return meant.decode(data, name).text, name, _language(language) if language else meant


def _workspace(
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


def _compiled(workspace: Workspace, text: str, name: str, language: Language) -> Compiled:
    compiled = workspace.compile(text, name, language)
    if not compiled.ok:
        raise CompileError(compiled.diagnostics)
    return compiled
