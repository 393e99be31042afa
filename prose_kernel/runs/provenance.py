"""The origin of each name of a run: the cell that made it, and the versions of the names that this cell used.

`Provenance` listens to all cells. While cells run, it only keeps their bindings; texts are read and values compared on
request (`run.freshness`, `%bindings`, the panel).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct, field

from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.runtime import open_request
from prose_kernel.runtime.events import Bound, CellStarted, Event
from prose_kernel.runtime.values import ExecText, Reference, Value

if TYPE_CHECKING:
    from prose_kernel.language.flow import FlowStep
    from prose_kernel.runs.languages import Language
    from prose_kernel.runs.workspace import Workspace
    from prose_kernel.runtime.ports import LoadedProgram

MAX_VERSIONS: Final = 20
"""The number of versions of one name that are kept."""
MAX_CHARACTERS: Final = 20_000_000
"""The approximate number of characters of all earlier values that are kept; the oldest are dropped first."""
MAX_EARLIER_VALUES: Final = 2_000
"""The number of earlier values of all names that are kept."""
MAX_VALUE_CHARACTERS: Final = 2_000_000
"""A value of at least that many characters is dropped when its name gets another value."""
MAX_UNREAD_RUNS: Final = 256
"""The number of runs of cells whose texts may be unread."""


class Opening(Struct, frozen=True):
    """A cell that begins: its key, its number, its whole text, and its language if the text does not name it.

    In a Python notebook, `given` has digests of the Python variables that the cell reads, `taken` the names that it
    returns to Python. `python`: it is a Python cell, which only binds names or has line magics of this package.
    """

    key: str
    number: int | None
    code: str
    language: Language | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    python: bool = False
    run: open_request.CellRun = field(default_factory=open_request.CellRun)

    @classmethod
    def of(
        cls, code: str, cell_id: str | None, number: int | None, metadata: Mapping[str, object] | None = None
    ) -> Opening:
        """Return the opening of a cell. Without an id, its text is the key. `metadata` is from the execute request."""
        return cls(
            cell_id or f"text:{identifying_text(code)}", number, code, run=open_request.CellRun.of(metadata or {})
        )


class Cell(Struct, eq=False):
    """A cell that has run a program.

    - `number`: the execution number of its last run, shown in brackets.
    - `first`: its place in the order of the cells' first runs. `ran`: the number of its last run in `Provenance`.
    - `unfinished`: another cell ran this cell again, which failed or was interrupted; its own output does not show it.
    - `made`: the names that it has bound or defined, with the number of their content (`Provenance.content`).
    - `inputs`: the names that it used before making them, with the content that it found and the cell that made it.
    - `files`: digests of the programs that it imported, by address.
    - `texts`: the paths of the texts of its last run (`c1`).
    - `moved`: a changed file on which an answer of these texts depends, "" if the files cannot be compared, None if no
      file has changed (`freshness.check_answer_files`). `looked`: the number of the check that found it.
    """

    key: str
    number: int | None
    code: str
    first: int
    opening: Opening
    ran: int = 0
    failed: bool = False
    unfinished: bool = False
    made: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, tuple[int, Cell | None]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    moved: str | None = None
    looked: int = 0
    gone: bool = False

    @property
    def label(self) -> str:
        """The cell's name for people: its number in brackets, or its place in the run."""
        return f"[{self.number}]" if self.number is not None else f"c{self.first}"

    @property
    def title(self) -> str:
        """Its first line of code."""
        lines = (line.strip() for line in self.code.splitlines())
        return next((line for line in lines if line and not line.startswith(("#", "%%"))), "")


