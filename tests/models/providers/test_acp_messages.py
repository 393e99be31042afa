"""The connection to an agent, and the parsing of its requests: any bytes in any pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prose_kernel.access.session_permissions import Ruling
from prose_kernel.models.json_rpc import Wire
from prose_kernel.models.providers.acp_policy import AgentToolCall, PermissionOption, command_of, option_for, paths_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


async def received(wire: Wire) -> list[object]:
    wire.end()
    found = []
    while (message := await wire.receive()) is not None:
        found.append(message)
    return found


@settings(max_examples=50)
@given(st.lists(JSON, max_size=5), st.integers(1, 40))
async def test_messages_arrive_whole_in_any_pieces(values: list[object], size: int) -> None:
    messages = [{"jsonrpc": "2.0", "method": "m", "params": value} for value in values]
    text = "".join(json.dumps(message, ensure_ascii=False) + "\n" for message in messages)
    wire = Wire()
    for start in range(0, len(text), size):
        wire.take(text[start : start + size])
    assert await received(wire) == messages
    assert wire.noise is None


@given(JSON)
async def test_only_messages_of_the_protocol_pass(value: object) -> None:
    wire = Wire()
    wire.take(json.dumps(value) + "\n")
    for message in await received(wire):
        assert isinstance(message, dict)
        assert isinstance(message.get("id"), int | str | None)
        assert isinstance(message.get("method", ""), str)


@pytest.mark.parametrize(
    "line", ["hello", "{", "[1]", "7", "null", '{"id": {}}', '{"id": [], "result": 1}', '{"method": 7}', "[" * 100_000]
)
async def test_noise_is_reported_and_skipped(line: str) -> None:
    wire = Wire()
    wire.take(line + '\n{"id": 1, "result": {}}\n')
    assert await received(wire) == [{"id": 1, "result": {}}]
    assert wire.noise == line[:1000]
    assert wire.disturbed.is_set()


@pytest.mark.parametrize("error", ["boom", None, {"message": "x"}, {"code": 1, "message": None}])
async def test_malformed_errors_become_valid_errors(error: object) -> None:
    wire = Wire()
    wire.take(json.dumps({"id": 1, "error": error}) + "\n")
    (message,) = await received(wire)
    assert isinstance(message["error"]["code"], int)  # type: ignore[index]
    assert isinstance(message["error"]["message"], str)  # type: ignore[index]


@given(JSON, st.text())
def test_any_raw_input_can_be_read(raw: object, title: str) -> None:
    call = AgentToolCall("edit", title, raw)
    assert all(isinstance(path, str) and path.strip() for path in paths_of(call))
    assert isinstance(command_of(call), str)


KINDS = ("allow_once", "allow_always", "reject_once", "reject_always")


@given(st.lists(st.sampled_from(KINDS), max_size=6), st.sampled_from(["allow", "deny", "prompt"]), st.booleans())
def test_only_permission_requests_are_answered_with_a_permission(kinds: list[str], answer: str, blanket: bool) -> None:
    options = [PermissionOption(f"{kind}-{number}", kind) for number, kind in enumerate(kinds)]
    chosen = option_for(Ruling(answer), options, blanket=blanket)  # type: ignore[arg-type]
    if chosen is None:
        assert not any(kind.startswith("reject") for kind in kinds)
    elif chosen.startswith("allow"):
        assert answer == "allow"
        assert chosen.startswith("allow_once") or blanket
