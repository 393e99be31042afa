"""Cassette files: round trips, broken lines, several writers, full disks, permissions (4.2)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cassettes.recording import JudgeDouble, Provider, Recording
from hypothesis import given
from hypothesis import strategies as st
from machine.fakes import FakeClock
from waiting import PATIENCE, eventually

from prose_kernel.access import plain_files
from prose_kernel.cassettes import cassette_files as files
from prose_kernel.cassettes import records
from prose_kernel.cassettes.cassette_edits import tidied
from prose_kernel.cassettes.cassette_files import CassetteFile, PlacedRecord, Writer
from prose_kernel.cassettes.recorded_answers import RecordedJudge, RecordedSessions
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.models.usage_and_prices import CountedJudge, CountedSessions, UsageTotals, consumed
from prose_kernel.runtime.ports import JudgeRequest, SessionRequest, SessionResult, Usage, Verdict
from prose_kernel.runtime.session_options import CassetteOptions, Surroundings

ONE = 'let a = session "One"\n'
TWO = 'let a = session "One"\nlet b = session "Two"\n'


@pytest.fixture
def there(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


texts = st.text(alphabet=st.characters(codec="utf-8"))
answers = st.fixed_dictionaries({"text": st.none() | texts, "summary": texts, "memory_after": st.none() | texts})


@given(st.lists(st.tuples(texts, st.integers(1, 5), answers), max_size=8))
def test_records_come_back_as_they_were(made: list[tuple[str, int, dict[str, Any]]]) -> None:
    lines = [
        {"t": "session", "v": 2, "key": f"k{n}", "at": at, "try": tried, "req": {"prompt": at}, "out": out, "meta": {}}
        for n, (at, tried, out) in enumerate(made)
    ]
    data = b"".join(map(records.encoded, lines))
    found = files.parse(data, Path("x"), "x")
    assert [records.plain(entry.raw) for entry in found.entries] == lines
    assert found.bad == []
    for entry, line in zip(found.entries, lines, strict=True):
        assert (entry.record.at, entry.record.tried) == (line["at"], line["try"])
        assert records.part(entry.record.out, SessionResult).text == line["out"]["text"]  # type: ignore[index]
    orderly = tidied(data).data
    assert tidied(orderly).data == orderly


@given(st.binary(max_size=200))
def test_no_file_content_is_fatal(data: bytes) -> None:
    found = files.parse(data, Path("x"), "x")
    list(found.warnings)
    tidied(data)


async def test_a_record_reads_as_documented(there: Recording) -> None:
    await there.run(
        'let plan = "the plan"\nlet a = session "One"\n  context: plan\n  model: sonnet\n',
        provider=Provider(FakeClock(), says={"One": "done"}),
    )
    head, line = there.path().read_bytes().splitlines()
    assert head.startswith(b'{"format":"prose-cassette","prose":"')
    record = json.loads(line)
    assert line == json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    assert (record["t"], record["v"], record["at"], record["try"]) == ("session", 2, "c1/2/s0", 1)
    assert record["req"].keys() == {"kind", "model", "prompt", "context"}
    assert record["req"]["context"]["plan"].keys() == {"sha256", "chars", "head"}
    assert record["out"] == {"summary": "done", "text": "done"}
    assert record["meta"] == {
        "origin": "model", "provider": "vendor", "resolved": "big-1", "recorded": "2026-01-01",
        "prose": record["meta"]["prose"],
    }  # fmt: skip


# ---------------------------------------------------------------- unreadable records


@pytest.mark.parametrize(("lines", "more"), [(10, []), (11, ["1 more line is"]), (1_500, ["1,490 more lines are"])])
async def test_the_first_lines_of_a_file_that_is_not_a_recording_are_named(
    there: Recording, lines: int, more: list[str]
) -> None:
    live = await there.run(TWO, provider=Provider(FakeClock()))
    other = there.path().with_name("other.jsonl")
    other.write_text("text\n" * lines)
    assert await there.run(TWO, "replay") == live
    warnings = [f"Warning: cassettes/other.jsonl, line {line} is left out: it is not JSON" for line in range(1, 11)]
    assert there.person.transcript == [*warnings, *(f"Warning: cassettes/other.jsonl: {one} left out" for one in more)]


async def test_a_torn_last_line_is_left_out_and_kept(there: Recording) -> None:
    live = await there.run(TWO, provider=Provider(FakeClock()))
    data = there.path().read_bytes()
    there.path().write_bytes(data[:-20])
    provider = Provider(FakeClock(), says={"Two": "again"})
    assert await there.run(TWO, provider=provider) == {**live, "b": "again"}
    assert there.person.transcript == [
        "Warning: cassettes/session.jsonl, line 3: the last record was not written to its end; it is left out"
    ]
    assert data[:-20] in there.path().read_bytes()
    assert await there.run(TWO, "replay") == {**live, "b": "again"}
    assert there.person.transcript[-1] == "Warning: cassettes/session.jsonl, line 3 is left out: it is not JSON"


async def test_a_broken_line_in_the_middle_loses_only_that_line(there: Recording) -> None:
    live = await there.run(TWO, provider=Provider(FakeClock()))
    head, first, second = there.path().read_bytes().splitlines(keepends=True)
    broken = [b"\xff\xfe garbage\n", b'{"t":1}\n', b"[]\n", b"null\n", b'{"t":"session"}\n', b"[" * 100_000 + b"\n"]
    there.path().write_bytes(b"".join([b"\xef\xbb\xbf", head, *broken, first, b"\n", second]))
    assert await there.run(TWO, "replay") == live
    assert len(there.person.transcript) == len(broken)
    assert all("is left out" in line for line in there.person.transcript)


async def test_newer_files_are_kept_and_reported_once(there: Recording) -> None:
    live = await there.run(ONE, provider=Provider(FakeClock()))
    lines = there.path().read_bytes().splitlines(keepends=True)
    newer = [b'{"t":"dream","v":1,"at":"c1"}\n', b'{"t":"session","v":3,"key":"0","at":"c1/1/s0","soul":1}\n']
    known = lines[1].replace(b'"t":"session"', b'"t":"session","extra":{"a":1}')
    there.path().write_bytes(b"".join([lines[0], *newer, known]))
    assert await there.run(ONE, "replay") == live
    assert there.person.transcript == [
        "Warning: cassettes/session.jsonl, line 2 and 1 more: left out, written by a newer prose_kernel"
        " (records of type 'dream')"
    ]
    await there.run(ONE, "record", provider=Provider(FakeClock()))
    data = there.path().read_bytes()
    assert all(line in data for line in newer)


async def test_a19_a_record_that_is_damaged_inside_is_named_and_skipped(there: Recording) -> None:
    await there.run(ONE, provider=Provider(FakeClock()))
    line = there.records()[1]
    line["out"]["text"] = 5
    there.path().write_text(json.dumps(line) + "\n")
    message = await there.run(ONE, "replay")
    assert message.startswith("E201 nothing is recorded for session c1/1/s0")
    assert there.person.transcript[0].startswith(
        "Warning: cassettes/session.jsonl, line 1 is left out: its answer cannot be read"
    )


async def test_a32_a_record_that_nests_too_deeply_is_named_and_skipped(there: Recording) -> None:
    program = 'let a = session "one"\nlet b = a.name\n'
    await there.run(program, provider=Provider(FakeClock()), judge=JudgeDouble({"name": [[[1]]]}))
    line = there.path().read_text()
    assert '"value":[[1]]' in line
    there.path().write_text(line.replace("[[1]]", "[" * 501 + "]" * 501))
    assert (await there.run(program, "replay")).startswith("E")
    assert there.person.transcript == [
        "Warning: cassettes/session.jsonl, line 3 is left out: its answer nests more than 500 levels deep"
    ]


async def test_a_directory_a_pipe_and_an_unreadable_file_are_reported(there: Recording) -> None:
    await there.run(ONE, provider=Provider(FakeClock()))
    (there.cwd / "cassettes" / "dir.jsonl").mkdir()
    assert isinstance(await there.run(ONE, "replay"), dict)
    assert there.person.transcript == ["Warning: cassettes/dir.jsonl cannot be read: it is a directory"]


# ---------------------------------------------------------------- writing


async def test_a_record_that_cannot_be_written_loses_no_answer(there: Recording) -> None:
    (there.cwd / "cassettes").write_text("a file in the way")
    live = await there.run(TWO, provider=Provider(FakeClock()))
    assert set(live) == {"a", "b"}
    warning = "Warning: cassettes/session.jsonl: a record could not be written: cassettes is not a directory"
    assert there.person.transcript[0] == warning


async def test_a_lock_that_is_a_directory_is_named(there: Recording) -> None:
    (there.cwd / "cassettes" / ".lock").mkdir(parents=True)
    await there.run(ONE, provider=Provider(FakeClock()))
    warning = "Warning: cassettes/session.jsonl: a record could not be written: cassettes/.lock is a directory"
    assert there.person.transcript[0] == warning


async def test_private_files(there: Recording) -> None:
    await there.run(ONE, provider=Provider(FakeClock()), private=True)
    assert there.path().stat().st_mode & 0o777 == 0o600
    await there.run(ONE, "record", provider=Provider(FakeClock()), private=True)
    assert there.path().stat().st_mode & 0o777 == 0o600


async def test_a_file_that_others_may_read_stays_so_when_it_is_rewritten(there: Recording) -> None:
    await there.run(ONE, provider=Provider(FakeClock()))
    there.path().chmod(0o640)
    await there.run(ONE, "record", provider=Provider(FakeClock()))
    assert there.path().stat().st_mode & 0o777 == 0o640
    assert len(there.records()) == 2
    assert {p.name for p in (there.cwd / "cassettes").iterdir()} == {"session.jsonl", ".lock", ".gitignore"}


def test_a_full_disk_leaves_the_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path / "c" / "x.jsonl")
    writer.append(b'{"a":1}\n')
    before = writer.path.read_bytes()
    real = os.write

    def short(descriptor: int, data: Any) -> int:
        if len(data) > 10:
            return real(descriptor, bytes(data[:10]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="No space"):
        writer.append(b'{"b":"01234567890"}\n')
    monkeypatch.undo()
    assert writer.path.read_bytes() == before
    assert writer.append(b'{"b":2}\n') == 3


def test_lines_are_counted_with_several_writers(tmp_path: Path) -> None:
    one, other = Writer(tmp_path / "x.jsonl"), Writer(tmp_path / "x.jsonl")
    assert [one.append(b"a\n"), other.append(b"b\nc\n"), one.append(b"d\n"), other.append(b"e\n")] == [2, 3, 5, 6]
    with one.path.open("ab") as torn:
        torn.write(b"torn")
    assert one.append(b"f\n") == 8
    assert one.path.read_bytes().splitlines()[1:] == [b"a", b"b", b"c", b"d", b"e", b"torn", b"f"]


APPENDING = """
import sys
from pathlib import Path
from prose_kernel.cassettes.cassette_files import Writer
writer = Writer(Path(sys.argv[1]))
sys.stdin.readline()
for n in range(300):
    writer.append(b'{"who":"%s","n":%d,"text":"%s"}\\n' % (sys.argv[2].encode(), n, b"x" * 5000))
