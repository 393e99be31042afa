"""Extracts the static interfaces of programs and blocks, and classifies import paths, without running anything.

A `ProgramInterface` has the inputs and outputs of an imported program, `KnownNames` the names that earlier cells or the
caller have defined. The checker of a file starts with `KnownNames()`, that of a cell with the state of
the machine (openprose.md 3.1).

`contract` implements the extraction of openprose.md 6.1 (with the outputs of 3.16), `block_exports` finds the names
that a bare `do` may make readable (3.6), `slug` and `place_of` interpret import paths (6.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.nodes import descendants, fields_with, kinds_in, walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.keywords import NAME
from prose_kernel.language.openprose.tree import Name, Node, Program, Statement, Text

if TYPE_CHECKING:
    from prose_kernel.language.openprose.call_targets import CallTargets
    from prose_kernel.language.typed_answers import Schema

VariableKind = Literal["let", "const", "input", "output"]


class Variable(Struct, frozen=True):
    """A variable of the root frame.

    `from_exec`: the value comes directly from `exec` (E138). `answer`: the schema of a typed answer. `hides_code`: the
    value comes from a command whose exit code may hide a failure (W052).
    """

    kind: VariableKind
    from_exec: bool = False
    answer: Schema | None = None
    hides_code: bool = False


class KnownAgent(Struct, frozen=True):
    """An agent. `persist` is None, `true`, `project`, `user` or a directory; `output` is the schema of its answers."""

    persist: str | None = None
    output: Schema | None = None


@dataclass(frozen=True, slots=True)
class ProgramInterface:
    """The inputs and outputs of an imported program (6.1, 6.2), or the `schema` in a file of JSON Schema.

    - `inputs`: for each declared input, whether a call must supply it (it is before the first executable statement)
    - `outputs`: the names of its root outputs; None while unknown (a remote program that isn't fetched yet)
    - `gates`: the names of its gates and, as `MODULE:GATE`, of its imports' gates; None if some are unknown
    """

    inputs: Mapping[str, bool] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    schema: Schema | None = None
    gates: frozenset[str] | None = field(default=None, kw_only=True)


class KnownNames(Struct, frozen=True):
    """The names defined before a text, by kind.

    - `blocks`: the parameters of each block, and of each function of another language
    - `bodies`: the definitions of blocks, for the exports of a bare `do` (3.6) and the names that they declare; a block
      without one is a function of another language and may export any name
    - `targets`, `uses`: the call targets of scripts, for completion, and the paths of imports by their aliases
    """

    variables: Mapping[str, Variable] = struct_field(default_factory=dict)
    soft_exports: frozenset[str] = frozenset()
    agents: Mapping[str, KnownAgent] = struct_field(default_factory=dict)
    blocks: Mapping[str, tuple[str, ...]] = struct_field(default_factory=dict)
    programs: Mapping[str, ProgramInterface | None] = struct_field(default_factory=dict)
    skills: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    bodies: Mapping[str, tree.Block] = struct_field(default_factory=dict)
    targets: CallTargets | None = None
    uses: Mapping[str, str] = struct_field(default_factory=dict)


LoadContract = Callable[[str], ProgramInterface | None]
"""Returns the contract of the program at a `use` path; None for a remote program, which stays unchecked. Raises
`ImportProgramError` if the program cannot be loaded (E215) or imports itself (E112). The path of a JSON Schema has the
prefix `typed_answers.FILE_PREFIX`; an unusable schema is E224."""

_DECLARATIONS = (tree.Use, tree.SkillImport, tree.Input, tree.Agent, tree.Block)


def is_executable(statement: Statement) -> bool:
    """Return whether the statement ends the part of a program whose inputs are requested before it starts (3.1)."""
    return not isinstance(statement, _DECLARATIONS)


def contract(program: Program) -> ProgramInterface:
    """Return the inputs of a program, with whether a call must supply them, and the names of its outputs (6.1).

    Inputs inside bodies and blocks are optional. Only the root frame has outputs. A contract file declares both itself.
    """
    if program.declared is not None:
        return program.declared
    inputs: dict[str, bool] = {}
    required = True
    for item in program.items:
        if isinstance(item, tree.Input):
            inputs[item.name.id] = inputs.get(item.name.id, False) or required
        elif is_executable(item):
            required = False
    for statement in _statements(program.items, blocks=True):
        if isinstance(statement, tree.Input):
            inputs.setdefault(statement.name.id, False)
    outputs = dict.fromkeys(name for part in _statements(program.items) for name in _output_names(part, anonymous=True))
    return ProgramInterface(inputs, tuple(outputs))


def all_gates(program: Program, load: LoadContract) -> frozenset[str] | None:
    """Return the names of the gates of a program and, as `MODULE:GATE`, of its imports.

    Return None if some are unknown, because a remote program isn't fetched yet or a call is resolved at run time.
    """
    nodes = [node for script in program.scripts() for node in walk(script)]
    if any(isinstance(node, tree.Call) for node in nodes):
        return None
    found = {node.name.id for node in nodes if isinstance(node, tree.Gate)}
    for alias, imported in known_in(program, load).programs.items():
        if imported is None or imported.gates is None:
            return None
        found.update(f"{alias}:{gate}" for gate in imported.gates)
    return frozenset(found)


def known_in(program: Program, load: LoadContract) -> KnownNames:
    """Return the names that any part of a program may refer to: its agents, blocks and imports."""
    programs: dict[str, ProgramInterface | None] = {}
    for item in program.items:
        if isinstance(item, tree.Use) and (name := local_name(item)):
            try:
                programs.setdefault(name, load(item.path.raw))
            except ImportProgramError:
                programs.setdefault(name, None)
    blocks = [item for item in program.items if isinstance(item, tree.Block)]
    return KnownNames(
        agents={item.name.id: KnownAgent(persistence(item)) for item in program.items if isinstance(item, tree.Agent)},
        blocks={block.name.id: tuple(parameter.id for parameter in block.parameters) for block in blocks},
        programs=programs,
        bodies={block.name.id: block for block in blocks},
    )


def block_exports(block: tree.Block) -> tuple[str, ...]:
    """Return the names that a bare `do` of this block can make readable in the caller (3.6), in source order."""
    names = dict.fromkeys(name for part in _statements(block.body) for name in _output_names(part, anonymous=False))
    certain = any(any(_output_names(statement, anonymous=False)) for statement in block.body)
    last = block.body[-1] if block.body else None
    if not certain and isinstance(last, tree.ExpressionStatement) and isinstance(last.value, tree.Parallel):
        names.update(dict.fromkeys(b.name.id for b in last.value.branches if b.name))
    return tuple(names)


def block_names(block: tree.Block) -> frozenset[str]:
    """Return every name that a call of this block may bind, including its parameters and temporary names."""
    names = {p.id for p in block.parameters}
    for node in _walk(block.body):
        if not isinstance(node, _BIND_NOTHING):
            names.update(names_bound(node))
    return frozenset(names)


def persistence(agent: tree.Agent) -> str | None:
    """Return the memory of an agent (4.4): None, `true`, `project`, `user`, or its directory."""
    return memory_of(tree.value_of(agent.properties, "persist"))


def memory_of(persist: Node | None) -> str | None:
    """Return the memory that a value of `persist` means; None if there is none, or if the value is invalid."""
    match persist:
        case tree.Constant(value=True):
            return "true"
        case Name(id="project" | "user" as scope):
            return scope
        case Text():
            return persist.raw.strip() or None
    return None


def abilities(program: Program) -> tuple[str, ...]:
    """List the abilities of a program for a consent prompt: `exec (2)`, `session (3)`, `gate (1)`, `use (2)`, the
    permissions of its agents beyond reading the workspace, and their memories. Empty if it only computes."""
    counts = dict.fromkeys((tree.Exec, tree.Session, tree.Gate, tree.Use), 0)
    granted: dict[str, None] = {}
    memories: dict[str, None] = {}
    for node in walk(program):
        kind = tree.Session if isinstance(node, tree.Resume) else type(node)
        if kind in counts:
            counts[kind] += 1
        elif isinstance(node, tree.Permissions):
            granted.update({entry.name.id: None for entry in node.entries if entry.value != Name("deny")})
        elif isinstance(node, tree.Agent) and (scope := persistence(node)) not in (None, "true"):
            memories[scope if scope in ("project", "user") else json.dumps(scope, ensure_ascii=False)] = None
    found = [f"{kind.__name__.lower()} ({count})" for kind, count in counts.items() if count]
    found += [f"permissions: {' '.join(sorted(granted))}"] if granted else []
    return tuple(found + ([f"memory: {' '.join(sorted(memories))}"] if memories else []))


# ---------------------------------------------------------------- import paths

_REGISTRY = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)+")
_NAME = re.compile(NAME)

PathPlace = Literal["local", "remote", "bad"]


def place_of(path: str, profile: Profile = "default") -> PathPlace:
    """Classify a `use` path by the first match in the table of 6.1, without reading files; `bad` is E012."""
    if path.startswith(("http://", "https://")):
        return "remote" if len(path.partition("//")[2]) > 0 else "bad"
    if path.startswith("@"):
        handle, slash, rest = path[1:].partition("/")
        return "remote" if handle and slash and rest else "bad"
    if path.startswith(("./", "../", "/", "~/")):
        return "local"
    if path.endswith((".prose", ".prose.md")) and (profile != "strict" or "/" not in path):
        return "local"
    if _REGISTRY.fullmatch(path) or (profile == "strict" and path.endswith(".prose")):
        return "remote"
    return "bad" if "/" in path else "local"


def slug(path: str) -> str | None:
    """Return the alias of an import without `as`: the last path part without extension; None if it isn't a name."""
    last = path.split("?")[0].split("#")[0].rstrip("/").rpartition("/")[2].lstrip("@")
    stem = last.removesuffix(".prose.md")
    if stem == last and "." in last:
        stem = last.rpartition(".")[0]
    return stem if _NAME.fullmatch(stem) else None


def local_name(use: tree.Use) -> str | None:
    """Return the name of an import in its program: the alias, or the `slug` of the path."""
    return use.alias.id if use.alias is not None else slug(use.path.raw)


def uses_of(program: tree.Program) -> dict[str, str]:
    """Map the names of a program's imports to their paths."""
    used = ((local_name(item), item.path.raw) for item in program.items if isinstance(item, tree.Use))
    return {alias: path for alias, path in used if alias}


# ---------------------------------------------------------------- walking

_INNER_FIELDS: Final[dict[type[Node], tuple[str, ...]]] = {
    **fields_with("Body|Statement|Arm|Branch|Option|Catch|PipeOperation", kinds_in(tree)),
    **dict.fromkeys((tree.ExpressionStatement, tree.Let, tree.Assign, tree.Output, tree.Return), ("value",)),
}
"""For each kind of node, its fields that hold statements, clauses or compounds."""
_BIND_NOTHING: Final = (tree.Append, tree.Block, tree.Stage)
"""Nodes whose names refer to variables or definitions, and don't bind any."""
_NO_VARIABLES: Final = (tree.Argument, tree.Property, tree.Member, tree.Agent, tree.Gate, tree.Index)


def _output_names(statement: Statement, *, anonymous: bool) -> Iterator[str]:
    """Yield the names of the outputs of one statement; with `anonymous`, also those of a statement that ends the
    program: `return`, or `output` without a name (3.16)."""
    if isinstance(statement, tree.Output) and statement.name is not None:
        yield statement.name.id
    elif anonymous and isinstance(statement, (tree.Output, tree.Return)) and statement.value is not None:
        if isinstance(statement.value, tree.Object):
            yield from (entry.key for entry in statement.value.entries)
        else:
            yield "result"


def _statements(body: Iterable[Statement], *, blocks: bool = False) -> Iterator[Statement]:
    """Yield all statements below `body` in source order, including those of blocks only with `blocks`."""
    for node in _walk(body, blocks=blocks):
        if isinstance(node, tree.Statement):
            yield node


def _walk(body: Iterable[Statement], *, blocks: bool = False) -> Iterator[Node]:
    """Yield the statements, clauses and compounds below `body` in source order, inside blocks only with `blocks`."""
    return descendants(body, _INNER_FIELDS, () if blocks else (tree.Block,))


def names_bound(node: Node) -> Iterator[str]:
    """Yield the names that a node itself binds, including temporary ones."""
    if isinstance(node, tree.PipeOperation):
        yield "item"
    if isinstance(node, _NO_VARIABLES):
        return
    for part in ("name", "names", "variable", "item", "index", "parameters"):
        value = getattr(node, part, None)
        for name in value if isinstance(value, tuple) else (value,):
            if isinstance(name, Name):
                yield name.id
