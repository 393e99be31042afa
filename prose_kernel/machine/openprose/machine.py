"""The machine that runs OpenProse (docs/reference/openprose.md 3).

It walks a checked tree, makes requests to the outside through its ports and sends events to its listeners. A file is
one call of `run`; a notebook calls `run` once for each cell, in the same root frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.output_types import written_schema
from prose_kernel.language.openprose.program_interface import KnownAgent, KnownNames, Variable, persistence
from prose_kernel.language.source import Source
from prose_kernel.machine.openprose import (  # noqa: F401 - each registers the code of its constructs
    blocks,
    calls,
    control,
    execs,
    expressions,
    gates,
    loops,
    other_languages,
    parallel,
    pipes,
    sessions,
)
from prose_kernel.machine.openprose.frames import Slot
from prose_kernel.machine.openprose.program_context import AgentEntry, ProgramContext, ProgramRun
from prose_kernel.machine.openprose.program_text import valued_kind
from prose_kernel.machine.openprose.programs import run_text
from prose_kernel.runtime.machine import BindingInfo, Definition, Preview
from prose_kernel.runtime.machine import Machine as RuntimeMachine
from prose_kernel.runtime.program_run import Run
from prose_kernel.runtime.values import ExecText, ReadMapping, Reference, Value


class _LateRenderer:
    """The module that renders nodes of contract files, loaded on first use."""

    def __getattr__(self, name: str) -> Any:
        from prose_kernel.machine.openprose import contract_text

        return getattr(contract_text, name)


class Machine(RuntimeMachine):
    """One run of OpenProse. After an interrupt `finally` bodies run before `CancelledError` is raised.

    The value of a file is an object of its outputs, or without outputs the value of its last statement; `for` and
    `repeat` as the last statement give null.
    """

    new_run = ProgramRun
    _run: ProgramRun
    _execute = staticmethod(run_text)
    _valued = staticmethod(valued_kind)

    def _context(self, source: Source, path: str) -> ProgramContext:
        return ProgramContext(self._run, self._run.root, source, self.cwd, path)

    def _begin_run(self, former: Run | None) -> None:
        super()._begin_run(former)
        self.host.renderer = self.host.renderer or _LateRenderer()

    def _result(self, value: Value) -> Value:
        return dict(self.outputs()) if self._run.root.outputs else value

    async def preview(self, program: tree.Program, source: Source) -> tuple[Preview, ...]:
        from prose_kernel.machine.openprose.preview import preview

        return await preview(self._run, program, source, self.cwd)

    # ------------------------------------------------------------ sharing names with another language

    def adopt(self, name: str, value: Value) -> None:
        other_languages.adopt(self._run, name, value)

    def shared(self) -> Mapping[str, Value]:
        return other_languages.shared(self._run)

    def why_fixed(self, name: str) -> str | None:
        slot = self._run.root.table.get(name)
        if slot is None or slot.kind not in ("const", "input"):
            return None
        return f"{'a' if slot.kind == 'const' else 'an'} {slot.kind} of cell {slot.source.number(slot.cell)}"

    # ------------------------------------------------------------ inspection

    def known(self) -> KnownNames:
        run = self._run
        return KnownNames(
            variables=ReadMapping(run.root.table, _variable),
            soft_exports=frozenset(run.root.exports),
            agents={
                **{name: KnownAgent(None) for name in run.other_agents},
                **{
                    name: KnownAgent(persistence(entry.node), written_schema(entry.node.properties, {}))
                    for name, entry in run.agents.items()
                },
            },
            blocks={
                **{name: function.parameters for name, function in run.functions.items()},
                **{name: tuple(p.id for p in entry.node.parameters) for name, entry in run.blocks.items()},
            },
            programs={name: entry.contract for name, entry in run.programs.items()},
            skills=frozenset(run.skills),
            gates=frozenset(run.gate_names),
            bodies={name: entry.node for name, entry in run.blocks.items()},
            uses=run.uses,
        )

    def bindings(self) -> dict[str, BindingInfo]:
        return {name: _info(slot) for name, slot in self._run.root.table.items()}

    def outputs(self) -> dict[str, Value]:
        return {name: slot.value for name, slot in self._run.root.outputs.items()}

    def definitions(self) -> Iterator[Definition]:
        for name, agent in self._run.agents.items():
            yield Definition("agent", name, agent.source.slice(agent.node.span), _agent_facts(agent))
        for name, block in self._run.blocks.items():
            parameters = ", ".join(p.id for p in block.node.parameters)
            facts = {"parameters": parameters, "statements": str(len(block.node.body))}
            yield Definition("block", name, block.source.slice(block.node.span), facts)
        for name, program in self._run.programs.items():
            inputs = ", ".join(f"{name}: …" for name in program.contract.inputs)
            outputs = ", ".join(program.contract.outputs or ())
            text = f"{name}({inputs})" + (f"\n\noutputs: {outputs}" if outputs else "")
            yield Definition("program", name, text, {})


def _agent_facts(entry: AgentEntry) -> dict[str, str]:
    """Return those properties of an agent that are facts of its `Definition`, as written."""
    found = {item.name.id: _word(item.value) for item in entry.node.properties}
    facts = {key: found[key] for key in ("model", "persist", "prompt", "tools") if found.get(key)}
    return {**facts, "memory": "yes"} if persistence(entry.node) is not None else facts


def _word(value: object) -> str:
    match value:
        case tree.Name(id=word):
            return word
        case tree.Text():
            return value.raw
        case tree.Constant(value=constant):
            return {True: "true", False: "false", None: "null"}[constant]
        case tree.Array(elements=elements):
            return ", ".join(_word(element) for element in elements)
        case _:
            return ""


def _info(slot: Slot) -> BindingInfo:
    adopted = slot.source is other_languages.ELSEWHERE
    return BindingInfo(slot.kind, slot.value, slot.key, slot.source, slot.span, slot.spawned, adopted)


def _variable(slot: Slot) -> Variable:
    """Return the checker's view of a name in the root table."""
    answer = slot.value.schema if isinstance(slot.value, Reference) else None
    hides = isinstance(slot.value, ExecText) and slot.value.result.code_hidden
    return Variable(slot.kind, slot.spawned == "exec", answer, hides)
