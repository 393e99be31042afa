"""A model that respects the budgets of its run and the pauses of its server. Like the adapter, it imports the
library."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from msgspec import Raw, Struct
from pydantic import ValidationError
from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RunUsage

from prose_kernel.errors import BudgetSpent, ProviderError, ProviderTimeout
from prose_kernel.language.structs import replace
from prose_kernel.models.providers.model_calls import Conversation
from prose_kernel.models.usage_and_prices import affordable, cost_of, usage_details
from prose_kernel.runtime import budgets, open_request, tracing
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.budgets import Budget, Consumption
from prose_kernel.runtime.journal_records import NOTHING
from prose_kernel.runtime.open_request import MODEL, OpenStep, Steps
from prose_kernel.runtime.ports import Usage
from prose_kernel.runtime.session_options import Price

_CHARACTERS = 4  # of an answer, per token
_FRAME = 48  # characters around the description of a tool
IMAGE = 1500  # tokens, approximate: an image of the largest size that models process
ASSURED = 4096  # tokens that every model accepts as a limit; a model refuses a limit that is too high
FEWEST = 16  # minimum token limit of an answer: some servers refuse a lower one


class TimeLimits:
    """The time limits of a model's requests in one session, in seconds: without a token, and in total. `name` is the
    server in the hint."""

    def __init__(self, name: str, token: float = math.inf, session: float = math.inf) -> None:
        self._name = name
        self._most = token
        self._session = session
        self._left = session
        self._limit: asyncio.Timeout | None = None
        self._end = math.inf

    @contextlib.asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Time one request. Raises `ProviderError` when the time is over; the request is not tried again."""
        begun = asyncio.get_running_loop().time()
        self._end = begun + self._left
        at = min(begun + self._most, self._end)
        try:
            async with asyncio.timeout_at(at if at < math.inf else None) as self._limit:
                yield
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise
            raise self._error() from None
        finally:
            self._limit = None
            self._left -= asyncio.get_running_loop().time() - begun

    def token(self) -> None:
        """Record that the model has sent something."""
        if self._limit is not None and self._most < math.inf and not self._limit.expired():
            self._limit.reschedule(min(asyncio.get_running_loop().time() + self._most, self._end))

    def _error(self) -> ProviderTimeout:
        if asyncio.get_running_loop().time() >= self._end:
            problem, key = f"the session has taken {self._session:g} seconds", "session_timeout"
        else:
            problem, key = f"no token came for {self._most:g} seconds", "token_timeout"
        hint = f"give the session a `timeout:`, or raise {key} in [providers.{self._name}]"
        return ProviderTimeout(problem, retryable=False, hint=hint)


class _Answer(Struct):
    """A response in the journal, and the way in which it was requested (`OutputMode`)."""

    way: str
    response: Raw


