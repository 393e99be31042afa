"""The tree of a VVM program: frozen structs with spans (docs/reference/vvm.md 2).

Two trees are equal if they mean the same program: comparison ignores spans and spelling. Every node for `expr` in the
grammar is an `Expression`; a statement that is only an expression is an `ExpressionStatement`. Comments are stored next
to the tree, in source order, for the formatter.
"""

from __future__ import annotations

from typing import Literal

from prose_kernel.language.nodes import NOWHERE as NOWHERE
from prose_kernel.language.nodes import Node as Node


class Expression(Node, frozen=True):
    """Base of all expressions."""


class Statement(Node, frozen=True):
    """Base of all statements."""


class Pattern(Node, frozen=True):
    """Base of the patterns of a `case`."""


Body = tuple[Statement, ...]

# ---------------------------------------------------------------- plain expressions


class Name(Expression, frozen=True, gc=False):
    """An identifier where its place matters; as an expression, a read of a variable (4.2)."""

    id: str


class Unit(Expression, frozen=True, gc=False):
    """`()`."""


class It(Expression, frozen=True, gc=False):
    """`it` (4.3)."""


class Boolean(Expression, frozen=True, gc=False):
    value: bool


class Number(Expression, frozen=True, gc=False):
    value: int | float


class String(Expression, frozen=True, gc=False):
    """`"…"` or `\"""…\"""` (1.5); `value` is its text without escapes."""

    value: str


class List(Expression, frozen=True):
    elements: tuple[Expression, ...]


class Pair(Node, frozen=True):
    """`key: value` in an object. Its span begins at the key."""

    key: str
    value: Expression


class Object(Expression, frozen=True):
    pairs: tuple[Pair, ...]


class Not(Expression, frozen=True):
    value: Expression


class Logical(Expression, frozen=True):
    operator: Literal["and", "or"]
    left: Expression
    right: Expression


class Compare(Expression, frozen=True):
    operator: Literal["==", "!=", "<", "<=", ">", ">="]
    left: Expression
    right: Expression


class Sum(Expression, frozen=True):
    operator: Literal["+", "-"]
    left: Expression
    right: Expression


class Member(Expression, frozen=True):
    """`value.name` (3.5)."""

    value: Expression
    name: str


class Index(Expression, frozen=True):
    """`value[index]` (3.5)."""

    value: Expression
    index: Expression


class Keyword(Node, frozen=True):
    """`name=value` in a call, an agent or the bounds of `constrain`. Its span begins at the name."""

    name: str
    value: Expression


class Call(Expression, frozen=True):
    """`callee(arguments, keywords)` (4.12)."""

    callee: Expression
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...]


# ---------------------------------------------------------------- templates, judgements, agents


class Placeholder(Node, frozen=True, gc=False):
    """`{name.field}` in a template; the path of `{}`, the primary input, is empty (1.6)."""

    path: tuple[str, ...]


class Template(Node, frozen=True):
    """Text in backticks (1.6): literal parts, without escapes and doubled braces, and placeholders, in order.

    No two literal parts are adjacent and none is empty; the empty template has no parts.
    """

    parts: tuple[str | Placeholder, ...]


class Predicate(Expression, frozen=True):
    """``?`template`(argument)`` (4.6). Without parentheses, or with empty ones, `argument` is None."""

    template: Template
    argument: Expression | None


class AgentName(Expression, frozen=True, gc=False):
    """`@name`: the agent of that name, or the agent in that variable (4.2)."""

    id: str


class InlineAgent(Expression, frozen=True):
    """`@{key=value, …}` (6.3)."""

    keywords: tuple[Keyword, ...]


class With(Expression, frozen=True):
    """`value.with(key=value, …)`: a derived agent (6.3)."""

    agent: Expression
    keywords: tuple[Keyword, ...]


class AgentCall(Expression, frozen=True):
    """``@agent `template`(argument, option=value, …)`` (6.4). Without a positional argument `argument` is None.

    `agent` is an `AgentName` or `InlineAgent`, or a `With` around one.
    """

    agent: Expression
    template: Template
    argument: Expression | None
    options: tuple[Keyword, ...]


# ---------------------------------------------------------------- statements of a module (9, 6.1)


