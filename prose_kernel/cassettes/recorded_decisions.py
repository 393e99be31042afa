"""Judgements and races with a recording in front of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from prose_kernel.cassettes.library import Cassettes
from prose_kernel.errors import Undecided
from prose_kernel.runtime import asides, budgets
from prose_kernel.runtime.content import quoted
from prose_kernel.runtime.ports import Finding, Judge, JudgeRequest, Phrases, Pick, Usage, Verdict
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.text import one_line

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_files import Entry
    from prose_kernel.cassettes.cassette_store import CassetteStore
    from prose_kernel.cassettes.matching import How, Take
    from prose_kernel.cassettes.records import Judgement, Meta

T = TypeVar("T", Verdict, Pick, Finding)


class RecordedJudge:
    """The `Judge` port over another one (live judge, then the person). A miss in mode `replay` is `Undecided`."""

    def __init__(self, inner: Judge, cassettes: Cassettes, *, asker: Asker) -> None:
        self._inner = inner
        self._cassettes = cassettes
        self._recorded = _Recorded(cassettes, asker)
        self._asker = asker

    async def decide(self, request: JudgeRequest) -> Verdict:
        def again(said: Judgement, by: str, details: dict[str, object]) -> Verdict:
            answer = said.answer if isinstance(said.answer, bool) else None
            return Verdict(answer, by, said.reason, said.no_progress, details)

        def kept(verdict: Verdict) -> dict[str, object]:
            return {"answer": verdict.answer, "no_progress": verdict.no_progress}

        return await self._recorded.answer(
            _Question("decide", request, f"the condition {quoted(request)}"),
            lambda: self._inner.decide(self._unrecorded(request)),
            kept,
            again,
        )

    def _unrecorded(self, request: JudgeRequest) -> JudgeRequest:
        """The request without those of its further questions that are recorded."""
        mode = self._cassettes.mode(self._asker)
        if not request.further or mode in ("off", "record"):
            return request
        from prose_kernel.cassettes.keys import key_of

        shelf = self._cassettes.shelf
        asked = [(one, shelf.identity.judgement("decide", one)) for one in request.further]
        left = (one for one, req in asked if _found(shelf, key_of(req), req, one) is None)
        return structs.replace(request, further=tuple(left))

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        def again(said: Judgement, by: str, details: dict[str, object]) -> Pick:
            return Pick(str(said.answer), by, said.reason, details)

        return await self._recorded.answer(
            _Question("choose", request, f"the choice {quoted(request)}", options=labels),
            lambda: self._inner.choose(request, labels),
            lambda pick: {"answer": pick.label},
            again,
        )

    async def extract(self, request: JudgeRequest, value: str, path: str) -> Finding:
        question = _Question("extract", request, f"what `{one_line(path)}` is in a text", value=value, path=path)
        return await self._recorded.answer(question, lambda: self._inner.extract(request, value, path), _kept, _finding)

    async def items(self, request: JudgeRequest, value: str) -> Finding:
        question = _Question("items", request, "which items a text holds", value=value)
        return await self._recorded.answer(question, lambda: self._inner.items(request, value), _kept, _finding)


class RecordedPhrases:
    """The `Phrases` port over another one. A record changes what a person reads and nothing else: it takes part in no
    race, and a replay does without it."""

    def __init__(self, inner: Phrases, cassettes: Cassettes, *, asker: Asker) -> None:
        self._inner = inner
        self._recorded = _Recorded(cassettes, asker)

    async def phrase(self, request: JudgeRequest) -> Finding:
        """Raises `Undecided` where nothing is recorded and no model may be asked."""
        question = _Question("phrase", request, f"the words of {quoted(request)}")
        return await self._recorded.answer(question, lambda: self._inner.phrase(request), _kept, _finding)


class _Recorded:
    """Answers from the recordings, and what is recorded when there is none."""

    def __init__(self, cassettes: Cassettes, asker: Asker) -> None:
        self._cassettes = cassettes
        self._asker = asker

    async def answer(
        self,
        question: _Question,
        ask: Callable[[], Awaitable[T]],
        kept: Callable[[T], dict[str, object]],
        again: Callable[[Judgement, str, dict[str, object]], T],
    ) -> T:
        """The recorded answer, else the one that `ask` gives, which is then recorded. Raises `Undecided`."""
        mode = self._cassettes.mode(self._asker)
        if mode == "off":
            return await ask()
        from prose_kernel.cassettes.keys import key_of
        from prose_kernel.cassettes.records import usage_facts, usage_of

        shelf, request = self._cassettes.shelf, question.request
        req = shelf.identity.judgement(
            question.kind, request, options=question.options, value=question.value, path=question.path
        )
        key = key_of(req)
        try:
            if mode != "record" and (found := _found(shelf, key, req, request)) is not None:
                take, how, entry = found
                said, meta = _read(entry)
                shelf.use(take, how, request.at, entry)
                if question.decides:
                    _note(entry.record.key, entry.record.at)
                if mode == "replay":
                    budgets.recorded(usage_of(entry.record))
                return again(said, meta.origin, _details(meta, entry.file))
            if mode == "replay":
                message, hint = shelf.miss(question.what, req, (key,), request.at, request.program)
                raise Undecided(message, hint=hint, missed=True)
            begun = shelf.clock.monotonic()
            answer = await ask()
            spent = round((shelf.clock.monotonic() - begun) * 1000)
            out = kept(answer) | {"reason": answer.reason}
            model = answer.details.get("model")
            told = answer.details.get("usage")
            usage = usage_facts(Usage(**told)) if isinstance(told, dict) else {}
            meta = shelf.meta(origin=answer.by, resolved=str(model) if model else "", usage=usage, ms=max(0, spent))
            if question.decides:
                _note(key, shelf.place(key, request.at))
            await shelf.add("judge" if question.decides else "phrase", request.at, req, out, meta)
            return answer
        finally:
            if question.decides:
                shelf.took_part(request.at)
            for warning in self._cassettes.take_warnings():
                self._asker.show(f"Warning: {warning}")


class _Question:
    """What is put to a judge, and what it is called in a message."""

    __slots__ = ("kind", "options", "path", "request", "value", "what")

    def __init__(
        self,
        kind: str,
        request: JudgeRequest,
        what: str,
        *,
        options: tuple[str, ...] = (),
        value: str = "",
        path: str = "",
    ) -> None:
        self.kind = kind
        self.request = request
        self.what = what
        self.options = options
        self.value = value
        self.path = path

    @property
    def decides(self) -> bool:
        """Whether the answer is one to the program."""
        return self.kind != "phrase"


def _kept(finding: Finding) -> dict[str, object]:
    from prose_kernel.runtime.values import verbatim

    return {"answer": verbatim(finding.value)}


def _finding(said: Judgement, by: str, details: dict[str, object]) -> Finding:
    return Finding(said.answer, by, said.reason, details)


def _note(key: str, recorded_at: str) -> None:
    """A run that is resumed has to know which record has answered, or was written."""
    aside = asides.current()
    if aside is not None:
        aside.notes["record"] = [key, recorded_at, 1]


def _found(
    shelf: CassetteStore, key: str, req: dict[str, Any], request: JudgeRequest
) -> tuple[Take, How, Entry] | None:
    """The record of a question, also as an earlier version keyed it."""
    found = shelf.lookup(key, request.at)
    if found is not None:
        return found
    from prose_kernel.cassettes.keys import key_of

    former = shelf.identity.former_judgement(req, request)
    return shelf.lookup(key_of(former), request.at) if former is not None else None


def _read(entry: Entry) -> tuple[Judgement, Meta]:
    from prose_kernel.cassettes import records

    return records.part(entry.record.out, records.Judgement), records.part(entry.record.meta, records.Meta)


def _details(meta: Meta, file: str) -> dict[str, object]:
    told = {"recorded": meta.recorded, "model": meta.resolved, "cassette": file}
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
        from prose_kernel.cassettes import records
        from prose_kernel.cassettes.keys import key_of

        shelf = self._cassettes.shelf
        found = shelf.lookup(key_of(shelf.identity.race(text)), at)
        if found is None:
            return None
        take, how, entry = found
        order = records.part(entry.record.out, records.Order).ended
        shelf.use(take, how, at, entry)
        return order

    async def ended(self, at: str, text: str, branches: tuple[int, ...]) -> None:
        """Write down how the race ended, if sessions or judgements took part in it and nothing is recorded for it."""
        mode = self._cassettes.mode(self._asker)
        if mode not in ("auto", "record"):
            return
        shelf = self._cassettes.shelf
        if not shelf.asked_in(at):
            return
        from prose_kernel.cassettes.keys import key_of

        req = shelf.identity.race(text)
        if mode == "auto" and shelf.lookup(key_of(req), at) is not None:
            return
        await shelf.add("race", at, req, {"ended": list(branches)}, shelf.meta())
