"""The journal of a run: all answers to its requests, in the order in which the program received them.

A run is a function of its texts and of this sequence (`runtime/scheduler.py`). So the journal is enough to restore a
run: its texts run again, and every request gets its answer from the journal. Frames, names, numbers, the directory and
the stored values follow from that. After the last record the program is where it was, and its requests are live again.

A replay follows the records one by one. Each request must be the next recorded one; when all branches are waiting, the
next answer goes to the branch that received it before. A program that makes another request stops with E222, which
shows both.

Requests without an answer when the run was killed are *under way*: they are repeated or fail, as the person who resumes
the run decides.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, cast

from msgspec import MsgspecError, Raw, json, structs

from prose_kernel.errors import ProviderError, ResumeMismatch, StoreFailed, Undecided
from prose_kernel.runtime import asides
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.asides import Aside
from prose_kernel.runtime.continuing import EarlierAnswer, EarlierAnswers
from prose_kernel.runtime.declared_files import FilesThen, with_files
from prose_kernel.runtime.journal_codec import Described, Moved, Request
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Completed,
    Ended,
    Finished,
    Interrupted,
    Noted,
    Record,
    Repeated,
    Step,
    StepEnded,
    Text,
)
from prose_kernel.runtime.keys import Keys
from prose_kernel.runtime.ports import (
    Clock,
    CommandRequest,
    CommandResult,
    Finding,
    GateDecision,
    GateRequest,
    SessionRequest,
    SessionResult,
)
from prose_kernel.runtime.scheduler import Scheduler, Suspension, Turn
from prose_kernel.runtime.steps import MODEL, Recorded, Steps, folded

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import ExecutionContext

T = TypeVar("T")

OnReplayed = Callable[[Request, Mapping[str, Any], bool], None]
"""Called for each replayed answer with notes: the request, the notes, whether the program received it."""

Approved = tuple[str, str, str, bytes]
"""An approval in a journal: the key of its request, the name of the gate ("" in journals of earlier versions), what was
asked, and the decision as it is written there. Ids of the run are left out."""

UnderWay = Literal["rerun", "fail"]
"""The treatment of a command or session that had no answer when the run was killed."""

_NO_KEYS: Final = Keys()

_WORK: Final = ("command", "session", "judge")
"""Requests that have effects or a cost: their answers are recorded as soon as the work has ended."""


class Log(Protocol):
    """The destination of records."""

    @property
    def place(self) -> str:
        """The path of the file."""
        ...

    def append(self, record: Record) -> None:
        """Write a record, so that it survives the end of the process. May be called from any thread. Never raises: the
        owner reports to the person what can't be written."""
        ...

    def rewind(self, to: int) -> None:
        """Invalidate the record with this number and all later ones."""
        ...

    @property
    def behind(self) -> bool:
        """Whether the store has to be flushed before the next request is made."""
        ...

    @property
    def problem(self) -> str:
        """Why no request may be made, because records cannot be written; "" if requests may be made."""
        ...


@dataclass(slots=True, eq=False)
class _Parked:
    """A request of a replayed program that waits for its answer: the recorded one, or None for a live request.
    `known`: the request itself was recorded."""

    asked: Asked
    known: bool
    turn: Turn = field(default_factory=Turn)
    answer: Answered | None = None
    task: asyncio.Task[object] | None = field(default_factory=asyncio.current_task)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    """The answer of an earlier run."""

    value: T


@dataclass(frozen=True, slots=True)
class KnownRecords:
    """The records of an earlier process, and how a journal replays them.

    With `texts_stay`, a text that differs from its record is an error; otherwise the new text is recorded instead.
    `under_way` decides about requests without an answer; the request with the key `again` is asked again in any case. A
    `complete` run has ended: if one of its approvals isn't confirmed, nothing more is asked. `moved` is set for a run
    that continues in another directory.

    `on_live` is called when all records are replayed, with the requests without an answer; `on_replayed` is called for
    each replayed answer that has notes (`runtime/asides.py`).
    """

    records: Iterator[tuple[int, Record]]
    texts_stay: bool = False
    under_way: UnderWay = "rerun"
    again: str = ""
    on_live: Callable[[Sequence[Asked]], None] | None = None
    on_replayed: OnReplayed | None = None
    complete: bool = False
    moved: Moved | None = None


