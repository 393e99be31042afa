"""`exec` on other machines: the machine's `Commands` port over the workers of a Dask cluster.

Commands wait here until a worker has a free place; the worker with the most free places gets the next command.
`worker_client.py` sends it. A command that was sent is never sent again, even if its worker is lost.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from prose_kernel.processes.command_output import Live
from prose_kernel.processes.cross_loop import await_answer, call_in_loop
from prose_kernel.processes.resources import covers, shown, unmet
from prose_kernel.processes.shell import CLOSED, identified
from prose_kernel.processes.termination import GRACE
from prose_kernel.remote.connection import ActorOptions, ClusterConnection, SchedulerAddress
from prose_kernel.remote.messages import LEASE, Inherit
from prose_kernel.remote.worker_actor import allowed
from prose_kernel.remote.worker_client import RemoteCommand, WorkerClient
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import CommandRequest, CommandResult, OnOutput, Outcome, Owner

INHERITED = (
    *("LANG", "LANGUAGE", "LC_*", "TZ"),
    # variables that Dask sets for workers
    *("PYTHONHASHSEED", "*_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "DASK_INTERNAL_*", "__DASK_*"),
)
"""The variables that commands always get from this process, because they influence the output of commands."""

NO_WORKER = 8.0
"""Seconds that commands wait for a worker if there is none."""


class WorkerState(Struct, frozen=True):
    """A worker for display: its machine and address, its places and how many of them are taken (`running`), its
    resources, and whether it is being retired (`leaving`)."""

    host: str
    address: str
    places: int
    running: int
    resources: Mapping[str, float] = field(default_factory=dict)
    leaving: bool = False


class RemoteState(Struct, frozen=True):
    """The workers in use, and the reasons why others are not used."""

    url: str
    encrypted: bool
    workers: tuple[WorkerState, ...]
    refused: tuple[str, ...]
    refused_count: int

    @property
    def places(self) -> int:
        return sum(worker.places for worker in self.workers)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to show to the person."""
        found = []
        if not self.encrypted:
            found.append(
                f"{self.url} is not encrypted: anyone who can reach it can run programs on its workers and here; "
                "use TLS"
            )
        if self.refused:
            count = f"{self.refused_count} worker{'s are' if self.refused_count != 1 else ' is'}"
            found.append(f"{count} not used: {'; '.join(self.refused)}")
        return tuple(found)


class LinkOptions(Struct, frozen=True):
    """The options of the connection to workers.

    - `grace`: seconds between SIGTERM and SIGKILL.
    - `lease`: seconds without a sign of life from us after which a worker ends our commands.
    - `direct`: connect to workers directly if possible, not only through the scheduler.
    """

    grace: float = GRACE
    lease: float = LEASE
    direct: bool = True


DEFAULT_LINK: Final = LinkOptions()


