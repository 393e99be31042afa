"""The journal of a run: all answers to its requests, in the order in which the program received them.

A run is a function of its texts and of this sequence (`runtime/scheduler.py`). So the journal is enough to restore a
run: its texts run again, and every request gets its answer from the journal. Frames, names, numbers, the directory and
the stored values follow from that. After the last record the program is where it was, and its requests are live again.

A replay follows the records one by one (`runtime/journal_replay.py`). Requests without an answer when the run was
killed are *unanswered*: they are repeated or fail, as the person who resumes the run decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import MsgspecError, Raw

from prose_kernel.errors import ResumeMismatch, StoreFailed
from prose_kernel.language.structs import replace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.answer_facts import AnsweredFiles, with_files
from prose_kernel.runtime.earlier_answers import EarlierAnswers
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Ended,
    Finished,
    Interrupted,
    Log,
    Noted,
    Recorder,
    Text,
)
from prose_kernel.runtime.journal_replay import KnownRecords, Replay, mismatch
from prose_kernel.runtime.journal_requests import LiveRequest, LiveRequests
from prose_kernel.runtime.ports import Clock, CommandRequest, GateDecision, GateRequest, SessionRequest
from prose_kernel.runtime.requests import Described, Keys, Request, describe
from prose_kernel.runtime.scheduler import Scheduler

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import ExecutionContext

T = TypeVar("T")

NO_KEYS: Final = Keys()


class Journal:
    """Writes the records of a run, after replaying the `known` ones.

    `keys` makes the keys of requests; it has the ids of the run and of the runs that it continues. `clock` provides the
    times of records. `earlier` has the answers of a run of an earlier text, for requests that may use them.
    `approved` has the approvals of gates that count (`Approvals`).
    """

    def __init__(
        self,
        log: Log,
        turns: Scheduler,
        keys: Keys = NO_KEYS,
        *,
        known: KnownRecords | None = None,
        clock: Clock | None = None,
        approved: set[Approved] | None = None,
        earlier: EarlierAnswers | None = None,
    ) -> None:
        self._keys = keys
        self._log = log
        self._turns = turns
        self._recorder = Recorder(log, turns, clock)
        self._replay = Replay(known, self._recorder, turns, keys.run_ids, self._replay_interrupt)
        self._live = LiveRequests(self._recorder, self._replay, turns, keys.run_ids)
        self._approvals = Approvals(approved, keys.run_ids, complete=self._replay.options.complete)
        self.answered_files = AnsweredFiles(keys)
        self.usable = earlier
        """The answers that the requests of the running text may use."""
        self._hasty = False  # the text was interrupted and makes no more requests
        self.rewound = False
        self.now = self._recorder.now
        self.task: asyncio.Task[object] | None = None

    @property
    def replaying(self) -> bool:
        return self._replay.active

    @property
    def has_more(self) -> bool:
        """Whether a record is left to replay."""
        return self._replay.coming is not None

    @property
    def abandoned(self) -> bool:
        """Whether the person has interrupted the replay: no more requests are made, no more records are written."""
        return self._recorder.abandoned

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
        whole: Callable[[T], T] | None = None,
    ) -> T:
        """Return the answer to a request: the recorded one, or the result of `ask`.

        `kept` reduces an answer to the part that is recorded when the program gets it; it may write files. If a record
        is written before that, `whole` reduces the answer for it, without side effects. Raises the errors of `ask`.
        """
        if self._recorder.abandoned or self._hasty:
            raise asyncio.CancelledError
        replay = self._replay
        moved = replay.options.moved
        described = describe(moved.request(request) if moved is not None else request, also)
        if self._turns.interrupted is not None or isinstance(replay.coming, Interrupted):
            await self.wait_for_interrupt()
        s.answered = described.key, s.statement
        asked, parked = replay.asked(described), None
        if self._recorder.abandoned:  # the records have ended, and this replay makes no requests
            raise asyncio.CancelledError
        if asked is None:
            asked = self._record_request(described, request, also)
            keeps = replay.keeps(asked)
            if not keeps and (one := await self._earlier_answer(s, request, asked, kind, kept)) is not None:
                return one[0]
            if keeps or replay.parked or self.usable is not None:  # kept answers come first
                parked = replay.park(asked, known=False)
        elif (answered := replay.immediate(described.key)) is not None:
            return self._replayed(s, request, described, asked, answered, kind)
        else:
            parked = replay.park(asked, known=True)
        known = parked is not None and parked.known
        if parked is not None:
            answered = await replay.answer(described, parked)
            if answered is None and (known or replay.keeps(asked)):
                answered = self._live.completed(described.key)
            if answered is None and known and replay.options.under_way == "fail" and described.key not in replay.due:
                answered = self._live.give_up(described.key, kind)
            if answered is not None:
                return self._replayed(s, request, described, asked, answered, kind)
            if known and (one := await self._earlier_answer(s, request, asked, kind, kept)) is not None:
                return one[0]
        ask, delayed = self._with_files(s, request, ask)
        repeated = known and described.kind != "wait"
        at_once = parked is None
        live = LiveRequest(asked, kind, ask, kept, whole, at_once=at_once, repeated=repeated, delayed=delayed)
        return await self._live_answer(s, described, live)

    def _record_request(self, described: Described, request: Request, also: Sequence[str]) -> Asked:
        looks = self._recorder.looks if described.kind == "wait" else 0
        if self._log.must_flush and described.kind != "wait":
            self._recorder.require_flush()
        digest, key = described.digest(self._keys.run_ids), self._keys.of(request, also)
        place = (described.gate, described.record)
        asked = Asked(
            described.key, described.kind, digest, described.shown, looks, self.now(), *place, key.digest, key.parts
        )
        self._recorder.write(asked)
        return asked

    async def _earlier_answer(
        self, s: ExecutionContext, request: Request, asked: Asked, kind: type[T], kept: Callable[[T], T] | None
    ) -> tuple[T] | None:
        """Return an earlier run's answer to this request, in a tuple, and record it; None if it has to be asked."""
        if self.usable is None:
            return None
        try:
            found = await self.usable.answer(s, request, asked, kind, kept, self._keys)
        except asyncio.CancelledError:
            self._recorder.write(Answered(asked.key, cancelled=True, t=self.now()))
            raise
        if found is None:
            return None
        value, answered = found
        self._recorder.write(replace(answered, t=self.now()))
        self._register_answer(asked, answered)
        return (self._deliver(s, request, value),)

    def _with_files(self, s: ExecutionContext, request: Request, ask: Callable[[], Awaitable[T]]) -> tuple[Any, bool]:
        """Return `ask` extended so that it notes the files that the answer depends on and changes, and whether it reads
        files after the work."""
        files, tree, delayed = s.host.ports.files, s.host.ports.tree, False
        if files is not None and isinstance(request, CommandRequest) and (request.declares_files or request.writes):
            ask = partial(with_files, files, request, self._keys.directory, cast("Any", ask))
            delayed = bool(request.writes)
        if tree is not None and isinstance(request, (CommandRequest, SessionRequest)):
            ask = partial(tree.watched, request.cwd if isinstance(request, CommandRequest) else "", ask)
            delayed = True
        return ask, delayed

    async def _live_answer(self, s: ExecutionContext, described: Described, live: LiveRequest[T]) -> T:
        self._approvals.require_confirmed(described)
        self._recorder.require_room(described.key)
        await self._recorder.flush(s.run.store, described.key)
        if self.usable is not None:
            self.usable.note_request(live.asked)
        value, answered = await self._live.make(live)
        self._register_answer(live.asked, answered)
        if isinstance(value, GateDecision) and value.status == "approved":
            self._approvals.add(described, answered.value)
        return value

    def _register_answer(self, asked: Asked, answered: Answered) -> None:
        """Register the answer to a request: a recorded one, a new one, or one of an earlier run."""
        self.answered_files.add(asked, answered)
        if self.usable is not None:
            self.usable.answered(asked, answered)

    def _replayed(
        self,
        s: ExecutionContext,
        request: Request,
        described: Described,
        asked: Asked,
        answered: Answered,
        kind: type[T],
    ) -> T:
        """Return the value of a recorded answer. Raises its error."""
        self._register_answer(asked, answered)
        options = self._replay.options
        if answered.aside != NOTHING and options.on_replayed is not None:
            got = answered.error == NOTHING and not answered.cancelled
            options.on_replayed(request, codec.notes(answered.aside), got)
        self._replay_stop()
        if answered.cancelled:
            raise asyncio.CancelledError
        if answered.error != NOTHING:
            raise codec.decode_error(answered.error)
        try:
            value = codec.decode(answered.value, kind)
        except MsgspecError:
            raise mismatch("the journal holds an answer of another form", described.shown) from None
        if isinstance(value, GateDecision) and value.status == "approved":
            self._approvals.check_replayed(described, answered)
        return self._deliver(s, request, options.moved.answer(value) if options.moved is not None else value)

    def _deliver(self, s: ExecutionContext, request: Request, value: T) -> T:
        """Return a recorded answer to its request; the gates port is notified of decisions."""
        if isinstance(value, GateDecision) and isinstance(request, GateRequest):
            s.host.ports.gates.replayed(request, value)
        return value

    def note(self, key: str, kind: type[T], look: Callable[[], T]) -> T:
        """Return the result of `look`; in a replay, its recorded result."""
        if self._hasty:
            raise asyncio.CancelledError
        if self._replay.active:
            if (noted := self.noted(key)) is not None:
                self._replay.advance()
                self._replay_stop()
                return codec.decode(noted.value, kind)
            self._replay.leave(f"looks something up ({key})")
        found = look()
        self._recorder.write(Noted(key, codec.encode(found)))
        return found

    def noted(self, key: str) -> Noted | None:
        """Return the record of this lookup, if it is the next record to replay, else None."""
        coming = self._replay.coming
        return coming if isinstance(coming, Noted) and coming.key == key else None

    def raise_recorded_failure(self, key: str) -> None:
        """Raise the `StoreFailed` that is recorded for this point."""
        if (noted := self.noted(key)) is not None:
            self._replay.advance()
            raise codec.decode_error(noted.value)

    def record_store_failure(self, key: str, error: StoreFailed) -> None:
        """Record that the store has failed: a resumed run continues before this point. If records are left to replay,
        nothing is added to them and the replay ends."""
        error.answer = key
        if self._replay.coming is not None:
            self._replay.abandon(error=codec.encode_error(error))
        elif self._replay.active:
            self._replay.go_live()
        self._recorder.write(Noted(key, codec.encode_error(error)))

    def must_yield_turn(self) -> bool:
        """Whether a branch that has computed for a long time has to wait for its turn; called at its yield points."""
        if not self._replay.active:
            return self._turns.takes_too_long()
        coming = self._replay.coming
        return self._turns.looks == self._turns.stop_at and isinstance(coming, Asked) and coming.kind == "wait"

    # ------------------------------------------------------------ interrupts

    def interrupt(self, task: asyncio.Task[object]) -> None:
        """Cancel the text that runs in `task`, at a point that a resumed run finds again: when all branches are
        waiting, or at a yield point of a computing one. A branch that would make a request before that waits instead.
        A second call doesn't wait for such a point.
        """
        turns = self._turns
        if self._replay.active:
            self.give_up(task)
        elif not turns.active or self.task is not task:
            task.cancel()
        elif turns.interrupted is not None:
            self._interrupt(max(1, self._recorder.looks), hasty=True)
        elif turns.is_running:
            turns.interrupted = partial(self._interrupt, 0)
            turns.stop_at = turns.looks + 1
        elif not isinstance(self._recorder.last, Interrupted):  # otherwise an interrupt is already on its way
            self._interrupt(0)

    def end_replay(self) -> None:
        """End a replay that has no records left, so that new records follow its last one."""
        replay = self._replay
        if replay.active and replay.coming is None and not replay.parked:
            replay.go_live()

    def give_up(self, task: asyncio.Task[object]) -> None:
        """Cancel the text that runs in `task`; it makes no more requests, and no more records are written."""
        self._replay.abandon(task)

    def note_stop(self) -> None:
        """Record that an exception ends the statement of the current task while it computes without a wait.

        A replay ends it at the same position: at the beginning of the text, or after its last answer. In a branch the
        exception is recorded as a hasty interrupt: a replay ends the text, not the branch, at that position.
        """
        self.end_replay()
        if self._replay.active:
            self._replay.abandon()
        elif self._turns.active and not self._turns.completed:
            last, looks = self._recorder.last, self._recorder.looks
            if self.task is not asyncio.current_task():
                self._interrupt(max(1, looks), hasty=True)
            elif isinstance(last, Text):
                self._recorder.write(Interrupted(max(1, looks)))
            else:
                self._recorder.write(Interrupted(looks, stopped=not looks and isinstance(last, (Answered, Noted))))

    def _replay_stop(self) -> None:
        """Replay the exception that ended a statement after it got this answer."""
        coming = self._replay.coming
        if isinstance(coming, Interrupted) and coming.stopped:
            self._replay.advance()
            raise asyncio.CancelledError

    def _interrupt(self, looks: int, *, hasty: bool = False) -> None:
        self._turns.interrupted = None
        self._recorder.write(Interrupted(looks, hasty))
        if hasty:
            self._hasty = self._turns.urgent = True
        self._cancel()

    def _cancel(self) -> None:
        if self.task is not None:
            self._turns.cancel(self.task)

    def _replay_interrupt(self, then: Interrupted) -> None:
        self._replay.advance()
        self._hasty = self._hasty or then.hasty
        self._cancel()

    def interrupts_here(self) -> bool:
        """Return whether the text is interrupted at this yield point; if so, it is cancelled."""
        if self._replay.active:
            if self._turns.looks != self._turns.stop_at or not isinstance(self._replay.coming, Interrupted):
                return False
            self._replay_interrupt(self._replay.coming)
            return True
        if self._turns.interrupted is None:
            return False
        self._interrupt(self._recorder.looks)
        return True

    async def wait_for_interrupt(self) -> None:
        """Wait until the interrupt reaches this branch."""
        if asyncio.current_task() is self.task:
            await asyncio.sleep(0)  # if the branch is the text itself, it is cancelled already
        await self._turns.park()

    # ------------------------------------------------------------ texts

    def begins(self, text: Text) -> None:
        """Record or replay the beginning of a text. If the journal has another text here, that text and all later
        records are invalidated."""
        self._hasty = self._turns.completed = False
        if self._replay.active:
            coming = self._replay.coming
            if isinstance(coming, Text) and is_same(coming, text):
                self._replay.advance()
                return
            if coming is not None:
                if self._replay.options.keeps_texts and isinstance(coming, Text):
                    raise mismatch(f"{coming.name}: {coming.text.strip()}", f"{text.name}: {text.text.strip()}")
                self._log.rewind(self._replay.number)
                self.rewound = True
            self._replay.go_live()
        self._recorder.write(text)

    def finished(self, record: Finished, *, replaces: bool = False) -> None:
        """Record or replay the end of the run. `replaces`: its store had failed at its end, and now has everything."""
        if self._replay.active and self._replay.coming is None:
            self._replay.go_live()
        if replaces or not self._replay.active:
            self._recorder.write(record)

    def ended(self, record: Ended) -> None:
        """Record or replay the end of a text. Raises `ResumeMismatch` if it ended differently before."""
        if self._replay.active:
            stopped = isinstance(self._replay.coming, Interrupted)
            if stopped:  # the interrupt came after the last position of the text
                self._replay.advance()
            coming, status = self._replay.coming, "interrupted" if stopped else record.status
            if isinstance(coming, Ended) and (coming.number, coming.status) == (record.number, status):
                self._replay.advance()
                return
            self._replay.leave(f"text {record.number} ends: {record.status}")
        self._recorder.write(record)