class Version(Struct, eq=False):
    """The value of a name after a run of a cell.

    - `label`: the label of the cell at that time.
    - `value`: the text for a definition; None after it was dropped (then `weight` is -1).
    - `content`: a number that equal values of the name share; 0 until it is compared.
    - `weight`: the approximate number of characters of an earlier value; 0 for the current one.
    - `made_from`: the names that the statement used. `reads`: the names that a use of the definition reads.
    """

    run: int
    cell: Cell
    label: str
    value: object
    language: Language
    source: Source
    span: Span
    content: int = 0
    weight: int = 0
    defined: bool = False
    reads: frozenset[str] = frozenset()
    made_from: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return self.weight >= 0

    def text(self) -> str:
        """The value as people read it."""
        if self.defined or isinstance(self.value, str):
            return str(self.value)
        return self.language.text_of(self.value)  # type: ignore[arg-type]

    @property
    def statement(self) -> str:
        """The source text of the statement that made it."""
        return self.source.text[self.span.start : self.span.end]


class _Run(Struct):
    """A run of a cell whose texts are not read yet. `more`: it continues the cell's previous run."""

    cell: Cell
    label: str
    number: int
    texts: Sequence[tuple[Source, Language]]
    bound: frozenset[str]
    files: Mapping[str, str]
    failed: bool
    more: bool


