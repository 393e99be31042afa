"""Making tree nodes fast.

A frozen dataclass with slots spends most of its constructor in `object.__setattr__`, and `Span` in its own `__new__`.
A parser makes little else, so it fills the slots through their descriptors: a third of the time, the same objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from prose_kernel.language.openprose.tree import Node
from prose_kernel.language.source import Span

_N = TypeVar("_N", bound=Node)


def maker(cls: type[_N]) -> Callable[..., _N]:
    """A function `(start, end, *fields)` that makes a node of `cls`; all fields must be given, in their order."""
    names = [f.name for f in fields(cls) if f.name != "span"]
    scope: dict[str, Any] = {"new": object.__new__, "cls": cls, "pair": tuple.__new__, "Span": Span}
    scope["set_span"] = Node.__dict__["span"].__set__
    lines = [f"def make({', '.join(['start', 'end', *names])}):", "    node = new(cls)"]
    for name in names:
        scope[f"set_{name}"] = cls.__dict__[name].__set__
        lines.append(f"    set_{name}(node, {name})")
    lines += ["    set_span(node, pair(Span, (start, end)))", "    return node"]
    exec("\n".join(lines), scope)  # noqa: S102 - the text is made of the field names of our own classes
    made: Callable[..., _N] = scope["make"]
    return made
