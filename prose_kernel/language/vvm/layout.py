"""Lays out one logical line of VVM: decides which of its brackets are broken, and places its comments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from prose_kernel.language.vvm.tree import Comment

STEP: Final = 2
"""The indentation of a block or a broken bracket, in columns."""
_WIDTH: Final = 100
_MAX_INDENT: Final = 60
"""The maximum indentation inside brackets: otherwise deep nesting would cost the square of its depth."""


class Mark(Struct, eq=False):
    """A possible line break, or the start or end of a group of them; with its text in flat and in broken groups."""

    flat: str = ""
    broken: str = ""


GROUP: Final = Mark()
ELEMENTS: Final = Mark()  # a group that is broken if one of its parts has several lines
END: Final = Mark()
SOFT: Final = Mark()
SPACE: Final = Mark(" ")
DEDENT: Final = Mark()  # before a closing bracket
COMMA: Final = Mark("", ",")
OPENING: Final = Mark("", "(")
CLOSING: Final = Mark("", ")")
_BREAKS: Final = frozenset({SOFT, SPACE, DEDENT})


Piece = str | Mark | Comment


class Layout:
    """Lays out the pieces of one logical line from left to right; a group stays flat if it fits.

    A group fits if the text up to the next possible break after it ends within the width. A text of several lines
    counts with its first line before it and with its last line after it. Prefix sums over all pieces are computed once,
    so that each test takes constant time however large a group is.
    """

    def __init__(self, pieces: Sequence[Piece], level: int) -> None:
        self._pieces = pieces
        self._indent = level * STEP
        self._out: list[str] = []
        self._measure()

    def _measure(self) -> None:
        pieces = self._pieces
        size = len(pieces)
        self._width = width = [0] * (size + 1)  # total of all flat texts before a piece
        self._comments = comments = [0] * (size + 1)  # number of comments before a piece
        self._last_multiline = tall = [-1] * (size + 1)  # the last text of several lines before a piece
        self._ends = ends = [0] * size
        opened: list[int] = []
        for index, piece in enumerate(pieces):
            text = piece if isinstance(piece, str) else piece.flat if isinstance(piece, Mark) else ""
            width[index + 1] = width[index] + len(text)
            comments[index + 1] = comments[index] + isinstance(piece, Comment)
            tall[index + 1] = index if "\n" in text else tall[index]
            if piece is GROUP or piece is ELEMENTS:
                opened.append(index)
            elif piece is END:
                ends[opened.pop()] = index
        self._next_break = after = [size] * (size + 1)  # the first possible break from a piece on
        self._next_multiline = next_tall = [size] * (size + 1)
        for index in range(size - 1, -1, -1):
            piece = pieces[index]
            breaks = isinstance(piece, Comment) or piece in _BREAKS
            after[index] = index if breaks else after[index + 1]
            next_tall[index] = index if tall[index + 1] == index else next_tall[index + 1]

    def _width_to_break(self, begin: int, end: int) -> int:
        """Return the width from piece `begin` to the next line break, or to the first possible break from `end` on."""
        tall = self._next_multiline[begin]
        stop = self._next_break[end]
        if tall < stop:
            return self._width[tall] - self._width[begin] + str(self._pieces[tall]).index("\n")
        return self._width[stop] - self._width[begin]

    def _fits(self, begin: int, column: int) -> bool:
        end = self._ends[begin]
        if self._comments[end] > self._comments[begin]:
            return False
        last = self._last_multiline[end]
        if last < begin:
            return column + self._width_to_break(begin, end) <= _WIDTH
        if self._pieces[begin] is ELEMENTS:
            return False
        last_line = str(self._pieces[last]).rpartition("\n")[2]
        rest = len(last_line) + self._width_to_break(last + 1, max(last + 1, end))
        return column + self._width_to_break(begin, end) <= _WIDTH and rest <= _WIDTH

    def text(self) -> str:
        out = self._out
        base = min(self._indent, _MAX_INDENT - STEP)
        groups: list[tuple[bool, int, int]] = [(False, base, base)]  # broken?, indentation of its content, of its end
        broken, inner, outer = groups[0]
        column, fresh = self._indent, -1  # `fresh`: the indentation of a line with nothing in it, or -1
        for index, piece in enumerate(self._pieces):
            if isinstance(piece, Comment):
                if fresh >= 0 or piece.alone:
                    self._break_line(fresh >= 0)
                    out.append(f"{' ' * inner}{comment_text(piece)}")
                else:
                    self._strip_blanks()
                    out.append(f"  {comment_text(piece)}")
                out.append("\n")
                fresh = inner
            elif piece is GROUP or piece is ELEMENTS:
                breaks = not self._fits(index, fresh if fresh >= 0 else column)
                groups.append((breaks, min(inner + STEP, _MAX_INDENT) if breaks else inner, inner))
                broken, inner, outer = groups[-1]
            elif piece is END:
                groups.pop()
                broken, inner, outer = groups[-1]
            elif broken and piece in _BREAKS:
                self._break_line(fresh >= 0)
                fresh = outer if piece is DEDENT else inner
            else:
                text = piece if isinstance(piece, str) else (piece.broken if broken else piece.flat)
                if not text or (fresh >= 0 and text == " "):
                    continue
                if fresh >= 0:
                    text = text.lstrip(" ")
                    out.append(" " * fresh)
                    column, fresh = fresh, -1
                out.append(text)
                cut = text.rfind("\n")
                column = len(text) - cut - 1 if cut >= 0 else column + len(text)
        if fresh >= 0:
            out.pop()  # the line break after a comment
        return "".join(out)

    def _break_line(self, fresh: bool) -> None:
        if not fresh:
            self._strip_blanks()
            self._out.append("\n")

    def _strip_blanks(self) -> None:
        if self._out:
            self._out[-1] = self._out[-1].rstrip(" ")


def comment_text(comment: Comment) -> str:
    is_tight = comment.span.end - comment.span.start == 1 + len(comment.text)
    if comment.span.start == 0 and comment.text.startswith("!") and is_tight:
        return f"#{comment.text}"  # the first line of a script (shebang)
    return f"# {comment.text}".rstrip()
