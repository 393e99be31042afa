"""The operating system's functions for processes: Linux's own where they exist, otherwise POSIX and psutil.

Both modules have the same functions; one is chosen at import. Tests set `PROSE_PLATFORM=posix` to choose as on a system
without Linux's facilities. The watchdog and the monitor import this package by path, under the name `system`, without
the rest of prose_kernel: so it must import as little as possible.
"""

from __future__ import annotations

import os
import sys

LINUX = (
    sys.platform.startswith("linux")
    and os.environ.get("PROSE_PLATFORM") != "posix"
    and hasattr(os, "pidfd_open")
    and hasattr(os, "memfd_create")
    and os.path.exists("/proc/self/stat")  # noqa: PTH110 - pathlib would delay the start of the watchdog
)
"""Whether Linux's facilities are used: /proc, pidfd, memfd, sub-reapers, Landlock."""

if LINUX:
    from .linux import *  # noqa: F403
else:
    from .posix import *  # noqa: F403
