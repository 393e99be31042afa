"""Recovery after an unreadable statement, so that every independent mistake in a file is reported once.

The statement ends with its line, or with the lines of its open brackets; deeper lines below it belong to it. If it is
the head of a block, or is meant as one, the block is read, because its statements may be correct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prose_kernel.language.vvm import tree, word_hints
from prose_kernel.language.vvm.lexer import KINDS, LINE_STARTS, WORD
from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.parser_state import ClausedCompound, Compound, Trouble
from prose_kernel.language.vvm.tree import Name, Template

if TYPE_CHECKING:
    from prose_kernel.language.vvm.parser import Parser

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_HEADS: Final = {
    **{word: word for word in ("if", "elif", "else", "while", "for", "try", "except", "finally", "with", "def")},
    **{word: word for word in ("match", "choose", "constrain", "case", "option")},
    **dict.fromkeys(word_hints.FUNCTIONS, "def"),
    **dict.fromkeys(word_hints.LOOPS, "while"),
    "switch": "match",
    "choice": "choose",
    "elseif": "elif",
    "elsif": "elif",
    "catch": "except",
    "default": "case",
}
"""The words that begin a block, and their VVM equivalents."""


def recover(parser: Parser, trouble: Trouble) -> int:
    """Return the index of the line end after the statement that `parser` could not read."""
    first = parser.first
    parser.stack = []
    stop = _stop(parser, first, trouble)
    block = parser.blocks[-1]
    block.is_lossy = True
    if parser.header is None:
        is_deeper = _column(parser, stop) > block.column
        word = _HEADS.get(parser.texts[first])
        if word is None and is_deeper and parser.texts[stop - 1] == ":" and parser.texts[first] not in RESERVED:
            word = "if"
        if word in ("case", "option") and word != block.part:
            word = "if"  # the tree has no other place for them
        if word is not None and (is_deeper or parser.texts[stop - 1] == ":"):
            _head(parser, word, first, stop, is_deeper)
        else:
            while stop < parser.tokens.last and _column(parser, stop) > block.column:
                stop = _line_end(parser, stop + 1)
    return stop


def _stop(parser: Parser, first: int, trouble: Trouble) -> int:
    """Return the index of the line end where the statement ends."""
    texts, at = parser.texts, trouble.at
    if trouble.ends:
        return at
    depth = 0
    for text in texts[first:at]:
        depth += (text in _OPENING) - (text in _CLOSING and depth > 0)
    while at < parser.tokens.last:
        text = texts[at]
        if text in _OPENING:
            depth += 1
        elif text in _CLOSING:
            depth = max(0, depth - 1)
        elif text[0] in LINE_STARTS and (
            not depth or (_column(parser, at) <= parser.column and texts[at + 1] not in _CLOSING)
        ):
            return at
        at += 1
    return at


def _column(parser: Parser, line: int) -> int:
    """Return the column of the line after the token at `line`; -1 at the end of the text."""
    if line + 1 >= parser.tokens.last:
        return -1
    begin = parser.starts[line] + len(parser.texts[line])
    column = parser.starts[line + 1] - begin
    if parser.tabs and "\t" in (indent := parser.text[begin : begin + column]):
        return len(indent.expandtabs(parser.tab_width or 2))
    return column


def _line_end(parser: Parser, at: int) -> int:
    while at < parser.tokens.last and parser.texts[at][0] not in LINE_STARTS:
        at += 1
    return at


# ---- heads of blocks


def _head(parser: Parser, word: str, first: int, stop: int, is_deeper: bool) -> None:
    """Read the statement as the head of a block, of the kind that it resembles."""
    block = parser.blocks[-1]
    compound: Compound | None
    start = parser.starts[first]
    if word in ("elif", "else", "except", "finally"):
        owner = block.open
        if owner is None or word not in owner.clauses:
            owner = ClausedCompound("if" if word in ("elif", "else") else "try", start)
        argument: Any = _names(parser, first, stop)[-1] if word == "except" else tree.Unit.at(start, start)
        owner.begin(word, start, argument)
        block.open = None
        compound = owner
    else:
        if block.open is not None:
            parser.finish(block)
        compound = _compound(parser, word, first, stop)
    if is_deeper:
        parser.header = compound
    else:
        compound.is_lost = True
        parser.attach(compound, (), parser.tokens.end(stop - 1))


def _compound(parser: Parser, word: str, first: int, stop: int) -> Compound:
    start = parser.starts[first]
    hole = tree.Unit.at(start, start)
    text = Template(("…",))
    names = _names(parser, first, stop)
    if word in ("if", "try"):
        return ClausedCompound(word, start, hole)
    heads: dict[str, tuple[Any, ...]] = {
        "def": (tree.Def.at, names[0], tuple({name.id: name for name in names[1:]}.values())),
        "while": (tree.While.at, hole),
        "for": (tree.For.at, names[0], hole),
        "match": (tree.Match.at, hole),
        "choose": (tree.Choose.at, hole, text, names[-1]),
        "constrain": (tree.Constrain.at, names[0], ()),
        "case": (tree.Case.at, tree.CriterionPattern(text)),
        "option": (tree.Option.at, tree.String(f"…{start}")),
        "with": (tree.WithInput.at, hole),
    }
    return Compound(word, start, *heads[word])


def _names(parser: Parser, first: int, stop: int) -> list[Name]:
    """Return the names after the first word of a statement; at least one."""
    found = []
    for at in range(first + 1, stop):
        word = parser.texts[at]
        if KINDS.get(word[0]) == WORD and word not in RESERVED and word not in word_hints.FUNCTIONS:
            found.append(Name.at(parser.starts[at], parser.tokens.end(at), word))
    return found or [Name.at(parser.starts[first], parser.starts[first], "_")]
