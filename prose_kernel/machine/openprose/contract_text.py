"""Runs a node of a contract file: its inputs, its script or its one session, its result and promises. Also renders the
targets of calls: nodes, instances of patterns, helpers, `.prose` programs (docs/reference/prose-md.md 3.3 to 6, 8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from prose_kernel.errors import (
    ContractError,
    ImportProgramError,
    InputError,
    RunError,
    SessionError,
    ThrowError,
    Undecided,
    UsageError,
    ValueTypeError,
)
from prose_kernel.language.contracts import PRIOR
from prose_kernel.language.contracts.checks import provided
from prose_kernel.language.contracts.compile import ContractProgram
from prose_kernel.language.contracts.interface import INPUT_SECTIONS, OUTPUT_SECTIONS, Promise, promises_of
from prose_kernel.language.contracts.targets import BoundInstance, Helper, ProgramTarget
from prose_kernel.language.contracts.tree import NOTEBOOK
from prose_kernel.language.contracts.units import Unit
from prose_kernel.language.diagnostics import first_error
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import CallTarget, ScriptSource
from prose_kernel.language.openprose.checker import free_inputs
from prose_kernel.language.structs import replace
from prose_kernel.language.text import as_argument
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.bindings import bind, supplied
from prose_kernel.machine.openprose.calls import CallRequest, checked_outputs, result_of, run_script
from prose_kernel.machine.openprose.code import compile_statement
from prose_kernel.machine.openprose.frames import Temp
from prose_kernel.machine.openprose.program_context import AgentEntry, ProgramContext
from prose_kernel.machine.openprose.program_text import any_call_of
from prose_kernel.machine.openprose.programs import in_program, keep_texts, nested_context, program_at, run_program
from prose_kernel.machine.openprose.sessions import Rendering, run_session
from prose_kernel.runtime.events import ProgramCalled
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import FoundRun, SessionResult, Verdict
from prose_kernel.runtime.structured_text import json_in
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Reference, Value, inserted_text

_ERROR_LINE: Final = re.compile(r"#[ \t]*Error:[ \t]*([^\n]*?)[ \t]*(?:\n|\Z)")
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]+|^\.+")
_NEVER_CHECKED: Final = re.compile(r"(?:if|when|each)\b", re.IGNORECASE)
"""Matches the beginning of promises that hold only under a condition."""
_HOW_TO_FAIL: Final = (
    "If one of the declared errors applies, reply with a first line `# Error: NAME` and what happened below it, "
    "and with nothing else. NAME is one of: {}."
)
_PERSIST: Final = frozenset(["true", "project", "user"])


async def run_contract(s: ProgramContext, program: ContractProgram) -> Value:
    """Run the node of a file, as the root of a run or as an imported program."""
    s.run.begin(program)
    unit = program.node
    s.source = unit.file.source
    await call(keep_texts(s, program.texts()))
    if not unit.has_script:
        s.path = f"{s.path}/{s.run.next_statement()}"
    here = _heading_node(unit)
    if unit.node.kind in ("responsibility", "gateway") and not s.run.program:
        _warn_single_render(s, unit, here)
    inputs = await call(_inputs(s, unit))
    value = await call(render_node(s, unit, CallRequest(unit.target(), inputs)))
    for name, part in results(unit, value).items():
        s.layer.outputs[name] = bind(s, s.layer, name, "output", part, here, None)
    return value


def _warn_single_render(s: ProgramContext, unit: Unit, here: tree.Node) -> None:
    """Warn that a node which is meant to be woken repeatedly is rendered only once (5)."""
    words = ["this is one render: it isn't woken again, and nothing is compared, signed or published"]
    if in_words := [item.span.start for item in unit.node.items("Requires") if not item.names]:
        lines = ", ".join(str(unit.file.source.line_column(at)[0]) for at in in_words)
        words.append(f"needs in words cannot be supplied (line {lines})")
    s.warn("note", "; ".join(words), here)


# ---------------------------------------------------------------- inputs


async def _inputs(s: ProgramContext, unit: Unit) -> dict[str, Value]:
    """Return the values of a node's inputs by name, and ask for missing ones. Raises E212, E232."""
    found: dict[str, Value] = {}
    for one in unit.contract.inputs:
        value = supplied(s, one.name)
        if value is None:
            value = one.default if one.optional else await call(_ask_for_input(s, unit, one.name))
        try:
            found[one.name] = value if s.run.program else _with_run(s, unit, one.name, value)
        except ContractError as problem:  # a usage error at the root of a run
            message = f"--input {one.name}: {problem.message} [{problem.code}]"
            raise UsageError(message, hint=problem.hint) from None
    return found


