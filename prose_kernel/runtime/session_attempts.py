"""Attempts at one session: each asked of the port within its time, a failed one repeated as the program allows.

How it ended is returned, not raised: whether a failure is an error or a value is the decision of the language.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from msgspec import Struct, structs

from prose_kernel.errors import (
    ProviderError,
    ProviderTimeout,
    RecordedTimeout,
    ResumeMismatch,
    RunError,
    SessionError,
    SessionTimeout,
)
from prose_kernel.runtime.backoff import Attempted, Retries, before_retry
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.events import SessionFinished, SessionProgressed, SessionStarted
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.ports import Key, SessionProgress, SessionRequest, SessionResult, Target
from prose_kernel.runtime.typed_answers import WrongAnswer, taken
from prose_kernel.runtime.values import Value

T = TypeVar("T")

TIME_IS_UP: Final = "timeout"
"""The message that a session is cancelled with when it has run into its `timeout`."""

LONGEST_ASKED: Final = 300.0
"""Seconds that a server's `Retry-After` is honoured for, at most."""


class Success(Struct, frozen=True):
    """The session has answered; the value that the language has made of the answer."""

    value: Value


class Failure(Struct, frozen=True):
    """The session has failed for good, or its answer could not be taken. `cause` is what the port raised, if it was
    the port."""

    error: RunError
    cause: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The retries of a session, the wait before each, its timeout as written, and the budgets of it and its agent."""

    retries: int = 0
    backoff: str = "none"
    timeout: str = ""
    budgets: tuple[Budget, ...] = ()


@dataclass(eq=False, repr=False)
class SessionAttempts:
    """One session of a program while it runs. A language says where the answer goes (`target`) and takes it (`keep`).

    `key` is where the answer is kept, `bound_to` the name that it is bound to. A `consumed` answer has no name, but the
    statement around the session uses it.
    """

    s: ExecutionContext
    node: Node
    request: SessionRequest
    key: Key
    bound_to: str | None = None
    allowed: Allowed = Allowed()
    consumed: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.number = self.s.host.next_spawn()
        self.place = self.s.place(self.node)

    def target(self) -> Target | None:
        """Return the file for the session's answer, looked up before each attempt; None: its reply is the answer."""
        return None

    def kept(self, result: SessionResult) -> SessionResult:
        """Return an answer as the journal records it when the program gets it: whole. May write files."""
        return self.whole(result)

    def whole(self, result: SessionResult) -> SessionResult:
        """Return an answer with its text, even if the session wrote its binding. Changes nothing."""
        return result

    def begins(self) -> None:
        """An attempt is about to be made."""

    def asks(self) -> None:
        """A provider is about to be asked; no journal has the answer."""

    def retries_after(self, failure: ProviderError) -> bool:
        """Whether another attempt may help."""
        return failure.retryable

    def typed(self, result: SessionResult) -> str | None:
        """The text of an answer; of a typed one as it is kept. Raises E201, and the next attempt gets a description of
        the error."""
        try:
            return self.fitting(result)
        except WrongAnswer as problem:
            wrong = (*self.request.wrong, (result.text or "", str(problem)))
            self.request = structs.replace(self.request, correction=str(problem), wrong=wrong)
            message = f"the answer does not fit `output`: {problem}"
            raise SessionError(message, details={"kind": "answer"}) from None

    def fitting(self, result: SessionResult) -> str | None:
        """The text of an answer; a typed one as it is kept. Raises `WrongAnswer`."""
        schema = self.request.output
        if schema is None or result.origin == "dry-run":
            return result.text
        return taken(result.text, schema, typed_by_hand=result.origin == "human")

    def keep(self, result: SessionResult) -> Value:
        """The value of an answer, kept. A `SessionError` raised here is a failed attempt like any other."""
        raise NotImplementedError

    async def run(self) -> Success | Failure:
        """Make attempts until one succeeds or no further one is allowed."""
        if not self.allowed.budgets:
            return await self._run()
        with self.s.within(*self.allowed.budgets):
            return await self._run()

    async def _run(self) -> Success | Failure:
        s, attempt = self.s, 0
        while True:
            await s.flush()
            current = structs.replace(self.request, target=self.target(), attempt=attempt)
            if s.host.listeners:
                s.emit(SessionStarted(self.place, self.number, current, self.bound_to))
            again = replayed = False
            asked_wait = 0.0
            cause: ProviderError | None = None
            try:
                self.begins()
                result = await self._attempt(current)
                value = self.keep(result)
            except ProviderError as failure:
                error: RunError = self._failure(failure)
                again, replayed, cause = self.retries_after(failure), failure.replayed, failure
                asked_wait = min(getattr(failure, "retry_after", None) or 0.0, LONGEST_ASKED)
            except (SessionError, SessionTimeout) as failed:
                error, again = failed, True
            except ResumeMismatch:  # of the run, and no value of the program
                raise
            except RunError as failed:
                error = failed  # not the session's fault: what it did is not done again
            else:
                self._finished(current, result=result, value=value)
                return Success(value)
            final = not again or attempt >= self.allowed.retries
            self._finished(current, error=error, final=final)
            if final:
                return Failure(error, cause)
            attempt += 1
            what = Attempted(self.node, self.number, self.request.at)
            retries = Retries(self.allowed.retries, self.allowed.backoff)
            await before_retry(s, what, retries, attempt, least=asked_wait, replayed=replayed)

    def refused(self, failure: Failure) -> Failure:
        """The session failed before a provider was asked: report it like any other."""
        if self.s.host.listeners:
            self.s.emit(SessionStarted(self.place, self.number, self.request, self.bound_to))
        self._finished(self.request, error=failure.error)
        return failure

    async def _attempt(self, request: SessionRequest) -> SessionResult:
        s = self.s

        def progress(step: SessionProgress) -> None:
            if s.host.listeners:
                s.emit(SessionProgressed(self.place, self.number, step.kind, step.text, step.tool, step.seconds))

        def ask() -> Awaitable[SessionResult]:
            self.asks()
            running = s.host.ports.sessions.run(request, progress)
            return running if request.timeout is None else self._within(running, request.timeout)

        # A resumed run takes the agent's memory back to its last answer that a program has got. An answer that none has
        # got would be used without the part of the memory that belongs to it.
        whole = self.whole if request.memory is None else None
        return await s.ask(request, SessionResult, ask, limited=True, kept=self.kept, whole=whole)

    async def _within(self, running: Coroutine[Any, Any, T], seconds: float) -> T:
        """Await something for at most so many seconds of the machine's clock; what runs longer is cancelled and
        awaited."""
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
            await _all_ended(session, timer)

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
        if s.host.listeners:
            ended = (result, value, error, final, self.consumed)
            s.emit(SessionFinished(self.place, self.number, request, self.bound_to, self.key, *ended))


async def _all_ended(*tasks: asyncio.Future[T] | asyncio.Future[None]) -> None:
    """Wait for cancelled tasks, however often we are cancelled ourselves."""
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
