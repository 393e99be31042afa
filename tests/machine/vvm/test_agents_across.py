"""Agents of one language called from the other (docs/reference/vvm.md 13)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from machine.fakes import Reply, World, lines
from machine.vvm_world import tree_of
from msgspec import structs

from prose_kernel.errors import CassetteMiss, PermissionDenied, ProviderRateLimit, RunError, VvmRaise
from prose_kernel.language.source import Source
from prose_kernel.machine.vvm.machine import Machine
from prose_kernel.models.digest_memory import DigestMemories
from prose_kernel.runtime.session_options import Surroundings
from prose_kernel.runtime.values import Value, plain


class Both(World):
    """A run with cells in OpenProse and VVM."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.vvm = Machine.sharing(self.machine)

    async def prose(self, *text: str) -> Value:
        return await self.run(lines(*text), cell=True)

    async def cell(self, *text: str) -> Value:
        source = Source("\n".join(text) + "\n", "cell")
        return await self.vvm.run(tree_of(source), source, cell=True)

    async def prose_fails(self, *text: str) -> RunError:
        return await self.fail(lines(*text), cell=True)


SCRIBE = 'agent scribe(model="small", prompt="Be brief.", skills=["web"])'
WRITER = ("agent writer:", "  model: sonnet", '  prompt: "You write."')


# ---------------------------------------------------------------- OpenProse asks an agent of VVM


async def test_a_session_calls_an_agent_of_vvm() -> None:
    w = Both(sessions_say={"Note this": "noted"})
    await w.cell(SCRIBE)
    await w.prose("let r = session: scribe", '  prompt: "Note this"')
    assert plain(w.machine.bindings()["r"].value) == "noted"
    (request,) = w.sessions.requests
    assert (request.kind, request.agent, request.model, request.system) == ("call", "scribe", "small", "Be brief.")
    assert await w.cell("r") == "noted"


async def test_the_context_of_the_session_is_the_input() -> None:
    w = Both()
    await w.cell(SCRIBE)
    await w.prose('let a = "facts"', "session: scribe", '  prompt: "Go"', "  context: a")
    (request,) = w.sessions.requests
    assert request.given is not None and request.given.text == "facts"


async def test_a_failure_raises_after_the_retries_of_the_session() -> None:
    w = Both(sessions_say={"Go": [Reply(fails="1"), Reply(fails="2")]})
    await w.cell(SCRIBE)
    error = await w.prose_fails("session: scribe", '  prompt: "Go"', "  retry: 1")
    assert (error.type, error.message) == ("SessionError", "2")
    assert len(w.sessions.requests) == 2
    w.sessions_say["Go"] = Reply(fails="again")
    await w.prose(
        "try:", "  session: scribe", '    prompt: "Go"', "catch as err:", '  let seen = "{err.message}"', "let r = 1"
    )
    assert "catch" not in w.sessions.tasks and w.value("r") == 1


async def test_openprose_updates_the_memory_of_an_agent_of_vvm(tmp_path: Path) -> None:
    w = Both(sessions_say={"Go": 'ok\n```vvm-memory\n{"digest": "kept"}\n```'})
    memories = DigestMemories(Surroundings(str(tmp_path)), w.clock)
    w.vvm.host.ports = structs.replace(w.vvm.host.ports, memories=memories)
    await w.cell('agent scribe(memory={scope: "project", key: "k"})')
    await w.prose("let r = session: scribe", '  prompt: "Go"')
    assert plain(w.machine.bindings()["r"].value) == "ok"
    assert (tmp_path / ".vvm/memory/k/digest.md").read_text() == "kept"
    for name in ("digest.md", "ledger.jsonl"):
        (tmp_path / ".vvm/memory/k" / name).write_bytes(b"\0\n")
    error = await w.prose_fails("session: scribe", '  prompt: "Go"')
    assert error.message == "the memory 'k' cannot be used: digest.md is a binary file"
    assert error.details["kind"] == "rejected"


async def test_a_call_that_loses_a_race_frees_its_memory_and_writes_nothing(tmp_path: Path) -> None:
    slow = Reply('late\n```vvm-memory\n{"digest": "kept"}\n```', after=60)
    w = Both(sessions_say={"slow": slow, "fast": Reply("quick", after=1)})
    w.vvm.host.ports = structs.replace(w.vvm.host.ports, memories=DigestMemories(Surroundings(str(tmp_path)), w.clock))
    await w.cell('agent m(memory={scope: "project", key: "k"})', "def f(x):", "  return @m `slow`(x)")
    await w.prose(
        'parallel ("first"):', '  a = do f("1")', "  b = session: m", '    prompt: "slow"', '  session "fast"'
    )
    async with asyncio.timeout(30):
        assert await w.cell("@m `again`(())") == "<again>"
    assert "(empty)" in w.sessions.requests[-1].prelude
    assert not (tmp_path / ".vvm/memory/k/ledger.jsonl").exists()


async def test_a_missing_answer_ends_both(tmp_path: Path) -> None:
    w = Both(sessions_say={"Go": Reply(fails=CassetteMiss("not recorded"))})
    await w.cell(SCRIBE)
    error = await w.prose_fails("try:", "  session: scribe", '    prompt: "Go"', "catch:", '  exec "echo caught"')
    assert error.no_answer and w.commands.ran == []


