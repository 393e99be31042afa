"""Amendment A51: an answer is journaled when its work ends, even while another branch computes.

A command's answer is journaled even during one long step. Answers of sessions and judges arrive in the event loop, which
a computing branch serves between its statements and passes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from killing import answer, how_to_resume, in_a_child, journal_in
from models.people import ScriptedPerson
from stubs.model_server import ANSWER, StubServer

from prose_kernel.errors import BudgetSpent, RunError
from prose_kernel.language.structs import replace
from prose_kernel.runs import languages
from prose_kernel.runs.earlier_run import answered_from, earlier_run
from prose_kernel.runs.resumption import branch
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime import scheduler
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.earlier_answers import EarlierAnswers
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Completed,
    Record,
    Repeated,
    StepEnded,
    answers_of,
)
from prose_kernel.runtime.journal_replay import UnderWay
from prose_kernel.runtime.journal_requests import LiveRequests
from prose_kernel.runtime.ports import CommandResult
from prose_kernel.runtime.scheduler import Scheduler
from prose_kernel.runtime.session_options import ModelServer
from prose_kernel.runtime.values import verbatim
from prose_kernel.storage.file_digests import FileDigests
from prose_kernel.storage.file_history import FileHistory
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import read
from prose_kernel.storage.run_history import cells_of

ONE_STEP = """
let xs = [1, 2, 3, 4, 5, 6, 7, 8]
repeat 15:
  xs = xs + xs
parallel:
  a = exec "echo x >> ran"
  do:
    let text = "{xs}{xs}{xs}{xs}"
    exec "echo after >> ran"
"""
"""The text of a list of a quarter of a million numbers, four times: about half a second without a yield point."""
TOGETHER = """
parallel:
  a = exec "echo x >> ran"
  b = exec "echo y >> ran"
  c = exec "echo z >> ran"
"""
ONE_COMMAND = 'exec "echo x >> ran"\nexec "echo y >> ran"\n'


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def work(text: str, *, under_way: UnderWay = "rerun", **settings: Any) -> Callable[[], Awaitable[None]]:
    async def go() -> None:
        here = Workspace(
            Settings().changed(autodetect=False, **settings),
            Start(Path.cwd(), "p.prose", notebook=False),
            asker=ScriptedPerson(available=False),
            resumption=how_to_resume(Path.cwd(), under_way),
        )
        try:
            await here.execute(text, "p.prose")
            await here.end(None)
        finally:
            await here.close()

    return go


def records(place: Path) -> list[Record]:
    path = journal_in(place)
    assert path is not None
    return [record for _, record in read(path).records()]


async def test_a_command_that_ended_while_one_step_computed_never_runs_again(tmp_path: Path) -> None:
    def second(record: Record) -> bool:
        return isinstance(record, Asked) and "after" in record.text

    assert in_a_child(tmp_path, work(ONE_STEP), before=second) is None
    assert (tmp_path / "ran").read_text() == "x\n"
    assert [type(record) for record in records(tmp_path)][-1] is Completed
    await work(ONE_STEP)()
    assert (tmp_path / "ran").read_text() == "x\nafter\n"


async def test_next_to_other_requests_a_result_is_recorded_before_its_turn(tmp_path: Path) -> None:
    """The run is killed before the program gets its first answer. Commands that had ended do not run again."""
    assert in_a_child(tmp_path, work(TOGETHER), before=lambda record: isinstance(record, Answered)) is None
    known = [record.key for record in records(tmp_path) if isinstance(record, Completed)]
    assert known
    before = (tmp_path / "ran").read_text().split()
    await work(TOGETHER)()
    ran = (tmp_path / "ran").read_text().split()
    assert set(ran) == {"x", "y", "z"}
    for key, word in zip(("c1/1/b0/x0", "c1/1/b1/x0", "c1/1/b2/x0"), "xyz", strict=True):
        # The shell of a command that had not ended may write its word after `before` was read.
        times = {1} if key in known else {2} if word in before else {1, 2}
        assert ran.count(word) in times


FAIL_TOGETHER = """
parallel:
  exec "echo x >> ran; test -f mended"
  exec "echo y >> ran; test -f mended"
  exec "until test -f mended; do sleep 0.02; done; echo z >> ran"
