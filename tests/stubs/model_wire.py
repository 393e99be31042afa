"""The wire formats of the stub model server: OpenAI chat completions and responses, Anthropic messages.

Each format reads a request into `Asked` and writes a `Turn`, as one object or as server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request, the same for all formats. `results` are the tool results since the last message of the user."""

    path: str
    model: str
    stream: bool
    system: str
    user: str
    results: list[str]
    turns: int
    tools: dict[str, Json]
    schema: Json | None
    words: int

    @property
    def cached(self) -> int:
        """The number of cached words: half of them for a model whose name begins with `cached`, otherwise none."""
        return self.words // 2 if self.model.startswith("cached") else 0


@dataclass(frozen=True)
class Turn:
    """A reply of the model: text in pieces, and calls of tools."""

    pieces: tuple[str, ...] = ()
    calls: tuple[tuple[str, Json], ...] = ()
    finish: str = "stop"  # stop, length, refusal

    @classmethod
    def of_text(cls, text: str, **more: Any) -> Turn:
        """Return a turn with a text in pieces of one word, as in a stream."""
        pieces = [piece + " " for piece in text.split(" ")]
        return cls((*pieces[:-1], pieces[-1][:-1]) if text else (), **more)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def words(self) -> int:
        return len(self.pieces) + len(self.calls)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if isinstance(part, dict) and "text" in part)


def _event(data: Json, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


@dataclass
class Wire:
    """One format. `events` yields the chunks of a stream; `piece` returns the chunk of a text, for endless streams."""

    asked: Asked
    blocks: int = 0
    written: list[str] = field(default_factory=list)

    def events(self, turn: Turn) -> Iterator[bytes]:
        yield self.start()
        for piece in turn.pieces:
            yield self.piece(piece)
        for number, (name, arguments) in enumerate(turn.calls):
            yield self.call(number, name, arguments)
        yield self.end(turn)

    def start(self) -> bytes:
        raise NotImplementedError

    def piece(self, text: str) -> bytes:
        raise NotImplementedError

    def call(self, number: int, name: str, arguments: Json) -> bytes:
        raise NotImplementedError

    def end(self, turn: Turn) -> bytes:
        raise NotImplementedError

    def whole(self, turn: Turn) -> Json:
        raise NotImplementedError

    def error(self, status: int, kind: str, message: str, code: str | None = None) -> Json:
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class Chat(Wire):
    """`/v1/chat/completions`."""

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        return _event(
            {
                "id": "chatcmpl-stub",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": self.asked.model,
                "provider": "stub",  # this and the native reason are fields of OpenRouter
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "native_finish_reason": finish}],
            }
        )

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def call(self, number: int, name: str, arguments: Json) -> bytes:
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": number, "id": self._call_id(number), "type": "function", "function": function}
        return self._chunk({"tool_calls": [call]})

    def _call_id(self, number: int) -> str:
        return f"call_{self.asked.turns}_{number}"

    def _finish(self, turn: Turn) -> str:
        return {"stop": "tool_calls" if turn.calls else "stop", "length": "length", "refusal": "content_filter"}[
            turn.finish
        ]

    def _usage(self, turn: Turn) -> Json:
        usage = {"prompt_tokens": self.asked.words, "completion_tokens": turn.words}
        details = {"cached_tokens": self.asked.cached}
        return {**usage, "total_tokens": self.asked.words + turn.words, "prompt_tokens_details": details}

    def end(self, turn: Turn) -> bytes:
        usage = {
            "id": "chatcmpl-stub",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": self.asked.model,
            "provider": "stub",
            "choices": [],
            "usage": self._usage(turn),
        }
        return self._chunk({}, self._finish(turn)) + _event(usage) + b"data: [DONE]\n\n"

    def whole(self, turn: Turn) -> Json:
        message: Json = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": self._call_id(number),
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for number, (name, arguments) in enumerate(turn.calls)
            ]
        return {
            "id": "chatcmpl-stub",
            "object": "chat.completion",
            "created": 1,
            "model": self.asked.model,
            "provider": "stub",
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    **dict.fromkeys(("finish_reason", "native_finish_reason"), self._finish(turn)),
                }
            ],
            "usage": self._usage(turn),
        }