class RemoteCommands:
    """The `Commands` port. `url` is a scheduler's address or `local`; `directory` must be the same on all workers.

    `environment` are patterns of variables that commands inherit from this process, in addition to `INHERITED`; they
    inherit all other variables from the worker. `resources` are this machine's, for the workers of `local`. `displayed`
    and `shell` are options of `ShellCommands`. The constructor does not connect.
    """

    def __init__(
        self,
        url: str,
        directory: Path,
        *,
        environment: Sequence[str] = (),
        resources: Mapping[str, float] = {},
        shell: str | None = None,
        displayed: int = 0,
        link: LinkOptions = DEFAULT_LINK,
    ) -> None:
        self.mark = f"{secrets.token_hex(8)}-"
        """The prefix of the marker (`PROSE_JOB`) of every command of this run, on every machine."""
        self._patterns = (*INHERITED, *environment)
        self._displayed = displayed
        self._numbers = 0
        self._local_workers: set[int] = set()  # process ids of workers on this machine
        self._waiting = WaitingCommands()
        self._no_worker: asyncio.TimerHandle | None = None
        self._unmet: dict[str, asyncio.TimerHandle | None] = {}
        """Needs that no worker meets, as text, with the timer that ends the wait for a worker; None after it."""
        self._owner: Owner | None = None
        self._closed = False
        self._connection = ClusterConnection(
            SchedulerAddress(url, resources),
            ActorOptions(directory, self.mark, shell, link.grace, link.lease),
            joined=self._place_soon,
            left=self._worker_left,
            changed=self._place,
            direct=link.direct,
        )

    async def connect(self, owner: Owner | None = None) -> RemoteState:
        """Connect, if not connected, and run the commands of this owner's run from now on. Commands of the run's former
        owners are ended first. Raises `UsageError` with the reason if no worker can be used."""
        claims = owner is not None and self._connection.begun
        self._owner = owner or self._owner
        await self._connected()
        if owner is not None and claims:
            claimed = asyncio.run_coroutine_threadsafe(self._connection.claim(owner), self._connection.loop)
            await asyncio.wrap_future(claimed)
        return self.state

    @property
    def run_id(self) -> str | None:
        """The id of the run whose commands are executed."""
        return self._owner.run if self._owner is not None else None

    async def _connected(self) -> None:
        opened = self._connection.open(self._owner)
        if opened.done():  # return without giving other coroutines a turn
            return opened.result()
        waiting = asyncio.wrap_future(opened)
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # read the exception, so that asyncio does not warn
            waiting.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise

    @property
    def state(self) -> RemoteState:
        """The workers in use now, and the reasons why others are not used."""
        link = self._connection
        workers = sorted(link.workers.copy().values(), key=lambda worker: worker.address)
        return RemoteState(
            link.target.url, link.target.encrypted, tuple(map(_state, workers)), link.refused, link.refused_count
        )

    # ------------------------------------------------------------ the port

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        """Run a command as `Commands.run` does. If its worker is lost, return the outcome `lost` and repeat nothing."""
        link, loop = self._connection, asyncio.get_running_loop()
        if self._closed:
            return CLOSED
        await self._connected()
        answer: asyncio.Future[CommandResult] = loop.create_future()
        command: list[RemoteCommand] = []

        def post(callback: Callable[[], None]) -> bool:
            posted = call_in_loop(loop, callback)
            if not posted:  # the caller's loop is closed: the command is no longer needed
                link.post(self._cancel, command[0])
            return posted

        live = Live(link.loop, post, on_output, self._displayed) if on_output is not None else None
        completes = open_request.completing()

        def done(result: CommandResult) -> None:
            completes(result)

            def complete() -> None:
                if live is not None:
                    live.deliver()
                if not answer.done():
                    answer.set_result(result)

            post(complete)

        self._numbers += 1
        command.append(RemoteCommand(self._numbers, identified(request), live, done))
        if not link.post(self._submit, command[0]):
            return CLOSED
        return await await_answer(answer, lambda: link.post(self._cancel, command[0]))

    def interrupt(self) -> None:
        """Interrupt all workers for the user, from any thread, as `ShellCommands.interrupt` does."""
        self._connection.post(self._interrupt)

    def close(self) -> None:
        """End all commands on all workers, disconnect, and end our own cluster. Blocks, for a bounded time."""
        self._closed = True
        self._connection.post(self._refuse_all, "cancelled")
        self._connection.close()

    # ------------------------------------------------------------ in the connection's loop

    def _submit(self, command: RemoteCommand) -> None:
        self._waiting.add(command)
        self._place()

    def is_worker(self, pid: int) -> bool:
        """Return whether a process of this machine is, or was, one of the workers. Callable from any thread."""
        return pid in self._local_workers

    def _place_soon(self, worker: WorkerClient) -> None:
        if worker.facts.host == socket.gethostname():
            self._local_workers.add(worker.facts.pid)
        for timer in self._unmet.values():
            if timer is not None:
                timer.cancel()
        self._unmet.clear()
        self._place()

    def _place(self) -> None:
        """Give places to waiting commands, in order, each at the worker with the most free places."""
        for worker in self._connection.workers.values():
            self._requeue_unsent(worker)
        if self._closed:  # nothing else would answer them
            self._refuse_all("cancelled")
        workers = [worker for worker in self._connection.workers.values() if not worker.leaving]
        if not workers and self._waiting and self._no_worker is None:
            self._no_worker = self._connection.loop.call_later(NO_WORKER, self._give_up)
        if workers and self._no_worker is not None:
            self._no_worker.cancel()
            self._no_worker = None
        if not workers or not self._waiting:
            return
        inherited = self._inherited()
        while self._place_next(workers, inherited):
            pass

    def _place_next(self, workers: Sequence[WorkerClient], inherited: Inherit) -> bool:
        """Start the first command for which a worker has a place; return whether there was one."""
        for group in self._waiting.groups():
            fitting = [worker for worker in workers if worker.can_start(needs_of(group))]
            if fitting:
                best = max(fitting, key=lambda worker: (worker.free, -len(worker.resources)))
                best.start(self._waiting.take(group), inherited)
                return True
            if not any(covers(worker.resources, needs_of(group)) for worker in workers):
                self._wait_for_resources(group)
        return False

    def _wait_for_resources(self, group: Group) -> None:
        """Wait a while for a worker that meets the needs of these commands, because no present worker does."""
        needs = shown(needs_of(group))
        if needs not in self._unmet:
            self._unmet[needs] = self._connection.loop.call_later(NO_WORKER, self._refuse_unmet, needs)
        elif self._unmet[needs] is None:
            self._connection.loop.call_soon(self._refuse_unmet, needs)

    def _refuse_unmet(self, needs: str) -> None:
        self._unmet[needs] = None
        for command in self._waiting.take_needing(needs):
            command.finish(unmet(f"it needs {needs}, and no worker offers that (dask worker --resources)"))
        self._place()

    def _inherited(self) -> Inherit:
        values = {name: value for name, value in os.environ.items() if allowed(name, self._patterns)}
        return Inherit(self._patterns, values)

    def _worker_left(self, worker: WorkerClient) -> None:
        self._requeue_unsent(worker)
        self._place()

    def _requeue_unsent(self, worker: WorkerClient) -> None:
        """Return the commands that the worker has not started to the waiting ones."""
        unsent, worker.unsent = worker.unsent, []
        for command in unsent:
            if command.ending is not None:
                command.refuse(command.ending)
        self._waiting.put_back(command for command in unsent if not command.ended)

    def _give_up(self) -> None:
        self._no_worker = None
        for command in self._waiting.take_all():
            command.finish(unmet("no worker is left"))

    def _cancel(self, command: RemoteCommand) -> None:
        if self._waiting.remove(command):
            command.refuse("cancelled")
        else:
            command.stop()

    def _interrupt(self) -> None:
        self._refuse_all("interrupted")
        for worker in self._connection.workers.values():
            worker.interrupt()

    def _refuse_all(self, outcome: Outcome) -> None:
        for command in self._waiting.take_all():
            command.refuse(outcome)


