"""State directories are made by the first process, even if two start at the same time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prose_kernel.access import atomic


def test_two_processes_may_make_a_directory_of_state_in_parallel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def another_one_is_faster(unfinished: str, name: str, **directories: int) -> None:
        monkeypatch.setattr(os, "replace", replace)
        atomic.keep_out_of_git(str(tmp_path / ".vvm"))
        replace(unfinished, name, **directories)

    monkeypatch.setattr(os, "replace", another_one_is_faster)
    atomic.keep_out_of_git(str(tmp_path / ".vvm"))
    assert [(path.name, path.read_text()) for path in (tmp_path / ".vvm").iterdir()] == [(".gitignore", "*\n")]


def test_a_removed_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def take_away(unfinished: str, name: str, **_: int) -> None:
        raise FileNotFoundError(unfinished)

    monkeypatch.setattr(os, "replace", take_away)
    with pytest.raises(FileNotFoundError):
        atomic.keep_out_of_git(str(tmp_path / ".vvm"))
