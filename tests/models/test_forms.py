"""Every button of every form is a valid answer to its question; no question is asked twice."""

from __future__ import annotations

import json
import re

import pytest
from gate_people import TestClock
from models.people import ScriptedPerson

from prose_kernel.access.approvals import Approvals, Ask
from prose_kernel.errors import ImportProgramError, ProviderError
from prose_kernel.judging.human import HumanJudge
from prose_kernel.models.providers.human import HumanSessions
from prose_kernel.programs import consent
from prose_kernel.runtime.asker import Button, Form, PersonUser, SerialAsker
from prose_kernel.runtime.ports import GateRequest, JudgeRequest, Question, SessionRequest, SessionResult
from prose_kernel.storage.gates.answers import GateConversation


class Clicker:
    """A front end with forms whose person presses `label`, then `further`; the field holds `text`."""

    available = True

    def __init__(self, label: str, text: str = "", *further: str) -> None:
        self.labels = [label, *further]
        self.text = text
        self.forms: list[Form] = []
        self.shown: list[str] = []

    async def ask(self, prompt: str) -> str:
        raise AssertionError(f"{prompt!r} has no form")

    async def ask_form(self, prompt: str, form: Form) -> str:
        self.forms.append(form)
        label = self.labels.pop(0)
        button = next(button for button in form.buttons if button.label == label)
        return self.answered(form, button)

    def answered(self, form: Form, button: Button) -> str:
        """Return the answer that the extension sends (tests/labextension/test_people.py)."""
        if form.field is None or button.joins is None or (button.answer and not self.text):
            return button.answer
        return button.answer + button.joins + self.text + form.field.end

    def show(self, text: str) -> None:
        self.shown.append(text)


JUDGED = JudgeRequest("the draft sings", "c1/j0")
WHY = "no rule"
LABELS = ("2", "1", "so  so", "So so")


@pytest.mark.parametrize(("label", "value"), [("Yes", True), ("No", False), ("Uncertain", None)])
async def test_the_form_of_a_condition(label: str, value: bool | None) -> None:
    front = Clicker("Why?", "", label)
    assert (await HumanJudge(front).decide(JUDGED, WHY)).answer is value
    assert [form.text for form in front.forms] == ["the draft sings"] * 2 and "no rule" in front.shown[-1]


@pytest.mark.parametrize("number", range(4))
async def test_a_choice_is_exact_even_among_numbers_and_similar_labels(number: int) -> None:
    class Nth(Clicker):
        async def ask_form(self, prompt: str, form: Form) -> str:
            return form.buttons[number].answer

    picked = await HumanJudge(Nth("")).choose(JUDGED, LABELS)
    assert picked.label == LABELS[number] or picked.label.casefold() == " ".join(LABELS[number].split()).casefold()


async def test_the_form_of_a_texts_members_and_items() -> None:
    assert (await HumanJudge(Clicker("Submit", "7")).extract("size 7", "size")).value == 7
    assert (await HumanJudge(Clicker("Submit", "a\n b \n")).items("a and b")).value == ["a", "b"]


@pytest.mark.parametrize(("label", "answer"), [("Allow", "allow"), ("Do not allow", "deny"), ("Always", "allow")])
async def test_the_form_of_a_permission(label: str, answer: str) -> None:
    clock, front = TestClock(), Clicker(label)
    ruling = await Approvals(front, clock).ask(Ask("execute", "agent a", "c1/s0", "rm x", "rm *"))
    (form,) = front.forms
    assert (ruling.answer, form.text, form.note) == (answer, "rm x", "always = rm *, for the rest of this run")
    assert form.left is not None and form.left() == 300.0
    clock.seconds = 100.0
    assert form.left() == 200.0


async def test_the_form_of_a_program_from_elsewhere() -> None:
    fetched = consent.Fetched("https://a.test/p", "https://a.test/p", b'exec "make"', "0" * 64)
    asked = [consent.Candidate(fetched, ("exec",))]
    front = Clicker("Show", "", "Yes")
    await consent.agree(asked, consent.Trust(), SerialAsker(front))
    assert any('exec "make"' in text for text in front.shown)
    with pytest.raises(ImportProgramError, match="did not agree"):
        await consent.agree(asked, consent.Trust(), SerialAsker(Clicker("No")))


