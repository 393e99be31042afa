"""Builds the nodes of the tree: the semantic actions of the productions of grammar.lark.

The parser calls the method that is named after the production (or its alias), with the start and end of the text and
the values of the symbols, without punctuation. A production without a method becomes the node of its name. Methods
report errors that need no other part of the program. Under `strict` they also report the forms that only `default`
accepts (openprose.md 2.3, last column). An invalid value is replaced by its default, so that it causes no further
findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prose_kernel.language.openprose import hints, tree
from prose_kernel.language.openprose.body_builder import BodyBuilder
from prose_kernel.language.openprose.tree import Body, Expression, Name, Statement, Text, is_hole
from prose_kernel.language.source import Span
from prose_kernel.language.text import clipped

NO_EFFECT: Final = "this statement has no effect"
_EFFECTS: Final = frozenset(tree.Active.__subclasses__()) - {tree.Discretion}
_STRICT_VALUES: Final = (tree.Number, tree.Constant, tree.Member, tree.Discretion, tree.Duration)


class Builder(BodyBuilder):
    """The semantic actions of one parse. This class builds the program and its statements, its bases build their parts.

    The findings are complete once `program` has been called.
    """

    # ---- program, bodies, definitions

    def program(self, start: int, end: int, statements: Sequence[Statement] = ()) -> tree.Program:
        for statement in self.value_statements.values():
            self._no_effect(statement)
        for total in self.sums.values():
            self.add("E004", *total.span, "an operator is only allowed in an argument or an index (strict)")
        return tree.Program(tuple(statements), self.is_strict, self.is_script, span=Span(start, end))

    def _no_effect(self, statement: tree.ExpressionStatement) -> None:
        value = statement.value
        hint: str | None
        if isinstance(value, Text):
            whole = len(value.raw) <= 60 and not {'"', "\n", "`"} & set(value.raw)
            hint = f'a prompt needs `session`: `session "{value.raw if whole else "..."}"`'
        elif isinstance(value, Name):
            shows = "return" if self.is_script else "output result ="
            hint = hints.bare_word(value.id) or f"to show the value, write `{shows} {value.id}`"
        else:
            written = self.findings.source.slice(statement.span)
            hint = hints.line(clipped(written, hints.MAX_QUOTED, "...", kept=hints.MAX_QUOTED))
        self.add("E005", *statement.span, NO_EFFECT, hint)

    def skill_import(self, start: int, end: int, skill: Text, source: Text) -> tree.SkillImport:
        if self.is_strict:
            self.report_strict(start, start + 6, "`import` is not in the language", "write `use`")
        else:
            self.add("W106", start, start + 6, "`import` is an old form", "programs are imported with `use`")
        return tree.SkillImport(skill, source, span=Span(start, end))

    def block(
        self,
        start: int,
        end: int,
        name: Name,
        parameters: tuple[Name, ...] | None,
        limits: Mapping[str, Any] | None,
        body: Body,
    ) -> tree.Block:
        self._report_empty_body(start, end, "block", body)
        depth, budget = ((limits or {}).get(word) for word in ("max_depth", "budget"))
        return tree.Block(name, parameters or (), depth, body, budget, span=Span(start, end))

    def parameters(self, start: int, end: int, names: tuple[Name, ...] | None) -> tuple[Name, ...]:
        if names is None and not self.findings.error_since(start):
            self.report_strict(end - 1, end, "a parameter list needs a name", "leave the parentheses out")
        return names or ()

    def names(self, start: int, end: int, first: Name, others: Sequence[Name] = ()) -> tuple[Name, ...]:
        return (first, *others)

    def limits(
        self, start: int, end: int, first: tuple[Name, Any], others: Sequence[tuple[Name, Any]] = ()
    ) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for name, value in (first, *others):
            if name.id in found:
                self.add("E009", *name.span, f"`{name.id}` is given twice")
            found[name.id] = value
        return found

    def limit(self, start: int, end: int, name: Name, value: Expression) -> tuple[Name, int | Text | None]:
        if name.id == "budget":
            self.report_strict(start, end, "a block has no `budget`", "leave it out")
            if isinstance(value, Text):
                return name, value
            self.add("E184", *value.span, "A budget must be a string", 'write `(budget: "2 usd")`')
        elif name.id != "max_depth":
            hint = "write `(max_depth: 50)`" if self.is_strict else 'write `(max_depth: 50)` or `(budget: "2 usd")`'
            self.add("E004", *name.span, f"unexpected `{name.id}`", hint)
        elif isinstance(value, tree.Number) and isinstance(value.value, int) and value.value > 0:
            return name, value.value
        else:
            self.add("E145", *value.span, "max_depth must be a positive integer")
        return name, None

    # ---- statements

    def append(self, start: int, end: int, value: Expression, name: Name) -> tree.Append:
        word = self.findings.source.text[start : start + 6]
        hint = f"write `{name.id} = {name.id} + [...]`"
        self.report_legacy("W318", start, start + 6, f"`{word}` is kept for existing files", hint)
        return tree.Append.at(start, end, self._assigned(value), name)

    def output(self, start: int, end: int, name: Name, value: Expression) -> tree.Output:
        return tree.Output.at(start, end, name, self._assigned(value))

    def anonymous_output(self, start: int, end: int, value: Expression) -> tree.Output:
        if not (is_hole(value) and self.findings.error_since(start)):
            self.report_strict(*value.span, "an output needs a name", "write `output name = ...`")
        self.depths.clear()
        return tree.Output.at(start, end, None, value)

    def let(self, start: int, end: int, kind: str, name: Name, value: Expression) -> tree.Let:
        return tree.Let.at(start, end, kind, (name,), self._assigned(value), False)

    def destructure(self, start: int, end: int, kind: str, names: tuple[Name, ...], value: Expression) -> tree.Let:
        return tree.Let.at(start, end, kind, names, self._assigned(value), True)

    def assign(self, start: int, end: int, name: Name, value: Expression) -> tree.Assign:
        return tree.Assign.at(start, end, name, self._assigned(value))

    def _assigned(self, value: Expression) -> Expression:
        """Check a right-hand side: `strict` allows spawns, compounds, calls, strings, names, arrays (2.3 row 16)."""
        if self.depths:
            self.depths.clear()
        if self.is_strict and not is_hole(value):
            if isinstance(value, tree.Try):
                self.report_strict(*value.span, "`try` cannot be a value (strict)")
            elif (
                isinstance(value, _STRICT_VALUES)
                or (isinstance(value, tree.Binary) and value.operator not in "+-")
                or (isinstance(value, tree.Object) and not value.entries)
            ):
                self.report_strict(*value.span, "this expression cannot be a value in the strict profile")
        return value

    def return_(self, start: int, end: int, value: Expression | None = None) -> tree.Return:
        self.depths.clear()
        self._not_strict(start, "return")
        return tree.Return(value, span=Span(start, end))

    bare_return = return_

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
        self.report_strict(start, start + len(word), f"`{word}` is not in the strict language")

    def evaluate(self, start: int, end: int, value: Expression) -> tree.ExpressionStatement:
        statement = tree.ExpressionStatement.at(start, end, value)
        if type(value) not in _EFFECTS:
            self.value_statements[id(statement)] = statement
        if self.depths:
            self.depths.clear()
        return statement