"""


@pytest.mark.parametrize("kills", [0, 2])
async def test_requests_that_failed_together_are_all_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    """The program received one failure. The other one doesn't end the resumed run, even one that was killed before."""
    ended: set[str] = set()
    append, regain = JournalFile.append, Scheduler.regain

    def appending(self: JournalFile, record: Record) -> None:
        append(self, record)
        if isinstance(record, Completed):
            ended.add(record.key)

    async def regaining(self: Scheduler) -> None:
        while len(ended) < 2:
            await asyncio.sleep(0)
        await regain(self)

    with monkeypatch.context() as patch:
        patch.setattr(JournalFile, "append", appending)
        patch.setattr(Scheduler, "regain", regaining)
        with pytest.raises(RunError, match="exit code 1"):
            await work(FAIL_TOGETHER)()
    (tmp_path / "mended").touch()
    how = how_to_resume(tmp_path)
    assert how.again == {"c1/1/b0/x0", "c1/1/b1/x0"} and how.answers == 0
    earlier = branch(how.journal, how.rewind, SystemClock())
    assert {one.key for one in earlier.under_way()} > how.again and not earlier.waiting()
    shutil.rmtree(earlier.path.parent)
    for _ in range(kills):
        assert (
            in_a_child(tmp_path, work(FAIL_TOGETHER), before=lambda one: isinstance(one, (Answered, Completed))) is None
        )
    await work(FAIL_TOGETHER)()
    ran = (tmp_path / "ran").read_text().split()
    assert ran.count("x") > 1 and ran.count("y") > 1 and "z" in ran


async def test_a_failed_request_is_under_way_only_once_it_is_made_again(tmp_path: Path) -> None:
    """A resumed run killed before the repetition has not made the request: it does not fail, and no attempt is counted."""
    text = 'exec "echo $PROSE_ATTEMPT >> ran; test -f mended"'
    with pytest.raises(RunError, match="exit code 1"):
        await work(text)()
    (tmp_path / "mended").touch()

    def made(record: Record) -> bool:
        return isinstance(record, Repeated) and not record.due

    for _ in range(2):
        assert in_a_child(tmp_path, work(text), before=made) is None
    assert [one.due for one in records(tmp_path) if isinstance(one, Repeated)] == [True]
    journal = how_to_resume(tmp_path).journal
    assert journal.under_way() == [] and [asked.key for asked in journal.due()] == ["c1/1/x0"]
    assert [step.mark for cell in cells_of(journal) for step in cell.steps] == ["✗"]
    await work(text, under_way="fail")()
    assert (tmp_path / "ran").read_text().split() == ["1", "2"]
    assert [one.due for one in records(tmp_path) if isinstance(one, Repeated)] == [True, False]


async def test_attempts_are_counted_also_for_requests_after_the_failure(tmp_path: Path) -> None:
    text = """
try:
  exec "echo a $PROSE_ATTEMPT >> ran; test -f mended"
finally:
  exec "echo b $PROSE_ATTEMPT >> ran; false"
    retry: 1
    on-fail: "continue"
"""
    for _ in range(2):
        with pytest.raises(RunError, match="exit code 1"):
            await work(text)()
    (tmp_path / "mended").touch()
    await work(text)()
    assert " ".join((tmp_path / "ran").read_text().split()) == "a 1 b 1 b 2 a 2 b 3 b 4 a 3 b 5 b 6"


