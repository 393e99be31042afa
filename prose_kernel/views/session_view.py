"""Show the sessions of one cell: their text while it streams, and their final outputs, which do not depend on whether a
person is watching.

A session outside of `parallel` has a separate display, which grows and is replaced by the answer. Sessions in a
`parallel` show their last line in the row of their branch, and their answers at the join. Failed attempts are listed in
the display of their session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from prose_kernel.runtime.events import SessionFinished, SessionProgressed, SessionStarted
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.values import full_text
from prose_kernel.views import session_cards as shown
from prose_kernel.views.display import Display
from prose_kernel.views.escaping import clip
from prose_kernel.views.refresh import GrowingDisplay, Replaceable
from prose_kernel.views.session_cards import Streamed


@dataclass(slots=True)
class _Session:
    """One session statement, with all of its attempts."""

    spawn: int
    request: SessionRequest
    name: str | None
    began: float
    display: GrowingDisplay = field(init=False)
    streamed: Streamed = field(default_factory=Streamed)
    failed: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    doing: str = ""


class SessionViews:
    """The sessions of one cell. `live`: a person is watching. `status` returns the status line of a session: the
    provider, the elapsed time, the time until the next attempt."""

    def __init__(self, place: Replaceable, *, live: bool, status: Callable[[int], str] = lambda spawn: "") -> None:
        self._place = place
        self._live = live
        self._status = status
        self._sessions: dict[int, _Session] = {}

    def started(self, event: SessionStarted) -> None:
        """Begin an attempt of a session."""
        session = self._sessions.get(event.spawn)
        if session is None:
            self._sessions[event.spawn] = self._new(event)
        else:
            session.request, session.streamed, session.doing = shown.as_shown(event), Streamed(), ""
            session.notes.clear()

    def progressed(self, event: SessionProgressed, *, alone: bool) -> None:
        """Show progress of a session; `alone`: the session has a separate display."""
        session = self._sessions.get(event.spawn)
        if session is None:
            return
        if event.kind == "note":
            session.notes[event.text] = None
        elif event.kind == "tool":
            session.doing = shown.doing(event.tool) if event.tool is not None else event.text
        else:
            session.streamed.add(event.text)
            session.doing = ""
        if alone and self._live:
            session.display.grow()

    def time_passes(self) -> None:
        """Update the status lines of sessions that have a separate display."""
        for session in self._sessions.values():
            session.display.grow()

    def finished(self, event: SessionFinished) -> tuple[Display, ...]:
        """End an attempt, and return the remaining displays of the session: none if it is retried.

        A provider's notes are shown only while it works; notes of a dry run are its result and stay.
        """
        session = self._sessions.get(event.spawn) or self._new(event)
        if event.result is None:
            return self._unanswered(event, session)
        self._sessions.pop(event.spawn, None)
        result = event.result
        answer = shown.answer_display(
            session.request,
            result,
            result.text if result.text is not None else full_text(event.value),
            session.name,
            failed=session.failed,
            notes=tuple(session.notes) if result.origin == "dry-run" else (),
            seconds=time.monotonic() - session.began,
        )
        displays: tuple[Display, ...] = () if session.display.settle(answer) else (answer,)
        if result.trace:
            displays += (shown.trace_display(session.request, result.trace, session.name),)
        return displays

    def _unanswered(self, event: SessionFinished, session: _Session) -> tuple[Display, ...]:
        error = event.error
        if error is not None:
            session.failed.append(error.message)
        if not event.final:
            return ()
        self._sessions.pop(event.spawn, None)
        if error is not None and error.no_answer and not session.display.shown and len(session.failed) == 1:
            return ()  # there was no attempt; the error says everything
        failure = shown.failure_display(session.request, session.name, session.failed, session.streamed)
        return () if session.display.settle(failure) else (failure,)

    def interrupted(self) -> None:
        """End the displays of running sessions: keep their text, followed by a mark."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.display.settle(
                shown.partial_display(session.request, session.name, session.streamed, session.failed)
            )

    def _new(self, event: SessionStarted | SessionFinished) -> _Session:
        session = _Session(event.spawn, shown.as_shown(event), event.bound_to, time.monotonic())
        session.display = GrowingDisplay(self._place, partial(self._now, session))
        return session

    def _now(self, session: _Session) -> Display:
        note = "" if session.streamed.total else clip(next(reversed(session.notes), ""), 80)
        doing = " · ".join(part for part in (session.doing or note, self._status(session.spawn)) if part)
        return shown.live_display(session.request, session.name, session.streamed, session.failed, doing)
