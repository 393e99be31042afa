"""Parses statements with a body (docs/reference/vvm.md 2): their heads, clauses and patterns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from prose_kernel.language.vvm import tree, word_hints
from prose_kernel.language.vvm.lexer import STRING, WORD
from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.parser_state import (
    CALL,
    PART_OWNERS,
    Bracket,
    ClausedCompound,
    Compound,
    OpenBody,
    Trouble,
)
from prose_kernel.language.vvm.statements import SimpleStatementParser
from prose_kernel.language.vvm.tree import Name


class StatementParser(SimpleStatementParser):
    """Parses one statement, or the head of one that has a body."""

    def read_def(self, start: int) -> None:
        name = self.name(self.at + 1, "the name of the function")
        opening = self.at
        self.word("(", f"write `def {name.id}():`")
        self.stack = [(0, Bracket(CALL, opening, start))]  # for errors
        parameters = []
        while True:
            self.at = self.after_line_ends(self.at)
            if self.texts[self.at] == ")":
                break
            parameters.append(self._parameter(self.at))
        self.at += 1
        self.stack = []
        self.body(Compound("def", start, tree.Def.at, name, tuple(parameters)))

    def _parameter(self, at: int) -> Name:
        text = self.texts[at]
        if text in ("*", "**"):
            raise self.trouble(at, f"there is no `{text}` before a parameter", "pass a list or an object")
        name = self.name(at, "the name of a parameter" if text != "," else "a name before `,`")
        self.at = self.after_line_ends(self.at)
        text = self.texts[self.at]
        if text == ",":
            self.at += 1
        elif text == "=":
            raise self.trouble(self.at, "a parameter has no default", "every call gives all values")
        elif text == ":":
            raise self.trouble(self.at, "a parameter has no type", "leave `:` and the type out")
        elif text != ")":
            raise self.unexpected(self.at, "`,` or `)`")
        return name

    def read_if(self, start: int) -> None:
        self.body(ClausedCompound("if", start, self.next_value()))

    def clause(self, word: str) -> ClausedCompound:
        """Return the open statement that `word`, the next token, continues; an empty one if there is none."""
        block = self.blocks[-1]
        if block.open is not None and word in block.open.clauses:
            return block.open
        if word not in block.lost:
            self._report_stray_clause(block, word)
        return ClausedCompound("if" if word in ("elif", "else") else "try", self.starts[self.at])

    def _report_stray_clause(self, block: OpenBody, word: str) -> None:
        """Report that no open statement can continue with `word`."""
        last = block.open.node() if block.open is not None else block.items[-1] if block.items else None
        article, owner = ("an", "if") if word in ("elif", "else") else ("a", "try")
        message, hint = f"`{word}` without `{owner}`", f"it belongs below {article} `{owner}`, in the same column"
        if isinstance(last, tree.If) and last.otherwise is not None and word in ("elif", "else"):
            message, hint = f"`{word}` after `else`", "`else` comes last, and once"
        elif isinstance(last, tree.Try) and word in ("except", "finally"):
            message = f"`{word}` after `{'finally' if last.final is not None else 'except'}`"
            hint = "a `try` has one `except`, then one `finally`; distinguish errors with `match err:`"
        elif isinstance(last, tree.Try) and word == "else":
            message, hint = "`try` has no `else`", "write these statements at the end of the body of `try`"
        elif isinstance(last, tree.For | tree.While) and word == "else":
            message, hint = "loops have no `else`", "write these statements after the loop"
        elif isinstance(last, tree.Match | tree.Choose) and word in ("else", "elif"):
            message, hint = f"`{word}` without `if`", "the last case is written `case _:`"
        self.report_at(self.at, message, hint)

    def read_elif(self, start: int) -> None:
        owner = self.clause("elif")
        self.begin_clause(owner, "elif", start, self.next_value())

    def read_else(self, start: int) -> None:
        is_elif = self.texts[self.at + 1] == "if"
        owner = self.clause("elif" if is_elif else "else")
        self.at += 1
        if is_elif:
            if owner is self.blocks[-1].open:
                self.report("V001", start, self.tokens.end(self.at), "there is no `else if`", "write `elif`")
            self.begin_clause(owner, "elif", start, self.next_value())
        else:
            self.begin_clause(owner, "else", start, None)

    def begin_clause(self, owner: ClausedCompound, word: str, start: int, head: Any) -> None:
        """Begin another clause of `owner`, whose body comes after the next token, `:`."""
        block = self.blocks[-1]
        self.body(owner, word)
        owner.begin(word, start, head)
        block.open = None

    def read_while(self, start: int) -> None:
        self.body(Compound("while", start, tree.While.at, self.next_value()))

    def read_for(self, start: int) -> None:
        target = self.name(self.at + 1)
        if self.texts[self.at] == ",":
            raise self.trouble(self.at, "`for` takes one name", "take the element apart in the body: `x[0]`, `x.name`")
        self.word("in", "write `for x in items:`")
        items = self.expression()
        self.body(Compound("for", start, tree.For.at, target, items))

    def read_try(self, start: int) -> None:
        self.at += 1
        self.body(ClausedCompound("try", start))

    def read_except(self, start: int) -> None:
        owner = self.clause("except")
        self.at += 1
        if self.texts[self.at] != "as" and self.kind(self.at) == WORD:
            hint = "write `except as err:`; it catches every error: distinguish them with `match err:`"
            raise self.unexpected(self.at, "`as`", hint)
        self.word("as", "write `except as err:`")
        self.begin_clause(owner, "except", start, self.name(self.at))

    def read_finally(self, start: int) -> None:
        owner = self.clause("finally")
        self.at += 1
        self.begin_clause(owner, "finally", start, None)

    def read_with(self, start: int) -> None:
        self.at += 1
        self.word("input", "write `with input value:`")
        self.body(Compound("with", start, tree.WithInput.at, self.expression()))

    def read_match(self, start: int) -> None:
        self.body(Compound("match", start, tree.Match.at, self.next_value()))

    def read_case(self, start: int) -> None:
        self.at += 1
        pattern = self.pattern()
        if self.texts[self.at] != ":" and not self.is_end(self.at):
            raise self.bad_pattern(self.at)
        self.body(Compound("case", start, tree.Case.at, pattern))

    def pattern(self) -> Any:
        at = self.at
        text = self.texts[at]
        start = self.starts[at]
        if text == "_":
            self.at += 1
            return tree.AnyPattern.at(start, start + 1)
        if text == "?" and self.texts[at + 1][0] == "`":
            self.at += 1
            template, self.end = self.criterion_text(self.at)
            return tree.CriterionPattern.at(start, self.end, template)
        if text != "error" or self.texts[at + 1] != "(":
            raise self.bad_pattern(at)
        self.stack = [(0, Bracket(CALL, at + 1, self.starts[at + 1]))]  # for errors
        at = self.after_line_ends(at + 2)
        name = kind = None
        if self.texts[at] == "kind" and self.texts[equals := self.after_line_ends(at + 1)] == "=":
            at = self.after_line_ends(equals + 1)
            if self.kind(at) != STRING:
                raise self.bad_pattern(at)
            kind = self.string(at)
            self.at = at + 1
        elif self.texts[at] == "_":
            self.at = at + 1
        elif self.kind(at) == WORD:
            name = self.name(at)
        else:
            raise self.bad_pattern(at)
        self.at = self.after_line_ends(self.at)
        if self.texts[self.at] != ")":
            raise self.bad_pattern(self.at)
        self.stack = []
        self.at += 1
        return tree.ErrorPattern.at(start, self.tokens.end(self.at - 1), name, kind)

    def bad_pattern(self, at: int) -> Trouble:
        """Report the token at `at`, which cannot be in a pattern."""
        return self.trouble(at, f"not a pattern: found {self.described(at)}", word_hints.PATTERNS, "V050")

    def read_choose(self, start: int) -> None:
        value = self.next_value()
        example = "write ``choose value by ?`criterion` as name:``"
        self.word("by", example)
        criterion = self.criterion()
        self.word("as", example)
        target = self.name(self.at)
        self.body(Compound("choose", start, tree.Choose.at, value, criterion, target))

    def read_option(self, start: int) -> None:
        label = self.string_node(self.at + 1, "a label in quotes", 'write `option "label":`')
        self.body(Compound("option", start, tree.Option.at, label))

    def read_constrain(self, start: int) -> None:
        at = self.at
        if self.texts[at + 1] == "it":
            self.report("V060", *self.span(at + 1), "`it` cannot be constrained", "assign it to a name first: `x = it`")
            self.at = at + 2
            target = Name.at(*self.span(at + 1), "it")
        else:
            target = self.name(at + 1)
        bounds = self.keywords(f"constrain {target.id}():")
        self.body(Compound("constrain", start, tree.Constrain.at, target, bounds))

    def report_misplaced(self, start: int) -> None:
        """Report a `case`, `option` or `require` outside of its statement."""
        word = self.texts[self.at]
        owner = PART_OWNERS[word]
        hint = f"it belongs in the body of a `{owner}`"
        if word == "require" and self.kind(self.at + 1) in (STRING, None):
            hint = word_hints.word("require") or hint
        raise self.trouble(self.at, f"`{word}` without `{owner}`", hint)


HANDLERS: Final[dict[str, Callable[[StatementParser, int], Any]]] = {
    word: getattr(StatementParser, f"read_{word}") for word in RESERVED if hasattr(StatementParser, f"read_{word}")
}
"""The parser method for a statement, a clause or a part, by its first word."""
PART_HANDLERS: Final = {word: HANDLERS.pop(word) for word in PART_OWNERS}
"""The parser methods for the parts of `match`, `choose` and `constrain`."""
HANDLERS.update(dict.fromkeys(PART_HANDLERS, StatementParser.report_misplaced))