async def test_a_session_that_was_answered_after_a_failure_is_not_asked_again(tmp_path: Path) -> None:
    """The branch that failed was in `finally`, so that the other one went on."""
    text = """
parallel:
  do:
    try:
      exec "until grep -q c1/1/b1/s0 .prose/runs/*/journal.jsonl; do sleep 0.02; done; test -f mended"
    finally:
      exec "until grep -q 'answered[^.],.key.:.c1/1/b1/s0' .prose/runs/*/journal.jsonl; do sleep 0.02; done"
  session "ask"
"""
    (tmp_path / "script.yaml").write_text("ask: {reply: answered, delay: 100ms}\n")
    run = work(text, provider="scripted", script="script.yaml")
    with pytest.raises(RunError, match="exit code 1"):
        await run()
    (tmp_path / "mended").touch()
    assert how_to_resume(tmp_path).answers == 1
    await run()
    assert [one.key for one in records(tmp_path) if isinstance(one, Repeated) and not one.due] == [
        "c1/1/b0/x1",
        "c1/1/b0/x0",
    ]


async def test_a_single_command_is_recorded_once(tmp_path: Path) -> None:
    await work(ONE_COMMAND)()
    assert not [record for record in records(tmp_path) if isinstance(record, Completed)]


async def test_in_another_directory_a_result_is_recorded_as_in_the_first_one(tmp_path: Path) -> None:
    text = 'parallel:\n  exec "cd sub"\n  exec "sleep 600"\n'
    second = tmp_path / "second"
    for place in (tmp_path, second):
        (place / "sub").mkdir(parents=True)
    assert in_a_child(tmp_path, work(text), before=lambda one: isinstance(one, Completed)) is None
    how = replace(how_to_resume(tmp_path), cwd=second)

    async def there() -> None:
        person, settings = ScriptedPerson(available=False), Settings().changed(autodetect=False)
        here = Workspace(settings, Start(second, "p.prose", notebook=False), asker=person, resumption=how)
        await here.execute(text, "p.prose")

    assert in_a_child(tmp_path, there, before=answer("c1/1/b0/x0")) is None
    (found,) = [one for one in records(tmp_path) if isinstance(one, Completed)]
    assert codec.decode(found.value, CommandResult).cwd_after == str(tmp_path / "sub")


# ---------------------------------------------------------------- files of commands

COMPUTES_LONG = """
parallel:
  let a = exec "cat f.txt; echo x >> ran; echo made > made.txt"
    {files}
  exec "test -f over || sleep 600"
"""
"""The second command is running when the first one ends, until the file `over` is there."""
FILES = {"reads": 'reads: ["f.txt"]', "writes": 'reads: ["f.txt"]\n    writes: ["made.txt"]', "undeclared": ""}


async def edited(text: str) -> EarlierAnswers:
    """Run a text that keeps the answers of the run in the working directory."""
    language, path = languages.LANGUAGES["openprose"], journal_in(Path.cwd())
    assert path is not None
    keep = earlier_run(path, language, Path.cwd())
    here = Workspace(
        Settings().changed(autodetect=False),
        Start(Path.cwd(), "p.prose", notebook=False, language=language, keep=keep),
        asker=ScriptedPerson(available=False),
    )
    try:
        await here.execute(text, "p.prose")
        await here.end(None)
        assert here.opened.journal is not None and here.opened.journal.earlier is not None
        return here.opened.journal.earlier
    finally:
        await here.close()


def files_noted(records: list[Record]) -> list[bool]:
    """Return, for each record of a command's end, whether it has the digests of its files."""
    return [one.aside != NOTHING for one in records if isinstance(one, Completed)]


@pytest.mark.parametrize("changed", ["", "f.txt", "made.txt"])
@pytest.mark.parametrize("files", ["reads", "writes"])
async def test_a_command_that_was_only_completed_is_kept_while_its_files_are_the_same(
    tmp_path: Path, files: str, changed: str
) -> None:
    Path("f.txt").write_text("1")
    text, key = COMPUTES_LONG.format(files=FILES[files]), "c1/1/b0/x0"
    assert in_a_child(tmp_path, work(text), before=answer(key)) is None
    assert files_noted(records(tmp_path)) == {"reads": [True], "writes": [False, True]}[files]
    Path("over").touch()
    if changed:
        Path(changed).write_text("2")
    kept = await edited(f"{text}output n = 1\n")
    why = [one.reason for one in kept.asked_again() if one.asked.key == key]
    is_kept = not changed or (files, changed) == ("reads", "made.txt")
    assert (kept.kept, why) == (([key], []) if is_kept else ([], [f"{changed} has changed"]))
    assert Path("ran").read_text() == "x\n" * (2 - is_kept)


