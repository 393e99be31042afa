"""Bind Python values in a run: each becomes a statement of the program, traced and stored like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prose_kernel.errors import CompileError, UsageError

if TYPE_CHECKING:
    from prose_kernel.cells.runner import Cells
    from prose_kernel.languages import Language


async def give(
    cells: Cells, values: Mapping[str, object], by: str = "%%prose --in", language: Language | None = None
) -> None:
    """Bind Python values in the run under their names. `by` is what asked for it, for messages.

    Raises `UsageError` for a value that has no counterpart and for a name that cannot be bound.
    """
    workspace = cells.workspace
    language = language or workspace.language
    text = "".join(language.bind(name, value, f"{by} {name}") for name, value in values.items())
    compiled = workspace.compile(text, language=language)
    if not compiled.ok:
        raise UsageError(f"{by}: {CompileError(compiled.diagnostics)}")
    await workspace.run(compiled, language=language)
