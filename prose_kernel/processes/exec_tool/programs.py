"""Recognizes programs that run other programs: shells, launchers, interpreters (exec-and-tasks.md 3.4, 3.12).

They are recognized by their resolved names, and shells and launchers also by device and inode, so that a hard link does
not hide them. A copy under another name cannot be recognized.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from pathlib import Path

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