async def test_the_form_of_an_input() -> None:
    question = Question("who", "Who?")
    assert await PersonUser(Clicker("Submit", " as typed ")).ask(question) == " as typed "
    assert await PersonUser(ScriptedPerson("by line")).ask(question) == "by line"


@pytest.mark.parametrize(("label", "status"), [("Approve", "approved"), ("Reject", "rejected")])
@pytest.mark.parametrize("comment", ["", "fine: really"])
async def test_the_form_of_a_gate(label: str, status: str, comment: str) -> None:
    request = GateRequest("g", "g", "Go?", ("user",), 60.0, "1m", "fail", None)
    decision = await GateConversation(request, "g", Clicker(label, comment), "cell").hold()
    assert (decision.status, decision.decided_by, decision.comment) == (status, "user", comment)


async def test_a_gate_that_is_not_for_the_person_says_why_and_can_be_rejected() -> None:
    request = GateRequest("g", "g", "Go?", ("release",), 60.0, "1m", "fail", None)
    front = Clicker("Approve", "", "Reject")
    assert (await GateConversation(request, "g", front, "cell").hold()).status == "rejected"
    assert [form.note for form in front.forms] == [
        "allow release, timeout 1m",
        "gate g: user may not approve, allowed: release",
    ]


async def session_result(front: Clicker | ScriptedPerson) -> SessionResult:
    return await HumanSessions(front).run(SessionRequest("session", "So?", at="c1/s0"), lambda _: None)


async def test_a_session() -> None:
    result = await session_result(Clicker("Submit", ":text\none\n:fail no\n.\n  two"))
    assert result.text == "one\n:fail no\n.\n  two"
    assert (await session_result(Clicker("Skip"))).details == {"skipped": True}
    with pytest.raises(ProviderError, match=re.escape("not today")):
        await session_result(Clicker("Fail", "not today"))


async def test_an_empty_text_is_asked_for_again() -> None:
    assert (await session_result(ScriptedPerson(":text\n ", "words"))).text == "words"


# ---------------------------------------------------------------- typed answers

FIELDS = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["approve", "reject"]},
        "score": {"type": "integer"},
        "ok": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "places": {"type": "array", "items": {"type": "string"}},
        "deep": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["verdict", "score", "ok", "note", "places", "deep"],
}


class Writer(Clicker):
    """Submits one set of fields after the other."""

    def __init__(self, *answers: dict[str, object]) -> None:
        super().__init__("Submit", "", *["Submit"] * len(answers))
        self.answers = list(answers)

    def answered(self, form: Form, button: Button) -> str:
        return json.dumps(self.answers.pop(0))


async def test_a49_a_typed_answer_has_a_field_each_and_keeps_what_was_typed() -> None:
    given = {"verdict": "approve", "score": "x", "ok": "yes", "note": "", "places": ["a", "b"], "deep": '[{"a": 1}]'}
    front = Writer(given, given | {"score": "3"})
    request = SessionRequest("session", "Review\nit", "c1/s0", output=FIELDS)
    result = await HumanSessions(front).run(request, lambda _: None)
    assert json.loads(result.text or "") == {
        "verdict": "approve", "score": 3, "ok": True, "note": None, "places": ["a", "b"], "deep": [{"a": 1}],
    }  # fmt: skip
    first, second = front.forms
    assert [(part.name, part.kind, part.options) for part in first.parts] == [
        ("verdict", "choice", ("approve", "reject")),
        ("score", "line", ()),
        ("ok", "choice", ("yes", "no")),
        ("note", "text", ()),
        ("places", "list", ()),
        ("deep", "json", ()),
    ]
    assert [part.value for part in second.parts] == ["approve", "x", "yes", "", "a\nb", '[{"a": 1}]']
    assert second.note.startswith("That does not fit: `score`") and first.note == ""


async def test_a49_the_task_of_a_session_is_shown_once_with_its_line_breaks() -> None:
    front = Clicker("Submit", "an answer")
    await HumanSessions(front).run(SessionRequest("session", "Write\na haiku", "c1/s0"), lambda _: None)
    assert front.forms[0].above  # the form shows it only to people who do not see the text above
    assert sum("Write\na haiku" in text for text in front.shown) == 1
