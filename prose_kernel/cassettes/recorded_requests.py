"""A request with its recordings: finds the record that answers it, and records its answer (sessions.md 4.2).

The record is that of its cell, else of the same key and path, else the next unused one of the key, else the last one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from prose_kernel.cassettes import recorded_files, records
from prose_kernel.cassettes.cassette_files import CassetteFile, Entry, Take
from prose_kernel.errors import BudgetSpent, CassetteMiss, NoProvider, PermissionDenied, ProviderAuth, ProviderError
from prose_kernel.runtime import open_request
from prose_kernel.runtime.budgets import Consumption
from prose_kernel.runtime.ports import SessionRequest, SessionResult, Usage
from prose_kernel.runtime.requests import EqualAnswers
from prose_kernel.runtime.session_options import Repeats

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_store import CassetteStore

NOT_RECORDED: Final = (CassetteMiss, NoProvider, PermissionDenied, ProviderAuth)
"""Failures that depend on this machine's settings, not on the session."""

_CELL = re.compile(r"(?:(?<=/)|\A)c\d+(?=/|\Z)")
_SCOPE = re.compile(r"case=[^/]*/variant=[^/]*/r\d+/")


def tail(at: str) -> str:
    """Return an execution path without its cell: it does not change when cells are renumbered."""
    return _CELL.sub("", at, count=1)


def scope(at: str) -> str:
    """Return the run of an evaluation that a path belongs to; "" for a path of an ordinary run."""
    found = _SCOPE.match(at)
    return found[0] if found is not None else ""


class Found(NamedTuple):
    """The record that answers a request."""

    take: Take
    entry: Entry

    @property
    def answer(self) -> object:
        return records.answer_of(self.entry.record)

    @property
    def facts(self) -> records.Facts:
        return records.part(self.entry.record.facts, records.Facts)

    @property
    def meta(self) -> records.Meta:
        return records.part(self.entry.record.meta, records.Meta)

    @property
    def usage(self) -> Usage:
        return records.usage_of(self.entry.record)

    def details(self, **more: object) -> dict[str, object]:
        """Return the origin of an answer, for its details."""
        found = {"recorded": self.meta.recorded, "model": self.meta.resolved, "cassette": self.entry.file, **more}
        return {name: value for name, value in found.items() if value}

    def result(self, answer: SessionResult) -> SessionResult:
        meta, cut = self.meta, answer.details.get("cut")
        details = self.details(provider=meta.provider, sampling=meta.sampling, effects=meta.effects, cut=cut)
        answer = records.without_facts(answer)
        return structs.replace(answer, provider=meta.provider, origin=meta.origin, details=details, replayed=True)


class Miss(NamedTuple):
    """A request without a record: why no record is found (`message`), and how to record one (`hint`)."""

    key: str
    message: str
    hint: str


