"""The file tools: read, write, edit, list."""

from __future__ import annotations

import codecs
import io
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.access import safe_files as places
from prose_kernel.access.globs import Glob
from prose_kernel.access.grants import Reach
from prose_kernel.access.safe_files import ResolvedPath
from prose_kernel.models.tools.permission_check import Access
from prose_kernel.models.tools.tool import StopFlag, ToolFailed, ToolRefused, ToolSpec, counted, flag, in_thread, text
from prose_kernel.runtime.ports import FileWrite

READ_LIMIT: Final = 256 * 1024
WRITE_LIMIT: Final = 10 * 1024 * 1024
LIST_LIMIT: Final = 1000
_LOOKED_AT: Final = 200_000
_DEEPEST: Final = 100
_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer"}


def schema_of(required: tuple[str, ...], **properties: Mapping[str, object]) -> dict[str, object]:
    """Return the JSON schema of a tool's arguments, kept short because every request contains it."""
    named = {"required": [*required]} if required else {}
    return {"type": "object", "properties": properties, **named}


Wrote = Callable[[ResolvedPath, str | None, str], None]


class ReadTool:
    """Returns the text of a file, or some lines of it: at most 256 KiB per call."""

    spec = ToolSpec(
        "read",
        "Read a text file: all, or `limit` lines from line `offset`.",
        schema_of(("path",), path=TEXT, offset=_COUNT, limit=_COUNT),
    )

    def __init__(self, access: Access) -> None:
        self._access = access

    def summary(self, arguments: Mapping[str, object]) -> str:
        lines = " ".join(f"{name} {arguments[name]}" for name in ("offset", "limit") if name in arguments)
        return f"{_named(self._access, arguments)} {lines}".rstrip()

    async def call(self, arguments: Mapping[str, object]) -> str:
        path = text(arguments, "path")
        first, limit = (counted(arguments, name, usual) for name, usual in (("offset", 1), ("limit", 0)))
        row = self._access.row(path)
        if row is not None:
            data = row.encode("utf-8", "replace")
            return _lines_of(io.BytesIO(data), len(data), first, limit, path, lambda: None)
        place = await self._access.file("read", path, path)

        def read(stop: StopFlag) -> str:
            shown = _lines(place, first, limit, stop)
            self._access.saw(place)
            return shown

        return await in_thread(read)


def _lines(place: ResolvedPath, first: int, limit: int, stop: StopFlag) -> str:
    """Return the lines from `first`, up to `limit` lines (0: all) and `READ_LIMIT` bytes."""
    with places.opened(place) as descriptor, open(descriptor, "rb", closefd=False) as file:
        size = os.fstat(descriptor).st_size
        start = file.read(8192)
        if start.startswith(b"SQLite format 3\0"):
            reads = "read a binding in it by the whole location in the context"
            raise ToolFailed(f"'{place.named}' is a database: {reads}")
        if b"\0" in start:
            raise ToolFailed(f"'{place.named}' is a binary file ({size:,} bytes): it cannot be read as text")
        file.seek(0)
        return _lines_of(file, size, first, limit, place.named, stop.check)


def _lines_of(file: BinaryIO, size: int, first: int, limit: int, named: str, check: Callable[[], None]) -> str:
    at = 1
    while at < first:
        piece = file.readline(READ_LIMIT)
        if not piece:
            break
        at += piece.endswith(b"\n")
        check()
    if at < first:
        return f"[the file ends before line {first}]"
    taken, cut, count = _whole_lines(file.readline, limit)
    shown = _decoded(taken, named, size, cut=cut == "inside")
    last = at + count
    if cut == "inside":
        return f"{shown}\n\n[line {last} is cut here: a call returns at most {READ_LIMIT:,} bytes of {size:,}]"
    if cut:
        return f"{shown}\n\n[cut before line {last}: read on with offset {last}]"
    return shown


def _whole_lines(readline: Callable[[int], bytes], limit: int) -> tuple[bytes, str, int]:
    """Return the whole lines that fit; where they are cut (`""`, `between` lines, `inside` one); the number of
    lines."""
    pieces: list[bytes] = []
    room = READ_LIMIT
    while not limit or len(pieces) < limit:
        piece = readline(READ_LIMIT)
        if not piece:
            return b"".join(pieces), "", len(pieces)
        if len(piece) > room:
            return b"".join(pieces), "between", len(pieces)
        pieces.append(piece)
        room -= len(piece)
        if not piece.endswith(b"\n") and len(piece) == READ_LIMIT:
            return b"".join(pieces), "inside", len(pieces) - 1
    return b"".join(pieces), "between" if readline(1) else "", len(pieces)


