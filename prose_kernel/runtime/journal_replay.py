"""Replays the records of a journal, one by one.

Each request must be the next recorded one. When all branches are waiting, the next recorded answer goes to the branch
that received it before. A program that does something else is stopped with E222, which shows both.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, TypeVar, cast

from msgspec import Raw, Struct, field

from prose_kernel.errors import ResumeMismatch
from prose_kernel.language.structs import replace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Completed,
    Ended,
    Interrupted,
    Record,
    Recorder,
    Repeated,
    Step,
    StepEnded,
)
from prose_kernel.runtime.open_request import folded, without_answers
from prose_kernel.runtime.ports import CommandRequest, CommandResult, ShowRequest
from prose_kernel.runtime.requests import Described, Request
from prose_kernel.runtime.scheduler import Scheduler, Turn

T = TypeVar("T")
OnReplayed = Callable[[Request, Mapping[str, Any], bool], None]
"""Called for each replayed answer with notes: the request, the notes, and whether the program received it."""

UnderWay = Literal["rerun", "fail"]
"""How to treat commands and sessions that had no answer when the run was killed."""

_PASSED_OVER: Final = frozenset({Repeated, Completed, Step, StepEnded})
_NO_MORE: Final = (0, None)


class DirectoryMove(Struct, frozen=True):
    """Converts paths for a run that continues in another directory, while its records contain the original one."""

    then: str
    now: str

    def before(self, path: str) -> str:
        """Return a path in the original directory."""
        return _below(path, self.now, self.then)

    def request(self, request: Request) -> Request:
        """Return a request with paths in the original directory."""
        match request:
            case CommandRequest():
                return replace(request, cwd=self.before(request.cwd))
            case ShowRequest():
                return replace(request, directory=self.before(request.directory))
            case _:
                return request

    def recorded(self, answer: T) -> T:
        """Return an answer in its recorded form."""
        return _with_directory(answer, self.now, self.then)

    def answer(self, answer: T) -> T:
        """Return a recorded answer with paths in the current directory."""
        return _with_directory(answer, self.then, self.now)


def _with_directory(answer: T, old: str, new: str) -> T:
    if isinstance(answer, CommandResult) and answer.cwd_after is not None:
        return replace(answer, cwd_after=_below(answer.cwd_after, old, new))
    return answer


def _below(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


class KnownRecords(Struct, frozen=True):
    """The records of an earlier process, and how a journal replays them.

    With `keeps_texts`, a text that differs from its record is an error; otherwise the new text is recorded instead.
    `under_way` applies to requests without an answer. A `complete` run has ended: if one of its approvals isn't
    confirmed, no live request is made. `moved` is set for a run that continues in another directory.

    `on_live` is called when all records are replayed, with the requests that were running when the run ended, not with
    failed ones that are due to be made again; `on_replayed` is called for each replayed answer that has notes
    (`runtime/open_request.py`).
    """

    records: Iterator[tuple[int, Record]]
    keeps_texts: bool = False
    under_way: UnderWay = "rerun"
    on_live: Callable[[Sequence[Asked]], None] | None = None
    on_replayed: OnReplayed | None = None
    complete: bool = False
    moved: DirectoryMove | None = None


class Parked(Struct, eq=False):
    """A request of a replayed program that waits for its answer: the recorded one, or None to make it live. `known`
    means that the request was recorded."""

    asked: Asked
    known: bool
    turn: Turn = field(default_factory=Turn)
    answer: Answered | None = None


class Replay:
    """The position in the known records, and the requests that wait for their turn.

    `coming` is the next record, or None; `number` is its number. The replay is `active` until something happens after
    the last record. `interrupted` is called with a recorded interrupt when its turn comes.
    """

    def __init__(
        self,
        known: KnownRecords | None,
        recorder: Recorder,
        turns: Scheduler,
        run_ids: Sequence[bytes],
        interrupted: Callable[[Interrupted], None],
    ) -> None:
        self.active = known is not None
        self.coming: Record | None = None
        self.number = 0
        # Without the records: their file is closed when the replay ends, possibly before the last one.
        self.options = replace(known or KnownRecords(iter(())), records=iter(()))
        self.parked: dict[str, Parked] = {}
        self.repeated: Counter[str] = Counter()
        """How often each request was made again."""
        self.due: set[str] = set()
        """The keys of failed requests that are still to be made again."""
        self._known = known.records if known is not None else iter(())
        self._recorder = recorder
        self._turns = turns
        self._run_ids = run_ids
        self._interrupted = interrupted
        self._cancelled: dict[str, None] = {}
        self._completed: dict[str, Completed] = {}
        self._steps: dict[str, list[Step | StepEnded]] = {}
        if known is not None:
            self._listen()
            self.advance()

    def _listen(self) -> None:
        self._turns.idle, self._turns.cancelling = self._idle, self._is_cancelled

    # ------------------------------------------------------------ records

    def advance(self) -> None:
        passed = self.coming
        self.number, coming = next(self._known, _NO_MORE)
        while type(coming) in _PASSED_OVER:
            self._collect(cast("Repeated | Completed | Step | StepEnded", coming))
            self.number, coming = next(self._known, _NO_MORE)
        self.coming = coming
        if (self._completed or self._steps) and isinstance(coming, (Asked, Answered)):
            if not (isinstance(coming, Asked) and self.keeps(coming)):
                self._completed.pop(coming.key, None)
            self._steps.pop(coming.key, None)
        mark = self._recorder.passes(passed)
        looks = coming.looks if isinstance(coming, (Asked, Interrupted)) else 0
        self._turns.stop_at = mark + looks if looks else 0

    def _collect(self, record: Repeated | Completed | Step | StepEnded) -> None:
        if isinstance(record, Repeated):
            (self.due.add if record.due else self.due.discard)(record.key)
            self.repeated[record.key] += not record.due
            self._completed.pop(record.key, None)  # its failure
            if record.afresh:
                self._steps[record.key] = without_answers(self._steps.get(record.key, ()))
        elif isinstance(record, (Step, StepEnded)):
            self._steps.setdefault(record.key, []).append(record)
        else:
            self._completed.pop(record.key, None)  # the last record determines the order
            self._completed[record.key] = record

    def keeps(self, asked: Asked) -> bool:
        """Return whether the result of this new request is known, because the run was taken back to before it."""
        done = self._completed.get(asked.key)
        return done is not None and done.digest == asked.digest

    def completed(self, key: str) -> Completed | None:
        """Take the result of a request whose work had ended when the run was killed, or None."""
        return self._completed.pop(key, None)

    def steps(self, key: str) -> Sequence[Step | StepEnded]:
        """Take the recorded steps of a request without an answer."""
        return self._steps.pop(key, ())

    def consumed(self, key: str, *, begun: bool = False, session: bool = False) -> Raw:
        """Take the notes on the consumption of a request that will not be answered. A `session` with steps, or known to
        have `begun`, also counts as one session."""
        if (done := self.completed(key)) is not None:
            return done.aside
        spent = [note for one in folded(self.steps(key)) for note in one.notes()]
        if session and (begun or spent):
            spent.append(["attempt", "", "", None, False])
        return codec.encode({"usage": spent}) if spent else NOTHING

    def leave(self, now: str) -> None:
        """End the replay because no records are left. Raises `ResumeMismatch` if there is one: the program does not
        follow it."""
        if self.coming is not None:
            raise mismatch(_next_words(self.coming), now)
        self.go_live()

    def go_live(self) -> None:
        """End the replay after the last record. Requests without an answer are repeated first, then come new ones. One
        is started whenever all branches are waiting, so that the next resumed run finds the same order."""
        self.active, self._turns.stop_at = False, 0
        self._recorder.require_flush()
        waiting = [one.asked for one in self.parked.values() if one.asked.kind != "wait"]
        under_way = [asked for asked in waiting if asked.key not in self._completed and asked.key not in self.due]
        self._is_drained()
        if self.options.on_live is not None:
            self.options.on_live(under_way)

    def abandon(self, task: asyncio.Task[object] | None = None, error: Raw = NOTHING) -> None:
        """End the replay although records are left. `task`, if any, is cancelled; then all requests that wait for their
        turn are cancelled too, or fail with the encoded `error`."""
        waiting, self.parked = self.parked, {}
        self._recorder.abandoned = True
        self.active, self.coming = False, None
        self._turns.idle, self._turns.cancelling, self._turns.stop_at = None, None, 0
        if task is not None:
            self._turns.cancel(task)
        for key, parked in waiting.items():
            self.wake(parked, Answered(key, cancelled=error == NOTHING, error=error))

    # ------------------------------------------------------------ requests

    def asked(self, described: Described) -> Asked | None:
        """Replay a request. Returns its record, or None if the request is new. Raises `ResumeMismatch`."""
        if not self.active:
            return None
        coming = self.coming
        known = (described.key, described.kind, described.digest(self._run_ids))
        if isinstance(coming, Asked) and (coming.key, coming.kind, coming.digest) == known:
            self.advance()
            return coming
        self.leave(_words(described.kind, described.shown))
        return None

    def immediate(self, key: str) -> Answered | None:
        """Take the recorded answer if it is the next record and no other branch would run before it is used."""
        coming = self.coming
        if isinstance(coming, Answered) and coming.key == key and (coming.at_once or self._turns.keeps_turn()):
            self.advance()
            return coming
        return None

    def park(self, asked: Asked, *, known: bool) -> Parked:
        """Make a request wait for its turn."""
        parked = self.parked[asked.key] = Parked(asked, known)
        self._listen()
        return parked

    async def answer(self, described: Described, parked: Parked) -> Answered | None:
        """Return the recorded answer when its turn comes; None if there is none and the request has to be made live.

        A cancelled branch continues at the recorded point, because the order of later events depends on that. If it was
        not cancelled in the recording, a record with the consumption of the request is written.
        """
        self._turns.end_turn()
        try:
            await parked.turn.wait()
        except asyncio.CancelledError:
            if parked.answer is None:
                spent = self.consumed(described.key, session=described.kind == "session")
                now = self._recorder.now()
                parked.answer = Answered(described.key, cancelled=True, aside=spent, t=now)
                self._recorder.write(parked.answer)
        return parked.answer

    def _idle(self) -> None:
        """Give the next branch its answer. Called when all branches are waiting."""
        if not self._turns.active:
            return
        if not self.active:
            self._ask_next()
            return
        while isinstance(self.coming, Interrupted):  # two records if the interrupt was repeated or the kernel restarted
            self._interrupted(self.coming)
            if self._turns.is_running:
                return
        coming = self.coming
        if not self.parked:
            return
        if isinstance(coming, Answered) and coming.key in self.parked:
            self.advance()
            self._cancelled.pop(coming.key, None)
            self.wake(self.parked.pop(coming.key), coming)
        else:
            try:
                self.leave("nothing of the kind")
            except ResumeMismatch as error:  # no branch makes the recorded request: the first waiting one fails
                parked = self.parked.pop(next(iter(self.parked)))
                self.wake(parked, Answered(parked.asked.key, error=codec.encode_error(error)))
            else:
                self._ask_next()

    def wake(self, parked: Parked, answered: Answered | None) -> None:
        """Let a waiting branch continue with this answer."""
        parked.answer = answered
        self._turns.resume(parked.turn)

    def _ask_next(self) -> None:
        """Wake the next waiting request. Cancelled ones come first: a live request would no longer wait. Then come
        those with a known result, in the order of the results."""
        known = (key for key in self._completed if key in self.parked)
        key = next(chain(self._cancelled, known, self.parked), None)
        if key is not None:
            self._cancelled.pop(key, None)
            self.wake(self.parked.pop(key), None)
        self._is_drained()

    def _is_drained(self) -> None:
        if not self.parked:
            self._turns.idle = self._turns.cancelling = None

    def _is_cancelled(self, task: asyncio.Task[object]) -> None:
        for key, parked in self.parked.items():
            if parked.turn.task is task:
                self._cancelled[key] = None


def _words(kind: str, text: str) -> str:
    return f"{kind} {text}" if text else kind


def _next_words(record: Record) -> str:
    match record:
        case Asked():
            return _words(record.kind, record.text)
        case Answered():
            return f"the answer to {record.key}"
        case Ended():
            return f"text {record.number} ends: {record.status}"
        case _:
            return f"a record of kind {type(record).__name__.lower()}"


def mismatch(then: str, now: str) -> ResumeMismatch:
    """Return the error of a program that does something different from its recording."""
    return ResumeMismatch(
        "the program does not do what it did when it was recorded",
        details={"then": then, "now": now},
        hint=f"then: {then} / now: {now}",
    )
