"""The nodes of trees: frozen `msgspec.Struct`s, each made by one call in C.

A parser makes little else than nodes, so what a node costs is what a program costs. Structs are made four times as fast
as dataclasses with slots. Leaves also stay out of the garbage collector's way (`gc=False`); other nodes must not,
because a deep chain of them is freed safely only with the collector's help. The span is stored as a plain pair, which
is cheaper than a `Span`, and read as one.

All nodes share one set of methods. Comparing and hashing keep an agenda, because trees are deeper than programs nest:
an `if` is four levels of nodes and tuples, and a chain of operators in VVM is as deep as it is long.
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

NOWHERE = Span(0, 0)


class Node(Struct, frozen=True, kw_only=True):
    """Base of all nodes. `span` covers the node's own text, head and body; it takes no part in comparison."""

    span: Span = NOWHERE

    def __init_subclass__(cls, **config: Any) -> None:
        super().__init_subclass__(**config)
        kinds = cls.__mro__[: cls.__mro__.index(Node)]
        cls.at = _maker(cls, sum(len(kind.__annotations__) for kind in kinds))  # type: ignore[method-assign]

    @classmethod
    def at(cls, start: int, end: int, *values: Any) -> Self:
        """Make a node that covers the text from `start` to `end`, of the values of all its fields in order."""
        return cls(*values, span=(start, end))  # type: ignore[arg-type]  # stored as a plain pair

    def fields(self) -> tuple[Any, ...]:
        """The values of all fields but the span."""
        return structs.astuple(self)[:-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and (self is other or [*self._flat()] == [*other._flat()])

    def __hash__(self) -> int:
        return hash(tuple(self._flat()))

    def _flat(self) -> Iterator[Any]:
        """The leaves of the node, and the shape above them."""
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
        return _shown(self)


def _shown(part: object) -> str:
    if isinstance(part, Node):
        values = [*map(_shown, part.fields())]
        pairs = zip(part.__struct_fields__, values, strict=False)
        return f"{type(part).__name__}({', '.join([f'{name}={value}' for name, value in pairs])})"
    if type(part) is tuple:
        return f"({', '.join([*map(_shown, part)])}{',' if len(part) == 1 else ''})"
    return repr(part)


N = TypeVar("N", bound=Node)


def _maker(make: Any, count: int) -> Any:
    """`Node.at` for a class of `count` fields, at half its cost."""

    def one(start: int, end: int, a: Any) -> Any:
        return make(a, span=(start, end))

    def two(start: int, end: int, a: Any, b: Any) -> Any:
        return make(a, b, span=(start, end))

    def more(start: int, end: int, *values: Any) -> Any:
        return make(*values, span=(start, end))

    return {1: one, 2: two}.get(count, more)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: a parser makes nothing but nodes, and none of them is garbage or part of a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def walk(root: Node) -> Iterator[Node]:
    """A node and everything inside it, in no particular order, however deep."""
    stack: list[object] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, Node):
            yield node
            stack.extend(node.fields())


def fields_with(names: str, kinds: Iterable[type[Node]]) -> dict[type[Node], tuple[str, ...]]:
    """The fields of each kind whose types name one of `names`, which are separated by `|`."""
    named = re.compile(rf"\b(?:{names})\b")
    return {kind: tuple(name for name, of in kind.__annotations__.items() if named.search(of)) for kind in kinds}


def below(
    body: Iterable[Node], fields: Mapping[type[Node], tuple[str, ...]], closed: tuple[type[Node], ...] = ()
) -> Iterator[Node]:
    """The nodes of a body and those in the `fields` of each, in source order and however deep; of `closed` ones only
    the node itself."""
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
    """The tree with each node passed through `change`, from the leaves up; what does not change is kept, not copied."""
    order = list(walk(root))
    made: dict[int, Node] = {}

    def part(value: object) -> object:
        if isinstance(value, tuple):
            parts = tuple([part(one) for one in value])
            return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
        return made.get(id(value), value)

    for node in reversed(order):  # children come after their parents
        fields = zip(node.__struct_fields__, node.fields(), strict=False)
        new = {name: found for name, value in fields if (found := part(value)) is not value}
        changed = change(structs.replace(node, **new) if new else node)
        if changed is not node:
            made[id(node)] = changed
    return cast("N", made.get(id(root), root))


_stored_span = Node.__dict__["span"].__get__
_store_span = Node.__dict__["span"].__set__
_pair = tuple.__new__


def _span(self: Node) -> Span:
    return _pair(Span, _stored_span(self))


Node.span = property(_span)  # type: ignore[assignment]


_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def move(root: Node, place: Callable[[int, int], tuple[int, int]], shift: int | None, done: set[int]) -> None:
    """Move the spans of a tree in place, for a parser, whose tree has no other owner yet: a copy costs half a parse.

    `place` gives the new span; where all offsets move alike `shift` says by how much, which is faster. `done` are the
    ids of nodes that were moved already. Nodes that are `NOWHERE` stay so; they may be defaults, which trees share.
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
    """The kind of a statement or expression, as events carry it: `with-input`; a bare expression's own."""
    kind = kind_of(node.__class__)
    return kind_of(node.value.__class__) if kind == "expression-statement" else kind


def visitors(tree: ModuleType, methods: Mapping[str, Any]) -> dict[type[Node], Callable[..., Any]]:
    """For each kind of node in `tree` the method that is named after it: `visit_block_call` for `BlockCall`.

    A class calls it with its own names, `vars()`, below its methods. A name after which no node is called is an error.
    """
    kinds = {f"visit_{kind_of(kind).replace('-', '_')}": kind for kind in vars(tree).values() if _is_node(kind)}
    return {kinds[name]: method for name, method in methods.items() if name.startswith("visit_")}


def _is_node(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Node)
