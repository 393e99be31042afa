"""A CLI agent as the judge: its answer is the last line, one JSON object, parsed strictly and requested at most twice.

The protocol has no schemas (sessions.md 5); a model over an API judges better and cheaper.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from prose_kernel.errors import ProviderError, Undecided
from prose_kernel.language.text import one_line
from prose_kernel.models.providers.acp import AcpSessions
from prose_kernel.models.providers.model_judge import ANSWERS, PHRASING, SYSTEM, TO_PHRASE, message, statement
from prose_kernel.models.usage_and_prices import consumed, discarded, usage_details
from prose_kernel.runtime.ports import Finding, JudgeRequest, Pick, Verdict, reported
from prose_kernel.runtime.typed_answers import correction_request
from prose_kernel.runtime.values import Value

TRIES = 2
ORDER = """\
Use no tools. End your reply with one line that is a JSON object of exactly this form, and write nothing after it:
"""

Reply = Mapping[str, object]
Read = TypeVar("Read")


class AgentJudge:
    """The `Judge` port, answered by a CLI agent in separate sessions without any permissions.

    Raises `Undecided` if its answers make no sense, or none arrives.
    """

    def __init__(self, name: str, sessions: AcpSessions, *, model: str | None = None) -> None:
        self._name = name
        self._sessions = sessions
        self._model = model

    async def decide(self, request: JudgeRequest) -> Verdict:
        """Return yes, no or uncertain; for a loop also that it makes no progress."""
        words = tuple(ANSWERS) if request.loop is not None else tuple(ANSWERS)[:3]
        form = _form(" or ".join(map(json.dumps, words)))
        question = f"{statement(request)}\n\n`uncertain` when the material does not settle it."
        if request.loop is not None:
            question += " `no_progress` when the passes of the loop change nothing any more."

        def read(reply: Reply) -> str:
            return words[words.index(reply["answer"])]  # anything else raises `ValueError`

        answer, reason, details = await self._ask(message(request, question), form, read)
        return Verdict(ANSWERS[answer], "agent", reason, answer == "no_progress", details)

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        """Return the label of the option that fits best."""
        numbered = "\n".join(f"{number}: {label}" for number, label in enumerate(labels, 1))
        form = _form(" or ".join(map(str, range(1, len(labels) + 1))))
        question = f"Which option fits best? Answer with its number.\n{request.question}\n\nOptions:\n{numbered}"
        number, reason, details = await self._ask(
            message(request, question), form, lambda reply: _number(reply, len(labels))
        )
        return Pick(labels[number - 1], "agent", reason, details)

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        """Return the value at a member path of the text: text, or data if it is a number, a list or an object."""
        form = '{"reason": "one short sentence", "found": true or false, "answer": the value, as JSON}'
        question = f"What is `{path}` in the text? Give it as it stands there."
        found, reason, details = await self._ask(message(request, question, value), form, _found)
        if found is None:
            consumed(str(details["provider"]), str(details["model"]), reported(details.get("usage")))
            raise Undecided(f"the agent finds no `{path}` in the text: {reason}")
        return Finding(found[0], "agent", reason, details)

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        """Return the items of a text, in its order and its words."""
        form = _form('["the items", "in the words of the text", "in their order"]')
        question = "Which items does the text list?"
        items, reason, details = await self._ask(message(request, question, value), form, _texts)
        return Finding(items, "agent", reason, details)

    async def phrase(self, request: JudgeRequest) -> Finding:
        """Rephrase an `input` in plain words. Asked once: the person waits."""
        form = '{"question": "one or two short sentences", "options": ["the answers to choose from, or none"]}'
        about = message(request, f"{TO_PHRASE}\n{request.question}")

        def read(reply: Reply) -> dict[str, Value]:
            return {"question": str(reply["question"]), "options": _texts({"answer": reply["options"]})}

        found, reason, details = await self._ask(about, form, read, system=PHRASING, tries=1)
        return Finding(found, "agent", reason, details)

    async def _ask(
        self, about: str, form: str, read: Callable[[Reply], Read], *, system: str = SYSTEM, tries: int = TRIES
    ) -> tuple[Read, str, dict[str, object]]:
        """Return the result of `read` for the answer, the reason, and the details. If the reply cannot be parsed or
        does not arrive, the question is asked again."""
        asked, correction = f"{system}\n\n{about}\n\n{ORDER}{form}", ""
        problem: ProviderError | None = None
        for _ in range(tries):
            try:
                result = await self._sessions.ask(asked + correction, self._model)
            except ProviderError as failure:
                problem = failure
                if not failure.retryable:
                    break
                continue
            problem = None
            reply = last_line(result.text or "")
            try:
                answer = read(reply)
            except (KeyError, TypeError, ValueError) as wrong:
                correction = "\n\n" + correction_request(_problem(reply, wrong), result.text or "")
                discarded(result)
                continue
            details: dict[str, object] = {"provider": result.provider, "model": result.details.get("model", "")}
            if result.usage is not None:
                details["usage"] = usage_details(result.usage)
            return answer, one_line(str(reply.get("reason", "")), 300), details
        if problem is not None:
            raise Undecided(f"the judge could not answer: {problem}", hint=problem.hint)
        raise Undecided(
            f"the answers of the agent {self._name} make no sense", hint="a model over an API judges better: `%judge`"
        )


def last_line(reply: str) -> Reply:
    """Return the JSON object in the last line of a reply; empty if that line is something else."""
    lines = [line for line in reply.splitlines() if line.strip()]
    try:
        found = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _form(answer: str) -> str:
    return f'{{"reason": "one short sentence", "answer": {answer}}}'


def _problem(reply: Reply, wrong: Exception) -> str:
    if not reply:
        return "its last line is not a JSON object"
    if isinstance(wrong, KeyError):
        return f"`{wrong.args[0]}` is missing"
    return "a value in its last line does not have the form asked for"


def _number(reply: Reply, count: int) -> int:
    answer = reply["answer"]
    if isinstance(answer, bool) or not isinstance(answer, int) or not 1 <= answer <= count:
        raise ValueError
    return answer


def _found(reply: Reply) -> tuple[Value] | None:
    """Return the value, in a tuple; None if the text does not contain it."""
    if reply["found"] is False:
        return None
    if reply["found"] is not True:
        raise ValueError
    value: Value = reply["answer"]  # type: ignore[assignment]
    return (value,)


def _texts(reply: Reply) -> list[Value]:
    answer = reply["answer"]
    if not isinstance(answer, list):
        raise TypeError
    return [item if isinstance(item, str) else json.dumps(item) for item in answer]
