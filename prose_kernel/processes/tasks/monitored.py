"""Runs an agent's commands under a guard, confined to the agent's permissions (exec-and-tasks.md 1.3, 3.12).

The guard owns all processes of a command, even detached ones. If the rules restrict a shell (the network denied,
enforced lists of files), it runs in a separate Landlock domain. A command whose rules cannot be enforced is refused,
never run with fewer restrictions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from prose_kernel.access.created_code import ProtectedFiles
from prose_kernel.access.path_resolver import resolve
from prose_kernel.errors import TaskRefused
from prose_kernel.language.structs import replace
from prose_kernel.processes.child_process import ProcessRecord
from prose_kernel.processes.command_output import Capture, no_op
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool import sandbox_plan
from prose_kernel.processes.exec_tool.capabilities import capabilities
from prose_kernel.processes.exec_tool.checks import Checked, Refused
from prose_kernel.processes.exec_tool.sandbox_plan import Plan
from prose_kernel.processes.monitored_process import Confinement, MonitoredLaunch, MonitoredProcess, MonitorRecord
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.sandbox import mechanisms
from prose_kernel.processes.shell import LONGEST_ARGUMENT, Shell
from prose_kernel.processes.tasks.running import Identity, OutputDistributor
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.services import ExecCaller, TaskCaller


def plan_for(caller: TaskCaller, shell: Shell, identity: Identity, workspace: str) -> Plan:
    """Return the confinement that enforces the caller's rules. The first call may take a moment: call it in a thread.

    Raises `TaskRefused`, which names the missing mechanism.
    """
    if len(identity.cmd.encode()) > LONGEST_ARGUMENT:
        raise TaskRefused(
            "invalid_input",
            "cmd: the command is too long to be run under these permissions",
            hint="write it to a file and run that",
        )
    agent = ExecCaller(str(caller.session), caller.workspace or workspace, caller.rules, caller.lists_bind)
    record = capabilities(agent, ExecOptions(), os.environ.get("PATH"))
    checked = Checked(resolve(shell.path), resolve(identity.workdir))
    try:
        return sandbox_plan.plan(record, mechanisms(), checked, None)
    except Refused as refused:
        raise TaskRefused(
            "permission_denied", f"the command was not started: {refused}", hint="allow what it needs in permissions:"
        ) from None


def guard_only(identity: Identity) -> Plan | None:
    """Return the plan of a guard without restrictions; None if there are no guards here, or the command is too long."""
    if len(identity.cmd.encode()) > LONGEST_ARGUMENT or mechanisms().monitor:
        return None
    return Plan(Confinement(keep_rights=True))


class MonitoredCommand(MonitoredProcess):
    """A command under a guard; makes the same `ProcessRecord` as `Process`."""

    def __init__(
        self,
        engine: Engine,
        launch: MonitoredLaunch,
        recorder: OutputDistributor,
        done: Callable[[ProcessRecord], None],
        begun: Callable[[], None],
        watch: ProtectedFiles | None = None,
    ) -> None:
        self._watch = watch
        self._decoder = _Decoder(recorder)
        self._record_done = done
        self._begun = begun
        super().__init__(engine, launch, self._decoder, self._monitor_ended)
        self._decoder.pause = self._drain.pause
        recorder.resume = self._drain.resume

    def _program_started(self, pid: int, ticks: int) -> None:
        super()._program_started(pid, ticks)
        self._begun()

    def _monitor_ended(self, ended: MonitorRecord) -> None:
        self._decoder.recorder.stop()
        stdout, stderr = self._decoder.captures.values()
        step, problem = "", None
        if ended.failure is not None:
            step = ended.failure.step
            problem = f"the command could not be started: {step} ({ended.failure.name})"
        record = ProcessRecord(
            ended.outcome,
            ended.status,
            stdout,
            stderr,
            ended.duration,
            background_ended=ended.background_killed,
            spawn_kind="cwd" if step == "cwd" else "spawn",
            spawn_error=problem,
            max_rss=ended.max_rss,
            cpu_s=ended.cpu_s,
        )
        if self._watch is None:
            self._record_done(record)
            return
        comparing = self._owner.loop.run_in_executor(None, self._watch.end)  # a file system may be slow
        comparing.add_done_callback(lambda found: self._record_done(replace(record, created=_created(found))))


def _created(comparing: asyncio.Future[str]) -> str:
    return comparing.result() if not comparing.cancelled() and comparing.exception() is None else ""


class _Decoder:
    """Decodes the program's output for the recorder."""

    def __init__(self, recorder: OutputDistributor) -> None:
        self.recorder = recorder
        self.captures: dict[Stream, Capture] = {"stdout": Capture(), "stderr": Capture()}
        self.pause: Callable[[], None] = no_op

    def take(self, stream: Stream, data: bytes, final: bool) -> None:
        self.recorder.feed(stream, self.captures[stream].feed(data, final))
        if self.recorder.full:
            self.pause()


def launch_of(
    shell: Shell,
    identity: Identity,
    environment: Mapping[bytes, bytes],
    job: str,
    confinement: Confinement,
    graces: tuple[float, float],
) -> MonitoredLaunch:
    """Return the launch of a confined command; `graces` are the seconds of a stop and of an interrupt."""
    argv, _ = shell.arguments(identity.cmd)
    return MonitoredLaunch(
        shell.path,
        [os.fsdecode(each) for each in argv],
        {**environment, b"PROSE_JOB": job.encode()},
        identity.workdir,
        None,
        graces[0],
        graces[1],
        confinement=confinement,
        umask=_umask(),
    )


def _umask() -> int:
    """Return the umask of this process, which `os.umask` could only return by changing it."""
    try:
        with open("/proc/self/status") as file:  # noqa: PTH123 - one line of a small file
            return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration, ValueError):
        return 0o022
