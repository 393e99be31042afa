"""Typed answers of models: what is asked for natively, and what in words, in every wire format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sessions.providers.agents import agent, request
from sessions.providers.models import WIRES, Live, asked
from stubs.model_server import StubServer

from prose_kernel.language.typed_answers import object_of
from prose_kernel.runtime.typed_answers import taken

SCHEMA = object_of({"verdict": {"type": "string", "enum": ["approve", "reject"]}, "score": {"type": "integer"}})


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_can_is_held_to_the_schema(stub: StubServer, wire: str, tmp_path: Path) -> None:
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
    assert json.loads(taken(result.text, SCHEMA)) == {"verdict": "reject", "score": 1}


async def test_a_server_that_may_not_know_schemas_is_asked_in_words(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "chat", "echo", tmp_path) as live:
        result = await live.run(asked(output=SCHEMA, correction="`score`: 'x' is not of type 'integer'"))
    assert stub.last is not None
    assert "response_format" not in stub.last.body
    assert '"enum":["approve","reject"]' in result.text
    assert "Your last answer did not fit: `score`: 'x' is not of type 'integer'." in result.text


@pytest.mark.parametrize("wire", WIRES)
async def test_tools_and_a_schema_go_together(stub: StubServer, wire: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the notes")
    call = {"calls": [{"name": "read", "arguments": {"path": "notes.txt"}}]}
    model = stub.script("typed-tools", call, '{"verdict": "reject", "score": 1}')
    async with Live(stub, wire, model, tmp_path, judge_output="native") as live:
        result = await live.run(asked(output=SCHEMA, permissions={"read": "allow"}))
    assert json.loads(taken(result.text, SCHEMA)) == {"verdict": "reject", "score": 1}
    assert any(part.kind == "tool" for part in live.shown)
    assert stub.last is not None
    assert "read" in json.dumps(stub.last.body["tools"])


async def test_an_agent_of_the_command_line_answers_with_an_object(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        result = await bench.sessions.run(
            request('say {"verdict": "reject", "score": 1}', output=SCHEMA), lambda _: None
        )
    assert json.loads(taken(result.text, SCHEMA)) == {"verdict": "reject", "score": 1}
