"""Keep the answers of an earlier run in a run of an edited program, or in one with other answers or models
(docs/how-to/edit-and-continue.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import MsgspecError, Raw, Struct, field, json

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runs.earlier_approvals import approved_in_process
from prose_kernel.runs.resumption import Resumption, imported_texts, resumption
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.earlier_answers import EarlierAnswers, OnUse, Rules
from prose_kernel.runtime.journal import approved
from prose_kernel.runtime.journal_records import Answered, Asked, Head, Record, answers_of
from prose_kernel.runtime.ports import (
    CommandResult,
    GateDecision,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Sessions,
)
from prose_kernel.runtime.requests import KINDS
from prose_kernel.storage.journal_reading import JournalRead, is_written, read
from prose_kernel.storage.run_paths import VVM

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Language

_DECISIONS = {"yes": True, "true": True, "no": False, "false": False}


class EarlierRun(Struct, frozen=True):
    """A run whose answers before the record with the number `before` (None: all) another run may use.

    `ask_again`: people are asked for their inputs again. `instead` replaces answers, by the keys of their requests;
    None means that the request is made again. `models` has the new models of sessions, by key.
    """

    how: Resumption
    before: int | None = None
    ask_again: bool = False
    instead: Mapping[str, Raw | None] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)

    @property
    def journal(self) -> JournalRead:
        return self.how.journal

    @property
    def head(self) -> Head:
        return self.how.head

    @property
    def ids(self) -> list[str]:
        """The ids of its ancestors, then its own id."""
        return [*self.head.branch_of, self.head.run]

    def answers(self, run_id: str, on_use: OnUse | None = None, *, planned: bool = False) -> EarlierAnswers:
        """Return the answers for the run `run_id`. `planned`: approvals count as if a person had confirmed them. Raises
        `UsageError` if the journal cannot be read."""
        confirmed = approved_in_process(run_id, branch_of=self.head.run)
        ids = tuple(one.encode() for one in (run_id, *self.ids))

        def is_confirmed(asked: Asked, answered: Answered) -> bool:
            decision = codec.readable(answered.value, GateDecision)
            if decision is None:
                return False
            return planned or decision.status == "rejected" or approved(asked, answered.value, ids) in confirmed

        instead = {**self.instead, **dict.fromkeys(self.models)}
        rules = Rules(is_confirmed, self._text_of, on_use, instead, self.ask_again)
        found = EarlierAnswers(self.head.run, self.journal.records(1, self.before), self.how.again, rules)
        if found.keyless:
            hint = "run the program once with this version; later runs can keep those answers"
            raise UsageError(
                f"an earlier version of prose_kernel recorded run {self.head.run}, without keys", hint=hint
            )
        return found

    def lost_imports(self) -> dict[str, str]:
        """Return the texts, by address, of programs that the run imported from files that are gone now."""
        return {
            address: text
            for address, text in imported_texts(self.journal).items()
            if Path(address).is_absolute() and not Path(address).exists()
        }

    def _text_of(self, file: tuple[str, str]) -> str | None:
        """Return the answer in a file of the run; None if it no longer has this digest."""
        name, digest = file
        own = self.journal.path.parent
        place = own if own.parent.parent.name == VVM else Path(self.head.directory, VVM, "runs", self.head.run)
        if "/" in name:
            return None
        try:
            text = plain_files.read_text(place / "bindings" / f"{name}.md", errors="replace")
        except (OSError, ValueError):
            return None
        return text if hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() == digest else None


def earlier_run(
    path: Path, language: Language, directory: Path, before: int | None = None, *, ask_again: bool = False
) -> EarlierRun:
    """Return the run with the journal `path`, for a program of `language` that runs in `directory`.

    Raises `UsageError` if its answers cannot be used.
    """
    journal = read(path)
    head = journal.head
    if is_written(path):
        raise UsageError(f"run {head.run} is running", hint="wait until it has ended, or stop it")
    if head.language != language.name:
        raise UsageError(f"run {head.run} is one of {head.language}, and this program is written in {language.name}")
    if Path(head.directory) != directory:
        raise UsageError(f"run {head.run} ran in another directory", hint=f"run the program there: {head.directory}")
    return EarlierRun(resumption(journal), before, ask_again)


def answered_from(begin: int, records: Iterable[tuple[int, Record]]) -> list[Asked]:
    """Return the requests that were answered in line `begin` or later, commands first.

    `records` are all records of the run, with the numbers of their lines. Left out are answers whose request is lost,
    and answers that had arrived before and waited for their branch's turn.
    """
    all_of_them = list(records)
    before = {asked.key for _, asked, _ in answers_of((one for one in all_of_them if one[0] < begin), *KINDS)}
    found = {asked.key: asked for _, asked, _ in answers_of(all_of_them, *KINDS) if asked.key not in before}
    return commands_first(found.values())


def commands_first(requests: Iterable[Asked]) -> list[Asked]:
    """Return the requests that have effects or a cost, or that a person answers, in the order of `KINDS`."""
    return sorted((one for one in requests if one.kind in KINDS), key=lambda one: KINDS.index(one.kind))


# ---------------------------------------------------------------- other answers, other models


class OtherModels:
    """A `Sessions` port that replaces the model of the sessions at some paths."""

    def __init__(self, inner: Sessions, models: Mapping[str, str]) -> None:
        self._inner = inner
        self._models = models

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        model = self._models.get(request.at)
        if model is not None:
            request = replace(request, model=model)
        return await self._inner.run(request, on_progress)


def with_answers(earlier: EarlierRun, answers: Mapping[str, str], models: Mapping[str, str]) -> EarlierRun:
    """Return the earlier run with other `answers` and `models`, by the paths of the requests. Raises `UsageError` for a
    path without a request that allows it."""
    records = list(earlier.journal.records(1))
    asked = {record.key: record for _, record in records if isinstance(record, Asked)}
    given = {one.key: answered for _, one, answered in answers_of(records)}
    for at in (*answers, *models):
        if at not in asked:
            raise UsageError(
                f"run {earlier.head.run} asked nothing at {at}", hint=f"prose runs show {earlier.head.run}"
            )
    for at in models:
        if asked[at].kind != "session":
            raise UsageError(f"{at} is a {asked[at].kind}, which has no model", hint="AT=TEXT replaces its answer")
    instead = {at: _answer(asked[at], given.get(at), text) for at, text in answers.items()}
    return replace(earlier, instead=instead, models=models)


def _answer(asked: Asked, given: Answered | None, text: str) -> Raw:
    """Return the answer `text` to this request in the form of the journal. Raises `UsageError`."""
    match asked.kind:
        case "session":
            return codec.encode(SessionResult(text, origin="human"))
        case "command":
            return codec.encode(CommandResult("exited", 0, text, stdout_bytes=len(text.encode("utf-8", "replace"))))
        case "input":
            return codec.encode(text.removesuffix("\n"))
        case "judge":
            return codec.encode(_decision(asked, given, text.strip()))
    raise UsageError(f"{asked.key} is a {asked.kind}, whose answer can't be replaced")


def _decision(asked: Asked, given: Answered | None, text: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.decode(given.value) if given is not None else {}
    except MsgspecError:
        data = {}
    if "label" in data:
        return {"label": text, "by": "human"}
    if "value" in data:
        return {"value": codec.loads(text.encode(), object) if text[:1] in "[{" else text, "by": "human"}
    if text.lower() not in _DECISIONS:
        raise UsageError(f"{asked.key} is a condition: its answer is yes or no", hint=f"{asked.key}=yes")
    return {"answer": _DECISIONS[text.lower()], "by": "human"}
