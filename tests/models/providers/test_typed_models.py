"""Typed answers of models, requested natively, by a tool or in words, in every wire format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models.providers.agents import agent, request
from models.providers.models import WIRES, Live, asked, conversation, server
from msgspec import structs
from stubs.model_server import Last, StubServer

from prose_kernel.errors import ProviderError
from prose_kernel.language.typed_answers import object_of
from prose_kernel.models.providers.model_sessions import ModelSessions
from prose_kernel.runtime.session_options import ModelOptions
from prose_kernel.runtime.typed_answers import checked_answer

SCHEMA = object_of({"verdict": {"type": "string", "enum": ["approve", "reject"]}, "score": {"type": "integer"}})


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_with_native_support_enforces_the_schema(stub: StubServer, wire: str, tmp_path: Path) -> None:
    model = "json-reject" if wire != "anthropic" else "claude-sonnet-4-6"
    async with Live(stub, wire, model, tmp_path, judge_output="native") as live:
        await live.run(asked(output=SCHEMA))
    assert stub.last is not None
    body = json.dumps(stub.last.body)
    assert "json_schema" in body
    assert '"verdict"' in body


@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_answers_with_an_object(stub: StubServer, wire: str, tmp_path: Path) -> None:
    model = stub.script("typed", '{"verdict": "reject", "score": 1}')
    async with Live(stub, wire, model, tmp_path) as live:
        result = await live.run(asked(output=SCHEMA))
    assert json.loads(checked_answer(result.text, SCHEMA)) == {"verdict": "reject", "score": 1}


def way_of(request: Last) -> str:
    """Return how a request asks for a typed answer."""
    asked = request.asked
    return "native" if asked.schema is not None else "tool" if "answer" in asked.tools else "words"


async def test_a44_refused_output_modes_are_remembered_for_the_run(stub: StubServer, tmp_path: Path) -> None:
    """With an OpenAI-compatible server the order is: natively, by a tool, in words."""
    seen = {}
    for model in ("json-0-reject", "noschema-reject", "words-0"):
        stub.reset()
        async with Live(stub, "chat", model, tmp_path) as live:
            for _ in range(3):
                result = await live.run(asked(output=SCHEMA))
                assert json.loads(checked_answer(result.text, SCHEMA))["verdict"] == "reject"
        seen[model] = way_of(stub.seen[-1]), stub.stats.requests
    assert seen == {"json-0-reject": ("native", 3), "noschema-reject": ("tool", 4), "words-0": ("words", 5)}


@pytest.mark.parametrize(
    ("model", "more", "way"),
    [
        ("json-reject", {}, "tool"),
        ("claude-sonnet-4-6", {}, "native"),
        ("json-reject", {"tools": False}, "words"),
        ("claude-sonnet-4-6", {"judge_output": "prompted"}, "words"),
    ],
)
async def test_a44_anthropic_is_asked_by_its_format_or_a_tool(
    stub: StubServer, tmp_path: Path, model: str, more: dict[str, Any], way: str
) -> None:
    async with Live(stub, "anthropic", model, tmp_path, **more) as live:
        await live.run(asked(output=SCHEMA))
    assert way_of(stub.seen[0]) == way


async def test_a44_a_request_that_is_refused_for_another_reason_fails_with_it(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "chat", "err-400", tmp_path) as live:
        with pytest.raises(ProviderError, match="The stub fails with 400"):
            await live.run(asked(output=SCHEMA))
    assert stub.stats.requests == 3


@pytest.mark.parametrize("wire", WIRES)
async def test_a44_a_correction_continues_the_conversation_with_the_wrong_answer_in_it(
    stub: StubServer, wire: str, tmp_path: Path
) -> None:
    wrong = (('{"verdict": "maybe"}', "`verdict`: not one of them"), ("Perhaps.", "it is not a JSON object"))
    async with Live(stub, wire, "echo-0", tmp_path) as live:
        first = await live.run(asked(output=SCHEMA))
        begins = conversation(stub.seen[-1].body)
        result = await live.run(asked(output=SCHEMA, attempt=2, correction=wrong[1][1], wrong=wrong))
    assert result.text == "Your last answer did not fit: it is not a JSON object. Give a corrected one."
    after = conversation(stub.seen[-1].body)
    assert after[0] == begins[0]  # the same message, so that a cache has it
    assert first.text in after[0] or wire != "responses"
    roles = [wrong[0][0], "not one of them", "Perhaps.", "it is not a JSON object"]
    assert [part in message for part, message in zip(roles, after[1:], strict=True)] == [True] * 4


@pytest.mark.parametrize(
    ("wire", "model", "more"),
    [
        *((wire, "json-0", {}) for wire in WIRES),
        *((wire, "noschema", {}) for wire in WIRES),
        ("chat", "words-0", {}),
        ("chat", "words-0", {"judge_output": "prompted"}),
        ("anthropic", "words-0", {"judge_output": "prompted"}),
        ("chat", "json-0", {"judge_output": "tool"}),
    ],
)
async def test_a44_each_request_states_the_schema_once(
    stub: StubServer, tmp_path: Path, wire: str, model: str, more: dict[str, Any]
) -> None:
    """A message that asks for a JSON reply would contradict a tool that takes the answer."""
    async with Live(stub, wire, model, tmp_path, **more) as live:
        result = await live.run(asked(output=SCHEMA))
    assert json.loads(checked_answer(result.text, SCHEMA))["verdict"] in ("approve", "reject")
    assert [json.dumps(one.body).count("approve") for one in stub.seen] == [1] * stub.stats.requests
    in_words = [any("JSON" in message for message in conversation(one.body)) for one in stub.seen]
    assert in_words == [False] * (len(in_words) - 1) + [way_of(stub.seen[-1]) == "words"]


@pytest.mark.parametrize(("wire", "ways"), [("chat", 2), ("anthropic", 2), ("responses", 1)])
async def test_a44_a_custom_server_that_ignores_the_schema_is_asked_in_words(
    stub: StubServer, tmp_path: Path, wire: str, ways: int
) -> None:
    model = stub.script("ignores", "It is good.", '{"verdict": "approve", "score": 1}')
    async with Live(stub, wire, model, tmp_path) as live:
        result = await live.run(asked(output=SCHEMA))
        assert stub.stats.requests == ways
        if ways == 1:  # the table decides for OpenAI's own server, so the attempt fails
            assert result.text == "It is good."
            return
        assert json.loads(checked_answer(result.text, SCHEMA))["verdict"] == "approve"
        assert conversation(stub.seen[-1].body)[-2:] == [
            "It is good.",
            "Your last answer did not fit: it is not a JSON object. Give a corrected one.",
        ]
        way = way_of(stub.seen[-1])
        await live.run(asked(output=SCHEMA))
    begins = stub.seen[ways]
    assert conversation(begins.body)[0].startswith("Say something.") and len(conversation(begins.body)) == 1
    assert ("response_format" in begins.body, way) == (False, "words")


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a44_without_other_tools_the_answer_is_the_only_call_left(
    stub: StubServer, tmp_path: Path, wire: str
) -> None:
    async with Live(stub, wire, "noschema", tmp_path) as live:
        await live.run(asked(output=SCHEMA, bare=True))
        forced = stub.seen[-1].body["tool_choice"]
        await live.run(asked(output=SCHEMA))
    assert forced == ("required" if wire == "chat" else {"type": "any"})
    assert stub.seen[-1].body["tool_choice"] == ("auto" if wire == "chat" else {"type": "auto"})


OPTIONS: dict[str, Any] = {
    "max_tokens": 77,
    "temperature": 0.3,
    "top_p": 0.4,
    "seed": 5,
    "effort": "high",
    "cache": True,
}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("anthropic", "claude-sonnet-4-6"),
        ("anthropic", "ok-0"),
        ("gateway", "ok-0"),
        ("openai", "gpt-5-mini"),
        ("ollama", "qwen3-8b"),
        ("vllm", "deepseek-r1"),
        ("llamacpp", "ok-0"),
        ("lmstudio", "o3"),
    ],
)
async def test_a44_an_option_is_sent_or_an_error_on_every_kind_of_server(
    stub: StubServer, tmp_path: Path, name: str, model: str
) -> None:
    wire = {"anthropic": "anthropic", "openai": "responses"}.get(name, "chat")
    found = server(wire, stub, model=model, aliases={"x": model})[1]
    bodies: dict[str, Any] = {}
    for option, value in {"none": None, **OPTIONS}.items():
        options = {"x": ModelOptions(**({option: value} if value is not None else {}))}
        async with Live(stub, wire, None, tmp_path, others={name: structs.replace(found, options=options)}) as live:
            sessions = ModelSessions(live.servers, name, "x", session_tools=live.bench)
            problem = ""
            try:
                await sessions.run(asked(), lambda _: None)
            except ProviderError as refused:
                problem = str(refused)
            if problem:
                assert f"`{option}` has no effect on the model `{model}`" in problem
            else:
                assert stub.last is not None
                bodies[option] = stub.last.body
    assert len(bodies) > 1
    assert all(body != bodies["none"] for option, body in bodies.items() if option != "none")


@pytest.mark.parametrize("wire", WIRES)
async def test_tools_and_a_schema_go_together(stub: StubServer, wire: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the notes")
    call = {"calls": [{"name": "read", "arguments": {"path": "notes.txt"}}]}
    model = stub.script("typed-tools", call, '{"verdict": "reject", "score": 1}')
    async with Live(stub, wire, model, tmp_path, judge_output="native") as live:
        result = await live.run(asked(output=SCHEMA, permissions={"read": "allow"}))
    assert json.loads(checked_answer(result.text, SCHEMA)) == {"verdict": "reject", "score": 1}
    assert any(part.kind == "tool" for part in live.shown)
    assert stub.last is not None
    assert "read" in json.dumps(stub.last.body["tools"])


async def test_an_agent_of_the_command_line_answers_with_an_object(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        result = await bench.sessions.run(
            request('say {"verdict": "reject", "score": 1}', output=SCHEMA), lambda _: None
        )
    assert json.loads(checked_answer(result.text, SCHEMA)) == {"verdict": "reject", "score": 1}
