"""The nodes of the tree of an OpenProse program: frozen structs with spans (openprose.md 2.1).

Two trees are equal if they mean the same program; spans and spelling aren't compared. Every node for `expr`, `rhs` or
`compound` in the grammar is an `Expression`; a statement that is only an expression is an `ExpressionStatement`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from prose_kernel.language.nodes import NOWHERE as NOWHERE
from prose_kernel.language.nodes import Node as Node

if TYPE_CHECKING:
    from prose_kernel.language.openprose.program_interface import ProgramInterface


class Expression(Node, frozen=True):
    """Base of all expressions."""


class Active(Expression, frozen=True):
    """Base of the expressions that do more than compute a value: sessions, commands, calls, conditions, bodies."""


class Statement(Node, frozen=True):
    """Base of all statements. `valued` is false for statements that have no value (3.15)."""

    valued = True


class Definition(Statement, frozen=True):
    """Base of the statements that define something for the whole program."""


class Name(Expression, frozen=True, gc=False):
    """An identifier with its span; as an expression, a read of a variable (1.8, 3.5)."""

    id: str


# ---------------------------------------------------------------- text


class Interpolation(Node, frozen=True, gc=False):
    """`{a.b[0]}` inside a text (1.6).

    `steps` are the parts after the first name: field names as str, indexes as int or Name. `raw` is the text with its
    braces, which is kept if the name is unknown (W108). `after_dollar`: a `$` precedes it.
    """

    name: str
    steps: tuple[str | int | Name, ...]
    raw: str
    after_dollar: bool = False


class Text(Expression, frozen=True, gc=False):
    """A string literal (1.4, 1.5), or the words of a discretion marker: literal parts and interpolations in order.

    `parts` never holds two adjacent literal parts or an empty one; the empty string has no parts.
    """

    parts: tuple[str | Interpolation, ...]

    @property
    def literal(self) -> str | None:
        """The value if nothing is interpolated, else None."""
        if not self.parts:
            return ""
        if len(self.parts) == 1 and isinstance(self.parts[0], str):
            return self.parts[0]
        return None

    @property
    def raw(self) -> str:
        """The value with its interpolations as written."""
        parts = self.parts
        if len(parts) == 1 and isinstance(only := parts[0], str):  # the most frequent case
            return only
        return "".join([part if isinstance(part, str) else part.raw for part in parts])

    @property
    def interpolations(self) -> tuple[Interpolation, ...]:
        return tuple(p for p in self.parts if isinstance(p, Interpolation))


def word_of(value: object) -> str | None:
    """Return the text of a value that may be written with or without quotes; None for other values."""
    if isinstance(value, Name):
        return value.id
    return value.raw if isinstance(value, Text) else None


class Discretion(Active, frozen=True):
    """`**text**` or `***text***` (1.7), trimmed."""

    text: Text


class AmbiguousCondition(Expression, frozen=True):
    """An ambiguous condition of ProseScript: `expression` if each name in it is a variable, else `words` (prose-md.md
    3.4, rule 5b). `takes_variable`: the words include the `as NAME` of the loop. A checked program has no such nodes.
    """

    words: Discretion
    expression: Expression
    takes_variable: bool = False


# ---------------------------------------------------------------- plain expressions


class Number(Expression, frozen=True, gc=False):
    """A number, with a sign directly before it (`-1`)."""

    value: int | float


class Duration(Expression, frozen=True, gc=False):
    """A duration without quotes, such as `120s`; its value is its text (1.8)."""

    text: str


class Constant(Expression, frozen=True, gc=False):
    """`true`, `false`, `null`."""

    value: bool | None


PLACEHOLDER = "..."
"""Stands for text that could not be parsed."""


def is_hole(value: object) -> bool:
    """Return whether a value is a placeholder of error recovery; its error is reported already."""
    return isinstance(value, Constant) and value.span.start == value.span.end


class Array(Expression, frozen=True):
    elements: tuple[Expression, ...]


class Entry(Node, frozen=True):
    """An entry of an object. The shorthand forms `{a}` and `{a.b}` have `shorthand=True` and the last name as key."""

    key: str
    value: Expression
    shorthand: bool = False


class Object(Expression, frozen=True):
    entries: tuple[Entry, ...]


class Member(Expression, frozen=True):
    value: Expression
    name: Name


class Index(Expression, frozen=True):
    value: Expression
    index: Expression


Operator = Literal["==", "!=", "<", "<=", ">", ">=", "is", "+", "-"]


class Binary(Expression, frozen=True):
    """A comparison or a sum (3.11)."""

    operator: Operator
    left: Expression
    right: Expression


class Logical(Expression, frozen=True):
    """`and` / `or` over two or more operands, in source order (3.9)."""

    operator: Literal["and", "or"]
    operands: tuple[Expression, ...]


class Not(Expression, frozen=True):
    operand: Expression


class Argument(Node, frozen=True):
    name: Name
    value: Expression


class ProgramCall(Active, frozen=True):
    """`name(input: expr, ...)`: a call of an imported program (6.2)."""

    program: Name
    arguments: tuple[Argument, ...]


# ---------------------------------------------------------------- properties


class Permissions(Node, frozen=True):
    """The block of `permissions:`: lines of a type with a word (Name) or an array of patterns."""

    entries: tuple[Argument, ...]


class ContextBlock(Node, frozen=True):
    """The block form of `context:` and `output:`: ordered `key: value` lines, keys may repeat (2.3 row 23)."""

    entries: tuple[Argument, ...]


class OnReject(Node, frozen=True):
    """`on_reject` of a gate (5.8): `throw`, `throw "text"`, `retry`, `continue`, `session "text"`."""

    action: Literal["throw", "retry", "continue", "session"]
    text: Text | None = None


Value = Expression | Permissions | ContextBlock | OnReject


class Property(Node, frozen=True):
    """`name: value` below an agent, a spawn or a gate.

    `name` is canonical (`on_fail` and `on-reject` are stored as `on-fail`, `on_reject`). A word such as `opus`, `throw`
    or `exponential` is a `Name`. An invalid value is reported and kept as parsed; an unknown property whose block was
    skipped has the value `Constant(None)`.
    """

    name: Name
    value: Value


Properties = tuple[Property, ...]


def value_of(properties: Properties, name: str) -> Value | None:
    """Return the value of the first property with a name, None without one."""
    return next((one.value for one in properties if one.name.id == name), None)


# ---------------------------------------------------------------- spawns


class Session(Active, frozen=True):
    """Any form of `session` (4.1); legacy forms are converted. `title` is the inline text."""

    title: Text | None = None
    label: Name | None = None
    agent: Name | None = None
    properties: Properties = ()


class Stage(Active, frozen=True):
    """`session name(args)`: a session whose task is the text under `#### name` (prose-md.md 3.10)."""

    name: Name
    arguments: tuple[Expression, ...] = ()


class Call(Active, frozen=True):
    """`call target` with the inputs below it, or by position (prose-md.md 3.5). A `Text` is the path of a file."""

    target: Name | Text
    arguments: tuple[Expression, ...] = ()
    inputs: tuple[Argument, ...] = ()

    @property
    def named(self) -> tuple[str, bool]:
        """The called name or path, and whether it is a path."""
        target = self.target
        return (target.id, False) if isinstance(target, Name) else (target.raw, True)


class Resume(Active, frozen=True):
    agent: Name
    properties: Properties = ()


class Exec(Active, frozen=True):
    command: Text
    properties: Properties = ()


Spawn = Session | Resume | Exec


class Arrow(Active, frozen=True):
    """`A -> B -> C`: two or more spawns (3.14)."""

    spawns: tuple[Spawn, ...]


# ---------------------------------------------------------------- compound expressions

Body = tuple[Statement, ...]


class Do(Active, frozen=True):
    body: Body


class BlockCall(Active, frozen=True):
    """`do name(args)`."""

    block: Name
    arguments: tuple[Expression, ...] = ()


class Modifiers(Node, frozen=True):
    """The modifiers in the parentheses of `parallel` (3.7). Invalid values are reported and replaced by the default."""

    strategy: Literal["all", "first", "any"] = "all"
    on_fail: Literal["fail-fast", "continue", "ignore"] = "fail-fast"
    count: int | None = None


class Branch(Node, frozen=True):
    """A branch of `parallel`: `name = statement` or an unnamed statement.

    For `name = rhs` and `let name = rhs` the statement is an `ExpressionStatement` and `name` is set.
    """

    name: Name | None
    statement: Statement


class Parallel(Active, frozen=True):
    modifiers: Modifiers
    branches: tuple[Branch, ...]


class For(Active, frozen=True):
    """`for item(, index) in collection`; with `modifiers`, a `parallel for` (3.7, 3.8); with `maximum`, a `loop for
    each` over at most so many elements (prose-md.md 3.8)."""

    item: Name
    index: Name | None
    collection: Expression
    body: Body
    modifiers: Modifiers | None = None
    maximum: int | None = None


class Repeat(Active, frozen=True):
    """`repeat count`. The count is a `Number`, a `Name` or, in a script, a path. With `concurrent`, a `parallel repeat`
    (prose-md.md 3.10)."""

    count: Expression
    variable: Name | None
    body: Body
    concurrent: bool = False


class Loop(Active, frozen=True):
    mode: Literal["until", "while"] | None
    condition: Expression | None
    maximum: int | None
    variable: Name | None
    body: Body


class Catch(Node, frozen=True):
    name: Name | None
    body: Body


class Try(Active, frozen=True):
    body: Body
    catch: Catch | None
    final: Body | None


class Option(Node, frozen=True):
    label: Text
    body: Body


class Choice(Active, frozen=True):
    criteria: Discretion
    options: tuple[Option, ...]


class Arm(Node, frozen=True):
    condition: Expression
    body: Body


class If(Active, frozen=True):
    """`if` with its `elif` arms in order; `otherwise` is the body of `else`, None without one."""

    arms: tuple[Arm, ...]
    otherwise: Body | None


class PipeOperation(Node, frozen=True):
    """`map`, `filter` or `pmap` (without `names`; the variable is `item`), or `reduce` with its two names (3.14).

    A one-line body, or an expression as the last line of a body, is an `ExpressionStatement`.
    """

    kind: Literal["map", "filter", "pmap", "reduce"]
    names: tuple[Name, ...]
    body: Body


class Pipe(Active, frozen=True):
    source: Expression
    operations: tuple[PipeOperation, ...]


# ---------------------------------------------------------------- statements


class ExpressionStatement(Statement, frozen=True):
    """A spawn, compound, pipeline or program call as a statement; at the end of a pipe body, any expression."""

    value: Expression


class Let(Statement, frozen=True):
    """`let` or `const` with one name, or with a list of names in braces (`destructured`)."""

    kind: Literal["let", "const"]
    names: tuple[Name, ...]
    value: Expression
    destructured: bool = False


class Assign(Statement, frozen=True):
    name: Name
    value: Expression


class Output(Statement, frozen=True):
    """`output name = rhs`; without a name, the anonymous form (2.3 row 1)."""

    name: Name | None
    value: Expression


class Input(Statement, frozen=True):
    name: Name
    prompt: Text | Discretion


class Throw(Statement, frozen=True):
    """`throw`, `throw "text"`, `throw name`; in ProseScript, `throw` with any value."""

    valued = False
    value: Expression | None = None


class Return(Statement, frozen=True):
    valued = False
    value: Expression | None = None


class Append(Statement, frozen=True):
    """`append value to list` or `record value in list` (prose-md.md 3.10)."""

    value: Expression
    name: Name


class Break(Statement, frozen=True):
    valued = False


class Continue(Statement, frozen=True):
    valued = False


class Assert(Statement, frozen=True):
    valued = False
    condition: Expression
    message: Text | None = None


class Gate(Statement, frozen=True):
    valued = False
    name: Name
    properties: Properties


# ---------------------------------------------------------------- definitions


class Use(Definition, frozen=True):
    """`use "path" as alias` (6.1)."""

    path: Text
    alias: Name | None = None


class SkillImport(Definition, frozen=True):
    """Legacy `import "skill" from "source"` (2.3 row 44)."""

    skill: Text
    source: Text


class Agent(Definition, frozen=True):
    name: Name
    properties: Properties = ()


class Block(Definition, frozen=True):
    name: Name
    parameters: tuple[Name, ...]
    max_depth: int | None
    body: Body
    budget: Text | None = None


class Program(Node, frozen=True):
    """A file or a cell: its statements in source order. `strict` and `script` (ProseScript) are its dialect."""

    items: tuple[Statement, ...]
    strict: bool = False
    script: bool = False

    @property
    def declared(self) -> ProgramInterface | None:
        """The inputs and outputs that a contract file declares; None if the program's statements declare them."""
        return None

    def scripts(self) -> tuple[Program, ...]:
        """Return the programs in the text: for a contract file, the scripts of all its nodes."""
        return (self,)

    def texts(self) -> dict[str, str]:
        """Return the texts of the other files that a contract file refers to, by address."""
        return {}