class Messages(Wire):
    """`/v1/messages`."""

    def _named(self, data: Json) -> bytes:
        return _event(data, data["type"])

    def _message(self, content: list[Json], stop: str | None, out: int) -> Json:
        return {
            "id": "msg_stub",
            "type": "message",
            "role": "assistant",
            "model": self.asked.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": self.asked.words - self.asked.cached,
                "cache_read_input_tokens": self.asked.cached,
                "output_tokens": out,
            },
        }

    def start(self) -> bytes:
        return self._named({"type": "message_start", "message": self._message([], None, 1)})

    def piece(self, text: str) -> bytes:
        opened = b""
        if not self.blocks:
            opened = self._open({"type": "text", "text": ""})
        delta = {"type": "text_delta", "text": text}
        return opened + self._named({"type": "content_block_delta", "index": self.blocks - 1, "delta": delta})

    def call(self, number: int, name: str, arguments: Json) -> bytes:
        closed = self._close() if self.blocks else b""
        opened = self._open({"type": "tool_use", "id": self._call_id(number), "name": name, "input": {}})
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        return closed + opened + self._named({"type": "content_block_delta", "index": self.blocks - 1, "delta": delta})

    def _call_id(self, number: int) -> str:
        return f"toolu_{self.asked.turns}_{number}"

    def _open(self, block: Json) -> bytes:
        self.blocks += 1
        return self._named({"type": "content_block_start", "index": self.blocks - 1, "content_block": block})

    def _close(self) -> bytes:
        return self._named({"type": "content_block_stop", "index": self.blocks - 1})

    def _stop(self, turn: Turn) -> str:
        return {"stop": "tool_use" if turn.calls else "end_turn", "length": "max_tokens", "refusal": "refusal"}[
            turn.finish
        ]

    def end(self, turn: Turn) -> bytes:
        closed = self._close() if self.blocks else b""
        delta = {"stop_reason": self._stop(turn), "stop_sequence": None}
        usage = {"output_tokens": turn.words}
        return (
            closed
            + self._named({"type": "message_delta", "delta": delta, "usage": usage})
            + self._named({"type": "message_stop"})
        )

    def whole(self, turn: Turn) -> Json:
        content: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        content += [
            {"type": "tool_use", "id": self._call_id(number), "name": name, "input": arguments}
            for number, (name, arguments) in enumerate(turn.calls)
        ]
        return self._message(content, self._stop(turn), turn.words)

    def error(self, status: int, kind: str, message: str, code: str | None = None) -> Json:
        return {"type": "error", "error": {"type": kind, "message": message}}


class Responses(Wire):
    """`/v1/responses`."""

    sequence = 0

    def _named(self, kind: str, **data: Any) -> bytes:
        self.sequence += 1
        return _event({"type": kind, "sequence_number": self.sequence, **data}, kind)

    def _response(self, output: list[Json], turn: Turn | None) -> Json:
        is_cut = turn is not None and turn.finish == "length"
        usage = None
        if turn is not None:
            usage = {
                "input_tokens": self.asked.words,
                "input_tokens_details": {"cached_tokens": self.asked.cached},
                "output_tokens": turn.words,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.asked.words + turn.words,
            }
        return {
            "id": "resp_stub",
            "object": "response",
            "created_at": 1,
            "status": "in_progress" if turn is None else "incomplete" if is_cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": None,
            "metadata": {},
            "model": self.asked.model,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage,
        }

    def _message_item(self, text: str, status: str = "completed") -> Json:
        parts = [{"type": "output_text", "text": text, "annotations": []}] if status == "completed" else []
        return {"type": "message", "id": "item_text", "status": status, "role": "assistant", "content": parts}

    def _call_item(self, number: int, name: str, arguments: Json) -> Json:
        return {
            "type": "function_call",
            "id": f"item_call_{number}",
            "call_id": f"call_{self.asked.turns}_{number}",
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }

    def start(self) -> bytes:
        return self._named("response.created", response=self._response([], None))

    def piece(self, text: str) -> bytes:
        opened = b""
        if not self.written:
            part = {"type": "output_text", "text": "", "annotations": []}
            opened = self._named(
                "response.output_item.added", output_index=0, item=self._message_item("", "in_progress")
            )
            opened += self._named(
                "response.content_part.added", output_index=0, item_id="item_text", content_index=0, part=part
            )
        self.written.append(text)
        return opened + self._named(
            "response.output_text.delta", output_index=0, item_id="item_text", content_index=0, delta=text, logprobs=[]
        )

    def _close(self) -> bytes:
        text = "".join(self.written)
        return self._named(
            "response.output_text.done", output_index=0, item_id="item_text", content_index=0, text=text, logprobs=[]
        ) + self._named("response.output_item.done", output_index=0, item=self._message_item(text))

    def call(self, number: int, name: str, arguments: Json) -> bytes:
        item = self._call_item(number, name, arguments)
        place = {"output_index": number + bool(self.written)}
        return (
            self._named("response.output_item.added", **place, item={**item, "arguments": "", "status": "in_progress"})
            + self._named(
                "response.function_call_arguments.delta", **place, item_id=item["id"], delta=item["arguments"]
            )
            + self._named(
                "response.function_call_arguments.done",
                **place,
                item_id=item["id"],
                name=name,
                arguments=item["arguments"],
            )
            + self._named("response.output_item.done", **place, item=item)
        )

    def end(self, turn: Turn) -> bytes:
        closed = self._close() if self.written else b""
        kind = "response.incomplete" if turn.finish == "length" else "response.completed"
        return closed + self._named(kind, response=self.whole(turn))

    def whole(self, turn: Turn) -> Json:
        output = [self._message_item(turn.text)] if turn.text else []
        output += [self._call_item(number, name, arguments) for number, (name, arguments) in enumerate(turn.calls)]
        return self._response(output, turn)


