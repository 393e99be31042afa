"""The checks inside expressions and templates: names, agents, calls (docs/reference/vvm.md 3 to 6).

Expressions contain no statements, so one loop checks a whole expression. It uses an explicit stack instead of
recursion, because expressions nest to any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import Struct

from prose_kernel.language.diagnostics import Findings
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.nodes import visitors
from prose_kernel.language.source import Span
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.agent_checks import AgentChecker, key_span, name_span
from prose_kernel.language.vvm.names import LIBRARY, OPTIONAL_COUNTS, KnownNames, argument_mismatch
from prose_kernel.language.vvm.scopes import Scopes
from prose_kernel.language.vvm.tree import AgentName, Expression, Name, Template
from prose_kernel.language.vvm.word_hints import WHOLE_LINE

_LEAVES: Final = frozenset(
    (tree.Unit, tree.It, tree.Boolean, tree.Number, tree.String, tree.Placeholder, str, type(None))
)

_FOREIGN_NAMES: Final = {
    "True": "`true`",
    "False": "`false`",
    "None": "`()`",
    "null": "`()`",
    "nil": "`()`",
    "undefined": "`()`",
    "str": 'the value as a text, `"4"`; the task of an agent takes any value: `{value}`',
    "print": "the value alone on the last line of a cell, or `export name`",
    "sum": "`reduce(items, add, 0)`, with a function `add(a, b)`",
    "max": "`reduce(items, larger)`, with a function `larger(a, b)`",
    "min": "`reduce(items, smaller)`, with a function `smaller(a, b)`",
    "list": "a list: `[a, b]`",
    "tuple": "a list: `[a, b]`",
    "dict": "an object: `{key: value}`",
    "enumerate": "`for i in range(len(items)):`, and `items[i]` in the body",
    "zip": "`for i in range(len(items)):`, and `items[i]` in the body",
    "sorted": "`reduce(items, insert, [])`, with a function `insert(sorted_items, item)`",
    "reversed": "`reduce(items, before, [])`, with a function `before(later, item)` that returns `[item] + later`",
    "abs": "`if x < 0:`, and `x = 0 - x` below it",
    "exec": '`exec "…"` in a notebook cell that begins with `%%prose`',
}
"""The VVM equivalents of names in other languages."""


class ModuleNames(Struct, frozen=True):
    """The names of a module: names bound before it, its agents, and the parameters of functions bound only once."""

    known: KnownNames
    agents: set[str]
    functions: Mapping[str, tuple[str, ...]]


class ExpressionChecker:
    """Checks expressions in the current scope of `scopes`.

    `reached` returns whether the current statement runs whenever the module does, and outside of a `try`.
    """

    def __init__(
        self,
        findings: Findings,
        near: Nearest,
        names: ModuleNames,
        scopes: Scopes,
        checks: AgentChecker,
        reached: Callable[[], bool],
    ) -> None:
        self.report = findings.report
        self._near = near
        self._known = names.known
        self._agents = names.agents
        self._scopes = scopes
        self._checks = checks
        self._text = findings.source.text
        self._functions = names.functions
        self._reached = reached
        self._optional_operands: list[Span] = []  # operands in the current walk that may not be evaluated

    def walk(self, *roots: Expression | Template) -> None:
        """Check expressions and everything inside them."""
        self._optional_operands = []
        agenda: list[Any] = list(roots)
        pop, extend, visit = agenda.pop, agenda.extend, self._visit
        while agenda:
            node = pop()
            kind = type(node)
            if kind is Name:
                self._name(node)
            elif kind is tuple:
                extend(node)
            elif kind not in _LEAVES:
                if (check := visit.get(kind)) is not None:
                    check(self, node)
                extend(node.fields())

    def condition(self, node: Expression) -> None:
        """Check an expression that must be a boolean."""
        self.walk(node)
        self.report_error(condition_error(node))

    def report_error(self, error: CertainError | None) -> None:
        """Report an expression that raises whenever it is evaluated: V211 if it certainly is, else V711."""
        if error is None:
            return
        span = error.node.span
        reached = self._reached() and not any(one.start <= span.start < one.end for one in self._optional_operands)
        self.report("V211" if reached else "V711", span, error.message, error.hint)

    # ------------------------------------------------------------ names

    def is_agent(self, name: str) -> bool:
        return name in self._agents or name in self._known.agents

    def _is_only_agent(self, name: str) -> bool:
        if self._scopes.holder(name) is not None or name in LIBRARY or self._known.binds(name):
            return False
        return self.is_agent(name)

    def is_library(self, name: str) -> bool:
        """Return whether a name means a function of the standard library here."""
        return name in LIBRARY and self._scopes.holder(name) is None and not self._known.binds(name)

    def report_early_read(self, name: str, span: Span) -> None:
        """Report a read before all assignments in its scope. In a module, the name may have another meaning there."""
        is_module = self._scopes.current.is_module
        if is_module and (self._known.binds(name) or name in LIBRARY or self.is_agent(name)):
            return
        message = f"`{name}` is read here, but assigned only further down"
        hint = "assign it before this line"
        if not is_module:
            hint += "; inside a function an assigned name is always a local one"
        self.report("V701", span, message, hint)

    def _name(self, node: Name) -> None:
        name = node.id
        if self._scopes.read(name, node.span) or name in LIBRARY or self._known.binds(name) or self.is_agent(name):
            return
        hint: str | None
        if name in _FOREIGN_NAMES:
            hint = f"write {_FOREIGN_NAMES[name]}"
        elif hidden := next((one for one in sorted(self._known.hidden) if name in one.split("-")), None):
            hint = f"VVM cannot spell `{hidden}`: bind it to a name without `-` where it comes from"
        else:
            hint = self._nearest(name, chain(LIBRARY, self._agents, WHOLE_LINE))
        self.report("V701", node.span, f"`{name}` is not defined; this raises if it is reached", hint)

    def _nearest(self, name: str, further: Any = ()) -> str | None:
        known = self._known
        return did_you_mean(self._near(name, chain(self._scopes.visible(), known.variables, known.functions, further)))

    def visit_template(self, node: Template) -> None:
        for part in node.parts:
            if not isinstance(part, tree.Placeholder) or not part.path:
                continue
            name = part.path[0]
            if self._scopes.read(name, part.span) or name in LIBRARY or self._known.binds(name):
                continue
            message = f"`{name}` in this template is not defined"
            if self.is_agent(name):
                message = f"`{name}` in this template is an agent, which has no text"
            near = self._nearest(name, LIBRARY)
            hint = near or f"assign `{name}` first; for literal braces write `{{{{{name}}}}}`"
            self.report("V051", part.span, message, hint)

    def visit_agent_name(self, node: AgentName) -> None:
        name = node.id
        if not self.is_agent(name):
            if not self._scopes.read(name, node.span) and not self._known.binds(name):
                self.report_missing_agent(name, node.span)
        elif (holder := self._scopes.holder(name)) is not None and not holder.is_module:
            holder.reads.add(name)
            message = f"`@{name}` is the agent that this module declares, not the local name `{name}`"
            self.report("V707", node.span, message, "give one of the two another name")

    def report_missing_agent(self, name: str, span: Span, *, variables: bool = True) -> None:
        """Report an agent that does not exist (V040)."""
        names = chain(self._agents, self._known.agents)
        near = self._near(name, chain(names, self._scopes.visible()) if variables else names)
        hint = f"did you mean `@{near}`?" if near else f'declare it: `agent {name}(prompt="...")`'
        self.report("V040", span, f"there is no agent `{name}`", hint)

    def report_unbound_export(self, name: Name) -> None:
        """Report an export of a name that nothing binds (V531)."""
        if self.is_agent(name.id):
            hint: str | None = f"to export the agent, write `export @{name.id}`"
        else:
            hint = self._nearest(name.id)
        message = f"`{name.id}` is exported, but nothing in this module binds it; this raises at the end"
        self.report("V531", name.span, message, hint)

    # ------------------------------------------------------------ calls

    def visit_call(self, node: tree.Call) -> None:
        callee = node.callee
        if isinstance(callee, Name) and callee.id == "pack" and self.is_library("pack"):
            self.pack(node.arguments, node.keywords)
        else:
            if node.keywords:
                self._checks.check_repeated(node.keywords, "in this call")
            self.report_error(call_error(node, self._parameters(callee)))
            if isinstance(callee, Name) and self._is_only_agent(callee.id):
                message = f"`{callee.id}` is an agent, not a function; this raises if it is reached"
                self.report("V711", callee.span, message, f"call the agent: ``@{callee.id} `the task`(input)``")

    def _parameters(self, callee: Expression) -> tuple[str, ...] | None:
        """Return the parameters of the called function; None if it is not certain which one that is."""
        if not isinstance(callee, Name):
            return None
        if self.is_library(callee.id):
            return LIBRARY[callee.id]
        holder = self._scopes.holder(callee.id)
        return self._functions.get(callee.id) if holder is not None and holder.is_module else None

    def pack(self, arguments: tuple[Expression, ...], keywords: tuple[tree.Keyword, ...]) -> None:
        """Check `pack(...)`: a positional argument must be a bare name, and each key may occur once (5)."""
        keys: set[str] = set()
        for argument in arguments:
            if not isinstance(argument, Name | tree.It):
                message = "a positional argument of `pack` must be a bare name, which becomes the key"
                self.report("V203", argument.span, message, "give a computed value a key: `key=...`")
                continue
            self._key(argument.id if isinstance(argument, Name) else "it", argument.span, keys)
        for keyword in keywords:
            self._key(keyword.name, name_span(keyword), keys)

    def _key(self, key: str, span: Span, keys: set[str]) -> None:
        if key in keys:
            self.report("V205", span, f"`pack` is given the key `{key}` twice", "keep one of them")
        keys.add(key)

    # ------------------------------------------------------------ agents

    def visit_agent_call(self, node: tree.AgentCall) -> None:
        if node.options:
            self._checks.check_options(node.options)

    def visit_inline_agent(self, node: tree.InlineAgent) -> None:
        self._checks.check_configuration(node.keywords, whole=True, perm=self.is_library("perm"))

    def visit_with(self, node: tree.With) -> None:
        self._checks.check_configuration(node.keywords, whole=False, perm=self.is_library("perm"))

    # ------------------------------------------------------------ objects and operators

    def visit_object(self, node: tree.Object) -> None:
        seen: set[str] = set()
        for pair in node.pairs:
            if pair.key in seen:
                message = f"the key `{pair.key}` appears twice in this object; the last one counts"
                self.report("V705", key_span(pair), message)
            seen.add(pair.key)

    def visit_not(self, node: tree.Not) -> None:
        self.report_error(condition_error(node.value))

    def visit_logical(self, node: tree.Logical) -> None:
        self._optional_operands.append(node.right.span)
        self.report_error(condition_error(node.left))
        self.report_error(condition_error(node.right))

    def visit_sum(self, node: tree.Sum) -> None:
        self.report_error(operation_error(node))

    def visit_compare(self, node: tree.Compare) -> None:
        left = node.left
        if isinstance(left, tree.Compare) and not self._is_parenthesized(left, node.right):
            message = f"`{left.operator}` and `{node.operator}` in a row: the second compares `true` or `false`"
            hint = "join two comparisons with `and`, or put the first in parentheses"
            self.report("V708", node.span, message, hint)
        else:
            self.report_error(operation_error(node))

    def _is_parenthesized(self, left: tree.Compare, right: Expression) -> bool:
        """Return whether more parentheses end after `left` than begin inside it before its last operand."""
        opened = self._text.count("(", left.left.span.end, left.right.span.start)
        return self._text.count(")", left.right.span.end, right.span.start) > opened

    _visit: ClassVar = visitors(tree, vars())


# ---------------------------------------------------------------- expressions that always raise
# V211 and V711. Literals and declared parameters must be enough to decide, so each function looks only at a node and
# its direct parts. Messages are the same as at run time.

_TYPES: Final[dict[type, str]] = {
    tree.Unit: "unit",
    tree.Boolean: "a boolean",
    tree.Not: "a boolean",
    tree.Logical: "a boolean",
    tree.Compare: "a boolean",
    tree.Predicate: "a boolean",
    tree.Number: "a number",
    tree.String: "a string",
    tree.List: "a list",
    tree.Object: "an object",
    tree.AgentName: "an agent",
    tree.InlineAgent: "an agent",
}
"""The type of an expression's value, with its article, for expressions whose form determines it."""

