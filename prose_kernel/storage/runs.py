"""Lists the kept runs with their states, finds a run by the beginning of its id, and removes runs.

A run has a directory, whatever keeps its bindings: `Directories` finds the directories below `.prose/runs` and
`.vvm/runs`. A database of many runs is another place, with the same methods (`RunPlace`).
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, reduce
from pathlib import Path
from typing import Final, Literal, Protocol

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import StateError, UsageError
from prose_kernel.language.structs import replace
from prose_kernel.language.text import escaped
from prose_kernel.runtime.journal_records import Head
from prose_kernel.storage import bindings, journal_file, journal_reading, run_paths
from prose_kernel.storage.bindings import StoredBinding
from prose_kernel.storage.journal_reading import JournalFacts, JournalRead
from prose_kernel.storage.run_paths import RUN_ID, entries

State = Literal["running", "done", "failed", "interrupted", "killed", "lost", "unreadable", "unknown"]
"""`lost`: a process on another machine, or in another directory, has stopped extending its lease. `unreadable`: the
journal cannot be used. `unknown`: there is no journal, and the end of the run is unknown."""

UNFINISHED: Final = ("failed", "interrupted", "killed", "lost")
_SHOWN: Final = 5
_TAIL: Final = 4096
_REMOVED: Final = ".removed-"
_TITLE: Final = re.compile(r"# run:\S+ (.*)|Program: (.*)")
_END: Final = re.compile(r"---(end|error) |Status: (completed|failed)")
_ENDS: Final[dict[str, State]] = {"end": "done", "completed": "done", "error": "failed", "failed": "failed"}


@dataclass(frozen=True)
class KeptRun:
    """A kept run. Its files are read only when and as far as needed."""

    id: str
    directory: Path
    place: RunPlace = field(repr=False)
    ended: State | None = None
    """The outcome of a run without journal and log."""
    about: str = ""
    """The program name of a run without journal and log."""
    elsewhere: bool = False
    """Whether another machine or directory has run it last; then `ended` overrides the journal here."""
    is_copy: bool = False
    """Whether its directory is temporary, with a copy of its journal."""

    @property
    def path(self) -> Path:
        """The file of its journal, which may be missing."""
        return self.directory / journal_reading.NAME

    @cached_property
    def has_journal(self) -> bool:
        return self.path.exists()

    @cached_property
    def _facts(self) -> JournalFacts | None:
        """The facts of a usable journal."""
        if not self.has_journal:
            return None
        found = journal_reading.read_facts(self.path)
        if found is not None or (journal := self.journal) is None:
            return found
        ended = journal.texts[-1].ended if journal.texts else None
        return JournalFacts(journal.head, ended, journal.finished, len(journal.texts), journal.answers())

    @cached_property
    def _read(self) -> tuple[JournalRead | None, UsageError | None]:
        if not self.has_journal:
            return None, None
        try:
            return journal_reading.read(self.path), None
        except UsageError as problem:
            return None, problem

    @property
    def journal(self) -> JournalRead | None:
        """Its whole journal, if it is usable."""
        return self._read[0]

    @property
    def problem(self) -> UsageError | None:
        """The reason why its journal cannot be used."""
        return self._read[1]

    def kept_journal(self) -> JournalRead:
        """Return the journal of a run in any state. Raises `UsageError` if it is missing or unusable."""
        if self.problem is not None:
            raise self.problem
        if self.journal is None:
            hint = "an earlier version made it, or the setting journal was off"
            raise UsageError(f"run {self.id} has no journal", hint=hint)
        return self.journal

    def ended_journal(self) -> JournalRead:
        """Return the journal of a run that no process runs now. Raises `UsageError` if there is none."""
        if self.state == "running":
            raise UsageError(f"run {self.id} is being run by another process", hint="wait until that one has ended")
        if self.problem is not None:
            raise self.problem
        if self.journal is None:
            reasons = "its journal is on the machine that ran it, or an earlier version made it"
            raise UsageError(f"run {self.id} has no journal here", hint=f"{reasons}, or the setting journal was off")
        return self.journal

    @cached_property
    def _journal_state(self) -> tuple[State | None, str]:
        ended, about = _facts_from_log(self.directory)
        return ended or self.ended, about or self.about

    @property
    def head(self) -> Head | None:
        """The head of its journal."""
        return self._facts.head if self._facts is not None else None

    @property
    def program(self) -> str:
        return self.head.program if self.head is not None else self._journal_state[1]

    @property
    def shown_program(self) -> str:
        """Its program, escaped to one line."""
        return escaped(self.program)

    @property
    def language(self) -> str:
        return self.head.language if self.head is not None else ""

    @property
    def interactive(self) -> bool:
        """Whether a person ran it cell by cell, in a notebook."""
        return self.head is not None and self.head.interactive

    @cached_property
    def state(self) -> State:
        if self.elsewhere and self.ended is not None:
            return self.ended
        if self.has_journal and journal_reading.is_written(self.path):
            return "running"
        journal = self._facts
        if journal is None:
            return "unreadable" if self.has_journal else self._journal_state[0] or "unknown"
        last = journal.ended.status if journal.ended is not None else "done"
        if journal.finished is not None:
            return "done" if journal.finished.status == "done" else last if last != "done" else "failed"
        return "killed" if last == "done" or journal.head.notebook else last

    @property
    def begun(self) -> datetime | None:
        """When it began, from its id."""
        return run_paths.start_time(self.id)

    @property
    def texts(self) -> int | None:
        """How many files and cells have begun; None if only a long journal has that number."""
        return self._facts.texts if self._facts is not None else None

    @property
    def answers(self) -> int | None:
        return self._facts.answers if self._facts is not None else None

    @cached_property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(_sizes(self.directory))


class RunPlace(Protocol):
    """A place that keeps runs: directories, or a database."""

    def runs(self) -> Iterable[KeptRun]: ...

    def bindings(self, run: KeptRun) -> Iterable[StoredBinding]:
        """Return the root bindings of a run."""

    def fetch(self, run: KeptRun) -> Path | None:
        """Return a temporary directory with a copy of the run's journal, if its journal is not in a directory."""

    def remove(self, run: KeptRun) -> None:
        """Remove the run from this place, if it is there. Raises `UsageError` if it is running or cannot be removed."""


