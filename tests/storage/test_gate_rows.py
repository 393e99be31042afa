"""Gates in a database: decided by the run, over its socket, and by external SQL (openprose.md 5.9 to 5.11)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Event
from typing import Any, cast

import psycopg
import pytest
from gate_people import RUN, Person, TestClock, anybody, request
from postgres import PostgresServer
from waiting import eventually

from prose_kernel.access import peers
from prose_kernel.errors import GateRefused, StateError
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.storage.database.gate_records import DatabaseGates, DatabaseRecords
from prose_kernel.storage.database.gate_rows import this_host
from prose_kernel.storage.database.postgres import PostgresDatabase
from prose_kernel.storage.database.schema import Database
from prose_kernel.storage.database.sqlite import SqliteDatabase
from prose_kernel.storage.gates.answers import PriorDecisions
from prose_kernel.storage.gates.deciding import Gatekeeper, GatePolicy, Mode
from prose_kernel.storage.gates.decision_socket import ask
from prose_kernel.storage.gates.records import GateRecord, RecordsUnavailable
from prose_kernel.storage.gates.second_process import (
    Decidable,
    Decider,
    PendingGate,
    Resolution,
    Verb,
    gate_log,
    pending_gates,
    resolve_gate,
)


@dataclass
class World:
    """A database with the gates of one run, and a person who uses only SQL."""

    kind: str
    database: Database
    url: str
    directory: Path
    clock: TestClock

    def records(self) -> DatabaseRecords:
        return DatabaseRecords(self.database, self.directory, RUN, self.clock)

    def keeper(self, person: Person, mode: Mode = "auto", **options: Any) -> Gatekeeper:
        prior = options.pop("prior", None)
        return Gatekeeper(self.records(), person, self.clock, GatePolicy(mode, **options), prior, inspect=anybody)

    def sql(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        """Execute a statement as a service does: in one transaction, over its own connection."""
        return self.transaction((statement, parameters))

    def transaction(self, *statements: tuple[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        if self.kind == "sqlite":
            with contextlib.closing(sqlite3.connect(self.url, timeout=30, isolation_level=None)) as lite:
                lite.execute("BEGIN IMMEDIATE")
                for text, parameters in statements:
                    found = lite.execute(text.replace("NOW", f"'{self.clock.now().isoformat()}'"), parameters)
                    names = [column[0] for column in found.description or ()]
                    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
                    if found.rowcount == 0:
                        break
                lite.execute("COMMIT")
            return rows
        with psycopg.connect(self.url, options="-c search_path=openprose") as post:
            for text, parameters in statements:
                reached = post.execute(text.replace("NOW", "now()").replace("?", "%s"), parameters)  # type: ignore[arg-type]
                names = [column.name for column in reached.description or ()]
                rows = [dict(zip(names, row, strict=True)) for row in reached.fetchall()] if names else []
                if reached.rowcount == 0:
                    break
        return rows

    def decide(self, status: str, by: str | None = "user", gate: str = "release_ok", at: str = "NOW") -> None:
        """Execute the reference's statement, without a row in the log."""
        self.sql(
            f"UPDATE gates SET status = ?, resolved_at = {at}, resolved_by = ? WHERE id = ? AND status = 'pending'",
            *(status, by, gate),
        )

    def gate(self, gate: str = "release_ok") -> dict[str, Any]:
        (found,) = self.sql("SELECT * FROM gates WHERE id = ?", gate)
        return found

    def log(self) -> list[tuple[str, str, dict[str, Any]]]:
        rows = self.sql("SELECT * FROM gate_audit_log ORDER BY id")
        data = [row["metadata"] for row in rows]
        read = [json.loads(one) if isinstance(one, str) else one for one in data]
        return [(row["event_type"], row["principal"], one) for row, one in zip(rows, read, strict=True)]

    async def opened(self, gates: Gatekeeper, asked: GateRequest | None = None) -> asyncio.Task[GateDecision]:
        """Open a gate that waits for a decision from outside."""
        asked = asked or request()
        task = asyncio.create_task(gates.decide(asked))
        await eventually(lambda: (gates.watching and self.clock.sleepers > 1) or task.done())
        return task

    async def noticed(self, task: asyncio.Task[GateDecision]) -> GateDecision:
        """Wait for the decision. SQLite is polled each second; PostgreSQL notifies, so no time needs to pass."""
        if self.kind == "sqlite":
            await eventually(lambda: self.clock.sleepers > 1 or task.done())
            await self.clock.advance(1.0)
        async with asyncio.timeout(30):
            return await task


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    directory, clock = tmp_path / ".prose" / "runs" / RUN / "gates", TestClock()
    directory.mkdir(parents=True)
    if request.param == "sqlite":
        file = directory.parent / "state.db"
        yield World("sqlite", SqliteDatabase(file, "state.db"), str(file), directory, clock)
    else:
        url = request.getfixturevalue("postgres_url")
        yield World("postgres", PostgresDatabase(url, RUN), url, directory, clock)


