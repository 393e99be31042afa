"""Formats of recordings: the round trip of every kind of answer, and records of format 1 (4.2)."""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from cassettes.recording import Provider, Recording
from hypothesis import given
from hypothesis import strategies as st
from machine.fakes import FakeClock

from prose_kernel import errors
from prose_kernel.cassettes import cassette_files as files
from prose_kernel.cassettes import records
from prose_kernel.cassettes.cassette_edits import redacted, upgraded
from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cassettes.records import Facts, Order, Written, canonical, key_of
from prose_kernel.cli.main import main
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.ports import CommandResult, FileRead, Finding, Pick, SessionResult, ToolUse, Usage, Verdict

OLD = Path(__file__).parent / "format1"
TWO = 'let a = session "One"\nlet b = session "Two"\n'

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=30)
data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
uses = st.builds(ToolUse, texts, texts, st.sampled_from(["ok", "refused", "failed"]), texts)
sessions = st.builds(
    SessionResult,
    st.none() | texts,
    texts,
    details=st.dictionaries(texts, data, max_size=2),
    trace=st.lists(uses, max_size=2).map(tuple),
    memory_after=st.none() | texts,
    segment=st.none() | texts,
    reply=st.none() | texts,
    usage=st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
)
judged = {
    "decide": st.builds(Verdict, st.none() | st.booleans(), texts, texts, st.booleans()),
    "choose": st.builds(Pick, texts, texts, texts),
    "items": st.tuples(data, texts, texts).map(lambda fields: Finding(*fields)),
}
failures = st.sampled_from(
    [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.ProviderError)]
)
facts = st.builds(
    Facts,
    st.lists(st.builds(FileRead, texts, texts), max_size=2).map(tuple),
    st.lists(st.builds(Written, texts, st.none() | texts, st.none() | texts), max_size=2).map(tuple),
)


def written(kind: str, answer: object, req: dict[str, Any], noted: Facts | None = None) -> records.SearchFields:
    """A record as it comes back from a file."""
    out = records.plain_answer(answer)
    line = {"t": kind, "v": records.VERSION, "at": "c1", "out": out, "facts": noted or {}, "req": req}
    return records.read(records.encoded({**line, "key": key_of(req), "meta": {}}))


@given(sessions, facts)
def test_a_session_is_read_back_unchanged(answer: SessionResult, noted: Facts) -> None:
    found = written("session", answer, {"kind": "session"}, noted)
    assert records.damage(found) is None
    assert records.answer_of(found) == answer
    assert records.part(found.facts, Facts) == noted


@pytest.mark.parametrize("kind", judged)
@given(st.data())
def test_a_judgement_is_read_back_unchanged(kind: str, drawn: st.DataObject) -> None:
    answer = drawn.draw(judged[kind])
    found = written("judge", answer, {"kind": kind})
    assert records.damage(found) is None
    assert records.answer_of(found) == answer


@given(failures, texts, st.none() | texts, st.booleans())
def test_a_failure_is_read_back_unchanged(kind: Any, message: str, hint: str | None, retryable: bool) -> None:
    error = kind(message, hint=hint)
    error.retryable = retryable
    found = records.answer_of(written("error", error, {"kind": "session"}))
    assert (type(found), str(found), vars(found)) == (kind, message, vars(error))


@pytest.mark.parametrize(
    "out",
    [
        {"type": "ProviderOverloaded", "args": ["x"], "state": {"retry_after": "soon"}},
        {"type": "ProviderError", "args": ["x"], "state": {"hint": 5}},
        {"type": "BudgetSpent", "args": ["x"], "state": {}},
        {"type": "TYPE_CHECKING", "args": []},
        {"type": "Sequence", "args": []},
        {"args": 5},
    ],
)
async def test_a_failure_that_cannot_be_read_is_named(tmp_path: Path, out: dict[str, Any]) -> None:
    there = Recording(tmp_path)
    await there.run(TWO, provider=Provider(FakeClock()))
    head, first, second = there.records()
    lines = (head, first | {"t": "error", "out": out}, second)
    there.path().write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert (await there.run(TWO, "replay")).startswith("E201 nothing is recorded for session c1/1/s0")
    assert there.person.transcript == ["Warning: cassettes/session.jsonl, line 2 is left out: its error cannot be read"]


@given(st.lists(st.integers(0, 99), max_size=5).map(tuple))
def test_a_race_is_read_back_unchanged(ended: tuple[int, ...]) -> None:
    found = written("race", Order(ended), {"kind": "race"})
    assert records.answer_of(found) == Order(ended)


@given(st.builds(CommandResult, st.sampled_from(["exited", "timed_out"]), st.integers(0, 255), texts, texts), sessions)
def test_a_journal_reads_the_same_answers(command: CommandResult, session: SessionResult) -> None:
    assert codec.decode(codec.encode(command), CommandResult) == command
    assert codec.decode(codec.encode(session), SessionResult) == session


