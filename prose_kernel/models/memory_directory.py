"""The directory of a memory: locked for one session at a time, and undoable until the journal has the answer.

A process may be killed while a session writes its memory, or later and before the answer is in the journal. The session
then runs again, and must find the memory unchanged. So before any change, `.undo` is written atomically into the
directory: the request that changes the memory, its journal, and the former contents of the files. It is removed when
the journal has the answer, before the lock is released. Any process that takes the lock and finds the file therefore
knows that its owner was killed: a change stays if its answer is in the journal, and is undone otherwise. This holds for
whichever run takes the lock first, the resumed run or another (docs/how-to/durability.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from prose_kernel.access import atomic, plain_files
from prose_kernel.access import safe_files as places
from prose_kernel.access.safe_files import ResolvedPath, ToolFailed, ToolRefused
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import Clock

FILE: Final = ".undo"
LOCKS: Final = (".lock", "lock")
"""The names of lock files: for text memories, and for digest memories."""

_LARGEST: Final = 64 * 1024 * 1024
_UNFINISHED: Final = "..undo.tmp"
_LEFT_OVER: Final = re.compile(r"\.?\.undo(\.tmp)?|\..+\.[0-9a-f]{8}\.tmp")
"""Files that a killed process leaves: the undo file, and unfinished files of `atomic` and `safe_files`."""

_SHORTEST, _LONGEST = 0.05, 1.0

IsAnswered = Callable[[Path, str], bool]
"""Whether a journal has the answer to a request."""


# ---------------------------------------------------------------- one session at a time


class KnownMemory(Struct):
    """A memory after the replayed answers: the digest of a memory outside the run, the texts of one inside it."""

    digest: str | None = None
    text: str | None = None
    segments: dict[str, str | None] = field(default_factory=dict)


class Memories:
    """The memories that the sessions of one run share: a queue for each, and the texts of memories that exist only in
    the run.

    The object outlives a change of provider. `is_answered` searches a journal, `warn` shows a warning. In a resumed
    run, `known` has the memories after the replayed answers, by directory.
    """

    def __init__(
        self, is_answered: IsAnswered = lambda path, key: False, warn: Callable[[str], object] = lambda text: None
    ) -> None:
        self.turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.of_the_run: dict[str, str] = {}
        self.is_answered = is_answered
        self.warn = warn
        self.known: dict[str, KnownMemory] = {}
        self._went_back = False
        self._compared: set[str] = set()

    def go_back(self) -> None:
        """Note that the run continues at an earlier point: warn about memories that contain later changes."""
        self._went_back = True

    def compare(self, directory: str, digest: str | None, name: str) -> None:
        """Warn before the first use of a memory outside a run that went back, if the memory has changed since."""
        if not self._went_back or directory in self._compared:
            return
        self._compared.add(directory)
        if digest is not None and digest != self.known.get(directory, KnownMemory()).digest:
            self.warn(f"{name} is not taken back with the run: it holds what came later")


def digest_of(text: str | bytes | None) -> str | None:
    """Return a hash that differs between two states of a memory; None for no memory."""
    if text is None:
        return None
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=8).hexdigest()


async def locked(
    path: str, clock: Clock, patience: float, held: contextlib.ExitStack, waiting: Callable[[], object] = lambda: None
) -> bool:
    """Lock a file against other processes until `held` ends; return False if another process keeps it for `patience`
    seconds. `waiting` is called when the first attempt fails. Raises `OSError` and `NotImplementedError`."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False)
    start, pause = clock.monotonic(), _SHORTEST
    while True:
        with contextlib.suppress(Timeout):
            lock.acquire(blocking=False)
            held.callback(lock.release)
            return True
        left = patience - (clock.monotonic() - start)
        if left <= 0:
            return False
        if pause == _SHORTEST:
            waiting()
        await clock.sleep(min(pause, max(left, _SHORTEST)))
        pause = min(pause * 2, _LONGEST)


# ---------------------------------------------------------------- files


def contents(path: Path | str, limit: int, *, tail: bool = False) -> tuple[bytes | None, int]:
    """Return the first or the last bytes of a file, and its size; None if it does not exist. Raises `ValueError` with
    the reason for anything but a plain file."""
    with plain_files.reading_if_there(path) as file:
        if file is None:
            return None, 0
        size = os.fstat(file.fileno()).st_size
        if tail and size > limit:
            file.seek(size - limit)
        return file.read(limit), size


def decoded(name: str, data: bytes, errors: str = "strict") -> str:
    """Decode the contents of the file `name`. Raises `ValueError`."""
    if b"\0" in data:
        raise ValueError(f"{name} is a binary file")
    try:
        return data.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not UTF-8 text") from None


def write(path: Path, text: str | bytes) -> None:
    """Create or replace a file of a memory. Raises `ToolFailed` and `ToolRefused`."""
    places.write_whole(
        ResolvedPath(path.name, str(path)), text.encode("utf-8", "replace") if isinstance(text, str) else text
    )