# ---------------------------------------------------------------- the run decides


async def test_the_person_decides_and_the_rows_record_it(world: World) -> None:
    decision = await world.keeper(Person("Approve: looks good")).decide(request(allow=("user", "ops")))
    assert decision == GateDecision("approved", "user", "looks good", source="terminal")
    row = world.gate()
    assert (row["status"], row["resolved_by"], row["resolution_comment"]) == ("approved", "user", "looks good")
    assert (row["prompt"], row["timeout"], row["on_reject"]) == ("Publish 1.2?", "10m", "throw")
    assert row["allow"] in (["user", "ops"], '["user", "ops"]')
    assert row["resolved_at"] is not None
    assert world.log() == [("created", "system", {}), ("approved", "user", {"source": "terminal"})]


@pytest.mark.parametrize(
    ("mode", "notebook", "here", "outcome"),
    [
        ("auto", False, True, "user"),
        ("auto", False, False, "waits"),
        ("ask", False, True, "user"),
        ("ask", False, False, "system"),
        ("wait", False, True, "waits"),
        ("wait", False, False, "waits"),
        ("deny", False, True, "system"),
        ("auto", True, True, "user"),
        ("auto", True, False, "system"),
        ("ask", True, False, "system"),
        ("wait", True, True, "user"),
        ("wait", True, False, "system"),
        ("deny", True, True, "system"),
    ],
)
async def test_5_10_the_table_of_modes(world: World, mode: Mode, notebook: bool, here: bool, outcome: str) -> None:
    person = Person("y", available=here)
    gates = world.keeper(person, mode, notebook=notebook)
    task = await world.opened(gates)
    if outcome == "waits":
        assert not task.done() and person.asked == []
        assert person.shown[0].startswith(f"gate release_ok of run {RUN} waits: prose gate approve {RUN} release_ok")
        world.decide("rejected")
        assert (await world.noticed(task)).source == "sql"
        return
    decision = await task
    assert decision.by == outcome
    if outcome == "system":
        assert (decision.status, decision.reason) == ("rejected", "nobody")
        assert world.log()[-1] == ("rejected", "system", {"reason": "nobody"})


async def test_a_decision_given_in_advance(world: World) -> None:
    gates = world.keeper(Person(available=False), prior=PriorDecisions({"release_ok": True}))
    assert await gates.decide(request()) == GateDecision("approved", "user", source="option")


async def test_retry_sets_the_row_back_and_keeps_history_in_the_log(world: World) -> None:
    gates = world.keeper(Person("n", "y"))
    assert (await gates.decide(request(at="c1/g0"))).status == "rejected"
    assert (await gates.decide(request(at="c1/g0", attempt=2))).status == "approved"
    assert world.gate()["status"] == "approved"
    assert [row["id"] for row in world.sql("SELECT id FROM gates")] == ["release_ok"]
    assert world.log() == [
        ("created", "system", {}),
        ("rejected", "user", {"source": "terminal"}),
        ("created", "system", {"attempt": 2}),
        ("approved", "user", {"attempt": 2, "source": "terminal"}),
    ]


