"""The worker's side: an actor that runs the commands of one driver on a separate engine (docs/how-to/many-machines.md).

It lives as long as its driver: if the driver is silent for longer than the lease, or releases the actor, every command
is ended by the ladder. If the worker itself is killed, the engine's watchdog ends the commands.

The actor's methods run concurrently in the worker's event loop; callbacks of the engine come from the engine's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import os
import secrets
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prose_kernel._version import __version__
from prose_kernel.errors import reason_of
from prose_kernel.processes.child_process import Process
from prose_kernel.processes.command_output import no_op
from prose_kernel.processes.cross_loop import call_in_loop
from prose_kernel.processes.engine import Engine, EngineClosed
from prose_kernel.processes.shell import (
    CLOSED,
    NOT_INHERITED,
    Environment,
    ShellCommands,
    exports_functions,
    not_started,
)
from prose_kernel.processes.termination import GRACE
from prose_kernel.remote import messages
from prose_kernel.remote.worker_host import WorkerHost, this_host
from prose_kernel.runtime.ports import CommandResult, Owner, Stream

CHUNK = 8 * 1024
"""Characters of output that are sent immediately; fewer wait a moment for more."""
_INTERVAL = 0.05
_WINDOW = 4 * 1024 * 1024
"""Characters of one command that may wait for the driver; then reading pauses, as it would with a full pipe."""
_LEAVING = messages.Leaving()
_ANSWER_SIZE = 1024 * 1024
"""Characters of output in one answer; the last message may exceed this, because messages are never cut."""


class NotThisActor(Exception):
    """The call is meant for another actor, or comes after the end of this one."""


def versions() -> dict[str, str]:
    """Return the versions that both sides must share."""
    found = {"prose_kernel": __version__, "Python": "{}.{}".format(*sys.version_info)}
    try:
        found["distributed"] = version("distributed")
    except PackageNotFoundError:
        found["distributed"] = "none"
    return found


class WorkerActor:
    """The actor. `mark` is the prefix of the marker of its commands, `shell` the shell (None: the default), `grace` the
    seconds between two steps of a ladder, `lease` the seconds that it continues without contact to its driver."""

    def __init__(self, mark: str, shell: str | None, grace: float = GRACE, lease: float = messages.LEASE) -> None:
        self._work = DriverCommands(mark, shell, grace, lease)

    async def hello(self, proof: str, owner: Owner | None) -> messages.Facts:
        """End commands of earlier owners; return facts about this worker, and the content of the file `proof`.

        Raises `Superseded`.
        """
        return await self._work.introduce(proof, owner)

    async def claim(self, instance: str, owner: Owner) -> None:
        """Make the driver the owner of another run. Raises `Superseded`, `NotThisActor`."""
        await self._work.require_instance(instance).claim(owner)

    async def send_orders(self, instance: str, batch: int, orders: Sequence[messages.Order]) -> None:
        """Follow the orders in sequence, each batch once. Raises `NotThisActor`."""
        self._work.require_instance(instance).take(batch, orders)

    async def exchange(self, instance: str, seen: Mapping[int, int]) -> tuple[messages.News, ...]:
        """Return news of all commands as soon as there are any, or nothing after a while. `seen` has the number of the
        last message that the driver has received about each command; later messages are kept and sent again."""
        return await self._work.require_instance(instance).news(seen)

    async def close(self, instance: str) -> None:
        """End all commands. Returns when nothing is left; the results can still be fetched."""
        await asyncio.to_thread(self._work.require_instance(instance).close)

    def __del__(self) -> None:
        work = getattr(self, "_work", None)
        if work is not None:  # the driver has released the actor, so nothing waits for the end
            with contextlib.suppress(RuntimeError):  # the worker itself is ending
                threading.Thread(target=work.end, name="prose-actor-end", daemon=True).start()


class DriverCommands:
    """The work of an actor. It is a separate object, so that the actor can be deleted (`__del__`) while this runs."""

    def __init__(self, mark: str, shell: str | None, grace: float, lease: float) -> None:
        self._instance = secrets.token_hex(8)
        self._engine = Engine(grace=grace, mark=mark)
        self._environment = _InheritedEnvironment(f"{self._engine.marker}:exec")
        self._shell = ShellCommands(self._engine, shell, environment=self._environment)
        self._lease = lease
        self._batch = 0
        self._commands: dict[int, _Command] = {}
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard = 0.0
        self._ended = self._leaving = self._left = False
        self._host: WorkerHost | None = None
        self.owner: Owner | None = None

    async def introduce(self, proof: str, owner: Owner | None) -> messages.Facts:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(self._lease, self._check_lease)
            self._host = this_host()
            self._host.join(self)
        if owner is not None:
            await self.claim(owner)
        self._heard = self._loop.time()
        found, why_not = _read(proof)
        leaving = self._host is not None and self._host.leaving
        return messages.Facts(self._instance, versions(), socket.gethostname(), os.getpid(), found, why_not, leaving)

    async def claim(self, owner: Owner) -> None:
        assert self._host is not None
        await self._host.claim(self, owner)

    def require_instance(self, instance: str) -> DriverCommands:
        if instance != self._instance or self._ended or self._loop is None:
            raise NotThisActor
        self._heard = self._loop.time()
        return self

    def _check_lease(self) -> None:
        """End all commands if the driver has been silent for too long."""
        assert self._loop is not None
        if self._ended:
            return
        rest = self._heard + self._lease - self._loop.time()
        if rest > 0:
            self._loop.call_later(rest, self._check_lease)
        else:
            threading.Thread(target=self.end, name="prose-actor-end", daemon=True).start()

    def close(self) -> None:
        """End all commands; block until nothing is left. Callable from any thread except the engine's."""
        self._engine.close()
        if self._host is not None:
            self._host.gone(self)

    def leave(self) -> None:
        """Accept no more commands, because the worker is being retired."""
        self._leaving = True
        self._news.set()

    def end(self) -> None:
        """End all commands without an order of the driver, because it is lost or was replaced, or because the worker
        closes. Later calls of the driver get an error."""
        self._ended = True
        self._wake()
        self.close()

    # ------------------------------------------------------------ orders

    def take(self, batch: int, orders: Sequence[messages.Order]) -> None:
        if batch <= self._batch:
            return
        self._batch = batch
        for order in orders:
            match order:
                case messages.Start():
                    self._start(order)
                case messages.Stop(number) if number in self._commands:
                    self._commands[number].cancel()
                case messages.Hold(number, on) if number in self._commands:
                    self._commands[number].held = on
                    self._news.set()
                case messages.Interrupt():
                    self._engine.interrupt()
                case messages.Inherit():
                    self._environment.inherit(order)

    def _start(self, order: messages.Start) -> None:
        assert self._loop is not None
        command = _Command(order.number, self._engine, self._wake)
        self._commands[order.number] = command
        if self._leaving:
            command.decline()
            return
        try:
            self._engine.start()
        except EngineClosed:
            command.done(CLOSED)
            return
        except OSError as problem:
            command.done(not_started(problem))
            return
        command.start(self._shell.process(order.request, command, command.done))

    def _wake(self) -> None:
        """Signal, from any thread, that there is something to send."""
        if self._loop is not None:
            call_in_loop(self._loop, self._news.set)

    # ------------------------------------------------------------ news

    async def news(self, seen: Mapping[int, int]) -> tuple[messages.News, ...]:
        self._left = self._left or _LEAVING.number in seen
        for number, at in seen.items():
            command = self._commands.get(number)
            if command is not None and command.acknowledge(at):
                del self._commands[number]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(messages.POLL):
                while True:
                    if self._ended:  # a driver gets no results of commands that it has not ordered to end
                        raise NotThisActor
                    self._news.clear()
                    if found := self._collect():
                        return found
                    await self._news.wait()
        return ()

    def _collect(self) -> tuple[messages.News, ...]:
        """Return pending news of every command, up to a maximum size; commands left out come first next time."""
        found: list[messages.News] = [_LEAVING] if self._leaving and not self._left else []
        room = _ANSWER_SIZE
        for number in tuple(self._commands):
            if room <= 0:
                break
            command = self._commands[number]
            size, messages = command.waiting(room)
            if messages:
                room -= size
                found += messages
                del self._commands[number]
                self._commands[number] = command
        return tuple(found)


