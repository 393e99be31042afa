"""The brackets of expressions while they are open."""

from __future__ import annotations

from typing import Any, Final

from prose_kernel.language.vvm.tree import Keyword, Template

GROUP, LIST, OBJECT, CALL, INDEX, ARGUMENT, AGENT_CALL, WITH, INLINE, KEYWORDS = range(10)
CLOSERS: Final = (")", "]", "}", ")", "]", ")", ")", ")", "}", ")")
WITH_KEYWORDS: Final = frozenset({CALL, AGENT_CALL, WITH, INLINE, KEYWORDS})
KEYWORDS_ALONE: Final = frozenset({WITH, INLINE, KEYWORDS})
SINGLE: Final = frozenset({GROUP, INDEX, ARGUMENT})


NESTING_LIMIT: Final = 500
"""Levels of blocks and brackets together (amendment A32)."""

Entry = tuple[Any, ...]
"""An entry that needs its right side: `(0, bracket)`, or `(precedence, operator, left side, its start)`."""


class Trouble(Exception):
    """The rest of a statement, from the token at index `at`, is unreadable. The error has been reported.

    `ends`: this token is the line's end after the statement, even if brackets are open.
    """

    def __init__(self, at: int, *, ends: bool = False) -> None:
        super().__init__(at)
        self.at = at
        self.ends = ends


class Bracket:
    """An open bracket of an expression: what it belongs to, and what has been read inside."""

    __slots__ = ("at", "closer", "head", "is_agent", "key", "keywords", "start", "tag", "task", "values")

    def __init__(self, tag: int, at: int, start: int, head: Any = None, task: Template | None = None) -> None:
        self.tag = tag
        self.at = at  # index of the opening token
        self.start = start  # offset where the whole begins
        self.closer = CLOSERS[tag]
        self.head = head  # what is called, indexed, derived
        self.task = task
        self.values: list[Any] = []
        self.keywords: list[Keyword] = []
        self.key: tuple[str, int] | None = None  # of the item that is being read, and where it begins
        self.is_agent = tag == INLINE  # a task may follow
