"""Truncated, edited, replaced and missing journals, full disks, and values that JSON cannot represent."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from durability.live import live
from hypothesis import given, settings
from hypothesis import strategies as st
from machine.fakes import World
from models.people import ScriptedPerson
from msgspec import Raw

from prose_kernel.access import jsonl
from prose_kernel.errors import NoPerson, ProviderError, ResumeMismatch, RunError, StoreFailed, UsageError
from prose_kernel.runs.resumption import resumption
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.journal_records import Answered, Asked, Ended, Finished, Head, Record, Recorder, Text
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Finding, SessionResult
from prose_kernel.runtime.requests import describe
from prose_kernel.runtime.scheduler import Scheduler
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import is_written, read

PROGRAM = 'let a = exec "echo one"\nlet b = exec "echo {a} two"\noutput said = b\n'
RESULT = codec.encode(CommandResult("exited", 0, "ä\n", ""))
RECORDS: list[Record] = [
    Head("20260101-000000-abcdef", "main.prose", "openprose", "/start"),
    Text(1, "openprose", "main.prose", PROGRAM),
    Asked("c1/1/x0", "command", "d1", "echo ä"),
    Answered("c1/1/x0", RESULT),
    Asked("c1/2/x0", "command", "d2", "echo two"),
    Answered("c1/2/x0", RESULT),
    Ended(1),
    Finished(),
]


def written(place: Path, records: list[Record] = RECORDS) -> Path:
    path = place / "20260101-000000-abcdef" / "journal.jsonl"
    file = JournalFile(path)
    for record in records:
        file.append(record)
    file.close()
    return path


# ---------------------------------------------------------------- cut and edited


def test_a_truncated_journal_keeps_its_complete_records(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        lines = whole[:size].count(b"\n")
        if not lines:
            with pytest.raises(UsageError, match="is empty"):
                read(path)
            continue
        found = read(path)
        assert (found.lines, found.torn) == (lines, size - whole[:size].rfind(b"\n") - 1)
        assert [type(record) for _, record in found.records()] == [type(record) for record in RECORDS[:lines]]


@settings(max_examples=int(os.environ.get("DURABILITY_EXAMPLES", "100")), deadline=None)
@given(data=st.data())
def test_a19_a_changed_byte_loses_only_its_record(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(tmp_path_factory.mktemp("journal"))
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 2))
    line, between = whole[:at].count(b"\n"), whole[at : at + 1] == b"\n"
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    if not line:
        with pytest.raises(UsageError, match=r"the first line of the journal of run .* is damaged|is empty"):
            read(path)
        return
    found = read(path)
    records = [record for _, record in found.records()]
    if not between:  # without its newline, a line damages the next one too
        assert records == [record for number, record in enumerate(RECORDS) if number != line]
        assert bool(found.lost) == (line < len(RECORDS) - 1)
    if found.lost:
        with pytest.raises(UsageError, match=r"line \d of the journal of run .* is damaged"):
            resumption(found)


@pytest.mark.parametrize(
    "added", [b"garbage\n", b"garbage", b"\0" * 70000 + b"\n", b'00000000 {"k":"answered"}\n', b"\n"]
)
async def test_a36_a_foreign_line_loses_no_record(added: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS[:4])
    head = read(path)
    with path.open("ab") as journal:
        journal.write(added)
    file = JournalFile(path)
    file.continue_from(read(path))
    for record in RECORDS[4:6]:
        file.append(record)
    with path.open("ab") as journal:
        journal.write(added)
    file.append(RECORDS[6])
    file.close()
    found = read(path)
    assert [record for _, record in found.records()] == RECORDS[:7]
    assert found.lost == [] and head.answers() == 1 and found.answers() == 2
    assert found.texts[0].ended == RECORDS[6]
    resumption(found)
    assert found.strange


def test_a36_a_sparse_tail_loses_no_record(tmp_path: Path) -> None:
    path = written(tmp_path)
    size = path.stat().st_size
    os.truncate(path, 60 << 30)
    found = read(path)
    assert (found.size, found.torn) == (size, (60 << 30) - size)
    assert [record for _, record in found.records()] == RECORDS


@pytest.mark.parametrize("how", ["swapped", "missing", "of another run"])
def test_moved_lines_are_refused(how: str, tmp_path: Path) -> None:
    path = written(tmp_path / "one")
    other = written(tmp_path / "other", [Head("x", "other.prose", "openprose", "/"), *RECORDS[1:]])
    lines = path.read_bytes().splitlines(keepends=True)
    match how:
        case "swapped":
            lines[3], lines[4] = lines[4], lines[3]
        case "missing":
            del lines[3]
        case _:
            lines[3] = other.read_bytes().splitlines(keepends=True)[3]
    path.write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match=r"line [456] of the journal of run .* is damaged, or was changed"):
        resumption(path)


def test_a_journal_with_another_version_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [Head("r", "main.prose", "openprose", "/", version=9), *RECORDS[1:]])
    with pytest.raises(UsageError) as caught:
        resumption(path)
    assert str(caught.value) == "the journal of run 20260101-000000-abcdef has version 9"
    assert caught.value.hint is not None and "resume the run with the one that began it" in caught.value.hint


def test_a_line_that_is_not_a_record_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [RECORDS[0], Ended("one"), *RECORDS[1:]])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"line 2 of the journal of run .* is not a record"):
        read(path)


def test_a_journal_without_a_head_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS[1:])
    with pytest.raises(UsageError, match="does not begin with a head"):
        read(path)


# ---------------------------------------------------------------- owner and kind of the file


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_journal_of_another_user_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    os.chown(path, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        resumption(path)


def test_only_its_owner_can_read_a_journal(tmp_path: Path) -> None:
    assert written(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a directory", "nothing"])
def test_a_journal_that_is_not_a_plain_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    there = path.with_name("elsewhere")
    path.rename(there)
    match kind:
        case "a link":
            path.symlink_to(there)
        case "a pipe":
            os.mkfifo(path)
        case "a directory":
            path.mkdir()
    with pytest.raises(UsageError, match="has no journal" if kind == "nothing" else "cannot be read"):
        resumption(path)


async def test_a_changed_program_stops_the_resume_and_shows_both_commands(tmp_path: Path) -> None:
    first = workspace(tmp_path)
    await first.execute(PROGRAM, "main.prose")
    await first.close()
    path = first_journal(tmp_path)
    text = path.read_text()
    assert "echo one" in text
    known = [record for _, record in read(path).records()]
    path.unlink()
    file = JournalFile(path)
    for record in known:
        if isinstance(record, Text):
            record = Text(1, "openprose", "main.prose", PROGRAM.replace("echo one", "echo 1"), directory=str(tmp_path))
        file.append(record)
    file.close()
    again = workspace(tmp_path, resumption=resumption(path))
    with pytest.raises(ResumeMismatch) as caught:
        await again.restore()
    assert caught.value.hint == "then: command echo one / now: command echo 1"
    await again.close()


# ---------------------------------------------------------------- the disk


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_reported_once_and_leaves_whole_records(tmp_path: Path, small_files: None) -> None:
    path, lost = tmp_path / "run" / "journal.jsonl", list[str]()
    file = JournalFile(path, on_lost=lost.append)
    for record in [*RECORDS[:3], *[Answered("c1/1/x0", RESULT)] * 50]:
        file.append(record)
    file.close()
    assert len(lost) == 1
    found = read(path)
    assert found.torn == 0 and 3 < found.lines < 53


def test_a_directory_that_is_removed_is_noticed(tmp_path: Path) -> None:
    path, lost = tmp_path / "run" / "journal.jsonl", list[str]()
    file = JournalFile(path, on_lost=lost.append)
    for record in RECORDS[:3]:
        file.append(record)
    path.unlink()
    path.parent.rmdir()
    for record in RECORDS[3:]:
        file.append(record)
    assert lost == ["it was removed"]
    assert not path.parent.exists()


def test_a_record_that_comes_after_the_end_of_a_journal_does_not_open_it_again(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    file = JournalFile(path)
    for record in RECORDS[:3]:
        file.append(record)
    file.close()
    file.append(RECORDS[3])
    assert read(path).lines == 3
    assert not is_written(path)


def test_the_next_number_counts_a_record_that_another_thread_is_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, numbers, add = JournalFile(tmp_path / "run" / "journal.jsonl"), list[int](), jsonl.add
    reader = threading.Thread(target=lambda: numbers.append(file.next_number))

    def slow(descriptor: int, data: bytes) -> None:
        reader.start()
        reader.join(0.1)  # it waits for the end of this
        add(descriptor, data)

    monkeypatch.setattr(jsonl, "add", slow)
    for record in RECORDS[:3]:
        file.append(record)
    reader.join()
    file.close()
    assert numbers == [3]


async def test_a_cancelled_flush_is_made_again_before_the_next_request() -> None:
    flushes = 0

    class Store:
        async def flush(self) -> None:
            nonlocal flushes
            flushes += 1
            if flushes == 1:
                raise asyncio.CancelledError

    log: list[object] = []
    recorder = Recorder(cast("Any", log), Scheduler(), None)
    recorder.require_flush()
    with pytest.raises(asyncio.CancelledError):
        await recorder.flush(cast("Any", Store()), "c1/1/x0")
    assert log == [Answered("c1/1/x0", cancelled=True)]
    for _ in range(2):
        await recorder.flush(cast("Any", Store()), "c1/2/x0")
    assert flushes == 2


async def test_a_run_continues_without_its_directory(tmp_path: Path) -> None:
    run = workspace(tmp_path)
    await run.execute(f'let a = exec "echo one"\nexec "rm -rf {tmp_path}/.prose"\nlet b = exec "echo {{a}} two"\n')
    assert run.bindings()["b"].info.value.text == "one two\n"
    await run.close()


def workspace(place: Path, **more: Any) -> Workspace:
    return Workspace(
        Settings().changed(cassette_mode="off", autodetect=False),
        Start(place, "main.prose", notebook=False),
        asker=ScriptedPerson(available=False),
        **more,
    )


def first_journal(place: Path) -> Path:
    return next(place.glob(".prose/runs/*/journal.jsonl"))


# ---------------------------------------------------------------- values

NEST: Any = []
for _ in range(200_000):
    NEST = [NEST]
PLAIN = [None, True, -(10**40), 10**400, 0.1, "", "\udc80 \x00 \u2028", [], {"\ud800": ["\udfff"]}, b"\xff"]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
async def test_a_program_gets_the_same_answer_from_its_journal(value: object) -> None:
    decoded = codec.decode(codec.encode(Finding(value, "rule")), Finding)
    assert codec.decode(codec.encode(decoded), Finding) == decoded
    if not isinstance(value, bytes):
        assert decoded.value == value
    texts = ['let t = session "say"\nlet x = t.a\n']
    answer = [value]  # the scripted judge treats None as no answer, and answers from a list one by one
    then = await live(World(judge_says={"extract a": [answer]}), texts, lambda key: 1.0)
    again = await live(World(), texts, lambda key: 1.0, then.records)
    assert then.values["x"] == again.values["x"]


@pytest.mark.parametrize("text", ["\udc80", "\ud800x", "\x00", "\u2028", "é" * 100_000])
def test_texts_round_trip(text: str, tmp_path: Path) -> None:
    result = CommandResult("exited", 0, text, text, cwd_after=f"/{text}")
    assert codec.decode(codec.encode(result), CommandResult) == result
    session = SessionResult(text, summary=text, provider="p")
    assert codec.decode(codec.encode(session), SessionResult) == session
    error = codec.decode_error(codec.encode_error(RunError(text, details={"x": [text]})))
    assert isinstance(error, RunError) and (error.message, error.details) == (text, {"x": [text]})
    path = written(tmp_path, [RECORDS[0], Text(1, "openprose", "cell", text), Asked("k", "command", "d", text)])
    assert [getattr(one, "text", "") for _, one in read(path).records(1)] == [text, text]
    describe(CommandRequest(text, f"/{text}", 1.0, at="c1/1/x0")).digest("")


async def test_a_value_that_is_nested_too_deeply_fails_its_session() -> None:
    world = World(judge_says={"extract a": NEST})
    then = await live(world, ['let t = session "say"\nlet x = t.a\n'], lambda key: 1.0)
    errors = [bytes(record.error) for record in then.records if isinstance(record, Answered)]
    assert b"nested too deeply" in errors[-1]
    again = await live(World(), ['let t = session "say"\nlet x = t.a\n'], lambda key: 1.0, then.records)
    assert (again.result, again.asked_outside) == (then.result, [])


def test_provider_errors_keep_their_type() -> None:
    error = codec.decode_error(codec.encode_error(ProviderError("no\udc80", retryable=False)))
    assert isinstance(error, ProviderError) and str(error) == "no\udc80" and not error.retryable


def test_journals_keep_the_names_of_earlier_versions() -> None:
    unasked = Raw(b'{"type":"NobodyToAsk","args":["no terminal"]}')
    assert type(codec.decode_error(unasked)) is NoPerson
    assert codec.encode_error(NoPerson("no terminal")) == unasked
    lost = Raw(
        b'{"type":"StoreFailed","args":["lost"],"state":{"message":"lost","code":"E219","details":{},"hint":null,'
        b'"nobody":true,"call_stack":[],"answer":""}}'
    )
    error = codec.decode_error(lost)
    assert isinstance(error, StoreFailed) and error.no_answer
    assert codec.encode_error(error) == lost
    assert bytes(codec.encode(Asked("k", "command", "d", "echo"))).endswith(b'"said":"echo"}')


def test_a_keyboard_interrupt_is_not_an_answer() -> None:
    assert not codec.may_be_kept(KeyboardInterrupt()) and not codec.may_be_kept(asyncio.CancelledError())


@pytest.mark.parametrize("place", [0, 3])
def test_a32_a_record_that_nests_too_deeply_is_refused(place: int, tmp_path: Path) -> None:
    deep = Raw(b"[" * 200_000 + b"]" * 200_000)
    records = list(RECORDS)
    if place:
        records[place] = Answered("c1/1/x0", deep)
        with pytest.raises(UsageError, match=r"line 4 of the journal of run .* is not a record"):
            list(read(written(tmp_path, records)).records())
        return
    path = written(tmp_path, records)
    body = path.read_bytes().split(b"\n")[0][9:].replace(b"{", b'{"deep":' + bytes(deep) + b",", 1)
    path.write_bytes(b"%08x " % zlib.crc32(body) + body + b"\n")
    with pytest.raises(UsageError, match="does not begin with a head"):
        read(path)
