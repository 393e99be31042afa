"""The open brackets of an expression that is being read."""

from __future__ import annotations

from typing import Any, Final

from prose_kernel.language.vvm.tree import Keyword, Template

GROUP, LIST, OBJECT, CALL, INDEX, ARGUMENT, AGENT_CALL, WITH, INLINE, KEYWORDS = range(10)
CLOSERS: Final = (")", "]", "}", ")", "]", ")", ")", ")", "}", ")")
WITH_KEYWORDS: Final = frozenset({CALL, AGENT_CALL, WITH, INLINE, KEYWORDS})
ONLY_KEYWORDS: Final = frozenset({WITH, INLINE, KEYWORDS})
ONE_VALUE: Final = frozenset({GROUP, INDEX, ARGUMENT})


NESTING_LIMIT: Final = 500
"""The maximum depth of blocks and brackets together (amendment A32)."""

Entry = tuple[Any, ...]
"""An operator without its right operand, `(precedence, operator, left, start of left)`, or `(0, bracket)`."""


class Trouble(Exception):
    """Raised if a statement is unreadable from the token at index `at` on. The error has been reported.

    `ends`: this token is the line end after the statement, even if brackets are open.
    """

    def __init__(self, at: int, *, ends: bool = False) -> None:
        super().__init__(at)
        self.at = at
        self.ends = ends


class Bracket:
    """An open bracket of an expression: its kind (`tag`), the expression in front of it, the items read so far."""

    __slots__ = ("at", "closer", "head", "is_agent", "key", "keywords", "start", "tag", "task", "values")

    def __init__(self, tag: int, at: int, start: int, head: Any = None, task: Template | None = None) -> None:
        self.tag = tag
        self.at = at  # index of the opening token
        self.start = start  # offset where the whole expression begins
        self.closer = CLOSERS[tag]
        self.head = head  # the expression that is called, indexed or derived
        self.task = task
        self.values: list[Any] = []
        self.keywords: list[Keyword] = []
        self.key: tuple[str, int] | None = None  # the key of the current item, and its offset
        self.is_agent = tag == INLINE  # its value is an agent, which a task may follow