WIRES: dict[str, type[Wire]] = {"/chat/completions": Chat, "/messages": Messages, "/responses": Responses}


def read(path: str, body: Json) -> Wire:
    """Read the request of a path. Raises `StopIteration` for a path without a format."""
    wire = next(kind for end, kind in WIRES.items() if path.endswith(end))
    reader = {Chat: _read_chat, Messages: _read_messages, Responses: _read_responses}[wire]
    return wire(reader(path, body))


def _asked(
    path: str, body: Json, system: str, spoken: list[tuple[str, str]], tools: dict[str, Json], schema: Any
) -> Asked:
    """Return a request. `spoken` has (role, text) in order, with `tool` for a result."""
    last = max((n for n, (role, _) in enumerate(spoken) if role == "user"), default=-1)
    return Asked(
        path=path,
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        system=system,
        user=spoken[last][1] if last >= 0 else "",
        results=[text for role, text in spoken[last + 1 :] if role == "tool"],
        turns=sum(1 for role, _ in spoken if role == "assistant"),
        tools=tools,
        schema=schema,
        words=sum(len(text.split()) for _, text in spoken) + len(system.split()),
    )


def _read_chat(path: str, body: Json) -> Asked:
    messages = body.get("messages") or []
    system = "\n\n".join(_text(m.get("content")) for m in messages if m.get("role") in ("system", "developer"))
    spoken = [(m["role"], _text(m.get("content"))) for m in messages if m.get("role") in ("user", "assistant", "tool")]
    tools = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body.get("tools") or ()}
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    return _asked(path, body, system, spoken, tools, schema)


def _read_messages(path: str, body: Json) -> Asked:
    spoken: list[tuple[str, str]] = []
    for message in body.get("messages") or ():
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        results = [part for part in parts if part.get("type") == "tool_result"]
        spoken += [("tool", _text(part.get("content"))) for part in results]
        if message["role"] == "assistant" or len(results) < len(parts):
            spoken.append((message["role"], _text([part for part in parts if part.get("type") == "text"])))
    tools = {tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or ()}
    form = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
    return _asked(path, body, _text(body.get("system")), spoken, tools, form.get("schema"))


def _read_responses(path: str, body: Json) -> Asked:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    system = [str(body.get("instructions") or "")]
    spoken: list[tuple[str, str]] = []
    called = False
    for item in items:
        if item.get("type") == "function_call_output":
            spoken.append(("tool", _text(item.get("output"))))
        elif item.get("type") == "function_call":
            spoken += [("assistant", "")] if not called else []
        elif item.get("role") in ("system", "developer"):
            system.append(_text(item.get("content")))
        elif item.get("role"):
            spoken.append((item["role"], _text(item.get("content"))))
        called = item.get("type") == "function_call"
    tools = {tool["name"]: tool.get("parameters") or {} for tool in body.get("tools") or () if tool.get("name")}
    schema = ((body.get("text") or {}).get("format") or {}).get("schema")
    return _asked(path, body, "\n\n".join(filter(None, system)), spoken, tools, schema)
