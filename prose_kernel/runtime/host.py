"""What a root program shares with all programs that it imports: ports, listeners, scheduler, budgets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.events import Audience, BranchStep, Listener
from prose_kernel.runtime.journal import Journal
from prose_kernel.runtime.ports import CommandResult, FoundRun, LoadProgram, Ports
from prose_kernel.runtime.running_loops import OpenLoop
from prose_kernel.runtime.scheduler import Scheduler
from prose_kernel.runtime.shared_names import SharedNames
from prose_kernel.runtime.statement_hook import StatementHook


@dataclass(eq=False, repr=False)
class Host:
    """Shared by a root program and all that it imports: the ports, the listeners, the scheduler, the spawn numbers.

    `preview` is None when a program runs. A language may have a mode in which it only lists the requests that it would
    make; its constructs then ask this object where to continue. `hook` is called with each statement before it runs;
    None if there is no hook. `concurrency` limits how many commands and sessions run at the same time (None: no limit);
    it never changes results. `load` resolves imports. `supplied` holds input values given so far; the running text has
    those in `supplied_to_text`: if it continues after a restore, later values only answer its questions. `find_run`
    finds a completed run by its id or path, and raises `UsageError`. `contracts` is the way to decide whether a node of
    a contract file keeps its promises, `needs_checked` whether the tools and environment variables that it names must
    be on this machine. With `pipefail` commands run so where the program does not say.
    """

    ports: Ports
    listeners: Sequence[Listener] = ()
    concurrency: int | None = field(default=None, kw_only=True)
    load: LoadProgram | None = field(default=None, kw_only=True)
    hook: StatementHook | None = field(default=None, kw_only=True)
    supplied: dict[str, str] = field(default_factory=dict, kw_only=True)
    find_run: Callable[[str], FoundRun] | None = field(default=None, kw_only=True)
    contracts: Literal["rules", "judge", "off"] = field(default="rules", kw_only=True)
    needs_checked: bool = field(default=True, kw_only=True)
    pipefail: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.listeners = tuple(self.listeners)
        self.supplied_to_text: Mapping[str, str] = self.supplied
        self.heard = Audience(self.listeners)
        """The listeners of each kind of event. Hot loops check here before they create an event."""
        self.loops: dict[OpenLoop, None] = {}
        """The loops that run now, outer ones first."""
        self.permits = asyncio.Semaphore(self.concurrency) if self.concurrency is not None else None
        self.scheduler = Scheduler()
        self.names = SharedNames()
        self.journal: Journal | None = None
        self.preview: Any = None
        self.renderer: Any = None
        """Renders the targets of calls, in a language that has calls of contracts."""
        self.budget: Budget | None = None
        """That of the run."""
        self.agent_budgets: dict[str, Budget] = {}
        self.caught_budgets: Counter[str] = Counter()
        """How often programs have caught that a budget is spent, by its key."""
        self.lost_warned = False
        self.failed_commands: dict[tuple[BranchStep, ...], CommandResult] = {}
        """By running branch: the last command in it that failed and raised nothing."""
        self._spawns = 0

    def next_spawn(self) -> int:
        self._spawns += 1
        return self._spawns
