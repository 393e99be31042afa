"""The names that the languages of a run share, including functions and agents that any language can use.

Machines of several languages work side by side in one run (`Machine.sharing`). Each publishes the names that it binds
at its root; the others adopt them immediately, so that a name has the same value everywhere, however control passes
between languages. Values cross as data: each language converts the values that it adopts (docs/reference/vvm.md 13).

Two kinds of values are more than data. A `Function` can be called from any language, in the caller's line of control:
with its branch, turn, numbers and cancellation. An `Agent` can be asked from any language; the calling language decides
whether a failed session raises an error, the declaring language defines the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from prose_kernel.runtime.values import LanguageValue, Value

if TYPE_CHECKING:
    from prose_kernel.runtime.attempts import Failure, Success
    from prose_kernel.runtime.execution_context import ExecutionContext, Node
    from prose_kernel.runtime.machine import Machine


class AgentRequest(Struct, frozen=True):
    """A request from one language to an agent of another: its task, its input (None: nothing), and the name that will
    take the answer.

    `retries` are allowed after a failure, with waits that are `none`, always the same (`linear`) or doubled
    (`exponential`). `timeout` is the limit of each attempt as written (`30s`). `model` and `output`, the JSON Schema of
    the answer, override the agent's own.
    """

    task: str
    given: Value = None
    bound_to: str | None = None
    retries: int = 0
    backoff: str = "none"
    timeout: str = ""
    model: str | None = None
    output: Mapping[str, Any] | None = None


class Function(LanguageValue):
    """A function or block that other languages can call."""

    __slots__ = ("name", "parameters")

    kind: ClassVar[str] = "function"
    noun: ClassVar[str] = "function"
    language: ClassVar[str]

    def __init__(self, name: str, parameters: tuple[str, ...]) -> None:
        self.name = name
        self.parameters = parameters

    def __str__(self) -> str:
        return f"{self.noun} {self.name}({', '.join(self.parameters)})"

    async def invoke(self, caller: ExecutionContext, node: Node, arguments: Sequence[Value]) -> Value:
        """Call it with positional arguments. `node` is the call. Raises `RunError`."""
        raise NotImplementedError


class Agent(LanguageValue):
    """An agent that other languages can ask."""

    __slots__ = ("name",)

    kind: ClassVar[str] = "agent"
    language: ClassVar[str]

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"agent {self.name}"

    async def ask(self, caller: ExecutionContext, node: Node, asked: AgentRequest) -> Success | Failure:
        """Run one session of the agent. `node` is the asking expression. A wrong configuration raises `RunError`."""
        raise NotImplementedError


class SharedNames:
    """The directory of names of one run.

    If the run has only one language, `several` is false and publishing does nothing.
    """

    __slots__ = ("_members", "several")

    def __init__(self) -> None:
        self._members: tuple[Machine, ...] = ()
        self.several = False

    def join(self, member: Machine) -> None:
        """Add a machine. It adopts all names of the others."""
        for other in self._members:
            for name, value in other.shared().items():
                member.adopt(name, value)
        self._members = (*self._members, member)
        self.several = len(self._members) > 1

    def publish(self, member: Machine, name: str, value: Value) -> None:
        """Pass a name that a machine has bound at its root to the others."""
        if self.several:
            for other in self._members:
                if other is not member:
                    other.adopt(name, value)

    def why_fixed(self, member: Machine, name: str) -> str | None:
        """Return why `member` must not bind the name, because another language has fixed it; None if it may."""
        if not self.several:
            return None
        return next((why for other in self._members if other is not member and (why := other.why_fixed(name))), None)