def is_same(then: Text, now: Text) -> bool:
    same = (then.language, then.text, then.inputs, then.supplied) == (now.language, now.text, now.inputs, now.supplied)
    return same and then.directory == now.directory


# ---------------------------------------------------------------- approvals of gates

Approved = tuple[str, str, str, bytes]
"""An approval in a journal: the key of its request, the name of the gate ("" in journals of earlier versions), the text
of the question, and the decision as it is written there. Ids of the run are left out."""

_HINT: Final = "resume the run once more: it lists the approvals, and asks"


class Approvals:
    """The approvals that count in a replay, because a person gave or confirmed them in this process. Later ones are
    added to `confirmed`. If it is None all recorded approvals count, for records that were never in a file. A
    `complete` run has ended: if one of its approvals isn't confirmed, no live request is made."""

    def __init__(self, confirmed: set[Approved] | None, run_ids: Sequence[bytes], *, complete: bool) -> None:
        self._confirmed = confirmed
        self._run_ids = run_ids
        self._complete = complete
        self._unconfirmed = False

    def add(self, described: Described, value: Raw) -> None:
        """Add an approval that a person gave in this process."""
        if self._confirmed is not None:
            self._confirmed.add(approved(described, value, self._run_ids))

    def check_replayed(self, described: Described, answered: Answered) -> None:
        """Check a replayed approval before it opens its gate. Raises `ResumeMismatch` unless a person has given or
        confirmed exactly this one: commands can write the journal's file."""
        if self._confirmed is None or approved(described, answered.value, self._run_ids) in self._confirmed:
            return
        if not self._complete:
            raise _unconfirmed(described.gate)
        self._unconfirmed = True

    def require_confirmed(self, described: Described) -> None:
        """Raise `ResumeMismatch` before a live request if an unconfirmed approval was passed."""
        if self._unconfirmed:
            raise _unconfirmed(described.shown)


def approved(asked: Described | Asked, value: Raw, run_ids: Sequence[bytes]) -> Approved:
    """Return the approval `value` of a request in the form in which approvals are compared."""
    content = (asked.shown if isinstance(asked, Described) else asked.text).encode("utf-8", "surrogatepass")
    content = codec.without_ids(content, run_ids)
    return asked.key, asked.gate, content.decode("utf-8", "surrogatepass"), bytes(value)


def _unconfirmed(now: str) -> ResumeMismatch:
    message = "the journal holds an approval that no person has confirmed"
    return ResumeMismatch(message, details={"now": now}, hint=_HINT)