class Provenance:
    """The cells of a run. `begin` and `end` enclose each; a text that runs outside of a cell counts as its own cell."""

    kinds: ClassVar = (Bound, CellStarted)

    def __init__(self, former: Provenance | None = None) -> None:
        self.cells: dict[str, Cell] = {}
        self.order: Sequence[str] = former.order if former is not None else ()
        """The keys of the notebook's cells, in order, if the front end sends them."""
        self.names: dict[str, deque[Version]] = {}
        self.cell_of: dict[str, Cell] = {}
        """The cell of each text that has run, by the path of the text (`c1`)."""
        self.looks = 0
        self.runs = 0
        self.workspace: Workspace | None = None
        self._known: dict[str, Opening] = dict(former._known) if former is not None else {}
        self._cell: Cell | None = None
        self._continues = False
        self.calling: Opening | None = None  # the cell that runs
        self.last: Opening | None = former.last if former is not None else None
        """The last cell that has begun, even if it ran no program."""
        self._texts: list[tuple[Source, Language]] = []
        self._bound: dict[str, Bound] = {}
        self._files: dict[str, str] = {}
        self._unread: list[_Run] = []
        self._contents = 0
        self._earlier_versions: deque[Version] = deque()
        self._weight = 0

    def listen(self, workspace: Workspace) -> None:
        self.workspace = workspace
        workspace.add_listener(self, replayed=True)
        workspace.imports.on_load = self._loaded

    # ------------------------------------------------------------ events

    def begin(self, opening: Opening) -> None:
        """Begin a cell. It counts only once a program of it runs."""
        self._close(failed=False)  # a text outside of cells
        self.calling = self.last = opening
        open_request.cell.set("" if opening.key.startswith("text:") else opening.key)
        open_request.run.set(opening.run)

    def end(self, *, failed: bool) -> None:
        """End the cell. Its bindings stay, even if it failed."""
        self._close(failed=failed)
        self.calling = None

    def end_outer_text(self) -> None:
        """End a text that ran outside of cells."""
        if self.calling is None:
            self._close(failed=False)

    def forget(self, keys: Sequence[str]) -> None:
        """Mark cells as deleted in the notebook."""
        for key in keys:
            if key in self.cells:
                self.cells[key].gone = True

    def set_cell_order(self, cells: Sequence[tuple[str, str]]) -> None:
        """Set the order of the notebook's cells, given by key and text. Cells of a restored run, which were known only
        by their texts, get their keys."""
        self.order = [key for key, _ in cells]
        waiting = {identifying_text(cell.code): cell for cell in self.cells.values() if cell.key.startswith("text:")}
        for key, code in cells:
            self._known.setdefault(identifying_text(code), Opening(key, None, code))
            if key in self.cells:
                self.cells[key].gone = False
            elif (cell := waiting.pop(identifying_text(code), None)) is not None:
                self._set_key(cell, key, code)
        there = set(self.order)
        for key, cell in self.cells.items():
            cell.gone = cell.gone or key not in there

    def _set_key(self, cell: Cell, key: str, code: str) -> None:
        """Give the front end's key to a cell that was known only by its text."""
        del self.cells[cell.key]
        cell.key, cell.code, cell.opening = key, code, replace(cell.opening, key=key, code=code)
        self.cells[key] = cell

    def __call__(self, event: Event) -> None:
        if isinstance(event, Bound):
            if event.key.execution_id is None and not event.place.program:
                self._bound[event.name] = event
        elif isinstance(event, CellStarted):
            self._text_begins(event.place.source, f"c{event.index}")

    def _text_begins(self, source: Source, path: str) -> None:
        assert self.workspace is not None
        language = self.workspace.running_language
        if self.calling is None:  # a replayed text, or a binding made by Python
            self._close(failed=False)
            opened = self._known.get(identifying_text(source.text)) or Opening.of(source.text, None, source.prompt)
        else:
            opened = self.calling
        if self._cell is None:
            self._open(opened, source.prompt)
        assert self._cell is not None
        self._cell.texts.append(path)
        self.cell_of[path] = self._cell
        if source.name != "cell" and (file := Path(self.workspace.cwd, source.name)).is_file():
            self._files[str(file)] = digest(source.text)
        self._texts.append((source, language))

    def _loaded(self, loaded: LoadedProgram) -> None:
        for address, text in loaded.texts.items():
            self._files[address] = digest(text)

    def _cell_of(self, opening: Opening) -> Cell:
        new = Cell(opening.key, opening.number, opening.code, len(self.cells) + 1, opening)
        return self.cells.setdefault(opening.key, new)

    def _open(self, opening: Opening, prompt: int | None = None) -> None:
        self.runs += 1
        cell = self.cells.get(opening.key)
        if cell is None and (cell := self.cells.get(f"text:{identifying_text(opening.code)}")) is not None:
            self._set_key(cell, opening.key, opening.code)
        former = cell.opening if cell is not None else None
        same = former is opening or (former is not None and opening.python and former.number == opening.number)
        self._continues = same and self.calling is not None  # each replayed text counts as a whole run of its cell
        if cell is None:
            cell = self._cell_of(opening)
        cell.opening, cell.code, cell.ran, cell.gone = opening, opening.code, self.runs, False
        cell.unfinished, cell.moved = False, None
        cell.texts = cell.texts if self._continues else []
        cell.number = opening.number or prompt or cell.number
        self._known[identifying_text(opening.code)] = opening
        self._cell = cell

    def _close(self, *, failed: bool) -> None:
        cell, self._cell = self._cell, None
        if cell is not None:
            cell.failed, cell.files, language = failed, self._files, self._texts[0][1]
            bound = frozenset(self._bound)
            run = _Run(cell, cell.label, cell.ran, self._texts, bound, self._files, failed, self._continues)
            self._unread.append(run)
            for name, event in self._bound.items():
                source, span = event.place.source, event.place.span
                own = next((one for text, one in self._texts if text is source), language)
                self._add(name, Version(cell.ran, cell, cell.label, _snapshot(event.value), own, source, span))
            if len(self._unread) > MAX_UNREAD_RUNS:
                self._read_first()
        self._texts, self._bound, self._files = [], {}, {}

    # ------------------------------------------------------------ the history of a name

    def _add(self, name: str, version: Version) -> None:
        versions = self.names.get(name)
        if versions is None:
            versions = self.names[name] = deque()
        at = len(versions)
        while at and versions[at - 1].run > version.run:
            at -= 1
        versions.insert(at, version)
        if len(versions) > 1:
            self._displace(versions[at - 1 if at == len(versions) - 1 else at])
        if len(versions) > MAX_VERSIONS:
            self._drop(versions.popleft())

    def _displace(self, version: Version) -> None:
        if not version.known or version.weight:
            return
        version.weight = weight(version.value)
        self._weight += version.weight
        if version.weight >= MAX_VALUE_CHARACTERS:
            self._drop(version)
            return
        self._earlier_versions.append(version)
        while self._weight > MAX_CHARACTERS or len(self._earlier_versions) > MAX_EARLIER_VALUES:
            self._drop(self._earlier_versions.popleft())

    def _drop(self, version: Version) -> None:
        if version.known:
            self._weight -= version.weight
            version.value, version.weight = None, -1

    def content(self, name: str, version: Version) -> int:
        """Return a number that is the same for all versions of the name with equal contents."""
        if not version.content:
            for other in self.names[name]:
                if other is not version and other.content and other.known and version.known and _equal(other, version):
                    version.content = other.content
                    break
            else:
                self._contents += 1
                version.content = self._contents
        return version.content

    def current(self, name: str) -> Version | None:
        """Return the current version of a name."""
        versions = self.names.get(name)
        return versions[-1] if versions else None

    def _before(self, name: str, run: int) -> Version | None:
        return next((one for one in reversed(self.names.get(name, ())) if one.run < run), None)

    # ------------------------------------------------------------ reading texts

    def expect(self, opening: Opening, texts: Sequence[tuple[Source, Language]]) -> Cell:
        """Return the cell that is about to run with these texts, with the inputs that it would find now."""
        self.read()
        cell = self._cell_of(opening)
        cell.inputs = dict(self._inputs(_read(texts).reads, self.runs + 1))
        return cell

    def read(self) -> None:
        """Read the texts of all runs so far: inputs of cells, definitions, contents."""
        self.end_outer_text()
        while self._unread:
            self._read_first()

    def _read_first(self) -> None:
        run = self._unread.pop(0)
        reader = _read(run.texts)
        cell = run.cell
        made = dict.fromkeys([*reader.defined, *run.bound], 0)
        for name, found in reader.defined.items():
            # an import changes with its file
            text = "\n".join([found.text, *sorted(run.files.values())]) if found.step.kind == "import" else found.text
            version = Version(run.number, cell, run.label, text, found.language, found.source, found.step.span)
            version.defined, version.reads = True, found.reads
            self._add(name, version)
        for name in made:
            left = next((one for one in self.names[name] if one.run == run.number), None)
            if left is None:  # this version was dropped after many later ones
                self._contents += 1
                made[name] = self._contents
                continue
            left.made_from = reader.made_from(left.source, left.span) if not left.defined else ()
            made[name] = self.content(name, left)
        # names that a failed run has not bound again keep their earlier values
        cell.made = {**cell.made, **made} if run.failed or run.more else made
        if cell.ran == run.number:
            inputs = dict(self._inputs(reader.reads, run.number))
            cell.inputs = {**inputs, **cell.inputs} if run.more else inputs

    def _inputs(self, names: frozenset[str], run: int) -> Iterator[tuple[str, tuple[int, Cell | None]]]:
        """Yield the inputs of a run that used these names, including names that used definitions read in turn."""
        seen, agenda = set[str](), sorted(names, reverse=True)
        while agenda:
            name = agenda.pop()
            if name in seen:
                continue
            seen.add(name)
            version = self._before(name, run)
            own = next((one for one in self.names.get(name, ()) if one.run == run and one.defined), None)
            if own is not None:
                agenda += sorted(own.reads - seen, reverse=True)
            elif version is not None:
                agenda += sorted(version.reads - seen, reverse=True)
                yield name, (self.content(name, version), version.cell)


