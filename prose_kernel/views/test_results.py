"""The results of tests: findings in cells and programs, the outcome of each, and all results as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from msgspec import Struct

from prose_kernel.access.atomic import check_replaced, write_whole
from prose_kernel.errors import ProseError
from prose_kernel.language.diagnostics import caret
from prose_kernel.language.text import clipped
from prose_kernel.views.escaping import visible

Status = Literal["passed", "failed", "skipped", "updated"]
DIFF_LINES = 40
COMPARED_LINES = 400
"""The most differing lines that are compared one by one; of longer texts the beginnings are shown."""
WIDTH = 200


class Statement(Struct, frozen=True):
    """A statement of a cell or program: its line and column, counted from 1, and the text of the line."""

    line: int
    column: int
    text: str


class StateDifference(Struct, frozen=True):
    """One difference from the committed state. `saved`: `--update` resolves it by saving the current output."""

    message: str
    at: Statement | None = None
    detail: tuple[str, ...] = ()
    saved: bool = False

    @classmethod
    def of(cls, problem: ProseError) -> StateDifference:
        hint = getattr(problem, "hint", None)
        return cls(f"{problem} (hint: {hint})" if hint else str(problem))

    def lines(self) -> list[str]:
        """Return the finding as lines for people, without colours."""
        if self.at is None:
            return [visible(self.message), *(f"  {line}" for line in self.detail)]
        excerpt = caret(self.at.text, self.at.column, None).strip("\n").split("\n")
        head = f"line {self.at.line}: {visible(self.message)}"
        return [head, *(f"  {visible(line)}" for line in excerpt), *(f"  {line}" for line in self.detail)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a cell, a case of a program, or a check of a whole file. `why` is the reason for skipping it, or
    the updated part."""

    name: str
    status: Status
    findings: tuple[StateDifference, ...] = ()
    why: str = ""
    seconds: float = field(default=0.0, compare=False)

    def text(self) -> str:
        return "\n".join(line for finding in self.findings for line in finding.lines())


class Tested(Struct, frozen=True):
    """All outcomes of one file. `notes` are remarks without a failure; `used` has the used lines of recordings, each
    with its cassette, `unused` the unused lines of shared cassettes, with a description. `report` is the printed report
    of the file; `exit` is its exit status if that is higher than the status of a failure."""

    path: str
    outcomes: tuple[Outcome, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    used: frozenset[tuple[str, bytes]] = frozenset()
    unused: tuple[tuple[str, bytes, str], ...] = ()
    report: str = ""
    exit: int = 0

    @property
    def failed(self) -> bool:
        return any(outcome.status == "failed" for outcome in self.outcomes)

    def count(self, status: Status) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)


# ---------------------------------------------------------------- differences of texts


def difference(expected: str, actual: str) -> tuple[str, ...]:
    """Return the differing lines, `-` committed and `+` current, with a line of context; the number is limited."""
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
    """Return a line; of a long one, the part around its first difference from the other line."""
    if len(line) <= WIDTH:
        return line
    begin = next((n for n, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), min(len(line), len(other)))
    start = max(0, begin - WIDTH // 4)
    return f"{'…' if start else ''}{line[start : start + WIDTH // 2]}…"


# ---------------------------------------------------------------- JUnit XML for GitHub, GitLab and Jenkins

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_junit(path: Path, shown: str) -> None:
    """Raise `UsageError` if a report would replace another file."""
    check_replaced(path, shown, "JUnit report", b"<testsuite")


def write_junit(path: Path, results: Sequence[Tested], name: str = "prose test") -> None:
    """Write a suite for each file and a case for each cell. Raises `OSError`."""
    root = ElementTree.Element("testsuites", name=name)
    for tested in results:
        if tested.outcomes:
            root.append(_suite(tested))
    for count in ("tests", "failures", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    write_whole(path, '<?xml version="1.0" encoding="utf-8"?>\n', ElementTree.tostring(root, encoding="unicode"), "\n")


def _suite(tested: Tested) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=tested.path, errors="0")
    suite.set("tests", str(len(tested.outcomes)))
    suite.set("failures", str(tested.count("failed")))
    suite.set("skipped", str(tested.count("skipped")))
    suite.set("time", f"{sum(outcome.seconds for outcome in tested.outcomes):.3f}")
    suite.extend(_case(tested.path, outcome) for outcome in tested.outcomes)
    return suite


def _case(path: str, outcome: Outcome) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=path, name=_xml_text(outcome.name), file=path)
    case.set("time", f"{outcome.seconds:.3f}")
    if outcome.status == "failed":
        first = outcome.findings[0].lines()[0] if outcome.findings else "failed"
        failure = ElementTree.SubElement(case, "failure", message=_xml_text(first), type="difference")
        failure.text = _xml_text(outcome.text())
    elif outcome.status == "skipped":
        ElementTree.SubElement(case, "skipped", message=_xml_text(outcome.why))
    elif outcome.status == "updated":
        ElementTree.SubElement(case, "system-out").text = _xml_text(f"updated:\n{outcome.text()}")
    return case


def _xml_text(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
