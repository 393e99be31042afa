"""Calls of `Exec` by a user without privileges, run by `test_unprivileged.py`. Prints JSON.

The arguments include the locations of the package and its dependencies.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.exec_tool.tool import AgentPrograms
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.sandbox import mechanisms
from prose_kernel.runtime.services import ExecCaller

LOOK = (
    "cat /proc/self/status | grep -E 'NoNewPrivs|CapEff|CapPrm'; "
    "for p in $PPID KERNEL; do cat /proc/$p/environ; kill -0 $p; kill -STOP $p; done; "
    "ulimit -n 9999; ulimit -n; sudo -n true; cat /etc/shadow; echo end"
)


async def main(directory: Path) -> dict[str, object]:
    engine = Engine(state_dir=directory / "state")
    workspace = directory / "work"
    for name in ("in", "out"):
        (workspace / name).mkdir(parents=True)
    (workspace / "in" / "file").write_text("in")
    (workspace / "secret").write_text("secret")
    programs = AgentPrograms(engine, ExecOptions(enabled=True), AuditLog(directory / "audit.jsonl"))
    rules = {
        "execute": ("/usr/bin/*", "/bin/*"),
        "bash": "allow",
        "read": (f"{workspace}/in/", "/usr/"),
        "write": (f"{workspace}/out/",),
        "network": "deny",
    }
    free = ExecCaller("free", str(workspace), {**rules, "read": "workspace", "network": "allow"})
    bound = ExecCaller("bound", str(workspace), rules, lists_bind=True)
    answers: dict[str, object] = {
        "uid": os.getuid(),
        "landlock": mechanisms().landlock,
        "network": mechanisms().network,
    }

    async def call(caller: ExecCaller, *argv: str, timeout: int = 20) -> object:
        given = {"argv": list(argv), "timeout_s": timeout}
        outcome = await programs.call(caller, "call", given)
        return dict(outcome.result) if outcome.ok else [outcome.error, outcome.message]

    answers["look"] = await call(free, "/bin/sh", "-c", LOOK.replace("KERNEL", str(os.getpid())))
    began = time.monotonic()
    tree = "(setsid sh -c 'trap \"\" TERM; sleep 81.1' &); trap '' TERM; sleep 81.1; sleep 81.1"
    answers["limit"] = await call(free, "/bin/sh", "-c", tree, timeout=1)
    answers["seconds"] = time.monotonic() - began
    reads = (
        f"cat {workspace}/in/file; cat {workspace}/secret; echo x > {workspace}/in/new; echo y > {workspace}/out/new"
    )
    answers["bound"] = await call(bound, "/bin/sh", "-c", reads)
    answers["written"] = sorted(str(each.relative_to(workspace)) for each in workspace.rglob("*") if each.is_file())
    engine.close()
    return answers


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(asyncio.run(main(Path(place).resolve()))))
