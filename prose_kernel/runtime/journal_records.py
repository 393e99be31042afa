"""The records of a journal, in the order in which they are written, and their `Recorder` (docs/how-to/durability.md).

Each record is one JSON object on one line; `k` is its type. A key is the path of a request, followed by the number of
the attempt if there are several. `t` is the time of a record in milliseconds since 1970 (0: unknown), used only by
reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NoReturn, Protocol

from msgspec import Raw, Struct, field

from prose_kernel.errors import StoreFailed
from prose_kernel.runtime.clock import milliseconds
from prose_kernel.runtime.journal_codec import encode_error
from prose_kernel.runtime.ports import Clock, Store
from prose_kernel.runtime.scheduler import Scheduler

VERSION: Final = 1

NOTHING: Final = Raw(b"null")


class Head(Struct, frozen=True, tag="head", tag_field="k", omit_defaults=True):
    """The start of the run.

    `directory` is its working directory, `program` its file or the notebook's name, `settings` the settings that affect
    the program, `database` the place of a database that keeps many runs. `origin` is the address of a fetched program.
    `branch_of` lists the runs that a branch continues, the nearest last. The branch begins with the first `branch_at`
    records of the nearest run, except failures that were not delivered; `changed` means that its text differs.
    """

    run: str
    program: str
    language: str
    directory: str
    version: int = VERSION
    package: str = ""
    notebook: bool = False
    notebook_path: str = ""
    origin: str = ""
    started: str = ""
    supplied: dict[str, str] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, str | int | bool | None] = field(default_factory=dict)
    gate_files: bool = False
    elsewhere: bool = False
    database: str = ""
    branch_of: list[str] = field(default_factory=list)
    branch_at: int = 0
    changed: bool = False

    @property
    def interactive(self) -> bool:
        """Whether a person ran it cell by cell. A notebook that was run as a file has the file as its program."""
        return self.notebook and not self.program.endswith(".ipynb")


class Text(Struct, frozen=True, tag="text", tag_field="k", omit_defaults=True):
    """A file or a cell begins to run, with its text and the inputs that a person set. `prompt` is the number that the
    notebook shows next to the cell (0: none); `number` is the text's number in the run, as in paths (`c3/1`).
    `profile` is set by the text itself, or "" if the settings decide."""

    number: int
    language: str
    name: str
    text: str
    inputs: dict[str, str] = field(default_factory=dict)
    supplied: dict[str, str] = field(default_factory=dict)
    directory: str = ""
    profile: str = ""
    t: int = 0
    prompt: int = 0


class Asked(Struct, frozen=True, tag="asked", tag_field="k", omit_defaults=True):
    """A request. `text` is its shortened text for people, `digest` a hash of all its parts. `gate` and `record` are the
    name of a gate and the id of its record. `id` and `parts` are its key (`runtime/requests.py`), equal for equal
    requests anywhere in the program; "" for kinds without a key, and in journals of earlier versions."""

    key: str
    kind: str
    digest: str
    text: str = field(default="", name="said")
    looks: int = 0
    t: int = 0
    gate: str = ""
    record: str = ""
    id: str = ""
    parts: dict[str, str] = field(default_factory=dict)


class Answered(Struct, frozen=True, tag="answered", tag_field="k", omit_defaults=True):
    """The program received an answer: a value or an error, or the branch was cancelled.

    `at_once` means that the branch didn't have to wait; other answers are delivered when all branches are waiting.
    `aside` holds the notes of the ports' implementations (`runtime/open_request.py`). `again` is the time of the second
    request, in journals of earlier versions; now there is a `Repeated`. `kept` is the key of the earlier run's request
    that got this answer; "" for a new answer.
    """

    key: str
    value: Raw = NOTHING
    error: Raw = NOTHING
    cancelled: bool = False
    at_once: bool = False
    aside: Raw = NOTHING
    t: int = 0
    again: int = 0
    kept: str = ""


class Completed(Struct, frozen=True, tag="completed", tag_field="k", omit_defaults=True):
    """The work for a request has ended, but its branch waits for its turn: `Answered` follows when it gets the turn.

    If that record is missing, a resumed run answers the request with this one. A replay skips it. The fields are those
    of `Answered`. `digest` is the request's, if the run continues at a point where it had not been made yet.
    """

    key: str
    value: Raw = NOTHING
    error: Raw = NOTHING
    aside: Raw = NOTHING
    t: int = 0
    digest: str = ""

    def answered(self) -> Answered:
        """Return the answer in the form in which the program gets it."""
        return Answered(self.key, self.value, self.error, aside=self.aside, t=self.t)


class Repeated(Struct, frozen=True, tag="repeated", tag_field="k", omit_defaults=True):
    """A resumed run makes a request again: it had no answer when the run was killed, or its failure had ended the run.
    A replay skips it.

    A failed request is first `due`: an earlier `Completed` for it no longer counts, and with `afresh` neither do the
    answers of its steps. A second record follows when it is made.
    """

    key: str
    t: int = 0
    afresh: bool = False
    due: bool = False


class Step(Struct, frozen=True, tag="step", tag_field="k", omit_defaults=True):
    """A step of a request begins (`runtime/open_request.py`): a request to a model or a call of a tool. A replay skips
    it and its end.

    `number` counts the steps of the request `key`; a repeated step keeps its number. `text` is its text for people,
    `digest` a hash of everything that determines its answer, `by` the provider and the model.
    """

    key: str
    number: int
    kind: str
    digest: str
    text: str = field(default="", name="said")
    by: list[str] = field(default_factory=list)
    t: int = 0


class StepEnded(Struct, frozen=True, tag="step-ended", tag_field="k", omit_defaults=True):
    """The end of a step: its answer, and its consumption (provider, model, usage). Without a `value` it failed, or its
    answer is the answer of the request."""

    key: str
    number: int
    value: Raw = NOTHING
    usage: list[Any] = field(default_factory=list)
    t: int = 0


class Noted(Struct, frozen=True, tag="noted", tag_field="k", omit_defaults=True):
    """The result of a lookup outside the program that doesn't wait."""

    key: str
    value: Raw