async def test_a_resumed_run_passes_on_the_files_of_a_command_that_was_only_completed(tmp_path: Path) -> None:
    Path("f.txt").write_text("1")
    text = COMPUTES_LONG.format(files=FILES["writes"])
    assert in_a_child(tmp_path, work(text), before=answer("c1/1/b0/x0")) is None
    Path("over").touch()
    await work(text)()
    kept = await edited(f"{text}output n = 1\n")
    assert "c1/1/b0/x0" in kept.kept and Path("ran").read_text() == "x\n"


async def test_the_files_of_a_command_that_ends_in_one_long_step_are_recorded(tmp_path: Path) -> None:
    Path("f.txt").write_text("1")
    step = ONE_STEP.replace("a = exec", "let a = exec").replace("  do:\n", '  do:\n    exec "touch go"\n')
    command = "until test -f go; do sleep 0.01; done; cat f.txt; echo x >> ran"
    text = step.replace('"echo x >> ran"', f'"{command}"\n    reads: ["f.txt"]\n    writes: ["ran"]')
    assert in_a_child(tmp_path, work(text), before=lambda one: isinstance(one, Asked) and "after" in one.text) is None
    kept = await edited(f"{text}output n = 1\n")
    assert "c1/3/b0/x0" in kept.kept and Path("ran").read_text() == "x\nafter\n"


@pytest.mark.parametrize("keeps_files", [False, True])
async def test_a_single_command_is_recorded_before_its_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_files: bool
) -> None:
    """A run killed while it reads the files doesn't repeat the command. An edited program does, and gives the reason."""
    Path("f.txt").write_text("1")
    text = f'exec "cat f.txt; echo x >> ran"\n  reads: ["f.txt"]\n  writes: {[] if keeps_files else ["ran"]}\n'
    text = text.replace("'", '"')

    def matching(self: FileDigests, directory: str, globs: Sequence[str]) -> dict[str, str] | None:
        if "ran" in globs:
            os.kill(os.getpid(), signal.SIGKILL)
        return find(self, directory, globs)

    def after(self: FileHistory) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    find = FileDigests.matching
    with monkeypatch.context() as killing:
        killing.setattr(FileDigests, "matching", matching)
        killing.setattr(FileHistory, "_after", after)
        assert in_a_child(tmp_path, work(text, run_keep_files=keeps_files)) is None
    assert type(records(tmp_path)[-1]) is Completed
    await work(text)()
    assert Path("ran").read_text() == "x\n"
    kept = await edited(f"{text}output n = 1\n")
    why = [one.reason for one in kept.asked_again()]
    unknown = "its files were not recorded: it declared none, or the run was killed before they were read"
    assert why == ([] if keeps_files else [unknown])


async def test_a_command_ends_even_if_no_thread_can_read_its_files_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("f.txt").write_text("1")
    text = COMPUTES_LONG.format(files=FILES["writes"]).replace(
        "test -f over || sleep 600", "until test -f over; do sleep 0.01; done"
    )
    start = threading.Thread.start

    def starts(self: threading.Thread) -> None:
        if self.name.endswith("(look)"):
            Path("over").touch()
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", starts)
    await asyncio.wait_for(work(text)(), 60)
    (noted,) = [one.aside for one in records(tmp_path) if isinstance(one, Answered) and one.key == "c1/1/b0/x0"]
    assert set(codec.notes(noted)["files"]["writes"]) == {"made.txt"}


