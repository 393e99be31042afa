"""Python values as literals of OpenProse, for values that come from outside."""

from __future__ import annotations

import math
import re
import shlex

from prose_kernel.errors import UsageError
from prose_kernel.language.given_file import GivenFile
from prose_kernel.language.numbers import decimal
from prose_kernel.language.openprose.keywords import KEYWORDS

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "{": "\\{", "}": "\\}"})
_NAME = re.compile(r"[A-Za-z_][\w-]*\Z", re.ASCII)


def binding(name: str, value: object, what: str) -> str:
    """The statement that binds a Python value to a name. Raises `UsageError`, which begins with `what`."""
    if isinstance(value, GivenFile):  # bound to a command that prints the file
        return f"let {name} = exec {expression(f'cat {shlex.quote(value.path)}', what)}\n"
    return f"let {name} = {expression(value, what)}\n"


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
            return decimal(value)
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case list() | tuple():
            return "[" + ", ".join(expression(item, what) for item in value) + "]"
        case dict() if all(isinstance(key, str) for key in value):
            return "{" + ", ".join(f"{_key(key)}: {expression(item, what)}" for key, item in value.items()) + "}"
        case _:
            raise UsageError(
                f"{what}: a {type(value).__name__} has no counterpart in Prose",
                hint="text, numbers, booleans, None, lists, and dicts whose keys are text can be given",
            )


def _key(name: str) -> str:
    return name if _NAME.match(name) and name not in KEYWORDS else f'"{name.translate(_ESCAPES)}"'


def change_directory(directory: str) -> str:
    """The statement that changes the directory of the commands below it."""
    return f"exec {expression(f'cd {shlex.quote(directory)}', 'the directory')}"
