"""The tree of an OpenProse program: frozen dataclasses with spans (openprose.md 2.1).

Two trees are equal when they mean the same program: spans and the surface spelling take no part in comparison.
Everything that stands where the grammar says `expr`, `rhs` or `compound` is an `Expression`; a statement that is only
an expression is an `ExpressionStatement`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from prose_kernel.language.source import Span

NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base of all nodes. `span` covers the node's own text, head and body."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name(Node):
    """An identifier where its place matters; as an expression, a read of a variable (1.8, 3.5)."""

    id: str


# ---------------------------------------------------------------- text


@dataclass(frozen=True, slots=True)
class Interpolation(Node):
    """`{a.b[0]}` inside a text (1.6). `steps` after the first name: field names as str, indexes as int or Name.

    `raw` is the text with its braces, for when it stays as it is (W108). `after_dollar` tells that a `$` stands before.
    """

    name: str
    steps: tuple[str | int | Name, ...]
    raw: str
    after_dollar: bool = False


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A string literal (1.4, 1.5), or the words of a discretion marker: literal parts and interpolations in order.

    `parts` never holds two literal parts side by side nor an empty one; the empty string has no parts.
    """

    parts: tuple[str | Interpolation, ...]

    @property
    def literal(self) -> str | None:
        """The value when nothing is interpolated, else None."""
        if not self.parts:
            return ""
        if len(self.parts) == 1 and isinstance(self.parts[0], str):
            return self.parts[0]
        return None

    @property
    def raw(self) -> str:
        """The value with its interpolations as written; what emptiness and length checks look at."""
        return "".join(p if isinstance(p, str) else p.raw for p in self.parts)

    @property
    def interpolations(self) -> tuple[Interpolation, ...]:
        return tuple(p for p in self.parts if isinstance(p, Interpolation))


@dataclass(frozen=True, slots=True)
class Discretion(Node):
    """`**text**` or `***text***` (1.7), trimmed."""

    text: Text


# ---------------------------------------------------------------- plain expressions


@dataclass(frozen=True, slots=True)
class Number(Node):
    """INT or DECIMAL; a sign is part of it when it stands directly before (`-1`)."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """A bare duration such as `120s`; its value as an expression is its text (1.8)."""

    text: str


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """`true`, `false`, `null`."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Array(Node):
    elements: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """One entry of an object; the shorthand forms `{a}` and `{a.b}` have `shorthand=True` and the last name as key."""

    key: str
    value: Expression
    shorthand: bool = False


@dataclass(frozen=True, slots=True)
class Object(Node):
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Member(Node):
    value: Expression
    name: Name


@dataclass(frozen=True, slots=True)
class Index(Node):
    value: Expression
    index: Expression


Operator = Literal["==", "!=", "<", "<=", ">", ">=", "is", "+", "-"]


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """A comparison or a sum (3.11)."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """`and` / `or` over two or more operands, in source order (3.9)."""

    operator: Literal["and", "or"]
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Argument(Node):
    name: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class ProgramCall(Node):
    """`name(input: expr, ...)`: a call of an imported program (6.2)."""

    program: Name
    arguments: tuple[Argument, ...]


# ---------------------------------------------------------------- properties


@dataclass(frozen=True, slots=True)
class Permission(Node):
    """One line of a `permissions:` block: a type with a word (Name) or an array of patterns."""

    type: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Permissions(Node):
    entries: tuple[Permission, ...]


@dataclass(frozen=True, slots=True)
class ContextBlock(Node):
    """The block form of `context:`: ordered `key: value` lines, keys may repeat (2.3 row 23)."""

    entries: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class OnReject(Node):
    """`on_reject` of a gate (5.8): `throw`, `throw "text"`, `retry`, `continue`, `session "text"`."""

    action: Literal["throw", "retry", "continue", "session"]
    text: Text | None = None


@dataclass(frozen=True, slots=True)
class Property(Node):
    """`name: value` under an agent, a spawn or a gate.

    `name` is canonical (`on_fail` and `on-reject` are stored as `on-fail`, `on_reject`). Words such as `opus`,
    `throw`, `exponential` are a `Name`. A malformed value has been reported and is kept as parsed; an unknown property
    whose block was skipped has value `Constant(None)`.
    """

    name: Name
    value: Expression | Permissions | ContextBlock | OnReject


Properties = tuple[Property, ...]


# ---------------------------------------------------------------- spawns


@dataclass(frozen=True, slots=True)
class Session(Node):
    """All forms of `session` (4.1). `title` is the inline text; legacy forms are already in this shape."""

    title: Text | None = None
    label: Name | None = None
    agent: Name | None = None
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Resume(Node):
    agent: Name
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Exec(Node):
    command: Text
    properties: Properties = ()


Spawn = Session | Resume | Exec


@dataclass(frozen=True, slots=True)
class Arrow(Node):
    """`A -> B -> C`: two or more spawns (3.14)."""

    spawns: tuple[Spawn, ...]


# ---------------------------------------------------------------- compound expressions

Body = tuple["Statement", ...]


@dataclass(frozen=True, slots=True)
class Do(Node):
    """`do:` with a body."""

    body: Body


@dataclass(frozen=True, slots=True)
class BlockCall(Node):
    """`do name(args)`."""

    block: Name
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Modifiers(Node):
    """What stands in the parentheses of `parallel` (3.7). A bad value has been reported and is replaced by the default."""

    strategy: Literal["all", "first", "any"] = "all"
    on_fail: Literal["fail-fast", "continue", "ignore"] = "fail-fast"
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Branch(Node):
    """A branch of `parallel`: `name = statement` or an unnamed statement.

    For `name = rhs` and `let name = rhs` the statement is an `ExpressionStatement` and `name` is set.
    """

    name: Name | None
    statement: Statement


@dataclass(frozen=True, slots=True)
class Parallel(Node):
    modifiers: Modifiers
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for item(, index) in collection`; with `modifiers` it is a `parallel for` (3.7, 3.8)."""

    item: Name
    index: Name | None
    collection: Expression
    body: Body
    modifiers: Modifiers | None = None


