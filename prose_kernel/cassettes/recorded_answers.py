"""Sessions, judgements and races that are answered from recordings first; the mode decides whether others are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from prose_kernel.access.approvals import Approvals, Ask
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import BudgetSpent, ProviderError, RecordedTimeout, StaleRecording, Undecided
from prose_kernel.language.structs import replace
from prose_kernel.runtime import budgets
from prose_kernel.runtime.attempts import TIME_IS_UP
from prose_kernel.runtime.ports import (
    Finding,
    Judge,
    JudgeRequest,
    Phrases,
    Pick,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Sessions,
    Verdict,
    reported,
)
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.values import verbatim

if TYPE_CHECKING:
    from prose_kernel.cassettes.recorded_requests import Found, RecordedRequest, RecordedSession
    from prose_kernel.cassettes.records import Written
    from prose_kernel.runtime.session_options import CassetteMode

T = TypeVar("T", Verdict, Pick, Finding)
P = TypeVar("P")
OnProgress = Callable[[SessionProgress], None]


def _lookup(
    request: RecordedRequest, mode: CassetteMode, asks_model: Callable[[], bool], *, failed: bool = True
) -> Found | None:
    """Return the recorded answer to a request; for `failed` see `RecordedRequest.lookup`. In mode `auto` without a
    model, a failure and a replayed answer count, too."""
    if mode == "record":
        return None
    found = request.lookup(failed=failed)
    if found is None and mode == "auto" and not asks_model():
        found = request.lookup(again=True)
    return found


@dataclass(eq=False)
class RecordedSessions:
    """The `Sessions` port over another one. `inner` None: only recorded answers (`%provider replay`).

    `approvals` asks the person before a recorded file is written if the rules say `prompt`. `asks_model` returns True
    if `inner` is a model or agent, not a person: only then does mode `auto` ask again if a record ends in a failure, or
    a cell is run again (docs/reference/sessions.md 4.2).
    """

    inner: Sessions | None
    cassettes: Cassettes
    _: KW_ONLY
    asker: Asker
    approvals: Approvals | None = None
    asks_model: Callable[[], bool] = lambda: True

    async def run(self, request: SessionRequest, on_progress: OnProgress) -> SessionResult:
        """Return the recorded answer or failure of this attempt, else the inner provider's, which is then recorded.

        Raises `CassetteMiss` if nothing is recorded and no provider may be called.
        """
        mode = "replay" if self.inner is None else self.cassettes.mode(self.asker)
        if mode == "off" and self.inner is not None:
            return await self.inner.run(request, on_progress)
        with self.cassettes.answering(request.at, self.asker) as store:
            session = store.session(request)
            found = _lookup(session, mode, self.asks_model, failed=mode == "replay")
            if found is not None:
                changed = session.changed(found)
                if mode == "replay":  # answers may be out of date, and count towards budgets
                    if changed is not None:
                        _require_accepted(session, found, changed)
                    await _end_as_recorded(session, found)
                    result = await self._replay(session, found, on_progress)
                    budgets.count_replayed(found.usage)
                    return result
                if changed is None:
                    return await self._replay(session, found, on_progress)
                on_progress(SessionProgress("note", f"asked again: {changed} has changed since it was recorded"))
            if mode == "replay" or self.inner is None:
                raise session.missed()
            return await self._call(session, self.inner, on_progress)

    # ------------------------------------------------------------ replaying

    async def _replay(self, session: RecordedSession, found: Found, on_progress: OnProgress) -> SessionResult:
        from prose_kernel.cassettes.recorded_requests import failure_of

        await budgets.placed()
        store = session.store
        store.use(found, session.at)
        session.note(found)
        realtime = store.options.realtime
        if realtime and found.meta.ms > 0:
            await store.clock.sleep(found.meta.ms / 1000)
        answer = found.answer
        if not isinstance(answer, SessionResult):
            raise failure_of(answer, replayed=not realtime)
        if writes := found.facts.writes:
            await self._write(session, found, writes)
        result = found.result(answer)
        for use in result.trace:
            on_progress(SessionProgress("tool", f"{use.tool} {use.summary}".rstrip(), use))
        return result

    async def _write(self, session: RecordedSession, found: Found, writes: Sequence[Written]) -> None:
        from prose_kernel.cassettes.recorded_files import FileReplay

        store, request = session.store, session.request

        async def may_write(name: str) -> bool:
            if self.approvals is None:
                return False
            ruling = await self.approvals.ask(Ask.of(request, "write", f"write {name} (replayed)", name))
            return ruling.answer == "allow"

        policy = store.identity.policy(request)
        await FileReplay(policy, store.where.cwd, store.redaction, found.entry.place).apply(writes, may_write)

    async def _call(self, session: RecordedSession, inner: Sessions, on_progress: OnProgress) -> SessionResult:
        from prose_kernel.cassettes.recorded_requests import NOT_RECORDED

        session.refuse_private_key()
        try:
            result = await inner.run(session.request, on_progress)
        except asyncio.CancelledError as cancelled:
            if TIME_IS_UP in cancelled.args:
                session.record_failure(RecordedTimeout("the session ran into its time limit"))
            elif (request := budgets.current()) is not None and (spent := request.ended()) is not None:
                session.record_budget(spent, request.counted)
            raise
        except BudgetSpent as spent:
            request = budgets.current()
            if request is not None and request.ended_by is None:
                session.record_budget(spent, request.counted)
            raise
        except ProviderError as failure:
            if not isinstance(failure, NOT_RECORDED):
                session.record_failure(failure)
            raise
        with self.cassettes.counting(result.provider, str(result.details.get("model") or ""), result.usage):
            await session.record(result)
        return result


def _require_accepted(session: RecordedSession, found: Found, changed: str) -> None:
    """Report an outdated recording. Raises `StaleRecording` unless the settings accept it."""
    store = session.store
    stale = f"session {session.at}: {changed} has changed since {found.entry.place} was recorded"
    mode = store.options.stale or ("warn" if store.where.attended else "fail")
    if mode == "fail":
        raise StaleRecording(
            stale, hint="record it again, or accept old answers: `--cassette-stale=warn`, `%cassette --stale warn`"
        )
    if mode == "warn":
        store.warn(f"{stale}; its answer may be out of date")


async def _end_as_recorded(session: RecordedSession, found: Found) -> None:
    """Raise the recorded `BudgetSpent` of an attempt, or `CassetteMiss` if the budget is larger now."""
    if found.entry.record.t != "error" or not isinstance(spent := found.answer, BudgetSpent):
        return
    await budgets.placed()
    error = budgets.replayed_end(spent.budget, spent.message, found.usage)
    if error is None:
        raise session.missed()
    session.store.use(found, session.at)
    raise error


# ---------------------------------------------------------------- judgements and races


@dataclass(eq=False)
class _Recorded(Generic[P]):
    """A port that looks for a recorded answer before it calls `inner`. For `asks_model` see `RecordedSessions`."""

    inner: P
    cassettes: Cassettes
    _: KW_ONLY
    asker: Asker
    asks_model: Callable[[], bool] = lambda: True

    async def _answer(
        self,
        kind: str,
        request: JudgeRequest,
        ask: Callable[[], Awaitable[T]],
        also: tuple[str, ...] = (),
        path: str = "",
    ) -> T:
        """Return the recorded answer, else the answer of `ask`, which is then recorded. Raises `Undecided`.

        For `also` and `path` see `Identity.judgement`.
        """
        mode = self.cassettes.mode(self.asker)
        if mode == "off":
            return await ask()
        decides = kind != "phrase"  # the program does not get the answer of `phrase`
        with self.cassettes.answering(request.at if decides else "", self.asker) as store:
            judgement = store.judgement(kind, request, also, path)
            if (found := _lookup(judgement, mode, self.asks_model)) is not None:
                recorded: Any = found.answer
                store.use(found, judgement.at)
                if decides:
                    judgement.note(found)
                if mode == "replay":
                    budgets.count_replayed(found.usage)
                return cast("T", replace(recorded, details={"replayed": True, **found.details()}))
            if mode == "replay":
                miss = store.miss(judgement)
                raise Undecided(miss.message, hint=miss.hint, missed=True)
            answer = await ask()
            model, usage = str(answer.details.get("model") or ""), reported(answer.details.get("usage"))
            meta = store.meta(judgement.begun, usage, origin=answer.by, resolved=model)
            if decides:
                judgement.note()
            with self.cassettes.counting(str(answer.details.get("provider") or answer.by), model, usage):
                await store.add("judge" if decides else "phrase", judgement, _without_details(answer), meta)
            return answer


class RecordedJudge(_Recorded[Judge]):
    """A `Judge` port that wraps another one (live judge, then the person). In mode `replay`, a miss raises
    `Undecided`."""

    async def decide(self, request: JudgeRequest) -> Verdict:
        return await self._answer("decide", request, lambda: self.inner.decide(self._unrecorded(request)))

    def _unrecorded(self, request: JudgeRequest) -> JudgeRequest:
        """Return the request without further questions that are already recorded."""
        if not request.further or self.cassettes.mode(self.asker) in ("off", "record"):
            return request
        store = self.cassettes.store
        left = (one for one in request.further if store.judgement("decide", one).lookup() is None)
        return replace(request, further=tuple(left))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return await self._answer("choose", request, lambda: self.inner.choose(request, labels), labels)

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        return await self._answer("extract", request, lambda: self.inner.extract(request, value, path), (value,), path)

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        return await self._answer("items", request, lambda: self.inner.items(request, value), (value,))


class RecordedPhrases(_Recorded[Phrases]):
    """A `Phrases` port that wraps another one. A record changes only the text for the person: it takes part in no race,
    and a replay does not need it."""

    async def phrase(self, request: JudgeRequest) -> Finding:
        """Return the rephrased question. Raises `Undecided` if nothing is recorded and no model may be asked."""
        return await self._answer("phrase", request, lambda: self.inner.phrase(request))


def _without_details(answer: T) -> T:
    """Return an answer for the record: without volatile details, texts of values verbatim."""
    value: dict[str, Any] = {"value": verbatim(answer.value)} if isinstance(answer, Finding) else {}
    return replace(answer, details={}, **value)


@dataclass(eq=False)
class RecordedRaces:
    """The `Races` port: winners of `parallel ("first")` and `any`, replayed when they begin, recorded when they end."""

    cassettes: Cassettes
    _: KW_ONLY
    asker: Asker

    def recorded(self, at: str, text: str) -> tuple[int, ...] | None:
        """Return the recorded order; None if recordings are not used, or the race has no record."""
        if self.cassettes.mode(self.asker) in ("off", "record"):
            return None
        store = self.cassettes.store
        found = store.race(text, at).lookup()
        if found is None:
            return None
        order: Any = found.answer
        store.use(found, at)
        return cast("tuple[int, ...]", order.ended)

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        """Record how the race ended, if sessions or judgements took part in it and nothing is recorded for it."""
        mode = self.cassettes.mode(self.asker)
        if mode not in ("auto", "record") or at not in self.cassettes.store.races_with_requests:
            return
        from prose_kernel.cassettes.records import Order

        store = self.cassettes.store
        race = store.race(text, at)
        if mode == "record" or race.lookup() is None:
            await store.add("race", race, Order(branches), store.meta())
