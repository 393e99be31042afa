"""Draw the flow of a program as a Mermaid diagram, which JupyterLab and GitHub show, and as indented text.

Labels come from programs, so they are written as character codes, which Mermaid, Markdown and HTML do not interpret. In
a large program inner bodies are counted instead of shown, and if that isn't enough, only its beginning is drawn, so
that every diagram stays below Mermaid's limits (GitHub's: 50,000 characters, 500 edges).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from prose_kernel.language.flow import DEFINITIONS, FlowStep, Kind, Way
from prose_kernel.language.source import Span
from prose_kernel.language.structs import replace
from prose_kernel.views.document import counted
from prose_kernel.views.escaping import clip, visible

NODES: Final = 150
EDGES: Final = 400
CHARACTERS: Final = 40_000
LINES: Final = 400
"""The most lines of the text form."""

_ALL: Final = 1_000_000
_LEVELS: Final = (
    *((_ALL, _ALL, _ALL, 70), (8, _ALL, 30, 60), (3, _ALL, 12, 50), (2, 100, 10, 50), (1, 60, 8, 40)),
    *((0, 80, 0, 40), (0, 40, 0, 24)),
)
"""Limits of drawings, from everything to little: the depth of bodies, statements, statements and branches of an inner
body, characters of a label."""

_EDGE: Final = 30
"""The most characters in the label of an edge."""

_PLAIN: Final = frozenset(",-/(?!={}…→✓✗×·")
_SHAPES: Final[Mapping[Kind, tuple[str, str]]] = {
    "agent": (">", "]"),
    "block": ("[[", "]]"),
    "import": ("[/", "/]"),
    "input": ("[/", "/]"),
    "output": ("[\\", "\\]"),
    "session": ("([", "])"),
    "gate": ("{{", "}}"),
    "judgement": ("{", "}"),
    "if": ("{", "}"),
    "call": ("[[", "]]"),
    "parallel": ("[[", "]]"),
    "loop": ("{{", "}}"),
    "leave": ("(", ")"),
}
_STYLES: Final = (
    "classDef done stroke:#2e9e4f,stroke-width:2px",
    "classDef failed stroke:#d6453d,stroke-width:3px",
    "classDef cancelled stroke:#c98a1b,stroke-width:2px,stroke-dasharray:4 3",
    "classDef idle stroke-dasharray:2 4",
)
"""Only the colours of lines: labels and boxes keep the colours of the front end's light or dark theme."""


class Mark(Struct, frozen=True):
    """The outcome of a step in a run: its state, a text, and volatile figures."""

    state: str
    words: str
    figures: str = ""


class DiagramText(Struct, frozen=True):
    """One text of a picture: a program, or a cell of a notebook. `marks` is None for a text that has not run."""

    title: str
    steps: tuple[FlowStep, ...]
    marks: Mapping[Span, Mark] | None = None


def mermaid(parts: Sequence[DiagramText]) -> str:
    """Return the source of a Mermaid flowchart. Several parts become several boxes, connected in order."""
    text = ""
    for drawn, width in levels(parts):
        text = _Drawing(drawn, width).text
        if len(text) <= CHARACTERS:
            break
    return text


