"""Resolves the call targets of scripts: nodes, programs, helpers, instances of patterns (prose-md.md 3.5, 6).

The instances come from YAML blocks in the sections of a node; a pattern's Config has the defaults of their values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.items import DEFAULT, literal_at, value_of
from prose_kernel.language.contracts.reader import NotYaml, yaml_entries
from prose_kernel.language.contracts.tree import MISSING, Block, ContractNode, Item
from prose_kernel.language.diagnostics import first_error
from prose_kernel.language.openprose.call_targets import CallInput, CallOutput, CallProblem, CallTarget, ScriptSource
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace

if TYPE_CHECKING:
    from prose_kernel.language.contracts.units import Unit

_YAML: Final = re.compile(r"ya?ml\b", re.IGNORECASE)
_PROBLEM: Final = "nothing here can be called `{}`"

# ---------------------------------------------------------------- instances of patterns


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An instance of a pattern; `name` is "" for an instance inside another one. A slot is bound to the name or path of
    a function, to an instance, or to a list of these."""

    pattern: str
    name: str = ""
    bindings: dict[str, str | Instance | list[str | Instance]] | None = msgspec.field(default=None, name="with")
    config: dict[str, Any] | None = None


def read_instances(source: Source, node: ContractNode) -> Iterator[tuple[Span, Instance | str]]:
    """Yield the instances that a node declares, in order, with the span of their line; for an invalid one, the reason
    as text (E340)."""
    names: set[str] = set()
    for section in node.sections:
        for fence in section.fences:
            for at, one in _in_block(source, fence, expected=section.name == "Patterns"):
                name = one.name if isinstance(one, Instance) else ""
                yield at, f"the instance `{name}` is there already" if name and name in names else one
                names.add(name)


def _in_block(source: Source, fence: Block, *, expected: bool) -> Iterator[tuple[Span, Instance | str]]:
    text = source.slice(fence.inside)
    if not _YAML.match(fence.text) or (not expected and "pattern" not in text):
        return
    try:
        found = yaml_entries(text)
    except NotYaml:
        found = []
    if not any(isinstance(entry, dict) and "pattern" in entry for _, entry in found):
        if expected:
            yield fence.span, "this block is not a list of instances"
        return
    first = source.line_column(fence.inside.start)[0]
    for line, entry in found:
        start = source.line_starts[first + line - 1]
        at = Span(start, start + len(source.line_text(first + line)))
        try:
            one = msgspec.convert(entry, Instance)
        except (msgspec.ValidationError, RecursionError) as problem:
            yield at, f"this is not an instance: {str(problem)[:1].lower()}{str(problem)[1:]}"
            continue
        named = one.name and not any(inner.name for inner in _inside(one))
        yield at, one if named else "an instance needs a `name`, and one inside another has none"


def _inside(one: Instance) -> Iterator[Instance]:
    for binding in (one.bindings or {}).values():
        for part in binding if isinstance(binding, list) else [binding]:
            if isinstance(part, Instance):
                yield part
                yield from _inside(part)


def config_defaults(node: ContractNode) -> dict[str, Any]:
    """Return the keys of a pattern's Config with their defaults, None for a key without one."""
    return {name: _default(item) for item in node.items("Config") for name in item.names}


def _default(item: Item) -> Any:
    """Return the default of a key: the text after `default` in its remark, a literal in its text, or its text."""
    if (marked := DEFAULT.search(item.remark)) is not None:
        return _value(item.remark[marked.end() :].strip())
    value = item.default
    if value is MISSING and (" " not in item.text or item.text[0] in '"`[{'):
        value = literal_at(item.text, 0)
    return None if value is MISSING else _value(value) if isinstance(value, str) else value


def _value(text: str) -> Any:
    """Convert a default to its value: `none` is null, JSON may have single quotes, objects separated by commas are a
    list, a literal may be followed by words; anything else is text."""
    text = text.strip("`") if text.startswith("`") and text.endswith("`") else text
    if not text:
        return ""
    for candidate in (text, text.replace("'", '"'), f"[{text.replace(chr(39), chr(34))}]"):
        found = value_of(candidate)
        if not isinstance(found, str) and not (candidate[:1] == "[" != text[:1] and not isinstance(found[0], dict)):
            return found
    literal = literal_at(text, 0)
    return text.strip('"') if literal is MISSING or isinstance(literal, str) else literal


