"""Conditions decided by a Python function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from prose_kernel.errors import ProseError, Undecided
from prose_kernel.runtime import python_calls
from prose_kernel.runtime.ports import Finding, JudgeRequest, Pick, Verdict
from prose_kernel.runtime.value_text import quoted
from prose_kernel.runtime.values import ReadMapping, verbatim

BY = "function"


@dataclass(frozen=True, slots=True)
class Decision:
    """A condition or a `choice` that no rule decides, as a judge written in Python gets it.

    `text` is the condition with its values inserted, `options` are the labels of a `choice`; without them the answer is
    yes or no. `values` are the bindings that the judge may look at, as plain data; for a criterion of VVM the one value
    is called `value`. `at` is the path of the question in the run.
    """

    text: str
    options: tuple[str, ...]
    values: Mapping[str, object] = field(repr=False)
    at: str


JudgeFunction = Callable[[Decision], bool | str | Awaitable[bool | str | None] | None]
"""Returns True, False or None (uncertain) for a condition, a label of `options` for a choice."""


class FunctionJudge(Struct, frozen=True):
    """The `Judge` port, answered by a function that is called after the rules."""

    function: JudgeFunction

    async def decide(self, request: JudgeRequest) -> Verdict:
        """Return the function's verdict. Raises `Undecided` if the function fails, or returns a value of another
        type."""
        answer = await self._call(request, ())
        if answer is None or isinstance(answer, bool):
            return Verdict(answer, BY)
        raise Undecided(f"the judge function returned {shown(answer)} for {quoted(request)}", hint=_YES_OR_NO)

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        answer = await self._call(request, labels)
        if isinstance(answer, str) and answer in labels:
            return Pick(answer, BY)
        options = ", ".join(labels)
        raise Undecided(
            f"the judge function returned {shown(answer)} for the choice {quoted(request)}", hint=f"return {options}"
        )

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        raise Undecided(f"a judge function does not read what `{path}` is in a text")

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        raise Undecided("a judge function does not read the items of a text")

    async def phrase(self, request: JudgeRequest) -> Finding:
        raise Undecided("a judge function does not phrase questions")

    async def _call(self, request: JudgeRequest, labels: tuple[str, ...]) -> object:
        values = ReadMapping(request.bindings if request.subject is None else {"value": request.subject}, verbatim)
        try:
            return await python_calls.call(self.function, Decision(request.text, labels, values, request.at))
        except ProseError:
            raise
        except Exception as error:
            raise Undecided(python_calls.failure("the judge function", error), failed=True) from error


_YES_OR_NO = "return True, False, or None if it cannot be decided"


def shown(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 60 else text[:59] + "…"
