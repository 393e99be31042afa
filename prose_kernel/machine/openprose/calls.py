"""`call`: what a target is handed, and how it is rendered (docs/reference/prose-md.md 3.5, 3.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from prose_kernel.language.openprose.contracts import CallTarget
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.execution_context import Node
from prose_kernel.runtime.values import Value


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call, evaluated.

    `inputs` holds every declared input, in the order of declaration; `given` names those that the call gave, the
    others have their default. `extra` are inputs that the target does not declare. `prompt`, `model`, `context` and
    `timeout` (seconds) are the modifiers of 3.5, None where the call does not give them.
    """

    target: CallTarget
    inputs: Mapping[str, Value]
    given: frozenset[str] = frozenset()
    extra: Mapping[str, Value] | None = None
    prompt: str | None = None
    model: str | None = None
    context: Value = None
    timeout: float | None = None


class Renderer(Protocol):
    """Renders targets of calls; the attribute `renderer` of the `Host`."""

    async def render(self, s: ProgramContext, node: Node, request: CallRequest) -> Value:
        """One attempt: what the script returned, or the answer of the session. `node` is the call.

        Raises a `RunError` when it fails. Results that lack an output are the caller's business (E230).
        """
        ...
