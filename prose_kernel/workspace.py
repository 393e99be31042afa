"""One run and everything it needs: the one place where ports are plugged into a machine.

The kernel, `%%prose` and the command line all feed source text to `Workspace.execute` and listen to its events. A cell
and a file take the same two calls: compile with what is known, run the tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.errors import CompileError, RunError
from prose_kernel.language.source import Source
from prose_kernel.machine.clock import SystemClock
from prose_kernel.machine.events import Event, Listener
from prose_kernel.machine.ports import Asker, Clock, Ports
from prose_kernel.machine.values import Value
from prose_kernel.settings import Settings

if TYPE_CHECKING:
    from prose_kernel.commands.shell import ShellCommands
    from prose_kernel.language.openprose import Compiled
    from prose_kernel.machine.openprose import Machine


@dataclass(frozen=True, slots=True)
class Start:
    """How a workspace begins: where, and under which name its program goes into the trace.

    `notebook` tells that cells arrive one by one, and that a gate never waits for a decision from outside.
    `supplied` holds input values given beforehand; `decisions` what a person decided about gates before the start.
    """

    cwd: Path
    program_file: str = "notebook"
    notebook: bool = True
    supplied: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, bool] = field(default_factory=dict)
