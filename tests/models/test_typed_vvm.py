"""Typed answers in VVM: the key `output` of an agent, and answers passed between the languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prose_kernel.cli.main import main
from prose_kernel.language.typed_answers import object_of, optional
from prose_kernel.language.vvm.configurations import NotAType, schema_of

AGENT = (
    'agent critic(prompt="You review", output={verdict: ["approve", "reject"], score: "number", why: "text or null"})'
)
GOOD = '{"verdict": "reject", "score": 2}'


def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, program: str, *more: str, **sessions: object
) -> int:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(program)
    Path("script.yaml").write_text(json.dumps({"sessions": sessions}))
    return main(["run", name, "--provider", "scripted", "--script", "script.yaml", "--judge", "off", *more])


def test_an_answer_is_asked_for_again_until_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"{AGENT}\nr = @critic `Review`((), retry=2)\nscore = r.score + 1\nexport score\nexport r\n"
    wrong = '{"verdict": "maybe", "score": 1}'
    assert run(tmp_path, monkeypatch, "p.vvm", program, Review=["no", wrong, f"```json\n{GOOD}\n```"]) == 0
    shown = capsys.readouterr().out
    assert "score: 3" in shown
    assert 'r: {"verdict": "reject", "score": 2, "why": null}' in shown


def test_an_answer_that_does_not_fit_is_an_error_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"{AGENT}\nr = @critic `Review`(())\nexport r\n"
    assert run(tmp_path, monkeypatch, "p.vvm", program, Review="no") == 0
    assert '"kind": "answer", "message": "the answer does not fit `output`: it is not' in capsys.readouterr().out


def test_the_file_of_an_answer_holds_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"{AGENT}\nr = @critic `Review`(())\nexport r\n"
    assert run(tmp_path, monkeypatch, "p.vvm", program, "--state=filesystem", Review=GOOD) == 0, capsys.readouterr().err
    (answer,) = Path().glob(".vvm/runs/*/bindings/b000001.md")
    assert '{"verdict": "reject", "score": 2, "why": null}' in answer.read_text()


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ('{score: "decimal"}', '`output.score` is not a type: "decimal"'),
        ('{score: ["a", 1]}', "`output.score[1]` is not a text"),
        ('{score: ["a", "a"]}', "gives an option twice"),
        ("{score: []}", "`output.score` is not a type"),
        ("[]", "`output` must be an object of fields"),
        (
            '{type: "object", properties: {a: {minimum: 2, maximum: 1}}}',
            "`output` cannot be used: the schema contradicts",
        ),
        ('"away.json"', "`output` cannot be used: away.json: there is no such file"),
        ('"recursive.json"', "the schema is recursive"),
    ],
)
def test_a_wrong_type_is_found_before_and_during_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str, problem: str
) -> None:
    (tmp_path / "recursive.json").write_text('{"type": "object", "properties": {"a": {"$ref": "#"}}}')
    assert run(tmp_path, monkeypatch, "p.vvm", f"agent a(output={output})\nr = @a `Review`(())\nexport r\n") == 2
    printed = capsys.readouterr().err
    assert problem in printed
    assert "V209" in printed
    computed = f"agent a()\no = {output}\nr = @a.with(output=o) `Review`(())\nexport r\n"
    assert run(tmp_path, monkeypatch, "p.vvm", computed, Review=GOOD) == 1
    printed = capsys.readouterr().err
    assert problem in printed
    assert "R214" in printed


def test_types_as_schemas() -> None:
    assert schema_of({"a": ["text"], "b": {"c": "integer"}, "d": ["x", "y", None]}) == object_of(
        {
            "a": {"type": "array", "items": {"type": "string"}},
            "b": object_of({"c": {"type": "integer"}}),
            "d": optional({"type": "string", "enum": ["x", "y"]}),
        }
    )
    assert schema_of("schema.json") is None
    with pytest.raises(NotAType):
        schema_of({})


def test_a_session_asks_an_agent_of_vvm_for_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [
        f"%%vvm\n{AGENT}",
        'let a = session: critic\n  prompt: "Review"\n  retry: 1\noutput first = a.score',
        'let b = session: critic\n  prompt: "Other"\n  output: { n: integer }\noutput second = b.n',
    ]
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"c{at}",
                "metadata": {},
                "outputs": [],
                "execution_count": None,
                "source": text,
            }
            for at, text in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "prose", "display_name": "Prose", "language": "prose"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    status = run(tmp_path, monkeypatch, "n.ipynb", json.dumps(notebook), Review=["no", GOOD], Other='{"n": 7}')
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "first: 2" in shown.out
    assert "second: 7" in shown.out


def test_an_agent_of_openprose_answers_a_call_with_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        'agent critic:\n  prompt: "Be"\n  output: { n: integer }',
        "%%vvm\nr = @critic `Review`((), retry=1)\nm = r.n",
    ]
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"c{at}",
                "metadata": {},
                "outputs": [],
                "execution_count": None,
                "source": text,
            }
            for at, text in enumerate([*cells, "output second = m"])
        ],
        "metadata": {"kernelspec": {"name": "prose", "display_name": "Prose", "language": "prose"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    status = run(tmp_path, monkeypatch, "n.ipynb", json.dumps(notebook), Review=["no", '{"n": 7}'])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "second: 7" in shown.out
