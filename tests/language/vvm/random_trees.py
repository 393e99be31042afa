"""Hypothesis strategies for VVM: trees that the grammar can express, and texts with comments anywhere."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable

from choices import Choices, choices
from hypothesis import strategies as st

from prose_kernel.language.vvm import tree as t

NAMES = ("a", "b1", "_", "_y", "item", "pack", "perm", "len", "a_long_name_that_takes_its_room")
MEMBERS = (*NAMES, "error", "from", "it", "with", "kind")
CHARACTERS = 'ab {}"\\\n\t`#?@()é\r\x00'
CONSTANTS: tuple[t.Expression, ...] = (
    t.Unit(),
    t.It(),
    t.Boolean(True),
    t.Boolean(False),
    t.AgentName("a"),
    t.AgentName("from"),
)

ENDS: tuple[t.Statement, ...] = (t.Pass(), t.Break(), t.Continue())


class Trees:
    """Generates trees. `leaves` and `statements` are how many more the current expression and statement may get."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.of, self.many, self.maybe = choices.of, choices.many, choices.maybe
        self.leaves = self.statements = 0

    def program(self) -> t.Program:
        return t.Program(self.many(self.whole_statement, 5))

    # ------------------------------------------------------------ leaves

    def name(self) -> t.Name:
        return t.Name(self.of(NAMES))

    def fragment(self) -> str:
        return "".join(self.many(lambda: self.of(CHARACTERS), 12))

    def string(self) -> t.String:
        return t.String(self.fragment())

    def number(self) -> t.Number:
        size = self.choices.below(4)
        if size == 3:
            (found,) = struct.unpack("d", self.choices.bytes(8))
            return t.Number(math.fmod(abs(found), 1e6) if math.isfinite(found) else 0.5)
        return t.Number(int.from_bytes(self.choices.bytes((1, 2, 12)[size])))

    def template(self) -> t.Template:
        parts: list[str | t.Placeholder] = []
        for part in self.many(self._part, 4):
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif part != "":
                parts.append(part)
        if parts and isinstance(parts[-1], str) and parts[-1].endswith("\\"):
            parts[-1] += "."  # no template can end in a backslash
        return t.Template(tuple(parts))

    def _part(self) -> str | t.Placeholder:
        if self.choices.below(2):
            return t.Placeholder((self.of(NAMES), self.of(MEMBERS))[: self.choices.below(3)])
        return self.fragment().replace("\r", "")  # which has no escape in a template

    def leaf(self) -> t.Expression:
        self.leaves -= 1
        makers: tuple[Callable[[], t.Expression], ...] = (
            *(self.name, self.string, self.number),
            *(lambda: self.of(CONSTANTS), self._predicate),
        )
        return self.of(makers)()

    def _predicate(self) -> t.Predicate:
        return t.Predicate(self.template(), None)

    # ------------------------------------------------------------ expressions

    def expression(self) -> t.Expression:
        self.leaves = 8
        return self.inner()

    def inner(self) -> t.Expression:
        return self.composite() if self.leaves > 1 and self.choices.below(2) else self.leaf()

    def composite(self) -> t.Expression:
        self.leaves -= 1  # what has no members ends, too
        inner, of = self.inner, self.of
        makers: tuple[Callable[[], t.Expression], ...] = (
            lambda: t.List(self.many(inner, 4)),
            lambda: t.Object(self.many(self._pair, 3)),
            lambda: t.Not(inner()),
            lambda: t.Logical(of(("and", "or")), inner(), inner()),
            lambda: t.Compare(of(("==", "!=", "<", "<=", ">", ">=")), inner(), inner()),
            lambda: t.Sum(of(("+", "-")), inner(), inner()),
            lambda: t.Member(inner(), of(MEMBERS)),
            lambda: t.Index(inner(), inner()),
            lambda: t.Call(inner(), self.many(inner, 4), self._keywords()),
            lambda: t.Predicate(self.template(), inner()),
            lambda: t.With(inner(), self._keywords()),
            self._reference,
            lambda: t.AgentCall(self._reference(), self.template(), self.maybe(inner), self._keywords()),
        )
        return self.of(makers)()

    def _pair(self) -> t.Pair:
        return t.Pair(self.of((lambda: self.of(MEMBERS), self.fragment))(), self.inner())

    def _keywords(self) -> tuple[t.Keyword, ...]:
        return self.many(lambda: t.Keyword(self.of(MEMBERS), self.inner()), 3)

    def _reference(self) -> t.Expression:
        agent = t.AgentName(self.of(MEMBERS)) if self.choices.below(2) else t.InlineAgent(self._keywords())
        return t.With(agent, self._keywords()) if self.choices.below(2) else agent

    def keywords(self) -> tuple[t.Keyword, ...]:
        return self.many(lambda: t.Keyword(self.of(MEMBERS), self.expression()), 3)

    # ------------------------------------------------------------ statements

    def whole_statement(self) -> t.Statement:
        self.statements = 5
        return self.statement()

    def statement(self) -> t.Statement:
        return self.compound() if self.statements > 1 and self.choices.below(2) else self.simple()

    def simple(self) -> t.Statement:
        self.statements -= 1
        name, string, maybe = self.name, self.string, self.maybe
        makers: tuple[Callable[[], t.Statement], ...] = (
            lambda: self.of(ENDS),
            lambda: t.Assign(name(), self.expression()),
            lambda: t.ExpressionStatement(self.expression()),
            lambda: t.Return(maybe(self.expression)),
            lambda: t.Raise(maybe(string)),
            lambda: t.SkillImport(string(), string()),
            lambda: t.ModuleImport(string(), name(), self.of((False, True)), maybe(name)),
            lambda: t.Export(name(), self.of((False, True))),
            lambda: t.ExportPack(self.many(self.expression, 2), self.keywords()),
            lambda: t.AgentDeclaration(name(), self.keywords()),
        )
        return self.of(makers)()

    def body(self) -> tuple[t.Statement, ...]:
        return self.many(self.statement, 3, 1)

    def compound(self) -> t.Statement:
        self.statements -= 1
        name, body, many, maybe = self.name, self.body, self.many, self.maybe
        makers: tuple[Callable[[], t.Statement], ...] = (
            lambda: t.If(many(lambda: t.Arm(self.expression(), body()), 2, 1), maybe(body)),
            lambda: t.While(self.expression(), body()),
            lambda: t.For(name(), self.expression(), body()),
            lambda: t.WithInput(self.expression(), body()),
            lambda: t.Def(name(), many(name, 3), body()),
            lambda: t.Match(self.expression(), many(lambda: t.Case(self._pattern(), body()), 2, 1)),
            self._choose,
            lambda: t.Constrain(name(), self.keywords(), many(lambda: t.Require(self.template()), 4, 1)),
            lambda: t.Try(body(), t.Handler(name(), body()), maybe(body)),
            lambda: t.Try(body(), None, body()),
        )
        return self.of(makers)()

    def _choose(self) -> t.Choose:
        options = self.many(lambda: t.Option(self.string(), self.body()), 2, 1)
        return t.Choose(self.expression(), self.template(), self.name(), options)

    def _pattern(self) -> t.Pattern:
        makers: tuple[Callable[[], t.Pattern], ...] = (
            t.AnyPattern,
            lambda: t.ErrorPattern(self.maybe(lambda: t.Name(self.of(("a", "b1", "_y")))), None),
            lambda: t.ErrorPattern(None, self.fragment()),
            lambda: t.CriterionPattern(self.template()),
        )
        return self.of(makers)()


