"""Sessions with a recording in front of them: looked up first, called and recorded where the mode allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from prose_kernel import errors
from prose_kernel.access.policy import Ask, PermissionDesk
from prose_kernel.cassettes.library import Cassettes, Hit, Miss
from prose_kernel.errors import (
    BudgetSpent,
    CassetteMiss,
    NoProvider,
    PermissionDenied,
    ProviderAuth,
    ProviderError,
    RecordedTimeout,
    StaleRecording,
)
from prose_kernel.runtime import asides, budgets
from prose_kernel.runtime.ports import (
    SessionProgress,
    SessionRequest,
    SessionResult,
    Sessions,
    ToolUse,
    Usage,
)
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.session_attempts import TIME_IS_UP

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_files import Entry
    from prose_kernel.cassettes.cassette_store import CassetteStore
    from prose_kernel.cassettes.matching import How, Take
    from prose_kernel.cassettes.records import Answer, Failure, Meta
    from prose_kernel.runtime.session_options import CassetteMode

OnProgress = Callable[[SessionProgress], None]

NOT_RECORDED: Final = (CassetteMiss, NoProvider, PermissionDenied, ProviderAuth)
"""Failures that say something about this machine's settings, and nothing about the session."""


class RecordedSessions:
    """The `Sessions` port over another one. `inner` None: only recorded answers (`%provider replay`).

    `desk` asks the person before a recorded file is written where the rules say `prompt`. `asks_model` tells whether a
    model or agent is behind `inner`, and not a person: only then does mode `auto` ask again where a record ends in a
    failure (docs/reference/sessions.md 4.2).
    """

    def __init__(
        self,
        inner: Sessions | None,
        cassettes: Cassettes,
        *,
        asker: Asker,
        desk: PermissionDesk | None = None,
        asks_model: Callable[[], bool] = lambda: True,
    ) -> None:
        self._inner = inner
        self._cassettes = cassettes
        self._asker = asker
        self._desk = desk
        self._asks_model = asks_model

    async def run(self, request: SessionRequest, on_progress: OnProgress) -> SessionResult:
        """The recorded answer or failure of this attempt, else that of the inner provider, which is then recorded.

        Raises `CassetteMiss` where nothing is recorded and no provider may be called.
        """
        mode = "replay" if self._inner is None else self._cassettes.mode(self._asker)
        if mode == "off" and self._inner is not None:
            return await self._inner.run(request, on_progress)
        shelf = self._cassettes.shelf
        try:
            attempt = _Attempt(shelf, request)
            if mode != "record" and (found := self._lookup(attempt, mode)) is not None:
                if mode == "replay":
                    from prose_kernel.cassettes.records import usage_of

                    if (changed := attempt.changed(found[2])) is not None:
                        self._stale(attempt, found[2], changed)
                    await self._ended_then(attempt, *found)
                    result = await self._replay(attempt, *found, on_progress)
                    budgets.recorded(usage_of(found[2].record))
                    return result
                if (changed := attempt.changed(found[2])) is None:
                    return await self._replay(attempt, *found, on_progress)
                on_progress(SessionProgress("note", f"asked again: {changed} has changed since it was recorded"))
            if mode == "replay" or self._inner is None:
                raise attempt.missed()
            return await self._call(attempt, self._inner, on_progress)
        finally:
            shelf.took_part(request.at)
            for warning in self._cassettes.take_warnings():
                self._asker.show(f"Warning: {warning}")

    def _lookup(self, attempt: _Attempt, mode: CassetteMode) -> tuple[Take, How, Entry] | None:
        found = attempt.lookup(failed=mode == "replay")
        return attempt.lookup() if found is None and mode == "auto" and not self._asks_model() else found

    # ------------------------------------------------------------ replaying

    def _stale(self, attempt: _Attempt, entry: Entry, changed: str) -> None:
        """Say that a recording is out of date. Raises `StaleRecording` where that is not accepted."""
        shelf = attempt.shelf
        told = f"session {attempt.request.at}: {changed} has changed since {entry.file}, line {entry.line} was recorded"
        mode = shelf.options.stale or ("warn" if shelf.where.attended else "fail")
        if mode == "fail":
            raise StaleRecording(
                told,
                hint="record it again, or accept old answers: `--cassette-stale=warn`, `%cassette --stale warn`",
            )
        if mode == "warn":
            shelf.warn(f"{told}; its answer may be out of date")

    async def _replay(
        self, attempt: _Attempt, take: Take, how: How, entry: Entry, on_progress: OnProgress
    ) -> SessionResult:
        from prose_kernel.cassettes import records

        await budgets.placed()
        shelf, request = attempt.shelf, attempt.request
        shelf.use(take, how, request.at, entry)
        attempt.note(entry.record.at, entry.record.key)
        realtime = shelf.options.realtime
        meta = records.part(entry.record.meta, records.Meta)
        if realtime and meta.ms > 0:
            await shelf.clock.sleep(meta.ms / 1000)
        if entry.record.t == "error":
            raise _failure(records.part(entry.record.out, records.Failure), replayed=not realtime)
        answer = records.part(entry.record.out, records.Answer)
        if answer.writes:
            await self._write(attempt, entry, answer)
        result = _result(answer, meta, entry)
        for use in result.trace:
            on_progress(SessionProgress("tool", f"{use.tool} {use.summary}".rstrip(), use))
        return result

    async def _write(self, attempt: _Attempt, entry: Entry, answer: Answer) -> None:
        """Make the files again that the session wrote."""
        from prose_kernel.cassettes.effects import Replayed

        shelf, request = attempt.shelf, attempt.request
        policy = shelf.identity.policy(request)
        source = f"{entry.file}, line {entry.line}"

        async def may_write(name: str) -> bool:
            if self._desk is None:
                return False
            ruling = await self._desk.ask(Ask.of(request, "write", f"write {name} (replayed)", name))
            return ruling.answer == "allow"

        await Replayed(request, policy, shelf.where.cwd, shelf.redaction, source).apply(answer.writes, may_write)

    async def _ended_then(self, attempt: _Attempt, take: Take, how: How, entry: Entry) -> None:
        """Where a budget has ended this attempt when it was recorded, it does again: raises `BudgetSpent`, or
        `CassetteMiss` where there is more to spend now."""
        from prose_kernel.cassettes import records

        if entry.record.t != "error":
            return
        failure = records.part(entry.record.out, records.Failure)
        if failure.kind != BudgetSpent.__name__:
            return
        await budgets.placed()
        error = budgets.ended_then(failure.hint or "", failure.message, records.usage_of(entry.record))
        if error is None:
            raise attempt.missed()
        attempt.shelf.use(take, how, attempt.request.at, entry)
        raise error

    # ------------------------------------------------------------ calling and recording

    async def _call(self, attempt: _Attempt, inner: Sessions, on_progress: OnProgress) -> SessionResult:
        attempt.refuse_private_key()
        shelf = attempt.shelf
        begun = shelf.clock.monotonic()
        try:
            result = await inner.run(attempt.request, on_progress)
        except asyncio.CancelledError as cancelled:
            if TIME_IS_UP in cancelled.args:
                attempt.record_timeout(shelf.clock.monotonic() - begun)
            elif (request := budgets.current()) is not None and (spent := request.ended()) is not None:
                attempt.record_budget(spent, request.counted, shelf.clock.monotonic() - begun)
            raise
        except BudgetSpent as spent:
            request = budgets.current()
            if request is not None and request.ended_by is None:
                attempt.record_budget(spent, request.counted, shelf.clock.monotonic() - begun)
            raise
        except NOT_RECORDED:
            raise
        except ProviderError as failure:
            await attempt.record_failure(failure, shelf.clock.monotonic() - begun)
            raise
        await attempt.record(result, shelf.clock.monotonic() - begun)
        return result


