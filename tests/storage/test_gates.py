from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gate_people import RUN, Person, TestClock, anybody, request, settle
from waiting import PATIENCE

from prose_kernel.errors import NoPerson, StateError, UsageError
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.storage.gates import decision_socket, file_records
from prose_kernel.storage.gates.answers import GateAnswer, PriorDecisions, read_answer
from prose_kernel.storage.gates.deciding import Gatekeeper, GatePolicy, Mode
from prose_kernel.storage.gates.decision_socket import ask
from prose_kernel.storage.gates.file_records import FileRecords, MemoryRecords


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def records(tmp_path: Path, clock: TestClock) -> FileRecords:
    return FileRecords(tmp_path / ".prose" / "runs" / RUN / "gates", RUN, clock)


def log(records: FileRecords) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (records.directory / "audit.jsonl").read_text().splitlines()]


def logged(records: FileRecords) -> list[tuple[str, str, dict[str, Any]]]:
    return [(entry["event_type"], entry["principal"], entry["metadata"]) for entry in log(records)]


def resolved(records: FileRecords, gate_id: str = "release_ok") -> dict[str, Any]:
    data = json.loads((records.directory / f"{gate_id}.resolved.json").read_text())
    assert isinstance(data, dict)
    return data


Keeper = Callable[..., Gatekeeper]


@pytest.fixture
def keeper(records: FileRecords, clock: TestClock) -> Keeper:
    def make(person: Person, mode: Mode = "auto", **options: Any) -> Gatekeeper:
        prior, inspect = options.pop("prior", None), options.pop("inspect", anybody)
        return Gatekeeper(records, person, clock, GatePolicy(mode, **options), prior, inspect=inspect)

    return make


# ---------------------------------------------------------------- asking


async def test_approved_by_the_person(keeper: Keeper, records: FileRecords) -> None:
    person = Person("Approve: looks good")
    decision = await keeper(person).decide(request())
    assert decision == GateDecision("approved", "user", "looks good", source="terminal")
    assert person.asked == ["Publish 1.2?\ngate release_ok, timeout 10m\napprove or reject? "]
    assert resolved(records) == {
        "gate_id": "release_ok",
        "decision": "approved",
        "principal": "user",
        "timestamp": "2026-03-01T10:15:00.000Z",
        "comment": "looks good",
    }
    assert not (records.directory / "release_ok.pending.json").exists()
    assert logged(records) == [("created", "system", {}), ("approved", "user", {"source": "terminal"})]
    assert log(records)[1]["comment"] == "looks good"


@pytest.mark.parametrize(("mode", "shown"), [("auto", "release_ok (release_ok--2)"), ("ask", "release_ok")])
async def test_the_id_is_shown_if_a_decision_from_outside_is_possible(keeper: Keeper, mode: Mode, shown: str) -> None:
    person = Person("y")
    await keeper(person, mode).decide(request(id="release_ok--2"))
    assert person.asked == [f"Publish 1.2?\ngate {shown}, timeout 10m\napprove or reject? "]


async def test_the_pending_record(keeper: Keeper, records: FileRecords) -> None:
    task = asyncio.create_task(
        keeper(Person()).decide(request("ok", id="ok__7", execution_id=7, allow=("user", "ops")))
    )
    await settle()
    data = json.loads((records.directory / "ok__7.pending.json").read_text())
    assert {key: data[key] for key in ("id", "name", "execution_id", "prompt", "allow", "timeout", "on_reject")} == {
        "id": "ok__7",
        "name": "ok",
        "execution_id": 7,
        "prompt": "Publish 1.2?",
        "allow": ["user", "ops"],
        "timeout": "10m",
        "on_reject": "throw",
    }
    assert data["status"] == "pending"
    assert (data["created_at"], data["timeout_at"]) == ("2026-03-01T10:15:00.000Z", "2026-03-01T10:25:00.000Z")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("approve", GateAnswer(True)),
        ("APPROVED", GateAnswer(True)),
        (" Yes ", GateAnswer(True)),
        ("y: go : now", GateAnswer(True, comment="go : now")),
        ("reject", GateAnswer(False)),
        ("rejected:too early", GateAnswer(False, comment="too early")),
        ("no", GateAnswer(False)),
        ("N", GateAnswer(False)),
        ("", None),
        ("ok", None),
        ("yes please", None),
        (": approve", None),
    ],
)
def test_accepted_words(text: str, expected: GateAnswer | None) -> None:
    assert read_answer(text) == expected


