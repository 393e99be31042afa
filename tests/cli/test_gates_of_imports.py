"""Gates of imported programs have the module in their names (openprose.md 5.10, amendment A35)."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage.test_gate_boundary import running

from prose_kernel.cli.main import main
from prose_kernel.errors import GateRefused
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.storage.gates.second_process import Decider, gate_log, pending_gates, resolve_gate

GATE = 'gate go:\n  prompt: "Publish?"\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROSE_JOB", raising=False)
    Path("p.prose").write_text(
        f'use "./inner.prose" as inner\n{GATE}exec "echo outer >> ran"\ninner()\nexec "echo end >> ran"\n'
    )
    Path("inner.prose").write_text(f'use "./deep.prose" as deep\n{GATE}exec "echo inner >> ran"\ndeep()\n')
    Path("deep.prose").write_text(f'{GATE}exec "echo deep >> ran"\n')


@pytest.mark.parametrize(
    ("options", "status", "ran"),
    [
        (["--yes", "go"], 3, "outer"),
        (["--yes", "go", "--yes", "inner:go"], 3, "outer inner"),
        (["--yes", "go", "--yes", "inner:go", "--yes", "deep:go"], 2, ""),
        (["--yes", "go", "--yes", "inner:go", "--yes", "inner:deep:go"], 0, "outer inner deep end"),
        (["--yes", "go", "--no", "inner:go"], 1, "outer"),
        (["--yes", "inner:go"], 3, ""),
    ],
)
def test_a35_an_option_decides_the_gate_of_the_module_that_it_names(options: list[str], status: int, ran: str) -> None:
    Path("ran").touch()
    assert main(["run", "p.prose", *options]) == status
    assert Path("ran").read_text().split() == ran.split()


@pytest.mark.parametrize(
    ("option", "gate", "hint"),
    [("--yes", "deep:go", "inner:deep:go"), ("--no", "inner:deep:og", "inner:deep:go"), ("--yes", "gone", None)],
)
def test_an_option_for_no_gate_is_refused_before_anything_runs(
    option: str, gate: str, hint: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "p.prose", "--yes", "go", option, gate]) == 2
    message = f"Error: {option} {gate}: the program has no such gate; its gates are go, inner:deep:go, inner:go\n"
    assert capsys.readouterr().err == message + (f"hint: did you mean `{hint}`?\n" if hint else "")
    assert not Path("ran").exists() and not Path(".prose").exists()


def test_a_gate_of_a_called_contract_file_is_found_only_at_run_time(capsys: pytest.CaptureFixture[str]) -> None:
    Path("helper.prose.md").write_text("---\nkind: function\nname: helper\n---\n\n### Execution\n\nAsk.\n")
    Path("c.prose").write_text("let x = call helper\n")
    Path("prose.toml").write_text('profile = "prosescript"\n')
    assert main(["run", "c.prose", "--yes", "go"]) == 2
    assert "--yes go: the program has no such gate; it has no gates" in capsys.readouterr().err
    main(["run", "c.prose", "--yes", "helper:go"])
    assert "no such gate" not in capsys.readouterr().err


def test_a_resumed_run_refuses_an_option_for_no_gate_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "p.prose"]) == 3
    (run,) = Path(".prose/runs").iterdir()
    capsys.readouterr()
    assert main(["run", "--resume", run.name, "--yes", "og"]) == 2
    assert "--yes og: the program has no such gate" in capsys.readouterr().err


def test_a_changed_program_may_have_lost_a_gate_that_was_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    Path("q.prose").write_text('exec "echo one >> ran"\n' + GATE)
    assert main(["run", "q.prose", "--no", "go"]) == 1
    (run,) = Path(".prose/runs").iterdir()
    Path("q.prose").write_text('exec "echo one >> ran"\n')
    assert main(["run", "--resume", run.name, "--changed", "--yes-rerun"]) == 0
    assert main(["run", "--resume", run.name, "--changed", "--yes-rerun", "--no", "gi"]) == 2


def test_the_hint_quotes_the_name_of_a_called_contract_file(capsys: pytest.CaptureFixture[str]) -> None:
    node = "---\nkind: function\nname: say it\n---\n\n### Execution\n\n```prose\n" + GATE + 'return "x"\n```\n'
    Path("say it.prose.md").write_text(node)
    Path("c.prose").write_text('output x = call "say it"\n')
    given = ["run", "--profile", "prosescript", "c.prose"]
    assert main(given) == 3
    hint = "hint: approve it in advance: --yes 'say it:go', or %gate approve 'say it:go' in a notebook\n"
    assert hint in capsys.readouterr().err
    assert main([*given, "--yes", "say it:go"]) == 0


def test_the_command_that_approves_quotes_the_name_of_a_gate() -> None:
    Path("say it.prose.md").write_text(
        "---\nkind: function\nname: say it\n---\n\n### Execution\n\n```prose\n" + GATE + 'return "x"\n```\n'
    )
    Path("p.prose").write_text('output x = call "say it"\n')
    state, clock = Path(".prose"), SystemClock()
    with running("--profile", "prosescript", "--gates=wait", expects="gate say it:go of run") as run:
        (gate,) = pending_gates(state, clock)
        assert gate.command == f"prose gate approve {gate.record.run} 'say it:go'"
        resolve_gate(state, "approve", gate.record.spelled, clock=clock, by=Decider({}))
        assert run.wait(30) == 0


def test_a35_the_command_line_names_the_module_too() -> None:
    state, clock = Path(".prose"), SystemClock()

    def approve(name: str) -> str:
        return resolve_gate(state, "approve", name, clock=clock, by=Decider({})).id

    with running("--gates=wait", "--yes", "go", expects="gate inner:go--2 of run") as run:
        (gate,) = pending_gates(state, clock)
        assert (gate.record.spelled, gate.record.request.name) == ("inner:go--2", "inner:go")
        for name in ("go", "go--2", "deep:go"):
            with pytest.raises(GateRefused):
                approve(name)
        assert approve(gate.command.split()[4]) == "inner:go--2"
        assert run.stderr is not None
        while "gate inner:deep:go--3 of run" not in run.stderr.readline():
            assert run.poll() is None
        assert approve("inner:deep:go") == "inner:deep:go--3"
        run.communicate(timeout=30)
        assert run.returncode == 0
    (approved,) = (e for e in gate_log(state, "inner:deep:go--3", clock=clock) if e.event_type == "approved")
    assert approved.principal == "user"
