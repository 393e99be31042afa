"""Budgets: what sessions and judgements may consume in a run, a block, an agent's sessions, or one session.

A budget has limits of money, tokens, time and sessions (docs/how-to/budgets.md). All that are active at a request
count what it consumes, also when it fails or is cancelled. A request under a spent budget is refused (E221), and one
that runs is ended when its money, tokens or time are spent meanwhile. Sessions are counted when they get their place
(`placed`); before each request to a model a branch reserves what that is likely to consume (`reserve`), and waits while
others hold too much, so a budget is exceeded by about one request.

The budgets of a request are found through the context of the running task, like the open request: nothing has to carry
them through the ports. The journal records the consumption with each answer, so a resumed run counts it again. It also
records that a budget was spent, like any other answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from msgspec import structs

from prose_kernel.errors import BudgetSpent
from prose_kernel.language.budget_values import Limits
from prose_kernel.language.source import Span
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import Clock, Usage

Counted = Literal["usd", "tokens"]
_COUNTED: Final[tuple[Counted, ...]] = ("usd", "tokens")

_OF_THE_RUN: Final = (
    "continue it with a higher one: `prose run --resume --budget LIMITS`, in a notebook `%budget LIMITS`"
)

RUN: Final = "run"
"""The key of the budget of the whole run."""

MOST_CAUGHT: Final = 1000
"""How often a program may catch that a budget is spent: a loop that keeps asking has to end."""

NOTICE: Final = 0.8
"""The share of a budget at which its one notice is given."""

CLEAN_UP: Final = 10.0
"""Seconds for commands of `catch` and `finally` after a budget of time was spent, all of them together."""


class Spending(NamedTuple):
    """The facts about spending in a program's text: the models that its sessions use, each with the place of its name
    (None: the provider's default), and whether one of its own budgets limits money."""

    models: tuple[tuple[str | None, Span | None], ...]
    money: bool


# ---------------------------------------------------------------- counting


@dataclass(slots=True)
class Spent:
    """The consumption. `unpriced` counts answers of unknown price, `requests` counts requests to models."""

    usd: float = 0.0
    tokens: int = 0
    sessions: int = 0
    unpriced: int = 0
    requests: int = 0

    def __str__(self) -> str:
        parts = [f"{self.sessions:,} session{'s' * (self.sessions != 1)}"] if self.sessions else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        parts += [f"{self.usd:.4f} usd"] if self.usd else []
        return ", ".join(parts) or "nothing"


@dataclass(slots=True, eq=False)
class Budget:
    """Limits, and what was consumed under them. `key` is unique in the run, `title` is for people.

    Time passes while it is `open`: while a text of the run, a call of the block, or a session is running. It is paused
    while the run waits only for a person (an input, a gate).
    """

    key: str
    title: str
    limits: Limits
    clock: Clock
    spent: Spent = field(default_factory=Spent)
    where: dict[str, Spent] = field(default_factory=dict)
    _noticed: bool = False
    _unknown: str | None = ""
    _passed: float = 0.0
    _since: float = 0.0
    _open: int = 0
    _persons: int = 0
    _others: int = 0
    _waiting: dict[Request, None] = field(default_factory=dict)
    _placed: dict[Request, None] = field(default_factory=dict)
    _queue: list[asyncio.Future[None]] = field(default_factory=list)
    _refused: bool = False
    was_spent: bool = False
    """Whether it was spent when the answers that are replayed were recorded."""

    @contextmanager
    def open(self) -> Iterator[Budget]:
        """While time passes for this budget."""
        self._tick()
        self._open += 1
        try:
            yield self
        finally:
            self._tick()
            self._open -= 1

    @contextmanager
    def asks(self, *, person: bool) -> Iterator[None]:
        """While something outside is waited for: a person, or anything else."""
        self._tick()
        self._persons, self._others = self._persons + person, self._others + (not person)
        try:
            yield
        finally:
            self._tick()
            self._persons, self._others = self._persons - person, self._others - (not person)

    def _tick(self) -> None:
        self._passed, self._since = self.seconds, self.clock.monotonic()

    @property
    def seconds(self) -> float:
        """How much time has passed."""
        passes = self._open and (self._others or not self._persons)
        return self._passed + (self.clock.monotonic() - self._since if passes else 0.0)

    @property
    def share(self) -> float:
        """How much of the limit that is nearest to its end was consumed: 1 is all."""
        limits = self.limits
        pairs = (
            (self._used("usd"), limits.usd),
            (self._used("tokens"), limits.tokens),
            (self.seconds, limits.seconds),
            (self.spent.sessions, limits.sessions),
        )
        return max((1.0 if self.was_spent else 0.0, *(used / limit for used, limit in pairs if limit is not None)))

    @property
    def over(self) -> bool:
        """Whether what runs has to end: the last session that is allowed may."""
        return self.was_spent or 0 in (self.left("usd"), self.left("tokens"), self.time_left)

    def left(self, what: Counted) -> float | None:
        """How much may still be consumed; None without such a limit."""
        limit: float | None = getattr(self.limits, what)
        return None if limit is None else max(limit - self._used(what), 0)

    def _used(self, what: Counted) -> float:
        """Return the consumption, including the known part of running requests."""
        return float(getattr(self.spent, what) + sum(getattr(one.so_far, what) for one in self._waiting))

    @property
    def time_left(self) -> float | None:
        """Seconds; None without such a limit."""
        return None if self.limits.seconds is None else max(0.0, self.limits.seconds - self.seconds)

    @property
    def time_to_clean_up(self) -> float:
        """Seconds that a command which begins now may take, under a limit of time. After E221 `catch` and `finally` get
        `CLEAN_UP`."""
        return max(0.0, (self.limits.seconds or 0.0) + (CLEAN_UP if self._refused else 0.0) - self.seconds)

    def mean(self, what: Counted) -> float | None:
        """Return the average consumption of a request to a model; None before the first."""
        return getattr(self.spent, what) / self.spent.requests if self.spent.requests else None

    def has_room(self, request: Request, needs: Spent | None) -> bool:
        """Whether a request that is likely to consume `needs` may begin. The only running request always may, so only
        one request can exceed the budget. `needs` None: not known."""
        held = [(one.held, one.so_far) for one in self._waiting if one is not request and one.held is not None]
        for what in _COUNTED if held else ():
            left = self.left(what)
            if left is not None:
                reserved = sum(max(0, getattr(kept, what) - getattr(used, what)) for kept, used in held)
                if needs is None or left - reserved < getattr(needs, what):
                    return False
        return True

    def changed(self) -> None:
        """Those who wait for room, or for the end of others, look again in their order."""
        for turn in self._queue:
            if not turn.done():
                turn.set_result(None)

    def begins(self, asked: Request) -> None:
        """Count a session as running until the program has its answer (`ends`)."""
        self._placed[asked] = None

    def ends(self, asked: Request) -> None:
        if self._placed.pop(asked, self) is None:
            self.changed()

    async def quiet(self, but: Request) -> None:
        """Wait until no other session is running."""
        await _until(lambda: not (self._placed.keys() - {but}), (self,))

    def count(self, place: str, usage: Usage | None, *, session: bool = False, by: str = "") -> None:
        """Count a session that begins, or what one has consumed; `by` says who has answered."""
        unpriced = usage is not None and usage.cost is None and bool(usage.requests)
        if unpriced and self.limits.usd is not None and self._unknown == "":
            self._unknown = by or "who answers"
        for spent in (self.spent, self.where.setdefault(place, Spent())):
            spent.sessions += session
            if usage is not None:
                spent.tokens += usage.tokens_in + usage.tokens_out
                spent.usd += usage.cost or 0.0
                spent.unpriced += unpriced
                spent.requests += max(usage.requests, 1)

    def begin_again(self, limits: Limits) -> None:
        """Other limits; what was consumed stays."""
        self.limits, self._noticed, self._unknown, self._refused = limits, False, "", False
        self.was_spent = False

    def notices(self) -> Iterator[tuple[str, str]]:
        """The warnings that are due, code and text; each comes once."""
        if self._unknown:
            notice = f"what {self._unknown} costs is not known: the budget of {self.title} does not count that money"
            yield "W222", f"{notice} ({self.limits.text})"
            self._unknown = None
        if not self._noticed and self.share >= NOTICE:
            self._noticed = True
            yield "W221", f"80 % of the budget of {self.title} is spent ({self.limits.text})"

    def end_others(self, last: Request) -> None:
        """If this budget is spent, end all its running requests except `last`, which has finished already."""
        for request in tuple(self._waiting) if self.over else ():
            if request is not last:
                request.expire(self)

    @contextmanager
    def waits_for(self, request: Request) -> Iterator[None]:
        """Register a request as running inside the block."""
        self._waiting[request] = None
        try:
            yield
        finally:
            del self._waiting[request]
            self.changed()

    def error(self) -> BudgetSpent:
        """Return the error E221: the limits, the consumption, and its largest part."""
        self._refused = True
        most = max(self.where.items(), key=lambda item: (item[1].usd, item[1].tokens, item[1].sessions), default=None)
        where = f", most of it at {most[0]} ({most[1]})" if most is not None and len(self.where) > 1 else ""
        where = where or (f", all of it at {most[0]}" if most is not None else "")
        spent = f": {self.spent}{where}" if self.where else ""
        return BudgetSpent(
            f"the budget of {self.title} is spent ({self.limits.text}){spent}",
            details={"kind": "budget", "budget": self.title},
            hint=_OF_THE_RUN if self.key == RUN else None,
            budget=self.key,
        )


@dataclass(slots=True, eq=False)
class Request:
    """A request while it is asked: the budgets that it counts for, and what to call its place. `so_far` is what it has
    consumed, as far as its provider reports it before the end; `ended_by` the budget that has ended it. `held` is what
    its current request to a model is likely to consume; None while it makes none. `asked` is what the program has
    asked, which ends when the program has the answer. `counted` is what its failed attempts have consumed."""

    budgets: tuple[Budget, ...]
    place: Callable[[], str]
    deadline: asyncio.Timeout | None = None
    so_far: Spent = field(default_factory=Spent)
    ended_by: Budget | None = None
    held: Spent | None = None
    asked: Request | None = None
    session: bool = False
    counted: Spent = field(default_factory=Spent)
    error: BudgetSpent | None = None

    def report(self, usage: Usage) -> None:
        """Its provider says what it has consumed by now. It is ended, and others are, when that is too much."""
        self.so_far = Spent(usage.cost or 0.0, usage.tokens_in + usage.tokens_out)
        for budget in self.budgets:
            if budget.over:
                self.expire(budget)
                budget.end_others(self)

    def expire(self, budget: Budget) -> None:
        """End it because this budget is spent; nothing happens when it has come to its end."""
        if self.deadline is not None and self.ended_by is None:
            self.ended_by = budget
            self.deadline.reschedule(asyncio.get_running_loop().time())

    def ended(self) -> BudgetSpent | None:
        """The error of the budget that has ended it, always the same one; None where none has."""
        if self.error is None and self.ended_by is not None:
            self.error = self.ended_by.error()
        return self.error

    async def refuse(self) -> None:
        """Raise `BudgetSpent` if a budget is spent. A budget of sessions raises it when the running sessions have
        ended."""
        for budget in self.budgets:
            if budget.share >= 1:
                if not budget.over and self.asked is not None:
                    await budget.quiet(self.asked)
                raise budget.error()

    def mean(self, what: Counted) -> float | None:
        """Return the average consumption of a request, from the first of the budgets that had one."""
        return next((mean for budget in self.budgets if (mean := budget.mean(what)) is not None), None)


_request: ContextVar[Request | None] = ContextVar("prose_kernel_budgets", default=None)


@contextmanager
def counting(budgets: tuple[Budget, ...], place: Callable[[], str]) -> Iterator[None]:
    """A context whose requests, in this task and those that it starts, count for these budgets."""
    outer, request = _request.get(), Request(budgets, place)
    _request.set(request)
    try:
        yield
    finally:
        _request.set(outer)
        for budget in budgets:
            budget.ends(request)


def consumed(usage: Usage | None, *, session: bool = False, by: str = "") -> None:
    """Count what was consumed, or that a session has begun, for the budgets of the request that is asked."""
    request = _request.get()
    if request is None or (usage is None and not session):
        return
    place = request.place()
    request.so_far = Spent()
    if usage is not None:
        request.counted.tokens += usage.tokens_in + usage.tokens_out
        request.counted.usd += usage.cost or 0.0
    for budget in request.budgets:
        budget.count(place, usage, session=session, by=by)
        budget.end_others(request)


def recorded(usage: Usage) -> None:
    """Count what an answer consumed when it was recorded: for a replay without live requests, so that a budget ends the
    program at the same place. `again` does the same in a run that is resumed."""
    consumed(usage)
    current = open_request.current()
    if current is not None:
        current.notes["recorded"] = structs.asdict(usage)


def recorded_end(key: str, message: str, used: Usage) -> BudgetSpent | None:
    """The error of a budget that has ended this request when it was recorded: what it had consumed then is counted.
    None where that budget is not spent now."""
    request = _request.get()
    budget = next((one for one in request.budgets if one.key == key), None) if request is not None else None
    if budget is None:
        return None
    recorded(used)
    if f"({budget.limits.text})" in message:  # others were under way then, and had spent the rest
        budget.was_spent = True
    if not budget.over:
        return None
    error = budget.error()
    error.message, error.args = message, (message,)
    return error


def again(notes: Mapping[str, Any]) -> None:
    """Count the consumption noted with an answer of an earlier process of the run."""
    if "recorded" in notes:
        consumed(Usage(**notes["recorded"]))


def current() -> Request | None:
    """The request that is asked; None where no budget counts."""
    return _request.get()


def is_spent() -> bool:
    """Whether a budget of the request that is asked is spent, so that it would be refused."""
    request = _request.get()
    return request is not None and any(budget.share >= 1 for budget in request.budgets)


@contextmanager
def not_for_the_person() -> Iterator[None]:
    """While a question to the person waits for something else: time passes for its budgets."""
    request = _request.get()
    with ExitStack() as times:
        for budget in request.budgets if request is not None else ():
            times.enter_context(budget.asks(person=False))
        yield


@asynccontextmanager
async def limited(*, session: bool) -> AsyncIterator[None]:
    """Ask the outside inside the block, as far as the budgets allow: it is refused, or ended, with `BudgetSpent`.

    A session is counted where its provider calls `placed`, at the latest when it has answered.
    """
    request = _request.get()
    if request is None:
        yield
        return
    inner = Request(request.budgets, request.place, asked=request, session=session)
    with ExitStack() as waiting:
        for budget in inner.budgets:
            waiting.enter_context(budget.waits_for(inner))
        async with _ending(inner, [(budget.time_left, budget) for budget in inner.budgets]):
            await inner.refuse()
            yield
            _count_session(inner)


@asynccontextmanager
async def timed() -> AsyncIterator[None]:
    """Run a command inside the block: a budget of time ends it, with `BudgetSpent`. Other limits do not apply."""
    request = _request.get()
    if request is None:
        yield
        return
    times: list[tuple[float | None, Budget]] = []
    for budget in request.budgets:
        if budget.limits.seconds is not None:
            if (seconds := budget.time_to_clean_up) <= 0:
                raise budget.error()
            times.append((seconds, budget))
    async with _ending(Request(request.budgets, request.place, asked=request), times):
        yield


@asynccontextmanager
async def _ending(request: Request, times: Iterable[tuple[float | None, Budget]]) -> AsyncIterator[None]:
    """Make `request` the current request inside the block. It ends with `BudgetSpent` when a budget expires it, or
    after the given seconds."""
    outer = _request.get()
    try:
        async with asyncio.timeout(None) as request.deadline:
            timers = [
                asyncio.ensure_future(_ends(request, one, seconds)) for seconds, one in times if seconds is not None
            ]
            _request.set(request)
            try:
                yield
            finally:
                for timer in timers:
                    timer.cancel()
    except TimeoutError:
        if (error := request.ended()) is None:
            raise
        raise error from None
    finally:
        request.deadline = None  # a report that comes later is ignored
        _request.set(outer)


async def _ends(request: Request, budget: Budget, seconds: float) -> None:
    await budget.clock.sleep(seconds)
    request.expire(budget)


async def _until(ready: Callable[[], bool], budgets: Sequence[Budget]) -> None:
    """Wait until `ready`; asked again, in the order of those who wait, whenever something of these budgets ends."""
    while not ready():
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for budget in budgets:
            budget._queue.append(turn)
        try:
            await turn
        finally:
            for budget in budgets:
                budget._queue.remove(turn)


async def placed(*, reserves: bool = False) -> None:
    """The session that is asked gets its place: it is counted from here on. A provider whose sessions wait for places
    calls this when one has got its own; with `reserves` it calls `reserve` next, and under a budget of money or tokens
    the session is counted there. Raises `BudgetSpent`."""
    request = _request.get()
    if request is not None and request.session:
        await request.refuse()
        if not reserves or all(one.limits.usd is None and one.limits.tokens is None for one in request.budgets):
            _count_session(request)


def waits_for_its_place() -> bool:
    """Whether the session that is asked has not been counted."""
    request = _request.get()
    return request is not None and request.session


def _count_session(request: Request) -> None:
    if request.session:
        request.session = False
        for budget in request.budgets:
            budget.begins(request.asked or request)
        consumed(None, session=True)


async def reserve(needs: Spent | None = None) -> None:
    """Call before each request to a model: wait until the budgets have room for it in addition to the running requests,
    and reserve that room until the next call or the end. `needs` None: as much as a request has needed on average.

    A request that waits holds nothing, so two of them never wait for each other. Raises `BudgetSpent`.
    """
    request = _request.get()
    if request is None or request.deadline is None:
        return
    _release(request)
    if needs is None and (tokens := request.mean("tokens")) is not None:
        needs = Spent(request.mean("usd") or 0.0, int(tokens))
    await _until(lambda: all(budget.has_room(request, needs) for budget in request.budgets), request.budgets)
    for budget in request.budgets:
        if budget.over:
            raise budget.error()
    if request.session:
        await request.refuse()
        _count_session(request)
    request.held = needs or Spent()


def release(used: Usage) -> None:
    """The request to a model has ended, with so much for all requests of the session by now. What comes next, such as a
    call of a tool, holds no room. An answer that takes a budget to its end is used: only others are ended by it."""
    if (request := _request.get()) is not None:
        request.so_far = Spent(used.cost or 0.0, used.tokens_in + used.tokens_out)
        for budget in request.budgets:
            budget.end_others(request)
        _release(request)


def _release(request: Request) -> None:
    if request.held is not None:
        request.held = None
        for budget in request.budgets:
            budget.changed()


def nearest(what: Counted) -> tuple[float, Budget] | None:
    """How many tokens or US dollars the request that is asked may still consume, and the budget that says so; None
    without a limit."""
    request = _request.get()
    found = [(budget.left(what), budget) for budget in (request.budgets if request is not None else ())]
    known = [(left, budget) for left, budget in found if left is not None]
    return min(known, key=lambda one: one[0], default=None)


async def pause(clock: Clock, seconds: float) -> None:
    """Wait before something is asked again, but not for longer than the budgets last: then it is refused."""
    request = _request.get()
    for budget in request.budgets if request is not None else ():
        left = 0.0 if budget.share >= 1 else budget.time_left
        seconds = min(seconds, left if left is not None else seconds)
    await clock.sleep(seconds)
