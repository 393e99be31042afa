"""Reports syntax errors (docs/reference/vvm.md 10.2), and recovers from them inside a statement.

A mistake with an obvious meaning is read as that meaning. Otherwise a `Trouble` drops the rest of the statement, and
recovery.py continues after it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from prose_kernel.language.diagnostics import Findings
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree, word_hints
from prose_kernel.language.vvm.lexer import KINDS, LINE_STARTS, NUMBER, SIGN, STRING, TEMPLATE, WORD, BadEscape, Tokens
from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.parser_state import (
    AGENT_CALL,
    GROUP,
    INDEX,
    LIST,
    NESTING_LIMIT,
    ONLY_KEYWORDS,
    WITH_KEYWORDS,
    Bracket,
    Entry,
    OpenBody,
    Trouble,
)
from prose_kernel.language.vvm.word_hints import printable

SKIP: Final = object()
"""Returned instead of an operand: the token has been reported and skipped; the operand comes next."""
_CLOSING: Final = frozenset(")]}")
_OPENING: Final = {")": "(", "]": "[", "}": "{"}
_AFTER_OPERAND: Final = frozenset({*")]},:.([", "+", "-", "==", "!=", "<", "<=", ">", ">=", "and", "or"})
_SENTENCE: Final = re.compile(r"[\w ,.?!-]+")
_OBJECT: Final = "an object is written `{key: value}`"
_ANY_SIGN: Final = frozenset({*"()[]{},:.=<>+-@?", "==", "!=", "<=", ">="})


class SyntaxErrors:
    """The tokens of a source, with `at` as the index of the next one; reports tokens that do not fit.

    Methods that return a `Trouble` have reported the error; the caller raises it.
    """

    def __init__(self, source: Source) -> None:
        self.tokens = Tokens(source.text)
        self.texts = self.tokens.texts
        self.starts = self.tokens.starts
        self.findings = Findings(source)
        self.report = self.findings.add
        self.near = Nearest()
        self.at = 0
        self.end = 0  # offset after the last expression
        self.first = 0  # index of the first token of the statement
        self.column = 0  # of the statement
        self.stack: list[Entry] = []  # of the expression that is being read
        self.unclosed: str | None = None
        self.is_deep = False  # a block that is too deep has been reported
        self.blocks: list[OpenBody] = [OpenBody(0, None)]
        self.quiet_until = -1  # index up to which no more errors are reported, because the line has one already

    # ---- naming tokens

    def described(self, at: int) -> str:
        """Return the token at `at` for a message."""
        text = self.texts[at]
        if at == self.tokens.last:
            return "the end of the program"
        kind = KINDS.get(text[0])
        if text[0] in LINE_STARTS:
            return "the end of the line"
        if kind == STRING:
            return "a string"
        if kind == TEMPLATE:
            return "a template"
        if kind == WORD and text in RESERVED:
            return f"the reserved word `{text}`"
        return f"`{printable(text)}`"

    def span(self, at: int) -> tuple[int, int]:
        """Return the start and end of the token at `at`; a line end and the end of the text are at the end of the
        code."""
        if at and self.is_end(at):
            while at and self.is_end(at):
                at -= 1
            end = self.tokens.end(at) if at else 0
            return end, end
        return self.starts[at], self.tokens.end(at)

    def is_end(self, at: int) -> bool:
        """Return whether the token at `at` is a line end or the end of the text."""
        return at == self.tokens.last or self.texts[at][:1] in LINE_STARTS

    def kind(self, at: int) -> int | None:
        return KINDS.get(self.texts[at][0])

    # ---- reporting

    def unexpected(self, at: int, expected: str, hint: str | None = None) -> Trouble:
        """Report that another token is expected in place of the one at `at`."""
        message = f"expected {expected}, found {self.described(at)}"
        if self.is_foreign(at):
            adjacent = self.starts[at + 1] == self.tokens.end(at)
            own, own_hint = word_hints.sign(self.texts[at], self.texts[at + 1][:1] if adjacent else "")
            if own_hint or not hint:
                message, hint = own, own_hint
        elif self._is_inside_quotes(at):
            hint = 'write `\\"` for a quote inside a string'
        return self.trouble(at, message, hint)

    def _is_inside_quotes(self, at: int) -> bool:
        """Return whether a string ends directly before the word at `at`, and another follows: `"Say "hi" to Ann"`."""
        if self.kind(at) not in (WORD, NUMBER) or not self.texts[at - 1].endswith('"'):
            return False
        if self.tokens.end(at - 1) != self.starts[at]:
            return False
        while not self.is_end(at) and self.kind(at) != STRING:
            at += 1
        return self.kind(at) == STRING

    def report_at(self, at: int, message: str, hint: str | None = None) -> None:
        """Report a syntax error (V001) at the token at `at`, after which reading continues."""
        self.report("V001", *self.span(at), message, hint)

    def trouble(self, at: int, message: str, hint: str | None = None, code: str = "V001") -> Trouble:
        """Report that the statement is unreadable from the token at `at` on; an unclosed bracket may be the cause."""
        bracket = self._open_bracket()
        if bracket is not None and (line := self._next_statement(at)):
            return self._never_closed(bracket, line)
        if at > self.quiet_until:
            self.report(code, *self.span(at), message, hint)
        return Trouble(at)

    def bracket_limit(self) -> int:
        """Return how many brackets may be open in a statement here; any number in a block reported as too deep."""
        return 10**9 if self.is_deep else NESTING_LIMIT + 1 - len(self.blocks)

    def too_deep(self, at: int) -> Trouble:
        """Report the token at `at`, which opens a bracket or a block one level too deep."""
        hint = f"at most {NESTING_LIMIT} levels; bind a part of it, or write a function"
        self.report_at(at, "nested too deeply", hint)
        return Trouble(at)

    def is_foreign(self, at: int) -> bool:
        """Return whether the token at `at` cannot be part of any program."""
        text = self.texts[at]
        kind = KINDS.get(text[0])
        return at != self.tokens.last and (kind is None or (kind == SIGN and text not in _ANY_SIGN))

    def _open_bracket(self) -> Bracket | None:
        """Return the innermost open bracket of the expression."""
        return next((entry[1] for entry in reversed(self.stack) if not entry[0]), None)

    def _next_statement(self, at: int) -> int:
        """Return the index of the line end before a new statement that contains the token at `at`, though a bracket is
        open; 0 if there is none. A line that isn't deeper than the current statement begins a new one."""
        texts, starts = self.texts, self.starts
        if at == self.tokens.last:
            return at
        line = at
        while texts[line][:1] not in ("\n", "#") and line > self.first:
            line -= 1
        if line <= self.first or texts[line + 1] in _CLOSING:
            return 0
        column = starts[line + 1] - starts[line] - len(texts[line])
        return line if column <= self.column else 0

    def _never_closed(self, bracket: Bracket, line: int) -> Trouble:
        opening = self.starts[bracket.at]
        text = self.texts[bracket.at]
        if line == self.tokens.last:
            self.unclosed = self.unclosed or "bracket"
        if bracket.at > self.quiet_until:
            hint = f"write `{bracket.closer}` after the last item"
            self.report("V001", opening, opening + 1, f"`{text}` is never closed", hint)
        return Trouble(line, ends=True)

    # ---- operands

    def missing_value(self, at: int) -> tuple[Any, int, int]:
        """Return an empty value in place of one that is missing before the token at `at`."""
        start = self.span(at)[0]
        self.at = at
        return tree.Unit.at(start, start), start, start

    def bad_operand(self, at: int) -> tuple[Any, int, int]:
        """Report the token at `at`, which does not begin a value; return a substitute, its start and its end."""
        text = self.texts[at]
        kind = KINDS.get(text[0])
        start, end = self.span(at)
        self.at = at + 1
        if kind == WORD:
            return self._reserved(at, text)
        if text in ("-", "+"):
            following = self.texts[at + 1]
            hint = f"write `0 - {printable(following)}`" if self.kind(at + 1) in (WORD, NUMBER) else "write `0 - …`"
            message = "there is no unary minus" if text == "-" else "there is no unary plus"
            if self.is_end(at + 1):
                raise self.unexpected(at + 1, f"a value after `{text}`")
            if self.texts[at - 1] not in ("-", "+"):
                self.report("V001", start, end, message, hint if text == "-" else "leave it out")
            return SKIP, start, end
        if text in ("!", "~") and not self.is_end(at + 1):
            self.report("V001", start, end, *word_hints.sign(text))
            return SKIP, start, end
        if text[0] == "'":
            return self._single_quoted(at, text)
        if kind == TEMPLATE:
            return self._loose_template(at)
        if text == "." and self.kind(at + 1) == NUMBER and self.starts[at + 1] == end:
            digits = printable(self.texts[at + 1])
            self.report("V001", start, end, "a number begins with a digit", f"write `0.{digits}`")
            self.at = at + 2
            return tree.Number.at(start, start, 0), start, self.tokens.end(at + 1)
        return self._missing_operand(at, text)

    def _missing_operand(self, at: int, text: str) -> tuple[Any, int, int]:
        """Report a missing value, with nothing similar in its place."""
        before = self.texts[at - 1] if at else ""
        bracket = self._open_bracket()
        if bracket is not None and (text == bracket.closer or (text == "," and bracket.tag not in (GROUP, INDEX))):
            hint = "write one comma between two items" if text == "," else None
            if at > self.quiet_until:
                self.report_at(at, f"expected a value, found `{text}`", hint)
            return self.missing_value(at)
        if text in _CLOSING:
            raise self.closes_nothing(at)
        hint = None
        if text in ("*", "**") and bracket is not None and before in ("(", "[", ","):
            joined = "join lists with `+`: `[a] + items`"
            hint = joined if bracket.tag == LIST else "write the arguments out, one by one"
            raise self.trouble(at, f"there is no `{text}` before a value", hint)
        if text == "**":
            raise self.trouble(at, "there is no `**`", "a question is written ``?`criterion`(value)``")
        if text == "=" and before in ("=", "=="):
            hint = "write `==` to compare, `=` to assign"
        after = f" after `{printable(before)}`" if self.is_end(at) and before and before[0] not in '"`\n#' else ""
        if after and before == "=":
            hint = "write `()` for nothing"
        raise self.unexpected(at, f"a value{after}", hint)

    def closes_nothing(self, at: int) -> Trouble:
        text = self.texts[at]
        bracket = self._open_bracket()
        if bracket is None:
            hint = f"a `{_OPENING[text]}` is missing before it, or leave it out"
            return self.trouble(at, f"`{text}` closes nothing", hint)
        return self.trouble(at, f"`{text}` does not close `{self.texts[bracket.at]}`", f"write `{bracket.closer}`")

    def _reserved(self, at: int, word: str) -> tuple[Any, int, int]:
        """Report a reserved word where a value is expected."""
        start, end = self.span(at)
        follows = self.texts[at + 1]
        if word == "not":
            raise self.trouble(at, "`not` cannot follow this operator", "put it into parentheses: `(not …)`")
        hint: str | None
        if word == "error":
            hint = 'an error value is an object: `{error: {kind: "…", message: "…"}}`'
        elif (word in ("def", "if", "for", "while", "match", "try", "with") and follows not in _AFTER_OPERAND) or (
            word in ("return", "raise") and not self.is_end(at + 1) and follows not in _AFTER_OPERAND
        ):
            own = word_hints.rest(word) if word in ("if", "for") else None
            hint = own or "a statement is not a value: write it on lines of its own"
        elif word == "input" and follows == "(":
            hint = 'only OpenProse asks for inputs: `input name: "…"` in a notebook cell that begins with `%%prose`'
        else:
            hint = f"a name of your own must be another word, such as `{word}_`"
        message = f"`{word}` is a reserved word, not a value"
        is_followed = not self.is_end(at + 1) and follows not in _AFTER_OPERAND
        if is_followed or (self.stack and self._next_statement(at)):
            raise self.trouble(at, message, hint, "V010")
        self.report("V010", start, end, message, hint)
        return tree.Unit.at(start, end), start, end

    def _single_quoted(self, at: int, text: str) -> tuple[Any, int, int]:
        start, end = self.span(at)
        if len(text) < 2 or text[-1] != "'":
            raise self.trouble(at, "strings are written in double quotes", 'write `"…"`')
        content = text[1:-1]
        is_plain = len(content) <= 40 and '"' not in content
        hint = f'write `"{printable(content)}"`' if is_plain else 'write double quotes: `"…"`'
        self.report("V001", start, end, "strings are written in double quotes", hint)
        return tree.String.at(start, end, content), start, end

    def _loose_template(self, at: int) -> tuple[Any, int, int]:
        if at in self.tokens.unclosed:
            raise self.unterminated(at, "V004")
        before = self.texts[at - 1] if at else ""
        if before == "by":
            message, hint = "a criterion begins with `?`", "write `?` before the backtick"
        else:
            message = "a template is not a value"
            hint = "write text in double quotes; a template belongs after `@name` or `?`"
        if self.texts[at + 1] == "(" or not (self.is_end(at + 1) or self.texts[at + 1] in _AFTER_OPERAND):
            raise self.trouble(at, message, hint)
        start, end = self.span(at)
        self.report("V001", start, end, message, hint)
        return tree.Unit.at(start, end), start, end

    # ---- tokens after a value

    def after_value(self, at: int, expected: str) -> Trouble:
        """Report the token at `at`, which follows a complete value instead of `expected`."""
        text = self.texts[at]
        before = self.texts[at - 1]
        kind = KINDS.get(text[0])
        hint: str | None = None
        if text in _CLOSING:
            return self.closes_nothing(at)
        own = word_hints.word(before) if before not in RESERVED and self.texts[at - 2] != "." else None
        if own is not None and (kind in (WORD, STRING, NUMBER, TEMPLATE) or text in ("{", ":", "@")):
            return self.trouble(at - 1, f"`{before}` does not begin a value", own)
        if near := self._misspelt(at - 1, text):
            return self.trouble(at - 1, f"there is no statement `{before}`", did_you_mean(near))
        if near := self._misspelt_value(at - 1, text):
            return self.trouble(at - 1, f"`{before}` does not begin a value", did_you_mean(near))
        if kind == WORD:
            if text == "is":
                return self.trouble(at, "there is no `is`", word_hints.word("is"))
            if self.texts[at - 2] == "@":
                return self.trouble(at, "the task of an agent is written in backticks", self._task(at))
            hint = word_hints.rest(text)
        elif (kind == STRING or text[0] == "'") and KINDS.get(before[0]) == WORD:
            if before in word_hints.PREFIXES and self.starts[at] == self.tokens.end(at - 1):
                return self.trouble(at, f"a string has no prefix `{before}`", "values go into a template: `{name}`")
            if self.texts[at - 2] == "@":
                return self.trouble(at, "the task of an agent is written in backticks", self._task(at))
        elif kind == STRING and KINDS.get(before[0]) == STRING:
            hint = "write `+` between two strings"
        elif kind == TEMPLATE:
            if KINDS.get(before[0]) == WORD and self.texts[at - 2] not in (".", "@"):
                hint = f"write `@{before}` to call an agent"
                return self.trouble(at, "a template belongs after an agent or `?`", hint)
            hint = "a template belongs after `@name` or `?`; give the agent a name first"
        elif text == "?" and self.kind(at + 1) == TEMPLATE and (self.texts[at + 2] != ":" or self.is_end(at + 3)):
            hint = "write the value after the criterion: ``?`criterion`(value)``"
        elif text == "?":
            hint = "there is no `a ? b : c`; write an `if` statement that assigns in both branches"
        return self.unexpected(at, expected, hint)

    def _misspelt(self, at: int, follows: str) -> str | None:
        """Return the keyword that the misspelt first word of a statement resembles; `follows` is the next token."""
        word = self.texts[at]
        if at != self.first or KINDS.get(word[0]) != WORD or word in RESERVED:
            return None
        return self.near(word, word_hints.WITH_COLON if follows == ":" else word_hints.STATEMENTS)

    def _misspelt_value(self, at: int, follows: str) -> str | None:
        """Return the keyword that a name resembles if another value follows it, as in `x = retrun 1`."""
        word, before = self.texts[at], self.texts[at - 1]
        if at == self.first or KINDS.get(word[0]) != WORD or word in RESERVED or before in (".", "@"):
            return None
        if KINDS.get(follows[0]) not in (WORD, STRING, NUMBER) or (follows in RESERVED and follows != "error"):
            return None
        return self.near(word, (*word_hints.STATEMENTS, "not"))

    def _task(self, at: int) -> str:
        """Return the hint with the call that `@writer Write a poem`, or a task in quotes, is meant to be."""
        end = at + 1
        while not (self.texts[at][0] in "\"'" or self.texts[end] == "(" or self.is_end(end)):
            end += 1
        words = self.findings.source.text[self.starts[at] : self.tokens.end(end - 1)].strip("\"'")
        task = "…" if len(words) > 40 or not _SENTENCE.fullmatch(words) else words
        return f"write ``@{self.texts[at - 1]} `{task}`{self._input(end)}``"

    def _input(self, at: int) -> str:
        """Return the input of a call as written, `(1)`; `()` if none begins at `at`."""
        if self.texts[at] != "(":
            return "()"
        depth = 0
        for end in range(at, len(self.texts)):
            depth += {"(": 1, ")": -1}.get(self.texts[end], 0)
            if depth == 0:
                written = self.findings.source.text[self.starts[at] : self.tokens.end(end)]
                return written if len(written) <= 40 and "\n" not in written and "`" not in written else "(…)"
        return "(…)"

    def in_bracket(self, at: int, bracket: Bracket) -> Trouble:
        """Report that the token at `at` neither continues the content of a bracket nor closes it."""
        text = self.texts[at]
        closer = bracket.closer
        if text == "," and bracket.tag == GROUP:
            return self.trouble(at, "there are no tuples", "write a list: `[a, b]`")
        if text == "=" and bracket.tag in (GROUP, LIST, INDEX):
            return self.unexpected(at, f"`{closer}`", "write `==` to compare")
        if text == "=" and bracket.tag in WITH_KEYWORDS:
            return self.unexpected(at, f"`,` or `{closer}`", "a keyword is one name: `name=value`")
        if text == ":" and bracket.tag in WITH_KEYWORDS:
            return self.unexpected(at, f"`,` or `{closer}`", "write `name=value`, with `=`")
        if text == ":" and bracket.tag == INDEX:
            return self.unexpected(at, "`]`", "there are no slices")
        return self.after_value(at, f"`{closer}`" if bracket.tag in (GROUP, INDEX) else f"`,` or `{closer}`")

    def bad_member(self, at: int) -> Trouble:
        """Report that no name follows a `.`."""
        if self.kind(at - 2) == NUMBER:
            return self.unexpected(at, "digits or a name after `.`", f"write `{self.texts[at - 2]}.0`")
        if self.kind(at) == NUMBER:
            return self.unexpected(at, "a name after `.`", f"write `[{self.texts[at]}]` for an element of a list")
        return self.unexpected(at, "a name after `.`")

    # ---- items of brackets

    def colon_for_equals(self, at: int) -> None:
        """Report `name: value` in place of `name=value`; the `:` is at `at`."""
        self.report_at(at, "expected `=`, found `:`", f"write `{self.texts[at - 1]}=…`")

    def check_positional(self, bracket: Bracket, at: int) -> None:
        """Check an argument without a name, which begins at `at`."""
        if bracket.tag in ONLY_KEYWORDS:
            hint = "write one comma between two items" if self.texts[at] == "," else None
            raise self.unexpected(at, f"`name=value` or `{bracket.closer}`", hint)
        if self.texts[at] in _CLOSING or self.texts[at] == "," or self.is_end(at):
            return
        if bracket.keywords:
            message = "a value without a name follows one with a name"
            self.report_at(at, message, "write the values without names first")
        elif bracket.tag == AGENT_CALL and len(bracket.values) == 1:
            self.report_at(at, "an agent takes one input", "pass a list, or an object: `pack(a, b)`")

    def bad_key(self, bracket: Bracket, at: int) -> str:
        """Report the token at `at`, which cannot be the key of an object; return a key in its place."""
        text = self.texts[at]
        if text[0] == "'" and len(text) > 1 and text[-1] == "'":
            self.report_at(at, "strings are written in double quotes", f'write `"{printable(text[1:-1])}"`')
            return text[1:-1]
        if self.kind(at) == NUMBER:
            if self.texts[at + 1] in (",", "}"):
                raise self.unexpected(at + 1, "`:`", _OBJECT) if bracket.values else self.set_literal(at)
            self.report_at(at, "a key is a name or a string", f'write `"{printable(text)}"`')
            return text
        if text == "**":
            raise self.trouble(at, "there is no `**` before a value", "write the fields out: `{key: value}`")
        if text == ",":
            raise self.unexpected(at, "a key", "write one comma between two items")
        raise self.unexpected(at, "a key", _OBJECT)

    def missing_colon(self, bracket: Bracket, at: int) -> int:
        """Report that no `:` follows the key of an object; return the index where its value is read."""
        text = self.texts[at]
        if text in (",", "}") and self.kind(at - 1) == STRING and not bracket.values:
            raise self.set_literal(at - 1)
        key = bracket.key[0] if bracket.key else ""
        if text == "=":
            self.report_at(at, "expected `:`, found `=`", "write `key: value` in an object")
            return at + 1
        if text in (",", "}"):
            hint = f"write `{key}: {key}`" if key.isidentifier() else _OBJECT
            self.report_at(at, f"expected `:`, found `{text}`", hint)
            self.quiet_until = at
            return at
        raise self.unexpected(at, "`:`", _OBJECT)

    def set_literal(self, at: int) -> Trouble:
        """Report the number or string at `at`: it is the first key of an object, and has no value."""
        return self.trouble(at, "there are no sets", "write a list: `[a, b]`; an object is written `{key: value}`")

    def missing_parentheses(self, end: int, following: int) -> None:
        """Report a task without `(`. A value at `following` was meant as its input, and is not reported again."""
        if self.kind(following) in (WORD, STRING, NUMBER, TEMPLATE) and self.texts[following] not in RESERVED:
            self.quiet_until = following
        hint = "write `()` after the task, or `(input)`"
        self.report("V001", end, end, "the call of an agent needs parentheses", hint)

    # ---- strings, numbers, templates

    def bad_number(self, at: int) -> int:
        """Report the number at `at`, which cannot be read; return 0."""
        text = self.texts[at]
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")
        plain = text.replace("_", "")
        shown = printable(text)
        message = f"`{shown}` is not a number"
        hint: str | None
        if text.replace(".", "", 1).isdigit():
            message, hint = "this number is too large to be read", None
        elif plain.replace(".", "", 1).isdigit():
            hint = f"write `{printable(plain)}`"
        elif text[-1] in "smh" and not digits.strip("0123456789."):
            hint = f'a duration is a string: `"{shown}"`'
        elif text[:2] in ("0x", "0X", "0b", "0o"):
            hint = "write it with decimal digits"
        elif plain.lower().replace("e", "", 1).replace(".", "", 1).isdigit():
            hint = "write it out, without an exponent"
        else:
            message = f"`{shown}` is neither a number nor a name"
            hint = "a number is made of digits, with at most one point among them"
        self.report_at(at, message, hint)
        return 0

    def unterminated(self, at: int, code: str) -> Trouble:
        """Report the string or template at `at`, which has no end."""
        start = self.starts[at]
        if code == "V004":
            literal, hint = "template", "close it with a backtick; ``\\` `` is a backtick as text"
        elif self.texts[at].startswith('"""'):
            literal, hint = "string", 'close it with `"""`'
        else:
            literal, hint = "string", 'close it with `"` on this line; text of several lines belongs in `"""`'
        if at == self.tokens.last - 1:
            self.unclosed = literal
        self.report(code, start, self.tokens.end(at), f"this {literal} is never closed", hint)
        return Trouble(at + 1)

    def bad_escape(self, at: int, escape: BadEscape) -> None:
        start = self.starts[at]
        text = self.texts[at][escape.start : escape.end]
        hint = 'write `\\\\` for a backslash; escapes are `\\\\ \\" \\/ \\n \\t \\b \\f \\r \\uXXXX`'
        if text.startswith("\\u"):
            hint = "write four hexadecimal digits after `\\u`; two of them for a character beyond `\\uFFFF`"
        self.report("V005", start + escape.start, start + escape.end, f"unknown escape `{printable(text)}`", hint)
