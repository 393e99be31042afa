"""Cassette files on disk: finds and parses them, and adds records.

A record is one write under a lock that other kernels respect; rewriting is atomic.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct, field

from prose_kernel.access import atomic, jsonl, plain_files
from prose_kernel.cassettes import records
from prose_kernel.cassettes.records import BadLine, SearchFields, encoded, head
from prose_kernel.errors import UsageError
from prose_kernel.runtime.session_options import CassetteOptions, Surroundings

DIRECTORY = "cassettes"
SUFFIX = ".jsonl"
EVALUATION: Final = f".eval{SUFFIX}"
"""The end of the names of recordings of evaluations."""
UNNAMED = "session"
BOM: Final = b"\xef\xbb\xbf"
LISTED: Final = 10
"""The number of damaged lines of one file that are named."""


class PlacedRecord(Struct, eq=False):
    """A record and its place. `used`: this run has replayed or written it. `replaced`: a later record counts
    instead."""

    file: str
    line: int
    record: SearchFields
    raw: bytes
    used: bool = False
    replaced: bool = False

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}"

    @property
    def name(self) -> str:
        return f"{self.place}: the {self.record.t} {self.record.at}"


class Take(Struct, eq=False):
    """All recorded attempts under one key and path of one file, by their number (from 1). `is_free`: no request of this
    run has used it."""

    file: str
    key: str
    at: str
    attempts: dict[int, PlacedRecord] = field(default_factory=dict)
    is_free: bool = True

    def entry(self, attempt: int) -> PlacedRecord | None:
        """Return the record of an attempt. If the record of the first attempt is lost, return the earliest one."""
        return self.attempts.get(min(self.attempts, default=1) if attempt == 1 else attempt)

    @property
    def last(self) -> PlacedRecord:
        return self.attempts[max(self.attempts)]


class IgnoredLine(Struct, frozen=True):
    """A line that is ignored: its bytes, and the reason. `torn`: the last line, which was not written completely."""

    line: int
    raw: bytes
    why: str
    torn: bool = False
    newer: bool = False


class CassetteFile(Struct):
    """A parsed cassette: `name` is its name in messages, `places` maps directories of the recording machines to their
    placeholders."""

    path: Path
    name: str
    signature: plain_files.Stamp | None = None
    entries: list[PlacedRecord] = field(default_factory=list)
    bad: list[IgnoredLine] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    takes: dict[tuple[str, str], Take] = field(default_factory=dict)
    """The answers that count, by key and path, in the order of their first attempts."""

    def put(self, entry: PlacedRecord) -> int:
        """Add a record and return the number of records that it replaces.

        A first attempt replaces all earlier records of its key and path; a further attempt replaces records of the same
        attempt.
        """
        self.entries.append(entry)
        place, tried = (entry.record.key, entry.record.at), entry.record.tried
        if entry.record.t not in records.ANSWERS:
            return 0
        former = self.takes.pop(place, None) if tried == 1 else self.takes.get(place)
        gone = [e for n, e in former.attempts.items() if tried in (1, n)] if former is not None else []
        for one in gone:
            one.replaced = True
        take = self.takes.setdefault(place, former or Take(self.name, *place))
        take.attempts = {} if tried == 1 else take.attempts
        take.attempts[tried] = entry
        return len(gone)

    @property
    def is_old(self) -> bool:
        return any(entry.record.v < records.VERSION for entry in self.entries)

    @property
    def warnings(self) -> Iterable[str]:
        """Yield a warning for each ignored line; for many damaged lines, only the first ones and the number of the
        others."""
        newer = [bad for bad in self.bad if bad.newer]
        damaged = [bad for bad in self.bad if not bad.newer and not bad.torn]
        for bad in damaged[:LISTED]:
            yield f"{self.name}, line {bad.line} is left out: {bad.why}"
        if (others := len(damaged) - LISTED) > 0:
            yield f"{self.name}: {others:,} more line{'s are' if others > 1 else ' is'} left out"
        for bad in self.bad:
            if bad.torn:
                yield f"{self.name}, line {bad.line}: the last record was not written to its end; it is left out"
        if newer:
            more = f" and {len(newer) - 1} more" if len(newer) > 1 else ""
            yield (
                f"{self.name}, line {newer[0].line}{more}: left out, written by a newer prose_kernel ({newer[0].why})"
            )


def read_file(path: Path, name: str) -> CassetteFile:
    """Read a cassette. Raises `OSError`. Invalid lines are set aside, never fatal."""
    signature = plain_files.stamp_of(path)
    return parse(plain_files.read(path, plain_files.HUGE), path, name, signature)


def parse(data: bytes, path: Path, name: str, signature: plain_files.Stamp | None = None) -> CassetteFile:
    found = CassetteFile(path, name, signature)
    for number, line, torn in jsonl.lines(data.removeprefix(BOM)):
        _add_line(found, number, line, torn)
    return found


def _add_line(found: CassetteFile, number: int, line: bytes, torn: bool) -> None:
    """Add the record of a line. A damaged record replaces nothing."""
    try:
        record = records.read(line)
    except BadLine as bad:
        found.bad.append(IgnoredLine(number, line, str(bad), torn))
        return
    if record.v > records.VERSION:
        found.bad.append(IgnoredLine(number, line, f"format version {record.v}", newer=True))
    elif record.t not in records.TYPES:
        found.bad.append(IgnoredLine(number, line, f"records of type {record.t!r}", newer=True))
    elif (record.key, record.at) in found.takes and (why := records.damage(record)) is not None:
        found.bad.append(IgnoredLine(number, line, why))
    else:
        found.put(PlacedRecord(found.name, number, record, line))
        if b'"ws":' in line or b'"home":' in line:
            _note_directories(found, record)


def _note_directories(found: CassetteFile, record: SearchFields) -> None:
    """Note the directories of the machine that made this record: in keys, they count as this machine's."""
    try:
        meta = records.part(record.meta, records.Meta)
    except BadLine:
        return
    for place, word in ((meta.ws, "«ws»"), (meta.home, "«home»")):
        if place.startswith("/") and 3 < len(place) < 400:
            found.places[place] = word


