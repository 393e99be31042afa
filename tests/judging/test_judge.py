"""The judge chain through the `Judge` port (openprose.md 3.4, sessions.md 3.2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from models.people import ScriptedPerson
from msgspec import structs

from prose_kernel.errors import NoPerson, StateError, Undecided
from prose_kernel.judging.judge_chain import FIX, Condition, JudgeChain, decidable_conditions
from prose_kernel.language.openprose import tree
from prose_kernel.language.source import Source, Span
from prose_kernel.machine.openprose.program_text import judged_texts
from prose_kernel.models.providers.scripted import Script
from prose_kernel.runs.provider_chain import connect
from prose_kernel.runs.session_description import DryRunCommands
from prose_kernel.runtime.ports import Finding, JudgeRequest, Key, Pick, Verdict
from prose_kernel.runtime.session_options import SessionOptions
from prose_kernel.runtime.values import Reference, Value

TASTE = "the draft sings"


def asked(text: str = TASTE, **more: Any) -> JudgeRequest:
    return JudgeRequest(text, "c1/j0", **more)


def script(**judge: object) -> Script:
    return Script({"judge": {key.replace("_", " "): answer for key, answer in judge.items()}})


# ---------------------------------------------------------------- the order of the chain


async def test_rules_decide_first_and_name_the_rule() -> None:
    person = ScriptedPerson("n")
    chain = JudgeChain(human=person, scripted=Script({"judge": {"*": "no"}}))
    verdict = await chain.decide(asked("score >= 85", bindings={"score": "90"}))
    assert verdict == Verdict(True, "rules", 'number: score is "90"')
    assert person.transcript == []


async def test_the_script_and_then_the_person_follow_the_rules() -> None:
    person = ScriptedPerson("y")
    chain = JudgeChain(human=person, scripted=script(the_draft=["no", "uncertain", "no progress"]))
    assert [await chain.decide(asked()) for _ in range(3)] == [
        Verdict(False, "scripted"),
        Verdict(None, "scripted"),
        Verdict(None, "scripted", no_progress=True),
    ]
    assert await chain.decide(asked("it rains")) == Verdict(True, "human")


async def test_rules_off_leaves_a_plain_condition_to_the_next_judge() -> None:
    chain = JudgeChain("off", ScriptedPerson("n"))
    assert await chain.decide(asked("score >= 85", bindings={"score": "90"})) == Verdict(False, "human")


async def test_rules_only_asks_no_judge() -> None:
    person = ScriptedPerson("y")
    chain = JudgeChain("only", person, script(the_draft="yes"))
    assert (await chain.decide(asked("docs is empty", bindings={"docs": ""}))).answer is True
    for question in (chain.decide(asked()), chain.choose(asked(), ("a", "b")), chain.extract(asked(), "t", "x.y")):
        with pytest.raises(Undecided, match=r"^no rule decides "):
            await question
    with pytest.raises(Undecided, match=r"^no rule decides which items a text holds"):
        await chain.items(asked(), "text")
    assert person.transcript == []


async def test_an_undecided_condition_is_named_with_the_reason_and_the_fix() -> None:
    chain = JudgeChain(human=ScriptedPerson(available=False))
    with pytest.raises(Undecided) as undecided:
        await chain.decide(asked("the draft\n  sings"))
    assert str(undecided.value) == "cannot decide **the draft sings**: no rule reads it"
    assert undecided.value.hint == FIX
    assert "docs/reference/judge-rules.md" in FIX
    with pytest.raises(Undecided, match=r"^cannot decide \*\*rating >= 85\*\*: there is no rating to go by$"):
        await chain.decide(asked("rating >= 85"))
    with pytest.raises(Undecided, match=r"^cannot decide the choice \*\*tone\*\*: no binding it names is one of "):
        await chain.choose(asked("tone"), ("a", "b"))
    with pytest.raises(Undecided, match=r"^cannot decide what `a\.b` is in a text: the text is not JSON$") as missing:
        await JudgeChain().extract(asked(), "prose", "a.b")
    assert missing.value.hint is not None and "rule" not in missing.value.hint  # no rule finds a field


class Leaves(ScriptedPerson):
    async def ask(self, prompt: str) -> str:
        raise NoPerson


async def test_a_person_who_leaves_decides_nothing() -> None:
    with pytest.raises(Undecided, match="cannot decide"):
        await JudgeChain(human=Leaves()).decide(asked())
    with pytest.raises(Undecided, match=r"the person's input ended before \*\*the draft sings\*\* was decided"):
        await JudgeChain(human=ScriptedPerson("what?")).decide(asked())


async def test_a_scripted_answer_that_is_not_a_verdict_is_refused() -> None:
    with pytest.raises(Undecided, match=r'the script answers \*\*the draft sings\*\* with "formal"') as refused:
        await JudgeChain(scripted=script(the_draft="formal")).decide(asked())
    assert refused.value.hint == "a condition takes yes, no, uncertain or no progress"


# ---------------------------------------------------------------- the person


@pytest.mark.parametrize(
    ("typed", "verdict"),
    [
        ("y", Verdict(True, "human")),
        (" YES ", Verdict(True, "human")),
        ("no", Verdict(False, "human")),
        ("u", Verdict(None, "human")),
        ("Uncertain", Verdict(None, "human")),
        ("no progress", Verdict(None, "human", no_progress=True)),
    ],
)
async def test_answers_that_a_person_may_type(typed: str, verdict: Verdict) -> None:
    assert await JudgeChain(human=ScriptedPerson("", "perhaps", typed)).decide(asked()) == verdict


async def test_why_shows_the_named_bindings() -> None:
    def gone() -> str:
        raise StateError("gone")

    bindings: dict[str, Value] = {
        "draft": "The old pond,\na frog jumps in: the sound of water, and so on.",
        "lost": Reference(Key("lost"), gone),
        "other": "x",
    }
    person = ScriptedPerson("why", "y")
    request = asked("draft sings and lost does", bindings=bindings, recent=("1→ draft ✓",), loop="until", loop_index=2,
                    loop_maximum=5)  # fmt: skip
    await JudgeChain(human=person).decide(request)
    assert person.transcript == [
        "Is this true? (before pass 3 of 5; yes ends the loop)\n  draft sings and lost does",
        "? [y]es, [n]o, [u]ncertain, or why? ",
        "Not decided by a rule: no rule reads it.\n"
        '  draft: "The old pond, a frog jumps in: the soun…"\n'
        "  lost: (cannot be read)\n"
        "Last events:\n"
        "  1→ draft ✓",
        "? [y]es, [n]o, [u]ncertain, or why? ",
    ]


async def test_why_without_named_bindings_lists_the_latest() -> None:
    person = ScriptedPerson("why", "y")
    await JudgeChain(human=person).decide(asked("ready?", bindings={f"v{n}": n for n in range(25)}))
    lines = person.transcript[2].splitlines()
    assert (lines[1], lines[20], lines[21]) == ("  v5: 5", "  v24: 24", "  and 5 earlier names")


async def test_conditions_of_parallel_branches_are_asked_one_at_a_time() -> None:
    person = ScriptedPerson("why", "y", "maybe", "n", "u")
    chain = JudgeChain(human=person)
    verdicts = await asyncio.gather(*(chain.decide(asked(f"case {n} holds")) for n in range(3)))
    assert [verdict.answer for verdict in verdicts] == [True, False, None]
    assert person.most_asking == 1


# ---------------------------------------------------------------- choice

LABELS = ("ship it", "Fix first", "stop")


@pytest.mark.parametrize(
    ("typed", "label"), [("2", "Fix first"), ("fix FIRST", "Fix first"), ("stop", "stop"), (" 1 ", "ship it")]
)
async def test_a_person_picks_by_number_or_name(typed: str, label: str) -> None:
    person = ScriptedPerson("0", "4", "²", "9" * 30, "nothing", typed)
    assert await JudgeChain(human=person).choose(asked("how bad is it"), LABELS) == Pick(label, "human")
    assert person.transcript[:2] == [
        "Which one?\n  how bad is it\n  1. ship it\n  2. Fix first\n  3. stop",
        "? 1 to 3, or why? ",
    ]


async def test_why_in_a_choice() -> None:
    person = ScriptedPerson("why", "1")
    await JudgeChain(human=person).choose(asked("by report", bindings={"report": "bad"}), LABELS)
    assert person.transcript[2] == '  report: "bad"'


@pytest.mark.parametrize(
    ("bindings", "pick"),
    [
        ({"mode": "stop"}, Pick("stop", "rules", 'label: mode is "stop"')),
        ({"mode": "stop\n"}, Pick("stop", "rules", 'label: mode is "stop"')),
        ({"mode": "Stop"}, Pick("scripted answer", "scripted")),
        ({"unnamed": "stop"}, Pick("scripted answer", "scripted")),
        ({"mode": ["stop"]}, Pick("scripted answer", "scripted")),
    ],
)
async def test_a_rule_picks_only_what_a_named_binding_is(bindings: dict[str, Value], pick: Pick) -> None:
    chain = JudgeChain(scripted=script(mode="scripted answer"))
    assert await chain.choose(asked("the mode", bindings=bindings), LABELS) == pick


@pytest.mark.parametrize(
    "criteria", ["what comes after the mode", "which is not the mode", "the opposite of mode", "the mode or level"]
)
async def test_criteria_that_say_more_than_a_name_are_not_picked_by_rule(criteria: str) -> None:
    chain = JudgeChain(scripted=script(mode="scripted answer"))
    assert (await chain.choose(asked(criteria, bindings={"mode": "stop"}), LABELS)).by == "scripted"


async def test_a_value_in_a_condition_cannot_pass_for_its_words() -> None:
    for value in ('" or 3 > 2 or "', "3 > 2", "docs is empty"):
        request = JudgeRequest(
            f'docs contains "{value}"',
            "c1/j0",
            bindings={"docs": ""},
            written='docs contains "{x}"',
            inserted=(("{x}", value),),
        )
        verdict = await JudgeChain(scripted=script(docs="no")).decide(request)
        assert verdict.by == ("scripted" if '"' in value else "rules") and verdict.answer is False
        bare = structs.replace(request, text=f"{value} or docs is given", written="{x} or docs is given")
        assert (await JudgeChain(scripted=script(docs="no", **{"3": "no"})).decide(bare)).by == "scripted"
    number = JudgeRequest("90 >= 85", "c1/j0", written="{x} >= 85", inserted=(("{x}", "90"),))
    assert (await JudgeChain().decide(number)).answer is True


async def test_a_binding_that_cannot_be_read_picks_nothing() -> None:
    def gone() -> str:
        raise StateError("gone")

    with pytest.raises(Undecided):
        await JudgeChain().choose(asked("mode", bindings={"mode": Reference(Key("mode"), gone)}), LABELS)


# ---------------------------------------------------------------- extract, items


async def test_a_person_extracts_text_or_data() -> None:
    person = ScriptedPerson("Frogs", '["a", 1]')
    chain = JudgeChain(human=person)
    assert await chain.extract(asked(), "A book on frogs", "title") == Finding("Frogs", "human")
    assert await chain.extract(asked(), "A book", "tags") == Finding(["a", 1], "human")
    assert person.transcript[:2] == ["What is `title` in this text?\n\nA book on frogs", "? title: "]


async def test_a_person_lists_items() -> None:
    person = ScriptedPerson("one", " two ", "", "three\n.")
    found = await JudgeChain(human=person).items(asked(), "one two three")
    assert found == Finding(["one", "two", "three"], "human")
    assert person.transcript[0] == "Which items does this text hold?\n\none two three\n\nOne a line; end with `.`"


async def test_no_reader_has_to_split_lines() -> None:
    person = ScriptedPerson("one", ".")
    for chain in (JudgeChain(human=person), JudgeChain(dry_run=True)):
        with pytest.raises(Undecided, match="several lines"):
            await chain.items(asked(), "a.txt\n\nb.txt\n")
    assert person.transcript == []
    scripted = JudgeChain(scripted=Script({"items": {"a.txt": ["a"]}}))
    assert await scripted.items(asked(), "a.txt\nb.txt") == Finding(["a"], "scripted")


async def test_scripted_extracts_and_items() -> None:
    chain = JudgeChain(scripted=Script({"extract": {"a.b": "x"}, "items": {"list*": ["1", "2"], "single": "3"}}))
    assert await chain.extract(asked(), "prose", "a.b") == Finding("x", "scripted")
    assert (await chain.items(asked(), "list of two")).value == ["1", "2"]
    assert (await chain.items(asked(), "a single one")).value == ["3"]


# ---------------------------------------------------------------- dry run


async def test_a_dry_run_reports_undecided_and_continues() -> None:
    person = ScriptedPerson("y")
    chain = JudgeChain(human=person, dry_run=True)
    marked: dict[str, Value] = {"score": "⟦dry-run c2/s1⟧", "limit": "90"}
    assert await chain.decide(asked("score >= 85", bindings=marked)) == Verdict(None, "dry-run", "undecided")
    assert (await chain.decide(asked("limit >= 85", bindings=marked))).by == "rules"
    assert await chain.choose(asked(), LABELS) == Pick("ship it", "dry-run", "undecided: ship it | Fix first | stop")
    marker = "⟦dry-run c2/s1⟧"
    assert await chain.extract(asked(), marker, "title") == Finding(marker, "dry-run", "undecided")
    assert (await chain.items(asked(), marker)).value == [marker]
    assert person.transcript == []


async def test_a_dry_run_shows_the_body_of_a_loop_once() -> None:
    chain = JudgeChain(dry_run=True)
    first = await chain.decide(asked(loop="until", loop_index=0))
    second = await chain.decide(asked(loop="until", loop_index=1))
    assert (first.no_progress, second.no_progress) == (False, True)


# ---------------------------------------------------------------- connecting, and before a run


async def test_connect_makes_services_that_share_one_person(tmp_path: Any) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("sessions: {a: b}\njudge: {rains: yes}\n")
    services = connect(ScriptedPerson("typed"), SessionOptions(script=str(path)))
    assert (await services.judge.decide(asked("it rains"))).by == "scripted"
    assert services.commands is None
    dry = connect(services.asker, SessionOptions(provider="dry-run"))
    assert dry.asker is services.asker
    assert isinstance(dry.commands, DryRunCommands)
    assert (await dry.judge.decide(asked())).by == "dry-run"


def discretion(text: str, at: int, *parts: str | tree.Interpolation) -> tree.Discretion:
    return tree.Discretion(tree.Text(parts or (text,)), span=Span(at, at + len(text)))


def test_conditions_are_listed_in_source_order_and_marked_if_a_rule_can_decide() -> None:
    source = Source("line one\nline two\nline three\nline four\nline five\n")
    body = (tree.Assert(discretion("docs is empty", 30)),)
    program = tree.Program(
        (
            tree.Input(tree.Name("topic"), discretion("what to write about", 0)),
            tree.ExpressionStatement(
                tree.Choice(discretion("the tone", 45), (tree.Option(tree.Text(("formal",)), body),))
            ),
            tree.ExpressionStatement(
                tree.If((tree.Arm(discretion("score >= 85", 10), ()),), (tree.Assert(discretion("it sings", 20)),))
            ),
            tree.Block(
                tree.Name("f"),
                (),
                None,
                (tree.Assert(discretion("x", 19, tree.Interpolation("n", (), "{n}"), " > 3")),),
            ),
        )
    )
    assert decidable_conditions(judged_texts(program), source) == [
        Condition(2, "score >= 85", True, ("number",)),
        Condition(3, "{n} > 3", True, ("number",)),
        Condition(3, "it sings", False),
        Condition(4, "docs is empty", True, ("empty",)),
        Condition(5, "the tone", False, choice=True),
    ]
