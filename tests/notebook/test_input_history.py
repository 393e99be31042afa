"""History across sessions."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from prose_kernel.notebook.input_history import InputHistory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history.sqlite"


def test_history_outlives_its_kernel(path: Path) -> None:
    first = InputHistory(path)
    first.add(1, "let a = 1", "a: number = 1")
    first.add(2, 'exec "ls"', None)
    first.close()
    second = InputHistory(path)
    second.add(1, "let b = 2", None)
    assert second.tail(10) == [
        (1, 1, "let a = 1", "a: number = 1"),
        (1, 2, 'exec "ls"', None),
        (2, 1, "let b = 2", None),
    ]
    assert second.tail(1) == [(2, 1, "let b = 2", None)]
    assert second.tail(0) == []
    second.close()


def test_ranges_count_from_this_session(path: Path) -> None:
    for number in (1, 2):
        history = InputHistory(path)
        for line in (1, 2, 3):
            history.add(line, f"cell {number}.{line}", None)
        if number == 1:
            history.close()
    assert [e[2] for e in history.range(0, 2, None)] == ["cell 2.2", "cell 2.3"]
    assert [e[2] for e in history.range(-1, 1, 3)] == ["cell 1.1", "cell 1.2"]
    assert [e[2] for e in history.range(1, 3, 4)] == ["cell 1.3"]
    history.close()


def test_search_takes_patterns(path: Path) -> None:
    history = InputHistory(path)
    for line, code in enumerate(["let a = 1", 'exec "ls"', "let a = 1", "let b = 2"], start=1):
        history.add(line, code, None)
    assert [e[1] for e in history.search("let*", None, False)] == [1, 3, 4]
    assert [e[1] for e in history.search("let*", None, True)] == [3, 4]
    assert [e[1] for e in history.search("*", 2, False)] == [3, 4]
    assert history.search("nothing*", None, False) == []
    history.close()


@pytest.mark.parametrize("where", [None, Path("/proc/nowhere/history.sqlite")])
def test_without_a_file_the_session_still_has_its_history(where: Path | None) -> None:
    history = InputHistory(where)
    history.add(1, "let a = 1", None)
    history.add(2, "let \ud800 = 2", None)
    assert [e[2] for e in history.tail(5)] == ["let a = 1", "let ? = 2"]
    assert [e[2] for e in history.range(0, 1, 2)] == ["let a = 1"]
    assert [e[2] for e in history.search("*a*", None, True)] == ["let a = 1"]
    history.close()


def test_a_thread_that_cannot_be_started_costs_no_cell(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    history = InputHistory(path)
    with monkeypatch.context() as at_the_limit:
        at_the_limit.setattr(threading.Thread, "start", refuse)
        history.add(1, "let a = 1", None)
        assert history.tail(10) == []
    history.add(2, "let b = 2", None)
    assert [entry[1:3] for entry in history.tail(10)] == [(1, "let a = 1"), (2, "let b = 2")]
    history.close()


def test_a_broken_file_does_not_disturb_others(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("this is no database, and long enough to be noticed as such\n" * 20)
    history = InputHistory(path)
    history.add(1, "let a = 1", None)
    assert [e[2] for e in history.tail(5)] == ["let a = 1"]
    history.close()
