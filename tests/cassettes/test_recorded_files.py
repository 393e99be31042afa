"""A replay writes the files of a recorded session again, only where permitted (sessions.md 4.2, side effects)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cassettes.recording import Provider, Recording
from machine.fakes import FakeClock, lines
from models.people import ScriptedPerson

from prose_kernel.access.approvals import Approvals
from prose_kernel.cassettes.recorded_answers import RecordedSessions
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import ProviderError
from prose_kernel.runtime.ports import FileWrite, SessionRequest, SessionResult, ToolUse
from prose_kernel.runtime.session_options import CassetteOptions

PROGRAM = lines('let a = session "Make"', "  permissions:", '    write: ["out/**", "a.md"]')


@pytest.fixture
def there(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


async def recorded(there: Recording, *writes: FileWrite, text: str = PROGRAM) -> Any:
    """Record a session that wrote these files, which are on disk afterwards."""
    for write in writes:
        path = there.cwd / write.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if write.after is not None:
            path.write_text(write.after)
    result = SessionResult("done", "done", "vendor", "model", writes=writes)
    return await there.run(text, provider=Provider(FakeClock(), says={"Make": result}))


async def test_files_are_written_again(there: Recording) -> None:
    live = await recorded(there, FileWrite("out/deep/b.md", None, "new\r\n"), FileWrite("a.md", "old", "changed"))
    assert await there.run(PROGRAM, "replay") == live
    (there.cwd / "out/deep/b.md").unlink()
    (there.cwd / "out/deep").rmdir()
    (there.cwd / "a.md").write_text("old")
    assert await there.run(PROGRAM, "replay") == live
    assert (there.cwd / "out/deep/b.md").read_bytes() == b"new\r\n"
    assert (there.cwd / "a.md").read_text() == "changed"


async def test_a_removed_file_is_removed_again(there: Recording) -> None:
    live = await recorded(there, FileWrite("a.md", "old", None))
    (there.cwd / "a.md").write_text("old")
    assert await there.run(PROGRAM, "replay") == live
    assert not (there.cwd / "a.md").exists()


async def test_a_foreign_file_is_not_overwritten(there: Recording) -> None:
    await recorded(there, FileWrite("out/b.md", None, "new"), FileWrite("a.md", "old", "changed"))
    (there.cwd / "out/b.md").unlink()
    (there.cwd / "a.md").write_text("precious")
    message = await there.run(PROGRAM, "replay")
    assert message == (
        "E201 the files of cassettes/session.jsonl, line 2 cannot be written again: a.md: what is there is neither what"
        " was there before nor what the session wrote"
    )
    assert (there.cwd / "a.md").read_text() == "precious"
    assert not (there.cwd / "out/b.md").exists()  # all or nothing


async def test_a_long_file_is_known_by_its_digest(there: Recording) -> None:
    long = "x" * (256 * 1024 + 1)
    live = await recorded(there, FileWrite("a.md", None, long))
    assert there.records(kind="session")[0]["facts"]["writes"][0].keys() == {"path", "sha256"}
    assert await there.run(PROGRAM, "replay") == live
    (there.cwd / "a.md").unlink()
    assert "too long to be recorded" in await there.run(PROGRAM, "replay")
    exact = "x" * 256 * 1024
    (there.cwd / "a.md").unlink(missing_ok=True)
    there.path().unlink()
    await recorded(there, FileWrite("a.md", None, exact))
    (there.cwd / "a.md").unlink()
    await there.run(PROGRAM, "replay")
    assert (there.cwd / "a.md").read_text() == exact


async def test_a_binary_file_is_known_by_its_digest(there: Recording) -> None:
    (there.cwd / "a.md").write_bytes(b"\xff\x00")
    live = await recorded(there, FileWrite("a.md", None, None))
    assert await there.run(PROGRAM, "replay") == live
    (there.cwd / "a.md").unlink()
    assert "not text" in await there.run(PROGRAM, "replay")


async def test_the_rules_of_this_program_hold(there: Recording) -> None:
    await recorded(there, FileWrite("a.md", None, "x"))
    hostile(there, lambda write: write.update(path="b.md"))
    message = await there.run(PROGRAM, "replay")
    assert message.startswith("E201 the recorded session wrote b.md, which this one may not: ")
    assert not (there.cwd / "b.md").exists()


def hostile(there: Recording, change: Callable[[dict[str, Any]], Any]) -> None:
    """Edit the cassette as another person might."""
    records = there.records()
    change(records[1]["facts"]["writes"][0])
    there.path().write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize(
    "path",
    [
        "../outside.md",
        "/etc/passwd",
        "out/../../outside.md",
        "out/../a.md",
        "",
        ".",
        "out\x00/a",
        "link/a.md",
        "out/link.md",
        "out",
    ],
)
async def test_no_path_leads_out(there: Recording, path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    victim = elsewhere / "a.md"
    victim.write_text("old")
    text = PROGRAM.replace('["out/**", "a.md"]', '["**"]')
    await recorded(there, FileWrite("out/x.md", "old", "evil"), text=text)
    (there.cwd / "link").symlink_to(elsewhere)
    (there.cwd / "out/link.md").symlink_to(victim)
    hostile(there, lambda write: write.update(path=path))
    message = await there.run(text, "replay")
    assert isinstance(message, str)
    assert "cannot be written again" in message
    assert victim.read_text() == "old"
    assert not (there.cwd.parent / "outside.md").exists()


async def test_no_file_is_written_if_one_cannot_be(there: Recording) -> None:
    """A name that the file system refuses is detected before the first file is written."""
    text = PROGRAM.replace('["out/**", "a.md"]', '["**"]')
    await recorded(there, FileWrite("a.md", None, "x"), FileWrite("b.md", None, "y"), text=text)
    (there.cwd / "a.md").unlink()
    records = there.records()
    records[1]["facts"]["writes"][1]["path"] = "b" * 300
    there.path().write_text("".join(json.dumps(record) + "\n" for record in records))
    assert str(await there.run(text, "replay")).endswith(": it cannot be looked at")
    assert not (there.cwd / "a.md").exists()


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".prose/runs/x/bindings/a.md"])
async def test_protected_places_stay_protected(there: Recording, path: str) -> None:
    (there.cwd / ".git/hooks").mkdir(parents=True)
    text = PROGRAM.replace('["out/**", "a.md"]', '["**"]')
    await recorded(there, FileWrite("out/x.md", None, "evil"), text=text)
    hostile(there, lambda write: write.update(path=path))
    message = await there.run(text, "replay")
    assert isinstance(message, str), message
    assert not (there.cwd / path).exists()


async def test_a_damaged_content_is_not_written(there: Recording) -> None:
    await recorded(there, FileWrite("a.md", None, "x"))
    (there.cwd / "a.md").unlink()
    hostile(there, lambda write: write.update(text="y"))
    assert "its recorded content is damaged" in await there.run(PROGRAM, "replay")
    assert not (there.cwd / "a.md").exists()


@pytest.mark.parametrize(("answers", "allowed"), [(["y"], True), (["n"], False), ([], False)])
async def test_a_prompt_rule_asks_the_person(there: Recording, answers: list[str], allowed: bool) -> None:
    text = PROGRAM.replace('["out/**", "a.md"]', "prompt")
    live = await recorded(there, FileWrite("a.md", None, "x"), text=text)
    (there.cwd / "a.md").unlink()
    person = ScriptedPerson(*answers, available=bool(answers))
    cassettes = Cassettes(CassetteOptions(mode="replay"), there.where(), FakeClock())
    approvals = Approvals(person, FakeClock(), cassettes.note_ask)
    sessions = RecordedSessions(None, cassettes, asker=person, approvals=approvals)
    request = SessionRequest("session", "Make", "c1/1/s0", permissions={"write": "prompt"})
    if allowed:
        result = await sessions.run(request, lambda _: None)
        assert (result.text, live) == ("done", {"a": "done"})
    else:
        with pytest.raises(Exception, match="may not"):
            await sessions.run(request, lambda _: None)
    assert (there.cwd / "a.md").exists() is allowed


async def test_a_file_that_changes_while_the_person_is_asked_is_not_overwritten(there: Recording) -> None:
    await recorded(there, FileWrite("a.md", None, "x"), text=PROGRAM.replace('["out/**", "a.md"]', "prompt"))
    (there.cwd / "a.md").unlink()

    class Writing(ScriptedPerson):
        async def ask(self, prompt: str) -> str:
            (there.cwd / "a.md").write_text("mine")
            return "y"

    person, cassettes = Writing(), Cassettes(CassetteOptions(mode="replay"), there.where(), FakeClock())
    sessions = RecordedSessions(None, cassettes, asker=person, approvals=Approvals(person, FakeClock()))
    with pytest.raises(ProviderError, match="what is there is neither what was there before nor what the session"):
        await sessions.run(
            SessionRequest("session", "Make", "c1/1/s0", permissions={"write": "prompt"}), lambda _: None
        )
    assert (there.cwd / "a.md").read_text() == "mine"


async def test_files_outside_are_reported_and_not_replayed(
    there: Recording, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "x.md"
    outside.write_text("x")
    live = await recorded(there, FileWrite(str(outside), None, "x"), FileWrite(str(there.cwd / "a.md"), None, "y"))
    assert [w["path"] for w in there.records(kind="session")[0]["facts"]["writes"]] == ["a.md"]
    assert "outside of the working directory: a replay will not write it" in there.person.transcript[0]
    outside.unlink()
    assert await there.run(PROGRAM, "replay") == live
    assert not outside.exists()


# ---------------------------------------------------------------- other parts of an answer


async def test_an_answer_that_the_session_wrote_itself_is_recorded(there: Recording) -> None:
    class Writes(Provider):
        async def run(self, request: SessionRequest, on_progress: Any) -> SessionResult:
            assert request.target is not None
            place = there.cwd / request.target.location
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(request.target.header + "written by itself\n")
            return SessionResult(None, "it is written", "cli", "agent")

    text = 'let a = session "Make"\n'
    live = await there.run(text, provider=Writes(FakeClock()))
    assert live == {"a": "written by itself\n"}
    assert there.records(kind="session")[0]["meta"]["effects"] == "partial"
    assert await there.run(text, "replay") == live


async def test_memory_segment_and_trace_come_back(there: Recording) -> None:
    trace = (ToolUse("read", "src/a.py", "ok", "1 line"), ToolUse("bash", "rm", "refused", "no"))
    result = SessionResult("t", "s", "vendor", "model", trace=trace, memory_after="m", segment="g")
    cassettes = there.open("auto")
    request = SessionRequest("session", "Make", "c1/1/s0")
    sessions = RecordedSessions(Provider(FakeClock(), says={"Make": result}), cassettes, asker=there.person)
    await sessions.run(request, lambda _: None)
    seen: list[Any] = []
    again = await RecordedSessions(None, there.open("replay"), asker=there.person).run(request, seen.append)
    assert [(step.kind, step.text, step.tool) for step in seen] == [
        ("tool", "read src/a.py", trace[0]), ("tool", "bash rm", trace[1]),
    ]  # fmt: skip
    assert (again.text, again.summary, again.trace, again.memory_after, again.segment) == ("t", "s", trace, "m", "g")


# ---------------------------------------------------------------- secrets


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----"


async def test_another_machine_with_another_secret_hits(tmp_path: Path) -> None:
    text = lines('let who = exec "printenv"', 'let a = session "Use {who} in {here}"')
    live = None
    for number, secret in enumerate(("first-secret-value", "second-secret-value")):
        cwd = tmp_path / f"machine {number}"
        cwd.mkdir()
        there = Recording(cwd, environment={"SERVICE_TOKEN": secret, "HOME": str(tmp_path)})
        program = text.replace('exec "printenv"', f'"{secret}"').replace("{here}", str(cwd))
        if live is None:
            live = await there.run(program, provider=Provider(FakeClock(), says={}))
            assert secret not in there.path().read_text()
            copied = there.path().read_bytes()
            assert live["a"].startswith("answer 1")
            assert secret in live["a"]
        else:
            there.path().parent.mkdir()
            there.path().write_bytes(copied)
            again = await there.run(program, "replay")
            assert again["a"].replace("«env:SERVICE_TOKEN»", "first-secret-value") == live["a"]


async def test_texts_with_the_places_of_another_machine_still_hit(tmp_path: Path) -> None:
    """On the other machine, the first answer becomes part of the next session's prompt."""
    first, second = tmp_path / "alice", tmp_path / "bob"
    for cwd in (first, second):
        cwd.mkdir()
    text = lines('let a = session "Where"', 'let b = session "Look at {a}"')
    there = Recording(first)
    live = await there.run(text, provider=Provider(FakeClock(), says={"Where": f"{first}/src"}))
    other = Recording(second)
    other.path().parent.mkdir()
    other.path().write_bytes(there.path().read_bytes())
    assert await other.run(text, "replay") == live


