"""A run recorded in one workspace and replayed in another, with real components and a person as the provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machine.fakes import lines
from models.people import ScriptedPerson

from prose_kernel.runs import settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.events import Event
from prose_kernel.runtime.values import plain

PROGRAM = lines(
    "agent writer:",
    '  prompt: "You write in {tone}."',
    "  persist: project",
    'let tone = "rhyme"',
    'let facts = exec "echo frogs"',
    'let draft = session "Draft"',
    "  context: facts",
    "session: writer",
    '  prompt: "Polish {draft}"',
    "resume: writer",
    '  prompt: "Again"',
    "let all = [1, 2] | map:",
    '  session "Part {item}"',
    'let v = parallel ("first"):',
    '  a = session "quick"',
    '  b = exec "sleep 60"',
    "let n = 0",
    "if **the draft rhymes**:",
    "  n = 1",
)


async def run(cwd: Path, person: ScriptedPerson, **chosen: Any) -> tuple[dict[str, Any], list[Event]]:
    loaded = settings.load(cwd, {"HOME": str(cwd.parent)}, **chosen)
    events: list[Event] = []
    workspace = Workspace(loaded, Start(cwd, "main.prose", notebook=False), asker=person, listeners=[events.append])
    try:
        await workspace.execute(PROGRAM, "main.prose")
        values = {name: plain(info.value) for name, info in workspace.opened.machine.bindings().items()}
    finally:
        await workspace.close()
    return values, events


def kinds(events: list[Event]) -> list[str]:
    """Return the kinds of events, without notes to the person and the warning (replay only) that the agent has memory."""
    return [name for event in events if (name := type(event).__name__) not in ("SessionProgressed", "Warned")]


async def test_answers_of_a_person_are_recorded_and_replayed_in_another_workspace(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "work", tmp_path / "b" / "work"
    for cwd in (first, second):
        cwd.mkdir(parents=True)
    answers = []
    for text in ("A frog on a log.", "Polished.", "Polished twice.", "Part one.", "Part two.", "Quick."):
        answers += [text, "."]
    person = ScriptedPerson(*answers, "y")
    live, events = await run(first, person, provider="human", concurrency="1")
    assert (live["v"], live["n"], live["all"]) == ("Quick.", 1, ["Part one.", "Part two."])

    (second / "cassettes").mkdir()
    (second / "cassettes" / "demo.jsonl").write_bytes((first / "cassettes" / "session.jsonl").read_bytes())
    unavailable = ScriptedPerson(available=False)
    for provider in ("replay", None):
        again, replayed = await run(second, unavailable, provider=provider, concurrency="1")
        assert again == live
        assert unavailable.transcript == []
        assert kinds(replayed) == kinds(events)
