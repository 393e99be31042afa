"""What a test has found: findings of cells and programs, and how each of them ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Literal

from prose_kernel.language.diagnostics import caret
from prose_kernel.language.shortening import clipped
from prose_kernel.views.safety import visible

Status = Literal["passed", "failed", "skipped", "updated"]
DIFF_LINES = 40
COMPARED_LINES = 400
"""Differing lines that are compared one by one; of longer texts the beginnings are shown."""
WIDTH = 200


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a cell or program: its line and column, from 1, and that line's text."""

    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as committed. `saved` tells that `--update` mends it by saving what came now."""

    message: str
    at: Statement | None = None
    detail: tuple[str, ...] = ()
    saved: bool = False

    def lines(self) -> list[str]:
        """The finding for people, without colours."""
        if self.at is None:
            return [visible(self.message), *(f"  {line}" for line in self.detail)]
        excerpt = caret(self.at.text, self.at.column, None).strip("\n").split("\n")
        head = f"line {self.at.line}: {visible(self.message)}"
        return [head, *(f"  {visible(line)}" for line in excerpt), *(f"  {line}" for line in self.detail)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one cell, one case of a program, or one matter of a whole file ended. `line` is the first line in the file;
    `why` says why it was skipped, or what was updated."""

    name: str
    status: Status
    findings: tuple[Finding, ...] = ()
    why: str = ""
    seconds: float = field(default=0.0, compare=False)

    def text(self) -> str:
        return "\n".join(line for finding in self.findings for line in finding.lines())


@dataclass(frozen=True, slots=True)
class Tested:
    """All outcomes of one file. `notes` are remarks that fail nothing; `used` are the lines of recordings that were
    used, each with its cassette, `unused` those of shared cassettes that were not, with words for them."""

    path: str
    outcomes: tuple[Outcome, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    used: frozenset[tuple[str, bytes]] = frozenset()
    unused: tuple[tuple[str, bytes, str], ...] = ()

    @property
    def failed(self) -> bool:
        return any(outcome.status == "failed" for outcome in self.outcomes)

    def count(self, status: Status) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)


# ---------------------------------------------------------------- differences of texts


def difference(expected: str, actual: str) -> tuple[str, ...]:
    """The lines that differ, `-` what is committed and `+` what came, with a line of context; never a long text."""
    want, got = (text.split("\n") if text else [] for text in (expected, actual))
    begin = 0
    while begin < min(len(want), len(got)) and want[begin] == got[begin]:
        begin += 1
    end = 0
    while end < min(len(want), len(got)) - begin and want[-1 - end] == got[-1 - end]:
        end += 1
    before = [f"  {want[begin - 1]}"] if begin and want[begin - 1] else []
    want, got = want[begin : len(want) - end], got[begin : len(got) - end]
    if len(want) + len(got) > COMPARED_LINES:
        lines = [*_beginning("- ", want), *_beginning("+ ", got)]
    elif len(want) == len(got) == 1:
        lines = [f"- {_around(want[0], got[0])}", f"+ {_around(got[0], want[0])}"]
    else:
        found = unified_diff(want, got, n=1, lineterm="")
        lines = [f"{line[0]} {line[1:]}" for line in list(found)[2:] if not line.startswith("@@")]
    shown = [*before, *lines]
    more = len(shown) - DIFF_LINES
    if more > 0:
        shown = [*shown[:DIFF_LINES], f"… {more:,} more lines differ"]
    return tuple(visible(clipped(line, WIDTH, f"… ({len(line):,} characters)", kept=WIDTH)) for line in shown)


def _beginning(mark: str, lines: Sequence[str]) -> Iterable[str]:
    shown = [f"{mark}{line}" for line in lines[: DIFF_LINES // 4]]
    more = len(lines) - len(shown)
    return [*shown, *([f"{mark}… {more:,} more lines"] if more > 0 else [])]


def _around(line: str, other: str) -> str:
    """A long line from a little before the place where it differs from the other one."""
    if len(line) <= WIDTH:
        return line
    begin = next((n for n, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), min(len(line), len(other)))
    start = max(0, begin - WIDTH // 4)
    return f"{'…' if start else ''}{line[start : start + WIDTH // 2]}…"
