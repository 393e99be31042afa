"""Glob patterns over `/`-separated text: `*` and `?` within a component, `**` across (exec-and-tasks.md 3.12)."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

_WILD: Final = frozenset("*?")


class Glob:
    """One pattern, compiled; matching takes time linear in the text, whatever the pattern.

    `literal` is a beginning that is taken as it is, wildcards or not. `**` as a whole component stands for any number
    of components, also none. A set of positions in the pattern is kept as the bits of one integer (bit-parallel).
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
                stars = len(pattern) - at - len(pattern[at:].lstrip("*"))
                before = pattern[at - 1] if at else literal[-1:] or "/"
                at += stars
                if stars == 1:
                    self._star |= self._slot()
                elif before == "/" and pattern[at : at + 1] == "/":  # a component of its own: any number of them
                    self._dirs |= self._slot()
                    self._inside |= self._slot()
                    at += 1
                else:
                    self._deep |= self._slot()

    def matches(self, text: str) -> bool:
        return bool(self._after(text) & self._end)

    def could_match_below(self, directory: str) -> bool:
        """Whether any text that begins with `directory/` could match."""
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
        """All positions that are reached without a further character: a wildcard may stand for nothing."""
        passable = self._star | self._deep
        while True:
            grown = states | (states & passable) << 1 | (states & self._dirs) << 2
            if grown == states:
                return states
            states = grown


def static_part(pattern: str) -> tuple[str, str]:
    """A relative pattern's longest leading run of components without a wildcard, and the rest (with a leading `/`)."""
    components = pattern.split("/")
    wild = next((at for at, component in enumerate(components) if _WILD & set(component)), len(components))
    rest = "/".join(components[wild:])
    return "/".join(components[:wild]), f"/{rest}" if rest else ""
