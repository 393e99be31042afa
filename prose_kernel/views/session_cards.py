"""The sessions of a cell: their MIME bundles, and the views that show their text while it streams.

A session outside of `parallel` has a separate display, which grows and is replaced by the answer. Sessions in a
`parallel` show their last line in the row of their branch, and their answers at the join. Failed attempts are listed in
the display of their session.

A live run, its replay and an unwatched run end with the same bundle: the answer's source is described by its origin,
which a recording keeps; provider, model, tokens, cost and time are facts. Text of sessions is untrusted and is made
safe: formatting stays, tags are shown as text, images become links, so that nothing is loaded without a click, and
links keep only harmless targets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from prose_kernel.language.structs import replace
from prose_kernel.language.text import clipped
from prose_kernel.processes.command_output import BothEnds
from prose_kernel.runtime.events import SessionFinished, SessionProgressed, SessionStarted
from prose_kernel.runtime.ports import SessionRequest, SessionResult, ToolUse, Usage
from prose_kernel.runtime.values import full_text
from prose_kernel.views import document as doc
from prose_kernel.views.bundle import KEPT, LEFT, QUIET, TABLE, bundle, markdown, row, wide_row
from prose_kernel.views.display import Display
from prose_kernel.views.document import plain_text
from prose_kernel.views.escaping import LITERAL, Html, clip, html, tag, visible
from prose_kernel.views.refresh import GrowingDisplay, Replaceable

SHOWN = 100_000
"""The most characters of an answer that a notebook shows; the binding has all of it."""
LIVE = 10_000
"""The most characters that are shown while text arrives: the last ones, so that the cost of an update is bounded."""
CALLS = 50
"""The most tool calls that a trace lists; the rest is counted."""
_DETAIL = 1_000

ORIGINS = {
    "model": "model",
    "agent": "agent",
    "human": "human",
    "authored": "replayed, example text written by hand",
    "scripted": "scripted",
    "dry-run": "dry run",
    "function": "Python function",
}
"""The words for the origin of an answer in its header; they are the same when it is replayed."""
_NUMBERED = re.compile(r"--\d+$")
"""The end of the directory name of a function that is called again: `inline--writer--2`."""
_MARKS = {"ok": "✓", "refused": "✗", "failed": "✗"}
_LEFT = f"{LEFT}; vertical-align: top"
_PRE = "margin: 2px 0; white-space: pre-wrap; max-height: 12em; overflow: auto"


class Streamed(BothEnds):
    """The beginning and the end of a session's text while it arrives, in bounded space."""

    def __init__(self) -> None:
        super().__init__(LIVE, SHOWN)

    @property
    def beginning(self) -> str:
        return self.head(SHOWN)

    @property
    def end(self) -> str:
        """The last characters, from the beginning of a line if possible."""
        text = self.tail(LIVE)
        _, newline, rest = text.partition("\n")
        return rest if self.total > len(text) and newline and rest else text


# ---------------------------------------------------------------- the header


def as_shown(event: SessionStarted | SessionFinished) -> SessionRequest:
    """Return the request of a session for its card: a session without an agent or a label is named after the enclosing
    block or called function. Only views do that, because recordings use the label of the request."""
    place, request = event.place, event.request
    if request.agent or request.label or not (place.block or place.program):
        return request
    called = place.block or _NUMBERED.sub("", place.program[-1]).partition("--")[2]
    return replace(request, label=called or None)


def _head(request: SessionRequest, name: str | None, *more: str) -> list[doc.Word]:
    """Return the header: the name that is bound to the answer, the agent, the model, and the origin of the answer."""
    parts: list[doc.Word] = [doc.Code(name)] if name else []
    parts += [part for part in (request.agent or request.label or "session", request.model, *more) if part]
    return [word for part in parts for word in (" · ", part)][1:]


def _display(
    head: Sequence[doc.Word], quiet: Sequence[str], body: Iterable[doc.Block], facts: dict[str, object]
) -> Display:
    """Return a display of a session: header, dimmed lines about earlier events, text."""
    lines = [doc.line(*head), *map(doc.line, quiet)]
    small = f"<small>{'<br>'.join(map(markdown, lines))}</small>"
    return bundle(doc.group(doc.paragraph(small, "\n  ".join(map(plain_text, lines))), *body, facts=facts))