def _state(worker: WorkerClient) -> WorkerState:
    running = len(worker.running)
    return WorkerState(worker.facts.host, worker.address, worker.places, running, worker.resources, worker.leaving)


# ---------------------------------------------------------------- waiting commands

Needs = tuple[tuple[str, float], ...]

Group = deque[RemoteCommand]
"""Waiting commands with the same needs, in order; never empty."""


class WaitingCommands:
    """All waiting commands, grouped by their needs, so that workers are checked once for each group."""

    def __init__(self) -> None:
        self._groups: defaultdict[Needs, Group] = defaultdict(deque)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, command: RemoteCommand) -> None:
        self._groups[_key(command)].append(command)

    def put_back(self, commands: Iterable[RemoteCommand]) -> None:
        """Put commands that had a place but were not started at the front, in order."""
        for command in sorted(commands, key=lambda command: command.number, reverse=True):
            self._groups[_key(command)].appendleft(command)

    def remove(self, command: RemoteCommand) -> bool:
        """Remove a command; return whether it was waiting."""
        key = _key(command)
        if command not in self._groups.get(key, ()):
            return False
        self._groups[key].remove(command)
        self._drop_empty(key)
        return True

    def take(self, group: Group) -> RemoteCommand:
        """Take the first command of a group."""
        command = group.popleft()
        self._drop_empty(_key(command))
        return command

    def take_all(self) -> list[RemoteCommand]:
        """Take all commands, in order."""
        found = sorted((one for group in self._groups.values() for one in group), key=lambda one: one.number)
        self._groups.clear()
        return found

    def take_needing(self, needs: str) -> list[RemoteCommand]:
        """Take all commands with these needs, which are given as text."""
        found = [key for key, group in self._groups.items() if shown(needs_of(group)) == needs]
        return [command for key in found for command in self._groups.pop(key)]

    def groups(self) -> Iterator[Group]:
        """Yield the groups that may get a place, the group with the earliest command first.

        No command overtakes an earlier one that needs one of the same resources, because that one might then wait
        forever.
        """
        blocked: set[str] = set()
        for group in sorted(self._groups.values(), key=lambda group: group[0].number):
            needs = needs_of(group)
            if blocked.isdisjoint(needs):
                yield group
            blocked.update(needs)

    def _drop_empty(self, key: Needs) -> None:
        if not self._groups[key]:
            del self._groups[key]


def needs_of(group: Group) -> Mapping[str, float]:
    return group[0].request.needs


def _key(command: RemoteCommand) -> Needs:
    return tuple(sorted(command.request.needs.items()))
