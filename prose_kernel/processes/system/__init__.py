"""Process facilities of the operating system: those of Linux where they exist, otherwise POSIX and psutil.

Both modules have the same functions. The choice is made once; `PROSE_PLATFORM=posix` makes it as on a system without
Linux's facilities, which is how the tests try the other way. The watchdog and the monitor import this package by path,
under the name `system`, without the rest of prose_kernel: so nothing here imports more than it needs.
"""

from __future__ import annotations

import os
import sys

LINUX = (
    sys.platform.startswith("linux")
    and os.environ.get("PROSE_PLATFORM") != "posix"
    and hasattr(os, "pidfd_open")
    and hasattr(os, "memfd_create")
    and os.path.exists("/proc/self/stat")  # noqa: PTH110 - pathlib costs the watchdog its quick start
)
"""Whether Linux's facilities are used: /proc, pidfd, memfd, sub-reapers, Landlock."""

if LINUX:
    from .linux import (
        PYTHON_FLAGS,
        boot_id,
        children,
        environment,
        exit_descriptor,
        has_exited,
        memory_file,
        now,
        pids,
        prefer_for_out_of_memory,
        program_of,
        signal_masks,
        standing,
    )
else:
    from .posix import (
        PYTHON_FLAGS,
        boot_id,
        children,
        environment,
        exit_descriptor,
        has_exited,
        memory_file,
        now,
        pids,
        prefer_for_out_of_memory,
        program_of,
        signal_masks,
        standing,
    )

__all__ = [
    "LINUX",
    "PYTHON_FLAGS",
    "boot_id",
    "children",
    "environment",
    "exit_descriptor",
    "has_exited",
    "memory_file",
    "now",
    "pids",
    "prefer_for_out_of_memory",
    "program_of",
    "signal_masks",
    "standing",
]
