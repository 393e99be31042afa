"""Pins the code of user functions at the start of a run: digests of a file and of the modules next to it that it
imports.

The process that runs the functions loads exactly these texts (A35). If a session changes or adds a Python file next to
`prose_tools.py`, that file is not loaded.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from prose_kernel.access import plain_files

_MAX_FILES = 500


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
