"""The Python API: run programs, feed cells, watch events.

`run` and `Session` are for code without an event loop, and may be called from any thread, also while a loop is running
there: they use a loop in a separate thread. `arun`, `AsyncSession` and `stream` run in the caller's loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from pathlib import Path
from typing import Unpack

from prose_kernel.errors import RunError, UsageError
from prose_kernel.runs.context import Start
from prose_kernel.runs.execution import Program, Result
from prose_kernel.runs.loop_thread import LoopThread
from prose_kernel.runs.python_run import Options, PythonRun, directory_of, language_named
from prose_kernel.runs.settings import Settings
from prose_kernel.runtime.events import Event


def compile(
    program: str | Path,
    *,
    language: str | None = None,
    settings: Settings | Mapping[str, object] | None = None,
    cwd: str | Path = ".",
) -> Program:
    """Check a program and the programs that it imports; nothing runs.

    `program` is a text, or the `Path` of a file. `language` is `openprose` or `vvm`, by default the one of the file's
    suffix, and OpenProse for a text. Raises `CompileError`, which holds all diagnostics, and `UsageError`.
    """
    return PythonRun.of(program, None, Options(settings=settings, cwd=cwd), language).program


def run(
    program: str | Path | Program, inputs: Mapping[str, object] | None = None, **options: Unpack[Options]
) -> Result:
    """Run a program and wait for its end.

    `inputs` are the values of its inputs: texts, or data that becomes JSON. The options are `settings`, `asker`,
    `provider`, `judge`, `store`, `cwd`, `gates` and `listener` (docs/reference/python.md).

    Raises `CompileError` or `UsageError` if nothing has run; an error of the running program is in the result. Ctrl-C
    ends the program first, then raises `KeyboardInterrupt`.
    """
    with closing(LoopThread()) as thread:
        made = PythonRun.of(program, inputs, options)
        return thread.wait(made.run_to_end(), made.interrupt)


async def arun(
    program: str | Path | Program, inputs: Mapping[str, object] | None = None, **options: Unpack[Options]
) -> Result:
    """`run` in the caller's event loop. Cancelling the call ends the program's commands and sessions first."""
    return await PythonRun.of(program, inputs, options).run_to_end()


def stream(
    program: str | Path | Program, inputs: Mapping[str, object] | None = None, **options: Unpack[Options]
) -> EventStream:
    """Run a program and iterate over its events (`prose_kernel.events`) while it runs::

        async with stream(program) as running:
            async for event in running:
                ...
        print(running.result)

    Takes the same arguments and raises the same errors as `run`.
    """
    return EventStream(PythonRun.of(program, inputs, options))


class EventStream:
    """A running program as an async iterator over its events; made by `stream`.

    `result` is set when the iteration has ended. Leaving the `async with` block early ends the program.
    """

    def __init__(self, execution: PythonRun) -> None:
        self.result: Result | None = None
        self._execution = execution
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[Result] | None = None
        execution.workspace.add_listener(self._events.put_nowait)

    def interrupt(self) -> None:
        """End the program, from any thread; the iteration continues to its end, with the status `interrupted`."""
        self._execution.interrupt()

    async def __aenter__(self) -> EventStream:
        self._task = asyncio.create_task(self._execution.run_to_end())
        self._task.add_done_callback(lambda task: self._events.put_nowait(None))
        return self

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._task is None:
            hint = "async with prose_kernel.stream(...) as running"
            raise UsageError("the program of a stream runs inside `async with`", hint=hint)
        event = await self._events.get() if self.result is None else None
        if event is not None:
            return event
        self.result = await self._task
        raise StopAsyncIteration

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


# ---------------------------------------------------------------- cells


class AsyncSession(AbstractAsyncContextManager["AsyncSession"]):
    """A run that is fed cell by cell, in the caller's event loop: `async with AsyncSession() as session`.

    Names stay bound from cell to cell, also after an error. Cells of several tasks run one after the other. `language`
    is the language of cells that do not name one; the other arguments are those of `run`.
    """

    def __init__(
        self, inputs: Mapping[str, object] | None = None, *, language: str = "openprose", **options: Unpack[Options]
    ) -> None:
        start = Start(directory_of(options), "cells", language=language_named(language))
        self._execution = PythonRun(start, inputs, options)
        self._error: RunError | None = None
        self._turn = asyncio.Lock()

    @property
    def bindings(self) -> Mapping[str, object]:
        """The bindings of the run as JSON data, in the order in which they were bound."""
        return self._execution.bindings()

    async def cell(self, text: str, *, language: str | None = None) -> Result:
        """Run a cell. Raises `CompileError` or `UsageError` if nothing of it has run."""
        async with self._turn:
            meant = language_named(language) if language is not None else self._execution.workspace.language
            result = await self._execution.text(text, meant)
            self._error = result.error if isinstance(result.error, RunError) else None
            return result

    def interrupt(self) -> None:
        """End the cell that is running, from any thread."""
        self._execution.interrupt()

    async def close(self) -> None:
        """End the run and all of its processes, also a cell that another task runs."""
        if self._turn.locked():
            self.interrupt()
        async with self._turn:
            await self._execution.workspace.close(self._error)

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Session(AbstractContextManager["Session"]):
    """`AsyncSession` for code without an event loop: `with Session() as session: session.cell("...")`.

    Its methods may be called from any thread; cells of several threads run one after the other.
    """

    def __init__(
        self, inputs: Mapping[str, object] | None = None, *, language: str = "openprose", **options: Unpack[Options]
    ) -> None:
        self._session = AsyncSession(inputs, language=language, **options)
        self._thread = LoopThread()
        self._turn = threading.Lock()

    @property
    def bindings(self) -> Mapping[str, object]:
        """The bindings of the run as JSON data, in the order in which they were bound."""
        return self._session.bindings

    def cell(self, text: str, *, language: str | None = None) -> Result:
        """Run a cell and wait for its end. Raises `CompileError` or `UsageError` if nothing of it has run. Ctrl-C ends
        the cell first, then raises `KeyboardInterrupt`."""
        with self._turn:
            return self._thread.wait(self._session.cell(text, language=language), self._session.interrupt)

    def interrupt(self) -> None:
        """End the cell that is running, from another thread."""
        self._session.interrupt()

    def close(self) -> None:
        """End the run and all of its processes."""
        with self._turn:
            self._thread.wait(self._session.close(), self._session.interrupt)
            self._thread.close()

    def __exit__(self, *_: object) -> None:
        self.close()