# ---------------------------------------------------------------- names that a text uses and makes


class _Definition(Struct, frozen=True):
    step: FlowStep
    source: Source
    language: Language
    reads: frozenset[str]

    @property
    def text(self) -> str:
        return self.source.text[self.step.span.start : self.step.span.end]


class NameReader:
    """Reads the steps of a cell's programs, in order, and collects the names that they use before binding them."""

    def __init__(self) -> None:
        self.used: dict[str, None] = {}
        self.defined: dict[str, _Definition] = {}
        self._bound: set[str] = set()
        self._steps: dict[int, list[FlowStep]] = {}  # the steps of each text, by their start

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.used)

    def read(self, steps: Sequence[FlowStep], source: Source, language: Language) -> None:
        from prose_kernel.language.flow import DEFINITIONS

        ordered = [step for step in steps if step.kind not in DEFINITIONS]
        self._steps[id(source)] = sorted(ordered, key=lambda step: step.span.start)
        for step in steps:
            if step.kind in DEFINITIONS and step.uses:
                used: dict[str, None] = dict.fromkeys(step.reads)
                for way in step.ways:
                    _collect_uses(way.steps, set(step.scoped), used)
                # a statement that uses a definition uses the names in its body
                self.defined[step.uses[0]] = _Definition(step, source, language, frozenset(used) - {*step.scoped})
        _collect_uses(ordered, self._bound, self.used)

    def made_from(self, source: Source, span: Span) -> tuple[str, ...]:
        """Return the names that the statement of a binding uses, including its bodies."""
        steps = self._steps.get(id(source), [])
        end = bisect_left(steps, span.end, key=lambda step: step.span.start)
        begin = end
        while begin and steps[begin - 1].span.end > span.start:
            begin -= 1
        used: dict[str, None] = {}
        for step in steps[begin:end]:
            _collect_uses([step], set(), used)
        return tuple(used)


