"""The stub CLI agent as a real process, with the real provider and a person who answers questions."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from models.people import ScriptedPerson
from waiting import eventually

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.models.json_rpc import Patience
from prose_kernel.models.providers.acp import AcpSessions, AgentHost
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.long_lived_processes import Helpers
from prose_kernel.processes.process_table import members
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import AnswerFile, SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.services import Terminals
from prose_kernel.runtime.session_options import AgentCommand, Rule, Surroundings

TESTS = Path(__file__).parents[2]
PATIENCE = Patience(start=30, noise=0.3, cancel=20, grace=0.3)
SHORT = Patience(start=30, noise=0.3, cancel=0.3, grace=0.3)


def marked(entry: str) -> list[int]:
    """Return the live processes with this entry in their environment."""
    found = []
    for member in members():
        try:
            if entry.encode() in Path(f"/proc/{member.pid}/environ").read_bytes().split(b"\0"):
                found.append(member.pid)
        except OSError:
            continue
    return found


@dataclass
class Bench:
    """An agent under test. `host` holds the host's rules, `progress` all progress reports."""

    sessions: AcpSessions
    engine: Engine
    cwd: Path
    person: ScriptedPerson
    mark: str
    host: dict[str, Rule] = field(default_factory=dict)
    progress: list[SessionProgress] = field(default_factory=list)
    audit: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)

    async def run(self, *todo: str, **more: object) -> SessionResult:
        return await self.sessions.run(request(*todo, **more), self.progress.append)

    def start(self, *todo: str, **more: object) -> asyncio.Task[SessionResult]:
        return asyncio.create_task(self.run(*todo, **more))

    async def started(self, *todo: str, **more: object) -> asyncio.Task[SessionResult]:
        """Start a session, and return its task when it has printed `up`; the session then runs `todo`."""
        self.progress.clear()
        task = self.start("say up", *todo, **more)
        await eventually(lambda: task.done() or any(step.kind == "text" for step in self.progress))
        return task

    @property
    def processes(self) -> list[int]:
        return marked(f"ACP_MARK={self.mark}")


def request(*todo: str, **more: object) -> SessionRequest:
    task = "\n".join(f"do: {each}" for each in todo) or "Write a haiku"
    return SessionRequest("session", task, "c1/s0", **more)  # type: ignore[arg-type]


def target(name: str, cwd: Path) -> AnswerFile:
    """Return a binding of a run on disk."""
    location = f".prose/runs/20260301-120000-abc123/bindings/{name}.md"
    (cwd / location).parent.mkdir(parents=True, exist_ok=True)
    return AnswerFile(name, location, f"# {name}\n\nkind: let\n\n---\n\n")


@asynccontextmanager
async def agent(
    cwd: Path,
    *settings: str,
    person: ScriptedPerson | None = None,
    limit: int | None = None,
    patience: Patience | None = None,
    terminals: Terminals | None = None,
    command: tuple[str, ...] | None = None,
    env: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    **options: object,
) -> AsyncIterator[Bench]:
    """Yield a bench with the stub agent, configured by `settings` (see stubs/acp_agent.py), or with another command."""
    engine = Engine(grace=0.3, state_dir=cwd / ".state")
    mark, person = uuid.uuid4().hex, person or ScriptedPerson(available=False)
    env = {"PYTHONPATH": str(TESTS), "ACP_MARK": mark, **(env or {})}
    aliases = aliases or {"opus": "large", "haiku": "tiny"}
    argv = command or (sys.executable, "-m", "stubs.acp_agent", *settings)
    where = Surroundings(cwd=str(cwd), environment=dict(os.environ))
    host: dict[str, Rule] = {}
    audit: list[tuple[str, Mapping[str, object]]] = []
    sessions = AcpSessions(
        "stub",
        AgentCommand(argv, env=env, aliases=aliases, **options),  # type: ignore[arg-type]
        AgentHost(
            policy_of=lambda asked: Policy.of(asked.permissions, host, where.cwd),
            approvals=Approvals(person, SystemClock(), audit=lambda event, details: audit.append((event, details))),
            where=where,
            guard=Helpers(engine),
            terminals=terminals,
        ),
        limit=limit,
        patience=patience or (SHORT if any("cancel" in each for each in settings) else PATIENCE),
    )
    bench = Bench(sessions, engine, cwd, person, mark, host, audit=audit)
    try:
        yield bench
    finally:
        await sessions.close()
        await asyncio.to_thread(engine.close)
        assert bench.processes == []
