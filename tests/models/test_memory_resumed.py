"""Memories of agents after a run is killed and resumed equal those of an unbroken run (docs/how-to/durability.md)."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killing import how_to_resume, in_a_child, journal_in
from machine.fakes import FakeClock
from models.people import ScriptedPerson

from prose_kernel.errors import ProviderError
from prose_kernel.models.providers.scripted import ScriptedSessions
from prose_kernel.runs import languages
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult

SCRIPT = {
    "Plan it": "North.",
    "Go on": "Went.",
    "Itself": "By itself.",
    "By hand": "Wrote.",
    "Fails": "In the end.",
    "Note": 'Noted.\n```vvm-memory\n{"digest": "tea", "retain": ["W tea"]}\n```\n',
    "More": 'More.\n```vvm-memory\n{"digest": "tea, cake", "retain": ["W cake"]}\n```\n',
    "About": "About it.",
}

CAPTAIN = """agent captain:
  prompt: "You lead"
  persist: true

let a = session: captain
  prompt: "Plan it"
let b = resume: captain
  prompt: "By hand"
let c = resume: captain
  prompt: "Fails"
  retry: 1
let d = resume: captain
  prompt: "Go on"
let e = session "Itself"
output f = "{d}{e}"
"""

TEAM = """agent a(memory={scope: "project", key: "k"}, prompt="P", model="small")
agent b()
x = @a `Note`(())
y = @b `About`(x)
z = @a `More`(y)
export z
"""


@pytest.fixture(autouse=True)
def _sessions_that_write_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with the task `By hand` writes both files of its memory itself, in several steps; one with the task
    `Itself` writes its binding. Every call adds a line to `calls`."""
    run = ScriptedSessions.run

    async def writes(
        self: ScriptedSessions, request: SessionRequest, on_progress: Callable[[SessionProgress], None]
    ) -> SessionResult:
        with open("calls", "a") as file:  # noqa: PTH123
            file.write(f"{request.at}#{request.attempt}\n")
        memory = request.memory
        if memory is not None and request.task == "By hand":
            place = Path(memory.directory)
            Path(memory.segment or "").write_text("# Segment\nby hand\n")
            Path(place, "memory.md").write_text("half")
            Path(place, "memory.md").write_text((memory.text or "") + "- by hand\n")
        if request.task == "Itself" and request.target is not None:
            Path(request.target.location).write_text(f"{request.target.header}By itself.")
            return SessionResult(None, "It did.", "scripted", "scripted")
        if request.task == "Fails" and not request.attempt:
            raise ProviderError("overloaded")
        return await run(self, request, on_progress)

    monkeypatch.setattr(ScriptedSessions, "run", writes)


@pytest.fixture(autouse=True)
def _a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def unbroken(cwd: Path, work: Callable[[], Any]) -> int:
    """Do the work without a kill; return the number of its instants. The processes that are killed later inherit the
    modules and programs loaded here, which halves their processor time."""
    prepare(cwd)
    asyncio.run(work())
    prepare(cwd)
    instants = in_a_child(cwd, work)
    assert instants is not None
    return instants


def prepare(cwd: Path) -> None:
    shutil.rmtree(cwd, ignore_errors=True)
    cwd.mkdir(parents=True)
    (cwd / "script.yaml").write_text(yaml.safe_dump({"sessions": SCRIPT}))
    os.chdir(cwd)


def run(cwd: Path, text: str | list[str], name: str, **chosen: Any) -> Callable[[], Any]:
    """Return work that runs a program, or cells of both languages in turn, and resumes a run if there is one."""

    async def work() -> None:
        how = how_to_resume(cwd)
        start = Start(cwd, name, notebook=not isinstance(text, str), language=languages.of_file(name))
        here = Workspace(
            Settings().changed(provider="scripted", script="script.yaml", **chosen),
            start,
            asker=ScriptedPerson(available=False),
            clock=FakeClock(),
            resumption=how,
        )
        if isinstance(text, str):
            await here.execute(text, name)
        else:
            if how is not None:
                await here.restore()
            done = len(how.ended_texts) if how is not None else 0
            for number, cell in list(enumerate(text))[done:]:
                language = languages.of_file("c.vvm" if number % 2 else "c.prose")
                await here.execute(cell, f"cell {number + 1}", language=language)
        await here.close()

    return work