class BudgetedModel(WrapperModel):
    """A model whose answers are limited to the remaining budgets. A request waits until the server accepts calls and
    the budgets have room for it in addition to other requests. Each request is a step of the run's request
    (`runtime/open_request.py`).

    `spent` is the reason why no further request is made, `capped` the budget that has shortened the limit of the last
    answer. `used` is the usage of earlier requests.
    """

    def __init__(
        self, wrapped: Model[Any], asked: Conversation, provider: str, used: RunUsage, patience: TimeLimits
    ) -> None:
        super().__init__(wrapped)
        self.patience = patience
        self._opens = asked.opens
        self._vendor = provider
        self._price = asked.options.price
        self._attached = len(asked.attached) * IMAGE
        self._sent = 0
        self._used = used
        self.capped: Budget | None = None
        self.spent: BudgetSpent | None = None
        self.stream: StreamedResponse | None = None
        self._length = 0
        self._earlier = RunUsage()
        self._running = False
        self._watched: tracing.Operation | None = None
        self._steps = open_request.steps()
        self._step: OpenStep | None = None
        self._by = provider, asked.model
        self._identity = self._steps.short(_identity(asked)) if self._steps is not None else ""

    # ------------------------------------------------------------ steps

    @property
    def recorded_way(self) -> str:
        """Return the way in which an earlier process of the run requested the next recorded response; "" if there is
        none."""
        recorded = self._steps.coming(MODEL) if self._steps is not None else None
        answer = codec.readable(recorded.value, _Answer) if recorded is not None else None
        return answer.way if answer is not None else ""

    def recorded(self) -> ModelResponse | None:
        """Return the response that an earlier process of the run received; None if the request must be made."""
        value = self._steps.known(MODEL, self._identity) if self._steps is not None else None
        answer = codec.readable(value, _Answer) if value is not None else None
        if answer is None:
            return None
        try:
            response = ModelMessagesTypeAdapter.validate_json(bytes(answer.response))[0]
        except (ValidationError, IndexError):  # from another version of the library
            return None
        return response if isinstance(response, ModelResponse) else None

    def answered(self, response: ModelResponse, way: str, *, ends: bool) -> None:
        """Record a response. One that `ends` the conversation is stored with the answer of the session instead."""
        step, self._step = self._step, None
        if step is None:
            return
        used = [self._by[0], response.model_name or self._by[1], usage_details(self._own_usage(response.usage))]
        value = NOTHING
        if not ends:
            with contextlib.suppress(RecursionError):
                value = codec.encode(
                    _Answer(way, Raw(ModelMessagesTypeAdapter.dump_json([response], exclude_none=True)))
                )
        step.ends(value, used)

    # ------------------------------------------------------------ requests

    async def request(
        self, messages: list[ModelMessage], model_settings: Any, model_request_parameters: ModelRequestParameters
    ) -> ModelResponse:
        within = await self._begin(messages, model_settings, model_request_parameters)
        try:
            async with self.patience.request():
                response = await super().request(messages, within, model_request_parameters)
        except BaseException as problem:
            self._ended(problem)
            raise
        self._ended(used=response.usage, model=response.model_name or "")
        return response

    @contextlib.asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        within = await self._begin(messages, model_settings, model_request_parameters)
        try:
            async with (
                self.patience.request(),
                super().request_stream(messages, within, model_request_parameters, run_context) as stream,
            ):
                self.stream = stream
                yield stream
        except BaseException as problem:
            self._ended(problem)
            raise
        usage, self.stream = stream.usage, None
        self._ended(used=usage, model=stream.model_name or "")

    async def _begin(self, messages: Sequence[ModelMessage], settings: Any, parameters: ModelRequestParameters) -> Any:
        """Wait until the request may be made; return its settings. Raises `BudgetSpent`, and the errors of `opens`."""
        self._length, self._earlier = 0, RunUsage() + self._used
        try:
            settings = await self._wait_for_budget(messages, settings, parameters)
        except (BudgetSpent, ProviderError):
            if self._steps is not None and not self._steps.is_first:
                # so that a resumed run makes only this request again
                self._begin_step(self._steps).ends()
            raise
        self._running = True
        if self._steps is not None:
            self._step = self._begin_step(self._steps)
        self._watched = tracing.request(self._vendor, self.model_name)
        return settings

    async def _wait_for_budget(
        self, messages: Sequence[ModelMessage], settings: Any, parameters: ModelRequestParameters
    ) -> Any:
        if self._opens is not None:
            await self._opens()
        if budgets.current() is None:
            return settings
        self._measure(messages, parameters)
        try:
            await budgets.reserve(self._estimate((settings or {}).get("max_tokens")))
        except BudgetSpent as spent:
            self.spent = spent
            raise
        return self._limited_settings(settings)

    def _begin_step(self, steps: Steps) -> OpenStep:
        return steps.begin(MODEL, self._identity, " ".join(self._by), self._by)

    def _ended(self, problem: BaseException | None = None, used: Any = None, model: str = "") -> None:
        """Record the end of a request. A request that was refused or did not reach the server has used nothing; the
        usage of a request that broke off is unknown."""
        refused = isinstance(problem, ModelHTTPError) or (
            isinstance(problem, ModelConnectionError) and problem.phase in ("connect", "pool")
        )
        if problem is not None and self._step is not None:
            broken = replace(self._own_usage(self.stream.usage if self.stream else RunUsage()), counted=False)
            self._step.ends(usage=() if refused and self.stream is None else [*self._by, usage_details(broken)])
            self._step = None
        if (watched := self._watched) is not None:
            self._watched = None
            usage = self._own_usage(used) if used is not None else None
            outcome: tracing.Outcome = (
                "ok" if problem is None else "error" if isinstance(problem, Exception) else "cancelled"
            )
            watched.asked(outcome=outcome, error=type(problem).__name__ if problem else "", model=model, usage=usage)
        if problem is None or (refused and self.stream is None):
            self._running = False
            if budgets.current() is not None:
                budgets.release(self._total_usage(used) if used is not None else usage_of(self._used, self._price))

    def count(self, length: int) -> None:
        """Report the number of characters answered so far: budgets count them before the server reports its tokens."""
        request = budgets.current()
        if request is not None:
            self._length = length
            request.report(self.so_far())

    def so_far(self) -> Usage:
        """Return the usage so far. For a running or broken-off request this is the server's report; under a budget, at
        least an estimate from the length of its text and the message. Such numbers are not `counted`."""
        if not self._running:
            return usage_of(self._used, self._price)
        usage = self.stream.usage if self.stream is not None else RunUsage()
        asked = usage.input_tokens or (self._sent if self._length else 0)
        answered = max(usage.output_tokens, self._length // _CHARACTERS)
        return replace(self._total_usage(RunUsage(input_tokens=asked, output_tokens=answered)), counted=False)

    def _total_usage(self, usage: Any) -> Usage:
        """Return the usage of earlier requests and this one."""
        # not added to `used`, which grows when the answer is complete
        return usage_of(self._earlier + self._request_of(usage), self._price)

    def _own_usage(self, usage: Any) -> Usage:
        return usage_of(self._request_of(usage), self._price)

    def _request_of(self, usage: Any) -> RunUsage:
        cost = cost_of(self._vendor, self.model_name, usage.input_tokens, usage.output_tokens, self._price)
        read = getattr(usage, "cache_read_tokens", 0)
        return RunUsage(
            requests=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=read,
            cost=cost,
        )

    def _measure(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> None:
        """Estimate the tokens of the request: conversation, tools, schemas."""
        tools = (*parameters.function_tools, *parameters.output_tools)
        length = sum(
            _FRAME + len(tool.name) + len(tool.description or "") + _json(tool.parameters_json_schema) for tool in tools
        )
        if parameters.output_object is not None:
            length += _json(parameters.output_object.json_schema)
        instructions = next((getattr(one, "instructions", None) for one in messages), None)
        length += len(instructions or "") + sum(_size(part) for message in messages for part in message.parts)
        self._sent = length // _CHARACTERS + self._attached

    def _estimate(self, limit: int | None) -> Consumption:
        """Return the likely usage of the request: its length and the limit of the answer; without a limit, the mean of
        the run's requests so far."""
        request = budgets.current()
        mean = request.mean("tokens") if request is not None else None
        tokens = self._sent + (limit or ASSURED) if limit or mean is None else max(self._sent, int(mean))
        cost = cost_of(self._vendor, self.model_name, self._sent, tokens - self._sent, self._price)
        return Consumption(float(cost or 0), tokens)

    def _limited_settings(self, settings: Any) -> Any:
        """Return the settings with the answer limited to the tokens that are left. Raises `BudgetSpent`."""
        request = budgets.current()
        if request is None:
            return settings
        request.report(usage_of(self._used, self._price))
        most, money = budgets.nearest("tokens"), budgets.nearest("usd")
        if money is not None:
            bought = affordable(self._vendor, self.model_name, self._sent, money[0], self._price)
            if bought is not None and (most is None or bought < most[0]):
                most = bought, money[1]
        if most is None:
            return settings
        tokens, budget = int(most[0]), most[1]
        if tokens < FEWEST:
            self.spent = budget.error()
            raise self.spent
        stated = (settings or {}).get("max_tokens")
        self.capped = budget if tokens < (stated or ASSURED) else None
        return {**(settings or {}), "max_tokens": tokens} if self.capped is not None else settings


def _identity(asked: Conversation) -> tuple[object, ...]:
    """Return the beginning of a conversation as an identity. The model is not part of it: another model may continue
    the conversation."""
    files = [hashlib.sha256(one.data).hexdigest() for one in asked.attached]
    tools = [tool.name for tool in asked.tools]
    return asked.system, asked.context, asked.message, asked.words, tools, asked.output, files, asked.wrong


def _json(schema: object) -> int:
    return len(json.dumps(schema, default=str, separators=(",", ":")))


def _size(part: object) -> int:
    """Return the characters of one part of a message; pictures are counted as `attached`."""
    content: object = getattr(part, "content", None) or getattr(part, "args", None)
    if isinstance(content, str):
        return len(content)
    if isinstance(content, dict):
        return _json(content)
    return sum(len(one) for one in content if isinstance(one, str)) if isinstance(content, Iterable) else 0


def usage_of(used: RunUsage, price: Price | None = None) -> Usage:
    """Convert the usage that the library counted; `price` comes from the settings."""
    cost = None if used.cost is None else float(used.cost)
    if price is not None and used.requests:
        cost = float(cost_of("", "", used.input_tokens, used.output_tokens, price) or 0)
    return Usage(used.requests, used.input_tokens, used.output_tokens, cost, tokens_cached=used.cache_read_tokens)
