"""Convert Python values to OpenProse: each becomes a `let` statement, traced and stored like any other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from prose_kernel.errors import CompileError, UsageError

if TYPE_CHECKING:
    from prose_kernel.cells.runner import Cells

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "{": "\\{", "}": "\\}"})
_NAME = re.compile(r"[A-Za-z_][\w-]*\Z", re.ASCII)


async def give(cells: Cells, values: Mapping[str, object], by: str = "%%prose --in") -> None:
    """Bind Python values in the run under their names. `by` is what asked for it, for messages.

    Raises `UsageError` for a value that has no counterpart and for a name that cannot be bound.
    """
    text = "".join(f"let {name} = {expression(value, f'{by} {name}')}\n" for name, value in values.items())
    compiled = cells.workspace.compile(text)
    if not compiled.ok:
        raise UsageError(f"{by}: {CompileError(compiled.diagnostics)}")
    await cells.workspace.run(compiled)


def expression(value: object, what: str) -> str:
    """A Python value as an expression of the language. Raises `UsageError`, which begins with `what`, where there is no
    counterpart."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return _decimal(value)
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case list() | tuple():
            return "[" + ", ".join(expression(item, what) for item in value) + "]"
        case dict() if all(isinstance(key, str) and _NAME.match(key) for key in value):
            return "{" + ", ".join(f"{key}: {expression(item, what)}" for key, item in value.items()) + "}"
        case _:
            raise UsageError(
                f"{what}: a {type(value).__name__} has no counterpart in Prose",
                hint="text, numbers, booleans, None, lists, and dicts whose keys are names can be given",
            )


def _decimal(value: float) -> str:
    """A float without an exponent."""
    text = repr(value)
    if "e" in text:
        text = f"{value:.340f}".rstrip("0")
    return text + "0" if text.endswith(".") else text
