"""Budgets: limits on the consumption of a run, a block, an agent's sessions, or one session.

A budget limits money, tokens, time and sessions (docs/how-to/budgets.md). All budgets that are active at a request
count its consumption, even if it fails or is cancelled. A request under a spent budget is refused (E221), and a running
one is ended when its money, tokens or time run out. Sessions are counted when they get a place at the provider
(`placed`). Before each request to a model a branch reserves its likely consumption (`reserve`), and waits while other
requests have reserved too much, so a budget is exceeded by about one request.

The budgets of a request are found through a context variable of the running task, like the open request: the ports do
not pass them along. The journal records the consumption with each answer, so a resumed run counts it again. It also
records that a budget was spent, like any other answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct, field, structs

from prose_kernel.errors import BudgetSpent
from prose_kernel.language.durations_and_budgets import Limits
from prose_kernel.language.source import Span
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import Clock, Usage

Counted = Literal["usd", "tokens"]
_COUNTED: Final[tuple[Counted, ...]] = ("usd", "tokens")

_RUN_HINT: Final = "continue it with a higher one: `prose run --resume --budget LIMITS`, in a notebook `%budget LIMITS`"

RUN: Final = "run"
"""The key of the budget of the whole run."""

MOST_CAUGHT: Final = 1000
"""How often a program may catch a spent budget: a loop that keeps asking has to end."""

NOTICE: Final = 0.8
"""The share of a budget at which a warning is given, once."""

CLEAN_UP: Final = 10.0
"""Seconds for all commands of `catch` and `finally` together, after a budget of time was spent."""


class Spending(NamedTuple):
    """Facts about a program text for its budgets: the `models` of its sessions, each with the place of its name (None:
    the provider's default), and whether one of its budgets limits `money`."""

    models: tuple[tuple[str | None, Span | None], ...]
    money: bool


# ---------------------------------------------------------------- counting


class Consumption(Struct):
    """A consumption. `unpriced` counts answers with an unknown price, `requests` counts requests to models."""

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


class Budget(Struct, eq=False):
    """Limits, and the consumption under them. `key` is unique in the run, `title` is its name in messages.

    Time passes while the budget is `open`: while a text of the run, a call of the block, or a session is running. It is
    paused while the run waits only for a person (an input, a gate).
    """

    key: str
    title: str
    limits: Limits
    clock: Clock
    spent: Consumption = field(default_factory=Consumption)
    where: dict[str, Consumption] = field(default_factory=dict)
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
    """Whether the budget was spent when the replayed answers were recorded."""

    @contextmanager
    def open(self) -> Iterator[Budget]:
        """Let time pass for this budget inside the block."""
        self._tick()
        self._open += 1
        try:
            yield self
        finally:
            self._tick()
            self._open -= 1

    @contextmanager
    def awaiting(self, *, person: bool) -> Iterator[None]:
        """Register inside the block that the run waits for an answer, from a person or from something else."""
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
        passes = self._open and (self._others or not self._persons)
        return self._passed + (self.clock.monotonic() - self._since if passes else 0.0)

    @property
    def share(self) -> float:
        """The consumed share of the limit that is closest to its end; 1 is all of it."""
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
        """Whether running requests have to end. A spent limit of sessions does not end the last one."""
        return self.was_spent or 0 in (self.left("usd"), self.left("tokens"), self.time_left)

    def left(self, what: Counted) -> float | None:
        """Return how much may still be consumed; None without such a limit."""
        limit: float | None = getattr(self.limits, what)
        return None if limit is None else max(limit - self._used(what), 0)

    def _used(self, what: Counted) -> float:
        """Return the consumption, including the known part of running requests."""
        return float(getattr(self.spent, what) + sum(getattr(one.so_far, what) for one in self._waiting))

    @property
    def time_left(self) -> float | None:
        """The seconds left; None without such a limit."""
        return None if self.limits.seconds is None else max(0.0, self.limits.seconds - self.seconds)

    @property
    def time_to_clean_up(self) -> float:
        """The seconds that a command started now may take under the limit of time. After E221, commands of `catch` and
        `finally` get `CLEAN_UP` seconds more."""
        return max(0.0, (self.limits.seconds or 0.0) + (CLEAN_UP if self._refused else 0.0) - self.seconds)

    def mean(self, what: Counted) -> float | None:
        """Return the average consumption of a request to a model; None before the first."""
        return getattr(self.spent, what) / self.spent.requests if self.spent.requests else None

    def has_room(self, request: Request, needs: Consumption | None) -> bool:
        """Return whether a request that is likely to consume `needs` may begin (None: not known). The only running
        request always may, so only one request can exceed the budget."""
        held = [(one.held, one.so_far) for one in self._waiting if one is not request and one.held is not None]
        for what in _COUNTED if held else ():
            left = self.left(what)
            if left is not None:
                reserved = sum(max(0, getattr(kept, what) - getattr(used, what)) for kept, used in held)
                if needs is None or left - reserved < getattr(needs, what):
                    return False
        return True

    def wake_waiting(self) -> None:
        """Wake the requests that wait for room or for the end of others, so that they check again, in their order."""
        for turn in self._queue:
            if not turn.done():
                turn.set_result(None)

    def session_begins(self, asked: Request) -> None:
        """Count a session as running until the program has its answer (`session_ends`)."""
        self._placed[asked] = None

    def session_ends(self, asked: Request) -> None:
        if self._placed.pop(asked, self) is None:
            self.wake_waiting()

    async def wait_for_others(self, but: Request) -> None:
        """Wait until no other session is running."""
        await _wait_until(lambda: not (self._placed.keys() - {but}), (self,))

    def count(self, place: str, usage: Usage | None, *, session: bool = False, by: str = "") -> None:
        """Count a session that begins, or the `usage` of an answer; `by` names what has answered."""
        unpriced = usage is not None and usage.cost is None and bool(usage.requests)
        if unpriced and self.limits.usd is not None and self._unknown == "":
            self._unknown = by or "who answers"
        for spent in (self.spent, self.where.setdefault(place, Consumption())):
            spent.sessions += session
            if usage is not None:
                spent.tokens += usage.tokens_in + usage.tokens_out
                spent.usd += usage.cost or 0.0
                spent.unpriced += unpriced
                spent.requests += max(usage.requests, 1)

    def replace_limits(self, limits: Limits) -> None:
        """Replace the limits, and keep the consumption."""
        self.limits, self._noticed, self._unknown, self._refused = limits, False, "", False
        self.was_spent = False

    def notices(self) -> Iterator[tuple[str, str]]:
        """Yield the code and text of each warning that is due; each is given once."""
        if self._unknown:
            notice = f"what {self._unknown} costs is not known: the budget of {self.title} does not count that money"
            yield "W222", f"{notice} ({self.limits.text})"
            self._unknown = None
        if not self._noticed and self.share >= NOTICE:
            self._noticed = True
            yield "W221", f"80 % of the budget of {self.title} is spent ({self.limits.text})"

    def end_others(self, last: Request) -> None:
        """If this budget is spent, end all its running requests except `last`, which has just finished."""
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
            self.wake_waiting()

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
            hint=_RUN_HINT if self.key == RUN else None,
            budget=self.key,
        )


