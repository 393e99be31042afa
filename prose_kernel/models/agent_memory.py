"""The memory of persistent agents: its files, used by one session at a time (reference 4.4)."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from prose_kernel.access import safe_files as places
from prose_kernel.access.plain_files import stamp_of
from prose_kernel.errors import ProviderError
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped, one_line
from prose_kernel.models import memory_directory
from prose_kernel.models.session_prompt import memory_file, next_segment, summarise
from prose_kernel.models.tools.tool import ToolFailed, ToolRefused, in_thread
from prose_kernel.models.usage_and_prices import discarded
from prose_kernel.runtime import open_request
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import (
    AgentMemory,
    Clock,
    ContextItem,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Sessions,
)
from prose_kernel.runtime.session_options import Surroundings

MEMORY: Final = "memory.md"
MEMORY_LIMIT: Final = 1024 * 1024
NOT_RUN: Final = "dry-run"
"""The origin of an answer without a provider: it leaves no memory."""

_PROMPT_LENGTH: Final = 2000
_HEADING: Final = "## Sessions"
_SEGMENT: Final = re.compile(r".+-\d{3,}\.md")
_TITLE: Final = re.compile(r"# Segment \d+(?=\n|$)")


class MemoryFiles:
    """The memory of an agent while one session uses it; the caller holds its lock.

    `former` is the text of `memory.md` at the start (None: no such file), `segment_name` the file of this invocation.
    Raises `ProviderError` for an existing memory that cannot be read as text.
    """

    def __init__(self, directory: str, memory: AgentMemory) -> None:
        self._memory = memory
        self._path = Path(directory, MEMORY)
        try:
            self.former = read(self._path)
        except ValueError as problem:
            raise ProviderError(
                f"the memory of agent '{memory.agent}' cannot be read: {problem}",
                retryable=False,
                hint=f"repair or remove {_place(memory)}; nothing in it was changed",
            ) from None
        self._stamp = stamp_of(self._path)
        self._segment = Path(next_segment(directory, memory.agent))
        self.segment_name = self._segment.name

    def keep(self, request: SessionRequest, result: SessionResult, now: datetime) -> None:
        """Ensure that both files exist: from the result, as the session wrote them, or generated."""
        if result.origin == NOT_RUN:
            return
        if result.memory_after is not None:
            self._write(self._path, result.memory_after)
        elif stamp_of(self._path) == self._stamp or not (self._stamp or self._path.exists()):
            # also in place of a link to a missing file
            self._write(self._path, memory_text(self._memory, request, result, self.former))
        if result.segment is not None:
            number = self._segment.stem.rpartition("-")[2]
            self._write(self._segment, _TITLE.sub(f"# Segment {number}", result.segment, count=1))
        elif not self._segment.exists():
            self._write(self._segment, segment_text(self._segment.stem, request, result, now))

    def texts(self) -> tuple[str | None, str | None]:
        """Return the current memory and segment; None for a file that is missing or not text."""
        return _text(self._path), _text(self._segment)

    def _write(self, path: Path, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if len(data) > MEMORY_LIMIT:
            raise ProviderError(
                f"the session's memory of agent '{self._memory.agent}' has {len(data):,} bytes; at most "
                f"{MEMORY_LIMIT:,} can be kept",
                hint="ask the agent to compact its memory; the former one is unchanged",
            )
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                return
        try:
            memory_directory.write(path, data)
        except (ToolFailed, ToolRefused) as error:
            raise not_kept(self._memory, error) from None


def read(path: Path) -> str | None:
    """Return the text of a memory file; None if it does not exist. Raises `ValueError` with the reason."""
    data, _ = memory_directory.contents(path, MEMORY_LIMIT + 1)
    if data is None:
        return None
    if len(data) > MEMORY_LIMIT:
        raise ValueError(f"{path.name} is larger than {MEMORY_LIMIT:,} bytes")
    return memory_directory.decoded(path.name, data)


def not_kept(memory: AgentMemory, error: Exception) -> ProviderError:
    """Return the error for a memory that could not be written, before or after the session."""
    why = places.reason(error) if isinstance(error, OSError) else str(error)
    return ProviderError(
        f"the memory of agent '{memory.agent}' cannot be kept: {why}",
        retryable=False,
        hint=f"it belongs into {_place(memory)}",
    )


def _place(memory: AgentMemory) -> str:
    """Return the location of the memory for messages: its path, unless that differs in every run."""
    return f"agents/{memory.agent}/memory.md in the run's directory" if memory.scope == "true" else memory_file(memory)


# ---------------------------------------------------------------- texts for sessions that wrote none


def memory_text(memory: AgentMemory, request: SessionRequest, result: SessionResult, former: str | None = None) -> str:
    """Return a memory for an agent whose session wrote none: on `resume` the former text, and a line for this session.

    The text is a part of later recordings' keys: it must not depend on the date or on the number of runs.
    """
    line = f"- {one_line(request.task, 200) or 'no task'}: {_summary(result)}\n"
    kept = (former if former is not None else memory.text) if memory.resume else None
    if kept is None or not kept.strip():
        return f"# {memory.agent}\n\n{_HEADING}\n\n{line}"
    kept = kept.rstrip("\n")
    headings = [each for each in kept.split("\n") if each.startswith("#")]
    if headings and headings[-1] == _HEADING:
        return f"{kept}\n{line}"
    return f"{kept}\n\n{_HEADING}\n\n{line}"


def segment_text(stem: str, request: SessionRequest, result: SessionResult, now: datetime) -> str:
    """Return the segment (the record of one invocation) if the session wrote none."""
    prompt = clipped(request.task, _PROMPT_LENGTH, kept=_PROMPT_LENGTH)
    return (
        f"# Segment {stem.rpartition('-')[2]}\n\n"
        f"timestamp: {timestamp(now, 'seconds', zone='+00:00')}\n"
        f"prompt: {json.dumps(prompt, ensure_ascii=False)}\n\n"
        f"## Summary\n\n- {_summary(result)}\n"
    )


def _summary(result: SessionResult) -> str:
    return one_line(result.summary or summarise(result.text or "")) or "no answer"


# ---------------------------------------------------------------- one session at a time

PATIENCE: Final = 300.0
"""The number of seconds to wait for a memory that another process uses."""

LOCK: Final = memory_directory.LOCKS[0]

OnProgress = Callable[[SessionProgress], None]


class RememberingSessions:
    """A `Sessions` port that wraps another one and handles agents with memory; other sessions pass unchanged.

    The inner port gets `AgentMemory.text` and `.segment` filled in. Afterwards both files are written: with
    `memory_after` and `segment` of the result, as the session left them, or with generated text. A failed attempt
    leaves the memory unchanged. Sessions that share a memory run one after the other, across processes, too. If a run
    is kept in memory only, so is an agent's memory that belongs to the run: `directory` is then empty, and the session
    is sent the text.
    """

    def __init__(
        self, inner: Sessions, where: Surroundings, clock: Clock, memories: memory_directory.Memories | None = None
    ) -> None:
        self._inner = inner
        self._where = where
        self._clock = clock
        self._memories = memories or memory_directory.Memories()

    async def run(self, request: SessionRequest, on_progress: OnProgress) -> SessionResult:
        """Run a session. Raises the errors of the inner port, and `ProviderError` for a memory that cannot be read,
        kept or locked."""
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
        directory = _resolved(self._where.cwd, memory)
        turn = self._memories.turns[directory]
        await turn.acquire()
        with contextlib.ExitStack() as held:
            held.callback(turn.release)
            await self._lock(directory, memory, on_progress, held)
            result: SessionResult | None = None
            try:
                files = await in_thread(lambda _stop: self._opened(directory, memory))
                if memory.scope != "true":
                    self._memories.compare(
                        directory, memory_directory.digest_of(files.former), f"the memory of agent '{memory.agent}'"
                    )
                segment = f"{memory.directory.rstrip('/')}/{files.segment_name}"
                known = replace(memory, text=files.former if memory.resume else None, segment=segment)
                result = answer = await self._inner.run(replace(request, memory=known), on_progress)
                await in_thread(lambda _stop: files.keep(request, answer, self._clock.now()))
                _settle(directory, memory, files, held)
            except BaseException:
                if result is not None:
                    discarded(result)
                memory_directory.put_back(directory)
                raise
            return answer

    def _opened(self, directory: str, memory: AgentMemory) -> MemoryFiles:
        """Return the files, after undoing changes of killed processes, with their contents saved. Raises
        `ProviderError`."""
        segment = re.compile(re.escape(memory.agent) + r"-\d{3,}\.md")
        memory_directory.recover(
            directory, lambda name: name == MEMORY or segment.fullmatch(name), self._memories.is_answered
        )
        files = MemoryFiles(directory, memory)
        try:
            memory_directory.remember(directory, (MEMORY, files.segment_name))
        except OSError as error:
            raise not_kept(memory, error) from None
        return files

    async def _lock(
        self, directory: str, memory: AgentMemory, on_progress: OnProgress, held: contextlib.ExitStack
    ) -> None:
        """Hold the directory's lock file against other processes. Raises `ProviderError` if one of them keeps it."""
        note = SessionProgress("note", f"waiting: another process uses the memory of '{memory.agent}'")
        try:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103
            if await memory_directory.locked(
                f"{directory}/{LOCK}", self._clock, PATIENCE, held, lambda: on_progress(note)
            ):
                return
        except (OSError, NotImplementedError) as error:
            raise not_kept(memory, error) from None
        raise ProviderError(
            f"the memory of agent '{memory.agent}' is in use by another process",
            hint=f"it was waited for {PATIENCE / 60:g} minutes: let one program at a time use this agent",
        )

    # ------------------------------------------------------------ memory in the run

    async def _in_the_run(self, request: SessionRequest, memory: AgentMemory, on_progress: OnProgress) -> SessionResult:
        """Run a session whose memory is not written to files: its text is kept as long as the run exists."""
        name = _name(request, memory)
        texts = self._memories.of_the_run
        async with self._memories.turns[name]:
            former = texts.get(name)
            noted = replace(memory, directory="", text=former if memory.resume else None)
            result = await self._inner.run(replace(request, memory=noted), on_progress)
            if result.memory_after is not None:
                texts[name] = result.memory_after
            elif result.origin != NOT_RUN:
                texts[name] = memory_text(noted, request, result)
        current = open_request.current()
        if current is not None and name in texts:
            current.notes["memory"] = {"text": texts[name]}
        return result

    # ------------------------------------------------------------ memory as context

    async def _with_contents(self, request: SessionRequest) -> SessionRequest:
        """Return the request with the contents of the memories in its context: inner ports cannot read them."""
        if not any(item.location and item.content is None and not item.missing for item in request.context or ()):
            return request
        items = [await self._with_content(item) for item in request.context or ()]
        return replace(request, context=tuple(items))

    async def _with_content(self, item: ContextItem) -> ContextItem:
        if item.missing or not item.location or item.content is not None:
            return item
        path = Path(self._where.cwd, item.location)
        return replace(item, content=await in_thread(lambda _stop: _text(path)))


