"""Making tree nodes fast.

The constructor of a node is generic and checks what it is given. A parser makes little else than nodes, and makes them
right, so it fills their slots through the slots' own descriptors: a fraction of the time, the same objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prose_kernel.language.openprose.nodes import Node
from prose_kernel.language.source import Span

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