@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_cancelled_gate_is_closed(world: World, interrupted: bool) -> None:
    gates = world.keeper(Person())
    task = await world.opened(gates)
    if interrupted:
        gates.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.gate()["status"] == "rejected"
    assert world.log()[-1] == ("rejected", "system", {"reason": "interrupted" if interrupted else "cancelled"})


async def test_the_deadline(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)))
    await world.clock.advance(600.0)
    assert await task == GateDecision("timeout", "system")
    assert world.gate()["status"] == "timeout"
    assert world.log()[-1] == ("timeout", "system", {})


async def test_the_socket_decides_too(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)))
    listed = (await asyncio.to_thread(ask, world.directory, {"ask": "list"}) or {})["gates"][0]
    means = {"gate": "release_ok", "created_at": listed["created_at"], "attempt": 1, "principal": "user"}
    reply = await asyncio.to_thread(ask, world.directory, {"ask": "decide", "decision": "approved", **means})
    assert reply == {"ok": True}
    assert (await task).source == "cli"
    assert world.log()[-1] == ("approved", "user", {"source": "cli"})


# ---------------------------------------------------------------- SQL decides


@pytest.mark.parametrize("status", ["approved", "rejected"])
async def test_sql_from_outside_without_a_row_in_the_log(world: World, status: str) -> None:
    task = await world.opened(world.keeper(Person(available=False)))
    world.decide(status)
    decision = await world.noticed(task)
    assert decision == GateDecision(status, "user", source="sql")  # type: ignore[arg-type]
    assert decision.decided_by == "user (SQL)"
    assert world.log() == [("created", "system", {}), (status, "user", {"source": "sql"})]


async def test_sql_from_outside_with_its_own_row_in_the_log(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)), request(allow=("ops",)))
    columns = "run_id, gate_id" if world.kind == "postgres" else "gate_id"
    values = (RUN, "release_ok") if world.kind == "postgres" else ("release_ok",)
    marks = ", ".join("?" for _ in values)
    world.transaction(
        (
            "UPDATE gates SET status = 'approved', resolved_at = NOW, resolved_by = 'ops', resolution_comment = 'seen' "
            "WHERE id = ? AND status = 'pending'",
            ("release_ok",),
        ),
        (
            f"INSERT INTO gate_audit_log ({columns}, event_type, principal, timestamp, metadata) "
            f"VALUES ({marks}, 'approved', 'ops', NOW, ?)",
            (*values, '{"source": "dashboard"}'),
        ),
    )
    assert await world.noticed(task) == GateDecision("approved", "ops", "seen", source="dashboard")
    assert world.log() == [("created", "system", {}), ("approved", "ops", {"source": "dashboard"})]


async def test_sql_may_omit_the_decider_and_the_time(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)))
    world.sql("UPDATE gates SET status = 'approved' WHERE id = 'release_ok' AND status = 'pending'")
    assert await world.noticed(task) == GateDecision("approved", "user", source="sql")


async def test_a_decision_after_the_deadline_counts_as_timeout(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)))
    late = "'9026-01-01T00:00:00+00:00'"
    world.decide("approved", at=late)
    assert await world.noticed(task) == GateDecision("timeout", "system")
    assert world.gate()["status"] == "timeout"
    assert world.log()[-1] == ("timeout", "system", {})


@pytest.mark.parametrize(
    ("by", "reason"),
    [("ops", "ops may not approve, allowed: user"), ("system", "system is the run itself, no principal who decides")],
)
async def test_an_approval_that_is_not_allowed_is_undone(world: World, by: str, reason: str) -> None:
    gates = world.keeper(Person(available=False))
    task = await world.opened(gates)
    world.decide("approved", by)
    if world.kind == "sqlite":
        await world.clock.advance(1.0)
    await eventually(lambda: world.gate()["status"] == "pending")
    assert not task.done()
    assert world.log()[-1] == ("ignored", "system", {"reason": reason, "source": "sql"})
    world.decide("rejected", "ops" if by == "ops" else "user")
    assert (await world.noticed(task)).status == "rejected"