def _read(proof: str) -> tuple[str | None, str]:
    """Return the content of a file, or None and the reason."""
    try:
        return Path(proof).read_text("utf-8"), ""
    except UnicodeDecodeError:
        return None, "not text"
    except OSError as problem:
        return None, reason_of(problem)


class _Command:
    """One command: the `Feed` of its process, and the messages for the driver. `feed`, `stop` and `done` are called in
    the engine's thread, the other methods in the worker's loop."""

    def __init__(self, number: int, engine: Engine, wake: Callable[[], None]) -> None:
        self.full = False
        self.held = False
        self.resume: Callable[[], None] = no_op
        self._number = number
        self._engine = engine
        self._wake = wake
        self._process: Process | None = None
        self._lock = threading.Lock()
        self._pieces: list[tuple[Stream, str]] = []  # the chunk that is being filled
        self._size = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._kept: deque[tuple[int, messages.News]] = deque()  # messages not acknowledged yet, with their sizes
        self._kept_size = 0
        self._count = 0

    def start(self, process: Process) -> None:
        self._process = process
        if not self._engine.post(self._engine.submit, process):
            self.done(CLOSED)

    def cancel(self) -> None:
        if self._process is not None:
            self._engine.post(self._engine.cancel, self._process)

    # ------------------------------------------------------------ the engine's thread

    def feed(self, stream: Stream, text: str) -> None:
        if not text:
            return
        if self._pieces and self._pieces[-1][0] == stream:
            text = self._pieces.pop()[1] + text
        self._pieces.append((stream, text))
        self._size = sum(len(piece) for _, piece in self._pieces)
        loop = self._engine.loop
        wait = self._due - _INTERVAL / 2 - loop.time()
        if wait <= 0 or self._size >= CHUNK:
            self._close_chunk()
        elif self._timer is None:
            self._timer = loop.call_later(wait, self._close_chunk)

    def _close_chunk(self) -> None:
        self.stop()
        if not self._pieces:
            return
        now = self._engine.loop.time()
        self._due = max(self._due, now) + _INTERVAL if self._size < CHUNK else now + _INTERVAL
        pieces, self._pieces = tuple(self._pieces), []
        with self._lock:
            self._count += 1
            self._kept.append((self._size, messages.Chunk(self._number, self._count, pieces)))
            self._kept_size += self._size
            self.full = self._kept_size >= _WINDOW
        self._wake()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def done(self, result: CommandResult) -> None:
        self._close_chunk()
        with self._lock:
            self._count += 1
            self._kept.append((0, messages.End(self._number, self._count, result)))
        self._wake()

    # ------------------------------------------------------------ the worker's loop

    def decline(self) -> None:
        """Report that the command is not started here."""
        self._kept.append((0, messages.Declined(self._number, 1)))
        self._wake()

    def waiting(self, room: int) -> tuple[int, list[messages.News]]:
        """Return the messages that the driver has not acknowledged, until `room` is filled, and their size."""
        size, found = 0, list[messages.News]()
        if self.held:
            return size, found
        with self._lock:
            for length, message in self._kept:
                found.append(message)
                size += length
                if size >= room:
                    break
        return size, found

    def acknowledge(self, at: int) -> bool:
        """Drop the messages that the driver has received, up to this one; return True if that was the last."""
        with self._lock:
            while self._kept and self._kept[0][1].at <= at:
                size, message = self._kept.popleft()
                self._kept_size -= size
                if isinstance(message, (messages.End, messages.Declined)):
                    return True
            was_full, self.full = self.full, self._kept_size >= _WINDOW
        if was_full and not self.full:
            self._engine.post(self.resume)
        return False


class _InheritedEnvironment(Environment):
    """The worker's environment, with the variables that the driver sets."""

    def __init__(self, marker: str) -> None:
        super().__init__(marker)
        self._order = messages.Inherit((), {})
        self._base: dict[bytes, bytes] | None = None
        self._merged: dict[bytes, bytes] = {}

    def inherit(self, order: messages.Inherit) -> None:
        self._order, self._base = order, None

    def current(self) -> dict[bytes, bytes]:
        base = super().current()
        if base is not self._base:
            self._base = base
            self._merged = {
                name: value for name, value in base.items() if not allowed(os.fsdecode(name), self._order.patterns)
            }
            self._merged |= {os.fsencode(name): os.fsencode(value) for name, value in self._order.values.items()}
            self.has_functions = exports_functions(self._merged)
        return self._merged


def allowed(name: str, patterns: Sequence[str]) -> bool:
    """Return whether commands inherit this variable from the driver."""
    if name.encode("utf-8", "surrogateescape") in NOT_INHERITED or name == "PROSE_JOB":
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
