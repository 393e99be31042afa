"""Which files the `read`, `write` and `execute` patterns of a session cover, judged on resolved paths (3.12)."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from prose_kernel.errors import PermissionDenied
from prose_kernel.permissions.globs import Glob, static_part

_SYSTEM: Final = ("/proc", "/sys", "/dev")
_GATES: Final = re.compile(r"runs/[^/]+/(?:imports/[^/]+/)*gates(?:/|$)")
_SECRET_FILE: Final = re.compile(r"(?:^|/)\.env(?:\.(?!(?:example|sample|template|dist)$)[^/]*)?$")
_SETTINGS: Final = "prose.toml"
_RECORDINGS: Final = "cassettes"
_RECORDING: Final = ".jsonl"


@dataclass(frozen=True, slots=True)
class Surface:
    """The places that patterns are relative to: the workspace, the home directory, the state directory."""

    cwd: str
    home: str
    state: str


class Reach:
    """The paths that one rule covers, its patterns' static parts resolved at this moment.

    Make a new one for each call: a link may have changed.
    """

    def __init__(self, globs: Iterable[Glob] = (), *, everywhere: bool = False, below: str | None = None) -> None:
        self._globs = tuple(globs)
        self._everywhere = everywhere
        self._below = below

    def covers(self, path: str) -> bool:
        """Whether the resolved path is covered. The workspace as a whole does not include files named `.env`."""
        if self._everywhere or any(glob.matches(path) for glob in self._globs):
            return True
        return self._below is not None and is_below(path, self._below) and not _SECRET_FILE.search(path)

    def covers_below(self, directory: str) -> bool:
        """Whether anything below the resolved directory could be covered."""
        if self._everywhere or any(glob.could_match_below(directory) for glob in self._globs):
            return True
        return self._below is not None and (is_below(directory, self._below) or is_below(self._below, directory))


def check(kind: str, pattern: str) -> None:
    """Raises `PermissionDenied` for a pattern that climbs out with `..`, or holds what no path can."""
    if ".." in pattern.split("/"):
        raise PermissionDenied(
            f"the permission `{kind}: {pattern}` is refused: `..` is not allowed in a pattern",
            hint="name the place from the workspace down, or as an absolute path",
        )
    if "\0" in pattern:
        raise PermissionDenied(f"a `{kind}` permission is refused: a pattern cannot hold a NUL character")


def reach(patterns: Iterable[str], surface: Surface) -> Reach:
    """What the patterns cover now."""
    return Reach(glob for pattern in patterns if pattern for glob in _globs(pattern, surface))


def workspace(surface: Surface) -> Reach:
    return Reach(below=os.path.realpath(surface.cwd))


def programs(patterns: Iterable[str], surface: Surface, search_path: str | None) -> Reach:
    """What the patterns of `execute` cover: a bare word is looked up on the search path."""
    found = (
        shutil.which(pattern, path=search_path) or "" if not set(pattern) & set("/*?~") else pattern
        for pattern in patterns
    )
    return reach(found, surface)


def _globs(pattern: str, surface: Surface) -> tuple[Glob, ...]:
    """A pattern from the root on; `.` and empty components are dropped, a trailing `/` covers everything below."""
    if pattern == "~" or pattern.startswith("~/"):
        base, pattern = surface.home, pattern[1:]
    else:
        base = "/" if pattern.startswith("/") else surface.cwd
    static, rest = static_part("/".join(part for part in pattern.split("/") if part not in ("", ".")))
    resolved = os.path.realpath(os.path.join(base, static))  # noqa: PTH118 - text in, text out
    return _compiled(resolved if resolved != "/" else "", rest, pattern.endswith(("/", "/.")) or pattern == ".")


@lru_cache(maxsize=512)
def _compiled(resolved: str, rest: str, below: bool) -> tuple[Glob, ...]:
    itself = Glob(rest, literal=resolved) if resolved or rest else Glob("/")
    return (itself, Glob(f"{rest}/**", literal=resolved)) if below else (itself,)


def is_below(path: str, directory: str) -> bool:
    """Whether the path is the directory or lies in it, at component boundaries."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


# ---------------------------------------------------------------- what no rule opens


def protected(kind: str, path: str, surface: Surface) -> str | None:
    """Why no rule opens this resolved path to a session (None: rules decide).

    Devices and kernel files; the state directory's `.env`; gate records, which only an outside principal may decide.
    Not to be written: what is kept in the state directory but for memories, above all anything of a run (the session's
    own files are granted apart), the workspace's settings, and its recordings.
    """
    home = os.path.realpath(surface.cwd)
    if any(is_below(path, place) and not is_below(home, place) for place in _SYSTEM):
        return "system files are never open to a session"
    for inside in _state_parts(path, surface):
        if inside == ".env":
            return "the state directory's `.env` is never open to a session"
        if _GATES.match(inside):
            return "gate records are never open to a session"
        if kind == "write" and is_below(inside, "runs"):
            return "a session writes only its own files of a run"
        if kind == "write" and not is_below(inside, "agents"):
            return "what is kept in the state directory is not for sessions to write"
    if kind == "write" and path == f"{home.rstrip('/')}/{_SETTINGS}":
        return "the settings in `prose.toml` are not for sessions to change"
    if kind == "write" and is_below(path, f"{home.rstrip('/')}/{_RECORDINGS}") and path.endswith(_RECORDING):
        return "recordings are not for sessions to write"
    return None


def _state_parts(path: str, surface: Surface) -> Iterable[str]:
    """The path relative to each state directory it lies in: this workspace's, or any directory named `.prose`."""
    state = os.path.realpath(surface.state)
    if is_below(path, state):
        yield path[len(state) :].lstrip("/")
    parts = Path(path).parts
    for at, part in enumerate(parts):
        if part == ".prose":
            yield "/".join(parts[at + 1 :])
