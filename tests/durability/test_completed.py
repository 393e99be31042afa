"""Amendment A51: the result of a command is in the journal when it ends, also while the program computes in one step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from killing import how_to_resume, in_a_child, journal_in
from models.people import ScriptedPerson

from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.journal_records import Answered, Asked, Completed, Record
from prose_kernel.storage.journal_reading import read

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
ALONE = 'exec "echo x >> ran"\nexec "echo y >> ran"\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def work(text: str) -> Callable[[], Awaitable[None]]:
    async def go() -> None:
        here = Workspace(
            Settings().changed(autodetect=False),
            Start(Path.cwd(), "p.prose", notebook=False),
            asker=ScriptedPerson(available=False),
            resumption=how_to_resume(Path.cwd()),
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
        return isinstance(record, Asked) and "after" in record.said

    assert in_a_child(tmp_path, work(ONE_STEP), before=second) is None
    assert (tmp_path / "ran").read_text() == "x\n"
    assert [type(record) for record in records(tmp_path)][-1] is Completed
    await work(ONE_STEP)()
    assert (tmp_path / "ran").read_text() == "x\nafter\n"


async def test_next_to_other_requests_a_result_is_recorded_before_its_turn(tmp_path: Path) -> None:
    """Killed before the program gets its first answer: of the commands that had ended none runs again."""
    assert in_a_child(tmp_path, work(TOGETHER), before=lambda record: isinstance(record, Answered)) is None
    known = [record.key for record in records(tmp_path) if isinstance(record, Completed)]
    assert known
    before = (tmp_path / "ran").read_text().split()
    await work(TOGETHER)()
    ran = (tmp_path / "ran").read_text().split()
    assert set(ran) == {"x", "y", "z"}
    for key, word in zip(("c1/1/b0/x0", "c1/1/b1/x0", "c1/1/b2/x0"), "xyz", strict=True):
        assert ran.count(word) == 1 if key in known or word not in before else ran.count(word) == 2


async def test_a_command_alone_is_recorded_once(tmp_path: Path) -> None:
    await work(ALONE)()
    assert not [record for record in records(tmp_path) if isinstance(record, Completed)]