def left(cwd: Path) -> dict[str, str]:
    """Return all files of a run, except those about the process."""
    own = ("journal.jsonl", "script.yaml", "calls", ".lock", "lock")
    found = {}
    for path in sorted(path for path in cwd.rglob("*") if path.is_file() and path.name not in own):
        parts = path.relative_to(cwd).parts
        run_id = parts[2] if parts[1:2] == ("runs",) else None
        text = path.read_text()
        found["/".join(parts)] = text
        if run_id is not None:
            found = {name.replace(run_id, "RUN"): text.replace(run_id, "RUN") for name, text in found.items()}
    return found


TEAM_CELLS = [
    'agent captain:\n  prompt: "You lead"\n  persist: true\nlet a = session: captain\n  prompt: "Plan it"\n',
    'agent w(memory={scope: "project", key: "k"})\nx = @w `Note`(a)\n',
    'let b = resume: captain\n  prompt: "Go on {x}"\nlet c = session: w\n  prompt: "More"\n',
    "y = @captain `Plan it`(c)\nexport y\n",
]

PROGRAMS: dict[str, tuple[str | list[str], str, dict[str, Any]]] = {
    "project": (CAPTAIN.replace("true", "project"), "p.prose", {}),
    "run": (CAPTAIN, "p.prose", {}),
    "vvm-files": (TEAM, "p.vvm", {"vvm_state": "filesystem"}),
    "both": (TEAM_CELLS, "notebook", {"vvm_state": "filesystem"}),
}
EVERY_INSTANT = bool(os.environ.get("KILL_AT_EVERY_INSTANT"))
"""Otherwise the test uses a sample. All instants take some minutes: `KILL_AT_EVERY_INSTANT=1 pytest --timeout=3600 -o faulthandler_timeout=3600 …`."""


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_run_killed_at_any_instant_leaves_what_an_unbroken_one_leaves(tmp_path: Path, kind: str) -> None:
    text, name, chosen = PROGRAMS[kind]
    cwd = tmp_path / "work"
    work = run(cwd, text, name, **chosen)
    instants = unbroken(cwd, work)
    whole, calls = left(cwd), Path("calls").read_text().split()
    sample = {*range(1, instants + 1, max(1, instants // 4)), *range(instants - 3, instants + 1)}
    for at in range(1, instants + 1) if EVERY_INSTANT else sorted(sample):
        prepare(cwd)
        if in_a_child(cwd, work, at) is None:
            if journal_in(cwd) is None:  # no request was made yet: the program begins again
                assert not Path("calls").exists()
                continue
            in_a_child(cwd, work)
        found = left(cwd)
        differing = [name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name)]
        assert not differing, f"killed before instant {at} of {instants}: {found.get(differing[0])}"
        made = Path("calls").read_text().split()
        assert set(made) == set(calls) and len(made) <= len(calls) + 1


@given(st.sampled_from(["project", "both"]), st.lists(st.floats(0, 1), min_size=2, max_size=4))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_killed_repeatedly_while_resuming_gives_the_same_result(
    tmp_path: Path, kind: str, instants: list[float]
) -> None:
    text, name, chosen = PROGRAMS[kind]
    cwd = tmp_path / "work"
    work = run(cwd, text, name, **chosen)
    most = unbroken(cwd, work)
    whole, calls = left(cwd), Path("calls").read_text().split()
    prepare(cwd)
    for part in instants:
        if journal_in(cwd) is None:
            prepare(cwd)
        in_a_child(cwd, work, 1 + int(part * most))
    if journal_in(cwd) is None:
        prepare(cwd)
    in_a_child(cwd, work)
    assert left(cwd) == whole
    assert set(Path("calls").read_text().split()) == set(calls)