async def test_anything_else_asks_again(keeper: Keeper) -> None:
    person = Person("", "sure", "no: not today")
    decision = await keeper(person).decide(request())
    assert decision == GateDecision("rejected", "user", "not today", source="terminal")
    assert len(person.asked) == 3


async def test_end_of_input_rejects(keeper: Keeper) -> None:
    decision = await keeper(Person(EOFError), notebook=True).decide(request())
    assert decision == GateDecision("rejected", "user", source="cell")


async def test_a_person_who_has_left_does_not_count(keeper: Keeper) -> None:
    decision = await keeper(Person(NoPerson)).decide(request())
    assert decision == GateDecision("rejected", "system", reason="nobody")


async def test_an_approval_by_someone_not_allowed_is_refused_a_rejection_is_not(keeper: Keeper) -> None:
    person = Person("yes", "no")
    decision = await keeper(person).decide(request(allow=("ops",)))
    assert decision.status == "rejected"
    assert person.asked == [
        "Publish 1.2?\ngate release_ok, allow ops, timeout 10m\napprove or reject? ",
        "gate release_ok: user may not approve, allowed: ops\napprove or reject? ",
    ]


async def test_gates_are_asked_one_at_a_time_in_the_order_they_opened(keeper: Keeper) -> None:
    person = Person("y", "n", "y")
    gates = keeper(person)
    decisions = await asyncio.gather(*(gates.decide(request(name)) for name in ("a", "b", "c")))
    assert [d.status for d in decisions] == ["approved", "rejected", "approved"]
    assert [prompt.splitlines()[1][5:6] for prompt in person.asked] == ["a", "b", "c"]
    assert person.most_open == 1


async def test_the_deadline_withdraws_the_question(keeper: Keeper, records: FileRecords, clock: TestClock) -> None:
    person = Person()
    task = asyncio.create_task(keeper(person).decide(request()))
    await settle()
    await clock.advance(599.0)
    assert not task.done() and person.open == 1
    await clock.advance(1.0)
    assert await task == GateDecision("timeout", "system")
    assert person.open == 0
    assert person.shown == ["gate release_ok timed out after 10m"]
    assert resolved(records)["decision"] == "timeout"
    assert logged(records)[-1] == ("timeout", "system", {})


async def test_the_deadline_runs_while_a_gate_waits_for_its_turn(keeper: Keeper, clock: TestClock) -> None:
    person = Person()
    gates = keeper(person)
    first = asyncio.create_task(gates.decide(request("a", timeout=600.0)))
    await settle()
    second = asyncio.create_task(gates.decide(request("b", timeout=60.0, timeout_text="1m")))
    await settle()
    await clock.advance(60.0)
    assert (await second).status == "timeout"
    assert not first.done()
    assert len(person.asked) == 1 and person.shown == []
    await clock.advance(540.0)
    assert (await first).status == "timeout"


# ---------------------------------------------------------------- non-interactive, deny, decisions in advance


@pytest.mark.parametrize(
    ("mode", "notebook", "here", "decider"),
    [
        ("auto", False, True, "user"),
        ("auto", False, False, "system"),
        ("ask", False, True, "user"),
        ("ask", False, False, "system"),
        ("deny", False, True, "system"),
        ("auto", True, True, "user"),
        ("auto", True, False, "system"),
        ("ask", True, True, "user"),
        ("wait", True, True, "user"),
        ("wait", True, False, "system"),
        ("deny", True, True, "system"),
    ],
)
async def test_the_table_of_modes(keeper: Keeper, mode: Mode, notebook: bool, here: bool, decider: str) -> None:
    decision = await keeper(Person("y", available=here), mode, notebook=notebook).decide(request())
    assert decision.by == decider
    if decider == "system":
        assert (decision.status, decision.reason) == ("rejected", "nobody")


