"""Makes a shell report its final working directory (exec-and-tasks.md 2.4).

The command is an argument of a small wrapper text, which evaluates it and writes the output of `pwd -P` and a NUL to a
private pipe. It reports twice if possible: from an EXIT trap, which covers `exit`, `set -e` and syntax errors, and
after the command, which covers commands that set their own EXIT trap. The last complete record counts.
"""

from __future__ import annotations

import functools
import os
import re

LOWEST_DESCRIPTOR = 100
"""The lowest descriptor of the report: commands often use 3 to 9 themselves (`exec 3>&-`)."""

_LONGEST_PATH = 4096

_WORD = r"""(?:[\w./:=,@%+^-]|'[^']*'|"[^"$`\\]*")+"""
_SIMPLE = re.compile(rf"[ \t]*(?P<program>[\w./+-]+)(?:[ \t]+{_WORD})*[ \t]*\n?", re.ASCII)
_MAY_CHANGE_DIRECTORY = frozenset(
    (
        *("cd", "chdir", "pushd", "popd", "eval", "source", ".", "command", "builtin", "exec", "trap", "time"),
        *("coproc", "alias", "autoload", "emulate", "enable", "fc", "functions", "mapfile", "readarray", "zmodload"),
        *("noglob", "nocorrect", "-"),
    )
)
"""Builtins of any shell that can change the directory, or make something else do it."""
_KNOWN_SHELLS = frozenset(("bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "busybox"))

# All on one line, because shells count the lines in their messages from here; and because a shell that meets the end
# of the command inside a quotation must have no line left to misread.
_WRAPPER = (
    r"""{load}trap '{{ set +x; }} 2>/dev/null; {report}' EXIT; {evaluate}; """
    r"""{{ __prose=$?; set +x; }} 2>/dev/null; {report}; exit "$__prose" """
)

# The redirection uses /dev/fd because dash accepts no two-digit descriptors.
_REPORT = r"""{{ command pwd -P && command printf "\000"; }} 2>/dev/null >/dev/fd/{descriptor} || :"""


@functools.lru_cache(maxsize=64)
def wrapper(report: int, source: str | None = None) -> str:
    """Return the text for `shell -c`. The arguments `$0` and (without `source`) the command must follow it.

    `report` is the descriptor of the pipe; `source` is the text that runs a command too long for an argument.
    """
    return _WRAPPER.format(
        load="__prose=$1; shift; " if source is None else "",
        evaluate='eval "$__prose"' if source is None else source,
        report=_REPORT.format(descriptor=report),
    )


def keeps_directory(shell: str, command: str, *, functions: bool) -> bool:
    """Return whether the shell certainly ends in its initial directory, so that no report is needed.

    True for one program with plain or quoted arguments. Without the wrapper, a shell becomes this program instead of
    starting a child, which halves the work for most commands. `functions`: the environment exports shell functions,
    which may do anything.
    """
    if functions or len(command) > 4096 or shell not in _KNOWN_SHELLS:
        return False
    match = _SIMPLE.fullmatch(command)
    return match is not None and match["program"] not in _MAY_CHANGE_DIRECTORY


def source(shell: str, script: int) -> str:
    """Return the shell code that runs the text in a descriptor; `shell` is the shell's file name."""
    if shell == "zsh":
        return f'eval "$(</dev/fd/{script})"'  # its `.` would change $0
    return f". /dev/fd/{script}"


def parse(data: bytes) -> str | None:
    """Return the directory of the last complete record; None if there is no valid one."""
    records = data.split(b"\0")[:-1]
    if not records or not records[-1].endswith(b"\n"):
        return None
    path = records[-1][:-1]
    if not path.startswith(b"/") or len(path) > _LONGEST_PATH:
        return None
    directory = os.fsdecode(path)
    return directory if os.path.isdir(directory) else None  # noqa: PTH112 - a third of the time
