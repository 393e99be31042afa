"""`call`: targets, inputs, modifiers, attempts and results (docs/reference/prose-md.md 3.5, 3.6). Also runs a script
for a call or as the root of a run (3.3, 3.7), and stages as sessions (3.10).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from prose_kernel.errors import ImportProgramError, RunError, StoreFailed, ValueTypeError
from prose_kernel.language.durations_and_budgets import parse_duration
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import MODIFIERS, CallOutput, CallTarget, interface_of
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.machine.openprose.bindings import Destination, SpawnCode, bind
from prose_kernel.machine.openprose.code import compile_expression, expression
from prose_kernel.machine.openprose.execs import retries_of, word
from prose_kernel.machine.openprose.frames import Spawned
from prose_kernel.machine.openprose.program_context import ProgramContext, recursion_error
from prose_kernel.machine.openprose.programs import run_statements
from prose_kernel.machine.openprose.session_context import assemble
from prose_kernel.machine.openprose.sessions import model_word, run_session
from prose_kernel.runtime.attempts import Attempted, before_retry
from prose_kernel.runtime.compiled_code import Code, value_of
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import ContextItem
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.value_text import MARK
from prose_kernel.runtime.values import ExecText, Reference, Value, inserted_text

MOST_CALLS: Final = 100
"""The most nested calls of one function."""


class CallRequest(Struct, frozen=True):
    """A call with evaluated inputs.

    `inputs` has every declared input, in the order of declaration; the names in `given` were supplied by the call, the
    others have their defaults. `extra` are inputs that the target does not declare. `prompt`, `model`, `context` and
    `timeout` (seconds) are the modifiers of 3.5, or None.
    """

    target: CallTarget
    inputs: Mapping[str, Value]
    given: frozenset[str] = frozenset()
    extra: Mapping[str, Value] = field(default_factory=dict)
    prompt: str | None = None
    model: str | None = None
    context: tuple[ContextItem, ...] | None = None
    timeout: float | None = None


# ---------------------------------------------------------------- calling


@expression(tree.Call, lambda node: node.arguments)
class CallCode(Code):
    def prepare(self, node: tree.Call) -> None:
        self.entries = [(entry, compile_expression(entry.value)) for entry in node.inputs]

    async def _run(self, s: ProgramContext) -> Value:
        target = _target(s, self.node)
        if target.name in s.run.module and s.host.preview is not None:
            return unknown(target.name)
        if s.run.module.count(target.name) >= MOST_CALLS:
            raise located(s, recursion_error(target.name, MOST_CALLS, "function"), self.node)
        request = await call(self._request(s, target))
        value = await call(self._attempts(s, request))
        s.single = (value, target.outputs[0].name) if len(target.outputs) == 1 else None
        return value

    async def as_statement(self, s: ProgramContext) -> Value:
        value = await self._run(s)
        s.single = None
        if s.host.preview is None:
            s.keep_anonymous(value, self.node)
        return value

    # ---- inputs

    async def _request(self, s: ProgramContext, target: CallTarget) -> CallRequest:
        """Evaluate the inputs once and in order. Raises E026 or E027, for a slot whose target is only known now."""
        declared = {each.name: each for each in target.inputs}
        values: dict[str, Value] = {}
        for name, part in zip(declared, self.parts, strict=False):
            values[name] = await value_of(part, s)
        given: dict[str, object] = {}
        for entry, code in self.entries:
            name = entry.name.id
            if name in MODIFIERS:
                continue
            if name not in declared and target.is_modified_by(name):
                given[name] = await self._modifier(s, name, entry.value, code)
            else:
                values[name] = await value_of(code, s)
        extra = {name: value for name, value in values.items() if name not in declared}
        self._check(s, target, values, extra)
        if target.has_script and target.through_slot and extra:
            names = ", ".join(extra)
            s.warn("W140", f"`{target.name}` has no input {names}; it is dropped", self.node)
            extra = {}
        inputs = {name: values.get(name, each.default) for name, each in declared.items()}
        return CallRequest(target, inputs, frozenset(values), extra, **given)  # type: ignore[arg-type]  # by name

    async def _modifier(self, s: ProgramContext, name: str, value: tree.Node, code: Code) -> object:
        if name == "model":
            return await model_word(s, value)
        if name == "context":
            return await assemble(s, value)
        if name == "timeout":
            return parse_duration(word(value))
        return inserted_text(await value_of(code, s))

    def _check(
        self, s: ProgramContext, target: CallTarget, values: Mapping[str, Value], extra: Mapping[str, Value]
    ) -> None:
        missing = [each.name for each in target.inputs if not each.optional and each.name not in values]
        if missing:
            message = f"'{target.name}' needs a value for input '{missing[0]}'"
            raise located(s, ImportProgramError(message, code="E026"), self.node)
        if extra and not target.takes_any:
            message = f"'{target.name}' has no input '{next(iter(extra))}'"
            raise located(s, ImportProgramError(message, code="E027"), self.node)

    # ---- attempts

    async def _attempts(self, s: ProgramContext, request: CallRequest) -> Value:
        """Render the target, again after failures as `retry` allows, and check its result (3.6)."""
        retries = retries_of({entry.name.id: entry.value for entry, _ in self.entries})
        path = f"{s.path}/call{s.count('call')}"
        attempt = 0
        while True:
            try:
                return await call(self._attempt(s, request))
            except RunError as error:
                attempt += 1
                if attempt > retries.maximum or error.unanswered or isinstance(error, StoreFailed):
                    raise
                what = Attempted(self.node, s.host.next_spawn(), path)
                await before_retry(s, what, retries, attempt, why=error.message)

    async def _attempt(self, s: ProgramContext, request: CallRequest) -> Value:
        target = request.target
        if s.host.renderer is None:
            raise located(s, ImportProgramError(f"'{target.name}' cannot be called here", code="E313"), self.node)
        try:
            value = await call(s.host.renderer.render(s, self.node, request))
            return value if s.host.preview is not None else result_of(target, value)
        except RunError as error:
            if not isinstance(error, StoreFailed):
                error.details.setdefault("program", target.name)
                error.location = s.location(self.node.span)
            raise


def _target(s: ProgramContext, node: tree.Call) -> CallTarget:
    """Return the target of a call. In a delegation a variable may contain the name of a slot's function (3.5 step
    1)."""
    interface, (name, is_path) = interface_of(s.source), node.named
    if interface.targets is None:
        raise located(s, ImportProgramError(f"'{name}' cannot be called here", code="E313"), node.target)
    variable = s.find(name) if interface.kind == "delegation" and not is_path else None
    held = variable.value if variable is not None and name not in interface.variables else None
    if isinstance(held, (str, Reference)):
        element = interface.targets.element(inserted_text(held))
        if element is not None:
            return replace(element, through_slot=True)
    found = interface.targets.find(name, s.run.uses, path=is_path)
    if isinstance(found, CallTarget):
        return found
    if variable is not None:
        message = f"'{name}' holds no function of a slot"
        raise located(s, ValueTypeError(message), node.target)
    raise located(s, ImportProgramError(found.message, code=found.code, hint=found.hint), node.target)


# ---------------------------------------------------------------- results


def result_of(target: CallTarget, value: Value) -> Value:
    """Return the value of a call, according to the declared outputs of its target (3.6). Raises E230."""
    if target.kind in ("helper", "instance") or not target.outputs:
        return value
    if len(target.outputs) == 1:
        name = target.outputs[0].name
        return value[name] if type(value) is dict and [*value] == [name] else value
    return checked_outputs(target.name, target.outputs, value)


def checked_outputs(name: str, outputs: Sequence[CallOutput], value: Value) -> dict[str, Value]:
    """Return several outputs from an object, or from a text that is a JSON object, in the order of declaration. Raises
    E230. In a dry run the answer of a session is unknown, and used for each output."""
    if isinstance(value, (str, Reference)) and inserted_text(value).startswith(MARK):
        return {output.name: value for output in outputs}
    data = value if isinstance(value, dict) else _object_in(value)
    if data is None:
        names = ", ".join(output.name for output in outputs)
        raise ValueTypeError(f"'{name}' must give an object with its outputs ({names})", code="E230")
    for output in outputs:
        if not output.optional and output.name not in data:
            given = ", ".join(data) or "nothing"
            raise ValueTypeError(f"'{name}' gave no output '{output.name}'", code="E230", hint=f"it gave: {given}")
    return {output.name: data.get(output.name) for output in outputs}


def _object_in(value: Value) -> dict[str, Value] | None:
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(inserted_text(value)) if isinstance(value, (str, Reference, ExecText)) else None
        return data if isinstance(data, dict) else None
    return None


async def run_script(s: ProgramContext, program: tree.Program, source: Source, values: Mapping[str, Value]) -> Value:
    """Run the checked script of a node in the context of its run, and return its value.

    `source` is its `ScriptSource`. `values` are the initial names: inputs (unless they are bound already), prior truth,
    the variables of a delegation. Names of the interface without a value are null. Outputs are not checked.
    """
    interface = interface_of(source)
    s.source = source
    s.run.read(program)
    here, fixed = tree.Constant(None, span=tree.NOWHERE), dict.fromkeys(interface.fixed)
    for name in dict.fromkeys((*interface.prior, *interface.variables, *values, *fixed)):
        if name not in s.layer.table:
            bind(s, s.layer, name, "input" if name in fixed else "let", values.get(name), here, None)
    prior = {name: values.get(name) for name in interface.prior}
    s.run.prior = prior if any(value is not None for value in prior.values()) else None
    return await call(run_statements(s, program, used=True))


@expression(tree.Stage)
class StageCode(SpawnCode):
    """`session name(args)`: a session with the text under `#### name` as its task."""

    spawned: Spawned = "session"

    async def spawn(self, s: ProgramContext, destination: Destination | None) -> Value:
        node: tree.Stage = self.node
        task = interface_of(s.source).stages.get(node.name.id, "")
        context = tree.Property.at(*node.span, tree.Name("context"), tree.Array.at(*node.span, node.arguments))
        title = tree.Text.at(*node.span, (task,) if task else ())
        session = tree.Session.at(*node.span, title, None, None, (context,) if node.arguments else ())
        return await run_session(s, session, destination)