async def test_asking_mode_accepts_no_other_decider(world: World) -> None:
    person = Person()
    task = asyncio.create_task(world.keeper(person, "ask").decide(request()))
    await eventually(lambda: person.open)
    world.decide("approved")
    person.say("n")
    assert (await task).status == "rejected"
    assert world.gate()["status"] == "rejected"
    reason = {"reason": "this run takes no decisions from outside"}
    assert world.log()[1:] == [("ignored", "system", reason), ("rejected", "user", {"source": "terminal"})]


async def test_a_deleted_row_is_not_an_approval(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)))
    world.sql("DELETE FROM gates")
    await eventually(lambda: world.clock.sleepers > 1 or task.done())
    await world.clock.advance(1.0)
    with pytest.raises(StateError, match="no longer in the database") as caught:
        await task
    assert caught.value.code == "E219"


async def test_a9_at_the_deadline_a_decision_made_in_time_wins(world: World) -> None:
    """A decision by SQL is in time, but the run sees it only after the deadline."""
    task = await world.opened(world.keeper(Person(available=False)))
    world.decide("approved")
    await world.clock.advance(600.0)
    assert (await task).status == "approved"


# ---------------------------------------------------------------- a run that is resumed


def left_pending(world: World, **changes: Any) -> GateRequest:
    """Create the record of a gate at which a process of the run was killed."""
    asked = request(at="c1/2/g0", **changes)
    records = world.records()
    records.open(asked, outside=True)
    records.stop_waiting()
    return asked


async def test_5_9_an_approval_between_two_processes_counts_if_records_are_trusted(world: World) -> None:
    asked = left_pending(world)
    world.decide("approved")
    person = Person("n")
    believing = world.keeper(person, trusts_records=True)
    assert await believing.decide(asked) == GateDecision("approved", "user", source="sql")
    assert person.asked == []
    assert [event for event, _, _ in world.log()] == ["created", "resumed", "approved"]


@pytest.mark.parametrize("mode", ["auto", "ask", "wait"])
async def test_a33_an_approval_between_two_processes_is_asked_again(world: World, mode: Mode) -> None:
    asked = left_pending(world)
    world.decide("approved")
    keeper = world.keeper(Person("n", available=mode != "wait"), mode)
    task = await world.opened(keeper, asked) if mode == "wait" else None
    if task is not None:
        assert not task.done()
        task.cancel()
    else:
        assert (await keeper.decide(asked)).status == "rejected"
    assert [event for event, _, _ in world.log()][:2] == ["created", "created"]


async def test_5_9_a_rejection_between_two_processes_counts_once(world: World) -> None:
    asked = left_pending(world)
    world.decide("rejected")
    assert (await world.keeper(Person("y")).decide(asked)).source == "sql"
    # the rejection has ended the run; on another resume, the gate opens as the next record
    assert (await world.keeper(Person("y")).decide(asked)).status == "approved"
    assert [(row["id"], row["status"]) for row in world.sql("SELECT id, status FROM gates ORDER BY id")] == [
        ("release_ok", "rejected"),
        ("release_ok--2", "approved"),
    ]


async def test_a33_an_approval_missing_only_from_the_journal_is_asked_again(world: World) -> None:
    asked = request(at="c1/2/g0")
    assert (await world.keeper(Person("y")).decide(asked)).status == "approved"
    assert (await world.keeper(Person("n")).decide(asked)).status == "rejected"


async def test_5_9_an_approval_missing_only_from_the_journal_counts_if_records_are_trusted(world: World) -> None:
    asked = request(at="c1/2/g0")
    assert (await world.keeper(Person("y")).decide(asked)).status == "approved"
    assert (await world.keeper(Person("n"), trusts_records=True).decide(asked)).status == "approved"
    # but it does not approve another gate or another question
    for other in (request(at="c1/2/g1"), request(at="c1/2/g0", prompt="Really?")):
        assert (await world.keeper(Person("n"), trusts_records=True).decide(other)).status == "rejected"


async def test_5_9_the_remaining_deadline_continues(world: World) -> None:
    asked = left_pending(world, timeout=600.0)
    shift = "datetime(timeout_at, '-595 seconds')" if world.kind == "sqlite" else "timeout_at - interval '595 seconds'"
    world.sql(f"UPDATE gates SET timeout_at = {shift}")
    task = await world.opened(world.keeper(Person(available=False)), asked)
    assert not task.done()
    await world.clock.advance(5.0)
    assert (await task).status == "timeout"


