"""One child process from spawn to reap: drain, deadline, ladder, record (exec-and-tasks.md 1.2).

Everything here runs in the engine's loop. The order at the end matters: the exit is seen without reaping, the pipes are
drained, a ladder waits for the *group* to be empty, and the leader is reaped last, because until then its number cannot
belong to anybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from prose_kernel.commands import process_table
from prose_kernel.commands.capture import Capture, Live
from prose_kernel.commands.ladder import Ladder, ladder
from prose_kernel.commands.spawn import Child, SpawnFailure, classify, close, high, spawn
from prose_kernel.machine.ports import Outcome, Stream

_CHUNK = 65536
_CHUNKS_AT_ONCE = 16
_DRAIN_IDLE = 0.1
_DRAIN_TOTAL = 1.0
_LOOK = 0.003
_LOST = 0.05
"""Seconds after which a signal that had to end a process, and did not, must have been lost."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start, and the limit in seconds.

    `prepare` makes the arguments: it is given the descriptor of the report pipe (None without `report`) and returns
    them with further descriptors to pass on, which are closed after the start. May raise `SpawnFailure` or `OSError`.
    """

    prepare: Callable[[int | None], tuple[Sequence[str | bytes], Sequence[int]]]
    env: Mapping[bytes, bytes]
    cwd: str
    timeout: float
    report: bool = False
    report_descriptor: int = 100


@dataclass(frozen=True, slots=True)
class Record:
    """The engine's record of one process; each surface derives its own result from it.

    `status` is a wait status, None when there is none: not started, or never ended. `report` is what the private pipe
    held. `spawn_error` goes with `spawn_kind`.
    """

    outcome: Outcome
    status: int | None
    stdout: Capture
    stderr: Capture
    duration: float = 0.0
    pipes_held: bool = False
    background_left: int = 0
    report: bytes = b""
    spawn_kind: Literal["spawn", "cwd"] = "spawn"
    spawn_error: str | None = None
    max_rss: int = 0
    cpu_s: float = 0.0


class Owner(Protocol):
    """What a process needs of its engine."""

    loop: asyncio.AbstractEventLoop
    grace: float

    def started(self, pid: int) -> None: ...

    def ended(self, process: Process, left: Sequence[process_table.Member]) -> None: ...

    def adopt(self, child: Child) -> None: ...

    def table(self) -> list[process_table.Member]: ...


@dataclass(slots=True)
class _Pipe:
    stream: Stream
    descriptor: int
    capture: Capture = field(default_factory=Capture)


class Process:
    """Owns one child. `start` once; `stop`, `interrupt` and `shutdown` any time; `done` is called exactly once."""

    def __init__(self, owner: Owner, launch: Launch, live: Live | None, done: Callable[[Record], None]) -> None:
        self._owner = owner
        self._launch = launch
        self._live = live
        self._done = done
        self._child: Child | None = None
        self._pidfd = -1
        self._report = -1
        self._pipes = {"stdout": _Pipe("stdout", -1), "stderr": _Pipe("stderr", -1)}
        self._started = 0.0
        self._finished = False
        self._exited = False
        self._deadline: asyncio.TimerHandle | None = None
        # ending
        self._outcome: Outcome = "exited"
        self._ladder: Ladder | None = None
        self._ending: asyncio.Task[None] | None = None
        self._climbing = False
        self._interrupts = 0
        self._kill_now = False
        self._wake = asyncio.Event()
        self._empty_in: object = None
        # draining after the exit
        self._drain_until: float | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._last_read = 0.0

    # ------------------------------------------------------------ start

    def start(self) -> None:
        """Spawn the child; a failure is reported as a record like every other end."""
        try:
            self._spawn()
        except SpawnFailure as failure:
            self._give_up(failure)
            return
        assert self._child is not None
        loop, pid = self._owner.loop, self._child.pid
        self._started = loop.time()
        self._owner.started(pid)
        self._watch_exit(pid)
        for pipe, descriptor in zip(self._pipes.values(), (self._child.stdout, self._child.stderr), strict=True):
            pipe.descriptor = descriptor
            loop.add_reader(descriptor, self._readable, pipe)
        self._deadline = loop.call_later(self._launch.timeout, self._expire)

    def _spawn(self) -> None:
        launch, report_end, passed = self._launch, -1, []
        try:
            if launch.report:
                self._report, report_end = os.pipe()
                os.set_blocking(self._report, False)
                report_end = high(report_end, launch.report_descriptor)
                passed.append(report_end)
            argv, further = launch.prepare(report_end if launch.report else None)
            passed += further
            self._child = spawn(argv, launch.env, launch.cwd, passed)
        except OSError as problem:
            raise classify(problem, "", launch.cwd) from None
        finally:
            close(passed)

    def _give_up(self, failure: SpawnFailure) -> None:
        self._finished = True
        if self._report >= 0:
            close((self._report,))
        stdout, stderr = (pipe.capture for pipe in self._pipes.values())
        record = Record("spawn_failed", None, stdout, stderr, spawn_kind=failure.kind, spawn_error=failure.message)
        self._owner.ended(self, ())
        self._done(record)

    def refuse(self, outcome: Outcome) -> None:
        """End a process that was never started."""
        self._finished = True
        stdout, stderr = (pipe.capture for pipe in self._pipes.values())
        self._done(Record(outcome, None, stdout, stderr))

    def _watch_exit(self, pid: int) -> None:
        """The exit is seen without reaping: by a pidfd, or by a thread that waits without taking the status."""
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, args=(pid,), name="prose-exit", daemon=True).start()
        else:
            self._owner.loop.add_reader(self._pidfd, self._exit_seen)

    def _wait_in_thread(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):  # somebody else took the status: reaping will find out
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            self._owner.loop.call_soon_threadsafe(self._exit_seen)
        except RuntimeError:
            return  # the engine is closed, and has given this process up

    # ------------------------------------------------------------ output and exit

    def _readable(self, pipe: _Pipe) -> None:
        chunks: list[bytes] = []
        ended = False
        while len(chunks) < _CHUNKS_AT_ONCE:
            try:
                chunk = os.read(pipe.descriptor, _CHUNK)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                ended = True
                break
            chunks.append(chunk)
            if len(chunk) < _CHUNK:
                break
        self._last_read = self._owner.loop.time()
        if chunks:
            self._take(pipe, chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if ended:
            self._close_pipe(pipe)
            self._advance()

    def _take(self, pipe: _Pipe, data: bytes, final: bool = False) -> None:
        text = pipe.capture.feed(data, final)
        if self._live is not None:
            self._live.feed(pipe.stream, text)

    def _close_pipe(self, pipe: _Pipe) -> None:
        self._owner.loop.remove_reader(pipe.descriptor)
        os.close(pipe.descriptor)
        pipe.descriptor = -1
        self._take(pipe, b"", final=True)

    def _exit_seen(self) -> None:
        if self._exited or self._finished:
            return
        self._exited = True
        if self._pidfd >= 0:
            self._owner.loop.remove_reader(self._pidfd)
        if self._deadline is not None:
            self._deadline.cancel()
        self._wake.set()
        self._advance()

    def _advance(self) -> None:
        """Finish when all has ended: the leader, the ladder if there is one, and both streams or the patience."""
        if not self._exited or self._climbing or self._finished:
            return
        if all(pipe.descriptor < 0 for pipe in self._pipes.values()):
            self._finish()
            return
        now = self._owner.loop.time()
        if self._drain_until is None:
            self._drain_until = now + _DRAIN_TOTAL
            self._last_read = now
        self._patience()

    def _patience(self) -> None:
        """Somebody holds a pipe after the exit: stop reading after 100 ms of silence, or after 1 s."""
        assert self._drain_until is not None
        if self._finished or self._climbing:
            return
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        now = self._owner.loop.time()
        end = min(self._drain_until, self._last_read + _DRAIN_IDLE)
        if now < end:
            self._drain_timer = self._owner.loop.call_at(end, self._patience)
            return
        self._finish()

    # ------------------------------------------------------------ ending it

    def _expire(self) -> None:
        self.stop("timed_out")

    def stop(self, outcome: Outcome) -> None:
        """Start the ladder of a cause, unless one runs already. An exit that was there first keeps its outcome."""
        if self._ladder is None:
            self._climb(ladder(outcome, self._owner.grace))

    def interrupt(self) -> None:
        """A user's interrupt: INT, TERM, KILL; a second one jumps to KILL."""
        self._interrupts += 1
        if self._ladder is None:
            self.stop("interrupted")
        elif self._interrupts > 1:
            self._kill_now = True
            self._wake.set()

    def shutdown(self) -> None:
        """The engine closes: TERM now whatever was going on, then KILL."""
        if self._ending is not None:
            self._ending.cancel()
        self._climb(ladder("cancelled", self._owner.grace))

    def _climb(self, steps: Ladder) -> None:
        if self._finished or self._child is None:
            return
        if self._ladder is None and not self._exited and not _has_exited(self._child.pid):
            self._outcome = steps.outcome
        self._ladder = steps
        self._climbing = True
        self._ending = self._owner.loop.create_task(self._run_ladder(steps))

    async def _run_ladder(self, steps: Ladder) -> None:
        for step in steps.steps:
            last = step.signal == signal.SIGKILL
            if self._kill_now and not last:
                continue
            if await self._run_step(step.signal, self._owner.loop.time() + step.grace, last):
                break
        self._climbing = False
        # What even KILL does not end is not waited for: the record tells how many there are.
        self._exited = True
        self._advance()

    async def _run_step(self, number: signal.Signals, end: float, last: bool) -> bool:
        """Signal the scope, wait until it is empty (true), the time is over, or a second interrupt came (false)."""
        told = self._signal(number)
        delay, again = 0.001, self._owner.loop.time() + _LOST
        while not self._scope_is_empty():
            now = self._owner.loop.time()
            if now >= end or (self._kill_now and not last):
                return False
            if told and now >= again:
                self._repeat(number, told)
                told = {}
            await self._pause(_LOOK if self._empty_in is not None else min(delay, end - now))
            delay = min(delay * 2, 0.02)
            if last:
                self._signal(number)
        return True

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        timer = self._owner.loop.call_later(seconds, self._wake.set)
        await self._wake.wait()
        timer.cancel()

    def _signal(self, number: signal.Signals) -> dict[int, bytes]:
        """Signal the scope; what each process in it executed just before, where that matters."""
        assert self._child is not None
        table, told = self._owner.table(), dict[int, bytes]()
        if number != signal.SIGKILL:
            told = process_table.programs_below(self._child.pid)
        process_table.signal_scope(self._child.pid, number, table)
        if number != signal.SIGKILL:
            process_table.signal_scope(self._child.pid, signal.SIGCONT, table)
        return told

    def _repeat(self, number: signal.Signals, told: dict[int, bytes]) -> None:
        """Signal again what has lost the signal.

        A shell's child still has the shell's handlers until it executes its program; what comes before that is noted
        there and forgotten. Whoever executes the same program as before has got the signal, and may be cleaning up.
        """
        assert self._child is not None
        for member in self._owner.table():
            before = told.get(member.pid) if process_table.in_scope(member, self._child.pid) else None
            if before is None or not process_table.dies_of(member.pid, number):
                continue
            if process_table.program_of(member.pid) != before:
                with contextlib.suppress(OSError):
                    os.kill(member.pid, number)

    def _scope_is_empty(self) -> bool:
        assert self._child is not None
        leader = self._child.pid
        if not self._exited and not _has_exited(leader):
            return False
        table = self._owner.table()
        if any(process_table.in_scope(member, leader) for member in table):
            self._empty_in = None
            return False
        # One look can miss a process that was forked while looking by one that ended meanwhile: two looks count.
        seen, self._empty_in = self._empty_in, table
        return seen is not None and seen is not table

    # ------------------------------------------------------------ the end

    def _finish(self) -> None:
        self._finished = True
        for timer in (self._deadline, self._drain_timer):
            if timer is not None:
                timer.cancel()
        held = False
        for pipe in self._pipes.values():
            if pipe.descriptor >= 0:
                held = True
                self._close_pipe(pipe)
        if self._live is not None:
            self._live.stop()
        record = self._reap(held)
        self._done(record)

    def _reap(self, held: bool) -> Record:
        assert self._child is not None
        child, outcome, problem = self._child, self._outcome, None
        duration = self._owner.loop.time() - self._started
        report = self._read_report()
        status: int | None = None
        max_rss, cpu_s = 0, 0.0
        try:
            pid, code, usage = os.wait4(child.pid, os.WNOHANG)
        except ChildProcessError:
            child.reaped(0)
            outcome, problem = "spawn_failed", "the exit code was taken by another part of this process"
        else:
            if pid:
                child.reaped(code)
                status, max_rss, cpu_s = code, usage.ru_maxrss, usage.ru_utime + usage.ru_stime
            else:
                self._owner.adopt(child)
        if self._pidfd >= 0:
            self._owner.loop.remove_reader(self._pidfd)
            close((self._pidfd,))
        left = self._left_behind()
        self._owner.ended(self, left)
        if outcome == "exited" and status is not None and os.WIFSIGNALED(status):
            outcome = "signaled"
        stdout, stderr = (pipe.capture for pipe in self._pipes.values())
        return Record(
            outcome, status, stdout, stderr, duration, held, len(left), report, "spawn", problem, max_rss, cpu_s
        )

    def _read_report(self) -> bytes:
        if self._report < 0:
            return b""
        data = b""
        try:
            while chunk := os.read(self._report, _CHUNK):
                data += chunk
        except OSError:
            pass  # a background process holds the other end: what is there now is all that counts
        close((self._report,))
        return data

    def _left_behind(self) -> list[process_table.Member]:
        """What the command left running in its group. One system call when, as usual, there is nothing."""
        assert self._child is not None
        leader = self._child.pid
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return []
        except OSError:
            pass
        left = [member for member in process_table.members() if process_table.in_scope(member, leader)]
        if any(member.pid == leader for member in left) and self._child.popen.returncode is not None:
            return []  # the leader is reaped: whoever has its number now is a stranger
        return left

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None


def _has_exited(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True
