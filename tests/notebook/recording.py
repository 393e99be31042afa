"""An `Output` that remembers, and events made by hand: rendering is tested without a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prose_kernel.language.source import Source, Span
from prose_kernel.runtime import events
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Key, SessionRequest, SessionResult
from prose_kernel.runtime.values import ExecText, Value
from prose_kernel.views.display import Display, Problem

SOURCE = Source("made by hand\n", "cell")


@dataclass
class Recording:
    """Every call in order: kind, what was shown, and where."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def stream(self, name: str, text: str) -> None:
        self.calls.append(("stream", name, text))

    def display(self, display: Display, display_id: str | None = None) -> None:
        self.calls.append(("display", display, display_id))

    def update(self, display: Display, display_id: str) -> None:
        self.calls.append(("update", display, display_id))

    def result(self, display: Display) -> None:
        self.calls.append(("result", display))

    def error(self, problem: Problem) -> None:
        self.calls.append(("error", problem))

    def clear(self, *, wait: bool = False) -> None:
        self.calls.append(("clear", wait))

    def page(self, display: Display) -> None:
        self.calls.append(("page", display))

    # ------------------------------------------------------------ reading

    @property
    def kinds(self) -> list[str]:
        return [call[0] for call in self.calls]

    @property
    def texts(self) -> list[str]:
        """The plain text of each output."""
        return [call[2] if call[0] == "stream" else call[1].data["text/plain"] for call in self.calls]

    def saved(self) -> list[tuple[str, Any]]:
        """The outputs in a notebook file: updates replace their targets, streams of one name are joined."""
        out: list[list[Any]] = []
        for call in self.calls:
            if call[0] == "update":
                next(o for o in out if len(o) == 3 and o[2] == call[2])[1] = dict(call[1].data)
            elif call[0] == "display":
                out.append(["display", dict(call[1].data), call[2]])
            elif call[0] == "stream" and out and out[-1][0] == "stream" and out[-1][1] == call[1]:
                out[-1][2] += call[2]
            elif call[0] == "stream":
                out.append(["stream", call[1], call[2]])
            elif call[0] == "result":
                out.append(["result", dict(call[1].data), None])
        return [(o[0], o[1]) if o[0] != "stream" else (f"stream {o[1]}", o[2]) for o in out]


def place(ordinal: int = 1, branches: tuple[events.BranchStep, ...] = (), depth: int = 0) -> events.Place:
    return events.Place(SOURCE, Span(0, 4), ordinal, depth, branches=branches)


def step(index: int, label: str, parallel: int = 1) -> events.BranchStep:
    return events.BranchStep(parallel, index, label)


class Commands:
    """Makes the events of commands; numbers them."""

    def __init__(self) -> None:
        self.spawn = 0

    def run(
        self,
        out: str = "",
        err: str = "",
        *,
        at: events.Place | None = None,
        bound_to: str | None = None,
        raised: bool = False,
        directory: str | None = None,
        command: str = "make",
        consumed: bool = False,
        **result: Any,
    ) -> list[events.Event]:
        self.spawn += 1
        where = at or place()
        request = CommandRequest(command, "/", 120.0)
        ended = CommandResult(**{"outcome": "exited", "exit_code": 0, "stdout": out, "stderr": err, **result})
        made: list[events.Event] = [events.CommandStarted(where, self.spawn, request, command, bound_to, consumed)]
        if out:
            made.append(events.CommandOutput(where, self.spawn, "stdout", out))
        if err:
            made.append(events.CommandOutput(where, self.spawn, "stderr", err))
        made.append(
            events.CommandFinished(
                where, self.spawn, request, command, bound_to, ended, "continue", raised, directory, consumed
            )
        )
        return made


def bound(name: str, value: Value, at: events.Place | None = None, spawned: Any = None) -> events.Bound:
    return events.Bound(at or place(), name, "let", value, Key(name), spawned)


def failed(**result: Any) -> CommandResult:
    return CommandResult(**{"outcome": "exited", "exit_code": 1, "kind": "exit", **result})


def exec_text(text: str, **result: Any) -> ExecText:
    return ExecText(text, CommandResult(**{"outcome": "exited", "exit_code": 0, "stdout": text, **result}))


def session_finished(
    text: str, value: Value, at: events.Place | None = None, bound_to: str | None = None, **details: object
) -> events.SessionFinished:
    request = SessionRequest("session", "Write it", "c1/s0")
    result = SessionResult(text, provider="scripted", origin="scripted", details=details)
    return events.SessionFinished(at or place(), 1, request, bound_to, Key("anon_001"), result, value)
