"""The process engine and its users: `exec`, the shell commands of a program.

`Engine` owns one thread with its own event loop from first use to `close`; `ShellCommands` is the machine's `Commands`
port on top of it. Both are imported on first use, because a kernel must be able to start without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prose_kernel.processes.engine import Engine
    from prose_kernel.processes.shell import ShellCommands

__all__ = ["Engine", "ShellCommands"]


def __getattr__(name: str) -> object:
    if name == "Engine":
        from prose_kernel.processes.engine import Engine

        return Engine
    if name == "ShellCommands":
        from prose_kernel.processes.shell import ShellCommands

        return ShellCommands
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
