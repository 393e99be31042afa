"""The bundled notebooks: their recordings are made from the answers next to them, and name the author."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import forked
import nbformat
import pytest
import yaml
from notebook.kernels import kernel, specification, vvm_specification

from prose_kernel.cli.main import main
from prose_kernel.cli.notebook_file import in_profile_of, read_cells
from prose_kernel.notebook import exercise_checks, exercises
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.contract_notebooks import as_notebook
from prose_kernel.runs import languages, provider_chain
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.values import full_text
from prose_kernel.testing.notebook_run import TestedCells
from prose_kernel.views.display import Output

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
RECORDED = sorted(NOTEBOOKS.rglob("answers/*.yaml"))
CASSETTES = sorted(NOTEBOOKS.rglob("cassettes/*.jsonl"))


def book_of(answers: Path, directory: Path | None = None) -> Path:
    """Return the notebook or contract file to which a file of answers belongs."""
    at = directory or answers.parents[1]
    return next(path for ending in (".ipynb", ".prose.md") if (path := at / f"{answers.stem}{ending}").exists())


def without_other_notebooks(stem: str, directory: Path, place: Path) -> Path:
    """Copy a notebook's directory without answers, other notebooks and their checks; `prose exercises` copies the whole
    directory for each answer to an exercise."""
    others = {path.stem for path in directory.glob("*.ipynb")} - {stem}

    def unneeded(at: str, names: list[str]) -> list[str]:
        if Path(at) not in (directory, directory / "checks"):
            return [name for name in names if name.startswith(".")]
        return [name for name in names if name.startswith((".", "answers")) or name.partition(".")[0] in others]

    shutil.copytree(directory, place, ignore=unneeded)
    return place


def test_every_recording_has_its_answers_and_its_notebook() -> None:
    """Answers for the solutions of a notebook's exercises are in the notebook's file of answers."""
    made = {path.parents[1] / "cassettes" / f"{path.stem}.jsonl" for path in RECORDED}
    own = {path for path in CASSETTES if not path.stem.endswith(".exercises")}
    assert made == own != set()
    assert {path.with_name(path.name.replace(".exercises", "")) for path in set(CASSETTES) - own} <= own
    assert all(map(book_of, RECORDED))


@pytest.mark.parametrize("cassette", CASSETTES, ids=lambda path: path.stem)
def test_handwritten_recordings_name_their_author(cassette: Path) -> None:
    head, *records = map(json.loads, cassette.read_text(encoding="utf-8").splitlines())
    assert head["format"] == "prose-cassette"
    assert {record["meta"]["origin"] for record in records} == {"authored"}


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with forked.in_shells(tmp_path_factory.mktemp("shells")):
        yield


@pytest.mark.parametrize("answers", RECORDED, ids=lambda path: path.stem)
def test_a_recording_holds_each_answer_as_it_was_written(answers: Path) -> None:
    """This finds changed answers that were not recorded again."""
    recorded: set[str] = set()
    for cassette in (path for path in CASSETTES if _belongs(path, answers)):
        for line in cassette.read_text(encoding="utf-8").splitlines():
            recorded.update(_texts(json.loads(line)))
    written = list(_written(yaml.safe_load(answers.read_text(encoding="utf-8"))))
    assert [text for text in written if text not in recorded] == []


def _texts(data: object) -> Iterator[str]:
    """Yield all texts in a record."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for member in data.values() if isinstance(data, dict) else data:
            yield from _texts(member)


