"""Replays report outdated answers and damaged records, and programs cannot hide misses (A12, A19)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from cassettes.recording import JudgeDouble, Provider, Recording
from machine.fakes import FakeClock

from prose_kernel.cassettes.cassette_edits import tidied
from prose_kernel.language.structs import replace
from prose_kernel.runtime.ports import FileRead, SessionResult
from prose_kernel.runtime.session_options import Surroundings

ONE = 'let a = session "Summarise"\n'


@pytest.fixture
def there(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def reads(cwd: Path, *names: str) -> SessionResult:
    found = tuple(FileRead(name, hashlib.sha256((cwd / name).read_bytes()).hexdigest()) for name in names)
    return SessionResult("the summary", "the summary", "vendor", "model", reads=found)


async def recorded(there: Recording) -> None:
    (there.cwd / "notes.md").write_text("first")
    provider = Provider(FakeClock(), says={"Summarise": reads(there.cwd, "notes.md")})
    assert await there.run(ONE, provider=provider) == {"a": "the summary"}


async def test_a12_a_replay_over_unchanged_files_prints_no_warning(there: Recording) -> None:
    await recorded(there)
    assert await there.run(ONE, "replay") == {"a": "the summary"}
    assert there.person.transcript == []


async def test_a12_auto_asks_again_if_a_file_has_changed_and_reports_why(there: Recording) -> None:
    await recorded(there)
    (there.cwd / "notes.md").write_text("second")
    provider = Provider(FakeClock(), says={"Summarise": reads(there.cwd, "notes.md")})
    await there.run(ONE, "auto", provider=provider)
    assert provider.asked == ["c1/1/s0"]
    assert any("asked again: notes.md has changed since it was recorded" in str(event) for event in there.events)
    assert await there.run(ONE, "replay") == {"a": "the summary"}  # the newer answer is used
    assert there.person.transcript == []


@pytest.mark.parametrize("gone", [False, True])
async def test_a12_a_replay_warns_if_a_file_has_changed(there: Recording, gone: bool) -> None:
    await recorded(there)
    (there.cwd / "notes.md").unlink() if gone else (there.cwd / "notes.md").write_text("second")
    assert await there.run(ONE, "replay") == {"a": "the summary"}
    assert there.person.transcript == [
        "Warning: session c1/1/s0: notes.md has changed since cassettes/session.jsonl, line 2 was recorded;"
        " its answer may be out of date"
    ]


async def test_a12_stale_answers_can_be_ignored_or_fail(there: Recording) -> None:
    await recorded(there)
    (there.cwd / "notes.md").write_text("second")
    assert await there.run(ONE, "replay", stale="ignore") == {"a": "the summary"}
    assert there.person.transcript == []
    message = await there.run("try:\n  " + ONE + 'catch:\n  let a = "caught"\n', "replay", stale="fail")
    assert message.startswith("E201 session c1/1/1/s0: notes.md has changed") or "notes.md has changed" in message
    assert there.error is not None and there.error.no_answer


async def test_a12_under_ci_a_stale_answer_fails(there: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    await recorded(there)
    (there.cwd / "notes.md").write_text("second")
    where = there.where
    monkeypatch.setattr(there, "where", lambda run=None: _in_ci(where(run)))
    message = await there.run(ONE, "replay")
    assert "notes.md has changed" in message and there.error is not None and there.error.no_answer


def _in_ci(where: Surroundings) -> Surroundings:
    return replace(where, attended=False)


@pytest.mark.parametrize(
    "program",
    [
        'try:\n  let a = session "Never recorded"\ncatch:\n  let a = "caught"\n',
        'parallel (on-fail: "ignore"):\n  a = session "Never recorded"\n  b = exec "true"\n',
        'parallel (on-fail: "continue"):\n  a = session "Never recorded"\n  b = exec "true"\n',
        'let a = parallel ("any", on-fail: "ignore"):\n  session "Never recorded"\n  exec "true"\n',
        'try:\n  if **all is well**:\n    exec "true"\ncatch:\n  exec "false"\n',
    ],
)
async def test_a12_a_miss_can_neither_be_caught_nor_ignored(there: Recording, program: str) -> None:
    message = await there.run(program, "replay")
    assert isinstance(message, str) and message[:4] in ("E201", "E211")
    assert there.error is not None and there.error.no_answer


async def test_a12_a_failure_that_was_recorded_is_still_caught(there: Recording) -> None:
    from prose_kernel.errors import ProviderConnection

    program = 'try:\n  let a = session "Try"\ncatch:\n  let b = "caught"\n'
    await there.run(program, provider=Provider(FakeClock(), says={"Try": ProviderConnection("cut")}))
    assert (await there.run(program, "replay"))["b"] == "caught"


async def test_a12_a_conflict_marker_is_named(there: Recording) -> None:
    await there.run(ONE, provider=Provider(FakeClock()))
    line = there.path().read_text().splitlines()[1]
    there.path().write_text(f"<<<<<<< HEAD\n{line}\n=======\n{line}\n>>>>>>> main\n")
    assert isinstance(await there.run(ONE, "replay"), dict)
    assert [warning.split(" is left out: ")[1] for warning in there.person.transcript] == [
        "it is a conflict marker of git: keep the records of both sides and remove the marker"
    ] * 3


async def test_a12_a_key_must_belong_to_its_prompt(there: Recording) -> None:
    await there.run(ONE, provider=Provider(FakeClock()))
    record = there.records()[1]
    record["req"]["prompt"] = "Something else"
    there.path().write_text(json.dumps(record) + "\n")
    message = await there.run(ONE, "replay")
    assert isinstance(message, str) and message.startswith("E201 nothing is recorded")
    assert "its key does not match its request" in there.person.transcript[0]


async def test_a19_an_edited_copy_of_a_record_does_not_displace_it(there: Recording) -> None:
    """A merge may leave the same key twice, the later record with another prompt."""
    live = await there.run(ONE, provider=Provider(FakeClock()))
    record = there.records()[1]
    record["req"]["prompt"] = "Something else"
    with there.path().open("a") as file:
        file.write(json.dumps(record) + "\n")
    assert await there.run(ONE, "replay") == live
    (warning,) = there.person.transcript
    assert "line 3 is left out: its key does not match its request" in warning
    result = tidied(there.path().read_bytes())
    assert (result.records, result.duplicates, len(result.aside)) == (1, 0, 1)


async def test_a12_an_answer_with_a_redacted_secret_is_reported(tmp_path: Path) -> None:
    there = Recording(tmp_path, environment={"API_TOKEN": "hunter2!x9"})
    provider = Provider(FakeClock(), says={"Summarise": "use hunter2!x9"})
    assert await there.run(ONE, provider=provider) == {"a": "use hunter2!x9"}
    assert there.person.transcript == [
        "Warning: session c1/1/s0: the record has a placeholder in the place of a secret; a replay gives that text"
    ]
    with_it = await there.run(ONE, "replay")
    there.environment.clear()
    assert await there.run(ONE, "replay") == with_it == {"a": "use «env:API_TOKEN»"}


async def test_a12_a_binding_that_the_judge_was_not_sent_does_not_break_a_record(there: Recording) -> None:
    judged = 'if **draft reads well**:\n  let b = "good"\n'
    judge = JudgeDouble({"draft reads well": True})
    await there.run('let draft = "A poem"\n' + judged, judge=judge)
    values = await there.run('let other = "x"\nlet more = "y"\nlet draft = "A poem"\n' + judged, "replay")
    assert values["b"] == "good" and judge.asked == ["draft reads well"]


async def test_a11_a_judgement_is_keyed_by_what_it_was_sent(there: Recording) -> None:
    """A condition that names no binding sends the newest ones whole, so another value makes another question."""
    program = 'let draft = "{0}"\nif **all is well**:\n  let b = "good"\n'
    await there.run(program.replace("{0}", "one"), judge=JudgeDouble({"all is well": True}))
    assert (await there.run(program.replace("{0}", "one"), "replay"))["b"] == "good"
    assert str(await there.run(program.replace("{0}", "two"), "replay")).startswith("E211")


async def test_a19_only_damaged_lines_are_lost(there: Recording) -> None:
    text = "".join(f'let v{n} = session "Say {n}"\n' for n in range(4))
    live = await there.run(text, provider=Provider(FakeClock()))
    lines = there.path().read_bytes().split(b"\n")
    deep = b"[" * 100_000
    there.path().write_bytes(b"\n".join([lines[0], b"\xff\xfe not json", *lines[1:3], deep, b"{}", *lines[3:]]))
    assert await there.run(text, "replay") == live
    assert [warning.split(" is left out")[0].rpartition(" ")[2] for warning in there.person.transcript] == [
        "2",
        "5",
        "6",
    ]
