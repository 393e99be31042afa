"""What a memory was before it is changed, until the change is in the journal (docs/durability.md).

A process may be killed while a session writes its memory, or after that and before the answer is in the journal. The
session then runs again, and must find the memory as it was. So before anything is changed, `.undo` is written beside
the memory, whole or not at all: which request changes it, in which journal, and what the files hold until then. It is
removed when the journal has the answer, before the memory's lock is let go. Who takes the lock and finds the file thus
knows that its owner was killed: a change whose answer is in the journal stays, any other one is put back. That is so
for whichever run comes first, the resumed one or another; and a lock ends with its process.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from prose_kernel.access import atomic, plain_files
from prose_kernel.access import safe_files as places
from prose_kernel.access.safe_files import Place, ToolFailed, ToolRefused
from prose_kernel.runtime import asides

FILE: Final = ".undo"
_UNFINISHED: Final = "..undo.tmp"
_LARGEST: Final = 64 * 1024 * 1024
_LEFT_OVER: Final = re.compile(r"\.undo|\.\.undo\.tmp|\..+\.[0-9a-f]{8}\.tmp")
"""Left by a killed process: this record, and unfinished files of `atomic` and `safe_files`."""

IsAnswered = Callable[[Path, str], bool]
"""Whether a journal has the answer to a request."""


class _Record(msgspec.Struct):
    """`files` maps names to what they held (None: there was no such file), `ends` to how long they were."""

    journal: str
    key: str
    files: dict[str, bytes | None] = {}
    ends: dict[str, int] = {}


def remember(directory: str, names: tuple[str, ...], *, growing: tuple[str, ...] = ()) -> None:
    """Write down what these files hold; of `growing` ones, to which something is only appended, how long they are.

    Raises `OSError`, and `ValueError` for what is no plain file.
    """
    aside = asides.current()
    record = _Record(aside.journal if aside is not None else "", aside.key if aside is not None else "")
    for name in names:
        record.files[name] = _bytes(Path(directory, name))
    for name in growing:
        with contextlib.suppress(FileNotFoundError):
            record.ends[name] = os.lstat(os.path.join(directory, name)).st_size  # noqa: PTH118
        if name not in record.ends:
            record.files[name] = None
    atomic.write_whole(f"{directory}/{FILE}", msgspec.json.encode(record), private=True)


def forget(directory: str) -> None:
    """What the memory holds now, counts. Never raises."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(directory, FILE))  # noqa: PTH108, PTH118


def put_back(directory: str) -> None:
    """Make the memory as it was when `remember` was called last. What cannot be put back stays as it is."""
    record = _read(directory)
    if record is not None:
        _put_back(directory, record)
    forget(directory)


def recover(directory: str, own: Callable[[str], bool], is_answered: IsAnswered) -> None:
    """After taking the lock: put back what a killed process has changed, unless its answer is in the journal.

    `own` tells which names are files of such a memory: nothing else is touched, whatever the record says.
    """
    record = _read(directory)
    if record is None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, _UNFINISHED))  # noqa: PTH108, PTH118
        return
    kept = record.journal and record.key and is_answered(Path(record.journal), record.key)
    if not kept and all(own(name) for name in (*record.files, *record.ends)):
        _put_back(directory, record)
    tidy(directory)


def forget_answered(directory: str, locks: tuple[str, ...], is_answered: IsAnswered) -> None:
    """Remove the record of a killed process whose answer is in the journal after all; any other one is left to whoever
    uses the memory next. Does nothing while another process has one of the memory's locks."""
    from filelock import FileLock, Timeout

    if not os.path.isfile(os.path.join(directory, FILE)):  # noqa: PTH113, PTH118
        return
    with contextlib.suppress(OSError, Timeout), contextlib.ExitStack() as held:
        for name in locks:
            path = os.path.join(directory, name)  # noqa: PTH118
            if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
                held.enter_context(FileLock(path, timeout=0, thread_local=False))
        record = _read(directory)
        if record is not None and is_answered(Path(record.journal), record.key):
            tidy(directory)


def tidy(directory: str) -> None:
    """Remove what a killed process has left here. Never raises."""
    with contextlib.suppress(OSError):
        left = [name for name in os.listdir(directory) if _LEFT_OVER.fullmatch(name)]  # noqa: PTH208
        for name in sorted(left, reverse=True, key=lambda name: name != FILE):  # the record last: until then it is due
            os.unlink(os.path.join(directory, name))  # noqa: PTH108, PTH118


def _read(directory: str) -> _Record | None:
    try:
        data = _bytes(Path(directory, FILE))
        return msgspec.json.decode(data, type=_Record) if data is not None else None
    except (ValueError, OSError):  # damaged, or none of ours
        forget(directory)
        return None


def _put_back(directory: str, record: _Record) -> None:
    for name, data in record.files.items():
        path = Path(directory, name)
        with contextlib.suppress(OSError, ValueError, ToolFailed, ToolRefused):
            if data is None:
                path.unlink(missing_ok=True)
            elif _bytes(path) != data:
                places.write_whole(Place(name, str(path)), data)
    for name, end in record.ends.items():
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(Path(directory, name), flags), "r+b") as file:
                file.truncate(min(end, os.fstat(file.fileno()).st_size))


def _bytes(path: Path) -> bytes | None:
    with plain_files.reading_if_there(path) as file:
        return None if file is None else file.read(_LARGEST)
