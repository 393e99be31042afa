"""Sessions answered by a Python function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prose_kernel.errors import ProseError, ProviderError
from prose_kernel.models.session_prompt import answered, in_message
from prose_kernel.runtime import budgets, python_calls
from prose_kernel.runtime.json_data import json_text
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult


@dataclass(frozen=True, slots=True)
class Prompt:
    """One attempt at a session, as passed to a provider written in Python.

    `task` is the text of the statement with its values inserted. `message` is the complete user message that a model
    would get: contexts, task, output instruction. `system` is the prompt of the agent. `model` is the name that the
    program gives, if any. `schema` is the JSON Schema of a typed answer; None: the answer is text. `attempt` counts
    from 0, `at` is the path of the session in the run (docs/architecture.md).
    """

    task: str
    message: str = field(repr=False)
    system: str | None
    agent: str | None
    model: str | None
    schema: Mapping[str, Any] | None
    attempt: int
    at: str


Provider = Callable[[Prompt], object | Awaitable[object]]
"""Returns the answer: text, or data for a typed answer. A plain function runs in a thread, a coroutine function in the
loop of the run. Raises `ProviderError`, which says whether another attempt may succeed; any other exception fails the
attempt, too."""


class FunctionSessions:
    """The `Sessions` port, answered by a function. Its answers are in the run's journal, but not recorded."""

    def __init__(self, function: Provider) -> None:
        self._function = function

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """Return the function's answer. Raises `ProviderError`."""
        await budgets.placed()
        prompt = Prompt(
            request.task,
            in_message(request, reads=False).without("system").text,
            request.system,
            request.agent,
            request.model,
            request.output,
            request.attempt,
            request.at,
        )
        try:
            answer = await python_calls.call(self._function, prompt)
            text = answer if isinstance(answer, str) else json_text(answer)
        except ProseError:
            raise
        except Exception as error:
            raise ProviderError(python_calls.failure("the provider function", error)) from error
        return answered(text, provider="function", origin="function", request=request)
