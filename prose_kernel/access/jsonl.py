"""Files of JSON lines: journals, recordings, audit logs, results, ledgers.

A process that is killed while it writes leaves a torn last line, and a person may edit any line. Only that line is
lost: readers skip it, and the next writer begins a new line after it. Lines are added completely or not at all. Only
`durable` lines wait for the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prose_kernel.access import plain_files

# ---------------------------------------------------------------- writing


def opened(path: Path | str, *, private: bool = False) -> int:
    """Open a file to add lines and return its descriptor; create the file and its directory if missing. Raises
    `OSError`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    return plain_files.descriptor(path, flags, 0o600 if private else 0o666, make=True)


def add(descriptor: int, data: bytes) -> None:
    """Write whole lines at the end of an open file. Raises `OSError`, after removing lines that a full disk has cut
    short."""
    written = os.write(descriptor, data)  # called for each journal record, so the usual case is one call
    try:
        while written < len(data):
            written += os.write(descriptor, memoryview(data)[written:])
    except OSError:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


def is_torn(descriptor: int, size: int) -> bool:
    """Return whether the last line of an open file of this size lacks its line end."""
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


@contextlib.contextmanager
def added(path: Path | str, data: bytes, *, durable: bool = False, private: bool = False) -> Iterator[None]:
    """Add whole lines to a file, and remove them if the block fails. Raises `OSError`."""
    with plain_files.closing(opened(path, private=private)) as descriptor:
        end = os.fstat(descriptor).st_size
        add(descriptor, b"\n" + data if is_torn(descriptor, end) else data)
        if durable:
            os.fsync(descriptor)
        try:
            yield
        except BaseException:
            os.ftruncate(descriptor, end)
            raise


def append(path: Path | str, data: bytes, *, durable: bool = False, private: bool = False) -> None:
    """Add whole lines to a file. Raises `OSError`."""
    with added(path, data, durable=durable, private=private):
        pass


# ---------------------------------------------------------------- reading


def lines(data: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the number and bytes of each line that is not blank, and whether it is a torn last line."""
    *whole, torn = data.split(b"\n")
    for number, line in enumerate(whole, 1):
        if line and not line.isspace():
            yield number, line, False
    if torn and not torn.isspace():
        yield len(whole) + 1, torn, True


def objects(path: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines of a file as JSON objects, with their numbers; an empty object for a damaged line. Yield nothing
    if the file cannot be read."""
    with contextlib.suppress(OSError):
        for number, line, _ in lines(plain_files.read(path)):
            yield number, json_object(line.decode("utf-8", "replace"))


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text of any origin; empty if the text holds none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
