"""The memory of persistent agents: one session at a time, read before and written after it (openprose.md 4.4)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prose_kernel.errors import ProviderError
from prose_kernel.runtime.ports import (
    AgentMemory,
    Clock,
    ContextItem,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Sessions,
)
from prose_kernel.sessions import remembering
from prose_kernel.sessions.options import Surroundings
from prose_kernel.sessions.remembering import MemoryFiles
from prose_kernel.sessions.tools.threads import in_thread

if TYPE_CHECKING:
    from filelock import BaseFileLock

PATIENCE: Final = 300.0
"""Seconds to wait for a memory that another process uses."""

LOCK: Final = ".lock"
_SHORTEST, _LONGEST = 0.05, 1.0

OnProgress = Callable[[SessionProgress], None]


class Memories:
    """What sessions of one run share: whose turn it is at each memory, and memories that live with the run alone.

    It outlives a change of provider.
    """

    def __init__(self) -> None:
        self.turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.of_the_run: dict[str, str] = {}


class RememberingSessions:
    """The `Sessions` port around another one, for agents with memory; all other sessions pass unchanged.

    The inner one gets `AgentMemory.text` and `.segment` filled in. Afterwards both files are written: with
    `memory_after` and `segment` of the result, or as the session left them, or by the machine in its place. An
    attempt that fails leaves the memory as it was. Sessions of one memory run one after the other, also those of
    other processes. Where a run lives in memory alone, so does memory that lives with the run: `directory` is then
    empty, and the session is told the text.
    """

    def __init__(self, inner: Sessions, where: Surroundings, clock: Clock, memories: Memories | None = None) -> None:
        self._inner = inner
        self._where = where
        self._clock = clock
        self._memories = memories or Memories()

    async def run(self, request: SessionRequest, on_progress: OnProgress) -> SessionResult:
        """Raises what the inner one raises, and `ProviderError` for a memory that cannot be read, kept or locked."""
        request = await self._with_contents(request)
        memory = request.memory
        if memory is None:
            return await self._inner.run(request, on_progress)
        if memory.scope == "true" and request.target is None:
            return await self._in_the_run(request, memory, on_progress)
        return await self._in_a_directory(request, memory, on_progress)

    # ------------------------------------------------------------ memory in a directory

    async def _in_a_directory(
        self, request: SessionRequest, memory: AgentMemory, on_progress: OnProgress
    ) -> SessionResult:
        directory = self._resolved(memory)
        async with self._memories.turns[directory], self._locked(directory, memory, on_progress):
            files = await in_thread(lambda _stop: MemoryFiles(directory, memory))
            try:
                result = await self._inner.run(self._told(request, memory, files), on_progress)
                await in_thread(lambda _stop: files.keep(request, result, self._clock.now()))
            except BaseException:
                files.restore()
                raise
            return result

    def _resolved(self, memory: AgentMemory) -> str:
        return os.path.realpath(os.path.join(self._where.cwd, memory.directory))  # noqa: PTH118 - text in, text out

    def _told(self, request: SessionRequest, memory: AgentMemory, files: MemoryFiles) -> SessionRequest:
        segment = f"{memory.directory.rstrip('/')}/{files.segment_name}"
        text = files.former if memory.resume else None
        return dataclasses.replace(request, memory=dataclasses.replace(memory, text=text, segment=segment))

    @contextlib.asynccontextmanager
    async def _locked(self, directory: str, memory: AgentMemory, on_progress: OnProgress) -> AsyncIterator[None]:
        """Hold the directory's lock file, against other processes. Raises `ProviderError` when one keeps it."""
        from filelock import FileLock

        lock = FileLock(os.path.join(directory, LOCK), thread_local=False)  # noqa: PTH118
        start, pause = self._clock.monotonic(), _SHORTEST
        while not _taken(lock, directory, memory):
            if self._clock.monotonic() - start >= PATIENCE:
                raise ProviderError(
                    f"the memory of agent '{memory.agent}' is in use by another process",
                    hint=f"it was waited for {PATIENCE / 60:g} minutes: let one program at a time use this agent",
                )
            if pause == _SHORTEST:
                on_progress(SessionProgress("note", f"waiting: another process uses the memory of '{memory.agent}'"))
            await self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST)
        try:
            yield
        finally:
            lock.release()

    # ------------------------------------------------------------ memory in the run

    async def _in_the_run(self, request: SessionRequest, memory: AgentMemory, on_progress: OnProgress) -> SessionResult:
        """Memory that nothing is written for: kept as text as long as the run lives."""
        name = f"{request.program}\n{memory.directory}"
        async with self._memories.turns[name]:
            former = self._memories.of_the_run.get(name)
            told = dataclasses.replace(memory, directory="", text=former if memory.resume else None)
            result = await self._inner.run(dataclasses.replace(request, memory=told), on_progress)
            if result.memory_after is not None:
                self._memories.of_the_run[name] = result.memory_after
            elif result.origin != remembering.NOT_RUN:
                self._memories.of_the_run[name] = remembering.memory_text(told, request, result)
            return result

    # ------------------------------------------------------------ memory as context

    async def _with_contents(self, request: SessionRequest) -> SessionRequest:
        """The request with the contents of memories that are its context: nobody further in could tell them."""
        if not any(item.location and item.content is None and not item.missing for item in request.context or ()):
            return request
        items = [await self._with_content(item) for item in request.context or ()]
        return dataclasses.replace(request, context=tuple(items))

    async def _with_content(self, item: ContextItem) -> ContextItem:
        if item.missing or not item.location or item.content is not None:
            return item
        path = Path(self._where.cwd, item.location)
        return dataclasses.replace(item, content=await in_thread(lambda _stop: _text(path)))


def _taken(lock: BaseFileLock, directory: str, memory: AgentMemory) -> bool:
    """Whether the lock is ours now. Raises `ProviderError` where there can be none."""
    from filelock import Timeout

    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except (OSError, NotImplementedError) as error:
        raise remembering.not_kept(memory, error) from None
    return True


def _text(path: Path) -> str | None:
    try:
        return remembering.read(path)
    except ValueError:
        return None
