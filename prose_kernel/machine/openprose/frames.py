"""Frames and names (openprose.md 3.5, 3.6).

A frame belongs to the root or to one block invocation. Its table is flat: bodies open no scope. A branch of `parallel`
puts its own layer over the table, which is published at the join. A name is looked up among the temporary names, then
in the table, then among the soft exports, then in the caller, up to the root: scope is dynamic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from prose_kernel.language.source import Location, Source, Span
from prose_kernel.machine.openprose.program_text import statement_text
from prose_kernel.runtime.ports import Binding, Key
from prose_kernel.runtime.values import Value

Kind = Literal["input", "output", "let", "const"]
Spawned = Literal["exec", "session", "resume"]

GLOBAL_DEPTH_LIMIT = 500
DEFAULT_BLOCK_DEPTH = 100


class Temp(Struct, eq=False):
    """The value of a temporary name, which is immutable and ends with its body. `key` is its binding, if it has one."""

    value: Value
    word: str
    key: Key | None = None


Temps = dict[str, Temp]


class Slot(Struct, eq=False):
    """A variable of a table. `source` and `span` are the statement that made its value. `single` is set for the result
    of a call whose target has only one output: the name of the output."""

    name: str
    kind: Kind
    value: Value
    key: Key
    source: Source
    span: Span
    spawned: Spawned | None = None
    cell: int = 0
    single: str = ""

    def binding(self) -> Binding:
        return Binding(self.key, self.kind, self.value, statement_text(self.source, self.span))


class Layer(Struct, eq=False):
    """The names of a frame, or the names bound by one branch over it. `iterations` are the `__i{index}` of 7.4."""

    frame: Frame
    parent: Layer | None = None
    iterations: tuple[int, ...] = ()
    table: dict[str, Slot] = field(default_factory=dict)
    exports: dict[str, Slot] = field(default_factory=dict)
    outputs: dict[str, Slot] = field(default_factory=dict)

    def publish(self) -> None:
        """Copy everything bound in this layer to the one below (the join of 3.7)."""
        below = self.parent
        if below is None:
            return
        below.table.update(self.table)
        below.exports.update(self.exports)
        below.outputs.update(self.outputs)

    def chain(self) -> Iterator[Layer]:
        layer: Layer | None = self
        while layer is not None:
            yield layer
            layer = layer.parent


class Caller(Struct, eq=False):
    """The names that a block invocation sees after its own: the names of its caller at the time of the call."""

    temps: Temps
    layer: Layer
    source: Source
    span: Span

    @property
    def location(self) -> Location:
        return self.source.location(self.span.start)


class Frame(Struct, eq=False):
    """The root, or one block invocation. `same` counts the frames of this block on the stack, including itself."""

    execution_id: int | None = None
    block: str | None = None
    arguments: tuple[Value, ...] = ()
    caller: Caller | None = None
    depth: int = 0
    same: int = 0

    @property
    def parent_execution_id(self) -> int:
        above = self.caller.layer.frame.execution_id if self.caller else None
        return above or 0

    def stack(self) -> Iterator[Frame]:
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.caller.layer.frame if frame.caller else None


def find_home(name: str, temps: Temps, layer: Layer) -> tuple[Temp | Slot, Layer] | None:
    """Return the variable and its layer. Temporary names come first, then the table, the soft exports, and the caller's
    names in the same order (3.5). A soft export is returned with the layer in which it was made."""
    while True:
        temp = temps.get(name)
        if temp is not None:
            return temp, layer
        for part in layer.chain():
            slot = part.table.get(name)
            if slot is not None:
                return slot, part
        for part in layer.chain():
            slot = part.exports.get(name)
            if slot is not None:
                return slot, part
        caller = layer.frame.caller
        if caller is None:
            return None
        temps, layer = caller.temps, caller.layer


def visible(temps: Temps, layer: Layer) -> dict[str, Value]:
    """Return every visible name with its value; inner names come first and hide outer ones."""
    found: dict[str, Value] = {}
    while True:
        for name, temp in temps.items():
            found.setdefault(name, temp.value)
        for part in layer.chain():
            for name, slot in part.table.items():
                found.setdefault(name, slot.value)
        for part in layer.chain():
            for name, slot in part.exports.items():
                found.setdefault(name, slot.value)
        caller = layer.frame.caller
        if caller is None:
            return found
        temps, layer = caller.temps, caller.layer
