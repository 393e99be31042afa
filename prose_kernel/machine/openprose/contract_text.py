"""A node of a contract file while it runs: its inputs, its script or its one session, its result and promises
(docs/reference/prose-md.md 3.3, 4, 5, 8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from prose_kernel.errors import (
    ContractError,
    ImportProgramError,
    InputError,
    RunError,
    SessionError,
    ThrowError,
    UsageError,
    ValueTypeError,
)
from prose_kernel.language.contracts import PRIOR
from prose_kernel.language.contracts.checks import provided
from prose_kernel.language.contracts.compile import ContractProgram
from prose_kernel.language.contracts.described import GIVES, TAKES
from prose_kernel.language.contracts.interface import needs_in_words, truth_names
from prose_kernel.language.contracts.tree import NOTEBOOK, Item
from prose_kernel.language.contracts.units import Unit
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.contracts import CallInput, ScriptSource
from prose_kernel.machine.openprose.bindings import bind, supplied
from prose_kernel.machine.openprose.calls import CallRequest, checked_outputs, result_of, run_script
from prose_kernel.machine.openprose.code import compile_statement
from prose_kernel.machine.openprose.contract_promises import check_promises
from prose_kernel.machine.openprose.frames import Temp
from prose_kernel.machine.openprose.program_context import AgentEntry, ProgramContext
from prose_kernel.machine.openprose.programs import keep_texts
from prose_kernel.machine.openprose.sessions import Rendering, run_session
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import FoundRun, SessionResult
from prose_kernel.runtime.structured_text import json_in
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Reference, Value, inserted_text

_ERROR_LINE: Final = re.compile(r"#[ \t]*Error:[ \t]*([^\n]*?)[ \t]*(?:\n|\Z)")
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]+|^\.+")
_PERSIST: Final = frozenset(["true", "project", "user"])


async def run_contract(s: ProgramContext, program: ContractProgram) -> Value:
    """Run the node of a file: the root of a run, or a program that another one imports."""
    s.run.begin(program)
    unit = program.node
    s.source = unit.file.source
    await call(keep_texts(s, program.texts()))
    if not unit.has_script:
        s.path = f"{s.path}/{s.run.next_statement()}"
    here = _here(unit)
    if unit.node.kind in ("responsibility", "gateway") and not s.run.program:
        _say_once(s, unit, here)
    inputs = await call(_inputs(s, unit))
    value = await call(render_node(s, unit, CallRequest(unit.target(), inputs)))
    for name, part in results(unit, value).items():
        s.layer.outputs[name] = bind(s, s.layer, name, "output", part, here, None)
    return value


def _say_once(s: ProgramContext, unit: Unit, here: tree.Node) -> None:
    """One line: what a render of a node that others would wake is, and is not (5)."""
    words = ["this is one render: it isn't woken again, and nothing is compared, signed or published"]
    if open_needs := needs_in_words(unit.node):
        lines = ", ".join(str(unit.file.source.line_column(item.span.start)[0]) for item in open_needs)
        words.append(f"needs in words cannot be supplied (line {lines})")
    s.warn("note", "; ".join(words), here)


# ---------------------------------------------------------------- inputs


async def _inputs(s: ProgramContext, unit: Unit) -> dict[str, Value]:
    """The values of a node's inputs by name; those that are missing are asked for. Raises E212, E232."""
    found: dict[str, Value] = {}
    for one in unit.contract.inputs:
        item = unit.node.item(one.name, TAKES)
        node = _input(unit, one, item)
        value = supplied(s, one.name)
        if value is None and one.optional:
            value = one.default
        elif value is None:
            value = await call(_asked(s, unit, node, one.name))
        found[one.name] = value if s.run.program else _given_run(s, unit, one.name, value, node)
    return found


def _given_run(s: ProgramContext, unit: Unit, name: str, value: Value, node: tree.Node) -> Value:
    """At the root of a run, a run that cannot be used is an error of usage."""
    try:
        return _with_run(s, unit, name, value, node)
    except ContractError as problem:
        raise UsageError(f"--input {name}: {problem.message} [{problem.code}]", hint=problem.hint) from None


