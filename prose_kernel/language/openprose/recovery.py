"""Recovers from syntax errors (openprose.md 9.1): reports one finding per line and keeps the line's readable parts.

The parse stack is unwound to the start of the line. Then the line is replaced by a valid one with the probable meaning,
so that later lines are checked as usual: a header keeps its body (`if tests pass:` becomes an `if` with an unreadable
condition), a declaration keeps its name. If that isn't possible, the line is skipped with the deeper lines below it.
Each token is read a bounded number of times, so the cost is linear for any number of errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prose_kernel.language.openprose.keywords import KEYWORDS
from prose_kernel.language.openprose.lexer import LAYOUT, RawToken, line_end
from prose_kernel.language.openprose.syntax_errors import LogicalLine, explain, first_word
from prose_kernel.language.openprose.tree import PLACEHOLDER, Array, Constant, Discretion, Name, Text
from prose_kernel.language.source import Span

if TYPE_CHECKING:
    from prose_kernel.language.openprose.parser import Parser

_OTHER_CATCHES: Final = frozenset({"except", "rescue"})
_OTHER_LETS: Final = frozenset({"Let", "LET", "Const", "CONST", "Output", "OUTPUT", "var", "set", "val", "define"})
_FUNCTION_WORDS: Final = frozenset({"def", "function", "func", "fn", "fun"})
_STATEMENT_KINDS: Final = frozenset(KEYWORDS.values())
_WORD_KINDS: Final = _STATEMENT_KINDS | {"NAME"}


def recover(parser: Parser, tokens: list[RawToken], index: int) -> int:
    """Report the error at the token at `index` and repair the stack; return the index at which to continue."""
    kind = tokens[index][0]
    if kind == "_INDENT":
        return _unexpected_indent(parser, tokens, index)
    if kind == "_DEDENT":
        while not parser.accepts("_DEDENT") and len(parser.states) > 1:
            parser.pop()
        return index if parser.accepts("_DEDENT") else index + 1
    line = _line(parser, tokens, index)
    broken = any(tokens[k][0] == "BROKEN" for k in range(line.first, line.stop))
    if kind == "BROKEN" and tokens[index + 1][0] == "_NL" and parser.accepts("_NL"):
        return line.stop
    if not broken:
        trouble = explain(line)
        if line.head_word in _OTHER_CATCHES:
            parser.findings.retract("E180")
        if _follows_reported_error(parser, line, trouble.code):
            parser.findings.mark_error(trouble.start)
        else:
            parser.findings.add(trouble.code, trouble.start, trouble.end, trouble.message, trouble.hint)
    if kind == "_NL" and line.colon and line.head != "SESSION" and not line.owner:
        parser.feed(("COLON", tokens[index][1], tokens[index][2], ":"))
        return index
    parser.unwind(tokens[line.first][1])
    parser.end = tokens[line.stop][1]
    if _repair(parser, line):
        below = line.stop + 1
        if below == len(tokens) or tokens[below][0] != "_INDENT" or parser.accepts("_NL", "_INDENT"):
            return line.stop
        parser.feed(tokens[line.stop])
    return _skip(parser, tokens, line.stop)


def _follows_reported_error(parser: Parser, line: LogicalLine, code: str) -> bool:
    """Return whether an `else` or `catch` has no statement only because the body above it isn't indented, which is
    reported already (E147)."""
    findings = parser.findings
    if code not in ("E185", "E193", "E194") or not findings.unindented_columns:
        return False
    return findings.source.line_column(line.tokens[line.first][1])[1] - 1 in findings.unindented_columns


def _line(parser: Parser, tokens: list[RawToken], index: int) -> LogicalLine:
    first = index
    while first and tokens[first - 1][0] not in LAYOUT:
        first -= 1
        if tokens[first][0] == "PIPE":
            break  # the part before a pipe operation is valid
    state = parser.states[-1]
    row = parser.rows[state]
    if index == first:
        row = parser.landing("NAME") or parser.landing("OPTION") or row
    return LogicalLine(
        text=parser.text,
        tokens=tokens,
        first=first,
        at=index,
        stop=line_end(tokens, index),
        row=row,
        symbol=_finished_part(parser) or parser.tables.symbols[state],
        owner=_owner(parser),
        colon=parser.accepts("COLON", "_NL"),
        options=_choice_without_options(parser, row),
    )


def _finished_part(parser: Parser) -> str:
    """Return "else", "catch" or "finally" if the stack ends with this part of a statement, "" otherwise."""
    symbols = [parser.tables.symbols[state] for state in parser.states[-9:]]
    if symbols[-1] == "body":
        symbols[-1] = "_NL"
    elif symbols[-1] == "_DEDENT":
        while symbols and symbols[-1] != "_INDENT":
            symbols.pop()
        symbols = symbols[:-1]
    if symbols[-2:] != ["COLON", "_NL"]:
        return ""
    if symbols[-5:-2] == ["CATCH", "AS", "NAME"]:
        return "catch"
    return symbols[-3].lower() if symbols[-3:-2] in (["ELSE"], ["CATCH"], ["FINALLY"]) else ""


def _owner(parser: Parser) -> str:
    """Return the owner of the property block at the top of the stack: "spawn", "agent", "gate", or "" without one."""
    symbols = [parser.tables.symbols[state] for state in parser.states[-12:]]
    for depth in range(len(symbols) - 1, 1, -1):
        if symbols[depth] == "_INDENT":
            owner = symbols[depth - 2]
            if owner in ("head", "agent_head", *_HEADS):
                return "spawn"
            if owner == "COLON" and depth >= 4 and symbols[depth - 4] in ("AGENT", "GATE"):
                return symbols[depth - 4].lower()
            return ""
    return ""


_HEADS: Final = ("titled", "titled_colon", "titled_parenthesis", "titled_line", "resume", "exec")


def _choice_without_options(parser: Parser, row: dict[str, int]) -> int | None:
    if "option" not in row or parser.tables.symbols[parser.states[-1]] != "_INDENT":
        return None
    for state, start in zip(reversed(parser.states), reversed(parser.starts), strict=True):
        if parser.tables.symbols[state] == "CHOICE":
            return start
    return None


def _unexpected_indent(parser: Parser, tokens: list[RawToken], index: int) -> int:
    """Report E103. A block that begins with a statement is parsed as if it weren't indented, any other is skipped."""
    text, (kind, at, _, _), following = parser.text, tokens[index + 1], tokens[index + 2][0]
    trouble = explain(LogicalLine(text, tokens, index, index, line_end(tokens, index), {}, "", "", False, None))
    if "\t" not in text[text.rfind("\n", 0, at) + 1 : at]:  # otherwise the tab is reported
        parser.findings.add(trouble.code, trouble.start, trouble.end, trouble.message, trouble.hint)
    close = _closing(tokens, index)
    is_statement = kind in _STATEMENT_KINDS or (kind == "NAME" and following in ("EQUALS", "LPAR", "PIPE"))
    if close is not None and is_statement:
        del tokens[close]
        return index + 1
    return _skip(parser, tokens, index - 1)


