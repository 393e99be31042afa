"""What is said about text that cannot be read (docs/reference/vvm.md 10.2), and how far reading can go on."""

from __future__ import annotations

from typing import Any

from prose_kernel.language.source import Source
from prose_kernel.language.vvm.brackets import AGENT_CALL, KEYWORDS_ALONE, Bracket, Entry, Trouble
from prose_kernel.language.vvm.diagnostics import Findings
from prose_kernel.language.vvm.keywords import RESERVED
from prose_kernel.language.vvm.lexer import END, KINDS, LINE_STARTS, NUMBER, STRING, TEMPLATE, WORD, Tokens
from prose_kernel.language.vvm.strings import BadEscape


class Mistakes:
    """The tokens of a source, `at` the index of the next one; what to report when it has no place.

    Methods that return a `Trouble` have reported it; who calls them raises it.
    """

    def __init__(self, source: Source) -> None:
        self.tokens = Tokens(source.text)
        self.texts = self.tokens.texts
        self.starts = self.tokens.starts
        self.findings = Findings(source)
        self.report = self.findings.add
        self.at = 0
        self.end = 0  # offset behind the last expression
        self.stack: list[Entry] = []  # of the expression that is being read
        self.unclosed: str | None = None

    # ---- naming tokens

    def shown(self, at: int) -> str:
        """The token at `at` in a message."""
        text = self.texts[at]
        if text == END and at == self.tokens.last:
            return "the end of the program"
        kind = KINDS.get(text[0])
        if text[0] in LINE_STARTS:
            return "the end of the line"
        if kind == STRING:
            return "a string"
        if kind == TEMPLATE:
            return "a template"
        if kind == NUMBER:
            return f"the number `{_short(text)}`"
        if kind == WORD and text in RESERVED:
            return f"the reserved word `{text}`"
        return f"`{_short(text)}`"

    def span(self, at: int) -> tuple[int, int]:
        """Where the token at `at` begins and ends; a line's end and the end of the text are where code ends."""
        text = self.texts[at]
        if at and (text[0] in LINE_STARTS or at == self.tokens.last):
            while at and self.texts[at][:1] in ("\n", "#", END):
                at -= 1
            end = self.tokens.end(at)
            return end, end
        return self.starts[at], self.tokens.end(at)

    def wrong(self, at: int, expected: str, hint: str | None = None) -> Trouble:
        """The token at `at` stands where something else is expected."""
        self.report("E001", *self.span(at), f"expected {expected}, found {self.shown(at)}", hint)
        return Trouble(at)

    # ---- expressions

    def odd_operand(self, at: int) -> tuple[Any, int, int]:
        """What stands at `at` is no operand."""
        raise self.wrong(at, "a value")

    def odd_key(self, at: int) -> str:
        raise self.wrong(at, "a key")

    def odd_number(self, at: int) -> int | float:
        raise self.wrong(at, "a number")

    def check_positional(self, bracket: Bracket, at: int) -> None:
        """An argument without a name begins at `at`."""
        if bracket.tag in KEYWORDS_ALONE or bracket.keywords:
            raise self.wrong(at, "`name=value`")
        if bracket.tag == AGENT_CALL and bracket.values:
            self.report("E001", *self.span(at), "an agent takes one input", "pass a list, or `pack(…)`")

    def missing_colon(self, bracket: Bracket, at: int) -> None:
        raise self.wrong(at, "`:`")

    def missing_parentheses(self, at: int, end: int) -> None:
        self.report("E001", end, end, "a call of an agent needs parentheses", "write `()` behind the task")

    def in_bracket(self, at: int, bracket: Bracket) -> Trouble:
        """The token at `at` neither goes on with what is in a bracket nor closes it."""
        return self.wrong(at, f"`,` or `{bracket.closer}`")

    def unterminated(self, at: int, code: str) -> Trouble:
        self.report(code, *self.span(at), "this is never closed")
        return Trouble(at + 1)

    def bad_escape(self, at: int, escape: BadEscape) -> None:
        start = self.starts[at]
        text = self.texts[at][escape.start : escape.end]
        self.report("E005", start + escape.start, start + escape.end, f"unknown escape `{text}`")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"
