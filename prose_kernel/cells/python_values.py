"""Python values on their way into a run: each becomes a `let`, so that it is traced and stored like any other value."""

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


async def give(cells: Cells, values: Mapping[str, object]) -> None:
    """Bind Python values in the run under their names. Raises `UsageError` for one that has no counterpart."""
    text = "".join(f"let {name} = {expression(value, name)}\n" for name, value in values.items())
    compiled = cells.workspace.compile(text)
    if not compiled.ok:
        raise UsageError(f"%%prose --in: {CompileError(compiled.diagnostics)}")
    await cells.workspace.run(compiled)


def expression(value: object, name: str) -> str:
    """A Python value as an expression of the language."""
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
            return "[" + ", ".join(expression(item, name) for item in value) + "]"
        case dict() if all(isinstance(key, str) and _NAME.match(key) for key in value):
            return "{" + ", ".join(f"{key}: {expression(item, name)}" for key, item in value.items()) + "}"
        case _:
            raise UsageError(
                f"%%prose --in {name}: a {type(value).__name__} has no counterpart in Prose",
                hint="text, numbers, booleans, None, lists, and dicts whose keys are names can go in",
            )


def _decimal(value: float) -> str:
    """A float without an exponent."""
    text = repr(value)
    if "e" in text:
        text = f"{value:.340f}".rstrip("0")
    return text + "0" if text.endswith(".") else text
