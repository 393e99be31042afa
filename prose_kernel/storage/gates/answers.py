"""Gets a person's decision about a gate, in advance or by a question (docs/reference/openprose.md 5.10)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from prose_kernel.errors import NoPerson, UsageError
from prose_kernel.runtime.asker import Button, Field, Form, ask_with_form
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.storage.gates.records import SYSTEM, approval_problem, principal_problem

if TYPE_CHECKING:
    from prose_kernel.runtime.services import Asker
from prose_kernel.language.text import escaped, escaped_lines

_WORDS: Final[Mapping[str, Literal["approved", "rejected"]]] = {
    "approve": "approved",
    "approved": "approved",
    "yes": "approved",
    "y": "approved",
    "reject": "rejected",
    "rejected": "rejected",
    "no": "rejected",
    "n": "rejected",
}


class GateAnswer(Struct, frozen=True):
    """A person's decision about a gate."""

    approved: bool
    principal: str = "user"
    comment: str = ""

    @property
    def status(self) -> Literal["approved", "rejected"]:
        return "approved" if self.approved else "rejected"


def read_answer(text: str) -> GateAnswer | None:
    """Return the answer in a typed line: a word of 5.10, and perhaps a comment after a colon. None for other lines."""
    word, _, comment = text.partition(":")
    status = _WORDS.get(word.strip().casefold())
    return None if status is None else GateAnswer(status == "approved", comment=comment.strip())


async def decided(asker: Asker, prompt: str, form: Form, again: str = "please answer approve or reject") -> GateAnswer:
    """Ask a person until the answer is a decision. Raises `EOFError` and `NoPerson`."""
    while (answer := read_answer(await ask_with_form(asker, prompt, form))) is None:
        prompt = f"{again}: "
    return answer


class PriorDecisions:
    """Decisions that a person gave before the gate was reached.

    `every` holds for each instance of a gate name in the run (`--yes`, `--no`). `supplied` looks up the value given for
    an input of that name (`%input NAME=approve`), which counts when it is one of the accepted words. `following` are
    the decisions for the next instances of a gate (`%gate approve|reject NAME`).
    """

    def __init__(
        self,
        every: Mapping[str, bool] | None = None,
        supplied: Callable[[str], str | None] | None = None,
        following: dict[str, deque[GateAnswer]] | None = None,
    ) -> None:
        self._every = every if every is not None else {}
        self._supplied = supplied
        self._next = following if following is not None else {}

    def give(self, name: str, answer: GateAnswer) -> None:
        """Add a decision for the next instance of the gate `name` (`%gate approve|reject NAME`). Raises `UsageError`
        for an impossible principal."""
        if why := principal_problem(answer.principal):
            raise UsageError(why)
        self._next.setdefault(name, deque()).append(answer)

    def drop_next(self, name: str) -> None:
        """Drop the decision for the next instance, which a replay has already used."""
        if waiting := self._next.get(name):
            waiting.popleft()

    def take(self, name: str) -> GateAnswer | None:
        """Return the decision for an instance that opens now; a decision for the next instance is removed."""
        if waiting := self._next.get(name):
            return waiting.popleft()
        if name in self._every:
            return GateAnswer(self._every[name])
        given = self._supplied(name) if self._supplied is not None else None
        return None if given is None else read_answer(given)


class GateConversation:
    """Asks one person about one gate; `left` returns the seconds until its deadline."""

    def __init__(
        self, request: GateRequest, name: str, asker: Asker, source: str, left: Callable[[], float] | None = None
    ) -> None:
        self._request = request
        self._name = name
        self._asker = asker
        self._source = source
        self._seconds_left = left
        self._asking = False

    async def hold(self) -> GateDecision:
        """Ask until there is a valid answer, and return it."""
        again = "please answer approve or reject, with a comment after a colon if you like"
        async with getattr(self._asker, "turn", contextlib.nullcontext)():
            self._asking = True
            prompt, note = question(self._name, self._request), terms(self._request)
            while True:
                try:
                    answer = await decided(self._asker, prompt, self._form(note), again)
                except EOFError:
                    return self._answered(GateDecision("rejected", "user", source=self._source))
                except NoPerson:
                    return self._answered(GateDecision("rejected", SYSTEM, reason="nobody"))
                if answer.approved and answer.principal not in self._request.allow:
                    note = refusal(self._name, self._request, answer.principal)
                    prompt = f"{note}\napprove or reject? "
                else:
                    return self._answered(
                        GateDecision(answer.status, answer.principal, answer.comment, source=self._source)
                    )

    def _form(self, note: str) -> Form:
        buttons = Button("Approve", "approve", ": "), Button("Reject", "reject", ": ")
        title, reason = f"gate {escaped(self._name)}", Field("Reason (optional)")
        return Form("gate", title, buttons, reason, escaped_lines(self._request.prompt), note, left=self._seconds_left)

    def _answered(self, decision: GateDecision) -> GateDecision:
        self._asking = False
        return decision

    def withdraw(self, decision: GateDecision) -> None:
        """Show the person that their answer is no longer needed."""
        if not self._asking:
            return
        if decision.status == "timeout":
            self._asker.show(f"gate {self._name} timed out after {self._request.timeout_text}")
        else:
            self._asker.show(f"gate {self._name}: already {decision.status} by {decision.decided_by}")


def question(name: str, request: GateRequest) -> str:
    """Return the question for a person: the prompt, then the gate, the allowed principals (if any), and the timeout."""
    return f"{escaped_lines(request.prompt)}\ngate {escaped(name)}, {terms(request)}\napprove or reject? "


def terms(request: GateRequest) -> str:
    """Return the allowed principals, if they are restricted, and the timeout."""
    allow = "" if request.allow == ("user",) else f"allow {escaped(', '.join(request.allow)) or 'nobody'}, "
    return f"{allow}timeout {request.timeout_text}"


def refusal(name: str, request: GateRequest, principal: str) -> str:
    return f"gate {name}: {approval_problem(request, principal)}"