async def test_a_gate_closed_for_lack_of_a_decider_is_recorded(keeper: Keeper, records: FileRecords) -> None:
    await keeper(Person(available=False)).decide(request())
    assert logged(records)[-1] == ("rejected", "system", {"reason": "nobody"})


async def test_waiting_announces_the_command_and_ends_at_the_deadline(
    keeper: Keeper, clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    person = Person(available=False)
    task = asyncio.create_task(keeper(person, "wait").decide(request()))
    await settle()
    assert person.shown == [f"gate release_ok of run {RUN} waits: prose gate approve {RUN} release_ok"]
    await clock.advance(600.0)
    assert (await task).status == "timeout"
    assert person.asked == []


def test_waiting_in_memory_is_refused_at_the_start(clock: TestClock) -> None:
    with pytest.raises(UsageError):
        Gatekeeper(MemoryRecords(clock), Person(), clock, GatePolicy("wait"))
    Gatekeeper(MemoryRecords(clock), Person(), clock, GatePolicy("wait", notebook=True))


async def test_in_memory_records(clock: TestClock) -> None:
    records = MemoryRecords(clock)
    decision = await Gatekeeper(records, Person("y"), clock, GatePolicy()).decide(request())
    assert decision.status == "approved"
    assert [(e.event_type, e.principal) for e in records.events()] == [("created", "system"), ("approved", "user")]


async def test_decisions_given_in_advance(keeper: Keeper, records: FileRecords) -> None:
    supplied = {"c": "Approve", "d": "perhaps"}
    prior = PriorDecisions({"a": True, "b": False}, supplied.get)
    gates = keeper(Person(available=False), "deny", prior=prior)
    for _ in range(2):
        assert await gates.decide(request("a")) == GateDecision("approved", "user", source="option")
        assert await gates.decide(request("b")) == GateDecision("rejected", "user", source="option")
        assert await gates.decide(request("c")) == GateDecision("approved", "user", source="option")
    assert (await gates.decide(request("d"))).reason == "nobody"
    assert logged(records)[1] == ("approved", "user", {"source": "option"})


async def test_a_decision_for_the_next_instance_is_used_once(keeper: Keeper) -> None:
    prior = PriorDecisions()
    gates = keeper(Person(available=False), prior=prior, notebook=True)
    prior.give("ok", GateAnswer(True, comment="seen"))
    prior.give("ok", GateAnswer(False))
    assert await gates.decide(request("ok")) == GateDecision("approved", "user", "seen", source="option")
    assert (await gates.decide(request("ok"))).status == "rejected"
    assert (await gates.decide(request("ok"))).reason == "nobody"


async def test_a_claimed_principal_must_be_allowed_to_approve(keeper: Keeper) -> None:
    person = Person(available=False)
    gates = keeper(person)
    gates.prior.give("ok", GateAnswer(True, "ops"))
    assert await gates.decide(request("ok", allow=("ops",))) == GateDecision("approved", "ops", source="option")
    gates.prior.give("other", GateAnswer(True))
    assert (await gates.decide(request("other", allow=("ops",)))).reason == "nobody"
    assert person.shown == ["gate other: user may not approve, allowed: ops"]


# ---------------------------------------------------------------- closing and reopening


@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_cancelled_gate_is_closed(keeper: Keeper, records: FileRecords, interrupted: bool) -> None:
    person = Person()
    gates = keeper(person)
    task = asyncio.create_task(gates.decide(request()))
    await settle()
    if interrupted:
        gates.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    reason = "interrupted" if interrupted else "cancelled"
    assert logged(records)[-1] == ("rejected", "system", {"reason": reason})
    assert not list(records.directory.glob("*.pending.json"))
    assert person.open == 0


async def test_a_gate_that_opens_again_forgets_its_decision_but_not_its_log(
    keeper: Keeper, records: FileRecords
) -> None:
    gates = keeper(Person("n", "y"))
    assert (await gates.decide(request())).status == "rejected"
    assert (await gates.decide(request(attempt=2))).status == "approved"
    assert logged(records) == [
        ("created", "system", {}),
        ("rejected", "user", {"source": "terminal"}),
        ("created", "system", {"attempt": 2}),
        ("approved", "user", {"attempt": 2, "source": "terminal"}),
    ]


async def test_two_pending_records_never_share_an_id(keeper: Keeper, records: FileRecords, clock: TestClock) -> None:
    gates = keeper(Person())
    tasks = [asyncio.create_task(gates.decide(request())) for _ in range(2)]
    await settle()
    assert sorted(r.id for r in records.pending()) == ["release_ok", "release_ok--2"]
    await clock.advance(600.0)
    assert [(await task).status for task in tasks] == ["timeout", "timeout"]


async def test_a_record_that_cannot_be_kept_is_an_error(tmp_path: Path, clock: TestClock) -> None:
    (tmp_path / "gates").write_text("in the way")
    gates = Gatekeeper(FileRecords(tmp_path / "gates", RUN, clock), Person("y"), clock, GatePolicy())
    with pytest.raises(StateError, match="gate 'release_ok' could not be recorded") as caught:
        await gates.decide(request())
    assert caught.value.code == "E219"
    assert caught.value.hint == "make room, or check who may write to the state directory, then run the gate again"


# ---------------------------------------------------------------- from outside


async def asked(records: FileRecords, **request: Any) -> Any:
    """Ask in a separate thread, because the server uses the threads of the loop."""
    with ThreadPoolExecutor(1) as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, ask, records.directory, request)


