"""Builds the result of a session from the files it wrote: the binding's value, memory, segment."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import structs

from prose_kernel.access.plain_files import Stamp, reading_if_there, stamp_of
from prose_kernel.models.request import memory_file, segment_file, summarise
from prose_kernel.runtime.ports import SessionRequest, SessionResult
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.runtime.structured_text import value_of

BINDING_LIMIT: Final = 256 * 1024 * 1024
MEMORY_LIMIT: Final = 4 * 1024 * 1024


class SessionOutputFiles:
    """The files that a CLI agent's session writes itself (binding, memory, segment), with their state at its start."""

    def __init__(self, request: SessionRequest, where: Surroundings) -> None:
        self._header = request.target.header if request.target is not None else ""
        self._bare = request.kind == "call"
        self._binding = _File(where, request.target.location if request.target is not None else "")
        memory = request.memory if request.memory is not None and request.memory.directory else None
        self._memory = _File(where, memory_file(memory) if memory is not None else "")
        self._segment = _File(where, segment_file(memory) if memory is not None else "")

    def added_to(self, result: SessionResult) -> SessionResult:
        """Return the result with the files written since the start; `result` comes from `request.answered`."""
        written = self._binding.since(BINDING_LIMIT)
        text = result.text if written is None else self._value(written)
        memory, segment = self._memory.since(MEMORY_LIMIT), self._segment.since(MEMORY_LIMIT)
        return structs.replace(
            result,
            text=text,
            summary=result.summary or summarise(text or ""),
            memory_after=memory if memory is not None else result.memory_after,
            segment=segment if segment is not None else result.segment,
        )

    def _value(self, written: str) -> str:
        """Return the value in the binding's file, also if its header is missing or slightly different."""
        if self._bare:
            return written
        header = self._header
        if header and written.startswith(header):
            return written[len(header) :]
        bare = header.rstrip()
        if bare and written.startswith(bare):
            return written[len(bare) :].removeprefix("\n").removeprefix("\n")
        return value_of(written)


class _File:
    """One file, and its state at the start."""

    def __init__(self, where: Surroundings, location: str) -> None:
        self._path = Path(where.cwd, location) if location else None
        self._before = self._stamp()

    def _stamp(self) -> Stamp | None:
        return stamp_of(self._path) if self._path is not None else None

    def since(self, limit: int) -> str | None:
        """Return the text of the file if it was written since; None if it was not, or is not a plain, readable file.

        Links and pipes are not read: a link could reveal a file that the session may not read, and a pipe would block.
        """
        now = self._stamp()
        if self._path is None or now is None or now == self._before:
            return None
        try:
            with reading_if_there(self._path) as file:
                if file is None:
                    return None
                data = file.read(limit + 1)
        except (OSError, ValueError):
            return None
        return None if len(data) > limit else data.decode("utf-8", "replace")
