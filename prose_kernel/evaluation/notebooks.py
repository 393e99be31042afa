"""Notebooks as an evaluation runs them: their programs, cell by cell, without the magics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError
from prose_kernel.evaluation.programs import Text
from prose_kernel.notebook.notebook_files import decoded
from prose_kernel.notebook.scan import segments, spoken
from prose_kernel.runs import languages
from prose_kernel.runs.languages import Language


def read_notebook(path: Path, name: str) -> tuple[Sequence[Text], Language]:
    """The texts of a notebook in order. Magic lines are left out: what they choose, the specification says. Raises
    `UsageError`."""
    try:
        _, data = decoded(name, plain_files.read(path))
    except OSError as problem:
        raise UsageError(f"cannot read {name}: {(problem.strerror or 'unknown').lower()}") from None
    metadata = data.get("metadata") or {}
    names = ((metadata.get(part) or {}).get(key) for part, key in _KERNEL)
    whole = next((one for kernel in names if isinstance(kernel, str) and (one := languages.of_magic(kernel))), None)
    found = []
    number = 0
    for cell in data.get("cells", ()):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        number += 1
        source = cell.get("source", "")
        code = "".join(source) if isinstance(source, list) else str(source)
        language, text = spoken(code, whole or languages.default())
        if whole is None and text is code:
            continue  # a cell of Python
        found += [Text(piece.text, f"cell {number}", language) for piece in segments(text, language) if not piece.magic]
    if not found:
        raise UsageError(f"{name} has no cells for Prose")
    return found, whole or languages.default()


_KERNEL = (("kernelspec", "language"), ("language_info", "name"))
