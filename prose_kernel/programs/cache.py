"""The user's cache of fetched programs: one file for each digest, shared by all projects and processes.

A file is named by the SHA-256 of its content, which is checked whenever it is read. So it does not matter which process
wrote it, processes cannot interfere, and a damaged file counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from prose_kernel.access import plain_files
from prose_kernel.access.atomic import write_whole

SUFFIX = ".prose"


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class ProgramCache:
    """Programs by digest, below `directory`: by default `~/.cache/prose_kernel/programs`, or the system's directory for
    caches (`XDG_CACHE_HOME`). A cache that cannot be written stores nothing and raises no error."""

    def __init__(self, directory: Path | None = None) -> None:
        import platformdirs

        self.directory = directory or platformdirs.user_cache_path("prose_kernel") / "programs"

    def get(self, digest: str) -> bytes | None:
        """Return the program with that digest; None if it is missing or damaged."""
        try:
            data = plain_files.read(self._path(digest))
        except OSError:
            return None
        return data if digest_of(data) == digest else None

    def put(self, data: bytes) -> str:
        """Store a program and return its digest."""
        digest = digest_of(data)
        if self.get(digest) is None:
            with contextlib.suppress(OSError):
                path = self._path(digest)
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_whole(path, data, contended=True, private=True)
        return digest

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}{SUFFIX}"

    def entries(self) -> Iterator[tuple[str, int]]:
        """Yield the digest and size of each cached program, sorted."""
        if self.directory.is_dir():
            for path in sorted(self.directory.glob(f"*{SUFFIX}")):
                with contextlib.suppress(OSError):
                    yield path.stem, path.stat().st_size

    def remove(self, digest: str) -> None:
        """Delete a program. Raises `OSError`."""
        self._path(digest).unlink(missing_ok=True)
