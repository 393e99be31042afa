"""Python values as literals of VVM, for values that come from outside."""

from __future__ import annotations

import json
import math

from prose_kernel.errors import UsageError
from prose_kernel.language.given_file import GivenFile
from prose_kernel.language.numbers import decimal


def binding(name: str, value: object, what: str) -> str:
    """The statement that binds a Python value to a name. Raises `UsageError`, which begins with `what`."""
    return f"{name} = {expression(value, what)}\n"


def expression(value: object, what: str) -> str:
    """A Python value as an expression of VVM, which has no sign and no exponent (docs/reference/vvm.md 1.4). Raises
    `UsageError`, which begins with `what`, where there is no counterpart."""
    match value:
        case None:
            return "()"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value >= 0 else f"(0 - {-value})"
        case float() if math.isfinite(value):
            return decimal(value) if value >= 0 else f"(0 - {decimal(-value)})"
        case str():
            return json.dumps(value)
        case GivenFile():
            return json.dumps({"ref": value.path, "summary": value.about})
        case list() | tuple():
            return "[" + ", ".join(expression(item, what) for item in value) + "]"
        case dict() if all(isinstance(key, str) for key in value):
            return "{" + ", ".join(f"{json.dumps(key)}: {expression(item, what)}" for key, item in value.items()) + "}"
        case _:
            raise UsageError(
                f"{what}: a {type(value).__name__} has no counterpart in VVM",
                hint="text, numbers, booleans, None, lists, and dicts whose keys are texts can be given",
            )
