"""Defines the layout of runs on disk: run ids, directories, file names (openprose.md 4.4, 6.5, 7.2, 7.4)."""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final

from msgspec import Struct

from prose_kernel.errors import UsageError, reason_of
from prose_kernel.runtime.ports import Clock, Key

STATE: Final = ".prose"
VVM: Final = ".vvm"
"""The directory that holds the files of agents' answers."""
DATABASE: Final = "state.db"
"""The SQLite database in a run's directory."""

RUN_ID: Final = re.compile(r"\d{8}-\d{6}-[a-z0-9]{6}")
_SECOND: Final = "%Y%m%d-%H%M%S"
_ALPHABET: Final = "0123456789abcdef"
_LONGEST_STEM: Final = 200


def new_run_id(clock: Clock, directories: Iterable[Path], source: random.Random | None = None) -> str:
    """Return a run id `YYYYMMDD-HHMMSS-xxxxxx`, in UTC (7.2). `source` None means the system's random source.

    The last run must have the last id. So if the clock was set back, the new id is one second later than the last id
    in `directories`.
    """
    chosen = (source or random.SystemRandom()).choices(_ALPHABET, k=6)
    now = clock.now()
    now = max([now, *_after_last(directories, f"{now:{_SECOND}}")])
    return f"{now:{_SECOND}}-{''.join(chosen)}"


def _after_last(directories: Iterable[Path], second: str) -> Iterator[datetime]:
    """Yield, for each directory, the second after its last run began, if that run began after `second`."""
    for directory in directories:
        with suppress(UsageError):
            for entry in reversed(entries(directory)):
                if entry.name[:15] <= second:
                    break
                is_run = RUN_ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
                if is_run and (when := start_time(entry.name)) is not None:
                    with suppress(OverflowError):  # the last second of the year 9999 has no successor
                        yield when + timedelta(seconds=1)
                        break


def start_time(run_id: str) -> datetime | None:
    """Return the time at which a run began; None if the id contains no time."""
    try:
        return datetime.strptime(run_id[:15], _SECOND).replace(tzinfo=UTC)
    except ValueError:
        return None


class RunPaths(Struct, frozen=True):
    """The directory of one run, or of one imported program's call in it, and the paths in it (7.2, 6.5)."""

    directory: Path

    @property
    def program(self) -> Path:
        return self.directory / "program.prose"

    @property
    def trace(self) -> Path:
        return self.directory / "state.md"

    @property
    def bindings(self) -> Path:
        return self.directory / "bindings"

    @property
    def gates(self) -> Path:
        return self.directory / "gates"

    def imported(self, name: str) -> RunPaths:
        """Return the paths of an imported program's call; `name` is `{handle}--{slug}[--2]`."""
        return RunPaths(self.directory / "imports" / name)


def entries(directory: Path) -> list[os.DirEntry[str]]:
    """Return a directory's entries, sorted by name; none if it does not exist. Raises `UsageError` if it cannot be
    read."""
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        shown = Path(*directory.parts[-2:])
        raise UsageError(f"{shown} cannot be read: {reason_of(error, type(error).__name__)}") from None


def runs_directory(state_dir: Path) -> Path:
    """Return the directory that contains one directory for each run."""
    return state_dir / "runs"


def runs_directories(project: Path, state_dir: str | Path) -> list[Path]:
    """Return the directories that contain the runs of a project."""
    return [runs_directory(project / state_dir), project / VVM / "runs"]


def run_paths(state_dir: Path, run_id: str) -> RunPaths:
    """Return the paths of a run below the state directory (`.prose`)."""
    return RunPaths(runs_directory(state_dir) / run_id)


def memory_directory(agent: str, persist: str, *, run: Path, state_dir: Path, project: Path, home: Path) -> Path:
    """Return the memory directory of a persistent agent (4.4).

    `persist` is `true`, `project`, `user`, or a directory relative to the project. `run`, the directory of the run or
    of the imported program's call, contains the memory for `true`.
    """
    match persist:
        case "true":
            return run / "agents" / file_stem(agent)
        case "project":
            return state_dir / "agents" / file_stem(agent)
        case "user":
            return home / ".prose" / "agents" / file_stem(agent)
        case _ if persist.startswith("~/"):
            return home / persist[2:]
        case _:
            return project / persist


def shown(path: Path, cwd: Path) -> str:
    """Return a path in the form for sessions and people: relative to `cwd` if it is below it, else absolute."""
    try:
        return path.relative_to(cwd).as_posix()
    except ValueError:
        return path.as_posix()


def key_stem(key: Key) -> str:
    """Return `name[__execution_id][__i{index}...]` (7.4), without `.md`."""
    stem = key.name if key.execution_id is None else f"{key.name}__{key.execution_id}"
    return "".join((stem, *(f"__i{index}" for index in key.iterations)))


def copies_of(text: str, others: Mapping[str, str]) -> dict[str, str]:
    """Return copies of a contract file and of the files that it may call, by paths in the directory of the run
    (prose-md.md 2). `others` holds the texts of these files by address."""
    copies = {"root.prose.md": text}
    for address, other in others.items():
        stems = numbered(file_stem(address.rpartition("/")[2].removesuffix(".prose.md")), "~")
        names = (f"sources/{stem}.prose.md" for stem in stems)
        copies[next(name for name in names if name not in copies)] = other
    return copies


def numbered(name: str, mark: str, first: int = 1) -> Iterator[str]:
    """Yield a name and its variants: `plan`, `plan~2`, `plan~3`, and so on."""
    return (name if number == 1 else f"{name}{mark}{number}" for number in count(first))


def file_stem(name: str) -> str:
    """Return a name as a file name: unchanged, unless it is longer than file systems allow."""
    if len(name) <= _LONGEST_STEM:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[:_LONGEST_STEM]}~{digest}"


class _Names:
    """Names of files or directories, each given once. `Plan` and `plan` are the same on a disk that ignores case."""

    def __init__(self, *, ignore_case: bool) -> None:
        self._ignore_case = ignore_case
        self._taken: set[str] = set()

    def _first_free(self, names: Iterable[str]) -> str:
        name = next(name for name in names if self._folded(name) not in self._taken)
        self._taken.add(self._folded(name))
        return name

    def _folded(self, name: str) -> str:
        return name.casefold() if self._ignore_case else name


class FileNames(_Names):
    """Assigns file names to the keys of one run, deterministically.

    Two keys never share a file, such as `x__1` at the root and `x` in frame 1, or `Plan` and `plan` on a disk that
    ignores case. The later key gets the suffix `~2`; no name contains `~`.
    """

    def __init__(self, *, ignore_case: bool) -> None:
        super().__init__(ignore_case=ignore_case)
        self._names: dict[Key, str] = {}

    def __call__(self, key: Key) -> str:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{self._first_free(numbered(file_stem(key_stem(key)), '~'))}.md"
        return name


class CallNames(_Names):
    """Assigns unique directory names to the calls of imported programs: `{handle}--{slug}[--number]` (6.5)."""

    def __call__(self, handle: str, slug: str, number: int) -> str:
        wanted = file_stem(f"{handle}--{slug}".replace("/", "_").replace("\0", "_"))
        return self._first_free(numbered(wanted, "--", number))


def ignores_case(directory: Path) -> bool:
    """Return whether the file system of `directory` (or of its nearest existing parent) ignores case in names."""
    for place in (directory, *directory.parents):
        if place.name and place.name != place.name.swapcase() and place.exists():
            other = place.with_name(place.name.swapcase())
            return other.exists() and place.samefile(other)
    return False
