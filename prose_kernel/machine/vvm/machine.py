"""The machine that runs VVM (docs/reference/vvm.md 4, 9).

A file is one call of `run`; a notebook calls `run` once for each cell, and all its cells are one growing module (9.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.names import RESERVED, KnownNames
from prose_kernel.machine.vvm import agent_calls, functions, judging, library, statements  # noqa: F401 - each registers its code
from prose_kernel.machine.vvm.context import DEPTH, LONGEST_INPUT, Context, VvmRun
from prose_kernel.machine.vvm.program import run_text, valued_kind, without_functions
from prose_kernel.runtime.machine import BindingInfo, Definition, Preview
from prose_kernel.runtime.machine import Machine as RuntimeMachine
from prose_kernel.runtime.ports import Key
from prose_kernel.runtime.shared_names import Agent, Function
from prose_kernel.runtime.values import Value

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Machine(RuntimeMachine):
    """One run of VVM, or the VVM part of a run of several languages.

    The value of a file is an object of its exports. After an interrupt the program runs no further, not even `finally`.
    """

    new_run = VvmRun
    _run: VvmRun
    _execute = staticmethod(run_text)
    _valued = staticmethod(valued_kind)

    def _context(self, source: Source, path: str) -> Context:
        return Context(self._run, self._run.root, source, self.cwd, path)

    def _result(self, value: Value) -> Value:
        return self.outputs()

    async def preview(self, program: tree.Program, source: Source) -> tuple[Preview, ...]:
        from prose_kernel.machine.vvm.preview import preview

        return await preview(self._run, program, source, self.cwd)

    def limit(self, depth: int = DEPTH, longest_input: int = LONGEST_INPUT) -> None:
        """Set the limits for nested calls (4.12), and for the characters in the input of an agent call (6.5)."""
        self._run.depth, self._run.longest_input = depth, longest_input

    # ------------------------------------------------------------ inspection

    def known(self) -> KnownNames:
        root = self._run.root
        bound = {**root.foreign, **root.table}
        callables = {name: value for name, value in bound.items() if isinstance(value, Function)}
        return KnownNames(
            variables=frozenset(bound),
            functions={name: function.parameters for name, function in callables.items()},
            agents=dict(root.agents),
            skills=dict(root.skills),
            hidden=frozenset(self._run.hidden),
        )

    def bindings(self) -> dict[str, BindingInfo]:
        root, exported = self._run.root, self._run.root.exported
        found: dict[str, BindingInfo] = {}
        for name, (source, node) in root.written.items():
            value = root.table[name]
            if name not in root.defined or root.defined[name] is not value:
                kind = "output" if name in exported else "let"
                found[name] = BindingInfo(kind, value, Key(name), source, node.span)  # type: ignore[arg-type]
        return found

    def outputs(self) -> dict[str, Value]:
        return without_functions(self._run.root.exported)

    def definitions(self) -> Iterator[Definition]:
        root = self._run.root
        for name, function in root.defined.items():
            if root.table.get(name) is function:
                text = function.source.slice(function.code.node.span)
                facts = {"parameters": ", ".join(function.parameters), "statements": str(len(function.code.node.body))}
                yield Definition("function", name, text, facts)
        for name, (source, span) in root.declarations.items():
            yield Definition("agent", name, source.slice(span), _agent_facts(root.agents[name]))

    # ------------------------------------------------------------ sharing names with another language

    def adopt(self, name: str, value: Value) -> None:
        if _IDENTIFIER.fullmatch(name) and name not in RESERVED:
            self._run.root.adopt(name, value)
        else:
            self._run.hidden.add(name)

    def shared(self) -> Mapping[str, Value]:
        root = self._run.root
        own: dict[str, Value] = {name: agent for name, agent in root.agents.items() if agent.language == "vvm"}
        own.update((name, root.table[name]) for name in root.written)
        return own


def _agent_facts(agent: Agent) -> dict[str, str]:
    """Return the agent's model, prompt, tools and memory, as far as it has them."""
    configuration: Mapping[str, object] = getattr(agent, "configuration", {})
    facts = {key: str(configuration[key]) for key in ("model", "prompt") if configuration.get(key)}
    tools = configuration.get("tools")
    if isinstance(tools, list | tuple) and tools:
        facts["tools"] = ", ".join(map(str, tools))
    memory = configuration.get("memory")
    if isinstance(memory, Mapping):
        facts |= {"memory": "yes", "persist": f"{memory.get('scope', '')} {memory.get('key', '')}".strip()}
    return facts