class SkillImport(Statement, frozen=True):
    """`import "name" from "source"` (9.1)."""

    name: String
    source: String


class ModuleImport(Statement, frozen=True):
    """`from "path" import [@]name [as alias]` (9.3)."""

    path: String
    name: Name
    agent: bool
    alias: Name | None

    @property
    def local(self) -> Name:
        """The name in the importing module."""
        return self.alias or self.name


class Export(Statement, frozen=True):
    """`export name`, `export @agent` (9.3)."""

    name: Name
    agent: bool


class ExportPack(Statement, frozen=True):
    """`export pack(a, key=value)`: each key becomes an export (9.3)."""

    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...]


class AgentDeclaration(Statement, frozen=True):
    """`agent name(key=value, …)` (6.1)."""

    name: Name
    keywords: tuple[Keyword, ...]


class Def(Statement, frozen=True):
    """`def name(parameters):` (4.12). The body is empty if it holds only comments, as any body may be."""

    name: Name
    parameters: tuple[Name, ...]
    body: Body


# ---------------------------------------------------------------- simple statements


class Assign(Statement, frozen=True):
    target: Name
    value: Expression


class ExpressionStatement(Statement, frozen=True):
    value: Expression


class Return(Statement, frozen=True):
    value: Expression | None


class Raise(Statement, frozen=True):
    message: String | None


class Pass(Statement, frozen=True, gc=False):
    pass


class Break(Statement, frozen=True, gc=False):
    pass


class Continue(Statement, frozen=True, gc=False):
    pass


# ---------------------------------------------------------------- compound statements


class Arm(Node, frozen=True):
    """`if` or `elif` with its body."""

    condition: Expression
    body: Body


class If(Statement, frozen=True):
    """`otherwise`, the body of `else`, is None if there is none."""

    arms: tuple[Arm, ...]
    otherwise: Body | None


class While(Statement, frozen=True):
    condition: Expression
    body: Body


class For(Statement, frozen=True):
    target: Name
    items: Expression
    body: Body


class AnyPattern(Pattern, frozen=True, gc=False):
    """`_`."""


class ErrorPattern(Pattern, frozen=True, gc=False):
    """`error(_)`, `error(name)`, `error(kind="…")` (4.7). At most one of `name` and `kind` is not None."""

    name: Name | None
    kind: str | None


class CriterionPattern(Pattern, frozen=True):
    """``?`template` ``, which matches if the judge says yes about `it`."""

    template: Template


class Case(Node, frozen=True):
    pattern: Pattern
    body: Body


class Match(Statement, frozen=True):
    value: Expression
    cases: tuple[Case, ...]


class Option(Node, frozen=True):
    label: String
    body: Body


class Choose(Statement, frozen=True):
    """``choose value by ?`criterion` as target:`` (4.8)."""

    value: Expression
    criterion: Template
    target: Name
    options: tuple[Option, ...]


class Require(Node, frozen=True):
    criterion: Template


class Constrain(Statement, frozen=True):
    """`constrain target(bounds):` with its requirements (4.9)."""

    target: Name
    bounds: tuple[Keyword, ...]
    requirements: tuple[Require, ...]


class WithInput(Statement, frozen=True):
    value: Expression
    body: Body


class Handler(Node, frozen=True):
    """`except as target:`."""

    target: Name
    body: Body


class Try(Statement, frozen=True):
    """`handler` and `final` are None if the clause is missing."""

    body: Body
    handler: Handler | None
    final: Body | None


# ---------------------------------------------------------------- the whole


class Comment(Node, frozen=True, gc=False):
    """`# …` without the `#` and the blanks around it. `alone`: no code precedes it on its line."""

    text: str
    alone: bool


class Program(Node, frozen=True):
    """A file or a cell: its statements and its comments, each in source order.

    `text` is the source of the spans, for the formatter, which keeps comments and blank lines where they were; "" for a
    tree that was not parsed. Comparison ignores it, as it ignores spans.
    """

    items: tuple[Statement, ...]
    comments: tuple[Comment, ...] = ()
    text: str = ""

    def fields(self) -> tuple[object, ...]:
        return self.items, self.comments
