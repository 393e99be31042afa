"""The open request, which has no answer yet, its steps, and the notes that implementations of ports store with the
answer (docs/how-to/durability.md).

Memories, recordings and token counts need to know whether the program received an answer, and need their own facts
again when the run is resumed. So the notes of an `OpenRequest` are written to the journal with the answer, and returned
when the answer is replayed. Callbacks added with `after` run when the answer is in the journal: an undo record, for
example, can be removed then.

The current `OpenRequest` is in a context variable, so ports don't pass it as an argument. Commands, `Exec` and tasks
also get its identity, as environment variables (docs/reference/exec-and-tasks.md 2.10). Its `steps` are the requests to
models and the calls of tools that belong to the request.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from msgspec import Raw, Struct, field

from prose_kernel.language.structs import replace
from prose_kernel.runtime.journal_codec import dumps, without_ids
from prose_kernel.runtime.journal_records import NOTHING, Record, Step, StepEnded
from prose_kernel.runtime.requests import shown

IDENTITY: Final = ("PROSE_RUN", "PROSE_AT", "PROSE_ATTEMPT")
"""The environment variables that identify the request that a command belongs to."""

cell: ContextVar[str] = ContextVar("prose_kernel_cell", default="")
"""The id of the running notebook cell, as sent by the front end; "" if there is none. Recordings store it with an
answer (docs/reference/sessions.md 4.2)."""


class CellRun(Struct, eq=False):
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


class OpenRequest(Struct, eq=False):
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


# ---------------------------------------------------------------- steps

MODEL: Final = "model"
TOOL: Final = "tool"


class RecordedStep(Struct):
    """The records of one step. `begun` counts its attempts, `before` the attempts without an end except the last one;
    `failed` has the ends of earlier failed attempts."""

    step: Step
    begun: int = 1
    ended: StepEnded | None = None
    before: int = 0
    failed: list[StepEnded] = field(default_factory=list)

    @property
    def value(self) -> Raw:
        return self.ended.value if self.ended is not None else NOTHING

    def notes(self, *, used: bool = False) -> Iterator[list[object]]:
        """Yield its consumption in the form of notes on an answer (`models/usage_and_prices.py`). `used` means that the
        session's result already counts this answer.

        An attempt without an end counts as one sent request.
        """
        lost = self.before + (self.ended is None)
        for end in self.failed:
            if end.usage:
                yield ["", *end.usage, False]
        if lost and self.step.by:
            yield ["", *self.step.by, {"requests": lost, "counted": False}, False]
        if self.ended is not None and self.ended.usage and not used:
            yield ["", *self.ended.usage, False]


def folded(records: Iterable[Step | StepEnded]) -> list[RecordedStep]:
    """Return the steps of one request, in order, from their records."""
    found: dict[int, RecordedStep] = {}
    for record in records:
        known = found.get(record.number)
        if isinstance(record, Step):
            if known is None:
                found[record.number] = RecordedStep(record)
            else:
                if known.ended is None:
                    known.before += 1
                else:
                    known.failed.append(known.ended)
                known.begun, known.ended = known.begun + 1, None
        elif known is not None:
            known.ended = record
    return list(found.values())


def without_answers(records: Iterable[Step | StepEnded]) -> list[Step | StepEnded]:
    """Return the records of steps that are all repeated: their numbers and consumption count, their answers don't."""
    return [replace(one, digest="") if isinstance(one, Step) else one for one in records]


def repeats_all_steps(records: Iterable[Step | StepEnded]) -> bool:
    """Return whether all steps of a failed request are repeated, with new numbers. If a request to a model made it
    fail, only that request is repeated."""
    found = folded(records)
    return bool(found) and (found[-1].step.kind != MODEL or found[-1].value != NOTHING)


