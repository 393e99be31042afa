"""The states of a task, and which may follow which (exec-and-tasks.md 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prose_kernel.runtime.services import TaskStatus

_NEXT: Final[Mapping[TaskStatus, tuple[TaskStatus, ...]]] = {
    "queued": ("running", "cancelled", "failed", "interrupted"),
    "running": ("cancelling", "completed", "failed", "interrupted"),
    "cancelling": ("cancelled", "interrupted"),
    "completed": (),
    "failed": (),
    "cancelled": (),
    "interrupted": (),
}
TERMINAL: Final[frozenset[TaskStatus]] = frozenset(status for status, following in _NEXT.items() if not following)
ACTIVE: Final[frozenset[TaskStatus]] = frozenset(_NEXT) - TERMINAL


def may_follow(before: TaskStatus, after: TaskStatus) -> bool:
    """Whether a task may go from one state to the other; a state does not follow itself."""
    return after in _NEXT[before]


def five(status: TaskStatus) -> str:
    """The projection for clients that know five states: `queued`, `running`, `completed`, `failed`, `cancelled`."""
    return {"cancelling": "running", "interrupted": "failed"}.get(status, status)