async def test_a_decision_from_outside_uses_the_socket(keeper: Keeper, records: FileRecords) -> None:
    person = Person()
    task = asyncio.create_task(keeper(person).decide(request()))
    await settle()
    listed = (await asked(records, ask="list"))["gates"]
    assert [(g["id"], g["prompt"], g["allow"], g["outside"]) for g in listed] == [
        ("release_ok", "Publish 1.2?", ["user"], True)
    ]
    decision = {
        "gate": "release_ok",
        "created_at": listed[0]["created_at"],
        "decision": "approved",
        "principal": "user",
    }
    assert await asked(records, ask="decide", comment="fine", **decision) == {"ok": True}
    assert await task == GateDecision("approved", "user", "fine", source="cli")
    assert person.open == 0
    assert person.shown == ["gate release_ok: already approved by user (command line)"]
    assert logged(records)[-1] == ("approved", "user", {"source": "cli"})
    assert await asked(records, ask="list") is None, "the socket is there only while a gate waits"
    assert not (records.directory / "decisions.sock").exists()


async def test_the_socket_is_private_and_replaces_a_file_in_its_place(
    keeper: Keeper, records: FileRecords, tmp_path: Path
) -> None:
    records.directory.mkdir(parents=True)
    (tmp_path / "elsewhere").write_text("mine")
    (records.directory / "decisions.sock").symlink_to(tmp_path / "elsewhere")
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    status = (records.directory / "decisions.sock").lstat()
    assert stat.S_ISSOCK(status.st_mode) and status.st_mode & 0o077 == 0
    assert (tmp_path / "elsewhere").read_text() == "mine"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_long_path_is_not_an_obstacle(clock: TestClock, tmp_path: Path) -> None:
    records = FileRecords(tmp_path / ("d" * 100) / "runs" / RUN / "gates", RUN, clock)
    gates = Gatekeeper(records, Person(), clock, GatePolicy(), inspect=anybody)
    task = asyncio.create_task(gates.decide(request()))
    await settle()
    created = (await asked(records, ask="list"))["gates"][0]["created_at"]
    reply = await asked(
        records, ask="decide", gate="release_ok", created_at=created, decision="rejected", principal="x"
    )
    assert reply == {"ok": True}
    assert (await task).status == "rejected"


