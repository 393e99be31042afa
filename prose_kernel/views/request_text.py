"""Describe requests in words, for a run that keeps answers of an earlier run (docs/how-to/edit-and-continue.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from prose_kernel.views.escaping import clip

if TYPE_CHECKING:
    from prose_kernel.runs.planned_run import PlannedRun
    from prose_kernel.runtime.earlier_answers import AskedAgain
    from prose_kernel.runtime.journal_records import Asked
    from prose_kernel.runtime.ports import CommandRequest


def request_line(asked: Asked) -> str:
    """Return a request in words: `command c1/2/x0: make all`."""
    return f"{asked.kind} {asked.key}: {clip(asked.text)}" if asked.text else f"{asked.kind} {asked.key}"


def reason(one: AskedAgain) -> str:
    """Return why a request is made again although there is an earlier run."""
    from prose_kernel.cassettes.differences import text_difference

    why, near = one.reason, one.near
    if near is not None and one.differs:
        name, *others = one.differs
        same = near.text == one.asked.text or name not in ("text", "prompt", "question")
        differ = "differ" if name.endswith("s") else "differs"
        why = f"{name} {differ if same else text_difference(near.text, one.asked.text)}"
        why += f"; {', '.join(others)} too" if others else ""
    if near is not None and near.key != one.asked.key:
        why += f" (nearest: {request_line(near)})"
    return why


def declared(command: CommandRequest) -> list[str]:
    """Return the files that a command declares with `reads:` and `writes:`, in words."""
    found = []
    if command.reads is not None:
        found.append(f"reads {clip(', '.join(command.reads)) or 'nothing'}")
    if command.writes:
        found.append(f"writes {clip(', '.join(command.writes))}")
    return found


class PlannedRequest(NamedTuple):
    """A request that a run would make: whether it keeps its answer, its text, why it is asked again, and its files."""

    kept: bool
    text: str
    why: str
    files: list[str]


def planned_requests(planned: PlannedRun) -> Iterator[PlannedRequest]:
    """Yield the requests of a predicted run, in their order."""
    from prose_kernel.runtime.earlier_answers import AskedAgain

    for one in planned.requests():
        asked, why = (one.asked, reason(one)) if isinstance(one, AskedAgain) else (one, "")
        command = planned.commands.get(asked.key)
        files = declared(command) if command is not None else []
        yield PlannedRequest(not isinstance(one, AskedAgain), request_line(asked), why, files)
