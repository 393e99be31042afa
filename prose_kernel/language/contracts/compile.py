"""Compiles a contract file to a program: checks all of its nodes, and chooses the one to run (prose-md.md 2)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.contracts import LIBRARY, file_and_node, is_contract
from prose_kernel.language.contracts.checks import check_file
from prose_kernel.language.contracts.interface import EVENT, called, calls, describe
from prose_kernel.language.contracts.targets import BoundInstance, Targets
from prose_kernel.language.contracts.tests import subject_of
from prose_kernel.language.contracts.tree import Block
from prose_kernel.language.contracts.units import Files, FileUnit, Library, Unit
from prose_kernel.language.diagnostics import (
    STRICT_PROFILES,
    Compiled,
    Diagnostic,
    Profile,
    diagnostic,
    first_error,
    has_errors,
    in_order,
)
from prose_kernel.language.fixes import Edit, replaced
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import (
    CallProblem,
    CallTarget,
    CallTargets,
    Interface,
    ScriptSource,
    interface_of,
)
from prose_kernel.language.openprose.parser import fenced_text, parse
from prose_kernel.language.openprose.program_interface import ProgramInterface, uses_of
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.text import as_argument


class ContractProgram(tree.Program, frozen=True):
    """The program of one node of a contract file; `items` are the node's script, or a session if it has none.

    `file` is the whole file, `unit` the node (None if the file has no node with the name), `others` the files that the
    file may call, directly or indirectly.
    """

    file: FileUnit = None  # type: ignore[assignment]  # always given; a field after those with defaults needs one
    unit: Unit | None = None
    others: tuple[FileUnit, ...] = ()

    @property
    def node(self) -> Unit:
        return self.unit or self.file.own

    @property
    def declared(self) -> FileContract:
        unit, given = self.node, self.node.contract
        inputs = {one.name: not one.optional for one in given.inputs}
        outputs = tuple(one.name for one in given.outputs)
        defaults = {one.name: one.default for one in given.inputs if one.optional}
        prior = unit.truth if unit.node.kind in ("responsibility", "gateway") else None
        return FileContract(inputs, outputs, None, unit.node.kind, unit.name, defaults, called(unit), prior)

    def scripts(self) -> tuple[tree.Program, ...]:
        units = self.file.units if self.unit is self.file.own else (self.node,)
        return tuple(unit.compiled.program for unit in units if unit.has_script)

    def texts(self) -> dict[str, str]:
        return {one.address: one.source.text for one in self.others}


def compile_source(
    source: Source,
    *,
    profile: Profile = "default",
    known: Any = None,
    load: Callable[[str], Any] | None = None,
    cell: bool = False,
    pipefail: bool = False,
) -> Compiled[ContractProgram]:
    """Read and check a file with all files that it calls. Never raises.

    `load(LIBRARY)` returns the library of the file. The part of the source's name after `#` is the node to run.
    """
    library: Library | None = load(LIBRARY) if load is not None else None
    name, chosen = file_and_node(source.name)
    file = _cached_file(source.text, library, profile, load, pipefail=pipefail)
    if file is None:
        files = Files(library, profile, load=load, pipefail=pipefail)
        file = files.add(Source(source.text, name, source.prompt), library.home if library is not None else name)
    reached = _reachable_files(file)
    found = [*_findings(file), *_calls_into(file, _files_with_errors(reached) - {file})]
    unit = file.inline.get(chosen) if chosen else file.own
    if unit is None:
        hint = f"it has {', '.join(one.name for one in file.units[1:]) or 'no inline nodes'}"
        found = [*found, diagnostic(file.source, "E313", Span(0, 0), f"the file has no node `{chosen}`", hint)]
    items = _items(unit) if unit is not None else ()
    program = ContractProgram(items, profile in STRICT_PROFILES, file=file, unit=unit, others=tuple(reached[1:]))
    return Compiled(source, program, in_order(found))


def _cached_file(text: str, library: Library | None, profile: Profile, load: Any, *, pipefail: bool) -> FileUnit | None:
    """Return the file from the library's cache of checked files, None if the text isn't the one in the file."""
    if library is None or library.shared is None:
        return None
    key = profile, pipefail
    files: Files | None = library.shared.get(key)
    if files is None or files.depends_on_root:
        files = library.shared[key] = Files(library, profile, load=load, pipefail=pipefail)
    with contextlib.suppress(ImportProgramError):
        file = files.file(library.home)
        return file if file.source.text == text else None
    return None


def _items(unit: Unit) -> tuple[tree.Statement, ...]:
    """Return the statements of a node's script. A node without one gets a session, for flow charts and models."""
    if unit.has_script:
        return unit.compiled.program.items
    if unit.node.kind not in ("function", "responsibility", "gateway"):
        return ()
    span = unit.node.heading
    title = tree.Text((f"Render the {unit.node.kind} {unit.name}.",), span=span)
    return (tree.ExpressionStatement(tree.Session(title, span=span), span=span),)


