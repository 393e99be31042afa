"""The answers of an earlier run that a run of an edited program uses again (docs/how-to/edit-and-continue.md).

An answer is used again if the program asks the same: the keys of the requests are equal (`runtime/keys.py`). Of several
answers to equal requests, that of the same place in the program is used, else the next unused one in the order of the
earlier run. Some kinds have a further condition:

- the files that a session's tools have read, and those that a command declares with `reads:` and `writes:`, must be as
  they were;
- a command that declares no files may depend on everything before it. It is kept until a command, a gate, or a session
  that wrote files has been asked again;
- a gate is kept until anything has been asked again: an approval is about what came before it.

Failures are never kept.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from msgspec import MsgspecError, Raw

from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.answer_facts import (
    KEPT_NOTES,
    NOT_COMPARED,
    EarlierAnswer,
    NotRecorded,
    has_failed,
    has_written,
)
from prose_kernel.runtime.journal_records import NOTHING, Answered, Asked, Ended, Record, Repeated, Text, answer_in
from prose_kernel.runtime.keys import Equal, Keys
from prose_kernel.runtime.ports import CommandRequest, SessionRequest
from prose_kernel.runtime.requests import COMMON, KINDS, Request

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import ExecutionContext

Why = Literal["failed", "changed", "new"]

T = TypeVar("T")
OnUse = Callable[[Request, Mapping[str, object], bool], None]
"""Called with a request that keeps an answer, and the notes on the answer."""

_WORDS: Final = {
    "changed": "it was asked before this run was resumed",
    "failed": "it had failed",
    "used": "it is asked more often than before",
    "new": "the earlier run asked nothing like it",
    "effects": "a command, a gate or a session that wrote files was asked again before it",
    "before": "something was asked again before it",
    "cell": "other cells may have run meanwhile",
    "unconfirmed": "a person has to decide again",
    "again": "--ask-again",
    "wanted": "a person has asked for it",
    "memory": "its agent has a memory",
    "model": "another model is asked",
    "unreadable": "its earlier answer cannot be read",
    "unknown": NOT_COMPARED,
    "unrecorded": "its files were not recorded: it declared none, or the run was killed before they were read",
    "older": "an earlier version of prose_kernel recorded its answer without a key",
}

_PROBLEMS: Final[Mapping[type, str]] = {NotRecorded: "unrecorded", LookupError: "unknown"}


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A request that was asked although there is an earlier run: because its earlier answer was a failure, because it
    has changed, or because it is new. `near` is the nearest earlier request. `reason` says in words why its answer was
    not used, unless parts of the request differ: `differs`."""

    asked: Asked
    why: Why
    reason: str
    near: Asked | None = None
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """How answers are kept, beyond their keys.

    `is_confirmed` returns whether a person has confirmed the decision about a gate; with `ask_again`, persons are asked
    their inputs again. `text_of` reads the file of an answer that a journal refers to by its digest. `on_use` is called
    for each kept answer that has notes. `instead` replaces answers by the keys of their requests, whatever is asked
    there; None: that one is asked. `cell`: a cell runs again, and others may have run since its last run. So it keeps
    no gate, and no command that declares no files. `again` are the keys of answers that a person wants to have asked
    again.
    """

    is_confirmed: Callable[[Asked, Answered], bool] = lambda asked, answered: False
    text_of: Callable[[tuple[str, str]], str | None] = lambda file: None
    on_use: OnUse | None = None
    instead: Mapping[str, Raw | None] = field(default_factory=dict)
    ask_again: bool = False
    cell: bool = False
    again: frozenset[str] = frozenset()


_NO_RULES: Final = Rules()


