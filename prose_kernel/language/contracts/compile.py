"""A contract file as a program: all of its nodes checked, one of them chosen to run (prose-md.md 2)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.contracts import file_and_node, is_contract
from prose_kernel.language.contracts.checks import check_file
from prose_kernel.language.contracts.interface import EVENT, truth_names
from prose_kernel.language.contracts.library import LIBRARY, Library
from prose_kernel.language.contracts.tests import reference_of
from prose_kernel.language.contracts.units import Bound, Files, FileUnit, Unit
from prose_kernel.language.diagnostics import STRICT, Compiled, Diagnostic, Profile, diagnostic, has_errors, in_order
from prose_kernel.language.nodes import node, walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contract import uses_of
from prose_kernel.language.openprose.contracts import CallProblem, CallTarget, CallTargets, Interface, ScriptSource
from prose_kernel.language.openprose.names import Contract
from prose_kernel.language.source import Source, Span


@node
class ContractProgram(tree.Program, frozen=True):
    """The node of a file that runs: `items` are its script, or its session where there is none. `file` is the whole
    file; `unit` is None where it has no such node. `others` are the files that it may call."""

    file: FileUnit = None  # type: ignore[assignment]  # always given; a field after those with defaults needs one
    unit: Unit | None = None
    others: tuple[FileUnit, ...] = ()

    @property
    def node(self) -> Unit:
        return self.unit or self.file.own

    @property
    def declared(self) -> FileContract:
        return _contract(self)

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
    """A file read and checked with everything that it calls. Never raises.

    `load(LIBRARY)` gives the files around it. The part of the source's name after `#` is the node that is to run.
    """
    library: Library | None = load(LIBRARY) if load is not None else None
    files = Files(library, profile, load=load, pipefail=pipefail)
    name, chosen = file_and_node(source.name)
    file = files.add(Source(source.text, name, source.prompt), library.home if library is not None else name)
    checked = _check_all(file)
    found = checked[file]
    bad = _broken(checked)
    if bad - {file}:
        found = [*found, *_calls_of_broken(file, bad - {file}, checked)]
    unit = file.inline(chosen) if chosen else file.own
    if unit is None:
        hint = f"it has {', '.join(one.name for one in file.units[1:]) or 'no inline nodes'}"
        found = [*found, diagnostic(file.source, "E313", Span(0, 0), f"the file has no node `{chosen}`", hint)]
    items = _items(unit) if unit is not None else ()
    others = tuple(one for one in checked if one is not file)
    program = ContractProgram(items, profile in STRICT, file=file, unit=unit, others=others)
    return Compiled(source, program, in_order(found))


def _items(unit: Unit) -> tuple[tree.Statement, ...]:
    """The statements of a node's script; of a node without one its session, for pictures and models."""
    if unit.has_script:
        return unit.compiled.program.items
    if unit.node.kind not in ("function", "responsibility", "gateway"):
        return ()
    span = unit.node.heading
    title = tree.Text((f"Render the {unit.node.kind} {unit.name}.",), span=span)
    return (tree.ExpressionStatement(tree.Session(title, span=span), span=span),)


def refused(program: ContractProgram, source: Source, given: Collection[str]) -> Diagnostic | None:
    """Why a node isn't run: E360 for its kind, E361 for a gateway without its event (2, 5)."""
    unit = program.node
    kind, name = unit.node.kind, source.name
    if kind in ("pattern", "test"):
        hint = f"prose test {name}" if kind == "test" else "instantiate it under `### Patterns`, and call the instance"
        return diagnostic(source, "E360", unit.node.heading, f"a {kind} isn't run", hint)
    if kind == "gateway" and EVENT not in given:
        message = "a gateway waits for events of a host, which aren't served here"
        hint = f"for one render: prose run {name} --input {EVENT}=TEXT"
        return diagnostic(source, "E361", unit.node.heading, message, hint)
    return None


def with_null(program: ContractProgram, names: Collection[str]) -> ContractProgram:
    """The program with inputs that need not be given: they are null then."""
    unit = program.node
    inputs = tuple(replace(one, optional=True) if one.name in names else one for one in unit.contract.inputs)
    return structs.replace(program, unit=replace(unit, contract=replace(unit.contract, inputs=inputs)))


@dataclass(frozen=True, eq=False)
class TargetsBeside:
    """What the calls of a text without a contract lead to: files beside it, and paths (prose-md.md 10). A file with
    errors is E215 where it is called."""

    own: CallTargets

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        found = self.own.find(name, uses, path=path)
        if isinstance(found, CallProblem) or not isinstance(found.unit, Unit):
            return found
        checked = _check_all(found.unit.file)
        if found.unit.file not in _broken(checked):
            return found
        shown = found.unit.file.source.name
        first = next((one for file in checked.values() for one in file if one.severity == "error"), None)
        place = f", line {first.line}: {first.message} [{first.code}]" if first is not None else ""
        return CallProblem("E215", f"`{shown}` has errors{place}", f"prose compile {shown}")

    def element(self, value: str) -> CallTarget | None:
        return None

    def texts(self) -> dict[str, str]:
        return self.own.texts()


def with_targets(source: Source, load: Callable[[str], Any], profile: Profile, *, pipefail: bool) -> Source:
    """A cell of ProseScript, or a program that is no contract file, as one that may call the files around it."""
    library: Library | None = load(LIBRARY)
    if library is None:
        return source
    files = Files(library, profile, load=load, pipefail=pipefail)
    interface = Interface(targets=TargetsBeside(_around(files, library.home).own.targets))
    return ScriptSource(source.text, source.name, source.prompt, interface=interface)


