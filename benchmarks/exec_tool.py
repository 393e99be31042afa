"""The `Exec` tool, `exec` and a bare spawn, measured alternately in one run, with the figures of the reference.

Usage: python benchmarks/exec_tool.py [--quick]
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.exec_tool.tool import AgentPrograms
from prose_kernel.processes.monitored_process import Confinement, MonitoredLaunch, MonitoredProcess, MonitorRecord
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.sandbox import mechanisms
from prose_kernel.processes.sandbox_syscalls import EXECUTE, READ
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runtime.ports import CommandRequest
from prose_kernel.runtime.services import ExecCaller

ROUNDS = 15 if "--quick" in sys.argv else 60
Work = Callable[[], Awaitable[object]]


async def spawn() -> None:
    """The floor: start a trivial program in a new session."""
    subprocess.Popen(["/bin/true"], stdin=subprocess.DEVNULL, start_new_session=True).wait()


async def collected() -> None:
    subprocess.Popen(
        ["/bin/true"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ).communicate()


async def interpreter() -> None:
    subprocess.Popen([sys.executable, "-I", "-S", "-c", ""], stdin=subprocess.DEVNULL, start_new_session=True).wait()


class Nothing:
    def take(self, stream: str, data: bytes, final: bool) -> None: ...


class Programs:
    """The ways in which this package runs a program."""

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        self.engine = Engine(state_dir=Path(cwd) / "state")
        self.engine.start()
        self.shell = ShellCommands(self.engine, "sh")
        audit = AuditLog(Path(cwd) / "audit.jsonl")
        self.agents = AgentPrograms(self.engine, ExecOptions(enabled=True), audit)
        self.numbers = iter(range(1_000_000))

    async def exec(self) -> None:
        await self.shell.run(CommandRequest("true", self.cwd, 60.0))

    async def monitor(self, confinement: Confinement) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[MonitorRecord] = loop.create_future()
        launch = MonitoredLaunch("/bin/true", ("/bin/true",), {}, self.cwd, 60.0, 1.0, 2.0, confinement=confinement)

        def ended(record: MonitorRecord) -> None:
            loop.call_soon_threadsafe(done.set_result, record)

        self.engine.post(lambda: self.engine.submit(MonitoredProcess(self.engine, launch, Nothing(), ended)))
        assert (await done).status == 0

    def call(self, *, bind: bool = False, network: str = "allow") -> Work:
        rules: dict[str, str | tuple[str, ...]] = {"execute": ("/bin/true",), "read": "workspace", "network": network}
        caller = ExecCaller(f"bench{next(self.numbers)}", self.cwd, rules, lists_bind=bind)

        async def run() -> None:
            answer = await self.agents.call(caller, "1", {"argv": ["/bin/true"]})
            assert answer.ok, answer.message

        return run

    def works(self) -> list[tuple[str, Work, str]]:
        """Return what is measured, with the ratio of the reference."""
        found = mechanisms()
        paths = ((b"/usr", READ | EXECUTE), (b"/lib", READ | EXECUTE), (b"/lib64", READ | EXECUTE))
        works: list[tuple[str, Work, str]] = [
            ("bare spawn in a new session", spawn, "1.00"),
            ("with two pipes, collected", collected, "1.2"),
            ("isolated Python, doing nothing", interpreter, "21"),
            ("`exec` of a shell (dash)", self.exec, "1.2 for the shell alone"),
            ("a program under the monitor", lambda: self.monitor(Confinement()), "about 3"),
        ]
        if found.landlock:
            confined = Confinement(True, paths)
            works.append(("the same with Landlock", lambda: self.monitor(confined), "-"))
        works.append(("`Exec`, all of it", self.call(), "20-100"))
        if found.landlock:
            works.append(("`Exec`, lists bind", self.call(bind=True), "+50 %"))
        if not found.network:
            works.append(("`Exec`, no network", self.call(network="deny"), "-"))
        return works

    async def at_once(self, count: int) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(self.call()() for _ in range(count)))
        return time.perf_counter() - began


async def main() -> None:
    with tempfile.TemporaryDirectory() as cwd:
        programs = Programs(str(Path(cwd).resolve()))
        works = programs.works()
        times: dict[str, list[float]] = {name: [] for name, _, _ in works}
        for turn in range(ROUNDS + 2):
            for name, work, _ in works:  # alternately, so that other load affects all of them
                began = time.perf_counter()
                await work()
                if turn >= 2:
                    times[name].append(time.perf_counter() - began)
        medians = {name: statistics.median(values) for name, values in times.items()}
        floor = medians[works[0][0]]
        print("| work | median | ratio to a bare spawn | the reference's |\n| --- | --- | --- | --- |")
        for name, _, reference in works:
            print(f"| {name} | {medians[name] * 1000:.1f} ms | {medians[name] / floor:.1f} x | {reference} |")
        ratio = medians["`Exec`, all of it"] / medians["`exec` of a shell (dash)"]
        print(f"\n`Exec` takes {ratio:.1f} times as long as `exec`.")
        took = await programs.at_once(50)
        print(f"50 calls at once: {took:.2f} s, {took / 50 / floor:.1f} x a bare spawn each.")
        await asyncio.to_thread(programs.engine.close)


if __name__ == "__main__":
    asyncio.run(main())
