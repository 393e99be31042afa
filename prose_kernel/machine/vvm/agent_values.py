"""Agents as values: declared, derived with `.with`, inline (docs/reference/vvm.md 6.1 to 6.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.configurations import configuration_faults, merged, static_value
from prose_kernel.machine.vvm.code import expression
from prose_kernel.machine.vvm.context import Context, Module, reader
from prose_kernel.machine.vvm.functions import LANGUAGE
from prose_kernel.machine.vvm.program import HOISTED
from prose_kernel.machine.vvm.values import a_type_of, raised
from prose_kernel.runtime.attempts import Failure, Success
from prose_kernel.runtime.compiled_code import Code, all_now, value_of
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.shared_names import Agent, AgentRequest
from prose_kernel.runtime.values import LanguageValue, Value

INLINE: Final = "inline"
"""The name of an inline agent."""


DEEPEST: Final = 100
"""The deepest allowed nesting of lists and objects in a configuration."""

AskAgent = Callable[["ConfiguredAgent", ExecutionContext, Node, AgentRequest], Awaitable[Success | Failure]]

ASK_AGENT: Final[dict[str, AskAgent]] = {}
"""Calls an agent for another language; `agent_calls` registers it."""


class ConfiguredAgent(Agent):
    """A VVM agent: its configuration as plain data, and the module that it comes from.

    A derived agent keeps the name of its base.
    """

    __slots__ = ("configuration", "module")

    language: ClassVar[str] = LANGUAGE

    def __init__(self, name: str, configuration: Mapping[str, Any], module: Module) -> None:
        super().__init__(name)
        self.configuration = configuration
        self.module = module

    def derived(self, overrides: Mapping[str, Value]) -> ConfiguredAgent:
        """Return a derived agent: objects are merged key by key, others replaced (6.3). A call checks the result."""
        return ConfiguredAgent(self.name, merged(self.configuration, overrides), self.module)

    def check(self, s: ExecutionContext, node: Node) -> None:
        """Raise R214 for an invalid configuration."""
        for fault in configuration_faults(self.configuration):
            raise raised(s, node, "R214", f"bad agent configuration: {fault}", hint=fault.accepted)
        agenda: list[tuple[str, Any, int]] = [(key, value, 0) for key, value in self.configuration.items()]
        while agenda:
            key, value, deep = agenda.pop()
            if isinstance(value, LanguageValue):
                raise raised(s, node, "R214", f"bad agent configuration: `{key}` cannot hold {a_type_of(value)}")
            if isinstance(value, dict | list):
                if deep > DEEPEST:
                    raise raised(s, node, "R214", f"bad agent configuration: `{key}` is nested too deeply")
                parts = value.values() if isinstance(value, dict) else value
                agenda.extend((key, part, deep + 1) for part in parts)

    async def ask(self, caller: ExecutionContext, node: Node, asked: AgentRequest) -> Success | Failure:
        return await ASK_AGENT[LANGUAGE](self, caller, node, asked)


def declare(s: Context, node: tree.AgentDeclaration) -> None:
    """Hoist an agent. The checker has made sure that its values are static."""
    name = node.name.id
    configuration = {keyword.name: static_value(keyword.value) for keyword in node.keywords}
    s.module.declare(name, ConfiguredAgent(name, configuration, s.module))


HOISTED[tree.AgentDeclaration] = declare


# ---------------------------------------------------------------- expressions


@expression(tree.AgentName)
class AgentNameCode(Code):
    """`@name`: an agent of the module, else the agent in the variable of that name (A2)."""

    def prepare(self, node: tree.AgentName) -> None:
        name, variable = node.id, reader(node.id, node)

        def now(s: Context) -> Value:
            found: Value = s.module.agents.get(name)
            if found is None:
                found = variable(s)
                if not isinstance(found, Agent):
                    raise raised(s, node, "R213", f"not an agent: '{name}' is {a_type_of(found)}")
            return found

        self.now = now


class _Configured(Code):
    """An expression that makes an agent. `keys` are the names of its keywords; the last of equal ones counts."""

    def prepare(self, node: tree.InlineAgent | tree.With) -> None:
        self.keys = tuple(keyword.name for keyword in node.keywords)
        ways = all_now(self.parts)
        if ways is not None:
            self.now = lambda s: self.made(s, [way(s) for way in ways])

    async def _run(self, s: Context) -> Value:
        return self.made(s, [await value_of(part, s) for part in self.parts])

    def made(self, s: Context, values: Sequence[Value]) -> Value:
        raise NotImplementedError


@expression(tree.InlineAgent, lambda node: [keyword.value for keyword in node.keywords])
class InlineAgentCode(_Configured):
    def made(self, s: Context, values: Sequence[Value]) -> Value:
        return ConfiguredAgent(INLINE, dict(zip(self.keys, values, strict=True)), s.module)


@expression(tree.With, lambda node: [node.agent, *(keyword.value for keyword in node.keywords)])
class WithCode(_Configured):
    def made(self, s: Context, values: Sequence[Value]) -> Value:
        base = values[0]
        if not isinstance(base, ConfiguredAgent):
            if isinstance(base, Agent):
                message = f"not an agent of VVM: '{base.name}' is declared in another language"
                raise raised(s, self.node, "R213", message, hint="ask it as it is, or declare an agent here")
            raise raised(s, self.node, "R213", f"not an agent: `.with` needs one, not {a_type_of(base)}")
        return base.derived(dict(zip(self.keys, values[1:], strict=True)))