class Request(Struct, eq=False):
    """A request that is being asked.

    - `budgets`: the budgets that it counts for; `place()` names its place in the program
    - `so_far`: its consumption, as far as the provider reports it before the end
    - `ended_by`: the budget that has ended it; `error`: the error of that budget
    - `held`: the reserved consumption of its current request to a model; None between such requests
    - `asked`: the enclosing request of the program, which ends when the program has the answer
    - `counted`: the consumption of its failed attempts
    """

    budgets: tuple[Budget, ...]
    place: Callable[[], str]
    deadline: asyncio.Timeout | None = None
    so_far: Consumption = field(default_factory=Consumption)
    ended_by: Budget | None = None
    held: Consumption | None = None
    asked: Request | None = None
    session: bool = False
    counted: Consumption = field(default_factory=Consumption)
    error: BudgetSpent | None = None

    def report(self, usage: Usage) -> None:
        """Set the consumption that the provider reports so far, and end this request and others that exceed a
        budget."""
        self.so_far = Consumption(usage.cost or 0.0, usage.tokens_in + usage.tokens_out)
        for budget in self.budgets:
            if budget.over:
                self.expire(budget)
                budget.end_others(self)

    def expire(self, budget: Budget) -> None:
        """End the request because this budget is spent. Does nothing if it has ended already."""
        if self.deadline is not None and self.ended_by is None:
            self.ended_by = budget
            self.deadline.reschedule(asyncio.get_running_loop().time())

    def ended(self) -> BudgetSpent | None:
        """Return the error of the budget that has ended it, the same object each time, or None."""
        if self.error is None and self.ended_by is not None:
            self.error = self.ended_by.error()
        return self.error

    async def refuse(self) -> None:
        """Raise `BudgetSpent` if a budget is spent. A budget of sessions raises it when the running sessions have
        ended."""
        for budget in self.budgets:
            if budget.share >= 1:
                if not budget.over and self.asked is not None:
                    await budget.wait_for_others(self.asked)
                raise budget.error()

    def mean(self, what: Counted) -> float | None:
        """Return the average consumption of a model request, from the first budget that has counted one."""
        return next((mean for budget in self.budgets if (mean := budget.mean(what)) is not None), None)


