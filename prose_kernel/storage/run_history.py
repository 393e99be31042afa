"""Reads the history of a run from its journal: each cell with its requests and their answers."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime import journal_records as records
from prose_kernel.runtime.journal_records import NOTHING, Answered, Asked, Ended, Repeated, Text, answer_in
from prose_kernel.runtime.open_request import MODEL, TOOL
from prose_kernel.storage.journal_reading import JournalRead

Mark = Literal["✓", "✗", "cancelled", "under way"]

_MAIN_MEMBERS: Final = ("stdout", "text", "value", "answer", "label", "status")
"""The members that may be the text of an answer, the most important one first."""
_LINES: Final = 40
"""How many lines of a difference are shown."""


class SessionActions(Struct):
    """The actions of a session: the number of requests to models, the number of answered tool calls, and the text of
    the unfinished step ("": none). The names of the fields are keys of `prose runs show --format json`."""

    requests: int = 0
    calls: int = 0
    doing: str = ""
    _kind: str = ""

    def add(self, record: records.Step | records.StepEnded) -> None:
        if isinstance(record, records.Step):
            self.requests += record.kind == MODEL
            self._kind, self.doing = record.kind, record.text
        else:
            self.calls += self._kind == TOOL and record.value != NOTHING
            self.doing = ""

    def __str__(self) -> str:
        counts = ((self.requests, "request"), (self.calls, "tool call"))
        found = [f"{count:,} {what}{'s' if count != 1 else ''}" for count, what in counts if count]
        return ", ".join([*found, f"under way: {self.doing}"] if self.doing else found)


class HistoryStep(Struct):
    """One request: its place in the program, its text, the answer as text, and the actions of a session."""

    at: str
    kind: str
    text: str
    answer: str = ""
    mark: Mark = "under way"
    made: SessionActions = field(default_factory=SessionActions)


class RunDifference(Struct, frozen=True):
    """A difference between two runs: its kind, its place or name, and both texts ("": none)."""

    what: Literal["text", "answer", "binding"]
    at: str
    then: str
    now: str
    decision: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines that differ, with one line of context, and the number of omitted lines."""
        lines = list(difflib.unified_diff(self.then.splitlines(), self.now.splitlines(), n=1, lineterm=""))[2:]
        more = [f"… {len(lines) - _LINES:,} more lines"] if len(lines) > _LINES else []
        return [line for line in lines[:_LINES] if not line.startswith("@@")] + more


class RunCell(Struct):
    """A file or cell of the run. `prompt` is its number in a notebook, else 0. `status` None: it has not ended."""

    number: int
    prompt: int
    name: str
    language: str
    text: str
    status: str | None = None
    message: str = ""
    steps: list[HistoryStep] = field(default_factory=list)


def cells_of(found: JournalRead) -> Iterator[RunCell]:
    """Yield the cells of a run in order, each with its requests."""
    cell: RunCell | None = None
    asked: dict[str, HistoryStep] = {}
    for _, record in found.records():
        match record:
            case Text():
                if cell is not None:
                    yield cell
                cell, asked = RunCell(record.number, record.prompt, record.name, record.language, record.text), {}
            case Asked() if cell is not None and record.kind != "wait":
                asked[record.key] = HistoryStep(record.key, record.kind, record.text)
                cell.steps.append(asked[record.key])
            case records.Step() | records.StepEnded() if (step := asked.get(record.key)) is not None:
                step.made.add(record)
            case Repeated(key=key) if key in asked:
                asked[key].answer, asked[key].mark = "", "✗" if record.due else "under way"
            case Ended() if cell is not None:
                cell.status, cell.message = record.status, record.message
            case _:
                answered = answer_in(record)
                if answered is not None and (step := asked.get(answered.key)) is not None:
                    _answer(step, answered)
    if cell is not None:
        yield cell


def actions_under_way(found: JournalRead) -> dict[str, SessionActions]:
    """Return the actions of the sessions that have no answer, by the request's key."""
    actions: dict[str, SessionActions] = {}
    for key, steps in found.steps_under_way().items():
        actions[key] = SessionActions()
        for record in steps:
            actions[key].add(record)
    return actions


def _answer(step: HistoryStep, record: Answered) -> None:
    if record.cancelled:
        step.mark, step.answer = "cancelled", ""
    elif record.error != NOTHING:
        step.mark, step.answer = "✗", str(codec.decode_error(record.error))
    else:
        value = msgspec.json.decode(record.value)
        failed = isinstance(value, dict) and (value.get("exit_code") or value.get("status") in ("rejected", "timeout"))
        step.mark, step.answer = "✗" if failed else "✓", _answer_text(step.kind, value)


def _answer_text(kind: str, value: object) -> str:
    match value:
        case str():
            return value
        case None:
            return ""
        case {"exit_code": int(code), **rest} if code:
            return f"exit code {code}; {rest.get('stderr') or rest.get('stdout') or ''}".rstrip("; \n")
        case dict() if kind == "import":
            return ""
        case {"answer_file": [str(name), *_]}:
            return f"in bindings/{name}.md"
        case {"media": str(media), "size": int(size)} if kind == "file":
            return f"{media}, {size:,} bytes"
        case dict():
            telling = next((value[name] for name in _MAIN_MEMBERS if value.get(name) is not None), None)
            if telling is not None:
                return telling if isinstance(telling, str) else msgspec.json.encode(telling).decode()
    return "" if kind == "command" else msgspec.json.encode(value).decode()
