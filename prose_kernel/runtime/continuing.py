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

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import MsgspecError, Raw, convert, json, structs

from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.declared_files import NOTE, CommandFiles, Digests, FilesThen, globs_of
from prose_kernel.runtime.journal_codec import Request
from prose_kernel.runtime.journal_records import NOTHING, Answered, Asked, Ended, Record
from prose_kernel.runtime.keys import KINDS, Keys
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Files, SessionRequest, SessionResult

Why = Literal["failed", "changed", "new"]

OnUse = Callable[[Request, Mapping[str, object], bool], None]
"""Called with a request that keeps an answer, and the notes on the answer."""

_NOTES: Final = (NOTE, "record")
"""The notes that a kept answer has, too: the others are about what it cost."""

_READ_ONLY: Final = frozenset({"read", "list", "search", "fetch"})
"""Tools of sessions that write nothing."""

_COMMON: Final = frozenset({"kind", "shell", "pipefail", "directory", "model", "env", "permissions", "tools", "rules"})
"""Parts that are the same in many requests."""

_WORDS: Final = {
    "failed": "it had failed",
    "used": "it is asked more often than before",
    "new": "the earlier run asked nothing like it",
    "effects": "a command, a gate or a session that wrote files was asked again before it",
    "before": "something was asked again before it",
    "unconfirmed": "a person has to decide again",
    "again": "--ask-again",
    "memory": "its agent has a memory",
    "model": "another model is asked",
    "unreadable": "its earlier answer cannot be read",
    "unknown": "its files are not known",
    "older": "an earlier version of prose_kernel recorded its answer without a key",
}


@dataclass(slots=True, eq=False)
class EarlierAnswer:
    """A request of the earlier run with its answer. `order` is its place among the answers."""

    asked: Asked
    answered: Answered
    order: int
    failed: bool
    used: bool = False

    @property
    def files(self) -> CommandFiles | None:
        """The files that a command had declared; None if it had declared none."""
        try:
            return convert(self.notes[NOTE], CommandFiles)
        except (KeyError, MsgspecError):
            return None

    @property
    def notes(self) -> dict[str, object]:
        if self.answered.aside == NOTHING:
            return {}
        found = json.decode(self.answered.aside)
        return found if isinstance(found, dict) else {}

    def session(self) -> SessionResult | None:
        """The answer of a session; None if it cannot be read."""
        try:
            return codec.decode(self.answered.value, SessionResult)
        except MsgspecError:
            return None

    def files_then(self, request: Request, keys: Keys) -> FilesThen | None:
        """The files that the answer to this request depends on; None if there are none. Raises `LookupError` if they
        are not known."""
        if isinstance(request, CommandRequest) and request.declares_files:
            return FilesThen.of_command(self.files or CommandFiles(), globs_of(request), keys.directory)
        return self.files_of_session(keys)

    def files_as_recorded(self, keys: Keys) -> FilesThen | None:
        """The same without the request."""
        if (files := self.files) is not None:
            return FilesThen.of_command(files, files.globs, keys.directory)
        return self.files_of_session(keys)

    def files_of_session(self, keys: Keys) -> FilesThen | None:
        result = self.session() if self.asked.kind == "session" else None
        return FilesThen.of_session(result, keys.project) if result is not None else None


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


@dataclass(slots=True)
class _Refused:
    asked: Asked
    reason: str
    detail: str = ""


@dataclass(slots=True)
class _Written:
    """The last state of a file that the earlier run is known to have written, and the order of that answer."""

    order: int
    digest: str


@dataclass(frozen=True, slots=True)
class Rules:
    """How answers are kept, beyond their keys.

    `is_confirmed` tells whether a person has confirmed the decision about a gate; with `ask_again`, persons are asked
    their inputs again. `text_of` reads the file of an answer that a journal refers to by its digest. `on_use` is called
    for each kept answer that has notes. `instead` replaces answers by the keys of their requests; None: that one is
    asked. `cell`: a cell runs again, and others may have run since its last run. So it keeps no gate, and no command
    that declares no files.
    """

    is_confirmed: Callable[[Asked, Answered], bool] = lambda asked, answered: False
    text_of: Callable[[tuple[str, str]], str | None] = lambda file: None
    on_use: OnUse | None = None
    instead: Mapping[str, Raw | None] = field(default_factory=dict)
    ask_again: bool = False
    cell: bool = False


_NO_RULES: Final = Rules()


