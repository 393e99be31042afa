"""Find the program file that an argument names (docs/reference/openprose.md 6.1, 8), and read it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prose_kernel.access import plain_files
from prose_kernel.cli.examples import find_example, is_bundled
from prose_kernel.errors import ImportProgramError, UsageError, reason_of
from prose_kernel.language.contracts import STANDARD, SUFFIX, file_and_node
from prose_kernel.language.text import as_argument, escaped
from prose_kernel.runs import languages

if TYPE_CHECKING:
    from prose_kernel.language.source import Source

STDIN = "-"
_NEEDS_HOST = "E362"
_REMOTE = re.compile(r"https?://|@|[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)+\Z")


def read_bytes(name: str, typed: str = "") -> bytes:
    """Return the content of a program file, or of standard input for `-`. Raises `UsageError` with the reason; `typed`
    is the name of the file in this message, if given."""
    name = file_and_node(name)[0]
    if name == STDIN:
        data = sys.stdin.buffer.read(plain_files.LARGE + 1)
        if len(data) > plain_files.LARGE:
            raise UsageError(f"standard input is larger than {plain_files.LARGE // 1024**2} megabytes, the limit")
        return data
    try:
        return plain_files.read_named(os.path.expanduser(name))
    except (OSError, ValueError) as problem:
        from prose_kernel.programs import missing_files

        _require_name(name)
        reason = reason_of(problem, str(problem))
        hint = (
            missing_files.hint(name, languages.runnable_suffixes()) if isinstance(problem, FileNotFoundError) else None
        )
        raise UsageError(f"cannot read {escaped(typed or name)}: {reason}", hint=hint) from None


def _require_name(name: str) -> None:
    """Raise `UsageError` if the name of a missing file is blank."""
    if not name.strip():
        raise UsageError("the name of the program is empty", hint="prose examples lists the bundled programs")


def read_source(name: str, typed: str = "") -> Source:
    """Return a program's source. Raises the errors of `read_bytes`, and `CompileError` (E109) if it isn't UTF-8."""
    return languages.of_file(name).decode(read_bytes(name, typed), name)


def is_remote(target: str, *, strict: bool = False) -> bool:
    """Return whether a program must be fetched: a URL, `@handle/slug`, `handle/slug`; `strict`: `dir/name.prose` too.

    Raises `UsageError` if it cannot be fetched, or if there is also a file of that name.
    """
    own = languages.default().suffixes
    if target == STDIN or not (
        (strict and "/" in target and target.endswith(own) and not _is_path(target))
        or (_REMOTE.match(target) and not _is_local(target))
    ):
        return False
    if is_file(target):
        hint = f"for the file of that name: prose run {as_argument(f'./{target}')}"
        raise UsageError(f"{target} is the name of a program in the registry, and of a file here", hint=hint)
    path = urlsplit(target).path if "://" in target else target
    foreign = tuple(suffix for suffix in languages.runnable_suffixes() if suffix not in own)
    if path.endswith(foreign):
        hint = "save it to a file, read it, and run that"
        raise UsageError(f"{target}: only programs of {languages.default().title} run from elsewhere", hint=hint)
    if target.startswith("@") and not re.fullmatch(r"@[^/]+/.+", target):
        raise UsageError(f"{target} isn't a program of the registry", hint="write @handle/name")
    return True


def contract_file_of(target: str) -> str:
    """Return the file of a contract file's name: `NAME` without its suffix, a directory for its index, a dependency
    (docs/reference/prose-md.md 2, 9). Other names are returned unchanged. Raises `UsageError` for a missing
    dependency."""
    name, node = file_and_node(target)
    if node or is_file(target) or target == STDIN:
        return target
    for candidate in (f"{name}{SUFFIX}", os.path.join(name, f"index{SUFFIX}")):  # noqa: PTH118 - text in, text out
        if is_file(candidate):
            return candidate
    if os.path.isdir(name) and not node:  # noqa: PTH112
        hint = f"name one of its files; with an index{SUFFIX} the directory is a program itself"
        raise UsageError(f"{escaped(name)} is a directory, not a program [{_NEEDS_HOST}]", hint=hint)
    first, _, rest = name.partition("/")
    is_host = "." in first.strip(".") and rest.count("/") >= 2 and "://" not in name
    if rest and (first in STANDARD or is_host) and not name.endswith((".prose", ".vvm", ".ipynb")):
        from prose_kernel.programs.contract_files import ContractFiles

        try:
            around = ContractFiles(str(Path.cwd() / "-"))
            return os.path.relpath(around.resolve(around.home, name))
        except ImportProgramError as problem:
            raise UsageError(problem.message, hint=problem.hint) from None
    return target


def find_program(target: str) -> str:
    """Return the file for `prose run TARGET`: a local path, `-`, or a bundled example by number, keyword or name.

    Raises `UsageError` if there is none.
    """
    if target == STDIN or _is_local(target) or is_file(target):
        return target
    found = find_example(target) if not _REMOTE.match(target) else None
    if found is None:
        from prose_kernel.programs import missing_files

        _require_name(target)
        hint = missing_files.hint(target, languages.runnable_suffixes()) or "prose examples lists the examples"
        raise UsageError(f"there is no file and no bundled example {escaped(target)}", hint=hint)
    return str(found)


def is_file(name: str) -> bool:
    """Return whether a name is that of a file, or of a node in a file. Never raises, even for an invalid name."""
    return os.path.isfile(file_and_node(name)[0])  # noqa: PTH113 - `Path.is_file` raises for a long name


def real(path: Path) -> Path:
    """Return a path without links. For a link to itself, `Path.resolve` raises before Python 3.13; this returns it."""
    return Path(os.path.realpath(path))


def is_outside(program: str, directory: Path) -> bool:
    """Return whether a program is outside of the directory of its run, and not a bundled example. Such a program has to
    be named again to resume the run."""
    file = Path(directory, os.path.expanduser(program))
    plain = os.path.normpath(file)
    inside = Path(plain).is_relative_to(directory) or real(file).is_relative_to(real(directory))
    return not inside and not is_bundled(plain)


def shortest(path: Path, cwd: Path) -> str:
    """Return a path relative to `cwd` if it is below it, otherwise unchanged."""
    relative = os.path.relpath(path, cwd)
    return str(path) if relative.startswith("..") else relative


def _is_path(target: str) -> bool:
    return target.startswith(("./", "../", "/", "~/"))


def _is_local(target: str) -> bool:
    """Return whether a name has the form of a local file (openprose.md 6.1, third row of the table)."""
    if target.startswith(("http://", "https://", "@")):
        return False
    return _is_path(target) or file_and_node(target)[0].endswith(languages.runnable_suffixes())