def _attempts(failed: Sequence[str]) -> list[str]:
    return [f"attempt {number} failed: {clip(why, 300)}" for number, why in enumerate(failed, 1)]


def _capped(text: str, count: int) -> list[doc.Block]:
    """Return a text, cut at the limit of a notebook with a note about it."""
    shown = text[:SHOWN]
    if not shown.strip():
        return [doc.paragraph("*(empty)*", "(empty)")]
    note = f"… ({count:,} characters in all; the binding holds all of them)"
    return [doc.Untrusted(shown), *([doc.paragraph(note)] if count > len(shown) else [])]


# ---------------------------------------------------------------- the display of a session


def text_display(text: str) -> Display:
    """Return an earlier answer as the value of a cell: text without a header."""
    return bundle(doc.group(*_capped(text, len(text))))


def answer_display(
    request: SessionRequest,
    result: SessionResult,
    text: str,
    name: str | None = None,
    *,
    failed: Sequence[str] = (),
    notes: Sequence[str] = (),
    seconds: float | None = None,
) -> Display:
    """Return the display of a session's answer: header, failed attempts before it, the text as Markdown.

    `notes` are remarks of the provider about its answer; they are shown unchanged.
    """
    body = _capped(text, len(text))
    if request.output is not None and len(text) <= SHOWN and "\\" in text:  # Markdown would remove the escapes
        body = [doc.Rich(doc.Listing(text, "json"), doc.group(*body))]
    if result.details.get("cut") is True:
        body.append(doc.paragraph(f"*{CUT}*", CUT))
    noted = [doc.Listing(clip_block(note)) for note in notes]
    kept = [KEPT] if "kept" in result.details else []
    head = _head(request, name, ORIGINS.get(result.origin, result.origin), *kept)
    return _display(head, _attempts(failed), [*noted, *body], session_facts(request, result, seconds))


def clip_block(text: str, limit: int = 20_000) -> str:
    return clipped(text, limit, f"\n… ({len(text):,} characters in all)", kept=limit)


def failure_display(
    request: SessionRequest, name: str | None, failed: Sequence[str], streamed: Streamed | None = None
) -> Display:
    """Return the display of a session without an answer: each attempt with its cause. Partial text goes into the facts,
    because it varies from run to run."""
    facts: dict[str, object] = {"at": request.at}
    if streamed is not None and streamed.total:
        facts["partial"] = streamed.beginning[:20_000]
    return _display(_head(request, name, "no answer"), _attempts(failed), [], facts)


def live_display(
    request: SessionRequest, name: str | None, streamed: Streamed, failed: Sequence[str], doing: str
) -> Display:
    """Return the display of a running session: the end of its text, and its status. It has no collapsible parts,
    because each update would collapse them again."""
    text = streamed.end
    before = streamed.total - len(text)
    note = f"… {before:,} characters before …\n\n" if before else ""
    more = doc.line(f"… {doing}" if doing else "…")
    content = markdown(doc.Untrusted(text)).strip("\n").rstrip()
    body = [doc.paragraph(f"{note}{content}", f"{note}{visible(text)}"), more] if content else [more]
    return _display(_head(request, name), _attempts(failed), body, {})


CUT = "… (the reply ended at the limit of tokens)"
INTERRUPTED = "interrupted: this answer is not complete"


def partial_display(request: SessionRequest, name: str | None, streamed: Streamed, failed: Sequence[str]) -> Display:
    """Return the display of an interrupted session: the received text, followed by a mark that the text cannot hide."""
    body = _capped(streamed.beginning, streamed.total) if streamed.total else []
    body.append(doc.paragraph(f"**■ {INTERRUPTED}**", f"■ {INTERRUPTED}"))
    return _display(_head(request, name), _attempts(failed), body, {})


# ---------------------------------------------------------------- facts


