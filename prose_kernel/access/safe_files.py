"""Opens files without following a link: the checked file is the opened file (exec-and-tasks.md 3.4, hazard 92).

A path is resolved once, by text. Rules check the resolved path; then it is walked from the root, component by
component, by descriptors that refuse links. If a link is inserted between the check and the use, the walk fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from prose_kernel.access import atomic, path_resolver, plain_files
from prose_kernel.errors import reason_of

_DIRECTORY: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SYSTEM: Final = ("/proc", "/sys", "/dev")


class ToolRefused(Exception):
    """Raised if the permissions do not allow a call; the message names the rule, for the model and for the trace.

    `audited` is True if the tool has already written the refusal into the audit log.
    """

    audited = False


class ToolFailed(Exception):
    """Raised if an allowed call did not work: no such file, no match, a time limit. The message is for the model."""


class ResolvedPath(Struct, frozen=True):
    """A path as given (`named`) and the resolved one: absolute, without links, `.` or `..` (it may not exist)."""

    named: str
    path: str


def resolve(text: str, cwd: str, home: str) -> ResolvedPath:
    """Return the place that a path names, relative to `cwd`; `~/` is `home`.

    Raises `ToolFailed` for an invalid path, `ToolRefused` for one that leads nowhere or into the kernel's files.
    """
    if not text.strip() or "\0" in text:
        raise ToolFailed("the path must be a non-empty text without NUL")
    named = home + text[1:] if text == "~" or text.startswith("~/") else text
    full = os.path.join(cwd, named)  # noqa: PTH118 - pathlib drops what matters here
    try:
        os.fsencode(full)
    except ValueError:
        raise ToolFailed(f"'{text}' is not a usable path") from None
    plain = os.path.normpath(full)
    if any(path_resolver.is_below(plain, place) for place in _SYSTEM) and not cwd.startswith(_SYSTEM):
        raise ToolRefused("system files are never open to a session")
    found = path_resolver.resolve(full)
    if found.reason is not None:
        raise (ToolFailed if found.reason == path_resolver.TOO_LONG else ToolRefused)(f"'{text}': {found.reason}")
    return ResolvedPath(text, found.path)


@contextlib.contextmanager
def parent(path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the directory that contains a resolved path, and the last name; `create` makes missing
    directories.

    Raises `OSError`; `ELOOP` or `ENOTDIR` if a link was inserted meanwhile.
    """
    *directories, name = path.split("/")[1:]
    descriptor = os.open("/", _DIRECTORY)
    try:
        for part in directories:
            deeper = _enter(descriptor, part, create=create)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor, name or "."
    finally:
        os.close(descriptor)


def _enter(directory: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


@contextlib.contextmanager
def opened(place: ResolvedPath) -> Iterator[int]:
    """Yield a descriptor of a regular file, for reading. Raises `ToolFailed` with a readable message."""
    with tool_errors(place), parent(place.path) as (directory, name):
        _regular(os.stat(name, dir_fd=directory, follow_symlinks=False), place)
        with plain_files.closing(os.open(name, _READ, dir_fd=directory)) as descriptor:
            _regular(os.fstat(descriptor), place)
            yield descriptor


@contextlib.contextmanager
def opened_directory(place: ResolvedPath) -> Iterator[int]:
    """Yield a descriptor of a directory, for listing. Raises `ToolFailed` with a readable message."""
    with (
        tool_errors(place),
        parent(place.path) as (directory, name),
        plain_files.closing(os.open(name, _LISTED, dir_fd=directory)) as descriptor,
    ):
        yield descriptor


def _regular(found: os.stat_result, place: ResolvedPath) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "link")
    if stat.S_ISDIR(found.st_mode):
        raise ToolFailed(f"'{place.named}' is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed(f"'{place.named}' is not a regular file")


def write_whole(place: ResolvedPath, data: bytes) -> None:
    """Create or replace a file atomically; an existing file keeps its mode. Missing directories are created.

    Raises `ToolFailed` with a readable message.
    """
    with tool_errors(place), parent(place.path, create=True) as (directory, name):
        mode = _mode(directory, name, place)
        temporary = f".{name[:100]}.{secrets.token_hex(4)}.tmp"
        atomic.replace(temporary, name, [data], mode, directory=directory)


def _mode(directory: int, name: str, place: ResolvedPath) -> int | None:
    """Return the mode bits to keep; None for a new file."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _regular(found, place)
    return stat.S_IMODE(found.st_mode)


@contextlib.contextmanager
def tool_errors(place: ResolvedPath) -> Iterator[None]:
    """Convert the system's errors to `ToolFailed`, with messages that contain the path as given."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolRefused(f"'{place.named}' became a link while it was being opened") from None
        raise ToolFailed(f"'{place.named}': {reason(error)}") from None


def reason(error: OSError) -> str:
    """Return why the system refused, in lower case and without a path."""
    known = {
        errno.ENOENT: "there is no such file or directory",
        errno.ENOTDIR: "a part of the path is not a directory",
        errno.EEXIST: "something else is in its place",
        errno.ENAMETOOLONG: "the name is too long",
        errno.EACCES: "the system does not permit it",
        errno.EPERM: "the system does not permit it",
        errno.ENOSPC: "the disk is full",
        errno.EROFS: "the disk is read-only",
    }
    return known.get(error.errno or 0) or reason_of(error, "it did not work")
