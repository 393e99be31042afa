"""Files that are loaded as code, or decide which code is loaded: sessions never write them (exec-and-tasks.md 3.12).

A session that could write one of them would run with all rights of the person as soon as the file is loaded.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from typing import Final

_NAMES: Final = frozenset(
    (
        "prose_tools.py",
        "prose_tools",
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "sitecustomize.py",
        "usercustomize.py",
        "pyvenv.cfg",
        "site-packages",
        "__pycache__",
    )
)
_FORMS: Final = re.compile(r".*\.eval\.toml|.*\.pth|(?:jupyter|ipython)(?:_\w+)?_config\.(?:py|json)", re.DOTALL)
_ASSERTION: Final = re.compile(r"""(["'])([^"':\n]+\.py):[^\W\d]\w*\1""")
"""`python = "checks.py:polite"`, wherever it is in a specification, also in one that is no valid TOML at the moment."""

_MOST_DIRECTORIES: Final = 5_000
_SKIPPED: Final = re.compile(r"\..*|node_modules|site-packages|__pycache__", re.DOTALL)
_LONGEST: Final = 1024 * 1024


def loads_code(path: str, workspace: str) -> str | None:
    """Return why no session may write this resolved path; None where nothing is loaded from it.

    `workspace` is resolved, too. For a Python file it is searched for evaluations that name the file.
    """
    inside = path[len(workspace) :] if path.startswith(workspace.rstrip("/") + "/") else path
    for name in inside.split("/"):
        if is_loaded(name):
            return f"code is loaded from `{name}`, or because of it: it is not for sessions to change"
    if path.casefold().endswith(".py") and path.casefold() in asserted(workspace):
        return "an evaluation loads this file for its assertions: it is not for sessions to change"
    return None


def asserted(workspace: str) -> frozenset[str]:
    """Return the files, resolved and case-folded, that the evaluations in a directory and below name for assertions.

    Hidden directories are left out; at most 5,000 directories are searched, the upper ones first.
    """
    return frozenset(
        os.path.realpath(os.path.join(os.path.dirname(entry.path), named[2])).casefold()  # noqa: PTH118, PTH120
        for entry in entries(workspace)
        if entry.name.casefold().endswith(".eval.toml")
        for named in _ASSERTION.finditer(_text(entry.path))
    )


def is_loaded(name: str) -> bool:
    """Whether code is loaded from a file or directory of this name, or because of it."""
    folded = name.casefold()
    return folded in _NAMES or _FORMS.fullmatch(folded) is not None


def entries(directory: str) -> Iterator[os.DirEntry[str]]:
    """The entries of a directory and of those below, the upper ones first. Hidden directories and those of packages are
    not entered, and no more than 5,000 are."""
    waiting = deque([directory])
    for _ in range(_MOST_DIRECTORIES):
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


def _text(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            return file.read(_LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""