@dataclass(frozen=True, slots=True)
class Repeat(Node):
    """The count is a `Number` or a `Name`."""

    count: Expression
    variable: Name | None
    body: Body


@dataclass(frozen=True, slots=True)
class Loop(Node):
    mode: Literal["until", "while"] | None
    condition: Expression | None
    maximum: int | None
    variable: Name | None
    body: Body


@dataclass(frozen=True, slots=True)
class Catch(Node):
    name: Name | None
    body: Body


@dataclass(frozen=True, slots=True)
class Try(Node):
    body: Body
    catch: Catch | None
    final: Body | None


@dataclass(frozen=True, slots=True)
class Option(Node):
    label: Text
    body: Body


@dataclass(frozen=True, slots=True)
class Choice(Node):
    criteria: Discretion
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Arm(Node):
    condition: Expression
    body: Body


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if` and `elif` arms in order; `otherwise` is the body of `else`, None without one."""

    arms: tuple[Arm, ...]
    otherwise: Body | None


@dataclass(frozen=True, slots=True)
class PipeOperation(Node):
    """`map`, `filter`, `pmap` (no names: the variable is `item`) or `reduce` with its two names (3.14).

    A one-line body and an expression as last line are an `ExpressionStatement`.
    """

    kind: Literal["map", "filter", "pmap", "reduce"]
    names: tuple[Name, ...]
    body: Body


@dataclass(frozen=True, slots=True)
class Pipe(Node):
    source: Expression
    operations: tuple[PipeOperation, ...]


Compound = Do | BlockCall | Parallel | For | Repeat | Loop | Try | Choice | If

Expression = (
    Name
    | Text
    | Discretion
    | Number
    | Duration
    | Constant
    | Array
    | Object
    | Member
    | Index
    | Binary
    | Logical
    | Not
    | ProgramCall
    | Session
    | Resume
    | Exec
    | Arrow
    | Pipe
    | Do
    | BlockCall
    | Parallel
    | For
    | Repeat
    | Loop
    | Try
    | Choice
    | If
)


# ---------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class ExpressionStatement(Node):
    """A spawn, compound, pipeline or program call as a statement; in a pipe body also any expression."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Let(Node):
    """`let` / `const` with one name, or with a destructuring list (`destructured`)."""

    kind: Literal["let", "const"]
    names: tuple[Name, ...]
    value: Expression
    destructured: bool = False


@dataclass(frozen=True, slots=True)
class Assign(Node):
    name: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Output(Node):
    """`output name = rhs`; without a name the anonymous form (2.3 row 1)."""

    name: Name | None
    value: Expression


@dataclass(frozen=True, slots=True)
class Input(Node):
    name: Name
    prompt: Text | Discretion


@dataclass(frozen=True, slots=True)
class Throw(Node):
    """`throw`, `throw "text"`, `throw name`."""

    value: Text | Name | None = None


@dataclass(frozen=True, slots=True)
class Return(Node):
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class Break(Node):
    pass


@dataclass(frozen=True, slots=True)
class Continue(Node):
    pass


@dataclass(frozen=True, slots=True)
class Assert(Node):
    condition: Expression
    message: Text | None = None


@dataclass(frozen=True, slots=True)
class Gate(Node):
    name: Name
    properties: Properties


# ---------------------------------------------------------------- definitions


@dataclass(frozen=True, slots=True)
class Use(Node):
    """`use "path" as alias` (6.1)."""

    path: Text
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class SkillImport(Node):
    """Legacy `import "skill" from "source"` (2.3 row 44)."""

    skill: Text
    source: Text


@dataclass(frozen=True, slots=True)
class Agent(Node):
    name: Name
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Block(Node):
    name: Name
    parameters: tuple[Name, ...]
    max_depth: int | None
    body: Body


Definition = Use | SkillImport | Agent | Block
Statement = (
    ExpressionStatement | Let | Assign | Output | Input | Throw | Return | Break | Continue | Assert | Gate | Definition
)


@dataclass(frozen=True, slots=True)
class Program(Node):
    """A file or a cell: its items in source order."""

    items: tuple[Statement, ...]
