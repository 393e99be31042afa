"""`prose gates` and `prose gate …` with a run in another process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest

from prose_kernel.cli.main import main

PROGRAM = """gate go:
  prompt: "Publish \\"it\\"?"
  timeout: "1h"
exec "echo gone"
"""


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[forked.Command]:
    """Start a run that waits at the gate `go`."""
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text(PROGRAM)
    with forked.Command("run", "p.prose", "--gates", "wait") as running:
        line = running.stderr.readline()
        assert line.startswith("gate go of run "), line
        assert "prose gate approve" in line
        yield running


def test_a_gate_is_listed_approved_and_logged(waiting: forked.Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gates"]) == 0
    head, prompt, times, command = capsys.readouterr().out.splitlines()
    run = head.removeprefix("go  (run ").removesuffix(")")
    assert Path(".prose/runs", run).is_dir()
    assert prompt == '  Publish "it"?'
    assert times.startswith("  opened 2")
    assert command == f"  prose gate approve {run} go"

    assert main(["gate", "approve", run, "go", "--comment", "looks right"]) == 0
    assert capsys.readouterr().out == f"gate go of run {run}: approved by user\n"
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (0, "gone\n")
    assert "gate go: approved by user (command line) (looks right)" in err

    assert main(["gate", "log", "go"]) == 0
    created, approved = capsys.readouterr().out.splitlines()
    assert "created" in created
    assert "approved" in approved
    assert "looks right" in approved
    assert main(["gates"]) == 0
    assert capsys.readouterr().out == "no gate waits for a decision\n"
    assert main(["gate", "approve", "go"]) == 1
    assert "already resolved" in capsys.readouterr().err


def test_a_non_interactive_run_in_sqlite_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text(PROGRAM)
    with forked.Command("run", "p.prose", "--state=sqlite") as running:
        assert running.stderr.readline().startswith("gate go of run ")
        assert main(["gates"]) == 0
        assert "  prose gate approve 2" in capsys.readouterr().out
        assert main(["gate", "approve", "go", "--comment", "looks right"]) == 0
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (0, "gone\n")
    assert "gate go: approved by user (command line) (looks right)" in err
    assert main(["gate", "log", "go"]) == 0
    assert "looks right" in capsys.readouterr().out


def test_prose_reject_rejects_a_gate(waiting: forked.Command) -> None:
    (run,) = [p.name for p in Path(".prose/runs").iterdir()]
    assert main(["reject", run, "go", "--reason", "too early"]) == 0
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (1, "")
    assert "[E213]" in err


def test_refused_decisions(
    waiting: forked.Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "approve", "nonsense"]) == 1
    assert main(["gate", "approve", "no-such-run", "go"]) == 1
    assert main(["gate", "approve", "go", "--as", "ops"]) == 1
    assert "ops may not approve" in capsys.readouterr().err
    assert main(["gate", "approve", "a", "b", "c"]) == 2
    assert main(["gate", "approve", "a", "b", "--run", "c"]) == 2
    monkeypatch.setenv("PROSE_JOB", "1")
    assert main(["gate", "approve", "go"]) == 1
    assert "from inside a run" in capsys.readouterr().err
    assert waiting.poll() is None


def test_without_runs_no_gate_waits(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gates"]) == 0
    assert capsys.readouterr().out == "no gate waits for a decision\n"
    assert main(["gates", "--run", "x"]) == 1


def test_a17_text_of_a_record_cannot_control_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    gates = Path(".prose/runs/r/gates")
    gates.mkdir(parents=True)
    evil = "\x1b]0;title\x07"
    record = {"id": evil, "name": "go", "prompt": evil, "allow": [evil], "timeout": "1h", "timeout_seconds": 3600}
    record |= {"on_reject": "throw", "execution_id": None, "attempt": 1, "process": "1:0"}
    record |= {"created_at": "2026-01-01T00:00:00Z", "timeout_at": "9026-01-01T00:00:00Z"}
    event = {"gate_id": "go", "event_type": "rejected", "principal": evil, "timestamp": "2026-01-01T00:00:00Z"}
    (gates / "x.pending.json").write_text(json.dumps(record))
    (gates / "audit.jsonl").write_text(json.dumps(event) + "\n")
    assert main(["gates"]) == main(["gate", "log", "go"]) == 0
    assert "\x1b" not in capsys.readouterr().out