_ADDABLE: Final = frozenset({"a number", "a string", "a list"})
ADD_HINT: Final = '`+` joins two texts: write both as texts (`"4"`); in the task of an agent, `{a}{b}` joins any values'
"""The hint for `+` between a string and another value."""


class CertainError(NamedTuple):
    """The part of a node that raises, with the message and the hint."""

    node: tree.Node
    message: str
    hint: str | None = None


def condition_error(node: Expression) -> CertainError | None:
    """Return the error of a condition that isn't a boolean (R203)."""
    found = _TYPES.get(type(node), "a boolean")
    return None if found == "a boolean" else CertainError(node, f"condition is not a boolean: {found}")


def items_error(node: Expression) -> CertainError | None:
    """Return the error of a value that `for` cannot iterate over (R204)."""
    found = _TYPES.get(type(node), "a list")
    return None if found == "a list" else CertainError(node, f"for needs a list, not {found}")


def operation_error(node: tree.Sum | tree.Compare) -> CertainError | None:
    """Return the error of operands that an operator cannot take (R205)."""
    operator = node.operator
    if operator in ("==", "!="):
        return None
    left, right = _TYPES.get(type(node.left)), _TYPES.get(type(node.right))
    allowed = _ADDABLE if operator == "+" else frozenset({"a number"})
    wrong = [found for found in (left, right) if found is not None and found not in allowed]
    if left is None or right is None:
        return CertainError(node, f"unsupported operand type for {operator}: {wrong[0]}") if wrong else None
    if wrong or left != right:
        hint = ADD_HINT if operator == "+" and "a string" in (left, right) else None
        return CertainError(node, f"unsupported operand types for {operator}: {left} and {right}", hint)
    return None


def call_error(node: tree.Call, wanted: tuple[str, ...] | None) -> CertainError | None:
    """Return the error of a call of a value that isn't a function (R207), or with wrong arguments (R208).

    `wanted` are the parameters of the called function; None if it is not certain which one that is.
    """
    callee = node.callee
    if not isinstance(callee, tree.Name):
        found = _TYPES.get(type(callee))
        return CertainError(node, f"not callable: {found}") if found is not None else None
    if wanted is None or callee.id == "perm":
        return None  # arguments of `perm` are checked as the permissions of an agent (V209)
    optional = OPTIONAL_COUNTS.get(callee.id, 0) if wanted is LIBRARY.get(callee.id) else 0
    keywords = dict.fromkeys(keyword.name for keyword in node.keywords)  # a repeated one is V205
    problem = argument_mismatch(wanted, len(node.arguments), keywords, optional)
    if problem is None:
        return None
    return CertainError(node, f"bad arguments to {callee.id}: {problem}", f"{callee.id}({', '.join(wanted)})")