async def test_an_invalid_configuration_is_an_error_in_openprose() -> None:
    w = Both()
    await w.cell(SCRIBE, 'b = scribe.with(memory={scope: "pro" + "ject"})')
    error = await w.prose_fails("session: b", '  prompt: "Go"')
    assert (error.code, error.message) == ("R214", "bad agent configuration: `memory` has no `key`")


# ---------------------------------------------------------------- VVM asks an agent of OpenProse


async def test_an_agent_of_openprose_runs_as_its_session() -> None:
    w = Both(sessions_say={"Write about tea": "Tea is hot."})
    await w.prose(*WRITER)
    assert await w.cell('x = @writer `Write about {}`("tea")', "x") == "Tea is hot."
    (request,) = w.sessions.requests
    assert (request.kind, request.agent, request.model, request.system) == ("session", "writer", "sonnet", "You write.")
    assert request.context is not None and [item.name for item in request.context] == ["input"]


@pytest.mark.parametrize(
    ("failure", "kind", "data"),
    [
        ("busy", "spawn_failed", None),
        (ProviderRateLimit("slow down"), "rejected", None),
        (PermissionDenied("no"), "rejected", {"permanent": True}),
    ],
)
async def test_a_failure_of_the_session_is_an_error_value(failure: Any, kind: str, data: Any) -> None:
    w = Both(sessions_say={"Go": Reply(fails=failure)})
    await w.prose(*WRITER)
    value = await w.cell("@writer `Go`(())")
    error = {"kind": kind, "message": str(failure), **({"data": data} if data else {})}
    assert json.loads(json.dumps(value)) == {"error": error}


async def test_options_apply_to_an_agent_of_openprose() -> None:
    w = Both(sessions_say={"Go": [Reply(fails="1"), Reply("late", after=9), Reply(fails="3")]})
    await w.prose(*WRITER)
    value = await w.cell('@writer `Go`((), retry=2, backoff="fixed", timeout="5s")')
    assert value == {"error": {"kind": "spawn_failed", "message": "3"}}
    assert len(w.sessions.requests) == 3
    w.sessions_say["Slow"] = Reply("x", after=3)
    value = await w.cell('@writer `Slow`((), timeout="2s")')
    assert value == {"error": {"kind": "timeout", "message": "session timed out after 2s"}}


async def test_a_missing_answer_ends_the_run_from_vvm() -> None:
    w = Both(sessions_say={"Go": Reply(fails=CassetteMiss("not recorded"))})
    await w.prose(*WRITER)
    with pytest.raises(RunError) as failed:
        await w.cell("try:", "  @writer `Go`(())", "except as e:", "  pass")
    assert failed.value.no_answer


async def test_an_agent_of_openprose_is_a_value_but_cannot_be_derived() -> None:
    w = Both()
    await w.prose(*WRITER)
    assert await w.cell("w = @writer", "@w `Go`(())") == "<Go>"
    with pytest.raises(RunError, match="not an agent of VVM: 'writer' is declared in another language"):
        await w.cell('@writer.with(model="x") `Go`(())')
    with pytest.raises(RunError, match="cannot render"):
        await w.cell("@writer `Go`([len])")


async def test_a_call_in_a_branch_of_openprose_takes_its_turn_and_path() -> None:
    w = Both()
    await w.cell(SCRIBE, "def ask(n):", "  return @scribe `{n}`(())")
    await w.prose("parallel:", "  a = do ask(1)", "  b = do ask(2)")
    assert [(r.task, r.at) for r in w.sessions.requests] == [("1", "c2/1/b0/s0"), ("2", "c2/1/b1/s0")]


async def test_a_branch_that_lost_its_race_starts_no_more_sessions() -> None:
    w = Both(sessions_say={"slow": Reply("slow", after=50), "fast": Reply("fast", after=1)})
    await w.cell(SCRIBE, "def twice(what):", "  @scribe `{what}`(())", "  return @scribe `again {what}`(())")
    await w.prose('parallel ("first"):', '  a = do twice("slow")', '  b = session "fast"')
    assert "again slow" not in w.sessions.tasks


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("text", [("limit = 4",), ("def limit(a):", "  return a"), ("for limit in [1]:", "  pass")])
async def test_a49_a_const_or_input_of_openprose_cannot_be_bound_again(text: tuple[str, ...]) -> None:
    w = Both()
    await w.prose("let other = 1")
    await w.prose("const limit = 3")
    with pytest.raises(VvmRaise) as raised:
        await w.cell(*text)
    assert raised.value.code == "R221" and "cell 2" in raised.value.message
    assert await w.cell("def f(limit):", "  limit = limit + 1", "  return limit", "[limit, f(1)]") == [3, 2]
    await w.cell("other = 2")
    await w.prose("const limit = 5")
    assert await w.cell("try:", "  limit = 4", "except as e:", "  n = e.error.kind", "[limit, other, n]") == [
        5,
        2,
        "thrown",
    ]
