"""Reductions to nodes: what each production of grammar.lark becomes, and what is wrong with it in itself.

A method stands for the production (or alias) of its name and is called with the start and end of its text and the
values of its symbols, punctuation left out. What only the `default` profile accepts (openprose.md 2.3, last column) is
reported here under `strict`. Bad values are reported and replaced by their defaults, so that nobody meets them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar, cast

from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.diagnostic_collector import Findings
from prose_kernel.language.openprose.node_factory import maker
from prose_kernel.language.openprose.tree import (
    Array,
    Assign,
    Binary,
    Body,
    Constant,
    Discretion,
    Duration,
    Expression,
    ExpressionStatement,
    Index,
    Let,
    Logical,
    Member,
    Name,
    Not,
    Number,
    Object,
    OnReject,
    ProgramCall,
    Property,
    Statement,
    Text,
)
from prose_kernel.language.source import Span

_D = TypeVar("_D", tree.Use, tree.SkillImport, tree.Agent, tree.Block)

UNREAD: Final = "..."
"""Stands for text that could not be read."""
DEPTH_LIMIT: Final = 50
"""Levels of operators, members, calls and literals inside one expression; deeper ones are E005."""

_evaluation = maker(ExpressionStatement)
_let = maker(tree.Let)
_property = maker(Property)
_session = maker(tree.Session)
_exec = maker(tree.Exec)
_arm = maker(tree.Arm)
_output = maker(tree.Output)
_block_call = maker(tree.BlockCall)
_assign = maker(Assign)
_member = maker(Member)
_binary = maker(Binary)
_entry = maker(tree.Entry)
_object = maker(Object)
_array = maker(Array)

_PLAIN: Final = frozenset(
    {Name, Text, Discretion, Number, Duration, Constant, Array, Object, Member, Index, Binary, Logical, Not}
)
_STRICT_VALUES: Final = (Number, Constant, Object, Member, Discretion, Duration)
_ALIASES: Final = {"on_fail": "on-fail", "on-reject": "on_reject", "on_reject": "on_reject"}
_UNUSUAL: Final = frozenset({OnReject, Constant})
_ONE_LINE: Final = frozenset(
    {"model", "prompt", "persist", "retry", "backoff", "skills", "timeout", "on-fail", "cwd", "allow", "on_reject"}
)
_STRATEGIES: Final = ("all", "first", "any")
_POLICIES: Final = ("fail-fast", "continue", "ignore")

Head = tuple[str, Any, Any, Any, tuple[Property, ...]]
"""A spawn without its block: kind, then title or command, label, agent, properties on the line."""


class Pipeline:
    """A pipeline while it grows."""

    __slots__ = ("operations", "source")

    def __init__(self, source: Expression) -> None:
        self.source = source
        self.operations: list[tree.PipeOperation] = []


class Builder:
    """The semantic actions of one parse; after `finish` the findings are complete."""

    def __init__(self, profile: Profile, findings: Findings) -> None:
        self.is_strict = profile == "strict"
        self.findings = findings
        self.add = findings.add
        self.bare: dict[int, ExpressionStatement] = {}  # expressions as statements, legal at the end of a pipe body
        self.sums: dict[int, Binary] = {}  # strict: sums that are no argument and no index yet
        self.definitions: list[tree.Definition] = []
        self.depths: dict[int, int] = {}  # of the composite parts of the expression being read
        self.positional_calls: list[ProgramCall] = []
        self.truncated = Span(-1, -1)  # of the last expression cut off; those around it share an end with it

    def strict(self, start: int, end: int, message: str, hint: str | None = None, code: str = "E004") -> None:
        """Report what the strict profile alone refuses."""
        if self.is_strict:
            self.add(code, start, end, message, hint)

    # ---- program, bodies, definitions

    def program(self, start: int, end: int, statements: Sequence[Statement] = ()) -> tree.Program:
        top = {id(statement) for statement in statements}
        for definition in self.definitions:
            if id(definition) not in top:
                word = _DEFINITION_WORDS[type(definition)]
                at = definition.span.start
                self.add("E146", at, at + len(word), f"`{word}` may only stand at top level", "move it out of the body")
        for statement in self.bare.values():
            self._no_effect(statement)
        for total in self.sums.values():
            self.add("E004", *total.span, "an operator may only stand in an argument or an index (strict)")
        return tree.Program(tuple(statements), span=Span(start, end))

    def _no_effect(self, statement: ExpressionStatement) -> None:
        value = statement.value
        hint = None
        if isinstance(value, Text):
            whole = len(value.raw) <= 60 and not {'"', "\n", "`"} & set(value.raw)
            hint = f'a prompt needs `session`: `session "{value.raw if whole else "..."}"`'
        elif isinstance(value, Name):
            hint = f"to run a block, write `do {value.id}`; to show a value, `output {value.id}`"
        self.add("E005", *statement.span, "this statement has no effect", hint)

    def body(self, start: int, end: int, statements: Sequence[Statement] = ()) -> Body:
        return tuple(statements)

    def _empty(self, start: int, word: str, body: Body) -> None:
        """W120, unless the body is empty because nothing in it could be read."""
        if not body and not self.findings.error_since(start):
            self.add("W120", start, start + len(word), f"the body of `{word}` is empty")

    def use(self, start: int, end: int, path: Text, alias: Name | None) -> tree.Use:
        return self._defined(tree.Use(path, alias, span=Span(start, end)))

    def skill_import(self, start: int, end: int, skill: Text, source: Text) -> tree.SkillImport:
        if self.is_strict:
            self.strict(start, start + 6, "`import` is not in the language", "write `use`")
        else:
            self.add("W106", start, start + 6, "`import` is an old form", "programs are imported with `use`")
        return self._defined(tree.SkillImport(skill, source, span=Span(start, end)))

    def agent(self, start: int, end: int, name: Name, properties: tree.Properties) -> tree.Agent:
        return self._defined(tree.Agent(name, properties, span=Span(start, end)))

    def _defined(self, node: _D) -> _D:
        self.definitions.append(node)
        return node

    def block(
        self,
        start: int,
        end: int,
        name: Name,
        parameters: tuple[Name, ...] | None,
        depth: int | None,
        body: Body,
    ) -> tree.Block:
        self._empty(start, "block", body)
        return self._defined(tree.Block(name, parameters or (), depth, body, span=Span(start, end)))

    def parameters(self, start: int, end: int, names: tuple[Name, ...] | None) -> tuple[Name, ...]:
        if names is None and not self.findings.error_since(start):
            self.strict(end - 1, end, "a parameter list needs a name", "leave the parentheses out")
        return names or ()

    def names(self, start: int, end: int, first: Name, others: Sequence[Name] = ()) -> tuple[Name, ...]:
        return (first, *others)

    def max_depth(self, start: int, end: int, name: Name, value: Expression) -> int | None:
        if name.id != "max_depth":
            self.add("E004", *name.span, f"unexpected `{name.id}`", "write `(max_depth: 50)`")
            return None
        if isinstance(value, Number) and isinstance(value.value, int) and value.value > 0:
            return value.value
        self.add("E145", *value.span, "max_depth must be a positive integer")
        return None

    # ---- statements

    def input(self, start: int, end: int, name: Name, prompt: Text | Discretion) -> tree.Input:
        return tree.Input(name, prompt, span=Span(start, end))

    def output(self, start: int, end: int, name: Name, value: Expression) -> tree.Output:
        return _output(start, end, name, self._assigned(value))

    def anonymous_output(self, start: int, end: int, value: Expression) -> tree.Output:
        if not (_is_hole(value) and self.findings.error_since(start)):
            self.strict(*value.span, "an output needs a name", "write `output name = ...`")
        self.depths.clear()
        return _output(start, end, None, value)

    def let(self, start: int, end: int, kind: str, name: Name, value: Expression) -> Let:
        return _let(start, end, kind, (name,), self._assigned(value), False)

    def destructure(self, start: int, end: int, kind: str, names: tuple[Name, ...], value: Expression) -> Let:
        return _let(start, end, kind, names, self._assigned(value), True)

    def assign(self, start: int, end: int, name: Name, value: Expression) -> Assign:
        return _assign(start, end, name, self._assigned(value))

    def _assigned(self, value: Expression) -> Expression:
        """A right-hand side; `strict` allows spawns, compounds, calls, strings, names and arrays (2.3 row 16)."""
        if self.depths:
            self.depths.clear()
        if self.is_strict and not _is_hole(value):
            if isinstance(value, tree.Try):
                self.strict(*value.span, "`try` is no value (strict)")
            elif isinstance(value, _STRICT_VALUES) or (isinstance(value, Binary) and value.operator not in "+-"):
                self.strict(*value.span, "this expression is no value in the strict profile")
        return value

    def gate(self, start: int, end: int, name: Name, properties: tree.Properties) -> tree.Gate:
        return tree.Gate(name, properties, span=Span(start, end))

    def throw(self, start: int, end: int, value: Text | Name | None) -> tree.Throw:
        return tree.Throw(value, span=Span(start, end))

    def return_(self, start: int, end: int, value: Expression) -> tree.Return:
        self.depths.clear()
        self._not_strict(start, "return")
        return tree.Return(value, span=Span(start, end))

    def bare_return(self, start: int, end: int) -> tree.Return:
        self._not_strict(start, "return")
        return tree.Return(span=Span(start, end))

    def break_(self, start: int, end: int) -> tree.Break:
        self._not_strict(start, "break")
        return tree.Break(span=Span(start, end))

    def continue_(self, start: int, end: int) -> tree.Continue:
        self._not_strict(start, "continue")
        return tree.Continue(span=Span(start, end))

    def assert_(self, start: int, end: int, condition: Expression, message: Text | None = None) -> tree.Assert:
        self._not_strict(start, "assert")
        self._condition(condition, "E004", "assert", strict=False)
        return tree.Assert(condition, message, span=Span(start, end))

    def _not_strict(self, start: int, word: str) -> None:
        self.strict(start, start + len(word), f"`{word}` is not in the strict language")

    def evaluate(self, start: int, end: int, value: Expression) -> ExpressionStatement:
        statement = _evaluation(start, end, value)
        if value.__class__ in _PLAIN:
            self.bare[id(statement)] = statement
        if self.depths:
            self.depths.clear()
        return statement

    # ---- spawns

    def spawn(self, start: int, end: int, head: Head, block: tree.Properties | Text) -> tree.Spawn:
        if isinstance(block, Text):
            at = block.span.start if self.is_strict else start  # the text is what `strict` does not expect
            self._legacy(at, "session", "the prompt of a session belongs into `prompt:`", 'write `prompt: "..."`')
            block = (_property(*block.span, Name("prompt", span=block.span), block),)
        return self._spawn(start, end, head, block)

    def _spawn(self, start: int, end: int, head: Head, block: tree.Properties) -> tree.Spawn:
        kind, title, label, agent, line = head
        if (title is not None or agent is not None) and kind == "session" and not line:
            return _session(start, end, title, label, agent, block)
        if kind == "exec":
            return _exec(start, end, title, block)
        if kind == "resume":
            return tree.Resume(agent, block, span=Span(start, end))
        properties = line + block if line else block
        if title is None and agent is None:
            self._unassigned(start, properties)
        return _session(start, end, title, label, agent, properties)

    def _unassigned(self, start: int, properties: tree.Properties) -> None:
        """A session without title and agent (2.3 rows 46, 73)."""
        hint = 'write `session "prompt"` or `session: agent`'
        if self.is_strict or not any(p.name.id == "prompt" for p in properties):
            if not self.findings.error_since(start):
                self.add("E003", start, start + 7, "session without prompt and agent", hint)
        else:
            self.add("W107", start, start + 7, "a session without agent is an old form", hint)

    def _legacy(self, start: int, word: str, message: str, hint: str) -> None:
        code = "E004" if self.is_strict else "W107"
        self.add(code, start, start + len(word), message, hint)

    def link(self, start: int, end: int, spawn: Head | tree.Spawn) -> tree.Spawn:
        if isinstance(spawn, tuple):
            return self._spawn(start, end, spawn, ())
        return spawn

    def arrow(self, start: int, end: int, links: list[tree.Spawn], last: tree.Spawn) -> tree.Arrow:
        return tree.Arrow((*links, last), span=Span(start, end))

    def titled(self, start: int, end: int, title: Text) -> Head:
        return ("session", title, None, None, ())

    def titled_colon(self, start: int, end: int, title: Text) -> Head:
        self._legacy(start, "session", "the colon after a session's text is an old form", "leave the colon out")
        return ("session", title, None, None, ())

    def titled_parenthesis(
        self, start: int, end: int, title: Text, first: Property | None, others: Sequence[Property | None] = ()
    ) -> Head:
        return self.titled_line(start, end, title, (first, *others))

    def titled_line(self, start: int, end: int, title: Text, properties: Sequence[Property | None]) -> Head:
        self._legacy(start, "session", "properties on the session's line are an old form", "indent them below it")
        return ("session", title, None, None, tuple([p for p in properties if p is not None]))

    def inline_property(self, start: int, end: int, name: Name, value: Expression) -> Property | None:
        return self.property(start, end, name, value)

    def agent_head(self, start: int, end: int, label: Name | None, agent: Name | None) -> Head:
        return ("session", None, label, agent, ())

    def resume(self, start: int, end: int, agent: Name) -> Head:
        return ("resume", None, None, agent, ())

    def exec(self, start: int, end: int, command: Text) -> Head:
        return ("exec", command, None, None, ())

    def text_block(self, start: int, end: int, text: Text) -> Text:
        return text

    # ---- properties

    def properties(self, start: int, end: int, properties: Sequence[Property | None] = ()) -> tree.Properties:
        return tuple([p for p in properties if p is not None])

    def property(self, start: int, end: int, name: Name, value: Expression | OnReject) -> Property | None:
        if self.depths:
            self.depths.clear()
        if self.is_strict or name.id in _ALIASES or value.__class__ in _UNUSUAL:
            return self._unusual(start, end, name, value)
        return _property(start, end, name, value)

    def _unusual(self, start: int, end: int, name: Name, value: Expression | OnReject) -> Property | None:
        """A property that needs a second look: names with an alias, values that only some may have."""
        word = _ALIASES.get(name.id, name.id)
        if word != name.id:
            name = Name(word, span=name.span)
        if word == "on_reject":
            value = self._on_reject(value)
        elif isinstance(value, OnReject):
            value = self._word(value)
        elif _is_hole(value) and self.findings.error_since(start):
            return self._unread(start, end, name)
        elif _is_hole(value) and word in _ONE_LINE:
            self._no_value(name)
        elif self.is_strict and word == "context" and isinstance(value, Text):
            self.strict(*value.span, "`context` takes names, not text (strict)")
        return _property(start, end, name, value)

    def _unread(self, start: int, end: int, name: Name) -> Property | None:
        """A property whose value could not be read: a prompt counts as given, others as absent."""
        if name.id != "prompt":
            return None
        return _property(start, end, name, Text((UNREAD,), span=name.span))

    def _no_value(self, name: Name) -> None:
        self.add("E004", name.span.end + 1, name.span.end + 1, f"`{name.id}:` needs a value on its line")

    def _on_reject(self, value: Expression | OnReject) -> OnReject:
        if isinstance(value, OnReject):
            return value
        span = value.span
        if isinstance(value, Name) and value.id == "retry":
            return OnReject("retry", span=span)
        if isinstance(value, Text) and not self.is_strict:
            self.add("W107", *span, "a bare text after `on_reject:` is an old form", 'write `on_reject: throw "..."`')
            return OnReject("throw", value, span=span)
        if not _is_hole(value) or not self.findings.error_since(span.start):
            self.add("E199", *span, "`on_reject` must be throw, retry, continue or session")
        return OnReject("throw", span=span)

    def _word(self, value: OnReject) -> Expression:
        if value.text is not None:
            self.add("E004", *value.span, f"`{value.action}` may only stand after `on_reject:`")
        return Name(value.action, span=value.span)

    def on_reject_throw(self, start: int, end: int, text: Text | None) -> OnReject:
        return OnReject("throw", text, span=Span(start, end))

    def on_reject_continue(self, start: int, end: int) -> OnReject:
        return OnReject("continue", span=Span(start, end))

    def on_reject_session(self, start: int, end: int, text: Text) -> OnReject:
        return OnReject("session", text, span=Span(start, end))

    def property_block(self, start: int, end: int, name: Name, entries: Sequence[tree.Argument]) -> Property:
        span = Span(start, end)
        value: Expression | tree.Permissions | tree.ContextBlock = Constant(None, span=Span(end, end))
        if not entries:
            if name.id != "permissions" and not self.findings.error_since(start):
                self._no_value(name)
        elif name.id == "permissions":
            kinds = tuple(tree.Permission(entry.name, entry.value, span=entry.span) for entry in entries)
            value = tree.Permissions(kinds, span=span)
        else:
            self.strict(*name.span, "`context` takes names on its line (strict)")
            value = tree.ContextBlock(tuple(entries), span=span)
        return Property(name, value, span=span)

    def entries(self, start: int, end: int, entries: Sequence[tree.Argument] = ()) -> Sequence[tree.Argument]:
        return entries

    def entry_line(self, start: int, end: int, name: Name, value: Expression) -> tree.Argument:
        return tree.Argument(name, value, span=Span(start, end))

    # ---- compounds

    def do(self, start: int, end: int, body: Body) -> tree.Do:
        self._empty(start, "do", body)
        return tree.Do(body, span=Span(start, end))

    def block_call(self, start: int, end: int, name: Name, arguments: tuple[Expression, ...] | None) -> tree.BlockCall:
        return _block_call(start, end, name, arguments or ())

    def arguments(
        self, start: int, end: int, first: Expression | None, others: Sequence[Expression] = ()
    ) -> tuple[Expression, ...]:
        if first is None:
            return ()
        values = (first, *others)
        if self.is_strict:
            self._strict_arguments(values)
        return values

    def _strict_arguments(self, values: Sequence[Expression]) -> None:
        for value in values:
            self.sums.pop(id(value), None)
            if isinstance(value, Constant | Discretion):
                self.strict(*value.span, "this value is not in the strict language")

    def parallel(self, start: int, end: int, modifiers: tree.Modifiers | None, body: Body) -> tree.Parallel:
        self._empty(start, "parallel", body)
        seen: set[str] = set()
        branches = []
        for statement in body:
            branch = _branch(statement)
            branches.append(branch)
            if branch.name is not None and branch.name.id in seen:
                self.add("E154", *branch.name.span, f"two branches are named `{branch.name.id}`")
            elif branch.name is not None:
                seen.add(branch.name.id)
        span = Span(start, end)
        return tree.Parallel(modifiers or tree.Modifiers(span=span), tuple(branches), span=span)

    def modifier(self, start: int, end: int, value: Expression) -> tuple[Name | None, Expression]:
        return None, value

    def named_modifier(self, start: int, end: int, name: Name, value: Expression) -> tuple[Name | None, Expression]:
        return name, value

    def modifiers(
        self,
        start: int,
        end: int,
        first: tuple[Name | None, Expression],
        others: Sequence[tuple[Name | None, Expression]] = (),
    ) -> tree.Modifiers:
        given: dict[str, Any] = {}
        for name, value in (first, *others):
            word = name.id if name else "strategy"
            span = name.span if name else value.span
            if word in given or word not in ("strategy", "on-fail", "count"):
                problem = f"`{word}` is given twice" if word in given else f"unknown modifier `{word}`"
                self.add("E155", *span, problem, 'modifiers are "all", "first" or "any", `on-fail:` and `count:`')
            else:
                given[word] = self._modifier(word, value)
        count = given.get("count")
        strategy: Literal["all", "first", "any"] = given.get("strategy") or "all"
        if count is not None and strategy != "any" and given.get("strategy", strategy) is not None:
            at = next(value for name, value in (first, *others) if name is not None and name.id == "count")
            self.add("E152", *at.span, '`count` needs the strategy "any"', f'write `("any", count: {count})`')
            count = None
        return tree.Modifiers(strategy, given.get("on-fail") or "fail-fast", count, span=Span(start, end))

    def _modifier(self, word: str, value: Expression) -> Any:
        """The checked value of a modifier; None after a report."""
        text = _word_of(value)
        if word == "strategy":
            if isinstance(value, Text) and text in _STRATEGIES:
                return text
            if isinstance(value, Text) or text in _STRATEGIES:
                hint = f'put it in quotes: `("{text}")`' if isinstance(value, Name) else None
                self.add("E150", *value.span, 'the strategy must be "all", "first" or "any"', hint)
            else:
                self.add("E155", *value.span, f"unknown modifier{f' `{text}`' if text else ''}")
        elif word == "on-fail":
            if text in _POLICIES:
                return text
            self.add("E151", *value.span, "`on-fail` must be fail-fast, continue or ignore")
        elif isinstance(value, Number) and isinstance(value.value, int) and value.value >= 1:
            return value.value
        else:
            self.add("E153", *value.span, "`count` must be an integer of at least 1")
        return None

    def for_(
        self, start: int, end: int, item: Name, index: Name | None, collection: Expression, body: Body
    ) -> tree.For:
        self._loop_over(start, "for", collection, body)
        return tree.For(item, index, collection, body, span=Span(start, end))

    def parallel_for(
        self,
        start: int,
        end: int,
        item: Name,
        index: Name | None,
        collection: Expression,
        modifiers: tree.Modifiers | None,
        body: Body,
    ) -> tree.For:
        self._loop_over(start, "parallel for", collection, body)
        span = Span(start, end)
        if modifiers is not None:
            self.strict(*modifiers.span, "`parallel for` takes no modifiers (strict)")
        return tree.For(item, index, collection, body, modifiers or tree.Modifiers(span=span), span=span)

    def _loop_over(self, start: int, word: str, collection: Expression, body: Body) -> None:
        self._empty(start, word, body)
        if not isinstance(collection, Name | Array | ProgramCall):
            self.strict(*collection.span, "a collection is a name or an array (strict)")

    def repeat(self, start: int, end: int, count: Expression, variable: Name | None, body: Body) -> tree.Repeat:
        self._empty(start, "repeat", body)
        return tree.Repeat(self._count(count), variable, body, span=Span(start, end))

    def _count(self, count: Expression) -> Expression:
        span = count.span
        if isinstance(count, Number):
            if isinstance(count.value, int) and count.value > 0:
                return count
            code = "E160" if isinstance(count.value, int) else "E161"
            self.add(code, *span, f"the count must be {'positive' if code == 'E160' else 'an integer'}")
        elif isinstance(count, Name):
            self.strict(*span, "the count must be a number (strict)")
            return count
        elif isinstance(count, Text | Duration | Constant) and not _is_hole(count):
            self.add("E161", *span, "the count must be an integer")
        elif not _is_hole(count):
            self.add("E004", *span, "the count must be a number or a name", "bind it first: `let n = ...`")
        return Number(1, span=span)

    def loop(
        self,
        start: int,
        end: int,
        mode: Name | None,
        condition: Expression | None,
        maximum: int | None,
        variable: Name | None,
        body: Body,
    ) -> tree.Loop:
        self._empty(start, "loop", body)
        if condition is not None and mode is not None:
            self._condition(condition, "E165", f"loop {mode.id}")
        word = cast('Literal["until", "while"] | None', mode.id if mode else None)
        return tree.Loop(word, condition, maximum, variable, body, span=Span(start, end))

    def maximum(self, start: int, end: int, value: Expression) -> int:
        if isinstance(value, Number) and isinstance(value.value, int):
            if value.value > 0:
                return value.value
            self.add("E163", *value.span, "`max` must be positive")
        else:
            self.add("E164", *value.span, "`max` must be an integer")
        return 1

    def try_(self, start: int, end: int, body: Body, catch: tree.Catch | None, final: Body | None) -> tree.Try:
        self._empty(start, "try", body)
        if catch is None and final is None:
            self.add("E180", start, start + 3, "`try` needs a `catch` or a `finally`")
        return tree.Try(body, catch, final, span=Span(start, end))

    def catch(self, start: int, end: int, name: Name | None, body: Body) -> tree.Catch:
        self._empty(start, "catch", body)
        return tree.Catch(name, body, span=Span(start, end))

    def finally_(self, start: int, end: int, body: Body) -> Body:
        self._empty(start, "finally", body)
        return body

    def choice(self, start: int, end: int, criteria: Discretion, options: tuple[tree.Option, ...]) -> tree.Choice:
        if not criteria.text.parts:
            self.add("E191", *criteria.span, "empty criteria", "say what to choose by: `choice **the best fit**:`")
        if not options and not self.findings.error_since(start):
            self.add("E190", start, start + 6, "`choice` has no options", 'add `option "label":` lines')
        return tree.Choice(criteria, options, span=Span(start, end))

    def options(self, start: int, end: int, options: Sequence[tree.Option] = ()) -> tuple[tree.Option, ...]:
        return tuple(options)

    def option(self, start: int, end: int, label: Text, body: Body) -> tree.Option:
        return tree.Option(label, body, span=Span(start, end))

    def if_(self, start: int, end: int, first: tree.Arm, *rest: Any) -> tree.If:
        others, otherwise = rest if len(rest) == 2 else ((), rest[0])
        return tree.If((first, *others), otherwise, span=Span(start, end))

    def arm(self, start: int, end: int, condition: Expression, body: Body) -> tree.Arm:
        self._empty(start, "if", body)
        self._condition(condition, "E192", "if")
        return _arm(start, end, condition, body)

    def elif_(self, start: int, end: int, condition: Expression, body: Body) -> tree.Arm:
        self._empty(start, "elif", body)
        self._condition(condition, "E192", "elif")
        return _arm(start, end, condition, body)

    def else_(self, start: int, end: int, body: Body) -> Body:
        self._empty(start, "else", body)
        return body

    def _condition(self, condition: Expression, code: str, head: str, *, strict: bool = True) -> None:
        """A condition of `if` or `loop`: not a lone string (2.1), not an empty marker (1.7)."""
        if self.depths:
            self.depths.clear()
        if isinstance(condition, Discretion):
            if not condition.text.parts:
                self.add(code, *condition.span, "empty condition", f"say what to judge: `{head} **...**:`")
        elif isinstance(condition, Text):
            hint = f"a condition in words needs `**`: `{head} **{condition.raw}**:`"
            self.add("E004", *condition.span, "a string is no condition", hint)
        elif (
            strict and self.is_strict and not isinstance(condition, Binary | Logical | Not) and not _is_hole(condition)
        ):
            self.strict(*condition.span, "a condition is a marker or a comparison (strict)", "write `**...**`")

    # ---- pipelines

    def pipe(self, start: int, end: int, source: Expression | Pipeline, operation: tree.PipeOperation) -> Pipeline:
        if not isinstance(source, Pipeline):
            if isinstance(source, Member | Index):
                self.strict(*source.span, "a pipeline starts with a name or an array (strict)")
            source = Pipeline(source)
        source.operations.append(operation)
        return source

    open_pipe = pipe

    def pipeline(self, start: int, end: int, parts: Pipeline) -> tree.Pipe:
        return tree.Pipe(parts.source, tuple(parts.operations), span=Span(start, end))

    def operation(self, start: int, end: int, kind: Name, body: Body) -> tree.PipeOperation:
        return self._operation(start, end, kind.id, (), body)

    def reduction(self, start: int, end: int, total: Name, item: Name, body: Body) -> tree.PipeOperation:
        return self._operation(start, end, "reduce", (total, item), body)

    def _operation(self, start: int, end: int, kind: str, names: tuple[Name, ...], body: Body) -> tree.PipeOperation:
        if body and self.bare.pop(id(body[-1]), None) is not None:
            self.strict(*body[-1].span, "the last line of a body must be a statement (strict)")
        return tree.PipeOperation(cast("Any", kind), names, body, span=Span(start, end))

    def line_operation(self, start: int, end: int, kind: Name, value: Expression) -> tree.PipeOperation:
        return self._line_operation(start, end, kind.id, (), value)

    def line_reduction(self, start: int, end: int, total: Name, item: Name, value: Expression) -> tree.PipeOperation:
        return self._line_operation(start, end, "reduce", (total, item), value)

    def _line_operation(
        self, start: int, end: int, kind: str, names: tuple[Name, ...], value: Expression
    ) -> tree.PipeOperation:
        self.strict(*value.span, "a body begins on its own line (strict)")
        statement = _evaluation(*value.span, value)
        return tree.PipeOperation(cast("Any", kind), names, (statement,), span=Span(start, end))

    def line_session(self, start: int, end: int, title: Text) -> tree.Session:
        return _session(start, end, title, None, None, ())

    def line_agent(self, start: int, end: int, agent: Name) -> tree.Session:
        return _session(start, end, None, None, agent, ())

    def line_exec(self, start: int, end: int, command: Text) -> tree.Exec:
        return _exec(start, end, command, ())

    # ---- expressions

    def disjunction(self, start: int, end: int, first: Expression, others: Sequence[Expression]) -> Expression:
        return self._logical(start, end, "or", first, others)

    def conjoined(self, start: int, end: int, first: Expression, others: Sequence[Expression]) -> Expression:
        return self._logical(start, end, "and", first, others)

    def _logical(
        self, start: int, end: int, operator: Literal["and", "or"], first: Expression, others: Sequence[Expression]
    ) -> Expression:
        self.strict(start, end, f"`{operator}` is not in the strict language")
        operands = (first, *others)
        return self._nested(Logical(operator, operands, span=Span(start, end)), operands)

    def negated(self, start: int, end: int, operand: Expression) -> Expression:
        self.strict(start, end, "`not` is not in the strict language")
        return self._nested(Not(operand, span=Span(start, end)), (operand,))

    def compare(self, start: int, end: int, left: Expression, operator: str, right: Expression) -> Expression:
        if operator == "is":
            self.strict(left.span.end + 1, left.span.end + 3, "`is` is not in the strict language", "write `==`")
        return self._nested(_binary(start, end, operator, left, right), (left, right))

    def binary(self, start: int, end: int, left: Expression, operator: str, right: Expression) -> Expression:
        node = _binary(start, end, operator, left, right)
        if self.is_strict:
            self.sums.pop(id(left), None)
            self.sums.pop(id(right), None)
            if isinstance(left, Array) or isinstance(right, Array):
                self.strict(start, end, "lists cannot be added in the strict language")
            else:
                self.sums[id(node)] = node
        return self._nested(node, (left, right))

    def member(self, start: int, end: int, value: Expression, name: Name) -> Expression:
        return self._nested(_member(start, end, value, name), (value,))

    def index(self, start: int, end: int, value: Expression, index: Expression) -> Expression:
        self.sums.pop(id(index), None)
        return self._nested(Index(value, index, span=Span(start, end)), (value, index))

    def _nested(self, node: Expression, parts: Sequence[Expression]) -> Expression:
        """`node` with its depth noted; a node that is too deep is reported, and cut off."""
        depths = self.depths
        if not depths:
            depths[id(node)] = 1
            return node
        depth = 1 + max([depths.get(id(part), 0) for part in parts], default=0)
        if depth > DEPTH_LIMIT:
            if not set(self.truncated) & set(node.span):
                self.add("E005", *node.span, "this expression is nested too deeply", "bind a part of it with `let`")
            self.truncated = node.span
            return parts[0]
        depths[id(node)] = depth
        return node

    def negative(self, start: int, end: int, number: Number) -> Number:
        return Number(-number.value, span=Span(start, end))

    def array(self, start: int, end: int, first: Expression | None, others: Sequence[Expression] = ()) -> Expression:
        elements = () if first is None else (first, *others)
        if self.is_strict:
            for element in elements:
                if not isinstance(element, Text | Name | Array | Member | Index):
                    self.strict(*element.span, "an array holds strings and names (strict)")
        return self._nested(_array(start, end, elements), elements)

    def object(self, start: int, end: int, first: tree.Entry | None, others: Sequence[tree.Entry] = ()) -> Expression:
        entries = () if first is None else (first, *others)
        return self._nested(_object(start, end, entries), [entry.value for entry in entries])

    def entry(self, start: int, end: int, key: Name | Text, value: Expression) -> tree.Entry:
        self.strict(start, key.span.end, "an object lists names (strict)", "leave the key out")
        return _entry(start, end, key.id if isinstance(key, Name) else key.raw, value, False)

    def shorthand(self, start: int, end: int, path: Expression) -> tree.Entry:
        if isinstance(path, Name):
            return _entry(start, end, path.id, path, True)
        self.strict(start, end, "an object lists names (strict)")
        return _entry(start, end, _last_name(path), path, True)

    def call(
        self, start: int, end: int, program: Name, first: tree.Argument | None, others: Sequence[tree.Argument] = ()
    ) -> Expression:
        arguments = () if first is None else (first, *others)
        node = ProgramCall(program, arguments, span=Span(start, end))
        if any(not argument.name.id for argument in arguments):
            self.positional_calls.append(node)
        return self._nested(node, [argument.value for argument in arguments])

    def argument(self, start: int, end: int, name: Name, value: Expression) -> tree.Argument:
        if self.is_strict:
            self._strict_arguments((value,))
        return tree.Argument(name, value, span=Span(start, end))

    def positional(self, start: int, end: int, value: Expression) -> tree.Argument:
        return tree.Argument(Name("", span=Span(start, start)), value, span=Span(start, end))


_DEFINITION_WORDS: Final[dict[type, str]] = {
    tree.Use: "use",
    tree.SkillImport: "import",
    tree.Agent: "agent",
    tree.Block: "block",
}


def _is_hole(value: object) -> bool:
    """Whether error recovery, and not the author, has put the value there."""
    return isinstance(value, Constant) and value.span.start == value.span.end


def _last_name(path: Expression) -> str:
    """The key of a shorthand entry: the last name of its path."""
    while isinstance(path, Index):
        path = path.value
    if isinstance(path, Member):
        return path.name.id
    return path.id if isinstance(path, Name) else ""


def _word_of(value: Expression) -> str | None:
    if isinstance(value, Text):
        return value.raw
    return value.id if isinstance(value, Name) else None


def _branch(statement: Statement) -> tree.Branch:
    name: Name | None = None
    if isinstance(statement, Assign):
        name = statement.name
    elif isinstance(statement, Let) and statement.kind == "let" and not statement.destructured:
        name = statement.names[0]
    else:
        return tree.Branch(None, statement, span=statement.span)
    held = _evaluation(*statement.value.span, statement.value)
    return tree.Branch(name, held, span=statement.span)
