"""Requests through the batch interface of a vendor, which costs half and answers within a day (docs/providers.md).

pydantic-ai gathers the requests that wait at the same time, submits them, asks from time to time and hands the answers
out; a request of a tool loop is one of the next batch. What is ours: what waits is written down in the run's directory,
so that a run that was killed finds its requests again when it is resumed, instead of paying for them twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import CompletedStreamedResponse, Model, StreamedResponse
from pydantic_ai.models.batch import BatchRequest
from pydantic_ai.models.wrapper import WrapperModel

from prose_kernel.access import plain_files
from prose_kernel.runtime.session_options import ModelServer, Surroundings

FILE: Final = "batches.jsonl"
LONGEST_PAUSE: Final = 600.0
"""Seconds between two questions whether a batch has ended."""


class Batches:
    """The batches of one server in one run. Belongs to one event loop; close it there."""

    def __init__(self, server: ModelServer, where: Surroundings) -> None:
        self._requests = BatchModelRequests(
            max_requests=server.batch_size,
            max_wait=timedelta(seconds=server.batch_wait),
            poll_interval=timedelta(seconds=server.batch_poll),
            max_poll_interval=timedelta(seconds=max(server.batch_poll, LONGEST_PAUSE)),
            max_resubmissions=0,  # `retry:` of the program is the only retry
        )
        directory = where.run_directory
        self._tickets = _Tickets(Path(where.cwd, directory, FILE) if directory is not None else None)
        self._open = False

    @contextlib.asynccontextmanager
    async def wrapped(self, model: Model[Any]) -> AsyncIterator[Model[Any]]:
        """The model, asked by batches inside the block: one conversation."""
        if not self._open:
            await self._requests.__aenter__()
            self._open = True
        batched = self._requests.get_wrapper_model(model)
        assert batched is not None
        conversation = _Conversation(batched, self._tickets)
        try:
            yield conversation
        finally:
            self._tickets.drop(conversation.tickets)

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self._requests.__aexit__(None, None, None)


class _Conversation(WrapperModel):
    """A batched model whose requests are known again after the process: `tickets` are those of one conversation."""

    def __init__(self, wrapped: Model[Any], kept: _Tickets) -> None:
        super().__init__(wrapped)
        self._kept = kept
        self.tickets: list[str] = []

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
        last = messages[-1]
        if isinstance(last, ModelResponse) and last.state == "suspended":  # it is waited for
            return await super().request(messages, model_settings, model_request_parameters)
        asked = BatchRequest(
            custom_id="",
            messages=messages,
            model_settings=model_settings,
            model_request_parameters=model_request_parameters,
        )
        encoded = await self.batch_encode(asked)
        key = hashlib.sha256(f"{encoded.group}\0{encoded.body}".encode()).hexdigest()
        waiting = self._kept.take(key)
        if waiting is None:
            waiting = await super().request(messages, model_settings, model_request_parameters)
            if waiting.state == "suspended":
                self._kept.keep(key, waiting)
        if waiting.provider_response_id:
            self.tickets.append(waiting.provider_response_id)
        return waiting

    @contextlib.asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


class _Tickets:
    """What waits for an answer: the vendor's id of each request's batch, by a digest of the request. A line for each,
    and one when it is over. What an earlier process left is taken once by an equal request."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._left: dict[str, list[ModelResponse]] = {}
        over: set[str] = set()
        for line in _lines(file):
            with contextlib.suppress(ValueError, KeyError, TypeError, ValidationError):  # a damaged line costs itself
                told = json.loads(line)
                if "over" in told:
                    over.add(told["over"])
                else:
                    (response,) = ModelMessagesTypeAdapter.validate_python([told["response"]])
                    if isinstance(response, ModelResponse):
                        self._left.setdefault(told["key"], []).append(response)
        for key, responses in self._left.items():
            self._left[key] = [each for each in responses if each.provider_response_id not in over]

    def take(self, key: str) -> ModelResponse | None:
        left = self._left.get(key)
        return left.pop(0) if left else None

    def keep(self, key: str, response: ModelResponse) -> None:
        (plain,) = ModelMessagesTypeAdapter.dump_python([response], mode="json")
        self._write({"key": key, "response": plain})

    def drop(self, ids: list[str]) -> None:
        for id in ids:
            self._write({"over": id})

    def _write(self, told: dict[str, Any]) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):  # a full disk costs what is kept, not the session
            plain_files.append(self._file, json.dumps(told, separators=(",", ":")).encode() + b"\n")


def _lines(file: Path | None) -> list[str]:
    try:
        return plain_files.read_text(file, errors="replace").splitlines() if file is not None else []
    except OSError:
        return []
