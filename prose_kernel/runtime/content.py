"""The content of a value as text, for sessions, recordings, a judge or a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prose_kernel.errors import ProseError
from prose_kernel.runtime import data_size
from prose_kernel.runtime.json_text import json_text, mapped
from prose_kernel.runtime.ports import JudgeRequest
from prose_kernel.runtime.text import NAME, one_line
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


def data_or_text(text: str) -> Value:
    """Return the value of an answer: its JSON if it is valid JSON, otherwise the text."""
    try:
        data: Value = data_size.loads(text)
    except ValueError:
        return text
    return data


# ---------------------------------------------------------------- what a session is given to read

_PARTS: Final = 100_000
"""Of a value, in which images are looked for."""


def full_content(value: Value) -> str:
    """All that a session can learn from a value, wherever it is kept."""
    return "\n".join(_exec_lines(value)) if isinstance(value, ExecText) else inline_text(value, placed=False)


def images_in(value: Value) -> Iterator[bytes]:
    """The images and PDFs that a value is or holds, in its order."""
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
    """Return a command's output after the facts that its binding would show (5.5)."""
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
        return json_text(mapped(value, _with_place), separators=(",", ":"))
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
    """A row of `=` that separates the texts in a message: longer than each in them, or of a length that none has
    where a text has a very long one."""
    rows = {len(row) for text in texts for row in _FENCE.findall(text)}
    longest = max(rows, default=0)
    if longest > _LONGEST_FENCE:
        return "=" * next(length for length in range(5, longest + 2) if length not in rows)
    return "=" * max(5, longest + 1)


# ---------------------------------------------------------------- what a judge is shown

MATERIAL: Final = 100_000
"""Characters of bindings that a judge is sent."""

VALUE: Final = "the value"
"""The name of the single value that a criterion of VVM is about."""

PREVIEWS: Final = 50
"""Bindings that did not fit of which a judge is sent a few words."""


@dataclass(frozen=True, slots=True)
class Material:
    """The bindings that a judge is sent: `whole` texts, `previews` in a few words, and how many `more` there are.

    `names` are further visible names without their values. A recording is keyed by `whole` and `previews`, so what is
    not sent cannot break it.
    """

    whole: dict[str, str]
    previews: dict[str, str]
    names: tuple[str, ...] = ()
    more: int = 0


def quoted(request: JudgeRequest) -> str:
    """The question on one line, as its language writes it."""
    text = one_line(request.text)
    return f"**{text}**" if request.subject is None else f"?`{text}`"


def material(request: JudgeRequest) -> Material:
    """The bindings that the question names, in its order. If it names none: all bindings, newest first, whole as far as
    they fit, and otherwise as a preview. A criterion of VVM is about its one value."""
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
    previews = {name: _previewed(bindings[name]) for name in aside[:PREVIEWS]}
    return Material(whole, previews, more=max(0, len(aside) - PREVIEWS))


def readable(value: Value) -> str:
    """All that a value holds, as text; a note where it cannot be read."""
    try:
        return full_content(value)
    except (ProseError, OSError):
        return "(cannot be read)"


def _previewed(value: Value) -> str:
    try:
        # a binding's file is not read for a mere mention
        return one_line(value.summary, 60) if isinstance(value, Reference) else preview(value)
    except ProseError:
        return "(cannot be read)"


def cut(text: str, length: int) -> str:
    """The beginning and the end of a long text, and how much is missing between them."""
    if len(text) <= length:
        return text
    head = length * 2 // 3
    return f"{text[:head]}\n[{len(text) - length:,} characters left out]\n{text[head - length :]}"
