"""The grants of agents, in one immutable record for each (exec-and-tasks.md 3.4), and the programs that run other
programs (3.12).

An agent's record is made from its session's permissions at its first call; without a record everything is refused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field

from prose_kernel.access.grants import FsGrant, Reach, Surface, is_bare, program_grants
from prose_kernel.access.path_resolver import resolve
from prose_kernel.access.session_permissions import file_grants
from prose_kernel.processes.options import ExecOptions
from prose_kernel.runtime.services import ExecCaller

__all__ = ["TOOL", "CapabilityError", "CapabilityRecord", "CapabilityStore", "ExecuteRules", "FsGrant", "capabilities"]

TOOL: Final = "Exec"
EVERYTHING: Final = "*"
_PERMITTED = ("allow", "prompt")


class CapabilityError(Exception):
    """The store rejects a record. `kind` is `already_exists`, `unknown_agent` or `invalid_grant`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class ExecuteRules(Struct, frozen=True):
    """The programs that a `permissions:` block allows (3.12).

    `listed` are the programs of the execute list (None: any granted program). `shells`: the block has `bash: allow`;
    without it, shells and launchers are refused, and so are interpreters that the list does not name.
    """

    listed: tuple[FsGrant, ...] | None = ()
    shells: bool = False


class CapabilityRecord(Struct, frozen=True):
    """The grants of one agent; none by default.

    `network` is a program's network: `open`, `none` (the call is refused if that cannot be enforced), or `best-effort`.
    With `lists_bind` a program may open only files that the grants cover, and the system's directories. If that cannot
    be enforced, `strict` refuses the call, and `permissive` runs it with a warning. None means no such restriction.
    """

    tool_grants: frozenset[str] = frozenset()
    fs_grants: tuple[FsGrant, ...] = ()
    execute: ExecuteRules | None = None
    network: Literal["open", "none", "best-effort"] = "open"
    lists_bind: Literal["strict", "permissive"] | None = None
    workspace: str | None = None

    def tool(self, name: object) -> bool:
        """Return whether a tool may be called. Never raises."""
        return isinstance(name, str) and bool(name) and (EVERYTHING in self.tool_grants or name in self.tool_grants)

    def reach(self, *, binaries: bool = False, writable: bool = False) -> Reach:
        """Return the files that the grants cover now, with `binaries` also the programs that they allow to start."""
        return Reach(
            grant
            for grant in self.fs_grants
            if (binaries or not grant.binaries) and (grant.mode == "rw" or not writable)
        )


class CapabilityStore(Struct):
    """One record for each agent, kept even when the agent has finished. Callable from any thread."""

    _records: dict[str, CapabilityRecord] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, agent: str, record: CapabilityRecord) -> None:
        """Add the record of an agent. Raises `CapabilityError`."""
        if not agent:
            raise CapabilityError("unknown_agent", "an agent needs a name")
        for problem in _problems(record):
            raise CapabilityError("invalid_grant", problem)
        with self._lock:
            if agent in self._records:
                raise CapabilityError("already_exists", f"{agent} has its capabilities already")
            self._records[agent] = record

    def find(self, agent: object) -> CapabilityRecord | None:
        """Return the record of an agent; None means that everything is refused."""
        with self._lock:
            return self._records.get(agent) if isinstance(agent, str) else None


def _problems(record: CapabilityRecord) -> Iterable[str]:
    for grant in record.fs_grants:
        if not isinstance(grant.prefix, str) or not grant.prefix.startswith("/") or "\0" in grant.prefix:
            yield f"fs_grants: {grant.prefix!r} is not an absolute path"
        if grant.mode not in ("r", "rw"):
            yield f"fs_grants: {grant.mode!r} is not a mode; use r or rw"
    if any(not isinstance(name, str) or not name for name in record.tool_grants):
        yield "tool_grants: a name cannot be empty"


# ---------------------------------------------------------------- from permissions


def capabilities(caller: ExecCaller, options: ExecOptions, search_path: str | None, home: str = "") -> CapabilityRecord:
    """Return the record of an agent (3.12). `prompt` counts as granted: the person agrees before a call gets here."""
    surface = Surface(caller.workspace, home or str(Path.home()))
    execute = caller.rules.get("execute", "deny")
    listed = None if isinstance(execute, str) else program_grants(execute, surface, search_path)
    granted = execute in _PERMITTED if isinstance(execute, str) else bool(execute)
    # a program cannot be limited to certain hosts, so a list of hosts allows no network
    network: Literal["open", "none", "best-effort"] = "none" if options.network == "strict" else "best-effort"
    if caller.rules.get("network", "deny") in _PERMITTED:
        network = "open"
    return CapabilityRecord(
        tool_grants=frozenset({TOOL}) if granted else frozenset(),
        fs_grants=(
            *file_grants(caller.rules.get("read", "deny"), "read", surface),
            *file_grants(caller.rules.get("write", "deny"), "write", surface),
            *(file_grants(execute, "execute", surface) if listed is None else listed),
        ),
        execute=ExecuteRules(listed, caller.rules.get("bash") == "allow"),
        network=network,
        lists_bind=options.lists if caller.lists_bind else None,
        workspace=caller.workspace,
    )