# ---------------------------------------------------------------- targets


class ProgramTarget(Struct, frozen=True, eq=False):
    """A `.prose` program as a call target."""

    address: str
    name: str
    handle: str

    @property
    def place(self) -> tuple[str, str]:
        return self.address, ""


class Helper(Struct, frozen=True, eq=False):
    """A helper as a call target: one session with `task`."""

    name: str
    task: str

    @property
    def about(self) -> str:
        return f"helper {self.name}: {self.task}"


class BoundInstance(Struct, frozen=True, eq=False, dict=True):
    """An instance as a call target: the pattern, the targets in its slots by name, the values of its config."""

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
        """The script of the pattern's Delegation, with the targets in its slots."""
        return self.pattern.source(self.pattern.interface(self.slots))


class Targets(Struct, frozen=True, eq=False):
    """The call targets of a unit's script. `bound` are the targets in the slots of an instance.

    Except `find` and `instance`, the methods that resolve a name raise `ImportProgramError` with the code of the error.
    """

    unit: Unit
    bound: Mapping[str, object]

    def find(self, name: str, uses: Mapping[str, str], *, path: bool = False) -> CallTarget | CallProblem:
        found = _or_problem(lambda: self._find(name, uses, path=path))
        if isinstance(found, CallProblem) and found.code == "E313" and not path:
            return replace(found, near=self.unit.file.files.near(self))
        return found

    def instance(self, one: Instance) -> CallTarget | CallProblem:
        """Return an instance as a target: find its pattern, and bind the slots."""
        return _or_problem(lambda: self._bind(one))

    def names(self, uses: Mapping[str, str]) -> tuple[str, ...]:
        unit, file = self.unit, self.unit.file
        slots = unit.slots if unit.node.kind == "pattern" else ()
        library = file.files.library
        siblings = library.sibling_names(file.address) if library is not None else ()
        inline = [one.name for one in file.units[1:] if one.node.kind == "function"]
        return tuple(dict.fromkeys([*slots, *unit.instances, *inline, *uses, *siblings, *unit.helpers]))

    def texts(self) -> dict[str, str]:
        own = self.unit.file
        known = own.files.known.items()
        return {at: one.source.text for at, one in known if at != own.address and not isinstance(one, Exception)}

    def element(self, value: str) -> CallTarget | None:
        for one in self.bound.values():
            for target in one if isinstance(one, list) else [one]:
                if isinstance(target, CallTarget) and target.name == value:
                    return target
        return None

    def _find(self, name: str, uses: Mapping[str, str], *, path: bool) -> CallTarget:
        unit = self.unit
        if path:
            return self._callable(self.at(name))
        if unit.node.kind == "pattern" and name in unit.slots:
            held = self.bound.get(name)
            return held if isinstance(held, CallTarget) else CallTarget(name, open=True, through_slot=True)
        if name in unit.instances:
            return self._bind(unit.instances[name])
        found = unit.file.inline.get(name) or (self.at(uses[name]) if name in uses else self.sibling(name))
        if found is not None:
            return self._callable(found)
        if name in unit.helpers:
            return CallTarget(name, "helper", open=True, unit=Helper(name, unit.helpers[name]))
        raise ImportProgramError(_PROBLEM.format(name), code="E313")

    # ---------------------------------------------------------------- functions

    def _callable(self, found: Unit | ProgramTarget) -> CallTarget:
        """Return a unit or program as a target. Raises `ImportProgramError` if it can't be called."""
        if isinstance(found, ProgramTarget):
            files = self.unit.file.files
            assert files.library is not None
            files.depends_on_root = True
            contract = files.library.program(found.address)
            inputs = tuple(CallInput(name, not required) for name, required in contract.inputs.items())
            outputs = tuple(CallOutput(name) for name in contract.outputs or ())
            return CallTarget(found.name, "function", inputs, outputs, has_script=True, unit=found)
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

    def sibling(self, name: str) -> Unit | ProgramTarget | None:
        """Return the unit or program for a bare name in the directory of the file, None without one."""
        file = self.unit.file
        library = file.files.library
        places = library.siblings(file.address, name) if library is not None else ()
        if len(places) > 1:
            names = ", ".join(f"`{place.rpartition('/')[2]}`" for place in places)
            message = f"several files are called `{name}`: {names}"
            raise ImportProgramError(message, code="E316", hint="rename one, or call its path")
        return self.file(places[0], name) if places else None

    def at(self, path: str) -> Unit | ProgramTarget:
        """Return the unit or program at a path."""
        file = self.unit.file
        library = file.files.library
        if library is None:
            message = f'"{path}" cannot be loaded: there is nothing to load files with'
            raise ImportProgramError(message, code="E330")
        return self.file(library.resolve(file.address, path), path)

    def file(self, address: str, named: str) -> Unit | ProgramTarget:
        """Return the own node of a contract file, or a program; messages call the file `named`."""
        file = self.unit.file
        if address.endswith(SUFFIX):
            found = file.references[address] = file.files.file(address)
            return found.own
        if address.endswith(".prose"):
            stem = address.rpartition("/")[2].removesuffix(".prose")
            return ProgramTarget(address, stem, file.files.handle(address))
        message = f'"{named}" is not a program: its name ends in neither `.prose` nor `{SUFFIX}`'
        raise ImportProgramError(message, code="E330")

    # ---------------------------------------------------------------- instances

    def _bind(self, one: Instance, within: tuple[str, ...] = ()) -> CallTarget:
        """Return an instance as a target. `within` are the patterns of the instances around it."""
        pattern = self._near(one.pattern) or self.at(one.pattern)
        if isinstance(pattern, ProgramTarget) or pattern.node.kind != "pattern":
            raise ImportProgramError(f"`{one.pattern}` is not a pattern", code="E341")
        key = f"{pattern.file.address}#{pattern.name}"
        if key in within:
            raise ImportProgramError(f"the pattern `{one.pattern}` contains itself", code="E112")
        bindings, config, name = one.bindings or {}, one.config or {}, pattern.name
        _require_known("E343", f"the pattern `{name}` has no slot", bindings, pattern.slots)
        if missing := [slot for slot in pattern.slots if slot not in bindings]:
            message = f"the slot `{missing[0]}` of `{name}` is not bound"
            raise ImportProgramError(message, code="E342", hint="bind it in `with`")
        _require_known("E344", f"the pattern `{name}` has no config key", config, pattern.config)
        slots: dict[str, object] = {}
        for slot, binding in bindings.items():
            parts = binding if isinstance(binding, list) else [binding]
            found = [self._slot_target(part, (*within, key)) for part in parts]
            slots[slot] = found if isinstance(binding, list) else found[0]
        bound = BoundInstance(pattern, one.name or name, slots, {**pattern.config, **config})
        return CallTarget(bound.name, "instance", open=True, has_script=True, unit=bound)

    def _near(self, name: str) -> Unit | ProgramTarget | None:
        """Return the inline node, or the file next to this one, for a name."""
        return self.unit.file.inline.get(name) or (self.sibling(name) if "/" not in name else None)

    def _slot_target(self, binding: str | Instance, within: tuple[str, ...]) -> CallTarget:
        if isinstance(binding, Instance):
            return replace(self._bind(binding, within), through_slot=True)
        found = self.at(binding) if "/" in binding or binding.endswith(SUFFIX) else self._near(binding)
        if found is None:
            raise ImportProgramError(_PROBLEM.format(binding), code="E313")
        try:
            return replace(self._callable(found), through_slot=True)
        except ImportProgramError as problem:
            problem.code = "E313" if problem.code in ("E314", "E315") else problem.code
            raise


def _or_problem(find: Callable[[], CallTarget]) -> CallTarget | CallProblem:
    try:
        return find()
    except ImportProgramError as problem:
        return CallProblem(problem.code, problem.message, problem.hint)


def _require_known(code: str, message: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for the first given name that isn't known."""
    for name in given:
        if name not in known:
            raise ImportProgramError(f"{message} `{name}`", code=code, hint=it_has(known))


def it_has(names: Iterable[str]) -> str | None:
    """Return the hint that lists the known names."""
    listed = ", ".join(f"`{one}`" for one in names)
    return f"it has {listed}" if listed else None
