"""What an editor asks the parser while a text is being written: is it complete, and what could come next."""

from __future__ import annotations

from typing import Final, Literal

from prose_kernel.language.source import Source
from prose_kernel.language.vvm.keywords import CLAUSES, RESERVED
from prose_kernel.language.vvm.lexer import LINE_STARTS, Tokens
from prose_kernel.language.vvm.parser import parse

Completeness = Literal["complete", "incomplete", "invalid"]

_STEP: Final = "  "
_WORD_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_PROBES: Final[dict[str, tuple[str, ...]]] = {
    **{word.upper(): (word,) for word in sorted(RESERVED - {"error"})},
    "ERROR": ("error(_)",), "NAME": ("x", "x=0", "_"), "STRING": ('""',), "NUMBER": ("0",), "TEMPLATE": ("``",),
    "COLON": (":",), "EQUALS": ("=",), "DOT": (".",), "COMMA": (",",), "LPAR": ("()", "(x)"), "RPAR": (")",),
    "LSQB": ("[]",), "RSQB": ("]",), "LBRACE": ("{}",), "RBRACE": ("}",), "AT": ("@x",), "QUESTION": ("?``",),
    "PLUS": ("+",), "MINUS": ("-",), "COMPARISON": ("==",), "NEWLINE": ("\n",),
}  # fmt: skip
"""Texts for each kind of token: what `expected` tries."""
_ANY_WORD: Final = ("AS", "BY", "OPTION")
"""No place takes all of these but one that takes any word, as a name."""


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
    if any(found not in parsed.awaited for found in parsed.diagnostics):
        return "invalid", ""
    if parsed.incomplete:
        return "incomplete", indent + _STEP
    *before, end = text.split("\n")
    blank = not end.strip() and bool(end or (before and not before[-1].strip()))
    if parsed.ends_indented and not blank:
        return "incomplete", indent
    if parsed.awaited:
        return "incomplete", " " * (parsed.awaited[-1].column - 1)
    return "complete", ""


def expected(text: str) -> frozenset[str]:
    """The kinds of tokens that could come after `text`, which ends at a cursor.

    A word directly before the cursor counts as not yet written. Kinds: reserved words in capitals, `NAME`, `STRING`,
    `NUMBER`, `TEMPLATE`, signs such as `COLON`, `NEWLINE`. Inside a string, a template or a comment there are none.
    """
    stem = text.rstrip(_WORD_CHARACTERS)
    begin = _statement(stem)
    if begin is None:
        return frozenset()
    stem = stem[begin:]
    if stem and not stem[-1].isspace():
        stem += " "
    before = {(found.code, found.span.start) for found in parse(Source(stem)).diagnostics}
    found = {kind for kind, probes in _PROBES.items() if any(_is_accepted(stem, probe, before) for probe in probes)}
    if found.issuperset(_ANY_WORD):
        found -= {word.upper() for word in RESERVED}
    if "NAME" in found:
        found -= {"PLUS", "MINUS"}
    return frozenset(found)


def _statement(stem: str) -> int | None:
    """Where the last statement at the left margin begins; None if `stem` ends inside a literal or a comment."""
    tokens = Tokens(stem)
    if tokens.cuts or (not stem.endswith("\n") and "#" in tokens.texts[tokens.last - 1].partition("\n")[0]):
        return None
    begin = depth = 0
    for at, token in enumerate(tokens.texts[: tokens.last]):
        if token in ("(", "[", "{"):
            depth += 1
        elif token in (")", "]", "}"):
            depth = max(0, depth - 1)
        elif (not at or token[0] in LINE_STARTS) and not depth and tokens.texts[at + 1] not in CLAUSES:
            start = tokens.starts[at + 1]
            if start == tokens.starts[at] + len(token) and start < len(stem):
                begin = start
    return begin


def _is_accepted(stem: str, probe: str, before: set[tuple[str, int]]) -> bool:
    """Whether a token would be right at the end of `stem`, in which there is wrong what `before` tells."""
    parsed = parse(Source(stem + probe))
    found = {(found.code, found.span.start) for found in parsed.diagnostics if found not in parsed.awaited}
    if probe == "\n":
        end = len(stem.rstrip())
        return not any(start >= end for _, start in found)
    return all(start > len(stem) or (start < len(stem) and (code, start) in before) for code, start in found)
