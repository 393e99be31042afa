"""What is said of a run's sessions at its end: what was replayed or consumed, which records nobody needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prose_kernel.recordings.library import Unused
    from prose_kernel.session_services import SessionServices
    from prose_kernel.sessions.usage import Line

UNUSED_SHOWN = 3


def session_notes(doors: SessionServices | None, *, usage: bool = False) -> tuple[str, ...]:
    """The remarks, one line each; `usage` asks for all that was consumed, by provider and model.

    `doors` is None for a run that used no session and no judge.
    """
    if doors is None:
        return ("usage: no session or judgement ran",) if usage else ()
    total = doors.usage.total
    notes = []
    if usage:
        notes += [_line(line) for line in doors.usage.lines] or ["usage: no session or judgement ran"]
    elif total.replayed:
        asked = total.sessions + total.judgements
        notes.append(f"replayed: {total.replayed} of {asked} answers came from recordings")
    if total.replayed and (unused := doors.cassettes.unused()):
        notes.append(_unused(unused))
    return tuple(notes)


def _line(line: Line) -> str:
    who = " ".join(part for part in (line.provider, line.model) if part)
    parts = [_count(line.sessions, "session"), _count(line.judgements, "judgement")]
    told = [part for part in parts if part]
    if line.replayed:
        told.append(f"{line.replayed} replayed")
    if line.requests:
        cost = f"${line.cost:.4f}" if line.cost or not line.unpriced else "cost unknown"
        told += [f"{_count(line.requests, 'request')}", f"{line.tokens_in:,} tokens in, {line.tokens_out:,} out", cost]
    return f"usage of {who}: {', '.join(told)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}" if number else ""


def _unused(unused: tuple[Unused, ...]) -> str:
    named = ", ".join(
        f"{record.file} line {record.line}" + (f" ({record.at})" if record.at else "")
        for record in unused[:UNUSED_SHOWN]
    )
    more = f" and {len(unused) - UNUSED_SHOWN} more" if len(unused) > UNUSED_SHOWN else ""
    return f"unused records: {named}{more}; `prose cassette prune` removes them"
