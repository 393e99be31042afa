"""The journal of a run: every answer of the outside, in the order in which the program got it.

A run is a function of its texts and of that sequence (`runtime/scheduler.py`). So the journal is all that is needed to
bring a run back: its texts run again, and every request finds its answer here instead of outside. Frames, names,
numbers, directory and what is kept in the store follow from that. When the records are at their end the program is
where it was; from there on it asks the outside again.

The program is held to its records one by one. Each request has to be the next one that was written down; when all
branches stand still, the next answer goes to the branch that got it then. A program that asks something else than
before stops with E222, which shows both.

What was asked and not answered when the run was killed is *under way*: it is asked again, or fails, as the person who
resumes the run wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from msgspec import MsgspecError, json, structs

from prose_kernel.errors import ProviderError, ResumeMismatch
from prose_kernel.runtime import asides
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.asides import Aside
from prose_kernel.runtime.journal_codec import Described, Request
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Ended,
    Finished,
    Interrupted,
    Noted,
    Record,
    Text,
)
from prose_kernel.runtime.ports import CommandResult, SessionResult
from prose_kernel.runtime.scheduler import Scheduler, Suspension

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import ExecutionContext

T = TypeVar("T")

OnReplayed = Callable[[Request, Mapping[str, Any], bool], None]
"""Told of each replayed answer that something was noted beside: the request, the notes, whether the program got it."""

UnderWay = Literal["rerun", "fail"]
"""What becomes of a command or session that was under way when the run was killed."""


class Log(Protocol):
    """Where records are written."""

    def append(self, record: Record) -> None:
        """The record survives the end of the process afterwards. Never raises: what cannot be written is told to the
        person by its owner."""
        ...

    def rewind(self, to: int) -> None:
        """The record with this number, and all behind it, count no more."""
        ...


@dataclass(slots=True, eq=False)
class _Parked:
    """A request of a replayed program that waits for its answer. `answer` None: ask the outside."""

    asked: Asked
    woken: asyncio.Future[Answered | None]
    cancelled: bool = False


class Journal:
    """Writes the records of a run; with `known`, those of before are replayed first. `run_ids` are that of the run and
    those of the runs that it branched from.

    `on_live` is called when the records are at their end, with what was under way then; `on_replayed` for what was
    noted beside an answer (`runtime/asides.py`). Records before `changed_before` are of a program whose text was
    changed since: where it does something else than they say, they are at their end. `texts_stay`: another text than
    the recorded one is an error; else it takes the place of that one. `again` is the key of what is asked again,
    however what was `under_way` ends. `place` is the path of the journal's file.
    """

    def __init__(
        self,
        log: Log,
        turns: Scheduler,
        run_ids: Sequence[str] = (),
        *,
        known: Iterator[tuple[int, Record]] | None = None,
        changed_before: int = 0,
        texts_stay: bool = False,
        under_way: UnderWay = "rerun",
        again: str = "",
        on_live: Callable[[Sequence[Asked]], None] | None = None,
        on_replayed: OnReplayed | None = None,
        place: str = "",
    ) -> None:
        self._on_replayed = on_replayed
        self._place = place
        self.rewound = False
        self._log = log
        self._turns = turns
        self._run_ids = tuple(run_id.encode() for run_id in run_ids)
        self._changed_before = changed_before
        self._texts_stay = texts_stay
        self._known = known
        self._coming: Record | None = None
        self._number = 0
        self._under_way, self._again = under_way, again
        self._on_live = on_live
        self._parked: dict[str, _Parked] = {}
        self._mark = turns.looks
        self.answers = 0
        self.abandoned = False
        self.task: asyncio.Task[object] | None = None
        if known is not None:
            turns.idle = self._idle
            self._advance()

    @property
    def replaying(self) -> bool:
        return self._known is not None

    @property
    def has_more(self) -> bool:
        """Whether there are records that say what came of what happens now."""
        return self._coming is not None

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
        revive: Callable[[T], Awaitable[T]] | None = None,
    ) -> T:
        """The answer to a request: the recorded one, or what `ask` gives.

        `kept` is what is written down of an answer, `revive` makes an answer of what was. Raises what `ask` raises.
        """
        described = codec.describe(request, also)
        s.answered = described.key, s.statement
        if self._was_asked(described):
            answered = await self._known_answer(s, described)
            if answered is not None:
                self._hand_back(request, answered)
                value = self._value(answered, kind, described)
                return value if revive is None else await revive(value)
            if self._under_way == "fail" and described.key != self._again and (failure := _failure(kind)) is not None:
                return self._given_up(described, failure)
        return await self._live_answer(s, described, ask, kept)

    async def _live_answer(
        self, s: ExecutionContext, described: Described, ask: Callable[[], Awaitable[T]], kept: Callable[[T], T] | None
    ) -> T:
        turns, key = self._turns, described.key
        wait = Suspension(ask(), partial(turns.leave, s))
        aside = Aside(key, self._place)
        try:
            try:
                with asides.asking(aside):
                    value: T = await wait
            finally:
                if wait.happened:
                    await turns.regain()
            written = value if kept is None else kept(value)
        except asyncio.CancelledError:
            self._write_answer(Answered(key, cancelled=True), aside, kept=False)
            raise
        except Exception as error:
            if codec.may_be_kept(error):
                told = Answered(key, error=codec.encode_error(error), at_once=not wait.happened)
                self._write_answer(told, aside, kept=False)
            else:
                aside.settle(False)
            raise
        self._write_answer(Answered(key, codec.encode(written), at_once=not wait.happened), aside, kept=True)
        return value

    def _write_answer(self, answered: Answered, aside: Aside, *, kept: bool) -> None:
        if aside.notes:
            answered = structs.replace(answered, aside=codec.encode(aside.notes))
        self._write(answered)
        aside.settle(kept)

    def _hand_back(self, request: Request, answered: Answered) -> None:
        if answered.aside != NOTHING and self._on_replayed is not None:
            got = answered.error == NOTHING and not answered.cancelled
            self._on_replayed(request, json.decode(answered.aside), got)

    def _given_up(self, described: Described, failure: T | Exception) -> T:
        if isinstance(failure, Exception):
            self._write(Answered(described.key, error=codec.encode_error(failure)))
            raise failure
        self._write(Answered(described.key, codec.encode(failure)))
        return failure

    def _value(self, answered: Answered, kind: type[T], described: Described) -> T:
        if answered.cancelled:
            raise asyncio.CancelledError
        if answered.error != NOTHING:
            raise codec.decode_error(answered.error)
        try:
            return codec.decode(answered.value, kind)
        except MsgspecError:
            raise _mismatch("the journal holds an answer that is none", described.shown) from None

    def note(self, key: str, kind: type[T], look: Callable[[], T]) -> T:
        """What `look` finds outside; in a replay what it found then."""
        if self._known is not None:
            coming = self._coming
            if isinstance(coming, Noted) and coming.key == key:
                self._advance()
                return codec.decode(coming.value, kind)
            self._leave(f"looks something up ({key})")
        found = look()
        self._write(Noted(key, codec.encode(found)))
        return found

    # ------------------------------------------------------------ replaying

    def _was_asked(self, described: Described) -> bool:
        """Whether the request has a record; without one it is written down now. Raises `ResumeMismatch`."""
        if self.abandoned:
            raise asyncio.CancelledError
        digest = described.digest(self._run_ids)
        if self._known is not None:
            coming = self._coming
            known = (described.key, described.kind, digest)
            if isinstance(coming, Asked) and (coming.key, coming.kind, coming.digest) == known:
                self._parked[described.key] = _Parked(coming, asyncio.get_running_loop().create_future())
                self._advance()
                return True
            self._leave(_words(described.kind, described.shown))
        looks = self._looks() if described.kind == "wait" else 0
        self._write(Asked(described.key, described.kind, digest, described.shown, looks))
        return False

    async def _known_answer(self, s: ExecutionContext, described: Described) -> Answered | None:
        """The recorded answer, when it is its turn; None when there is none, and the outside is to be asked.

        A cancelled branch goes on when it did then, because the order of what follows depends on that.
        """
        parked = self._parked[described.key]
        coming = self._coming
        if isinstance(coming, Answered) and coming.at_once and coming.key == described.key:
            del self._parked[described.key]
            self._advance()
            return coming
        turns = self._turns
        turns.leave(s)
        while not parked.woken.done():
            try:
                await asyncio.shield(parked.woken)
            except asyncio.CancelledError:
                parked.cancelled = True
        answered = parked.woken.result()
        if answered is None and parked.cancelled:
            self._write(Answered(described.key, cancelled=True))
            raise asyncio.CancelledError
        return answered

    def _idle(self) -> None:
        """All branches stand still: the next one gets its answer."""
        coming = self._coming
        if self._known is None or not self._parked:
            return
        if isinstance(coming, Answered) and coming.key in self._parked:
            self._advance()
            self._wake(self._parked.pop(coming.key), coming)
        elif isinstance(coming, Interrupted):
            self._advance()
            self._cancel()
        else:
            try:
                self._leave("nothing of the kind")
            except ResumeMismatch as error:  # nobody asks what was asked next: whoever waits first is told so
                parked = self._parked.pop(next(iter(self._parked)))
                self._wake(parked, Answered(parked.asked.key, error=codec.encode_error(error)))

    def _wake(self, parked: _Parked, answered: Answered | None) -> None:
        self._turns.begins()
        parked.woken.set_result(answered)

    def _cancel(self) -> None:
        if self.task is not None:
            self._turns.wakes(self.task)
            self.task.cancel()

    def _leave(self, now: str) -> None:
        """The program does what the next record does not tell of. Raises `ResumeMismatch` when there is one, unless the
        program was changed since."""
        if self._coming is not None:
            if self._number >= self._changed_before:
                raise _mismatch(_next_words(self._coming), now)
            self._log.rewind(self._number)
            self.rewound = True
        self._go_live()

    def _go_live(self) -> None:
        """The records are at their end."""
        self._known = self._turns.idle = None
        self._turns.stop_at = 0
        parked, self._parked = list(self._parked.values()), {}
        if self._on_live is not None:
            self._on_live([one.asked for one in parked if one.asked.kind != "wait"])
        for one in parked:
            self._wake(one, None)

    def _advance(self) -> None:
        """The next record is due."""
        assert self._known is not None
        if isinstance(self._coming, Answered):
            self.answers += 1
        self._number, self._coming = next(self._known, (0, None))
        self._mark = self._turns.looks
        looks = getattr(self._coming, "looks", 0)
        self._turns.stop_at = self._mark + looks if looks else 0

    # ------------------------------------------------------------ computing for long

    def lets_others_go_first(self, s: ExecutionContext) -> bool:
        """Whether a branch that has computed for long has to queue now; asked where it breathes."""
        if self._known is None:
            return self._turns.takes_too_long(s)
        coming = self._coming
        if self._turns.looks != self._turns.stop_at:
            return False
        if isinstance(coming, Interrupted):
            self._advance()
            self._cancel()
            return False
        return isinstance(coming, Asked) and coming.kind == "wait"

    def _looks(self) -> int:
        return self._turns.looks - self._mark

    # ------------------------------------------------------------ texts

    def interrupted(self) -> None:
        """The person interrupts the text that runs; called right before its task is cancelled.

        One that has not caught up with its records yet is abandoned: it ends, and nothing of that is written.
        """
        if self._known is not None:
            self._abandon()
        else:
            self._write(Interrupted(max(1, self._looks()) if self._turns.is_running else 0))

    def _abandon(self) -> None:
        self.abandoned = True
        self._known = self._turns.idle = None
        self._turns.stop_at = 0
        parked, self._parked = list(self._parked.values()), {}
        for one in parked:
            self._wake(one, Answered(one.asked.key, cancelled=True))

    def begins(self, text: Text) -> None:
        """A text begins to run. Where another one did, in a run that is resumed, that one and what followed it are
        forgotten."""
        if self._known is not None:
            coming = self._coming
            if isinstance(coming, Text) and _is_same(coming, text):
                self._advance()
                return
            if coming is not None:
                if self._texts_stay and isinstance(coming, Text):
                    raise _mismatch(f"{coming.name}: {coming.text.strip()}", f"{text.name}: {text.text.strip()}")
                self._log.rewind(self._number)
                self.rewound = True
            self._go_live()
        self._write(text)

    def finish(self, record: Finished) -> None:
        """The run is over."""
        if self._known is not None and self._coming is None:
            self._go_live()
        if self._known is None:
            self._write(record)

    def ended(self, record: Ended) -> None:
        """A text has ended. Raises `ResumeMismatch` when it has ended otherwise before."""
        if self._known is not None:
            coming = self._coming
            if isinstance(coming, Ended) and (coming.number, coming.status) == (record.number, record.status):
                self._advance()
                return
            self._leave(f"text {record.number} ends: {record.status}")
        self._write(record)

    def _write(self, record: Record) -> None:
        self._mark = self._turns.looks
        if not self.abandoned:
            self._log.append(record)


def _failure(kind: type[T]) -> T | Exception | None:
    """What becomes of something under way that is not to be done again; None for a question, which is asked again."""
    if kind is CommandResult:
        return cast("T", CommandResult("lost", -1, kind="lost"))
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


def _mismatch(then: str, now: str) -> ResumeMismatch:
    return ResumeMismatch(
        "the program does not do what it did when it was recorded",
        details={"then": then, "now": now},
        hint=f"then: {then} / now: {now}",
    )
