"""The scopes of the checker: frames, statement lists, and the declarations in them (openprose.md 3.5).

A *place* is a statement list. Each place belongs to a *construct* (an `if`, a loop, a `parallel` …), and each construct
to the place that contains it. The path between two places shows whether one declaration can run after the other.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from prose_kernel.language.openprose.program_interface import ProgramInterface
from prose_kernel.language.typed_answers import Schema

Relation = Literal["same", "enclosing", "exclusive", "elsewhere"]
Form = Literal["let", "const", "input", "output", "branch"]


class CallResult(Struct, frozen=True):
    """The value of a program call; `contract` is None if it is unknown."""

    program: str
    contract: ProgramInterface | None


class TypedAnswer(Struct, frozen=True):
    """The typed answer of a session, or a part of one, with its JSON Schema."""

    schema: Schema


KnownValue = Literal["exec"] | CallResult | TypedAnswer | None
"""The kind of a variable's value, if known: the output of an `exec`, a program's result, or a typed answer."""


class Construct(Struct, eq=False):
    """A statement with bodies. Of an `exclusive` one (`if`, `choice`), only one body runs."""

    place: StatementList
    exclusive: bool = False


class StatementList(Struct, eq=False):
    """A statement list.

    - `in_loop`, `in_catch`, `in_branch`: it is inside a loop, a catch body, a branch or concurrent iteration
    - `conditional`: it may not run at all
    - `logs`: it records assignments in `writes`, because it or an enclosing place is conditional
    - `hidden`: the temporary names bound here, with the meanings that they hid
    - `writes`: the assigned names, with what was known about their values before (`UNSET`: they had none)
    """

    construct: Construct | None = None
    in_loop: bool = False
    in_catch: bool = False
    conditional: bool = False
    logs: bool = False
    hidden: list[tuple[str, str | None, TypedAnswer | None]] | None = None
    writes: list[tuple[str, KnownValue | UnsetType]] | None = None
    in_branch: bool = False

    def child(self, construct: Construct, *, conditional: bool = True) -> StatementList:
        """Return a new place for a body of `construct`; it inherits the properties of this one."""
        logs = conditional or self.logs
        return StatementList(construct, self.in_loop, self.in_catch, conditional, logs, in_branch=self.in_branch)


class DeclarationPlaces(Struct):
    """The places where a name is declared. The cost of `add` and `relation` depends only on the nesting depth."""

    _places: set[StatementList] = field(default_factory=set)
    _marks: dict[StatementList | Construct, int] = field(default_factory=dict)

    def relation(self, place: StatementList) -> Relation:
        """Return the closest relation of a declaration in `place` to an earlier one."""
        if place in self._places:
            return "same"
        construct = place.construct
        while construct is not None:
            if construct.place in self._places:
                return "enclosing"
            construct = construct.place.construct
        return "elsewhere" if self._can_follow(place) else "exclusive"

    def add(self, place: StatementList) -> None:
        """Add a declaration; count, for each place and construct up to the root, the children that contain one."""
        self._places.add(place)
        node: StatementList | Construct | None = place
        while node is not None:
            count = self._marks.get(node, 0)
            self._marks[node] = count + 1
            if count:
                return
            node = node.place if isinstance(node, Construct) else node.construct

    def _can_follow(self, place: StatementList) -> bool:
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


class DeclaredName(Struct):
    """The declarations of a name in a frame; `form` is that of the latest one.

    Most names are declared once, so the histories are created on demand.
    """

    form: Form
    _first: StatementList | None
    _histories: dict[bool, DeclarationPlaces] = field(default_factory=dict)

    def history(self, *, outputs: bool) -> DeclarationPlaces | None:
        """Return the declarations that are an `output`, or those that aren't."""
        self._remember()
        return self._histories.get(outputs)

    def add(self, form: Form, place: StatementList) -> None:
        self._remember()
        self._histories.setdefault(form == "output", DeclarationPlaces()).add(place)
        self.form = form

    def relation(self, place: StatementList) -> Relation:
        """Return the closest relation of a declaration in `place` to any earlier one."""
        self._remember()
        return min((one.relation(place) for one in self._histories.values()), key=_CLOSENESS.__getitem__)

    def _remember(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self.add(self.form, first)


_CLOSENESS: dict[Relation, int] = {"same": 0, "enclosing": 1, "elsewhere": 2, "exclusive": 3}


class Frame(Struct, eq=False):
    """The names of the root or of one block during the walk (3.5).

    - `table`: all declarations so far
    - `visible`: the readable names, including soft exports, in order of appearance
    - `temporaries`: the loop variables, parameters and similar names, with their kind
    - `held`: the known kinds of values of variables; `items` has those of temporaries
    - `mixed`: names that hold different kinds of values at different times
    - `new_names`: the names that became visible in the current branch or iteration, which are hidden when it ends
    - `open`: any name may be visible, because a block with unknown content was called
    """

    is_root: bool
    open: bool = False
    place: StatementList = field(default_factory=StatementList)
    table: dict[str, DeclaredName] = field(default_factory=dict)
    visible: dict[str, None] = field(default_factory=dict)
    temporaries: dict[str, str] = field(default_factory=dict)
    held: dict[str, KnownValue] = field(default_factory=dict)
    items: dict[str, TypedAnswer] = field(default_factory=dict)
    mixed: set[str] = field(default_factory=set)
    new_names: list[str] | None = None

    def show(self, name: str) -> None:
        if name not in self.visible:
            self.visible[name] = None
            if self.new_names is not None:
                self.new_names.append(name)

    def hide(self, name: str, kind: str) -> None:
        """Bind a temporary name for the current place; `close_place` restores the meaning that it hides."""
        place = self.place
        place.hidden = place.hidden or []
        place.hidden.append((name, self.temporaries.get(name), self.items.pop(name, None)))
        self.temporaries[name] = kind

    def hold(self, name: str, held: KnownValue) -> None:
        """Record the kind of value that a variable holds now."""
        place = self.place
        if place.logs:
            place.writes = place.writes or []
            place.writes.append((name, self.held.get(name, UNSET)))
        if self.held.get(name, held) != held:
            self.mixed.add(name)
        self.held[name] = held

    def close_place(self, outer: StatementList) -> None:
        """Return to the place around the current one: remove its temporary names, and forget the kinds of values that
        are uncertain after it."""
        place = self.place
        self.place = outer
        for name, before, item in reversed(place.hidden or ()):
            self.items.pop(name, None)
            del self.temporaries[name]
            if item is not None:
                self.items[name] = item
            if before is not None:
                self.temporaries[name] = before
        earlier = dict(reversed(place.writes or ()))  # the kinds of the assigned names before the place
        for name, held in earlier.items() if place.conditional else ():
            # The body may not have run, so a kind is known only if it is the same before and after it.
            if held is not UNSET and held != self.held[name]:
                self.held[name] = None
        if outer.logs and earlier:
            outer.writes = outer.writes or []
            outer.writes.extend(earlier.items())


def redeclaration_code(form: Form, entry: DeclaredName, place: StatementList, *, strict: bool) -> str | None:
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


def _output_again(entry: DeclaredName, place: StatementList, strict: bool) -> str | None:
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


def _error_or_warning(code: str, form: Form, entry: DeclaredName) -> str:
    """Return the error for a repeated declaration if a `const` or an earlier `input` is involved, else the warning
    `code`."""
    if entry.form == "input":
        return "E137"
    return "E130" if "const" in (form, entry.form) else code
