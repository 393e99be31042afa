"""Usage, recordings, memories and tasks of a killed run that is resumed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import waiting
import yaml
from filelock import FileLock
from killing import answer, how_to_resume, in_a_child, journal_in
from machine.fakes import FakeClock
from models.people import ScriptedPerson

from prose_kernel.errors import ProviderError, ResumeMismatch, RunError
from prose_kernel.models.providers.provider_choice import Choice
from prose_kernel.models.providers.scripted import ScriptedSessions
from prose_kernel.models.usage_and_prices import UsageLine, consumed
from prose_kernel.runs import languages, run_assembly
from prose_kernel.runs.resumption import Resumption, branch
from prose_kernel.runs.run import Run
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.journal_records import Answered, Record
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult, Usage
from prose_kernel.runtime.services import TaskCaller
from prose_kernel.storage import journal_reading

REPLIES = {"sessions": {"*": "Said."}, "judge": {"*": "yes"}}
CAPTAIN = 'agent captain:\n  prompt: "You lead"\n  persist: {}\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.yaml").write_text(yaml.safe_dump(REPLIES))


def workspace(cwd: Path, name: str = "p.prose", **more: Any) -> Workspace:
    """Return a workspace that resumes the run in `cwd`, or begins one."""
    person = more.pop("person", None) or ScriptedPerson(available=False)
    start = Start(cwd, name, notebook=more.pop("notebook", False), language=languages.of_file(name))
    how = more.pop("how", None) or how_to_resume(cwd)
    clock = more.pop("clock", None) or FakeClock()
    settings = Settings().changed(
        **{"provider": "scripted", "script": "script.yaml", "vvm_state": "filesystem", **more}
    )
    return Workspace(settings, start, asker=person, clock=clock, resumption=how)


def runs(cwd: Path, text: str, name: str = "p.prose", **more: Any) -> Callable[[], Coroutine[Any, Any, None]]:
    async def work() -> None:
        here = workspace(cwd, name, **more)
        await here.execute(text, name)
        await here.close()

    return work


# ---------------------------------------------------------------- usage

PROSE = (
    'let a = session "One"\nlet b = session "Two"\n  retry: 1\nlet c = session "Three"\nif **it rhymes**:\n  c = "d"\n'
)
VVM = "agent a()\nx = @a `One`(())\ny = @a `Two`((), retry=1)\nz = @a `Three`(())\nif ?`it rhymes`(z):\n  z = 1\n"


@pytest.fixture
def _tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session costs ten tokens; the first attempt of `Two` fails after three."""
    run = ScriptedSessions.run

    async def costly(
        self: ScriptedSessions, request: SessionRequest, on_progress: Callable[[SessionProgress], None]
    ) -> SessionResult:
        if "Two" in request.task and not request.attempt:
            consumed("vendor", "small", Usage(1, 3, 0))
            raise ProviderError("overloaded")
        result = await run(self, request, on_progress)
        return SessionResult(
            result.text, result.summary, "vendor", "model", {"model": "small"}, usage=Usage(1, 10, 0, 0.5)
        )

    monkeypatch.setattr(ScriptedSessions, "run", costly)


@pytest.mark.usefixtures("_tokens")
@pytest.mark.parametrize(("name", "text"), [("p.prose", PROSE), ("p.vvm", VVM)])
async def test_usage_of_a_resumed_run_includes_its_earlier_usage(tmp_path: Path, name: str, text: str) -> None:
    def third(record: Record) -> bool:
        return isinstance(record, Answered) and b"Said" in bytes(record.value) and record.key.startswith("c1/3")

    if name.endswith("vvm"):
        third = lambda record: isinstance(record, Answered) and "/4/" in record.key  # noqa: E731
    assert in_a_child(tmp_path, runs(tmp_path, text, name), before=third) is None
    here = workspace(tmp_path, name)
    try:
        await here.execute(text, name)
        total = here.opened.services.usage.total
    finally:
        await here.close()
    assert total == UsageLine("total", "", sessions=3, judgements=1, requests=4, tokens_in=33, cost=1.5, unpriced=1)


# ---------------------------------------------------------------- recordings

RACE = """let a = session "One"
let v = parallel ("first"):
  x = session "quick"
  y = session "slow"
let b = session "Two"
let c = session "Two"
"""