async def _asked(s: ProgramContext, unit: Unit, node: tree.Input, name: str) -> Value:
    try:
        return await call(compile_statement(node, True).run(s))
    except InputError as error:
        if (maker := _maker(unit, name)) is not None:
            error.hint = f"`{maker}` maintains it: prose run {maker}, then --input {name}=VALUE"
        raise


def _maker(unit: Unit, name: str) -> str | None:
    """The node of the same file that maintains a need (5)."""
    file = unit.file
    for other in file.units:
        if other is not unit and any(one.name == name for one in other.contract.outputs):
            return f"{file.source.name}#{other.name}" if other.node.inline else file.source.name
    return None


def _input(unit: Unit, one: CallInput, item: Item | None) -> tree.Input:
    """The question for an input that was not given."""
    span = item.head if item is not None else unit.node.heading
    words = item.text if item is not None else ""
    return tree.Input(tree.Name(one.name, span=span), _text(words or one.name), span=span)


def _text(words: str) -> tree.Text:
    return tree.Text((words,) if words else ())


def _here(unit: Unit) -> tree.Node:
    return tree.Constant(None, span=unit.node.heading)


# ---------------------------------------------------------------- one render


async def render_node(
    s: ProgramContext,
    unit: Unit,
    given: CallRequest,
    script: ScriptSource | None = None,
    values: Mapping[str, Value] | None = None,
) -> Value:
    """Render a node in a run of its own: check the machine, bind its inputs, run its script or ask its session.

    `script` and `values` are those of an instance of a pattern. Returns what the script returned, or the answer.
    """
    s.source = unit.file.source
    s.statement = here = _here(unit)
    try:
        _check_machine(s, unit, here)
        s.run.model = given.model or _runtime(unit).get("model") or None
        s.run.timeout = given.timeout
        for name, value in given.inputs.items():
            node = _named(unit, name)
            bind(s, s.layer, name, "input", _with_run(s, unit, name, value, node), node, None)
        if unit.has_script:
            compiled = unit.compiled
            if not compiled.ok:
                first = next(one for one in compiled.diagnostics if one.severity == "error")
                raise ImportProgramError(f"'{unit.name}' has errors: line {first.line}: {first.message} [{first.code}]")
            starts = _prior(s, unit) if values is None else values
            value = await call(run_script(s, compiled.program, script or cast("ScriptSource", compiled.source), starts))
            s.source, s.statement = unit.file.source, here
        else:
            value = await call(_session(s, unit, given, here))
        if unit.node.kind != "pattern":
            await call(check_promises(s, unit, _given_results(s, unit, value)))
    except RunError as error:
        if s.host.preview is None:
            await s.failing(error, here)
        raise
    return value


def _with_run(s: ProgramContext, unit: Unit, name: str, value: Value, node: tree.Node) -> Value:
    """The value of an input; of one that is a completed run what is known of that (1.6). Raises E232."""
    if name not in unit.contract.runs or not isinstance(value, str | Reference) or s.host.preview is not None:
        return value
    many = unit.contract.runs[name]
    wanted = [one.strip() for one in inserted_text(value).split(",")] if many else [inserted_text(value).strip()]
    found = [_found_run(s, one, node) for one in wanted if one]
    return found if many else found[0] if found else None


def _found_run(s: ProgramContext, wanted: str, node: tree.Node) -> Value:
    find = s.host.find_run
    if find is None:
        raise located(s, ContractError(f"no runs are known here: '{wanted}'", code="E232"), node)
    try:
        found = s.note(f"{s.path}/r{s.count('run')}", FoundRun, partial(find, wanted))
    except UsageError as problem:
        raise located(s, ContractError(str(problem), code="E232", hint=problem.hint), node) from None
    for note in found.notes:
        s.warn("note", note, node)
    return dict(found.value)


def _prior(s: ProgramContext, unit: Unit) -> dict[str, Value]:
    """The prior truth as it was given (5)."""
    names = truth_names(unit.node) if unit.node.kind in ("responsibility", "gateway") else ()
    return {name: supplied(s, f"{PRIOR}{name}") for name in names}


def _named(unit: Unit, name: str) -> tree.Node:
    item = unit.node.item(name, TAKES)
    return tree.Name(name, span=item.head if item is not None else unit.node.heading)


def _runtime(unit: Unit) -> dict[str, str]:
    return {name: item.text.strip("`\"'") for item in unit.node.items("Runtime") for name in item.names}


