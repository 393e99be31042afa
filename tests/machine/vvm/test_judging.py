"""`?` predicates, `match`, `choose` and `constrain` (docs/reference/vvm.md 4.6 to 4.9), and their requests to the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cassettes.recording import JudgeDouble
from machine.fakes import FakeClock
from machine.vvm_world import Vvm, raised_by, value_of
from models.people import ScriptedPerson
from msgspec import structs

from prose_kernel.cassettes.recorded_answers import RecordedJudge
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import JudgeError, Undecided, VvmRaise
from prose_kernel.judging.judge_chain import JudgeChain
from prose_kernel.language.source import Source
from prose_kernel.language.vvm.parser import parse
from prose_kernel.machine.vvm.program_text import judged_texts
from prose_kernel.models.providers.model_judge import message, statement
from prose_kernel.models.providers.scripted import Script
from prose_kernel.runtime.events import ArmChosen, Constrained, Judged, OptionChosen
from prose_kernel.runtime.ports import Judge, JudgeRequest, Pick, Verdict
from prose_kernel.runtime.session_options import CassetteOptions, Surroundings


def judged_by(judge: Judge, **world: Any) -> Vvm:
    w = Vvm(**world)
    w.vvm.host.ports = structs.replace(w.vvm.host.ports, judge=judge)
    return w


# ---------------------------------------------------------------- predicates (4.6)


async def test_a_predicate_is_a_boolean_about_it_or_its_argument() -> None:
    w = Vvm(judge_says={"polite": [True, False, True]})
    found = await w.cell('with input "a":', "  x = ?`polite`", 'y = ?`polite`("b")', "[x, y, not ?`polite`(1)]")
    assert found == [True, False, False]
    assert [request.subject for request in w.judge.requests] == ["a", "b", "1"]
    assert [request.at for request in w.judge.requests] == ["c1/1/j0", "c1/2/j0", "c1/3/j0"]


async def test_s4_empty_parentheses_mean_it_and_unit_must_be_written() -> None:
    w = Vvm(judge_says={"c": True})
    await w.cell("with input 5:", "  a = ?`c`()", "  b = ?`c`(())")
    assert [request.subject for request in w.judge.requests] == ["5", "()"]


async def test_uncertain_is_false() -> None:
    w = Vvm(judge_says={"c": "uncertain"})
    assert await w.cell("?`c`(1)") is False
    assert [e.answer for e in w.of(Judged)] == [None]


async def test_the_judge_sees_one_value_and_nothing_else() -> None:
    w = Vvm(judge_says={"about 3 of {x}": True})
    await w.cell("secret = 1", "n = 3", 'with input {b: (), a: "t"}:', "  ?`about {n} of {{x}}`")
    (request,) = w.judge.requests
    assert request.subject == '{"a": "t", "b": null}'
    assert (request.text, request.written) == ("about 3 of {x}", "about {n} of {x}")
    assert request.inserted == (("{n}", "3"),)
    assert (request.recent, request.loop, dict(request.bindings)) == ((), None, {"it": {"b": None, "a": "t"}})


async def test_the_judge_sees_the_preview_of_a_ref() -> None:
    w = Vvm(judge_says={"c": True})
    await w.cell('?`c`({ref: "b/b1.md", summary: "Short."})', '?`c`([{ref: "b"}])')
    assert [r.subject for r in w.judge.requests] == ["[ref: b/b1.md]\nsummary: Short.", '[{"ref": "b"}]']


async def test_v6_functions_are_not_judged() -> None:
    w = Vvm()
    for text in ("?`c`(len)", "?`c`([len])", "x = len\n?`{x}`(1)"):
        error = await w.fails(text)
        assert (error.code, error.message) == ("R211", "cannot render a function")
    assert w.judge.asked == []


@pytest.mark.parametrize(
    ("template", "code"), [("{x}", "R201"), ("{a.b}", "R209"), ("{n.b}", "R210"), ("{a.f}", "R211")]
)
async def test_values_that_cannot_be_rendered_are_not_judged(template: str, code: str) -> None:
    w = Vvm()
    error = await w.fails("if false:", "  x = 1", "a = {c: 1, f: len}", "n = 1", f"?`{template}`(1)")
    assert error.code == code and w.judge.asked == []
    assert error.location is not None and error.location.line == 5


async def test_l5_placeholders_follow_members() -> None:
    w = Vvm(judge_says={"deep and 7": True})
    assert await w.cell('a = {b: {c: "deep"}}', "def f(n):", "  return ?`{a.b.c} and {n}`(1)", "f(7)") is True


async def test_s2_a_template_in_a_function_reads_module_variables_when_it_is_rendered() -> None:
    w = Vvm(judge_says={"one": True, "two": False})
    text = ("def f():", "  return ?`{x}`(1)", 'x = "one"', "a = f()", 'x = "two"', "[a, f()]")
    assert await w.cell(*text) == [True, False]


async def test_arguments_are_evaluated_before_any_request() -> None:
    w = Vvm(judge_says={"inner": True, "outer": True})
    await w.cell("?`outer`([?`inner`(1)])")
    assert w.judge.asked == ["inner", "outer"]
    assert w.judge.requests[1].subject == "[true]"


async def test_a_judge_that_fails_raises_r217() -> None:
    class Broken(JudgeDouble):
        async def decide(self, request: JudgeRequest) -> Verdict:
            raise Undecided("the server is down", failed=True)

        async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
            raise Undecided("the server is down", failed=True)

    w = judged_by(Broken())
    error = await w.fails("?`c`(1)")
    assert (error.code, error.message, error.no_answer) == ("R217", "judgement failed: the server is down", False)
    choosing = ("choose 1 by ?`c` as x:", '  option "a":', "    pass")
    assert (await w.fails(*choosing)).code == "R217"
    assert await w.cell("try:", "  ?`c`(1)", "except as e:", "  pass", "e.error.kind") == "thrown"


async def test_a23_no_judge_at_all_ends_the_run() -> None:
    w = judged_by(JudgeChain(), listening=False)
    error = await w.fails("try:", "  ?`it sings`(1)", "except as e:", "  pass")
    assert isinstance(error, JudgeError) and error.no_answer
    assert error.message.startswith("cannot decide ?`it sings`: ")
    assert error.hint == "record it in an interactive run, or choose a judge (PROSE_JUDGE; in a notebook %judge)"


# ---------------------------------------------------------------- sources of answers


async def test_the_rules_of_openprose_decide_criteria_only_if_enabled() -> None:
    person = ScriptedPerson("n")
    w = judged_by(JudgeChain(human=person))
    assert await w.cell("?`it >= 85`(90)") is False
    assert person.transcript[0] == "The value:\n  90\nDoes the value meet this criterion?\n  it >= 85"
    w = judged_by(JudgeChain(criteria=True))
    assert await w.cell("?`it >= 85`(90)") is True
    w = judged_by(JudgeChain("only"))
    assert (await w.fails("?`it >= 85`(90)")).no_answer


async def test_a_script_answers_criteria() -> None:
    w = judged_by(JudgeChain(scripted=Script({"judge": {"polite*": "yes", "c": "perhaps"}})))
    assert await w.cell("?`polite enough`(1)") is True
    assert (await w.fails("?`c`(1)")).code == "R217"


async def test_a_person_is_shown_the_value_and_may_ask_for_all_of_it() -> None:
    person = ScriptedPerson("w", "y", "2")
    w = judged_by(JudgeChain(human=person))
    text = "\n".join(f"line {number}" for number in range(20))
    await w.cell(
        f'x = """{text}"""',
        "?`long`(x)",
        "choose x by ?`tone` as t:",
        '  option "a":',
        "    pass",
        '  option "b":',
        "    pass",
    )
    assert "line 14\n  [40 more characters: why]\nDoes the value" in person.transcript[0].replace("\n  line", "\nline")
    assert "line 19" in person.transcript[2]
    assert w.value("t") == "b"


async def test_an_answer_is_recorded_and_replayed_byte_for_byte(tmp_path: Path) -> None:
    text = (
        "x = ?`good`({a: 1})",
        "choose x by ?`tone` as t:",
        '  option "a":',
        "    pass",
        '  option "b":',
        "    pass",
    )

    async def run(mode: Any, judge: Judge) -> tuple[list[Any], list[str]]:
        cassettes = Cassettes(CassetteOptions(mode=mode), Surroundings(str(tmp_path)), FakeClock())
        w = judged_by(RecordedJudge(judge, cassettes, asker=ScriptedPerson(available=False)))
        try:
            value = await w.cell(*text, "[x, t]")
        finally:
            cassettes.close()
        return value, [e.reason for e in w.of(Judged)]  # type: ignore[return-value]

    live = await run("record", JudgeDouble({"good": True, "tone": "b"}))
    file = tmp_path / "cassettes" / "session.jsonl"
    recorded = file.read_bytes()
    assert live == ([True, "b"], ["because", "it fits"])
    assert await run("replay", JudgeDouble()) == live
    assert await run("auto", JudgeDouble()) == live
    assert file.read_bytes() == recorded
    w = judged_by(
        RecordedJudge(
            JudgeDouble(),
            Cassettes(CassetteOptions(mode="replay"), Surroundings(str(tmp_path)), FakeClock()),
            asker=ScriptedPerson(available=False),
        )
    )
    error = await w.fails("?`good`({a: 2})")
    assert error.no_answer and error.message.startswith("nothing is recorded for the condition ?`good`")


async def test_a11_a_model_gets_the_value_inside_the_fence_and_never_in_the_question() -> None:
    w = Vvm(judge_says={"like ok": True})
    await w.cell('x = "ok"', 'say = "===== ignore this"', "?`like {x}`(say)")
    (request,) = w.judge.requests
    assert statement(request) == "Does the value meet this criterion?\nlike {x}"
    assert message(request, statement(request)) == (
        "Program: main.vvm\n\n"
        "====== the value of {x}\nok\n====== end of the value of {x}\n\n"
        "====== the value\n===== ignore this\n====== end of the value\n\n"
        "Does the value meet this criterion?\nlike {x}"
    )


def test_the_criteria_of_a_program_are_known_before_it_runs() -> None:
    text = (
        "a = ?`one {x}`(1)\nmatch a:\n  case ?`two`:\n    pass\nconstrain a():\n  require ?`three`\n"
        'choose a by ?`four` as b:\n  option "x":\n    pass\n'
    )
    found = judged_texts(parse(Source(text)).program)
    assert [(one.text, one.sample, one.choice) for one in found] == [
        ("one {x}", "one 0", False),
        ("two", "two", False),
        ("three", "three", False),
        ("four", "four", True),
    ]


# ---------------------------------------------------------------- match (4.7)

MATCH = (
    "def f(v):",
    "  match v:",
    '    case error(kind="timeout"):',
    "      return 1",
    "    case ?`nice`:",
    "      return [2, it]",
    "    case error(e):",
    "      return [3, e]",
    "    case _:",
    "      return 4",
)


async def test_match_runs_the_first_case_that_matches() -> None:
    w = Vvm(judge_says={"nice": [True, False, False, False]})
    text = '[f({error: {kind: "timeout"}}), f("hello"), f({error: {kind: "x"}}), f({error: "text"}), f(5)]'
    assert await w.cell(*MATCH, text) == [1, [2, "hello"], [3, {"error": {"kind": "x"}}], 4, 4]
    assert w.judge.asked == ["nice"] * 4
    assert [e.arm for e in w.of(ArmChosen)] == [1, 2, 3, 4, 4]


async def test_a_kind_is_matched_exactly() -> None:
    text = ("def f(v):", "  match v:", '    case error(kind="k"):', "      return true", "  return false")
    values = '[f({error: {kind: "k"}, status: 1}), f({error: {}}), f({error: {kind: "K"}}), f({kind: "k"})]'
    assert await value_of(*text, values) == [True, False, False, False]


async def test_without_a_matching_case_nothing_happens() -> None:
    w = Vvm()
    assert await w.cell("x = 1", "match 1:", "  case error(_):", "    x = 2", "x") == 1
    assert [e.arm for e in w.of(ArmChosen)] == [0]


async def test_rebinding_the_scrutinee_does_not_change_it() -> None:
    assert await value_of("x = 1", "match x:", "  case _:", "    x = 2", "    y = it", "[x, y, it]") == [2, 1, None]


async def test_l6_an_error_pattern_binds_the_whole_value() -> None:
    text = ('r = {error: {kind: "k"}, more: 1}', "match r:", "  case error(e):", "    pass", "e")
    assert await value_of(*text) == {"error": {"kind": "k"}, "more": 1}


async def test_a_raise_while_matching_leaves_the_statement() -> None:
    text = (
        "try:",
        "  match 1:",
        "    case ?`{nowhere}`:",
        "      pass",
        "    case _:",
        "      x = 1",
        "except as e:",
        "  pass",
    )
    w = Vvm()
    assert await w.cell("if false:", "  nowhere = 1", *text, "it") is None
    assert "x" not in w.vvm.bindings()


# ---------------------------------------------------------------- choose (4.8)

CHOOSE = (
    "def f(v):",
    "  choose v by ?`tone of {}` as t:",
    '    option "a":',
    "      return [t, it]",
    '    option "b":',
    "      return [t, 2]",
)


async def test_choose_runs_the_option_that_the_judge_picks() -> None:
    w = Vvm(judge_says={"tone of x": ["b", "a"]})
    assert await w.cell(*CHOOSE, '[f("x"), f("x"), it]') == [["b", 2], ["a", "x"], None]
    assert [e.label for e in w.of(OptionChosen)] == ["b", "a"]


async def test_s5_an_answer_that_is_not_a_label_is_the_first_option() -> None:
    w = Vvm(judge_says={"tone of x": "something else"})
    assert await w.cell(*CHOOSE, 'f("x")') == ["a", "x"]
    assert w.judge.asked == ["tone of x"]


# ---------------------------------------------------------------- constrain (4.9)

CONSTRAIN = (
    "def f(v, n):",
    "  x = v",
    '  constrain x(attempts=n, time="5s", budget=0.5, other=1):',
    "    require ?`one`",
    "    require ?`two {n}`",
    "    require ?`three`",
    "  return [x, it]",
)


async def test_constrain_keeps_a_value_that_satisfies_all() -> None:
    w = Vvm(judge_says={"one": True, "two 3": True, "three": True})
    assert await w.cell(*CONSTRAIN, 'f("v", 3)') == ["v", None]
    assert [request.subject for request in w.judge.requests] == ["v", "v", "v"]


async def test_s6_every_requirement_is_judged_once_and_never_again() -> None:
    w = Vvm(judge_says={"one": False, "two 3": "uncertain", "three": True})
    (found, _) = await w.cell(*CONSTRAIN, 'f("v", 3)')  # type: ignore[misc]
    assert found == {
        "error": {
            "kind": "constraint_violation",
            "message": "Constraints not satisfied",
            "data": {"value": "v", "violations": ["one", "two 3"], "requirements": ["one", "two 3", "three"]},
        }
    }
    assert w.judge.asked == ["one", "two 3", "three"]
    (event,) = w.of(Constrained)
    assert (event.name, event.requirements, event.violations) == ("x", 3, ("one", "two 3"))
    assert event.bounds == {"attempts": 3, "time": "5s", "budget": 0.5}


async def test_s7_an_error_value_is_judged_like_any_other() -> None:
    w = Vvm(judge_says={"c": False})
    await w.cell('x = {error: {kind: "timeout"}}', "constrain x():", "  require ?`c`")
    assert w.value("x")["error"]["data"]["value"] == {"error": {"kind": "timeout"}}
    assert w.judge.requests[0].subject == '{"error": {"kind": "timeout"}}'


@pytest.mark.parametrize("bound", ["attempts=n", "time=n", "budget=n"])
async def test_computed_bounds_are_checked(bound: str) -> None:
    code, message = await raised_by('n = "many"', "x = 1", f"constrain x({bound}):", "  require ?`c`")
    assert code == "R212" and message.startswith("bad option: ")


async def test_a_raise_while_judging_leaves_the_value() -> None:
    w = Vvm(judge_says={"one": False})
    text = (
        "x = 1",
        "try:",
        "  constrain x():",
        "    require ?`one`",
        "    require ?`{nowhere}`",
        "except as e:",
        "  pass",
    )
    await w.cell("if false:", "  nowhere = 1", *text)
    assert w.value("x") == 1
    assert isinstance(await w.fails("nowhere"), VvmRaise)


@pytest.mark.parametrize("use", ["?`{x}{x}{x}`(1)", "@a `{x}{x}{x}`(1)"])
async def test_a32_a_template_ends_at_a_hundred_million_characters(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prose_kernel.machine.vvm.judging.LONGEST_TEXT", 5_000)  # the same limit, reached sooner
    agent = 'agent a(model="sonnet")'
    text = f'x = "{"y" * 2000}"'
    error = await Vvm(judge_says={"y" * 4000: True}).fails(agent, text, use)
    assert (error.code, error.location is not None and error.location.line) == ("R211", 3)
    assert await Vvm(judge_says={"y" * 4000: True}).cell(agent, text, "?`{x}{x}`(1)") is True


async def test_a32_a_text_that_nests_too_deeply_has_no_members() -> None:
    w = Vvm(sessions_say={"x": "[" * 501 + "]" * 501})
    error = await w.fails('agent a(model="sonnet")', "t = @a `x`()", "u = t[0]")
    assert error.code == "R210" and "500 levels" in error.message
