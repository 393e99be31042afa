"""Runs one child process from spawn to reap: its output, time limit, termination and record (exec-and-tasks.md 1.2).

Everything here runs in the engine's loop. The order at the end matters: the exit is noticed without reaping, the pipes
are drained, a ladder (the steps of a termination) waits for the *group* to be empty, and the leader is reaped last,
because until then its PID cannot be reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from prose_kernel.processes import process_table, system
from prose_kernel.processes.command_output import Capture
from prose_kernel.processes.cwd_report import LOWEST_DESCRIPTOR
from prose_kernel.processes.spawn import Child, ExitWatch, SpawnFailure, classify, close, move_above, spawn
from prose_kernel.processes.stream_reading import Drain
from prose_kernel.processes.termination import GroupScope, Ladder, TreeScope, ladder
from prose_kernel.runtime.ports import DEFAULT_MAX_OUTPUT, Outcome, Stream

if TYPE_CHECKING:
    from prose_kernel.processes.engine import Engine

_CHUNK = 65536
_CHECK_INTERVAL = 0.003
_READINGS = 5
"""How often the process table is read to find the remaining processes of a non-empty group."""


class Launch(Struct, frozen=True):
    """A command to start.

    - `prepare`: makes the arguments. It gets the descriptor of the report pipe (None without `report`), and returns the
      arguments and other descriptors to pass on, which are closed after the start. May raise `SpawnFailure`, `OSError`.
    - `timeout`: the time limit in seconds; None for no limit.
    - `tree`: a value of `PROSE_JOB` that only this command has. All processes with it belong to the command, even if
      they left its group; and processes that remain in its group when it ends are ended, too, and counted.
    - `pipe_stdin`: make standard input a pipe, for the caller to write and close (`Process.stdin`), instead of `stdin`.
    - `kept`: how many characters of each stream are recorded.
    """

    prepare: Callable[[int | None], tuple[Sequence[str | bytes], Sequence[int]]]
    env: Mapping[bytes, bytes]
    cwd: str
    timeout: float | None
    report: bool = False
    tree: str | None = None
    pipe_stdin: bool = False
    stdin: bytes = b""
    kept: int = DEFAULT_MAX_OUTPUT


class ProcessRecord(Struct, frozen=True):
    """The engine's record of one process, from which `exec`, `Exec` and tasks derive their results.

    `status` is a wait status, None if the process was not started or never ended. `report` is the content of the
    report pipe. `spawn_kind` classifies `spawn_error`. `created` names protected files that an agent's command has
    created.
    """

    outcome: Outcome
    status: int | None
    stdout: Capture
    stderr: Capture
    duration: float = 0.0
    pipes_held: bool = False
    background_left: int = 0
    background_ended: int = 0
    report: bytes = b""
    spawn_kind: Literal["spawn", "cwd"] = "spawn"
    spawn_error: str | None = None
    max_rss: int = 0
    cpu_s: float = 0.0
    created: str = ""


class EngineProcess(Protocol):
    """A process of an engine: its child (`Process`), or a program under a guard (`MonitoredProcess`).

    Methods are called in the engine's loop. A user's interrupt reaches only `foreground` processes.
    """

    foreground: bool

    @property
    def pid(self) -> int | None:
        """The PID of the group's leader if the engine owns the group, else None."""

    @property
    def has_exited(self) -> bool:
        """Whether the process has ended, checked now; its output may still be in transit."""

    def start(self) -> None:
        """Start the process; a failure is reported like any other end."""

    def refuse(self, outcome: Outcome) -> None:
        """End a process that was never started."""

    def stop(self, outcome: Outcome, grace: float | None = None) -> None:
        """Send TERM, wait `grace` seconds (None: the default), send KILL. After an earlier exit, keep its outcome."""

    def kill(self, outcome: Outcome) -> None:
        """Send KILL immediately."""

    def interrupt(self) -> None:
        """Interrupt for the user: INT, TERM, KILL; a second interrupt skips to KILL."""

    def shutdown(self) -> None:
        """End the process because the engine closes: TERM now, replacing a running ladder, then KILL."""


