"""The engine's side of a program under a guard of the monitor (exec-and-tasks.md 1.3).

The guard enforces the time limit and ends the whole tree; the engine drains the pipes, requests the end, and makes the
record. If guard or monitor are stopped or killed from outside, the engine ends the processes of the tree that it sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import marshal
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from prose_kernel.processes import process_table, sandbox_syscalls, system_call_filter
from prose_kernel.processes.process_table import Member
from prose_kernel.processes.spawn import close
from prose_kernel.processes.stream_reading import Drain
from prose_kernel.processes.system import memory_file
from prose_kernel.processes.termination import AFTER_KILL, ladder
from prose_kernel.runtime.ports import Outcome, Stream

if TYPE_CHECKING:
    from prose_kernel.processes.engine import Engine

_START_TIMEOUT = 20.0
_CAUSES: dict[str, Outcome] = {"timed_out": "timed_out", "interrupted": "interrupted", "cancelled": "cancelled"}
_BACKSTOP = 3.0
"""Seconds after the time limit and the grace until a silent guard is killed."""

Identity = tuple[int, int]
"""Device and inode of a file, to detect that it was replaced after the check."""


class Confinement(Struct, frozen=True):
    """The restrictions of a program. They are set before it starts, and cannot be undone.

    - `landlock`: a Landlock domain, from which the program can neither signal nor trace nor inspect other processes.
    - `paths`: the only files that it can open, each with its rights (`sandbox_syscalls.READ` and others).
    - `own_network`: an empty network namespace; `no_tcp` forbids TCP through Landlock.
    - `apart`: separate namespaces without the named shared memory of other processes, in which the files and
      directories `read_only` cannot be changed.
    - `filtered`: refuse system calls (`system_call_filter`), with `no_sockets` also all sockets except Unix ones.
    - `keep_rights`: no restriction, only a guard.
    """

    landlock: bool = False
    paths: tuple[tuple[bytes, int], ...] | None = None
    own_network: bool = False
    no_tcp: bool = False
    apart: bool = False
    read_only: tuple[bytes, ...] = ()
    filtered: bool = False
    no_sockets: bool = False
    keep_rights: bool = False

    @property
    def filter(self) -> bytes:
        """The code of the system call filter; empty without one. Raises `OSError` if this machine supports none."""
        return system_call_filter.code(sockets=self.no_sockets, shared=not self.apart) if self.filtered else b""


class MonitoredLaunch(Struct, frozen=True):
    """A program to start: its absolute path, its arguments (`argv[0]` as the caller wrote it), and all options.

    `limits` are (resource, soft, hard). `grace` is the seconds between TERM and KILL at the time limit,
    `interrupt_grace` between the signals of a user's interrupt. `identity` (of the program) and `cwd_identity` are
    checked just before the start.
    """

    program: str
    argv: Sequence[str]
    env: Mapping[bytes, bytes]
    cwd: str
    timeout: float | None
    grace: float
    interrupt_grace: float
    limits: tuple[tuple[int, int, int], ...] = ()
    confinement: Confinement = Confinement()
    identity: Identity | None = None
    cwd_identity: Identity | None = None
    umask: int = 0o022

    def marshalled(self) -> bytes:
        confinement = {name: getattr(self.confinement, name) for name in Confinement.__struct_fields__}
        job = {name: getattr(self, name) for name in self.__struct_fields__ if name != "confinement"}
        argv = [os.fsencode(each) for each in self.argv]
        own = {"program": os.fsencode(self.program), "argv": argv, "env": dict(self.env), "cwd": os.fsencode(self.cwd)}
        limits = sandbox_syscalls.limited(self.limits)
        kernel = {"filter": self.confinement.filter, "start_timeout": _START_TIMEOUT, "limits": limits}
        ends = (
            ladder("timed_out", self.grace),
            ladder("cancelled", self.grace),
            ladder("interrupted", self.interrupt_grace),
        )
        ladders = {end.outcome: [(int(step.signal), step.grace) for step in end.steps[:-1]] for end in ends}
        return marshal.dumps({**confinement, **job, **own, **kernel, "ladders": ladders, "after_kill": AFTER_KILL})


class StartFailure(Struct, frozen=True):
    """A failed start: the `step` (`cwd`, `limits`, `confinement`, `program`, `monitor`), the errno, and a detail."""

    step: str
    number: int
    what: str = ""

    @property
    def name(self) -> str:
        return errno.errorcode.get(self.number, str(self.number))


class MonitorRecord(Struct, frozen=True):
    """How a program ended. `status` is a wait status, None if the program never started or never ended."""

    outcome: Outcome
    status: int | None = None
    duration: float = 0.0
    failure: StartFailure | None = None
    background_killed: int = 0
    max_rss: int = 0
    cpu_s: float = 0.0


class OutputSink(Protocol):
    """Receives the output of the program as bytes, in the engine's loop. Must not block."""

    def take(self, stream: Stream, data: bytes, final: bool) -> None: ...


