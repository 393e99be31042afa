"""Keeps the history of the files in a run's working directory (docs/how-to/durability.md, "Go back with files").

With `[run] keep_files` the directory is scanned before and after each command and session. The changes since the last
scan are written to `files.jsonl`, next to the journal, the contents to `files/`, by their SHA-256 digests. A file whose
size, mode, times and inode have not changed is not read again, unless it changed just before the last scan.

Each line has the number `at` of the last journal record at that time, so the files at any record are known. Changes
between two requests are attributed to the scan before: other programs made them, and going back keeps them.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import stat
import threading
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from prose_kernel.access import jsonl, plain_files
from prose_kernel.access.path_resolver import is_below
from prose_kernel.errors import reason_of
from prose_kernel.storage.file_digests import MOST_BYTES, MOST_FILES, SKIPPED

T = TypeVar("T")

HISTORY: Final = "files.jsonl"
CONTENTS: Final = "files"

_CACHES: Final = SKIPPED | {"__pycache__", "node_modules", ".ipynb_checkpoints"}
_CACHE_MARKERS: Final = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})
"""Files that mark a directory whose content can be made again."""
_RACY: Final = 50_000_000
"""Nanoseconds after a change in which a further change may have the same time."""
_SCAN_VALIDITY: Final = 0.05
"""Seconds after a scan in which the next command begins without another one, so that in a run without pauses each
command costs one scan."""
_PIECE: Final = 1 << 20


class FileState(NamedTuple):
    """A file (`f`), directory (`d`) or link (`l`). `content` is the SHA-256 digest of a file, or the target of a link;
    it begins with `?` for a file whose content was not read."""

    kind: str
    mode: int
    content: str = ""


Tree = dict[str, FileState]
"""Entries by paths relative to the working directory."""
_Seen = dict[str, tuple[tuple[int, ...], FileState]]


class Scanner:
    """Scans a directory for changes. `on_content` stores the content of a changed file: it gets the open file and its
    status, and returns the value for `FileState.content`. `without` are absolute paths to skip."""

    def __init__(
        self, directory: str, without: Sequence[str], on_content: Callable[[int, os.stat_result], str]
    ) -> None:
        self._directory = directory
        self._without = frozenset(without)
        self._on_content = on_content
        self._seen: _Seen = {}

    def changes(self) -> dict[str, FileState | None]:
        """Return the changes since the last scan, with None for a removed path. Raises `OSError`, also for too many
        files."""
        before, now = self._seen, _Seen()
        self._scan(now)
        changed: dict[str, FileState | None] = {
            path: entry for path, (_, entry) in now.items() if path not in before or before[path][1] != entry
        }
        changed.update((path, None) for path in before.keys() - now.keys())
        self._seen = now
        return changed

    def expect(self, tree: Tree) -> None:
        """Set the result of the last scan. The next scan reads every file again."""
        self._seen = {path: ((), entry) for path, entry in tree.items()}

    def _scan(self, found: _Seen) -> None:
        before, recent = self._seen, time.time_ns() - _RACY
        agenda = [("", self._directory)]
        while agenda:
            below, directory = agenda.pop()
            try:
                with os.scandir(directory) as listed:
                    entries = list(listed)
            except OSError:
                continue
            if below and any(entry.name in _CACHE_MARKERS for entry in entries):
                del found[below[:-1]]
                continue
            for entry in entries:
                path = below + entry.name
                if entry.name in _CACHES or entry.path in self._without:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                mode = status.st_mode
                state = (mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                if stat.S_ISDIR(mode):
                    agenda.append((f"{path}/", entry.path))
                    found[path] = state, FileState("d", mode & 0o7777)
                elif (known := before.get(path)) is not None and known[0] == state:
                    found[path] = known
                elif (read := entry_of(entry.path, status, self._on_content)) is not None:
                    found[path] = state if status.st_ctime_ns < recent else (), read
                if len(found) > MOST_FILES:
                    raise OSError(errno.EFBIG, f"the directory holds more than {MOST_FILES:,} files")


def entry_of(
    path: str, status: os.stat_result, on_content: Callable[[int, os.stat_result], str], directory: int | None = None
) -> FileState | None:
    """Return the entry of a path with this status, relative to an open directory; None if it is gone, or is a pipe or
    the like."""
    mode = stat.S_IMODE(status.st_mode)
    try:
        if stat.S_ISDIR(status.st_mode):
            return FileState("d", mode)
        if stat.S_ISLNK(status.st_mode):
            return FileState("l", 0, os.readlink(path, dir_fd=directory))
        if not stat.S_ISREG(status.st_mode):
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError:
        return FileState("f", mode, unknown(status))
    with plain_files.closing(descriptor):
        return FileState("f", mode, on_content(descriptor, status))


def unknown(status: os.stat_result) -> str:
    """Return the `content` of a file that was not read, which differs when the file has changed."""
    return f"?{status.st_size}-{status.st_mtime_ns}"


def pieces(descriptor: int) -> Iterator[bytes]:
    """Yield the content of an open file in pieces."""
    while piece := os.read(descriptor, _PIECE):
        yield piece


def digest(descriptor: int, _: os.stat_result) -> str:
    """Return the SHA-256 digest of an open file."""
    whole = hashlib.sha256()
    for piece in pieces(descriptor):
        whole.update(piece)
    return whole.hexdigest()


def skipped_paths(directory: str, run: Path, notebook: str = "") -> list[str]:
    """Return the paths that a history skips in addition to caches: the directories of runs and of their state, and the
    notebook, which its editor may save at any time."""
    own = [str(run.parent), str(run.parent.parent), *([notebook] if notebook else [])]
    return [path for path in map(os.path.realpath, own) if path != directory]


# ---------------------------------------------------------------- writing


class FileHistory:
    """Writes the history of one run. The `WorkingTree` port.

    `position` returns the number of the journal's next record. `warn` is called once if the history ends early.
    """

    def __init__(
        self, directory: Path, run: Path, position: Callable[[], int], warn: Callable[[str], None], notebook: str = ""
    ) -> None:
        self._run, self._directory = run, os.path.realpath(directory)
        self._position, self._warn = position, warn
        self._scanner = Scanner(self._directory, skipped_paths(self._directory, run, notebook), self._keep)
        self._lock = threading.Lock()
        self._at = self._bytes = self._open = 0
        self._scanned = float("-inf")
        self._began = self._ended = False

    async def watched(self, cwd: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `ask`, and record the files that change meanwhile. `cwd` is a command's directory."""
        try:
            await asyncio.shield(asyncio.to_thread(self._before, cwd))
            return await ask()
        finally:
            await asyncio.shield(asyncio.to_thread(self._after))

    def _before(self, cwd: str) -> None:
        with self._lock:
            if not self._began:
                self._begin()
            at = self._position() - 1
            if time.monotonic() - self._scanned > _SCAN_VALIDITY:
                self._scan(at if self._open else self._at)
            self._open += 1
            away = cwd if cwd and not is_below(os.path.realpath(cwd), self._directory) else ""
            self._write({"at": at, "open": 1, **({"outside": away} if away else {})})

    def _after(self) -> None:
        with self._lock:
            self._at = self._position() - 1
            self._scan(self._at, own=True)
            self._scanned = time.monotonic()
            self._open -= 1
            self._write({"at": self._at, "open": -1})

    def _begin(self) -> None:
        """Continue the history of an earlier process. Changes after a killed request count as made by it."""
        self._began = True
        found = read(self._run)
        if found is None:
            return
        self._ended = bool(found.problem)
        self._scanner.expect(found.tree_before(None))
        self._at = found.last
        if found.under_way:
            self._scan(found.last, own=True)
            self._write({"at": found.last, "open": -found.under_way})
        with suppress(OSError), os.scandir(self._run / CONTENTS) as kept:
            self._bytes = sum(entry.stat().st_size for entry in kept)

    def _scan(self, at: int, *, own: bool = False) -> None:
        if self._ended:
            return
        try:
            changed = self._scanner.changes()
            if changed:
                self._write({"at": at, "own": own or bool(self._open), "files": changed})
        except OSError as problem:
            self._end(reason_of(problem, "they cannot be written"))

    def _end(self, reason: str) -> None:
        self._ended = True
        with suppress(OSError):
            self._append({"at": self._at, "problem": reason})
        self._warn(f"the files of the run are no longer kept: {reason}")

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._ended:
            return
        try:
            self._append(line)
        except OSError as problem:
            self._end(reason_of(problem, "they cannot be written"))

    def _append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        jsonl.append(self._run / HISTORY, data, private=True)

    def _keep(self, descriptor: int, status: os.stat_result) -> str:
        """Store the content of an open file, and return its digest."""
        if status.st_size + self._bytes > MOST_BYTES:
            return unknown(status)
        store, size, whole = self._run / CONTENTS, 0, hashlib.sha256()
        begin = os.read(descriptor, _PIECE)
        if len(begin) < _PIECE and (store / hashlib.sha256(begin).hexdigest()).exists():
            return hashlib.sha256(begin).hexdigest()
        temporary = store / ".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(plain_files.descriptor(temporary, flags, 0o600, make=True), "wb") as new:
            for piece in chain([begin], pieces(descriptor)):
                whole.update(piece)
                size += len(piece)
                if size + self._bytes > MOST_BYTES:
                    return unknown(status)
                new.write(piece)
        place = store / whole.hexdigest()
        if not place.exists():
            temporary.replace(place)
            self._bytes += size
        return whole.hexdigest()