def _decoded(data: bytes, named: str, size: int, *, cut: bool) -> str:
    """Decode UTF-8; a character that was cut in two is dropped."""
    try:
        return codecs.getincrementaldecoder("utf-8")("strict").decode(data, final=not cut)
    except UnicodeDecodeError:
        raise ToolFailed(f"'{named}' is not UTF-8 text ({size:,} bytes): it cannot be read as text") from None


def read_text(place: ResolvedPath, limit: int = WRITE_LIMIT) -> str | None:
    """Return the whole text of a file, line ends unchanged; None if there is no such file. Raises `ToolFailed` for a
    file that is not text, or is larger than `limit` bytes."""
    try:
        os.stat(place.path, follow_symlinks=False)  # noqa: PTH116 - a resolved path
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolFailed(f"'{place.named}': {places.reason(error)}") from None
    with places.opened(place) as descriptor, open(descriptor, "rb", closefd=False) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ToolFailed(f"'{place.named}' is larger than {limit:,} bytes")
    if b"\0" in data:
        raise ToolFailed(f"'{place.named}' is a binary file ({len(data):,} bytes)")
    return _decoded(data, place.named, len(data), cut=False)


# ---------------------------------------------------------------- writing


class WriteTool:
    """Creates or replaces a text file atomically."""

    spec = ToolSpec("write", "Write a whole text file.", schema_of(("path", "content"), path=TEXT, content=TEXT))

    def __init__(self, access: Access, wrote: Wrote) -> None:
        self._access = access
        self._wrote = wrote

    def summary(self, arguments: Mapping[str, object]) -> str:
        return f"{_named(self._access, arguments)} ({len(str(arguments.get('content', ''))):,} characters)"

    async def call(self, arguments: Mapping[str, object]) -> str:
        path, content = text(arguments, "path"), text(arguments, "content", empty=True)
        place = await self._access.file("write", path, f"{path}\n\n{content}")
        before = await in_thread(lambda _stop: replace(place, content))
        self._wrote(place, before, content)
        return f"{'Replaced' if before is not None else 'Created'} '{path}' ({len(content):,} characters)."


def replace(place: ResolvedPath, content: str) -> str | None:
    """Write a text file and return its former text. Raises `ToolFailed`, also if the existing file is not text."""
    data = _encoded(content, place)
    before = read_text(place)
    places.write_whole(place, data)
    return before


def _encoded(content: str, place: ResolvedPath) -> bytes:
    try:
        data = content.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolFailed("the content holds a lone surrogate, which isn't a character") from None
    if len(data) > WRITE_LIMIT:
        raise ToolFailed(f"'{place.named}' would have {len(data):,} bytes; at most {WRITE_LIMIT:,} can be written")
    return data


class EditTool:
    """Replaces a piece of a text file that occurs exactly once, or all its occurrences."""

    spec = ToolSpec(
        "edit",
        "Replace a text that a file has once, or all.",
        schema_of(("path", "old", "new"), path=TEXT, old=TEXT, new=TEXT, all={"type": "boolean"}),
    )

    def __init__(self, access: Access, wrote: Wrote) -> None:
        self._access = access
        self._wrote = wrote

    def summary(self, arguments: Mapping[str, object]) -> str:
        return _named(self._access, arguments)

    async def call(self, arguments: Mapping[str, object]) -> str:
        path, old = text(arguments, "path"), text(arguments, "old")
        new, everywhere = text(arguments, "new", empty=True), flag(arguments, "all")
        await self._access.file("read", path, path)
        place = await self._access.file("write", path, f"{path}\n\nreplace\n{old}\n\nby\n{new}")
        before, after, count = await in_thread(lambda _stop: _edited(place, old, new, everywhere=everywhere))
        self._wrote(place, before, after)
        return f"Replaced {count:,} occurrence{'s' if count != 1 else ''} in '{path}'."


def _edited(place: ResolvedPath, old: str, new: str, *, everywhere: bool) -> tuple[str, str, int]:
    before = read_text(place)
    if before is None:
        raise ToolFailed(f"'{place.named}': there is no such file or directory")
    count = before.count(old)
    if not count:
        raise ToolFailed(f"the text to replace does not occur in '{place.named}'")
    if count > 1 and not everywhere:
        raise ToolFailed(f"the text to replace occurs {count:,} times in '{place.named}': give more of it, or `all`")
    after = before.replace(old, new)
    places.write_whole(place, _encoded(after, place))
    return before, after, count


