"""Files that are loaded as code, or decide which code is loaded: sessions never write them (exec-and-tasks.md 3.12).

A session that could write such a file would run with all rights of the user as soon as the file is loaded.

`pinned` takes the digests of a file of user functions, and of the modules next to it that it imports, when a run
starts. The process that runs the functions loads exactly these texts (A35): a Python file that a session changes or
adds next to `prose_tools.py` is not loaded.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prose_kernel.access import plain_files

_NAMES: Final = frozenset((
    "prose_tools.py", "prose_tools", "conftest.py", "pytest.ini", ".pytest.ini", "sitecustomize.py",
    "usercustomize.py", "pyvenv.cfg", "site-packages", "__pycache__",
))  # fmt: skip
_FORMS: Final = re.compile(
    r".*\.(?:eval\.toml|pth|dist-info|egg-info)|(?:jupyter|ipython)(?:_\w+)?_config\.(?:py|json)", re.DOTALL
)
_ASSERTION: Final = re.compile(r"""(["'])([^"':\n]+\.py):[^\W\d]\w*\1""")
"""`python = "checks.py:polite"`, anywhere in a specification, including one that isn't valid TOML at the moment."""

_MOST_DIRECTORIES: Final = 5_000
_SKIPPED: Final = re.compile(r"\..*|node_modules|site-packages|__pycache__", re.DOTALL)
_LONGEST: Final = 1024 * 1024


def loads_code(path: str, workspace: str) -> str | None:
    """Return why no session may write this resolved path; None if no code is loaded from it.

    `workspace` is resolved, too. For a Python file, the workspace is searched for files that cause it to be loaded.
    """
    inside = path[len(workspace) :] if path.startswith(workspace.rstrip("/") + "/") else path
    for name in inside.split("/"):
        if is_loaded(name):
            return f"code is loaded from `{name}`, or because of it: it is not for sessions to change"
    folded = path.casefold()
    if folded in files_in_commands(workspace):
        return "prose.toml names this file in a command: it is not for sessions to change"
    if folded.endswith(".py") and folded in files_loaded_by(entries(workspace)):
        return "an evaluation or prose_tools.py loads this file: it is not for sessions to change"
    return None


def files_loaded_by(listed: Iterable[os.DirEntry[str]]) -> frozenset[str]:
    """Return the files, resolved and case-folded, that are loaded because of other files among these entries.

    These are the files that evaluations name for assertions, the files, existing or not, that an import of
    `prose_tools.py` may find, and the targets of links with the name of a code file.
    """
    found: set[str] = set()
    for entry in listed:
        folded, where = entry.name.casefold(), os.path.dirname(entry.path)  # noqa: PTH120
        if folded.endswith(".eval.toml"):
            named: Iterable[str] = [match[2] for match in _ASSERTION.finditer(_text(entry.path))]
        elif folded == "prose_tools.py":
            named = imported(Path(where), entry.name)
        elif is_loaded(folded) and entry.is_symlink():
            named = (entry.name,)
        else:
            continue
        found |= {os.path.realpath(os.path.join(where, each)).casefold() for each in named}  # noqa: PTH118
    return frozenset(found)


def files_in_commands(workspace: str) -> frozenset[str]:
    """Return the files that the workspace's settings name in the commands of tool servers and agents."""
    place = os.path.join(workspace, "prose.toml")  # noqa: PTH118
    if not os.path.exists(place):  # noqa: PTH110
        return frozenset()
    import tomllib

    try:
        data = tomllib.loads(_text(place))
    except (ValueError, RecursionError):
        return frozenset()
    texts = {text for table in ("mcp", "agents") for text in _texts(data.get(table))}
    named = {os.path.realpath(os.path.join(workspace, text)) for text in texts if "\0" not in text}  # noqa: PTH118
    return frozenset(path.casefold() for path in named if os.path.isfile(path))  # noqa: PTH113


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def is_loaded(name: str) -> bool:
    """Return whether code is loaded from a file or directory of this name, or because of it."""
    folded = name.casefold()
    return folded in _NAMES or _FORMS.fullmatch(folded) is not None


def entries(directory: str, factor: int = 1, cut: list[str] | None = None) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a directory and of the directories below, upper ones first. Hidden directories and packages'
    directories are not entered, and at most `factor` times 5,000 are; a directory with more is added to `cut`."""
    waiting = deque([directory])
    for _ in range(factor * _MOST_DIRECTORIES):
        if not waiting:
            return
        try:
            with os.scandir(waiting.popleft()) as found:
                for entry in found:
                    yield entry
                    if entry.is_dir(follow_symlinks=False) and not _SKIPPED.fullmatch(entry.name):
                        waiting.append(entry.path)
        except OSError:
            continue
    if waiting and cut is not None:
        cut.append(directory)


def _text(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            return file.read(_LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""


# ---------------------------------------------------------------- user functions

_MAX_FILES: Final = 500


def pinned(directory: Path, file: str) -> Mapping[str, str]:
    """Return the SHA-256 digests by names relative to `directory`, with `/`; empty if there is no such file.

    Imports are followed as written, also inside functions; a module that is imported by a computed name is not found. A
    file that is not valid Python is pinned as well.
    """
    found, _ = _follow_imports(directory, file)
    return {name: hashlib.sha256(text).hexdigest() for name, text in found.items()}


def imported(directory: Path, file: str) -> frozenset[str]:
    """Return the names of all files, existing or not, that these imports may load."""
    return _follow_imports(directory, file)[1]


def _follow_imports(directory: Path, file: str) -> tuple[dict[str, bytes], frozenset[str]]:
    found: dict[str, bytes] = {}
    waiting = [(file, "")]
    seen = {file}
    while waiting and len(found) < _MAX_FILES:
        name, package = waiting.pop()
        text = _read(directory / name)
        if text is not None:
            found[name] = text
            places = {place for module in _imports(text, package) for place in _places(module)}
            waiting += [place for place in sorted(places) if place[0] not in seen]
            seen |= {name for name, _ in places}
    return found, frozenset(seen)


def _read(path: Path) -> bytes | None:
    try:
        return plain_files.read(path, plain_files.SMALL)
    except (OSError, ValueError):
        return None


def _imports(text: bytes, package: str) -> Iterator[str]:
    """Yield the full names of all modules that a text may import, in `package` ("" for none)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join(filter(None, (*above, node.module)))
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _places(module: str) -> Iterator[tuple[str, str]]:
    """Yield the possible files of a module and of its parent packages, each with its package."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return
    for length in range(1, len(parts) + 1):
        place = "/".join(parts[:length])
        yield f"{place}/__init__.py", ".".join(parts[:length])
        yield f"{place}.py", ".".join(parts[: length - 1])
