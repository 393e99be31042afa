"""Errors as values of a program (docs/reference/openprose.md 3.12)."""

from __future__ import annotations

from typing import Final

from prose_kernel.errors import RecursionLimitExceeded, RunError
from prose_kernel.runtime.values import ErrorValue

_ORDER: Final = (
    "statement", "line", "execution_id", "branch", "program", "command", "exit_code", "stderr", "stdout",
    "timed_out", "gate", "status", "resolved_by", "comment",
)  # fmt: skip


def error_value(error: RunError) -> ErrorValue:
    """Return the value that `catch` binds: the fields of 3.12 in the order of its table, then other fields."""
    fields: dict[str, object] = {"type": error.type, "code": error.code, "message": one_line(error.message)}
    for name in _ORDER:
        if name in error.details:
            fields[name] = error.details[name]
    for name, value in error.details.items():
        fields.setdefault(name, value)
    return ErrorValue(fields, error)


def one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text else text


def recursion_error(name: str, limit: int, kind: str = "block") -> RecursionLimitExceeded:
    return RecursionLimitExceeded(f"RecursionLimitExceeded: {kind} '{name}' exceeded max_depth {limit}")