# ---------------------------------------------------------------- the machine


def _check_machine(s: ProgramContext, unit: Unit, here: tree.Node) -> None:
    """Raise E233 or E234 for a tool or a variable that is not here (8)."""
    library = unit.file.files.library
    if not s.host.needs_checked or library is None or s.host.preview is not None:
        return
    for item in unit.node.items("Tools"):
        for tool in provided(item):
            kind, _, name = tool.partition(":")
            if kind == "cli" and not s.note(f"{s.path}/t{s.count('tool')}", bool, partial(library.has_tool, name)):
                raise located(s, SessionError(f"the tool '{tool}' is not on this machine", code="E233"), here)
    for item in unit.node.items("Environment"):
        for name in item.names if not item.optional else ():
            if not s.note(f"{s.path}/v{s.count('variable')}", bool, partial(library.has_variable, name)):
                message = f"the environment variable '{name}' is not set"
                raise located(s, SessionError(message, code="E234"), here)


# ---------------------------------------------------------------- the session


async def _session(s: ProgramContext, unit: Unit, given: CallRequest, here: tree.Node) -> Value:
    """The answer of the one session that renders a node (4.1 to 4.3)."""
    contract = unit.contract
    s.temps = {**s.temps, **{name: Temp(value, "input") for name, value in given.extra.items()}}
    names = [one.name for one in contract.inputs if not (one.optional and given.inputs.get(one.name) is None)]
    schema, agent = _output(unit), _agent(s, unit)
    names += [name for name in given.extra if name not in names]
    task = Task(task_of(unit, given.prompt), names, schema, unit, agent)
    value = await call(ask_session(s, task, given, here))
    if schema is None or not isinstance(value, Reference):
        return value
    data = json_in(value.read())
    if not isinstance(data, dict):
        return value
    found = cast("dict[str, Value]", data)
    return found if len(contract.outputs) > 1 else found.get(contract.outputs[0].name)


@dataclass(frozen=True, slots=True)
class Task:
    """What a session is asked: its text, the names whose values it gets, the type of its answer; of a node also the
    agent with its skills and memory."""

    text: str
    names: Sequence[str]
    schema: tree.Object | None = None
    unit: Unit | None = None
    agent: tree.Name | None = None


async def ask_session(s: ProgramContext, task: Task, given: CallRequest, here: tree.Node) -> Value:
    """One session; `here` is its place."""
    span, unit, agent = here.span, task.unit, task.agent
    entries = tuple(tree.Entry(name, tree.Name(name, span=span), span=span) for name in task.names)
    properties = [tree.Property(tree.Name("context"), tree.Object(entries, span=span), span=span)]
    if task.schema is not None:
        properties.append(tree.Property(tree.Name("output"), task.schema, span=span))
    title = tree.Text((task.text,), span=span)
    node: tree.Session | tree.Resume
    if unit is not None and agent is not None and _remembers(s, unit):
        prompt = tree.Property(tree.Name("prompt"), title, span=span)
        node = tree.Resume(agent, (*properties, prompt), span=span)
    else:
        node = tree.Session(title, None, agent, tuple(properties), span=span)
    changes: dict[str, Any] = {"model": given.model} if given.model else {}
    if given.timeout is not None:
        changes["timeout"] = given.timeout
    inspect = None if unit is None else partial(_raise_declared, unit)
    return await call(run_session(s, node, None, Rendering(given.context or (), changes, inspect)))


def task_of(unit: Unit, prompt: str | None) -> str:
    """The task of a node's session, exactly as 4.1 says."""
    node, text = unit.node, unit.file.source.text
    own = text[node.span.start : node.span.end]
    for fence in reversed(unit.file.contract.blocks):
        if fence.kind == "fence" and fence.text == NOTEBOOK and node.span.start <= fence.span.start < node.span.end:
            at = fence.span.start - node.span.start
            own = own[:at] + own[at + fence.span.end - fence.span.start :].lstrip("\n")
    parts = [f"Render the {node.kind} {node.name}.", own.strip()]
    return "\n\n".join([*parts, prompt] if prompt else parts)


