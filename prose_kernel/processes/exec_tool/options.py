"""The operator's settings for `Exec`; agents and programs cannot change them."""

from __future__ import annotations

from prose_kernel.runtime.session_options import ExecSettings


class ExecOptions(ExecSettings, frozen=True):
    """The table `[exec]` of prose.toml, and limits that only an operator's code can set.

    - `cpu_seconds`: CPU time of one process; None: as many seconds as the call may take.
    - `file_bytes`, `open_files`: the largest file that may be written, and how many may be open.
    """

    cpu_seconds: int | None = None
    file_bytes: int = 64 * 1024 * 1024
    open_files: int = 256
