"""Protected files that programs of sessions have created (amendment A35; docs/how-to/permissions.md).

A file that does not exist cannot be protected inside a directory that a program may write. So the protected files of
those directories are listed before the program runs, and compared when it has ended. Meanwhile the list is a locked
file in `.prose/created/` of the workspace; afterwards the file names the created files, or is removed. If the process
is killed, its list stays, and the next process that looks compares it. Until a person agrees (`prose trust FILE`), no
run loads a file that was created in this way.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from prose_kernel.access import atomic, jsonl, plain_files
from prose_kernel.errors import UsageError
from prose_kernel.language.text import escaped

_NOTES: Final = ".prose/created"
_SHOWN: Final = 5
_SEARCH_FACTOR: Final = 10
"""The factor by which more directories are searched afterwards: a program could create many to hide one."""


class _Note(Struct):
    """The code files from before a program ran, or the files that it created (`created` is a list)."""

    places: dict[str, bool] = field(default_factory=dict)
    present: list[str] = field(default_factory=list)
    cut: bool = False
    created: list[str] | None = None

    @property
    def text(self) -> str:
        body = {"places": self.places, "present": self.present, "cut": self.cut}
        return json.dumps(body if self.created is None else {"created": self.created})

    def write(self, path: Path) -> None:
        atomic.write_whole(path, self.text, contended=True)

    def found(self, workspace: str) -> tuple[list[str], bool]:
        """Return the created files, and whether the search was complete."""
        if self.created is not None:
            return self.created, True
        now, cut = _listed(self.places, workspace, _SEARCH_FACTOR)
        return sorted(_without_state(now) - set(self.present)), self.cut or not cut


class ProtectedFiles(Struct):
    """The protected files while one program runs. `kept` are the existing ones, which are closed to it."""

    workspace: str
    kept: list[str]
    note: _Note
    file: Path | None
    _lock: int = -1

    def end(self) -> str:
        """Compare; return a message about created files, "" if there are none. A second call does nothing."""
        created, complete = self.note.found(self.workspace)
        if self.note.created is None and complete:
            self.note.created = created
            if self.file is not None:
                _settle(self.file, created)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if not complete:
            return "it created so many directories that they cannot be searched for code: remove them"
        names = [escaped(os.path.relpath(path, self.workspace)) for path in created[:_SHOWN]]
        more = f" and {len(created) - _SHOWN:,} more" if len(created) > _SHOWN else ""
        return f"it created {', '.join(names)}{more}: protected, and not used before a person agrees" if created else ""


def watch(workspace: str, places: Mapping[str, bool]) -> ProtectedFiles:
    """Start to watch resolved directories; a value of True means everything below, False only code directly in the
    directory. If no note can be written in the workspace, `file` is None, and created files are only reported."""
    lock, file = -1, Path(workspace, _NOTES, f"{os.urandom(8).hex()}.json")
    try:
        atomic.keep_out_of_git(str(Path(workspace, ".prose")))
        kept, cut = _listed(places, workspace)
        note = _Note(dict(places), sorted(_without_state(kept)), cut)
        # it is locked before it has any content, so no other process settles it before the program starts
        lock = plain_files.descriptor(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, make=True)
        plain_files.lock(lock)
        jsonl.add(lock, note.text.encode())
    except OSError:
        if lock >= 0:
            os.close(lock)
            with contextlib.suppress(OSError):
                file.unlink()
        kept, cut = _listed(places, workspace)
        return ProtectedFiles(workspace, kept, _Note(dict(places), sorted(_without_state(kept)), cut), None)
    return ProtectedFiles(workspace, kept, note, file, lock)


def require_agreed(paths: Iterable[Path]) -> None:
    """Raise `UsageError` for the first of these files that, itself or with a directory above it, a session's program
    has created without a person's agreement."""
    for path in paths:
        if any(_includes(created, path) for _, _, created in _notes(path)):
            raise UsageError(
                f"{escaped(path.name)} was created by a program of a session, and is not used before you agree",
                hint=f"read it, then type: prose trust {shlex.quote(escaped(str(path)))}",
            )


def agree(path: Path) -> bool:
    """Forget that a program has created a file or directory, because a person agrees to it; return False if no program
    has created it."""
    known, real = False, os.path.realpath(path)
    for file, note, created in _notes(path):
        if _includes(created, path):
            known = True
            if note.found(str(file.parents[2]))[1]:
                _settle(file, [each for each in created if each != real and not real.startswith(f"{each}/")])
            else:
                note.present.append(real)
                note.write(file)
    return known


def waiting(directory: Path) -> list[str]:
    """Return the files that programs have created in a workspace and that no person has agreed to."""
    return sorted({path for _, _, created in _notes(directory / "x") for path in created if os.path.lexists(path)})


# ---------------------------------------------------------------- notes


def _notes(path: Path) -> Iterator[tuple[Path, _Note, list[str]]]:
    """Yield the notes that may be about a path, with their files and the created files, and settle notes whose process
    has ended."""
    for parent in Path(os.path.realpath(path)).parents:
        directory = parent / _NOTES
        try:
            files = sorted(directory.iterdir())
        except OSError:
            continue
        for file in files:
            with contextlib.suppress(OSError, ValueError, TypeError):
                note = _Note(**json.loads(plain_files.read_text(file, plain_files.LARGE)))
                # asked before the search: what a program creates after it must not be forgotten when it ends meanwhile
                runs = note.created is None and plain_files.is_locked(file)
                created, complete = note.found(str(parent))
                if not complete and (real := os.path.realpath(path)) not in note.present:
                    created = [*created, real]
                elif not (runs if note.created is None else all(map(os.path.lexists, created))):
                    _settle(file, created)
                yield file, note, created


def _includes(created: Iterable[str], path: Path) -> bool:
    real = os.path.realpath(path)
    return any(real == each or real.startswith(f"{each}/") for each in created)


def _settle(file: Path, created: list[str]) -> None:
    with contextlib.suppress(OSError):
        left = [path for path in created if os.path.lexists(path)]
        if left:
            _Note(created=left).write(file)
        else:
            file.unlink()


def _listed(places: Mapping[str, bool], workspace: str, factor: int = 1) -> tuple[list[str], bool]:
    """Return the protected files below the places, and whether there are too many directories to find all."""
    from prose_kernel.access.grants import Surface, kept_from_programs

    cut: list[str] = []
    found: dict[str, None] = {}
    for place, deep in places.items():
        kept = kept_from_programs(place, Surface(workspace, "/"), deep=deep, factor=factor, cut=cut)
        found |= dict.fromkeys(kept)
    return list(found), bool(cut)


def _without_state(listed: Iterable[str]) -> set[str]:
    """Return the listed files; of the runtime's own directories only `.env`, because the runtime makes the directories
    itself."""
    own = (".prose", ".vvm")
    return {
        path if os.path.basename(path) not in own else f"{path}/.env"  # noqa: PTH119
        for path in listed
        if os.path.basename(path) not in own or os.path.lexists(f"{path}/.env")  # noqa: PTH119
    }