_request: ContextVar[Request | None] = ContextVar("prose_kernel_budgets", default=None)


@contextmanager
def counting(budgets: tuple[Budget, ...], place: Callable[[], str]) -> Iterator[None]:
    """Count the requests inside the block, made by this task and the tasks that it starts, for these budgets."""
    outer, request = _request.get(), Request(budgets, place)
    _request.set(request)
    try:
        yield
    finally:
        _request.set(outer)
        for budget in budgets:
            budget.session_ends(request)


def consumed(usage: Usage | None, *, session: bool = False, by: str = "") -> None:
    """Count a consumption, or the start of a session, for the budgets of the current request."""
    request = _request.get()
    if request is None or (usage is None and not session):
        return
    place = request.place()
    request.so_far = Consumption()
    if usage is not None:
        request.counted.tokens += usage.tokens_in + usage.tokens_out
        request.counted.usd += usage.cost or 0.0
    for budget in request.budgets:
        budget.count(place, usage, session=session, by=by)
        budget.end_others(request)


def count_replayed(usage: Usage) -> None:
    """Count the recorded consumption of an answer that is replayed without live requests, so that a budget ends the
    program at the same place. `count_noted` does the same in a resumed run."""
    consumed(usage)
    current = open_request.current()
    if current is not None:
        current.notes["recorded"] = structs.asdict(usage)


def replayed_end(key: str, message: str, used: Usage) -> BudgetSpent | None:
    """Count the recorded consumption of a request that a budget had ended, and return that budget's error; None if the
    budget is not spent now."""
    request = _request.get()
    budget = next((one for one in request.budgets if one.key == key), None) if request is not None else None
    if budget is None:
        return None
    count_replayed(used)
    if f"({budget.limits.text})" in message:  # requests running at that time had spent the rest
        budget.was_spent = True
    if not budget.over:
        return None
    error = budget.error()
    error.message, error.args = message, (message,)
    return error


def count_noted(notes: Mapping[str, Any]) -> None:
    """Count the consumption noted on an answer that an earlier process of the run got."""
    if "recorded" in notes:
        consumed(Usage(**notes["recorded"]))


def current() -> Request | None:
    """Return the current request; None if no budget counts."""
    return _request.get()


def is_spent() -> bool:
    """Return whether a budget of the current request is spent, so that the request would be refused."""
    request = _request.get()
    return request is not None and any(budget.share >= 1 for budget in request.budgets)


@contextmanager
def not_waiting_for_person() -> Iterator[None]:
    """Let time pass for budgets inside the block, where a question to the person waits for something else."""
    request = _request.get()
    with ExitStack() as times:
        for budget in request.budgets if request is not None else ():
            times.enter_context(budget.awaiting(person=False))
        yield


@asynccontextmanager
async def limited(*, session: bool) -> AsyncIterator[None]:
    """Ask the outside inside the block. Raises `BudgetSpent` if a budget refuses the request or ends it.

    A session is counted when its provider calls `placed`, at the latest when it has answered.
    """
    request = _request.get()
    if request is None:
        yield
        return
    inner = Request(request.budgets, request.place, asked=request, session=session)
    with ExitStack() as waiting:
        for budget in inner.budgets:
            waiting.enter_context(budget.waits_for(inner))
        async with _expiring(inner, [(budget.time_left, budget) for budget in inner.budgets]):
            await inner.refuse()
            yield
            _count_session(inner)


