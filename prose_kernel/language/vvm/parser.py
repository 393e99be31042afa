"""Tokens to statements (docs/reference/vvm.md 2): lines, blocks, and the words that statements begin with.

Blocks stand on a stack of their own. A line's column tells which of them end before it. A statement of several
clauses stays open after a body until the next line shows whether it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from prose_kernel.language.diagnostics import in_order
from prose_kernel.language.nodes import maker, uncollected
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.brackets import KEYWORDS, Bracket, Trouble
from prose_kernel.language.vvm.diagnostics import Finding
from prose_kernel.language.vvm.expressions import ExpressionParser
from prose_kernel.language.vvm.keywords import CLAUSES, RESERVED
from prose_kernel.language.vvm.lexer import KINDS, LINE_STARTS, STRING, WORD
from prose_kernel.language.vvm.tree import Assign, Body, ExpressionStatement, Name, Program, Template

_assign = maker(Assign)
_expression = maker(ExpressionStatement)
_skill_import = maker(tree.SkillImport)
_module_import = maker(tree.ModuleImport)
_export = maker(tree.Export)
_export_pack = maker(tree.ExportPack)
_agent = maker(tree.AgentDeclaration)
_return = maker(tree.Return)
_raise = maker(tree.Raise)
_string = maker(tree.String)
_name = maker(Name)
_arm = maker(tree.Arm)
_error_pattern = maker(tree.ErrorPattern)
_require = maker(tree.Require)
_criterion_pattern = maker(tree.CriterionPattern)
_PARTS: Final = {"match": "case", "choose": "option", "constrain": "require"}
_COMMENT: Final = re.compile(r"^([ \t]*+)#", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A program as far as it could be read, and what was found.

    `incomplete` tells that the text stops in the middle: something is unclosed (`unclosed` says what: a bracket, a
    string, a template), or a header waits for its body. `ends_indented` tells that its last line stands in a block.
    """

    program: Program
    diagnostics: tuple[Finding, ...]
    incomplete: bool = False
    unclosed: str | None = None
    ends_indented: bool = False


def parse(source: Source) -> Parsed:
    """Read a program. Never raises: whatever the text holds, there is a tree and a list of diagnostics."""
    with uncollected():
        return Parser(source).parse()


class Compound:
    """A statement with a body, while it is being read. `make` is called with start, end, all of `head`, the body."""

    clauses: frozenset[str] = frozenset()
    """The words with which it may go on after the body that was read last."""

    def __init__(self, word: str, start: int, make: Callable[..., Any], *head: Any) -> None:
        self.word = word
        self.start = start
        self.make = make
        self.head = head
        self.body: Body = ()
        self.end = start

    def close(self, body: Body, end: int) -> None:
        """Its body ends."""
        self.body = body
        self.end = end

    def node(self) -> Any:
        return self.make(self.start, self.end, *self.head, self.body)


class _If(Compound):
    def __init__(self, start: int, condition: Any) -> None:
        super().__init__("if", start, maker(tree.If))
        self.arms: list[tree.Arm] = []
        self.otherwise: Body | None = None
        self.clauses = frozenset({"elif", "else"})
        self.begin("if", start, condition)

    def begin(self, word: str, start: int, condition: Any) -> None:
        self.word, self.clause, self.condition = word, start, condition
        if word == "else":
            self.clauses = frozenset()

    def close(self, body: Body, end: int) -> None:
        self.end = end
        if self.word == "else":
            self.otherwise = body
        else:
            self.arms.append(_arm(self.clause, end, self.condition, body))

    def node(self) -> Any:
        return self.make(self.start, self.end, tuple(self.arms), self.otherwise)