async def _ask_for_input(s: ProgramContext, unit: Unit, name: str) -> Value:
    """Return the answer to the question for an input that was not given."""
    item, place = unit.node.item(name, INPUT_SECTIONS), _declaring_name(unit, name)
    words = tree.Text((item.text if item is not None and item.text else name,))
    try:
        return await call(compile_statement(tree.Input(place, words, span=place.span), True).run(s))
    except InputError as error:
        if (maker := _maintainer(unit, name)) is not None:
            error.hint = f"`{maker}` maintains it: prose run {as_argument(maker)}, then --input {name}=VALUE"
        raise


def _maintainer(unit: Unit, name: str) -> str | None:
    """Return the node of the same file that maintains a needed value (5), or None."""
    file = unit.file
    for other in file.units:
        if other is not unit and any(one.name == name for one in other.contract.outputs):
            return f"{file.source.name}#{other.name}" if other.node.inline else file.source.name
    return None


def _heading_node(unit: Unit) -> tree.Node:
    return tree.Constant(None, span=unit.node.heading)


def _declaring_name(unit: Unit, name: str, sections: Sequence[str] = INPUT_SECTIONS) -> tree.Name:
    """Return a name node at the bullet that declares the name."""
    item = unit.node.item(name, sections)
    return tree.Name(name, span=item.head if item is not None else unit.node.heading)


# ---------------------------------------------------------------- one render


async def render_node(
    s: ProgramContext,
    unit: Unit,
    given: CallRequest,
    script: ScriptSource | None = None,
    values: Mapping[str, Value] | None = None,
) -> Value:
    """Render a node in its own run: check the machine, bind its inputs, run its script or ask its session.

    `script` and `values` belong to an instance of a pattern. Returns the value of the script, or the answer.
    """
    s.source = unit.file.source
    s.statement = here = _heading_node(unit)
    try:
        _check_machine(s, unit, here)
        s.run.model = given.model or _runtime(unit).get("model") or None
        s.run.timeout = given.timeout
        for name, value in given.inputs.items():
            bind(s, s.layer, name, "input", _with_run(s, unit, name, value), _declaring_name(unit, name), None)
        if unit.has_script:
            compiled = unit.compiled
            if not compiled.ok:
                raise ImportProgramError(f"'{unit.name}' has errors: {first_error(compiled.diagnostics)}")
            starts = values
            if starts is None:  # prior truth that was supplied as inputs (5)
                starts = {name: supplied(s, f"{PRIOR}{name}") for name in unit.truth}
            value = await call(run_script(s, compiled.program, script or cast("ScriptSource", compiled.source), starts))
            s.source, s.statement = unit.file.source, here
        else:
            value = await call(_session(s, unit, given, here))
        if unit.node.kind != "pattern":
            await call(_check_promises(s, unit, _located_results(s, unit, value)))
    except RunError as error:
        if s.host.preview is None:
            await s.announce_with_hook(error, here)
        raise
    return value


def _with_run(s: ProgramContext, unit: Unit, name: str, value: Value) -> Value:
    """Return the value of an input; for an input that is a completed run, facts about that run (1.6). Raises E232."""
    if name not in unit.contract.runs or not isinstance(value, str | Reference) or s.host.preview is not None:
        return value
    many, text, node = unit.contract.runs[name], inserted_text(value), _declaring_name(unit, name)
    found = [_found_run(s, one.strip(), node) for one in (text.split(",") if many else [text]) if one.strip()]
    return found if many else found[0] if found else None


