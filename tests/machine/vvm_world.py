"""A VVM machine with scripted ports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from machine.fakes import FakeClock, FakeCommands, FakeGates, FakeJudge, FakeSessions, FakeUser, MemoryStore, World

from prose_kernel.errors import ImportProgramError, RunError, VvmRaise
from prose_kernel.language.source import Source
from prose_kernel.language.vvm.parser import parse
from prose_kernel.language.vvm.program_interface import CheckedModule, contract
from prose_kernel.language.vvm.tree import Program
from prose_kernel.machine.vvm.machine import Machine
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import LoadedProgram, LoadRequest, Ports
from prose_kernel.runtime.values import Value


def tree_of(source: Source) -> Program:
    parsed = parse(source)
    errors = [d for d in parsed.diagnostics if d.severity == "error"]
    assert not errors, "\n".join(d.render() for d in errors)
    return parsed.program


@dataclass
class Vvm(World):
    """A VVM machine scripted like `World`; the judge looks up the text of a criterion. `modules` maps paths to texts."""

    modules: dict[str, str] = field(default_factory=dict)
    depth: int = 100

    def __post_init__(self) -> None:
        self.clock, self.store = FakeClock(), MemoryStore()
        self.commands, self.sessions, self.judge = FakeCommands(self), FakeSessions(self), FakeJudge(self)
        self.user, self.gates = FakeUser(self), FakeGates(self)
        self.events: list[Event] = []
        self.loads: list[str] = []
        self._loaded: dict[str, CheckedModule] = {}
        ports = (self.commands, self.sessions, self.judge, self.user, self.gates)
        host = Host(
            Ports(*ports, self.store, self.clock),
            [self.events.append] if self.listening else [],
            concurrency=self.concurrency,
            load=self._load,
            hook=self.hook,
        )
        self.vvm = Machine(host, cwd="/start", program_file="main.vvm")
        self.vvm.limit(depth=self.depth)

    # ------------------------------------------------------------ modules

    async def _load(self, request: LoadRequest) -> LoadedProgram:
        self.loads.append(request.at)
        module = self._module(request.path, request.importer.name)
        return LoadedProgram(module, module.source, "", "")

    def _module(self, path: str, importer: str) -> CheckedModule:
        where = str(PurePosixPath(importer).parent / path.removeprefix("./"))
        if where not in self.modules:
            raise ImportProgramError(f"Module not found: {where}", code="V090")
        if where not in self._loaded:
            source = Source(self.modules[where], where)
            program = tree_of(source)
            found = contract(program)
            imports = {name: self._module(name, where) for name in found.imports}
            self._loaded[where] = CheckedModule("/" + where, source, program, found, imports)
        return self._loaded[where]

    # ------------------------------------------------------------ running

    async def run(self, text: str, *, cell: bool = False, **_: Any) -> Value:
        source = Source(text, "cell" if cell else "main.vvm")
        return await self.vvm.run(tree_of(source), source, cell=cell)

    async def cell(self, *lines: str) -> Value:
        return await self.run("\n".join(lines) + "\n", cell=True)

    async def fails(self, *lines: str) -> RunError:
        """Run a cell that must fail and return its error."""
        try:
            value = await self.cell(*lines)
        except RunError as error:
            return error
        raise AssertionError(f"did not fail, but gave {value!r}")

    def value(self, name: str) -> Any:
        return self.vvm.bindings()[name].value


async def value_of(*lines: str, **world: Any) -> Any:
    """Run a cell whose last statement is an expression and return its value."""
    return await Vvm(**world).cell(*lines)


async def raised_by(*lines: str, **world: Any) -> tuple[str, str]:
    """Run a cell that must raise and return the code and message of its error."""
    error = await Vvm(**world).fails(*lines)
    assert isinstance(error, VvmRaise), repr(error)
    return error.code, error.message