class Index:
    """The takes of all cassettes, in order of preference.

    A run of an evaluation uses the records made for it, and else (in its first repetition) those of ordinary runs,
    which stay available to all other runs: so no answer depends on which run is faster.
    """

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self.exact: dict[tuple[str, str], Take] = {}
        """The takes by key and path."""
        self._by_tail: dict[tuple[str, str], EqualAnswers[Take]] = defaultdict(EqualAnswers)
        self._by_key: dict[str, list[Take]] = defaultdict(list)
        self._by_scope: dict[tuple[str, str], EqualAnswers[Take]] = defaultdict(EqualAnswers)
        self._by_cell: dict[tuple[str, str, str], Take] = {}
        # Requests that cells have made in this process, each with the take that was replayed; None: the answer is new.
        self._requested_by_cells: dict[tuple[str, str, str], Take | None] = {}
        self._borrowed: Counter[tuple[str, str]] = Counter()
        self._bound: dict[tuple[str, str], Take] = {}

    def add(self, takes: Iterable[Take]) -> None:
        """Add the answers of one file. Files are added in order of preference."""
        of_cells: dict[tuple[str, str, str], Take] = {}
        for take in takes:
            if not take.attempts:  # all of them were damaged
                continue
            self.exact.setdefault((take.key, take.at), take)
            self._by_tail[take.key, tail(take.at)].answers.append(take)
            self._by_key[take.key].append(take)
            self._by_scope[take.key, scope(take.at)].answers.append(take)
            for entry in take.attempts.values():
                take.is_free = take.is_free and not entry.used
                if cell := entry.record.cell:
                    of_cells[take.key, tail(take.at), cell] = take
        self._by_cell = of_cells | self._by_cell

    def renewed(self, files: Iterable[CassetteFile]) -> Index:
        """Return an index of the files now on disk that remembers which takes this run has used."""
        fresh = Index(self._repeats)
        for file in files:
            fresh.add(file.takes.values())
        for (_, at), take in self._bound.items():
            if (same := fresh._same(take)) is not None:
                fresh.use(same, at)
        fresh._requested_by_cells = {
            place: fresh._same(take) if take is not None else None for place, take in self._requested_by_cells.items()
        }
        return fresh

    def _same(self, take: Take) -> Take | None:
        return next((t for t in self._by_key[take.key] if (t.file, t.at) == (take.file, take.at)), None)

    def place(self, key: str, at: str, cell: str) -> str:
        """Return the path under which the answer to a request is recorded. A cell that is run again replaces its own
        record, so that a run from the top returns its latest answer."""
        own = self._by_cell.get((key, tail(at), cell)) if cell else None
        return own.at if own is not None else at

    def record(self, take: Take, entry: Entry, at: str) -> None:
        """Add a record that this run has just written, and its take, for a request at this path."""
        if self.exact.get((take.key, take.at)) is not take:
            self.exact[take.key, take.at] = take
            self._by_key[take.key].append(take)
        entry.used = True
        self.use(take, at)
        if cell := entry.record.cell:
            self._by_cell[take.key, tail(at), cell] = take
            self._requested_by_cells[take.key, tail(at), cell] = None

    def find(self, key: str, at: str, cell: str = "", *, again: bool = False) -> Take | None:
        """Return the take that answers a request, without using it up. A cell gets only answers that it has recorded,
        each once in a process: a cell that is run again makes a new request. With `again` it gets a replayed answer
        again."""
        if (bound := self._bound.get((key, at))) is not None:
            return bound
        place, own, reuses = (key, tail(at), cell), scope(at), self._repeats == "reuse"
        if again and (take := self._requested_by_cells.get(place)) is not None:
            return take
        if cell and (take := self._by_cell.get(place)) is not None:
            return take if reuses or place not in self._requested_by_cells else None
        if (take := self.exact.get((key, at))) is not None:
            return take
        take = self._by_tail[key, tail(at)].free() or self._by_scope[key, own].free() or self._next_borrowed(key, own)
        return next(self._reusable(key, own), None) if take is None and reuses else take

    def _reusable(self, key: str, own: str) -> Iterator[Take]:
        """Yield the takes that may answer again, the last one first; for an ordinary run, none of an evaluation."""
        return (take for take in reversed(self._by_key[key]) if own or not scope(take.at))

    def _next_borrowed(self, key: str, own: str) -> Take | None:
        """Return the next record of ordinary runs for this run of an evaluation; None if there is none. Only the first
        repetition may use them: further ones would get the same answers and not be repetitions."""
        lent, number = self._by_scope[key, ""].answers if own.endswith("/r1/") else [], self._borrowed[key, own]
        return lent[number] if number < len(lent) else None

    def count(self, key: str, own: str = "") -> int:
        """Return the number of takes of a key for a run of this scope."""
        return sum(1 for _ in self._reusable(key, own))

    def use(self, take: Take, at: str, cell: str = "") -> None:
        """Use the take for a request at this path, and for its further attempts."""
        take.is_free = False
        if cell:
            self._requested_by_cells[take.key, tail(at), cell] = take
        own = scope(at)
        if own and not scope(take.at) and (take.key, at) not in self._bound:
            self._borrowed[take.key, own] += 1
        self._bound[take.key, at] = take


# ---------------------------------------------------------------- requests


