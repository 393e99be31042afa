"""A41: standard streams that are closed, full or broken, for every subcommand."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import forked
import pytest

from prose_kernel.cli.main import COMMANDS

CALLS = {
    "run": ["run p.prose", "run p.prose --format json", "run n.ipynb", "run -", "run missing.prose"],
    "runs": ["runs", "runs show 2", "runs rm 2 --yes"],
    "report": ["report 2"],
    "plan": ["plan p.prose"],
    "what-if": ["what-if 2 c1/1/x0=two"],
    "upgrade": ["upgrade p.prose --dry-run"],
    "compile": ["compile p.prose", "compile -"],
    "fmt": ["fmt -"],
    "check": ["check n.ipynb"],
    "judge": ["judge calibrate"],
    "graph": ["graph p.prose"],
    "export": ["export n.ipynb"],
    "notebook": ["notebook p.prose"],
    "test": ["test p.prose"],
    "eval": ["eval missing.toml"],
    "gates": ["gates"],
    "gate": ["gate approve go"],
    "approve": ["approve go"],
    "reject": ["reject go"],
    "cassette": ["cassette show", "cassette tidy"],
    "tasks": ["tasks list"],
    "help": ["help", "help run"],
    "explain": ["explain E219"],
    "examples": ["examples"],
    "exercises": ["exercises"],
    "lsp": ["lsp"],
    "install": ["install a/b"],
    "programs": ["programs"],
    "trust": ["trust", "trust missing.toml"],
    "doctor": ["doctor --no-start"],
    "update": ["update --help"],
    "": ["--version", "--help", "nonsense"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a program, a run of it, and a notebook."""
    tmp_path = tmp_path_factory.mktemp("made")
    (tmp_path / "p.prose").write_text('let a = exec "echo one"\noutput r = a\n')
    cell = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": "let a = 1",
    }
    head = {"kernelspec": {"name": "prose", "display_name": "Prose", "language": "openprose"}}
    book = {"cells": [cell], "metadata": head, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "n.ipynb").write_text(json.dumps(book))
    forked.prose("run", "p.prose", cwd=tmp_path)
    return tmp_path


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def test_a41_every_subcommand_is_tried() -> None:
    assert CALLS.keys() - {""} == COMMANDS.keys(), "add a call of each command to CALLS"


@pytest.mark.parametrize("call", [call for calls in CALLS.values() for call in calls])
def test_a41_every_subcommand_runs_with_closed_or_full_streams(call: str, place: Path) -> None:
    words = shlex.split(call)
    if words[:1] == ["what-if"]:  # it refuses runs of other directories, and creates a second run
        shutil.rmtree(place / ".prose")
        forked.prose("run", "p.prose", cwd=place)
        (run,) = (place / ".prose/runs").iterdir()
        words[1] = run.name
    closed = forked.prose(*words, cwd=place, broken=dict.fromkeys(range(3), "closed"))
    assert (closed.returncode in range(4), closed.stdout, closed.stderr) == (True, "", "")
    whole = forked.prose(*words, cwd=place)
    assert whole.returncode in (range(1) if words[:1] in (["what-if"], ["report"]) else range(4)), whole.stderr
    full = forked.prose(*words, cwd=place, broken={1: "full"})
    assert "Internal error" not in full.stderr and "Traceback" not in full.stderr
    if whole.stdout:
        assert full.returncode == (whole.returncode or 1)
        assert full.stderr.splitlines()[-1] == "Error: standard output could not be written: no space left on device"


@pytest.mark.parametrize(("how", "reason"), [("closed", "it is closed"), ("gone", "broken pipe")])
@pytest.mark.parametrize("call", ["run p.prose", "run p.prose --format json", "runs", "explain E219", "--version"])
def test_a41_lost_output_is_an_error(call: str, how: str, reason: str, place: Path) -> None:
    lost = forked.prose(*shlex.split(call), cwd=place, broken={1: how})
    assert lost.returncode == 1
    assert lost.stderr.splitlines()[-1] == f"Error: standard output could not be written: {reason}"
    assert "Internal error" not in lost.stderr
    silent = forked.prose(*shlex.split(call), cwd=place, broken={2: "full"})
    assert (silent.returncode, bool(silent.stdout)) == (0, True)


@pytest.mark.parametrize("suffix", ["prose", "ipynb"])
def test_a41_a_run_ends_when_its_output_pipe_is_broken(suffix: str, place: Path) -> None:
    program = 'exec "yes"\noutput never = "reached"\n'
    (place / "y.prose").write_text(program)
    book = json.loads((place / "n.ipynb").read_text())
    book["cells"][0]["source"] = program
    (place / "y.ipynb").write_text(json.dumps(book))
    lost = forked.prose("run", f"y.{suffix}", cwd=place, broken={1: "gone"}, timeout=30)
    first, *_, last = lost.stderr.splitlines()
    assert (lost.returncode, first) == (1, "interrupted")
    assert last == "Error: standard output could not be written: broken pipe"
    assert "prose run --resume" in lost.stderr or suffix == "ipynb"


@pytest.mark.parametrize("name", ["", " "])
def test_a41_no_run_has_an_empty_name(name: str, place: Path) -> None:
    removed = forked.prose("runs", "rm", name, "--yes", cwd=place)
    assert (removed.returncode, removed.stderr.splitlines()[0]) == (2, "Error: the name of a run is empty")
    forked.prose("run", "p.prose", cwd=place)
    ambiguous = forked.prose("runs", "rm", "2", "--yes", cwd=place)
    assert (ambiguous.returncode, "2 runs begin with 2" in ambiguous.stderr) == (2, True)
    assert len(list((place / ".prose/runs").iterdir())) == 2
