"""The base class of syntax tree nodes, and functions that walk and change trees.

Creating nodes takes most of a parser's time. They are frozen `msgspec.Struct`s, which are created in C, four times as
fast as dataclasses with slots. Leaves are also exempt from garbage collection (`gc=False`); other nodes are not,
because a deep chain of them is freed safely only with the collector's help. The span is stored as a plain tuple, which
is cheaper than a `Span`, and read as a `Span`.

Comparing and hashing use an explicit stack instead of recursion, because trees are deeper than programs nest: an `if`
is four levels of nodes and tuples, and a chain of operators in VVM is as deep as it is long.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Final, Self, TypeVar, cast

from msgspec import Struct, structs

from prose_kernel.language.source import Span
from prose_kernel.language.structs import replace

NOWHERE = Span(0, 0)


class Node(Struct, frozen=True, kw_only=True):
    """Base of all nodes. `span` covers the node's text, head and body included; comparison ignores it."""

    span: Span = NOWHERE

    def __init_subclass__(cls, **config: Any) -> None:
        super().__init_subclass__(**config)
        kinds = cls.__mro__[: cls.__mro__.index(Node)]
        cls.at = _fast_constructor(cls, sum(len(kind.__annotations__) for kind in kinds))  # type: ignore[method-assign]

    @classmethod
    def at(cls, start: int, end: int, *values: Any) -> Self:
        """Create a node that covers the text from `start` to `end`, from the values of all its fields in order."""
        return cls(*values, span=(start, end))  # type: ignore[arg-type]  # stored as a plain pair

    def fields(self) -> tuple[Any, ...]:
        """Return the values of all fields except the span."""
        return structs.astuple(self)[:-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and (self is other or [*self._flattened()] == [*other._flattened()])

    def __hash__(self) -> int:
        return hash(tuple(self._flattened()))

    def _flattened(self) -> Iterator[Any]:
        """Yield the leaves of the node, and the classes and lengths of the nodes and tuples above them."""
        agenda: list[Any] = [self]
        while agenda:
            part = agenda.pop()
            if isinstance(part, Node):
                yield part.__class__
                part = part.fields()
            if isinstance(part, tuple):
                yield len(part)
                agenda.extend(part)
            else:
                yield part

    def __repr__(self) -> str:
        return _repr(self)


def _repr(part: object) -> str:
    if isinstance(part, Node):
        values = [*map(_repr, part.fields())]
        pairs = zip(part.__struct_fields__, values, strict=False)
        return f"{type(part).__name__}({', '.join([f'{name}={value}' for name, value in pairs])})"
    if type(part) is tuple:
        return f"({', '.join([*map(_repr, part)])}{',' if len(part) == 1 else ''})"
    return repr(part)


N = TypeVar("N", bound=Node)


def _fast_constructor(make: Any, count: int) -> Any:
    """Return `Node.at` for a class with `count` fields, at half the cost."""

    def one(start: int, end: int, a: Any) -> Any:
        return make(a, span=(start, end))

    def two(start: int, end: int, a: Any, b: Any) -> Any:
        return make(a, b, span=(start, end))

    def more(start: int, end: int, *values: Any) -> Any:
        return make(*values, span=(start, end))

    return {1: one, 2: two}.get(count, more)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection: a parser creates only nodes, and none of them is garbage or part of a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def walk(root: Node) -> Iterator[Node]:
    """Yield a node and everything inside it, in no particular order. Not recursive."""
    stack: list[object] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, Node):
            yield node
            stack.extend(node.fields())


def fields_with(names: str, kinds: Iterable[type[Node]]) -> dict[type[Node], tuple[str, ...]]:
    """Return the fields of each kind whose annotations contain one of `names`, which are separated by `|`."""
    named = re.compile(rf"\b(?:{names})\b")
    return {kind: tuple(name for name, of in kind.__annotations__.items() if named.search(of)) for kind in kinds}


def descendants(
    body: Iterable[Node], fields: Mapping[type[Node], tuple[str, ...]], closed: tuple[type[Node], ...] = ()
) -> Iterator[Node]:
    """Yield the nodes of a body and, at any depth, the nodes in the `fields` of each, in source order; the fields of
    `closed` kinds are skipped."""
    agenda: list[Any] = [*reversed(tuple(body))]
    while agenda:
        node = agenda.pop()
        yield node
        kind = type(node)
        if kind not in closed:
            for name in reversed(fields[kind]):
                part = getattr(node, name)
                if type(part) is tuple:
                    agenda.extend(reversed(part))
                elif part is not None:
                    agenda.append(part)


def rebuilt(root: N, change: Callable[[Node], Node]) -> N:
    """Return the tree with each node passed through `change`, leaves first; unchanged nodes are kept, not copied."""
    order = list(walk(root))
    made: dict[int, Node] = {}

    def part(value: object) -> object:
        if isinstance(value, tuple):
            parts = tuple([part(one) for one in value])
            return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
        return made.get(id(value), value)

    for node in reversed(order):  # children come after their parents
        fields = zip(node.__struct_fields__, node.fields(), strict=False)
        new: dict[str, Any] = {name: found for name, value in fields if (found := part(value)) is not value}
        changed = change(replace(node, **new) if new else node)
        if changed is not node:
            made[id(node)] = changed
    return cast("N", made.get(id(root), root))


_stored_span = Node.__dict__["span"].__get__
_store_span = Node.__dict__["span"].__set__
_pair = tuple.__new__
Node.span = property(lambda self: _pair(Span, _stored_span(self)))  # type: ignore[assignment]

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def move_spans(root: Node, place: Callable[[int, int], tuple[int, int]], shift: int | None, done: set[int]) -> None:
    """Move the spans of a tree in place. Only for a parser, which owns its new tree: a copy would cost half a parse.

    `place` returns the new span; if all offsets move alike, `shift` is their distance, which is faster. `done` holds
    the ids of nodes that were moved before. Nodes at `NOWHERE` are not moved; they may be defaults that trees share.
    """
    agenda: list[Any] = [root]
    take, add, values = agenda.pop, agenda.extend, structs.astuple
    while agenda:
        part = take()
        kind = part.__class__
        if kind is tuple:
            add(part)
        elif kind not in _LEAVES and id(part) not in done:
            done.add(id(part))
            start, end = _stored_span(part)
            if end:
                _store_span(part, place(start, end) if shift is None else (start + shift, end + shift))
            add(values(part)[:-1])


@cache
def kind_of(kind: type) -> str:
    """Return the name of a kind of node in events: `block-call` for `BlockCall`."""
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__)
    return words.removeprefix("-")


def statement_kind(node: Any) -> str:
    """Return the kind of a statement for events: `with-input`; for a bare expression, the kind of the expression."""
    kind = kind_of(node.__class__)
    return kind_of(node.value.__class__) if kind == "expression-statement" else kind


def visitors(tree: ModuleType, methods: Mapping[str, Any]) -> dict[type[Node], Callable[..., Any]]:
    """Return, for each kind of node in `tree`, the method named after it: `visit_block_call` for `BlockCall`.

    A class calls it with `vars()` below its methods. Raises `KeyError` for a method that is named after no node.
    """
    kinds = {f"visit_{kind_of(kind).replace('-', '_')}": kind for kind in kinds_in(tree)}
    return {kinds[name]: method for name, method in methods.items() if name.startswith("visit_")}


def kinds_in(tree: ModuleType) -> list[type[Node]]:
    return [kind for kind in vars(tree).values() if isinstance(kind, type) and issubclass(kind, Node)]
