"""Finds the ends of strings and discretion markers (docs/reference/openprose.md 1.4, 1.5, 1.7), and decodes their
contents: escapes and interpolations (1.6).

All searches for ends together take linear time, for any arrangement of quotes.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from prose_kernel.language.openprose.keywords import NAME
from prose_kernel.language.openprose.tree import Interpolation, Name, Text

_BODY: Final = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_LINE_BODY: Final = re.compile(r'(?:[^"\\\n]++|\\[^\n])*+')
_TO_RUN: Final = re.compile(r'(?>(?:[^"\\]++|\\.|"(?!""))*)("++)', re.DOTALL)
_RUN: Final = re.compile(r'\\.|("{3,}+)', re.DOTALL)
_OPENS: Final = re.compile(r"(?::[ \t]*|=[ \t]*|\b(?:session|exec|throw)[ \t]+)\Z")
_ALONE_BEFORE: Final = re.compile(r"(?:\n|\A)[ \t]*+\Z")
_ALONE_AFTER: Final = re.compile(r"[ \t]*+(?:\n|\Z)")
_NOTHING: Final = re.compile(r"[ \t]*+(?:#|\n|\Z)")


class Quotes:
    """Finds the ends of strings and markers in one text, which ends with a line break."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._markers_end: dict[str, int] = {}

    def line_string_end(self, at: int) -> int | None:
        """Return the offset of the quote on the same line that closes the string whose content starts at `at`."""
        match = _LINE_BODY.match(self.text, at)
        end = match.end() if match else at
        return end if self.text.startswith('"', end) else None

    def deep_string_end(self, at: int, column: int) -> int | None:
        """Return the offset of the closing quote on a later line, if all lines of the string are blank or indented
        deeper than `column` (1.4, W109)."""
        match = _BODY.match(self.text, at)
        end = match.end() if match else at
        if not self.text.startswith('"', end) or not _NOTHING.match(self.text, end + 1):
            return None
        lines = self.text[at : end + 1].split("\n")[1:]  # with the quote
        return end if all(not line.strip() or len(line) - len(line.lstrip(" ")) > column for line in lines) else None

    def triple_end(self, at: int, *, nesting: bool) -> tuple[int, int, list[int]] | None:
        """Return the ends of the content and of the closing quotes of the string whose content starts at `at`, and the
        offsets of the strings that open inside it.

        With `nesting`, inner strings are recognised (1.5 rule 6), and the last three quotes of a long run close (rule
        3); without it, the first three do.
        """
        match = _TO_RUN.match(self.text, at)
        if match is None:
            return None
        start, end = match.span(1)
        if not nesting:
            return start, start + 3, []
        if end - start == 3 and self.text.startswith("\n", at) and self._is_opener(start, end):
            index = self._run_index.get(start)
            closer = self._ends[index] if index is not None else None
            if index is not None and closer is not None:
                inner = [self._runs[k][0] for k in range(index, closer) if self._kinds[k] > 0]
                end = self._runs[closer][1]
                return end - 3, end, inner
        return end - 3, end, []

    def _is_opener(self, start: int, end: int) -> bool:
        if self.text[end : end + 1] != "\n":
            return False
        return _OPENS.search(self.text, max(0, start - 80), start) is not None

    def _is_closer(self, start: int, end: int) -> bool:
        alone = _ALONE_BEFORE.search(self.text, max(0, start - 200), start) is not None
        return alone and end - start == 3 and _ALONE_AFTER.match(self.text, end) is not None

    @cached_property
    def _runs(self) -> list[tuple[int, int]]:
        return [match.span(1) for match in _RUN.finditer(self.text) if match[1]]

    @cached_property
    def _run_index(self) -> dict[int, int]:
        return {start: index for index, (start, _) in enumerate(self._runs)}

    @cached_property
    def _kinds(self) -> list[int]:
        """For each run of quotes: +1 if it opens a nested string, -1 if it is on a line of its own, 0 otherwise."""
        kinds = []
        for start, end in self._runs:
            opens = end - start == 3 and self._is_opener(start, end)
            kinds.append(1 if opens else -1 if self._is_closer(start, end) else 0)
        return kinds

    @cached_property
    def _closer_of(self) -> list[int | None]:
        """For each opening run, the index of the run that closes it; None if the text ends before."""
        found: list[int | None] = [None] * len(self._kinds)
        pending: list[int] = []
        for index, kind in enumerate(self._kinds):
            if kind > 0:
                pending.append(index)
            elif kind < 0 and pending:
                found[pending.pop()] = index
        return found

    @cached_property
    def _ends(self) -> list[int | None]:
        """For each run, the index of the run that ends a string if this run is the first one inside it; None if the
        string is never closed."""
        ends: list[int | None] = [None] * len(self._kinds)
        for index in range(len(self._kinds) - 1, -1, -1):
            if self._kinds[index] <= 0:
                ends[index] = index
                continue
            closer = self._closer_of[index]
            if closer is not None and closer + 1 < len(ends):
                ends[index] = ends[closer + 1]
        return ends

    def marker_end(self, at: int, mark: str) -> int | None:
        """Return the offset of the next `mark` from `at` on, None if the rest of the text has none."""
        if at > self._markers_end.get(mark, len(self.text)):
            return None
        found = self.text.find(mark, at)
        if found < 0:
            self._markers_end[mark] = at
            return None
        return found