def _output(unit: Unit) -> tree.Object | None:
    """The property `output` of a session whose answer is typed."""
    contract = unit.contract
    if contract.schema() is None:
        return None
    entries = []
    for one in contract.outputs:
        kind: tree.Expression = tree.Name(contract.types.get(one.name, "text"))
        if one.optional:
            kind = tree.Logical("or", (kind, tree.Constant(None)))
        entries.append(tree.Entry(one.name, kind))
    return tree.Object(tuple(entries), span=unit.node.heading)


def _agent(s: ProgramContext, unit: Unit) -> tree.Name | None:
    """An agent with the skills, the memory and the declared errors of the node; None where it has none of these."""
    span = unit.node.heading
    skills = [text for item in unit.node.items("Skills") for text in provided(item)]
    persist = _runtime(unit).get("persist", "")
    properties = []
    if unit.contract.errors:
        properties.append(tree.Property(tree.Name("prompt"), _text(_how_to_fail(unit)), span=span))
    if skills:
        array = tree.Array(tuple(tree.Text((text,)) for text in skills))
        properties.append(tree.Property(tree.Name("skills"), array, span=span))
    if persist in _PERSIST:
        value = tree.Constant(True) if persist == "true" else tree.Name(persist)
        properties.append(tree.Property(tree.Name("persist"), value, span=span))
    if not properties:
        return None
    name = _agent_name(unit)
    s.run.agents[name] = AgentEntry(tree.Agent(tree.Name(name), tuple(properties), span=span), s.source)
    return tree.Name(name, span=span)


def _agent_name(unit: Unit) -> str:
    """The node's name as that of an agent, whose memory is a directory of this name."""
    return _NOT_IN_NAMES.sub("_", unit.name)


def _how_to_fail(unit: Unit) -> str:
    names = ", ".join(unit.contract.errors)
    return (
        "If one of the declared errors applies, reply with a first line `# Error: NAME` and what happened below it, "
        f"and with nothing else. NAME is one of: {names}."
    )


def _remembers(s: ProgramContext, unit: Unit) -> bool:
    """Whether the node's session has a memory to go on with."""
    persist, store = _runtime(unit).get("persist", ""), s.run.store
    if persist not in _PERSIST:
        return False
    return s.note(f"{s.path}/a{s.count('memory')}", bool, lambda: store.has_memory(_agent_name(unit), persist))


def _raise_declared(unit: Unit, result: SessionResult) -> None:
    """Raise the declared error that an answer is (4.3)."""
    if not unit.contract.errors or result.text is None:
        return
    found = declared_error(result.text, unit.contract.errors)
    if found is not None:
        raise found


def declared_error(text: str, names: Sequence[str]) -> RunError | None:
    """The error that a reply names, if the node declares it."""
    text = text.strip()
    if (line := _ERROR_LINE.match(text)) and line[1] in names:
        return ThrowError(" ".join(text[line.end() :].split()) or line[1], details={"name": line[1]})
    data = json_in(text) if text.startswith("{") else None
    if isinstance(data, dict) and data.get("error") in names:
        name, fields = (
            str(data["error"]),
            {key: value for key, value in data.items() if key not in ("error", "message")},
        )
        return ThrowError(str(data.get("message") or name), details={**fields, "name": name})
    return None


# ---------------------------------------------------------------- results


def _given_results(s: ProgramContext, unit: Unit, value: Value) -> dict[str, Value]:
    """The outputs by name; one that is missing is an error at its bullet."""
    try:
        return results(unit, value)
    except ValueTypeError as error:
        given = value if isinstance(value, dict) else dict.fromkeys(one.name for one in unit.contract.outputs)
        lacks = next((one.name for one in unit.contract.outputs if not one.optional and one.name not in given), "")
        item = unit.node.item(lacks, GIVES)
        raise located(s, error, _here(unit) if item is None else tree.Name(lacks, span=item.head)) from None


def results(unit: Unit, value: Value) -> dict[str, Value]:
    """The outputs of a run by name (2, 3.6): one without a declared name is called `result`. Raises E230."""
    outputs = unit.contract.outputs
    if not outputs:
        return {"result": value}
    if len(outputs) == 1:
        return {outputs[0].name: result_of(unit.target(), value)}
    if unit.node.kind != "function":
        found = value if isinstance(value, dict) else None
        return {one.name: found[one.name] for one in outputs if one.name in found} if found else {"result": value}
    return checked_outputs(unit.name, outputs, value)
