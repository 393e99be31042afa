"""The open request, which has no answer yet, and the notes that implementations of ports store with the answer
(docs/how-to/durability.md).

Memories, recordings and token counts need to know whether the program received an answer, and need their own facts
again when the run is resumed. So the notes of an `OpenRequest` are written to the journal with the answer, and returned
when the answer is replayed. Callbacks added with `after` run when the answer is in the journal: an undo record, for
example, can be removed then.

The current `OpenRequest` is in a context variable, so ports don't pass it as an argument. Commands, `Exec` and tasks
also get its identity, as environment variables (docs/reference/exec-and-tasks.md 2.10). Its `steps` are the requests to
models and the calls of tools that belong to the request (`runtime/request_steps.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prose_kernel.runtime.request_steps import OpenStep, Steps

IDENTITY: Final = ("PROSE_RUN", "PROSE_AT", "PROSE_ATTEMPT")
"""The environment variables that identify the request that a command belongs to."""

cell: ContextVar[str] = ContextVar("prose_kernel_cell", default="")
"""The id of the running notebook cell, as sent by the front end; "" if there is none. Recordings store it with an
answer (docs/reference/sessions.md 4.2)."""


@dataclass(slots=True, eq=False)
class CellRun:
    """One run of a notebook cell, which may consist of several texts. `keeps` means that it keeps answers of the cell's
    last run, whatever the setting `rerun` says. `again` has the paths of kept answers that a person wants to have asked
    again. `asks` means that the rest of the cell keeps no answers."""

    keeps: bool = False
    again: frozenset[str] = frozenset()
    asks: bool = False

    def may_keep(self, by_default: bool) -> bool:
        return not self.asks and (by_default or self.keeps or bool(self.again))

    @classmethod
    def of(cls, metadata: Mapping[str, object]) -> CellRun:
        """Read the run of a cell from the metadata of an execute request (docs/how-to/edit-and-continue.md)."""
        match metadata.get(RERUN):
            case {"again": list() as paths}:
                return cls(again=frozenset(path for path in paths if isinstance(path, str)))
            case {"keep": True}:
                return cls(keeps=True)
        return cls()


RERUN: Final = "prose_rerun"
"""The key of these choices in the metadata of an execute request."""

run: ContextVar[CellRun] = ContextVar("prose_kernel_cell_run")
"""The current run of the running cell; not set outside of cells."""

_asked: ContextVar[OpenRequest | None] = ContextVar("prose_kernel_open_request", default=None)
_step: ContextVar[OpenStep | None] = ContextVar("prose_kernel_step", default=None)


@dataclass(slots=True, eq=False, repr=False)
class OpenRequest:
    """One open request. `key` is its key in the journal, `journal` the path of the journal's file, `run` the id of the
    run. `attempt` is larger than 1 if the request was made before: it had no answer when the run was killed, or it is a
    command that failed and is retried. `on_result` is called with the result when the work has ended."""

    key: str
    journal: str
    run: str = ""
    attempt: int = 1
    steps: Steps | None = None
    on_result: Callable[[OpenRequest, object], None] | None = None
    notes: dict[str, object] = field(default_factory=dict)
    is_completed: bool = False
    """Whether the journal has the result but no answer yet, because the branch waits for its turn."""
    _look: Callable[[], None] | None = None
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _recorded_again: Callable[[], None] | None = None
    _after: list[Callable[[bool], None]] = field(default_factory=list)

    def after(self, then: Callable[[bool], None]) -> None:
        """Call `then` when the answer is in the journal; with False if the program didn't receive the answer."""
        self._after.append(then)

    def completes(self, value: object) -> None:
        """Pass on the result of the work. Call it in the thread that sees the work end."""
        if self.on_result is not None:
            self.on_result(self, value)

    def when_completed(self, look: Callable[[], None]) -> None:
        """Set the function that adds notes on the effects of the finished work. It is called once, in a thread."""
        self._look = look

    def look(self) -> None:
        """Add these notes, and record them if the result is recorded, or wait until another thread has done so."""
        with self._looking:
            look, self._look = self._look, None
            if look is not None:
                look()
                if (recorded_again := self._recorded_again) is not None:
                    recorded_again()

    def complete_early(self, recorded_again: Callable[[], None]) -> None:
        """Add these notes in a thread of their own, because the result is recorded. `recorded_again` records them."""
        self._recorded_again = recorded_again
        if self._look is not None:
            with suppress(RuntimeError):  # no thread can be started: the branch calls `look` when it can run
                threading.Thread(target=self.look, daemon=True).start()

    def settle(self, kept: bool) -> None:
        """Run the callbacks: the journal has the answer, or a record that there is none."""
        self._recorded_again = None  # it refers to this request
        after, self._after = self._after, []
        for then in after:
            then(kept)


def completing() -> Callable[[object], None]:
    """Return the function to call with the result of the open request. Call it in the thread that sees the work end,
    because the program's event loop may be computing. Without a journal it does nothing."""
    opened = _asked.get()
    return opened.completes if opened is not None else lambda value: None


def current() -> OpenRequest | None:
    """Return the `OpenRequest` of the open request; None without a journal."""
    return _asked.get()


def steps() -> Steps | None:
    """Return the steps of the open request; None without a journal."""
    opened = _asked.get()
    return opened.steps if opened is not None else None


def identity() -> dict[str, str]:
    """Return the environment variables that identify the open request, or its open step; empty without a journal."""
    opened, step = _asked.get(), _step.get()
    if opened is None or not opened.run:
        return {}
    at, attempt = (step.at, step.attempt) if step is not None else (opened.key, opened.attempt)
    return dict(zip(IDENTITY, (opened.run, at, str(attempt)), strict=True))


@contextmanager
def stepping(step: OpenStep) -> Iterator[None]:
    """Set the step that commands belong to, for this task and all tasks that it starts inside the block."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)


@contextmanager
def asking(opened: OpenRequest) -> Iterator[OpenRequest]:
    """Set the `OpenRequest` for this task and all tasks that it starts inside the block."""
    _asked.set(opened)
    _step.set(None)
    try:
        yield opened
    finally:
        _asked.set(None)
