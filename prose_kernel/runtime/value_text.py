"""The content of a value as text, for sessions, recordings, a judge or a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from prose_kernel.errors import ProseError
from prose_kernel.language.text import one_line
from prose_kernel.runtime import json_data
from prose_kernel.runtime.json_data import json_text, mapped
from prose_kernel.runtime.ports import JudgeRequest
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value, full_text, inserted_text

MARK: Final = "⟦dry-run "
NAME: Final = re.compile(r"[^\W\d]\w*(?:-\w+)*")
"""A word of a text that may be the name of a binding."""
_UNREADABLE: Final = "(cannot be read)"


def marker(what: str) -> str:
    """Return the placeholder for a value that a dry run does not produce."""
    return f"{MARK}{what}⟧"


def preview(value: Value) -> str:
    """Return the value in a few words, for an explanation."""
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


def readable_preview(value: Value) -> str:
    """Return the value in a few words, or a note that it cannot be read."""
    try:
        return preview(value)
    except (ProseError, OSError):
        return _UNREADABLE


def data_or_text(text: str) -> Value:
    """Return the value of an answer: its JSON if it is valid JSON, otherwise the text."""
    try:
        data: Value = json_data.loads(text)
    except ValueError:
        return text
    return data


# ---------------------------------------------------------------- texts for a session

_PARTS: Final = 100_000
"""How many parts of a value are searched for images."""


def full_content(value: Value) -> str:
    """Return everything that a session can learn from a value, including stored parts."""
    return "\n".join(_exec_lines(value)) if isinstance(value, ExecText) else inline_text(value, placed=False)


def images_in(value: Value) -> Iterator[bytes]:
    """Yield the images and PDFs in a value, in its order."""
    agenda: list[Value] = [value]
    for _ in range(_PARTS):
        if not agenda:
            return
        part = agenda.pop()
        if isinstance(part, ExecText) and part.result.image:
            yield part.result.image
        elif isinstance(part, (list, dict)):
            agenda += reversed(part if isinstance(part, list) else [*part.values()])


def cut_note(value: Value) -> str | None:
    """Return the note for a session about a value that is only the beginning of a command's output."""
    if not isinstance(value, ExecText) or not value.result.stdout_truncated:
        return None
    printed = value.result.stdout_bytes
    of = f" of {printed:,} bytes" if printed else ""
    return f"cut: only the first {len(value.text):,} characters{of} of the command's output"


def _exec_lines(value: ExecText) -> Iterator[str]:
    """Yield the lines of a command's output, after the facts that its binding would show (5.5)."""
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
    """Return a value as text in a context. With `placed`, stored members are shown as their place instead of read."""
    if isinstance(value, ErrorValue):
        return "\n".join(_error_lines(value))
    if isinstance(value, (list, dict)) and placed:
        return json_text(mapped(value, _with_place), separators=(",", ":"))
    return full_text(value)


def _error_lines(value: ErrorValue) -> Iterator[str]:
    """Yield the lines of an error: message and stderr of a failed command (exec-and-tasks.md 2.6), else each field."""
    if "command" in value.fields:
        yield value.message
        if value.fields.get("stderr"):
            yield str(value.fields["stderr"]).rstrip("\n")
        return
    for key, item in value.fields.items():
        yield f"{key}: {item}"


def _with_place(value: Value) -> object:
    match value:
        case Reference():
            return {"$ref": value.location}
        case ErrorValue():
            return dict(value.fields)
        case None | bool() | int() | float():
            return value
        case _:
            return full_text(value)


_FENCE: Final = re.compile("=+")
_LONGEST_FENCE: Final = 100


def fence_of(texts: Iterable[str]) -> str:
    """Return a row of `=` that separates the texts in a message. It is longer than each such row in them; if a text has
    a very long one, it has a length that none of them has."""
    rows = {len(row) for text in texts for row in _FENCE.findall(text)}
    longest = max(rows, default=0)
    if longest > _LONGEST_FENCE:
        return "=" * next(length for length in range(5, longest + 2) if length not in rows)
    return "=" * max(5, longest + 1)


# ---------------------------------------------------------------- texts for a judge

MATERIAL: Final = 100_000
"""The most characters of bindings sent to a judge."""

VALUE: Final = "the value"
"""The name of the value that a VVM criterion judges."""

PREVIEWS: Final = 50
"""The most bindings sent to a judge as a preview because they did not fit."""


class Material(Struct, frozen=True):
    """The bindings sent to a judge: `whole` texts, `previews` in a few words, and how many `more` there are.

    `names` are further visible names without their values. The key of a recording contains `whole` and `previews`, so
    bindings that are not sent cannot invalidate it.
    """

    whole: dict[str, str]
    previews: dict[str, str]
    names: tuple[str, ...] = ()
    more: int = 0


def quoted(request: JudgeRequest) -> str:
    """Return the question on one line, in the syntax of its language."""
    text = one_line(request.text)
    return f"**{text}**" if request.subject is None else f"?`{text}`"


def material(request: JudgeRequest) -> Material:
    """Return the bindings that the question names, in its order. If it names none, return all bindings, newest first:
    whole while they fit, then as previews. A VVM criterion has one value."""
    if request.subject is not None:
        return Material({VALUE: cut(request.subject, MATERIAL)}, {})
    bindings = request.bindings
    named = [name for name in dict.fromkeys(NAME.findall(request.text)) if name in bindings]
    left = MATERIAL
    whole: dict[str, str] = {}
    if named:
        for name in named:
            whole[name] = cut(readable(bindings[name]), max(left, 200))
            left -= len(whole[name])
        return Material(whole, {}, tuple(name for name in bindings if name not in whole)[-PREVIEWS:])
    aside: list[str] = []
    for name in reversed([*bindings]):
        text = readable(bindings[name]) if left > 0 else ""
        if left <= 0 or (whole and len(text) > left):
            aside.append(name)
            continue
        whole[name] = cut(text, left)
        left -= len(whole[name])
    mentioned = ((name, bindings[name]) for name in aside[:PREVIEWS])
    previews = {  # a binding's file is not read for a mere mention
        name: one_line(value.summary, 60) if isinstance(value, Reference) else readable_preview(value)
        for name, value in mentioned
    }
    return Material(whole, previews, more=max(0, len(aside) - PREVIEWS))


def readable(value: Value) -> str:
    """Return the full content of a value as text, or a note that it cannot be read."""
    try:
        return full_content(value)
    except (ProseError, OSError):
        return _UNREADABLE


def cut(text: str, length: int) -> str:
    """Return the beginning and the end of a long text, with the number of characters left out between them."""
    if len(text) <= length:
        return text
    head = length * 2 // 3
    return f"{text[:head]}\n[{len(text) - length:,} characters left out]\n{text[head - length :]}"