class Journal:
    """Writes the records of a run, after replaying the `known` ones.

    `keys` makes the keys of requests; it has the ids of the run and of those that it comes from. `clock` gives records
    their time. `earlier` are the answers of a run of an earlier text, which requests use as far as they may.

    `approved` are the approvals of gates that count in a replay, because a person gave or confirmed them in this
    process; later approvals are added. None: all recorded approvals count, for records that were never in a file.
    """

    def __init__(
        self,
        log: Log,
        turns: Scheduler,
        keys: Keys = _NO_KEYS,
        *,
        known: KnownRecords | None = None,
        clock: Clock | None = None,
        approved: set[Approved] | None = None,
        earlier: EarlierAnswers | None = None,
    ) -> None:
        self._keys = keys
        self._earlier = earlier
        self._approved = approved
        self._moved = known.moved if known is not None else None
        # Without the records: their file is closed when the replay ends, which may be before their end.
        self._how = replace(known or KnownRecords(iter(())), records=iter(()))
        self._unconfirmed = False
        self._clock = clock
        self.rewound = False
        self._log = log
        self._turns = turns
        self._run = keys.run_ids[0].decode() if keys.run_ids else ""
        self._repeated: Counter[str] = Counter()
        self._completed: dict[str, Completed] = {}
        self._open = 0  # requests whose work has not ended
        self._steps: dict[str, list[Step | StepEnded]] = {}
        self._run_ids = keys.run_ids
        self._known = known.records if known is not None else None
        self._coming: Record | None = None
        self._number = 0
        self._unwritten = False
        self._written: Record | None = None
        self._hasty = False  # the text was interrupted so that it asks nothing more
        self._parked: dict[str, _Parked] = {}
        self._cancelled: dict[str, None] = {}
        self._mark = turns.looks
        self.abandoned = False
        """Whether the person has interrupted the replay: no more requests are made, and the journal stays as it is."""
        self.task: asyncio.Task[object] | None = None
        if known is not None:
            turns.idle, turns.cancelling = self._idle, self._is_cancelled
            self._advance()

    @property
    def replaying(self) -> bool:
        return self._known is not None

    @property
    def has_more(self) -> bool:
        """Whether a record is left to replay."""
        return self._coming is not None

    def now(self) -> int:
        """The current time for a record, in milliseconds since 1970; 0 without a clock."""
        return int(self._clock.now().timestamp() * 1000) if self._clock is not None else 0

    @property
    def coming(self) -> int:
        """The number of the next record to replay; 0 if there is none."""
        return self._number

    def keep(self, earlier: EarlierAnswers | None) -> None:
        """Let the requests of the text that begins use these answers; None: none."""
        self._earlier = earlier

    # ------------------------------------------------------------ asking

    async def answer(
        self,
        s: ExecutionContext,
        request: Request,
        kind: type[T],
        ask: Callable[[], Awaitable[T]],
        *,
        also: Sequence[str] = (),
        kept: Callable[[T], T] | None = None,
    ) -> T:
        """Return the answer to a request: the recorded one, or the result of `ask`.

        `kept` reduces an answer to the part that is recorded. Raises the errors of `ask`.
        """
        if self.abandoned or self._hasty:
            raise asyncio.CancelledError
        described = codec.describe(self._moved.request(request) if self._moved is not None else request, also)
        if self._turns.interrupted is not None or isinstance(self._coming, Interrupted):
            await self.stand_still()
        s.answered = described.key, s.statement
        asked, parked = self._asked(described)
        if self.abandoned:  # the records were at their end, and whoever replays them asks nothing
            raise asyncio.CancelledError
        if asked is None:
            asked = self._new(described, request, also)
            if (one := await self._from_earlier(s, request, asked, kind, kept)) is not None:
                return one.value
            if self._parked or self._earlier is not None:  # kept answers come first
                parked = self._park(asked, known=False)
        if parked is not None:
            answered = await self._known_answer(described, parked) or self._completed_answer(described)
            if answered is not None:
                if self._earlier is not None:
                    self._earlier.answered(asked, answered)
                return self._replayed(s, request, described, answered, kind)
            failed = parked.known and self._how.under_way == "fail" and described.key != self._how.again
            if failed and (failure := _failure(kind)) is not None:
                return self._given_up(request, described, failure)
            if parked.known and (one := await self._from_earlier(s, request, asked, kind, kept)) is not None:
                return one.value
        repeated = parked is not None and parked.known and described.kind != "wait"
        files, about = s.host.ports.files, (described, asked)
        if files is not None and isinstance(request, CommandRequest) and (request.declares_files or request.writes):
            ask = partial(with_files, files, request, self._keys.directory, cast("Any", ask))
        if (tree := s.host.ports.tree) is not None and isinstance(request, (CommandRequest, SessionRequest)):
            ask = partial(tree.watched, request.cwd if isinstance(request, CommandRequest) else "", ask)
        return await self._live_answer(s, about, kind, ask, kept, at_once=parked is None, repeated=repeated)

    def _replayed(
        self, s: ExecutionContext, request: Request, described: Described, answered: Answered, kind: type[T]
    ) -> T:
        """Return the value of a recorded answer. Raises its error."""
        self._hand_back(request, answered)
        value = self._value(answered, kind, described)
        if isinstance(value, GateDecision) and isinstance(request, GateRequest):
            if value.status == "approved":
                self._passes(described, answered)
            s.host.ports.gates.replayed(request, value)
        return value

    async def _live_answer(
        self,
        s: ExecutionContext,
        about: tuple[Described, Asked],
        kind: type[T],
        ask: Callable[[], Awaitable[T]],
        kept: Callable[[T], T] | None,
        *,
        at_once: bool,
        repeated: bool,
    ) -> T:
        """Make a live request. `at_once`: the branch has not waited for it. `repeated`: it was made before, and had no
        answer."""
        described, asked = about
        if self._unconfirmed:
            raise _unconfirmed(described.shown)
        if problem := self._log.problem:
            raise self._stops(described.key, problem)
        if self._unwritten:  # what the replay has bound: the outside may look at it
            await self._write_up(s, described.key)
        turns, key = self._turns, described.key
        if self._earlier is not None:
            self._earlier.begins(asked)
        wait = Suspension(ask(), turns.ends)
        if repeated:
            self._repeat(key)
        aside = self._aside(described, self._steps_before(key) if repeated else ())
        self._open += 1
        try:
            try:
                with asides.asking(aside):
                    value: T = await wait
                if kept is None:
                    self._complete(described, aside, wait, value=value)
            except Exception as error:
                self._complete(described, aside, wait, error=error)
                raise
            finally:
                self._open -= 1
                if wait.happened:
                    await turns.regain()
            whole = value if kept is None else kept(value)
        except asyncio.CancelledError:
            self._write_answer(Answered(key, cancelled=True), aside, kept=False)
            raise
        except Exception as error:
            if codec.may_be_kept(error):
                at_once = at_once and not wait.happened
                told = Answered(key, error=codec.encode_error(error), at_once=at_once)
                self._write_answer(told, aside, kept=False)
            else:
                aside.settle(False)
            raise
        at_once = at_once and not wait.happened
        try:
            raw, value_then = codec.written(self._as_recorded(whole), kind)
        except RecursionError:
            too_deep = "the answer is nested too deeply"
            unusable = Undecided(too_deep) if kind is Finding else ProviderError(too_deep, retryable=False)
            told = Answered(key, error=codec.encode_error(unusable), at_once=at_once)
            self._write_answer(told, aside, kept=False)
            raise unusable from None
        if isinstance(value, GateDecision) and value.status == "approved" and self._approved is not None:
            self._approved.add(approved(described, raw, self._run_ids))
        answered = Answered(key, raw, at_once=at_once)
        self._write_answer(answered, aside, kept=True)
        if self._earlier is not None:
            self._earlier.answered(asked, answered)
        return value_then if kept is None and kind is Finding else value

    def _aside(self, described: Described, known: Sequence[Recorded]) -> Aside:
        """Return the notes of a request. All attempts of a command have one place, and are counted together."""
        place, _, retries = described.key.partition("#") if described.kind == "command" else (described.key, "", "")
        earlier = (f"{place}#{retry}" if retry else place for retry in range(int(retries or 0)))
        attempt = sum(1 + self._repeated[key] for key in (*earlier, described.key))
        steps = Steps(described.key, self._aside_record, known, without=self._run_ids, now=self.now)
        completes = partial(self._completes, described.key) if described.kind == "command" else None
        return Aside(place, self._log.place, self._run, attempt, steps, completes)

    def _completes(self, key: str, result: object) -> bool:
        """Record the result of a command in the thread that sees it end, because the program may be computing in a
        single step. Returns whether it is recorded: not if it was cancelled, nor if no other branch can delay it."""
        ended = isinstance(result, CommandResult) and result.outcome not in ("interrupted", "cancelled")
        if not ended or self.abandoned or not (self._turns.is_running or self._open > 1):
            return False
        self._log.append(Completed(key, codec.encode(result), t=self.now()))
        return True

    def _complete(
        self,
        described: Described,
        aside: Aside,
        wait: Suspension,
        *,
        value: object = None,
        error: Exception | None = None,
    ) -> None:
        """Record that the work for a request has ended, if its branch has to wait for its turn."""
        if not wait.happened or not self._turns.is_running or described.kind not in _WORK or self.abandoned:
            return
        if aside.is_completed:
            return
        notes = codec.encode(aside.notes) if aside.notes else NOTHING
        if error is None:
            with suppress(RecursionError):
                raw = codec.encode(self._as_recorded(value))
                self._log.append(Completed(described.key, raw, aside=notes, t=self.now()))
        elif codec.may_be_kept(error):
            self._log.append(Completed(described.key, error=codec.encode_error(error), aside=notes, t=self.now()))

    def _completed_answer(self, described: Described) -> Answered | None:
        """Return the answer to a request whose work had ended when the run was killed, and record it."""
        found = self._completed.pop(described.key, None)
        if found is None:
            return None
        answered = Answered(found.key, found.value, found.error, aside=found.aside, t=found.t)
        self._write(answered)
        return answered

    def _repeat(self, key: str) -> None:
        """Record that a request is made again."""
        self._repeated[key] += 1
        self._aside_record(Repeated(key, self.now()))

    def _aside_record(self, record: Record) -> None:
        """Write a record that a replay passes over."""
        if not self.abandoned:  # not with `_write`: it resets the position of computing programs, a replay does not
            self._log.append(record)

    def _steps_before(self, key: str) -> list[Recorded]:
        """Return the recorded steps of a request that is made again. If a request to a model made it fail, only that
        one is repeated; after any other failure all steps are made again, with new numbers."""
        found = folded(self._steps.pop(key, ()))
        if key == self._how.again and found and (found[-1].step.kind != MODEL or found[-1].value != NOTHING):
            for one in found:
                one.step = structs.replace(one.step, digest="")
        return found

    async def _write_up(self, s: ExecutionContext, key: str) -> None:
        self._unwritten = False
        try:
            await s.run.store.flush()
        except StoreFailed as error:
            self._unwritten, error.answer = True, key
            self._write(Answered(key, error=codec.encode_error(error), t=self.now()))
            raise

    def _stops(self, key: str, problem: str) -> StoreFailed:
        """Return the error of a request that is not made, because the journal cannot be written. If there is room
        again, the journal has it too: a resumed run continues before it."""
        hint = 'make room, then resume the run; journal = "on" lets a run continue without its journal'
        error = StoreFailed(f"the journal cannot be written ({problem}), and the setting journal is durable", hint=hint)
        error.answer = key
        self._write(Answered(key, error=codec.encode_error(error), t=self.now()))
        return error

    def _write_answer(self, answered: Answered, aside: Aside, *, kept: bool) -> None:
        notes = codec.encode(aside.notes) if aside.notes else NOTHING
        self._write(structs.replace(answered, aside=notes, t=self.now()))
        aside.settle(kept)

    def _hand_back(self, request: Request, answered: Answered) -> None:
        if answered.aside != NOTHING and self._how.on_replayed is not None:
            got = answered.error == NOTHING and not answered.cancelled
            self._how.on_replayed(request, json.decode(answered.aside), got)

    def _passes(self, described: Described, answered: Answered) -> None:
        """Check a replayed approval before it opens its gate. Raises `ResumeMismatch` unless a person has given or
        confirmed exactly this one: commands can write the journal's file."""
        this = approved(described, answered.value, self._run_ids)
        if self._approved is None or this in self._approved:
            return
        if not self._how.complete:
            raise _unconfirmed(described.gate)
        self._unconfirmed = True

    # ------------------------------------------------------------ answers of an earlier run

    async def _from_earlier(
        self, s: ExecutionContext, request: Request, asked: Asked, kind: type[T], kept: Callable[[T], T] | None
    ) -> _Kept[T] | None:
        """Return the answer that a run of an earlier text got to this request; None if it has to be asked."""
        earlier = self._earlier
        one = earlier.find(asked, request) if earlier is not None else None
        if earlier is None or one is None:
            return None
        try:
            files = one.files_then(request, self._keys)
            value = codec.decode(one.answered.value, kind)
        except (LookupError, MsgspecError) as problem:
            earlier.refuse(asked, "unknown" if isinstance(problem, LookupError) else "unreadable")
            return None
        if files is not None and not await self._unchanged(s, asked, one, files):
            return None
        if isinstance(value, SessionResult):
            whole = earlier.whole(value, one.answered.t)
            if whole is None:
                earlier.refuse(asked, "unreadable")
                return None
            value = cast("T", whole)
        elif isinstance(value, CommandResult):
            value = cast("T", structs.replace(value, kept=True))
        if kept is not None:
            value = kept(value)
        notes = earlier.use(one, request)
        aside = codec.encode(notes) if notes else NOTHING
        raw, key = codec.encode(value), one.asked.key
        self._write(Answered(asked.key, raw, at_once=files is None, aside=aside, t=self.now(), kept=key))
        if isinstance(value, GateDecision) and isinstance(request, GateRequest):
            s.host.ports.gates.replayed(request, value)
        return _Kept(value)

    async def _unchanged(self, s: ExecutionContext, asked: Asked, one: EarlierAnswer, files: FilesThen) -> bool:
        """Whether the files of an earlier answer are as they were; if not, the request is asked."""
        assert self._earlier is not None
        ports = s.host.ports.files
        try:
            now = await s.outside(asyncio.to_thread(files.now, ports)) if ports is not None else None
        except asyncio.CancelledError:
            self._write(Answered(asked.key, cancelled=True, t=self.now()))
            raise
        except LookupError:
            now = None
        if now is None:
            self._earlier.refuse(asked, "unknown")
            return False
        changed = self._earlier.changed(one, files, now)
        if changed is not None:
            self._earlier.refuse(asked, "changed", f"{changed} has changed")
        return changed is None

    def _given_up(self, request: Request, described: Described, failure: T | Exception) -> T:
        if isinstance(failure, Exception):
            spent = [note for one in folded(self._steps.pop(described.key, ())) for note in one.notes()]
            notes = codec.encode({"usage": spent}) if spent else NOTHING
            answered = Answered(described.key, error=codec.encode_error(failure), aside=notes, t=self.now())
            self._write(answered)
            self._hand_back(request, answered)
            raise failure
        self._write(Answered(described.key, codec.encode(failure), t=self.now()))
        return failure

    def _value(self, answered: Answered, kind: type[T], described: Described) -> T:
        if answered.cancelled:
            raise asyncio.CancelledError
        if answered.error != NOTHING:
            raise codec.decode_error(answered.error)
        try:
            value = codec.decode(answered.value, kind)
        except MsgspecError:
            raise _mismatch("the journal holds an answer that is none", described.shown) from None
        return self._moved.answer(value) if self._moved is not None else value

    def _as_recorded(self, value: T) -> T:
        return self._moved.recorded(value) if self._moved is not None else value

    def note(self, key: str, kind: type[T], look: Callable[[], T]) -> T:
        """Return the result of `look`; in a replay, its recorded result."""
        if self._hasty:
            raise asyncio.CancelledError
        if self._known is not None:
            coming = self._coming
            if isinstance(coming, Noted) and coming.key == key:
                self._advance()
                return codec.decode(coming.value, kind)
            self._leave(f"looks something up ({key})")
        found = look()
        self._write(Noted(key, codec.encode(found)))
        return found

    def fails_to_keep(self, key: str) -> None:
        """Raise the `StoreFailed` that is recorded for this point."""
        coming = self._coming
        if isinstance(coming, Noted) and coming.key == key:
            self._advance()
            raise codec.decode_error(coming.value)

    def failed_to_keep(self, key: str, error: StoreFailed) -> None:
        """Record that the store has failed: a resumed run continues before this point. If records are left to replay,
        nothing is added to them and the replay ends."""
        error.answer = key
        if self._coming is not None:
            self.abandon()
        elif self._known is not None:
            self._go_live()
        self._write(Noted(key, codec.encode_error(error)))

    # ------------------------------------------------------------ replaying

    def _asked(self, described: Described) -> tuple[Asked, _Parked] | tuple[None, None]:
        """Replay a request; None if it is a new one. Raises `ResumeMismatch`."""
        if self._known is None:
            return None, None
        coming = self._coming
        known = (described.key, described.kind, described.digest(self._run_ids))
        if isinstance(coming, Asked) and (coming.key, coming.kind, coming.digest) == known:
            self._advance()
            return coming, self._park(coming, known=True)
        self._leave(_words(described.kind, described.shown))
        return None, None

    def _new(self, described: Described, request: Request, also: Sequence[str]) -> Asked:
        """Record a new request."""
        looks = self._looks() if described.kind == "wait" else 0
        self._unwritten = self._unwritten or (self._log.behind and described.kind != "wait")
        digest, key = described.digest(self._run_ids), self._keys.of(request, also)
        place = (described.gate, described.record)
        asked = Asked(
            described.key, described.kind, digest, described.shown, looks, self.now(), *place, key.digest, key.parts
        )
        self._write(asked)
        return asked

    def _park(self, asked: Asked, *, known: bool) -> _Parked:
        parked = self._parked[asked.key] = _Parked(asked, known)
        self._turns.idle, self._turns.cancelling = self._idle, self._is_cancelled
        return parked

    async def _known_answer(self, described: Described, parked: _Parked) -> Answered | None:
        """The recorded answer, when it is its turn; None when there is none, and the outside is to be asked.

        A cancelled branch goes on when it did then, because the order of what follows depends on that.
        """
        coming = self._coming
        if isinstance(coming, Answered) and coming.at_once and coming.key == described.key:
            del self._parked[described.key]
            self._advance()
            return coming
        self._turns.ends()
        try:
            await parked.turn.wait()
        except asyncio.CancelledError:
            if parked.answer is None:
                self._write(Answered(described.key, cancelled=True, t=self.now()))
                raise
        return parked.answer

    def _idle(self) -> None:
        """All branches wait: give the next one its answer."""
        if not self._turns.active:
            return
        if self._known is None:
            self._ask_next()
            return
        while isinstance(self._coming, Interrupted):  # twice, if the person repeated it or the kernel was restarted
            self._interrupt_again(self._coming)
            if self._turns.is_running:
                return
        coming = self._coming
        if not self._parked:
            return
        if isinstance(coming, Answered) and coming.key in self._parked:
            self._advance()
            self._cancelled.pop(coming.key, None)
            self._wake(self._parked.pop(coming.key), coming)
        else:
            try:
                self._leave("nothing of the kind")
            except ResumeMismatch as error:  # no branch makes the recorded request: the first waiting one fails
                parked = self._parked.pop(next(iter(self._parked)))
                self._wake(parked, Answered(parked.asked.key, error=codec.encode_error(error)))
            else:
                self._ask_next()

    def _wake(self, parked: _Parked, answered: Answered | None) -> None:
        parked.answer = answered
        self._turns.goes_on(parked.turn)

    def _cancel(self) -> None:
        if self.task is not None:
            self._turns.cancel(self.task)

    def _leave(self, now: str) -> None:
        """End the replay, because there are no more records. Raises `ResumeMismatch` if there is one, which the program
        doesn't follow."""
        if self._coming is not None:
            raise _mismatch(_next_words(self._coming), now)
        self._go_live()

    def _go_live(self) -> None:
        """Leave the replay after the last record. Requests that were under way are repeated first, then new ones: one
        whenever all branches are waiting, so that the next resumed run finds the same order."""
        self._known, self._turns.stop_at = None, 0
        self._unwritten = True
        waiting = [one.asked for one in self._parked.values() if one.asked.kind != "wait"]
        under_way = [asked for asked in waiting if asked.key not in self._completed]
        self._is_drained()
        if self._how.on_live is not None:
            self._how.on_live(under_way)

    def _is_drained(self) -> None:
        if not self._parked:
            self._turns.idle = self._turns.cancelling = None

    def _ask_next(self) -> None:
        """Wake the next waiting request. Cancelled ones come first: a live request would no longer wait."""
        key = next(iter(self._cancelled or self._parked), None)
        if key is not None:
            self._cancelled.pop(key, None)
            self._wake(self._parked.pop(key), None)
        self._is_drained()

    def _is_cancelled(self, task: asyncio.Task[object]) -> None:
        for key, parked in self._parked.items():
            if parked.task is task:
                self._cancelled[key] = None

    def _advance(self) -> None:
        """Go to the next record."""
        assert self._known is not None
        self._number, self._coming = next(self._known, (0, None))
        while isinstance(self._coming, (Repeated, Completed, Step, StepEnded)):
            if isinstance(self._coming, Repeated):
                self._repeated[self._coming.key] += 1
            elif isinstance(self._coming, (Step, StepEnded)):
                self._steps.setdefault(self._coming.key, []).append(self._coming)
            elif self._coming.key != self._how.again:
                self._completed[self._coming.key] = self._coming
            self._number, self._coming = next(self._known, (0, None))
        if isinstance(self._coming, (Asked, Answered)):
            self._completed.pop(self._coming.key, None)
            self._steps.pop(self._coming.key, None)
        self._mark = self._turns.looks
        looks = getattr(self._coming, "looks", 0)
        self._turns.stop_at = self._mark + looks if looks else 0

    # ------------------------------------------------------------ computing for long

    def lets_others_go_first(self) -> bool:
        """Whether a branch that has computed for a long time has to wait for its turn; called at its yield points."""
        if self._known is None:
            return self._turns.takes_too_long()
        coming = self._coming
        return self._turns.looks == self._turns.stop_at and isinstance(coming, Asked) and coming.kind == "wait"

    def _looks(self) -> int:
        return self._turns.looks - self._mark

    # ------------------------------------------------------------ interrupts

    def interrupt(self, task: asyncio.Task[object]) -> None:
        """Cancel the text that runs in `task`, at a point that a resumed run finds again: when all branches are
        waiting, or at a yield point of a computing one. A branch that would make a request before that waits instead.
        A second call doesn't wait for such a point.
        """
        turns = self._turns
        if self._known is not None:
            self.give_up(task)
        elif not turns.active or self.task is not task:
            task.cancel()
        elif turns.interrupted is not None:
            self._interrupt(max(1, self._looks()), hasty=True)
        elif turns.is_running:
            turns.interrupted = partial(self._interrupt, 0)
            turns.stop_at = turns.looks + 1
        elif not isinstance(self._written, Interrupted):  # else it is on its way: nothing has happened since
            self._interrupt(0)

    def give_up(self, task: asyncio.Task[object]) -> None:
        """Cancel the text that runs in `task`; it makes no more requests, and no more records are written."""
        parked = list(self._parked.values())
        self.abandon()
        self._turns.cancel(task)
        for one in parked:
            self._wake(one, Answered(one.asked.key, cancelled=True))

    def abandon(self) -> None:
        """Give up the running text: it makes no more requests, and the journal stays as it is."""
        self.abandoned, self._known, self._coming, self._parked = True, None, None, {}
        self._turns.idle, self._turns.cancelling, self._turns.stop_at = None, None, 0

    def _interrupt(self, looks: int, *, hasty: bool = False) -> None:
        self._turns.interrupted = None
        self._write(Interrupted(looks, hasty))
        self._hasty = self._hasty or hasty
        self._cancel()

    def _interrupt_again(self, then: Interrupted) -> None:
        """Replay a recorded interrupt."""
        self._advance()
        self._hasty = self._hasty or then.hasty
        self._cancel()

    def interrupts_here(self) -> bool:
        """Whether the text is interrupted at this yield point; if so, it is cancelled."""
        if self._known is not None:
            if self._turns.looks != self._turns.stop_at or not isinstance(self._coming, Interrupted):
                return False
            self._interrupt_again(self._coming)
            return True
        if self._turns.interrupted is None:
            return False
        self._interrupt(self._looks())
        return True

    async def stand_still(self) -> None:
        """Wait until the interrupt reaches this branch."""
        if asyncio.current_task() is self.task:
            await asyncio.sleep(0)  # it has, where the branch is the text itself
        await self._turns.park()

    # ------------------------------------------------------------ texts

    def begins(self, text: Text) -> None:
        """Record or replay the beginning of a text. If a resumed run recorded another text here, that one and all
        later records are invalidated."""
        self._hasty = False
        if self._known is not None:
            coming = self._coming
            if isinstance(coming, Text) and _is_same(coming, text):
                self._advance()
                return
            if coming is not None:
                if self._how.texts_stay and isinstance(coming, Text):
                    raise _mismatch(f"{coming.name}: {coming.text.strip()}", f"{text.name}: {text.text.strip()}")
                self._log.rewind(self._number)
                self.rewound = True
            self._go_live()
        self._write(text)

    def finish(self, record: Finished) -> None:
        """Record the end of the run."""
        if self._known is not None and self._coming is None:
            self._go_live()
        if self._known is None:
            self._write(record)

    def ended(self, record: Ended) -> None:
        """Record or replay the end of a text. Raises `ResumeMismatch` if it ended differently before."""
        if self._known is not None:
            hasty = isinstance(self._coming, Interrupted) and self._coming.hasty
            if hasty:  # it came when the text was about to end anyway
                self._advance()
            coming, status = self._coming, "interrupted" if hasty else record.status
            if isinstance(coming, Ended) and (coming.number, coming.status) == (record.number, status):
                self._advance()
                return
            self._leave(f"text {record.number} ends: {record.status}")
        self._write(record)

    def _write(self, record: Record) -> None:
        self._mark = self._turns.looks
        if not self.abandoned:
            self._log.append(record)
            self._written = record


