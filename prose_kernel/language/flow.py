"""The flow of a program, independent of the language: its steps in order, and the names that each reads, binds, calls.

Each language builds it from its tree, and `views.diagram` draws it. The events of a run are matched with steps by their
spans.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from msgspec import Struct

from prose_kernel.language.nodes import Node, walk
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped

Kind = Literal[
    "agent",  # a definition, like `block` and `import`: not executed in order
    "block",
    "import",
    "input",
    "output",
    "value",
    "session",
    "command",
    "gate",
    "judgement",
    "call",
    "if",
    "parallel",
    "loop",
    "try",
    "body",
    "leave",  # the flow ends here: return, throw, break
]

DEFINITIONS: Final = frozenset({"agent", "block", "import"})
DEPTH: Final = 24
"""The number of nested bodies for which steps are made."""
LABEL: Final = 200
"""The maximum length of a step's text, in characters."""


class Way(Struct, frozen=True):
    """One body of a step: a branch, an arm, an option, the `catch` of a `try`."""

    label: str
    steps: tuple[FlowStep, ...]


class FlowStep(Struct, frozen=True):
    """An action or definition of a program, in the program's words. Its events have the same span.

    `uses` names the agent that is asked, or the blocks and programs that are called; `always`: one of the ways is taken
    in any case. `omitted` is the number of statements left out, because they are nested too deeply. `scoped` holds the
    names that are valid only in the ways: parameters, the variable of a loop. The reads of a definition count for its
    users.
    """

    kind: Kind
    text: str
    span: Span
    reads: tuple[str, ...] = ()
    binds: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    ways: tuple[Way, ...] = ()
    always: bool = False
    omitted: int = 0
    scoped: tuple[str, ...] = ()


def shortened(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text[: 2 * LABEL].split())
    return clipped(line, LABEL if len(text) <= 2 * LABEL else -1, kept=LABEL - 1)


def statements(node: Node, kind: type[Node]) -> int:
    """Return the number of nodes of this kind inside a node."""
    return sum(1 for part in walk(node) if isinstance(part, kind)) - isinstance(node, kind)


def kinds_of(steps: tuple[FlowStep, ...]) -> frozenset[Kind]:
    """Return the kinds of all steps, nested ones included."""
    inner = [kinds_of(way.steps) for step in steps for way in step.ways]
    return frozenset(step.kind for step in steps).union(*inner)


S = TypeVar("S")


class FlowBuilder(Generic[S]):
    """Builds steps from the statements of a program, which are nodes of `kind`; subclasses define `statement`."""

    kind: ClassVar[type[Node]]

    def __init__(self, source: Source) -> None:
        self.source = source

    def body(self, items: tuple[S, ...], depth: int) -> tuple[FlowStep, ...]:
        return tuple(step for item in items for step in self.statement(item, depth))

    def text(self, node: Node) -> str:
        """Return the beginning of a node's text, on one line."""
        start, end = node.span
        text = self.source.text[start : min(end, start + 2 * LABEL)]
        return shortened(text if end - start <= 2 * LABEL else text + " ")

    def with_ways(
        self, step: FlowStep, node: Node, bodies: Iterable[tuple[str, tuple[S, ...]]], depth: int
    ) -> FlowStep:
        """Return `step` with a way for each body; at the deepest level only with the number of their statements."""
        if depth >= DEPTH:
            return replace(step, always=False, omitted=statements(node, self.kind))
        return replace(step, ways=tuple(Way(label, self.body(body, depth + 1)) for label, body in bodies))

    def if_step(self, step: FlowStep, node: Any, depth: int) -> FlowStep:
        """Return the step of an `if`, with a way for each arm; its text is the condition if there is only one."""
        ways = [(self.text(arm.condition), arm.body) for arm in node.arms]
        text = "if"
        if len(ways) == 1:
            text, ways = ways[0][0], [("yes", ways[0][1])]
        if node.otherwise is not None:
            ways.append(("else", node.otherwise))
        return self.with_ways(replace(step, text=text, always=node.otherwise is not None), node, ways, depth)

    def try_step(self, node: Any, clause: str, handler: Any, name: Any, binds: tuple[str, ...], depth: int) -> FlowStep:
        """Return the step of a `try`; `clause` is the word of its handler, which binds `name`."""
        ways = [("try", node.body)]
        ways += [(clause, handler.body)] if handler is not None else []
        ways += [("finally", node.final)] if node.final is not None else []
        own = (name.id,) if name is not None else ()
        return self.with_ways(FlowStep("try", "try", node.span, binds=binds, scoped=own), node, ways, depth)

    def definition_step(self, node: Any, depth: int, *, bare: bool = False) -> FlowStep:
        """Return the step of a definition; `bare`: without parameters it has no parentheses."""
        own = tuple(parameter.id for parameter in node.parameters)
        head = node.name.id if bare and not own else f"{node.name.id}({', '.join(own)})"
        step = FlowStep("block", head, node.span, uses=(node.name.id,), scoped=own)
        return self.with_ways(step, node, [("", node.body)], depth)

    def statement(self, node: S, depth: int) -> list[FlowStep]:
        """Return the steps of one statement, which is inside `depth` bodies."""
        raise NotImplementedError
