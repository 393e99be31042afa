"""Breakpoints with their lines, conditions, hit counts and log messages."""

from __future__ import annotations

import operator
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from prose_kernel.errors import ProseError, UsageError
from prose_kernel.runtime.statement_hook import StackFrame
from prose_kernel.runtime.values import Value
from prose_kernel.views.escaping import clip

_HITS: Final = re.compile(r"\s*(==|>=|<=|>|<|=|%)?\s*([0-9]{1,9})\s*")
_COMPARED: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "=": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "%": lambda hits, number: number > 0 and hits % number == 0,
}
_PIECE: Final = re.compile(r"\{([^{}]*)\}")

NOWHERE: Final = "there is no statement here or below"

Evaluate = Callable[[str], Awaitable[Value]]


@dataclass(slots=True)
class Breakpoint:
    """A breakpoint that a client has set on the line `wanted`; `line` is the line on which it pauses, or None."""

    id: int
    path: str
    wanted: int
    line: int | None
    condition: str = ""
    hit_condition: str = ""
    log: str = ""
    problem: str = ""
    hits: int = field(default=0, compare=False)

    def place(self, line: int | None) -> None:
        """Set the line of the breakpoint's statement, None if there is none. An invalid breakpoint keeps no line."""
        if self.problem in ("", NOWHERE):
            self.line = line
            self.problem = NOWHERE if line is None else ""

    @property
    def is_plain(self) -> bool:
        return not (self.condition or self.hit_condition or self.log)

    async def is_met(self, evaluate: Evaluate) -> tuple[bool, str]:
        """Return whether to pause the program here, and a message for the person. A condition that cannot be computed
        pauses the program, so that the error is noticed."""
        if self.condition:
            try:
                value = await evaluate(self.condition)
            except (ProseError, RecursionError) as error:
                return True, f"the condition `{clip(self.condition)}` cannot be computed: {reason(error)}"
            if value is not True and value is not False:
                return True, f"the condition `{clip(self.condition)}` is neither true nor false"
            if not value:
                return False, ""
        self.hits += 1
        return not self.hit_condition or _is_hit(self.hit_condition, self.hits), ""

    async def logged(self, evaluate: Evaluate, text_of: Callable[[Value], str]) -> str:
        """Return the log message with the values of the expressions in its braces."""
        found, end = "", 0
        for match in _PIECE.finditer(self.log):
            try:
                value = text_of(await evaluate(match[1]))
            except (ProseError, RecursionError) as error:
                value = f"{{{clip(match[1])}: {reason(error)}}}"
            found += self.log[end : match.start()] + value
            end = match.end()
        return found + self.log[end:]


def check_hits(text: str) -> str:
    """Return the problem of a hit condition, "" if it is valid."""
    return "" if not text or _HITS.fullmatch(text) else f"`{text}` is not a count of hits: write 3, >= 3 or % 3"


def _is_hit(text: str, hits: int) -> bool:
    found = _HITS.fullmatch(text)
    return found is None or _COMPARED[found[1] or "=="](hits, int(found[2]))


def reason(error: Exception) -> str:
    """Return an error as one line, with its hint."""
    hint = getattr(error, "hint", None)
    return f"{error} ({hint})" if hint else str(error)


def evaluated_in(frame: StackFrame) -> Evaluate:
    """Return a function that evaluates expressions with the names of a frame."""

    async def evaluate(text: str) -> Value:
        check_expression(text)
        return await frame.context.evaluate(frame, text)

    return evaluate


_BINDS: Final = re.compile(r"\s*(?:(?:let|const|output|input)\s|[A-Za-z_][\w.\[\]\"']*\s*=(?!=))")


def check_expression(text: str) -> None:
    """Raise `UsageError` for a text that would bind a name."""
    if not text.strip():
        raise UsageError("there is nothing to evaluate")
    if _BINDS.match(text):
        hint = "a run is repeated from its texts and their answers; change the cell and run it again"
        raise UsageError("the debugger reads names and does not change them", hint=hint)