@pytest.mark.parametrize(
    ("changes", "reply"),
    [
        ({"principal": "ops"}, {"refused": "gate release_ok: ops may not approve, allowed: user"}),
        ({"gate": "other"}, {"refused": None}),
        ({"created_at": "2026-03-01T10:14:00.000Z"}, {"refused": None}),
        ({"decision": "maybe"}, {"refused": "a decision is approved or rejected"}),
        ({"decision": "timeout"}, {"refused": "a decision is approved or rejected"}),
        ({"gate": ["release_ok"]}, {"refused": None}),
    ],
)
async def test_requests_that_decide_nothing(
    keeper: Keeper, records: FileRecords, changes: dict[str, Any], reply: dict[str, Any], clock: TestClock
) -> None:
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    given = {
        "gate": "release_ok",
        "created_at": "2026-03-01T10:15:00.000Z",
        "decision": "approved",
        "principal": "user",
    }
    assert await asked(records, ask="decide", **{**given, **changes}) == reply
    assert not task.done()
    await clock.advance(600.0)
    assert (await task).status == "timeout"


async def test_invalid_data_on_the_socket_does_not_disturb_the_run(
    keeper: Keeper, records: FileRecords, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    monkeypatch.chdir(records.directory)  # a short path
    for nonsense in (b"\n", b"[" * 60_000 + b"\n", b"\xff\xfe\n", b'{"ask": 7}\n', b"x" * 200_000):
        reader, writer = await asyncio.open_unix_connection("decisions.sock")
        writer.write(nonsense)
        with contextlib.suppress(OSError):
            await writer.drain()
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
    assert (await asked(records, ask="list"))["gates"][0]["id"] == "release_ok"
    await clock.advance(600.0)
    assert (await task).status == "timeout"


async def test_a9_a_decider_that_sees_approved_has_approved(
    keeper: Keeper, records: FileRecords, clock: TestClock
) -> None:
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    clock.seconds = 600.0  # the deadline has passed, but is not noticed yet
    given = {
        "gate": "release_ok",
        "created_at": "2026-03-01T10:15:00.000Z",
        "decision": "approved",
        "principal": "user",
    }
    assert await asked(records, ask="decide", **given) == {"refused": None}
    assert (await task).status == "timeout"
    assert [event for event, *_ in logged(records)] == ["created", "timeout"]


async def test_a9_an_answer_typed_at_the_deadline_is_late(keeper: Keeper, clock: TestClock) -> None:
    class Slow(Person):
        async def ask(self, prompt: str) -> str:
            clock.seconds = 600.0
            return "yes"

    assert (await keeper(Slow()).decide(request())).status == "timeout"


async def test_a9_fifty_concurrent_deciders(keeper: Keeper, records: FileRecords) -> None:
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    given = {"gate": "release_ok", "created_at": "2026-03-01T10:15:00.000Z"}
    answers = await asyncio.gather(
        *(
            asked(records, ask="decide", decision=("approved", "rejected")[n % 2], principal="user", **given)
            for n in range(50)
        )
    )
    decision = await task
    assert [a for a in answers if a is not None and a.get("ok")] == [{"ok": True}]
    assert [event for event, *_ in logged(records)] == ["created", decision.status]


# ---------------------------------------------------------------- forged and foreign files


async def decide_by_file(records: FileRecords, **changes: Any) -> None:
    data = {
        "gate_id": "release_ok",
        "decision": "approved",
        "principal": "user",
        "timestamp": "2026-03-01T10:15:00.000Z",
        "comment": "",
    }
    (records.directory / "release_ok.resolved.json").write_text(json.dumps({**data, **changes}))
    await settle()


@pytest.mark.parametrize("mode", ["auto", "wait", "ask"])
async def test_a8_a_decision_file_is_ignored_and_reported(
    keeper: Keeper, records: FileRecords, clock: TestClock, mode: Mode
) -> None:
    task = asyncio.create_task(keeper(Person(), mode).decide(request()))
    await settle()
    await decide_by_file(records)
    await clock.advance(1.0)
    assert not task.done()
    await clock.advance(599.0)
    assert (await task).status == "timeout"
    ignored = ("ignored", "system", {"reason": "this run takes no decisions from files"})
    assert logged(records) == [("created", "system", {}), ignored, ("timeout", "system", {})]
    assert resolved(records)["decision"] == "timeout"


async def test_a8_a_decision_file_that_is_a_link_is_not_followed(
    keeper: Keeper, records: FileRecords, clock: TestClock, tmp_path: Path
) -> None:
    (tmp_path / "target").write_text("mine")
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    (records.directory / "release_ok.resolved.json").symlink_to(tmp_path / "target")
    await clock.advance(600.0)
    assert (await task).status == "timeout"
    assert (tmp_path / "target").read_text() == "mine"
    assert not (records.directory / "release_ok.resolved.json").is_symlink()


async def test_a8_with_gate_files_a_decision_file_counts_and_is_recorded_as_one(
    keeper: Keeper, records: FileRecords, clock: TestClock
) -> None:
    person = Person()
    task = asyncio.create_task(keeper(person, files=True).decide(request()))
    await settle()
    await decide_by_file(records, comment="by hand")
    await clock.advance(1.0)
    decision = await task
    assert decision == GateDecision("approved", "user", "by hand", source="file")
    assert decision.decided_by == "a decision file in the name of user"
    assert logged(records)[-1] == ("approved", "user", {"source": "file"})
    assert person.open == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"principal": "ops"},
        {"gate_id": "other"},
        {"decision": "maybe"},
        {"timestamp": "2026-03-01T10:25:01.000Z"},
        {"timestamp": "2026-03-01T10:14:00.000Z"},
        {"timestamp": "today"},
        {"principal": 7},
    ],
)
async def test_a_file_that_decides_nothing_is_removed(
    keeper: Keeper, records: FileRecords, clock: TestClock, changes: dict[str, Any]
) -> None:
    task = asyncio.create_task(keeper(Person(), files=True).decide(request()))
    await settle()
    await decide_by_file(records, **changes)
    await clock.advance(1.0)
    assert not task.done()
    assert not (records.directory / "release_ok.resolved.json").exists()
    assert logged(records)[-1] == ("ignored", "system", {"reason": "it does not decide this gate in time"})
    await clock.advance(599.0)
    assert (await task).status == "timeout"