def _read(texts: Sequence[tuple[Source, Language]]) -> NameReader:
    reader = NameReader()
    for source, language in texts:
        reader.read(language.flow(language.compile(source, cell=True).program, source), source, language)
    return reader


def _collect_uses(steps: Sequence[FlowStep], bound: set[str], used: dict[str, None]) -> None:
    """Add names that the steps use before binding them to `used`, and names that they certainly bind to `bound`."""
    for step in steps:
        used.update((name, None) for name in (*step.reads, *step.uses) if name not in bound)
        ends = []
        for way in step.ways:
            inner = {*bound, *step.scoped}
            _collect_uses(way.steps, inner, used)
            ends.append(inner - set(step.scoped))
        if step.kind == "parallel":
            bound |= set().union(*ends)
        elif step.always and ends:
            bound |= set.intersection(*ends)
        bound |= set(step.binds)


def identifying_text(text: str) -> str:
    """Return the part of a cell's text that identifies it: no line of the cell magic, no outer blank lines."""
    lines = text.strip().splitlines()
    return "\n".join(lines[1:] if lines and lines[0].startswith("%%") else lines).strip()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ---------------------------------------------------------------- kept values


def _snapshot(value: Value) -> object:
    """Return a snapshot of a value: the answer in a file changes when the file does."""
    if isinstance(value, Reference):
        try:
            return value.read()
        except (OSError, ValueError):
            return value.summary
    return value


def _equal(one: Version, other: Version) -> bool:
    if one.value is other.value:
        return True
    a, b = one.value, other.value
    if isinstance(a, ExecText) and isinstance(b, ExecText):
        return a == b and a.result.exit_code == b.result.exit_code and a.result.stderr == b.result.stderr
    return type(a) is type(b) and one.text() == other.text()


def weight(value: object) -> int:
    """Return the approximate number of characters of a value, at most `MAX_VALUE_CHARACTERS`."""
    total, agenda = 0, [value]
    while agenda and total < MAX_VALUE_CHARACTERS:
        match agenda.pop():
            case str() as text:
                total += len(text) + 8
            case list() as members:
                agenda += members[: MAX_VALUE_CHARACTERS // 8]
                total += 8 * len(members)
            case dict() as fields:
                agenda += fields.values()
                total += sum(map(len, fields)) + 8
            case ExecText() as command:
                total += len(command.text) + len(command.result.stderr) + 100
            case _:
                total += 16
    return min(total, MAX_VALUE_CHARACTERS)
