"""What an editor asks the parser while a text is being written: is it complete, and what could come next."""

from __future__ import annotations

from typing import Literal

from prose_kernel.language.openprose.keywords import KEYWORDS
from prose_kernel.language.openprose.lexer import tokenize
from prose_kernel.language.openprose.parser import LAYOUT, Parser, parse
from prose_kernel.language.source import Source

Completeness = Literal["complete", "incomplete", "invalid"]

_STEP = "  "
_STILL_COMING = frozenset({"E003", "E180", "E190"})
"""Errors that the next lines may mend: a session's prompt, a `catch`, an `option`."""


def completeness(text: str) -> tuple[Completeness, str]:
    """Whether a cell is complete, and for an incomplete one the indentation that its next line should have.

    As in IPython a cell that ends inside an indented block is complete only after a blank line. A last line of only
    spaces counts as one: that is what a console has typed for the person.
    """
    parsed = parse(Source(text))
    last = text.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    if parsed.unclosed:
        return "incomplete", (indent or _STEP) if parsed.unclosed == "bracket" else ""
    codes = {found.code for found in parsed.diagnostics if found.severity == "error"}
    if codes - _STILL_COMING:
        return "invalid", ""
    if parsed.incomplete:
        return "incomplete", indent + _STEP
    *before, end = text.split("\n")
    blank = not end.strip() and bool(end or (before and not before[-1].strip()))
    if parsed.ends_indented and not blank:
        return "incomplete", indent
    if codes:
        return ("incomplete", "") if codes == {"E180"} else ("invalid", "")
    return "complete", ""


def expected(text: str) -> frozenset[str]:
    """The terminals of grammar.lark that could come after `text`, which ends at a cursor.

    A word directly before the cursor counts as not yet written. Names of terminals: keywords in capitals, `NAME`,
    `STRING`, `DISCRETION`, signs such as `COLON`, and layout such as `_NL`.
    """
    stem = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    parser = Parser(Source(f"{stem}x"), "default")
    tokens = [token for chunk in parser.lexer.chunks() for token in chunk]
    stop = next((i for i, t in enumerate(tokens) if t[0] not in LAYOUT and t[2] > len(stem)), len(tokens))
    if stop and tokens[stop - 1][0] == "NAME":
        _, start, end, name = tokens[stop - 1]
        if name.id in KEYWORDS:  # the token that would make it a keyword is still to come
            tokens[stop - 1] = (KEYWORDS[name.id], start, end, name.id)
    parser.read_until(tokens, stop)
    return parser.acceptable()


__all__ = ["Completeness", "completeness", "expected", "tokenize"]
