"""The Prose cells of a notebook file, for `prose run NOTEBOOK`.

In a notebook of the Prose kernel every code cell is one; in a Python notebook those that begin with `%%prose`.
"""

from __future__ import annotations

from dataclasses import dataclass

from prose_kernel import languages
from prose_kernel.cli import files
from prose_kernel.errors import UsageError

_KERNEL = (("kernelspec", "language"), ("language_info", "name"))
MAY_FAIL = "raises-exception"


@dataclass(frozen=True, slots=True)
class Cell:
    """One text to run, and its name in messages. `may_fail`: a notebook's cell with the tag `raises-exception`."""

    text: str
    name: str
    may_fail: bool = False


def read_cells(name: str) -> list[Cell]:
    """The cells in order; a cell is called by its number among the notebook's code cells.

    Raises `UsageError` when the file is no notebook, or has no Prose cells.
    """
    import nbformat

    try:
        book = nbformat.reads(files.read_bytes(name).decode("utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as problem:
        raise UsageError(f"{name} is not a notebook: {str(problem).splitlines()[0]}") from None
    names = ((book.metadata.get(part) or {}).get(key) for part, key in _KERNEL)
    whole = any(languages.of_magic(name) is not None for name in names if isinstance(name, str))
    cells = [
        Cell(text, f"cell {number}", MAY_FAIL in cell.metadata.get("tags", ()))
        for number, cell in enumerate((cell for cell in book.cells if cell.cell_type == "code"), 1)
        if (text := cell.source if whole else _magic_body(cell.source)) is not None
    ]
    if not cells:
        magics = ", ".join(f"%%{language.magic}" for language in languages.LANGUAGES.values())
        raise UsageError(f"{name} has no cells for Prose: it is neither a Prose notebook nor does it use {magics}")
    return cells


def _magic_body(source: str) -> str | None:
    """The text below `%%prose`, in its place, so that line numbers stay those of the cell; None for another cell."""
    first, _, body = source.lstrip().partition("\n")
    word, _, options = first.strip().partition(" ")
    if not word.startswith("%%") or languages.of_magic(word[2:]) is None:
        return None
    if options.strip():
        raise UsageError(
            f"`{first.strip()}`: there is no Python here that values could come from or go to",
            hint="run this notebook with Jupyter, or give the values with --input",
        )
    return f"\n{body}"
