"""A test bench that calls `Exec` on real programs as an agent's session does."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from needs import needs
from waiting import PATIENCE, until

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord, CapabilityStore, FsGrant
from prose_kernel.processes.exec_tool.tool import Dispatcher, ExecTool, Handler, register_exec
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.process_table import member_of
from prose_kernel.processes.sandbox import Mechanisms, mechanisms
from prose_kernel.runtime.services import ExecOutcome

PYTHON = str(Path(sys.executable).resolve())
SYSTEM = (("/usr", "r"), ("/bin", "r"))


class Bench:
    """`await bench(argv...)` is one call of `Exec` by an agent, which by default may run the system's programs."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.directory = directory
        self.audit = AuditLog()
        self.capabilities = CapabilityStore()
        self.handlers: dict[str, Handler] = {}
        self.dispatcher = Dispatcher(self.handlers, self.capabilities, self.audit)
        self.warnings: list[str] = []
        self.environment: dict[str, str] = dict(os.environ)
        self._numbers = itertools.count(1)
        self.use()

    def use(self, found: Callable[[], Mechanisms] = mechanisms, **options: object) -> ExecTool:
        """Register the tool with these options, as an operator does."""
        chosen = ExecOptions(enabled=True, **options)  # type: ignore[arg-type]
        tool = ExecTool(
            self.engine, chosen, self.audit, kernel=lambda: self.environment, warn=self.warnings.append, found=found
        )
        register_exec(self.handlers, tool)
        return tool

    def agent(
        self, *fs: tuple[str, str], tools: Sequence[str] = ("Exec",), name: str | None = None, **more: object
    ) -> str:
        """Create an agent with these grants, and return its name."""
        name = name or f"agent{next(self._numbers)}"
        grants = tuple(FsGrant(prefix, mode) for prefix, mode in fs)  # type: ignore[arg-type]
        record = CapabilityRecord(tool_grants=frozenset(tools), fs_grants=grants, **more)  # type: ignore[arg-type]
        self.capabilities.create(name, record)
        return name

    async def call(self, arguments: object, *, agent: str | None = None, tool: object = "Exec") -> ExecOutcome:
        if agent is None:
            agent = self.agent(*SYSTEM, (PYTHON, "r"), (str(self.directory), "r"))
        return await self.dispatcher.dispatch(agent, f"call{next(self._numbers)}", tool, arguments)

    async def __call__(self, *argv: str, agent: str | None = None, **arguments: object) -> ExecOutcome:
        given = {"argv": list(argv), "cwd": str(self.directory), **arguments}
        return await self.call(given, agent=agent)

    async def python(self, code: str, *arguments: str, **options: object) -> ExecOutcome:
        """Run a Python text as the program."""
        return await self(PYTHON, "-I", "-S", "-c", code, *arguments, **options)  # type: ignore[arg-type]

    def events(self, name: str) -> list[Mapping[str, object]]:
        return [event for event in self.audit.events if event["event"] == f"tool.call.{name}"]


def _engine(factory: pytest.TempPathFactory) -> Engine:
    # the grace between the steps of a user's interrupt; the grace at the time limit is fixed
    return Engine(grace=0.3, state_dir=factory.mktemp("state"))


@pytest.fixture(scope="module")
def shared_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A shared engine: its watchdog and its monitor are two interpreters, which cost more than most tests."""
    engine = _engine(tmp_path_factory)
    yield engine
    engine.close()


@pytest.fixture
def bench(shared_engine: Engine, tmp_path: Path) -> Bench:
    """A bench on the engine that the tests of a module share."""
    return Bench(shared_engine, tmp_path.resolve())


@pytest.fixture
def own_bench(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench on a separate engine, for tests that close it or inspect its processes."""
    engine = _engine(tmp_path_factory)
    yield Bench(engine, tmp_path.resolve())
    engine.close()


def result(outcome: ExecOutcome) -> Mapping[str, object]:
    """Return the result of a call that was carried out."""
    assert outcome.ok, (outcome.error, outcome.message)
    assert isinstance(outcome.result, Mapping)
    return outcome.result


def ended(pids: Sequence[int], seconds: float = PATIENCE) -> bool:
    """Wait until none of these processes is left."""
    return until(lambda: all(member_of(pid) is None for pid in pids), seconds)


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def compiled(directory: Path, name: str, source: str) -> Path:
    """Compile a C program."""
    compiler = needs("cc")
    (directory / f"{name}.c").write_text(source)
    subprocess.run([compiler, "-O1", "-pthread", "-o", str(directory / name), str(directory / f"{name}.c")], check=True)
    return directory / name


needs_landlock = pytest.mark.skipif(not mechanisms().landlock, reason="Landlock is not offered here")
needs_scopes = pytest.mark.skipif(not mechanisms().scopes, reason="this system's Landlock does not know scopes")
needs_network = pytest.mark.skipif(bool(mechanisms().network), reason="no network namespaces here")