@pytest.fixture
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call has a different answer; `slow` answers last."""
    calls = [0]

    async def run(
        self: ScriptedSessions, request: SessionRequest, on_progress: Callable[[SessionProgress], None]
    ) -> SessionResult:
        await self._clock.sleep(5 if request.task == "slow" else 0)
        calls[0] += 1
        text = f"{os.getpid()}.{calls[0]}"
        return SessionResult(text, text, "vendor", "model")

    monkeypatch.setattr(ScriptedSessions, "run", run)
    monkeypatch.setattr(Choice, "recorded", True)


def records(cwd: Path) -> list[tuple[str, str]]:
    found = [json.loads(line) for path in (cwd / "cassettes").glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted((record["t"], record["at"]) for record in found if "at" in record)


@pytest.mark.usefixtures("_slow")
@pytest.mark.parametrize("key", ["c1/1/s0", "c1/2/b0/s0", "c1/3/s0", "c1/4/s0"])
async def test_a_run_that_is_resumed_while_recording_has_each_record_once(tmp_path: Path, key: str) -> None:
    settings = {"cassette_mode": "record", "cassette": "mine"}
    assert in_a_child(tmp_path, runs(tmp_path, RACE, **settings), before=answer(key)) is None
    await runs(tmp_path, RACE, **settings)()
    assert records(tmp_path) == [
        ("race", "c1/2/b*"),
        ("session", "c1/1/s0"),
        ("session", "c1/2/b0/s0"),
        ("session", "c1/3/s0"),
        ("session", "c1/4/s0"),
    ]


@pytest.mark.usefixtures("_slow")
async def test_records_used_before_a_resume_are_neither_unused_nor_used_again(tmp_path: Path) -> None:
    recorded = {"cassette_mode": "record", "cassette": "mine"}
    first = workspace(tmp_path, **recorded)
    await first.execute(RACE)
    values = {name: info.value for name, info in first.opened.machine.bindings().items()}
    texts = {name: value.read() for name, value in values.items() if hasattr(value, "read")}
    await first.close()
    journal = journal_in(tmp_path)
    assert journal is not None
    journal.unlink()  # the next run is a new one
    moved = f"let p = 1\nlet q = 2\n{RACE}"  # with other paths, sequential requests find the records in order
    replayed = {"cassette_mode": "replay", "cassette": "mine"}
    assert in_a_child(tmp_path, runs(tmp_path, moved, **replayed), before=answer("c1/6/s0")) is None
    here = workspace(tmp_path, **replayed)
    try:
        await here.execute(moved)
        found = {name: info.value for name, info in here.opened.machine.bindings().items()}
        assert {name: found[name].read() for name in texts} == texts  # type: ignore[union-attr]
        assert here.opened.services.cassettes.unused() == ()
        assert here.opened.services.usage.total.replayed == 4
    finally:
        await here.close()


# ---------------------------------------------------------------- memories

CELLS = ['let a = session: captain\n  prompt: "Plan"\n', 'let b = resume: captain\n  prompt: "Go on"\n']
MORE = 'let c = resume: captain\n  prompt: "More"\n'


async def ran(cwd: Path, persist: str) -> Path:
    """Run a notebook of two cells with a persistent agent; return its directory."""
    here = workspace(cwd, "notebook", notebook=True)
    await here.execute(CAPTAIN.format(persist) + CELLS[0])
    await here.execute(CELLS[1])
    directory = here.opened.directory
    await here.close()
    assert directory is not None
    return directory


def back_to_the_first_cell(directory: Path) -> Resumption:
    found = journal_reading.read(directory / journal_reading.NAME)
    return Resumption(found, rewind=found.texts[1].number)


def remembered(place: Path) -> list[str]:
    lines = (place / "memory.md").read_text().splitlines()
    assert sorted(path.name for path in place.glob("*.md")) == [
        *(f"captain-{number:03d}.md" for number in range(1, len(lines) - 3)),
        "memory.md",
    ]
    return lines[4:]


async def test_memory_of_the_run_is_rolled_back_with_the_run(tmp_path: Path) -> None:
    directory = await ran(tmp_path, "true")
    place = directory / "agents" / "captain"
    assert remembered(place) == ["- Plan: Said.", "- Go on: Said."]
    person = ScriptedPerson(available=False)
    here = workspace(tmp_path, "notebook", notebook=True, how=back_to_the_first_cell(directory), person=person)
    await here.restore()
    assert remembered(place) == ["- Plan: Said."]
    await here.execute(MORE)
    await here.close()
    assert remembered(place) == ["- Plan: Said.", "- More: Said."]
    assert person.transcript == []


async def test_a_branch_of_a_run_has_the_memory_and_the_files_of_its_point(tmp_path: Path) -> None:
    vvm = languages.of_file("p.vvm")
    here = workspace(tmp_path, "notebook", notebook=True, vvm_state="filesystem")
    await here.execute(CAPTAIN.format("true") + CELLS[0])
    await here.execute("agent w()\nx = @w `One`(a)\n", language=vvm)
    await here.execute(CELLS[1])
    await here.execute("y = @w `Two`(x)\n", language=vvm)
    directory = here.opened.directory
    await here.close()
    assert directory is not None
    found = journal_reading.read(directory / journal_reading.NAME)
    made = branch(found, found.texts[2].number, FakeClock())
    here = workspace(tmp_path, "notebook", notebook=True, vvm_state="filesystem", how=Resumption(made))
    await here.restore()
    await here.execute(MORE)
    await here.execute("z = @w `Three`(x)\n", language=vvm)
    await here.close()
    agents, answers = made.path.parent / "agents", tmp_path / ".vvm" / "runs"
    assert remembered(agents / "captain") == ["- Plan: Said.", "- More: Said."]
    assert remembered(directory / "agents" / "captain") == ["- Plan: Said.", "- Go on: Said."]
    log = (answers / made.head.run / "state.md").read_text()
    assert directory.name not in log and "x = @w (b000001)" in log and "z = @w (b000002)" in log
    files = sorted((answers / made.head.run / "bindings").iterdir())
    assert [path.name for path in files] == ["b000001.md", "b000002.md"]


async def test_an_agent_that_the_run_has_not_used_yet_remembers_nothing(tmp_path: Path) -> None:
    here = workspace(tmp_path, "notebook", notebook=True)
    await here.execute("let a = 1")
    await here.execute(CAPTAIN.format("true") + CELLS[0])
    directory = here.opened.directory
    assert directory is not None
    await here.close()
    how = back_to_the_first_cell(directory)
    here = workspace(tmp_path, "notebook", notebook=True, how=how)
    await here.restore()
    with pytest.raises(RunError, match="no memory to resume"):
        await here.execute(CAPTAIN.format("true") + CELLS[1])
    await here.close()


async def test_an_interrupt_between_two_texts_ends_the_restoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = await ran(tmp_path, "true")
    journal = (directory / journal_reading.NAME).read_bytes()
    here = workspace(tmp_path, "notebook", notebook=True)
    compile_text, compiled = here.compile, []

    def interrupting(text: str, *more: Any) -> Any:
        compiled.append(text)
        if len(compiled) == 2:
            here.interrupt()
        return compile_text(text, *more)

    monkeypatch.setattr(here, "compile", interrupting)
    with pytest.raises(asyncio.CancelledError):
        await here.restore()
    await here.close()
    assert (directory / journal_reading.NAME).read_bytes() == journal
    here = workspace(tmp_path, "notebook", notebook=True)
    await here.restore()
    assert set(here.bindings()) == {"a", "b"}
    await here.close()


@pytest.mark.parametrize("moment", ["opened", "first", "second"])
async def test_an_interrupt_before_a_text_begins_ends_the_restoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    directory = await ran(tmp_path, "true")
    journal = (directory / journal_reading.NAME).read_bytes()
    here = workspace(tmp_path, "notebook", notebook=True)
    opens, began = run_assembly.keep, 0

    def opening(*given: Any) -> Any:
        if moment == "opened":
            here.interrupt()
        return opens(*given)

    async def beginning(_: Run) -> None:
        nonlocal began
        began += 1
        if (moment, began) in (("first", 1), ("second", 2)):
            here.interrupt()
        for _turn in range(3):
            await asyncio.sleep(0)

    with monkeypatch.context() as patched:
        patched.setattr(run_assembly, "keep", opening)
        patched.setattr(Run, "retire", beginning)
        with pytest.raises(asyncio.CancelledError):
            await here.restore()
    await here.close()
    assert (directory / journal_reading.NAME).read_bytes() == journal
    here = workspace(tmp_path, "notebook", notebook=True)
    await here.restore()
    assert set(here.bindings()) == {"a", "b"}
    await here.close()


async def test_memory_of_the_run_is_written_again_when_it_is_lost(tmp_path: Path) -> None:
    directory = await ran(tmp_path, "true")
    place = directory / "agents" / "captain"
    before = {path.name: path.read_text() for path in place.glob("*.md")}
    for path in before:
        (place / path).unlink()
    (place / "memory.md").write_text("something else")
    here = workspace(tmp_path, "notebook", notebook=True)
    await here.restore()
    await here.close()
    assert {path.name: path.read_text() for path in place.glob("*.md")} == before


async def test_memory_outside_of_the_run_is_kept_with_a_notice(tmp_path: Path) -> None:
    directory = await ran(tmp_path, "project")
    person = ScriptedPerson(available=False)
    here = workspace(tmp_path, "notebook", notebook=True, how=back_to_the_first_cell(directory), person=person)
    await here.restore()
    await here.execute(MORE)
    await here.execute(MORE.replace("let c", "let d"))
    await here.close()
    place = tmp_path / ".prose" / "agents" / "captain"
    assert remembered(place) == ["- Plan: Said.", "- Go on: Said.", "- More: Said.", "- More: Said."]
    assert person.transcript == [
        "Warning: the memory of agent 'captain' is not taken back with the run: it holds what came later"
    ]


async def test_memory_of_a_killed_session_is_restored_for_the_next_run(tmp_path: Path) -> None:
    text = CAPTAIN.format("project") + "".join(CELLS)
    assert in_a_child(tmp_path, runs(tmp_path, text), before=answer("c1/2/s0")) is None
    place = tmp_path / ".prose" / "agents" / "captain"
    assert remembered(place) == ["- Plan: Said.", "- Go on: Said."]  # the journal has no record of it
    journal = journal_in(tmp_path)
    assert journal is not None
    how = how_to_resume(tmp_path)
    other = Workspace(
        Settings(provider="scripted", script="script.yaml", journal="off"),
        Start(tmp_path, "other.prose", notebook=False),
        asker=ScriptedPerson(available=False),
        clock=FakeClock(),
    )
    await other.execute(CAPTAIN.format("project") + MORE)
    await other.close()
    assert remembered(place) == ["- Plan: Said.", "- More: Said."]
    here = workspace(tmp_path, how=how)
    await here.execute(text)
    await here.close()
    assert remembered(place) == ["- Plan: Said.", "- More: Said.", "- Go on: Said."]


NOTE = """agent w(memory={scope: "project", key: "k"})
x = @w `Note`(())
"""


async def test_memory_of_vvm_is_kept_with_a_notice(tmp_path: Path) -> None:
    patch = '\n```vvm-memory\n{"retain": ["W tea"]}\n```\n'
    Path("script.yaml").write_text(yaml.safe_dump({"sessions": {"*": f"Noted.{patch}"}}))
    vvm, person = languages.of_file("p.vvm"), ScriptedPerson(available=False)
    here = workspace(tmp_path, "notebook", notebook=True)
    await here.execute("let a = 1")
    await here.execute(NOTE, language=vvm)
    directory = here.opened.directory
    await here.close()
    assert directory is not None
    here = workspace(tmp_path, "notebook", notebook=True, how=back_to_the_first_cell(directory), person=person)
    await here.restore()
    await here.execute(NOTE, language=vvm)
    await here.close()
    assert (tmp_path / ".vvm/memory/k/ledger.jsonl").read_text().count("W tea") == 2
    assert person.transcript == ["Warning: the memory 'k' is not taken back with the run: it holds what came later"]


async def test_the_memory_of_a_killed_process_is_free_though_its_commands_still_run(tmp_path: Path) -> None:
    place = tmp_path / ".prose" / "agents" / "captain"

    async def work() -> None:
        here = workspace(tmp_path)
        await here.opened.tasks.start({"cmd": "touch up; sleep 7532", "yield_time_ms": 0}, TaskCaller())
        await waiting.appears(tmp_path / "up")
        await here.execute(CAPTAIN.format("project") + CELLS[0])

    assert in_a_child(tmp_path, work, before=answer("c1/1/s0")) is None
    with FileLock(place / ".lock", timeout=0):
        assert (place / ".undo").is_file()
    waiting.until(lambda: not waiting.processes("sleep 7532"))


@pytest.mark.parametrize("record", ["not JSON", '{"journal": "/", "key": "", "files": {"../../../mine": null}}'])
async def test_a_foreign_undo_record_changes_no_other_file(tmp_path: Path, record: str) -> None:
    place = tmp_path / ".prose" / "agents" / "captain"
    place.mkdir(parents=True)
    (tmp_path / "mine").write_text("mine")
    (place / ".undo").write_text(record)
    await runs(tmp_path, CAPTAIN.format("project") + CELLS[0])()
    assert remembered(place) == ["- Plan: Said."]
    assert (tmp_path / "mine").read_text() == "mine" and not (place / ".undo").exists()


# ---------------------------------------------------------------- tasks


async def test_tasks_of_a_killed_run_are_interrupted_and_gone(tmp_path: Path) -> None:
    text = 'let a = session "One"\n'

    async def first() -> None:
        here = workspace(tmp_path, "notebook", notebook=True)
        await here.execute(text)
        await here.opened.tasks.start({"cmd": "echo begun; touch up; sleep 7531", "yield_time_ms": 0}, TaskCaller())
        await waiting.appears(tmp_path / "up")
        await here.execute("let b = 1")
        await here.execute('let c = session "Two"')

    assert in_a_child(tmp_path, first, before=answer("c3/1/s0")) is None
    here = workspace(tmp_path, "notebook", notebook=True)
    try:
        await here.restore()
        assert waiting.processes("sleep 7531") == []
        (task,) = await here.opened.tasks.history()
        assert (task.status, task.number) == ("interrupted", 1)
        assert (await here.opened.tasks.output(task.task_id, TaskCaller())).task.status == "interrupted"
        assert (await here.opened.tasks.active(TaskCaller())).tasks == ()
    finally:
        await here.close()


# ---------------------------------------------------------------- files of answers


async def test_a25_a_vvm_run_that_failed_is_completed_in_its_log_or_names_the_answer_that_is_gone(
    tmp_path: Path,
) -> None:
    Path("script.yaml").write_text(yaml.safe_dump({"sessions": {"One": "First."}}))
    text, clock = "agent a()\nx = @a `One`(())\ny = @a `Two`(x)\nexport y\n", FakeClock()
    here = workspace(tmp_path, "p.vvm", vvm_state="filesystem", clock=clock)
    with pytest.raises(RunError) as failed:
        await here.execute(text, "p.vvm")
    await here.close(failed.value)
    assert here.opened.directory is None
    (log,) = tmp_path.glob(".vvm/runs/*/state.md")
    assert "Status: failed" in log.read_text() and "Failed: " in log.read_text()
    first = log.parent / "bindings" / "b000001.md"
    first.unlink()
    Path("script.yaml").write_text(yaml.safe_dump({"sessions": {"Two": "Second."}}))
    here = workspace(tmp_path, "p.vvm", vvm_state="filesystem", clock=clock)
    with pytest.raises(ResumeMismatch) as gone:
        await here.execute(text, "p.vvm")
    await here.close(gone.value)
    assert gone.value.details["path"] == first.relative_to(tmp_path).as_posix()
    first.write_text("First.")
    clock.time = 3600
    here = workspace(tmp_path, "p.vvm", vvm_state="filesystem", clock=clock)
    await here.execute(text, "p.vvm")
    await here.close()
    run_id, trace = log.parent.name, log.read_text().partition("## Binding Index\n\n")[2]
    assert "Status: completed" in log.read_text()
    assert trace == (
        "| Name | Ref Path | Summary |\n|------|----------|---------|\n"
        f"| x | .vvm/runs/{run_id}/bindings/b000001.md | First. |\n"
        f"| y | .vvm/runs/{run_id}/bindings/b000002.md | Second. |\n"
        "\n## Execution Trace\n\n- [2026-01-01T00:00:00Z] Started\n- [2026-01-01T01:00:00Z] x = @a (b000001)\n"
        "- [2026-01-01T01:00:00Z] y = @a (b000002)\n- [2026-01-01T01:00:00Z] Completed with 1 export\n"
    )


# ---------------------------------------------------------------- branches


async def test_sessions_of_one_agent_in_parallel_take_turns_until_the_journal_knows(tmp_path: Path) -> None:
    branches = "".join(f'  session: captain\n    prompt: "{name}"\n' for name in ("A", "B", "C"))
    text = CAPTAIN.format("project") + f'let s = session: captain\n  prompt: "Plan"\nparallel:\n{branches}'
    here = workspace(tmp_path, concurrency=1)
    await here.execute(text.replace("  session: captain", "  resume: captain"))
    await here.close()
    place = tmp_path / ".prose" / "agents" / "captain"
    assert remembered(place) == ["- Plan: Said.", "- A: Said.", "- B: Said.", "- C: Said."]


async def test_only_the_branch_that_won_a_race_leaves_a_memory(tmp_path: Path) -> None:
    text = "".join(f'agent {name}:\n  prompt: "P"\n  persist: project\n' for name in ("first", "second"))
    text += 'parallel ("first"):\n  session: first\n    prompt: "A"\n  session: second\n    prompt: "B"\n'
    await runs(tmp_path, text)()
    agents = tmp_path / ".prose" / "agents"
    left = [path.parent.name for path in agents.glob("*/*.md")]
    assert left in (["first"] * 2, ["second"] * 2)  # both answer at the same time: threads decide which one is first