async def test_a_decision_file_older_than_the_gate_is_void(keeper: Keeper, records: FileRecords) -> None:
    records.directory.mkdir(parents=True)
    await decide_by_file(records)
    decision = await keeper(Person(available=False), files=True).decide(request())
    assert decision.reason == "nobody"
    assert resolved(records)["decision"] == "rejected"


async def test_asking_mode_opens_no_socket(keeper: Keeper, records: FileRecords) -> None:
    task = asyncio.create_task(keeper(Person(), "ask").decide(request()))
    await settle()
    assert not (records.directory / "decisions.sock").exists()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a19_only_a_damaged_record_is_lost(records: FileRecords) -> None:
    records.open(request(), outside=True)
    (records.directory / "x.pending.json").write_text("{")
    (records.directory / "y.pending.json").write_text('{"created_at": "2026-03-01T10:15:00Z"}')
    (records.directory / "z.pending.json").write_bytes(b"\xff\x00" * 100)
    with (records.directory / "audit.jsonl").open("a") as audit:
        audit.write("[]\nnot json\n")
    assert [r.id for r in records.pending()] == ["release_ok"]
    assert [e.event_type for e in records.events()] == ["created"]
    assert records.damaged() == [
        "x.pending.json",
        "y.pending.json",
        "z.pending.json",
        "audit.jsonl line 2",
        "audit.jsonl line 3",
    ]


def test_a_gate_that_is_decided_while_records_are_read_is_not_damaged(
    records: FileRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, read = records.open(request(), outside=True), file_records._read

    def decided_first(place: Path) -> dict[str, Any]:
        records.resolve(record, GateDecision("approved", "user"), watched=True)
        return read(place)

    monkeypatch.setattr(file_records, "_read", decided_first)
    assert records.damaged() == []


# ---------------------------------------------------------------- obstacles and crowds


DECISION = {
    "ask": "decide",
    "gate": "release_ok",
    "created_at": "2026-03-01T10:15:00.000Z",
    "decision": "approved",
    "principal": "user",
}


@pytest.mark.parametrize("name", [".release_ok.pending.json.tmp", ".release_ok.resolved.json.tmp"])
async def test_a8_an_obstacle_in_place_of_a_temporary_file_is_replaced(
    keeper: Keeper, records: FileRecords, tmp_path: Path, name: str
) -> None:
    (tmp_path / "mine").write_text("mine")
    records.directory.mkdir(parents=True)
    mine, place = tmp_path / "mine", records.directory / name
    puts = (lambda: os.mkfifo(place), lambda: place.hardlink_to(mine), lambda: place.symlink_to(mine))
    for attempt, put in enumerate(puts, 1):
        put()
        assert (await keeper(Person("y")).decide(request(attempt=attempt))).status == "approved"
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (records.directory / name).exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
async def test_a8_without_its_log_no_gate_is_decided(
    keeper: Keeper, records: FileRecords, tmp_path: Path, kind: str
) -> None:
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    log_file = records.directory / "audit.jsonl"
    log_file.rename(tmp_path / "log")
    put = {"pipe": os.mkfifo, "link": lambda place: place.symlink_to(tmp_path / "log"), "directory": os.mkdir}
    put[kind](log_file)
    reply = await asked(records, **DECISION)
    assert reply["refused"].startswith("gate 'release_ok' could not be recorded")
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):  # not E219, which the program could catch
        await task