def _found_run(s: ProgramContext, wanted: str, node: tree.Node) -> Value:
    find = s.host.find_run
    if find is None:
        raise located(s, ContractError(f"no runs are known here: '{wanted}'", code="E232"), node)
    try:
        found = s.note(s.at("run"), FoundRun, partial(find, wanted))
    except UsageError as problem:
        raise located(s, ContractError(str(problem), code="E232", hint=problem.hint), node) from None
    for note in found.notes:
        s.warn("note", note, node)
    return dict(found.value)


def _runtime(unit: Unit) -> dict[str, str]:
    return {name: item.text.strip("`\"'") for item in unit.node.items("Runtime") for name in item.names}


def _check_machine(s: ProgramContext, unit: Unit, here: tree.Node) -> None:
    """Raise E233 or E234 for a needed tool or environment variable that this machine does not have (8)."""
    library = unit.file.files.library
    if not s.host.needs_checked or library is None or s.host.preview is not None:
        return
    for item in unit.node.items("Tools"):
        for tool in provided(item):
            kind, _, name = tool.partition(":")
            if kind == "cli" and not s.note(s.at("tool"), bool, partial(library.has_tool, name)):
                raise located(s, SessionError(f"the tool '{tool}' is not on this machine", code="E233"), here)
    for item in unit.node.items("Environment"):
        for name in item.names if not item.optional else ():
            if not s.note(s.at("variable"), bool, partial(library.has_variable, name)):
                message = f"the environment variable '{name}' is not set"
                raise located(s, SessionError(message, code="E234"), here)


# ---------------------------------------------------------------- the session


async def _session(s: ProgramContext, unit: Unit, given: CallRequest, here: tree.Node) -> Value:
    """Return the answer of the one session that renders a node (4.1 to 4.3)."""
    contract = unit.contract
    s.temps = {**s.temps, **{name: Temp(value, "input") for name, value in given.extra.items()}}
    names = [one.name for one in contract.inputs if not (one.optional and given.inputs.get(one.name) is None)]
    names += [name for name in given.extra if name not in names]
    schema, task = _output(unit), task_of(unit, given.prompt)
    value = await call(ask_session(s, task, names, given, here, schema, unit))
    if schema is None or not isinstance(value, Reference):
        return value
    data = json_in(value.read())
    if not isinstance(data, dict):
        return value
    found = cast("dict[str, Value]", data)
    return found if len(contract.outputs) > 1 else found.get(contract.outputs[0].name)


async def ask_session(
    s: ProgramContext,
    task: str,
    names: Sequence[str],
    given: CallRequest,
    here: tree.Node,
    schema: tree.Object | None = None,
    unit: Unit | None = None,
) -> Value:
    """Ask one session at the place `here` with the values of `names`. With `unit` it has the node's skills and
    memory."""
    span, agent = here.span, None if unit is None else _agent(s, unit)
    entries = tuple(tree.Entry(name, tree.Name(name, span=span), span=span) for name in names)
    properties = [tree.Property(tree.Name("context"), tree.Object(entries, span=span), span=span)]
    if schema is not None:
        properties.append(tree.Property(tree.Name("output"), schema, span=span))
    title = tree.Text((task,), span=span)
    node: tree.Session | tree.Resume
    if unit is not None and agent is not None and _remembers(s, unit, agent):
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
    """Return the task of a node's session, as specified in 4.1."""
    node, text = unit.node, unit.file.source.text
    own = text[node.span.start : node.span.end]
    for fence in reversed(unit.file.contract.blocks):
        if fence.kind == "fence" and fence.text == NOTEBOOK and node.span.start <= fence.span.start < node.span.end:
            at = fence.span.start - node.span.start
            own = own[:at] + own[at + fence.span.end - fence.span.start :].lstrip("\n")
    parts = [f"Render the {node.kind} {node.name}.", own.strip()]
    return "\n\n".join([*parts, prompt] if prompt else parts)


def _output(unit: Unit) -> tree.Object | None:
    """Return the `output` property of a session with a typed answer, or None."""
    contract = unit.contract
    if not contract.is_typed:
        return None
    entries = []
    for one in contract.outputs:
        kind: tree.Expression = tree.Name(contract.types.get(one.name, "text"))
        if one.optional:
            kind = tree.Logical("or", (kind, tree.Constant(None)))
        entries.append(tree.Entry(one.name, kind))
    return tree.Object(tuple(entries), span=unit.node.heading)


