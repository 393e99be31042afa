"""Digests of the files that commands declare."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from prose_kernel.access import plain_files
from prose_kernel.storage import file_digests
from prose_kernel.storage.file_digests import FileDigests


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make(place: Path, *names: str) -> None:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)


@pytest.mark.parametrize(
    ("globs", "names"),
    [
        (["*.txt"], ["a.txt"]),
        (["**/*.txt"], ["a.txt", "d/b.txt", "d/e/c.txt"]),
        (["d"], ["d/b.txt", "d/e/c.txt"]),
        (["d/"], ["d/b.txt", "d/e/c.txt"]),
        (["./d/*"], ["d/b.txt"]),
        (["a.txt", "a.*", "nothing"], ["a.txt"]),
        (["**"], ["a.txt", "d/b.txt", "d/e/c.txt"]),
        ([], []),
    ],
)
def test_globs_match_files_and_whole_directories(tmp_path: Path, globs: list[str], names: list[str]) -> None:
    make(tmp_path, "a.txt", "d/b.txt", "d/e/c.txt", ".git/x.txt", ".prose/y.txt", "d/.vvm/z.txt")
    assert FileDigests().matching(str(tmp_path), globs) == {name: sha256(name) for name in names}


def test_only_regular_files_have_digests(tmp_path: Path) -> None:
    make(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "broken").symlink_to("nothing")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert FileDigests().matching(str(tmp_path), ["*"]) == {"a": sha256("a"), "link": sha256("a")}
    assert FileDigests().digests(str(tmp_path), ["a", "pipe", "nothing"]) == {"a": sha256("a")}


def test_a_changed_file_has_another_digest_also_if_its_size_and_time_are_the_same(tmp_path: Path) -> None:
    path, digests = tmp_path / "a", FileDigests()
    path.write_text("one")
    os.utime(path, (1, 1))
    assert digests.matching(str(tmp_path), ["a"]) == {"a": sha256("one")}
    path.write_text("two")
    os.utime(path, (1, 1))
    assert digests.matching(str(tmp_path), ["a"]) == {"a": sha256("two")}


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 2), ("MOST_BYTES", 2), ("MOST_ENTRIES", 2)])
def test_the_cost_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    make(tmp_path, "a", "b", "c")
    assert FileDigests().matching(str(tmp_path), ["*"]) is not None
    monkeypatch.setattr(file_digests, limit, value)
    assert FileDigests().matching(str(tmp_path), ["*"]) is None


def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("x")

    def growing(status: os.stat_result) -> tuple[int, int, int, int]:
        with path.open("a") as file:
            file.write("x")
        return path.stat().st_size, 0, 0, 0

    monkeypatch.setattr(plain_files, "stamp", growing)
    assert FileDigests().matching(str(tmp_path), ["a"]) is None
    assert FileDigests().digests(str(tmp_path), ["a"]) == {}


def test_a_file_that_cannot_be_read_to_its_end_has_no_digest() -> None:
    assert FileDigests().matching("/proc/self", ["mem"]) is None
    assert FileDigests().digests("/proc/self", ["mem"]) == {}


def test_an_unchanged_file_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, digests = tmp_path / "a", FileDigests()
    path.write_text("one")
    os.utime(path, (1, 1))
    assert digests.matching(str(tmp_path), ["a"]) == {"a": sha256("one")}
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    assert digests.matching(str(tmp_path), ["a"]) == {"a": sha256("one")}
    path.unlink()
    monkeypatch.undo()
    assert digests.matching(str(tmp_path), ["a"]) == {}


def test_a_path_with_a_nul_character_matches_nothing(tmp_path: Path) -> None:
    assert FileDigests().matching(str(tmp_path), ["a\0b", "a\0b/*"]) == {}
    assert FileDigests().digests(str(tmp_path), ["a\0b"]) == {}