# ---------------------------------------------------------------- directories


class Directories(Struct, frozen=True):
    """The directories of runs below one directory, such as `.prose/runs`."""

    path: Path

    def runs(self) -> Iterator[KeptRun]:
        """Yield all runs. Raises `UsageError` if the directory cannot be read."""
        for entry in entries(self.path):
            if RUN_ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield self.run(entry.name)

    def run(self, run_id: str) -> KeptRun:
        return KeptRun(run_id, self.path / run_id, self)

    def bindings(self, run: KeptRun) -> Iterator[StoredBinding]:
        database = self.path / run.id / run_paths.DATABASE
        if database.is_file():
            from prose_kernel.storage.database.sqlite import sqlite_bindings

            yield from sqlite_bindings(database)
        for file in sorted((self.path / run.id / "bindings").glob("*.md")):
            try:
                found = bindings.parse(plain_files.read(file, plain_files.HUGE).decode("utf-8", "replace"))
            except (OSError, StateError):
                continue
            if found.execution_id is None:
                yield StoredBinding(found.name, found.kind, found.value)

    def fetch(self, run: KeptRun) -> None:
        return None

    def remove(self, run: KeptRun) -> None:
        """Remove a run's directory; rename it first, so that a partly removed run is never visible. What an interrupted
        removal has left is removed, too."""
        directory = self.path / run.id
        if not directory.is_dir():
            return
        journal = directory / journal_reading.NAME
        gone = self.path / f"{_REMOVED}{run.id}-{uuid.uuid4().hex[:8]}"
        with journal_file.changing(journal, f"run {run.id} cannot be removed") as file:
            if run.journal is not None and run.journal.path == journal:
                file.continue_from(run.journal)
            elif journal_reading.is_written(journal):
                raise UsageError(f"run {run.id} is being run by another process", hint="wait until that one has ended")
            directory.rename(gone)
        for one in self.path.glob(f"{_REMOVED}*"):
            shutil.rmtree(one, ignore_errors=True)