def refusal(program: ContractProgram, source: Source, given: Collection[str]) -> Diagnostic | None:
    """Return the reason why a node can't run: E360 for its kind, E361 for a gateway without its event (2, 5)."""
    unit = program.node
    kind, name = unit.node.kind, source.name
    if kind in ("pattern", "test"):
        instance = "instantiate it under `### Patterns`, and call the instance"
        hint = f"prose test {as_argument(name)}" if kind == "test" else instance
        return diagnostic(source, "E360", unit.node.heading, f"a {kind} isn't run", hint)
    if kind == "gateway" and EVENT not in given:
        message = "a gateway waits for events of a host, which aren't served here"
        hint = f"for one render: prose run {as_argument(name)} --input {EVENT}=TEXT"
        return diagnostic(source, "E361", unit.node.heading, message, hint)
    return None


def with_optional_inputs(program: ContractProgram, names: Collection[str]) -> ContractProgram:
    """Return the program with optional inputs `names`, which are null if they aren't given."""
    unit = program.node
    inputs = tuple(replace(one, optional=True) if one.name in names else one for one in unit.contract.inputs)
    return replace(program, unit=replace(unit, contract=replace(unit.contract, inputs=inputs)))


class NearbyTargets(Targets, frozen=True, eq=False):
    """The call targets of a text without a contract: files next to it, and paths (prose-md.md 10). A call of a file
    with errors is E215. `uses` are the aliases of earlier cells."""

    uses: Mapping[str, str]

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        found = super().find(name, {**self.uses, **uses}, path=path)
        if isinstance(found, CallProblem) or not isinstance(found.unit, Unit):
            return found
        file = found.unit.file
        return _file_problem(file) if file in _files_with_errors(_reachable_files(file)) else found

    def names(self, uses: Mapping[str, str]) -> tuple[str, ...]:
        return super().names({**self.uses, **uses})


def with_targets(source: Source, load: Callable[[str], Any], profile: Profile, known: Any, *, pipefail: bool) -> Source:
    """Return a cell of ProseScript, or a program outside a contract file, as a source that may call nearby files."""
    targets = targets_around(load, profile, known, pipefail=pipefail)
    if targets is None:
        return source
    return ScriptSource(source.text, source.name, source.prompt, interface=Interface(targets=targets))


def targets_around(
    load: Callable[[str], Any], profile: Profile, known: Any = None, *, pipefail: bool = False
) -> CallTargets | None:
    """Return the call targets of a text that isn't a contract file, None if files can't be loaded. `known` are the
    names of earlier cells."""
    library: Library | None = load(LIBRARY)
    if library is None:
        return None
    files = Files(library, profile, load=load, pipefail=pipefail)
    return NearbyTargets(_own_file(files, library.home).own, {}, known.uses if known is not None else {})


def _own_file(files: Files, home: str) -> FileUnit:
    """Return the contract file that a text belongs to, whose inline nodes and instances it may call; else an empty
    file."""
    if is_contract(home):
        with contextlib.suppress(ImportProgramError):
            return files.file(home)
    return files.add(Source("---\nname: cell\nkind: function\n---\n", "cell.prose.md"), home)


def _findings(file: FileUnit) -> list[Diagnostic]:
    """Return the findings for one file, which is checked only once."""
    known = file.files.checked
    if file not in known:
        known[file] = check_file(file)
    return known[file]


def _reachable_files(start: FileUnit) -> list[FileUnit]:
    """Check a file and all files that it calls, directly or indirectly; return them, the file first."""
    found, seen = [start], {start}
    for file in found:
        _findings(file)  # fills `references` with the files that it calls
        found += [one for one in dict.fromkeys(file.references.values()) if one not in seen]
        seen.update(file.references.values())
    return found


def _files_with_errors(files: Sequence[FileUnit]) -> set[FileUnit]:
    """Return the files that have errors, or call a file that has, directly or indirectly."""
    agenda = [file for file in files if has_errors(_findings(file))]
    if not agenda:
        return set()
    callers: dict[FileUnit, list[FileUnit]] = {}
    for file in files:
        for other in file.references.values():
            callers.setdefault(other, []).append(file)
    bad = set(agenda)
    for file in agenda:
        agenda.extend(one for one in callers.get(file, ()) if one not in bad)
        bad.update(callers.get(file, ()))
    return bad


