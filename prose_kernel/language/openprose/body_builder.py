"""Builds the nodes of statements with bodies, and of pipelines (see builder.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.expression_builder import ExpressionBuilder
from prose_kernel.language.openprose.strings import marker_text
from prose_kernel.language.openprose.tree import Body, Expression, Name, Statement, Text, is_hole
from prose_kernel.language.source import Span

_NEED_BODY: Final = frozenset({"if", "elif", "else", "for", "repeat", "loop", "try", "catch", "finally"})
"""Headers whose empty body is an error (E147) if an unindented statement follows, because its indentation is probably
missing. Elsewhere an empty body is a warning."""
_STRATEGIES: Final = ("all", "first", "any")
_REDUCE: Final = Name("reduce")
_POLICIES: Final = ("fail-fast", "continue", "ignore")


class BodyBuilder(ExpressionBuilder):
    """Builds statements that have bodies: conditions, loops, branches, handlers, pipelines."""

    def body(self, start: int, end: int, statements: Sequence[Statement] = ()) -> Body:
        for statement in statements:
            if isinstance(statement, tree.Definition):
                word = "import" if isinstance(statement, tree.SkillImport) else type(statement).__name__.lower()
                at, hint = statement.span.start, "move it out of the body"
                self.add("E146", at, at + len(word), f"`{word}` is only allowed at top level", hint)
        return tuple(statements)

    def _report_empty_body(self, start: int, end: int, word: str, body: Body) -> bool:
        """Report an empty body: W120, or E147 if the statement below was probably meant to be the body.

        Return True for E147. `end` is on the header's last line. A body that could not be parsed isn't reported again.
        """
        if body or self.findings.error_since(start):
            return False
        below = self.findings.unindented_below(start, end)
        hint = f'indent line {below[0]} by two spaces to put it under "{word}"' if below is not None else None
        is_error = below is not None and word in _NEED_BODY
        if below is not None and is_error:
            self.findings.unindented_columns.add(below[1])
        self.add("E147" if is_error else "W120", start, start + len(word), f"the body of `{word}` is empty", hint)
        return is_error

    # ---- compounds

    def do(self, start: int, end: int, body: Body) -> tree.Do:
        self._report_empty_body(start, end, "do", body)
        return tree.Do(body, span=Span(start, end))

    def block_call(self, start: int, end: int, name: Name, arguments: tuple[Expression, ...] | None) -> tree.BlockCall:
        return tree.BlockCall.at(start, end, name, arguments or ())

    def arguments(
        self, start: int, end: int, first: Expression | None, others: Sequence[Expression] = ()
    ) -> tuple[Expression, ...]:
        if first is None:
            return ()
        values = (first, *others)
        if self.is_strict:
            self._strict_arguments(values)
        return values

    def parallel(self, start: int, end: int, modifiers: tree.Modifiers | None, body: Body) -> tree.Parallel:
        self._report_empty_body(start, end, "parallel", body)
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

    def parallel_repeat(
        self, start: int, end: int, count: Expression, variable: Name | None, body: Body
    ) -> tree.Repeat:
        hint = "write `parallel for` over a list"
        self.report_legacy("W318", start, start + 8, "`parallel repeat` is kept for existing files", hint)
        self._report_empty_body(start, end, "parallel repeat", body)
        return tree.Repeat(self._count(count), variable, body, True, span=Span(start, end))

    def loop_each(
        self,
        start: int,
        end: int,
        item: Name,
        collection: Expression,
        maximum: int | None,
        index: Name | None,
        body: Body,
    ) -> tree.For:
        self._report_empty_body(start, end, "loop", body)
        if maximum is None:
            hint = "add `(max: 10)` after the collection, or write `for`"
            self.add("E320", start, start + 4, "`loop for each` needs a maximum", hint, readable=True)
        return tree.For(item, index, collection, body, None, maximum, span=Span(start, end))

    def modifier(self, start: int, end: int, name: Name | None, value: Expression) -> tuple[Name | None, Expression]:
        return name, value

    def modifiers(
        self,
        start: int,
        end: int,
        first: tuple[Name | None, Expression] | None,
        others: Sequence[tuple[Name | None, Expression]] = (),
    ) -> tree.Modifiers:
        given: dict[str, Any] = {}
        written = () if first is None else (first, *others)
        if not written and not self.findings.error_since(start):
            self.report_strict(end - 1, end, "the parentheses need a modifier", "leave the parentheses out")
        for name, value in written:
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
            at = next(value for name, value in written if name is not None and name.id == "count")
            self.add("E152", *at.span, '`count` needs the strategy "any"', f'write `("any", count: {count})`')
            count = None
        return tree.Modifiers(strategy, given.get("on-fail") or "fail-fast", count, span=Span(start, end))

    def _modifier(self, word: str, value: Expression) -> Any:
        """Return the value of a modifier; report an invalid one and return None."""
        text = tree.word_of(value)
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
        elif isinstance(value, tree.Number) and isinstance(value.value, int) and value.value >= 1:
            return value.value
        else:
            self.add("E153", *value.span, "`count` must be an integer of at least 1")
        return None

    def for_(
        self, start: int, end: int, item: Name, index: Name | None, collection: Expression, body: Body
    ) -> tree.For:
        self._loop_over(start, end, "for", collection, body)
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
        self._loop_over(start, end, "parallel for", collection, body)
        span = Span(start, end)
        if modifiers is not None:
            self.report_strict(*modifiers.span, "`parallel for` takes no modifiers (strict)")
        return tree.For(item, index, collection, body, modifiers or tree.Modifiers(span=span), span=span)

    def _loop_over(self, start: int, end: int, word: str, collection: Expression, body: Body) -> None:
        self._report_empty_body(start, end, word, body)
        if not isinstance(collection, Name | tree.Array | tree.ProgramCall):
            self.report_strict(*collection.span, "a collection is a name or an array (strict)")

    def repeat(self, start: int, end: int, count: Expression, variable: Name | None, body: Body) -> tree.Repeat:
        self._report_empty_body(start, end, "repeat", body)
        return tree.Repeat(self._count(count), variable, body, span=Span(start, end))

    def _count(self, count: Expression) -> Expression:
        span = count.span
        if isinstance(count, tree.Number):
            if isinstance(count.value, int) and count.value > 0:
                return count
            code = "E160" if isinstance(count.value, int) else "E161"
            self.add(code, *span, f"the count must be {'positive' if code == 'E160' else 'an integer'}")
        elif isinstance(count, Name) or (self.is_script and isinstance(count, tree.Member | tree.Index)):
            self.report_strict(*span, "the count must be a number (strict)")
            return count
        elif isinstance(count, Text | tree.Duration | tree.Constant) and not is_hole(count):
            self.add("E161", *span, "the count must be an integer")
        elif not is_hole(count):
            forms = "a number, a name or a path" if self.is_script else "a number or a name"
            self.add("E004", *span, f"the count must be {forms}", "bind it first: `let n = ...`")
        return tree.Number(1, span=span)

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
        self._report_empty_body(start, end, "loop", body)
        if condition is not None and mode is not None:
            condition = self._condition(condition, "E165", f"loop {mode.id}", start)
        word = cast('Literal["until", "while"] | None', mode.id if mode else None)
        return tree.Loop(word, condition, maximum, variable, body, span=Span(start, end))

    def maximum(self, start: int, end: int, value: Expression) -> int:
        if isinstance(value, tree.Number) and isinstance(value.value, int):
            if value.value > 0:
                return value.value
            self.add("E163", *value.span, "`max` must be positive")
        else:
            self.add("E164", *value.span, "`max` must be an integer")
        return 1

    def try_(self, start: int, end: int, body: Body, catch: tree.Catch | None, final: Body | None) -> tree.Try:
        is_unindented = self._report_empty_body(start, start, "try", body)
        if catch is None and final is None and not is_unindented:
            self.add("E180", start, start + 3, "`try` needs a `catch` or a `finally`")
        return tree.Try(body, catch, final, span=Span(start, end))

    def catch(self, start: int, end: int, name: Name | None, body: Body) -> tree.Catch:
        self._report_empty_body(start, end, "catch", body)
        return tree.Catch(name, body, span=Span(start, end))

    def finally_(self, start: int, end: int, body: Body) -> Body:
        self._report_empty_body(start, end, "finally", body)
        return body

    def choice(self, start: int, end: int, criteria: tree.Discretion, options: tuple[tree.Option, ...]) -> tree.Choice:
        if not criteria.text.parts:
            self.add("E191", *criteria.span, "empty criteria", "say what to choose by: `choice **the best fit**:`")
        if not options and not self.findings.error_since(start):
            self.add("E190", start, start + 6, "`choice` has no options", 'add `option "label":` lines')
        return tree.Choice(criteria, options, span=Span(start, end))

    def options(self, start: int, end: int, options: Sequence[tree.Option] = ()) -> tuple[tree.Option, ...]:
        return tuple(options)

    def if_(self, start: int, end: int, first: tree.Arm, *rest: Any) -> tree.If:
        others, otherwise = rest if len(rest) == 2 else ((), rest[0])
        return tree.If((first, *others), otherwise, span=Span(start, end))

    def arm(self, start: int, end: int, condition: Expression, body: Body, word: str = "if") -> tree.Arm:
        self._report_empty_body(start, end, word, body)
        return tree.Arm.at(start, end, self._condition(condition, "E192", word, start), body)

    def elif_(self, start: int, end: int, condition: Expression, body: Body) -> tree.Arm:
        return self.arm(start, end, condition, body, "elif")

    def else_(self, start: int, end: int, body: Body) -> Body:
        self._report_empty_body(start, end, "else", body)
        return body

    def _condition(
        self, condition: Expression, code: str, head: str, start: int = -1, *, strict: bool = True
    ) -> Expression:
        """Check a condition of `if` or `loop`: it can't be a string (2.1) or an empty marker (1.7).

        `start` is the offset of the header. An ambiguous condition is returned with both readings.
        """
        if self.depths:
            self.depths.clear()
        if isinstance(condition, tree.Discretion):
            if not condition.text.parts:
                self.add(code, *condition.span, "empty condition", f"say what to judge: `{head} **...**:`")
        elif isinstance(condition, Text):
            hint = f"a condition in words needs `**`: `{head} **{condition.raw}**:`"
            self.add("E004", *condition.span, "a condition cannot be a string", hint)
        elif (
            strict
            and self.is_strict
            and not isinstance(condition, tree.Binary | tree.Logical | tree.Not)
            and not is_hole(condition)
        ):
            self.report_strict(*condition.span, "a condition is a marker or a comparison (strict)", "write `**...**`")
        bare = self.conditions.get(start) if self.conditions else None
        if bare is None or is_hole(condition):
            return condition
        text = marker_text(self.findings.source.text[bare.start : bare.end], bare.start)
        words = tree.Discretion.at(bare.start, bare.end, text)
        return tree.AmbiguousCondition.at(bare.start, bare.end, words, condition, bare.takes_variable)

    # ---- pipelines

    def pipe(self, start: int, end: int, source: Expression | list[Any], operation: tree.PipeOperation) -> list[Any]:
        """Return the source and the operations of a pipeline so far."""
        if isinstance(source, tree.Member | tree.Index):
            self.report_strict(*source.span, "a pipeline starts with a name or an array (strict)")
        parts = source if isinstance(source, list) else [source]
        parts.append(operation)
        return parts

    open_pipe = pipe

    def pipeline(self, start: int, end: int, parts: list[Any]) -> tree.Pipe:
        return tree.Pipe(parts[0], tuple(parts[1:]), span=Span(start, end))

    def operation(self, start: int, end: int, kind: Name, body: Body, *names: Name) -> tree.PipeOperation:
        if body and self.value_statements.pop(id(body[-1]), None) is not None:
            self.report_strict(*body[-1].span, "the last line of a body must be a statement (strict)")
        return tree.PipeOperation.at(start, end, kind.id, names, body)

    def reduction(self, start: int, end: int, total: Name, item: Name, body: Body) -> tree.PipeOperation:
        return self.operation(start, end, _REDUCE, body, total, item)

    def line_operation(self, start: int, end: int, kind: Name, value: Expression, *names: Name) -> tree.PipeOperation:
        self.report_strict(*value.span, "a body begins on its own line (strict)")
        statement = tree.ExpressionStatement.at(*value.span, value)
        return tree.PipeOperation.at(start, end, kind.id, names, (statement,))

    def line_reduction(self, start: int, end: int, total: Name, item: Name, value: Expression) -> tree.PipeOperation:
        return self.line_operation(start, end, _REDUCE, value, total, item)

    def line_session(self, start: int, end: int, title: Text) -> tree.Session:
        return tree.Session.at(start, end, title, None, None, ())

    def line_agent(self, start: int, end: int, agent: Name) -> tree.Session:
        return tree.Session.at(start, end, None, None, agent, ())

    def line_exec(self, start: int, end: int, command: Text) -> tree.Exec:
        return tree.Exec.at(start, end, command, ())


def _branch(statement: Statement) -> tree.Branch:
    name: Name | None = None
    if isinstance(statement, tree.Assign):
        name = statement.name
    elif isinstance(statement, tree.Let) and statement.kind == "let" and not statement.destructured:
        name = statement.names[0]
    else:
        return tree.Branch(None, statement, span=statement.span)
    held = tree.ExpressionStatement.at(*statement.value.span, statement.value)
    return tree.Branch(name, held, span=statement.span)
