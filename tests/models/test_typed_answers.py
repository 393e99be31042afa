"""Typed answers: the property `output:` (docs/how-to/typed-answers.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from models.people import ScriptedPerson
from models.test_runs_resumed import runs, workspace
from msgspec import structs

from prose_kernel.cassettes.keys import Identity
from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cli.main import main
from prose_kernel.errors import ImportProgramError, ProviderError, SessionError
from prose_kernel.language.typed_answers import item, object_of, optional, read, type_words
from prose_kernel.models.providers.human import HumanSessions
from prose_kernel.models.providers.provider_choice import Choice
from prose_kernel.models.providers.scripted import ScriptedSessions
from prose_kernel.programs.openprose_imports import LocalPrograms
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.runtime.typed_answers import WrongAnswer, checked_answer, example_answer

PROGRAM = """\
agent critic:
  prompt: "You review"
  output:
    verdict: "approve" or "reject"
    score: number
    note: text or null
    places: [{ file: text, line: integer }]
let review = session: critic
  prompt: "Review it"
  retry: 2
for place in review.places:
  session "See {place.file} at {place.line}"
if review.verdict is "reject" and review.note is null:
  output done = review.score
"""
GOOD = '{"verdict": "reject", "score": 2.5, "places": [{"file": "a.py", "line": 3}]}'
WRONG = '{"verdict": "maybe", "score": "x", "places": []}'


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, *arguments: str, **sessions: object) -> int:
    monkeypatch.chdir(tmp_path)
    Path("program.prose").write_text(program)
    Path("script.yaml").write_text(json.dumps({"sessions": {"See": "seen", **sessions}}))
    return main(["run", "program.prose", "--provider", "scripted", "--script", "script.yaml", *arguments])


def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> int:
    monkeypatch.chdir(tmp_path)
    Path("program.prose").write_text(program)
    return main(["check", "program.prose"])


def test_an_answer_is_an_object_without_a_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(tmp_path, monkeypatch, PROGRAM, "--judge", "off", Review=["no idea", WRONG, f"```json\n{GOOD}\n```"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "done: 2.5" in shown.out


def test_a_wrong_answer_is_a_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, PROGRAM, Review=WRONG) == 1
    printed = capsys.readouterr().err
    assert "the answer does not fit `output`: `score`: 'x' is not of type 'number'; `verdict`:" in printed
    assert "[E201]" in printed


def test_a_schema_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(object_of({"ok": {"type": "boolean"}})))
    program = 'let a = session "Ask"\n  output: "schema.json"\noutput done = a.ok\n'
    assert run(tmp_path, monkeypatch, program, Ask='{"ok": true}') == 0
    assert "done: true" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "the file is not JSON"),
        ("[]", "a schema is a JSON object"),
        ('{"type": "array"}', 'the schema must be of an object: `"type": "object"`'),
        ('{"type": "object", "properties": {"a": {"$ref": "#"}}}', "the schema is recursive: `#` holds itself"),
        (
            '{"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},'
            ' "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}',
            "the schema is recursive: `#/$defs/a` holds itself",
        ),
        ('{"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}', "refers to something outside"),
        ('{"type": "object", "properties": {"a": {"minimum": 3, "maximum": 2}}}', "`minimum` is above `maximum`"),
        ('{"type": "object", "required": ["b"], "additionalProperties": false}', "`b` is required but not allowed"),
        ('{"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}}', "no value of an `enum`"),
        (json.dumps(object_of({f"f{n}": {"type": "string"} for n in range(600)})), "more than 500 fields"),
        ('{"type": "object", "title": "' + "x" * 70_000 + '"}', "at most 64,000 are sent"),
        ('{"type": "object", "properties": {"a": {"type": "strin"}}}', "not a JSON Schema"),
    ],
)
def test_an_unusable_schema_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], schema: str, problem: str
) -> None:
    (tmp_path / "schema.json").write_text(schema)
    assert run(tmp_path, monkeypatch, 'session "Ask"\n  output: "schema.json"\n', Ask="{}") == 2
    printed = capsys.readouterr().err
    assert problem in printed
    assert "[E224]" in printed
    assert "Traceback" not in printed


def test_a_definition_may_be_used_twice() -> None:
    part = {"$ref": "#/$defs/p"}
    schema = {"type": "object", "properties": {"a": part, "b": part}, "$defs": {"p": {"type": "string"}}}
    assert read(json.dumps(schema)) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("output: 3", "`output` takes fields and their types"),
        ("output: { a: txt }", "Unknown type `txt`"),
        ("output: { a: text, a: text }", "given twice"),
        ("output: { a: [] }", "A list has one type in its brackets"),
        ("output: { a: text or number }", "A field has one type"),
        ('output: { a: "x" or "x" }', "An option is given twice"),
        ("output: { }", "An answer needs a field"),
    ],
)
def test_values_that_are_not_types_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    assert check(tmp_path, monkeypatch, f'session "Ask"\n  {line}\n') == 1
    printed = "".join(capsys.readouterr())
    assert problem in printed
    assert "E186" in printed or "E009" in printed


FIELDS = 'let a = session "Ask"\n  output: { good: text, list: [{ name: text }] }\n'


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        ("output b = a.god", "did you mean `good`?"),
        ('session "See {a.god}"', "did you mean `good`?"),
        ("let c = a\noutput b = c.god", "did you mean `good`?"),
        ("for x in a.list:\n  output b = x.nam", "did you mean `name`?"),
        ("output b = a.list[0].nam", "did you mean `name`?"),
        ("output b = a.something_else", "its fields: good, list"),
    ],
)
def test_the_checker_knows_the_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], use: str, hint: str
) -> None:
    assert check(tmp_path, monkeypatch, f"{FIELDS}{use}\n") == 1
    printed = "".join(capsys.readouterr())
    assert "E187" in printed
    assert hint in printed


@pytest.mark.parametrize(
    "use",
    [
        "output b = a.good",
        "for x in a.list:\n  output b = x.name",
        'a = session "Other"\noutput b = a.god',
        'loop (max: 2):\n  session "See {a.god}"\n  a = session "Other"',
    ],
)
def test_the_checker_is_silent_where_it_cannot_be_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    assert check(tmp_path, monkeypatch, f"{FIELDS}{use}\n") == 0


def test_a_person_may_fill_in_the_fields() -> None:
    schema = object_of(
        {
            "name": {"type": "string"},
            "ok": {"type": "boolean"},
            "n": {"type": "integer"},
            "why": optional({"type": "string"}),
        }
    )
    text = checked_answer("name: Ada: the first\nok: yes\nn: 3\n", schema, typed_by_hand=True)
    assert json.loads(text) == {"name": "Ada: the first", "ok": True, "n": 3, "why": None}
    with pytest.raises(WrongAnswer, match="it is not a JSON object"):
        checked_answer("name: Ada", schema)


def test_formatting_keeps_the_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.prose").write_text(PROGRAM)
    assert main(["fmt", "--check", "program.prose"]) == 0


def test_a_dry_run_continues_with_an_answer_of_the_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.prose").write_text(PROGRAM)
    assert main(["run", "program.prose", "--provider", "dry-run"]) == 0
    assert "at 0" in "".join(capsys.readouterr())


async def test_a_person_sees_immediately_why_an_answer_does_not_fit() -> None:
    person = ScriptedPerson("good", ":more\nok: yes\n.")
    schema = object_of({"ok": {"type": "boolean"}})
    asked = SessionRequest("session", "So?", "c1/s0", output=schema)
    result = await HumanSessions(person).run(asked, lambda _: None)
    assert result.text == "ok: yes"
    assert any("That does not fit: it is not a JSON object." in line for line in person.transcript)
    assert any("The answer has these fields:\n  ok: boolean\n" in line for line in person.transcript)


async def test_a_person_may_give_one_field_after_the_other() -> None:
    fields = {"kind": {"enum": ["bug", "question"]}, "note": optional({"type": "string"}), "ok": {"type": "boolean"}}
    person = ScriptedPerson("kind: bgu", "kind: bug", "knd: bug", "ok: perhaps", "note: x", "kind: question", "ok: yes")
    asked = SessionRequest("session", "So?", "c1/s0", output=object_of(fields))
    result = await HumanSessions(person).run(asked, lambda _: None)
    assert json.loads(checked_answer(result.text, object_of(fields), typed_by_hand=True)) == {
        "kind": "question",
        "note": "x",
        "ok": True,
    }
    shown = [line for line in person.transcript[1:] if not line.startswith("? ")]
    assert [line for line in shown if line.startswith("Missing")] == [
        "Missing: `note` (optional), `ok`",
        "Missing: `ok`",
        "Missing: `ok`",
    ]
    wrong = [line for line in shown if line.startswith("That does not fit")]
    assert [next(name for name in ("`kind`:", "`knd`", "`ok`:") if name in line) for line in wrong] == [
        "`kind`:",
        "`knd`",
        "`ok`:",
    ]


async def test_a_person_who_skips_a_typed_session_is_not_asked_again() -> None:
    asked = SessionRequest("session", "So?", "c1/s0", output=object_of({"ok": {"type": "boolean"}}))
    with pytest.raises(ProviderError, match="skipped") as raised:
        await HumanSessions(ScriptedPerson(":skip")).run(asked, lambda _: None)
    assert not raised.value.retryable


def test_descriptions_of_types() -> None:
    schema = object_of(
        {
            "verdict": {"type": "string", "enum": ["a", "b"]},
            "note": optional({"type": "string"}),
            "places": {"type": "array", "items": object_of({"line": {"type": "integer"}})},
            "any": {},
        }
    )
    assert type_words(schema) == ('{ verdict: "a" or "b", note: text or null, places: [{ line: integer }], any: any }')


def test_a_recording_with_retries_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say = ScriptedSessions.run

    async def modelled(
        self: ScriptedSessions, request: SessionRequest, on_progress: Callable[[SessionProgress], None]
    ) -> SessionResult:
        return structs.replace(await say(self, request, on_progress), provider="vendor", origin="model")

    with monkeypatch.context() as patched:  # answers of models are recorded, unlike scripted ones
        patched.setattr(ScriptedSessions, "run", modelled)
        patched.setattr(Choice, "recorded", True)
        more = ("--judge", "off", "--cassette", "mine", "--cassette-mode", "record")
        assert run(tmp_path, monkeypatch, PROGRAM, *more, Review=["no idea", WRONG, GOOD]) == 0, capsys.readouterr().err
    capsys.readouterr()
    replay = ["run", "program.prose", "--judge", "off", "--cassette", "mine", "--cassette-mode", "replay"]
    assert main(replay) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    assert "done: 2.5" in shown.out
    assert "retry 2 of 2" in shown.err
    Path("program.prose").write_text(PROGRAM.replace("score: number", "score: integer"))
    assert main(replay) != 0  # a different request


@pytest.mark.parametrize("persist", ["true", '"memory"'])
def test_an_agent_with_memory_answers_with_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], persist: str
) -> None:
    program = (
        f'agent captain:\n  prompt: "You lead"\n  persist: {persist}\n  output: {{ n: integer }}\n'
        'let a = session: captain\n  prompt: "One"\nlet b = resume: captain\n  prompt: "Two"\n  retry: 1\n'
        "output done = a.n + b.n\n"
    )
    answers = {"One": '{"n": 1}', "Two": ["no", '{"n": 2}']}
    assert run(tmp_path, monkeypatch, program, "--judge", "off", **answers) == 0, capsys.readouterr().err
    assert "done: 3" in capsys.readouterr().out


async def test_a_resumed_run_has_the_same_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.yaml").write_text(json.dumps({"sessions": {"See": "seen", "Review": ["no idea", GOOD]}}))
    await runs(tmp_path, PROGRAM)()
    Path("script.yaml").write_text(json.dumps({"sessions": {"nothing": "at all"}}))
    here = workspace(tmp_path)
    assert await here.execute(PROGRAM, "p.prose") == {"done": 2.5}
    await here.close()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    Path("script.yaml").write_text(json.dumps({"sessions": {"nothing": "at all"}}))
    alone = workspace(Path.cwd())
    with pytest.raises(SessionError):  # without the journal the script has no answer
        await alone.execute(PROGRAM, "p.prose")
    await alone.close()


async def test_a_resumed_run_has_the_schema_that_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(object_of({"ok": {"type": "boolean"}})))
    Path("script.yaml").write_text(json.dumps({"sessions": {"Ask": '{"ok": true}'}}))
    program = 'let a = session "Ask"\n  output: "schema.json"\nlet b = exec "true"\noutput done = a.ok\n'
    await runs(tmp_path, program)()
    schema.write_text(json.dumps(object_of({"ok": {"type": "boolean"}, "more": {"type": "string"}})))
    here = workspace(tmp_path)
    assert await here.execute(program, "p.prose") == {"done": True}
    await here.close()


def test_a_recording_answers_only_the_same_question(tmp_path: Path) -> None:
    keys = Identity(Redaction(), Surroundings(str(tmp_path)), lambda _: (), {})
    plain = SessionRequest("session", "So?", "c1/s0")
    typed = structs.replace(plain, output=object_of({"ok": {"type": "boolean"}}))
    again = structs.replace(typed, correction="it is not a JSON object")
    assert "output" not in keys.session(plain)
    assert len({json.dumps(keys.session(one), sort_keys=True) for one in (plain, typed, again)}) == 3


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('{"type": "object", "properties": {"a": {"type": "string", "const": 1}}}', "no value of an `enum`"),
        ('{"type": "object", "properties": {"a": {"enum": []}}}', "an `enum` without values"),
        ('{"type": "object", "properties": {"a": {"allOf": [{"type": "string"}, {"type": "number"}]}}}', "`allOf`"),
        ('{"type": "object", "properties": {"a": false}, "required": ["a"]}', "`a` is required but not allowed"),
        ('{"type": "object", "properties": {"a": {"pattern": "("}}}', "not a JSON Schema"),
        ('{"type": "object", "properties": {"a": {"$ref": {}}}}', "refers to something outside"),
        ('{"type": "object", "required": [["a"]]}', "not a JSON Schema"),
        ('{"type": "object", "properties": {"a": {"maximum": Infinity}}}', "the file is not JSON"),
        ('{"type": "object", "patternProperties": {"^(a+)+$": {}}}', "may take too long"),
    ],
)
def test_a_schema_that_no_value_fits_is_an_error(schema: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(schema)
    with pytest.raises(ImportProgramError, match=problem) as raised:
        LocalPrograms(tmp_path).load_contract("schema:schema.json")
    assert raised.value.code == "E224"


def test_a_schema_may_contain_booleans_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = '{"type": "object", "properties": {"any": true, "rows": {"type": "array"}}, "additionalProperties": false}'
    (tmp_path / "schema.json").write_text(text, encoding="utf-8-sig")
    schema = LocalPrograms(tmp_path).load_contract("schema:schema.json").schema
    assert schema is not None
    assert checked_answer('{"any": {"a": 1}}', schema) == '{"any": {"a": 1}}'
    assert json.loads(example_answer(schema, "text")) == {"any": "text", "rows": []}
    assert item(schema) is None


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 4000])
def test_an_enormous_number_does_not_fit(number: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", "multipleOf": 0.5}, "rest": {}}}
    with pytest.raises(WrongAnswer, match="a number in it is too large"):
        checked_answer(f'{{"n": {number}}}', schema)
    with pytest.raises(WrongAnswer, match="a number in it is too large"):
        checked_answer('{"rest": [1e999]}', schema)


def test_an_endless_pattern_match_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prose_kernel.runtime.typed_answers.PATTERN_SECONDS", 0.05)
    schema = {"type": "object", "properties": {"slug": {"pattern": "^(a|aa)+$"}}}
    assert checked_answer('{"slug": "aaa"}', schema) == '{"slug": "aaa"}'
    with pytest.raises(WrongAnswer, match="takes too long"):
        checked_answer(json.dumps({"slug": "a" * 90 + "b"}), schema)


@pytest.mark.parametrize(
    "part", ["true", "false", '{"anyOf": [true, {"type": "null"}]}', '{"items": true}', '{"enum": [[]]}']
)
def test_unusual_parts_of_schemas_are_accepted(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "schema.json").write_text(
        f'{{"type": "object", "properties": {{"a": {part}}}, "additionalProperties": false, "title": "x"}}'
    )
    program = 'let r = session "Ask"\n  output: "schema.json"\nfor x in r:\n  output y = x.a\noutput z = r.a.b\n'
    assert check(tmp_path, monkeypatch, program) == 0, capsys.readouterr()
    assert type_words(read((tmp_path / "schema.json").read_text()))
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {}, "required": [{}, 3]}')
    with pytest.raises(ImportProgramError):
        LocalPrograms(tmp_path).load_contract("schema:schema.json")


def test_a_pattern_that_only_one_regex_library_accepts() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "[[:foo:]]"}}}
    with pytest.raises(WrongAnswer, match="cannot be found out"):
        checked_answer('{"a": "x"}', schema)


def test_fields_named_like_schema_keywords_are_kept() -> None:
    fields = {"definitions": {"type": "string"}, "$ref": {"type": "string"}, "items": {"type": "string"}}
    assert read(json.dumps(object_of(fields))) == object_of(fields)


def test_a_schema_is_found_next_to_the_text_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lib" / "schemas").mkdir(parents=True)
    (tmp_path / "lib" / "schemas" / "ok.json").write_text(json.dumps(object_of({"ok": {"type": "boolean"}})))
    asks = 'let a = session "Ask"\n  output: "schemas/ok.json"\noutput done = a.ok\n'
    (tmp_path / "lib" / "inner.prose").write_text(asks)
    assert (
        run(tmp_path, monkeypatch, 'use "./lib/inner.prose" as inner\noutput done = inner().done\n', Ask="ok: 1") == 1
    )
    assert "it is not a JSON object" in capsys.readouterr().err
    assert run(tmp_path, monkeypatch, 'use "./lib/inner.prose" as inner\noutput r = inner()\n', Ask='{"ok": true}') == 0
    assert '"done":true' in capsys.readouterr().out
    assert main(["check", "lib/inner.prose"]) == 0
    (tmp_path / "lib" / "inner.prose").write_text(asks.replace("a.ok", "a.okay"))
    assert main(["check", "lib/inner.prose"]) == 1
    assert "E187" in "".join(capsys.readouterr())


def test_nothing_is_fetched_for_a_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, monkeypatch, 'session "Ask"\n  output: "https://example.com/schema.json"\n') == 1
    assert "nothing is fetched for it" in "".join(capsys.readouterr())


async def test_the_checker_knows_the_fields_of_earlier_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.yaml").write_text(json.dumps({"sessions": {"*": '{"good": "x", "list": []}'}}))
    here = workspace(tmp_path, notebook=True)
    await here.execute(f'agent critic:\n  prompt: "Be"\n  output: {{ good: text }}\n{FIELDS}let b = 1\n')
    for cell, wrong in [
        ("output b = a.god", True),
        ("output b = a.good", False),
        ('let c = session: critic\n  prompt: "Ask"\noutput b = c.god', True),
        ('a = session "Other"\noutput d = a.god', False),
        ("a = 1", False),
        ("output d = b.god", False),
    ]:
        codes = [one.code for one in here.compile(cell).diagnostics]
        assert ("E187" in codes) is wrong, cell
    await here.close()


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        ('block ask():\n  session "Ask"\n    output: { good: text }\nlet r = do ask()\noutput b = r.god', True),
        (
            'block ask(x):\n  if x == 1:\n    return 2\n  session "Ask"\n    output: { good: text }\n'
            "let r = do ask(1)\noutput b = r.god",
            False,
        ),
        (f'{FIELDS}let r = a.list | map:\n  session "See {{item.nam}}"', True),
        (f'{FIELDS}let r = a.list | filter:\n  item.name is "x"\nfor x in r:\n  output b = x.nam', True),
        (
            f'{FIELDS}let r = a.list | map:\n  session "See {{item.name}}"\n    output: {{ n: number }}\nlet s = r[0].m',
            True,
        ),
        (f'{FIELDS}let r = a.list | map:\n  session "See {{item.name}}"\nlet s = r[0].m', False),
        ('parallel:\n  p = session "Ask"\n    output: { good: text }\n  q = session "Two"\noutput b = p.god', True),
    ],
)
def test_the_checker_follows_answers_through_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str, wrong: bool
) -> None:
    status = check(tmp_path, monkeypatch, f"{program}\n")
    printed = "".join(capsys.readouterr())
    assert ("E187" in printed) is wrong, printed
    assert wrong or not status, printed


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("review.score >= 7", True),
        ("review.score < 7", False),
        ("review.verdict is reject", True),
        ("review.places is empty", True),
        ("review.ok is true", True),
    ],
)
def test_a_condition_about_a_field_needs_no_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], condition: str, holds: bool
) -> None:
    program = (
        'let review = session "Review"\n  output: { score: number, verdict: text, places: [text], ok: boolean }\n'
        f"let found = 0\nif **{condition}**:\n  found = 1\noutput done = found\n"
    )
    answer = '{"score": 8, "verdict": "reject", "places": [], "ok": true}'
    assert run(tmp_path, monkeypatch, program, "--judge", "off", Review=answer) == 0, capsys.readouterr().err
    assert f"done: {int(holds)}" in capsys.readouterr().out


def test_a49_the_first_typed_answer_loads_no_grammars(tmp_path: Path) -> None:
    """Newer versions of jsonschema compile grammars on import if `rfc3987_syntax` is installed; here both are fakes."""
    (tmp_path / "rfc3987_syntax.py").write_text("")
    (tmp_path / "jsonschema").mkdir()
    text = "try:\n  import rfc3987_syntax as found\nexcept ImportError:\n  found = None\nclass Draft202012Validator:\n  pass\n"
    (tmp_path / "jsonschema" / "__init__.py").write_text(text)
    check = "from prose_kernel.runtime import typed_answers as t; t._draft(); import jsonschema, rfc3987_syntax; print(jsonschema.found)"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    done = subprocess.run([sys.executable, "-c", check], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


@pytest.mark.parametrize(
    "answer",
    [
        '{"a": ' + "[" * 500 + "]" * 500 + "}",
        '{"a": ' + "[" * 501,
        '{"a": ' + "[" * 5000,
        "a: " + "[" * 500 + "]" * 500,
        "a: " + "[" * 501,
        "a: " + "[" * 5000,
    ],
)
def test_a32_an_answer_nests_five_hundred_levels(answer: str) -> None:
    with pytest.raises(WrongAnswer, match="500 levels"):
        checked_answer(answer, object_of({"a": {}}), typed_by_hand=True)


def test_a32_an_answer_of_a_person_may_have_five_hundred_levels() -> None:
    answer = '{"a": ' + "[" * 499 + '"5"' + "]" * 499 + "}"
    assert checked_answer(answer, object_of({"a": {}}), typed_by_hand=True) == answer.replace('"5"', "5")
