"""The limits of commands and tasks (exec-and-tasks.md 4.10), and the user's options for them."""

from __future__ import annotations

from dataclasses import dataclass

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """
    - `shell`: the shell of commands that name none; None is the shell of `exec`.
    - `active`: tasks at a time; `per_session` those of one agent session.
    - `foreground`: commands in their window at a time; further ones wait, which is not counted as run time.
    - `max_runtime`: seconds after which a task is ended as failed; None: without a limit.
    - `kept`: ended tasks that a run remembers; logs of older ones are removed.
    - `pass_environment`: names of variables that agents' commands get although they look like secrets.
    - `patience`: seconds that a command whose window is over waits for a place among the tasks.
    - `grace`: seconds between TERM and KILL when a task is stopped; `shutdown_grace` when the kernel ends.
    - `log_head`, `log_tail`: bytes of the beginning and of the end that a log keeps.
    - `snapshot_every`: seconds between two records of a running task's output.
    """

    shell: str | None = None
    active: int = 32
    per_session: int = 8
    foreground: int = 64
    max_runtime: float | None = None
    kept: int = 500
    pass_environment: tuple[str, ...] = ()
    patience: float = 60.0
    grace: float = 5.0
    shutdown_grace: float = 2.0
    log_head: int = 4 * MiB
    log_tail: int = 12 * MiB
    snapshot_every: float = 5.0
