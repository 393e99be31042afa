"""Nodes as they are run and called: scripts with their interface, and what each may call (prose-md.md 3.1, 3.5).

A `Unit` is a node of a file. Its script is compiled when it is first asked for, so files may call each other in a
circle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.contracts import SUFFIX, interface
from prose_kernel.language.contracts.instances import Instance, config_defaults, read_instances
from prose_kernel.language.contracts.interface import Contract, contract_of
from prose_kernel.language.contracts.library import Library
from prose_kernel.language.contracts.reader import read
from prose_kernel.language.contracts.tree import ContractFile, Node
from prose_kernel.language.diagnostics import STRICT, Compiled, Diagnostic, Profile, first_error
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contracts import (
    CallInput,
    CallOutput,
    CallProblem,
    CallTarget,
    Interface,
    ScriptSource,
    TargetKind,
)
from prose_kernel.language.source import Source, Span

_PROBLEM: Final = "nothing here can be called `{}`"
_OUTSIDE: Final = re.compile(r"[^\w-]?")
"""The character next to a name, if it is not a part of it."""
_NEAR: Final = 20_000
"""Names that may be compared with the unknown ones of a file."""


@dataclass(frozen=True, eq=False)
class Program:
    """A `.prose` program as a target of calls."""

    address: str
    name: str
    handle: str

    @property
    def place(self) -> tuple[str, str]:
        return self.address, ""


@dataclass(frozen=True, eq=False)
class Helper:
    """A helper: one session with `task`."""

    name: str
    task: str

    @property
    def about(self) -> str:
        return f"helper {self.name}: {self.task}"


@dataclass(frozen=True, eq=False)
class Unit:
    """A node of a file."""

    file: FileUnit
    node: Node
    contract: Contract

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def handle(self) -> str:
        return "inline" if self.node.inline else self.file.files.handle(self.file.address)

    @property
    def about(self) -> str:
        return interface.described(self, words=True)

    @property
    def place(self) -> tuple[str, str]:
        return self.file.address, self.name

    @property
    def has_script(self) -> bool:
        return bool(self.node.fences)

    @cached_property
    def instances(self) -> dict[str, Instance]:
        """The instances of patterns that the node declares."""
        return {one.name: one for _, one in self.declared if isinstance(one, Instance)}

    @cached_property
    def declared(self) -> tuple[tuple[Span, Instance | str], ...]:
        """The instances with their lines; instead of one the reason why it is none."""
        return tuple(read_instances(self.file.source, self.node))

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
        """What the node's script starts with. `bound` are the targets in the slots of an instance."""
        node, given = self.node, self.contract
        targets = Targets(self, bound or {})
        if node.kind == "pattern":
            listed = [name for name in ("Parameters", "Requires") for item in node.items(name) for name in item.roots]
            names = tuple(dict.fromkeys([*self.slots, "config", *self.config, *listed]))
            return Interface("delegation", node.name, variables=names, errors=given.errors, targets=targets)
        kind = node.kind if node.kind in ("responsibility", "gateway") else "function"
        fixed = tuple(one.name for one in given.inputs)
        prior = () if kind == "function" else tuple(n for n in interface.truth_names(node) if n not in fixed)
        stages = interface.stages(node)
        return Interface(kind, node.name, fixed, prior, (), given.outputs, given.errors, stages, targets)

    def source(self, interface: Interface) -> ScriptSource:
        """The script as a source, with the places of the file."""
        file = self.file.source
        fences = tuple((fence.inside, fence.margin) for fence in self.node.fences)
        return ScriptSource(file.text, file.name, None, fences, interface, file)

    @cached_property
    def compiled(self) -> Compiled[tree.Program]:
        """The script, checked."""
        from prose_kernel.language.openprose import compile_source

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


@dataclass(frozen=True, eq=False)
class Bound:
    """An instance as a target: the pattern, the targets in its slots by name, and the values of its config."""

    pattern: Unit
    name: str
    slots: Mapping[str, object]
    config: Mapping[str, Any]

    @property
    def about(self) -> str:
        return f"instance {self.name} of the pattern {self.pattern.name}\n{self.pattern.about}"

    @property
    def place(self) -> tuple[str, str]:
        return self.pattern.place

    @cached_property
    def source(self) -> ScriptSource:
        """The Delegation with what its slots are bound to."""
        return self.pattern.source(self.pattern.interface(self.slots))


@dataclass(frozen=True, eq=False)
class FileUnit:
    """A file that was read. `references` are the files that it calls, as far as they were looked for."""

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
        """The first place of a name in a part of the file; all of the part where it isn't in it."""
        text, at = self.source.text, within.start
        while name and (at := text.find(name, at, within.end)) >= 0:  # a pattern for each name would be compiled
            end = at + len(name)
            if _OUTSIDE.fullmatch(text[at - 1 : at]) and _OUTSIDE.fullmatch(text[end : min(end + 1, within.end)]):
                return Span(at, end)
            at += 1
        return within

    @cached_property
    def inline(self) -> dict[str, Unit]:
        """The inline nodes by name."""
        return {unit.name: unit for unit in reversed(self.units[1:])}