def levels(parts: Sequence[DiagramText]) -> Iterator[tuple[list[DiagramText], int]]:
    """Yield the parts in full, then with less and less detail, each with the maximum characters of a label."""
    for depth, statements, breadth, width in _LEVELS:
        share = max(statements // max(len(parts), 1), 1)
        drawn = [replace(part, steps=_cut(_folded(part.steps, depth, breadth), share)) for part in parts]
        if not depth or sum(_size(part.steps) for part in drawn) <= NODES:
            yield drawn, width


def fence(diagram: str) -> str:
    """Return a diagram as a Markdown block."""
    return f"```mermaid\n{diagram}```"


def label(text: str, width: int) -> str:
    """Return a text as a Mermaid label of one line. Only letters, digits and some punctuation are not escaped, because
    Mermaid reads labels as Markdown, and would show lists, emphasis and links."""
    shown = clip(" ".join(text.split()), width)
    return "".join(_written(shown, at, c) for at, c in enumerate(shown))


def _written(text: str, at: int, c: str) -> str:
    if c.isalnum() or c == " ":
        return c
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    match c:
        case "_":
            plain = before.isalnum() and after.isalnum()
        case "." | ")":
            plain = not before.isdigit() and not after.strip()
        case ":":
            plain = after == " "
        case _:
            plain = c in _PLAIN and at > 0
    return c if plain else f"#{ord(c)};"


# ---------------------------------------------------------------- smaller programs


def _size(steps: Sequence[FlowStep]) -> int:
    return sum(1 + sum(_size(way.steps) for way in step.ways) for step in steps)


def _folded(steps: tuple[FlowStep, ...], depth: int, breadth: int) -> tuple[FlowStep, ...]:
    """Return the steps with the beginnings of their bodies down to `depth`; deeper bodies become a count of their
    steps."""
    if depth >= _ALL:
        return steps
    folded = []
    for step in steps:
        if step.ways and depth <= 0:
            inside = step.omitted + sum(_size(way.steps) for way in step.ways)
            step = replace(step, ways=(), omitted=inside)
        elif step.ways:
            ways = [Way(w.label, _cut(_folded(w.steps, depth - 1, breadth), breadth)) for w in step.ways[:breadth]]
            if (more := len(step.ways) - breadth) > 0:
                ways.append(Way("", (_more(more, "branch"),)))
            step = replace(step, ways=tuple(ways))
        folded.append(step)
    return tuple(folded)


def _cut(steps: tuple[FlowStep, ...], statements: int) -> tuple[FlowStep, ...]:
    return steps if len(steps) <= statements + 1 else (*steps[:statements], _more(len(steps) - statements, "statement"))


def _more(count: int, noun: str) -> FlowStep:
    return FlowStep("value", f"… and {counted(count, f'more {noun}')}", Span(0, 0))


# ---------------------------------------------------------------- drawing

Tails = list[tuple[str, str]]
"""The nodes from which control continues, each with the label of its edge."""
Names = dict[str, tuple[str, ...]]
"""The nodes that may have bound each name."""


class _LoopEnds(Struct):
    head: str
    breaks: Tails = field(default_factory=list)


class _Drawing:
    """One flowchart: all nodes in source order, then all edges."""

    def __init__(self, parts: Sequence[DiagramText], width: int) -> None:
        self._width = width
        self._marks: Mapping[Span, Mark] | None = None
        self._lines: list[str] = []
        self._count = 0
        self._indent = 1
        self._control: dict[tuple[str, str], list[str]] = {}
        self._data: dict[tuple[str, str], dict[str, None]] = {}
        self._uses: dict[tuple[str, str], None] = {}
        self._defined: dict[str, str] = {}
        self._called: list[tuple[str, str]] = []
        self._loops: list[_LoopEnds] = []
        self._styled: dict[str, list[str]] = {}
        names: Names = {}
        tails: Tails = []
        for part in parts:
            self._marks = part.marks
            if part.title:
                self._open(part.title)
            tails = self._sequence(part.steps, tails, names)
            if part.title:
                self._close()

    @property
    def text(self) -> str:
        lines = ["flowchart TD", "  accTitle: Flow of a program", *self._lines, *self._edges()]
        if self._styled:
            lines += [f"  {style}" for style in _STYLES]
            lines += [f"  class {','.join(ids)} {state}" for state, ids in self._styled.items()]
        if not self._count:
            lines.append('  n1["nothing to draw"]')
        return "\n".join(lines) + "\n"

    def _edges(self) -> list[str]:
        for node, name in self._called:
            if (definition := self._defined.get(name)) is not None and definition != node:
                self._uses[definition, node] = None
        found = []
        for (source, target), labels in self._control.items():
            names = list(self._data.pop((source, target), ()))
            text = label(", ".join([*(one for one in labels if one), *names]), min(self._width, _EDGE))
            found.append(f'  {source} -->|"{text}"| {target}' if text else f"  {source} --> {target}")
        for (source, target), read in self._data.items():
            found.append(f'  {source} -.->|"{label(", ".join(read), min(self._width, _EDGE))}"| {target}')
        found += [f"  {source} -.- {target}" for source, target in self._uses]
        return found[:EDGES]

    # ------------------------------------------------------------ nodes

    def _open(self, title: str) -> None:
        self._count += 1
        self._lines.append(f'{"  " * self._indent}subgraph s{self._count} ["{label(title, self._width)}"]')
        self._indent += 1

    def _close(self) -> None:
        self._indent -= 1
        self._lines.append(f"{'  ' * self._indent}end")

    def _node(self, kind: Kind, text: str, mark: Mark | None = None, inside: int = 0) -> str:
        self._count += 1
        node, (left, right) = f"n{self._count}", _SHAPES.get(kind, ("[", "]"))
        shown = label(text, self._width) or " "
        if inside:
            shown += f"<br/>{label(statements_inside(inside), 99)}"
        if mark is not None:
            words = ", ".join(filter(None, (mark.words, mark.figures)))
            shown += f"<br/>{label(words, 99)}"
            self._styled.setdefault(mark.state, []).append(node)
        self._lines.append(f'{"  " * self._indent}{node}{left}"{shown}"{right}')
        return node

    def _step_node(self, step: FlowStep, tails: Tails, names: Names) -> str:
        node = self._node(step.kind, words(step), mark_of(step, self._marks), step.omitted)
        for source, label in tails:
            self._control.setdefault((source, node), []).append(label)
        for name in step.reads:
            for source in names.get(name, ()):
                if source != node:
                    self._data.setdefault((source, node), {})[name] = None
        self._called += [(node, name) for name in step.uses]
        return node

    # ------------------------------------------------------------ control

    def _sequence(self, steps: Sequence[FlowStep], tails: Tails, names: Names) -> Tails:
        """Draw steps one after the other, from `tails` on, and add the names that they bind to `names`."""
        for step in steps:
            if step.kind in DEFINITIONS:
                self._definition(step)
            else:
                tails = self._step(step, tails, names)
        return tails

    def _definition(self, step: FlowStep) -> None:
        if step.kind != "block":
            node = self._node(step.kind, words(step))
        else:
            self._open(words(step))
            node = self._node("block", step.uses[0] if step.uses else step.text, inside=step.omitted)
            loops, self._loops = self._loops, []
            for way in step.ways:
                self._sequence(way.steps, [(node, "")], {})
            self._loops = loops
            self._close()
        for name in step.uses:
            self._defined[name] = node

    def _step(self, step: FlowStep, tails: Tails, names: Names) -> Tails:
        match step.kind:
            case "if" if step.ways:
                node = self._step_node(step, tails, names)
                ends = self._ways(step, [(node, "")], names)
                tails = ends if step.always else [*ends, (node, "no" if step.ways[0].label == "yes" else "otherwise")]
            case "parallel" if step.ways:
                node = self._step_node(step, tails, names)
                ends = self._ways(step, [(node, "")], names)
                join = self._node("value", "join")
                for source, label in ends:
                    self._control.setdefault((source, join), []).append(label)
                tails, node = [(join, "")], join
            case "loop" if step.ways:
                node = self._step_node(step, tails, names)
                tails = self._loop(step, node, names)
            case "try" if step.ways:
                return self._try(step, tails, names)
            case "body" if step.ways:
                if step.text != "do":
                    tails = [(self._step_node(step, tails, names), "")]
                for way in step.ways:
                    tails = self._sequence(way.steps, tails, names)
                names.update({name: tuple(source for source, _ in tails) for name in step.binds})
                return tails
            case "leave":
                return self._leave(step, self._step_node(step, tails, names))
            case _:
                node = self._step_node(step, tails, names)
                tails = [(node, "")]
        names.update(dict.fromkeys(step.binds, (node,)))
        return tails

    def _ways(self, step: FlowStep, tails: Tails, names: Names) -> Tails:
        """Draw alternative bodies side by side; afterwards a name may have been bound in any of them."""
        before, ends = dict(names), Tails()
        found: dict[str, dict[str, None]] = {}
        for way in step.ways:
            inner = dict(before)
            ends += self._sequence(way.steps, [(source, way.label) for source, _ in tails], inner)
            for name, nodes in inner.items():
                if nodes != before.get(name):
                    found.setdefault(name, {}).update(dict.fromkeys(nodes))
        names.update({name: tuple(nodes) for name, nodes in found.items()})
        return ends

    def _loop(self, step: FlowStep, node: str, names: Names) -> Tails:
        ends = _LoopEnds(node)
        self._loops.append(ends)
        for way in step.ways:
            for source, label in self._sequence(way.steps, [(node, "each")], names):
                if source != node:
                    self._control.setdefault((source, node), []).append(label)
        self._loops.pop()
        return [(node, ""), *ends.breaks]

    def _try(self, step: FlowStep, tails: Tails, names: Names) -> Tails:
        node = self._step_node(step, tails, names)
        ends = [(node, "")]
        for way in step.ways:
            match way.label:
                case "try":
                    ends = self._sequence(way.steps, [(node, "")], names)
                case "finally":
                    ends = self._sequence(way.steps, ends or [(node, "finally")], names)
                case _:
                    ends += self._sequence(way.steps, [(node, "error")], names)
        names.update(dict.fromkeys(step.binds, (node,)))
        return ends

    def _leave(self, step: FlowStep, node: str) -> Tails:
        word = step.text.split(None, 1)[0] if step.text else ""
        if self._loops and word == "break":
            self._loops[-1].breaks.append((node, ""))
        elif self._loops and word == "continue":
            self._control.setdefault((node, self._loops[-1].head), [])
        return []


_ASKING: Final = frozenset({"session", "command", "gate"})


def mark_of(step: FlowStep, marks: Mapping[Span, Mark] | None) -> Mark | None:
    """Return the outcome of a step; for a step that makes a request, also that it did not run."""
    if marks is None:
        return None
    found = marks.get(step.span)
    return found or (Mark("idle", "not run") if step.kind in _ASKING else None)


def words(step: FlowStep) -> str:
    """Describe a step in a few words, including its kind."""
    text = step.text
    match step.kind:
        case "agent" | "import" | "block":
            text = f"{step.kind} {text}"
        case "session":
            text = f"{step.uses[0] if step.uses else 'session'}: {text}"
        case "command":
            text = f"$ {text}"
    return text


def statements_inside(count: int) -> str:
    return f"{counted(count, 'statement')} inside"


# ---------------------------------------------------------------- text


def outline(parts: Sequence[DiagramText]) -> str:
    """Return the flow as indented lines, for terminals and for front ends without Mermaid."""
    lines: list[str] = []
    for part in parts:
        indent = 0
        if part.title:
            lines.append(visible(part.title))
            indent = 1
        _outlined(part.steps, part.marks, indent, lines)
    if not lines:
        return "nothing to draw"
    if (more := len(lines) - LINES) > 0:
        lines[LINES:] = [f"… and {more:,} more lines"]
    return "\n".join(lines)


def _outlined(steps: Sequence[FlowStep], marks: Mapping[Span, Mark] | None, indent: int, lines: list[str]) -> None:
    for step in steps:
        line = clip(words(step), 100)
        if step.binds and step.kind not in ("input", "value", "output"):
            line += f" → {', '.join(step.binds)}"
        if step.omitted:
            line += f" ({statements_inside(step.omitted)})"
        if (mark := mark_of(step, marks)) is not None:
            line += f"  [{', '.join(filter(None, (mark.words, mark.figures)))}]"
        lines.append("  " * indent + line)
        for way in step.ways:
            inner = indent + 1
            if way.label and way.label != step.kind:
                lines.append("  " * inner + clip(way.label, 60) + ":")
                inner += 1
            _outlined(way.steps, marks, inner, lines)
