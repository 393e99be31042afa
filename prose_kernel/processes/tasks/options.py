"""The limits and options of commands and tasks (exec-and-tasks.md 4.10)."""

from __future__ import annotations

from prose_kernel.runtime.session_options import TaskSettings


class TaskOptions(TaskSettings, frozen=True):
    """The table `[tasks]` of prose.toml, and options that are not set there.

    - `shell`: the shell of commands that name none; None means the shell of `exec`.
    - `foreground`: how many commands may be in their window at a time. Further commands wait, without using run time.
    - `patience`: seconds that a command waits for a place among the tasks when its window is over.
    - `grace`: seconds between TERM and KILL when a task is stopped; `shutdown_grace`: when the kernel ends.
    - `snapshot_every`: seconds between two records of a running task's output.
    """

    shell: str | None = None
    foreground: int = 64
    patience: float = 60.0
    grace: float = 5.0
    shutdown_grace: float = 2.0
    snapshot_every: float = 5.0
