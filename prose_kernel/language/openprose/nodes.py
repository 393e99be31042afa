"""What a node of the tree is: a frozen dataclass with slots, and made at little cost.

`dataclass` writes and compiles six methods for each class, which for sixty classes would be most of a kernel's time to
the first parsed cell. All nodes share one set of methods here instead. Comparing and hashing keep their own agenda
instead of recursing, so that no program is nested too deeply for them.

The constructor of a node is generic and checks what it is given. A parser makes little else than nodes, and makes them
right, so `maker` fills their slots through the slots' own descriptors: a fraction of the time, the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, dataclass_transform

from prose_kernel.language.source import Span

NOWHERE = Span(0, 0)

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def _base(cls: type[_T]) -> type[_T]:
    return dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)


@_base
class Node:
    """Base of all nodes. `span` covers the node's own text, head and body; it takes no part in comparison."""

    _defaults: ClassVar[dict[str, Any]] = {}
    _parts: ClassVar[Callable[[Any], tuple[Any, ...]]]

    span: Span = field(default=NOWHERE, compare=False, repr=False)

    def __init__(self, *values: Any, **named: Any) -> None:
        names = _names(self)
        if len(values) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} values, {len(values)} were given")
        put = object.__setattr__
        put(self, "span", named.pop("span", NOWHERE))
        for name, value in zip(names, values, strict=False):
            put(self, name, value)
        for name in names[len(values) :]:
            if name not in named and name not in self._defaults:
                raise TypeError(f"{type(self).__name__} needs `{name}`")
            put(self, name, named.pop(name) if name in named else self._defaults[name])
        if named:
            raise TypeError(f"{type(self).__name__} has no `{next(iter(named))}` left to give")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        agenda: list[tuple[Any, Any]] = [(self, other)]
        while agenda:
            one, two = agenda.pop()
            if one is two:
                continue
            if isinstance(one, Node):
                if one.__class__ is not two.__class__:
                    return False
                one, two = one._parts(), two._parts()
            if isinstance(one, tuple):
                if not isinstance(two, tuple) or len(one) != len(two):
                    return False
                agenda.extend(zip(one, two, strict=True))
            elif one != two:
                return False
        return True

    def __hash__(self) -> int:
        return hash(tuple(self._flat()))

    def _flat(self) -> Iterator[Any]:
        """The leaves of the node, and the shape above them."""
        agenda: list[Any] = [self]
        while agenda:
            part = agenda.pop()
            if isinstance(part, Node):
                yield part.__class__
                part = part._parts()
            if isinstance(part, tuple):
                yield len(part)
                agenda.extend(part)
            else:
                yield part

    def __repr__(self) -> str:
        shown: list[str] = []
        agenda: list[Any] = [self]
        while agenda:
            part = agenda.pop()
            if isinstance(part, _Literal):
                shown.append(part)
            elif isinstance(part, Node):
                pairs = [(_Literal(f", {name}="), getattr(part, name)) for name in _names(part)]
                pieces = [piece for pair in pairs for piece in pair]
                pieces[:1] = [_Literal(pieces[0][2:])] if pieces else []
                agenda += [_Literal(")"), *reversed(pieces), _Literal(f"{type(part).__name__}(")]
            elif type(part) is tuple:
                pieces = [piece for item in part for piece in (_Literal(", "), item)][1:]
                agenda += [_Literal(",)" if len(part) == 1 else ")"), *reversed(pieces), _Literal("(")]
            else:
                shown.append(repr(part))
        return "".join(shown)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.span, *self._parts())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(("span", *_names(self)), state, strict=True):
            object.__setattr__(self, name, value)


class _Literal(str):
    """A piece of a `repr` that stands as it is."""

    __slots__ = ()


def _names(part: Any) -> tuple[str, ...]:
    """The fields of a node but for its span."""
    names: tuple[str, ...] = part.__match_args__
    return names


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[_T]) -> type[_T]:
    """Make a class of nodes: its annotations are its fields, in order; they may have defaults."""
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    own = [f for f in fields(made) if f.name != "span"]
    made._defaults = {f.name: f.default for f in own if f.default is not MISSING}
    made._parts = _parts_of([f.name for f in own])
    result: type[_T] = made
    return result


def _parts_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A method that gives the values of the fields `names` as a tuple."""
    if not names:
        return lambda self: ()
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda self: (get(self),)
    return lambda self: get(self)


_N = TypeVar("_N", bound=Node)


def maker(cls: type[_N]) -> Callable[..., _N]:
    """A function `(start, end, *fields)` that makes a node of `cls`; all fields must be given, in their order."""
    names: tuple[str, ...] = cls.__match_args__
    setters = [cls.__dict__[name].__set__ for name in names]
    made: Callable[..., _N] = _MAKERS[len(names)](cls, Node.__dict__["span"].__set__, *setters)
    return made


_new, _pair = object.__new__, tuple.__new__


def _one(cls: Any, span: Any, set_a: Any) -> Any:
    def make(start: int, end: int, a: Any) -> Any:
        node = _new(cls)
        set_a(node, a)
        span(node, _pair(Span, (start, end)))
        return node

    return make


def _two(cls: Any, span: Any, set_a: Any, set_b: Any) -> Any:
    def make(start: int, end: int, a: Any, b: Any) -> Any:
        node = _new(cls)
        set_a(node, a)
        set_b(node, b)
        span(node, _pair(Span, (start, end)))
        return node

    return make


def _three(cls: Any, span: Any, set_a: Any, set_b: Any, set_c: Any) -> Any:
    def make(start: int, end: int, a: Any, b: Any, c: Any) -> Any:
        node = _new(cls)
        set_a(node, a)
        set_b(node, b)
        set_c(node, c)
        span(node, _pair(Span, (start, end)))
        return node

    return make


def _four(cls: Any, span: Any, set_a: Any, set_b: Any, set_c: Any, set_d: Any) -> Any:
    def make(start: int, end: int, a: Any, b: Any, c: Any, d: Any) -> Any:
        node = _new(cls)
        set_a(node, a)
        set_b(node, b)
        set_c(node, c)
        set_d(node, d)
        span(node, _pair(Span, (start, end)))
        return node

    return make


def _five(cls: Any, span: Any, set_a: Any, set_b: Any, set_c: Any, set_d: Any, set_e: Any) -> Any:
    def make(start: int, end: int, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        node = _new(cls)
        set_a(node, a)
        set_b(node, b)
        set_c(node, c)
        set_d(node, d)
        set_e(node, e)
        span(node, _pair(Span, (start, end)))
        return node

    return make


_MAKERS: dict[int, Callable[..., Any]] = {1: _one, 2: _two, 3: _three, 4: _four, 5: _five}