class MonitoredProcess:
    """Owns one guard and, through it, one program (see `EngineProcess`). `done` is called exactly once."""

    def __init__(
        self, owner: Engine, launch: MonitoredLaunch, sink: OutputSink, done: Callable[[MonitorRecord], None]
    ) -> None:
        self.foreground = True
        self._owner = owner
        self._launch = launch
        self._done = done
        self._link = -1
        self._unfinished_line = b""
        self._guard: int | None = None
        self._last: list[str] = []
        """The words of the guard's last report, `ended` or `failed`; empty if it was killed before."""
        self._drain = Drain(owner.loop, sink.take, self._advance)
        self._main: Member | None = None
        self._started = 0.0
        self._exited = False
        self._finished = False
        self._backstop: asyncio.TimerHandle | None = None
        self._stopping = False
        self._outcome_if_lost: Outcome = "spawn_failed"

    @property
    def pid(self) -> int | None:
        """None: the watchdog knows the program's group, and the guard ends by itself."""
        return None

    @property
    def has_exited(self) -> bool:
        if self._finished or self._exited or self._main is None:
            return self._finished or self._exited
        now = process_table.member_of(self._main.pid)
        return now is None or now.identity != self._main.identity

    # ------------------------------------------------------------ start

    def start(self) -> None:
        try:
            stdout, stderr = self._spawn()
        except OSError as problem:
            self._finish(MonitorRecord("spawn_failed", failure=StartFailure("monitor", problem.errno or 0)))
            return
        loop = self._owner.loop
        self._started = loop.time()
        self._drain.start(stdout, stderr)
        loop.add_reader(self._link, self._read_reports)
        if self._launch.timeout is not None:
            limit = _START_TIMEOUT + self._launch.timeout + self._launch.grace + _BACKSTOP
            self._backstop = loop.call_later(limit, self._give_up)

    def _spawn(self) -> tuple[int, int]:
        """Send the program to the monitor. Return our ends of its stdout and stderr."""
        ours: list[int] = []
        theirs: list[int] = []
        try:
            theirs.append(memory_file(self._launch.marshalled()))
            link, other = socket.socketpair()
            ours.append(link.detach())
            theirs.append(other.detach())
            for _ in ("stdout", "stderr"):
                reader, writer = os.pipe()
                ours.append(reader)
                theirs.append(writer)
            self._owner.monitor.start(theirs)
        except OSError:
            close([*ours, *theirs])
            raise
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        self._link, stdout, stderr = ours
        return stdout, stderr

    # ------------------------------------------------------------ reports of the guard

    def _read_reports(self) -> None:
        try:
            data = os.read(self._link, 4096)
        except BlockingIOError:
            return
        except OSError:  # the guard ended before it read everything
            data = b""
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        for line in lines:
            words = line.decode("utf-8", "replace").split(" ")
            if words[0] == "guard":
                self._guard = int(words[1])
            elif words[0] == "started":
                self._program_started(int(words[1]), int(words[2]))
            else:
                self._last = words
        if self._last or not data:
            self._guard_ended()

    def _program_started(self, pid: int, ticks: int) -> None:
        self._started = self._owner.loop.time()
        self._main = Member(pid, pid, pid, ticks)
        self._owner.started(pid, ticks)
        if self._backstop is not None and self._launch.timeout is not None and not self._stopping:
            self._watch_ladder(self._launch.timeout + self._launch.grace)

    def _guard_ended(self) -> None:
        self._exited = True
        self._owner.loop.remove_reader(self._link)
        if not self._last:
            self._kill_visible_processes()
        self._advance()

    def _advance(self) -> None:
        if not self._exited or self._finished:
            return
        if self._drain.over:
            self._finish(self._record())
        else:
            self._drain.finish_soon(self._reading_timed_out, hurried=self._stopping)

    def _reading_timed_out(self) -> None:
        if not self._finished:
            self._finish(self._record())

    # ------------------------------------------------------------ ending it

    def _send_letter(self, letter: bytes) -> None:
        if self._link >= 0:
            with contextlib.suppress(OSError):
                os.write(self._link, letter)

    def stop(self, outcome: Outcome, grace: float | None = None) -> None:
        """Send TERM, wait, send KILL, to the whole tree; a `grace` shorter than the launch's means an earlier KILL."""
        self._outcome_if_lost, self._stopping = outcome, True
        self._send_letter(b"c")
        self._watch_ladder(self._launch.grace)
        if grace is not None and grace < self._launch.grace:
            self._owner.loop.call_later(grace, self._send_letter, b"k")

    def kill(self, outcome: Outcome) -> None:
        self.stop(outcome)
        self._send_letter(b"k")

    def interrupt(self) -> None:
        if self._outcome_if_lost == "interrupted":
            self._send_letter(b"k")
        self._outcome_if_lost, self._stopping = "interrupted", True
        self._send_letter(b"i")
        self._watch_ladder(2 * self._launch.interrupt_grace)

    def shutdown(self) -> None:
        self.stop("cancelled")

    def refuse(self, outcome: Outcome) -> None:
        self._finished = True
        self._done(MonitorRecord(outcome))

    def _watch_ladder(self, seconds: float) -> None:
        """Limit the wait for the guard: one that was stopped from outside ends nothing."""
        if self._finished or self._link < 0:
            return
        if self._backstop is not None:
            self._backstop.cancel()
        self._backstop = self._owner.loop.call_later(seconds + _BACKSTOP, self._give_up)

    def _give_up(self) -> None:
        if self._exited:  # the guard may have another program by now
            return
        self._kill_visible_processes()
        if self._guard is None:
            self._owner.monitor.kill()  # it has started no guard
        else:
            with contextlib.suppress(OSError):
                os.kill(self._guard, signal.SIGKILL)

    def _kill_visible_processes(self) -> None:
        """Send KILL to all processes below the guard, and to the program's own group and session."""
        for _ in range(3):  # processes may be forked while looking
            table = self._owner.table(fresh=True)
            for member in process_table.below((self._guard,), table) if self._guard is not None else ():
                with contextlib.suppress(OSError):
                    os.kill(member.pid, signal.SIGKILL)
            if self._main is not None:
                leader = self._main
                # a PID is not reused while a group or session has it, and this one was just in use
                if any(m.ticks >= leader.ticks and process_table.in_scope(m, leader.pid) for m in table):
                    process_table.signal_scope(leader.pid, signal.SIGKILL, table)

    # ------------------------------------------------------------ the end

    def _record(self) -> MonitorRecord:
        duration = self._owner.loop.time() - self._started
        match self._last:
            case ["ended", *_]:
                return self._ended(self._last, duration)
            case ["failed", step, number, *what] if step != "cancelled":
                return MonitorRecord("spawn_failed", failure=StartFailure(step, int(number), " ".join(what)))
        outcome = self._outcome_if_lost
        failure = StartFailure("monitor", 0, "it was ended from outside") if outcome == "spawn_failed" else None
        return MonitorRecord(outcome, duration=duration, failure=failure)

    def _ended(self, words: list[str], duration: float) -> MonitorRecord:
        status = int(words[1])
        outcome = _CAUSES.get(words[2]) or ("signaled" if status >= 0 and os.WIFSIGNALED(status) else "exited")
        return MonitorRecord(
            outcome,
            status if status >= 0 else None,
            duration,
            background_killed=int(words[3]),
            max_rss=int(words[5]),
            cpu_s=float(words[6]),
        )

    def _finish(self, record: MonitorRecord) -> None:
        self._finished = True
        if self._backstop is not None:
            self._backstop.cancel()
        self._drain.stop()
        if self._link >= 0:
            self._owner.loop.remove_reader(self._link)
            close((self._link,))
            self._link = -1
        if self._main is not None:
            self._owner.forget(self._main.pid)
        self._owner.ended(self, ())
        self._done(record)