class EarlierAnswers:
    """The answers of the run `run`, from the `records` of its journal. `cause` is the key of the answer that made it
    fail."""

    def __init__(
        self,
        run: str,
        records: Iterable[tuple[int, Record]],
        cause: str = "",
        rules: Rules = _NO_RULES,
    ) -> None:
        self.run = run
        self._rules = rules
        self.kept: list[EarlierAnswer] = []
        self._keyless = False
        self._effects = False
        self._reasons: dict[str, tuple[str, str]] = {}
        self._refused: dict[str, _Refused] = {}
        self._equal: dict[str, list[EarlierAnswer]] = defaultdict(list)
        self._next: dict[str, int] = {}
        self._at: dict[str, Asked] = {}
        self._answers: dict[str, EarlierAnswer] = {}
        self._written: dict[str, _Written] | None = None
        self._by_part: dict[tuple[str, str, str], Asked] | None = None
        for _, record in records:
            match record:
                case Asked() if record.kind in KINDS:
                    self._at[record.key] = record
                    self._keyless = self._keyless or not record.id
                case Answered(key=key, cancelled=False) if key in self._at:
                    failed = key == cause or _has_failed(self._at[key], record)
                    if (value := rules.instead.get(key)) is not None:
                        failed, record = False, Answered(key, value, t=record.t)
                    self._answers[key] = EarlierAnswer(self._at[key], record, len(self._answers), failed)
                case Ended(cause=key) if key in self._answers and key not in rules.instead:
                    self._answers[key].failed = True
                case _:
                    pass
        for one in self._answers.values():
            one.failed = one.failed or _next_attempt(one.asked.key) in self._at
            if one.asked.id:
                self._equal[one.asked.id].append(one)

    @property
    def keyless(self) -> bool:
        """Whether an earlier version of prose_kernel has recorded all requests, without their keys."""
        return self._keyless and not self._equal

    @property
    def unused(self) -> list[EarlierAnswer]:
        """The answers that were not used, in their order."""
        return [one for one in self._answers.values() if not one.used]

    # ------------------------------------------------------------ answers

    def find(self, asked: Asked, request: Request) -> EarlierAnswer | None:
        """Return the answer that a request may use if its files are unchanged; None: it has to be asked."""
        if asked.kind not in KINDS:
            return None
        found, reason = self._found(asked, isinstance(request, CommandRequest) and request.declares_files)
        if isinstance(request, SessionRequest) and request.memory is not None:
            reason = "memory"
        if found is None or reason:
            self.refuse(asked, reason)
            return None
        return found

    def use(self, one: EarlierAnswer, request: Request | None = None) -> Mapping[str, object]:
        """A request has got this answer. Returns the notes that are kept with it: not its consumption."""
        one.used = True
        self.kept.append(one)
        notes = {name: note for name, note in one.notes.items() if name in _NOTES}
        if notes and request is not None and self._rules.on_use is not None:
            self._rules.on_use(request, notes, True)
        return notes

    def whole(self, result: SessionResult, asked_at: int) -> SessionResult | None:
        """A kept answer with its text, which consumes nothing; None if the file that holds it is gone or another.
        `asked_at` is the time of the answer, in milliseconds since 1970, 0 if it is not known."""
        if result.answer_file is not None:
            text = self._rules.text_of(result.answer_file)
            if text is None:
                return None
            result = structs.replace(result, text=text, answer_file=None)
        details = {**result.details, "kept": self.run}
        if asked_at:
            details.setdefault("answered", f"{datetime.fromtimestamp(asked_at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}")
        return structs.replace(result, usage=None, replayed=True, details=details)

    def refuse(self, asked: Asked, reason: str, detail: str = "") -> None:
        """A request has to be asked, for a reason of `_WORDS`; `detail` replaces its words."""
        self._reasons[asked.key] = reason, detail

    def begins(self, asked: Asked) -> None:
        """The outside is asked. Before that, a branch may lose its race to one with a kept answer."""
        if asked.kind in KINDS:
            self._refused[asked.key] = _Refused(asked, *self._reasons.pop(asked.key, ("changed", "")))
            self._effects = self._effects or asked.kind in ("command", "gate")

    def answered(self, asked: Asked, answered: Answered) -> None:
        """A request of this run has got an answer; in a replay, also one that it had kept."""
        if answered.kept:
            if (one := self._answers.get(answered.kept)) is not None and not one.used:
                self.use(one)
        elif asked.kind in KINDS and not answered.cancelled:
            if asked.key not in self._refused:
                self.begins(asked)
            self._effects = self._effects or (asked.kind == "session" and _has_written(answered))

    def _found(self, asked: Asked, declares: bool) -> tuple[EarlierAnswer | None, str]:
        if self._rules.instead.get(asked.key, NOTHING) is None:
            return None, "model"
        equal = self._equal.get(asked.id, []) if asked.id else []
        here = self._answers.get(asked.key)
        same = here is not None and asked.id != "" and here.asked.id == asked.id and not (here.used or here.failed)
        one = here if same else self._unused(asked.id, equal)
        if one is not None:
            return one, self._refusal(asked, one, declares)
        if equal:
            return None, "failed" if any(one.failed and not one.used for one in equal) else "used"
        return None, "older" if here is not None and not here.asked.id else "changed"

    def _unused(self, id_: str, equal: list[EarlierAnswer]) -> EarlierAnswer | None:
        """The next unused answer of a key; finding it costs nothing, however many are used."""
        at = self._next.get(id_, 0)
        while at < len(equal) and (equal[at].used or equal[at].failed):
            at += 1
        self._next[id_] = at
        return equal[at] if at < len(equal) else None

    def _refusal(self, asked: Asked, one: EarlierAnswer, declares: bool) -> str:
        match asked.kind:
            case "command" if (self._effects or self._rules.cell) and not declares:
                return "effects"
            case "gate" if self._refused or self._rules.cell:
                return "before"
            case "gate" if not self._rules.is_confirmed(one.asked, one.answered):
                return "unconfirmed"
            case "input" if self._rules.ask_again:
                return "again"
        return ""

    # ------------------------------------------------------------ files

    def changed(self, one: EarlierAnswer, files: FilesThen, now: tuple[Digests, ...]) -> str | None:
        """Return a file that is not as it was when the answer was given; None if there is none.

        A file may also be as a later answer of the earlier run has left it, unless something that can write files was
        asked again since.
        """
        for then, is_now in zip(files.then, now, strict=True):
            for path in sorted({*then, *is_now}):
                if then.get(path) != is_now.get(path) and not self._is_later(one, path, is_now.get(path)):
                    return path
        return None

    def moved_file(self, paths: Sequence[str], files: Files, keys: Keys) -> str | None:
        """Return a file that is not as it was when one of the answers was given whose places begin with one of these
        `paths`; None if there is none. Call it in a thread."""
        for one in self._answers.values():
            if not one.asked.key.startswith(tuple(paths)):
                continue
            try:
                then = one.files_as_recorded(keys)
                found = self.changed(one, then, then.now(files)) if then is not None else None
            except LookupError:
                found = "a file that it reads"
            if found is not None:
                return found
        return None

    def _is_later(self, one: EarlierAnswer, path: str, now: str | None) -> bool:
        if self._effects:
            return False
        if self._written is None:
            self._written = dict(_written(self._answers.values()))
        last = self._written.get(path)
        return last is not None and last.order >= one.order and last.digest == (now or "")

    # ------------------------------------------------------------ what was asked

    @property
    def asked(self) -> int:
        """The number of requests that were asked."""
        return len(self._refused)

    def asked_again(self) -> Iterator[AskedAgain]:
        """The requests that were asked, in their order, each with the reason."""
        for one in self._refused.values():
            near = self._near(one.asked)
            reason = one.reason if near is not None or one.reason != "changed" else "new"
            why: Why = "failed" if reason == "failed" else "new" if reason == "new" else "changed"
            differs: tuple[str, ...] = ()
            if reason == "changed" and near is not None and not one.detail:
                now, then = one.asked.parts, near.parts
                differs = tuple(name for name in {**then, **now} if then.get(name) != now.get(name))
            yield AskedAgain(one.asked, why, one.detail or _WORDS.get(reason, ""), near, differs)

    def _near(self, asked: Asked) -> Asked | None:
        """The earlier request at the same place, else one that shares parts with this one, without those whose answers
        were used."""
        here, answer = self._at.get(asked.key), self._answers.get(asked.key)
        if here is not None and here.kind == asked.kind and not (answer is not None and answer.used):
            return here
        if self._by_part is None:
            self._by_part = {
                (one.asked.kind, *part): one.asked for one in self.unused for part in _telling(one.asked.parts)
            }
        near = [self._by_part.get((asked.kind, *part)) for part in _telling(asked.parts)]
        return max((one for one in near if one is not None), key=near.count, default=None)


