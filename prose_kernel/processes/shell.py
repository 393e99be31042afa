"""`exec`: runs one shell string with the kernel's permissions, and always awaits it (exec-and-tasks.md section 2)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from prose_kernel.language.structs import replace
from prose_kernel.processes import cwd_report, spawn
from prose_kernel.processes.child_process import Feed, Launch, Process, ProcessRecord, signal_name
from prose_kernel.processes.command_output import Live
from prose_kernel.processes.cross_loop import ProcessCall
from prose_kernel.processes.engine import Engine, EngineClosed
from prose_kernel.processes.spawn import SpawnFailure, move_above
from prose_kernel.processes.system import memory_file
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import CommandRequest, CommandResult, OnOutput

LONGEST_ARGUMENT = 120_000
"""Bytes of the longest command passed as an argument; Linux refuses 131,072. A longer one is in a memory file."""

TIMED_OUT = 124
NOT_STARTED = 127

CLOSED = CommandResult("cancelled", NOT_STARTED, kind="spawn", spawn_error="the process engine is closed")
"""The result of a command that is started after the engine has closed."""


def not_started(problem: OSError) -> CommandResult:
    """Return the result of a command for which the engine could not be started."""
    reason = spawn.start_error(problem)
    return CommandResult("spawn_failed", NOT_STARTED, stderr=reason, kind="spawn", spawn_error=reason)


_FLAGS = {"bash": ("--noprofile", "--norc"), "zsh": ("-f",), "busybox": ("sh",)}
_HAVE_PIPEFAIL = frozenset(("bash", "zsh", "ksh", "mksh"))
NOT_INHERITED = (b"BASH_ENV", b"ENV", *(name.encode() for name in open_request.IDENTITY))
"""Variables that make a shell run a startup file, and those that identify the request of another run."""


class ShellCommands:
    """The `Commands` port of the machine: runs shell text on an engine. Callable from any event loop.

    `shell` is a path or a name to look up; None means `bash`, else `sh`. `displayed` is how many bytes of one command's
    output `on_output` displays at most, so that the middle of a long output may be dropped while its loop is busy; with
    0 it gets everything. Commands inherit `environment`; None means the environment of this process.
    """

    def __init__(
        self, engine: Engine, shell: str | None = None, *, displayed: int = 0, environment: Environment | None = None
    ) -> None:
        self._engine = engine
        self._shell = Shell(shell)
        self.shell = self._shell.path
        """The absolute path of the shell."""
        self._displayed = displayed
        self._environment = environment or Environment(f"{engine.marker}:exec")

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        """Run one command to its end (exec-and-tasks.md 1.2). A failing command is a result, not an exception.

        `on_output` is called in the caller's loop. A cancelled call ends the command with TERM, 2 s, KILL, and raises
        `asyncio.CancelledError` when no process of its group is left, even if it is cancelled again.
        """
        try:
            request = identified(request)
            try:
                call: ProcessCall[CommandResult] = ProcessCall(self._engine)
            except OSError as problem:
                return not_started(problem)
            live = Live(self._engine.loop, call.post, on_output, self._displayed) if on_output is not None else None
            completes = open_request.completing()

            def done(result: CommandResult) -> None:
                completes(result)
                call.done(result, live.deliver if live is not None else None)

            return await call.wait(self.process(request, live, done))
        except EngineClosed:
            return CLOSED

    def process(self, request: CommandRequest, feed: Feed | None, done: Callable[[CommandResult], None]) -> Process:
        """Return the process of a command, to submit to the engine; `feed` and `done` are called in the engine's
        loop."""
        launch = self._launch(request)
        return Process(self._engine, launch, feed, lambda record: done(derive(request, record, asked=launch.report)))

    def interrupt(self) -> None:
        """Interrupt all running commands for the user, from any thread: INT, 2 s, TERM, 2 s, KILL.

        A second interrupt of the same command skips to KILL. Their calls return results with outcome `interrupted`.
        """
        self._engine.interrupt()

    def _launch(self, request: CommandRequest) -> Launch:
        def prepare(report: int | None) -> tuple[Sequence[str | bytes], Sequence[int]]:
            return self._shell.arguments(request.command, report, pipefail=request.pipefail)

        environment = self._environment.current()
        functions = self._environment.has_functions
        moves = request.track and not cwd_report.keeps_directory(self._shell.name, request.command, functions=functions)
        if request.env:
            environment = {**environment, **{os.fsencode(k): os.fsencode(v) for k, v in request.env.items()}}
        return Launch(
            prepare,
            environment,
            request.cwd,
            request.timeout,
            moves,
            stdin=request.stdin
            if isinstance(request.stdin, bytes)
            else (request.stdin or "").encode("utf-8", "replace"),
            kept=request.max_output,
        )


def identified(request: CommandRequest) -> CommandRequest:
    """Add the variables that identify its request to a command's environment (2.10)."""
    identity = open_request.identity()
    return replace(request, env={**request.env, **identity}) if identity else request


