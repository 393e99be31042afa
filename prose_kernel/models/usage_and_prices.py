"""The usage of a run: sessions, judgements, tokens and cost for each provider and model; and the prices of models, from
the settings, else from the list in pydantic-ai (the extra `llm`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from decimal import Decimal
from operator import add, attrgetter
from typing import Any, Final, cast

from msgspec import Struct, structs

from prose_kernel.errors import Undecided
from prose_kernel.runtime import budgets, open_request, tracing
from prose_kernel.runtime.ports import (
    Finding,
    Judge,
    Judged,
    JudgeRequest,
    JudgeWrapper,
    Phrases,
    Pick,
    SessionProgress,
    SessionRequest,
    SessionResult,
    Sessions,
    Usage,
    Verdict,
    reported,
)
from prose_kernel.runtime.session_options import Price


class UsageLine(Struct, frozen=True):
    """The totals of one provider and model.

    `cost` is in US dollars, as far as known; `unpriced` counts answers without a known price, `uncounted` answers
    without reported tokens. A replayed answer costs nothing and is counted only in `replayed` (and as a session or
    judgement).
    """

    provider: str
    model: str
    sessions: int = 0
    judgements: int = 0
    replayed: int = 0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    unpriced: int = 0
    uncounted: int = 0
    tokens_cached: int = 0

    def __add__(self, more: UsageLine) -> UsageLine:
        return UsageLine(self.provider, self.model, *map(add, _numbers(self), _numbers(more)))


_numbers = attrgetter(*UsageLine.__struct_fields__[2:])


_listener: ContextVar[Callable[[str, str, Usage], None] | None] = ContextVar("prose_kernel_usage", default=None)


def consumed(provider: str, model: str, usage: Usage | None) -> None:
    """Report the usage of a failed or cancelled attempt. A result carries its own usage, but a cancellation cannot."""
    listener = _listener.get()
    if listener is not None and usage is not None and (usage.requests or usage.tokens_in or usage.tokens_out):
        listener(provider, model, usage)


def discarded(result: SessionResult) -> None:
    """Report the usage of a result that is not used: it was empty, unreadable, or could not be stored."""
    if not result.replayed:
        consumed(result.provider, str(result.details.get("model", "")), result.usage)


def _note(kind: str, provider: str, model: str, usage: Usage | None, replayed: bool) -> None:
    """Record for a resumed run the usage that `UsageTotals.add_noted` will count."""
    current = open_request.current()
    if current is not None:
        note = [kind, provider, model, usage_details(usage) if usage is not None else None, replayed]
        cast("list[object]", current.notes.setdefault("usage", [])).append(note)


class UsageTotals:
    """Counts results as they arrive, and the usage of attempts that failed or were cancelled."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], UsageLine] = {}

    @contextlib.contextmanager
    def listening(self, at: str = "") -> Iterator[None]:
        """Count everything `consumed` inside the block, in this task and the tasks it starts; observers of the run see
        it under the path `at`. Failed usage of earlier processes for the same request is counted as well."""
        token = _listener.set(self.consumed)
        tracing.belongs_to(at)
        try:
            yield
        finally:
            _listener.reset(token)
            steps = open_request.steps()
            for _, provider, model, usage, _ in steps.unused() if steps is not None else ():
                self.consumed(str(provider), str(model), reported(usage) or Usage())

    def session(self, result: SessionResult) -> None:
        provider, model = result.provider or result.origin, str(result.details.get("model", ""))
        self._count("session", provider, model, result.usage, result.replayed)

    def judgement(self, answer: Verdict | Pick | Finding) -> None:
        """Count a judgement; a judgement by a rule costs nothing and is not counted."""
        if answer.by in ("rules", "dry-run"):
            return
        details = answer.details
        provider, model = str(details.get("provider") or answer.by), str(details.get("model", ""))
        self._count("judgement", provider, model, reported(details.get("usage")), bool(details.get("replayed")))

    def consumed(self, provider: str, model: str, usage: Usage) -> None:
        """Count the usage of an attempt without a result."""
        self._count("", provider, model, usage, False)

    def add_noted(self, notes: Sequence[Sequence[Any]]) -> None:
        """Count the notes in the journal of a resumed run: they belong to the same run."""
        for kind, provider, model, usage, replayed in notes:
            if kind != "attempt":
                self._add(kind, provider, model, reported(usage), replayed)
            budgets.consumed(None, session=kind in ("session", "attempt"))

    def _count(self, kind: str, provider: str, model: str, usage: Usage | None, replayed: bool) -> None:
        self._add(kind, provider, model, usage, replayed)
        _note(kind, provider, model, usage, replayed)

    def _add(self, kind: str, provider: str, model: str, usage: Usage | None, replayed: bool) -> None:
        used = Usage(cost=0.0) if usage is None or replayed else usage
        more = UsageLine(
            provider,
            model,
            kind == "session",
            kind == "judgement",
            replayed,
            used.requests,
            used.tokens_in,
            used.tokens_out,
            cost=used.cost or 0.0,
            unpriced=used.cost is None,
            uncounted=not used.counted,
            tokens_cached=used.tokens_cached,
        )
        self._lines[provider, model] = self._lines.get((provider, model), UsageLine(provider, model)) + more
        if not replayed:
            budgets.consumed(usage, by=f"{provider} {model}".rstrip())

    @property
    def lines(self) -> tuple[UsageLine, ...]:
        """Return one line for each provider and model, by name."""
        return tuple(self._lines[key] for key in sorted(self._lines))

    @property
    def total(self) -> UsageLine:
        """Return the sum of all lines; its provider is `total`."""
        return sum(self.lines, UsageLine("total", ""))

    async def judged(self, at: str, answering: Awaitable[Judged]) -> Judged:
        """Await a judgement at the path `at`, and count it and its usage."""
        with self.listening(at):
            answer = await answering
        self.judgement(answer)
        return answer


