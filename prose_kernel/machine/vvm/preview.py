"""Previews the agent calls of a text: the machine runs it, and lists each call instead of making it.

The text runs in a copy of the run. A value that only the outside can provide is replaced by a visible placeholder, and
values computed from it are unknown as well. The constructs ask `host.preview` where to continue: a condition that can
be computed is decided; for any other condition all arms run, and their bindings are unknown afterwards.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

from prose_kernel.errors import RunError
from prose_kernel.language.nodes import walk
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree
from prose_kernel.machine.vvm.code import Body, Left
from prose_kernel.machine.vvm.context import Context, Frame, Module, VvmRun
from prose_kernel.machine.vvm.program import run_text
from prose_kernel.runtime.compiled_code import Code, value_of
from prose_kernel.runtime.execution_context import Node
from prose_kernel.runtime.machine import Preview
from prose_kernel.runtime.preview import MOST_PASSES, Full, PreviewAnswers, unknown, unknown_names
from prose_kernel.runtime.trampoline import call, drive
from prose_kernel.runtime.values import Value


async def preview(run: VvmRun, program: tree.Program, source: Source, cwd: str) -> tuple[Preview, ...]:
    """Return every agent call of a checked text, in source order, based on the current state of the run."""
    answers = _Answers(run)
    shadow = _copied_run(run, answers)
    context = Context(shadow, shadow.root, source, cwd, f"c{run.progress.cell + 1}")
    with contextlib.suppress(Full, RunError):
        await drive(run_text(context, program))
    return tuple(answers.found)


class _Answers(PreviewAnswers):
    """`_open` counts the constructs around the statement that may not run; `_doubtful` has the running functions whose
    result depends on one.
    """

    def __init__(self, run: VvmRun) -> None:
        super().__init__()
        self.root: Module | None = None
        self._real = run.root
        self._open = 0
        self._doubtful: set[Frame | None] = set()

    # ------------------------------------------------------------ values

    def bound(self, s: Context, name: str, value: Value, node: Node) -> Value:
        """Return the value of a name if it is known, else a placeholder."""
        made_of = isinstance(node, tree.Assign) and self._is_unknown(s, node.value)
        return unknown(name) if self._open or made_of or any(unknown_names(value)) else value

    def _is_unknown(self, s: Context, node: tree.Node) -> bool:
        """Return whether an expression makes a request, or reads an unknown value."""
        asks = (tree.AgentCall, tree.Predicate)
        return any(isinstance(part, asks) or any(unknown_names(_read(s, part))) for part in walk(node))

    def unknown_result(self, *values: Value) -> Value:
        """Return a placeholder for the result of an operation if one of the values is unknown, else None."""
        names = [name for value in values for name in unknown_names(value)]
        return unknown(names[0]) if names else None

    def failed(self, s: Context, node: tree.Node) -> Left:
        """Bind the name of a statement that could not be computed to a placeholder."""
        target = getattr(node, "target", None)
        if isinstance(target, tree.Name):
            s.bind(target.id, unknown(target.id), node)
        return None

    # ------------------------------------------------------------ functions

    def enters(self, s: Context, function: Any) -> bool:
        """Return whether to run a function: not if it is already running."""
        frame = s.frame
        while frame is not None:
            if frame.function.code is function.code:
                return False
            frame = frame.caller
        return True

    def module_of(self, module: Module) -> Module:
        return self.root if module is self._real and self.root is not None else module

    def result(self, frame: Frame, name: str, value: Value) -> Value:
        if frame in self._doubtful:
            self._doubtful.discard(frame)
            return unknown(name)
        return value

    # ------------------------------------------------------------ control

    async def truth(self, s: Context, code: Code) -> bool | None:
        """Return a condition's value; None if it is unknown."""
        with contextlib.suppress(RunError):
            value = await value_of(code, s)
            if (value is True or value is False) and not self._is_unknown(s, code.node):
                return value
        return None

    async def value(self, s: Context, code: Code, name: str) -> Value:
        """Return the value of an expression, or a placeholder if it cannot be computed."""
        with contextlib.suppress(RunError):
            return await value_of(code, s)
        return unknown(name)

    async def run_either(self, s: Context, bodies: Sequence[Body | None]) -> Left:
        self._open += 1
        try:
            left = await self.run_each(s, bodies)
        finally:
            self._open -= 1
        if any(one is not None for one in left):
            self._doubtful.add(s.frame)
        return None

    async def arms(self, s: Context, arms: Sequence[tuple[Code, Body]], otherwise: Body | None) -> Left:
        """Run the arm of an `if` that will run, or all arms that may run."""
        possible: list[Body | None] = []
        for condition, body in arms:
            holds = await self.truth(s, condition)
            if holds and not possible:
                return await call(body.run(s))
            if holds is not False:
                possible.append(body)
            if holds:
                return await self.run_either(s, possible)
        if possible:
            return await self.run_either(s, [*possible, otherwise])
        return await call(otherwise.run(s)) if otherwise is not None else None

    def items(self, items: Value, name: str) -> list[Value]:
        """Return the first items of a list; one placeholder if they are unknown."""
        return items[:MOST_PASSES] if type(items) is list else [unknown(name)]


def _read(s: Context, node: tree.Node) -> Value:
    """Return the value of a name; None for other nodes and for unbound names."""
    if isinstance(node, tree.It):
        return s.it
    if not isinstance(node, tree.Name):
        return None
    frame = s.frame
    while frame is not None:
        if node.id in frame.table:
            return frame.table[node.id]
        frame = frame.outer
    return s.module.table.get(node.id)


def _copied_run(run: VvmRun, answers: _Answers) -> VvmRun:
    """Return a copy of a run with its own names, whose host makes no requests."""
    host = answers.make_host(run.host)
    shadow = VvmRun(host, host.ports.store, run.name, run.program)
    shadow.depth, shadow.modules = run.depth, dict(run.modules)
    root, real = shadow.root, run.root
    for name in ("table", "foreign", "agents", "skills", "written", "defined", "declarations"):
        setattr(root, name, dict(getattr(real, name)))
    shadow.progress = copy.copy(run.progress)
    shadow.numbers = copy.deepcopy(run.numbers)
    answers.root = root
    return shadow