class _Attempt:
    """One attempt at a session: its identity, its record."""

    def __init__(self, shelf: CassetteStore, request: SessionRequest) -> None:
        from prose_kernel.cassettes.keys import key_of

        self.shelf = shelf
        self.request = request
        self.number = request.attempt + 1
        self.req = shelf.identity.session(request)
        self.key = key_of(self.req)

    def lookup(self, *, failed: bool = True) -> tuple[Take, How, Entry] | None:
        """The record of this attempt. Without `failed`, a session that ended in a failure does not count: whoever can
        be asked now may have other settings, another model, more room."""
        found = self.shelf.lookup(self.key, self.request.at, self.number, failed=failed)
        if found is not None or self.request.bare:
            return found
        return self.shelf.lookup(self._former(), self.request.at, self.number, failed=failed)

    def _former(self) -> str:
        """The key of this session in recordings of before version 0.2."""
        from prose_kernel.cassettes.keys import key_of

        return key_of(self.shelf.identity.former_session(self.req, self.request))

    def changed(self, entry: Entry) -> str | None:
        """The files that the recorded session read and that have changed since, in words; None: it is up to date."""
        from prose_kernel.cassettes import effects, records

        if entry.record.t != "session" or self.shelf.options.stale == "ignore":
            return None
        reads = records.part(entry.record.out, records.Answer).reads
        names = effects.changed(reads, self.shelf.where.cwd, self.shelf.redaction)
        more = f" and {len(names) - 3} more files" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more if names else None

    def missed(self) -> CassetteMiss:
        request = self.request
        keys = [self.key] if request.bare else [self.key, self._former()]
        message, hint = self.shelf.miss(f"session {request.at}", self.req, keys, request.at, request.program)
        return CassetteMiss(message, hint=hint)

    def refuse_private_key(self) -> None:
        """What holds a private key is neither sent nor recorded. Raises `ProviderError`."""
        if self.shelf.identity.holds_private_key(self.request):
            raise ProviderError(
                f"session {self.request.at} is not run: its prompt or context holds a private key (PEM), which must not"
                " be recorded",
                retryable=False,
                hint="take the key out, or record nothing: `%cassette --mode off`, `--cassette-mode off`",
            )

    def note(self, recorded_at: str, key: str = "") -> None:
        """A run that is resumed has to know which record has answered, or was written."""
        aside = asides.current()
        if aside is not None:
            aside.notes["record"] = [key or self.key, recorded_at, self.number]

    # ------------------------------------------------------------ recording

    def _meta(self, seconds: float, **told: Any) -> Meta:
        request = self.request
        return self.shelf.meta(
            agent=request.agent or "", label=request.label or "", ms=max(0, round(seconds * 1000)), **told
        )

    async def record(self, result: SessionResult, seconds: float) -> None:
        from prose_kernel.cassettes.effects import answer_of
        from prose_kernel.cassettes.records import usage_facts

        answer, warnings = answer_of(result, self.request, self.shelf)
        for warning in warnings:
            self.shelf.warn(warning)
        if answer is None:
            return
        resolved = result.details.get("model")
        meta = self._meta(
            seconds,
            origin=result.origin,
            provider=result.provider,
            resolved=str(resolved) if resolved else "",
            effects="partial" if result.origin == "agent" else "",
            usage=usage_facts(result.usage),
            sampling=result.details.get("sampling") or {},
        )
        self.note(self.shelf.place(self.key, self.request.at))
        await self.shelf.add("session", self.request.at, self.req, answer, meta, self.number)

    async def record_failure(self, failure: ProviderError, seconds: float) -> None:
        from prose_kernel.cassettes.records import Failure, builtins

        out = builtins(
            Failure(
                type(failure).__name__,
                str(failure),
                failure.retryable,
                failure.hint,
                getattr(failure, "retry_after", None),
            )
        )
        self.note(self.shelf.place(self.key, self.request.at))
        await self.shelf.add("error", self.request.at, self.req, out, self._meta(seconds), self.number)

    def record_budget(self, spent: BudgetSpent, used: budgets.Spent, seconds: float) -> None:
        """A budget has ended the attempt, or refused it when it had its place."""
        from prose_kernel.cassettes.records import Failure, builtins, usage_facts

        facts = usage_facts(Usage(1, used.tokens, 0, used.usd))
        out = builtins(Failure(BudgetSpent.__name__, spent.message, False, spent.budget))
        self.note(self.shelf.place(self.key, self.request.at))
        self.shelf.add_at_once("error", self.request.at, self.req, out, self._meta(seconds, usage=facts), self.number)

    def record_timeout(self, seconds: float) -> None:
        from prose_kernel.cassettes.records import Failure, builtins

        out = builtins(Failure(RecordedTimeout.__name__, "the session ran into its time limit"))
        self.note(self.shelf.place(self.key, self.request.at))
        self.shelf.add_at_once("error", self.request.at, self.req, out, self._meta(seconds), self.number)


