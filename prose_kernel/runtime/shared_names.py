"""The shared names of a run's languages, with functions and agents that any of them can use.

Machines of several languages run side by side in one run (`Machine.sharing`). Each of them publishes the names that it
binds at its root; the others adopt them immediately, so that a name has the same value everywhere, however control
passes between languages. Values cross as data: each language converts what it adopts (docs/reference/vvm.md 13).

Two kinds of values are more than data. A `Function` can be called from any language; the caller's line of control goes
along, with its branch, turn, numbers and cancellation. An `Agent` can be asked from any language; the calling language
decides whether a failed session raises, the declaring language what the agent is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from prose_kernel.runtime.values import LanguageValue, Value

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import ExecutionContext, Node
    from prose_kernel.runtime.machine import Machine
    from prose_kernel.runtime.session_attempts import Failure, Success


@dataclass(frozen=True, slots=True)
class Asked:
    """A request from one language to an agent of another: its task, its input (None: nothing), and the name that will
    take the answer.

    `retries` are allowed after a failure, with waits that are `none`, always the same (`linear`) or doubled
    (`exponential`). `timeout` is the limit of each attempt as written (`30s`), `model` and
    `output`, the JSON Schema of the answer, stand in for the agent's own.
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
    """A function, or a block: what a call from another language needs to know of it."""

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
    """An agent: what a session asked from another language needs of it."""

    __slots__ = ("name",)

    kind: ClassVar[str] = "agent"
    language: ClassVar[str]

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"agent {self.name}"

    async def ask(self, caller: ExecutionContext, node: Node, asked: Asked) -> Success | Failure:
        """One session of the agent. `node` is what asks it. A wrong configuration raises `RunError`."""
        raise NotImplementedError


class SharedNames:
    """The directory of names of one run.

    With only one language `several` is false, and publishing does nothing.
    """

    __slots__ = ("_members", "several")

    def __init__(self) -> None:
        self._members: tuple[Machine, ...] = ()
        self.several = False

    def join(self, member: Machine) -> None:
        """A machine takes part from now on: it adopts all that the others hold."""
        for other in self._members:
            for name, value in other.shared().items():
                member.adopt(name, value)
        self._members = (*self._members, member)
        self.several = len(self._members) > 1

    def publish(self, member: Machine, name: str, value: Value) -> None:
        """A machine has bound a name at its root."""
        if self.several:
            for other in self._members:
                if other is not member:
                    other.adopt(name, value)

    def fixed(self, member: Machine, name: str) -> str | None:
        """Why `member` must not bind the name: another language has bound it for good."""
        if not self.several:
            return None
        return next((why for other in self._members if other is not member and (why := other.fixed(name))), None)