@asynccontextmanager
async def timed() -> AsyncIterator[None]:
    """Run a command inside the block. Raises `BudgetSpent` if a budget of time ends it; other limits do not apply."""
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
    async with _expiring(Request(request.budgets, request.place, asked=request), times):
        yield


@asynccontextmanager
async def _expiring(request: Request, times: Iterable[tuple[float | None, Budget]]) -> AsyncIterator[None]:
    """Make `request` the current request inside the block. It ends with `BudgetSpent` when a budget expires it, or
    after the given seconds."""
    outer = _request.get()
    try:
        async with asyncio.timeout(None) as request.deadline:
            timers = [
                asyncio.ensure_future(_expire(request, one, seconds)) for seconds, one in times if seconds is not None
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


async def _expire(request: Request, budget: Budget, seconds: float) -> None:
    await budget.clock.sleep(seconds)
    request.expire(budget)


async def _wait_until(ready: Callable[[], bool], budgets: Sequence[Budget]) -> None:
    """Wait until `ready()`. It is called again, in the order of the waiting requests, when something in `budgets`
    ends."""
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
    """Count the current session, which has got its place. A provider with a limited number of places calls this when a
    session gets one. With `reserves` the provider calls `reserve` next, and a session under a budget of money or tokens
    is counted there. Raises `BudgetSpent`."""
    request = _request.get()
    if request is not None and request.session:
        await request.refuse()
        if not reserves or all(one.limits.usd is None and one.limits.tokens is None for one in request.budgets):
            _count_session(request)


def is_unplaced() -> bool:
    """Return whether the current session has not been counted yet."""
    request = _request.get()
    return request is not None and request.session


def _count_session(request: Request) -> None:
    if request.session:
        request.session = False
        for budget in request.budgets:
            budget.session_begins(request.asked or request)
        consumed(None, session=True)


async def reserve(needs: Consumption | None = None) -> None:
    """Wait until the budgets have room for a model request in addition to the running ones, and reserve that room until
    the next call or the end. Call it before each request to a model. Without `needs`, the average of the requests so
    far is reserved.

    A waiting request holds nothing, so two of them never wait for each other. Raises `BudgetSpent`.
    """
    request = _request.get()
    if request is None or request.deadline is None:
        return
    _release(request)
    if needs is None and (tokens := request.mean("tokens")) is not None:
        needs = Consumption(request.mean("usd") or 0.0, int(tokens))
    await _wait_until(lambda: all(budget.has_room(request, needs) for budget in request.budgets), request.budgets)
    for budget in request.budgets:
        if budget.over:
            raise budget.error()
    if request.session:
        await request.refuse()
        _count_session(request)
    request.held = needs or Consumption()


def release(used: Usage) -> None:
    """Free the reserved room after a request to a model. `used` is the consumption of all requests of the session so
    far. Until the next request, for example during a call of a tool, the session holds no room. If the answer spends a
    budget, the answer is still used, and only other requests are ended."""
    if (request := _request.get()) is not None:
        request.so_far = Consumption(used.cost or 0.0, used.tokens_in + used.tokens_out)
        for budget in request.budgets:
            budget.end_others(request)
        _release(request)


def _release(request: Request) -> None:
    if request.held is not None:
        request.held = None
        for budget in request.budgets:
            budget.wake_waiting()


def nearest(what: Counted) -> tuple[float, Budget] | None:
    """Return how many tokens or US dollars the current request may still consume, with the budget that limits it; None
    without a limit."""
    request = _request.get()
    found = [(budget.left(what), budget) for budget in (request.budgets if request is not None else ())]
    known = [(left, budget) for left, budget in found if left is not None]
    return min(known, key=lambda one: one[0], default=None)


async def pause(clock: Clock, seconds: float) -> None:
    """Wait before another attempt, but not longer than the time left in the budgets; the attempt is then refused."""
    request = _request.get()
    for budget in request.budgets if request is not None else ():
        left = 0.0 if budget.share >= 1 else budget.time_left
        seconds = min(seconds, left if left is not None else seconds)
    await clock.sleep(seconds)