class Files:
    """The files that one text leads to, each read once. `load` gives the contracts of `.prose` programs to scripts."""

    def __init__(self, library: Library | None, profile: Profile, *, load: Any = None, pipefail: bool = False) -> None:
        self.library = library
        self.profile: Profile = profile
        self._load = load
        self.load = None if load is None else self._loaded
        self.pipefail = pipefail
        self.checked: dict[FileUnit, list[Diagnostic]] = {}
        self.is_rooted = False
        """Whether a verdict may depend on the text that came first: programs may not `use` it (E112)."""
        self._compared: Counter[str] = Counter()
        self.known: dict[str, FileUnit | ImportProgramError] = {}

    @property
    def script_profile(self) -> Profile:
        return "prosescript-strict" if self.profile in STRICT else "prosescript"

    def add(self, source: Source, address: str) -> FileUnit:
        contract, found = read(source, self.profile)
        file = self.known[address] = FileUnit(self, address, contract, tuple(found))
        return file

    def file(self, address: str) -> FileUnit:
        """Raises `ImportProgramError` for one that cannot be read."""
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
        self.is_rooted = True
        return self._load(path)

    def near(self, targets: Targets) -> tuple[str, ...]:
        """The names for the hint of an unknown one; none after many, so that a text of unknown names stays linear."""
        address = targets.unit.file.address
        names = targets.names({}) if self._compared[address] < _NEAR else ()
        self._compared[address] += len(names)
        return names

    def handle(self, address: str) -> str:
        return self.library.handle(address) if self.library is not None else "local"