def _closing(tokens: list[RawToken], index: int) -> int | None:
    """Return the index of the DEDENT for the INDENT at `index`, None if it isn't in this chunk."""
    depth = 0
    for at in range(index, len(tokens)):
        depth += (tokens[at][0] == "_INDENT") - (tokens[at][0] == "_DEDENT")
        if not depth:
            return at
    return None


def _skip(parser: Parser, tokens: list[RawToken], stop: int) -> int:
    """Return the index after the line that ends at `stop` and the block below it."""
    after = stop + 1
    if after < len(tokens) and tokens[after][0] == "_INDENT":
        close = _closing(tokens, after)
        if close is None:
            parser.skipping = sum((t[0] == "_INDENT") - (t[0] == "_DEDENT") for t in tokens[after:])
            return len(tokens)
        return close + 1
    return after


def _repair(parser: Parser, line: LogicalLine) -> bool:
    """Feed the parser a valid form of the line without its end; return False if there is none.

    The line is empty if the unexpected token is the end of a continued statement (`-> name` below its block).
    """
    if line.first == line.stop:
        return False
    for candidate in _LineRepair(line).candidates():
        if parser.accepts(*(token[0] for token in candidate), "_NL"):
            parser.feed(*candidate)
            return True
    return False


class _LineRepair:
    """Makes valid forms of one line; all their tokens have the position of its first token."""

    def __init__(self, line: LogicalLine) -> None:
        self.tokens = line.tokens[line.first : line.stop]
        self.start = self.tokens[0][1]
        self.span = Span(self.start, self.start)

    def token(self, kind: str, value: Any = None) -> RawToken:
        return (kind, self.start, self.start, kind.lower() if value is None else value)

    def word(self, word: str) -> RawToken:
        """Return the token of a contextual word such as `as`."""
        return self.token(word.upper(), Name(word, span=self.span))

    def name(self, index: int) -> RawToken | None:
        """Return the word at `index` of the line as a NAME token, None for another token."""
        if index >= len(self.tokens) or self.tokens[index][0] not in _WORD_KINDS:
            return None
        _, start, end, _ = self.tokens[index]
        return ("NAME", start, end, Name(first_word(self.tokens, index), span=Span(start, end)))

    def hole(self) -> RawToken:
        return self.token("HOLE", Constant(None, span=self.span))

    def placeholder_text(self) -> RawToken:
        return self.token("STRING", Text((PLACEHOLDER,), span=self.span))

    def placeholder_name(self) -> RawToken:
        return self.token("NAME", Name(PLACEHOLDER, span=self.span))

    def candidates(self) -> list[list[RawToken]]:
        """Return the possible meanings of the line as tokens, the best one first."""
        found: list[list[RawToken]] = []
        ends_in_colon = self.tokens[-1][0] == "COLON"
        prefix, rest = self._binding()
        header = self._header(rest)
        if header is not None:
            found += [[*prefix, *header], header]
        simple = self._simple(prefix)
        if simple is not None:
            found.append(simple)
        is_property = len(self.tokens) == 2 and self.tokens[0][0] == "NAME"  # misplaced; its block is skipped too
        if ends_in_colon and not is_property:
            plain = [self.token("DO"), self.token("COLON", ":")]
            found += [[*prefix, *plain], plain]
        return found

    def _binding(self) -> tuple[list[RawToken], int]:
        """Return the tokens of `let x =`, `x =`, `output x =` or `output` at the start, and the index after them."""
        kind = self.tokens[0][0]
        equals = self.token("EQUALS", "=")
        if kind in ("LET", "CONST", "OUTPUT"):
            name = self.name(1)
            if name is not None and len(self.tokens) > 2 and self.tokens[2][0] == "EQUALS":
                return [self.tokens[0], name, equals], 3
            return ([self.tokens[0]], 1) if kind == "OUTPUT" else ([], 0)
        name = self.name(0)
        if name is not None and len(self.tokens) > 1 and self.tokens[1][0] == "EQUALS":
            return [name, equals], 2
        declared = self.name(1) if name is not None and name[3].id in _OTHER_LETS else None
        if declared is not None and len(self.tokens) > 2 and self.tokens[2][0] in ("EQUALS", "COLON"):
            return [self.token("LET"), declared, equals], 3
        return [], 0

    def _simple(self, prefix: list[RawToken]) -> list[RawToken] | None:
        """Return a declaration, property, input or import whose value is unreadable; None for other lines."""
        kind = self.tokens[0][0]
        colon = self.token("COLON", ":")
        if prefix:
            return [*prefix, self.hole()]
        name = self.name(1)
        if kind in ("LET", "CONST"):
            if len(self.tokens) > 1 and self.tokens[1][0] == "LBRACE":
                return self._destructured()
            return [self.tokens[0], name, self.token("EQUALS", "="), self.hole()] if name else None
        if kind == "INPUT":
            return [self.tokens[0], name, colon, self.placeholder_text()] if name else None
        if first_word(self.tokens, 0) == "use" and len(self.tokens) > 1:
            return self._import()
        own = self.name(0)
        if own is not None and len(self.tokens) > 1 and self.tokens[1][0] == "COLON":
            return [own, colon, self.hole()]
        return None

    def _import(self) -> list[RawToken] | None:
        """Return an import with an unreadable path. Its alias, or the last word of the path, is the program's name."""
        words = [at for at in range(1, len(self.tokens)) if self.name(at) is not None]
        if not words:
            return [self.tokens[0], self.tokens[1]]
        alias = self.name(words[-1])
        if alias is not None and alias[3].id == "prose" and len(words) > 1:
            alias = self.name(words[-2])
        return [self.token("USE"), self.placeholder_text(), self.word("as"), alias or self.placeholder_name()]

    def _destructured(self) -> list[RawToken] | None:
        found: list[RawToken] = []
        for index, token in enumerate(self.tokens):
            if index > 1 and token[0] == "NAME" and (name := self.name(index)) is not None:
                found += [name, self.token("COMMA", ",")]
        if not found:
            return None
        found[-1] = self.token("RBRACE", "}")
        return [self.tokens[0], self.token("LBRACE", "{"), *found, self.token("EQUALS", "="), self.hole()]

    def _header(self, at: int) -> list[RawToken] | None:
        """Return the header that begins at token `at` of the line, without its unreadable parts."""
        if at >= len(self.tokens):
            return None
        kind = self.tokens[at][0]
        word = str(first_word(self.tokens, at))
        colon = self.token("COLON", ":")
        known = kind if kind in _HEADERS else _MEANT_HEADERS.get(word)
        if kind == "ELSE" and at + 1 < len(self.tokens) and self.tokens[at + 1][0] == "IF":
            known = "ELIF"
        if known is None:
            return self._spawn(at, kind, word)
        head = self.token(known)
        if known == "FOR":
            return [*self._each(at), colon]
        if known == "PARALLEL" and at + 1 < len(self.tokens) and self.tokens[at + 1][0] == "FOR":
            return [head, *self._each(at + 1), colon]
        return [head, *self._parts(known, at), colon]

    def _parts(self, known: str, at: int) -> list[RawToken]:
        """Return the readable parts between a header's keyword and its colon."""
        match known:
            case "IF" | "ELIF":
                return [self.hole()]
            case "LOOP":
                return [self.word("until"), self.hole(), *self._variable(at)]
            case "CATCH":
                return self._variable(at)
            case "REPEAT":
                return [self.hole(), *self._variable(at)]
            case "AGENT" | "GATE":
                return [self.name(at + 1) or self.placeholder_name()]
            case "BLOCK":
                return [self.name(at + 1) or self.placeholder_name(), *self._parameters(at)]
            case "CHOICE":
                return [self.token("DISCRETION", Discretion(Text((PLACEHOLDER,)), span=self.span))]
            case "OPTION":
                return [self.placeholder_text()]
        return []

    def _each(self, at: int) -> list[RawToken]:
        """Return `for` with the names before `in`, over an empty array."""
        names: list[RawToken] = []
        for index in range(at + 1, len(self.tokens)):
            word = self.name(index)
            if word is None and self.tokens[index][0] != "COMMA":
                break
            if word is not None and word[3].id == "in":
                break
            if word is not None and not (word[3].id == "each" and index == at + 1):
                names.append(word)
        names = names[:2] or [self.placeholder_name()]
        if len(names) == 2:
            names.insert(1, self.token("COMMA", ","))
        nothing = self.token("HOLE", Array((), span=self.span))
        return [self.token("FOR"), *names, self.word("in"), nothing]

    def _variable(self, at: int) -> list[RawToken]:
        """Return `as name`, also if the `as` is missing after `catch`."""
        for index in range(at + 1, len(self.tokens)):
            name = self.name(index)
            before = first_word(self.tokens, index - 1)
            if name is not None and (before == "as" or (self.tokens[at][0] == "CATCH" and index == at + 1)):
                if name[3].id == "as":
                    continue
                return [self.word("as"), name]
        return []

    def _parameters(self, at: int) -> list[RawToken]:
        opened = next((k for k in range(at + 1, min(at + 3, len(self.tokens))) if self.tokens[k][0] == "LPAR"), None)
        if opened is None:
            return []
        found: list[RawToken] = [self.token("LPAR", "(")]
        for index in range(opened + 1, len(self.tokens)):
            if self.tokens[index][0] == "RPAR":
                break
            name = self.name(index)
            if name is not None and self.tokens[index - 1][0] in ("LPAR", "COMMA"):
                found += [name, self.token("COMMA", ",")]
        found[-1 if len(found) > 1 else 1 :] = [self.token("RPAR", ")")]
        return found

    def _spawn(self, at: int, kind: str, word: str) -> list[RawToken] | None:
        if kind == "SESSION":
            return [self.token("SESSION"), self.placeholder_text()]
        if word == "exec":
            return [self.token("EXEC"), self.placeholder_text()]
        if kind == "RESUME":
            return [self.token("RESUME"), self.token("COLON", ":"), self.name(at + 1) or self.placeholder_name()]
        if kind == "PIPE":
            return [self.token("PIPE", "|"), self.word("map"), self.token("COLON", ":")]
        if kind == "DO" and (name := self.name(at + 1)) is not None and self.tokens[-1][0] != "COLON":
            return [self.token("DO"), name]
        return None


_HEADERS: Final = frozenset({
    "IF", "ELIF", "ELSE", "TRY", "CATCH", "FINALLY", "LOOP", "FOR", "REPEAT", "PARALLEL", "BLOCK", "AGENT", "GATE",
    "CHOICE", "OPTION",
})  # fmt: skip
_MEANT_HEADERS: Final = {
    **{kind.lower(): kind for kind in _HEADERS - {"IF", "ELIF", "CHOICE"}},
    **dict.fromkeys(_FUNCTION_WORDS, "BLOCK"),
    **dict.fromkeys(("while", "until"), "LOOP"),
    **dict.fromkeys(("elseif", "elsif"), "ELIF"),
    "except": "CATCH",
    "approve": "GATE",
}
"""The header meant by a name at the beginning of a line: a word of another language, or a keyword that was read as a
name."""
