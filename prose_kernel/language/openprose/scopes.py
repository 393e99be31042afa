"""Frames, statement lists and the table of names as the checker sees them (openprose.md 3.5).

A *place* is a statement list. Places hang under *constructs* (an `if`, a loop, a `parallel` …), constructs under the
place that contains them; the path between two places shows whether one declaration can follow the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from prose_kernel.language.openprose.names import Contract
from prose_kernel.language.typed_answers import Schema

Relation = Literal["same", "enclosing", "exclusive", "elsewhere"]
Form = Literal["let", "const", "input", "output", "branch"]


class Unset(Enum):
    """Marks a name that had no value yet, in the log of a place."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Result:
    """A variable that holds the result of a program call; `contract` is None while unchecked."""

    program: str
    contract: Contract | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A variable that holds a typed answer of a session, or a part of one: what its JSON Schema says."""

    schema: Schema


Held = Literal["exec"] | Result | Answer | None
"""What is known about a variable's value: straight from `exec`, a program's result, a typed answer, or nothing."""


@dataclass(slots=True, eq=False)
class Construct:
    """A statement with bodies. The bodies of an exclusive one (`if`, `choice`) never run one after the other."""

    place: Place
    exclusive: bool = False


@dataclass(slots=True, eq=False)
class Place:
    """A statement list and its properties; `in_branch`: it has the scope of a branch or an iteration.

    `conditional` bodies may not run at all; a place `logs` its writes when it or one around it is conditional.
    """

    construct: Construct | None = None
    in_loop: bool = False
    in_catch: bool = False
    conditional: bool = False
    logs: bool = False
    hidden: list[tuple[str, str | None, Answer | None]] | None = None
    writes: list[tuple[str, Held | Unset]] | None = None
    in_branch: bool = False

    def child(self, construct: Construct, *, conditional: bool = True) -> Place:
        """A body of `construct`; what is true here stays true there."""
        logs = conditional or self.logs
        return Place(construct, self.in_loop, self.in_catch, conditional, logs, in_branch=self.in_branch)


class History:
    """The places where a name was declared. Adding and asking cost the nesting depth, however many there are."""

    __slots__ = ("_marks", "_places")

    def __init__(self, place: Place) -> None:
        self._places: set[Place] = set()
        self._marks: dict[Place | Construct, int] = {}
        self.add(place)

    def relation(self, place: Place) -> Relation:
        """Return how a declaration in `place` relates to the earlier ones; the closest relation counts."""
        if place in self._places:
            return "same"
        construct = place.construct
        while construct is not None:
            if construct.place in self._places:
                return "enclosing"
            construct = construct.place.construct
        return "elsewhere" if self._can_follow(place) else "exclusive"

    def add(self, place: Place) -> None:
        self._places.add(place)
        self._mark(place)

    def _mark(self, place: Place) -> None:
        """Count, at each node up to the root, how many of its children hold a declaration."""
        node: Place | Construct | None = place
        while node is not None:
            count = self._marks.get(node, 0)
            self._marks[node] = count + 1
            if count:
                return
            node = node.place if isinstance(node, Construct) else node.construct

    def _can_follow(self, place: Place) -> bool:
        """Whether an earlier declaration is anywhere but in another arm of the same `if` or `choice`."""
        marks = self._marks
        if place in marks:
            return True
        construct = place.construct
        while construct is not None:
            inside = construct in marks
            if inside and not construct.exclusive:
                return True
            if marks.get(construct.place, 0) > inside:
                return True
            if inside:
                return False  # all of them are in the other arms
            construct = construct.place.construct
        return False


class Entry:
    """A name of a frame's table: the form of its latest declaration and where it was declared.

    Most names are declared once; the histories are created on demand.
    """

    __slots__ = ("_first", "_outputs", "_plain", "form")

    def __init__(self, form: Form, place: Place) -> None:
        self.form = form
        self._first: Place | None = place
        self._plain: History | None = None
        self._outputs: History | None = None

    @property
    def plain(self) -> History | None:
        """The declarations that aren't an `output`."""
        self._remember()
        return self._plain

    @property
    def outputs(self) -> History | None:
        self._remember()
        return self._outputs

    def add(self, form: Form, place: Place) -> None:
        self._remember()
        self._put(form, place)
        self.form = form

    def relation(self, place: Place) -> Relation:
        """The closest relation to any earlier declaration."""
        found = [h.relation(place) for h in (self.plain, self.outputs) if h]
        return min(found, key=_CLOSENESS.__getitem__)

    def _remember(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._put(self.form, first)

    def _put(self, form: Form, place: Place) -> None:
        if form == "output":
            if self._outputs is None:
                self._outputs = History(place)
            else:
                self._outputs.add(place)
        elif self._plain is None:
            self._plain = History(place)
        else:
            self._plain.add(place)


_CLOSENESS: dict[Relation, int] = {"same": 0, "enclosing": 1, "elsewhere": 2, "exclusive": 3}


class Frame:
    """The names of the root or of one block while its text is walked (3.5).

    `table` holds every declaration so far, `visible` what a read finds (soft exports included), `temporaries` the loop
    variables, parameters and the like with their kind, `held` what is known about values, `items` about those of
    temporaries; `mixed` are names that do not always hold the same kind of thing. `fresh` collects what becomes visible
    inside a branch or an iteration, so that it can be hidden again. `open`: a block of unknown content was called,
    which may have exported any name.
    """

    __slots__ = ("fresh", "held", "is_root", "items", "mixed", "open", "place", "table", "temporaries", "visible")

    def __init__(self, *, is_root: bool) -> None:
        self.is_root = is_root
        self.open = False
        self.place = Place()
        self.table: dict[str, Entry] = {}
        self.visible: dict[str, None] = {}  # a set in order of appearance
        self.temporaries: dict[str, str] = {}
        self.held: dict[str, Held] = {}
        self.items: dict[str, Answer] = {}
        self.mixed: set[str] = set()
        self.fresh: list[str] | None = None

    def show(self, name: str) -> None:
        """Make a name readable from here on."""
        if name not in self.visible:
            self.visible[name] = None
            if self.fresh is not None:
                self.fresh.append(name)

    def hide(self, name: str, kind: str) -> None:
        """Bind a temporary name for the current place; `close` restores the name that it hid."""
        place = self.place
        if place.hidden is None:
            place.hidden = []
        place.hidden.append((name, self.temporaries.get(name), self.items.pop(name, None)))
        self.temporaries[name] = kind

    def hold(self, name: str, held: Held) -> None:
        """Note what a variable holds now."""
        place = self.place
        if place.logs:
            if place.writes is None:
                place.writes = []
            place.writes.append((name, self.held.get(name, UNSET)))
        if self.held.get(name, held) != held:
            self.mixed.add(name)
        self.held[name] = held

    def close_place(self, outer: Place) -> None:
        """Leave the current place for the one around it: temporary names go, certain knowledge becomes doubt."""
        place = self.place
        self.place = outer
        for name, before, item in reversed(place.hidden or ()):
            if item is not None:
                self.items[name] = item
            else:
                self.items.pop(name, None)
            if before is None:
                del self.temporaries[name]
            else:
                self.temporaries[name] = before
        if place.writes:
            self._doubt(place, dict(reversed(place.writes)))

    def _doubt(self, place: Place, before: dict[str, Held | Unset]) -> None:
        """Leave `place`, which wrote to the names of `before`, the values that they had until then."""
        if place.conditional:
            for name, held in before.items():
                # The body may not have run: only what holds both with and without it is still known.
                if held is not UNSET and held != self.held[name]:
                    self.held[name] = None
        outer = self.place
        if outer.logs:
            if outer.writes is None:
                outer.writes = []
            outer.writes.extend(before.items())


def verdict(form: Form, entry: Entry, place: Place, *, strict: bool) -> str | None:
    """Return the code for declaring again a name that `entry` already holds (table of 3.5), None if allowed."""
    if form == "output":
        return _output_again(entry, place, strict)
    if form == "input" and entry.form == "input":
        return "E021" if entry.relation(place) == "same" else None
    relation = entry.relation(place)
    if strict:
        return "E019"
    if form == "branch":
        return None if relation == "exclusive" else _becomes("W151", form, entry)
    if relation == "same":
        return "E019"
    return _becomes("W136", form, entry) if relation == "enclosing" else None


def _output_again(entry: Entry, place: Place, strict: bool) -> str | None:
    plain = entry.plain.relation(place) if entry.plain else "exclusive"
    outputs = entry.outputs.relation(place) if entry.outputs else "exclusive"
    if outputs == "same" or (strict and entry.outputs):
        return "E024"
    if strict:
        return "E114"
    marks = None if plain == "exclusive" else _becomes("W114", "output", entry)
    if marks not in (None, "W114"):
        return marks
    return marks if outputs == "exclusive" else "W124"


def _becomes(code: str, form: Form, entry: Entry) -> str:
    """The warning of a re-declaration, or the error it is when a `const` or an earlier `input` takes part."""
    if entry.form == "input":
        return "E137"
    return "E130" if "const" in (form, entry.form) else code