class _Try(Compound):
    def __init__(self, start: int) -> None:
        super().__init__("try", start, maker(tree.Try))
        self.handler: tree.Handler | None = None
        self.final: Body | None = None
        self.clauses = frozenset({"except", "finally"})

    def begin(self, word: str, start: int, target: Any) -> None:
        self.word, self.clause, self.target = word, start, target
        self.clauses = frozenset({"finally"}) if word == "except" else frozenset()

    def close(self, body: Body, end: int) -> None:
        self.end = end
        if self.word == "try":
            self.body = body
        elif self.word == "except":
            self.handler = tree.Handler(self.target, body, span=(self.clause, end))  # type: ignore[arg-type]
        else:
            self.final = body

    def node(self) -> Any:
        return self.make(self.start, self.end, self.body, self.handler, self.final)


class Block:
    """A body that is being read: the column of its lines, its statements, the statement that it belongs to.

    `only` is the word that all its statements begin with, where that is so; `open` the last statement, if it may go on.
    """

    __slots__ = ("column", "items", "only", "open", "owner")

    def __init__(self, column: int, owner: Compound | None, items: list[Any] | None = None) -> None:
        self.column = column
        self.owner = owner
        self.items: list[Any] = [] if items is None else items
        self.only = _PARTS.get(owner.word) if owner is not None else None
        self.open: Compound | None = None


