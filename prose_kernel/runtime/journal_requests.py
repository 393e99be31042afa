"""Makes the live requests of a run with a journal, and writes their records."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeVar

from msgspec import Raw, Struct

from prose_kernel.errors import ProviderError, StateError, StoreFailed, Undecided
from prose_kernel.language.structs import replace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime import open_request
from prose_kernel.runtime.journal_records import NOTHING, Answered, Asked, Completed, Recorder, Repeated
from prose_kernel.runtime.journal_replay import Replay
from prose_kernel.runtime.open_request import OpenRequest, RecordedStep, Steps, folded
from prose_kernel.runtime.ports import CommandResult, Finding, SessionResult
from prose_kernel.runtime.scheduler import Scheduler, Suspension

T = TypeVar("T")
A = TypeVar("A", Answered, Answered | None)

WORK: Final = ("command", "session", "judge")
"""Requests with effects or costs: their answers are recorded as soon as the work has ended."""


class LiveRequest(Struct, Generic[T], frozen=True):
    """A request that is made now, by calling `ask`.

    - `kept` converts the answer to the recorded value when the program gets it, `whole` before that; if there is only
      `kept`, nothing is recorded before
    - `at_once`: the branch has not waited before the request
    - `repeated`: it was made before, and had no answer
    - `delayed`: files are read between the end of its work and its answer
    """

    asked: Asked
    kind: type[T]
    ask: Callable[[], Awaitable[T]]
    kept: Callable[[T], T] | None
    whole: Callable[[T], T] | None
    at_once: bool
    repeated: bool
    delayed: bool = False


class LiveRequests:
    """Makes the live requests of a run, and records their answers. The first of `run_ids` is the id of the run."""

    def __init__(self, recorder: Recorder, replay: Replay, turns: Scheduler, run_ids: Sequence[bytes]) -> None:
        self._recorder = recorder
        self._replay = replay
        self._turns = turns
        self._run = run_ids[0].decode() if run_ids else ""
        self._run_ids = run_ids
        self._repeated = replay.repeated
        self._open = 0  # requests whose work has not ended
        self._ending = threading.Lock()  # the result of a command is recorded before its answer, in other threads

    async def make(self, request: LiveRequest[T]) -> tuple[T, Answered]:
        """Return the answer and its record. Raises the errors of `ask`."""
        turns, key = self._turns, request.asked.key
        wait = Suspension(request.ask(), turns.end_turn)
        known: Sequence[RecordedStep] = ()
        if request.repeated:
            known = folded(self._replay.steps(key))
            self._repeated[key] += 1
            self._recorder.write_passed_over(Repeated(key, self._recorder.now()))
        opened = self._open_request(request.asked, known, delayed=request.delayed)
        self._open += 1
        try:
            try:
                with open_request.asking(opened):
                    value: T = await wait
                if request.kept is None or request.whole is not None:
                    self._record_result(request.asked, opened, wait, value, request.whole)
            except Exception as error:
                self._record_result(request.asked, opened, wait, error)
                raise
            finally:
                self._open -= 1
                if wait.happened:
                    await turns.regain()
            whole = value if request.kept is None else request.kept(value)
        except asyncio.CancelledError:
            self._write_answer(Answered(key, cancelled=True), opened)
            raise
        except Exception as error:
            if isinstance(error, StoreFailed):  # of a gate's records: a resumed run continues before the gate
                error.answer = key
            self._write_answer(self._record_of(key, error), opened, at_once=request.at_once and not wait.happened)
            raise
        return self._record_answer(request, value, whole, opened, request.at_once and not wait.happened)

    def _record_answer(
        self, request: LiveRequest[T], value: T, whole: T, opened: OpenRequest, at_once: bool
    ) -> tuple[T, Answered]:
        """Record an answer, and return it with its record. Raises an error if it is nested too deeply."""
        key = request.asked.key
        try:
            raw = codec.encode(self.as_recorded(whole))
            if request.kind is Finding and request.kept is None:  # use the value of a replay: JSON holds less
                value = codec.decode(raw, request.kind)
        except RecursionError:
            too_deep = "the answer is nested too deeply"
            unusable = Undecided(too_deep) if request.kind is Finding else ProviderError(too_deep, retryable=False)
            self._write_answer(self._record_of(key, unusable), opened, at_once=at_once)
            raise unusable from None
        return value, self._write_answer(Answered(key, raw), opened, at_once=at_once)

    def _open_request(self, asked: Asked, known: Sequence[RecordedStep], *, delayed: bool) -> OpenRequest:
        """Return the open request of a record. The attempts of a command share one path, and are counted together."""
        recorder, key = self._recorder, asked.key
        if asked.kind != "command":
            steps = Steps(key, recorder.write_passed_over, known, without=self._run_ids, now=recorder.now)
            return OpenRequest(key, recorder.log.place, self._run, 1 + self._repeated[key], steps)
        place, _, retries = key.partition("#")
        attempt = 1 + self._repeated[key]
        for retry in range(int(retries) if retries else 0):
            attempt += 1 + self._repeated[f"{place}#{retry}" if retry else place]
        completes = partial(self._record_early_result, key, delayed)
        return OpenRequest(place, recorder.log.place, self._run, attempt, on_result=completes)

    def _record_early_result(self, key: str, delayed: bool, opened: OpenRequest, result: object) -> None:
        """Record the result of a command in the thread that sees it end, because the program may be computing. A
        cancelled command isn't recorded here, nor one whose answer nothing can delay."""
        ended = isinstance(result, CommandResult) and result.outcome not in ("interrupted", "cancelled")
        others = self._turns.is_running or self._open > 1
        if not ended or self._recorder.abandoned or not (delayed or others):
            return
        value = codec.encode(self.as_recorded(result))

        def record() -> None:
            with self._ending:
                if opened.is_completed:
                    now = self._recorder.now()
                    self._recorder.write_passed_over(Completed(key, value, aside=_notes(opened), t=now))

        opened.is_completed = True
        record()
        if others:
            opened.complete_early(record)

    def _record_result(
        self, asked: Asked, opened: OpenRequest, wait: Suspension, outcome: T, whole: Callable[[T], T] | None = None
    ) -> None:
        """Record that the work for a request has ended, if its branch has to wait for its turn."""
        if not wait.happened or not self._turns.is_running or asked.kind not in WORK or opened.is_completed:
            return
        with suppress(RecursionError, StateError):  # then the answer is recorded when the program gets it
            outcome = outcome if whole is None else whole(outcome)
            if (found := self._record_of(asked.key, outcome)) is not None:
                now, notes = self._recorder.now(), _notes(opened)
                self._recorder.write_passed_over(Completed(asked.key, found.value, found.error, notes, now))

    def _record_of(self, key: str, outcome: object) -> Answered | None:
        """Return the record of an answer or an error; None for an error that is a bug in this program."""
        if not isinstance(outcome, Exception):
            return Answered(key, codec.encode(self.as_recorded(outcome)))
        return Answered(key, error=codec.encode_error(outcome)) if codec.may_be_kept(outcome) else None

    def _write_answer(self, answered: A, opened: OpenRequest, *, at_once: bool = False) -> A:
        """Write the end of a request with its notes, and return it; None writes no record."""
        with self._ending:
            opened.is_completed = False
        if answered is not None:
            notes, now = _notes(opened), self._recorder.now()
            answered = replace(answered, at_once=at_once, aside=notes, t=now)
            self._recorder.write(answered)
        opened.settle(answered is not None and answered.error == NOTHING and not answered.cancelled)
        return answered

    def as_recorded(self, value: T) -> T:
        moved = self._replay.options.moved
        return moved.recorded(value) if moved is not None else value

    # ------------------------------------------------------------ unanswered requests

    def completed(self, key: str) -> Answered | None:
        """Return the answer to a request whose work had ended when the run was killed, and record it."""
        found = self._replay.completed(key)
        if found is None:
            return None
        answered = found.answered()
        self._recorder.write(answered)
        return answered

    def give_up(self, key: str, kind: type[T]) -> Answered | None:
        """Record the outcome of an unanswered request that must not be repeated. Returns None for a question, which is
        always repeated."""
        if kind is CommandResult:
            answered = Answered(key, codec.encode(CommandResult("lost", 255, kind="lost")), t=self._recorder.now())
        elif kind is SessionResult:
            failure = ProviderError("the run was killed while this session was under way", retryable=False)
            spent, now = self._replay.consumed(key, begun=True, session=True), self._recorder.now()
            answered = Answered(key, error=codec.encode_error(failure), aside=spent, t=now)
        else:
            return None
        self._recorder.write(answered)
        return answered


def _notes(opened: OpenRequest) -> Raw:
    return codec.encode(opened.notes) if opened.notes else NOTHING