class EarlierAnswers:
    """The answers of the run `run`, from the `records` of its journal. `causes` are the keys of the answers that made
    it fail.

    Those of a cell that runs again are from its last run, and with `later` from several runs: the texts of a cell have
    other numbers in each, so the beginning of each text has to be reported (`text_begins`).
    """

    def __init__(
        self, run: str, records: Iterable[tuple[int, Record]], causes: Collection[str] = (), rules: Rules = _NO_RULES
    ) -> None:
        self.run = run
        self._rules = rules
        self.kept: list[str] = []
        """The keys of the requests that have kept their answers."""
        self._causes = causes
        self._texts: list[list[str]] = []
        self._then: dict[str, list[str]] = {}
        self._effects = False
        self._reasons: dict[str, tuple[str, str]] = {}
        self._refused: dict[str, tuple[Asked, str, str]] = {}
        """The requests that were asked, each with a reason of `_WORDS`, or with other words."""
        self._equal: dict[str, Equal[EarlierAnswer]] = defaultdict(Equal)
        self._at: dict[str, Asked] = {}
        self._answers: dict[str, EarlierAnswer] = {}
        self._orders = count()
        for one in self._read(records):
            if one.asked.id:
                self._equal[one.asked.id].answers.append(one)

    def later(self, records: Iterable[tuple[int, Record]]) -> None:
        """Add a later run of the same cell, which didn't come to its end. An answer that this run kept, or asked again,
        replaces the earlier one."""
        texts = [text for run in self._texts for text in run]
        new = [one for one in self._read(records) if one.asked.id]
        for one in new:
            place = one.asked.key.partition("/")[2]
            there = map(self._answers.get, (one.answered.kept, *(f"{text}/{place}" for text in texts)))
            same = (old for old in there if old is not None and old.asked.id == one.asked.id and not old.used)
            old = next(same, None) or self._equal[one.asked.id].free()
            if old is not None:
                old.used = True
        for one in new:
            self._equal[one.asked.id].answers.append(one)

    def _read(self, records: Iterable[tuple[int, Record]]) -> list[EarlierAnswer]:
        rules, found, texts = self._rules, dict[str, EarlierAnswer](), list[str]()
        for _, record in records:
            match record:
                case Text():
                    texts.append(f"c{record.number}")
                case Asked() if record.kind in KINDS:
                    self._at[record.key] = record
                case Answered(key=key, cancelled=True) | Repeated(key=key):
                    found.pop(key, None)
                case Ended(cause=key) if key in found and key not in rules.instead:
                    found[key].failed = True
                case _ if (answered := answer_in(record)) is not None and (key := answered.key) in self._at:
                    failed = key in self._causes or has_failed(self._at[key], answered)
                    if (value := rules.instead.get(key)) is not None:
                        failed, answered = False, Answered(key, value, t=answered.t)
                    found.pop(key, None)
                    found[key] = EarlierAnswer(self._at[key], answered, next(self._orders), failed)
        for one in found.values():
            one.failed = one.failed or _next_attempt(one.asked.key) in self._at
        self._texts.append(texts)
        self._answers.update(found)
        return list(found.values())

    def text_begins(self, number: int) -> None:
        """The next text of a cell that runs again begins; `number` is that of its record."""
        at = len(self._then)
        self._then[f"c{number}"] = [texts[at] for texts in reversed(self._texts) if at < len(texts)]

    def _here(self, key: str) -> str:
        """The key of the earlier request at the same place."""
        text, _, place = key.partition("/")
        there = [f"{then}/{place}" for then in self._then.get(text, ())]
        return next((one for known in (self._answers, self._at) for one in there if one in known), key)

    @property
    def keyless(self) -> bool:
        """Whether an earlier version of prose_kernel has recorded all requests, without their keys."""
        return bool(self._at) and not any(asked.id for asked in self._at.values())

    @property
    def unused(self) -> list[EarlierAnswer]:
        """The answers that were not used, in their order."""
        return [one for one in self._answers.values() if not one.used]

    # ------------------------------------------------------------ answers

    async def answer(
        self,
        s: ExecutionContext,
        request: Request,
        asked: Asked,
        kind: type[T],
        reduced: Callable[[T], T] | None,
        keys: Keys,
    ) -> tuple[T, Answered] | None:
        """Return the answer that the earlier run got to this request, and its record; None if it has to be asked.
        `reduced` makes the part of an answer that is recorded, `keys` are those of the run."""
        one = self.find(asked, request)
        if one is None:
            return None
        try:
            files = one.files_of_answer(request, keys) if asked.key not in self._rules.instead else None
            changed = None
            if files is not None:
                now = await s.outside(asyncio.to_thread(files.now, s.host.ports.files))
                changed = files.changed(now, partial(self._is_left, one.order))
            value = one.value_for(asked.key, kind, self.run, self._rules.text_of)
        except (LookupError, MsgspecError, FileNotFoundError) as problem:
            self._refuse(asked, _PROBLEMS.get(type(problem), "unreadable"))
            return None
        if changed is not None:
            self._refuse(asked, "changed", f"{changed} has changed")
            return None
        value = reduced(value) if reduced is not None else value
        notes = self.use(asked.key, one, request)
        aside = codec.encode(notes) if notes else NOTHING
        at_once, then = files is None, one.asked.key
        return value, Answered(asked.key, codec.encode(value), at_once=at_once, aside=aside, kept=then)

    def find(self, asked: Asked, request: Request) -> EarlierAnswer | None:
        """Return the answer that a request may use if its files are unchanged; None: it has to be asked."""
        if asked.kind not in KINDS:
            return None
        one, reason = self._candidate(asked)
        if one is not None and asked.key not in self._rules.instead:
            reason = self._refusal(asked, request, one)
        if isinstance(request, SessionRequest) and request.memory is not None:
            reason = "memory"
        if one is None or reason:
            self._refuse(asked, reason)
            return None
        return one

    def use(self, key: str, one: EarlierAnswer, request: Request | None = None) -> Mapping[str, object]:
        """The request with this key has got this answer. Returns the notes that are kept with it: not its
        consumption."""
        one.used = True
        self.kept.append(key)
        notes = {name: note for name, note in one.notes.items() if name in KEPT_NOTES}
        if notes and request is not None and self._rules.on_use is not None:
            self._rules.on_use(request, notes, True)
        return notes

    def _refuse(self, asked: Asked, reason: str, detail: str = "") -> None:
        """A request has to be asked, for a reason of `_WORDS`; `detail` replaces its words."""
        self._reasons[asked.key] = reason, detail

    def begins(self, asked: Asked) -> None:
        """The outside is asked. Before that, a branch may lose its race to one with a kept answer."""
        if asked.kind in KINDS:
            self._refused[asked.key] = asked, *self._reasons.pop(asked.key, ("changed", ""))
            self._effects = self._effects or asked.kind in ("command", "gate")

    def answered(self, asked: Asked, answered: Answered) -> None:
        """A request of this run has got an answer; in a replay, also one that it had kept."""
        if answered.kept:
            if (one := self._answers.get(answered.kept)) is not None and not one.used:
                self.use(asked.key, one)
        elif asked.kind in KINDS and not answered.cancelled:
            if asked.key not in self._refused:
                self.begins(asked)
            self._effects = self._effects or (asked.kind == "session" and has_written(answered))

    def _candidate(self, asked: Asked) -> tuple[EarlierAnswer | None, str]:
        """The answer to an equal request: that of the same place, else the next unused one; None, and why there is
        none."""
        here, equal = self._answers.get(self._here(asked.key)), self._equal[asked.id]
        if self._rules.instead.get(asked.key, NOTHING) is None:
            return None, "model"
        if asked.key in self._rules.instead and here is not None and here.asked.kind == asked.kind:
            return here, ""
        if one := equal.free(here if here is not None and here.asked.id == asked.id != "" else None):
            return one, ""
        if equal.answers:
            return None, "failed" if any(one.failed and not one.used for one in equal.answers) else "used"
        return None, "older" if here is not None and not here.asked.id else "changed"

    def _refusal(self, asked: Asked, request: Request, one: EarlierAnswer) -> str:
        """Why an answer to an equal request may not be used; "" if it may."""
        declares = isinstance(request, CommandRequest) and request.declares_files
        if one.asked.key in self._rules.again:
            one.used = True
            return "wanted"
        match asked.kind:
            case "command" | "gate" if self._rules.cell and not declares:
                return "cell"
            case "command" if self._effects and not declares:
                return "effects"
            case "gate" if self._refused:
                return "before"
            case "gate" if not self._rules.is_confirmed(one.asked, one.answered):
                return "unconfirmed"
            case "input" if self._rules.ask_again:
                return "again"
        return ""

    def _is_left(self, order: int, path: str, then: str, now: str) -> bool:
        """Whether an answer after the one with this `order` had left the file as it is now, and nothing that may write
        files has been asked again."""
        last, digest = self._written.get(path, (-1, ""))
        return not self._effects and last >= order and digest == now

    @cached_property
    def _written(self) -> dict[str, tuple[int, str]]:
        """The last digest of each file that the earlier run is known to have written, after the order of the answer."""
        return {path: (one.order, digest) for one in self._answers.values() for path, digest in one.written()}

    # ------------------------------------------------------------ what was asked

    def asked_again(self) -> Iterator[AskedAgain]:
        """The requests that were asked, in their order, each with the reason."""
        for asked, reason, words in self._refused.values():
            near = self._near(asked)
            if near is None and reason == "changed":
                reason = "new"
            why: Why = "failed" if reason == "failed" else "new" if reason == "new" else "changed"
            differs: tuple[str, ...] = ()
            if reason == "changed" and near is not None and not words:
                now, then = asked.parts, near.parts
                differs = tuple(name for name in {**then, **now} if then.get(name) != now.get(name))
            yield AskedAgain(asked, why, words or _WORDS.get(reason, ""), near, differs)

    def _near(self, asked: Asked) -> Asked | None:
        """The earlier request at the same place, else one that shares parts with this one, without those whose answers
        were used."""
        there = self._here(asked.key)
        here, answer = self._at.get(there), self._answers.get(there)
        if here is not None and here.kind == asked.kind and not (answer is not None and answer.used):
            return here
        near = [self._by_part.get((asked.kind, *part)) for part in _telling(asked.parts)]
        return max((one for one in near if one is not None), key=near.count, default=None)

    @cached_property
    def _by_part(self) -> dict[tuple[str, str, str], Asked]:
        """The requests whose answers were not used, by the parts that distinguish them."""
        unused = [one.asked for one in self.unused]
        return {(asked.kind, *part): asked for asked in unused for part in _telling(asked.parts)}


def _next_attempt(key: str) -> str:
    place, _, attempt = key.partition("#")
    return f"{place}#{int(attempt or 0) + 1}"


def _telling(parts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The parts that few requests have in common."""
    return ((name, part) for name, part in parts.items() if name not in COMMON)
