"""`--profile` of the commands that read programs (docs/reference/prose-md.md 3.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prose_kernel.cli.main import main

SCRIPT = "let ready = 1\nif ready:\n  return {\n    a: 1\n    b: ready\n  }\n"
CANONICAL = "let ready = 1\nif ready:\n  return { a: 1, b: ready }\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.prose"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("command", ["compile", "fmt"])
def test_a_script_is_compiled_and_formatted(program: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--profile", "prosescript", "p.prose"]) == 0
    assert capsys.readouterr().out == CANONICAL
    assert main([command, "p.prose"]) == 1


def test_strict_refuses_statements_that_prosescript_keeps(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--profile", "prosescript", "--strict", "--format", "json", "p.prose"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (found["code"], found["line"]) == ("E004", 4)


def test_conditions_and_steps_are_shown(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    front = "---\nname: brief\nkind: function\n---\n### Parameters\n- `topic`: it\n"
    program.with_name("brief.prose.md").write_text(front)
    program.write_text("let n = 3\nif the text is long enough:\n  call brief\n    topic: n\n")
    assert main(["check", "--profile", "prosescript", "p.prose"]) == 1
    assert "**the text is long enough**" in capsys.readouterr().out
    assert main(["graph", "--profile", "prosescript", "p.prose"]) == 0
    assert "call brief" in capsys.readouterr().out


def test_a_script_runs_and_its_value_is_printed(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--profile", "prosescript", "p.prose"]) == 0
    assert capsys.readouterr().out == "a: 1\nb: 1\n"


def test_a_setting_chooses_the_profile(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("prose.toml").write_text('profile = "prosescript"\n')
    assert main(["run", "p.prose"]) == 0
    assert capsys.readouterr().out == "a: 1\nb: 1\n"


def test_cells_of_a_notebook_are_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": SCRIPT}
    kernel = {"kernelspec": {"name": "prose", "language": "prose", "display_name": "Prose"}}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": [cell]}
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook))
    assert main(["run", "n.ipynb"]) == 2
    notebook["metadata"] = {**kernel, "prose": {"profile": "prosescript"}}
    path.write_text(json.dumps(notebook))
    assert main(["run", "n.ipynb"]) == 0
    cell["source"] = "%%prose --profile prosescript\n" + SCRIPT
    notebook["metadata"] = kernel
    path.write_text(json.dumps(notebook))
    assert main(["run", "n.ipynb"]) == 0
