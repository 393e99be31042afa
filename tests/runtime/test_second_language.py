"""A second language on the runtime: it imports nothing from OpenProse, and each front end runs its `Language`."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from machine.fakes import (
    FakeClock,
    FakeCommands,
    FakeGates,
    FakeJudge,
    FakeSessions,
    FakeUser,
    MemoryStore,
    Reply,
    World,
)
from runtime import tally
from runtime.tally import NOTHING, TALLY, Function, TallyMachine, compile_text

from prose_kernel.cli.main import main
from prose_kernel.errors import RunError
from prose_kernel.language.source import Source
from prose_kernel.runs import languages
from prose_kernel.runtime.events import BranchFinished, CellStarted, Event, Failed, SessionStarted
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.ports import Ports
from prose_kernel.runtime.values import Value, full_text, kind_of, plain


class Tally:
    """A Tally machine with scripted ports."""

    def __init__(self, **sessions_say: object) -> None:
        world = World(sessions_say=dict(sessions_say))
        self.events: list[Event] = []
        self.clock, self.store = FakeClock(), MemoryStore()
        world.clock = self.clock
        ports = (FakeCommands(world), FakeSessions(world), FakeJudge(world), FakeUser(world), FakeGates(world))
        self.machine = TallyMachine(Host(Ports(*ports, self.store, self.clock), [self.events.append]), cwd="/")

    async def run(self, *lines: str) -> Value:
        source = Source("\n".join(lines), "cell")
        compiled = compile_text(source)
        assert compiled.ok, compiled.diagnostics
        return await self.machine.run(compiled.program, source, cell=True)

    @property
    def values(self) -> dict[str, object]:
        return {name: plain(info.value) for name, info in self.machine.bindings().items()}


def test_a_language_needs_nothing_from_openprose() -> None:
    tree = ast.parse(Path(tally.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert not [module for module in imported if "openprose" in module]


async def test_functions_see_names_by_reference_and_are_values() -> None:
    t = Tally()
    function = await t.run(
        "let n = 1", "def more(x) = x + n", "let a = more(n)", "let n = 5", "let b = more(n)", "let f = more"
    )
    assert isinstance(function, Function) and (t.values["a"], t.values["b"]) == (2, 10)
    assert (kind_of(function), full_text(function), plain([function])) == (
        "function",
        "function of x",
        ["function of x"],
    )
    assert t.store.text("f") == "function of x"
    assert await t.run() is NOTHING


async def test_a_call_may_be_100_000_deep() -> None:
    assert await Tally().run("def twice(x) = x + x", "deep r = twice 100000") == pow(2, 100_000, 1_000_007)


async def test_a_failed_session_is_a_value() -> None:
    t = Tally(good="fine", bad=[Reply(fails="busy"), Reply(fails="gone", retryable=False)])
    await t.run('ask a "good"', 'ask b "bad"')
    assert t.values == {"a": "fine", "b": {"error": {"kind": "error", "message": "gone"}}}
    paths = [(e.request.at, e.request.attempt, e.place.kind) for e in t.events if isinstance(e, SessionStarted)]
    assert paths == [("c1/1/s0", 0, "ask"), ("c1/2/s0", 0, "ask"), ("c1/2/s0", 1, "ask")]
    assert [e.valued for e in t.events if isinstance(e, CellStarted)] == ["ask"]


async def test_no_branch_is_cancelled_by_a_failing_one() -> None:
    t = Tally(q="text")
    with pytest.raises(RunError, match="only numbers"):
        await t.run('ask t "q"', "let n = 2", "def twice(x) = x + x", "each r = twice over n t n")
    statuses = [(e.index, e.status) for e in t.events if isinstance(e, BranchFinished)]
    assert statuses == [(2, "done"), (1, "failed"), (0, "done")]
    assert await t.run("each r = twice over n n n") == [4, 4, 4]
    assert next(e.error for e in t.events if isinstance(e, Failed)).details["statement"].startswith("each r")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setitem(languages.LANGUAGES, "tally", TALLY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.tally").write_text("let n = 2\ndef twice(x) = x + x\nlet r = twice(n)\n")
    return tmp_path


def test_the_command_line_runs_a_file_by_its_suffix(registered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "p.tally", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["bindings"] == {"n": 2, "twice": "function of x", "r": 4}
    (state,) = (registered / ".prose" / "runs").glob("*/state.md")
    assert [line for line in state.read_text().splitlines() if "→" in line] == ["1→ n ✓", "2→ twice ✓", "3→ r ✓"]
    assert main(["compile", "p.tally", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["language"] == "tally"
    assert main(["compile", "p.tally"]) == 0
    assert capsys.readouterr().out == "p.tally counts\n"
    assert main(["fmt", "p.tally"]) == 0
    assert capsys.readouterr().out.startswith("let n 2\n")
    (registered / "bad.tally").write_text("what\n")
    assert main(["run", "bad.tally"]) == 2
    assert "no statement: what" in capsys.readouterr().err


def test_cells_of_a_notebook_are_known_by_the_magic(registered: Path) -> None:
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    from prose_kernel.cli.notebook_file import read_cells

    book = new_notebook(cells=[new_code_cell("%%tally\nlet n = 1"), new_code_cell("import os")])
    nbformat.write(book, registered / "n.ipynb")
    assert [cell.text for cell in read_cells("n.ipynb")[0]] == ["%%tally\nlet n = 1"]
    assert languages.of_magic("tally") is TALLY and languages.of_file("x.tally") is TALLY
    assert languages.of_file("x.prose") is languages.default() and languages.of_magic("python") is None