def test_repairing_a_journal_loses_no_answer_that_waited_for_its_turn_before_the_damage() -> None:
    lines: list[Record] = [Asked("c1/1/x0", "command", ""), Asked("c1/2/x0", "command", "")]
    lines += [Completed("c1/1/x0"), Answered("c1/1/x0"), Completed("c1/2/x0")]
    lost = [[one.key for one in answered_from(begin, enumerate(lines))] for begin in range(6)]
    assert lost == [["c1/1/x0", "c1/2/x0"]] * 3 + [["c1/2/x0"]] * 2 + [[]]


def test_a_result_that_a_cancelled_branch_did_not_receive_is_not_an_answer() -> None:
    lines: list[Record] = [Asked("c1/1/x0", "command", ""), Completed("c1/1/x0"), Answered("c1/1/x0", cancelled=True)]
    assert not list(answers_of(enumerate(lines)))
    assert len(list(answers_of(enumerate(lines[:2])))) == 1


# ---------------------------------------------------------------- sessions and judges

COMPUTES = """
  do:
    repeat 200:
      n = n + 1
output said = said
output n = n
"""
SESSION = 'let n = 0\nlet said = ""\nparallel:\n  said = session "go"' + COMPUTES
JUDGE = 'let n = 0\nlet said = ""\nparallel:\n  do:\n    if **it is fine**:\n      said = "fine"' + COMPUTES
VVM = """
agent a(model="m")
def count(most):
  n = 0
  while n < most:
    n = n + 1
  return n
def one(task):
  if task == "go":
    return @a `go`(())
  return count(200)
found = pmap(["go", "count"], one)
export pack(found)
"""
MEMORY = (
    'agent a:\n  persist: true\nlet n = 0\nlet said = ""\nsession: a\n  prompt: "one"\n'
    'parallel:\n  said = resume: a\n    prompt: "go"' + COMPUTES + 'resume: a\n  prompt: "three"\n'
)
CANCELLED = """
let n = 0
try:
  parallel:
    session "go"
    do:
      repeat 200:
        n = n + 1
      throw "no more"
catch:
  session "two"
"""
PROGRAMS = {
    "cancelled": ("openprose", CANCELLED, "c1/2/b0/s0"),
    "memory": ("openprose", MEMORY, "c1/5/b0/s0"),
    "session": ("openprose", SESSION, "c1/3/b0/s0"),
    "judge": ("openprose", JUDGE, "c1/3/b0/j0"),
    "vvm": ("vvm", VVM, "c1/1/i0/s0"),
}


@pytest.fixture
def served_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a computing branch serve the event loop until no outside work is running, and then yield to others."""
    begin, breathe, found = LiveRequests.__init__, Scheduler.breathe, list[LiveRequests]()

    def begins(self: LiveRequests, *more: Any) -> None:
        begin(self, *more)
        found.append(self)

    async def breathes(self: Scheduler) -> None:
        while any(one._open for one in found):
            await asyncio.sleep(0)
        await breathe(self)

    monkeypatch.setattr(LiveRequests, "__init__", begins)
    monkeypatch.setattr(Scheduler, "breathe", breathes)
    monkeypatch.setattr(scheduler, "SLICE", 0.0)
    monkeypatch.setattr(scheduler, "PATIENCE", 0.0)


def program_run(name: str, **settings: Any) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return a function that runs a program, or resumes the run in the working directory, and returns its outputs and files."""
    language, text, _ = PROGRAMS[name]
    suffix = "prose" if language == "openprose" else "vvm"

    async def go() -> dict[str, Any]:
        here = Workspace(
            Settings().changed(cassette_mode="off", autodetect=False, vvm_state="filesystem", **settings),
            Start(Path.cwd(), f"p.{suffix}", notebook=False, language=languages.LANGUAGES[language]),
            asker=ScriptedPerson(available=False),
            resumption=how_to_resume(Path.cwd()),
        )
        try:
            await here.execute(text, f"p.{suffix}")
            await here.end(None)
            outputs = {name: verbatim(value) for name, (value, _) in here.outputs().items()}
        finally:
            await here.close()
        return {"outputs": same_run(json.dumps(outputs)), **files(Path.cwd())}

    return go