def _next_attempt(key: str) -> str:
    place, _, attempt = key.partition("#")
    return f"{place}#{int(attempt or 0) + 1}"


def _telling(parts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The parts that few requests have in common."""
    return ((name, part) for name, part in parts.items() if name not in _COMMON)


def _has_failed(asked: Asked, answered: Answered) -> bool:
    """Whether an answer is a failure. A command's exit code is an answer; that it could not run isn't."""
    if answered.error != NOTHING:
        return True
    if asked.kind != "command":
        return False
    try:
        return codec.loads(answered.value, CommandResult).kind not in (None, "exit")
    except MsgspecError:
        return True


def _has_written(answered: Answered) -> bool:
    """Whether a session may have written files: with a tool, or as a CLI agent."""
    try:
        result = codec.decode(answered.value, SessionResult)
    except MsgspecError:
        return answered.value != NOTHING
    tools = {use.tool for use in result.trace if use.outcome != "refused"}
    return bool(result.writes) or result.origin == "agent" or not tools <= _READ_ONLY


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _written(answers: Iterable[EarlierAnswer]) -> Iterator[tuple[str, _Written]]:
    """The files that answers have written, as far as that is recorded."""
    for one in answers:
        if one.asked.kind == "command":
            for path, digest in ((one.files or CommandFiles()).writes or {}).items():
                yield path, _Written(one.order, digest)
        elif one.asked.kind == "session" and (result := one.session()) is not None:
            for write in result.writes:
                yield write.path, _Written(one.order, _sha256(write.after) if write.after is not None else "")
