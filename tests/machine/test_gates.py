"""`gate`: record ids, and all forms of `on_reject` (openprose.md 5.8 to 5.10)."""

from __future__ import annotations

import asyncio

import pytest
from machine.fakes import Reply, World, lines

from prose_kernel.runtime.events import GateOpened, GateResolved
from prose_kernel.runtime.ports import GateDecision


def gate(*properties: str, name: str = "ok") -> str:
    return lines(f"gate {name}:", '  prompt: "Go on?"', *(f"  {p}" for p in properties))


async def test_defaults() -> None:
    w = World()
    await w.run(gate() + 'session "after"\n')
    request = w.gates.requests[0]
    assert (request.id, request.prompt, request.allow, request.timeout, request.timeout_text) == (
        "ok", "Go on?", ("user",), 1800.0, "30m",
    )  # fmt: skip
    assert (request.on_reject, request.execution_id, request.attempt) == ("throw", None, 1)
    assert w.sessions.tasks == ["after"]
    assert [type(e) for e in w.of(GateOpened, GateResolved)] == [GateOpened, GateResolved]
    assert w.machine.bindings() == {}


async def test_properties() -> None:
    w = World()
    await w.run(
        lines(
            'let v = "1.2"',
            "gate ok:",
            '  prompt: "Ship {v}?"',
            '  allow: ["user", "ops"]',
            '  timeout: "2h30m"',
            '  on_reject: throw "not {v}"',
        )
    )
    request = w.gates.requests[0]
    assert (request.prompt, request.allow, request.timeout, request.timeout_text, request.on_reject) == (
        "Ship 1.2?", ("user", "ops"), 9000.0, "2h30m", 'throw "not 1.2"',
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "properties", "code", "message"),
    [
        ("rejected", [], "E213", "gate ok rejected"),
        ("timeout", ['timeout: "5s"'], "E214", "gate ok timed out after 5s"),
        ("rejected", ['on_reject: throw "no way"'], "E213", "no way"),
        ("timeout", ['on_reject: throw "too late"'], "E214", "too late"),
    ],
)
async def test_throw(status: str, properties: list[str], code: str, message: str) -> None:
    error = await World(gates_say={"ok": status}).fail(gate(*properties))
    assert (error.type, error.code, error.message, error.no_answer) == ("GateRejected", code, message, False)
    assert error.details["gate"] == "ok"
    assert error.details["status"] == status
    assert error.details["resolved_by"] == ("user" if status == "rejected" else "system")


@pytest.mark.parametrize("status", ["rejected", "timeout"])
async def test_continue_and_session(status: str) -> None:
    w = World(gates_say={"ok": status, "then": status})
    await w.run(gate("on_reject: continue") + gate('on_reject: session "explain"', name="then") + 'session "after"\n')
    assert w.sessions.tasks == ["explain", "after"]
    assert sorted(w.store.kept) == ["anon_001", "anon_002"]


async def test_a_failing_session_propagates() -> None:
    w = World(gates_say={"ok": "rejected"}, sessions_say={"explain": Reply(fails="no")})
    error = await w.fail(gate('on_reject: session "explain"'))
    assert error.code == "E201"


async def test_retry_opens_the_same_gate_again() -> None:
    w = World(gates_say={"ok": ["rejected", "timeout", "approved"]})
    await w.run(gate("on_reject: retry"))
    assert [(r.id, r.attempt) for r in w.gates.requests] == [("ok", 1), ("ok", 2), ("ok", 3)]


@pytest.mark.parametrize(
    ("decision", "nobody"),
    [
        (GateDecision("rejected", "system", reason="nobody"), True),
        (GateDecision("rejected", "user", source="option"), False),
    ],
)
async def test_retry_that_could_never_end_throws(decision: GateDecision, nobody: bool) -> None:
    error = await World(gates_say={"ok": decision}).fail(gate("on_reject: retry"))
    assert (error.code, error.no_answer) == ("E213", nobody)
    hint = "approve it in advance: --yes ok, or %gate approve ok in a notebook"
    assert error.hint == (hint if nobody else None)


async def test_record_ids() -> None:
    w = World()
    body = '  gate ok:\n    prompt: "?"\n'
    await w.run(
        "block f():\n" + body + "repeat 2:\n" + body + "do f()\ndo f()\nparallel for v in [1, 2]:\n" + body
        + "block g():\n  parallel for v in [1]:\n  " + body.replace("\n", "\n  ") + "\ndo g()\n"
    )  # fmt: skip
    assert [r.id for r in w.gates.requests] == ["ok", "ok--2", "ok__1", "ok__2", "ok__i0", "ok__i1", "ok__3__i0"]


async def test_a_rejection_can_be_caught() -> None:
    w = World(gates_say={"ok": "rejected"})
    await w.run('try:\n  gate ok:\n    prompt: "?"\ncatch as e:\n  let x = [e.gate, e.status, e.comment]\n')
    assert w.value("x") == ["ok", "rejected", "why not"]


async def test_a_gate_pauses_only_its_branch_and_closes_when_the_branch_is_cancelled() -> None:
    w = World(gates_say={"ok": "wait"})
    await w.run(
        lines(
            'parallel ("first"):',
            "  do:",
            "    gate ok:",
            '      prompt: "?"',
            '    session "never"',
            '  b = session "B"',
        )
    )
    assert w.gates.closed == ["ok"]
    assert w.value("b") == "<B>"
    assert w.sessions.tasks == ["B"]


async def test_an_interrupt_closes_the_gate() -> None:
    w = World(gates_say={"ok": "wait"})
    task = asyncio.create_task(w.run(gate('on_reject: session "explain"')))
    while not w.gates.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert w.gates.closed == ["ok"]
    assert w.sessions.tasks == []
