"""Nodes as they are run and called: scripts with their interface, and what each may call (prose-md.md 3.1, 3.5).

A `Unit` is a node of a file. Its script is compiled when it is first asked for, so files may call each other in a
circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from prose_kernel.errors import CompileError, ImportProgramError
from prose_kernel.language.contracts import SUFFIX, interface
from prose_kernel.language.contracts.instances import Instance, config_defaults, read_instances
from prose_kernel.language.contracts.interface import Contract, contract_of
from prose_kernel.language.contracts.layout import Block
from prose_kernel.language.contracts.library import Library
from prose_kernel.language.contracts.reader import read
from prose_kernel.language.contracts.tree import ContractFile, Node, Section
from prose_kernel.language.diagnostics import STRICT, Compiled, Diagnostic, Profile
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contracts import (
    CallInput,
    CallOutput,
    CallProblem,
    CallTarget,
    Interface,
    ScriptSource,
    script_source,
)
from prose_kernel.language.source import Source

_PROBLEM: Final = "nothing here can be called `{}`"


@dataclass(frozen=True, eq=False)
class Program:
    """A `.prose` program as a target of calls."""

    address: str
    name: str
    handle: str


@dataclass(frozen=True, eq=False)
class Helper:
    """A helper: one session with `task`."""

    name: str
    task: str


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

    @cached_property
    def section(self) -> Section | None:
        """The section that may hold a script."""
        return self.node.script_section

    @cached_property
    def fences(self) -> tuple[Block, ...]:
        return self.node.scripts

    @property
    def has_script(self) -> bool:
        return bool(self.fences)

    @cached_property
    def instances(self) -> dict[str, Instance]:
        """The instances of patterns that the node declares."""
        found = read_instances(self.file.source, self.node)
        return {one.name: one for one in found if isinstance(one, Instance)}

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
        if node.kind == "pattern":
            listed = [name for name in ("Parameters", "Requires") for item in node.items(name) for name in item.roots]
            names = dict.fromkeys([*self.slots, "config", *self.config, *listed])
            return Interface(
                "delegation", node.name, variables=tuple(names), errors=given.errors, targets=Targets(self, bound or {})
            )
        kind = node.kind if node.kind in ("responsibility", "gateway") else "function"
        fixed = tuple(one.name for one in given.inputs)
        prior = () if kind == "function" else tuple(n for n in interface.truth_names(node) if n not in fixed)
        stages = interface.stages(node)
        return Interface(
            kind,
            node.name,
            fixed,
            prior,
            outputs=given.outputs,
            errors=given.errors,
            stages=stages,
            targets=Targets(self, {}),
        )

    def source(self, interface: Interface) -> ScriptSource:
        """The script as a source, with the places of the file."""
        file = self.file.source
        fences = [(fence.inside, fence.margin) for fence in self.fences]
        return script_source(file.text, fences, name=file.name, interface=interface)

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

    def target(self, *, through_slot: bool = False) -> CallTarget:
        given = self.contract
        return CallTarget(
            self.name,
            "responsibility" if self.node.kind == "responsibility" else "function",
            given.inputs,
            given.outputs,
            given.takes_more,
            self.has_script,
            through_slot,
            unit=self,
        )


@dataclass(frozen=True, eq=False)
class Bound:
    """An instance as a target: the pattern, the targets in its slots by name, and the values of its config."""

    pattern: Unit
    name: str
    slots: Mapping[str, object]
    config: Mapping[str, Any]

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

    def inline(self, name: str) -> Unit | None:
        return next((unit for unit in self.units[1:] if unit.name == name), None)


class Files:
    """The files that one text leads to, each read once. `load` gives the contracts of `.prose` programs to scripts."""

    def __init__(self, library: Library | None, profile: Profile, *, load: Any = None, pipefail: bool = False) -> None:
        self.library = library
        self.profile: Profile = profile
        self.load = load
        self.pipefail = pipefail
        self._files: dict[str, FileUnit | ImportProgramError] = {}

    @property
    def script_profile(self) -> Profile:
        return "prosescript-strict" if self.profile in STRICT else "prosescript"

    def add(self, source: Source, address: str) -> FileUnit:
        contract, found = read(source, self.profile)
        file = self._files[address] = FileUnit(self, address, contract, tuple(found))
        return file

    def file(self, address: str) -> FileUnit:
        """Raises `ImportProgramError` for one that cannot be read."""
        known = self._files.get(address)
        if known is None:
            assert self.library is not None
            try:
                known = self.add(self.library.read(address), address)
            except ImportProgramError as problem:
                known = self._files[address] = problem
        if isinstance(known, ImportProgramError):
            raise known
        return known

    def texts(self, own: str) -> dict[str, str]:
        """The files that were read around one, by address."""
        return {
            address: one.source.text
            for address, one in self._files.items()
            if isinstance(one, FileUnit) and address != own
        }

    def handle(self, address: str) -> str:
        return self.library.handle(address) if self.library is not None else "local"


@dataclass(frozen=True, eq=False)
class Targets:
    """What the script of a unit may call. `bound` are the targets in the slots of an instance."""

    unit: Unit
    bound: Mapping[str, object]

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        if path:
            return self._called(self.at(name))
        unit, file = self.unit, self.unit.file
        if unit.node.kind == "pattern" and name in unit.slots:
            return self._slot(name)
        if name in unit.instances:
            return self.instance(unit.instances[name])
        if (inline := file.inline(name)) is not None:
            return self._called(inline)
        if name in uses:
            return self._called(self.at(uses[name]))
        if (near := self.beside(name)) is not None:
            return self._called(near)
        if name in unit.helpers:
            return CallTarget(name, "helper", open=True, unit=Helper(name, unit.helpers[name]))
        near_names = [*unit.slots, *unit.instances, *(one.name for one in file.units[1:]), *unit.helpers]
        if (library := file.files.library) is not None:
            near_names += library.names_beside(file.address)
        return CallProblem("E313", _PROBLEM.format(name), near=tuple(near_names))

    def texts(self) -> dict[str, str]:
        return self.unit.file.files.texts(self.unit.file.address)

    def element(self, value: str) -> CallTarget | None:
        for one in self.bound.values():
            for target in one if isinstance(one, list) else [one]:
                if isinstance(target, CallTarget) and target.name == value:
                    return target
        return None

    def _slot(self, name: str) -> CallTarget | CallProblem:
        found = self.bound.get(name)
        if isinstance(found, CallTarget):
            return found
        return CallTarget(name, open=True, through_slot=True)

    # ---------------------------------------------------------------- functions

    def _called(self, found: Unit | Program | CallProblem) -> CallTarget | CallProblem:
        """A unit as a target, where it may be called."""
        if isinstance(found, CallProblem):
            return found
        if isinstance(found, Program):
            return self._program(found)
        kind = found.node.kind
        if kind == "pattern":
            hint = "bind its slots in an instance under `### Patterns`, and call that"
            return CallProblem("E314", f"`{found.name}` is a pattern: it isn't called itself", hint)
        if kind == "function" or (kind == "responsibility" and found.node.inline):
            return found.target()
        if not kind:
            return CallProblem("E215", f"`{found.name}` cannot be called: {_first_error(found.file)}")
        hint = "only functions are called; its truth is maintained by a run of its own"
        return CallProblem("E315", f"`{found.name}` is a {kind}: it isn't called", hint)

    def _program(self, found: Program) -> CallTarget | CallProblem:
        library = self.unit.file.files.library
        assert library is not None
        try:
            contract = library.program(found.address)
        except ImportProgramError as problem:
            return CallProblem(problem.code, problem.message, problem.hint)
        inputs = tuple(CallInput(name, not required) for name, required in contract.inputs.items())
        outputs = tuple(CallOutput(name) for name in contract.outputs or ())
        return CallTarget(found.name, "function", inputs, outputs, has_script=True, unit=found)

    def beside(self, name: str) -> Unit | Program | CallProblem | None:
        file = self.unit.file
        library = file.files.library
        places = library.beside(file.address, name) if library is not None else ()
        if len(places) > 1:
            names = ", ".join(f"`{place.rpartition('/')[2]}`" for place in places)
            return CallProblem("E316", f"several files are called `{name}`: {names}", "rename one, or call its path")
        return self.file(places[0], name) if places else None

    def at(self, path: str) -> Unit | Program | CallProblem:
        file = self.unit.file
        library = file.files.library
        if library is None:
            return CallProblem("E330", f'"{path}" cannot be loaded: there is nothing to load files with')
        try:
            address = library.resolve(file.address, path)
        except ImportProgramError as problem:
            return CallProblem(problem.code, problem.message, problem.hint)
        return self.file(address, path)

    def file(self, address: str, named: str) -> Unit | Program | CallProblem:
        file = self.unit.file
        if not address.endswith(SUFFIX):
            stem = address.rpartition("/")[2].removesuffix(".prose")
            return Program(address, stem, file.files.handle(address))
        try:
            found = file.files.file(address)
        except ImportProgramError as problem:
            return CallProblem(problem.code, problem.message, problem.hint)
        except CompileError as problem:
            return CallProblem("E215", f"`{named}` cannot be loaded: {problem}")
        file.references[address] = found
        return found.own

    # ---------------------------------------------------------------- instances

    def instance(self, one: Instance, within: tuple[str, ...] = ()) -> CallTarget | CallProblem:
        """An instance as a target: its pattern is found, its slots are bound."""
        pattern = self.unit.file.inline(one.pattern)
        found: Unit | Program | CallProblem | None = pattern
        if found is None and "/" not in one.pattern:
            found = self.beside(one.pattern)
        if found is None:
            found = self.at(one.pattern)
        if isinstance(found, CallProblem):
            return found if found.code != "E313" else CallProblem("E330", f"no pattern `{one.pattern}`")
        if isinstance(found, Program) or found.node.kind != "pattern":
            return CallProblem("E341", f"`{one.pattern}` is not a pattern")
        key = f"{found.file.address}#{found.name}"
        if key in within:
            return CallProblem("E112", f"the pattern `{one.pattern}` contains itself")
        return self._bind(one, found, (*within, key))

    def _bind(self, one: Instance, pattern: Unit, within: tuple[str, ...]) -> CallTarget | CallProblem:
        if strange := [slot for slot in one.bindings if slot not in pattern.slots]:
            return CallProblem("E343", f"the pattern `{pattern.name}` has no slot `{strange[0]}`", _list(pattern.slots))
        if missing := [slot for slot in pattern.slots if slot not in one.bindings]:
            return CallProblem("E342", f"the slot `{missing[0]}` of `{pattern.name}` is not bound", "bind it in `with`")
        if strange := [key for key in one.config if key not in pattern.config]:
            message = f"the pattern `{pattern.name}` has no config key `{strange[0]}`"
            return CallProblem("E344", message, _list(tuple(pattern.config)))
        slots: dict[str, object] = {}
        for slot, binding in one.bindings.items():
            found = [self._bound(part, within) for part in (binding if isinstance(binding, list) else [binding])]
            if problem := next((part for part in found if isinstance(part, CallProblem)), None):
                return problem
            slots[slot] = found if isinstance(binding, list) else found[0]
        bound = Bound(pattern, one.name or pattern.name, slots, {**pattern.config, **one.config})
        return CallTarget(bound.name, "instance", open=True, has_script=True, unit=bound)

    def _bound(self, binding: object, within: tuple[str, ...]) -> CallTarget | CallProblem:
        if isinstance(binding, Instance):
            found = self.instance(binding, within)
        elif "/" in str(binding) or str(binding).endswith(SUFFIX):
            found = self._called(self.at(str(binding)))
        else:
            inline = self.unit.file.inline(str(binding))
            near = inline if inline is not None else self.beside(str(binding))
            found = CallProblem("E313", _PROBLEM.format(binding)) if near is None else self._called(near)
        if isinstance(found, CallProblem):
            code = "E313" if found.code in ("E314", "E315") else found.code
            return CallProblem(code, found.message, found.hint)
        return CallTarget(
            found.name, found.kind, found.inputs, found.outputs, found.open, found.has_script, True, unit=found.unit
        )


def _list(names: Sequence[str]) -> str | None:
    return f"it has {', '.join(f'`{name}`' for name in names)}" if names else None


def _first_error(file: FileUnit) -> str:
    first = next((one for one in file.findings if one.severity == "error"), None)
    return f"line {first.line}: {first.message} [{first.code}]" if first is not None else "it has errors"
