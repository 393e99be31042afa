"""The files of an agent's memory: read, written for a session that did not, put back after one that failed (4.4)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from prose_kernel.errors import ProviderError
from prose_kernel.permissions import safe_files as places
from prose_kernel.permissions.safe_files import Place
from prose_kernel.runtime.ports import AgentMemory, SessionRequest, SessionResult
from prose_kernel.runtime.text import one_line
from prose_kernel.sessions.request import next_segment, summarise
from prose_kernel.sessions.tools.tool import ToolFailed, ToolRefused

MEMORY_LIMIT: Final = 1024 * 1024
NOT_RUN: Final = "dry-run"
"""The origin of an answer that nobody gave: it leaves no memory."""

_PROMPT_LENGTH: Final = 2000
_HEADING: Final = "## Sessions"
_TITLE: Final = re.compile(r"# Segment \d+(?=\n|$)")


class MemoryFiles:
    """The memory of an agent while one session has it; its lock is held by the caller.

    `former` is the text of `memory.md` at the start (None: there is none), `segment_name` the file of this
    invocation. Raises `ProviderError` for a memory that is there and cannot be read as text.
    """

    def __init__(self, directory: str, memory: AgentMemory) -> None:
        self._memory = memory
        self._path = Path(directory, "memory.md")
        try:
            if self._path.is_symlink():  # what is written to it would leave the directory
                raise ValueError("memory.md is a link")
            self.former = read(self._path)
        except ValueError as problem:
            raise ProviderError(
                f"the memory of agent '{memory.agent}' cannot be read: {problem}",
                retryable=False,
                hint=f"repair or remove {_place(memory)}; nothing in it was changed",
            ) from None
        self._mark = _mark(self._path)
        self._segment = Path(next_segment(directory, memory.agent))
        self.segment_name = self._segment.name

    def keep(self, request: SessionRequest, result: SessionResult, now: datetime) -> None:
        """Both files are there afterwards: as the result has them, as the session left them, or made here."""
        if result.origin == NOT_RUN:
            return
        if result.memory_after is not None:
            self._write(self._path, result.memory_after)
        elif _mark(self._path) == self._mark:
            self._write(self._path, memory_text(self._memory, request, result, self.former))
        if result.segment is not None:
            number = self._segment.stem.rpartition("-")[2]
            self._write(self._segment, _TITLE.sub(f"# Segment {number}", result.segment, count=1))
        elif not self._segment.exists():
            self._write(self._segment, segment_text(self._segment.stem, request, result, now))

    def restore(self) -> None:
        """The memory as it was before; what cannot be put back stays as the session left it."""
        with contextlib.suppress(OSError, ProviderError):
            if _mark(self._path) != self._mark:
                if self.former is None:
                    self._path.unlink(missing_ok=True)
                else:
                    self._write(self._path, self.former)
        with contextlib.suppress(OSError):
            self._segment.unlink(missing_ok=True)

    def _write(self, path: Path, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if len(data) > MEMORY_LIMIT:
            raise ProviderError(
                f"the session's memory of agent '{self._memory.agent}' has {len(data):,} bytes; at most "
                f"{MEMORY_LIMIT:,} can be kept",
                hint="tell the agent to compact its memory; the former one is unchanged",
            )
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                return
        try:
            places.write_whole(Place(path.name, str(path)), data)
        except (ToolFailed, ToolRefused) as error:
            raise not_kept(self._memory, error) from None


def read(path: Path) -> str | None:
    """The text of a memory file; None when there is none. Raises `ValueError` that says what it is instead."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path.name}: {places.reason(error)}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path.name} is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MEMORY_LIMIT + 1)
    finally:
        os.close(descriptor)
    if len(data) > MEMORY_LIMIT:
        raise ValueError(f"{path.name} is larger than {MEMORY_LIMIT:,} bytes")
    if b"\0" in data:
        raise ValueError(f"{path.name} is a binary file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None


def not_kept(memory: AgentMemory, error: Exception) -> ProviderError:
    """Why the memory could not be written, before or after the session."""
    why = places.reason(error) if isinstance(error, OSError) else str(error)
    return ProviderError(
        f"the memory of agent '{memory.agent}' cannot be kept: {why}",
        retryable=False,
        hint=f"it belongs into {_place(memory)}",
    )


def _place(memory: AgentMemory) -> str:
    """Where the memory is, in words: the path, unless it is different for every run."""
    if memory.scope == "true":
        return f"agents/{memory.agent}/memory.md in the run's directory"
    return f"{memory.directory.rstrip('/')}/memory.md"


# ---------------------------------------------------------------- written in the session's place


def memory_text(memory: AgentMemory, request: SessionRequest, result: SessionResult, former: str | None = None) -> str:
    """The memory of an agent whose session wrote none: on `resume` what stood there, and one line for this session.

    It is a part of later recordings' keys: nothing in it may depend on the day or on how many runs there were.
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
    """The record of one invocation whose session wrote none."""
    prompt = request.task if len(request.task) <= _PROMPT_LENGTH else request.task[:_PROMPT_LENGTH] + "…"
    return (
        f"# Segment {stem.rpartition('-')[2]}\n\n"
        f"timestamp: {now.astimezone(UTC).isoformat(timespec='seconds')}\n"
        f"prompt: {json.dumps(prompt, ensure_ascii=False)}\n\n"
        f"## Summary\n\n- {_summary(result)}\n"
    )


def _summary(result: SessionResult) -> str:
    return one_line(result.summary or summarise(result.text or "")) or "no answer"


# ---------------------------------------------------------------- files


def _mark(path: Path) -> tuple[int, int, int] | None:
    """What tells that a file was written again; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino
