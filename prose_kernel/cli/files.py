"""Find and read programs: which file an argument means (docs/reference/openprose.md 6.1, 8), and its text."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.cli.examples import find_example
from prose_kernel.errors import UsageError

if TYPE_CHECKING:
    from prose_kernel.language.source import Source

LARGEST = 256 * 1024 * 1024
STDIN = "-"
_REMOTE = re.compile(r"https?://|@|[\w-]+/[\w-]+\Z")


def read_bytes(name: str) -> bytes:
    """The content of a program file, or of standard input for `-`. Raises `UsageError` naming what is in the way."""
    if name == STDIN:
        return _checked_size(sys.stdin.buffer.read(LARGEST + 1), "standard input")
    path = Path(os.path.expanduser(name))  # noqa: PTH111 - a home directory of nobody stays as it is
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{name} is a directory, not a program")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise UsageError(f"{name} is a device, not a program")
        with path.open("rb") as file:
            return _checked_size(file.read(LARGEST + 1), name)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise UsageError(f"cannot read {name}: {reason}") from None


def _checked_size(data: bytes, name: str) -> bytes:
    if len(data) > LARGEST:
        raise UsageError(f"{name} is larger than {LARGEST // 1024**2} MiB, the limit for programs")
    return data


def read_source(name: str) -> Source:
    """A program's source. Raises `UsageError` when it cannot be read, `CompileError` (E109) when it is no UTF-8."""
    from prose_kernel import languages

    return languages.of_file(name).decode(read_bytes(name), name)


def find_program(target: str) -> str:
    """The file that `prose run TARGET` means: a local path, `-`, or a bundled example by number, keyword or name.

    Raises `UsageError` for a remote program and for what is neither.
    """
    if target == STDIN or _is_local(target):
        return target
    if _REMOTE.match(target):
        here = Path(target).is_file()
        raise UsageError(
            f"{target} is a remote program; only local files can be run",
            hint=f"for the file of that name: prose run ./{target}" if here else "save it to a file and run that",
        )
    if Path(target).is_file():
        return target
    found = find_example(target)
    if found is None:
        raise UsageError(f"there is no file and no bundled example {target}", hint="prose examples lists the examples")
    return str(found)


def _is_local(target: str) -> bool:
    """By its form alone; the third row of the table in 6.1. `--strict` does not change how a shell user names files."""
    if target.startswith(("http://", "https://", "@")):
        return False
    from prose_kernel import languages

    return target.startswith(("./", "../", "/", "~/")) or target.endswith((*languages.suffixes(), ".ipynb"))
