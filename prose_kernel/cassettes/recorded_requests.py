"""A request to a cassette: the record that answers it (`cassette_index.py` finds it), and the record of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prose_kernel.cassettes import recorded_files, records
from prose_kernel.cassettes.cassette_files import PlacedRecord, Take
from prose_kernel.errors import BudgetSpent, CassetteMiss, NoProvider, PermissionDenied, ProviderAuth, ProviderError
from prose_kernel.language.structs import replace
from prose_kernel.runtime import open_request
from prose_kernel.runtime.budgets import Consumption
from prose_kernel.runtime.ports import SessionRequest, SessionResult, Usage

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_store import CassetteStore

NOT_RECORDED: Final = (CassetteMiss, NoProvider, PermissionDenied, ProviderAuth)
"""Failures that depend on this machine's settings, not on the session."""


class Found(NamedTuple):
    """The record that answers a request."""

    take: Take
    entry: PlacedRecord

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
        return replace(answer, provider=meta.provider, origin=meta.origin, details=details, replayed=True)


class Miss(NamedTuple):
    """A request without a record: why no record is found (`message`), and how to record one (`hint`)."""

    key: str
    message: str
    hint: str


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
