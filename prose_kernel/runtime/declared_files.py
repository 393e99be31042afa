"""The files that an answer depends on: those that a session's tools have read, and those that a command declares with
`reads:` and `writes:` (docs/how-to/edit-and-continue.md).

Their digests are a note on the answer in the journal. An answer of an earlier run is used again only if the same files
have the same digests now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec import Struct

from prose_kernel.runtime import asides
from prose_kernel.runtime.ports import CommandRequest, Files, SessionResult

T = TypeVar("T")

NOTE: Final = "files"
"""The name of the note."""

Digests = Mapping[str, str]
"""SHA-256 digests of files by their paths."""


Globs = tuple[tuple[str, ...], tuple[str, ...]]
"""What a command declares with `reads:` and `writes:`."""


class CommandFiles(Struct, frozen=True):
    """The files of a command: those of `reads:` before it ran, those of `writes:` after it. None: not known, because
    there were too many, or one of them changed while it was read. `globs` are those of both."""

    reads: dict[str, str] | None = None
    writes: dict[str, str] | None = None
    globs: Globs = ((), ())


def globs_of(request: CommandRequest) -> Globs:
    return request.reads or (), request.writes or ()


async def with_files(files: Files, request: CommandRequest, directory: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Run a command, and note the digests of its files. Paths are relative to `directory`, that of the run."""
    reads = await asyncio.to_thread(files.matching, directory, request.reads or ())
    answer = await ask()
    writes = await asyncio.to_thread(files.matching, directory, request.writes or ())
    aside = asides.current()
    if aside is not None:
        aside.notes[NOTE] = CommandFiles(reads, writes, globs_of(request))
    return answer


@dataclass(frozen=True, slots=True)
class FilesThen:
    """The files of an earlier answer, and how to look at them now: those that match `reads` and `writes`, or those with
    these paths. `directory` is what the paths are relative to."""

    then: tuple[Digests, ...]
    directory: str
    globs: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of_command(cls, found: CommandFiles, globs: Globs, directory: str) -> FilesThen | None:
        """Raises `LookupError` if the files are not known."""
        if found.reads is None or found.writes is None:
            raise LookupError
        if not (any(globs) or found.reads or found.writes):
            return None
        return cls((found.reads, found.writes), directory, globs)

    @classmethod
    def of_session(cls, result: SessionResult, directory: str) -> FilesThen | None:
        return cls(({read.path: read.sha256 for read in result.reads},), directory) if result.reads else None

    def now(self, files: Files) -> tuple[Digests, ...]:
        """The digests of these files now. Call it in a thread. Raises `LookupError` if there are too many."""
        if not self.globs:
            return tuple(files.digests(self.directory, [*then]) for then in self.then)
        found = [files.matching(self.directory, globs) for globs in self.globs]
        if None in found:
            raise LookupError
        return tuple(one for one in found if one is not None)
