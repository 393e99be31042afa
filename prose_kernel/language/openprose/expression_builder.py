"""Builds the nodes of expressions, and holds the state that all semantic actions share (see builder.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from prose_kernel.language.diagnostics import PROSESCRIPT_PROFILES, Profile
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.bare_conditions import BareCondition
from prose_kernel.language.openprose.diagnostic_collector import Findings
from prose_kernel.language.openprose.keywords import LEGACY_CODES
from prose_kernel.language.openprose.tree import Expression, Name, Text
from prose_kernel.language.source import Span

DEPTH_LIMIT: Final = 50
"""How many levels of operators, members, calls and literals one expression may have; more are E005."""


class ExpressionBuilder:
    """Builds expressions. Holds the state of all actions: findings, profile, depth of the expression being parsed."""

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


def _last_name(path: Expression) -> str:
    """Return the key of a shorthand entry: the last name of its path."""
    while isinstance(path, tree.Index):
        path = path.value
    if isinstance(path, tree.Member):
        return path.name.id
    return path.id if isinstance(path, Name) else ""
