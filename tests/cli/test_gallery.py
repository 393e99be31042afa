"""Each example of the gallery is complete: program, recordings with their author, test, evaluation, budget, README and
a row of the page.

`make test` checks their results with `prose test --recursive examples` and `prose eval`.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from cli.generated import DOCS

from prose_kernel.cli.main import main

EXAMPLES = DOCS.parent / "examples"
DIRECTORIES = sorted(path.parent for path in EXAMPLES.glob("*/README.md"))
PROGRAMS = (".prose", ".prose.md", ".vvm", ".ipynb")
CONTRACTS = sorted(EXAMPLES.glob("*/*.prose.md"))


def program_of(example: Path) -> Path:
    (written,) = example.glob("answers/*.yaml")
    (program,) = (path for ending in PROGRAMS if (path := example / f"{written.stem}{ending}").exists())
    return program


def stem(program: Path) -> str:
    return program.name.partition(".")[0]


def test_there_are_examples_in_each_language() -> None:
    about = [(example / "README.md").read_text(encoding="utf-8") for example in DIRECTORIES]
    assert len(about) >= 14
    assert sum("(VVM" in text for text in about) >= 3
    assert sum("(contract file" in text for text in about) >= 4


@pytest.mark.parametrize("example", DIRECTORIES, ids=lambda path: path.name)
def test_an_example_is_complete(example: Path) -> None:
    program = program_of(example)
    assert (example / "cassettes" / f"{stem(program)}.jsonl").exists()
    for cassette in example.glob("cassettes/*.jsonl"):
        records = cassette.read_text(encoding="utf-8").splitlines()[1:]
        assert records
        assert {json.loads(record)["meta"]["origin"] for record in records} == {"authored"}
    if program.suffix == ".ipynb":
        cells = json.loads(program.read_text(encoding="utf-8"))["cells"]
        assert any(cell.get("outputs") for cell in cells), "prose test --update saves what the notebook shows"
    else:
        assert "Exit status: 0" in (example / f"{program.name}.expected.md").read_text(encoding="utf-8")
    page = (DOCS / "how-to" / "gallery.md").read_text(encoding="utf-8")
    assert f"(../../examples/{example.name}/{program.name})" in page


@pytest.mark.parametrize("example", DIRECTORIES, ids=lambda path: path.name)
def test_an_example_has_an_evaluation_that_all_of_its_cases_must_pass(example: Path) -> None:
    program = program_of(example)
    spec = tomllib.loads((example / f"{stem(program)}.eval.toml").read_text(encoding="utf-8"))
    assert (spec["program"], spec["pass_rate"]) == (program.name, 1.0)
    assert len(spec["assert"]) >= 2
    cases = [json.loads(line) for line in (example / spec["dataset"]).read_text(encoding="utf-8").splitlines()]
    assert all(case["id"] and case["expected"] for case in cases if "question" not in case)
    assert f"prose eval {stem(program)}.eval.toml" in (example / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", DIRECTORIES, ids=lambda path: path.name)
def test_a_readme_names_the_budget_of_its_settings(example: Path) -> None:
    limits = tomllib.loads((example / "prose.toml").read_text(encoding="utf-8"))["budget"]["run"].split(", ")
    about = (example / "README.md").read_text(encoding="utf-8")
    costs = about[about.index("It costs at most") :]
    assert [limit for limit in limits if limit.replace(" min", " minutes") not in costs] == []


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda path: path.name)
def test_a_contract_file_is_in_canonical_form(contract: Path) -> None:
    assert main(["fmt", "--check", str(contract)]) == 0


@pytest.mark.parametrize(
    "test", [path for path in CONTRACTS if path.name.endswith(".test.prose.md")], ids=lambda path: path.name
)
def test_the_tests_of_contract_files_pass_offline(test: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(test.parent, tmp_path / "it", ignore=shutil.ignore_patterns(".*"))
    monkeypatch.chdir(tmp_path / "it")
    assert main(["test", test.name]) == 0