def _written(answers: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Return the replies of sessions and the reasons of the judge."""
    for entry in (*answers.get("sessions", ()), *answers.get("judge", ())):
        for one in entry.get("answers", [entry]):
            yield from (one[name].rstrip("\n") for name in ("reply", "reason") if name in one)


RECORDED_AGAIN = RECORDED if os.environ.get("RECORD_ALL") else RECORDED[::6]
"""A sample; `make durability` records all."""


@pytest.mark.usefixtures("shells")
@pytest.mark.parametrize("answers", RECORDED_AGAIN, ids=lambda path: path.stem)
def test_recording_again_gives_the_same_file(answers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = tmp_path / "book"
    shutil.copytree(answers.parents[1], beside, ignore=shutil.ignore_patterns(".*", "cassettes", "course", "topics"))
    notebook = book_of(answers, beside)
    monkeypatch.setattr(provider_chain, "LiveProviders", provider_chain.LiveProviders)  # the new recording replaces it
    monkeypatch.setattr("sys.argv", ["record.py", "--no-outputs", str(notebook)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(NOTEBOOKS / "record.py"), run_name="__main__")
    assert ended.value.code == 0
    committed = answers.parents[1] / "cassettes"
    made = sorted((beside / "cassettes").glob("*.jsonl"))
    assert [path.name for path in made] == [path.name for path in CASSETTES if _belongs(path, answers)]
    assert [path.read_bytes() for path in made] == [(committed / path.name).read_bytes() for path in made]
    assert not (beside / ".prose").exists()


def _belongs(cassette: Path, answers: Path) -> bool:
    return cassette.parents[1] == answers.parents[1] and cassette.stem.removesuffix(".exercises") == answers.stem


EXERCISES = sorted(NOTEBOOKS.rglob("checks/*.yaml"))


@pytest.mark.usefixtures("shells")
@pytest.mark.parametrize("file", EXERCISES, ids=lambda path: path.stem)
def test_every_exercise_of_the_course_is_checked(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = without_other_notebooks(file.stem, file.parents[1], tmp_path / "course")
    assert main(["exercises", str(course / "checks" / file.name)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(yaml.safe_load(file.read_text("utf-8"))["exercises"]) > 0


@pytest.mark.parametrize("file", EXERCISES, ids=lambda path: path.stem)
def test_a_hint_is_a_whole_sentence(file: Path) -> None:
    """In YAML, a comma ends an unquoted item of `[…]`."""
    for exercise in yaml.safe_load(file.read_text(encoding="utf-8"))["exercises"].values():
        for hint in (hint for check in exercise["checks"] for hint in check.get("hints", ())):
            assert hint.startswith("`") or (not hint[0].islower() and hint[-1] in ".?`'"), hint


@pytest.mark.usefixtures("shells")
@pytest.mark.parametrize(
    ("lesson", "exercise", "answer"),
    [
        ("03_check", "check_predict", "let by_rule = [3, 1]"),
        ("03_check", "check_repair", 'let note = "Customer paid twice."\nassert **the note has less than 11 words**'),
        ("03_check", "check_repair", 'let note = "Customer paid twice."\nassert **note has fewer than 11 words**'),
        ("03_check", "check_repair", 'let note = "Customer paid twice."\nassert **note has at most ten words**'),
        ("03_check", "check_repair", 'let note = "Customer paid twice."\nassert **note is at most 10 words long**'),
        (
            "03_check",
            "check_repair",
            'let note = "Customer paid twice."\nassert **the number of words in note is at most 10**',
        ),
        (
            "10_wrong",
            "wrong_repair",
            'let mail = "hello; echo \'owned\' $((1+1))"\nlet shown = exec "cat"\n  stdin: mail',
        ),
        ("04_commands", "commands_run", 'let open_tickets = exec "ls desk/tickets/*.txt | wc --lines"'),
        (
            "05_loops",
            "loops_run",
            'let subject = "A question about the second payment for the order 1042"\n'
            "loop until **subject has fewer than 6 words** (max: 4):\n"
            '  subject = session "Make this subject shorter: {subject}"',
        ),
        (
            "05_loops",
            "loops_run",
            'let subject = "A question about the second payment for the order 1042"\n'
            "loop while **subject has more than 5 words** (max: 4):\n"
            '  subject = session "Make this subject shorter: {subject}"',
        ),
    ],
)
def test_another_right_answer_is_accepted(
    lesson: str, exercise: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = without_other_notebooks(lesson, NOTEBOOKS / "course", tmp_path / "course")
    file = course / "checks" / f"{lesson}.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    one = content["exercises"][exercise]
    content["exercises"] = {exercise: one | {"solution": answer, "wrong": []}}
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert main(["exercises", str(file)]) == 0, capsys.readouterr()


def test_the_pattern_of_an_exercise_accepts_answers_but_not_the_task() -> None:
    text = (NOTEBOOKS / "course" / "checks" / "01_ask.yaml").read_text(encoding="utf-8")
    pattern = yaml.safe_load(text)["exercises"]["ask_repair"]["checks"][1]["matches"]
    assert re.search(pattern, "Summary:\n\nThe user is logged out every five minutes.")
    assert not re.search(pattern, "Sum up this ticket in one line:\nIt logs me out every five minutes.")


def test_every_exercise_is_in_its_notebook_under_its_own_name() -> None:
    names = []
    for file in EXERCISES:
        book = (file.parent.parent / f"{file.stem}.ipynb").read_text(encoding="utf-8")
        for name in yaml.safe_load(file.read_text(encoding="utf-8"))["exercises"]:
            assert f'"%check {name}"' in book
            names.append(name)
    assert len(names) == len(set(names))


ASKING = [
    *(
        path.parents[1] / path.name.replace(".exercises.jsonl", ".ipynb")
        for path in CASSETTES
        if ".exercises" in path.name
    ),
    NOTEBOOKS / "course" / "21_capstone.ipynb",
]


@pytest.mark.usefixtures("shells")
@pytest.mark.parametrize("lesson", ASKING, ids=lambda path: path.stem)
def test_a_learner_passes_a_lesson_offline(lesson: Path, tmp_path: Path) -> None:
    """Run the cells in order, with wrong answers and then twice the solution for each exercise; recordings or a list of
    rules answer its sessions."""
    course = tmp_path / "course"
    shutil.copytree(lesson.parent, course, ignore=shutil.ignore_patterns(".*", "answers"))
    assert asyncio.run(_requirements(course / lesson.name)) == dict.fromkeys(_exercises(lesson), True) != {}


def _exercises(lesson: Path) -> list[str]:
    return list(yaml.safe_load((lesson.parent / "checks" / f"{lesson.stem}.yaml").read_text("utf-8"))["exercises"])


class Unseen(Output):
    """Discards the outputs of a learner's cells."""


async def _requirements(lesson: Path) -> dict[str, bool]:
    """Return whether the requirements of each exercise are met, in the order of the notebook."""
    texts, language = read_cells(str(lesson))
    found = exercises.read(lesson.parent / "checks" / f"{lesson.stem}.yaml", language).exercises
    cells, output, passed = Cells(lesson.parent, Unattended(), language), Unseen(), {}
    try:
        for cell, check in zip_longest(texts, texts[1:]):
            name = check.text.removeprefix("%check ").strip() if check and check.text.startswith("%check ") else ""
            answers = [*(one.answer for one in found[name].wrong), *[found[name].solution] * 2] if name else [cell.text]
            for text in answers:
                await cells.run(text, output, live=False)
            if name:
                met = await exercise_checks.findings(cells, found[name], language)
                passed[name] = all(one.passed for one in met)
    finally:
        await cells.close()
    return passed


@pytest.mark.parametrize("name", ["vvm_tour", "topics/control", "topics/people"])
def test_a27_no_notebook_stops_for_a_person(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The front end can ask, and there is no model. The notebooks once stopped, or teach about stopping."""
    for variable in [one for one in os.environ if one.startswith("PROSE_") or one.endswith("_API_KEY")]:
        monkeypatch.delenv(variable)
    shutil.copytree(NOTEBOOKS, tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    path = tmp_path / "notebooks" / f"{name}.ipynb"
    book = nbformat.read(path, 4)
    spec = {"prose": specification, "vvm": vvm_specification}[book.metadata.kernelspec.name]()
    with kernel(path.parent, spec=spec, forks=True) as front_end:
        client = front_end.channels
        cells = [cell.source for cell in book.cells if cell.cell_type == "code"]
        asked = [client.execute(source, allow_stdin=True, stop_on_error=False) for source in cells]
        answered: set[str] = set()
        while asked[-1] not in answered:
            answered.add(client.get_shell_msg(timeout=30)["parent_header"].get("msg_id", ""))
            assert client.stdin_channel.msg_ready() is False
        assert answered.issuperset(asked)


# ---------------------------------------------------------------- contract files

TOUR = NOTEBOOKS / "contracts" / "tour.prose.md"
CONTRACTS = sorted(NOTEBOOKS.rglob("*.prose.md"))


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda path: path.name)
def test_a_contract_file_is_correct_and_in_canonical_form(contract: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(contract)]) == 0
    assert main(["fmt", "--check", str(contract)]) == 0
    assert capsys.readouterr().err == ""


def test_the_tour_of_contract_files_runs_as_a_notebook(tmp_path: Path) -> None:
    """All fences run in order with the recording."""
    shutil.copytree(TOUR.parent, tmp_path / "it", ignore=shutil.ignore_patterns(".*"))
    found = asyncio.run(_values(tmp_path / "it" / TOUR.name))
    assert (found["tone"], found["open"]) == ("polite", "When does the next ferry sail?")
    assert "Monday" in found["notice"] and len(json.loads(found["translations"])) == 2


async def _values(file: Path) -> dict[str, str]:
    """Return the values bound by the cells of a contract file, as texts."""
    book = nbformat.from_dict(as_notebook(file.read_text(encoding="utf-8"), file.name))
    language = in_profile_of(languages.default(), book.metadata)
    cells, texts = (
        TestedCells(file, language, {"offline": True}),
        [one for one in book.cells if one.cell_type == "code"],
    )
    try:
        for cell in texts:
            assert await cells.run("".join(cell.source), Unseen(), live=False) is None
        assert len(texts) > 5
        return {name: full_text(value) for name, value in cells.values().items()}
    finally:
        await cells.close()


def test_the_tour_of_contract_files_runs_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(TOUR.parent, tmp_path / "it", ignore=shutil.ignore_patterns(".*"))
    monkeypatch.chdir(tmp_path / "it")
    assert main(["run", TOUR.name]) == 0
    assert main(["test", "tour.test.prose.md"]) == 0
    assert "---test PASS" in capsys.readouterr().out