def same_run(text: str) -> str:
    """Return a text of a run without its id and times."""
    return re.sub(r"\d{8}-\d{6}-\w{6}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(?:Z|\+00:00)?", "#", text)


def files(place: Path) -> dict[str, str]:
    path = journal_in(place)
    assert path is not None
    found = [one for one in sorted(path.parent.rglob("*")) if one.is_file() and one.name not in (path.name, "lock")]
    return {str(one.relative_to(path.parent)): same_run(one.read_text()) for one in found}


def program_continues(record: Record) -> bool:
    """Return whether the program gets an answer, or its computing branch yields to others."""
    return isinstance(record, Answered) or (isinstance(record, Asked) and record.kind == "wait")


@pytest.mark.usefixtures("served_loop")
@pytest.mark.parametrize("name", ["session", "vvm"])
async def test_an_answer_next_to_a_computing_branch_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After a replay the files of the run are the same, byte for byte. An unbroken run has the answer at another
    place in the log."""
    script = {"sessions": {"go": {"reply": "gone", "delay": "20ms"}}}
    work, left = program_run(name, provider="scripted", script="script.json"), []
    for place in (tmp_path / "whole", tmp_path / "killed"):
        place.mkdir()
        monkeypatch.chdir(place)
        Path("script.json").write_text(json.dumps(script))
        if place.name == "killed":
            assert in_a_child(place, work, before=program_continues) is None
            assert [one.key for one in records(place) if isinstance(one, Completed)] == [PROGRAMS[name][2]]
        left.append(await work())
        left.append(await work())
    assert left[0] == left[1]
    assert left[2] == left[3]
    for one in left:
        one["state.md"] = "\n".join(sorted(one["state.md"].split("\n")))
    assert left[0] == left[2]
    assert not [one for one in records(tmp_path / "killed") if isinstance(one, Repeated)]


def answers(number: int) -> Callable[[Record], bool]:
    """Return a predicate that is true when the program gets its answer with this number."""
    counted = itertools.count(1)
    return lambda record: isinstance(record, Answered) and next(counted) == number


@pytest.mark.usefixtures("served_loop")
async def test_an_agents_memory_has_the_answer_that_arrived_before_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is asked again, because its addition to the memory is undone."""
    script = {"sessions": {"one": "ONE", "go": {"reply": "gone", "delay": "20ms"}, "three": "THREE"}}
    work, memories = program_run("memory", provider="scripted", script="script.json"), []
    for place in (tmp_path / "whole", tmp_path / "killed"):
        place.mkdir()
        monkeypatch.chdir(place)
        Path("script.json").write_text(json.dumps(script))
        if place.name == "killed":
            assert in_a_child(place, work, before=answers(2)) is None
        await work()
        memories.append({name: text for name, text in files(place).items() if name.startswith("agents/")})
    assert memories[0] == memories[1]
    assert "- go: gone" in memories[0]["agents/a/memory.md"]


