"""Previews the sessions, commands and gates of a text: the machine runs it, and lists requests instead of making them.

The text runs in a copy of the run, so that no counter or store changes. A value that only the outside can provide is
replaced by a visible placeholder, and all values computed from it are unknown as well. So the preview decides where the
machine continues (`host.preview`): both arms of a condition run, a loop over known items runs for each of them, any
other loop once; a statement that cannot be computed is skipped.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Sequence

from prose_kernel.errors import RunError
from prose_kernel.language.nodes import walk
from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Source
from prose_kernel.language.structs import replace
from prose_kernel.machine.openprose.bindings import bind
from prose_kernel.machine.openprose.code import Body
from prose_kernel.machine.openprose.frames import Frame, Kind, Layer, find_home
from prose_kernel.machine.openprose.program_context import ProgramContext, ProgramRun
from prose_kernel.machine.openprose.programs import run_text
from prose_kernel.runtime import structured_text
from prose_kernel.runtime.compiled_code import Code, value_of
from prose_kernel.runtime.machine import Preview
from prose_kernel.runtime.ports import Binding, SessionRequest
from prose_kernel.runtime.preview import MOST_PASSES, Full, PreviewAnswers, is_unknown, unknown, unknown_names
from prose_kernel.runtime.trampoline import drive
from prose_kernel.runtime.values import Value


async def preview(run: ProgramRun, program: tree.Program, source: Source, cwd: str) -> tuple[Preview, ...]:
    """Return every session, command and gate of a checked text, in source order, based on the run's current state."""
    answers = _Answers()
    shadow = _copied_run(run, answers)
    context = ProgramContext(shadow, shadow.root, source, cwd, f"c{run.progress.cell + 1}")
    with contextlib.suppress(Full):
        await drive(run_text(context, program, {}))
    return tuple(answers.found)


class _Answers(PreviewAnswers):
    # ------------------------------------------------------------ requests

    async def session(
        self, s: ProgramContext, node: tree.Node, name: str | None, prepared: Awaitable[tuple[SessionRequest, Binding]]
    ) -> Value:
        async def first() -> SessionRequest:
            return (await prepared)[0]

        request = await self.announce(s, node, name, first())
        if request is not None and request.memory is not None:
            s.run.started_agents.add(request.memory.agent)
        return unknown(name or "answer")

    def program(self, s: ProgramContext, node: tree.ProgramCall) -> Value:
        """Add a note about a program that is loaded only when the text runs."""
        name = node.program.id
        note = f"program '{name}' is loaded when the text runs; its sessions are not known before"
        self.add(Preview(s.source, node.span, None, note=note))
        return unknown(name)

    # ------------------------------------------------------------ values

    def bound(self, s: ProgramContext, name: str, value: Value, node: tree.Node) -> Value:
        """Return the value of a name if it is computed from known values, else a placeholder."""
        made_by = getattr(node, "value", None) or getattr(node, "statement", None)
        parts = walk(made_by) if isinstance(made_by, tree.Node) else ()
        doubtful = any(unknown_names(value)) or any(self._is_unknown(s, part) for part in parts)
        return unknown(name) if doubtful else value

    def _is_unknown(self, s: ProgramContext, node: tree.Node) -> bool:
        if isinstance(node, tree.Active):
            return True
        name = node.id if isinstance(node, tree.Name) else node.name if isinstance(node, tree.Interpolation) else None
        found = s.find(name) if name is not None else None
        return found is not None and any(unknown_names(found.value))

    def failed(self, s: ProgramContext, node: tree.Node) -> Value:
        """Bind the names of a statement that could not be computed to placeholders, and return its value."""
        kind: Kind = node.kind if isinstance(node, tree.Let) else "output" if isinstance(node, tree.Output) else "let"
        bound = isinstance(node, tree.Let | tree.Assign | tree.Output | tree.Branch)
        names = (getattr(node, "names", None) or (getattr(node, "name", None),)) if bound else ()
        for name in names:
            if isinstance(name, tree.Name):
                home = find_home(name.id, s.temps, s.layer) if isinstance(node, tree.Assign) else None
                layer = home[1] if home is not None else s.layer
                bind(s, layer, name.id, kind, unknown(name.id), node, None)
        return unknown(names[0].id) if names and isinstance(names[0], tree.Name) else None

    # ------------------------------------------------------------ control

    async def run_either(self, s: ProgramContext, bodies: Sequence[Body | None]) -> Value:
        await self.run_each(s, bodies)
        return unknown("value")

    async def items(self, s: ProgramContext, code: Code, name: str) -> list[Value]:
        """Return the first items of a collection; one placeholder if they are unknown."""
        try:
            value = await value_of(code, s)
            known = not (isinstance(value, str) and is_unknown(value))
            return structured_text.collection(value)[:MOST_PASSES] if known else [unknown(name)]
        except (RunError, structured_text.JudgeNeeded):
            return [unknown(name)]

    async def passes(self, s: ProgramContext, code: Code, name: str) -> list[Value]:
        """Return the first values of a counter; one placeholder if its count is unknown."""
        try:
            count = await value_of(code, s)
        except RunError:
            count = None
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            return list(range(min(count, MOST_PASSES)))
        return [unknown(name)]


def _copied_run(run: ProgramRun, answers: _Answers) -> ProgramRun:
    """Return a copy of a run with its own bindings, counters and registries, whose host makes no requests."""
    host = answers.make_host(run.host)
    shadow = ProgramRun(host, host.ports.store, run.name, run.program)
    shadow.module = run.module
    table = {name: replace(slot) for name, slot in run.root.table.items()}
    shadow.root = Layer(Frame(), table=table, exports=dict(run.root.exports), outputs=dict(run.root.outputs))
    shadow.agents, shadow.blocks, shadow.programs = dict(run.agents), dict(run.blocks), dict(run.programs)
    shadow.uses = dict(run.uses)
    shadow.supplied, shadow.elsewhere = run.supplied, run.elsewhere
    shadow.started_agents = set(run.started_agents)
    shadow.finished.extend(run.finished)
    shadow.progress.cell, shadow.progress.ordinal = run.progress.cell, run.progress.ordinal
    shadow.functions, shadow.other_agents = dict(run.functions), dict(run.other_agents)
    shadow.numbers = copy.deepcopy(run.numbers)
    return shadow