def _sizes(directory: Path) -> Iterator[int]:
    agenda = [str(directory)]
    while agenda:
        with suppress(OSError), os.scandir(agenda.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    agenda.append(entry.path)
                else:
                    with suppress(OSError):
                        yield entry.stat(follow_symlinks=False).st_size


def _facts_from_log(directory: Path) -> tuple[State | None, str]:
    """Return the outcome and the program of a run without a journal, from its log."""
    try:
        with plain_files.reading(directory / "state.md", None) as file:
            head = file.read(_TAIL).decode("utf-8", "replace")
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            tail = file.read().decode("utf-8", "replace")
    except OSError:
        return None, ""
    title = next((found for line in head.splitlines() if (found := _TITLE.fullmatch(line))), None)
    ends = [found for line in (*head.splitlines(), *tail.splitlines()) if (found := _END.match(line))]
    ended = _ENDS[ends[-1][1] or ends[-1][2]] if ends else None
    return ended, (title[1] or title[2]) if title is not None else ""


# ---------------------------------------------------------------- finding one


def places(directory: Path, state_dir: str | Path) -> list[Directories]:
    """Return the places of a project's runs."""
    return [Directories(path) for path in run_paths.runs_directories(directory, state_dir)]


def all_runs(where: Sequence[RunPlace]) -> list[KeptRun]:
    """Return all runs, the latest last."""
    found: dict[str, KeptRun] = {}
    for place in where:
        for run in place.runs():
            known = found.get(run.id)
            found[run.id] = run if known is None else _merge(known, run)
    seconds = Counter(name[:15] for name in found)

    def order(run: KeptRun) -> tuple[str, str, str]:
        second = run.id[:15]
        return second, run.head.started if seconds[second] > 1 and run.head is not None else "", run.id

    return sorted(found.values(), key=order)


def _merge(one: KeptRun, other: KeptRun) -> KeptRun:
    """Merge a run of two places: take the run with a journal, and the facts of a place that knows another machine."""
    kept = other if other.has_journal and not one.has_journal else one
    return replace(kept, ended=other.ended, elsewhere=True) if other.elsewhere and kept is one else kept


def remove(where: Sequence[RunPlace], run: KeptRun) -> None:
    """Remove a run from all places, first from its own, which knows whether it is running. Raises `UsageError` if it is
    running, or cannot be removed."""
    if run.elsewhere and run.state == "running":
        raise UsageError(f"run {run.id} is running on another machine", hint="wait until it has ended there")
    run.place.remove(run)
    for place in where:
        if place is not run.place:
            place.remove(run)


def fetched(where: Sequence[RunPlace], run: KeptRun) -> KeptRun:
    """Return the run to read its journal: a copy, if only a database has all of it. While another machine runs it, only
    the journal here is read."""
    if (run.has_journal and not run.elsewhere) or run.state == "running":
        return run
    copies = (directory for place in where if (directory := place.fetch(run)) is not None)
    directory = next(copies, None)
    return replace(run, directory=directory, is_copy=True) if directory is not None else run


def bindings_of(where: Sequence[RunPlace], run: KeptRun) -> list[StoredBinding]:
    """Return the root bindings of a run, from the first place that has any."""
    places = [run.place, *(place for place in where if place is not run.place)]
    return next((found for place in places if (found := list(place.bindings(run)))), [])


def check_directory(run_id: str, directory: Path, here: Sequence[Path], hint: str) -> None:
    """Check that the directory in which a run began is one of `here`. Raises `UsageError`, with `hint` for another one.

    Commands can write the journal, so settings and functions must not be read from any directory that it names.
    """
    if not plain_files.is_directory(directory):
        raise UsageError(
            f"the directory in which run {run_id} was begun is gone: {escaped(str(directory))}",
            hint="the run continues only there; if you have moved it, move it back, or make a link to it there",
        )
    if not is_one_of(directory, here):
        raise UsageError(f"run {run_id} was begun in another directory: {escaped(str(directory))}", hint=hint)


def is_one_of(directory: Path, here: Sequence[Path]) -> bool:
    """Return whether a directory is one of `here`; False if this account may not read it."""
    return plain_files.is_directory(directory) and any(directory.samefile(place) for place in here if place.is_dir())


def with_id(where: Sequence[RunPlace], wanted: str) -> list[KeptRun]:
    """Return the run with this full id from each place that keeps it, runs with a journal first."""
    if not RUN_ID.fullmatch(wanted):
        return []
    same = [run for place in where for run in place.runs() if run.id == wanted]
    return sorted(same, key=lambda run: not run.has_journal)


def find(where: Sequence[RunPlace], wanted: str) -> KeptRun:
    """Return the run with this id, or the only run whose id begins with it, or the run in a directory (`a/b/RUN`).

    Raises `UsageError`.
    """
    if not wanted.strip():
        raise UsageError("the name of a run is empty", hint="prose runs lists them")
    if "/" in wanted:
        path = Path(wanted.rstrip("/"))
        if RUN_ID.fullmatch(path.name) and plain_files.is_directory(path):
            return Directories(path.parent).run(path.name)
        raise UsageError(f"{wanted} isn't a directory of a run")
    if same := with_id(where, wanted):
        return reduce(_merge, same)
    known = all_runs(where)
    fitting = [run for run in known if run.id.startswith(wanted)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        hint = "prose runs lists them" if known else "no run is kept here; prose run FILE begins one"
        raise UsageError(f"there is no run {wanted}", hint=hint)
    shown = ", ".join(run.id for run in fitting[:_SHOWN])
    more = f" and {len(fitting) - _SHOWN} more" if len(fitting) > _SHOWN else ""
    raise UsageError(f"{len(fitting)} runs begin with {wanted}: {shown}{more}", hint="write more of the id")
