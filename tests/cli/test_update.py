"""`prose update` migrates old directories, and reports its changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from prose_kernel.cli.main import main


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".prose").mkdir()
    return tmp_path / ".prose"


def test_an_old_workspace_is_migrated(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "execution" / "run-1").mkdir(parents=True)
    (workspace / "execution" / "run-1" / "state.md").write_text("kept")
    (workspace / "state.json").write_text("{}")
    assert main(["update"]) == 0
    assert (workspace / "runs" / "run-1" / "state.md").read_text() == "kept"
    assert (workspace / "agents").is_dir()
    assert sorted(p.name for p in workspace.iterdir()) == ["agents", "runs"]
    assert capsys.readouterr().out.splitlines() == [
        ".prose: renamed execution/ to runs/",
        ".prose: created agents/",
        ".prose: deleted state.json",
    ]


def test_a_second_update_changes_nothing(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["update"])
    capsys.readouterr()
    assert main(["update"]) == 0
    assert capsys.readouterr().out == ".prose: up to date, nothing to do\n"


def test_runs_of_both_layouts_are_merged(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("execution/a", "execution/b", "runs/b"):
        (workspace / run).mkdir(parents=True)
    (workspace / "runs/b/new").touch()
    assert main(["update"]) == 0
    assert sorted(p.name for p in (workspace / "runs").iterdir()) == ["a", "b"]
    assert (workspace / "runs/b/new").exists()
    assert "were not moved" in capsys.readouterr().out


def test_without_a_workspace_nothing_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["update"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_obstacle_is_named(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "agents").write_text("a file")
    assert main(["update"]) == 2
    assert "agents" in capsys.readouterr().err