async def test_a8_a_link_in_place_of_the_directory_is_not_followed(
    keeper: Keeper, records: FileRecords, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    records.directory.parent.mkdir(parents=True)
    records.directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="could not be recorded: its directory is a link"):
        await keeper(Person("y")).decide(request())
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a9_a_decision_for_the_gate_before_retry_does_not_count_for_the_next(
    keeper: Keeper, records: FileRecords, clock: TestClock
) -> None:
    """The gate is reopened within the same millisecond."""
    gates = keeper(Person("n"))
    assert (await gates.decide(request())).status == "rejected"
    task = asyncio.create_task(gates.decide(request(attempt=2)))
    await settle()
    assert await asked(records, **DECISION) == {"refused": None}
    assert await asked(records, **DECISION, attempt=2) == {"ok": True}
    assert (await task).status == "approved"


@pytest.mark.parametrize("principal", ["system", ""])
async def test_a9_the_principal_of_the_run_itself_is_refused(
    keeper: Keeper, records: FileRecords, clock: TestClock, principal: str
) -> None:
    gates = keeper(Person(), files=True)
    task = asyncio.create_task(gates.decide(request(allow=("system", ""))))
    await settle()
    reply = await asked(records, **{**DECISION, "principal": principal})
    assert set(reply) == {"refused"} and reply["refused"]
    await decide_by_file(records, principal=principal)
    await clock.advance(1.0)
    assert not task.done()
    with pytest.raises(UsageError):
        gates.prior.give("release_ok", GateAnswer(True, principal))
    await clock.advance(599.0)
    assert (await task).status == "timeout"


async def test_a8_silent_connections_block_no_others_and_do_not_delay_the_end(
    keeper: Keeper, records: FileRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_socket, "_SECONDS", 100 * PATIENCE)
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    monkeypatch.chdir(records.directory)  # a short path
    crowd = [await asyncio.open_unix_connection("decisions.sock") for _ in range(250)]
    assert await asked(records, **DECISION) == {"ok": True}
    assert (await task).status == "approved"
    async with asyncio.timeout(PATIENCE):  # a silent connection gets more
        assert [await reader.read() for reader, _ in crowd] == [b""] * 250
    for _, writer in crowd:
        writer.close()


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_made_while_the_last_gate_ends_is_closed(
    keeper: Keeper, records: FileRecords, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    monkeypatch.chdir(records.directory)  # a short path
    with socket.socket(socket.AF_UNIX) as late:
        late.connect("decisions.sock")
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        late.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionResetError):  # it was not accepted
            assert await asyncio.to_thread(late.recv, 1) == b""


async def test_a_run_without_free_descriptors_accepts_a_connection_later(
    keeper: Keeper, records: FileRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_socket, "_PAUSE", 0.01)
    task = asyncio.create_task(keeper(Person()).decide(request()))
    await settle()
    accept = socket.socket.accept
    refused: list[socket.socket] = []

    def scarce(listening: socket.socket) -> tuple[socket.socket, Any]:
        if len(refused) < 3:
            refused.append(listening)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", scarce)
    assert await asked(records, **DECISION) == {"ok": True}
    assert len(refused) == 3
    assert (await task).status == "approved"


