"""Persistent agents in whole programs: every scope, on disk and in memory, across runs (openprose.md 4.4, 7.6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from models.people import ScriptedPerson

from prose_kernel.errors import SessionError
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace

PLANNED = "# captain\n\n## Sessions\n\n- Plan it: North.\n"


def program(persist: str, kind: str, task: str) -> str:
    return (
        f'agent captain:\n  prompt: "You lead"\n  persist: {persist}\n\nlet x = {kind}: captain\n  prompt: "{task}"\n'
    )


def step(kind: str, task: str) -> str:
    return f'let y = {kind}: captain\n  prompt: "{task}"\n'


def workspace(cwd: Path, person: ScriptedPerson, state: str = "filesystem") -> Workspace:
    settings = Settings().changed(provider="human", cassette_mode="off", state=state)  # type: ignore[arg-type]
    return Workspace(settings, Start(cwd), asker=person)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("state", ["filesystem", "in-context"])
@pytest.mark.parametrize(
    ("persist", "place"),
    [
        ("true", None),
        ("project", ".prose/agents/captain"),
        ("user", "../home/.prose/agents/captain"),
        ('"notes/"', "notes"),
    ],
)
async def test_actions_of_one_session_are_reported_to_the_next(
    tmp_path: Path, home: Path, persist: str, place: str | None, state: str
) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    person = ScriptedPerson("North.", ".", "Went.", ".")
    at_work = workspace(cwd, person, state)
    await at_work.execute(program(persist, "session", "Plan it"))
    if place is not None:
        assert (cwd / place / "memory.md").read_text() == PLANNED
    await at_work.execute(step("resume", "Go on"))
    directory = at_work.opened.directory
    await at_work.close()
    shown = [text for text in person.transcript if "Go on" in text]
    assert len(shown) == 1 and "Your memory, from what came before:" in shown[0] and "- Plan it: North." in shown[0]
    assert not any("Your memory" in text for text in person.transcript if "Go on" not in text)
    if place is None and state == "filesystem":
        assert directory is not None
        place = str(directory / "agents" / "captain")
    if place is not None:
        found = sorted(entry.name for entry in (cwd / place).iterdir() if entry.suffix == ".md")
        assert found == ["captain-001.md", "captain-002.md", "memory.md"]
    else:
        assert list(cwd.iterdir()) == []


async def test_memory_of_the_project_outlives_the_run(tmp_path: Path) -> None:
    first = workspace(tmp_path, ScriptedPerson("North.", "."))
    await first.execute(program("project", "session", "Plan it"))
    await first.close()
    person = ScriptedPerson("Went.", ".")
    second = workspace(tmp_path, person)
    await second.execute(program("project", "resume", "Go on"))
    await second.close()
    assert "- Plan it: North." in person.transcript[0]
    assert (tmp_path / ".prose/agents/captain/memory.md").read_text() == f"{PLANNED}- Go on: Went.\n"


async def test_an_attempt_that_failed_is_not_remembered(tmp_path: Path) -> None:
    person = ScriptedPerson("North.", ".", ":fail no idea", "South.", ".")
    at_work = workspace(tmp_path, person)
    await at_work.execute(program("project", "session", "Plan it"))
    await at_work.execute(step("resume", "Go on").rstrip() + "\n  retry: 1\n")
    await at_work.close()
    assert (tmp_path / ".prose/agents/captain/memory.md").read_text() == f"{PLANNED}- Go on: South.\n"
    assert (tmp_path / ".prose/agents/captain/captain-002.md").is_file()
    assert not (tmp_path / ".prose/agents/captain/captain-003.md").exists()


async def test_a_memory_that_is_not_text_stops_the_statement_and_the_next_cell_runs(tmp_path: Path) -> None:
    place = tmp_path / ".prose" / "agents" / "captain"
    place.mkdir(parents=True)
    (place / "memory.md").write_bytes(b"\0")
    at_work = workspace(tmp_path, ScriptedPerson())
    with pytest.raises(SessionError) as found:
        await at_work.execute(program("project", "resume", "Go on"))
    assert found.value.message == "the memory of agent 'captain' cannot be read: memory.md is a binary file"
    assert found.value.hint == "repair or remove .prose/agents/captain/memory.md; nothing in it was changed"
    await at_work.execute("let z = 1")
    await at_work.close()
    assert (place / "memory.md").read_bytes() == b"\0"


async def test_a_recorded_program_replays_with_its_memory(tmp_path: Path) -> None:
    async def run(mode: str, person: ScriptedPerson) -> tuple[str, str]:
        settings = Settings().changed(provider="human" if mode == "record" else "replay", cassette_mode=mode)  # type: ignore[arg-type]
        at_work = Workspace(settings, Start(tmp_path), asker=person)
        await at_work.execute(program("project", "session", "Plan it"))
        await at_work.execute(step("resume", "Go on"))
        assert at_work.opened.directory is not None
        value = (at_work.opened.directory / "bindings" / "y.md").read_text()
        await at_work.close()
        return value, (tmp_path / ".prose/agents/captain/memory.md").read_text()

    live = await run("record", ScriptedPerson("North.", ".", "Went.", "."))
    for _ in range(2):
        assert await run("replay", ScriptedPerson(available=False)) == live
    assert live[1] == f"{PLANNED}- Go on: Went.\n"
    segments = sorted((tmp_path / ".prose/agents/captain").glob("captain-*.md"))
    assert [path.read_text().split("\n")[0] for path in segments] == [f"# Segment 00{n}" for n in range(1, 7)]