# ---------------------------------------------------------------- undo


class _Record(msgspec.Struct):
    """The contents of `.undo`. `files` maps names to former contents (None: the file did not exist), `ends` to former
    sizes."""

    journal: str
    key: str
    files: dict[str, bytes | None] = {}
    ends: dict[str, int] = {}


def remember(directory: str, names: tuple[str, ...], *, growing: tuple[str, ...] = ()) -> None:
    """Save the contents of the files `names`, and the sizes of `growing`, files that are only appended to.

    Raises `OSError`, and `ValueError` for anything but a plain file.
    """
    current = open_request.current()
    record = _Record(current.journal if current is not None else "", current.key if current is not None else "")
    for name in names:
        record.files[name], _ = contents(Path(directory, name), _LARGEST)
    for name in growing:
        try:
            record.ends[name] = Path(directory, name).lstat().st_size
        except FileNotFoundError:
            record.files[name] = None
    atomic.write_whole(f"{directory}/{FILE}", msgspec.json.encode(record), private=True)


def forget(directory: str) -> None:
    """Keep the memory as it is now. Never raises."""
    with contextlib.suppress(OSError):
        os.unlink(f"{directory}/{FILE}")  # noqa: PTH108 - called for every session


def put_back(directory: str) -> None:
    """Restore the memory to its state at the last `remember`. Files that cannot be restored stay as they are."""
    record = _read(directory)
    if record is not None:
        _put_back(directory, record)
    forget(directory)


def settle(directory: str, note: Mapping[str, object], held: contextlib.ExitStack | None = None) -> None:
    """Keep the written memory if the journal gets the answer, else undo it; then close `held`. `note` is recorded with
    the answer."""

    def settled(kept: bool) -> None:
        with held or contextlib.nullcontext():
            (forget if kept else put_back)(directory)

    current = open_request.current()
    if current is None:
        settled(True)
    else:
        current.notes["memory"] = note
        current.after(settled)


def recover(directory: str, own: Callable[[str], object], is_answered: IsAnswered) -> None:
    """Undo the changes of a killed process, unless its answer is in the journal. Call it after taking the lock.

    `own` recognizes the file names of such a memory; other files are not touched, whatever the record names.
    """
    record = _read(directory)
    if record is None:
        with contextlib.suppress(OSError):
            Path(directory, _UNFINISHED).unlink()
        return
    kept = record.journal and record.key and is_answered(Path(record.journal), record.key)
    if not kept and all(own(name) for name in (*record.files, *record.ends)):
        _put_back(directory, record)
    tidy(directory)


def forget_answered(memories: Memories) -> None:
    """Remove the undo files of killed processes from memories outside the run if the answer did reach the journal.
    Other undo files, and memories that another process has locked, are left to the next user of the memory."""
    used = [directory for directory, known in memories.known.items() if known.digest is not None]
    unfinished = [directory for directory in used if Path(directory, FILE).is_file()]
    if not unfinished:
        return
    from filelock import FileLock, Timeout  # slow to load, and rarely needed

    for directory in unfinished:
        with contextlib.suppress(OSError, Timeout), contextlib.ExitStack() as held:
            for path in (Path(directory, name) for name in LOCKS):
                if path.is_file() and not path.is_symlink():
                    held.enter_context(FileLock(path, timeout=0, thread_local=False))
            record = _read(directory)
            if record is not None and memories.is_answered(Path(record.journal), record.key):
                tidy(directory)


def tidy(directory: str) -> None:
    """Remove the files that a killed process has left here. Never raises."""
    with contextlib.suppress(OSError):
        left = [path for path in Path(directory).iterdir() if _LEFT_OVER.fullmatch(path.name)]
        for path in sorted(left, key=lambda path: path.name == FILE):  # the undo file last: until then it is needed
            path.unlink()


def _read(directory: str) -> _Record | None:
    try:
        data, _ = contents(Path(directory, FILE), _LARGEST)
        return msgspec.json.decode(data, type=_Record) if data is not None else None
    except (ValueError, OSError):  # damaged, or not written by prose_kernel
        forget(directory)
        return None


def _put_back(directory: str, record: _Record) -> None:
    for name, data in record.files.items():
        path = Path(directory, name)
        with contextlib.suppress(OSError, ValueError, ToolFailed, ToolRefused):
            if data is None:
                path.unlink(missing_ok=True)
            elif contents(path, _LARGEST)[0] != data:
                write(path, data)
    for name, end in record.ends.items():
        path = Path(directory, name)
        with contextlib.suppress(OSError), os.fdopen(plain_files.descriptor(path, os.O_RDWR), "r+b") as file:
            file.truncate(min(end, os.fstat(file.fileno()).st_size))
