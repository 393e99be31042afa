"""What a value holds, as text for those who read it: sessions, recordings, a judge, a person."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from prose_kernel.errors import ProseError
from prose_kernel.runtime.ports import JudgeRequest
from prose_kernel.runtime.text import NAME, one_line
from prose_kernel.runtime.values import ExecText, Reference, Value, full_content, inserted_text


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


# ---------------------------------------------------------------- what a judge is shown

MATERIAL: Final = 100_000
"""Characters of bindings that a judge is sent."""

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


def material(request: JudgeRequest) -> Material:
    """The bindings that the question names, in its order. Where it names none, the newest ones whole as far as they
    fit, newest first; of those that do not fit, a preview."""
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