class Shell:
    """A shell and its options. It reads the user's profile only with `login`."""

    def __init__(self, given: str | None, *, login: bool = False) -> None:
        self.path = resolve_shell(given)
        """The absolute path of the shell."""
        self.name = Path(self.path).name
        self._start = (self.path, *(("-l",) if login else _FLAGS.get(self.name, ())), "-c")

    def arguments(
        self, command: str, report: int | None = None, *, pipefail: bool = False
    ) -> tuple[Sequence[str | bytes], Sequence[int]]:
        """Return the shell's arguments, and the descriptors that it needs. Raises `SpawnFailure`, `OSError`."""
        text = _encode(command)
        start = self._with_pipefail() if pipefail else self._start
        if len(text) <= LONGEST_ARGUMENT:
            if report is None:
                # a shell would parse a leading sign as an option
                return (*start, b" " + text if text[:1] in (b"-", b"+") else text, "exec"), ()
            return (*start, cwd_report.wrapper(report), "exec", text), ()
        # without a name: nothing to clean up
        script = move_above(memory_file(text), cwd_report.LOWEST_DESCRIPTOR)
        source = cwd_report.source(self.name, script)
        wrapper = source if report is None else cwd_report.wrapper(report, source)
        return (*start, wrapper, "exec"), (script,)

    def _with_pipefail(self) -> tuple[str, ...]:
        """Return the call of the shell with `pipefail`. Raises `SpawnFailure` for a shell without it."""
        if self.name not in _HAVE_PIPEFAIL and not _has_pipefail(self._start[:-1]):
            raise SpawnFailure("spawn", f"the shell {self.name} has no pipefail; choose another one (PROSE_SHELL=bash)")
        return (*self._start[:-1], "-o", "pipefail", "-c")


class Environment:
    """The environment of commands: the kernel's environment without `NOT_INHERITED`, with the marker.

    It follows changes of the kernel's environment, and is rebuilt only after one.
    """

    def __init__(self, marker: str) -> None:
        self._marker = os.fsencode(marker)
        self._seen: dict[bytes, bytes] | None = None
        self._built: dict[bytes, bytes] = {}
        self.has_functions = False
        """Whether the environment exports functions of bash."""

    def current(self) -> dict[bytes, bytes]:
        # `_data` is the mapping of bytes inside os.environ: comparing takes a few microseconds, copying os.environ 50
        raw = getattr(os.environ, "_data", None)
        now = raw if isinstance(raw, dict) else dict(os.environb)
        if now != self._seen:
            self._seen = dict(now)
            self._built = {name: value for name, value in self._seen.items() if name not in NOT_INHERITED}
            self._built[b"PROSE_JOB"] = self._marker
            self.has_functions = exports_functions(self._built)
        return self._built


def exports_functions(environment: Iterable[bytes]) -> bool:
    return any(name.startswith(b"BASH_FUNC_") for name in environment)


