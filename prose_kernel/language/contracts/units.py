"""Nodes as units that can be run and called: their interfaces, compiled scripts and files (prose-md.md 3.1), and the
library around them (8, 9).

The script of a `Unit` is compiled at its first use, so files may call each other in a circle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, Final, Protocol

from msgspec import Struct, field

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.contracts import interface
from prose_kernel.language.contracts.interface import Contract, contract_of
from prose_kernel.language.contracts.reader import read
from prose_kernel.language.contracts.targets import Instance, Targets, config_defaults, read_instances
from prose_kernel.language.contracts.tree import ContractFile, ContractNode
from prose_kernel.language.diagnostics import STRICT_PROFILES, Compiled, Diagnostic, Profile
from prose_kernel.language.openprose import compile_source, tree
from prose_kernel.language.openprose.call_targets import CallTarget, Interface, ScriptSource, TargetKind
from prose_kernel.language.openprose.program_interface import ProgramInterface as ProgramContract
from prose_kernel.language.source import Source, Span

_OUTSIDE: Final = re.compile(r"[^\w-]?")
"""Matches a character, or none, next to a name that isn't part of the name."""
_NEAR: Final = 20_000
"""How many names may be compared with the unknown names of one file."""


class Library(Protocol):
    """The files around one text. An address identifies a file. Answers don't change while a text is compiled."""

    shared: dict[Hashable, Any] | None
    """The compiler's cache for other texts in the directory, as long as no file changes; None disables it."""

    @property
    def home(self) -> str:
        """The address of the text itself."""

    def resolve(self, importer: str, path: str) -> str:
        """Return the address for a path (9). Raises `ImportProgramError` (E330)."""

    def siblings(self, importer: str, name: str) -> tuple[str, ...]:
        """Return the addresses for a bare name (3.5 steps 5 and 6); several if the name is ambiguous."""

    def sibling_names(self, importer: str) -> tuple[str, ...]:
        """Return the bare names of the files next to `importer`, in order."""

    def above(self, importer: str, name: str) -> str | None:
        """Return the file with this name in the nearest directory, from the importer's upwards; for the subject of a
        test (7)."""

    def read(self, address: str) -> Source:
        """Return the source of a contract file. Raises `ImportProgramError` (E215, E330)."""

    def program(self, address: str) -> ProgramContract:
        """Return the contract of a `.prose` program. Raises `ImportProgramError` (E215, E112)."""

    def handle(self, address: str) -> str:
        """Return the first part of the name of a call's directory: `local`, or the owner of a dependency (2)."""

    def has_tool(self, name: str) -> bool:
        """Return whether this machine has the program `name`."""

    def has_variable(self, name: str) -> bool:
        """Return whether the environment variable is set. Its value is never read."""

    def has_skill(self, name: str) -> bool:
        """Return whether this machine has a skill (8)."""


class Unit(Struct, frozen=True, eq=False, dict=True):
    """A node of a file, with its interface and compiled script."""

    file: FileUnit
    node: ContractNode
    contract: Contract

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def handle(self) -> str:
        return "inline" if self.node.inline else self.file.files.handle(self.file.address)

    @property
    def about(self) -> str:
        return interface.describe(self, words=True)

    @property
    def place(self) -> tuple[str, str]:
        return self.file.address, self.name

    @property
    def has_script(self) -> bool:
        return bool(self.node.fences)

    @cached_property
    def instances(self) -> dict[str, Instance]:
        return {one.name: one for _, one in self.declared if isinstance(one, Instance)}

    @cached_property
    def declared(self) -> tuple[tuple[Span, Instance | str], ...]:
        """The instances with the spans of their lines; for an invalid one, the reason as text."""
        return tuple(read_instances(self.file.source, self.node))

    @property
    def truth(self) -> tuple[str, ...]:
        """The names of the prior truth that a render may be given (3.3, 5)."""
        return interface.truth_names(self.node) if self.node.kind in ("responsibility", "gateway") else ()

    @cached_property
    def helpers(self) -> dict[str, str]:
        return interface.delegates(self.node, self.file.source.text)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        return tuple(name for item in self.node.items("Slots") for name in item.roots)

    @cached_property
    def config(self) -> dict[str, Any]:
        return config_defaults(self.node)

    def interface(self, bound: Mapping[str, object] | None = None) -> Interface:
        """Return the interface of the script. `bound` are the targets in the slots of an instance."""
        node, given = self.node, self.contract
        targets = Targets(self, bound or {})
        if node.kind == "pattern":
            listed = [name for name in ("Parameters", "Requires") for item in node.items(name) for name in item.roots]
            names = tuple(dict.fromkeys([*self.slots, "config", *self.config, *listed]))
            return Interface("delegation", node.name, variables=names, errors=given.errors, targets=targets)
        kind = node.kind if node.kind in ("responsibility", "gateway") else "function"
        fixed = tuple(one.name for one in given.inputs)
        prior = tuple(name for name in self.truth if name not in fixed)
        stages = interface.stages(node)
        return Interface(kind, node.name, fixed, prior, (), given.outputs, given.errors, stages, targets)

    def source(self, interface: Interface) -> ScriptSource:
        """Return the script as a source with positions in the file."""
        file = self.file.source
        fences = tuple((fence.inside, fence.margin) for fence in self.node.fences)
        return ScriptSource(file.text, file.name, None, fences, interface, file)

    @cached_property
    def compiled(self) -> Compiled[tree.Program]:
        files = self.file.files
        return compile_source(
            self.source(self.interface()), profile=files.script_profile, load=files.load, pipefail=files.pipefail
        )

    @property
    def targets(self) -> Targets:
        return Targets(self, {})

    def target(self) -> CallTarget:
        given = self.contract
        kind: TargetKind = "responsibility" if self.node.kind == "responsibility" else "function"
        return CallTarget(self.name, kind, given.inputs, given.outputs, given.takes_more, self.has_script, unit=self)


