"""A process that runs `true` and, after a line or the end of its input, a program through `Exec`, and is killed by its
test. `host.py STATE WORKSPACE PROGRAM...`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.exec_tool.tool import AgentPrograms
from prose_kernel.processes.options import ExecOptions
from prose_kernel.runtime.services import ExecCaller


async def main(state: Path, workspace: str, argv: list[str]) -> None:
    engine = Engine(state_dir=state)
    programs = AgentPrograms(engine, ExecOptions(enabled=True), AuditLog(Path(workspace) / "audit.jsonl"))
    rules = {"execute": "allow", "bash": "allow", "read": "workspace", "network": "allow"}
    caller = ExecCaller("host", workspace, rules)
    await programs.call(caller, "1", {"argv": ["/bin/true"]})
    print("ready", flush=True)
    sys.stdin.readline()
    await programs.call(caller, "2", {"argv": argv, "timeout_s": 600})


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