def usage_details(usage: Usage) -> dict[str, object]:
    """Return a usage in the form of a judgement's details; `reported` reads it."""
    as_usual = {"counted": True, "tokens_cached": 0}
    return {name: value for name, value in structs.asdict(usage).items() if as_usual.get(name, ...) != value}


# ---------------------------------------------------------------- counting ports


class CountedSessions:
    """A `Sessions` port that wraps and counts another one."""

    def __init__(self, inner: Sessions, usage: UsageTotals) -> None:
        self._inner = inner
        self._usage = usage

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        async with budgets.limited(session=True):
            try:
                with self._usage.listening(request.at):
                    result = await self._inner.run(request, on_progress)
            except BaseException:
                if not budgets.is_unplaced():
                    _note("attempt", "", "", None, False)  # it has no result, but counts as a session
                raise
            self._usage.session(result)
        return result


class CountedJudge(JudgeWrapper):
    """A `Judge` port that wraps and counts another one."""

    def __init__(self, inner: Judge, usage: UsageTotals) -> None:
        self._inner = inner
        self._usage = usage

    async def ask(self, request: JudgeRequest, calling: Callable[[Judge], Awaitable[Judged]]) -> Judged:
        return await self._usage.judged(request.at, calling(self._inner))


class CountedPhrases:
    """A `Phrases` port that wraps and counts another one."""

    def __init__(self, inner: Phrases, usage: UsageTotals) -> None:
        self._inner = inner
        self._usage = usage

    async def phrase(self, request: JudgeRequest) -> Finding:
        return await self._usage.judged(request.at, self._inner.phrase(request))


class LimitedJudge(JudgeWrapper):
    """A `Judge` port that wraps a costly one and asks it only within the budgets. An answer that arrived together with
    the answer to an earlier question is already paid for, so it is given even if a budget is spent."""

    def __init__(self, inner: Judge) -> None:
        self._inner = inner
        self._kept: Callable[[JudgeRequest], Verdict | None] = getattr(inner, "kept", lambda request: None)

    async def decide(self, request: JudgeRequest) -> Verdict:
        return self._kept(request) or await super().decide(request)

    async def ask(self, request: JudgeRequest, calling: Callable[[Judge], Awaitable[Judged]]) -> Judged:
        async with budgets.limited(session=False):
            return await calling(self._inner)


PATIENCE: Final = 20.0
"""The number of seconds that a person waits for a rephrased question before the original text is shown."""


class LimitedPhrases:
    """The `Phrases` port of the model or agent that `live` returns, asked only within the budgets and `PATIENCE`.

    `live` is called for each question; None if there is no model or agent.
    """

    def __init__(self, live: Callable[[], Phrases | None]) -> None:
        self._live = live

    async def phrase(self, request: JudgeRequest) -> Finding:
        live = self._live()
        if live is None or budgets.is_spent():
            raise Undecided("no model puts the question into words")
        with budgets.not_waiting_for_person():
            async with asyncio.timeout(PATIENCE), budgets.limited(session=False):
                return await live.phrase(request)


# ---------------------------------------------------------------- prices

_FRAME = 200
"""The number of tokens around a message: roles, separators."""

_MILLION = 1_000_000


def affordable(provider: str, model: str, asked: int, dollars: float, price: Price | None = None) -> int | None:
    """Return how many tokens an answer may have for `dollars` (US) and `asked` tokens of input; None if the price is
    unknown. 0 if the input already costs more."""
    million = cost_of(provider, model, 0, _MILLION, price)
    if not million:
        return None
    rest = dollars - float(cost_of(provider, model, asked, 0, price) or 0)
    return max(int(rest / float(million) * _MILLION), 0)


def cost_of(provider: str, model: str, tokens_in: int, tokens_out: int, price: Price | None = None) -> Decimal | None:
    """Return the US dollars for these tokens; None if neither the settings nor the price list has the model."""
    if price is not None:
        return (Decimal(repr(price.input)) * tokens_in + Decimal(repr(price.output)) * tokens_out) / _MILLION
    try:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
        return calc_price(usage, model, provider_id=provider).total_price
    except (ImportError, LookupError):
        return None


def has_price(provider: str, model: str, price: Price | None = None) -> bool:
    """Return whether the model has a price, in the settings or in the list."""
    return cost_of(provider, model, 1, 1, price) is not None


def highest_cost(provider: str, model: str, sent: int, answer: int | None, price: Price | None = None) -> float | None:
    """Return the US dollars for `sent` bytes of input and an answer of at most `answer` tokens, or as long as the
    model's window allows. None if the price is unknown, or without a limit the window."""
    if answer is None:
        answer = _window(provider, model)
    found = cost_of(provider, model, sent + _FRAME, answer, price) if answer is not None else None
    return float(found) if found is not None else None


def _window(provider: str, model: str) -> int | None:
    try:
        from genai_prices import Usage, calc_price

        return calc_price(Usage(), model, provider_id=provider).model.context_window
    except (ImportError, LookupError):
        return None