async def test_cancelling_a_gate_while_its_socket_is_made_does_not_break_the_next_gate(
    keeper: Keeper, records: FileRecords
) -> None:
    gates = keeper(Person())
    for steps in range(8):
        task = asyncio.create_task(gates.decide(request(f"cancelled_{steps}")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (records.directory / "decisions.sock").exists()
    task = asyncio.create_task(gates.decide(request()))
    await settle()
    assert await asked(records, **DECISION) == {"ok": True}
    assert (await task).status == "approved"


# ---------------------------------------------------------------- a run that is resumed


def leave_pending(records: FileRecords, **changes: Any) -> GateRequest:
    """Create the record of a gate at which a process of the run was killed."""
    asked = request(at="c1/2/g0", **changes)
    records.open(asked, outside=True)
    return asked


async def test_5_9_a_pending_record_is_taken_over_and_its_deadline_continues(
    keeper: Keeper, records: FileRecords, clock: TestClock
) -> None:
    asked = leave_pending(records)
    clock.seconds = 500.0
    task = asyncio.create_task(keeper(Person()).decide(asked))
    await settle()
    await clock.advance(99.0)
    assert not task.done()
    await clock.advance(1.0)
    assert (await task).status == "timeout"
    assert logged(records) == [("created", "system", {}), ("resumed", "system", {}), ("timeout", "system", {})]
    assert [p.name for p in records.directory.glob("*.json")] == ["release_ok.resolved.json"]


async def test_5_9_a_record_whose_deadline_has_passed_times_out(
    keeper: Keeper, records: FileRecords, clock: TestClock
) -> None:
    asked = leave_pending(records)
    clock.seconds = 600.0
    assert (await keeper(Person("y")).decide(asked)).status == "timeout"


async def test_5_9_an_edited_record_does_not_prolong_its_deadline(
    keeper: Keeper, records: FileRecords, clock: TestClock
) -> None:
    asked = leave_pending(records)
    place = records.directory / "release_ok.pending.json"
    place.write_text(place.read_text().replace('"timeout_at": "2026', '"timeout_at": "9026'))
    task = asyncio.create_task(keeper(Person()).decide(asked))
    await settle()
    await clock.advance(600.0)
    assert (await task).status == "timeout"


async def test_5_9_a_gate_that_ended_the_run_opens_again_as_the_next_record(
    keeper: Keeper, records: FileRecords
) -> None:
    asked = request(at="c1/2/g0")
    assert (await keeper(Person("n")).decide(asked)).status == "rejected"
    for ordinal in ("2", "3"):
        gates = keeper(Person("n", "y"))
        assert (await gates.decide(asked)).status == "rejected"
        assert resolved(records, f"release_ok--{ordinal}")["decision"] == "rejected"
    # retry continues with its record; the next gate at the same place has another record
    assert (await gates.decide(request(at="c1/2/g0", attempt=2))).status == "approved"
    assert resolved(records, "release_ok--3")["decision"] == "approved"
    assert resolved(records)["decision"] == "rejected"
    await keeper(Person("y")).decide(request(id="release_ok--2", at="c1/2/g1"))
    assert resolved(records, "release_ok--4")["decision"] == "approved"


async def test_5_9_another_question_at_the_same_place_is_another_record(keeper: Keeper, records: FileRecords) -> None:
    asked = leave_pending(records, prompt="Publish 1.3?")
    assert (await keeper(Person("y")).decide(request(at=asked.at))).status == "approved"
    assert resolved(records, "release_ok--2")["decision"] == "approved"
    assert [record.id for record in records.pending()] == ["release_ok"]


async def test_a8_a_decision_file_from_before_the_resume_does_not_count(keeper: Keeper, records: FileRecords) -> None:
    asked = leave_pending(records)
    record = records.pending()[0]
    records.resolve(record, GateDecision("approved", "user"), watched=True)
    leave_pending(records)  # the record is pending, and another user has added a decision
    (records.directory / "release_ok.resolved.json").write_text('{"decision": "approved"}')
    assert (await keeper(Person("n")).decide(asked)).status == "rejected"
    assert logged(records)[-2][0] == "ignored"
