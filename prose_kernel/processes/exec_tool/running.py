"""Runs one checked call of `Exec` under a guard, and builds the result for the model (exec-and-tasks.md 3.6, 3.8)."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from prose_kernel.processes import spawn
from prose_kernel.processes.command_output import Head
from prose_kernel.processes.cross_loop import ProcessCall
from prose_kernel.processes.engine import Engine, EngineClosed
from prose_kernel.processes.exec_tool.checks import Refused
from prose_kernel.processes.monitored_process import MonitoredLaunch, MonitoredProcess, MonitorRecord, StartFailure
from prose_kernel.processes.options import ExecOptions
from prose_kernel.runtime.ports import Stream

GRACE = 1.0
"""Seconds between TERM and KILL at the time limit."""

_CPU_BACKSTOP = 2


@dataclass(frozen=True, slots=True)
class Ended:
    """A call that has ended: the result for the model, and further facts for the audit log."""

    result: Mapping[str, object]
    stdout_bytes: int
    stderr_bytes: int
    cpu_s: float


def limits(options: ExecOptions, timeout: int) -> tuple[tuple[int, int, int], ...]:
    """Return each resource with its soft and hard limit. With equal CPU limits, the system would send KILL instead of
    SIGXCPU, which hides the reason."""
    cpu = options.cpu_seconds or max(timeout, 1)
    return (
        (resource.RLIMIT_CPU, cpu, cpu + _CPU_BACKSTOP),
        (resource.RLIMIT_AS, options.memory, options.memory),
        (resource.RLIMIT_FSIZE, options.file_bytes, options.file_bytes),
        (resource.RLIMIT_NOFILE, options.open_files, options.open_files),
        (resource.RLIMIT_CORE, 0, 0),
    )


class Run:
    """One call, as it runs between the caller's loop and the engine's."""

    def __init__(self, engine: Engine, job: MonitoredLaunch, cap: int) -> None:
        self._engine = engine
        self._job = job
        self._heads: dict[Stream, Head] = {"stdout": Head(cap), "stderr": Head(cap)}

    async def wait(self) -> MonitorRecord:
        """Run the program to its end, even if this call is cancelled, until none of its processes is left. Raises
        `Refused`."""
        try:
            call: ProcessCall[MonitorRecord] = ProcessCall(self._engine)
            return await call.wait(MonitoredProcess(self._engine, self._job, self, call.done))
        except EngineClosed:
            raise Refused("tool_failed", "the process engine is closed") from None
        except OSError as problem:
            raise Refused("tool_failed", spawn.start_error(problem)) from None

    def take(self, stream: Stream, data: bytes, final: bool) -> None:
        """Keep the beginning of a stream (`OutputSink.take`)."""
        self._heads[stream].feed(data)

    def ended(self, record: MonitorRecord) -> Ended:
        """Return the result. Raises `Refused` if the program did not start, or was interrupted or cancelled."""
        if record.failure is not None:
            raise _not_started(record.failure)
        if record.outcome in ("interrupted", "cancelled"):
            raise Refused("tool_failed", f"the program was {record.outcome}")
        stdout, stderr = self._heads["stdout"], self._heads["stderr"]
        code = os.waitstatus_to_exitcode(record.status) if record.status is not None else -signal.SIGKILL
        result: dict[str, object] = {
            "exit_code": code,
            "stdout": stdout.text,
            "stderr": stderr.text,
            "stdout_truncated": stdout.truncated,
            "stderr_truncated": stderr.truncated,
            "duration_s": round(record.duration, 6),
            "timed_out": record.outcome == "timed_out",
        }
        # additional fields: an exceeded limit, if that is certain, and the number of killed background processes
        limit = {-signal.SIGXCPU: "cpu", -signal.SIGXFSZ: "file_size"}.get(code)
        if limit is not None and not result["timed_out"]:
            result["limit_hit"] = limit
        if record.background_killed:
            result["background_killed"] = record.background_killed
        return Ended(result, stdout.total, stderr.total, record.cpu_s)


_WORDS = {
    errno.ENOENT: "its interpreter was not found (ENOENT)",
    errno.ENOEXEC: "the system cannot run it, and no shell is tried (ENOEXEC)",
    errno.E2BIG: "the arguments and the environment are too long (E2BIG)",
    errno.ETXTBSY: "it is open for writing (ETXTBSY)",
    errno.ETIMEDOUT: "it could not be started in time (ETIMEDOUT)",
}


def _not_started(failure: StartFailure) -> Refused:
    number = failure.number
    if number == errno.ESTALE and failure.step in ("program", "cwd"):
        what = "the program" if failure.step == "program" else "the directory"
        return Refused("fs_denied", f"{what} changed after it was checked")
    if failure.step == "program":
        words = _WORDS.get(number) or f"{os.strerror(number).lower()} ({failure.name})"
        return Refused("tool_failed", f"the program cannot be started: {words}")
    if failure.step == "cwd":
        return Refused("tool_failed", f"cwd cannot be entered: {os.strerror(number).lower()} ({failure.name})")
    if failure.step == "monitor" and failure.what:
        return Refused("tool_failed", f"the program's monitor was lost: {failure.what}")
    where = failure.what.strip() or failure.step
    return Refused("tool_failed", f"the program cannot be started: {where}: {failure.name}")
