"""Reads files to show to people: recognizes the kind, and reads as much as is shown (docs/how-to/data-and-images.md).

Links are followed, because the person or the program names the file. Anything but a regular file (a directory, a pipe,
a device) is refused before it is opened, so nothing waits. Tables are read once, row by row.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import io
import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO, Final

from prose_kernel.errors import ExecError, reason_of
from prose_kernel.runtime import images
from prose_kernel.runtime.command_data import Sample, sample
from prose_kernel.runtime.data_formats import LONGEST_ROW
from prose_kernel.runtime.ports import ShownFile, ShowRequest
from prose_kernel.storage.file_digests import FileDigests

WHOLE: Final = 10_000_000
"""The most bytes of a file that is shown as a whole."""
TEXT: Final = 200_000
"""How many bytes of a text are read; fewer are shown."""
ROWS: Final = 30
COUNTED: Final = 200_000_000
"""The most characters of a table whose rows are all counted."""
_PIECE: Final = LONGEST_ROW
"""The most characters of a line that are read in one piece: a longer row is not read."""

_BY_SUFFIX: Final = {
    "svg": "image/svg+xml",
    "html": "text/html",
    "htm": "text/html",
    "md": "text/markdown",
    "markdown": "text/markdown",
    "ipynb": "application/x-ipynb+json",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "ndjson": "application/jsonl",
    "csv": "text/csv",
    "tsv": "text/csv",
}
_PICTURES: Final = {"png", "jpg", "jpeg", "gif", "webp", "pdf"}
_WHOLE: Final = frozenset({"image/svg+xml", "text/html", "application/x-ipynb+json", "application/json"})
_REASONS: Final = {
    errno.ENOENT: "there is no such file",
    errno.EACCES: "it may not be read",
    errno.EPERM: "it may not be read",
    errno.ENOTDIR: "a part of its path isn't a directory",
    errno.ELOOP: "its links lead in a circle",
    errno.ENAMETOOLONG: "its name is too long",
}
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe, which has no end",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class FilesToShow(FileDigests):
    """The `Files` port."""

    async def show(self, request: ShowRequest) -> ShownFile:
        return await asyncio.to_thread(read, request.path, request.directory)


def read(path: str, directory: str) -> ShownFile:
    """Return the file at a path relative to a directory. Raises `ExecError` (E223)."""
    if not path.strip():
        raise _refused(path, "its name is empty")
    try:
        file = _open(path, os.path.join(directory, os.path.expanduser(path)))  # noqa: PTH118
        with file:
            return _read(path, file)
    except OSError as problem:
        reason = _REASONS.get(problem.errno or 0) or reason_of(problem, "it cannot be read")
        raise _refused(path, reason) from None
    except ValueError:  # a NUL, or half of a character
        raise _refused(path, "that isn't a file name") from None


def _refused(path: str, reason: str) -> ExecError:
    return ExecError(f"{path or 'the file'} cannot be shown: {reason}", code="E223")


def _open(path: str, full: str) -> BinaryIO:
    if os.path.islink(full) and not os.path.exists(full) and not _loops(full):  # noqa: PTH110, PTH114
        raise _refused(path, "it is a link to a file that does not exist")
    _regular(path, os.stat(full).st_mode)  # noqa: PTH116
    descriptor = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    try:
        _regular(path, os.fstat(descriptor).st_mode)  # another file may have replaced it
    except ExecError:
        file.close()
        raise
    return file


def _loops(full: str) -> bool:
    try:
        os.stat(full)  # noqa: PTH116
    except OSError as problem:
        return problem.errno == errno.ELOOP
    return False


def _regular(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _refused(path, f"it is {_KINDS.get(stat.S_IFMT(mode), 'no file')}")


# ---------------------------------------------------------------- by kind


def _read(name: str, file: BinaryIO) -> ShownFile:
    size = os.fstat(file.fileno()).st_size
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    begin = file.read(4096) or b""  # None for a file of the system that has no data now
    file.seek(0)
    media = images.media_type(begin) or _BY_SUFFIX.get(suffix, "")
    if images.media_type(begin):
        return ShownFile(name, media, size, _whole(name, file, size))
    if suffix in _PICTURES:
        what = {"jpg": "JPEG", "pdf": "PDF", "webp": "WebP"}.get(suffix, suffix.upper())
        found = "it begins with other bytes" if begin else "it is empty"
        raise _refused(name, f"it isn't a {what}: {found}")
    if media in ("text/csv", "application/jsonl"):
        return _table(name, file, size, media) or _text(name, file, size, "text/plain")
    if media in _WHOLE or (not media and _is_svg(begin)):
        return ShownFile(name, media or "image/svg+xml", size, _whole(name, file, size))
    return _text(name, file, size, media or "text/plain")


def _whole(name: str, file: BinaryIO, size: int) -> bytes:
    data = file.read(WHOLE + 1) or b""
    if len(data) > WHOLE:
        counted = f"it has {max(size, len(data)):,} bytes"
        raise _refused(name, f"{counted}, and up to {WHOLE:,} are shown of a file of its kind")
    return data


def _is_svg(begin: bytes) -> bool:
    text = begin.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text.startswith(b"<svg") or (text.startswith(b"<?xml") and b"<svg" in text)


def _text(name: str, file: BinaryIO, size: int, media: str) -> ShownFile:
    file.seek(0)
    data = file.read(TEXT) or b""
    encoding = _encoding(data)
    if encoding == "utf-8-sig" and b"\0" in data:
        raise _refused(name, _NOT_TEXT)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data, len(data) < TEXT)
        note = ""
    except UnicodeDecodeError:
        if _CONTROL.search(data):
            raise _refused(name, _NOT_TEXT) from None
        text, note = data.decode("cp1252", "replace"), _ENCODING_NOTE
    return ShownFile(name, media, size, text.encode("utf-8", "replace"), note=note)


_NOT_TEXT: Final = "it isn't text, nor of another kind that can be shown"
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters, which texts in old encodings don't contain."""

_ENCODING_NOTE: Final = "it is not UTF-8 and was read as Windows-1252"


def _encoding(begin: bytes) -> str:
    return "utf-16" if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def _table(name: str, file: BinaryIO, size: int, media: str) -> ShownFile | None:
    """Return the first rows of a table and the number of its rows; None if it isn't a table."""
    form = "csv" if media == "text/csv" else "jsonl"
    encoding, note = _encoding(file.read(4)), ""
    try:
        found = _sample(file, encoding, form)
    except UnicodeError:
        found, note = _sample(file, "cp1252", form), _ENCODING_NOTE
    if found is None:
        return None
    if found.more:
        note = "; ".join(filter(None, (note, f"rows after the first {found.total:,} are not counted")))
    if found.problem:
        note = "; ".join(filter(None, (note, f"damaged: {found.problem}")))
    return ShownFile(name, media, size, rows=found.rows, total=found.total, note=note)


def _sample(file: BinaryIO, encoding: str, form: str) -> Sample | None:
    return sample(_lines(file, encoding), form, ROWS, COUNTED)


def _lines(file: BinaryIO, encoding: str) -> Iterator[str]:
    """Yield the lines with their line ends, a very long line in pieces."""
    file.seek(0)
    errors = "replace" if encoding == "cp1252" else "strict"
    reader = io.TextIOWrapper(file, encoding, errors, newline="")
    try:
        while line := reader.readline(_PIECE):
            yield line
    finally:
        if not file.closed:  # it may be closed if the caller ignores the rest
            reader.detach()  # keep the file open