class Writes:
    """The written files, one entry per file: its text before the first write and after the last."""

    def __init__(self, access: Access) -> None:
        self._shown = access.shown
        self._changes = access.changes
        self._files: dict[str, FileWrite] = {}

    def __call__(self, place: ResolvedPath, before: str | None, after: str) -> None:
        self._changes(place)
        former = self._files.get(place.path)
        first = former.before if former is not None else before
        self._files[place.path] = FileWrite(self._shown(place), first, after)

    @property
    def all(self) -> tuple[FileWrite, ...]:
        return tuple(self._files.values())

    @property
    def before(self) -> dict[str, str | None]:
        """Return the text of each file before the first write, by its path."""
        return {path: write.before for path, write in self._files.items()}

    def restore(self, before: Mapping[str, str | None]) -> None:
        """Add files that an earlier process of the run wrote: their current text is the text after the last write."""
        for path, former in before.items():
            place = ResolvedPath(path, path)
            try:
                after = read_text(place)
            except (ToolFailed, ToolRefused):
                after = None
            self._changes(place)
            self._files[path] = FileWrite(self._shown(place), former, after)


# ---------------------------------------------------------------- listing


class ListTool:
    """Lists the files of a directory, or those below it that match a pattern."""

    spec = ToolSpec(
        "list", "List a directory, or the files below it that match a glob.", schema_of((), path=TEXT, pattern=TEXT)
    )

    def __init__(self, access: Access) -> None:
        self._access = access

    def summary(self, arguments: Mapping[str, object]) -> str:
        return f"{_named(self._access, arguments, '.')} {arguments.get('pattern', '')}".rstrip()

    async def call(self, arguments: Mapping[str, object]) -> str:
        path, pattern = text(arguments, "path", "."), text(arguments, "pattern", "")
        place, reach = await self._access.directory(path, f"the list of {path}")
        visible = Visible(self._access, reach)
        return await in_thread(lambda stop: _listed(place, pattern, visible, stop))


def _listed(place: ResolvedPath, pattern: str, visible: Visible, stop: StopFlag) -> str:
    glob = Glob(pattern) if pattern else None
    found: list[str] = []
    for entry in walk(place, visible, stop, deep=glob is not None):
        if glob is None or (not entry.is_directory and glob.matches(entry.name)):
            found.append(entry.name + ("/" if entry.is_directory else " (link)" if entry.is_link else ""))
        if len(found) > LIST_LIMIT:
            return "\n".join(found[:LIST_LIMIT]) + f"\n\n[more than {LIST_LIMIT:,}: use a narrower pattern]"
    return "\n".join(found) or "[nothing to list]"


class DirectoryEntry(Struct, frozen=True):
    """An entry of a directory: its path relative to the start of the walk, and the descriptor of its directory."""

    name: str
    path: str
    directory: int
    is_directory: bool
    is_link: bool


class Visible:
    """Decides which entries of a directory are visible to the session."""

    def __init__(self, access: Access, reach: Reach) -> None:
        self._access = access
        self._reach = reach

    def __call__(self, path: str, *, directory: bool) -> bool:
        if self._access.policy.protects("read", path) is not None:
            return False
        return self._reach.covers(path) or (directory and self._reach.covers_below(path))


def walk(place: ResolvedPath, visible: Visible, stop: StopFlag, *, deep: bool) -> Iterator[DirectoryEntry]:
    """Yield the entries of a directory sorted by name, each directory before its contents. Links are not followed.

    Everything is opened by descriptors relative to the checked directory. `.git` is not entered. The walk ends after
    200,000 entries, and does not go deeper than 100 directories. Raises `ToolFailed` for the directory itself; entries
    below it that cannot be opened are skipped.
    """
    with places.opened_directory(place) as top:
        below = _below(top, "", f"{place.path.rstrip('/')}/", visible, _DEEPEST if deep else 0)
        for entry in itertools.islice(below, _LOOKED_AT):
            stop.check()
            yield entry


def _below(descriptor: int, prefix: str, root: str, visible: Visible, depth: int) -> Iterator[DirectoryEntry]:
    with os.scandir(descriptor) as scanned:
        entries = sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in scanned)
    for name, is_directory, is_link in entries:
        path = prefix + name
        if not visible(root + path, directory=is_directory):
            continue
        yield DirectoryEntry(path, root + path, descriptor, is_directory, is_link)
        if is_directory and depth and name != ".git":
            try:
                inner = os.open(name, _LISTED, dir_fd=descriptor)
            except OSError:
                continue
            with plain_files.closing(inner):
                yield from _below(inner, f"{path}/", root, visible, depth - 1)


def _named(access: Access, arguments: Mapping[str, object], usual: str | None = None) -> str:
    """Return the path of a call for its summary, also of a refused call. Raises `ToolFailed` if there is none."""
    path = text(arguments, "path", usual)
    try:
        return access.shown(places.resolve(path, access.cwd, access.home))
    except Exception:  # refused or impossible: the path as given
        return access.neutral(path)
