"""The examples of docs/how-to/evaluation.md give the results that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prose_kernel.cli.main import main
from prose_kernel.evaluation.assertions import PythonFunction
from prose_kernel.evaluation.spec import read

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "evaluation.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_prints_the_results_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"triage.prose": "prose", "cases.jsonl": "jsonl", "triage.eval.toml": "toml", "replies.yaml": "yaml"}
    for name, language in files.items():
        Path(name).write_text(blocks(language)[0], encoding="utf-8")
    for line in "".join(blocks("sh")).splitlines():
        capsys.readouterr()
        assert main(line.split()[1:]) == 0
    shown = capsys.readouterr().out
    first, _, rest = blocks("text")[0].partition("\nnot passed")
    assert shown.startswith(first)
    assert shown.endswith(f"not passed{rest}")
    assert "default against the baseline triage.baseline.json: 67 % then, 67 % now" in shown


def test_the_specifications_of_the_page_are_read(tmp_path: Path) -> None:
    for text in blocks("toml"):
        path = tmp_path / "x.eval.toml"
        path.write_text(text, encoding="utf-8")
        assert read(path).assertions


def test_the_function_of_the_page_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(blocks("python")[0], encoding="utf-8")
    assert PythonFunction(tmp_path, "checks.py:polite")
