"""A CLI agent as the judge: the last line of its reply is read strictly; it has two tries (sessions.md 5)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import ClassVar

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from models.providers.agents import Bench, agent

from prose_kernel.errors import Undecided
from prose_kernel.models.providers.agent_judge import AgentJudge, last_line
from prose_kernel.models.usage_and_prices import UsageLine, UsageTotals
from prose_kernel.runtime.ports import JudgeRequest, SessionResult, Verdict

loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with agent(tmp_path_factory.mktemp("work").resolve()) as bench:
        yield bench


Asking = Callable[..., JudgeRequest]


def asking(*todo: str, **more: object) -> JudgeRequest:
    """Return a question that contains the stub agent's reply."""
    return JudgeRequest("\n".join(f"do: {each}" for each in todo), "c1/j0", **more)  # type: ignore[arg-type]


def says(answer: object, reason: str = "because", **more: object) -> str:
    return "say Let me see.\\n" + json.dumps({"reason": reason, "answer": answer, **more})


@loop
@pytest.mark.parametrize(("word", "verdict"), [("yes", True), ("no", False), ("uncertain", None)])
async def test_a_verdict_has_its_reason_and_usage(bench: Bench, word: str, verdict: bool | None) -> None:
    found = await AgentJudge("stub", bench.sessions).decide(asking("usage 7 3 0.5", says(word)))
    assert found == Verdict(verdict, "agent", "because", details=found.details)
    assert found.details == {
        "provider": "acp:stub",
        "model": "small",
        "usage": {"requests": 1, "tokens_in": 8, "tokens_out": 3, "cost": 0.5},
    }


@loop
async def test_a14_replies_that_decide_nothing_are_counted(bench: Bench) -> None:
    judge, totals = AgentJudge("stub", bench.sessions), UsageTotals()
    with totals.listening("c1/1/s0"):
        with pytest.raises(Undecided, match="make no sense"):
            await judge.decide(asking("usage 7 3 0.5", "say perhaps"))
        with pytest.raises(Undecided, match="finds no `total`"):
            await judge.extract(asking(), "\n".join(("do: usage 7 3 0.5", "do: " + says(None, found=False))), "total")
    assert totals.lines == (UsageLine("acp:stub", "small", requests=3, tokens_in=24, tokens_out=9, cost=1.5),)


@loop
@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("Perhaps.", "its last line is not a JSON object"),
        ('{"reason": "hm"}', "`answer` is missing"),
        ('{"reason": "hm", "answer": "maybe"}', "a value in its last line does not have the form asked for"),
    ],
)
async def test_a44_an_agent_is_shown_the_reply_that_decided_nothing(reply: str, problem: str) -> None:
    class Agent:
        asked: ClassVar[list[str]] = []

        async def ask(self, text: str, model: str | None) -> SessionResult:
            self.asked.append(text)
            return SessionResult(reply if len(self.asked) == 1 else '{"reason": "it is", "answer": "yes"}')

    verdict = await AgentJudge("stub", Agent()).decide(JudgeRequest("it sings", "c1/j0"))  # type: ignore[arg-type]
    first, again = Agent.asked
    assert verdict.answer is True
    assert again.startswith(first) and reply in again.removeprefix(first) and problem in again


@loop
async def test_no_progress_is_a_verdict_only_in_a_loop(bench: Bench) -> None:
    judge = AgentJudge("stub", bench.sessions)
    found = await judge.decide(asking(says("no_progress"), loop="until", loop_index=3))
    assert (found.answer, found.no_progress) == (None, True)
    with pytest.raises(Undecided, match="the answers of the agent stub make no sense"):
        await judge.decide(asking(says("no_progress")))


@loop
async def test_an_option_is_chosen_by_its_number(bench: Bench) -> None:
    judge = AgentJudge("stub", bench.sessions, model="opus")
    pick = await judge.choose(asking(says(2)), ("red", "blue"))
    assert (pick.label, pick.by, pick.details["model"]) == ("blue", "agent", "large")
    for nonsense in (0, 3, True, "2", None):
        with pytest.raises(Undecided):
            await judge.choose(asking(says(nonsense)), ("red", "blue"))


