"""Glob patterns over `/`-separated text: `*` and `?` stay within a segment, `**` is any number of whole segments.

See `docs/reference/exec-and-tasks.md` 3.13.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

_WILD: Final = frozenset("*?")


class Glob:
    """One compiled pattern. Matching takes time linear in the text, whatever the pattern.

    `literal` is a prefix that is taken literally, wildcards or not. `**` counts only as a whole segment and matches any
    number of segments, also none; two stars inside a segment (`docs**`) mean the same as one.

    The positions that a match may have reached in the pattern are the bits of one integer, so a text is read once
    without backtracking (bit-parallel simulation of the pattern's automaton).
    """

    __slots__ = ("_deep", "_dirs", "_end", "_inside", "_literals", "_one", "_slots", "_star")

    def __init__(self, pattern: str, literal: str = "") -> None:
        self._literals: dict[str, int] = defaultdict(int)
        self._one = self._star = self._deep = self._dirs = self._inside = self._slots = 0
        for character in literal:
            self._literals[character] |= self._slot()
        self._parse(pattern, literal)
        self._end = 1 << self._slots

    def _slot(self) -> int:
        self._slots += 1
        return 1 << (self._slots - 1)

    def _parse(self, pattern: str, literal: str) -> None:
        at = 0
        while at < len(pattern):
            character = pattern[at]
            if character not in _WILD:
                self._literals[character] |= self._slot()
                at += 1
            elif character == "?":
                self._one |= self._slot()
                at += 1
            else:
                before = pattern[at - 1] if at else literal[-1:] or "/"
                stars = len(pattern) - at - len(pattern[at:].lstrip("*"))
                at += stars
                whole = stars > 1 and before == "/"
                if whole and at == len(pattern):
                    self._deep |= self._slot()
                elif whole and pattern[at] == "/":
                    self._dirs |= self._slot()
                    self._inside |= self._slot()
                    at += 1
                else:
                    self._star |= self._slot()

    def matches(self, text: str) -> bool:
        return bool(self._after(text) & self._end)

    def could_match_below(self, directory: str) -> bool:
        """Return whether any text that begins with `directory/` could match."""
        return bool(self._after(directory.rstrip("/") + "/"))

    def _after(self, text: str) -> int:
        states = self._closure(1)
        for character in text:
            states = self._closure(self._step(states, character))
            if not states:
                break
        return states

    def _step(self, states: int, character: str) -> int:
        if character == "/":
            return (states & self._literals.get("/", 0)) << 1 | (states & self._deep) | (states & self._inside) >> 1
        moved = (states & (self._literals.get(character, 0) | self._one)) << 1
        stayed = states & (self._star | self._deep | self._inside)
        return moved | stayed | (states & self._dirs) << 1

    def _closure(self, states: int) -> int:
        """Return all positions that can be reached without another character: a wildcard may match nothing."""
        passable = self._star | self._deep
        while True:
            grown = states | (states & passable) << 1 | (states & self._dirs) << 2
            if grown == states:
                return states
            states = grown


def static_part(pattern: str) -> tuple[str, str]:
    """Return the longest leading run of segments without a wildcard, and the rest with its leading `/` ("" if there is
    none)."""
    segments = pattern.split("/")
    wild = next((at for at, segment in enumerate(segments) if _WILD & set(segment)), len(segments))
    rest = "/".join(segments[wild:])
    return "/".join(segments[:wild]), f"/{rest}" if rest else ""