# ---------------------------------------------------------------- reading


class HistoryLine(NamedTuple):
    """The changes up to the record `at`. `own`: commands or sessions of the run were running. `outside` is the
    directory of a command if it is outside the working directory."""

    at: int
    own: bool
    files: dict[str, FileState | None]
    outside: str = ""


class HistoryRead(NamedTuple):
    """A history as read from its file. `under_way` is the number of requests that had not ended; `problem` is the
    reason why the history is incomplete."""

    lines: list[HistoryLine]
    last: int
    under_way: int
    problem: str = ""

    def tree_before(self, record: int | None) -> Tree:
        """Return the files when a record of the journal was written; the last known files for None."""
        tree: Tree = {}
        for line in self.lines:
            if record is None or line.at < record:
                for path, entry in line.files.items():
                    tree.pop(path, None)
                    if entry is not None:
                        tree[path] = entry
        return tree

    def since(self, record: int, *, own: bool) -> set[str]:
        """Return the paths that the run (`own`) or other programs have changed since a record."""
        return {path for line in self.lines if line.at >= record and line.own == own for path in line.files}

    def states(self) -> dict[str, set[FileState | None]]:
        """Return all former entries of each path that the run has changed; each of them can be restored."""
        own = self.since(0, own=True)
        found: dict[str, set[FileState | None]] = {}
        for line in self.lines:
            for path in line.files.keys() & own:
                before: set[FileState | None] = {None} if line.own else set()
                found.setdefault(path, before).add(line.files[path])
        return found