async def test_5_9_a_run_that_is_killed_in_the_second_attempt_of_a_gate_continues_with_that_one(world: World) -> None:
    asked = request(at="c1/2/g0")
    assert (await world.keeper(Person("n")).decide(asked)).status == "rejected"
    left_pending(world, attempt=2)
    gates = world.keeper(Person("n", "y"))  # the first attempt's answer is in the journal
    assert (await gates.decide(request(at="c1/2/g0", attempt=2))).status == "rejected"
    assert (await gates.decide(request(at="c1/2/g0", attempt=3))).status == "approved"
    assert [(row["id"], row["status"]) for row in world.sql("SELECT id, status FROM gates")] == [
        ("release_ok", "approved")
    ]
    assert [(event, data.get("attempt", 1)) for event, _, data in world.log()] == [
        *(("created", 1), ("rejected", 1), ("created", 2), ("resumed", 2), ("rejected", 2)),
        *(("created", 3), ("approved", 3)),
    ]


# ---------------------------------------------------------------- a database that becomes unreachable


async def passes(clock: TestClock, task: asyncio.Task[Any]) -> None:
    """Advance the clock while the task waits."""
    while not task.done():
        await clock.advance(1.0 if clock.sleepers else 0.0)
        await asyncio.sleep(0.001)


async def test_a_restarted_server_costs_no_decision(own_postgres_server: PostgresServer, tmp_path: Path) -> None:
    server, clock = own_postgres_server, TestClock()
    url = server.new_database()
    world = World("postgres", PostgresDatabase(url, RUN), url, tmp_path, clock)
    person = Person(available=False)
    gates = world.keeper(person, patience=40.0)
    task = await world.opened(gates)
    await asyncio.to_thread(server.stop)
    await eventually(lambda: clock.sleepers > 1 or len(person.shown) > 1)
    await clock.advance(1.0)
    await eventually(lambda: len(person.shown) > 1)
    assert person.shown[1].endswith("; gate release_ok continues to wait")
    assert "prose@" not in person.shown[1]
    await asyncio.to_thread(server.start)
    world.decide("approved")

    await passes(clock, task)
    assert (await task).status == "approved"

    # and when it stays unreachable, the unrecorded gate is named
    await asyncio.to_thread(server.stop)
    began = clock.monotonic()
    again = asyncio.create_task(gates.decide(request("next")))

    await passes(clock, again)
    with pytest.raises(StateError, match="gate 'next' could not be recorded: ") as caught:
        await again
    assert caught.value.code == "E219"
    assert 40.0 <= clock.monotonic() - began < 50.0


class FullDisk:
    """Records of a database whose disk is full while `full` is set."""

    remote, outside, nowhere, directory = True, False, False, None

    def __init__(self) -> None:
        self.full = True

    def listen(self, changed: object) -> None:
        """Ignore the listener: nothing changes."""

    def earlier(self) -> Any:
        if self.full:
            raise RecordsUnavailable("gate 'ok' could not be recorded: database or disk is full")
        return set(), []


async def test_the_person_is_notified_that_gates_wait_for_the_database() -> None:
    clock, heard, records = TestClock(), list[str | None](), FullDisk()
    gates = Gatekeeper(cast("Any", records), Person(), clock, GatePolicy(patience=40.0, on_wait=heard.append))
    tasks = [asyncio.create_task(gates._call_records(records.earlier)) for _ in range(2)]
    await eventually(lambda: clock.sleepers == 2)
    assert heard == ["gate 'ok' could not be recorded: database or disk is full"]
    records.full = False
    await clock.advance(1.0)
    await asyncio.gather(*tasks)
    assert heard[1:] == [None]

    records.full = True
    (lost,) = await asyncio.gather(
        asyncio.create_task(gates._call_records(records.earlier, patience=0)), return_exceptions=True
    )
    assert isinstance(lost, RecordsUnavailable) and len(heard) == 2  # there was no wait