@dataclass(eq=False)
class RecordedRequest:
    """A request at a path.

    - `req` is its identity, `title` its name in messages, `program` the name of its program in a hint.
    - `number` is the number of the attempt (from 1), `begun` the clock time of the request.
    """

    store: CassetteStore
    req: Mapping[str, Any]
    at: str
    title: str = ""
    program: str = ""
    number: int = 1

    def __post_init__(self) -> None:
        self.key = records.key_of(self.req)
        self.begun = self.store.clock.monotonic()

    def lookup(self, *, failed: bool = True, again: bool = False) -> Found | None:
        """Return the record that answers the request. Without `failed`, records of failed sessions are ignored: the
        current provider may have other settings, another model, more room. With `again`, a cell that is run again gets
        the answer that was replayed."""
        return self.store.lookup(self.key, self.at, self.number, failed=failed, again=again)

    def replay_result(self) -> Found | Miss:
        """Return the result of a replay without using up the record."""
        return self.lookup() or self.store.miss(self)

    def note(self, found: Found | None = None) -> None:
        """Note for resumed runs which record has answered; None if it was just written."""
        current = open_request.current()
        if current is not None:
            record = found.entry.record if found is not None else None
            place = (record.key, record.at) if record is not None else (self.key, self.store.place(self.key, self.at))
            current.notes["record"] = [*place, self.number]


@dataclass(eq=False)
class RecordedSession(RecordedRequest):
    """One attempt at a session."""

    request: SessionRequest = field(kw_only=True)

    def missed(self) -> CassetteMiss:
        miss = self.store.miss(self)
        return CassetteMiss(miss.message, hint=miss.hint)

    def changed(self, found: Found) -> str | None:
        """Return the files that have changed since the recorded session read them, as text; None if there are none."""
        if found.entry.record.t != "session" or self.store.options.stale == "ignore":
            return None
        names = recorded_files.changed(found.facts.reads, self.store.where.cwd, self.store.redaction)
        more = f" and {len(names) - 3} more files" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more if names else None

    def refuse_private_key(self) -> None:
        """Raise `ProviderError` for a request with a private key, which must be neither sent nor recorded."""
        if self.store.identity.holds_private_key(self.request):
            raise ProviderError(
                f"session {self.at} is not run: its prompt or context holds a private key (PEM), which must not"
                " be recorded",
                retryable=False,
                hint="take the key out, or record nothing: `%cassette --mode off`, `--cassette-mode off`",
            )

    # ------------------------------------------------------------ recording

    async def record(self, result: SessionResult) -> None:
        recorded = recorded_files.answer_of(result, self.request, self.store)
        if recorded is None:
            return
        meta = self._meta(
            result.usage,
            origin=result.origin,
            provider=result.provider,
            resolved=str(result.details.get("model") or ""),
            effects="partial" if result.origin == "agent" else "",
            sampling=result.details.get("sampling") or {},
        )
        self.note()
        answer, facts = recorded
        await self.store.add("session", self, answer, meta, facts)

    def record_failure(self, failure: Exception, usage: Usage | None = None) -> None:
        """Record that the attempt has failed. If another process is writing, the record is written with the next
        one."""
        self.note()
        self.store.add_nowait("error", self.at, failure, self._meta(usage), self)

    def record_budget(self, spent: BudgetSpent, counted: Consumption) -> None:
        """Record that a budget has ended the attempt, or refused it."""
        self.record_failure(BudgetSpent(spent.message, budget=spent.budget), Usage(1, counted.tokens, 0, counted.usd))

    def _meta(self, usage: Usage | None = None, **details: Any) -> records.Meta:
        agent, label = self.request.agent or "", self.request.label or ""
        return self.store.meta(self.begun, usage, agent=agent, label=label, **details)


def failure_of(error: object, *, replayed: bool) -> ProviderError:
    """Return a recorded failure in the form for the program."""
    if not isinstance(error, ProviderError) or isinstance(error, NOT_RECORDED):
        error = ProviderError(str(error), hint=getattr(error, "hint", None))
    error.replayed = replayed
    return error