def _resolved(cwd: str, memory: AgentMemory) -> str:
    return os.path.realpath(os.path.join(cwd, memory.directory))  # noqa: PTH118 - text in, text out


def _name(request: SessionRequest, memory: AgentMemory) -> str:
    return f"{request.program}\n{memory.directory}"


def _settle(directory: str, memory: AgentMemory, files: MemoryFiles, held: contextlib.ExitStack) -> None:
    """Keep the memory and release its lock as soon as the journal has the answer."""
    text, segment = files.texts()
    if memory.scope == "true":
        note = {"text": text, "segment": files.segment_name, "of_segment": segment}
    else:
        note = {"outside": directory, "digest": memory_directory.digest_of(text)}
    memory_directory.settle(directory, note, held.pop_all())


# ---------------------------------------------------------------- memories of a resumed run


def restore_noted(memories: memory_directory.Memories, cwd: str, request: object, note: Mapping[str, Any]) -> None:
    """Restore the memory that the journal noted together with a replayed answer."""
    if "outside" in note:
        memories.known[note["outside"]] = memory_directory.KnownMemory(note["digest"])
        return
    memory = request.memory if isinstance(request, SessionRequest) else None
    if not isinstance(request, SessionRequest) or memory is None:
        return
    if "segment" not in note:
        memories.of_the_run[_name(request, memory)] = note["text"]
        return
    known = memories.known.setdefault(_resolved(cwd, memory), memory_directory.KnownMemory())
    known.text = note["text"]
    known.segments[note["segment"]] = note["of_segment"]


