"""Formats a program in its canonical form (openprose.md 8), for `prose fmt`.

The form has no comments and no blank lines, two spaces per level and one statement per line; imports, inputs, agents
and blocks come first. The parser has converted old forms already. The output parses to an equal program, except for the
order of definitions, and formatting it again changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final, cast

from prose_kernel.language.nodes import visitors
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.bare_conditions import is_words
from prose_kernel.language.openprose.keywords import KEYWORDS, NAME, SCRIPT_WORDS
from prose_kernel.language.openprose.parser import read_expression
from prose_kernel.language.openprose.program_interface import is_executable
from prose_kernel.language.openprose.tree import Body, Expression, Statement, Text
from prose_kernel.language.python_literals import number

_STEP: Final = "  "
_GROUPS: Final[dict[type, int]] = {tree.Use: 0, tree.SkillImport: 0, tree.Input: 1, tree.Agent: 2, tree.Block: 3}
_WORD: Final = re.compile(rf"{NAME}\Z")
_REFERENCE: Final = re.compile(rf"(?<!\{{)\{{(?={NAME}(?:\.{NAME}|\[(?:[0-9]+|{NAME})\])*\}}(?!\}}))")
_FIRST_WORD: Final = re.compile(NAME)
_PLAIN_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_TRIPLE_ESCAPES: Final = str.maketrans({"\\": "\\\\"})
_MODIFIER_WORDS: Final = frozenset({"on-fail", "on_fail", "count", "all", "first", "any"})

# Precedence of operators, lowest first.
_OR, _AND, _NOT, _COMPARE, _SUM, _POSTFIX = range(6)


def format_program(program: tree.Program) -> str:
    """Return the canonical text of an error-free program, ending with a line break; "" for an empty one."""
    lines = _Formatter(program.script).statements(_ordered(program.items), "")
    return "".join(f"{line}\n" for line in lines)


def _ordered(items: Sequence[Statement]) -> list[Statement]:
    """Sort statements: `use`, inputs at the top, agents, blocks, others; each group stays in source order."""
    first = next((index for index, item in enumerate(items) if is_executable(item)), len(items))
    late_inputs = {id(item) for item in items[first:] if isinstance(item, tree.Input)}
    return sorted(items, key=lambda item: 4 if id(item) in late_inputs else _GROUPS.get(type(item), 4))


class _Formatter:
    """Turns statements into lines. `_lines` returns the lines of one node, the first one without its indentation."""

    def __init__(self, script: bool) -> None:
        self._script = script

    def statements(self, body: Iterable[Statement], pad: str) -> list[str]:
        found: list[str] = []
        for statement in body:
            first, *rest = self._lines(statement, pad)
            found.append(pad + first)
            found += rest
        return found

    def _body(self, header: str, body: Body, pad: str) -> list[str]:
        return [header, *self.statements(body, pad + _STEP)]

    def _after(self, prefix: str, value: Expression, pad: str) -> list[str]:
        """Return the lines of a right-hand side with `prefix` before the first one."""
        first, *rest = self._lines(value, pad)
        return [prefix + (self._guarded(first) if isinstance(value, _MAY_BEGIN_WITH_NAME) else first), *rest]

    def _guarded(self, shown: str) -> str:
        """Put an expression in parentheses if its first word would be read as a keyword here."""
        word = _FIRST_WORD.match(shown)
        guard = word and (word[0] in KEYWORDS or (self._script and word[0] in SCRIPT_WORDS))
        return f"({shown})" if guard else shown

    def _condition(self, node: Expression, word: str) -> str:
        """Return the condition of a header; ProseScript omits the markers if the text is read as words without them."""
        if isinstance(node, tree.AmbiguousCondition):
            return node.words.text.raw
        if self._script and isinstance(node, tree.Discretion) and is_words(node.text.raw, word, read_expression):
            return node.text.raw
        return expression(node)

    # ---- statements

    def _lines(self, node: Any, pad: str) -> list[str]:
        visit = self._visit.get(type(node))
        return [expression(node)] if visit is None else visit(self, node, pad)

    def visit_expression_statement(self, node: tree.ExpressionStatement, pad: str) -> list[str]:
        return self._after("", node.value, pad)

    def visit_let(self, node: tree.Let, pad: str) -> list[str]:
        names = ", ".join(name.id for name in node.names)
        target = f"{{ {names} }}" if node.destructured else names
        return self._after(f"{node.kind} {target} = ", node.value, pad)

    def visit_assign(self, node: tree.Assign, pad: str) -> list[str]:
        return self._after(f"{node.name.id} = ", node.value, pad)

    def visit_output(self, node: tree.Output, pad: str) -> list[str]:
        return self._after(f"output {node.name.id} = " if node.name else "output ", node.value, pad)

    def visit_input(self, node: tree.Input, pad: str) -> list[str]:
        return [f"input {node.name.id}: {expression(node.prompt)}"]

    def visit_throw(self, node: tree.Throw, pad: str) -> list[str]:
        if node.value is None:
            return ["throw"]
        shown = expression(node.value)  # in OpenProse a name in parentheses would make it a call
        return [f"throw {self._guarded(shown) if self._script or not isinstance(node.value, tree.Name) else shown}"]

    def visit_append(self, node: tree.Append, pad: str) -> list[str]:
        return [f"append {self._guarded(expression(node.value))} to {node.name.id}"]

    def visit_return(self, node: tree.Return, pad: str) -> list[str]:
        return ["return"] if node.value is None else self._after("return ", node.value, pad)

    def visit_break(self, node: tree.Break | tree.Continue, pad: str) -> list[str]:
        return ["break" if isinstance(node, tree.Break) else "continue"]

    visit_continue = visit_break

    def visit_assert(self, node: tree.Assert, pad: str) -> list[str]:
        head = f"assert {expression(node.condition)}"
        return [head] if node.message is None else [f"{head}:", pad + _STEP + text(node.message)]

    def visit_gate(self, node: tree.Gate, pad: str) -> list[str]:
        return [f"gate {node.name.id}:", *self._properties(node.properties, pad)]

    def visit_use(self, node: tree.Use, pad: str) -> list[str]:
        return [f"use {text(node.path)}" + (f" as {node.alias.id}" if node.alias else "")]

    def visit_skill_import(self, node: tree.SkillImport, pad: str) -> list[str]:
        return [f"import {text(node.skill)} from {text(node.source)}"]

    def visit_agent(self, node: tree.Agent, pad: str) -> list[str]:
        return [f"agent {node.name.id}:", *self._properties(node.properties, pad)]

    def visit_block(self, node: tree.Block, pad: str) -> list[str]:
        names = ", ".join(name.id for name in node.parameters)
        limits = [f"max_depth: {node.max_depth}"] if node.max_depth is not None else []
        limits += [f"budget: {text(node.budget)}"] if node.budget is not None else []
        depth = f" ({', '.join(limits)})" if limits else ""
        return self._body(f"block {node.name.id}" + (f"({names})" if names else "") + f"{depth}:", node.body, pad)

    # ---- properties

    def _properties(self, properties: tree.Properties, pad: str) -> list[str]:
        pad += _STEP
        found: list[str] = []
        for item in properties:
            value = item.value
            if isinstance(value, tree.Permissions | tree.ContextBlock):
                found.append(f"{pad}{item.name.id}:")
                found += [f"{pad}{_STEP}{entry.name.id}: {expression(entry.value)}" for entry in value.entries]
            elif isinstance(value, tree.OnReject):
                word = value.action if value.text is None else f"{value.action} {text(value.text)}"
                found.append(f"{pad}{item.name.id}: {word}")
            else:
                found.append(f"{pad}{item.name.id}: {expression(value)}")
        return found

    # ---- spawns

    def visit_session(self, node: tree.Spawn, pad: str) -> list[str]:
        return [_head(node), *self._properties(_below(node), pad)]

    visit_resume = visit_exec = visit_session

    def visit_arrow(self, node: tree.Arrow, pad: str) -> list[str]:
        lines = [_head(node.spawns[0])]
        for before, spawn in pairwise(node.spawns):
            if _below(before):
                lines += [*self._properties(_below(before), pad), f"{pad}-> {_head(spawn)}"]
            else:
                lines[-1] += f" -> {_head(spawn)}"
        return [*lines, *self._properties(_below(node.spawns[-1]), pad)]

    # ---- compounds

    def visit_do(self, node: tree.Do, pad: str) -> list[str]:
        return self._body("do:", node.body, pad)

    def visit_block_call(self, node: tree.BlockCall, pad: str) -> list[str]:
        return [f"do {node.block.id}" + (f"({_joined(node.arguments)})" if node.arguments else "")]

    def visit_call(self, node: tree.Call, pad: str) -> list[str]:
        target = node.target.id if isinstance(node.target, tree.Name) else text(node.target)
        lines = [f"call {target}" + (f"({_joined(node.arguments)})" if node.arguments else "")]
        pad += _STEP
        for entry in node.inputs:
            first, *rest = self._after(f"{entry.name.id}: ", entry.value, pad)
            lines += [pad + first, *rest]
        return lines

    def visit_stage(self, node: tree.Stage, pad: str) -> list[str]:
        return [f"session {node.name.id}({_joined(node.arguments)})"]

    def visit_parallel(self, node: tree.Parallel, pad: str) -> list[str]:
        lines = [f"parallel{_modifiers(node.modifiers)}:"]
        inner = pad + _STEP
        for branch in node.branches:
            if branch.name is not None and isinstance(branch.statement, tree.ExpressionStatement):
                first, *rest = self._after(f"{branch.name.id} = ", branch.statement.value, inner)
            else:
                first, *rest = self._lines(branch.statement, inner)
            lines += [inner + first, *rest]
        return lines

    def visit_for(self, node: tree.For, pad: str) -> list[str]:
        names = node.item.id if node.index is None else f"{node.item.id}, {node.index.id}"
        collection = expression(node.collection)
        if node.maximum is not None:
            head = f"loop for each {node.item.id} in {collection} (max: {node.maximum}){_variable(node.index)}:"
            return self._body(head, node.body, pad)
        if node.modifiers is None:
            return self._body(f"for {names} in {collection}:", node.body, pad)
        modifiers = _modifiers(node.modifiers)
        arguments = node.collection.arguments if isinstance(node.collection, tree.ProgramCall) else ()
        if not modifiers and arguments and arguments[0].name.id in _MODIFIER_WORDS:
            collection = f"({collection})"  # otherwise the arguments would be read as modifiers
        return self._body(f"parallel for {names} in {collection}{modifiers}:", node.body, pad)

    def visit_repeat(self, node: tree.Repeat, pad: str) -> list[str]:
        word = "parallel repeat" if node.concurrent else "repeat"
        return self._body(f"{word} {expression(node.count)}{_variable(node.variable)}:", node.body, pad)

    def visit_loop(self, node: tree.Loop, pad: str) -> list[str]:
        condition = ""
        if node.condition is not None:
            shown = self._condition(node.condition, f"loop {node.mode}")
            if node.maximum is None and shown.endswith(")") and not isinstance(node.condition, _IN_WORDS):
                shown = f"({shown})"  # a call's `max:` isn't the loop's
            condition = f" {node.mode} {shown}"
        maximum = f" (max: {node.maximum})" if node.maximum is not None else ""
        in_words = isinstance(node.condition, tree.AmbiguousCondition) and node.condition.takes_variable
        variable = "" if in_words else _variable(node.variable)
        return self._body(f"loop{condition}{maximum}{variable}:", node.body, pad)

    def visit_try(self, node: tree.Try, pad: str) -> list[str]:
        lines = self._body("try:", node.body, pad)
        if node.catch is not None:
            lines += self._body(f"{pad}catch{_variable(node.catch.name)}:", node.catch.body, pad)
        if node.final is not None:
            lines += self._body(f"{pad}finally:", node.final, pad)
        return lines

    def visit_choice(self, node: tree.Choice, pad: str) -> list[str]:
        lines = [f"choice {self._condition(node.criteria, 'choice')}:"]
        inner = pad + _STEP
        for option in node.options:
            lines += self._body(f"{inner}option {text(option.label)}:", option.body, inner)
        return lines

    def visit_if(self, node: tree.If, pad: str) -> list[str]:
        lines: list[str] = []
        for arm in node.arms:
            word = "elif" if lines else "if"
            head = f"{word} {self._condition(arm.condition, word)}:"
            lines += self._body(pad + head if lines else head, arm.body, pad)
        if node.otherwise is not None:
            lines += self._body(f"{pad}else:", node.otherwise, pad)
        return lines

    def visit_pipe(self, node: tree.Pipe, pad: str) -> list[str]:
        lines = self._after("", node.source, pad)
        inner = pad + _STEP
        for operation in node.operations:
            names = f"({', '.join(name.id for name in operation.names)})" if operation.names else ""
            lines += self._body(f"{inner}| {operation.kind}{names}:", operation.body, inner)
        return lines

    _visit: ClassVar = visitors(tree, vars())


_IN_WORDS: Final = (tree.AmbiguousCondition, tree.Discretion)
_MAY_BEGIN_WITH_NAME: Final = (tree.Name, tree.Member, tree.Index, tree.Binary, tree.Logical, tree.Pipe)


def _is_word(item: tree.Property) -> bool:
    """Return whether a property is named like a statement; on its own line it would be parsed as one."""
    return item.name.id in KEYWORDS and item.name.id != "output"


def _below(node: tree.Spawn) -> tree.Properties:
    """Return the properties of a spawn except those that `_head` writes on its first line."""
    if isinstance(node, tree.Session) and node.title is not None:
        return tuple([item for item in node.properties if not _is_word(item)])
    return node.properties


def _head(node: tree.Spawn) -> str:
    """Return the first line of a spawn, without its property block."""
    if isinstance(node, tree.Exec):
        return f"exec {text(node.command)}"
    if isinstance(node, tree.Resume):
        return f"resume: {node.agent.id}"
    if node.title is not None:
        words = [f"{p.name.id}: {expression(cast('Any', p.value))}" for p in node.properties if _is_word(p)]
        return f"session {text(node.title)}" + (f" ({', '.join(words)})" if words else "")
    label = f" {node.label.id}" if node.label else ""
    return f"session{label}:" + (f" {node.agent.id}" if node.agent else "")


def _modifiers(node: tree.Modifiers) -> str:
    shown = [f'"{node.strategy}"'] if node.strategy != "all" else []
    if node.count is not None:
        shown.append(f"count: {node.count}")
    if node.on_fail != "fail-fast":
        shown.append(f'on-fail: "{node.on_fail}"')
    return f" ({', '.join(shown)})" if shown else ""


def _variable(name: tree.Name | None) -> str:
    return f" as {name.id}" if name else ""


# ---- expressions


def expression(node: Expression, at_least: int = _OR) -> str:
    """Return an expression on one line (except triple-quoted texts), in parentheses if its precedence is below
    `at_least`."""
    if isinstance(node, Text):
        return text(node)
    if isinstance(node, tree.Name):
        return node.id
    shown, binds = _operation(node)
    return f"({shown})" if binds < at_least else shown


def _operation(node: Expression) -> tuple[str, int]:
    """Return an expression as text, and its precedence."""
    match node:
        case tree.Logical(operator=operator, operands=operands):
            binds = _OR if operator == "or" else _AND
            return f" {operator} ".join(expression(part, binds + 1) for part in operands), binds
        case tree.Not(operand=operand):
            return f"not {expression(operand, _NOT)}", _NOT
        case tree.Binary(operator=operator, left=left, right=right):
            binds = _SUM if operator in "+-" else _COMPARE
            return f"{expression(left, _SUM)} {operator} {expression(right, binds + 1)}", binds
        case tree.Member(value=value, name=name):
            shown = f"{expression(value, _POSTFIX)}.{name.id}"
        case tree.Index(value=value, index=index):
            shown = f"{expression(value, _POSTFIX)}[{expression(index)}]"
        case tree.Discretion(text=words):
            shown = _marker(words)
        case tree.Number(value=value):
            shown = number(value)
        case tree.Duration(text=shown):
            pass
        case tree.Constant(value=value):
            shown = {True: "true", False: "false", None: "null"}[value]
        case tree.Array(elements=elements):
            shown = f"[{_joined(elements)}]"
        case tree.Object(entries=entries):
            shown = f"{{ {', '.join(map(_entry, entries))} }}" if entries else "{}"
        case tree.ProgramCall(program=program, arguments=arguments):
            shown = f"{program.id}({', '.join(map(_argument, arguments))})"
        case _:
            raise TypeError(f"{type(node).__name__} is not a plain expression")
    return shown, _POSTFIX


def _joined(values: Iterable[Expression]) -> str:
    return ", ".join(expression(value) for value in values)


def _argument(node: tree.Argument) -> str:
    return f"{node.name.id}: {expression(node.value)}" if node.name.id else expression(node.value)


def _entry(node: tree.Entry) -> str:
    if node.shorthand:
        return expression(node.value)
    key = node.key if _WORD.match(node.key) else text(Text((node.key,) if node.key else ()))
    return f"{key}: {expression(node.value)}"


# ---- texts


def _marker(words: Text) -> str:
    shown = words.raw or " "
    if shown.startswith("*"):
        shown = f" {shown}"
    if shown.endswith("*"):
        shown = f"{shown} "
    return f"***{shown}***" if "\n" in shown or "**" in shown else f"**{shown}**"


def text(node: Text) -> str:
    """Return a string literal: triple-quoted if the text begins with a line break, else on one line."""
    triple = node.raw.startswith("\n") and "\r" not in node.raw
    shown = []
    for index, part in enumerate(node.parts):
        if isinstance(part, tree.Interpolation):
            shown.append(part.raw)
        else:
            shown.append(_literal(part, triple, index > 0, index + 1 < len(node.parts)))
    joined = "".join(shown)
    return f'"""{joined}"""' if triple else f'"{joined}"'


def _literal(part: str, triple: bool, after: bool, before: bool) -> str:
    """Escape a literal part that comes `after` or `before` an interpolation."""
    opens, closes = before and part.endswith("{"), after and part.startswith("}")
    shown = part.translate(_TRIPLE_ESCAPES if triple else _PLAIN_ESCAPES)
    if triple:
        shown = shown.replace('"""', '\\"\\"\\"')
        if shown.endswith('"') or before:
            shown = _quotes_escaped(shown)
    shown = _REFERENCE.sub(r"\\{", shown)
    if opens:
        shown = shown[:-1] + "\\{"
    if closes:
        shown = "\\" + shown
    return shown


def _quotes_escaped(shown: str) -> str:
    """Escape the quotes at the end, so that they don't join the closing quotes."""
    bare = shown.rstrip('"')
    kept = len(shown) - len(bare)
    if bare.endswith("\\") and (len(bare) - len(bare.rstrip("\\"))) % 2 and kept:
        bare, kept = bare + '"', kept - 1
    return bare + '\\"' * kept