async def test_a_private_key_is_neither_sent_nor_recorded(there: Recording) -> None:
    text = f'let a = session """\n{PEM}\n"""\n'
    provider = Provider(FakeClock())
    in_context = f'let k = """\n{PEM}\n"""\nlet a = session "Look"\n  context: k\n'
    for program in (text, in_context):
        message = await there.run(program, provider=provider)
        assert "its prompt or context holds a private key (PEM)" in message
    assert provider.asked == []
    assert not there.path().exists()
    live = await there.run('let a = session "Make"\n', provider=Provider(FakeClock(), says={"Make": PEM}))
    assert live["a"] == PEM
    assert there.person.transcript == ["Warning: session c1/1/s0 is not recorded: its answer holds a private key (PEM)"]
    assert not there.path().exists()


async def test_questions_are_written_down_and_grant_nothing(there: Recording) -> None:
    cassettes = there.open("auto")
    assert cassettes.mode(there.person) == "auto"
    cassettes.note_ask("c1/1/s0", "write a.md?", "yes")
    (record,) = there.records(kind="ask")
    assert (record["at"], record["out"]) == ("c1/1/s0", {"question": "write a.md?", "answer": "yes"})
    replaying = there.open("replay")
    replaying.mode(there.person)
    replaying.note_ask("c1/1/s0", "write a.md?", "no")
    assert len(there.records(kind="ask")) == 1