def restore_memories(run_directory: Path, known: Mapping[str, memory_directory.KnownMemory]) -> None:
    """Restore the memories inside a resumed run (`persist: true`) to their state after the replayed answers, and remove
    all others. A file that cannot be written stays as it is."""
    here = run_directory.resolve()
    known = {name: memory for name, memory in known.items() if Path(name).is_relative_to(here)}
    for found in (*run_directory.glob("agents/*"), *run_directory.glob("imports/**/agents/*")):
        known.setdefault(str(found.resolve()), memory_directory.KnownMemory())
    for directory, memory in known.items():
        wanted = {MEMORY: memory.text, **memory.segments}
        there = [entry.name for entry in Path(directory).iterdir()] if Path(directory).is_dir() else []
        gone = [name for name in there if name == MEMORY or _SEGMENT.fullmatch(name)]
        memory_directory.tidy(directory)
        for name, text in (dict.fromkeys(gone) | wanted).items():
            with contextlib.suppress(OSError, ToolFailed, ToolRefused):
                if text is None:
                    Path(directory, name).unlink(missing_ok=True)
                elif _text(Path(directory, name)) != text:
                    memory_directory.write(Path(directory, name), text)


def _text(path: Path) -> str | None:
    try:
        return read(path)
    except ValueError:
        return None