async def test_a_gate_that_is_interrupted_twice_while_it_is_recorded_is_closed(world: World) -> None:
    begun, go = Event(), Event()

    class Slow(DatabaseRecords):
        def open(self, request: GateRequest, *, outside: bool) -> GateRecord:
            begun.set()
            go.wait()
            return super().open(request, outside=outside)

    records = Slow(world.database, world.directory, RUN, world.clock)
    task = asyncio.create_task(Gatekeeper(records, Person(), world.clock, GatePolicy()).decide(request()))
    await asyncio.to_thread(begun.wait)
    for _ in range(2):
        task.cancel()
        for _ in range(5):  # the cancellation arrives
            await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.gate()["status"] == "rejected"


# ---------------------------------------------------------------- `prose gate`


def test_a_decision_does_not_count_for_the_gate_that_a_retry_has_opened_meanwhile(world: World) -> None:
    records = world.records()
    first = records.open(request(), outside=True)
    database = world.database
    outside = DatabaseGates(database.dialect, world.directory, RUN, world.clock, database.connect, database.connect)
    (seen,) = outside.pending()
    records.resolve(first, GateDecision("rejected", "user"), watched=True)
    records.open(request(prompt="Publish all of it?", attempt=2), outside=True)
    assert not outside.decide(seen, GateDecision("approved", "user", source="cli"))
    assert world.gate()["status"] == "pending"
    (seen,) = outside.pending()
    assert outside.decide(seen, GateDecision("approved", "user", source="cli"))
    records.stop_waiting()


def resolve(world: World, verb: Verb, gate: str = "release_ok", **options: Any) -> Resolution:
    state_dir, postgres = world.directory.parents[2], world.database if world.kind == "postgres" else None
    run = options.pop("run", None)
    by = Decider(**{"environment": {}, **options})
    kept = cast("PostgresDatabase | None", postgres)
    return resolve_gate(state_dir, verb, gate, run, by=by, clock=world.clock, postgres=kept)


def listed(world: World) -> list[PendingGate]:
    postgres = world.database if world.kind == "postgres" else None
    return pending_gates(world.directory.parents[2], world.clock, None, cast("PostgresDatabase | None", postgres))


def on_another_machine(world: World) -> None:
    world.sql("UPDATE x_gates SET host = 'another', process = '7:0.00'")


async def test_a_gate_on_this_machine_is_decided_by_its_run(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)))
    (found,) = await asyncio.to_thread(listed, world)
    record = found.record
    shown = (record.run, record.spelled, found.how, record.request.prompt)
    assert shown == (RUN, "release_ok", Decidable.AT_SOCKET, "Publish 1.2?")
    assert found.command.startswith(f"prose gate approve {RUN} release_ok")
    assert ("--state-dir" in found.command) == (world.kind == "sqlite")
    done = await asyncio.to_thread(resolve, world, "approve", comment="fine")
    assert (done.status, done.principal) == ("approved", "user")
    assert await task == GateDecision("approved", "user", "fine", source="cli")
    assert world.log() == [("created", "system", {}), ("approved", "user", {"source": "cli"})]
    with pytest.raises(GateRefused, match="already resolved: gate release_ok was approved by user"):
        await asyncio.to_thread(resolve, world, "reject")
    assert await asyncio.to_thread(listed, world) == []


async def test_a_gate_on_another_machine_is_decided_in_the_database(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)), request(allow=("ops",)))
    on_another_machine(world)
    assert [gate.how for gate in await asyncio.to_thread(listed, world)] == [Decidable.IN_DATABASE]
    for refused, why in (
        ({"environment": {"PROSE_JOB": "1"}}, "called from inside a run"),
        ({}, "gate release_ok: user may not approve, allowed: ops"),
        ({"principal": "system"}, "system is the run itself"),
        ({"gate": "nonsense"}, "no such gate is pending: nonsense"),
        ({"run": "20260301-101500-nobody"}, "no such run"),
    ):
        with pytest.raises(GateRefused, match=why):
            await asyncio.to_thread(resolve, world, "approve", **refused)  # type: ignore[arg-type]
    await asyncio.to_thread(resolve, world, "approve", principal="ops", comment="fine")
    assert await world.noticed(task) == GateDecision("approved", "ops", "fine", source="cli")
    assert world.log() == [("created", "system", {}), ("approved", "ops", {"source": "cli"})]
    with pytest.raises(GateRefused, match="already resolved: gate release_ok was approved by ops"):
        await asyncio.to_thread(resolve, world, "approve", principal="ops")