"""


def test_two_processes_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "x.jsonl"
    command = [sys.executable, "-c", APPENDING, str(path)]
    started = [subprocess.Popen([*command, who], stdin=subprocess.PIPE) for who in "ab"]
    for process in started:
        process.communicate(b"\n", timeout=60)
        assert process.returncode == 0
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line.get("t") for line in lines].count("head") == 1
    for who in "ab":
        assert [line["n"] for line in lines if line.get("who") == who] == list(range(300))


async def test_a_record_waits_while_another_kernel_writes(there: Recording) -> None:
    from filelock import FileLock

    (there.cwd / "cassettes").mkdir()
    with FileLock(there.cwd / "cassettes" / ".lock"):
        running = asyncio.ensure_future(there.run(ONE, provider=Provider(FakeClock())))
        for _ in range(200):
            await asyncio.sleep(0)
        assert not running.done()
        assert not there.path().exists()
    live = await running
    assert there.records(kind="session")[0]["out"]["text"] == live["a"]


async def test_a_waiting_record_is_written_once_if_another_record_follows(
    there: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other kernel has just finished; the thread that waits for it has not noticed yet."""
    waits, go = threading.Event(), threading.Event()

    def pause(_: float) -> None:
        waits.set()
        go.wait(PATIENCE)

    monkeypatch.setattr(plain_files, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    (there.cwd / "cassettes").mkdir()
    with plain_files.locked(there.cwd / "cassettes" / ".lock"):
        running = asyncio.ensure_future(there.run(ONE, provider=Provider(FakeClock())))
        await eventually(waits.is_set)
    assert there.cassettes is not None
    there.cassettes.note_ask("c1/1/s0", "May it?", "yes")
    go.set()
    live = await running
    assert [record["t"] for record in there.records()] == ["head", "session", "ask"]
    assert there.records(kind="session")[0]["out"]["text"] == live["a"]


@pytest.mark.parametrize("kind", ["session", "judgement"])
async def test_an_answer_that_is_cancelled_while_it_is_recorded_is_counted(there: Recording, kind: str) -> None:
    totals, answered = UsageTotals(), asyncio.Event()
    cassettes = Cassettes(CassetteOptions(mode="record"), there.where(), FakeClock(), consumed=consumed)
    details = {"provider": "vendor", "model": "big", "usage": {"requests": 1, "cost": 0.25}}

    class Inner:
        async def run(self, request: SessionRequest, on_progress: object) -> SessionResult:
            answered.set()
            return SessionResult("x", "x", "vendor", "model", {"model": "big"}, usage=Usage(1, cost=0.25))

        async def decide(self, request: JudgeRequest) -> Verdict:
            answered.set()
            return Verdict(True, "model", details=details)

    inner: Any = Inner()
    if kind == "session":
        sessions = CountedSessions(RecordedSessions(inner, cassettes, asker=there.person), totals)
        asked: Any = sessions.run(SessionRequest("session", "One", "c1/0/s0"), print)
    else:
        judge = CountedJudge(RecordedJudge(inner, cassettes, asker=there.person), totals)
        asked = judge.decide(JudgeRequest("it is so", "c1/0/j0"))
    (there.cwd / "cassettes").mkdir()
    with plain_files.locked(there.cwd / "cassettes" / ".lock"):
        running = asyncio.ensure_future(asked)
        await answered.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [(line.provider, line.requests, line.cost) for line in totals.lines] == [("vendor", 1, 0.25)]


async def test_records_that_another_kernel_adds_meanwhile_are_found(there: Recording) -> None:
    other = Recording(there.cwd)
    cassettes = there.open("replay")
    await other.run(ONE, provider=Provider(FakeClock()))
    assert cassettes.store.own_name == "cassettes/session.jsonl"
    live = await other.run(TWO, provider=Provider(FakeClock()), name="other")
    key = other.records("other", "session")[0]["key"]
    assert cassettes.store.lookup(key, "c1/2/s0") is not None
    assert live["b"]


async def test_records_that_another_kernel_adds_while_a_record_waits_are_found(
    there: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    other = Recording(tmp_path / "other")
    await other.run('session "Three"\n', provider=Provider(FakeClock()))
    (theirs,) = other.records(kind="session")
    await there.run(ONE, provider=Provider(FakeClock()))
    added = threading.Event()

    def add(_: float) -> None:
        if not added.is_set():
            there.path().write_bytes(
                there.path().read_bytes() + other.path().read_bytes().splitlines(keepends=True)[-1]
            )
            added.set()

    monkeypatch.setattr(plain_files, "time", SimpleNamespace(monotonic=time.monotonic, sleep=add))
    with plain_files.locked(there.cwd / "cassettes" / ".lock"):
        running = asyncio.ensure_future(there.run('session "Two"\n', provider=Provider(FakeClock())))
        await eventually(added.is_set)
    await running
    assert there.cassettes is not None
    assert there.cassettes.store.lookup(theirs["key"], "c1/9/s0") is not None


async def test_records_may_be_written_while_others_are_read(there: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    cassettes = there.open("auto")
    store, put = cassettes.store, CassetteFile.put
    (there.cwd / "cassettes").mkdir()
    with plain_files.locked(there.cwd / "cassettes" / ".lock"):
        for number in range(2):
            cassettes.note_ask(f"c1/{number}", "write: a.md", "yes")
    await Recording(there.cwd).run(ONE, provider=Provider(FakeClock()), name="other")

    def put_and_write(self: CassetteFile, entry: PlacedRecord) -> int:
        if self.path == store.own:
            store.close()
        return put(self, entry)

    monkeypatch.setattr(CassetteFile, "put", put_and_write)
    assert store.load()
    assert len(there.records(kind="ask")) == 2


@pytest.mark.parametrize(
    ("notebook", "name"),
    [("a/tour.ipynb", "tour"), ("tour.prose.md", "tour"), ("a.prose.md.ipynb", "a.prose.md"), ("notes.md", "session")],
)
def test_a_recording_is_named_after_the_file_of_the_notebook(notebook: str, name: str, tmp_path: Path) -> None:
    own = files.own_path(CassetteOptions(), Surroundings(str(tmp_path), notebook=notebook))
    assert own == tmp_path / "cassettes" / f"{name}.jsonl"