class Feed(Protocol):
    """Receives a command's decoded output while it runs, in the engine's loop. Must not block.

    While the feed is `full`, reading pauses; the feed calls `resume` in the engine's loop when it accepts output again.
    """

    resume: Callable[[], None]

    @property
    def full(self) -> bool: ...

    def feed(self, stream: Stream, text: str) -> None: ...

    def stop(self) -> None:
        """End the output."""


class Process:
    """Owns one child. Call `start` once, and `stop`, `kill`, `interrupt` and `shutdown` at any time.

    `begun` is called when the child runs, `done` exactly once, with its record.
    """

    def __init__(
        self,
        owner: Engine,
        launch: Launch,
        live: Feed | None,
        done: Callable[[ProcessRecord], None],
        begun: Callable[[], None] | None = None,
    ) -> None:
        self.foreground = True
        self._owner = owner
        self._launch = launch
        self._live = live
        self._done = done
        self._begun = begun
        self._child: Child | None = None
        self._scope = GroupScope(0)
        self._exit: ExitWatch | None = None
        self._report = -1
        self._captures: dict[Stream, Capture] = {
            "stdout": Capture(launch.kept, pictures=True),
            "stderr": Capture(launch.kept),
        }
        self._drain = Drain(owner.loop, self._take, self._advance)
        if live is not None:
            live.resume = self._drain.resume
        self._started = 0.0
        self._finished = False
        self._exited = False
        self._deadline: asyncio.TimerHandle | None = None
        # ending
        self._outcome: Outcome = "exited"
        self._ladder: Ladder | None = None
        self._ending: asyncio.Task[None] | None = None
        self._ladder_runs = False
        self._interrupts = 0
        self._kill_now = False
        self._wake = asyncio.Event()
        self._empty_in: object = None
        self._remains_ended = False
        self._ended_remains = 0

    # ------------------------------------------------------------ start

    def start(self) -> None:
        try:
            self._spawn()
        except SpawnFailure as failure:
            self._give_up(failure)
            return
        assert self._child is not None
        loop, pid = self._owner.loop, self._child.pid
        self._scope = GroupScope(pid)
        self._started = loop.time()
        tree = self._launch.tree
        if tree is None:
            self._owner.started(pid)
        else:
            self._scope = TreeScope(pid, tree)
            self._owner.started(pid, self._scope.since)
        self._exit = ExitWatch(loop, pid, self._exit_seen)
        self._drain.start(self._child.stdout, self._child.stderr)
        if self._launch.timeout is not None:
            self._deadline = loop.call_later(self._launch.timeout, self.stop, "timed_out")
        if self._begun is not None:
            self._begun()

    def _spawn(self) -> None:
        launch, given, passed = self._launch, -1, list[int]()
        try:
            if launch.report:
                self._report, report_end = os.pipe()
                os.set_blocking(self._report, False)
                passed.append(move_above(report_end, LOWEST_DESCRIPTOR))
            argv, further = launch.prepare(passed[0] if launch.report else None)
            passed += further
            if launch.stdin:
                given = system.memory_file(launch.stdin)
            self._child = spawn(argv, launch.env, launch.cwd, passed, pipe_stdin=launch.pipe_stdin, stdin=given)
        except OSError as problem:
            raise classify(problem, "", launch.cwd) from None
        finally:
            close((*passed, given) if given >= 0 else passed)

    def _give_up(self, failure: SpawnFailure) -> None:
        self._finished = True
        close((self._report,))
        stdout, stderr = self._captures.values()
        record = ProcessRecord(
            "spawn_failed", None, stdout, stderr, spawn_kind=failure.kind, spawn_error=failure.message
        )
        self._owner.ended(self, ())
        self._done(record)

    def refuse(self, outcome: Outcome) -> None:
        self._finished = True
        stdout, stderr = self._captures.values()
        self._done(ProcessRecord(outcome, None, stdout, stderr))

    # ------------------------------------------------------------ output and exit

    def _take(self, stream: Stream, data: bytes, final: bool) -> None:
        text = self._captures[stream].feed(data, final)
        if self._live is not None:
            self._live.feed(stream, text)
            if self._live.full:
                self._drain.pause()

    def _exit_seen(self) -> None:
        if self._exited or self._finished:
            return
        self._exited = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._wake.set()
        self._advance()

    def _advance(self) -> None:
        """Finish if the leader, a running ladder, and both streams (or the wait for them) have ended."""
        if not self._exited or self._ladder_runs or self._finished:
            return
        if self._drain.over:
            self._drained()
        else:
            self._drain.finish_soon(self._reading_timed_out, hurried=self._ladder is not None)

    def _reading_timed_out(self) -> None:
        if not self._finished and not self._ladder_runs:
            self._drained()

    def _drained(self) -> None:
        """Finish after the last output. A command that owns its tree first ends the remaining processes of the tree."""
        if self._launch.tree is None or self._remains_ended:
            self._finish()
            return
        self._remains_ended = True
        if self.foreground and self._ladder is None:
            # processes that a foreground command detached on purpose stay alive until the engine closes
            self._scope = GroupScope(self._scope.leader)
        left = self._scope.members(self._owner.table())
        if not left:
            self._finish()
            return
        self._ended_remains = len(left)
        self._start_ladder(ladder("cancelled", self._owner.grace))

    # ------------------------------------------------------------ ending it

    def stop(self, outcome: Outcome, grace: float | None = None) -> None:
        if self._ladder is None:
            self._start_ladder(ladder(outcome, self._owner.grace if grace is None else grace))

    def kill(self, outcome: Outcome) -> None:
        self._kill_now = True
        self.stop(outcome)
        self._wake.set()

    def interrupt(self) -> None:
        self._interrupts += 1
        if self._ladder is None:
            self.stop("interrupted")
        elif self._interrupts > 1:
            self._kill_now = True
            self._wake.set()

    def shutdown(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._start_ladder(ladder("cancelled", self._owner.grace))

    def _start_ladder(self, steps: Ladder) -> None:
        if self._finished or self._child is None:
            return
        if self._ladder is None and not self._exited and not system.has_exited(self._child.pid):
            self._outcome = steps.outcome
        self._ladder = steps
        self._ladder_runs = True
        self._ending = self._owner.loop.create_task(self._run_ladder(steps))

    async def _run_ladder(self, steps: Ladder) -> None:
        for step in steps.steps:
            last = step.signal == signal.SIGKILL
            if self._kill_now and not last:
                continue
            if await self._run_step(step.signal, self._owner.loop.time() + step.grace, last):
                break
        self._ladder_runs = False
        # Don't wait for processes that survive KILL: the record counts them.
        self._exited = True
        self._advance()

    async def _run_step(self, number: signal.Signals, end: float, last: bool) -> bool:
        """Signal the scope and wait. Return True when it is empty, False after `end` or a second interrupt."""
        programs = self._signal(number)
        delay, again = 0.001, self._owner.loop.time() + process_table.LOST
        while not self._scope_is_empty():
            now = self._owner.loop.time()
            if now >= end or (self._kill_now and not last):
                return False
            if now >= again and not last:
                # if handlers cannot be read, TERM follows an interrupt immediately, with its own grace
                asked = system.LINUX or number != signal.SIGINT
                if self._exited and not (asked and self._is_handled(number)):
                    return False
                if programs:
                    # a whole scope that ignores the interrupt does not clean up either; TERM keeps its grace
                    if number == signal.SIGINT and self._is_ignored(number):
                        return False
                    self._repeat(number, programs)
                    programs = {}
            await self._pause(_CHECK_INTERVAL if self._empty_in is not None else min(delay, end - now))
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
        """Signal the scope; return the program that each process ran just before, for `_repeat`."""
        assert self._child is not None
        table, programs = self._owner.table(), dict[int, bytes]()
        if number != signal.SIGKILL and system.LINUX:  # without signal masks nothing is repeated
            programs = process_table.programs_below(self._child.pid)
        self._scope.signal(number, table)
        if number != signal.SIGKILL:
            self._scope.signal(signal.SIGCONT, table)
        return programs

    def _repeat(self, number: signal.Signals, programs: dict[int, bytes]) -> None:
        """Signal processes again that have lost the signal.

        A shell's child has the shell's handlers until it executes its program, and loses a signal that arrives before.
        A process that runs the same program as before has got the signal, and may be cleaning up.
        """
        for member in self._scope.members(self._owner.table()):
            before = programs.get(member.pid)
            if before is None or not process_table.dies_of(member.pid, number):
                continue
            if system.program_of(member.pid) != before:
                with contextlib.suppress(OSError):
                    os.kill(member.pid, number)

    def _is_handled(self, number: signal.Signals) -> bool:
        """Return whether a process of the scope may be cleaning up because of this signal.

        After the leader's end, waiting for processes that ignore the signal is useless: a shell starts its background
        jobs with INT ignored.
        """
        members = self._scope.members(self._owner.table())
        return any(process_table.handles(member.pid, number) for member in members)

    def _is_ignored(self, number: signal.Signals) -> bool:
        return process_table.all_ignore(self._scope.members(self._owner.table()), number)

    def _scope_is_empty(self) -> bool:
        assert self._child is not None
        leader = self._child.pid
        if not self._exited and not system.has_exited(leader):
            return False
        table = self._owner.table()
        if self._scope.members(table):
            self._empty_in = None
            return False
        # One reading misses a process that was forked meanwhile by one that has ended: two readings are needed.
        seen, self._empty_in = self._empty_in, table
        return seen is not None and seen is not table

    # ------------------------------------------------------------ the end

    def _finish(self) -> None:
        self._finished = True
        if self._deadline is not None:
            self._deadline.cancel()
        held = self._drain.stop()
        if self._live is not None:
            self._live.stop()
        record = self._reap(held)
        self._done(record)

    def _reap(self, held: bool) -> ProcessRecord:
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
        if self._exit is not None:
            self._exit.stop()
            self._exit = None
        left = self._left_processes()
        self._owner.ended(self, left)
        if outcome == "exited" and status is not None and os.WIFSIGNALED(status):
            outcome = "signaled"
        stdout, stderr = self._captures.values()
        return ProcessRecord(
            outcome,
            status,
            stdout,
            stderr,
            duration,
            held,
            len(left),
            self._ended_remains,
            report,
            "spawn",
            problem,
            max_rss,
            cpu_s,
        )

    def _read_report(self) -> bytes:
        if self._report < 0:
            return b""
        data = b""
        try:
            while chunk := os.read(self._report, _CHUNK):
                data += chunk
        except OSError:
            pass  # a background process holds the other end: use the data received so far
        close((self._report,))
        return data

    def _left_processes(self) -> list[process_table.Member]:
        """Return the processes that the command left in its group; one system call in the usual case of none."""
        assert self._child is not None
        leader = self._child.pid
        scope = GroupScope(leader)
        left: list[process_table.Member] = []
        for _ in range(_READINGS):
            if scope.surely_empty():
                return []
            # One reading misses a process that was forked meanwhile by one that has ended.
            if left := scope.members(self._owner.table(fresh=True)):
                break
            self._owner.orphans.reap()  # a group doesn't look empty until its zombies are reaped
        if any(member.pid == leader for member in left) and self._child.popen.returncode is not None:
            return []  # the leader is reaped: another process has its PID now
        return left

    @property
    def has_exited(self) -> bool:
        return self._finished or self._exited or (self._child is not None and system.has_exited(self._child.pid))

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def stdin(self) -> int:
        """Our non-blocking end of the child's standard input; -1 if there is none."""
        return self._child.stdin if self._child is not None else -1


def exit_of(status: int | None) -> tuple[int | None, str | None]:
    """Return (exit code, None) or (None, name of the signal) for a wait status; (None, None) without a status."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, signal_name(os.WTERMSIG(status))
    return os.WEXITSTATUS(status), None


def signal_name(number: int) -> str:
    """Return a signal's name, such as `SIGTERM`; `SIG` and the number for unnamed signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