# ---------------------------------------------------------------- format 1


def former(line: dict[str, Any]) -> dict[str, Any]:
    """Return a session's record as version 0.1 wrote it."""
    key = "k1:" + hashlib.sha256(canonical(line["req"])).hexdigest()
    return line | {"v": 1, "key": key, "out": {**line["out"], "memory_after": None, "writes": []}}


async def test_records_of_format_1_replay_and_are_named_once(tmp_path: Path) -> None:
    there = Recording(tmp_path)
    live = await there.run(TWO, provider=Provider(FakeClock()))
    head, *lines = there.records()
    there.path().write_text("".join(json.dumps(line) + "\n" for line in ({**head, "v": 1}, *map(former, lines))))
    assert await there.run(TWO, "replay") == live
    (warning,) = there.person.transcript
    assert "cassettes/session.jsonl" in warning and "prose cassette upgrade" in warning
    provider = Provider(FakeClock(), says={"Three": "new"})
    more = await there.run(TWO + 'let c = session "Three"\n', provider=provider)
    assert (more, provider.asked) == ({**live, "c": "new"}, ["c1/3/s0"])
    assert [line["v"] for line in there.records()] == [1, 1, 1, 2]


async def test_a_record_of_format_1_that_was_edited_is_named(tmp_path: Path) -> None:
    there = Recording(tmp_path)
    await there.run(TWO, provider=Provider(FakeClock()))
    lines = there.records()
    edited = former(lines[1]) | {"req": {**lines[1]["req"], "prompt": "Other"}}
    there.path().write_text(json.dumps(edited) + "\n" + json.dumps(lines[2]) + "\n")
    assert (await there.run(TWO, "replay")).startswith("E201 nothing is recorded for session c1/1/s0")
    assert there.person.transcript == [
        "Warning: cassettes/session.jsonl, line 1 is left out: its key does not match its request: it was edited by hand"
    ]


@pytest.mark.parametrize("name", sorted(path.name for path in OLD.iterdir()))
def test_every_answer_of_format_1_is_the_same_in_the_current_format(name: str) -> None:
    old = (OLD / name).read_bytes()
    new, count = upgraded(old)
    before = [json.loads(line) for line in old.splitlines()]
    assert count == sum(line["t"] != "head" for line in before)
    assert upgraded(new) == (new, 0)
    found = files.parse(new, Path(name), name)
    assert found.bad == [] and not found.is_old
    for entry, line in zip(found.entries, before, strict=True):
        record, then = entry.record, line.get("out")
        assert (record.t, record.at, record.tried) == (line["t"], line.get("at", ""), line.get("try", 1))
        if record.t == "head":
            continue
        assert records.damage(record) is None
        match records.answer_of(record):
            case SessionResult() as answer:
                assert (answer.text, answer.summary) == (then["text"], then["summary"])
                assert answer.memory_after == then["memory_after"]
                assert len(answer.trace) == len(then.get("trace", ()))
                assert len(records.part(record.facts, Facts).reads) == len(then.get("reads", ()))
            case Verdict(answer=answered) | Pick(label=answered) | Finding(value=answered):
                assert answered == then["answer"]
            case Exception() as error:
                assert (type(error).__name__, str(error)) == (then["class"], then["message"])


def test_upgrade_converts_once_and_leaves_unreadable_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "cassettes" / "old.jsonl"
    here.parent.mkdir()
    strange = b'not json\n{"t":"session","v":9,"key":"0","at":"c1"}\n'
    old = (OLD / "07_errors.jsonl").read_bytes() + strange
    here.write_bytes(old)
    assert main(["cassette", "upgrade", "--dry-run"]) == 0
    assert here.read_bytes() == old
    assert capsys.readouterr().out == "cassettes/old.jsonl: 4 records would be converted\n"
    assert main(["cassette", "upgrade", "old"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "cassettes/old.jsonl: 4 records converted\n"
    assert [line.partition(" stays")[0] for line in printed.err.splitlines()] == [
        "Warning: cassettes/old.jsonl, line 6",
        "Warning: cassettes/old.jsonl, line 7",
    ]
    new = here.read_bytes()
    assert new.endswith(strange) and b'"v":1' not in new
    assert main(["cassette", "upgrade"]) == 0
    assert here.read_bytes() == new


def test_redaction_of_format_1_makes_a_key_of_the_current_format() -> None:
    req = {"kind": "session", "prompt": "use tok-1234567890abcdef"}
    old = former({"t": "session", "at": "c1", "req": req, "out": {"text": "tok-1234567890abcdef"}})
    (line,) = redacted(records.encoded(old), Redaction({}, (r"tok-\w+",))).data.splitlines()
    found = records.read(line)
    assert b"tok-" not in line and found.v == records.VERSION and records.damage(found) is None
