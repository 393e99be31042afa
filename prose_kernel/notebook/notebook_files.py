"""Read and check notebook files, for `prose run`, `prose test` and `prose export`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from prose_kernel._version import __version__
from prose_kernel.errors import UsageError
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.diagnostics import conflict_line
from prose_kernel.runs import languages

if TYPE_CHECKING:
    from prose_kernel.language.diagnostics import Profile
    from prose_kernel.runs.languages import Language

_LARGEST: Final = 100_000_000
_KERNEL: Final = (("kernelspec", "language"), ("language_info", "name"), ("kernelspec", "name"))


def language_info(language: Language) -> dict[str, Any]:
    """Return the language info of a kernel for front ends. JupyterLab writes it into the metadata of each notebook that
    it opens; a notebook without it counts as changed."""
    return {
        "codemirror_mode": {"mime": language.mode, "name": language.magic},
        "file_extension": language.suffixes[0],
        "mimetype": f"text/x-{language.magic}",
        "name": language.magic,
        "nbconvert_exporter": "script",
        "pygments_lexer": language.magic,
        "version": __version__,
    }


def decoded(name: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of a notebook. In format 4, missing parts are added and all types are checked; older
    formats are not checked. Raises `UsageError` for a file that isn't a notebook, and for a newer format."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not a notebook: it is not UTF-8 text") from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        if line := conflict_line(text):
            hint = "keep the cells of one side, or of both, and remove the markers"
            raise UsageError(f"{name} is not a notebook: line {line} is a conflict marker of git", hint=hint) from None
        where = f": {problem}" if isinstance(problem, json.JSONDecodeError) else ""
        raise UsageError(f"{name} is not a notebook: it is not JSON{where}") from None
    _check(name, data)
    return text, data


def _check(name: str, data: Any) -> None:
    if not isinstance(data, dict) or not isinstance(data.get("nbformat"), int):
        raise UsageError(f"{name} is not a notebook: it has no `nbformat`")
    if data["nbformat"] < 4:
        return
    if data["nbformat"] > 4:
        problem = f"{name} is a notebook of format {data['nbformat']}; this version reads format 4"
        raise UsageError(problem, hint="update prose_kernel")
    if not isinstance(data.get("nbformat_minor", 0), int):
        raise UsageError(f"{name} is not a notebook: its `nbformat_minor` isn't a whole number")
    if not isinstance(data.setdefault("metadata", {}), dict):
        raise UsageError(f"{name} is not a notebook: its `metadata` isn't an object")
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise UsageError(f"{name} is not a notebook: it has no list of cells")
    for number, cell in enumerate(cells, 1):
        wrong = _wrong(cell)
        if wrong:
            raise UsageError(f"{name} is not a notebook: {wrong} of its cell {number} is missing or wrong")


def _wrong(cell: Any) -> str:
    """Return the part of a cell that violates the format; "" if the cell is valid."""
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return "the `cell_type`"
    source = cell.get("source")
    if not all(isinstance(line, str) for line in (source if isinstance(source, list) else [source])):
        return "the `source`"
    if not isinstance(cell.setdefault("metadata", {}), dict):
        return "the `metadata`"
    tags = cell["metadata"].get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return "the list of `tags`"
    if cell["cell_type"] != "code":
        return ""
    outputs = cell.setdefault("outputs", [])
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        return "the list of `outputs`"
    return "" if isinstance(cell.get("execution_count"), int | None) else "the `execution_count`"


def language_of(metadata: Mapping[str, Any]) -> Language | None:
    """Return the language of cells that name none, in the notebook's profile; None for a notebook of another kernel.
    Raises `UsageError` for an unknown profile."""
    for part, key in _KERNEL:
        kernel = metadata.get(part)
        name = kernel.get(key) if isinstance(kernel, dict) else None
        if isinstance(name, str) and (found := languages.of_magic(name)) is not None:
            return in_profile_of(found, metadata)
    return None


def in_profile_of(language: Language, metadata: Mapping[str, Any]) -> Language:
    """Return the language in the profile that a notebook's metadata names: `prose.profile` (prose-md.md 10). Raises
    `UsageError` for an unknown profile."""
    own = metadata.get("prose")
    profile = own.get("profile") if isinstance(own, dict) else None
    if not isinstance(profile, str) or language.name != languages.default().name:
        return language
    return languages.in_profile(language, cast("Profile", profile))


def in_notebook(language: Language, path: Path) -> Language:
    """Return the language in the profile of a notebook file, which may be missing or not yet saved. The profile of a
    contract file is ProseScript."""
    from prose_kernel.access import plain_files

    if path.name.endswith(SUFFIX):
        return in_profile_of(language, {"prose": {"profile": "prosescript"}})
    try:
        content = plain_files.read(path, _LARGEST)
        if b'"profile"' not in content:
            return language
        _, data = decoded(path.name, content)
        return in_profile_of(language, data.get("metadata", {}))
    except (OSError, UsageError):
        return language