@cache
def _has_pipefail(start: tuple[str, ...]) -> bool:
    """Return whether a shell has the option, by trying it once, in a few milliseconds: dash has it since 0.5.13."""
    try:
        asked = subprocess.run((*start, "-o", "pipefail", "-c", ":"), capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return True  # a failed start is reported with the command
    return asked.returncode == 0


def resolve_shell(shell: str | None) -> str:
    """Return the absolute path of the shell to use: the given one, else bash, else sh (2.3).

    A given shell that does not exist is kept, so that running a command can report it.
    """
    if shell is not None:
        if "/" in shell:
            return str(Path(os.path.expanduser(shell)).absolute())
        return _look_up(shell) or shell
    return _look_up("bash") or _look_up("sh") or "/bin/sh"


def _look_up(name: str) -> str | None:
    for directory in os.get_exec_path():  # strings, not paths: each run calls this, and an evaluation has thousands
        candidate = os.path.join(os.path.abspath(directory), name)  # noqa: PTH100, PTH118
        try:
            if stat.S_ISREG(os.stat(candidate).st_mode) and os.access(candidate, os.X_OK):  # noqa: PTH116
                return candidate
        except OSError:
            continue
    return None


def _encode(command: str) -> bytes:
    if "\0" in command:
        raise SpawnFailure("spawn", "the command contains a NUL character")
    try:
        return command.encode()
    except UnicodeEncodeError:
        raise SpawnFailure("spawn", "the command contains a character that cannot be encoded") from None


def derive(request: CommandRequest, record: ProcessRecord, asked: bool) -> CommandResult:
    """Return the result of `exec` for the engine's record (the `exec` column of the table in 1.2).

    `asked`: the shell was to report its final directory; otherwise it certainly ended where it started.
    """
    from prose_kernel.language.exit_codes import may_hide

    code, kind, name = _classify(record)
    not_started = record.spawn_error is not None
    reports = record.outcome == "exited" and request.track and not not_started
    return CommandResult(
        outcome=record.outcome,
        exit_code=code,
        stdout=record.stdout.text,
        stderr=record.spawn_error if record.spawn_error is not None else record.stderr.text,
        kind=kind,
        signal=name,
        timed_out=record.outcome == "timed_out",
        stdout_truncated=record.stdout.truncated,
        stderr_truncated=record.stderr.truncated,
        stdout_bytes=record.stdout.total_bytes,
        stderr_bytes=record.stderr.total_bytes,
        replaced_bytes=record.stdout.replaced_bytes + record.stderr.replaced_bytes,
        pipes_held=record.pipes_held,
        background_left=record.background_left,
        cwd_after=_directory_after(request, record, asked) if reports else None,
        spawn_error=record.spawn_error,
        duration=record.duration,
        max_rss=record.max_rss,
        cpu_s=record.cpu_s,
        image=record.stdout.image,
        code_hidden=may_hide(request.command, pipefail=request.pipefail),
    )


def _directory_after(request: CommandRequest, record: ProcessRecord, asked: bool) -> str | None:
    if asked:
        return cwd_report.parse(record.report)
    directory = os.path.realpath(request.cwd)
    return directory if os.path.isdir(directory) else None  # noqa: PTH112 - a third of the time


_Kind = Literal["exit", "signal", "timeout", "spawn", "cwd"]


def _classify(record: ProcessRecord) -> tuple[int, _Kind | None, str | None]:
    """Return the exit code, the kind of failure, and the name of a signal that we did not send."""
    if record.outcome == "spawn_failed":
        return NOT_STARTED, record.spawn_kind, None
    if record.outcome == "timed_out":
        return TIMED_OUT, "timeout", None
    if record.status is None:  # it was ended before it started, or even KILL did not end it
        ours = signal.SIGINT if record.outcome == "interrupted" else signal.SIGTERM
        return 128 + ours, "signal", None
    if os.WIFSIGNALED(record.status):
        number = os.WTERMSIG(record.status)
        return 128 + number, "signal", signal_name(number) if record.outcome == "signaled" else None
    code = os.WEXITSTATUS(record.status)
    return code, "exit" if code else None, None