class Interrupted(Struct, frozen=True, tag="interrupted", tag_field="k", omit_defaults=True):
    """The person interrupted the text. `looks` is the position of a computing program. `hasty` means that the interrupt
    did not wait for a point that a replay finds again, and that the text makes no more requests. `stopped` means that
    an exception ended the statement that got the last answer, while it computed without a wait."""

    looks: int = 0
    hasty: bool = False
    stopped: bool = False


class Ended(Struct, frozen=True, tag="ended", tag_field="k", omit_defaults=True):
    """A text has ended; `cause` is the key of the answer that made it fail, if there is one. `failed` has the keys of
    further failures that the program had received and not handled; None in journals of earlier versions."""

    number: int
    status: Literal["done", "failed", "interrupted"] = "done"
    cause: str = ""
    message: str = ""
    t: int = 0
    failed: list[str] | None = None


class Finished(Struct, frozen=True, tag="finished", tag_field="k", omit_defaults=True):
    """The run has ended and was closed."""

    status: Literal["done", "failed", "interrupted"] = "done"


class Rewound(Struct, frozen=True, tag="rewound", tag_field="k", omit_defaults=True):
    """The run continues after the record number `to`; later records no longer count."""

    to: int


Record = (
    Head
    | Text
    | Asked
    | Answered
    | Completed
    | Repeated
    | Step
    | StepEnded
    | Noted
    | Interrupted
    | Ended
    | Finished
    | Rewound
)


def answer_in(record: Record) -> Answered | None:
    """Return the answer in a record, or None. If several have the same key, the last one counts."""
    return record.answered() if isinstance(record, Completed) else record if isinstance(record, Answered) else None