async def test_a8_a_process_started_by_a_run_decides_nothing_in_the_database(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusals are the same as over the socket, if this command can detect the reason."""
    left_pending(world)
    on_another_machine(world)
    for sign in ("is_marked", "descends_from"):
        with monkeypatch.context() as patched:
            patched.setattr(peers, sign, lambda *_: True)
            if sign == "descends_from":
                world.sql("UPDATE x_gates SET host = ?, process = ?", this_host(), peers.identity())
            with pytest.raises(GateRefused, match="called from inside a run"):
                resolve(world, "approve")
    assert world.gate()["status"] == "pending"


def test_a10_the_gate_of_a_dead_run(world: World) -> None:
    left_pending(world)
    world.sql("UPDATE x_gates SET process = '1:0.01'")
    assert [gate.how for gate in listed(world)] == [Decidable.ENDED]
    with pytest.raises(GateRefused, match="has ended: no run waits at gate release_ok"):
        resolve(world, "approve")


def test_the_gate_of_an_asking_run_on_another_machine_is_refused(world: World) -> None:
    records = world.records()
    records.open(request(), outside=False)
    records.stop_waiting()
    on_another_machine(world)
    with pytest.raises(GateRefused, match="takes no decision from outside"):
        resolve(world, "approve")


def test_the_log_of_a_gate(world: World) -> None:
    left_pending(world)
    world.decide("rejected")
    postgres = cast("PostgresDatabase", world.database) if world.kind == "postgres" else None
    events = gate_log(world.directory.parents[2], "release_ok", clock=world.clock, postgres=postgres)
    assert [(event.event_type, event.principal) for event in events] == [("created", "system")]


async def test_a9_fifty_concurrent_deciders_by_sql_and_command_line(world: World) -> None:
    task = await world.opened(world.keeper(Person(available=False)), request(allow=("user", "ops")))
    if world.kind == "postgres":
        on_another_machine(world)  # the socket has its own test; here all deciders use the database
    started, refusals = Barrier(50), list[str]()

    def decide(number: int) -> bool:
        status = ("approved", "rejected")[number % 2]
        started.wait(30)
        if number % 4 < 2:  # a service: one transaction, of which the second statement counts if the first did
            run_id, value = ("run_id, ", f"'{RUN}', ") if world.kind == "postgres" else ("", "")
            return bool(
                world.transaction(
                    (
                        "UPDATE gates SET status = ?, resolved_at = NOW, resolved_by = 'ops' "
                        "WHERE id = 'release_ok' AND status = 'pending' RETURNING id",
                        (status,),
                    ),
                    (
                        f"INSERT INTO gate_audit_log ({run_id}gate_id, event_type, principal, timestamp, metadata) "
                        f"SELECT {value}'release_ok', ?, 'ops', NOW, '{{\"source\": \"service\"}}' "
                        f"WHERE EXISTS (SELECT 1 FROM gates WHERE id = 'release_ok' AND status <> 'pending') RETURNING id",
                        (status,),
                    ),
                )
            )
        try:
            return resolve(world, "approve" if status == "approved" else "reject").status == status
        except GateRefused as refused:
            refusals.append(str(refused))
            return False

    with ThreadPoolExecutor(50) as threads:
        futures = [asyncio.wrap_future(threads.submit(decide, number)) for number in range(50)]
        won = await asyncio.gather(*futures)
    decision = await world.noticed(task)
    assert won.count(True) == 1
    assert all("already resolved" in why or "no such gate is pending" in why for why in refusals), refusals
    assert decision.status == ("approved", "rejected")[won.index(True) % 2] == world.gate()["status"]
    assert [event for event, _, _ in world.log()] == ["created", decision.status]
