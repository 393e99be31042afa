"""A session's conversation with a model: alternates requests and tool calls, over pydantic-ai's direct API.

pydantic-ai's `Agent` can do this too, with many features that a session does not need, and costs more than the request
itself (benchmarks/models.py). Like the adapter, this module imports the library.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from pydantic_ai import messages as library
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ContentFilterError, IncompleteToolCall, UsageLimitExceeded
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RunUsage

from prose_kernel.language.structs import replace
from prose_kernel.models.providers.model_bounds import BudgetedModel
from prose_kernel.models.providers.model_calls import Conversation
from prose_kernel.models.providers.model_settings import ANSWER, OutputMode
from prose_kernel.models.tools.tool import ToolAnswer
from prose_kernel.runtime.structured_text import json_in
from prose_kernel.runtime.typed_answers import correction_text

Hear = Callable[[AsyncIterable[library.ModelResponseStreamEvent]], Awaitable[None]]
Call = Callable[[str, dict[str, Any]], Awaitable[ToolAnswer]]


class Handlers(NamedTuple):
    """`hear` receives each stream of events, `call` runs a tool with its arguments."""

    hear: Hear
    call: Call


def first_messages(
    asked: Conversation, prompt: str | Sequence[library.UserContent], instructions: str | None
) -> list[library.ModelMessage]:
    """Return the messages of a new conversation, or of one that continues a failed one. Earlier answers that did not
    fit are included, each with its problem."""
    if asked.history:
        return list(asked.history)
    messages: list[library.ModelMessage] = [
        library.ModelRequest(parts=[library.UserPromptPart(prompt)], instructions=instructions)
    ]
    for answer, problem in asked.wrong:
        messages.append(library.ModelResponse(parts=[library.TextPart(answer or "(no text)")]))
        messages.append(correction(problem, messages[0]))
    return messages


def correction(problem: str, first: library.ModelMessage) -> library.ModelRequest:
    """Return the message that follows an answer that did not fit, in the conversation that began with `first`."""
    instructions = first.instructions if isinstance(first, library.ModelRequest) else None
    return library.ModelRequest(parts=[library.UserPromptPart(correction_text(problem))], instructions=instructions)


def with_words(first: library.ModelMessage, words: str) -> library.ModelMessage:
    """Return the first request of a conversation with `words`, which ask for the answer, at its end."""
    prompt = first.parts[0] if isinstance(first, library.ModelRequest) else None
    if not words or not isinstance(first, library.ModelRequest) or not isinstance(prompt, library.UserPromptPart):
        return first
    content = prompt.content
    extended = f"{content}\n\n{words}" if isinstance(content, str) else [*content, words]
    return replace(first, parts=[replace(prompt, content=extended), *first.parts[1:]])


async def run_conversation(
    model: BudgetedModel,
    asked: Conversation,
    conversation: list[library.ModelMessage],
    *,
    output: OutputMode,
    settings: ModelSettings,
    used: RunUsage,
    handlers: Handlers,
) -> library.ModelResponse:
    """Return the response without further tool calls. Appends to `conversation` and adds to `used`.

    A call of an unknown tool, or with invalid JSON, gets an error as its answer, and the conversation continues for at
    most `rounds` requests. Raises errors of the library and of `handlers`.
    """
    parameters = _parameters(asked, output)
    known = frozenset((*(spec.name for spec in asked.tools), *asked.denied))
    instructions = next((one.instructions for one in conversation if isinstance(one, library.ModelRequest)), None)

    async def request(messages: list[library.ModelMessage]) -> library.ModelResponse:
        if not asked.streams:
            return await model_request(model, messages, model_settings=settings, model_request_parameters=parameters)
        async with model_request_stream(
            model, messages, model_settings=settings, model_request_parameters=parameters
        ) as stream:
            await handlers.hear(stream)
        return stream.get()

    for _ in range(asked.rounds):
        response = model.recorded()
        if response is None:
            response, made = await request(conversation), True
        else:
            made = False
            await handlers.hear(_events(response))
        _count(used, response)
        conversation.append(response)
        calls = [part for part in response.parts if isinstance(part, library.ToolCallPart)]
        done = not calls or (output == "tool" and any(part.tool_name == ANSWER for part in calls))
        cut = not done and _is_cut(response, calls[-1])
        if made:
            model.answered(response, output, ends=done or cut)
        if done:
            if response.finish_reason == "content_filter" and not text_of(response):
                raise ContentFilterError("the model declined")
            return response
        if cut:
            raise IncompleteToolCall("cut off")
        answers = await _gather(_answer(part, known, handlers.call) for part in calls)
        conversation.append(library.ModelRequest(parts=answers, instructions=instructions))
    raise UsageLimitExceeded(f"{asked.rounds} requests")


def text_of(response: library.ModelResponse) -> str:
    """Return the text of a response without thinking. If the answer is a tool call, return its arguments."""
    for part in response.parts:
        if isinstance(part, library.ToolCallPart) and part.tool_name == ANSWER:
            return part.args_as_json_str()
    return "".join(part.content for part in response.parts if isinstance(part, library.TextPart))


def is_prose(response: library.ModelResponse) -> bool:
    """Return whether a complete answer is prose although a JSON object was requested."""
    called = any(isinstance(part, library.ToolCallPart) for part in response.parts)
    text = "" if called or response.finish_reason == "length" else text_of(response)
    return bool(text.strip()) and json_in(text) is None


def _parameters(asked: Conversation, output: OutputMode) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=spec.name, description=spec.description, parameters_json_schema=dict(spec.parameters))
        for spec in asked.tools
    ]
    schema = dict(asked.output or {})
    # for the library the answer is text: we report errors in it, in the same way for all providers
    match output:
        case "native":
            shape = OutputObjectDefinition(json_schema=schema, name=ANSWER)
            return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=shape)
        case "tool":
            answer = ToolDefinition(
                name=ANSWER, description="Give your answer.", parameters_json_schema=schema, kind="output"
            )
            # without other tools the model can only answer: servers that can force the call do so
            return ModelRequestParameters(
                function_tools=tools, output_mode="tool", output_tools=[answer], allow_text_output=bool(tools)
            )
        case _:
            return ModelRequestParameters(function_tools=tools)


def _count(used: RunUsage, response: library.ModelResponse) -> None:
    usage = response.usage
    if usage.cost is None and response.model_name:
        with suppress(LookupError, ValueError):  # the price is unknown
            usage.cost = response.cost().total_price
    used.requests += 1
    used.incr(usage)


def _is_cut(response: library.ModelResponse, last: library.ToolCallPart) -> bool:
    """Return whether the token limit has cut off the arguments of the last call."""
    if response.finish_reason != "length" or response.parts[-1] is not last:
        return False
    try:
        last.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        return True
    return False


async def _events(response: library.ModelResponse) -> AsyncIterator[library.ModelResponseStreamEvent]:
    """Yield a complete response as a stream."""
    for index, part in enumerate(response.parts):
        yield library.PartStartEvent(index=index, part=part)


async def _answer(part: library.ToolCallPart, known: frozenset[str], call: Call) -> library.ModelRequestPart:
    """Return the answer to a tool call; if it failed or was refused, as an error."""
    name, arguments = part.tool_name, dict[str, Any]()
    answer: ToolAnswer | None = None
    try:
        arguments = part.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        if name in known:  # a call of an invented name is still traced and audited
            answer = ToolAnswer("The arguments are not a JSON object.", "failed")
    if answer is None:
        answer = await call(name, arguments)
    outcome: Literal["success", "failed"] = "success" if answer.outcome == "ok" else "failed"
    return library.ToolReturnPart(tool_name=name, content=answer.text, tool_call_id=part.tool_call_id, outcome=outcome)


async def _gather(answers: Any) -> list[library.ModelRequestPart]:
    """Return all answers in the order of the calls. If one raises, or the session is cancelled, the others are
    cancelled."""
    tasks = [asyncio.ensure_future(answer) for answer in answers]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        if not all(task.done() for task in tasks):
            await asyncio.gather(*tasks, return_exceptions=True)
