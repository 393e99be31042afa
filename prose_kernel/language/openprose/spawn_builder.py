"""Builds the nodes of sessions, resumes, commands, calls, and their properties (see builder.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.expression_builder import ExpressionBuilder
from prose_kernel.language.openprose.tree import Expression, Name, Text, is_hole
from prose_kernel.language.shortening import on_one_line
from prose_kernel.language.source import Span

PLACEHOLDER: Final = "..."
"""Stands for text that could not be parsed."""
_ALIASES: Final = {"on_fail": "on-fail", "on-reject": "on_reject", "on_reject": "on_reject"}
_UNUSUAL: Final = frozenset({tree.OnReject, tree.Constant})
_ONE_LINE: Final = frozenset((
    "model", "prompt", "persist", "retry", "backoff", "budget", "tools", "skills", "timeout", "on-fail",
    "cwd", "stdin", "env", "max-output", "format", "display", "pipefail", "reads", "writes", "needs",
    "allow", "on_reject",
))  # fmt: skip

Head = tuple[str, Any, Any, Any, tuple[tree.Property, ...]]
"""A spawn without its block: kind, title or command, label, agent, properties on the line."""


class SpawnBuilder(ExpressionBuilder):
    """Builds sessions, resumes and commands, with the property blocks below them."""

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

    def entry_line(self, start: int, end: int, name: Name, value: Expression) -> tree.Argument:
        return tree.Argument(name, value, span=Span(start, end))
