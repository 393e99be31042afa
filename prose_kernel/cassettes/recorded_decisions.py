"""Judgements and races that are answered from recordings first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar, cast

from msgspec import structs

from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import Undecided
from prose_kernel.runtime import budgets
from prose_kernel.runtime.ports import Finding, Judge, JudgeRequest, Phrases, Pick, Verdict, reported
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.values import verbatim

T = TypeVar("T", Verdict, Pick, Finding)
P = TypeVar("P")


@dataclass(eq=False)
class _Recorded(Generic[P]):
    """A port that looks for a recorded answer before it calls `inner`."""

    inner: P
    cassettes: Cassettes
    _: KW_ONLY
    asker: Asker

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
            if mode != "record" and (found := judgement.lookup()) is not None:
                recorded: Any = found.answer
                store.use(found, judgement.at)
                if decides:
                    judgement.note(found)
                if mode == "replay":
                    budgets.count_replayed(found.usage)
                return cast("T", structs.replace(recorded, details={"replayed": True, **found.details()}))
            if mode == "replay":
                miss = store.miss(judgement)
                raise Undecided(miss.message, hint=miss.hint, missed=True)
            answer = await ask()
            model, usage = str(answer.details.get("model") or ""), reported(answer.details.get("usage"))
            meta = store.meta(judgement.begun, usage, origin=answer.by, resolved=model)
            if decides:
                judgement.note()
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
        return structs.replace(request, further=tuple(left))

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
    if isinstance(answer, Finding):
        return structs.replace(answer, value=verbatim(answer.value), details={})
    return structs.replace(answer, details={})


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
