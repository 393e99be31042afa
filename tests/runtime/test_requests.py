"""Fields of requests: each one counts for the key or is listed here as not counting; keys of existing journals stay
the same."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from prose_kernel.cassettes.keys import Identity
from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cassettes.records import key_of
from prose_kernel.runtime.ports import (
    AgentMemory,
    AnswerFile,
    BlockScope,
    CommandRequest,
    ContextItem,
    GateRequest,
    Given,
    JudgeRequest,
    Question,
    SessionRequest,
)
from prose_kernel.runtime.requests import Keys, Request, describe
from prose_kernel.runtime.session_options import Surroundings

SESSION = SessionRequest("session", "Write.", "c1/1/s0", "You write.", context=(ContextItem("plan", text="the plan"),))
COMMAND = CommandRequest("make all", "/start", 30.0, at="c1/2/x0")
JUDGE = JudgeRequest("the draft is good", "c1/3/j0", bindings={"draft": "one"})
GATE = GateRequest("g1", "publish", "Publish it?", ("anna",), 60.0, "1m", "abort", "c1/4/g0")
QUESTION = Question("topic", "Which topic?", at="c1/5/q0")

COUNT: dict[type, dict[str, Any]] = {
    SessionRequest: {
        "kind": "call", "task": "Paint.", "system": "You paint.", "model": "opus", "context": (), "skills": ("review",),
        "permissions": {"write": "deny"}, "given": Given("x"), "prelude": "before", "output": {"type": "string"},
        "correction": "too long", "tools": ("weather",), "bare": True,
    },
    CommandRequest: {
        "command": "make", "cwd": "/start/src", "max_output": 5, "stdin": "in", "env": {"A": "1"}, "pipefail": True,
    },
    JudgeRequest: {"text": "it is good", "bindings": {"draft": "two"}, "loop": "until", "subject": "three"},
    GateRequest: {"name": "release", "prompt": "Really?", "allow": ("bert",), "on_reject": "skip"},
    Question: {"prompt": "Which one?"},
}  # fmt: skip
"""The fields that count, each with another value."""

DO_NOT: dict[type, dict[str, Any]] = {
    SessionRequest: {
        "at": "c9/9/s9", "agent": "writer", "label": "first", "memory": AgentMemory("a", "true", "d", True),
        "scope": BlockScope(7, "b", 2, 1), "target": AnswerFile("a", "b", "#"), "program": "x.prose", "position": 3,
        "finished": ("a",), "attempt": 2, "timeout": 3.0, "settings": {"temperature": 1}, "wrong": (("a", "b"),),
        "elsewhere": True, "filed": True,
    },
    CommandRequest: {
        "timeout": 1.0, "track": False, "at": "c9/9/x9", "attempt": 1, "reads": ("a",), "writes": ("b",),
        "needs": {"cpu": 1.0},
    },
    JudgeRequest: {
        "at": "c9/9/j9", "program": "x.prose", "recent": ("a",), "loop_index": 2, "loop_maximum": 3, "further": (JUDGE,),
        "written": "{x} is good", "inserted": (("{x}", "y"),), "conditional": True, "by_rules": True,
    },
    GateRequest: {
        "id": "g9", "timeout": 1.0, "timeout_text": "1s", "execution_id": 3, "at": "c9/9/g9",
        "attempt": 2,
    },
    Question: {"name": "other", "at": "c9/9/q9", "phrase": JUDGE},
}  # fmt: skip
"""The fields that decide no answer, or are compared apart from the key."""

KEYS = Keys("/start", "/start", (b"20260101-000000-abcdef",), "/bin/sh")
ALL: list[Any] = [SESSION, COMMAND, JUDGE, GATE, QUESTION]


def changes(table: dict[type, dict[str, Any]]) -> list[Any]:
    return [
        pytest.param(request, {name: value}, id=f"{type(request).__name__}.{name}")
        for request in ALL
        for name, value in table[type(request)].items()
    ]


@pytest.mark.parametrize(("request_", "change"), changes(COUNT))
def test_fields_that_count_change_the_key_and_are_named(request_: Any, change: dict[str, Any]) -> None:
    before, after = KEYS.of(request_), KEYS.of(structs.replace(request_, **change))
    assert before.digest != after.digest
    assert (
        len({name for name in {**before.parts, **after.parts} if before.parts.get(name) != after.parts.get(name)}) == 1
    )


@pytest.mark.parametrize(("request_", "change"), changes(DO_NOT))
def test_fields_that_do_not_count_keep_the_key(request_: Any, change: dict[str, Any]) -> None:
    assert KEYS.of(structs.replace(request_, **change)) == KEYS.of(request_)


@pytest.mark.parametrize("request_", ALL, ids=lambda one: type(one).__name__)
def test_every_field_is_listed(request_: Any) -> None:
    kind = type(request_)
    assert sorted([*COUNT[kind], *DO_NOT[kind]]) == sorted(kind.__struct_fields__)


def test_labels_count() -> None:
    assert KEYS.of(JUDGE, ("a", "b")).digest != KEYS.of(JUDGE, ("a", "c")).digest


FULL = structs.replace(
    SESSION, task="Write in 20260101-000000-abcdef.", model="opus", skills=("review",), permissions={"write": "deny"},
    output={"type": "string"}, correction="too long", tools=("weather",), bare=True, timeout=3.0, agent="writer",
)  # fmt: skip
CALL = SessionRequest("call", "Write.", "c1/1/s0", given=Given(""), prelude="before", settings={"temperature": 1})
FULL_COMMAND = structs.replace(
    COMMAND, cwd="/start/src", max_output=5, stdin="in", env={"B": "2", "A": "1"}, pipefail=True
)
PINNED: list[tuple[Request, str, str]] = [
    (SESSION, "ebccfaf460a1e72428b06393", "dbefbf6d13f00a2d"),
    (FULL, "14bd83f74c0c24543a82a2dd", "a934ba8f967264f9"),
    (CALL, "1b1c3d34c3d089e6d00dfa75", "a3ee41b4431478d2"),
    (COMMAND, "1e416043fc82d617941f892d", "53d4cf9e0b073ec0"),
    (FULL_COMMAND, "2264c0dd97bff65d01bc4601", "a0350874aad821b5"),
    (JUDGE, "6b4b1a5312c77d82428ffe1e", "9b7dd4a9445fd959"),
    (GATE, "8a8857a5137c4be50ae3b7ae", "47a4a3e1c8c273d1"),
    (QUESTION, "30440fdc39cbc1b69a42cb4e", "6424ffbc1536f370"),
]
"""Requests with their keys and the digests of their places, as they are in journals of version 0.1."""


@pytest.mark.parametrize(("request_", "key", "digest"), PINNED, ids=lambda one: type(one).__name__)
def test_keys_of_existing_journals_are_unchanged(request_: Any, key: str, digest: str) -> None:
    """Changed keys would repeat every request that a run has stored; changed digests would end every resume."""
    assert (KEYS.of(request_).digest, describe(request_).digest(KEYS.run_ids)) == (key, digest)


def test_keys_of_existing_recordings_are_unchanged() -> None:
    there = Surroundings("/start", environment={"HOME": "/home/al"})
    made = Identity(Redaction({}, (), {"/start": "«ws»"}), there, lambda _: ("read",), {})
    assert key_of(made.session(SESSION)) == "0883d6c5e8ad51a0ec40c633"
    assert key_of(made.judgement("choose", JUDGE, ("a", "b"))) == "9780901071c0411465a8a3cd"
    assert key_of(made.judgement("extract", JUDGE, ("text",), "name")) == "e778973fe26687ab1c639cb2"
