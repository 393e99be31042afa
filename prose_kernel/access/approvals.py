"""Asks the person to approve calls that the rules leave open, and remembers "always" for the run (openprose.md 4.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.access.session_permissions import Kind, Ruling
from prose_kernel.errors import NoPerson
from prose_kernel.language.text import escaped, escaped_lines
from prose_kernel.runtime.asker import Button, Form, ask_with_form, serial
from prose_kernel.runtime.ports import Clock, SessionRequest
from prose_kernel.runtime.services import Asker


class Ask(Struct, frozen=True):
    """A question to the person. An answer applies only in `program`: another program may have an agent of that name.

    - `session` is the name of the session (`agent reviewer`), `at` is its execution path.
    - `details` is the full request, any number of lines; it is never cut.
    - `always` describes the calls that the answer "always" covers: it is shown, and remembered for the run.
    """

    kind: Kind
    session: str
    at: str
    details: str
    always: str
    program: str = ""

    @classmethod
    def of(cls, request: SessionRequest, kind: Kind, details: str, always: str) -> Ask:
        """Return a question about a call of this session."""
        return cls(kind, session_name(request), request.at, details, always, request.program)

    @property
    def covered(self) -> tuple[Kind, str, str]:
        """Return the key under which the answer "always" is remembered."""
        return self.kind, self.always, self.program


def session_name(request: SessionRequest) -> str:
    """Return a unique description of a session: its agent, its label, else its path."""
    if request.agent:
        return f"agent {request.agent}"
    return f"session {request.label}" if request.label else f"the session at {request.at}"


AuditWriter = Callable[[str, Mapping[str, object]], None]
"""Writes an event into the audit log of the run. Raises `ToolRefused` if a mandatory log cannot be written."""


def no_audit(event: str, payload: Mapping[str, object]) -> None:
    """Write nothing: a run that is not stored has no audit log."""


ANSWERS: Final[Mapping[str, Literal["yes", "no", "always"]]] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
}
_MINUTES: Final = 5
"""The time limit for an answer."""
_WIDTH: Final = 160
_PROMPT: Final = "Allow? (y / n / always) "
_BUTTONS: Final = Button("Allow", "y"), Button("Do not allow", "n"), Button("Always", "always")
_NO_PERSON: Final = Ruling("deny", "it needs approval, and no person can be asked")


class Approvals:
    """Asks the person, one question at a time: y, n, or always (for this run).

    Create one for each run: "always" applies for its lifetime. `note_ask` is called for each answered question, with
    its kind and request, its execution path and its answer. `audit` writes refusals into the run's audit log.
    """

    def __init__(
        self,
        asker: Asker,
        clock: Clock,
        note_ask: Callable[[str, str, str], object] | None = None,
        audit: AuditWriter = no_audit,
    ) -> None:
        self.audit = audit
        self._asker = serial(asker)
        self._clock = clock
        self._note_ask = note_ask
        self._always: set[tuple[Kind, str, str]] = set()

    @property
    def available(self) -> bool:
        return self._asker.available

    async def ask(self, question: Ask) -> Ruling:
        """Return `allow`, or `deny` with the reason (refused, no answer in time, no person). A cancelled question is
        withdrawn."""
        if question.covered in self._always:
            return self._allowed_for_run()
        if not self._asker.available:
            return _NO_PERSON
        try:
            async with self._asker.turn():
                if question.covered in self._always:  # answered while this question waited
                    return self._allowed_for_run()
                return await self._within_limit(question)
        except (EOFError, NoPerson):
            return _NO_PERSON

    def _allowed_for_run(self) -> Ruling:
        return Ruling("allow", "the person allowed it for this run")

    async def _within_limit(self, question: Ask) -> Ruling:
        asking = asyncio.ensure_future(self._answer(question))
        timer = asyncio.ensure_future(self._clock.sleep(60 * _MINUTES))
        try:
            await asyncio.wait((asking, timer), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                self._asker.show(f"No answer within {_MINUTES} minutes: not allowed.")
                return Ruling("deny", f"it needs approval, and no answer came within {_MINUTES} minutes")
            return self._ruling(question, asking.result())
        finally:
            for task in (asking, timer):
                task.cancel()
            await asyncio.gather(asking, timer, return_exceptions=True)

    async def _answer(self, question: Ask) -> Literal["yes", "no", "always"]:
        self._asker.show(question_text(question))
        end = self._clock.monotonic() + 60 * _MINUTES
        always = f"always = {_one_line(question.always)}, for the rest of this run"
        form = Form(
            "permission",
            "Allow?",
            _BUTTONS,
            None,
            escaped_lines(question.details),
            always,
            above=True,
            left=lambda: end - self._clock.monotonic(),
        )
        while True:
            answer = ANSWERS.get((await ask_with_form(self._asker, _PROMPT, form)).strip().lower())
            if answer is not None:
                return answer
            self._asker.show("Please answer y, n or always.")

    def _ruling(self, question: Ask, answer: Literal["yes", "no", "always"]) -> Ruling:
        if self._note_ask is not None:
            self._note_ask(question.at, f"{question.kind}: {question.details}", answer)
        if answer == "no":
            return Ruling("deny", "the person said no")
        if answer == "always":
            self._always.add(question.covered)
        return Ruling("allow", "the person allowed it")


def question_text(question: Ask) -> str:
    """Return the question as shown: complete, each line of the request marked, so that it cannot imitate our text."""
    asking = question.session if question.at in question.session else f"{question.session} · {question.at}"
    lines = [f"Permission needed ({question.kind}): {_one_line(asking)} asks for", ""]
    for line in question.details.split("\n"):
        text = escaped(line)
        lines += [f"  | {text[start : start + _WIDTH]}" for start in range(0, len(text), _WIDTH)] or ["  |"]
    lines += ["", f"always = {_one_line(question.always)}, for the rest of this run"]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return escaped(" ".join(text.split()))
