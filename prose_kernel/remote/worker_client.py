"""The driver's side of one worker: sends orders, receives news of its commands, notices the loss of the worker.

Everything here runs in the loop of the connection (`remote.connection`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from prose_kernel.language.structs import replace
from prose_kernel.processes.command_output import Beginning, Live
from prose_kernel.processes.resources import covers
from prose_kernel.remote import messages
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Outcome, Owner

if TYPE_CHECKING:
    from prose_kernel.remote.connection import Actor

_SLOWEST = 1_000_000
"""Characters a second that every network transmits, to give large inputs and results more time."""

_LAST_NEWS = 3.0
"""Seconds for the results of ended commands to arrive."""

LOST = 255
"""The exit code of a lost command, as with ssh."""

_STOPPING = 15.0
"""Seconds that a worker has to end a command after its order."""


T = TypeVar("T")


async def within(call: Awaitable[T], seconds: float) -> T:
    """Return the result of a call, or raise `TimeoutError` after `seconds`, even if the call ignores its cancellation.
    `asyncio.wait_for` would wait for such a call, and may lose a cancellation that arrives together with the result."""
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.add_done_callback(lambda late: late.cancelled() or late.exception())  # so that asyncio does not warn
    task.cancel()
    raise TimeoutError


class RemoteCommand:
    """A command, from the call to its result. `answer` is called once, with the result."""

    def __init__(
        self, number: int, request: CommandRequest, live: Live | None, answer: Callable[[CommandResult], None]
    ) -> None:
        self.number = number
        self.request = request
        self.worker: WorkerClient | None = None
        self.ended = False
        self.ending: Outcome | None = None
        """The reason why it must end. Then its output is not paused any more, so that its end can arrive."""
        self._live = live
        self._answer = answer
        self._seen = 0
        self._started = 0.0
        self._kept = {"stdout": Beginning(request.max_output), "stderr": Beginning(request.max_output)}
        self._end_timer: asyncio.TimerHandle | None = None
        if live is not None:
            live.resume = self._resume_output

    @property
    def _name(self) -> str | None:
        return f"{self.worker.facts.host} {self.worker.address}" if self.worker is not None else None

    def assign(self, worker: WorkerClient) -> None:
        self.worker = worker
        self._started = asyncio.get_running_loop().time()

    def take(self, news: messages.Chunk | messages.End) -> bool:
        """Take a message; return whether it was the end. Repeated messages are dropped."""
        if news.at <= self._seen:
            return False
        if news.at != self._seen + 1:
            self.lose()
            return True
        self._seen = news.at
        if isinstance(news, messages.End):
            self.finish(replace(news.result, worker=self._name))
            return True
        for stream, text in news.pieces:
            self._kept[stream].add(text)
            if self._live is not None:
                self._live.feed(stream, text)
        if self._live is not None and self._live.full and self.worker is not None and not self.ending:
            self.worker.send_orders(messages.Hold(self.number, on=True))
        return False

    def _resume_output(self) -> None:
        """Continue the output, because the consumer has caught up."""
        if self.worker is not None and not self.ended:
            self.worker.send_orders(messages.Hold(self.number, on=False))

    def stop(self) -> None:
        """Stop a command that the caller no longer needs. It gets a limited time to end."""
        if self.worker is not None and not self.ended:
            self.worker.send_orders(messages.Stop(self.number))
            self.expect_end("cancelled")

    def expect_end(self, why: Outcome) -> None:
        """Limit the wait for a command that was ordered to end."""
        if self.ending or self.worker is None:
            return
        self.ending = why
        self.worker.send_orders(messages.Hold(self.number, on=False))
        self._end_timer = asyncio.get_running_loop().call_later(_STOPPING, self._lose_patience)

    def _lose_patience(self) -> None:
        if self.worker is not None:
            self.worker.forget(self)
        self.lose()

    def lose(self) -> None:
        """End a command about which no more messages will arrive."""
        self.finish(
            CommandResult(
                "lost",
                LOST,
                stdout=self._kept["stdout"].text,
                stderr=self._kept["stderr"].text,
                kind="lost",
                stdout_truncated=self._kept["stdout"].truncated,
                stderr_truncated=self._kept["stderr"].truncated,
                duration=asyncio.get_running_loop().time() - self._started if self._started else 0.0,
                worker=self._name,
            )
        )

    def refuse(self, outcome: Outcome) -> None:
        """End a command that was never sent."""
        number = signal.SIGINT if outcome == "interrupted" else signal.SIGTERM
        self.finish(CommandResult(outcome, 128 + number, kind="signal"))

    def finish(self, result: CommandResult) -> None:
        if self.ended:
            return
        self.ended = True
        if self._end_timer is not None:
            self._end_timer.cancel()
        if self._live is not None:
            self._live.stop()
        self._answer(result)


class WorkerCapacity(Struct, frozen=True):
    """The number of commands that a worker runs simultaneously, and its resources."""

    places: int
    resources: Mapping[str, float] = field(default_factory=dict)


class WorkerClient:
    """A worker with its actor and its places. `changed` is called when a place becomes free or a command was declined;
    `lost` is called once, when the worker is lost, or is `leaving` and all its commands have ended."""

    def __init__(
        self,
        address: str,
        offer: WorkerCapacity,
        facts: messages.Facts,
        actor: Actor,
        changed: Callable[[], None],
        lost: Callable[[WorkerClient], None],
    ) -> None:
        self.address = address
        self.places = offer.places
        self.resources = offer.resources
        self.facts = facts
        self.running: dict[int, RemoteCommand] = {}
        self._actor = actor
        self._changed = changed
        self._on_lost = lost
        self._orders: list[messages.Order] = []
        self._batch = 0
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._inherited: messages.Inherit | None = None
        self._forgotten: list[Mapping[str, float]] = []
        self._parting: asyncio.Future[None] | None = None
        self._tasks = [asyncio.ensure_future(self._sending()), asyncio.ensure_future(self._receiving())]
        self._gone = False
        self.leaving = False
        """Whether the worker is being retired: its commands may end, and it accepts no more."""
        self.unsent: list[RemoteCommand] = []
        """Commands that had a place here and were never started: another worker can run them."""

    @property
    def free(self) -> int:
        return 0 if self.leaving else self.places - len(self.running)

    def can_start(self, needs: Mapping[str, float]) -> bool:
        """Return whether the worker has a free place, and the needed resources are free."""
        return self.free > 0 and covers(self.resources, needs, self._taken())

    def _taken(self) -> Iterator[Mapping[str, float]]:
        yield from self._forgotten
        for command in self.running.values():
            yield command.request.needs

    # ------------------------------------------------------------ orders

    def start(self, command: RemoteCommand, inherited: messages.Inherit) -> None:
        self.running[command.number] = command
        command.assign(self)
        if inherited != self._inherited:
            self._inherited = inherited
            self.send_orders(inherited)
        self.send_orders(messages.Start(command.number, command.request))

    def send_orders(self, *orders: messages.Order) -> None:
        """Send orders in sequence, after the waiting ones."""
        self._orders += orders
        self._more.set()

    def interrupt(self) -> None:
        """Interrupt all commands of the worker for the user."""
        self.send_orders(messages.Interrupt())
        for command in self.running.values():
            command.expect_end("interrupted")

    async def claim(self, owner: Owner, patience: float) -> None:
        """Send the owner of the next run to the actor. A worker that refuses or does not answer is lost."""
        await self._answer_or_lose(self._actor.claim(self.facts.instance, owner), patience)

    def forget(self, command: RemoteCommand) -> None:
        """Keep the place and resources of a command taken: it may still run."""
        self.running.pop(command.number, None)
        self._forgotten.append(command.request.needs)
        self.places = max(0, self.places - 1)

    # ------------------------------------------------------------ communication

    async def _sending(self) -> None:
        """Send orders as soon as there are any, and periodically an empty batch as a sign of life."""
        while True:
            with contextlib.suppress(TimeoutError):
                await within(self._more.wait(), messages.POLL)
            self._more.clear()
            orders, self._orders = tuple(self._orders), []
            self._batch += 1
            requests = [order.request for order in orders if isinstance(order, messages.Start)]
            size = sum(len(request.command) + len(request.stdin or "") for request in requests)
            patience = messages.SILENCE + size / _SLOWEST
            call = self._actor.send_orders(self.facts.instance, self._batch, orders)
            if not await self._answer_or_lose(call, patience):
                return

    async def _receiving(self) -> None:
        seen: dict[int, int] = {}
        while True:
            size = sum(2 * command.request.max_output for command in self.running.values())
            patience = messages.LEASE + size / _SLOWEST
            answer = await self._answer_or_lose(self._actor.exchange(self.facts.instance, seen), patience)
            if answer is None:
                return
            [news], seen = answer, {}
            for one in news:
                seen[one.number] = one.at
                self._take(one)
            if any(isinstance(one, (messages.End, messages.Declined, messages.Leaving)) for one in news):
                self._changed()
                if not self.running:
                    self._idle.set()
                    if self.leaving and self._parting is None:
                        self._parting = asyncio.ensure_future(self.close(messages.LEASE))

    def _take(self, one: messages.News) -> None:
        command = self.running.get(one.number)
        match one:
            case messages.Leaving():
                self.leaving = True
            case messages.Declined() if command is not None:
                self.unsent.append(self.running.pop(one.number))
            case messages.Chunk() | messages.End() if command is not None and command.take(one):
                self.running.pop(one.number, None)

    async def _answer_or_lose(self, call: Awaitable[T], patience: float) -> tuple[T] | None:
        """Return the answer of a call; give up the worker and return None if it fails or takes too long."""
        try:
            return (await within(call, patience),)
        except Exception:  # any error means that the worker cannot be relied on
            self.lose()
            return None

    def lose(self) -> None:
        """Give up an unreachable worker: its commands are lost; another worker can run the commands not yet sent."""
        if self._gone:
            return
        self._gone = True
        for task in self._tasks:
            task.cancel()
        unsent = {order.number for order in self._orders if isinstance(order, messages.Start)}
        running, self.running = self.running, {}
        self.unsent += [command for number, command in running.items() if number in unsent]
        self._on_lost(self)
        for number, command in running.items():
            if number not in unsent:
                command.lose()

    async def close(self, patience: float) -> None:
        """End all commands of the worker, if it can be reached, and wait for their results."""
        if self._gone:
            return
        try:
            await within(self._actor.close(self.facts.instance), patience)
            if self.running:
                self._idle.clear()
                await within(self._idle.wait(), _LAST_NEWS)
        except Exception:
            self.lose()
        else:
            if self.leaving:
                self.lose()
