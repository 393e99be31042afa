"""Computes digests of files, by path: of the files that match globs, or of given files.

The cost is bounded: `MOST_FILES` files, `MOST_BYTES` bytes, `MOST_ENTRIES` directory entries. A digest is cached until
the file's size, times or inode change; the digest of a file that changed in the last seconds is not cached, because a
further change might not change its time. The directories of runs and of git are skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Final

from prose_kernel.access import plain_files
from prose_kernel.access.globs import Glob, static_part
from prose_kernel.storage.run_paths import STATE, VVM

MOST_FILES: Final = 10_000
MOST_BYTES: Final = 1 << 30
MOST_ENTRIES: Final = 200_000

SKIPPED: Final = frozenset({STATE, VVM, ".git"})
_SETTLED: Final = 2.0
_PIECE: Final = 1 << 20


class LimitExceeded(Exception):
    """There are too many files or bytes to digest, or a file changes while it is read or cannot be read to its end."""


class FileDigests:
    """A part of the `Files` port. Callable from any thread; two threads that digest one file do the work twice."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[plain_files.Stamp, str]] = {}

    def matching(self, directory: str, globs: Sequence[str]) -> dict[str, str] | None:
        found: dict[str, str] = {}
        size = 0
        try:
            for path in _matching(directory, globs):
                if path in found:
                    continue
                digest, bytes_read = self._digest(os.path.join(directory, path))  # noqa: PTH118
                if digest is not None:
                    found[path] = digest
                size += bytes_read
                if len(found) > MOST_FILES or size > MOST_BYTES:
                    return None
        except LimitExceeded:
            return None
        return found

    def digests(self, directory: str, paths: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in paths:
            with contextlib.suppress(LimitExceeded):
                digest, _ = self._digest(os.path.join(directory, path))  # noqa: PTH118
                if digest is not None:
                    found[path] = digest
        return found

    def _digest(self, path: str) -> tuple[str | None, int]:
        """Return a regular file's digest and size; None and 0 for anything else. Raises `LimitExceeded` if it changes
        while it is read, or is too large."""
        if (known := self._known.get(path)) is not None and (size := _size_if(path, known[0])) is not None:
            return known[1], size
        for _ in range(2):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (OSError, ValueError):  # `ValueError`: the path contains a NUL character
                return None, 0
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                os.close(descriptor)
                return None, 0
            with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123
                state = plain_files.stamp(status)
                if status.st_size > MOST_BYTES:
                    raise LimitExceeded
                whole = hashlib.sha256()
                try:
                    while piece := file.read(_PIECE):
                        whole.update(piece)
                except OSError as error:  # a damaged disk
                    raise LimitExceeded from error
                if plain_files.stamp(os.fstat(descriptor)) == state:
                    if time.time() - status.st_mtime > _SETTLED:
                        self._known[path] = state, whole.hexdigest()
                    return whole.hexdigest(), status.st_size
        raise LimitExceeded


def _size_if(path: str, state: plain_files.Stamp) -> int | None:
    """Return the size of a file if it is in this state, else None, without opening it, which would take longer."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) and plain_files.stamp(status) == state else None


def _matching(directory: str, globs: Sequence[str]) -> Iterator[str]:
    """Yield the files that match any of the globs, as paths relative to the directory. A glob that names a directory
    matches all files below it. Raises `LimitExceeded`."""
    looked_at = 0
    for written in globs:
        text = written.removeprefix("./").rstrip("/")
        base, rest = static_part(text)
        if not rest and not os.path.isdir(os.path.join(directory, base)):  # noqa: PTH112, PTH118
            yield base
            continue
        glob, agenda = Glob(text if rest else f"{text}/**"), [base]
        while agenda:
            below = agenda.pop()
            try:
                entries = sorted(os.scandir(os.path.join(directory, below)), key=lambda entry: entry.name)  # noqa: PTH118
            except (OSError, ValueError):
                continue
            looked_at += len(entries)
            if looked_at > MOST_ENTRIES:
                raise LimitExceeded
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED and glob.could_match_below(path):
                        agenda.append(path)
                elif glob.matches(path):
                    yield path
