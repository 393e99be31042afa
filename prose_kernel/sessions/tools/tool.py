"""What a tool is: a name, a JSON schema, and a function that checks before it acts (sessions.md 2.3).

A provider gets a `Workbench` for each attempt: the tools that the session's permissions could ever allow, and one call
that runs them. A refused or failed call is an ordinary answer to the model; the session goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from prose_kernel.permissions.safe_files import ToolFailed, ToolRefused
from prose_kernel.runtime.ports import FileWrite, ToolUse

__all__ = ["Tool", "ToolFailed", "ToolRefused", "ToolSpec", "Workbench"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about a tool. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, object]


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: Mapping[str, object]) -> str:
        """Run it. Raises `ToolRefused`, `ToolFailed`; cancelling the call ends what it started."""
        ...


class Workbench(Protocol):
    """The tools of one attempt at a session."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Run a tool and say what came of it, as text for the model; only cancellation leaves it as an exception.

        Each call is added to `trace` and told to the session's progress.
        """
        ...

    @property
    def trace(self) -> tuple[ToolUse, ...]: ...

    @property
    def writes(self) -> tuple[FileWrite, ...]:
        """The files that the tools wrote, one entry a file: its text before the first write and after the last."""
        ...