# ---------------------------------------------------------------- records as results


def looked_up(shelf: CassetteStore, request: SessionRequest) -> Hit | Miss:
    """What a replay would do with a session, without using the record up."""
    from prose_kernel.cassettes import records

    attempt = _Attempt(shelf, request)
    found = attempt.lookup()
    if found is None:
        miss = attempt.missed()
        return Miss(attempt.key, request.at, str(miss), miss.hint or "")
    _, how, entry = found
    meta = records.part(entry.record.meta, records.Meta)
    failed = entry.record.t == "error"
    place = (entry.record.at, entry.file, entry.line, how)
    return Hit(attempt.key, *place, meta.origin, meta.provider, meta.resolved, meta.recorded, failed)


def _result(answer: Answer, meta: Meta, entry: Entry) -> SessionResult:
    details = {
        "recorded": meta.recorded,
        "provider": meta.provider,
        "model": meta.resolved,
        "sampling": meta.sampling,
        "cassette": entry.file,
        "effects": meta.effects,
        "cut": answer.cut,
    }
    return SessionResult(
        answer.text,
        answer.summary,
        meta.provider,
        meta.origin,
        {name: value for name, value in details.items() if value},
        tuple(ToolUse(used.tool, used.summary, used.outcome, used.detail) for used in answer.trace),
        memory_after=answer.memory_after,
        segment=answer.segment,
        replayed=True,
        reply=answer.reply,
    )


def _failure(failure: Failure, *, replayed: bool) -> ProviderError:
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, ProviderError)) or issubclass(kind, NOT_RECORDED):
        kind = ProviderError
    error: ProviderError = kind(failure.message, hint=failure.hint)
    error.retryable = failure.retryable
    error.replayed = replayed
    if isinstance(error, errors.ProviderRateLimit | errors.ProviderOverloaded):
        error.retry_after = failure.retry_after
    return error
