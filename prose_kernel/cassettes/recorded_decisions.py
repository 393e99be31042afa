"""Judgements and races with a recording in front of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from msgspec import structs

from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import Undecided
from prose_kernel.runtime import budgets
from prose_kernel.runtime.content import quoted
from prose_kernel.runtime.ports import Finding, Judge, JudgeRequest, Phrases, Pick, Usage, Verdict
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.text import one_line

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_store import CassetteStore
    from prose_kernel.cassettes.matching import Found
    from prose_kernel.cassettes.recorded_requests import RecordedRequest

T = TypeVar("T", Verdict, Pick, Finding)
P = TypeVar("P")


class _Question(NamedTuple):
    """What is put to a judge, and what it is called in a message. `also` are the labels, or the text to read."""

    kind: str
    request: JudgeRequest
    what: str
    also: tuple[str, ...] = ()
    path: str = ""

    @property
    def decides(self) -> bool:
        """Whether the answer is one to the program."""
        return self.kind != "phrase"

    def of(self, shelf: CassetteStore) -> RecordedRequest:
        """The question with its recordings."""
        from prose_kernel.cassettes.recorded_requests import RecordedRequest

        req = shelf.identity.judgement(self.kind, self.request, self.also, self.path)
        return RecordedRequest(shelf, req, self.request.at, self.what, self.request.program)


class _Recorded(Generic[P]):
    """A port with recordings in front of it."""

    def __init__(self, inner: P, cassettes: Cassettes, *, asker: Asker) -> None:
        self._inner = inner
        self._cassettes = cassettes
        self._asker = asker

    async def _answer(self, question: _Question, ask: Callable[[], Awaitable[T]]) -> T:
        """The recorded answer, else the one that `ask` gives, which is then recorded. Raises `Undecided`."""
        mode = self._cassettes.mode(self._asker)
        if mode == "off":
            return await ask()
        with self._cassettes.answering(question.request.at if question.decides else "", self._asker) as shelf:
            judgement = question.of(shelf)
            if mode != "record" and (found := judgement.lookup()) is not None:
                said: Any = found.answer
                shelf.use(found, judgement.at)
                if question.decides:
                    judgement.note(found)
                if mode == "replay":
                    budgets.recorded(found.usage)
                return cast("T", structs.replace(said, details=_details(found)))
            if mode == "replay":
                message, hint = judgement.miss()
                raise Undecided(message, hint=hint, missed=True)
            begun = shelf.clock.monotonic()
            answer = await ask()
            details = answer.details
            model, told = str(details.get("model") or ""), details.get("usage")
            usage = Usage(**told) if isinstance(told, dict) else None
            meta = shelf.meta(begun, usage, origin=answer.by, resolved=model)
            if question.decides:
                judgement.note()
            await shelf.add(judgement.new("judge" if question.decides else "phrase", _kept(answer), meta))
            return answer


class RecordedJudge(_Recorded[Judge]):
    """The `Judge` port over another one (live judge, then the person). A miss in mode `replay` is `Undecided`."""

    async def decide(self, request: JudgeRequest) -> Verdict:
        question = _Question("decide", request, f"the condition {quoted(request)}")
        return await self._answer(question, lambda: self._inner.decide(self._unrecorded(request)))

    def _unrecorded(self, request: JudgeRequest) -> JudgeRequest:
        """The request without those of its further questions that are recorded."""
        if not request.further or self._cassettes.mode(self._asker) in ("off", "record"):
            return request
        shelf = self._cassettes.shelf
        left = (one for one in request.further if _Question("decide", one, "").of(shelf).lookup() is None)
        return structs.replace(request, further=tuple(left))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        question = _Question("choose", request, f"the choice {quoted(request)}", labels)
        return await self._answer(question, lambda: self._inner.choose(request, labels))

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        question = _Question("extract", request, f"what `{one_line(path)}` is in a text", (value,), path)
        return await self._answer(question, lambda: self._inner.extract(request, value, path))

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        question = _Question("items", request, "which items a text holds", (value,))
        return await self._answer(question, lambda: self._inner.items(request, value))


class RecordedPhrases(_Recorded[Phrases]):
    """The `Phrases` port over another one. A record changes what a person reads and nothing else: it takes part in no
    race, and a replay does without it."""

    async def phrase(self, request: JudgeRequest) -> Finding:
        """Raises `Undecided` where nothing is recorded and no model may be asked."""
        question = _Question("phrase", request, f"the words of {quoted(request)}")
        return await self._answer(question, lambda: self._inner.phrase(request))


def _kept(answer: T) -> T:
    """An answer as it is recorded: without volatile details, texts of values verbatim."""
    from prose_kernel.runtime.values import verbatim

    if isinstance(answer, Finding):
        return structs.replace(answer, value=verbatim(answer.value), details={})
    return structs.replace(answer, details={})


def _details(found: Found) -> dict[str, object]:
    told = {"recorded": found.meta.recorded, "model": found.meta.resolved, "cassette": found.entry.file}
    return {"replayed": True, **{name: value for name, value in told.items() if value}}


# ---------------------------------------------------------------- races


class RecordedRaces:
    """The `Races` port: winners of `parallel ("first")` and `any`, replayed when they begin, recorded when they end."""

    def __init__(self, cassettes: Cassettes, *, asker: Asker) -> None:
        self._cassettes = cassettes
        self._asker = asker

    def recorded(self, at: str, text: str) -> tuple[int, ...] | None:
        """The recorded order, where recordings answer at all. A race without sessions has none."""
        if self._cassettes.mode(self._asker) in ("off", "record"):
            return None
        shelf = self._cassettes.shelf
        found = shelf.race(text, at).lookup()
        if found is None:
            return None
        order: Any = found.answer
        shelf.use(found, at)
        return cast("tuple[int, ...]", order.ended)

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        """Write down how the race ended, if sessions or judgements took part in it and nothing is recorded for it."""
        mode = self._cassettes.mode(self._asker)
        if mode not in ("auto", "record"):
            return
        shelf = self._cassettes.shelf
        if at not in shelf.asked_in:
            return
        from prose_kernel.cassettes.records import Order

        race = shelf.race(text, at)
        if mode == "record" or race.lookup() is None:
            await shelf.add(race.new("race", Order(branches), shelf.meta()))