def _around(files: Files, home: str) -> FileUnit:
    """The contract file that the cells belong to, whose inline nodes and instances they call; else an empty one."""
    if is_contract(home):
        with contextlib.suppress(ImportProgramError):
            return files.file(home)
    return files.add(Source("---\nname: cell\nkind: function\n---\n", "cell.prose.md"), home)


def _check_all(start: FileUnit) -> dict[FileUnit, list[Diagnostic]]:
    """The findings of a file and of all that it leads to; each file is checked once."""
    checked: dict[FileUnit, list[Diagnostic]] = {}
    agenda = [start]
    for file in agenda:
        if file not in checked:
            checked[file] = check_file(file)
            agenda.extend(file.references.values())
    return checked


def _broken(checked: Mapping[FileUnit, list[Diagnostic]]) -> set[FileUnit]:
    """The files with errors, and those that call one."""
    callers: dict[FileUnit, list[FileUnit]] = {}
    for file in checked:
        for other in file.references.values():
            callers.setdefault(other, []).append(file)
    agenda = [file for file, found in checked.items() if has_errors(found)]
    bad = set(agenda)
    for file in agenda:
        agenda.extend(one for one in callers.get(file, ()) if one not in bad)
        bad.update(callers.get(file, ()))
    return bad


def _calls_of_broken(
    file: FileUnit, bad: set[FileUnit], checked: Mapping[FileUnit, list[Diagnostic]]
) -> Iterator[Diagnostic]:
    """E215 where the file names another one that has errors."""
    for unit, target, span in named_targets(file):
        for other in _files_in(target):
            if other in bad:
                first = next((one for one in checked[other] if one.severity == "error"), None)
                shown = other.source.name
                place = f", line {first.line}: {first.message} [{first.code}]" if first else " in a file that it calls"
                message = f"`{shown}` has errors{place}"
                source = unit.compiled.source if unit.has_script else file.source
                yield diagnostic(source, "E215", span, message, f"prose compile {shown}")
                break


def named_targets(file: FileUnit) -> Iterator[tuple[Unit, CallTarget, Span]]:
    """What the scripts and instances of a file name, with the places."""
    if (subject := reference_of(file)) is not None:
        yield file.own, subject.target(), file.own.node.heading
    for unit in file.units:
        for one in unit.instances.values():
            target = unit.targets.instance(one)
            if isinstance(target, CallTarget):
                yield unit, target, one.at
        if unit.has_script:
            variables = _items_of_loops(unit.compiled.program) if unit.node.kind == "pattern" else ()
            for call in calls(unit.compiled.program):
                if isinstance(call.target, tree.Name) and call.target.id in variables:
                    continue  # an element of a slot
                name, is_path = _named(call)
                found = unit.targets.find(name, uses_of(unit.compiled.program), path=is_path)
                if not isinstance(found, CallProblem):
                    yield unit, found, call.target.span


def calls(program: tree.Program) -> list[tree.Call]:
    """The calls of a script, in its order."""
    return sorted((one for one in walk(program) if isinstance(one, tree.Call)), key=lambda one: one.span)


def _items_of_loops(program: tree.Program) -> set[str]:
    return {one.item.id for one in walk(program) if isinstance(one, tree.For)}


def _named(call: tree.Call) -> tuple[str, bool]:
    target = call.target
    return (target.id, False) if isinstance(target, tree.Name) else (target.raw, True)


def _files_in(target: object) -> Iterator[FileUnit]:
    agenda = [target]
    while agenda:
        one = agenda.pop()
        if isinstance(one, CallTarget):
            agenda.append(one.unit)
        elif isinstance(one, Unit):
            yield one.file
        elif isinstance(one, Bound):
            yield one.pattern.file
            for slot in one.slots.values():
                agenda.extend(slot if isinstance(slot, list) else [slot])


# ---------------------------------------------------------------- what a file says about itself


@dataclass(frozen=True, slots=True)
class FileContract(Contract):
    """The contract of a node, for people and as data: `defaults` are those of its optional inputs, `calls` the names
    that its script calls, `prior` those of the truth that an earlier render may have left."""

    kind: str = ""
    name: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    prior: tuple[str, ...] | None = None


def _contract(program: ContractProgram) -> FileContract:
    unit, given = program.node, program.node.contract
    return FileContract(
        {one.name: not one.optional for one in given.inputs},
        tuple(one.name for one in given.outputs),
        None,
        unit.node.kind,
        unit.name,
        {one.name: one.default for one in given.inputs if one.optional},
        _called(unit),
        truth_names(unit.node) if unit.node.kind in ("responsibility", "gateway") else None,
    )


def _called(unit: Unit) -> tuple[str, ...]:
    """The names that a script calls, each once."""
    return tuple(dict.fromkeys(_named(one)[0] for one in calls(unit.compiled.program))) if unit.has_script else ()


def report(program: ContractProgram) -> str:
    """What `prose compile` prints for a file without errors (2)."""
    units = program.file.units if program.unit is program.file.own else (program.node,)
    return "".join(_shown(unit) for unit in units)


def _shown(unit: Unit) -> str:
    given, lines = unit.contract, [f"{unit.node.kind} {unit.name}"]
    for one in given.inputs:
        many = (" (completed runs)" if given.runs[one.name] else " (a completed run)") if one.name in given.runs else ""
        default = f" = {json.dumps(one.default, ensure_ascii=False)}" if one.optional else ""
        lines.append(f"  input   {one.name}{default}{many}")
    if given.takes_more:
        lines.append("  input   ...")
    for output in given.outputs:
        kind = given.types.get(output.name, "")
        note = f": {kind}" if kind else ""
        lines.append(f"  output  {output.name}{note}{' (optional)' if output.optional else ''}")
    lines += [f"  call    {called}" for called in _called(unit)]
    return "\n".join(lines) + "\n"