class Steps:
    """The steps of the request `key`. `known` has the steps of earlier processes; `now` returns the time for records.
    `without` has the ids of the run and of the runs that it branched from, which digests must not contain (A54).

    A conversation with a model is a function of its beginning and of the answers in it, like a program. So the journal
    has a record for each step when it begins, and one with its answer. If the process is killed, the resumed run
    repeats the conversation: each step with a recorded answer gets that answer, in order, and the first one without an
    answer is made again. An example: four requests and four calls of tools were answered, the fifth call was running.
    The resumed session makes that call, with the same `PROSE_AT`, and then its fifth request to the model.

    A step is recognized by a digest of everything that determines its answer: its own text and all answers before it.
    If the conversation differs from the recorded one, the remaining records do not apply, and the steps get new
    numbers.
    """

    def __init__(
        self,
        key: str,
        write: Callable[[Record], None],
        known: Iterable[RecordedStep] = (),
        *,
        without: Sequence[bytes] = (),
        now: Callable[[], int] = lambda: 0,
    ) -> None:
        self._key = key
        self._write = write
        self._coming = deque(known)
        self._last = max([one.step.number for one in self._coming], default=0)
        self._without = without
        self._now = now
        self._notes: list[list[object]] = []
        self._again: RecordedStep | None = None
        self._chain = ""

    @property
    def is_first(self) -> bool:
        return not self._last

    def coming(self, kind: str) -> RecordedStep | None:
        """Return the next step of this kind that has a usable answer."""
        return next(
            (one for one in self._coming if one.step.kind == kind and one.step.digest and one.value != NOTHING), None
        )

    def known(self, kind: str, identity: object) -> Raw | None:
        """Return the recorded answer of the next step; None if the step has to be made (`begin`)."""
        digest, self._again = self._digest(kind, identity), None
        while self._coming:
            one = self._coming.popleft()
            same = one.step.digest == digest
            used = same and one.value != NOTHING
            self._notes += one.notes(used=used)
            if used:
                self._follows(digest, one.value)
                return one.value
            if same and not self._coming:  # otherwise it failed, and another step followed
                self._again = one
        return None

    def begin(self, kind: str, identity: object, text: str = "", by: Sequence[str] = ()) -> OpenStep:
        """Record that a step begins. `text` is for people, `by` the provider and the model."""
        again, self._again = self._again, None
        if again is not None:
            number, attempt = again.step.number, again.begun + 1
        else:
            number, attempt = self._last + 1, 1
            self._last = number
        digest = self._digest(kind, identity)
        self._write(Step(self._key, number, kind, digest, shown(text), list(by), self._now()))

        def end(value: Raw, usage: Sequence[object]) -> None:
            self._write(StepEnded(self._key, number, value, list(usage), self._now()))
            self._follows(digest, value)

        return OpenStep(f"{self._key}/{kind[0]}{number}", attempt, end)

    def unused(self) -> list[list[object]]:
        """Return the consumption of recorded steps that no result counts, once. Call it when the request ends."""
        found = [*self._notes, *(note for one in self._coming for note in one.notes())]
        self._notes, self._coming = [], deque()
        return found

    def _follows(self, digest: str, value: Raw) -> None:
        """Include this answer in the digests of later steps."""
        if value != NOTHING:
            self._chain = hashlib.blake2b(f"{self._chain} {digest} ".encode() + bytes(value), digest_size=8).hexdigest()

    def _digest(self, kind: str, identity: object) -> str:
        return self.short((kind, identity), self._chain)

    def short(self, identity: object, chain: str = "") -> str:
        """Return a digest of an identity, without the ids of the run. The requests of a conversation share one."""
        data = without_ids(dumps(identity), self._without)
        return hashlib.blake2b(chain.encode() + data, digest_size=8).hexdigest()


class OpenStep(Struct, eq=False):
    """A step that is being made. `at` is its path in the run; `attempt` counts from 1."""

    at: str
    attempt: int
    _end: Callable[[Raw, Sequence[object]], None]
    _is_over: bool = False

    def ends(self, value: Raw = NOTHING, usage: Sequence[object] = ()) -> None:
        """Record the end of the step, once. Without a `value` a resumed run makes it again."""
        if not self._is_over:
            self._is_over = True
            self._end(value, usage)