_PATH = rf"{NAME}(?>(?:\.{NAME}|\[(?:[0-9]{{1,18}}|{NAME})\])*)"
_SPECIAL: Final = re.compile(rf"\\(.|\Z)|\{{({_PATH})\}}", re.DOTALL)
_INTERPOLATION: Final = re.compile(rf"()\{{({_PATH})\}}")
_STEP: Final = re.compile(rf"\.({NAME})|\[([0-9]++)\]|\[({NAME})\]")
_IDENTIFIER: Final = re.compile(NAME)
_ESCAPES: Final = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "{": "{", "}": "}"}


BadEscape = tuple[int, str]
"""The offset of a backslash, and the character after it."""


def string_text(content: str, offset: int, start: int, end: int, *, triple: bool, bad: list[BadEscape]) -> Text:
    """Return the value of a string whose content begins at `offset`; unknown escapes are kept and added to `bad`.

    In a triple-quoted string, a backslash before a line break is kept without a finding (1.5 rule 4).
    """
    if "\\" in content or "{" in content:
        special = _SPECIAL if "\\" in content else _INTERPOLATION
        return _assemble(content, offset, start, end, special, triple, bad)
    return Text.at(start, end, (content,) if content else ())


def marker_text(content: str, offset: int) -> Text:
    """Return the trimmed words of a discretion marker. Markers have no escapes."""
    trimmed = content.strip()
    start = offset + len(content) - len(content.lstrip())
    end = start + len(trimmed)
    if "{" not in trimmed:
        return Text.at(start, end, (trimmed,) if trimmed else ())
    return _assemble(trimmed, start, start, end, _INTERPOLATION, False, [])


def _assemble(
    content: str, offset: int, start: int, end: int, special: re.Pattern[str], triple: bool, bad: list[BadEscape]
) -> Text:
    parts: list[str | Interpolation] = []
    literal: list[str] = []
    done = escaped = 0  # the end of the content that is in `parts` or `literal`; the end of the last escape
    for match in special.finditer(content):
        at, after = match.span()
        path = match[2]
        if path is None:
            literal += (content[done:at], _escape(match, offset, triple, bad))
            done = escaped = after
        elif (at and content[at - 1] == "{" and at != escaped) or content[after : after + 1] == "}":
            continue  # nested braces: literal
        else:
            interpolation = _interpolation(path, match[0], offset + at, content[at - 1 : at] == "$")
            parts += ("".join([*literal, content[done:at]]), interpolation)
            literal.clear()
            done = after
    parts.append("".join([*literal, content[done:]]))
    return Text.at(start, end, tuple([part for part in parts if part]))


def _escape(match: re.Match[str], offset: int, triple: bool, bad: list[BadEscape]) -> str:
    char = match[1]
    if char not in _ESCAPES and not (triple and char == "\n"):
        bad.append((offset + match.start(), char))
    return _ESCAPES.get(char, match[0])


def _interpolation(path: str, raw: str, at: int, after_dollar: bool) -> Interpolation:
    head = _IDENTIFIER.match(path)
    assert head is not None
    if head.end() == len(path):
        return Interpolation.at(at, at + len(raw), path, (), raw, after_dollar)
    steps: list[str | int | Name] = []
    for step in _STEP.finditer(path, head.end()):
        member, index, variable = step.groups()
        if member is not None:
            steps.append(member)
        elif index is not None:
            steps.append(int(index))
        else:
            begin = at + 1 + step.start() + 1
            steps.append(Name.at(begin, begin + len(variable), variable))
    return Interpolation.at(at, at + len(raw), head[0], tuple(steps), raw, after_dollar)
