"""`prose tasks` on runs of live, killed and ended kernels."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import forked
import pytest

from prose_kernel.cli.main import main

KERNEL = Path(__file__).parents[1] / "processes" / "tasks" / "kernel.py"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    return tmp_path / ".prose"


class Kernel:
    """Another process, which owns the run `one` with these tasks."""

    def __init__(self, place: Path, *commands: str) -> None:
        words = (KERNEL.read_text(), str(place), str(place.parent / "private"), *commands)
        self.process = forked.Command(*words, cwd=Path.cwd(), package=Path(__file__).parents[2])
        while (line := self.process.stdout.readline().strip()) != "ready":
            assert line, "the kernel did not start"

    def kill(self) -> None:
        self.process.__exit__()


@pytest.fixture
def kernels(place: Path) -> Iterator[list[Kernel]]:
    running: list[Kernel] = []
    yield running
    for kernel in running:
        kernel.kill()


def tasks_output(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["tasks", *words]) == status
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_without_tasks_the_list_is_empty(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tasks_output(capsys, "list") == "no active tasks\n"
    assert tasks_output(capsys, "list", "--all") == "no tasks\n"
    assert "there is no task 1" in tasks_output(capsys, "show", "1", status=1)
    assert "there is no run two" in tasks_output(capsys, "list", "--run", "two", status=1)


def test_the_tasks_of_a_live_kernel_are_shown_and_not_touched(
    place: Path, kernels: list[Kernel], capsys: pytest.CaptureFixture[str]
) -> None:
    kernels.append(Kernel(place, "echo hello; sleep 600"))
    assert tasks_output(capsys, "list") == "one  1  running  echo hello; sleep 600\n"
    shown = tasks_output(capsys, "show", "1")
    assert shown.startswith("task 1 of run one: running\n")
    assert str(kernels[0].process.pid) not in shown
    assert tasks_output(capsys, "list") == "one  1  running  echo hello; sleep 600\n"


def test_a_stop_is_carried_out_by_the_kernel_that_owns_the_task(
    place: Path, kernels: list[Kernel], capsys: pytest.CaptureFixture[str]
) -> None:
    kernels.append(Kernel(place, "trap '' TERM; while :; do sleep 0.1; done"))
    assert (
        tasks_output(capsys, "stop", "one", "1") == "task 1 was asked to end; run the same command again to kill it\n"
    )
    assert "cancelling" in tasks_output(capsys, "list")
    assert tasks_output(capsys, "stop", "1") == "task 1 has ended\n"
    while "cancelling" in tasks_output(capsys, "list"):
        pass
    assert tasks_output(capsys, "list", "--all").split()[2] == "cancelled"
    assert tasks_output(capsys, "stop", "1") == "task 1 has ended already: cancelled\n"


def test_tasks_of_a_killed_kernel_are_interrupted(
    place: Path, kernels: list[Kernel], capsys: pytest.CaptureFixture[str]
) -> None:
    kernels.append(Kernel(place, "echo one; sleep 600", "sleep 601"))
    while tasks_output(capsys, "output", "1") != "one\n":
        pass
    kernels[0].kill()
    assert tasks_output(capsys, "list") == "no active tasks\n"
    everything = tasks_output(capsys, "list", "--all")
    assert everything.count("interrupted (the kernel was gone)") == 2
    assert tasks_output(capsys, "output", "1") == "one\n"
    assert tasks_output(capsys, "output", "--log", "1") == "one\n"
    assert "has ended already" in tasks_output(capsys, "stop", "2")


def test_wrong_arguments_are_usage_errors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage" in tasks_output(capsys, "show", status=2)
    assert "give a TASK" in tasks_output(capsys, "show", "a", "b", "c", status=2)


def test_a19_records_that_cannot_be_read_hide_nothing_else(
    place: Path, kernels: list[Kernel], capsys: pytest.CaptureFixture[str]
) -> None:
    kernels.append(Kernel(place, "sleep 600"))
    broken = place / "runs" / "broken" / "tasks"
    broken.mkdir(parents=True)
    (broken / "tasks.sqlite").write_bytes(b"this is no database, and long enough to be one" * 100)
    listed = tasks_output(capsys, "list", status=1)
    assert "sleep 600" in listed
    assert "run broken: the records of its tasks cannot be read: file is not a database" in listed
    assert "running" in tasks_output(capsys, "show", "one", "1")
    assert "Internal error" not in tasks_output(capsys, "show", "broken", "1", status=1)
    assert "Internal error" not in tasks_output(capsys, "stop", "broken", "1", status=1)


@pytest.mark.parametrize("damaged", [b"", b"{\xff", b"null"])
def test_a49_a_damaged_record_hides_no_other(
    place: Path, kernels: list[Kernel], capsys: pytest.CaptureFixture[str], damaged: bytes
) -> None:
    kernels.append(Kernel(place, "sleep 600", "sleep 601"))
    kernels[0].kill()
    with closing(sqlite3.connect(place / "runs" / "one" / "tasks" / "tasks.sqlite")) as store, store:
        store.execute("update tasks set record = cast(? as text) where number = 1", (damaged,))
    everything = tasks_output(capsys, "list", "--all").splitlines()
    assert "damaged" in everything[0] and "sleep 601" in everything[1]
    assert "sleep 601" in tasks_output(capsys, "show", "2")