@pytest.mark.usefixtures("served_loop")
async def test_an_answer_that_nothing_receives_counts_for_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its branch was waiting for its turn when the run was killed, and the resumed run cancels it."""
    Path("script.json").write_text(json.dumps({"sessions": {"go": {"reply": "gone", "delay": "20ms"}, "two": "TWO"}}))
    work = program_run("cancelled", provider="scripted", script="script.json", budget="1 sessions")
    assert in_a_child(tmp_path, work, before=program_continues) is None
    assert [one.key for one in records(tmp_path) if isinstance(one, Completed)] == [PROGRAMS["cancelled"][2]]
    monkeypatch.setattr(scheduler, "PATIENCE", 1e9)  # the computing branch does not yield
    for _ in range(2):  # and again from what the resumed run has recorded
        with pytest.raises(BudgetSpent):
            await work()
    cancelled = [one.key for one in records(tmp_path) if isinstance(one, Answered) and one.cancelled]
    assert cancelled == [PROGRAMS["cancelled"][2]]


async def test_a_session_that_fails_because_the_run_was_killed_counts_for_the_budget(tmp_path: Path) -> None:
    """Its provider records no steps. It had been asked, so the budget has no room for another session."""
    Path("script.json").write_text(json.dumps({"sessions": {"go": "gone", "two": "TWO"}}))
    text = 'try:\n  session "go"\ncatch:\n  session "two"\n'
    settings = Settings().changed(
        cassette_mode="off", autodetect=False, provider="scripted", script="script.json", budget="1 sessions"
    )

    async def go() -> None:
        how = how_to_resume(tmp_path)
        here = Workspace(
            settings,
            Start(tmp_path, "p.prose", notebook=False),
            asker=ScriptedPerson(available=False),
            resumption=replace(how, under_way="fail") if how is not None else None,
        )
        try:
            await here.execute(text, "p.prose")
        finally:
            await here.close()

    assert in_a_child(tmp_path, go, before=answer("c1/1/s0")) is None
    for _ in range(2):  # and again from what the resumed run has recorded
        with pytest.raises(BudgetSpent):
            await go()


@pytest.mark.usefixtures("served_loop")
async def test_a_session_with_steps_that_is_cancelled_after_a_kill_counts_for_the_budget(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.reset()
    server = ModelServer("openai", stub.openai_url, key="", model="ok-0")
    work = program_run("cancelled", provider="stub", providers={"stub": server}, budget="1 sessions")
    assert in_a_child(tmp_path, work, before=lambda record: isinstance(record, StepEnded)) is None
    assert stub.stats.requests == 1
    monkeypatch.setattr(scheduler, "PATIENCE", 1e9)  # it does not yield, and throws
    for _ in range(2):
        with pytest.raises(BudgetSpent):
            await work()
    assert stub.stats.requests == 1


@pytest.mark.usefixtures("served_loop")
async def test_an_edited_program_keeps_an_answer_that_waited_for_its_turn_when_the_run_was_killed(
    tmp_path: Path,
) -> None:
    Path("script.json").write_text(json.dumps({"sessions": {"go": {"reply": "gone", "delay": "20ms"}}}))
    work = program_run("session", provider="scripted", script="script.json")
    assert in_a_child(tmp_path, work, before=program_continues) is None
    path, language = journal_in(tmp_path), languages.LANGUAGES["openprose"]
    assert path is not None
    keep = earlier_run(path, language, tmp_path)
    Path("script.json").write_text('{"sessions": {}}')  # it answers nothing
    here = Workspace(
        Settings().changed(cassette_mode="off", autodetect=False, provider="scripted", script="script.json"),
        Start(tmp_path, "p.prose", notebook=False, language=language, keep=keep),
        asker=ScriptedPerson(available=False),
    )
    try:
        await here.execute(f"{SESSION}output more = said\n", "p.prose")
        await here.end(None)
        assert verbatim(here.outputs()["more"][0]) == "gone"
    finally:
        await here.close()


@pytest.mark.usefixtures("served_loop")
@pytest.mark.parametrize(("name", "model", "said"), [("session", "ok-0", ANSWER), ("judge", "json-0-yes", "fine")])
async def test_a_model_is_not_asked_again_for_an_answer_that_waits_for_its_turn(
    stub: StubServer, tmp_path: Path, name: str, model: str, said: str
) -> None:
    stub.reset()
    server = ModelServer("openai", stub.openai_url, key="", model="it", aliases={"it": model})
    work = program_run(name, provider="stub", providers={"stub": server})
    assert in_a_child(tmp_path, work, before=program_continues) is None
    assert stub.stats.requests == 1
    outputs = json.loads((await work())["outputs"])
    assert outputs == {"said": said, "n": 200}
    assert stub.stats.requests == 1
