"""Parses statements without a body (docs/reference/vvm.md 2), and the parts that all statements share."""

from __future__ import annotations

from typing import Any, Final

from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree, word_hints
from prose_kernel.language.vvm.expressions import ExpressionParser
from prose_kernel.language.vvm.lexer import LINE_STARTS, STRING, WORD
from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.parser_state import KEYWORDS, NESTING_LIMIT, Bracket, Compound, OpenBody, Trouble
from prose_kernel.language.vvm.tree import Name, Template

_ONE_NAME: Final = "write a separate `import` for each name"
_ONE_WORD: Final[dict[str, type[tree.Node]]] = {"pass": tree.Pass, "break": tree.Break, "continue": tree.Continue}


class SimpleStatementParser(ExpressionParser):
    """Parses one statement; `header` is the statement whose body comes next, if any."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.header: Compound | None = None
        self.is_inline = False  # the body begins on its header's line

    # ---- parts of statements

    def next_value(self) -> Any:
        """Return the expression after the next token."""
        self.at += 1
        return self.expression()

    def name(self, at: int, expected: str = "a name") -> Name:
        """Return the name at `at`; `expected` describes it in errors."""
        word = self.texts[at]
        if self.kind(at) != WORD:
            raise self.unexpected(at, expected, "a name is written without quotes" if self.kind(at) == STRING else None)
        start, end = self.starts[at], self.tokens.end(at)
        if word in RESERVED:
            self.reserved_name(at)
        self.at = at + 1
        if self.texts[self.at] == "-" and self.starts[self.at] == end and self.kind(self.at + 1) == WORD:
            hyphenated = f"{word}-{self.texts[self.at + 1]}"
            hint = f"write `{hyphenated.replace('-', '_')}`"
            raise self.trouble(self.at, f"`{hyphenated}` is not a name", hint)
        return Name.at(start, end, word)

    def reserved_name(self, at: int) -> None:
        """Report a reserved word at `at`, in place of a name."""
        word = self.texts[at]
        hint = "`with input value:` gives `it` a value" if word == "it" else f"take another name, such as `{word}_`"
        self.report("V010", *self.span(at), f"`{word}` is a reserved word, not a name", hint)

    def string_node(self, at: int, expected: str, hint: str | None = None) -> tree.String:
        """Return the string at `at`; `expected` describes it in errors."""
        if self.kind(at) != STRING:
            text = self.texts[at]
            if text[0] == "'" and len(text) > 1 and text[-1] == "'":
                value, start, end = self.bad_operand(at)
                self.end = end
                return tree.String.at(start, end, value.value)
            raise self.unexpected(at, expected, hint)
        content = self.string(at)
        self.at = at + 1
        self.end = self.tokens.end(at)
        return tree.String.at(self.starts[at], self.end, content)

    def word(self, word: str, hint: str | None = None) -> None:
        """Read the next token, which must be `word`."""
        if self.texts[self.at] != word:
            at, expected = self.at, f"`{word}`"
            raise self.after_value(at, expected) if hint is None else self.unexpected(at, expected, hint)
        self.at += 1

    def keywords(self, example: str) -> tuple[tree.Keyword, ...]:
        """Read `(name=value, …)`."""
        at = self.at
        self.word("(", f"write `{example}`")
        found: tuple[tree.Keyword, ...] = self.expression(Bracket(KEYWORDS, at, self.starts[at]))
        return found

    def criterion(self) -> Template:
        """Read ``?`text` ``."""
        at = self.at
        if self.texts[at][0] == "`":
            self.report_at(at, "a criterion begins with `?`", "write `?` before the backtick")
        else:
            self.word("?", "a criterion is written ``?`text` ``")
        task, self.end = self.criterion_text(self.at)
        if self.texts[self.at] == "(":
            raise self.trouble(self.at, "this criterion takes no input: it is about `it`", "leave the parentheses out")
        return task

    def body(self, compound: Compound, word: str = "") -> None:
        """Read `:` and the end of the line, before the body. `word` is the first word of the head."""
        at = self.at
        word = word or compound.word
        if self.texts[at] != ":":
            if self.texts[at][0] not in LINE_STARTS or at <= self.quiet_until:
                raise self.after_head(at, word)
            self.report_at(at, "expected `:`, found the end of the line", "write `:` at the end of the line")
        else:
            self.at = at + 1
        self.header = compound
        if len(self.blocks) > NESTING_LIMIT and not self.is_deep:
            self.is_deep = True  # its body is still read, so that the lines below cause no further errors
            self.too_deep(self.first)
        if self.texts[self.at][0] not in LINE_STARTS:
            self._inline(compound, word)

    def _inline(self, compound: Compound, word: str) -> None:
        """Read a body on the line of its header."""
        at = self.at
        if self.texts[at] == "{" and self.is_end(at + 1):
            self.report_at(at, "a body has no braces", "write `:` and indent the body")
            self.at = at + 1
            return
        message = f"the body of `{word}` is on the same line"
        if at > self.quiet_until:
            self.report_at(at, message, "begin it on the next line, indented")
            self.quiet_until = at
            while not self.is_end(self.quiet_until):
                self.quiet_until += 1
        block = OpenBody(self.blocks[-1].column + 1, compound)
        block.is_inline = True
        self.blocks.append(block)
        self.header = None
        self.is_inline = True

    def after_head(self, at: int, word: str) -> Trouble:
        """Report that no `:` follows the head of a statement."""
        text = self.texts[at]
        if text == "=":
            return self.unexpected(at, "`:`", "write `==` to compare")
        if text == "->":
            return self.trouble(at, "a function declares no type", "write `:` after the parentheses")
        if text == "as" and word == "with":
            return self.unexpected(at, "`:`", "the value is `it` in the body")
        if text == "{":
            return self.unexpected(at, "`:`", "write `:` and indent the body; there are no braces around it")
        if text == "then":
            return self.unexpected(at, "`:`", word_hints.word("then"))
        return self.after_value(at, "`:`")

    # ---- simple statements

    def read_import(self, start: int) -> Any:
        hint = 'skills: `import "name" from "source"`; modules: `from "path" import name`'
        name = self.string_node(self.at + 1, "the name of a skill in quotes", hint)
        self.word("from", 'write `import "name" from "source"`')
        source = self.string_node(self.at, "where the skill comes from, in quotes", hint)
        return tree.SkillImport.at(start, self.end, name, source)

    def read_from(self, start: int) -> Any:
        path = self.string_node(self.at + 1, "the path of a module in quotes", 'write `from "./file.vvm" import name`')
        self.word("import", 'write `from "path" import name`')
        if self.texts[self.at] == "*":
            raise self.trouble(self.at, "one `import` brings one name", _ONE_NAME)
        agent = self.texts[self.at] == "@"
        name = self.name(self.at + agent)
        alias = None
        if self.texts[self.at] == "as":
            at = self.at + 1
            if self.texts[at] == "@":
                self.report_at(at, "expected a name, found `@`", "leave the `@` out after `as`")
                at += 1
            alias = self.name(at)
        if self.texts[self.at] == ",":
            raise self.trouble(self.at, "one `import` brings one name", _ONE_NAME)
        return tree.ModuleImport.at(start, (alias or name).span.end, path, name, agent, alias)

    def read_export(self, start: int) -> Any:
        at = self.at
        if self.texts[at + 1] == "pack" and self.texts[at + 2] == "(":
            self.at = at + 1
            value = self.expression()
            if isinstance(value, tree.Call) and value.callee.span.end == self.tokens.end(at + 1):
                return tree.ExportPack.at(start, self.end, value.arguments, value.keywords)
            raise self.bad_export(at + 1)
        agent = self.texts[at + 1] == "@"
        if self.kind(at + 1 + agent) != WORD:
            raise self.bad_export(at + 1)
        name = self.name(at + 1 + agent)
        if not self.is_end(self.at):
            raise self.bad_export(self.at)
        return tree.Export.at(start, self.tokens.end(self.at - 1), name, agent)

    def bad_export(self, at: int) -> Trouble:
        text = self.texts[at]
        if text == ",":
            return self.trouble(at, "one `export` takes one name", "write `export pack(a, b)`, or a line for each name")
        if text == "=":
            return self.trouble(at, "an `export` assigns nothing", "assign before: `name = value`, then `export name`")
        if self.is_end(at):
            return self.unexpected(at, "a name")
        return self.trouble(at, "only names can be exported", "assign before: `name = value`, then `export name`")

    def read_agent(self, start: int) -> Any:
        if self.texts[self.at + 1] == "@":
            raise self.unexpected(self.at + 1, "a name", "leave the `@` out where an agent is declared")
        name = self.name(self.at + 1)
        keywords = self.keywords(f'agent {name.id}(model="…", prompt="…")')
        if self.texts[self.at] == ":":
            raise self.trouble(self.at, "an agent has no body", "write everything inside the parentheses")
        return tree.AgentDeclaration.at(start, self.end, name, keywords)

    def read_return(self, start: int) -> Any:
        self.at += 1
        if self.is_end(self.at):
            return tree.Return.at(start, start + 6, None)
        value = self.expression()
        return tree.Return.at(start, self.end, value)

    def read_raise(self, start: int) -> Any:
        self.at += 1
        if self.is_end(self.at):
            return tree.Raise.at(start, start + 5, None)
        hint = "a message is written out; to hand an error value on, write `return`"
        called = self.texts[self.at : self.at + 4]
        if called[1::2] == ["(", ")"] and self.kind(self.at + 2) == STRING:
            hint = f"there are no types of errors; write `raise {word_hints.printable(called[2])}`"
        message = self.string_node(self.at, "a string after `raise`", hint)
        if not self.is_end(self.at):
            raise self.unexpected(self.at, "the end of the line", hint)
        return tree.Raise.at(start, self.end, message)

    def read_pass(self, start: int) -> Any:
        word = self.texts[self.at]
        self.at += 1
        return _ONE_WORD[word].at(start, start + len(word))

    read_break = read_continue = read_pass

    def read_require(self, start: int) -> Any:
        self.at += 1
        criterion = self.criterion()
        return tree.Require.at(start, self.end, criterion)
