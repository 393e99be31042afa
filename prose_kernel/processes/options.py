"""The options of `Exec` and of tasks: tables of prose.toml, and limits that only an operator's code can set."""

from __future__ import annotations

from prose_kernel.runtime.session_options import ExecSettings, TaskSettings


class ExecOptions(ExecSettings, frozen=True):
    """The table `[exec]`, and limits that are not set there. Agents and programs cannot change them.

    - `cpu_seconds`: the CPU time of one process; None means the time limit of the call.
    - `file_bytes`, `open_files`: the largest file that may be written, and how many files may be open.
    """

    cpu_seconds: int | None = None
    file_bytes: int = 64 * 1024 * 1024
    open_files: int = 256


class TaskOptions(TaskSettings, frozen=True):
    """The table `[tasks]`, and options that are not set there (exec-and-tasks.md 4.10).

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
