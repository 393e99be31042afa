"""What a value holds, as text for those who read it: sessions, recordings, a judge, a person."""

from __future__ import annotations

import json
from collections.abc import Iterator

from prose_kernel.runtime.text import one_line
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value, full_text, inserted_text


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


# ---------------------------------------------------------------- what a session is given to read


def full_content(value: Value) -> str:
    """All that a session can learn from a value, wherever it is kept."""
    return "\n".join(_exec_lines(value)) if isinstance(value, ExecText) else inline_text(value, placed=False)


def cut_note(value: Value) -> str | None:
    """What a session is told about a value that is only the beginning of what a command printed."""
    if not isinstance(value, ExecText) or not value.result.stdout_truncated:
        return None
    printed = value.result.stdout_bytes
    of = f" of {printed:,} bytes" if printed else ""
    return f"cut: only the first {len(value.text):,} characters{of} of the command's output"


def _exec_lines(value: ExecText) -> Iterator[str]:
    """A command's output after what its binding would tell beside it (5.5)."""
    result = value.result
    if not value.bare:
        yield f"exit_code: {result.exit_code}"
        if result.timed_out:
            yield "timed_out: true"
        if result.stderr:
            yield "stderr:"
            yield from (f"  {line}" for line in result.stderr.rstrip("\n").split("\n"))
    if note := cut_note(value):
        yield f"[{note}]"
    if not value.bare:
        yield "stdout:"
    yield value.text


def inline_text(value: Value, *, placed: bool = True) -> str:
    """A value as text in a context; with `placed`, members that are stored are named by their place, not read."""
    if isinstance(value, ErrorValue):
        return "\n".join(_error_lines(value))
    if isinstance(value, (list, dict)) and placed:
        return json.dumps(_with_places(value), ensure_ascii=False, separators=(",", ":"))
    return full_text(value)


def _error_lines(value: ErrorValue) -> Iterator[str]:
    """A failed command: what happened, then its stderr (exec-and-tasks.md 2.6). Other errors field by field."""
    if "command" in value.fields:
        yield value.message
        if value.fields.get("stderr"):
            yield str(value.fields["stderr"]).rstrip("\n")
        return
    for key, item in value.fields.items():
        yield f"{key}: {item}"


def _with_places(value: Value) -> object:
    match value:
        case list():
            return [_with_places(item) for item in value]
        case dict():
            return {key: _with_places(item) for key, item in value.items()}
        case Reference():
            return {"$ref": value.location}
        case ErrorValue():
            return dict(value.fields)
        case None | bool() | int() | float():
            return value
        case _:
            return full_text(value)