def usage_facts(usage: Usage) -> dict[str, object]:
    """Return the consumption for the metadata; unknown tokens and an unknown cost are omitted."""
    known = ("requests", "tokens_in", "tokens_out") if usage.counted else ("requests",)
    facts: dict[str, object] = {name: getattr(usage, name) for name in known}
    if usage.cost is not None:
        facts["cost"] = round(usage.cost, 6)
    return facts


def session_facts(request: SessionRequest, result: SessionResult, seconds: float | None = None) -> dict[str, object]:
    """Return the source of an answer: everything that may differ between a live run and its replay."""
    facts: dict[str, object] = {"at": request.at, "provider": result.provider, "origin": result.origin}
    facts["replayed"] = result.replayed
    facts.update(result.details)
    if result.usage is not None:
        facts["usage"] = usage_facts(result.usage)
    if seconds is not None:
        facts["seconds"] = round(seconds, 3)
    return facts


# ---------------------------------------------------------------- tools


def doing(tool: ToolUse) -> str:
    """Return a tool call as one line."""
    return clip(f"{tool.tool} {tool.summary}".rstrip(), 80)


def trace_display(request: SessionRequest, trace: Sequence[ToolUse], name: str | None = None) -> Display:
    """Return the collapsed list of a session's tool calls in order: a separate output, because it is HTML."""
    session_name = name or request.agent or request.label or "session"
    refused = sum(call.outcome != "ok" for call in trace)
    title = f"{visible(session_name)}: {doc.counted(len(trace), 'tool call')}"
    title += f", {refused:,} without success" if refused else ""
    rows, lines = list[Html](), [title]
    for call in trace[:CALLS]:
        mark = _MARKS[call.outcome]
        detail = clip_block(visible(call.detail.rstrip("\n")), _DETAIL)
        note = f" ({call.outcome})" if call.outcome != "ok" else ""
        inner = tag("pre", detail, style=_PRE) if detail else ""
        content = html(clip(call.summary, 200), note, inner)
        rows.append(row(mark, tag("code", call.tool), content, style=_LEFT))
        lines.append(f"  {mark} {visible(call.tool)} {clip(call.summary, 200)}".rstrip() + note)
        lines += [f"    {line}" for line in detail.split("\n") if detail]
    if (more := len(trace) - CALLS) > 0:
        rows.append(wide_row(f"and {more:,} more", 3, _LEFT))
        lines.append(f"  and {more:,} more")
    summary = tag("summary", tag("span", title, style=QUIET))
    markup = tag("details", summary, tag("table", *rows, style=TABLE), class_=LITERAL)
    return Display({"text/html": markup, "text/plain": "\n".join(lines)})


# ---------------------------------------------------------------- views of running sessions


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
            session.request, session.streamed, session.doing = as_shown(event), Streamed(), ""
            session.notes.clear()

    def progressed(self, event: SessionProgressed, *, alone: bool) -> None:
        """Show progress of a session; `alone`: the session has a separate display."""
        session = self._sessions.get(event.spawn)
        if session is None:
            return
        if event.kind == "note":
            session.notes[event.text] = None
        elif event.kind == "tool":
            session.doing = doing(event.tool) if event.tool is not None else event.text
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
        answer = answer_display(
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
            displays += (trace_display(session.request, result.trace, session.name),)
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
        failure = failure_display(session.request, session.name, session.failed, session.streamed)
        return () if session.display.settle(failure) else (failure,)

    def interrupted(self) -> None:
        """End the displays of running sessions: keep their text, followed by a mark."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.display.settle(partial_display(session.request, session.name, session.streamed, session.failed))

    def _new(self, event: SessionStarted | SessionFinished) -> _Session:
        session = _Session(event.spawn, as_shown(event), event.bound_to, time.monotonic())
        session.display = GrowingDisplay(self._place, partial(self._now, session))
        return session

    def _now(self, session: _Session) -> Display:
        note = "" if session.streamed.total else clip(next(reversed(session.notes), ""), 80)
        doing = " · ".join(part for part in (session.doing or note, self._status(session.spawn)) if part)
        return live_display(session.request, session.name, session.streamed, session.failed, doing)
