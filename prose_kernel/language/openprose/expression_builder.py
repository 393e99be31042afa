"""Builds the nodes of expressions and spawns, and holds the state that all semantic actions share (see builder.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from prose_kernel.language.diagnostics import PROSESCRIPT_PROFILES, Profile
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.bare_conditions import BareCondition
from prose_kernel.language.openprose.diagnostic_collector import Findings
from prose_kernel.language.openprose.keywords import LEGACY_CODES, PROPERTIES
from prose_kernel.language.openprose.tree import PLACEHOLDER, Expression, Name, Text, is_hole
from prose_kernel.language.source import Span
from prose_kernel.language.text import on_one_line

DEPTH_LIMIT: Final = 50
"""How many levels of operators, members, calls and literals one expression may have; more are E005."""
_ALIASES: Final = {"on_fail": "on-fail", "on-reject": "on_reject", "on_reject": "on_reject"}
_UNUSUAL: Final = frozenset({tree.OnReject, tree.Constant})
_ONE_LINE: Final = frozenset().union(*PROPERTIES.values()) - {"context", "output", "permissions"}

Head = tuple[str, Any, Any, Any, tuple[tree.Property, ...]]
"""A spawn without its block: kind, title or command, label, agent, properties on the line."""


class ExpressionBuilder:
    """Builds expressions, and sessions, resumes and commands with the property blocks below them.

    Holds the state of all actions: findings, profile, depth of the expression being parsed.
    """

    def __init__(self, profile: Profile, findings: Findings, conditions: Mapping[int, BareCondition]) -> None:
        self.is_strict = profile == "strict"
        self.is_script = profile in PROSESCRIPT_PROFILES
        self.profile = profile
        self.conditions = conditions
        self.findings = findings
        self.add = findings.add
        # Expressions used as statements, by id; they are legal at the end of a pipe body.
        self.value_statements: dict[int, tree.ExpressionStatement] = {}
        self.sums: dict[int, tree.Binary] = {}  # strict: sums that aren't an argument or index so far, by id
        self.depths: dict[int, int] = {}  # the depths of the composite parts of the current expression, by id
        self.positional_calls: list[tree.ProgramCall] = []
        self.truncated = Span(-1, -1)  # the last expression cut off as too deep; the ones around it share an end

    def report_strict(self, start: int, end: int, message: str, hint: str | None = None, code: str = "E004") -> None:
        """Report a form that only the strict profile rejects."""
        if self.is_strict:
            self.add(code, start, end, message, hint, readable=True)

    def report_legacy(self, code: str, start: int, end: int, message: str, hint: str | None = None) -> None:
        """Report a form of ProseScript that is kept for existing files (prose-md.md 3.10)."""
        code = LEGACY_CODES[code] if self.profile == "prosescript-strict" else code
        self.add(code, start, end, message, hint, readable=True)

    # ---- expressions

    def disjunction(self, start: int, end: int, first: Expression, others: Sequence[Expression]) -> Expression:
        return self._logical(start, end, "or", first, others)

    def conjoined(self, start: int, end: int, first: Expression, others: Sequence[Expression]) -> Expression:
        return self._logical(start, end, "and", first, others)

    def _logical(
        self, start: int, end: int, operator: Literal["and", "or"], first: Expression, others: Sequence[Expression]
    ) -> Expression:
        self.report_strict(start, end, f"`{operator}` is not in the strict language")
        operands = (first, *others)
        return self._nested(tree.Logical(operator, operands, span=Span(start, end)), operands)

    def negated(self, start: int, end: int, operand: Expression) -> Expression:
        self.report_strict(start, end, "`not` is not in the strict language")
        return self._nested(tree.Not(operand, span=Span(start, end)), (operand,))

    def compare(self, start: int, end: int, left: Expression, operator: str, right: Expression) -> Expression:
        if operator == "is":
            self.report_strict(left.span.end + 1, left.span.end + 3, "`is` is not in the strict language", "write `==`")
        return self._nested(tree.Binary.at(start, end, operator, left, right), (left, right))

    def binary(self, start: int, end: int, left: Expression, operator: str, right: Expression) -> Expression:
        node = tree.Binary.at(start, end, operator, left, right)
        if self.is_strict:
            self.sums.pop(id(left), None)
            self.sums.pop(id(right), None)
            if isinstance(left, tree.Array) or isinstance(right, tree.Array):
                self.report_strict(start, end, "lists cannot be added in the strict language")
            else:
                self.sums[id(node)] = node
        return self._nested(node, (left, right))

    def member(self, start: int, end: int, value: Expression, name: Name) -> Expression:
        return self._nested(tree.Member.at(start, end, value, name), (value,))

    def index(self, start: int, end: int, value: Expression, index: Expression) -> Expression:
        self.sums.pop(id(index), None)
        return self._nested(tree.Index(value, index, span=Span(start, end)), (value, index))

    def _nested(self, node: Expression, parts: Sequence[Expression]) -> Expression:
        """Record the depth of `node` and return it; report a node that is too deep, and return its first part."""
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

    def negative(self, start: int, end: int, number: tree.Number) -> tree.Number:
        return tree.Number(-number.value, span=Span(start, end))

    def array(self, start: int, end: int, first: Expression | None, others: Sequence[Expression] = ()) -> Expression:
        elements = () if first is None else (first, *others)
        if self.is_strict:
            for element in elements:
                if not isinstance(element, Text | Name | tree.Array | tree.Member | tree.Index):
                    self.report_strict(*element.span, "an array holds strings and names (strict)")
        return self._nested(tree.Array.at(start, end, elements), elements)

    def object(self, start: int, end: int, first: tree.Entry | None, others: Sequence[tree.Entry] = ()) -> Expression:
        entries = () if first is None else (first, *others)
        return self._nested(tree.Object.at(start, end, entries), [entry.value for entry in entries])

    def entry(self, start: int, end: int, key: Name | Text, value: Expression) -> tree.Entry:
        self.report_strict(start, key.span.end, "an object lists names (strict)", "leave the key out")
        return tree.Entry.at(start, end, key.id if isinstance(key, Name) else key.raw, value, False)

    def shorthand(self, start: int, end: int, path: Expression) -> tree.Entry:
        if isinstance(path, Name):
            return tree.Entry.at(start, end, path.id, path, True)
        self.report_strict(start, end, "an object lists names (strict)")
        return tree.Entry.at(start, end, _last_name(path), path, True)

    def call(
        self, start: int, end: int, program: Name, first: tree.Argument | None, others: Sequence[tree.Argument] = ()
    ) -> Expression:
        arguments = () if first is None else (first, *others)
        node = tree.ProgramCall(program, arguments, span=Span(start, end))
        if any(not argument.name.id for argument in arguments):
            self.positional_calls.append(node)
        return self._nested(node, [argument.value for argument in arguments])

    def argument(self, start: int, end: int, name: Name, value: Expression) -> tree.Argument:
        if self.is_strict:
            self._strict_arguments((value,))
        return tree.Argument(name, value, span=Span(start, end))

    def positional(self, start: int, end: int, value: Expression) -> tree.Argument:
        return tree.Argument(Name("", span=Span(start, start)), value, span=Span(start, end))

    def _strict_arguments(self, values: Sequence[Expression]) -> None:
        for value in values:
            self.sums.pop(id(value), None)
            if isinstance(value, tree.Constant | tree.Discretion):
                self.report_strict(*value.span, "this value is not in the strict language")

    # ---- spawns

    def spawn(self, start: int, end: int, head: Head, block: tree.Properties | Text) -> tree.Spawn:
        if isinstance(block, Text):
            at = block.span.start if self.is_strict else start  # for `strict`, the text is the unexpected token
            self._legacy(at, "the prompt of a session belongs into `prompt:`", 'write `prompt: "..."`')
            block = (tree.Property.at(*block.span, Name("prompt", span=block.span), block),)
        return self._spawn(start, end, head, block)

    def _spawn(self, start: int, end: int, head: Head, block: tree.Properties) -> tree.Spawn:
        kind, title, label, agent, line = head
        if (title is not None or agent is not None) and kind == "session" and not line:
            return tree.Session.at(start, end, title, label, agent, block)
        if kind == "exec":
            return tree.Exec.at(start, end, title, block)
        if kind == "resume":
            return tree.Resume(agent, block, span=Span(start, end))
        properties = line + block if line else block
        if title is None and agent is None:
            self._unassigned(start, properties)
        return tree.Session.at(start, end, title, label, agent, properties)

    def _unassigned(self, start: int, properties: tree.Properties) -> None:
        """Report a session without title and agent (2.3 rows 46, 73)."""
        hint = 'write `session "prompt"` or `session: agent`'
        if self.is_strict or tree.value_of(properties, "prompt") is None:
            if not self.findings.error_since(start):
                self.add("E003", start, start + 7, "session without prompt and agent", hint)
        else:
            self.add("W107", start, start + 7, "a session without agent is an old form", hint)

    def _legacy(self, start: int, message: str, hint: str) -> None:
        """Report an old form of `session`, which begins at `start`."""
        self.add("E004" if self.is_strict else "W107", start, start + len("session"), message, hint)

    def link(self, start: int, end: int, spawn: Head | tree.Spawn) -> tree.Spawn:
        return self._spawn(start, end, spawn, ()) if isinstance(spawn, tuple) else spawn

    def arrow(self, start: int, end: int, links: list[tree.Spawn], last: tree.Spawn) -> tree.Arrow:
        return tree.Arrow((*links, last), span=Span(start, end))

    def titled(self, start: int, end: int, title: Text) -> Head:
        return ("session", title, None, None, ())

    def titled_colon(self, start: int, end: int, title: Text) -> Head:
        self._legacy(start, "the colon after a session's text is an old form", "leave the colon out")
        return ("session", title, None, None, ())

    def titled_parenthesis(
        self,
        start: int,
        end: int,
        title: Text,
        first: tree.Property | None,
        others: Sequence[tree.Property | None] = (),
    ) -> Head:
        return self.titled_line(start, end, title, (first, *others))

    def titled_line(self, start: int, end: int, title: Text, properties: Sequence[tree.Property | None]) -> Head:
        self._legacy(start, "properties on the session's line are an old form", "indent them below it")
        return ("session", title, None, None, tuple([p for p in properties if p is not None]))

    def titled_agent(self, start: int, end: int, label: Name | None, agent: Name, text: Text) -> Head:
        written = self.findings.source.slice(text.span)
        hint = f"indent `prompt: {on_one_line(written)}` below it"
        self.report_strict(*text.span, "a session with an agent takes its text as a property", hint)
        prompt = tree.Property.at(*text.span, Name("prompt", span=text.span), text)
        return ("session", None, label, agent, (prompt,))

    def agent_head(self, start: int, end: int, label: Name | None, agent: Name | None) -> Head:
        return ("session", None, label, agent, ())

    def resume(self, start: int, end: int, agent: Name) -> Head:
        return ("resume", None, None, agent, ())

    def exec(self, start: int, end: int, command: Text) -> Head:
        return ("exec", command, None, None, ())

    # ---- calls of contracts and stages (prose-md.md 3.5, 3.10)

    def call_contract(
        self,
        start: int,
        end: int,
        target: Name | Text,
        arguments: tuple[Expression, ...] | None,
        inputs: tuple[tree.Argument, ...],
    ) -> tree.Call:
        if arguments is not None:
            message, hint = "inputs by position are kept for existing files", "name them on lines below: `name: value`"
            self.report_legacy("W314", target.span.end, target.span.end + 1, message, hint)
        return tree.Call.at(start, end, target, arguments or (), inputs)

    def call_inputs(self, start: int, end: int, inputs: Sequence[tree.Argument] = ()) -> tuple[tree.Argument, ...]:
        return tuple(inputs)

    def call_input(self, start: int, end: int, name: Name, value: Expression) -> tree.Argument:
        self.depths.clear()
        return tree.Argument(name, value, span=Span(start, end))

    entry_line = call_input

    def stage(self, start: int, end: int, name: Name, arguments: tuple[Expression, ...]) -> tree.Stage:
        message = "a stage as a session is kept for existing files"
        self.report_legacy("W314", start, start + 7, message, 'write `session "..."` with `context:`')
        return tree.Stage.at(start, end, name, arguments)

    # ---- properties

    def properties(self, start: int, end: int, properties: Sequence[tree.Property | None] = ()) -> tree.Properties:
        return tuple([p for p in properties if p is not None])

    def property(self, start: int, end: int, name: Name, value: Expression | tree.OnReject) -> tree.Property | None:
        if self.depths:
            self.depths.clear()
        if self.is_strict or name.id in _ALIASES or value.__class__ in _UNUSUAL:
            return self._unusual(start, end, name, value)
        return tree.Property.at(start, end, name, value)

    def _unusual(self, start: int, end: int, name: Name, value: Expression | tree.OnReject) -> tree.Property | None:
        """Build a property that needs special treatment: an alias, or a value that only some properties allow."""
        word = _ALIASES.get(name.id, name.id)
        if word != name.id:
            name = Name(word, span=name.span)
        if word == "on_reject":
            value = self._on_reject(value)
        elif isinstance(value, tree.OnReject):
            if value.text is not None:
                self.add("E004", *value.span, f"`{value.action}` is only allowed after `on_reject:`")
            value = Name(value.action, span=value.span)
        elif is_hole(value) and self.findings.error_since(start):
            if word != "prompt":
                return None  # it counts as absent
            value = Text((PLACEHOLDER,), span=name.span)
        elif is_hole(value) and word in _ONE_LINE:
            self._no_value(name)
        elif self.is_strict and word == "context" and isinstance(value, Text):
            self.report_strict(*value.span, "`context` takes names, not text (strict)")
        return tree.Property.at(start, end, name, value)

    def _no_value(self, name: Name) -> None:
        self.add("E004", name.span.end + 1, name.span.end + 1, f"`{name.id}:` needs a value on its line")

    def _on_reject(self, value: Expression | tree.OnReject) -> tree.OnReject:
        if isinstance(value, tree.OnReject):
            return value
        span = value.span
        if isinstance(value, Name) and value.id == "retry":
            return tree.OnReject("retry", span=span)
        if isinstance(value, Text) and not self.is_strict:
            self.add("W107", *span, "a bare text after `on_reject:` is an old form", 'write `on_reject: throw "..."`')
            return tree.OnReject("throw", value, span=span)
        if not is_hole(value) or not self.findings.error_since(span.start):
            self.add("E199", *span, "`on_reject` must be throw, retry, continue or session")
        return tree.OnReject("throw", span=span)

    def on_reject_throw(self, start: int, end: int, text: Text | None) -> tree.OnReject:
        return tree.OnReject("throw", text, span=Span(start, end))

    def on_reject_continue(self, start: int, end: int) -> tree.OnReject:
        return tree.OnReject("continue", span=Span(start, end))

    def on_reject_session(self, start: int, end: int, text: Text) -> tree.OnReject:
        return tree.OnReject("session", text, span=Span(start, end))

    def property_block(self, start: int, end: int, name: Name, entries: Sequence[tree.Argument]) -> tree.Property:
        span = Span(start, end)
        value: tree.Value = tree.Constant(None, span=Span(end, end))
        if not entries:
            if name.id != "permissions" and not self.findings.error_since(start):
                self._no_value(name)
        elif name.id == "permissions":
            value = tree.Permissions(tuple(entries), span=span)
        else:
            if name.id == "context":
                self.report_strict(*name.span, "`context` takes names on its line (strict)")
            value = tree.ContextBlock(tuple(entries), span=span)
        return tree.Property(name, value, span=span)

    def items(self, start: int, end: int, elements: Sequence[Expression]) -> tree.Array:
        """Build an array from a list with one `- element` per line, as in YAML."""
        at = self.findings.source.text.rfind("-", 0, elements[0].span.start)
        self.report_strict(at, at + 1, "a list is written in brackets (strict)", "write `[first, second]`")
        return tree.Array(tuple(elements), span=Span(start, end))

    def item(self, start: int, end: int, value: Expression) -> Expression:
        self.depths.clear()
        return value

    def entries(self, start: int, end: int, entries: Sequence[tree.Argument] = ()) -> Sequence[tree.Argument]:
        return entries


def _last_name(path: Expression) -> str:
    """Return the key of a shorthand entry: the last name of its path."""
    while isinstance(path, tree.Index):
        path = path.value
    if isinstance(path, tree.Member):
        return path.name.id
    return path.id if isinstance(path, Name) else ""
