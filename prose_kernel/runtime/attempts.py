"""The attempts at a session or command: a failed one is repeated as the program allows, after a wait.

The outcome of a session is returned, not raised: the language decides whether a failure is an error or a value. Each of
its attempts has a time limit. The waits are those of docs/reference/openprose.md 3.13.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec import field as struct_field

from prose_kernel.errors import (
    ProviderError,
    ProviderTimeout,
    RecordedTimeout,
    ResumeMismatch,
    RunError,
    SessionError,
    SessionTimeout,
)
from prose_kernel.language.structs import replace
from prose_kernel.runtime.budgets import Budget, pause
from prose_kernel.runtime.events import Retried, SessionFinished, SessionProgressed, SessionStarted
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.ports import AnswerFile, Key, SessionProgress, SessionRequest, SessionResult, Wait
from prose_kernel.runtime.typed_answers import WrongAnswer, checked_answer
from prose_kernel.runtime.values import Value

T = TypeVar("T")

SECOND: Final = 1.0
LONGEST: Final = 60.0
JITTER: Final = 0.25

TIME_IS_UP: Final = "timeout"
"""The message of the cancellation of a session that has exceeded its `timeout`."""

LONGEST_RETRY_AFTER: Final = 300.0
"""The longest `Retry-After` of a server, in seconds, that is honoured."""


class Retries(Struct, frozen=True):
    """How many further attempts are allowed, and the `backoff` between them."""

    maximum: int = 0
    backoff: str = "none"

    def delay(self, retry: int) -> float:
        """Return the seconds before a retry, counted from 1: none, always the same (`linear`, `fixed`, or a number of
        seconds as text), or doubled up to a minute."""
        if self.backoff in ("linear", "fixed"):
            return SECOND
        if self.backoff[:1].isdecimal():
            return float(self.backoff)
        return float(min(2 ** min(retry - 1, 10), LONGEST)) if self.backoff == "exponential" else 0.0


def jittered(seconds: float, at: str, attempt: int) -> float:
    """Return a wait that is up to a quarter longer, so that branches which failed together do not repeat together.

    The part is drawn from the execution path: the same in every run of a program, and different for each branch.
    """
    drawn = random.Random(f"{at}#{attempt}").random()  # noqa: S311 - not used for secrets
    return seconds * (1 + JITTER * drawn)


class Attempted(Struct, frozen=True):
    """A session or command that may be repeated: its node, the number of its events, and its execution path."""

    node: Node
    spawn: int
    at: str


async def before_retry(
    s: ExecutionContext,
    what: Attempted,
    retries: Retries,
    attempt: int,
    *,
    least: float = 0.0,
    replayed: bool = False,
    why: str = "",
) -> None:
    """Emit `Retried`, and wait for the backoff, at least for `least` seconds. After a failure `replayed` from a
    recording it does not wait. `why` is the failure in a few words."""
    seconds = max(retries.delay(attempt), least)
    s.emit(Retried(s.place(what.node), what.spawn, attempt, retries.maximum, seconds, why))
    if seconds > 0 and not replayed:
        seconds = jittered(seconds, what.at, attempt)
        wait = Wait("retry", f"{what.at}/w{attempt}", seconds)
        await s.ask(wait, type(None), lambda: pause(s.host.ports.clock, seconds))


# ---------------------------------------------------------------- sessions


class Success(Struct, frozen=True):
    """The session has answered. `value` is the language's value of the answer."""

    value: Value


class Failure(Struct, frozen=True):
    """The session has failed for good, or its answer was refused. `cause` is the port's exception, if there is one."""

    error: RunError
    cause: ProviderError | None = None


class AttemptLimits(Struct, frozen=True):
    """The retries of a session, its timeout as written, and the budgets of it and its agent."""

    retries: Retries = struct_field(default_factory=Retries)
    timeout: str = ""
    budgets: tuple[Budget, ...] = ()