class FileUnit(Struct, frozen=True, eq=False, dict=True):
    """A file with its units. `references` are the files that it calls and that have been resolved so far."""

    files: Files
    address: str
    contract: ContractFile
    findings: tuple[Diagnostic, ...]
    references: dict[str, FileUnit] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return self.contract.source

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        return tuple(Unit(self, node, contract_of(node)) for node in self.contract.nodes)

    @property
    def own(self) -> Unit:
        return self.units[0]

    def find(self, name: str, within: Span) -> Span:
        """Return the first occurrence of a name in a span, or the whole span without one."""
        text, at = self.source.text, within.start
        while name and (at := text.find(name, at, within.end)) >= 0:  # cheaper than compiling a pattern for each name
            end = at + len(name)
            if _OUTSIDE.fullmatch(text[at - 1 : at]) and _OUTSIDE.fullmatch(text[end : min(end + 1, within.end)]):
                return Span(at, end)
            at += 1
        return within

    @cached_property
    def inline(self) -> dict[str, Unit]:
        return {unit.name: unit for unit in reversed(self.units[1:])}


class Files:
    """The files that one text calls, directly or indirectly, each read once. `load` returns the contracts of `.prose`
    programs for scripts."""

    def __init__(self, library: Library | None, profile: Profile, *, load: Any = None, pipefail: bool = False) -> None:
        self.library = library
        self.profile: Profile = profile
        self._load = load
        self.load = None if load is None else self._loaded
        self.pipefail = pipefail
        self.checked: dict[FileUnit, list[Diagnostic]] = {}
        self.depends_on_root = False
        """Whether findings may depend on the text that is compiled, because programs must not `use` it (E112)."""
        self._compared: Counter[str] = Counter()
        self.known: dict[str, FileUnit | ImportProgramError] = {}

    @property
    def script_profile(self) -> Profile:
        return "prosescript-strict" if self.profile in STRICT_PROFILES else "prosescript"

    def add(self, source: Source, address: str) -> FileUnit:
        contract, found = read(source, self.profile)
        file = self.known[address] = FileUnit(self, address, contract, tuple(found))
        return file

    def file(self, address: str) -> FileUnit:
        """Return the file at an address. Raises `ImportProgramError` if it can't be read."""
        known = self.known.get(address)
        if known is None:
            assert self.library is not None
            try:
                known = self.add(self.library.read(address), address)
            except ImportProgramError as problem:
                known = self.known[address] = problem
        if isinstance(known, ImportProgramError):
            raise known
        return known

    def _loaded(self, path: str) -> Any:
        self.depends_on_root = True
        return self._load(path)

    def near(self, targets: Targets) -> tuple[str, ...]:
        """Return the names that an unknown name may be a misspelling of; none after `_NEAR` comparisons for a file, so
        that many unknown names still take linear time."""
        address = targets.unit.file.address
        names = targets.names({}) if self._compared[address] < _NEAR else ()
        self._compared[address] += len(names)
        return names

    def handle(self, address: str) -> str:
        return self.library.handle(address) if self.library is not None else "local"