def read(run: Path) -> HistoryRead | None:
    """Return the history in the directory of a run; None if there is none. Damaged lines, and paths that lead out of
    the directory, are skipped, because commands can write the file."""
    lines: list[HistoryLine] = []
    last, under_way, problem, empty = 0, 0, "", True
    for _, line in jsonl.objects(run / HISTORY):
        at, files = line.get("at"), line.get("files", {})
        if not isinstance(at, int) or not isinstance(files, dict):
            continue
        empty = False
        last, problem = max(last, at), problem or str(line.get("problem", ""))
        under_way += line["open"] if line.get("open") in (1, -1) or isinstance(line.get("open"), int) else 0
        found = {path: _entry(entry) for path, entry in files.items() if is_inside(path)}
        if found or "outside" in line:
            lines.append(HistoryLine(at, bool(line.get("own")), found, str(line.get("outside", ""))))
    return None if empty else HistoryRead(lines, last, max(under_way, 0), problem)


def is_inside(path: str) -> bool:
    """Return whether a relative path stays in its directory."""
    return bool(path) and "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _entry(written: object) -> FileState | None:
    match written:
        case [("f" | "d" | "l") as kind, int(mode), str(content)]:
            return FileState(kind, mode & 0o7777, content)
        case _:
            return None


def copy(run: Path, new: Path, numbers: Sequence[int], before: int) -> None:
    """Begin the history of a branch of a run with the changes before the record `before`. `numbers` are the records
    that the branch has kept. Contents are shared by hard links where possible. Raises `OSError`."""
    history = read(run)
    if history is None:
        return
    (new / CONTENTS).mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError), os.scandir(run / CONTENTS) as kept:
        for entry in kept:
            if not entry.name.startswith("."):
                _link(run / CONTENTS / entry.name, new / CONTENTS / entry.name)
    lines = [line._replace(at=bisect_right(numbers, line.at)) for line in history.lines if line.at < before]
    data = [json.dumps(line._asdict(), separators=(",", ":")) for line in lines]
    if history.problem:
        data.append(json.dumps({"at": 0, "problem": history.problem}))
    jsonl.append(new / HISTORY, "".join(f"{line}\n" for line in data).encode(), private=True)


def _link(source: Path, target: Path) -> None:
    """Link a file, or copy it where the system cannot link. Raises `OSError`."""
    try:
        os.link(source, target)
    except OSError as problem:
        if problem.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        target.write_bytes(plain_files.read(source, MOST_BYTES))
