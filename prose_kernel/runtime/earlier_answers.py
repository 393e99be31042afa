"""The answers of an earlier run that a run of an edited program uses again (docs/how-to/edit-and-continue.md).

An answer is used again for a request with an equal key (`runtime/requests.py`). Among several answers to equal
requests, the one from the same place in the program is used, else the next unused one in the order of the earlier run.
Some kinds have a further condition:

- The files that a session's tools have read, and the files that a command declares with `reads:` and `writes:`, must be
  unchanged.
- A command without declared files may depend on everything before it. Its answer is kept until a command, a gate, or a
  session that wrote files has been asked again.
- A gate is kept until anything has been asked again: an approval covers everything before it.

Failures are never kept.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from msgspec import MsgspecError, Raw, Struct, field

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
from prose_kernel.runtime.ports import CommandRequest, SessionRequest
from prose_kernel.runtime.requests import COMMON, KINDS, EqualAnswers, Keys, Request

if TYPE_CHECKING:
    from prose_kernel.runtime.execution_context import ExecutionContext

Why = Literal["failed", "changed", "new"]

T = TypeVar("T")
OnUse = Callable[[Request, Mapping[str, object], bool], None]
"""Called with a request that keeps an answer, the notes on the answer, and whether the program received it (True)."""

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


class AskedAgain(Struct, frozen=True):
    """A request that was asked in spite of the earlier run, with the category (`why`): the earlier answer is a failure,
    the request has changed, or it is new. `near` is the most similar earlier request. `differs` names the parts that
    differ from it; if there are none, `reason` explains in words why the earlier answer was not used."""

    asked: Asked
    why: Why
    reason: str
    near: Asked | None = None
    differs: tuple[str, ...] = ()


class Rules(Struct, frozen=True):
    """The conditions for keeping answers, in addition to equal keys.

    - `is_confirmed` returns whether a person has confirmed the decision about a gate
    - `text_of` reads the file of an answer that a journal refers to by its digest
    - `on_use` is called for each kept answer that has notes
    - `instead` replaces answers by the keys of their requests, even if the request differs; None: ask again
    - `ask_again`: inputs are asked again
    - `cell`: a cell runs again, and other cells may have run since; keep no gate, and no command without declared files
    - `again`: the keys of answers that a person wants to have asked again
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
    """The answers of the run `run`, from the `records` of its journal. `causes` has the keys of the answers that made
    the run fail.

    For a cell that runs again they come from its last run, and with `later` from several runs. The texts of a cell have
    different numbers in each of them, so the beginning of each text has to be reported (`text_begins`).
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
        self._earlier_texts: dict[str, list[str]] = {}
        self._effects = False
        self._reasons: dict[str, tuple[str, str]] = {}
        self._refused: dict[str, tuple[Asked, str, str]] = {}
        """The requests that were asked, each with a key of `_WORDS`, and with words that replace its text."""
        self._equal: dict[str, EqualAnswers[EarlierAnswer]] = defaultdict(EqualAnswers)
        self._at: dict[str, Asked] = {}
        self._answers: dict[str, EarlierAnswer] = {}
        self._orders = count()
        for one in self._read(records):
            if one.asked.id:
                self._equal[one.asked.id].answers.append(one)

    def later(self, records: Iterable[tuple[int, Record]]) -> None:
        """Add a later run of the same cell that did not finish. An answer that this run kept, or asked again, replaces
        the earlier one."""
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
                case Ended():
                    for key in found.keys() & {record.cause, *(record.failed or ())} - rules.instead.keys():
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
        """Begin the next text of a cell that runs again; `number` is the number of its record."""
        at = len(self._earlier_texts)
        self._earlier_texts[f"c{number}"] = [texts[at] for texts in reversed(self._texts) if at < len(texts)]

    def _here(self, key: str) -> str:
        """Return the key of the earlier request at the same place."""
        text, _, place = key.partition("/")
        there = [f"{then}/{place}" for then in self._earlier_texts.get(text, ())]
        return next((one for known in (self._answers, self._at) for one in there if one in known), key)

    @property
    def keyless(self) -> bool:
        """Whether all requests were recorded without keys, by an earlier version of prose_kernel."""
        return bool(self._at) and not any(asked.id for asked in self._at.values())

    @property
    def unused(self) -> list[EarlierAnswer]:
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
        """Return the earlier run's answer to this request, and its record; None if it has to be asked. `reduced`
        returns the part of an answer that is recorded; `keys` belong to the run."""
        one = self.find(asked, request)
        if one is None:
            return None
        try:
            files = one.files_of_answer(request, keys) if asked.key not in self._rules.instead else None
            changed = None
            if files is not None:
                now = await s.outside(asyncio.to_thread(files.now, s.host.ports.files))
                changed = files.changed(now, partial(self._was_left, one.order))
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
        """Return the answer that a request may use if its files are unchanged; None if it has to be asked."""
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
        """Use an answer for the request with this key. Returns the notes that are kept with it, which exclude its
        consumption."""
        one.used = True
        self.kept.append(key)
        notes = {name: note for name, note in one.notes.items() if name in KEPT_NOTES}
        if notes and request is not None and self._rules.on_use is not None:
            self._rules.on_use(request, notes, True)
        return notes

    def _refuse(self, asked: Asked, reason: str, detail: str = "") -> None:
        """Note why a request has to be asked: a key of `_WORDS`, whose text `detail` replaces."""
        self._reasons[asked.key] = reason, detail

    def note_request(self, asked: Asked) -> None:
        """Note that a request is really asked. Before that, its branch may lose a race to one with a kept answer."""
        if asked.kind in KINDS:
            self._refused[asked.key] = asked, *self._reasons.pop(asked.key, ("changed", ""))
            self._effects = self._effects or asked.kind in ("command", "gate")

    def answered(self, asked: Asked, answered: Answered) -> None:
        """Note that a request of this run has its answer; in a replay, possibly one that it had kept."""
        if answered.kept:
            if (one := self._answers.get(answered.kept)) is not None and not one.used:
                self.use(asked.key, one)
        elif asked.kind in KINDS and not answered.cancelled:
            if asked.key not in self._refused:
                self.note_request(asked)
            self._effects = self._effects or (asked.kind == "session" and has_written(answered))

    def _candidate(self, asked: Asked) -> tuple[EarlierAnswer | None, str]:
        """Return the answer to an equal request at the same place, else the next unused one. Without one, return None
        and the reason."""
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
        """Return why an answer to an equal request may not be used; "" if it may."""
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

    def _was_left(self, order: int, path: str, then: str, now: str) -> bool:
        """Return whether the answer at `order` or a later one left the file as it is now, and nothing that may write
        files has been asked again."""
        last, digest = self._written.get(path, (-1, ""))
        return not self._effects and last >= order and digest == now

    @cached_property
    def _written(self) -> dict[str, tuple[int, str]]:
        """The last known digest of each file that the earlier run wrote, and the position of that answer."""
        return {path: (one.order, digest) for one in self._answers.values() for path, digest in one.written()}

    # ------------------------------------------------------------ requests that were asked again

    def asked_again(self) -> Iterator[AskedAgain]:
        """Yield the requests that were asked, in their order, with their reasons."""
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
        """Return the earlier request at the same place, else one that shares parts with this one. Only requests whose
        answers were not used count."""
        there = self._here(asked.key)
        here, answer = self._at.get(there), self._answers.get(there)
        if here is not None and here.kind == asked.kind and not (answer is not None and answer.used):
            return here
        near = [self._by_part.get((asked.kind, *part)) for part in _distinctive_parts(asked.parts)]
        return max((one for one in near if one is not None), key=near.count, default=None)

    @cached_property
    def _by_part(self) -> dict[tuple[str, str, str], Asked]:
        """The requests whose answers were not used, by the parts that distinguish them."""
        unused = [one.asked for one in self.unused]
        return {(asked.kind, *part): asked for asked in unused for part in _distinctive_parts(asked.parts)}


def _next_attempt(key: str) -> str:
    place, _, attempt = key.partition("#")
    return f"{place}#{int(attempt or 0) + 1}"


def _distinctive_parts(parts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the parts that few requests have in common."""
    return ((name, part) for name, part in parts.items() if name not in COMMON)
