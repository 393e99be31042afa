"""The scopes of the checker: frames, statement lists, and the declarations in them (openprose.md 3.5).

A *place* is a statement list. Each place belongs to a *construct* (an `if`, a loop, a `parallel` …), and each construct
to the place that contains it. The path between two places shows whether one declaration can run after the other.
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
    """Marks, in the log of a place, a name that had no value before."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Result:
    """The value of a program call; `contract` is None if it is unknown."""

    program: str
    contract: Contract | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The typed answer of a session, or a part of one, with its JSON Schema."""

    schema: Schema


KnownValue = Literal["exec"] | Result | Answer | None
"""The kind of a variable's value, if known: the output of an `exec`, a program's result, or a typed answer."""


@dataclass(slots=True, eq=False)
class Construct:
    """A statement with bodies. Of an `exclusive` one (`if`, `choice`), only one body runs."""

    place: Place
    exclusive: bool = False


@dataclass(slots=True, eq=False)
class Place:
    """A statement list.

    - `in_loop`, `in_catch`, `in_branch`: it is inside a loop, a catch body, a branch or concurrent iteration
    - `conditional`: it may not run at all
    - `logs`: it records assignments in `writes`, because it or an enclosing place is conditional
    - `hidden`: the temporary names bound here, with the meanings that they hid
    - `writes`: the assigned names, with what was known about their values before
    """

    construct: Construct | None = None
    in_loop: bool = False
    in_catch: bool = False
    conditional: bool = False
    logs: bool = False
    hidden: list[tuple[str, str | None, Answer | None]] | None = None
    writes: list[tuple[str, KnownValue | Unset]] | None = None
    in_branch: bool = False

    def child(self, construct: Construct, *, conditional: bool = True) -> Place:
        """Return a new place for a body of `construct`; it inherits the properties of this one."""
        logs = conditional or self.logs
        return Place(construct, self.in_loop, self.in_catch, conditional, logs, in_branch=self.in_branch)


class History:
    """The places where a name is declared. The cost of `add` and `relation` depends only on the nesting depth."""

    __slots__ = ("_marks", "_places")

    def __init__(self) -> None:
        self._places: set[Place] = set()
        self._marks: dict[Place | Construct, int] = {}

    def relation(self, place: Place) -> Relation:
        """Return the closest relation of a declaration in `place` to an earlier one."""
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
        """Count, for each place and construct up to the root, how many of its children contain a declaration."""
        node: Place | Construct | None = place
        while node is not None:
            count = self._marks.get(node, 0)
            self._marks[node] = count + 1
            if count:
                return
            node = node.place if isinstance(node, Construct) else node.construct

    def _can_follow(self, place: Place) -> bool:
        """Return whether an earlier declaration is anywhere but in another arm of the same `if` or `choice`."""
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
                return False  # all earlier declarations are in other arms
            construct = construct.place.construct
        return False


class Entry:
    """The declarations of a name in a frame; `form` is that of the latest one.

    Most names are declared once, so the histories are created on demand.
    """

    __slots__ = ("_first", "_histories", "form")

    def __init__(self, form: Form, place: Place) -> None:
        self.form = form
        self._first: Place | None = place
        self._histories: dict[bool, History] = {}

    def history(self, *, outputs: bool) -> History | None:
        """Return the declarations that are an `output`, or those that aren't."""
        self._remember()
        return self._histories.get(outputs)

    def add(self, form: Form, place: Place) -> None:
        self._remember()
        self._histories.setdefault(form == "output", History()).add(place)
        self.form = form

    def relation(self, place: Place) -> Relation:
        """Return the closest relation of a declaration in `place` to any earlier one."""
        self._remember()
        return min((one.relation(place) for one in self._histories.values()), key=_CLOSENESS.__getitem__)

    def _remember(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self.add(self.form, first)


_CLOSENESS: dict[Relation, int] = {"same": 0, "enclosing": 1, "elsewhere": 2, "exclusive": 3}


class Frame:
    """The names of the root or of one block during the walk (3.5).

    - `table`: all declarations so far
    - `visible`: the readable names, including soft exports, in order of appearance
    - `temporaries`: the loop variables, parameters and similar names, with their kind
    - `held`: the known kinds of values of variables; `items` has those of temporaries
    - `mixed`: names that hold different kinds of values at different times
    - `new_names`: the names that became visible in the current branch or iteration, which are hidden when it ends
    - `open`: any name may be visible, because a block with unknown content was called
    """

    __slots__ = ("held", "is_root", "items", "mixed", "new_names", "open", "place", "table", "temporaries", "visible")

    def __init__(self, *, is_root: bool) -> None:
        self.is_root = is_root
        self.open = False
        self.place = Place()
        self.table: dict[str, Entry] = {}
        self.visible: dict[str, None] = {}
        self.temporaries: dict[str, str] = {}
        self.held: dict[str, KnownValue] = {}
        self.items: dict[str, Answer] = {}
        self.mixed: set[str] = set()
        self.new_names: list[str] | None = None

    def show(self, name: str) -> None:
        if name not in self.visible:
            self.visible[name] = None
            if self.new_names is not None:
                self.new_names.append(name)

    def hide(self, name: str, kind: str) -> None:
        """Bind a temporary name for the current place; `close_place` restores the meaning that it hides."""
        place = self.place
        if place.hidden is None:
            place.hidden = []
        place.hidden.append((name, self.temporaries.get(name), self.items.pop(name, None)))
        self.temporaries[name] = kind

    def hold(self, name: str, held: KnownValue) -> None:
        """Record the kind of value that a variable holds now."""
        place = self.place
        if place.logs:
            if place.writes is None:
                place.writes = []
            place.writes.append((name, self.held.get(name, UNSET)))
        if self.held.get(name, held) != held:
            self.mixed.add(name)
        self.held[name] = held

    def close_place(self, outer: Place) -> None:
        """Return to the place around the current one: remove its temporary names, and forget the kinds of values that
        are uncertain after it."""
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
            self._forget_uncertain(place, dict(reversed(place.writes)))

    def _forget_uncertain(self, place: Place, before: dict[str, KnownValue | Unset]) -> None:
        """Forget uncertain kinds of values after `place`; `before` has the assigned names with their earlier kinds."""
        if place.conditional:
            for name, held in before.items():
                # The body may not have run, so a kind is known only if it is the same before and after it.
                if held is not UNSET and held != self.held[name]:
                    self.held[name] = None
        outer = self.place
        if outer.logs:
            if outer.writes is None:
                outer.writes = []
            outer.writes.extend(before.items())


def redeclaration_code(form: Form, entry: Entry, place: Place, *, strict: bool) -> str | None:
    """Return the code for another declaration of the name of `entry` (table of 3.5), None if it is allowed."""
    if form == "output":
        return _output_again(entry, place, strict)
    if form == "input" and entry.form == "input":
        return "E021" if entry.relation(place) == "same" else None
    relation = entry.relation(place)
    if strict:
        return "E019"
    if form == "branch":
        return None if relation == "exclusive" else _error_or_warning("W151", form, entry)
    if relation == "same":
        return "E019"
    return _error_or_warning("W136", form, entry) if relation == "enclosing" else None


def _output_again(entry: Entry, place: Place, strict: bool) -> str | None:
    histories = entry.history(outputs=False), entry.history(outputs=True)
    plain, outputs = (one.relation(place) if one is not None else "exclusive" for one in histories)
    if outputs == "same" or (strict and histories[1] is not None):
        return "E024"
    if strict:
        return "E114"
    marks = None if plain == "exclusive" else _error_or_warning("W114", "output", entry)
    if marks not in (None, "W114"):
        return marks
    return marks if outputs == "exclusive" else "W124"


def _error_or_warning(code: str, form: Form, entry: Entry) -> str:
    """Return the error for a repeated declaration if a `const` or an earlier `input` is involved, else the warning
    `code`."""
    if entry.form == "input":
        return "E137"
    return "E130" if "const" in (form, entry.form) else code