def _agent(s: ProgramContext, unit: Unit) -> tree.Name | None:
    """Return an agent with the node's skills, memory and declared errors; None if it has none of these."""
    span = unit.node.heading
    skills = [text for item in unit.node.items("Skills") for text in provided(item)]
    persist = _runtime(unit).get("persist", "")
    properties = []
    if unit.contract.errors:
        how = _HOW_TO_FAIL.format(", ".join(unit.contract.errors))
        properties.append(tree.Property(tree.Name("prompt"), tree.Text((how,)), span=span))
    if skills:
        array = tree.Array(tuple(tree.Text((text,)) for text in skills))
        properties.append(tree.Property(tree.Name("skills"), array, span=span))
    if persist in _PERSIST:
        value = tree.Constant(True) if persist == "true" else tree.Name(persist)
        properties.append(tree.Property(tree.Name("persist"), value, span=span))
    if not properties:
        return None
    name = tree.Name(_NOT_IN_NAMES.sub("_", unit.name), span=span)  # memory is a directory of this name
    s.run.agents[name.id] = AgentEntry(tree.Agent(name, tuple(properties), span=span), s.source)
    return name


def _remembers(s: ProgramContext, unit: Unit, agent: tree.Name) -> bool:
    """Return whether the node's session can continue with a memory."""
    persist, store = _runtime(unit).get("persist", ""), s.run.store
    if persist not in _PERSIST:
        return False
    return s.note(s.at("memory"), bool, lambda: store.has_memory(agent.id, persist))


def _raise_declared(unit: Unit, result: SessionResult) -> None:
    """Raise the declared error that an answer reports (4.3)."""
    names, text = unit.contract.errors, (result.text or "").strip()
    if (line := _ERROR_LINE.match(text)) and line[1] in names:
        raise ThrowError(" ".join(text[line.end() :].split()) or line[1], details={"name": line[1]})
    data = json_in(text) if names and text.startswith("{") else None
    if isinstance(data, dict) and data.get("error") in names:
        name = str(data.pop("error"))
        message = str(data.pop("message", None) or name)
        raise ThrowError(message, details={**data, "name": name})


# ---------------------------------------------------------------- results


def _located_results(s: ProgramContext, unit: Unit, value: Value) -> dict[str, Value]:
    """Return the outputs by name. The error for a missing one is located at its bullet."""
    try:
        return results(unit, value)
    except ValueTypeError as error:
        given = value if isinstance(value, dict) else dict.fromkeys(one.name for one in unit.contract.outputs)
        lacks = next((one.name for one in unit.contract.outputs if not one.optional and one.name not in given), "")
        raise located(s, error, _declaring_name(unit, lacks, OUTPUT_SECTIONS)) from None


def results(unit: Unit, value: Value) -> dict[str, Value]:
    """Return the outputs of a run by name (2, 3.6). A value without a declared name is called `result`. Raises E230."""
    outputs = unit.contract.outputs
    if not outputs:
        return {"result": value}
    if len(outputs) == 1:
        return {outputs[0].name: result_of(unit.target(), value)}
    if unit.node.kind != "function":
        found = value if isinstance(value, dict) else None
        return {one.name: found[one.name] for one in outputs if one.name in found} if found else {"result": value}
    return checked_outputs(unit.name, outputs, value)


# ---------------------------------------------------------------- promises


async def _check_promises(s: ProgramContext, unit: Unit, outputs: dict[str, Value]) -> None:
    """Raise E231 for a broken promise about an output. Warn about a broken invariant."""
    mode = s.host.contracts
    if mode == "off" or s.host.preview is not None:
        return
    for promise in promises_of(unit.node):
        is_about_result = not promise.name or promise.name in outputs
        if not is_about_result or not promise.text or _NEVER_CHECKED.match(promise.text):
            continue
        if await call(_verdict(s, promise, outputs, by_rules=mode == "rules")) is not False:
            continue
        node = tree.Constant(None, span=promise.item.head)
        if promise.name:
            message = f"`{unit.name}` breaks its promise about `{promise.name}`: {promise.text}"
            raise located(s, ContractError(message, code="E231", details={"promise": promise.condition}), node)
        s.warn("E231", f"`{unit.name}` breaks its invariant: {promise.text}", node)