def answers_of(records: Iterable[tuple[int, Record]], *kinds: str) -> Iterator[tuple[int, Asked, Answered]]:
    """Yield the answers in these records, each with its record's number and its request; only of `kinds`, if given.

    First come the answers that the program received, in that order, then those still waiting for their branch's turn.
    An answer without its request is skipped.
    """
    asked: dict[str, Asked] = {}
    waiting: dict[str, tuple[int, Asked, Answered]] = {}
    for number, record in records:
        if isinstance(record, Asked) and (not kinds or record.kind in kinds):
            asked[record.key] = record
        elif isinstance(record, Repeated):
            waiting.pop(record.key, None)
        elif (answered := answer_in(record)) is not None and answered.key in asked:
            found = number, asked[answered.key], answered
            if record is not answered:
                waiting[answered.key] = found
                continue
            waiting.pop(answered.key, None)
            if not answered.cancelled:
                yield found
    yield from waiting.values()


# ---------------------------------------------------------------- writing them


class Log(Protocol):
    """The destination of records."""

    @property
    def place(self) -> str:
        """The path of the file."""

    def append(self, record: Record) -> None:
        """Write a record, so that it survives the end of the process. May be called from any thread. Never raises: the
        owner reports write errors to the person."""

    def rewind(self, to: int) -> None:
        """Invalidate the record with this number and all later ones."""

    @property
    def must_flush(self) -> bool:
        """Whether the store has to be flushed before the next request is made."""

    @property
    def problem(self) -> str:
        """Why no request may be made, because records cannot be written; "" if requests may be made."""


class Recorder:
    """Writes the records of one run, with times from `clock`."""

    def __init__(self, log: Log, turns: Scheduler, clock: Clock | None) -> None:
        self.log = log
        self.last: Record | None = None
        """The last record that was written or replayed."""
        self.abandoned = False
        """Whether the person has interrupted the replay: no more requests are made, no more records are written."""
        self._flush_first = False
        self._turns = turns
        self._clock = clock
        self._mark = turns.looks

    def now(self) -> int:
        """Return the current time for a record, in milliseconds since 1970; 0 without a clock."""
        return milliseconds(self._clock.now()) if self._clock is not None else 0

    def write(self, record: Record) -> None:
        self.mark()
        if not self.abandoned:
            self.log.append(record)
            self.last = record

    def write_passed_over(self, record: Record) -> None:
        """Write a record that a replay skips. It does not affect the position of a computing program."""
        if not self.abandoned:
            self.log.append(record)

    def passes(self, record: Record | None) -> int:
        """Mark a replayed record, as if it had been written. Returns its position."""
        self.last = record
        return self.mark()

    def require_flush(self) -> None:
        """Flush the store before the next live request, which may read it."""
        self._flush_first = True

    async def flush(self, store: Store, key: str) -> None:
        """Flush the store if required, before the request `key`. A `StoreFailed` or a cancellation is recorded as the
        answer to the request, and raised."""
        if not self._flush_first:
            return
        try:
            await store.flush()
        except StoreFailed as error:
            self._fails(key, error)
        except asyncio.CancelledError:
            self.write(Answered(key, cancelled=True, t=self.now()))
            raise
        self._flush_first = False  # not before: a cancelled flush is made again

    def require_room(self, key: str) -> None:
        """Raise `StoreFailed` before a request if records cannot be written. If there is room again, it is recorded, so
        that a resumed run continues before the request."""
        if problem := self.log.problem:
            hint = 'make room, then resume the run; journal = "on" lets a run continue without its journal'
            message = f"the journal cannot be written ({problem}), and the setting journal is durable"
            self._fails(key, StoreFailed(message, hint=hint))

    def _fails(self, key: str, error: StoreFailed) -> NoReturn:
        """Record the error as the answer to the request, and raise it."""
        error.answer = key
        self.write(Answered(key, error=encode_error(error), t=self.now()))
        raise error

    def mark(self) -> int:
        """Set the start of the position count, which is the place of a record. Returns it."""
        self._mark = self._turns.looks
        return self._mark

    @property
    def looks(self) -> int:
        """The position of a computing program, counted from the last record."""
        return self._turns.looks - self._mark
