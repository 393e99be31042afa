"""What a value holds, as text for those who read it: sessions, recordings, a judge, a person."""

from __future__ import annotations

import json

from prose_kernel.runtime.text import one_line
from prose_kernel.runtime.values import ExecText, Reference, Value, inserted_text


def preview(value: Value) -> str:
    """The value in a few words, for an explanation."""
    match value:
        case Reference():
            return preview(value.read())
        case ExecText():
            return preview(value.text.rstrip("\n"))
        case str():
            return f'"{one_line(value, 40)}"' if value.strip() else "empty text"
        case None:
            return "null"
        case list() | dict():
            kind = "list" if isinstance(value, list) else "object"
            return f"{kind} of {len(value)}" if value else f"empty {kind}"
        case _:
            return one_line(inserted_text(value), 40)


def data_or_text(said: str) -> Value:
    """What somebody's answer stands for: JSON when it is, else the text."""
    try:
        data: Value = json.loads(said)
    except (ValueError, RecursionError):
        return said
    return data