# ---------------------------------------------------------------- where they are


NOTEBOOKS: Final = (".ipynb", ".prose.md")
"""File name endings of notebooks."""


def own_path(options: CassetteOptions, where: Surroundings) -> Path:
    """Return the cassette to write: its given name, the name of the notebook, or `cassettes/session.jsonl`.

    Raises `UsageError` for a name that leads out of the workspace.
    """
    workspace = Path(where.cwd)
    if options.name:
        return _named(options.name, workspace)
    stem, notebook = UNNAMED, PurePath(where.notebook).name if where.notebook else ""
    for ending in NOTEBOOKS:
        if notebook.endswith(ending):
            stem = notebook.removesuffix(ending)
    return workspace / DIRECTORY / (stem + SUFFIX)


def _named(name: str, workspace: Path) -> Path:
    plain = PurePath(name)
    relative = plain if "/" in name or name.endswith(SUFFIX) else PurePath(DIRECTORY, name + SUFFIX)
    if relative.suffix != SUFFIX:
        relative = relative.parent / (relative.name + SUFFIX)  # `with_name` raises for the name of no file, such as `/`
    path = Path(os.path.normpath(workspace / relative))
    if re.search(r"[\x00-\x1f]", name) or not plain.name or not path.is_relative_to(workspace):
        raise UsageError(
            f"cassette {name!r}: a cassette is kept below the working directory",
            hint="give a name (`demo`) or a relative path (`recordings/demo.jsonl`)",
        )
    return path


def shown_name(path: Path, workspace: Path) -> str:
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.name


def all_paths(own: Path, workspace: Path) -> list[Path]:
    """Return every cassette that a replay reads: its own first, then those in `cassettes/` by name, without recordings
    of other evaluations."""
    directory = workspace / DIRECTORY
    try:
        others = sorted(path for path in directory.iterdir() if path.suffix == SUFFIX and path.name[0] != ".")
    except OSError:
        others = []
    return [own, *(path for path in others if path != own and not path.name.endswith(EVALUATION))]


# ---------------------------------------------------------------- writing

PATIENCE: Final = 10.0
"""The number of seconds that a record waits for another kernel to finish writing."""

LOCK: Final = ".lock"


class Writer:
    """The cassette that is written. Every method raises `OSError`; `BlockingIOError` while another process writes.

    No file stays open between two records: another kernel may have replaced the file.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        self.path = path
        self._private = private
        self._known = (0, 0, 0)  # inode, size and lines of the file after the last write

    def append(self, lines: bytes, *, patience: float = PATIENCE) -> int:
        """Add whole lines and return the number of the first one. If not all of them can be written, the file is not
        changed."""
        self._prepare()
        with self._locked(patience), plain_files.closing(jsonl.opened(self.path, private=self._private)) as descriptor:
            return self._append(descriptor, lines)

    def rewrite(self, change: Callable[[bytes], bytes]) -> None:
        """Replace the content with the result of `change`, atomically."""
        if os.path.lexists(self.path):
            with self._locked(PATIENCE):
                data = change(plain_files.read(self.path, plain_files.HUGE))
                atomic.write_whole(self.path, data, durable=True, in_place=True)

    @contextlib.contextmanager
    def _locked(self, patience: float) -> Iterator[None]:
        """Hold the lock of the directory; errors name the lock file."""
        lock = self.path.parent / LOCK
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(plain_files.locked(lock, patience))
            except BlockingIOError:
                raise
            except OSError as error:
                raise OSError(error.errno, plain_files.named(error, f"{lock.parent.name}/{LOCK}")) from None
            yield

    def _append(self, descriptor: int, lines: bytes) -> int:
        """Write to the end of an open file, after a line end if the last line is torn; return the first line's
        number."""
        found = os.fstat(descriptor)
        size = found.st_size
        before = self._known[2] if self._known[:2] == (found.st_ino, size) else _line_ends(descriptor)
        first = before + 1
        if size == 0:
            lines, first = encoded(head()) + lines, 2
        elif jsonl.is_torn(descriptor, size):
            lines, first = b"\n" + lines, first + 1
        jsonl.add(descriptor, lines)
        self._known = (found.st_ino, size + len(lines), before + lines.count(b"\n"))
        return first

    def _prepare(self) -> None:
        directory = self.path.parent
        if not directory.is_dir():
            try:
                atomic.keep_out_of_git(str(directory), f"{LOCK}\n.gitignore\n")
            except FileExistsError:
                raise NotADirectoryError(errno.ENOTDIR, f"{directory.name} is not a directory") from None


def _line_ends(descriptor: int) -> int:
    count = at = 0
    while piece := os.pread(descriptor, 1 << 20, at):
        count += piece.count(b"\n")
        at += len(piece)
    return count
