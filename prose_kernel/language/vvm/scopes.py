"""The scopes of the checker (docs/reference/vvm.md 4.2): one for the module, one for each function.

A function's local names are known for its whole body before its first statement is checked. `Scopes` maps every name to
the innermost scope around the current place that has it, so that a read costs the same at any depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct, field

from prose_kernel.language.nodes import descendants, fields_with
from prose_kernel.language.source import Span
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.tree import Name

OnEarlyRead = Callable[[str, Span], None]
"""Called for the read of a name before all its assignments in the same scope."""


class Scope(Struct, eq=False):
    """The names of the module or of one function.

    `names` holds all of them, `bound` the names bound in the text so far, `reads` the names read from anywhere inside.
    `assigned` holds the first `name = ...` of each name, `exempt` the names that other statements bind, too, `early`
    the reads in a loop that come before any binding.
    """

    is_module: bool
    names: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    assigned: dict[str, Name] = field(default_factory=dict)
    exempt: set[str] = field(default_factory=set)
    functions: dict[str, Span] = field(default_factory=dict)
    shadows: set[str] = field(default_factory=set)
    loops: int = 0
    early: list[tuple[str, Span]] = field(default_factory=list)

    def unread(self) -> Iterator[Name]:
        """Yield the first assignments of names that nothing reads."""
        for name, target in self.assigned.items():
            if name not in self.reads and name not in self.exempt and not name.startswith("_"):
                yield target


class Scopes:
    """The scopes around the current place. `early` is called for reads that certainly find no value. `binding_counts`
    counts the bindings of each of the module's names."""

    def __init__(self, items: tree.Body, early: OnEarlyRead) -> None:
        self._early = early
        self._holders: dict[str, list[Scope]] = {}
        self.module = self.current = Scope(is_module=True)
        self.binding_counts = Counter(bound_names(items))
        self._add_names(self.module, self.binding_counts)
        for item in items:  # hoisted (9.2)
            if isinstance(item, tree.Def):
                self.module.bound.add(item.name.id)
            elif isinstance(item, tree.ModuleImport) and not item.agent:
                self.module.bound.add(item.local.id)

    def enter(self, function: tree.Def) -> Scope:
        """Enter a function and bind its parameters. Return the scope around it, for `leave`."""
        outer = self.current
        self.current = Scope(is_module=False)
        parameters = [parameter.id for parameter in function.parameters]
        self._add_names(self.current, [*parameters, *bound_names(function.body)])
        self.current.bound.update(parameters)
        return outer

    def leave(self, outer: Scope) -> None:
        """Return to the scope around a function."""
        for name in self.current.names:
            self._holders[name].pop()
        self.current = outer

    def enter_loop(self) -> None:
        self.current.loops += 1

    def leave_loop(self) -> None:
        """Leave a loop, and report its early reads of names that no earlier pass of the loop can have bound."""
        scope = self.current
        scope.loops -= 1
        if not scope.loops and scope.early:
            for name, span in scope.early:
                if name not in scope.bound:
                    self._early(name, span)
            scope.early = []

    def _add_names(self, scope: Scope, names: Iterable[str]) -> None:
        for name in names:
            if name not in scope.names:
                scope.names.add(name)
                self._holders.setdefault(name, []).append(scope)

    def holder(self, name: str) -> Scope | None:
        """Return the innermost scope around the current place that has this name."""
        holders = self._holders.get(name)
        return holders[-1] if holders else None

    def visible(self) -> Iterator[str]:
        """Return all names of the scopes around the current place."""
        return (name for name, holders in self._holders.items() if holders)

    def read(self, name: str, span: Span) -> bool:
        """Record a read. Return False if no scope has the name."""
        holder = self.holder(name)
        if holder is None:
            return False
        holder.reads.add(name)
        if holder is self.current and name not in holder.bound:
            if holder.loops:
                holder.early.append((name, span))
            else:
                self._early(name, span)
        return True


def bound_names(body: tree.Body) -> Iterator[str]:
    """Yield the names that the statements of one scope bind, without nested functions."""
    for node in nested_statements(body, functions=False):
        kind = type(node)
        if kind in _NAME_FIELD and not (isinstance(node, tree.ModuleImport) and node.agent):
            name: Name | None = getattr(node, _NAME_FIELD[kind])
            if name is not None:
                yield name.id


def nested_statements(body: tree.Body, *, functions: bool = True) -> Iterator[tree.Node]:
    """Yield the statements of a body, their clauses and patterns, at any depth; in a `def` only with `functions`."""
    return descendants(body, _NESTED_FIELDS, () if functions else (tree.Def,))


_CLAUSES: Final = (tree.Arm, tree.Case, tree.Option, tree.Handler)
_KINDS: Final[list[type[tree.Node]]] = [*tree.Statement.__subclasses__(), *tree.Pattern.__subclasses__(), *_CLAUSES]
_NESTED_FIELDS: Final = fields_with("Body|Arm|Case|Option|Handler|Pattern", _KINDS)
"""The fields of each kind that contain statements, clauses or patterns."""
_NAME_FIELD: Final[dict[type, str]] = {
    **{kind: "target" for kind in _KINDS if "target" in kind.__struct_fields__},
    tree.Def: "name",
    tree.ModuleImport: "local",
    tree.ErrorPattern: "name",
}
"""The field with the name that a node binds."""
