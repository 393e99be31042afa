"""Splits a contract file into blocks: front matter, headings, fences and the text between them (prose-md.md 1.2, 1.3).

One regular expression finds the lines that may begin a block, so a long file of plain text costs one search.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from prose_kernel.language.source import Span

_MARKED: Final = re.compile(
    r"^(?: {0,3}(#{1,6})(?=[ \t\n]|\Z)| {0,3}<!--|[ \t]*(`{3,}(?=[^`\n]*$)|~{3,}))([^\n]*)", re.MULTILINE
)
_FRONT: Final = re.compile(r"---[ \t]*\n(?:(?P<yaml>(?>(?:(?!---[ \t]*(?:\n|\Z))[^\n]*\n)*))---[ \t]*(?:\n|\Z))?")
_CLOSING_SIGNS: Final = re.compile(r"[ \t]#+[ \t]*\Z|\A#+[ \t]*\Z")

BlockKind = Literal["frontmatter", "heading", "fence", "text"]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a file. The blocks of a file, in order, cover it without gaps.

    - `text`: the title of a heading, or the info string of a fence
    - `level`: the number of `#` of a heading
    - `inside`: the lines of a fence without its markers, or the YAML of the front matter
    - `margin`, `closed`: the indentation of a fence's opener in characters, and whether the fence has an end
    """

    kind: BlockKind
    span: Span
    text: str = ""
    level: int = 0
    inside: Span = Span(0, 0)
    margin: int = 0
    closed: bool = True


def blocks(text: str) -> list[Block]:
    """Split any text into blocks, in linear time."""
    front = front_matter(text)
    found = [front] if front is not None else []
    at = search = front.span.end if front is not None else 0
    last_comment = text.rfind("-->")
    while (mark := _MARKED.search(text, search)) is not None:
        if not mark[1] and not mark[2]:  # a comment is text, if it is closed
            opened = text.index("<!--", mark.start())
            search = text.index("-->", opened) + 3 if opened < last_comment else mark.end()
            continue
        block = _heading(text, mark) if mark[1] else _fence(text, mark)
        if block.span.start > at:
            found.append(Block("text", Span(at, block.span.start)))
        found.append(block)
        at = search = block.span.end
    if at < len(text):
        found.append(Block("text", Span(at, len(text))))
    return found


def front_matter(text: str) -> Block | None:
    """Return the front matter of a text, None if there is none or it isn't closed."""
    front = _FRONT.match(text)
    if front is None or front["yaml"] is None:
        return None
    return Block("frontmatter", Span(0, front.end()), inside=Span(*front.span("yaml")))


def _heading(text: str, mark: re.Match[str]) -> Block:
    end = min(mark.end() + 1, len(text))
    title = _CLOSING_SIGNS.sub("", mark[3]).strip()
    return Block("heading", Span(mark.start(), end), title, len(mark[1]))


def _fence(text: str, mark: re.Match[str]) -> Block:
    signs = mark[2]
    inside = min(mark.end() + 1, len(text))
    closer = re.compile(rf"^[ \t]*{signs[0]}{{{len(signs)},}}[ \t]*$", re.MULTILINE).search(text, inside)
    stop, end = (closer.start(), min(closer.end() + 1, len(text))) if closer is not None else (len(text), len(text))
    span, inner = Span(mark.start(), end), Span(inside, max(stop, inside))
    return Block("fence", span, mark[3].strip(), 0, inner, mark.start(2) - mark.start(), closer is not None)
