"""The steps of an open request: its requests to models and its calls of tools (docs/how-to/durability.md, A54).

A conversation with a model is a function of its beginning and of the answers in it, like a program. So the journal has
a record for each step when it begins, and one with its answer. If the process is killed, the resumed run repeats the
conversation: each step with a recorded answer gets that answer, in order, and the first one without an answer is made
again. An example: four requests and four calls of tools were answered, the fifth call was running. The resumed session
makes that call, with the same `PROSE_AT`, and then its fifth request to the model.

A step is recognized by a digest of everything that determines its answer: its own text and all answers before it. If
the conversation differs from the recorded one, the remaining records do not apply, and the steps get new numbers.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Raw, structs

from prose_kernel.runtime.journal_codec import dumps, without_ids
from prose_kernel.runtime.journal_records import NOTHING, Record, Step, StepEnded
from prose_kernel.runtime.requests import shown

MODEL: Final = "model"
TOOL: Final = "tool"


@dataclass(slots=True)
class RecordedStep:
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
        """Yield its consumption in the form of notes on an answer (`models/usage.py`). `used` means that the session's
        result already counts this answer.

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
    return [structs.replace(one, digest="") if isinstance(one, Step) else one for one in records]


def repeats_all_steps(records: Iterable[Step | StepEnded]) -> bool:
    """Return whether all steps of a failed request are repeated, with new numbers. If a request to a model made it
    fail, only that request is repeated."""
    found = folded(records)
    return bool(found) and (found[-1].step.kind != MODEL or found[-1].value != NOTHING)


class Steps:
    """The steps of the request `key`. `known` has the steps of earlier processes; `now` returns the time for records.

    `without` has the ids of the run and of the runs that it branched from, which digests must not contain.
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


@dataclass(slots=True, eq=False)
class OpenStep:
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
