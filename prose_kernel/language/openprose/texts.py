"""What stands inside strings and discretion markers: escapes (1.4, 1.5) and interpolations (1.6)."""

from __future__ import annotations

import re
from typing import Final

from prose_kernel.language.openprose.node_factory import maker
from prose_kernel.language.openprose.tree import Interpolation, Name, Text

_IDENT = r"[A-Za-z_][A-Za-z0-9_]*+(?:-[A-Za-z0-9_]++)*+"
_PATH = rf"{_IDENT}(?:\.{_IDENT}|\[(?:[0-9]{{1,18}}|{_IDENT})\])*+"
_SPECIAL: Final = re.compile(rf"\\(.|\Z)|\{{({_PATH})\}}", re.DOTALL)
_INTERPOLATION: Final = re.compile(rf"()\{{({_PATH})\}}")
_STEP: Final = re.compile(rf"\.({_IDENT})|\[([0-9]++)\]|\[({_IDENT})\]")
_IDENTIFIER: Final = re.compile(_IDENT)
_ESCAPES: Final = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "{": "{", "}": "}"}

text_node = maker(Text)
_name_node = maker(Name)
_interpolation_node = maker(Interpolation)

BadEscape = tuple[int, str]
"""Offset of the backslash, and the character after it."""


def string_text(content: str, offset: int, start: int, end: int, *, triple: bool, bad: list[BadEscape]) -> Text:
    """The value of a string whose content begins at `offset`; unknown escapes stay literal and are added to `bad`.

    In a triple-quoted string a backslash before a line break stays without any finding (1.5 rule 4).
    """
    if "\\" in content:
        return _assemble(content, offset, start, end, _SPECIAL, triple, bad)
    if "{" in content:
        return _assemble(content, offset, start, end, _INTERPOLATION, triple, bad)
    return text_node(start, end, (content,) if content else ())


def marker_text(content: str, offset: int) -> Text:
    """The words of a discretion marker, trimmed; markers know no escapes."""
    trimmed = content.strip()
    start = offset + len(content) - len(content.lstrip())
    end = start + len(trimmed)
    if "{" not in trimmed:
        return text_node(start, end, (trimmed,) if trimmed else ())
    return _assemble(trimmed, start, start, end, _INTERPOLATION, False, [])


def _assemble(
    content: str, offset: int, start: int, end: int, special: re.Pattern[str], triple: bool, bad: list[BadEscape]
) -> Text:
    parts: list[str | Interpolation] = []
    literal: list[str] = []
    done = escaped = 0  # up to where the content is in `parts` or `literal`; where the last escape ended
    for match in special.finditer(content):
        at, after = match.span()
        path = match[2]
        if path is None:
            literal += (content[done:at], _escape(match, offset, triple, bad))
            done = escaped = after
        elif (at and content[at - 1] == "{" and at != escaped) or content[after : after + 1] == "}":
            continue  # nested braces: literal
        else:
            literal.append(content[done:at])
            if joined := "".join(literal):
                parts.append(joined)
            literal.clear()
            parts.append(_interpolation(path, match[0], offset + at, content[at - 1 : at] == "$"))
            done = after
    literal.append(content[done:])
    if joined := "".join(literal):
        parts.append(joined)
    return text_node(start, end, tuple(parts))


def _escape(match: re.Match[str], offset: int, triple: bool, bad: list[BadEscape]) -> str:
    char = match[1]
    value = _ESCAPES.get(char)
    if value is not None:
        return value
    if not (triple and char == "\n"):
        bad.append((offset + match.start(), char))
    return match[0]


def _interpolation(path: str, raw: str, at: int, after_dollar: bool) -> Interpolation:
    head = _IDENTIFIER.match(path)
    assert head is not None
    if head.end() == len(path):
        return _interpolation_node(at, at + len(raw), path, (), raw, after_dollar)
    steps: list[str | int | Name] = []
    for step in _STEP.finditer(path, head.end()):
        member, index, variable = step.groups()
        if member is not None:
            steps.append(member)
        elif index is not None:
            steps.append(int(index))
        else:
            begin = at + 1 + step.start() + 1
            steps.append(_name_node(begin, begin + len(variable), variable))
    return _interpolation_node(at, at + len(raw), head[0], tuple(steps), raw, after_dollar)