def _file_problem(file: FileUnit) -> CallProblem:
    """Return E215 for a file that has errors, or calls a file that has."""
    name, first = file.source.name, first_error(_findings(file))
    place = f", {first}" if first else " in a file that it calls"
    return CallProblem("E215", f"`{name}` has errors{place}", f"prose compile {as_argument(name)}")


def _calls_into(file: FileUnit, bad: set[FileUnit]) -> Iterator[Diagnostic]:
    """Yield E215 for each call or instance in a file whose target is in a file of `bad`."""
    for target, span in _named_targets(file) if bad else ():
        broken = next((unit.file for unit in _units_in(target) if unit.file in bad), None)
        if broken is not None:
            problem = _file_problem(broken)
            yield diagnostic(file.source, problem.code, span, problem.message, problem.hint)


def _named_targets(file: FileUnit) -> Iterator[tuple[CallTarget | CallProblem, Span]]:
    """Yield the targets of the calls, instances and test subject in a file, with the spans of their names."""
    if file.own.node.kind == "test":
        with contextlib.suppress(ImportProgramError):
            yield subject_of(file.own).target(), file.own.node.heading
    for unit in file.units:
        yield from ((unit.targets.instance(one), at) for at, one in unit.declared if not isinstance(one, str))
        if unit.has_script:
            program = unit.compiled.program
            loops = {one.item.id for one in walk(program) if isinstance(one, tree.For)}
            for call in calls(program):
                name, is_path = call.named
                if is_path or unit.node.kind != "pattern" or name not in loops:  # otherwise an element of a slot
                    yield unit.targets.find(name, uses_of(program), path=is_path), call.target.span


def _units_in(target: object) -> Iterator[Unit]:
    """Yield the nodes that a target may run; for an instance, its pattern and the nodes in its slots."""
    if isinstance(target, CallTarget):
        target = target.unit
    if isinstance(target, Unit):
        yield target
    elif isinstance(target, BoundInstance):
        yield target.pattern
        for slot in target.slots.values():
            for one in slot if isinstance(slot, list) else [slot]:
                yield from _units_in(one)


def reachable_units(program: tree.Program, source: Source | None) -> Iterator[tuple[Unit, str | None]]:
    """Yield the nodes that a program runs or calls, directly or indirectly, each with the model given by its call."""
    seen: set[tuple[Unit, str | None]] = set()
    agenda: list[tuple[Unit, str | None]] = []
    if isinstance(program, ContractProgram):
        agenda.append((program.node, None))
    elif source is not None and (targets := interface_of(source).targets) is not None:
        agenda += _called_by(program, targets, None)
    for unit, model in agenda:
        if (unit, model) not in seen:
            seen.add((unit, model))
            yield unit, model
            if unit.has_script:
                agenda += _called_by(unit.compiled.program, unit.targets, model)


def _called_by(script: tree.Program, targets: CallTargets, model: str | None) -> Iterator[tuple[Unit, str | None]]:
    for one in calls(script):
        name, is_path = one.named
        given = next((entry.value for entry in one.inputs if entry.name.id == "model"), None)
        chosen = given.id if isinstance(given, tree.Name) else given.raw if isinstance(given, tree.Text) else model
        for unit in _units_in(targets.find(name, uses_of(script), path=is_path)):
            yield unit, chosen


# ---------------------------------------------------------------- contract, format, report


@dataclass(frozen=True, slots=True)
class FileContract(ProgramInterface):
    """The contract of a node. `defaults` are the values of optional inputs, `calls` the names that the script calls,
    `prior` the names of the prior truth (None for a kind of node without truth)."""

    kind: str = ""
    name: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    prior: tuple[str, ...] | None = None


def format_file(program: ContractProgram) -> str:
    """Return the canonical form of a file (2): only the scripts in its fences are formatted."""
    file = program.file
    fences = [fence for unit in file.units for fence in unit.node.fences]
    return replaced(file.source.text, [Edit(fence.inside, _formatted(file, fence)) for fence in fences])


def _formatted(file: FileUnit, fence: Block) -> str:
    """Return the formatted lines of one fence. Each fence of a section is formatted separately."""
    from prose_kernel.language.openprose.formatter import format_program

    program = parse(fenced_text(file.source, [(fence.inside, fence.margin)]), file.files.script_profile).program
    if not program.items:
        return file.source.slice(fence.inside)
    margin = " " * fence.margin
    return "".join(f"{margin}{line}\n" if line else "\n" for line in format_program(program).splitlines())


def report(program: ContractProgram) -> str:
    """Return the output of `prose compile` for a file without errors (2)."""
    units = program.file.units if program.unit is program.file.own else (program.node,)
    return "".join(f"{describe(unit)}\n" for unit in units)