def not_found(caller: ExecCaller, search_path: str | None) -> tuple[str, ...]:
    """Return the bare names in the execute list that are not programs on the PATH, for a warning."""
    rule = caller.rules.get("execute", ())
    names = () if isinstance(rule, str) else filter(is_bare, rule)
    return tuple(name for name in names if shutil.which(name, path=search_path) is None)


def dangerous(record: CapabilityRecord) -> tuple[str, ...]:
    """Return the granted programs and directories that can run arbitrary commands, for a warning."""
    found = []
    for grant in record.fs_grants:
        path = Path(resolve(grant.prefix).path)
        if path.is_file() and runs_any_command(str(path)):
            found.append(str(path))
        elif grant.subtree and path.is_dir():
            shells = (path / inside / "sh" for inside in (".", "bin", "usr/bin"))
            found += [f"{path}/"] if any(shell.exists() for shell in shells) else []
    return tuple(dict.fromkeys(found))


# ---------------------------------------------------------------- programs that run other programs

# They are recognized by their resolved names, and shells and launchers also by device and inode, so that a hard link
# does not hide them. A copy under another name cannot be recognized.
_SHELLS = frozenset(re.findall(r"\S+", "sh bash rbash dash ash zsh ksh mksh fish csh tcsh busybox toybox pwsh"))
_LAUNCHERS = frozenset(
    re.findall(
        r"\S+",
        """
        env xargs nohup setsid timeout script sudo su doas pkexec runuser setpriv nice ionice chrt taskset
        stdbuf time chroot unshare nsenter bwrap flock watch parallel strace ltrace gdb start-stop-daemon
        systemd-run at batch crontab prlimit choom setarch linux32 linux64 run-parts
        """,
    )
)
_LOADER = re.compile(r"ld(-linux|-musl|64)?[-.\w]*\.so(\.\d+)*|ld-\d[\d.]*\.so")
_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|wish|guile|java|jshell|Rscript|R|julia|ghci|"
    r"awk|gawk|mawk|nawk|find|make|gmake|git|ssh|scp|sftp|rsync|tar|zip|cpio|vi|vim|view|ex|ed|emacs|nano|less|more|man|"
    r"sed|m4|dc|bc|tmux|screen|expect|socat|nc|ncat|openssl|docker|podman|pip|npm|npx|cargo|go)[\d.]*(w|t|d)?"
)
_DIRECTORIES = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")


def is_launcher(path: str, identity: tuple[int, int] | None) -> bool:
    """Return whether this is a shell, a generic launcher or the dynamic loader, by name or by device and inode."""
    return _named(Path(path).name) or (identity is not None and identity in _launcher_identities())


def is_interpreter(path: str) -> bool:
    """Return whether the program runs code from its arguments or input."""
    return _INTERPRETER.fullmatch(Path(path).name) is not None


def runs_any_command(path: str) -> bool:
    """Return whether granting the program grants arbitrary commands."""
    return _named(Path(path).name) or is_interpreter(path)


def _named(name: str) -> bool:
    name = re.sub(r"[-.]?\d[\d.]*$", "", name) or name
    return name in _SHELLS or name in _LAUNCHERS or _LOADER.fullmatch(name) is not None or name.startswith("ld-")


def _launcher_identities() -> set[tuple[int, int]]:
    """Return device and inode of each installed shell and launcher. Read for each call, because they may change."""
    directories: dict[tuple[int, int], tuple[str, ...]] = {}
    for directory in _DIRECTORIES:  # one may be a link to another
        with contextlib.suppress(OSError):
            status = os.stat(directory)  # noqa: PTH116 - a third of the time
            directories[status.st_dev, status.st_ino] = _installed(directory, status.st_mtime_ns)
    found = set()
    for path in itertools.chain(*directories.values()):
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        # a binary with several programs (busybox, uutils) is a launcher under each of its names
        found.add((status.st_dev, status.st_ino))
    return found


@functools.lru_cache(maxsize=len(_DIRECTORIES))
def _installed(directory: str, changed: int) -> tuple[str, ...]:
    """Return the shells and launchers in a directory. `changed` is its modification time, a key of the cache."""
    return tuple(f"{directory}/{name}" for name in os.listdir(directory) if name in _SHELLS or name in _LAUNCHERS)  # noqa: PTH208
