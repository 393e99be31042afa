"""The form of a question in JupyterLab sends the answer that a person would have typed."""

from __future__ import annotations

import json

import pytest
from labextension.script import LABEXTENSION, ask

from prose_kernel.notebook.stdin import described
from prose_kernel.runtime.asker import Button, Field, Form

REASON = Field("Reason")
AREA = Field("Answer", several=True, required=True, verbatim=":text")
ITEMS = Field("One a line", several=True, end="\n.")
APPROVE, FAIL, SUBMIT, SKIP = (
    Button("Approve", "approve", ": "),
    Button("Fail", ":fail", " "),
    Button("Submit", "", "", main=True),
    Button("Skip", ":skip"),
)

ANSWERS = [
    (APPROVE, REASON, "", "approve"),
    (APPROVE, REASON, "  fine ", "approve: fine"),
    (APPROVE, None, "", "approve"),
    (SUBMIT, Field("x"), "", ""),
    (SUBMIT, Field("x"), " as it is ", " as it is "),
    (SKIP, AREA, "not sent", ":skip"),
    (FAIL, AREA, "two\n  lines", ":fail two lines"),
    (SUBMIT, AREA, "two\nlines: :more", "two\nlines: :more"),
    (SUBMIT, AREA, "a\n:quit", ":text\na\n:quit"),
    (SUBMIT, AREA, " .", ":text\n ."),
    (SUBMIT, AREA, "wait..\n...", "wait..\n..."),
    (SUBMIT, ITEMS, "a\nb", "a\nb\n."),
]


def test_a_clicked_button_sends_the_typed_answer() -> None:
    questions = []
    for button, field, text, _ in ANSWERS:
        question = described(Form("gate", "gate", (button,), field))
        (shown,) = question["buttons"]  # type: ignore[misc]
        questions.append({"do": "said", "question": question, "button": shown, "text": text})
    assert ask(*questions) == [wanted for *_, wanted in ANSWERS]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (-3, "0:00"), (59.2, "1:00"), (61, "1:01"), (7199, "119:59"), (7200, "2 hours"), (200_000, "2 days")],
)
def test_the_remaining_time_has_a_short_form(seconds: float, shown: str) -> None:
    assert ask({"do": "left", "seconds": seconds}) == [f"{shown} left"]


def test_notifications_are_on_by_default() -> None:
    schema = json.loads((LABEXTENSION / "schemas" / "prose-kernel" / "people.json").read_text())
    assert schema["properties"]["notify"]["default"] is True
