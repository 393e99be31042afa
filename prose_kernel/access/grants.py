"""The only grant model: file patterns become grants, and grants cover resolved paths.

Sessions (`Policy`), `Exec` and `exec_command` all use it, so that a pattern has the same meaning everywhere
(docs/reference/exec-and-tasks.md 3.12).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.access.code_files import entries, files_in_commands, files_loaded_by, is_loaded, loads_code
from prose_kernel.access.globs import Glob, static_part
from prose_kernel.access.path_resolver import is_below, resolve
from prose_kernel.errors import PermissionDenied

Mode = Literal["r", "rw"]

_SYSTEM: Final = ("/proc", "/sys", "/dev")
_GATES: Final = re.compile(r"runs/[^/]+/(?:imports/[^/]+/)*gates(?:/|$)")
_SECRET_FILE: Final = re.compile(r"(?:^|/)\.env(?:\.(?!(?:example|sample|template|dist)$)[^/]*)?$")
_STATE: Final = ".prose"
RUNS: Final = ".vvm"
"""The directory of runs and memories that only the runtime writes (docs/reference/vvm.md 7.5)."""

_READ_ONLY: Final = {
    ".git": "the repository's own files in `.git` are not for sessions to change",
    ".venv": "the environment in `.venv` is not for sessions to change",
    ".envrc": "`.envrc` is run by the person's shell: it is not for sessions to change",
    "prose.toml": "the settings in `prose.toml` are not for sessions to change",
    "prose.lock": "what a person agreed to in `prose.lock` is not for sessions to change",
}
"""Names that no session may write, at any depth, with the reason."""


class Surface(Struct, frozen=True):
    """The directories that patterns are relative to: the workspace, the home directory, the state directory."""

    cwd: str
    home: str
    state: str = ""


class FsGrant(Struct, frozen=True):
    """An absolute path without wildcards, which may lead through links, and the part below it that is granted.

    - `pattern` is a glob for the path after the resolved prefix: "" covers only the prefix, `/*.md` the files in it;
      None covers the prefix and everything below.
    - `binaries` grants apply only to the program that is started.
    - `secrets` False excludes files named `.env` and the like.
    """

    prefix: str
    mode: Mode = "r"
    pattern: str | None = None
    binaries: bool = False
    secrets: bool = True

    @property
    def subtree(self) -> bool:
        """Return whether everything below the prefix is covered."""
        return self.pattern in (None, "/**")


def check(kind: str, pattern: str) -> None:
    """Raise `PermissionDenied` for a pattern that contains `..` or a NUL character."""
    if ".." in pattern.split("/"):
        raise PermissionDenied(
            f"the permission `{kind}: {pattern}` is refused: `..` is not allowed in a pattern",
            hint="write the path relative to the workspace, or as an absolute path",
        )
    if "\0" in pattern:
        raise PermissionDenied(f"a `{kind}` permission is refused: a pattern cannot hold a NUL character")


def grants(
    patterns: Iterable[str], surface: Surface, mode: Mode = "r", *, binaries: bool = False
) -> tuple[FsGrant, ...]:
    """Return the grants of patterns as written in `permissions:`. A pattern that `check` refuses grants nothing."""
    found = (_grants(pattern, surface, mode, binaries=binaries) for pattern in patterns if _is_valid(pattern))
    return tuple(grant for each in found for grant in each)


def program_grants(patterns: Iterable[str], surface: Surface, search_path: str | None) -> tuple[FsGrant, ...]:
    """Return the grants of an `execute` list. A bare word is looked up on the search path."""
    found = (shutil.which(name, path=search_path) or "" if is_bare(name) else name for name in patterns)
    return grants(found, surface, binaries=True)


def is_bare(pattern: str) -> bool:
    """Return whether an `execute` pattern is the plain name of a program."""
    return not set(pattern) & set("/*?~")


def _is_valid(pattern: str) -> bool:
    return bool(pattern) and "\0" not in pattern and ".." not in pattern.split("/")


def _grants(pattern: str, surface: Surface, mode: Mode, *, binaries: bool) -> Iterator[FsGrant]:
    """Yield the grants of one pattern; `.` and empty segments are dropped, a trailing `/` covers everything below."""
    if pattern == "~" or pattern.startswith("~/"):
        base, pattern = surface.home, pattern[1:]
    else:
        base = "/" if pattern.startswith("/") else surface.cwd
    below = pattern.endswith(("/", "/.")) or pattern == "."
    static, rest = static_part("/".join(part for part in pattern.split("/") if part not in ("", ".")))
    prefix = os.path.join(base, static).rstrip("/") or "/"  # noqa: PTH118 - text in, text out
    if below and not rest:
        yield FsGrant(prefix, mode, None, binaries)
        return
    yield FsGrant(prefix, mode, rest, binaries)
    if below:
        yield FsGrant(prefix, mode, f"{rest}/**", binaries)


class Reach:
    """The resolved paths that grants cover. Prefixes are resolved when it is created.

    Create a new one for each call: a link may have changed.
    """

    def __init__(self, granted: Iterable[FsGrant] = ()) -> None:
        self._granted = [(grant, place.path) for grant in granted if (place := resolve(grant.prefix)).reason is None]

    def covers(self, path: str) -> bool:
        """Return whether the resolved path is covered."""
        return any(_covers(grant, prefix, path) for grant, prefix in self._granted)

    def covers_below(self, directory: str) -> bool:
        """Return whether anything below the resolved directory could be covered."""
        return any(
            is_below(directory, prefix) or is_below(prefix, directory)
            if grant.pattern is None
            else _glob(prefix, grant.pattern).could_match_below(directory)
            for grant, prefix in self._granted
        )

    def enters(self, directory: str) -> bool:
        """Return whether a program may be started in the resolved directory: it is covered, or is the prefix of a
        pattern."""
        return self.covers(directory) or any(directory == prefix for _, prefix in self._granted)

    def contains(self, path: str) -> bool:
        """Return whether the resolved path is at or below a prefix, ignoring patterns."""
        return any(is_below(path, prefix) for _, prefix in self._granted)

    def names(self, path: str) -> bool:
        """Return whether a grant without a wildcard is for exactly this path."""
        return any(path == prefix and not grant.pattern for grant, prefix in self._granted)


def _covers(grant: FsGrant, prefix: str, path: str) -> bool:
    if grant.pattern:
        return _glob(prefix, grant.pattern).matches(path)
    if grant.pattern == "":
        return path == prefix
    return is_below(path, prefix) and (grant.secrets or not _SECRET_FILE.search(path))


@lru_cache(maxsize=512)
def _glob(prefix: str, pattern: str) -> Glob:
    if prefix == "/":
        return Glob(pattern or "/")
    return Glob(pattern, literal=prefix)


# ---------------------------------------------------------------- protected files


def protected(kind: str, path: str, surface: Surface) -> str | None:
    """Return why no rule opens this resolved path to a session (None: rules decide).

    Protected are devices and kernel files; the state directory's `.env`; gate records, which only an outside principal
    may decide. Protected against writing are: at any depth the names in `_READ_ONLY` and files that code is loaded
    from; recordings; the state directory except for memories (a session's own files are granted separately).
    """
    home = resolve(surface.cwd).path
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
    if kind != "write":
        return None
    inside = path[len(home) :] if is_below(path, home) else path
    if RUNS in inside.split("/"):
        return "what is kept in `.vvm` is written by the runtime; a session writes only its own binding"
    for name in inside.split("/"):
        if name.casefold() in _READ_ONLY:
            return _READ_ONLY[name.casefold()]
    if is_below(path, f"{home.rstrip('/')}/cassettes") and path.endswith(".jsonl"):
        return "recordings are not for sessions to write"
    return loads_code(path, home)


def kept_from_programs(
    directory: str, surface: Surface, *, deep: bool, factor: int = 1, cut: list[str] | None = None
) -> Iterator[str]:
    """Yield the existing files and directories in a resolved directory that a session's programs may not change.

    With `deep`, these are all paths that `protected` closes for writing, at any depth; otherwise the code that is
    loaded from the directory itself. Python's caches are left out: programs write them. For `factor` and `cut` see
    `entries`.
    """
    if protected("write", directory, surface) is not None:
        yield directory
        return

    def is_inside(entry: os.DirEntry[str]) -> bool:
        return deep or os.path.dirname(entry.path) == directory  # noqa: PTH120

    def is_kept(entry: os.DirEntry[str]) -> bool:
        folded = entry.name.casefold()
        state = deep and (folded in _READ_ONLY or folded in (RUNS, _STATE))
        return state or (is_loaded(folded) and folded != "__pycache__") or entry.path.casefold() in named

    def noted() -> Iterator[os.DirEntry[str]]:
        for entry in entries(directory, factor, cut if deep else None):
            if is_inside(entry) and is_kept(entry):
                kept.append(entry.path)
            yield entry

    kept: list[str] = []
    named = files_in_commands(surface.cwd)
    more = files_loaded_by(noted())
    if not more <= named:  # entries before the one that names them were missed
        named |= more
        kept = [entry.path for entry in takewhile(is_inside, entries(directory, factor)) if is_kept(entry)]
    yield from kept


def _state_parts(path: str, surface: Surface) -> Iterable[str]:
    """Yield the path relative to each state directory that contains it: this workspace's, and any named `.prose`."""
    state = resolve(surface.state).path if surface.state else ""
    if state and is_below(path, state):
        yield path[len(state) :].lstrip("/")
    parts = Path(path).parts
    for at, part in enumerate(parts):
        if part == _STATE:
            yield "/".join(parts[at + 1 :])