@loop
async def test_a49_an_agent_puts_the_text_of_an_input_into_words(bench: Bench) -> None:
    options = ["rye", "wheat", 3]
    todo = "say " + json.dumps({"question": "Which bread?", "options": options})
    found = await AgentJudge("stub", bench.sessions).phrase(asking("usage 7 3 0.5", todo))
    assert (found.value, found.by) == ({"question": "Which bread?", "options": ["rye", "wheat", "3"]}, "agent")
    assert found.details["usage"] == {"requests": 1, "tokens_in": 8, "tokens_out": 3, "cost": 0.5}


@pytest.mark.parametrize(
    "reply", ["Which bread?", '{"question": "Which?"}', '{"question": "Which?", "options": "rye"}']
)
async def test_a49_a_phrasing_in_another_form_is_not_requested_again(reply: str) -> None:
    class Agent:
        asked = 0

        async def ask(self, text: str, model: str | None) -> SessionResult:
            self.asked += 1
            return SessionResult(reply)

    agent = Agent()
    with pytest.raises(Undecided):
        await AgentJudge("stub", agent).phrase(asking("x"))  # type: ignore[arg-type]
    assert agent.asked == 1


@loop
async def test_members_and_items_are_extracted_from_a_text(bench: Bench) -> None:
    judge = AgentJudge("stub", bench.sessions)
    nothing = JudgeRequest("", "c1/j0")
    score = await judge.extract(nothing, "do: " + says(85, found=True), "score")
    assert (score.value, score.by) == (85, "agent")
    with pytest.raises(Undecided, match="the agent finds no `score` in the text: not there"):
        await judge.extract(nothing, "do: " + says(None, "not there", found=False), "score")
    assert (await judge.items(nothing, "do: " + says(["a", "b"]))).value == ["a", "b"]


@loop
@pytest.mark.parametrize(
    "reply",
    ["say yes", says("yes") + "\\nI hope this helps!", 'say {"answer": "yes"', "say", says("YES"), says(["yes"])],
)
async def test_replies_that_are_not_verdicts_stay_undecided(bench: Bench, reply: str) -> None:
    with pytest.raises(Undecided):
        await AgentJudge("stub", bench.sessions).decide(asking(reply))


@loop
async def test_a_nonsense_reply_is_requested_once_more(bench: Bench) -> None:
    found = await AgentJudge("stub", bench.sessions).decide(asking("second Perhaps.", says("yes")))
    assert found.answer is True


@loop
@pytest.mark.parametrize(("todo", "tries"), [("fail -32603 busy", 2), ("fail -32602 no", 1)])
async def test_a_failing_agent_leaves_the_question_undecided(bench: Bench, todo: str, tries: int) -> None:
    with pytest.raises(Undecided, match="the judge could not answer: the agent stub failed"):
        await AgentJudge("stub", bench.sessions).decide(asking("touch-more tries", todo))
    assert (bench.cwd / "tries").read_text() == "x" * tries
    (bench.cwd / "tries").unlink()


@loop
async def test_a_judge_is_allowed_nothing(bench: Bench) -> None:
    bench.host.update({"bash": "allow", "write": "allow"})
    todo = ['ask execute {"command": "rm x"}', 'ask read {"path": "a"}', "write a.txt x", says("yes")]
    assert (await AgentJudge("stub", bench.sessions).decide(asking(*todo))).answer is True
    assert not (bench.cwd / "a.txt").exists()
    found = await bench.sessions.ask("do: ask execute {}\ndo: read a.txt")
    assert [use.outcome for use in found.trace] == ["refused", "refused"]


@given(st.text(), st.dictionaries(st.text(), st.integers()))
def test_only_a_whole_object_on_the_last_line_counts(before: str, reply: dict[str, int]) -> None:
    line = json.dumps(reply)
    assert last_line(f"{before}\n{line}\n \n") == reply
    assert last_line(f"{line}\n{before}!") != reply or not reply
