"""Splits a text into tokens (openprose.md 1).

One regular expression finds the tokens; methods handle indentation, joined lines, and the ends of strings and markers.
Tokens come in chunks of whole logical lines, so that a long text never has all its tokens in memory. Errors are
reported during the scan, which continues after each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from prose_kernel.language.diagnostics import PROSESCRIPT_PROFILES, Profile
from prose_kernel.language.openprose.bare_conditions import BareCondition, ReadExpression, read, variable_in
from prose_kernel.language.openprose.diagnostic_collector import Findings
from prose_kernel.language.openprose.keywords import (
    CONSTANTS,
    KEYWORDS,
    NAME,
    NEVER_BEFORE,
    ONLY_BEFORE,
    SCRIPT_BEFORE,
    SCRIPT_KINDS,
    SCRIPT_WORDS,
    is_keyword,
)
from prose_kernel.language.openprose.strings import BadEscape, Quotes, marker_text, string_text
from prose_kernel.language.openprose.tree import Constant, Discretion, Duration, Name, Number, Text
from prose_kernel.language.python_literals import read_number
from prose_kernel.language.source import Source

RawToken = tuple[str, int, int, Any]
"""A kind (a terminal of grammar.lark, `ILLEGAL` or `BROKEN`), start, end, and a value: a node, or the word or sign."""

NESTING_LIMIT: Final = 100
"""How many levels indentation and brackets may have together; more are E005."""
LINE_LIMIT: Final = 200_000
"""How many tokens a logical line may have; more are E005."""
MIN_CHUNK: Final = 2_000
"""The number of tokens from which a chunk ends at the next top-level line."""
MAX_CHUNK: Final = 500_000
"""The number of tokens from which a chunk ends at any line."""
MAX_BAD_ESCAPES: Final = 100
"""How many unknown escapes are reported for one string."""

_TOKEN: Final = re.compile(
    rf"""[ \t]*+(?:
      ((?:\#[^\n]*+)?\n (?>(?:[ \t]*+(?:\#[^\n]*+)?\n)*)) [ \t]*+    # 1 a line's end, up to the next line with code
    | ({NAME})                                                    # 2 a word
    | "([^"\\\n]++)"                                              # 3 a string without escapes
    | (==|!=|<=|>=|->|[][:=.,(){{}}|+<>-])                        # 4 a sign
    | ([0-9]++(?:\.[0-9]++)?                                     # 5 a number or duration
         (?:(?:ms|[smhd])(?>(?:[0-9]++(?:ms|[smhd]))*)(?![A-Za-z0-9_]))?)
    | (\*\*\*?)                                                   # 6 a discretion marker
    | (\"\"\")                                                    # 7 a triple-quoted string
    | (")                                                         # 8 any other string
    | ([^\s"]|[^\n\t ])                                           # 9 an illegal character
    )""",
    re.VERBOSE,
)
_FIRST: Final = re.compile(r"(?>(?:[ \t]*+(?:#[^\n]*+)?\n)*)[ \t]*+")
_ILLEGAL: Final = re.compile(r"[^\sA-Za-z0-9_\"#:=.,(){}|+<>*\[\]-]++")
SIGNS: Final = {
    "==": "COMPARISON", "!=": "COMPARISON", "<": "COMPARISON", "<=": "COMPARISON", ">": "COMPARISON",
    ">=": "COMPARISON", "->": "ARROW", ":": "COLON", "=": "EQUALS", ".": "DOT", ",": "COMMA", "(": "LPAR",
    ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE", "|": "PIPE", "+": "PLUS", "-": "MINUS",
}  # fmt: skip
_OPENERS: Final = {"RPAR": "LPAR", "RSQB": "LSQB", "RBRACE": "LBRACE"}
LAYOUT: Final = frozenset({"_NL", "_INDENT", "_DEDENT"})
_NO_CONTINUATION: Final = frozenset(
    {"NAME", "STRING", "DISCRETION", "NUMBER", *KEYWORDS.values()} - {"IS", "AND", "OR"}
)
_CLOSED: Final = frozenset(_OPENERS.values())
_BEFORE_OPERAND: Final = frozenset({"AND", "OR", "NOT", "IS", "COMPARISON", "PLUS", "MINUS"})
_MODIFIERS: Final = frozenset({"on-fail", "on_fail", "count", "all", "first", "any"})
_BRACKETS: Final = frozenset({"LPAR", "RPAR", "LSQB", "RSQB", "LBRACE", "RBRACE"})
_WORDS: Final = {**KEYWORDS, **dict.fromkeys(CONSTANTS, "CONSTANT")}
_SCRIPT_WORDS: Final = {**_WORDS, **SCRIPT_WORDS}
_ARM_WORD: Final = re.compile(r"(?:elif|else|catch|finally)\b")
_PROPERTY_BELOW: Final = re.compile(rf"\n[ \t]*+{NAME}[ \t]*:")
_NO_NL_AFTER: Final = frozenset({"ARROW", "_NL"})  # after these tokens, a line's end produces no NL, or only later
_BLOCKS: Final = frozenset({"permissions", "context"})  # properties that may open a block
_LISTS: Final = frozenset({"skills", "tools", "read", "write", "execute", "bash"})  # may be lists of `- element` lines
_SCRIPT_BLOCKS: Final = _BLOCKS | {"shape"}
_SCRIPT_LISTS: Final = _LISTS | {"self", "delegates", "prohibited"}
_KINDS: Final = frozenset(KEYWORDS.values())
_WORD_KINDS: Final = _KINDS | SCRIPT_KINDS
_ENTRY_ENDS: Final = frozenset({"NAME", "STRING", "NUMBER", "DURATION", "CONSTANT", "DISCRETION", *_OPENERS})
_ENTRY: Final = re.compile(rf'(?:{NAME}|"[^"\\\n]*")[ \t]*:|{NAME}(?:\.{NAME}|\[[^]\n]*\])*[ \t]*(?:[,}}\n]|#)')
"""Matches the beginning of an object entry on a line of its own."""
_KEYWORD_BEFORE: Final = {
    **ONLY_BEFORE,
    **{kind: frozenset({"NAME", "STRING", "DISCRETION", "COLON"}) - never for kind, never in NEVER_BEFORE.items()},
    "LOOP": frozenset(),
}
"""For each keyword, next tokens after which it certainly is one; a fast path for `is_keyword`."""
_LOOKS_LIKE_OPENER: Final = re.compile(r"(?<=\s)\*\*[A-Za-z0-9{'(]")
_SHELL_ESCAPES: Final = "01234567abeEfrvxuUc"
"""Letters and digits that form an escape for `printf`, `echo -e` or `$'...'`; a backslash quotes other characters."""
_UNPRINTABLE: Final = re.compile("[\x00\ud800-\udfff]")
_STATEMENT: Final = re.compile(
    r'(?:session|exec|use|option|throw)[ \t]+"|(?:let|const|agent|block|gate|for|input|output)[ \t]+[A-Za-z_{]'
    r"|(?:session|resume|try|do|parallel|finally|else|catch)[ \t]*:|(?:if|elif|choice|loop|until)[ \t]+\*\*"
    r"|(?:if|elif|else[ \t]+if|while|loop|repeat)\b[^\n]*:[ \t]*\n"
)


class Token(NamedTuple):
    """A token as returned by `tokenize`. `word` is true for names and keywords."""

    kind: str
    start: int
    end: int
    word: bool


class Lexer:
    """Splits `text` into tokens and reports errors to `findings`. At the end, `unclosed` names a construct that is
    still open."""

    def __init__(
        self, text: str, profile: Profile, findings: Findings, expression: ReadExpression | None = None
    ) -> None:
        self.text = text if text.endswith("\n") else text + "\n"
        self.strict = profile == "strict"
        self.is_script = profile in PROSESCRIPT_PROFILES
        self.words_of = _SCRIPT_WORDS if self.is_script else _WORDS
        self.profile = profile
        self.expression = expression
        self.findings = findings
        self.ambiguous: dict[int, BareCondition] = {}
        """The ambiguous conditions by the offsets of their keywords: expressions only if each name is a variable."""
        self.unclosed: str | None = None
        self.quotes = Quotes(self.text)
        self.tokens: list[RawToken] = []
        self.words: list[int] = []  # the indexes of tokens that may be keywords
        self.indents = [0]
        self.brackets: list[tuple[str, int]] = []
        self.column = 0  # the column of the current logical line
        self.line_start = 0  # the index of its first token
        self.line_end = 0  # the offset at which the physical line of the last marker ends
        self.has_tabs = "\t" in text
        self.tab_width = 0
        # Only then can a line have more tokens than LINE_LIMIT.
        self.has_long_line = len(text) > LINE_LIMIT and any(len(line) > LINE_LIMIT for line in text.splitlines())

    # ---- the loop

    def chunks(self) -> Iterator[list[RawToken]]:
        """Yield lists of tokens; each holds whole logical lines with the layout tokens that follow them."""
        position = self._first_line()
        while position is not None:
            position = self._scan(position)
            if position is None or self._is_full():
                self._resolve_words()
                yield self.tokens
                self.tokens = []
                self.words = []
                self.line_start = 0
        if _UNPRINTABLE.search(self.text):
            self._report_unprintable()

    def _is_full(self) -> bool:
        """Return whether the chunk ends here: at the start of a top-level line, or of any line if it is too large."""
        size = len(self.tokens)
        return size >= MIN_CHUNK and self.line_start == size and (len(self.indents) == 1 or size >= MAX_CHUNK)

    def _scan(self, position: int) -> int | None:
        """Read tokens from `position` until a method skips text or the chunk is full; return the next position, None at
        the end."""
        tokens, words, text, indents = self.tokens, self.words, self.text, self.indents
        append, keyword, signs, brackets = tokens.append, self.words_of.get, SIGNS, self.brackets
        name_of: Any = Name  # what `Name.at` and `Text.at` call; saves one call per node
        text_of: Any = Text
        number_of: Any = Number
        size = len(text)
        moved: int | None
        matches = _TOKEN.finditer(text, position)
        for match in self._limited(matches) if self.has_long_line else matches:
            group = match.lastindex
            if group == 2:
                word = match[2]
                end = match.end()
                start = end - len(word)
                kind = keyword(word)
                if kind is None:
                    append(("NAME", start, end, name_of(word, span=(start, end))))
                else:
                    words.append(len(tokens))
                    append((kind, start, end, word))
            elif group == 1:
                after = match.end()
                if (
                    after < size
                    and not brackets
                    and not self.has_tabs
                    and text[after] not in "|-"
                    and tokens[-1][0] not in _NO_NL_AFTER
                ):
                    end = tokens[-1][2]
                    append(("_NL", end, end, None))
                    column = after - match.end(1)
                    if column == indents[-1]:
                        self.line_start = len(tokens)
                        self.column = column
                        moved = self._header(after) if self.is_script else after
                    else:
                        moved = self._open_line(after, column, False)
                else:
                    moved = self._line_end(after)
                if moved != after or (len(tokens) >= MIN_CHUNK and self._is_full()):
                    return moved
            elif group == 3:
                content = match[3]
                end = match.end()
                start = end - len(content) - 2
                if "{" in content:
                    value = string_text(content, start + 1, start, end, triple=False, bad=[])
                else:
                    value = text_of((content,), span=(start, end))
                append(("STRING", start, end, value))
            elif group == 4:
                sign = match[4]
                end = match.end()
                start = end - len(sign)
                kind = signs[sign]
                append((kind, start, end, sign))
                if kind in _BRACKETS:
                    if brackets and brackets[-1][0] == _OPENERS.get(kind):
                        brackets.pop()
                    elif not self._bracket(kind, start):
                        self._end_broken_line()
                        return self._skip_deeper(start, self.column)
            elif group == 5 and (number := match[5]).isdigit() and len(number) <= 40:
                end = match.end()
                start = end - len(number)
                append(("NUMBER", start, end, number_of(int(number), span=(start, end))))
            else:
                moved = self._special(group, match)
                if moved != match.end():
                    return moved
        return None

    def _special(self, group: int | None, match: re.Match[str]) -> int | None:
        if group == 5:
            self._number(match[5], *match.span(5))
        elif group == 6:
            return self._marker(match.start(6), match[6])
        elif group == 7:
            return self._triple(match.start(7))
        elif group == 8:
            return self._string(match.start(8))
        else:
            return self._illegal(match.end() - 1)
        return match.end()

    def _limited(self, matches: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
        """Yield the matches, but skip the rest of a physical line if its logical line has too many tokens (E005)."""
        for match in matches:
            if len(self.tokens) - self.line_start > LINE_LIMIT and match.lastindex != 1:
                start = match.start(match.lastindex or 0)
                self.findings.add("E005", start, start, "this statement is too long to read", "split it up")
                self._end_broken_line()
                for rest in matches:  # up to the end of the physical line
                    if rest.lastindex == 1:
                        yield rest
                        break
            else:
                yield match

    # ---- lines and indentation

    def _first_line(self) -> int | None:
        match = _FIRST.match(self.text)
        at = match.end() if match else 0
        return self._open_line(at, *self._column(at)) if at < len(self.text) else None

    def _line_end(self, after: int) -> int | None:
        """Handle a line's end and the indentation of the next line, whose code begins at `after`; return the next
        position."""
        if after == len(self.text):
            self._end()
            return None
        column, tabbed = self._column(after)
        if self.brackets and not self._gives_up_bracket(after, column):
            if self.is_script:
                self._add_missing_comma(after)
            return after
        last = self.tokens[-1]
        if last[0] == "ARROW" and column >= self.indents[-1]:
            self._strict_arrow(last[1])
            return after
        if self.text[after] == "|" or self.text.startswith("->", after):
            self._continue_line(after, column)
            return after
        if last[0] != "_NL":
            self.tokens.append(("_NL", last[2], last[2], None))
        return self._open_line(after, column, tabbed)

    def _column(self, at: int) -> tuple[int, bool]:
        """Return the width of the indentation before `at`, and whether it contains tabs."""
        line = self.text.rfind("\n", 0, at) + 1
        if not (self.has_tabs and "\t" in self.text[line:at]):
            return at - line, False
        if not self.tab_width:
            first = re.search(r"^( ++)[^\s#]", self.text, re.MULTILINE)
            self.tab_width = len(first[1]) if first else 2
        return len(self.text[line:at].expandtabs(self.tab_width)), True

    def _continue_line(self, after: int, column: int) -> None:
        """Join a line that begins with `|` or `->` to the statement above, after closing deeper blocks (1.2)."""
        if column < self.indents[-1]:
            end = self.tokens[-1][2]
            self.tokens.append(("_NL", end, end, None))
            self._dedent(column, end)
        if self.text[after] == "-":
            self._strict_arrow(after)

    def _strict_arrow(self, at: int) -> None:
        if self.strict:
            self.findings.add("E004", at, at + 2, "`->` must be between two sessions on one line")

    def _open_line(self, at: int, column: int, tabbed: bool) -> int:
        """Emit INDENT or DEDENT for a line whose first token is at `at`; return the next position."""
        top = self.indents[-1]
        self.column = column
        if tabbed:
            tab = self.text.index("\t", self.text.rfind("\n", 0, at) + 1)
            self.findings.add("E101", tab, tab + 1, "tab in indentation", "indent with spaces (two for each level)")
        if column > top:
            if len(self.indents) > NESTING_LIMIT:
                self.findings.add("E005", at, at, "nested too deeply", f"at most {NESTING_LIMIT} levels; use a block")
                return self._skip_deeper(at, top)
            if self._is_unknown_property(is_list=self.text.startswith("- ", at)):
                mark = self.tokens.pop()
                self.tokens += [("HOLE", at, at, Constant.at(at, at, None)), mark]
                return self._skip_deeper(at, top)
            self.indents.append(column)
            end = self.tokens[-1][2] if self.tokens else 0
            self.tokens.append(("_INDENT", end, end, None))
        elif column < top:
            self._dedent(column, self.tokens[-1][2])
            if self.indents[-1] != column:
                self._bad_dedent(at, column, tabbed)
        self.line_start = len(self.tokens)
        return self._header(at) if self.is_script else at

    def _header(self, at: int) -> int:
        """Turn a bare condition on the line of ProseScript at `at` into a marker, if it is words; return the next
        position."""
        found = read(self.text, at, self.expression)
        if found is None:
            return at
        if found.reading == "names":
            self.ambiguous[found.keyword] = found
            return at
        for match in _TOKEN.finditer(self.text, at, found.start):
            word, sign = match[2], match[4]
            start = match.end() - len(word or sign)
            if word in self.words_of:
                self.words.append(len(self.tokens))
                self.tokens.append((self.words_of[word], start, match.end(), word))
            else:
                value = Name.at(start, match.end(), word) if word else sign
                self.tokens.append(("NAME" if word else SIGNS[sign], start, match.end(), value))
        if found.reading == "string":
            hint = f"drop the quotes: `{self.text[found.start + 1 : found.end - 1]}`"
            self.findings.add("E004", found.start, found.end, "a condition cannot be a string", hint, readable=True)
            return self._append_marker(found.start, found.start + 1, found.end - 1, found.end)
        if found.colon >= 0:
            hint = f"write `**{self.text[found.start : found.end]}**`"
            self.findings.add("E312", found.colon, found.colon + 1, "a colon inside a condition in words", hint)
        elif found.takes_variable:
            at = found.start + variable_in(self.text[found.start : found.end])
            self.findings.add("W317", at, found.end, "`as` belongs to the words here",
                              "give the loop a maximum before it: `(max: 10) as name`")  # fmt: skip
        self._append_marker(found.start, found.start, found.end, found.end)
        return found.end

    def _dedent(self, column: int, end: int) -> None:
        while self.indents[-1] > column:
            self.indents.pop()
            self.tokens.append(("_DEDENT", end, end, None))

    def _bad_dedent(self, at: int, column: int, tabbed: bool) -> None:
        """Report an indentation that matches no open block (E102). An `else` or similar then closes blocks, another
        line stays in the innermost one."""
        if not tabbed:
            hint = "align the line with the block that it belongs to"
            self.findings.add("E102", at, at, "indentation does not match any open block", hint)
        if not tabbed and not _ARM_WORD.match(self.text, at):
            self.indents.append(column)
            self.tokens.pop()

    def _is_unknown_property(self, *, is_list: bool) -> bool:
        """Return whether the line is a property that can't open a block. `is_list`: the line below begins with `- `."""
        line = self.tokens[self.line_start :]
        blocks, lists = (_SCRIPT_BLOCKS, _SCRIPT_LISTS) if self.is_script else (_BLOCKS, _LISTS)
        known = blocks | lists if is_list else blocks
        return [token[0] for token in line] == ["NAME", "COLON", "_NL"] and line[0][3].id not in known

    def _skip_deeper(self, at: int, column: int) -> int:
        """Return the position of the line end before the next line that isn't indented deeper than `column`."""
        found = re.compile(rf"\n {{0,{column}}}(?=[^\s#])").search(self.text, at)
        return found.start() if found else len(self.text) - 1

    def _report_unprintable(self) -> None:
        """Report E106 for null characters and surrogates, once per line."""
        reported = {found.line for found in self.findings.found if found.code == "E106"}
        match = _UNPRINTABLE.search(self.text)
        while match is not None:
            if self.findings.source.line_column(match.start())[0] not in reported:
                shown = f"illegal character U+{ord(match[0]):04X}"
                self.findings.add("E106", match.start(), match.end(), shown, "remove it")
            match = _UNPRINTABLE.search(self.text, self.text.index("\n", match.start()))

    def _end(self) -> None:
        if self.brackets:
            self._report_bracket()
            self.unclosed = "bracket"
        end = self.tokens[-1][2]
        if self.tokens[-1][0] != "_NL":
            self.tokens.append(("_NL", end, end, None))
        self._dedent(0, end)

    # ---- brackets

    def _bracket(self, kind: str, start: int) -> bool:
        """Track a bracket; return False if it is nested too deeply."""
        opener = _OPENERS.get(kind)
        if opener is None:
            self.brackets.append((kind, start))
            if len(self.indents) + len(self.brackets) <= NESTING_LIMIT + 1:
                return True
            self.findings.add("E005", start, start + 1, "nested too deeply", f"at most {NESTING_LIMIT} levels")
            return False
        for index in range(len(self.brackets) - 1, -1, -1):
            if self.brackets[index][0] == opener:
                del self.brackets[index:]
                return True
        del self.brackets[-1:]  # a wrong closing bracket closes too; the parser reports it
        return True

    def _gives_up_bracket(self, after: int, column: int) -> bool:
        """Return whether a line's end inside a bracket ends the statement nevertheless: the next line looks like a
        statement, or this one is too long. The error is reported."""
        if len(self.tokens) - self.line_start > LINE_LIMIT:
            self.findings.add("E005", after, after, "this statement is too long to read", "split it up")
        elif column <= self.column and _STATEMENT.match(self.text, after):
            self._report_bracket()
        else:
            return False
        self._end_broken_line()
        return True

    def _add_missing_comma(self, at: int) -> None:
        """Add a comma if the line break separates two entries of an object in ProseScript (prose-md.md 3.2)."""
        kind, _, end, _ = self.tokens[-1]
        if self.brackets[-1][0] != "LBRACE" or kind not in _ENTRY_ENDS or not _ENTRY.match(self.text, at):
            return
        if self.profile == "prosescript-strict":
            self.findings.add("E004", end, end, "a comma is missing between two entries", readable=True)
        self.tokens.append(("COMMA", end, end, ","))

    def _report_bracket(self) -> None:
        start = self.brackets[-1][1]
        self.findings.add("E105", start, start + 1, f"`{self.text[start]}` is never closed")
        self._end_broken_line()

    def _end_broken_line(self) -> None:
        """End the line with a `BROKEN` token: its error is reported, so the parser reports no other for this line."""
        self.brackets.clear()
        end = self.tokens[-1][2] if self.tokens else 0
        self.tokens.append(("BROKEN", end, end, None))

    # ---- numbers, strings, markers

    def _number(self, text: str, start: int, end: int) -> None:
        if text[-1].isalpha():
            self.tokens.append(("DURATION", start, end, Duration.at(start, end, text)))
            return
        value = read_number(text)
        if value is None:
            self.findings.add("E004", start, end, "this number has too many digits")
            value = 0
        self.tokens.append(("NUMBER", start, end, Number.at(start, end, value)))

    def _string(self, start: int) -> int:
        """Read a single-line string, or report one that isn't closed on its line (1.4); return the next position."""
        text = self.text
        end = self.quotes.line_string_end(start + 1)
        hint = 'close the quote on this line, or use `"""` for several lines'
        if end is None:
            end = self.quotes.deep_string_end(start + 1, self.column)
            if end is not None and self.strict:
                self.findings.add("E001", start, end + 1, "unterminated string", hint)
            elif end is not None:
                self.findings.add("W109", start, end + 1, "this string spans several lines", 'use `"""`')
        if end is None:
            end = text.index("\n", start)
            self.findings.add("E001", start, end, "unterminated string", hint)
            self._append_string(start, start + 1, end, end, triple=False)
            self._end_broken_line()
            # Deeper lines below an unclosed string belong to it unless they look like properties or a body.
            is_header = text[end - 1] == ":" or _PROPERTY_BELOW.match(text, end)
            return end if is_header else self._skip_deeper(end, self.column)
        self._append_string(start, start + 1, end, end + 1, triple=False)
        return end + 1

    def _triple(self, start: int) -> int:
        found = self.quotes.triple_end(start + 3, nesting=not self.strict)
        if found is None:
            self.findings.add("E001", start, start + 3, "unterminated string", 'close it with `"""`')
            self.unclosed = "string"
            self._append_string(start, start + 3, len(self.text) - 1, len(self.text) - 1, triple=True)
            self._end_broken_line()
            return len(self.text) - 1
        content_end, end, inner = found
        if self.strict and self.text[start + 3] != "\n":
            self.findings.add("E107", start, start + 3, "text on the opener line of a triple-quoted string",
                              'begin the text on the line after `"""`', readable=True)  # fmt: skip
        for opener in inner:
            self.findings.add("W105", opener, opener + 3, "a triple quote inside a triple-quoted string")
        self._append_string(start, start + 3, content_end, end, triple=True)
        return end

    def _append_string(self, start: int, content: int, content_end: int, end: int, *, triple: bool) -> None:
        bad: list[BadEscape] = []
        lenient = triple and not self.strict
        shell = lenient and bool(self.tokens) and self.tokens[-1][0] == "EXEC"
        value = string_text(self.text[content:content_end], content, start, end, triple=lenient, bad=bad)
        self.tokens.append(("STRING", start, end, value))
        for at, char in bad[:MAX_BAD_ESCAPES]:
            shown = f"\\{char}" if char.isprintable() else "\\"
            if shell and (not char.isalnum() or char in _SHELL_ESCAPES):
                continue
            if lenient:
                self.findings.add("W104", at, at + 2, f"unknown escape `{shown}` is kept as it is")
            else:
                more = "" if triple else ' (or use a triple-quoted string, `"""`)'
                hint = f"double the backslash: `\\{shown}`{more}"
                self.findings.add("E002", at, at + 2, f"unknown escape `{shown}`", hint)

    def _marker(self, start: int, mark: str) -> int:
        """Read a discretion marker (1.7); return the next position. `****` without another marker on its line is an
        empty `**` marker."""
        text, at = self.text, start + len(mark)
        found = self.quotes.marker_end(at, mark)
        if start >= self.line_end:
            self.line_end = text.index("\n", start)
        line_end = self.line_end
        if mark == "***" and text[at] == "*" and text[at + 1] != "*" and (found is None or found > line_end):
            return self._append_marker(start, at - 1, at - 1, at + 1)
        if mark == "**" and found is not None and found > line_end:
            if _LOOKS_LIKE_OPENER.match(text, found):
                return self._unclosed_marker(start, at, line_end)
            if self.strict:
                self.findings.add("E104", start, at, "this discretion marker is not closed on its line",
                                  "write `***` for several lines")  # fmt: skip
        elif found is None:
            self.unclosed = "marker"
            if mark == "***":
                line_end = self._skip_deeper(start, self.column)
            return self._unclosed_marker(start, at, line_end)
        assert found is not None
        return self._append_marker(start, at, found, found + len(mark))

    def _append_marker(self, start: int, content: int, content_end: int, end: int) -> int:
        words = marker_text(self.text[content:content_end], content)
        self.tokens.append(("DISCRETION", start, end, Discretion.at(start, end, words)))
        return end

    def _unclosed_marker(self, start: int, content: int, end: int) -> int:
        text = self.text
        self.findings.add("E104", start, content, "this discretion marker is never closed",
                          f"close it with `{text[start:content]}`")  # fmt: skip
        stop = content + len(text[content:end].rstrip())
        colon = text.endswith(":", content, stop)
        self._append_marker(start, content, stop - colon, stop - colon)
        if self.brackets or not colon:
            self._end_broken_line()
        if colon:
            self.tokens.append(("COLON", stop - 1, stop, ":"))
        return end

    def _illegal(self, start: int) -> int:
        match = _ILLEGAL.match(self.text, start)
        end = match.end() if match else start + 1
        self.tokens.append(("ILLEGAL", start, end, self.text[start]))
        return end

    # ---- words

    def _resolve_words(self) -> None:
        """Distinguish keywords from names by the next token (1.9)."""
        tokens = self.tokens
        scanned = -1  # the end of the last line that was searched for the bracket of a `loop` or `parallel for`
        for index in self.words:
            kind, start, end, word = tokens[index]
            if kind == "CONSTANT":
                tokens[index] = (kind, start, end, Constant.at(start, end, CONSTANTS[word]))
                continue
            following, _, _, value = tokens[index + 1]
            if self.is_script and (made := self._script_word(kind, index)) is not None:
                tokens[index] = made
                if made[0] == "_LOOP_EACH" and index > scanned:
                    scanned = self._mark_header(index, "LOOP")
                continue
            if following in _KEYWORD_BEFORE[kind]:
                continue
            next_word = value.id if following == "NAME" else value if following in _WORD_KINDS else None
            if not is_keyword(kind, following, next_word) or (
                kind == "SESSION" and following == "_NL" and index and tokens[index - 1][0] == "COLON"
            ):
                if following in _NO_CONTINUATION and (not index or tokens[index - 1][0] in LAYOUT):
                    continue  # a name at the start of a line cannot be followed by this
                tokens[index] = ("NAME", start, end, Name.at(start, end, word))
            elif (kind == "LOOP" or (kind == "PARALLEL" and following == "FOR")) and index > scanned:
                scanned = self._mark_header(index, kind)

    def _script_word(self, kind: str, index: int) -> RawToken | None:
        """Return the token for a word with a special meaning in ProseScript; None for other words."""
        _, start, end, word = self.tokens[index]
        following = self.tokens[index + 1][0]
        before = SCRIPT_BEFORE.get(kind)
        if before is not None:
            if following in before or following in _WORD_KINDS or self._adds_to_list(kind, index):
                return (kind, start, end, word)
            return ("NAME", start, end, Name.at(start, end, word))
        on_reject = index > 0 and self.tokens[index - 1][0] == "COLON"  # here `throw` takes only a string
        if kind == "THROW" and not on_reject and following not in ("_NL", "EQUALS", "COLON", "DOT", "PIPE", "COMMA"):
            return ("_RAISE", start, end, word)
        if kind == "PARALLEL" and following == "REPEAT":
            return ("_PARALLEL_REPEAT", start, end, word)
        if kind == "LOOP" and following == "FOR" and _is_name(self.tokens[index + 2], "each"):
            return ("_LOOP_EACH", start, end, word)
        is_named = following == "NAME" or following in _WORD_KINDS
        if kind == "SESSION" and is_named and self.tokens[index + 2][0] == "LPAR":
            return ("_STAGE", start, end, word)
        return None

    def _adds_to_list(self, kind: str, index: int) -> bool:
        """Return whether the line is like `append [1] to items` or `record (x) in items`, and not like `append[1]`."""
        tokens, preposition = self.tokens, {"_APPEND": "to", "_RECORD": "in"}.get(kind)
        if preposition is None or (index and tokens[index - 1][0] not in LAYOUT):
            return False
        last = line_end(tokens, index)
        return last - index > 3 and _is_name(tokens[last - 2], preposition)

    def _mark_header(self, index: int, kind: str) -> int:
        """Mark the bracket of `loop ... (max: N)` or `parallel for ... (modifiers):`, which isn't a call (2.1). Return
        the index of the line's end."""
        tokens, opener = self.tokens, None
        last = line_end(tokens, index)
        if kind == "LOOP":
            depth = 0
            for at in range(index, last - 2):
                depth += (tokens[at][0] in _CLOSED) - (tokens[at][0] in _OPENERS)
                if depth == 1 and tokens[at][0] == "LPAR" and _is_name(tokens[at + 1], "max"):
                    opener = at
        elif tokens[last - 1][0] == "COLON" and tokens[last - 2][0] == "RPAR":
            opener = self._opener_of_modifiers(index, last - 2)
        if opener is not None:
            _, start, end, sign = tokens[opener]
            tokens[opener] = ("_OPEN_MAXIMUM" if kind == "LOOP" else "_OPEN_MODIFIERS", start, end, sign)
        return last

    def _opener_of_modifiers(self, first: int, close: int) -> int | None:
        """Return the index of the bracket that ends at `close`, unless it is a part of the collection."""
        depth, at = 0, close
        while at > first:
            kind = self.tokens[at][0]
            depth += (kind in _OPENERS) - (kind in _CLOSED)
            if depth == 0:
                break
            at -= 1
        collection = first + (6 if self.tokens[first + 3][0] == "COMMA" else 4)  # `parallel for item, index in`
        if depth or at == collection or self.tokens[at - 1][0] in _BEFORE_OPERAND:
            return None
        inner = self.tokens[at + 1]
        named = inner[0] == "NAME" and inner[3].id in _MODIFIERS
        return at if inner[0] == "STRING" or named else None


def line_end(tokens: list[RawToken], index: int) -> int:
    """Return the index of the token that ends the line of the token at `index`."""
    while tokens[index][0] != "_NL":
        index += 1
    return index


def _is_name(token: RawToken, word: str) -> bool:
    return token[0] == "NAME" and token[3].id == word


def tokenize(text: str, profile: Profile = "default") -> list[Token]:
    """Return the tokens of any text, including layout tokens; errors produce `ILLEGAL` and `BROKEN` tokens."""
    found = Findings(Source(text))
    return [
        Token(kind, start, end, kind == "NAME" or kind in _WORD_KINDS)
        for chunk in Lexer(text, profile, found).chunks()
        for kind, start, end, _ in chunk
    ]
