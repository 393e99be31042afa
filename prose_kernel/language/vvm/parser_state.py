"""The parser's state: statements with a body, blocks and brackets that are still being read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.tree import Body, Keyword, Template

PART_WORDS: Final = {"match": "case", "choose": "option", "constrain": "require"}
"""The word that begins every statement in the body of these compound statements."""
PART_OWNERS: Final = {part: owner for owner, part in PART_WORDS.items()}


class Compound:
    """A statement with a body. `make` creates its node from start, end, the values in `head`, and the body."""

    clauses: frozenset[str] = frozenset()
    """The words that may continue the statement after the last body."""

    def __init__(self, word: str, start: int, make: Callable[..., Any], *head: Any) -> None:
        self.word = word
        self.start = start
        self.clause = start  # where its last clause begins
        self.make = make
        self.head = head
        self.body: Body = ()
        self.end = start
        self.is_lost = False  # its body was not found, so that no clause is reported as missing

    def close(self, body: Body, end: int) -> None:
        """Add the body that ends at `end`."""
        self.body = body
        self.end = end

    def node(self) -> Any:
        return self.make(self.start, self.end, *self.head, self.body)


class ClausedCompound(Compound):
    """A statement with several clauses. `word` and `argument` are the first word and the value of the current one."""

    def __init__(self, word: str, start: int, argument: Any = None) -> None:
        super().__init__(word, start, tree.If.at if word == "if" else tree.Try.at)
        self.is_if = word == "if"  # otherwise it is a `try`
        self.done: list[tuple[str, tuple[int, int, Any, Body]]] = []  # start, end, argument and body of each clause
        self.begin(word, start, argument)

    def begin(self, word: str, start: int, argument: Any) -> None:
        """Begin another clause."""
        self.word, self.clause, self.argument = word, start, argument
        self.clauses = _NEXT_CLAUSES.get(word, frozenset())

    def close(self, body: Body, end: int) -> None:
        self.end = end
        self.done.append((self.word, (self.clause, end, self.argument, body)))

    def node(self) -> Any:
        done = dict(self.done)
        if self.is_if:
            arms = tuple([tree.Arm.at(*clause) for word, clause in self.done if word != "else"])
            return self.make(self.start, self.end, arms, done["else"][-1] if "else" in done else None)
        body, final = (done[word][-1] if word in done else None for word in ("try", "finally"))
        handler = tree.Handler.at(*done["except"]) if "except" in done else None
        return self.make(self.start, self.end, body or (), handler, final)


_NEXT_CLAUSES: Final = {
    **dict.fromkeys(("if", "elif"), frozenset({"elif", "else"})),
    "try": frozenset({"except", "finally"}),
    "except": frozenset({"finally"}),
}


class OpenBody:
    """A body that is being read: the column of its lines, its statements, and the statement that owns it.

    `part` is the word that all its statements must begin with; `open` is the last statement if it may continue.
    """

    __slots__ = ("column", "is_inline", "is_lossy", "is_reported", "items", "lost", "open", "owner", "part")

    def __init__(self, column: int, owner: Compound | None, items: list[Any] | None = None) -> None:
        self.column = column
        self.owner = owner
        self.items: list[Any] = [] if items is None else items
        self.part = PART_WORDS.get(owner.word) if owner is not None else None
        self.open: ClausedCompound | None = None
        self.is_inline = False  # it begins on the line of its header; its column is unknown
        self.is_reported = False  # a statement that is not allowed here has been reported
        self.is_lossy = False  # a statement in it could not be read
        self.lost: frozenset[str] = frozenset()  # clauses of a statement whose body was not indented


# ---------------------------------------------------------------- brackets of expressions

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
