"""A model that keeps to the budgets of its run and to the pauses of its server. Like the adapter, this module knows the
library."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.batch import BatchRequest, EncodedBatchRequest
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RunUsage

from prose_kernel.errors import BudgetSpent
from prose_kernel.runtime import budgets
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.ports import Usage
from prose_kernel.sessions.providers import prices
from prose_kernel.sessions.providers.model_calls import Conversation

_CHARACTERS = 4  # of an answer, to a token
IMAGE = 1500  # tokens, about: what an image costs that is as large as models look at
ASSURED = 4096  # tokens that every model may be asked for; who is asked for too many refuses
FEWEST = 16  # tokens that an answer may have: some servers refuse to be asked for less


class Bounds(WrapperModel):
    """A model whose answers are as long as the budgets allow, and that is asked when its server is open.

    `spent` is why no further request is made, `capped` the budget without which the last answer might have been longer.
    `used` is what earlier requests have consumed.
    """

    def __init__(self, wrapped: Model[Any], asked: Conversation, provider: str, used: RunUsage) -> None:
        super().__init__(wrapped)
        self._opens = asked.opens
        self._vendor = provider
        self._sent = len(asked.message) + len(asked.system or "") + len(asked.attached) * _CHARACTERS * IMAGE
        self._used = used
        self.capped: Budget | None = None
        self.spent: BudgetSpent | None = None
        self.stream: StreamedResponse | None = None
        self._length = 0
        self._earlier = RunUsage()

    @contextlib.asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        if self._opens is not None:
            await self._opens()
        within = self._within(model_settings)
        async with super().request_stream(messages, within, model_request_parameters, run_context) as stream:
            self.stream, self._length, self._earlier = stream, 0, RunUsage() + self._used
            yield stream
            self.stream = None

    async def batch_encode(self, request: BatchRequest) -> EncodedBatchRequest:
        within = self._within(request.model_settings)
        return await super().batch_encode(replace(request, model_settings=within))

    def told(self, length: int) -> None:
        """So many characters were answered by now: the budgets count them before the server says how many tokens."""
        request = budgets.current()
        if request is not None:
            self._length = length
            request.tell(self.so_far())

    def so_far(self) -> Usage:
        """What has been consumed. Of the answer that is under way what the server has said, and under a budget about
        that many tokens as its text and the message have."""
        if self.stream is None:
            return usage_of(self._used)
        said = self.stream.usage
        asked = said.input_tokens or (self._sent // _CHARACTERS if self._length else 0)
        answered = max(said.output_tokens, self._length // _CHARACTERS)
        cost = prices.cost_of(self._vendor, self.model_name, asked, answered)
        # not on top of `used`: the library adds to that what it knows of an answer that breaks off
        return usage_of(self._earlier + RunUsage(requests=1, input_tokens=asked, output_tokens=answered, cost=cost))

    def _within(self, settings: Any) -> Any:
        """The settings with the most tokens that are left for the next answer. Raises `BudgetSpent`."""
        request = budgets.current()
        if request is None:
            return settings
        request.tell(usage_of(self._used))
        most, money = budgets.nearest("tokens"), budgets.nearest("usd")
        if money is not None:
            bought = prices.affordable(self._vendor, self.model_name, self._sent, money[0])
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


def usage_of(used: RunUsage) -> Usage:
    """What the library counted, in our words."""
    cost = None if used.cost is None else float(used.cost)
    return Usage(used.requests, used.input_tokens, used.output_tokens, cost, tokens_cached=used.cache_read_tokens)
