"""The operator's settings for `Exec`; agents and programs cannot change them."""

from __future__ import annotations

from prose_kernel.runtime.session_options import ExecSettings


class ExecOptions(ExecSettings, frozen=True):
    """The table `[exec]` of prose.toml, and limits that only an operator's code can set.

    - `cpu_seconds`: the CPU time of one process; None means the time limit of the call.
    - `file_bytes`, `open_files`: the largest file that may be written, and how many files may be open.
    """

    cpu_seconds: int | None = None
    file_bytes: int = 64 * 1024 * 1024
    open_files: int = 256