@dataclass(frozen=True, eq=False)
class Targets:
    """What the script of a unit may call. `bound` are the targets in the slots of an instance.

    The methods that look for one thing raise `ImportProgramError` with the code of what is wrong.
    """

    unit: Unit
    bound: Mapping[str, object]

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        found = _or_problem(lambda: self._find(name, uses, path=path))
        if isinstance(found, CallProblem) and found.code == "E313" and not path:
            return replace(found, near=self.unit.file.files.near(self))
        return found

    def instance(self, one: Instance) -> CallTarget | CallProblem:
        """An instance as a target: its pattern is found, its slots are bound."""
        return _or_problem(lambda: self._bind(one))

    def names(self, uses: Mapping[str, str]) -> tuple[str, ...]:
        unit, file = self.unit, self.unit.file
        slots = unit.slots if unit.node.kind == "pattern" else ()
        library = file.files.library
        beside = library.names_beside(file.address) if library is not None else ()
        inline = [one.name for one in file.units[1:] if one.node.kind == "function"]
        return tuple(dict.fromkeys([*slots, *unit.instances, *inline, *uses, *beside, *unit.helpers]))

    def texts(self) -> dict[str, str]:
        own = self.unit.file
        read = [one for one in own.files.known.values() if isinstance(one, FileUnit) and one.address != own.address]
        return {one.address: one.source.text for one in read}

    def element(self, value: str) -> CallTarget | None:
        for one in self.bound.values():
            for target in one if isinstance(one, list) else [one]:
                if isinstance(target, CallTarget) and target.name == value:
                    return target
        return None

    def _find(self, name: str, uses: Mapping[str, str], *, path: bool) -> CallTarget:
        unit = self.unit
        if path:
            return self._called(self.at(name))
        if unit.node.kind == "pattern" and name in unit.slots:
            held = self.bound.get(name)
            return held if isinstance(held, CallTarget) else CallTarget(name, open=True, through_slot=True)
        if name in unit.instances:
            return self._bind(unit.instances[name])
        found = unit.file.inline.get(name) or (self.at(uses[name]) if name in uses else self.beside(name))
        if found is not None:
            return self._called(found)
        if name in unit.helpers:
            return CallTarget(name, "helper", open=True, unit=Helper(name, unit.helpers[name]))
        raise ImportProgramError(_PROBLEM.format(name), code="E313")

    # ---------------------------------------------------------------- functions

    def _called(self, found: Unit | Program) -> CallTarget:
        """A unit as a target, where it may be called."""
        if isinstance(found, Program):
            return self._program(found)
        kind = found.node.kind
        if kind == "pattern":
            hint = "bind its slots in an instance under `### Patterns`, and call that"
            raise ImportProgramError(f"`{found.name}` is a pattern: it isn't called itself", code="E314", hint=hint)
        if not kind:
            why = first_error(found.file.findings) or "it has errors"
            raise ImportProgramError(f"`{found.name}` cannot be called: {why}", code="E215")
        if kind != "function" and not (kind == "responsibility" and found.node.inline):
            hint = "only functions are called; its truth is maintained by a run of its own"
            raise ImportProgramError(f"`{found.name}` is a {kind}: it isn't called", code="E315", hint=hint)
        return found.target()

    def _program(self, found: Program) -> CallTarget:
        library = self.unit.file.files.library
        assert library is not None
        self.unit.file.files.is_rooted = True
        contract = library.program(found.address)
        inputs = tuple(CallInput(name, not required) for name, required in contract.inputs.items())
        outputs = tuple(CallOutput(name) for name in contract.outputs or ())
        return CallTarget(found.name, "function", inputs, outputs, has_script=True, unit=found)

    def beside(self, name: str) -> Unit | Program | None:
        """What a bare name leads to in the directory of the file."""
        file = self.unit.file
        library = file.files.library
        places = library.beside(file.address, name) if library is not None else ()
        if len(places) > 1:
            names = ", ".join(f"`{place.rpartition('/')[2]}`" for place in places)
            message = f"several files are called `{name}`: {names}"
            raise ImportProgramError(message, code="E316", hint="rename one, or call its path")
        return self.file(places[0], name) if places else None

    def at(self, path: str) -> Unit | Program:
        """What a path leads to."""
        file = self.unit.file
        library = file.files.library
        if library is None:
            message = f'"{path}" cannot be loaded: there is nothing to load files with'
            raise ImportProgramError(message, code="E330")
        return self.file(library.resolve(file.address, path), path)

    def file(self, address: str, named: str) -> Unit | Program:
        """The program of a file, or its own node."""
        file = self.unit.file
        if address.endswith(SUFFIX):
            found = file.references[address] = file.files.file(address)
            return found.own
        if address.endswith(".prose"):
            stem = address.rpartition("/")[2].removesuffix(".prose")
            return Program(address, stem, file.files.handle(address))
        message = f'"{named}" is not a program: its name ends in neither `.prose` nor `{SUFFIX}`'
        raise ImportProgramError(message, code="E330")

    # ---------------------------------------------------------------- instances

    def _bind(self, one: Instance, within: tuple[str, ...] = ()) -> CallTarget:
        """An instance as a target. `within` are the patterns around it."""
        pattern = self._near(one.pattern) or self.at(one.pattern)
        if isinstance(pattern, Program) or pattern.node.kind != "pattern":
            raise ImportProgramError(f"`{one.pattern}` is not a pattern", code="E341")
        key = f"{pattern.file.address}#{pattern.name}"
        if key in within:
            raise ImportProgramError(f"the pattern `{one.pattern}` contains itself", code="E112")
        bindings, config, name = one.bindings or {}, one.config or {}, pattern.name
        _only("E343", f"the pattern `{name}` has no slot", bindings, pattern.slots)
        if missing := [slot for slot in pattern.slots if slot not in bindings]:
            message = f"the slot `{missing[0]}` of `{name}` is not bound"
            raise ImportProgramError(message, code="E342", hint="bind it in `with`")
        _only("E344", f"the pattern `{name}` has no config key", config, pattern.config)
        slots: dict[str, object] = {}
        for slot, binding in bindings.items():
            parts = binding if isinstance(binding, list) else [binding]
            found = [self._bound(part, (*within, key)) for part in parts]
            slots[slot] = found if isinstance(binding, list) else found[0]
        bound = Bound(pattern, one.name or name, slots, {**pattern.config, **config})
        return CallTarget(bound.name, "instance", open=True, has_script=True, unit=bound)

    def _near(self, name: str) -> Unit | Program | None:
        """An inline node, or a file next to this one."""
        return self.unit.file.inline.get(name) or (self.beside(name) if "/" not in name else None)

    def _bound(self, binding: str | Instance, within: tuple[str, ...]) -> CallTarget:
        """What a slot is bound to."""
        if isinstance(binding, Instance):
            return replace(self._bind(binding, within), through_slot=True)
        found = self.at(binding) if "/" in binding or binding.endswith(SUFFIX) else self._near(binding)
        if found is None:
            raise ImportProgramError(_PROBLEM.format(binding), code="E313")
        try:
            return replace(self._called(found), through_slot=True)
        except ImportProgramError as problem:
            problem.code = "E313" if problem.code in ("E314", "E315") else problem.code
            raise


def _or_problem(find: Callable[[], CallTarget]) -> CallTarget | CallProblem:
    try:
        return find()
    except ImportProgramError as problem:
        return CallProblem(problem.code, problem.message, problem.hint)


def _only(code: str, message: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for the first given name that isn't known."""
    for name in given:
        if name not in known:
            raise ImportProgramError(f"{message} `{name}`", code=code, hint=it_has(known))


def it_has(names: Iterable[str]) -> str | None:
    """The hint that lists what there is instead of an unknown name."""
    listed = ", ".join(f"`{one}`" for one in names)
    return f"it has {listed}" if listed else None
