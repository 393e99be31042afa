"""The objects that a root program shares with all programs that it imports: ports, listeners, scheduler, budgets."""

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
    """The objects shared by a root program and its imports.

    - `hook` is called with each statement before it runs
    - `concurrency` limits how many commands and sessions run at the same time, and never changes results
    - `load` resolves imports
    - `supplied` has the input values given so far, `supplied_to_text` those given to the running text: if the text
      continues after a restore, later values only answer its questions
    - `find_run` finds a completed run by its id or path, and raises `UsageError`
    - `contracts` is how the promises of a contract file's node are checked; `needs_checked`: whether the tools and
      environment variables that it names must be on this machine
    - `pipefail` is the default of commands that do not set it
    - `preview` is None while a program runs. In a language's preview mode, which only lists the requests that would be
      made, the constructs ask this object where to continue
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
        """The listeners for each kind of event. Frequent code checks here before it creates an event."""
        self.loops: dict[OpenLoop, None] = {}
        """The running loops, outer ones first."""
        self.permits = asyncio.Semaphore(self.concurrency) if self.concurrency is not None else None
        self.scheduler = Scheduler()
        self.names = SharedNames()
        self.journal: Journal | None = None
        self.preview: Any = None
        self.renderer: Any = None
        """Renders the targets of calls, in a language that has calls of contracts."""
        self.budget: Budget | None = None
        """The budget of the run."""
        self.agent_budgets: dict[str, Budget] = {}
        self.caught_budgets: Counter[str] = Counter()
        """How often programs have caught a spent budget, by the key of the budget."""
        self.lost_warned = False
        self.failed_commands: dict[tuple[BranchStep, ...], CommandResult] = {}
        """For each running branch, its last command that failed without an error."""
        self._spawns = 0

    def next_spawn(self) -> int:
        self._spawns += 1
        return self._spawns
