"""Parses lines and blocks into a program (docs/reference/vvm.md 1.2, 2).

Blocks have a separate stack. A line's column determines which of them end before it. A statement of several clauses
stays open after a body until the next line shows whether it continues.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Final

from prose_kernel.language.diagnostics import Diagnostic, ParsedText, in_order
from prose_kernel.language.nodes import gc_paused
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree, word_hints
from prose_kernel.language.vvm.compound_statements import HANDLERS, PART_HANDLERS, StatementParser
from prose_kernel.language.vvm.lexer import KINDS, LINE_STARTS, WORD
from prose_kernel.language.vvm.names import CLAUSES, RESERVED
from prose_kernel.language.vvm.parser_state import PART_OWNERS, PART_WORDS, Compound, OpenBody, Trouble
from prose_kernel.language.vvm.tree import Assign, Body, ExpressionStatement, Name, Program
from prose_kernel.language.vvm.word_hints import printable

_COMMENT: Final = re.compile(r"^([ \t]*+)#", re.MULTILINE)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FIRST_SPACES: Final = re.compile(r"^( ++)[^\s#]", re.MULTILINE)
_MAX_SURROGATES: Final = 100  # characters of this kind that are reported
_PART_CLASSES: Final = {"case": tree.Case, "option": tree.Option, "require": tree.Require}


class Parsed(ParsedText[Program], frozen=True):
    """The result of a parse. `awaited` holds the diagnostics that further lines may still resolve: a missing body, a
    missing `except`."""

    awaited: tuple[Diagnostic, ...] = ()


def parse(source: Source) -> Parsed:
    """Parse a program. Never raises: any text results in a tree and diagnostics."""
    with gc_paused():
        return Parser(source).parse()


class Parser(StatementParser):
    """Parses one program."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.text = self.tokens.text
        self.tabs = "\t" in self.text
        self.tab_width = 0

    def parse(self) -> Parsed:
        self.read()
        waits = self.header is not None
        ends_indented = len(self.blocks) > 1
        before = len(self.findings.found)
        self._close_all()
        awaited = tuple(self.findings.found[before:])
        if _SURROGATE.search(self.text):
            self._report_unprintable()
        items, end = tuple(self.blocks[0].items), self.span(self.tokens.last)[0]
        program = Program.at(0, end, items, self.tokens.comments(), self.text)
        return Parsed(
            program,
            in_order(self.findings.found, self.text),
            waits or self.unclosed is not None,
            self.unclosed,
            ends_indented,
            awaited,
        )

    # ---- lines

    def read(self) -> None:
        texts, starts, last, blocks = self.texts, self.starts, self.tokens.last, self.blocks
        kind_of, handler_of = KINDS.get, HANDLERS.get
        make_name: Any = Name
        make_assign: Any = Assign
        expression = self.expression
        block = blocks[-1]
        line = self.at  # index of the line end before the statement
        while line + 1 < last:
            if self.is_inline:
                self.is_inline = False
                first = line
                block = blocks[-1]
            else:
                first = line + 1
                column = starts[first] - starts[line] - len(texts[line])
                if column != block.column or self.header is not None or self.tabs:
                    block = self._layout(line, column)
            word = texts[first]
            self.at = self.first = first
            self.column = block.column
            if block.open is not None and word not in CLAUSES:
                self.finish(block)
            made: Any = None
            try:
                if texts[first + 1] == "=" and kind_of(word[0]) == WORD and block.part is None:
                    if word in RESERVED:
                        made = self._assign_reserved()
                    else:
                        start = starts[first]
                        name = make_name(word, span=(start, start + len(word)))
                        self.at = first + 2
                        value = expression()
                        made = make_assign(name, value, span=(start, self.end))
                elif block.part is not None:
                    made = self._part(block, word)
                elif (handler := handler_of(word)) is not None:
                    made = handler(self, starts[first])
                else:
                    value = expression()
                    made = ExpressionStatement.at(starts[first], self.end, value)
                line = self.at
                if texts[line][0] not in LINE_STARTS and not self.is_inline:
                    raise self._after_statement(line)
                if made is not None:
                    block.items.append(made)
            except Trouble as trouble:
                from prose_kernel.language.vvm.recovery import recover

                line = recover(self, trouble)
                block = blocks[-1]
        self.at = line

    def _assign_reserved(self) -> Any:
        """Report `word = value`, where the word is reserved; return the value as a statement."""
        at = self.at
        if self.texts[at] == "it":
            hint = "`with input value:` gives `it` another value in its body"
            self.report("V060", *self.span(at), "`it` cannot be assigned", hint)
        else:
            self.reserved_name(at)
        self.at = at + 2
        value = self.expression()
        return ExpressionStatement.at(value.span.start, self.end, value)

    def _part(self, block: OpenBody, word: str) -> Any:
        """Read a line that must begin with `case`, `option` or `require`."""
        assert block.part is not None
        at = self.at
        if word == block.part and self.texts[at + 1] != "=":
            return PART_HANDLERS[word](self, self.starts[at])
        if block.is_reported:
            raise Trouble(at)
        block.is_reported = True
        owner, hint = PART_OWNERS[block.part], None
        if owner == "match" and word in ("else", "default", "_"):
            hint = "the last case is written `case _:`"
        elif owner == "constrain" and word in ("?", "`"):
            hint = "write ``require ?`criterion` ``"
        raise self.trouble(at, f"only `{block.part}` belongs in the body of `{owner}`", hint)

    # ---- blocks

    def _layout(self, line: int, column: int) -> OpenBody:
        """End and begin blocks for the line after the token at `line`; return the block of that line."""
        blocks = self.blocks
        header = self.header
        plain = column
        if self.tabs:
            column = self._column_with_tabs(line, column)
        is_reported = column != plain
        if header is not None:
            self.header = None
            if column > blocks[-1].column:
                blocks.append(OpenBody(column, header))
                return blocks[-1]
            self._close_header(header, line)
        elif column > blocks[-1].column:
            if blocks[-1].is_inline:
                blocks[-1].is_inline = False
                blocks[-1].column = column
            else:
                self._indented(line, column, is_reported)
        end = self.tokens.end(line - 1) if line else 0
        while column < blocks[-1].column:
            if column > blocks[-2].column:
                self._misaligned(line, column, is_reported)
                break
            self._close_block(end)
        return blocks[-1]

    def _column_with_tabs(self, line: int, column: int) -> int:
        """Return the column of a line that may be indented with tabs, which are reported."""
        begin = self.starts[line] + len(self.texts[line])
        indent = self.text[begin : begin + column]
        if "\t" not in indent:
            return column
        tab = begin + indent.index("\t")
        self.report("V002", tab, tab + 1, "tab in indentation", "indent with spaces (two for each level)")
        if not self.tab_width:
            first = _FIRST_SPACES.search(self.text)
            self.tab_width = len(first[1]) if first else 2
        return len(indent.expandtabs(self.tab_width))

    def _indented(self, line: int, column: int, is_reported: bool) -> None:
        """Report a line that is deeper than the one above, which begins no block; it belongs to the block around it."""
        block = self.blocks[-1]
        if not is_reported:
            above = block.column
            hint = f"begin it {_spaces(above)}, as the line above" if above else "begin it at the start of the line"
            self.report("V002", *self.span(line + 1), "unexpected indentation", hint)
        deeper = OpenBody(column, None, block.items)
        deeper.part = block.part
        deeper.is_reported = True
        deeper.open, block.open = block.open, None
        self.blocks.append(deeper)

    def _misaligned(self, line: int, column: int, is_reported: bool) -> None:
        """Report a line between the columns of the block above and the block around that; it belongs to the former."""
        outer, block = self.blocks[-2:]
        if not is_reported:
            hint = f"begin it {_spaces(outer.column)} or {_spaces(block.column)}"
            message = f"the line begins {_spaces(column)}, where no block above it does"
            self.report("V002", *self.span(line + 1), message, hint)
        block.column = column

    def _close_header(self, header: Compound, line: int) -> None:
        """Complete a header without a deeper line below it: comments are an empty body, otherwise report an error."""
        block = self.blocks[-1]
        comments = _COMMENT.finditer(self.text, self.starts[line], self.tokens.end(line))
        if any(len(comment[1]) > block.column for comment in comments if comment.start() > self.starts[line]):
            if part := PART_WORDS.get(header.word):
                self._report_parts(header, part)
        elif line + 1 == self.tokens.last:
            message = f"the body of `{header.word}` is missing"
            self._report_head("V002", header, message, "write it below, indented; `pass` for an empty one")
        else:
            message = f"the body of `{header.word}` is missing, or not indented"
            hint = "indent the lines of the body; write `pass` for an empty one"
            if self.text[self.span(line + 1)[0]] not in word_hints.BLANKS:  # it has a separate error
                self.report("V002", *self.span(line + 1), message, hint)
            block.lost = header.clauses
            header.is_lost = True
        self.attach(header, (), self.tokens.end(line - 1))

    def _report_head(self, code: str, header: Compound, message: str, hint: str) -> None:
        self.report(code, header.clause, header.clause + len(header.word), message, hint)

    def _report_parts(self, header: Compound, part: str) -> None:
        message, hint = f"`{header.word}` needs at least one `{part}`", f"write `{part}` below it, indented"
        self._report_head("V001", header, message, hint)

    def _close_block(self, end: int) -> None:
        block = self.blocks.pop()
        if block.open is not None:
            self.finish(block)
        if block.owner is None:
            return
        items = block.items
        if block.part is not None:
            items = [item for item in items if isinstance(item, _PART_CLASSES[block.part])]
            if not items and not block.is_reported and not block.is_lossy:
                self._report_parts(block.owner, block.part)
        self.attach(block.owner, tuple(items), end)

    def attach(self, compound: Compound, body: Body, end: int) -> None:
        """Add the body to a statement, which stays open if it may continue."""
        compound.close(body, end)
        block = self.blocks[-1]
        if compound.clauses:
            block.open = compound  # type: ignore[assignment]
        else:
            block.items.append(compound.node())

    def finish(self, block: OpenBody) -> None:
        """Finish a statement that could have continued."""
        compound = block.open
        assert compound is not None
        block.open = None
        if compound.word == "try" and not compound.is_lost:
            hint = "write `except as err:` below its body"
            self.report("V082", compound.start, compound.start + 3, "`try` has neither `except` nor `finally`", hint)
        block.items.append(compound.node())

    def _close_all(self) -> None:
        """End all blocks at the end of the text."""
        end = self.span(self.tokens.last)[0]
        if self.header is not None:
            header, self.header = self.header, None
            self._close_header(header, self.tokens.last - 1)
        while len(self.blocks) > 1:
            self._close_block(end)
        if self.blocks[0].open is not None:
            self.finish(self.blocks[0])

    # ---- other errors

    def _after_statement(self, at: int) -> Trouble:
        """Report a complete statement whose line continues with the token at `at`."""
        first, text = self.first, self.texts[at]
        word = self.texts[first]
        is_word = KINDS.get(word[0]) == WORD
        is_first = is_word and at == first + 1 and word not in RESERVED and text not in (".", "=")
        if is_first and (hint := word_hints.word(word)):
            return self.trouble(first, f"`{word}` does not begin a statement", hint)
        if text == "=":
            return self._bad_target(at)
        if len(text) == 2 and text[1] == "=" and text[0] in "+-" and at == first + 1:
            return self.trouble(at, f"there is no `{text}`", f"write `{word} = {word} {text[0]} …`")
        if text == "," and word not in RESERVED and "=" in self.texts[at : at + 20]:
            return self.trouble(at, "an assignment has one name", "assign each name on a line of its own")
        if text == ",":
            return self.unexpected(at, "the end of the line", "a list is written `[a, b]`")
        if text == ":" and is_word and at == first + 1 and not self.is_end(at + 1):
            return self.unexpected(at, "the end of the line", f"write `{word} = …` to assign")
        return self.after_value(at, "the end of the line")

    def _bad_target(self, at: int) -> Trouble:
        """Report `=` after something that cannot be assigned to."""
        first = self.first
        before = self.texts[first:at]
        words, signs = before[::2], before[1::2]
        if len(words) > len(signs) and set(signs) <= {"-"} and all(KINDS.get(word[0]) == WORD for word in words):
            name = printable("".join(before))
            return self.trouble(at, f"`{name}` is not a name", f"write `{name.replace('-', '_')}`")
        if before[0] in RESERVED:
            return self.after_value(at, "the end of the line")
        hint = None
        if before[0] == "@":
            hint = "leave the `@` out, or declare `agent name(…)`"
        elif before[-1] == "]" or "." in before:
            hint = "values are never changed: assign a new one, such as `x = x + [item]`"
        elif before[1:2] == ["="]:
            hint = "assign each name on a line of its own"
        return self.trouble(at, "only a plain name can be assigned", hint)

    def _report_unprintable(self) -> None:
        """Report halves of surrogate pairs, also in strings: a file cannot contain them."""
        reported = {d.span.start for d in self.findings.found}
        for match in islice(_SURROGATE.finditer(self.text), _MAX_SURROGATES):
            if match.start() not in reported:
                message = f"{word_hints.code_point(match[0])} is not allowed in a program"
                self.report("V001", match.start(), match.end(), message)


def _spaces(column: int) -> str:
    if not column:
        return "at the start of the line"
    return f"after {column} space{'s' if column > 1 else ''}"