@dataclass(eq=False, repr=False)
class SessionAttempts:
    """One running session of a program. The language chooses the file of the answer (`target`) and stores it (`keep`).

    `key` is the answer's key in the store, `bound_to` the name that it is bound to. A `consumed` answer has no name,
    but is used by the statement around the session.
    """

    s: ExecutionContext
    node: Node
    request: SessionRequest
    key: Key
    bound_to: str | None = None
    allowed: AttemptLimits = field(default_factory=AttemptLimits)
    consumed: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.number = self.s.host.next_spawn()
        self.place = self.s.place(self.node)

    def target(self) -> AnswerFile | None:
        """Return the file for the session's answer, chosen before each attempt; None if its reply is the answer."""
        return None

    def kept(self, result: SessionResult) -> SessionResult:
        """Return the complete answer for the record that is written when the program gets it. May write files."""
        return self.whole(result)

    def whole(self, result: SessionResult) -> SessionResult:
        """Return an answer with its text, even if the session wrote its binding. Has no side effects."""
        return result

    def before_attempt(self) -> None:
        """Called before each attempt."""

    def before_request(self) -> None:
        """Called before a provider is asked, if the journal has no answer."""

    def retries_after(self, failure: ProviderError) -> bool:
        return failure.retryable

    def typed(self, result: SessionResult) -> str | None:
        """Return the text of an answer; a typed answer in its stored form. If it does not fit, the next attempt gets a
        description of the problem, and E201 is raised."""
        try:
            return self.fitting(result)
        except WrongAnswer as problem:
            wrong = (*self.request.wrong, (result.text or "", str(problem)))
            self.request = replace(self.request, correction=str(problem), wrong=wrong)
            message = f"the answer does not fit `output`: {problem}"
            raise SessionError(message, details={"kind": "answer"}) from None

    def fitting(self, result: SessionResult) -> str | None:
        """Return the text of an answer; a typed answer in its stored form. Raises `WrongAnswer`."""
        schema = self.request.output
        if schema is None or result.origin == "dry-run":
            return result.text
        return checked_answer(result.text, schema, typed_by_hand=result.origin == "human")

    def keep(self, result: SessionResult) -> Value:
        """Store an answer and return its value. A `SessionError` raised here fails the attempt."""
        raise NotImplementedError

    async def run(self) -> Success | Failure:
        """Make attempts until one succeeds or no more are allowed."""
        budgets = self.allowed.budgets
        with self.s.within(*budgets) if budgets else nullcontext():
            return await self._run()

    async def _run(self) -> Success | Failure:
        s, attempt = self.s, 0
        while True:
            await s.flush()
            current = replace(self.request, target=self.target(), attempt=attempt)
            s.emit(SessionStarted(self.place, self.number, current, self.bound_to))
            again = replayed = False
            asked_wait = 0.0
            cause: ProviderError | None = None
            try:
                self.before_attempt()
                result = await self._attempt(current)
                value = self.keep(result)
            except ProviderError as failure:
                error: RunError = self._failure(failure)
                again, replayed, cause = self.retries_after(failure), failure.replayed, failure
                asked_wait = min(getattr(failure, "retry_after", None) or 0.0, LONGEST_RETRY_AFTER)
            except (SessionError, SessionTimeout) as failed:
                error, again = failed, True
            except ResumeMismatch:  # concerns the run, and is never a value of the program
                raise
            except RunError as failed:
                error = failed  # not a failure of the session, so it is not repeated
            else:
                self._finished(current, result=result, value=value)
                return Success(value)
            final = not again or attempt >= self.allowed.retries.maximum
            self._finished(current, error=error, final=final)
            if final:
                return Failure(error, cause)
            attempt += 1
            what = Attempted(self.node, self.number, self.request.at)
            await before_retry(s, what, self.allowed.retries, attempt, least=asked_wait, replayed=replayed)

    def refused(self, failure: Failure) -> Failure:
        """Report a session that failed before a provider was asked."""
        self.s.emit(SessionStarted(self.place, self.number, self.request, self.bound_to))
        self._finished(self.request, error=failure.error)
        return failure

    async def _attempt(self, request: SessionRequest) -> SessionResult:
        s = self.s

        def progress(step: SessionProgress) -> None:
            if s.host.listeners:
                s.emit(SessionProgressed(self.place, self.number, step.kind, step.text, step.tool, step.seconds))

        def ask() -> Awaitable[SessionResult]:
            self.before_request()
            running = s.host.ports.sessions.run(request, progress)
            return running if request.timeout is None else self._within(running, request.timeout)

        # A resumed run restores the agent's memory to the last answer that a program received. An answer that was not
        # received would be used without its part of the memory.
        whole = self.whole if request.memory is None else None
        return await s.ask(request, SessionResult, ask, kept=self.kept, whole=whole)

    async def _within(self, running: Coroutine[Any, Any, T], seconds: float) -> T:
        """Await `running` for at most `seconds` on the machine's clock. After that it is cancelled and awaited."""
        loop = asyncio.get_running_loop()
        session, timer = loop.create_task(running), loop.create_task(self.s.host.ports.clock.sleep(seconds))
        try:
            await asyncio.wait((session, timer), return_when=asyncio.FIRST_COMPLETED)
            if session.done():
                return session.result()
            session.cancel(TIME_IS_UP)
            raise self._timed_out()
        finally:
            for task in (session, timer):
                if not task.cancelling():
                    task.cancel()
            await _wait_for_all(session, timer)

    def _timed_out(self) -> SessionTimeout:
        return SessionTimeout(f"session timed out after {self.allowed.timeout}", details={"kind": "timeout"})

    def _failure(self, failure: ProviderError) -> RunError:
        if isinstance(failure, RecordedTimeout) and self.allowed.timeout:
            return self._timed_out()
        return SessionError(
            str(failure) or "the session failed",
            details={"kind": "timeout" if isinstance(failure, ProviderTimeout) else "error"},
            hint=failure.hint,
            no_answer=failure.no_answer,
        )

    def _finished(
        self,
        request: SessionRequest,
        *,
        result: SessionResult | None = None,
        value: Value = None,
        error: RunError | None = None,
        final: bool = True,
    ) -> None:
        s = self.s
        s.recent.note(f"session {self.bound_to or self.key.name}: {error.message if error is not None else 'done'}")
        ended = (result, value, error, final, self.consumed)
        s.emit(SessionFinished(self.place, self.number, request, self.bound_to, self.key, *ended))


async def _wait_for_all(*tasks: asyncio.Future[T] | asyncio.Future[None]) -> None:
    """Wait for cancelled tasks, even if this task is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while any(not task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen
    if cancelled is not None:
        raise cancelled