expression = choices(200).map(Trees).map(Trees.expression)
programs = choices(1000).map(Trees).map(Trees.program)

_TOKEN = re.compile(r'"""(?:\\.|[^"\\]|"(?!""))*"""|"(?:\\.|[^"\\])*"|`(?:\\`|[^`])*`|[\w.]+|[=<>!]=|\s+|.', re.S)


def commented(text: str) -> st.SearchStrategy[str]:
    """Return a program's text with comments and blank lines wherever they are allowed."""
    return choices(2000).map(lambda chosen: _commented(text, chosen))


def _commented(text: str, chosen: Choices) -> str:
    """Inside of brackets there are two tokens at least between two comments: nearer ones may be printed in one place, and
    then the second one gets its own line."""
    pieces: list[str] = []
    depth, since, number = 0, 0, 0
    indent = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if depth == 0 and "\n" in token and token.isspace():
            indent = token.rpartition("\n")[2]
            if chosen.below(2):
                number += 1
                pieces.append(chosen.of(["#", " # ", "  #"]) + f"line {number}")
            pieces.append("\n")
            while chosen.below(4) == 3:
                number += 1
                column = " " * chosen.below(len(indent) + 5)
                pieces.append(chosen.of(["\n", f"{column}# alone {number}\n"]))
            pieces.append(indent)
            continue
        pieces.append(token)
        depth += (token in "([{") - (token in ")]}")
        since += not token.isspace()
        if depth and since > 4 and not token.isspace() and token not in "@?" and chosen.below(3) == 2:
            number, since = number + 1, 0
            pieces.append(chosen.of([f" # in {number}\n", f"\n\n   # own {number}\n"]))
    return "".join(pieces)