def _failure(kind: type[T]) -> T | Exception | None:
    """Return the outcome of an unanswered request that must not be repeated; None for a question, which is repeated."""
    if kind is CommandResult:
        return cast("T", CommandResult("lost", 255, kind="lost"))
    if kind is SessionResult:
        return ProviderError("the run was killed while this session was under way", retryable=False)
    return None


def _is_same(then: Text, now: Text) -> bool:
    same = (then.language, then.text, then.inputs, then.supplied) == (now.language, now.text, now.inputs, now.supplied)
    return same and then.directory == now.directory


def _words(kind: str, said: str) -> str:
    return f"{kind} {said}" if said else kind


def _next_words(record: Record) -> str:
    match record:
        case Asked():
            return _words(record.kind, record.said)
        case Answered():
            return f"the answer to {record.key}"
        case Ended():
            return f"text {record.number} ends: {record.status}"
        case _:
            return f"a record of kind {type(record).__name__.lower()}"


def approved(asked: Described | Asked, value: Raw, run_ids: Sequence[bytes]) -> Approved:
    """Return the approval `value` of a request in the form in which approvals are compared."""
    said = (asked.shown if isinstance(asked, Described) else asked.said).encode("utf-8", "surrogatepass")
    for run_id in run_ids:
        said = said.replace(run_id, b"*")
    return asked.key, asked.gate, said.decode("utf-8", "surrogatepass"), bytes(value)


def _unconfirmed(now: str) -> ResumeMismatch:
    return ResumeMismatch(
        "the journal holds an approval that no person has confirmed",
        details={"now": now},
        hint="resume the run once more: it lists the approvals, and asks",
    )


def _mismatch(then: str, now: str) -> ResumeMismatch:
    return ResumeMismatch(
        "the program does not do what it did when it was recorded",
        details={"then": then, "now": now},
        hint=f"then: {then} / now: {now}",
    )