class Parser(ExpressionParser):
    """One parse."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.text = self.tokens.text
        self.blocks = [Block(0, None)]
        self.header: Compound | None = None  # its body comes next
        self.tabs = "\t" in self.text

    def parse(self) -> Parsed:
        self.read()
        ends_indented = len(self.blocks) > 1
        self.close_all()
        last = self.tokens.last
        items = tuple(self.blocks[0].items)
        program = Program(items, self.tokens.comments(), span=(0, self.span(last)[0]))  # type: ignore[arg-type]
        return Parsed(
            program,
            tuple(in_order(self.findings.found)),
            False,
            self.unclosed,
            ends_indented,
        )

    # ---- lines

    def read(self) -> None:
        """Read all statements."""
        texts, starts, last, blocks = self.texts, self.starts, self.tokens.last, self.blocks
        kind_of, handlers, name_of, assign_of = KINDS.get, _HANDLERS.get, Name, Assign
        expression: Any = self.expression
        block = blocks[-1]
        line = self.at
        while line + 1 < last:
            first = line + 1
            column = starts[first] - starts[line] - len(texts[line])
            if column != block.column or self.header is not None or self.tabs:
                block = self.layout(line, column)
            word = texts[first]
            self.at = first
            if block.open is not None and word not in CLAUSES:
                block.items.append(block.open.node())
                block.open = None
            try:
                if texts[first + 1] == "=" and kind_of(word[0]) == WORD and word not in RESERVED and block.only is None:
                    start = starts[first]
                    name: Any = name_of(word, span=(start, start + len(word)))  # type: ignore[arg-type]
                    self.at = first + 2
                    value = expression()
                    block.items.append(assign_of(name, value, span=(start, self.end)))  # type: ignore[arg-type]
                else:
                    handler = handlers(word)
                    if block.only is not None:
                        self.part(block, word)
                    elif handler is None:
                        value = expression()
                        block.items.append(_expression(starts[first], self.end, value))
                    else:
                        made = handler(self)
                        if made is not None:
                            block.items.append(made)
                line = self.at
                if texts[line][0] not in LINE_STARTS:
                    raise self.behind_statement(line)
            except Trouble as trouble:
                line = self.recover(first, trouble)
                block = blocks[-1]
        self.at = line

    def layout(self, line: int, column: int) -> Block:
        """End and begin the blocks that the line behind the token at `line` ends and begins; the block of the line."""
        blocks = self.blocks
        header = self.header
        if header is not None:
            self.header = None
            if column > blocks[-1].column:
                blocks.append(Block(column, header))
                return blocks[-1]
            self.without_body(header, line)
        elif column > blocks[-1].column:
            self.report("E002", self.starts[line + 1], self.starts[line + 1], "unexpected indentation")
            blocks.append(Block(column, None, blocks[-1].items))
        end = self.tokens.end(line - 1) if line else 0
        while column < blocks[-1].column:
            self.close_block(end)
        if column > blocks[-1].column:
            self.report("E002", self.starts[line + 1], self.starts[line + 1], "this fits no block above")
            blocks.append(Block(column, None, blocks[-1].items))
        return blocks[-1]

    def without_body(self, header: Compound, line: int) -> None:
        """Nothing deeper than a header follows it: comments make an empty body, else there is none."""
        self.attach(header, (), self.tokens.end(line - 1))
        comments = _COMMENT.finditer(self.text, self.starts[line], self.tokens.end(line))
        if not any(len(comment[1]) > self.blocks[-1].column for comment in comments):
            self.report("E002", header.start, header.start, f"the body of `{header.word}` is missing")

    def close_block(self, end: int) -> None:
        block = self.blocks.pop()
        if block.open is not None:
            block.items.append(block.open.node())
        if block.owner is not None:
            self.attach(block.owner, tuple(block.items), end)

    def attach(self, compound: Compound, body: Body, end: int) -> None:
        """Give a statement its body; it stays open if it may go on."""
        compound.close(body, end)
        block = self.blocks[-1]
        if compound.clauses:
            block.open = compound
        else:
            block.items.append(compound.node())

    def close_all(self) -> None:
        """The text ends."""
        end = self.span(self.tokens.last)[0]
        if self.header is not None:
            header, self.header = self.header, None
            self.without_body(header, self.tokens.last - 1)
        while len(self.blocks) > 1:
            self.close_block(end)
        block = self.blocks[0]
        if block.open is not None:
            block.items.append(block.open.node())
            block.open = None

    def behind_statement(self, at: int) -> Trouble:
        return self.wrong(at, "the end of the line")

    def recover(self, first: int, trouble: Trouble) -> int:
        """The statement that begins at `first` cannot be read: the index of the line's end behind it."""
        at = trouble.at
        while at < self.tokens.last and self.texts[at][0] not in LINE_STARTS:
            at += 1
        return min(at, self.tokens.last)

    # ---- what statements are made of

    def name(self, at: int, what: str = "a name") -> Name:
        """The name at `at`."""
        word = self.texts[at]
        if KINDS.get(word[0]) != WORD:
            raise self.wrong(at, what)
        start, end = self.starts[at], self.tokens.end(at)
        if word in RESERVED:
            self.report("E010", start, end, f"`{word}` is a reserved word, not a name")
        self.at = at + 1
        return _name(start, end, word)

    def string_node(self, at: int, what: str) -> tree.String:
        if KINDS.get(self.texts[at][0]) != STRING:
            raise self.wrong(at, what)
        text = self.string(at)
        self.at = at + 1
        self.end = self.tokens.end(at)
        return _string(self.starts[at], self.end, text)

    def word(self, word: str) -> None:
        """The next token must be `word`."""
        if self.texts[self.at] != word:
            raise self.wrong(self.at, f"`{word}`")
        self.at += 1

    def keywords(self) -> tuple[tree.Keyword, ...]:
        """`(name=value, …)`."""
        at = self.at
        self.word("(")
        found: tuple[tree.Keyword, ...] = self.expression(Bracket(KEYWORDS, at, self.starts[at]))
        return found

    def criterion(self) -> Template:
        """``?`text` ``."""
        self.word("?")
        task, self.end = self.criterion_text(self.at)
        return task

    def body(self, compound: Compound) -> None:
        """`:` and the end of the line; the body comes next."""
        self.word(":")
        self.header = compound
        if self.texts[self.at][0] not in LINE_STARTS:
            raise self.wrong(self.at, "the end of the line")

    def part(self, block: Block, word: str) -> None:
        """A line where only `case`, `option` or `require` may stand."""
        if word != block.only:
            raise self.wrong(self.at, f"`{block.only}`")
        made = _PART_HANDLERS[word](self)
        if made is not None:
            block.items.append(made)

    # ---- simple statements

    def import_(self) -> Any:
        start = self.starts[self.at]
        name = self.string_node(self.at + 1, "the name of a skill in quotes")
        self.word("from")
        source = self.string_node(self.at, "where the skill comes from, in quotes")
        return _skill_import(start, self.end, name, source)

    def from_(self) -> Any:
        start = self.starts[self.at]
        path = self.string_node(self.at + 1, "the path of a module in quotes")
        self.word("import")
        agent = self.texts[self.at] == "@"
        name = self.name(self.at + agent)
        alias = None
        if self.texts[self.at] == "as":
            alias = self.name(self.at + 1)
        return _module_import(start, (alias or name).span.end, path, name, agent, alias)

    def export(self) -> Any:
        at = self.at
        start = self.starts[at]
        if self.texts[at + 1] == "pack" and self.texts[at + 2] == "(":
            self.at = at + 1
            value = self.expression()
            if isinstance(value, tree.Call) and isinstance(value.callee, Name):
                return _export_pack(start, self.end, value.arguments, value.keywords)
            raise self.wrong(at + 1, "a name")
        agent = self.texts[at + 1] == "@"
        name = self.name(at + 1 + agent)
        return _export(start, self.tokens.end(self.at - 1), name, agent)

    def agent(self) -> Any:
        start = self.starts[self.at]
        name = self.name(self.at + 1)
        keywords = self.keywords()
        return _agent(start, self.end, name, keywords)

    def return_(self) -> Any:
        start = self.starts[self.at]
        self.at += 1
        if self.texts[self.at][0] in LINE_STARTS:
            return _return(start, start + 6, None)
        value = self.expression()
        return _return(start, self.end, value)

    def raise_(self) -> Any:
        start = self.starts[self.at]
        self.at += 1
        if self.texts[self.at][0] in LINE_STARTS:
            return _raise(start, start + 5, None)
        message = self.string_node(self.at, "a string")
        return _raise(start, self.end, message)

    def pass_(self) -> Any:
        self.at += 1
        start = self.starts[self.at - 1]
        return tree.Pass(span=(start, start + 4))  # type: ignore[arg-type]

    def break_(self) -> Any:
        self.at += 1
        start = self.starts[self.at - 1]
        return tree.Break(span=(start, start + 5))  # type: ignore[arg-type]

    def continue_(self) -> Any:
        self.at += 1
        start = self.starts[self.at - 1]
        return tree.Continue(span=(start, start + 8))  # type: ignore[arg-type]

    def require(self) -> Any:
        start = self.starts[self.at]
        self.at += 1
        criterion = self.criterion()
        return _require(start, self.end, criterion)

    # ---- statements with a body

    def def_(self) -> None:
        start = self.starts[self.at]
        name = self.name(self.at + 1)
        self.word("(")
        parameters = []
        while True:
            self.at = self.behind_lines(self.at)
            if self.texts[self.at] == ")":
                break
            parameters.append(self.name(self.at))
            self.at = self.behind_lines(self.at)
            if self.texts[self.at] == ",":
                self.at += 1
            elif self.texts[self.at] != ")":
                raise self.wrong(self.at, "`,` or `)`")
        self.at += 1
        self.body(Compound("def", start, _def, name, tuple(parameters)))

    def if_(self) -> None:
        start = self.starts[self.at]
        self.at += 1
        condition = self.expression()
        self.body(_If(start, condition))

    def clause(self) -> Any:
        """The statement above that goes on with the next word."""
        block = self.blocks[-1]
        word = self.texts[self.at]
        if block.open is None or word not in block.open.clauses:
            raise self.wrong(self.at, "a statement")
        return block.open

    def elif_(self) -> None:
        owner = self.clause()
        start = self.starts[self.at]
        self.at += 1
        condition = self.expression()
        self.go_on(owner, "elif", start, condition)

    def else_(self) -> None:
        owner = self.clause()
        start = self.starts[self.at]
        self.at += 1
        self.go_on(owner, "else", start, None)

    def go_on(self, owner: Any, word: str, start: int, head: Any) -> None:
        owner.begin(word, start, head)
        self.blocks[-1].open = None
        self.body(owner)

    def while_(self) -> None:
        start = self.starts[self.at]
        self.at += 1
        condition = self.expression()
        self.body(Compound("while", start, _while, condition))

    def for_(self) -> None:
        start = self.starts[self.at]
        target = self.name(self.at + 1)
        self.word("in")
        items = self.expression()
        self.body(Compound("for", start, _for, target, items))

    def try_(self) -> None:
        start = self.starts[self.at]
        self.at += 1
        self.body(_Try(start))

    def except_(self) -> None:
        owner = self.clause()
        start = self.starts[self.at]
        self.at += 1
        self.word("as")
        target = self.name(self.at)
        self.go_on(owner, "except", start, target)

    def finally_(self) -> None:
        owner = self.clause()
        start = self.starts[self.at]
        self.at += 1
        self.go_on(owner, "finally", start, None)

    def with_(self) -> None:
        start = self.starts[self.at]
        self.at += 1
        self.word("input")
        value = self.expression()
        self.body(Compound("with", start, _with_input, value))

    def match(self) -> None:
        start = self.starts[self.at]
        self.at += 1
        value = self.expression()
        self.body(Compound("match", start, _match, value))

    def case(self) -> None:
        start = self.starts[self.at]
        self.at += 1
        pattern = self.pattern()
        self.body(Compound("case", start, _case, pattern))

    def pattern(self) -> Any:
        at = self.at
        text = self.texts[at]
        start = self.starts[at]
        if text == "_":
            self.at += 1
            return tree.AnyPattern(span=(start, start + 1))  # type: ignore[arg-type]
        if text == "?":
            template = self.criterion()
            return _criterion_pattern(start, self.end, template)
        self.word("error")
        self.word("(")
        at = self.at = self.behind_lines(self.at)
        name = kind = None
        if self.texts[at] == "kind" and self.texts[at + 1] == "=":
            kind = self.string_node(at + 2, "a string").value
        elif self.texts[at] == "_":
            self.at += 1
        else:
            name = self.name(at)
        self.at = self.behind_lines(self.at)
        self.word(")")
        return _error_pattern(start, self.tokens.end(self.at - 1), name, kind)

    def choose(self) -> None:
        start = self.starts[self.at]
        self.at += 1
        value = self.expression()
        self.word("by")
        criterion = self.criterion()
        self.word("as")
        target = self.name(self.at)
        self.body(Compound("choose", start, _choose, value, criterion, target))

    def option(self) -> None:
        start = self.starts[self.at]
        label = self.string_node(self.at + 1, "a label in quotes")
        self.body(Compound("option", start, _option, label))

    def constrain(self) -> None:
        start = self.starts[self.at]
        target = self.name(self.at + 1)
        bounds = self.keywords()
        self.body(Compound("constrain", start, _constrain, target, bounds))


_def = maker(tree.Def)
_while = maker(tree.While)
_for = maker(tree.For)
_with_input = maker(tree.WithInput)
_match = maker(tree.Match)
_case = maker(tree.Case)
_choose = maker(tree.Choose)
_option = maker(tree.Option)
_constrain = maker(tree.Constrain)

_HANDLERS: Final[dict[str, Callable[[Parser], Any]]] = {
    "import": Parser.import_,
    "from": Parser.from_,
    "export": Parser.export,
    "agent": Parser.agent,
    "def": Parser.def_,
    "return": Parser.return_,
    "match": Parser.match,
    "choose": Parser.choose,
    "constrain": Parser.constrain,
    "with": Parser.with_,
    "if": Parser.if_,
    "elif": Parser.elif_,
    "else": Parser.else_,
    "while": Parser.while_,
    "for": Parser.for_,
    "try": Parser.try_,
    "except": Parser.except_,
    "finally": Parser.finally_,
    "raise": Parser.raise_,
    "pass": Parser.pass_,
    "break": Parser.break_,
    "continue": Parser.continue_,
}
_PART_HANDLERS: Final[dict[str, Callable[[Parser], Any]]] = {
    "case": Parser.case,
    "option": Parser.option,
    "require": Parser.require,
}