async def _verdict(s: ProgramContext, promise: Promise, outputs: dict[str, Value], *, by_rules: bool) -> bool | None:
    """Return whether a promise is kept; None if that is uncertain or cannot be decided."""
    request = judging.request_about(s, promise.condition, s.at("judge"))
    bindings = {**request.bindings, **outputs}
    request = replace(request, bindings=bindings, by_rules=by_rules)
    await s.flush()
    await s.admitted()
    try:
        verdict = await s.ask(request, Verdict, lambda: s.host.ports.judge.decide(request))
    except Undecided:
        return None
    return verdict.answer


# ---------------------------------------------------------------- targets of calls


async def render(s: ProgramContext, node: tree.Node, request: CallRequest) -> Value:
    """Make one attempt at the call `node`. Returns the value of the script, or the answer of the session; the caller
    checks for missing outputs (E230). The target runs in its own run below the caller, with its name at the end of
    `module`. Raises a `RunError` if it fails.
    """
    match request.target.unit:
        case Unit() as unit:
            return await call(_in_own_run(s, node, request, unit))
        case BoundInstance() as bound:
            return await call(_instance(s, node, request, bound))
        case Helper() as helper:
            return await call(_helper(s, node, request, helper))
        case ProgramTarget() as program:
            entry = await call(program_at(s, node, program.address, program.name))
            supplied = {name: value for name, value in request.inputs.items() if name in request.given}
            return cast("Value", await call(run_program(s, node, entry, supplied, any_call_of)))
        case other:
            raise TypeError(f"no target of calls: {other!r}")


async def _instance(s: ProgramContext, node: tree.Node, request: CallRequest, bound: BoundInstance) -> Value:
    """Run the Delegation of a pattern in a separate frame, with its slots bound."""
    pattern, source = bound.pattern, bound.source
    values: dict[str, Value] = {slot: _slot_value(target) for slot, target in bound.slots.items()}
    values.update(dict.fromkeys(free_inputs(pattern.compiled.program, source)))
    values |= {"config": dict(bound.config), **bound.config, **request.inputs, **request.extra}
    return await call(_in_own_run(s, node, replace(request, inputs={}, extra={}), pattern, source, values))


def _slot_value(target: object) -> Value:
    """Return a slot as a value: the name of its function, or a list of names."""
    if isinstance(target, list):
        return [_slot_value(one) for one in target]
    return target.name if isinstance(target, CallTarget) else None


async def _helper(s: ProgramContext, node: tree.Node, request: CallRequest, helper: Helper) -> Value:
    """Run a helper as one session in the caller's own run. Its task is the line of the Shape."""
    values = {**request.inputs, **request.extra}
    outer, s.temps = s.temps, {**s.temps, **{name: Temp(value, "input") for name, value in values.items()}}
    task = f"{helper.task}\n\n{request.prompt}" if request.prompt else helper.task
    try:
        return await call(ask_session(s, task, tuple(values), request, node))
    finally:
        s.temps = outer


async def _in_own_run(
    s: ProgramContext,
    node: tree.Node,
    request: CallRequest,
    unit: Unit,
    script: ScriptSource | None = None,
    values: Mapping[str, Value] | None = None,
) -> Value:
    """Render a node below the caller; `script` and `values` belong to an instance."""
    target, source = request.target, unit.file.source
    inner = nested_context(s, node, target.name, (unit.handle, target.name), source, "", any_call_of)
    inputs = {one.name: not one.optional for one in target.inputs}
    outputs = tuple(one.name for one in target.outputs)
    called = ProgramCalled(s.place(node), target.name, inner.run.program[-1], source.name, inputs, outputs)
    return await call(in_program(s, node, inner, called, render_node(inner, unit, request, script, values)))
