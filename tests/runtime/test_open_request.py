"""The steps of a request and their records, without a model (`runtime/open_request.py`)."""

from __future__ import annotations

from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.journal_records import NOTHING, Record, Step, StepEnded
from prose_kernel.runtime.open_request import MODEL, TOOL, Steps, folded

BY = ["vendor", "small"]


class Conversation:
    """Steps over several processes; each `process()` starts with the records of all earlier ones."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.steps = self.process()

    def process(self, *run_ids: bytes) -> Steps:
        before = [one for one in self.records if isinstance(one, (Step, StepEnded))]
        self.steps = Steps("c1/s0", self.records.append, folded(before), without=run_ids)
        return self.steps

    def make(self, kind: str, text: str, answer: str | None) -> str:
        """Make a step or take its recorded answer; return its place and attempt, or `known ANSWER`."""
        known = self.steps.known(kind, text)
        if known is not None:
            return f"known {codec.decode(known, str)}"
        step = self.steps.begin(kind, text, text, BY if kind == MODEL else ())
        if answer is not None:
            step.ends(codec.encode(answer), [*BY, {"requests": 1, "tokens_in": 5}] if kind == MODEL else ())
        return f"{step.at} {step.attempt}"


def test_a_step_has_a_place_and_an_attempt_that_a_service_can_recognize() -> None:
    talk = Conversation()
    assert talk.make(MODEL, "begin", "call") == "c1/s0/m1 1"
    assert talk.make(TOOL, "pay", None) == "c1/s0/t2 1"
    for attempt in (2, 3):
        talk.process()
        assert talk.make(MODEL, "begin", "never") == "known call"
        assert talk.make(TOOL, "pay", None) == f"c1/s0/t2 {attempt}"


def test_a_different_answer_discards_later_steps_and_no_place_is_used_twice() -> None:
    talk = Conversation()
    for kind, text, answer in (
        (MODEL, "begin", "call a"),
        (TOOL, "a", "1"),
        (MODEL, "begin", "call b"),
        (TOOL, "b", "2"),
    ):
        talk.make(kind, text, answer)
    talk.process()
    assert talk.make(MODEL, "begin", "") == "known call a"
    assert talk.make(TOOL, "other", "9") == "c1/s0/t5 1"
    assert talk.make(MODEL, "begin", "call c") == "c1/s0/m6 1"
    assert talk.steps.unused() == [["", *BY, {"requests": 1, "tokens_in": 5}, False]]
    talk.process()  # the records of both conversations exist; the second one continues
    answers = [talk.make(*step, "") for step in ((MODEL, "begin"), (TOOL, "other"), (MODEL, "begin"), (TOOL, "c"))]
    assert answers == ["known call a", "known 9", "known call c", "c1/s0/t7 1"]


def test_a_failed_request_is_skipped_and_a_lost_one_is_counted() -> None:
    talk = Conversation()
    step = talk.steps.begin(MODEL, "begin", by=BY)
    step.ends(usage=[*BY, {"requests": 1}])
    step.ends(codec.encode("twice"))  # ignored
    talk.make(MODEL, "begin", "call a")
    talk.make(TOOL, "a", "1")
    talk.make(MODEL, "begin", None)
    talk.process()
    assert talk.steps.coming(MODEL) is not None
    assert [talk.make(*one, None) for one in ((MODEL, "begin"), (TOOL, "a"))] == ["known call a", "known 1"]
    assert talk.make(MODEL, "begin", "done") == "c1/s0/m4 2"
    lost = ["", *BY, {"requests": 1, "counted": False}, False]
    assert talk.steps.unused() == [["", *BY, {"requests": 1}, False], lost]
    assert talk.steps.unused() == []


def test_usage_of_unfinished_steps_is_returned_by_unused() -> None:
    talk = Conversation()
    talk.make(MODEL, "begin", "call a")
    talk.make(TOOL, "a", None)
    assert talk.process().unused() == [["", *BY, {"requests": 1, "tokens_in": 5}, False]]


def test_the_ids_of_a_run_and_its_branch_are_the_same_and_secrets_are_hidden() -> None:
    talk = Conversation()
    talk.process(b"20260101-000000-aaaaaa")
    talk.make(TOOL, "cat runs/20260101-000000-aaaaaa/x", "text")
    talk.process(b"20260101-000000-bbbbbb", b"20260101-000000-aaaaaa")
    assert talk.make(TOOL, "cat runs/20260101-000000-bbbbbb/x", None) == "known text"
    talk.make(TOOL, "curl -H 'Authorization: Bearer ghp_" + "a1B2" * 9 + "'", None)
    last = talk.records[-1]
    assert isinstance(last, Step) and "ghp_" not in last.text and len(last.text) < 600


def test_a_record_without_an_answer_stays_short() -> None:
    talk = Conversation()
    talk.make(TOOL, "x" * 100_000, None)
    assert len(codec.dumps(talk.records[-1])) < 1000
    assert folded([]) == [] and codec.encode(None) == NOTHING
