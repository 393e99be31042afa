from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from prose_kernel.access.atomic import write_whole
from prose_kernel.access.peers import identity
from prose_kernel.errors import GateRefused, UsageError
from prose_kernel.language.structs import replace
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.storage.gates.deciding import Gatekeeper, GatePolicy, Mode
from prose_kernel.storage.gates.decision_socket import NAME
from prose_kernel.storage.gates.file_records import FileRecords
from prose_kernel.storage.gates.records import record_data
from prose_kernel.storage.gates.second_process import (
    Decidable,
    Decider,
    Resolution,
    Verb,
    damaged_records,
    gate_log,
    pending_gates,
    resolve_gate,
)

RUNS = ("20260301-101500-aaaaaa", "20260301-101600-bbbbbb")
CLOCK = SystemClock()


def records(state_dir: Path, run: str = RUNS[0]) -> FileRecords:
    return FileRecords(state_dir / "runs" / run / "gates", run, CLOCK)


def request(name: str = "ok", **changes: Any) -> GateRequest:
    given: dict[str, Any] = {
        "id": name,
        "name": name,
        "prompt": "Go?",
        "allow": ("user",),
        "timeout": 600.0,
        "timeout_text": "10m",
        "on_reject": "throw",
    }
    return GateRequest(**{**given, **changes})


def resolve(state_dir: Path, verb: Verb, gate: str, run: str | None = None, **options: Any) -> Resolution:
    by = Decider(**{"environment": {}, **options})
    return resolve_gate(state_dir, verb, gate, run, by=by, clock=CLOCK)


def leave(kept: FileRecords, gate: GateRequest) -> None:
    """Write the record of a run that was killed at its gate."""
    process = subprocess.Popen(["true"])
    left = replace(kept.open(gate, outside=True), process=identity(process.pid))
    process.wait()
    write_whole(kept.directory / f"{gate.id}.pending.json", json.dumps(record_data(left)))


class Absent:
    """A non-interactive prompt of the run, whose output shows when the gate waits."""

    available = False

    def __init__(self, shown: Callable[[], None]) -> None:
        self._shown = shown

    async def ask(self, prompt: str) -> str:
        raise AssertionError("nobody is here")

    def show(self, text: str) -> None:
        self._shown()


class Present(Absent):
    available = True

    async def ask(self, prompt: str) -> str:
        self._shown()
        return await asyncio.get_running_loop().create_future()


class Runs:
    """Runs that wait at gates, in a separate thread, so that a test can decide from outside."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._keepers: dict[str, tuple[Gatekeeper, threading.Event]] = {}
        self._open: list[Future[GateDecision]] = []

    def wait_at(self, gate: GateRequest, run: str = RUNS[0], mode: Mode = "wait") -> Future[GateDecision]:
        waits = threading.Event()
        keeper = self._keepers.get(run)
        if keeper is None or mode != "wait":
            person = Absent(waits.set) if mode == "wait" else Present(waits.set)
            made = Gatekeeper(records(self._state_dir, run), person, CLOCK, GatePolicy(mode), inspect=lambda pid: None)
            keeper = self._keepers[run] = (made, waits)
        keeper[1].clear()
        decision = self._submit(keeper[0].decide(gate))
        self._open.append(decision)
        assert keeper[1].wait(30)
        return decision

    def _submit(self, coroutine: Coroutine[Any, Any, GateDecision]) -> Future[GateDecision]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        for decision in self._open:
            decision.cancel()

        async def rest() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(rest(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    waiting = Runs(tmp_path)
    yield waiting
    waiting.close()


def test_listing(tmp_path: Path, runs: Runs) -> None:
    assert pending_gates(tmp_path, CLOCK) == []
    runs.wait_at(request("a", allow=("ops",)))
    runs.wait_at(request("b", id="b__3"), RUNS[1], "ask")
    leave(records(tmp_path, RUNS[1]), request("late", timeout=0.0))
    one, two = pending_gates(tmp_path, CLOCK)
    first, second = one.record, two.record
    shown = (first.run, first.id, first.request.prompt, first.request.allow, one.how)
    assert shown == (RUNS[0], "a", "Go?", ("ops",), Decidable.AT_SOCKET)
    assert one.command == f"prose gate approve {RUNS[0]} a --state-dir {tmp_path}"
    assert (first.timeout_at - first.created_at).total_seconds() == 600
    assert (second.run, second.id, second.request.name, two.how) == (RUNS[1], "b__3", "b", Decidable.AT_PROMPT)
    assert pending_gates(tmp_path, CLOCK, RUNS[1]) == [two]
    with pytest.raises(GateRefused, match="no such run: nope"):
        pending_gates(tmp_path, CLOCK, "nope")


def test_the_listed_prompt_comes_from_the_run(tmp_path: Path, runs: Runs) -> None:
    runs.wait_at(request())
    place = records(tmp_path).directory / "ok.pending.json"
    place.write_text(place.read_text().replace("Go?", "Feed the cat?"))
    assert [gate.record.request.prompt for gate in pending_gates(tmp_path, CLOCK)] == ["Go?"]


def test_the_suggested_command_is_short_for_the_default_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records(Path(".prose")).open(request(), outside=True)
    assert pending_gates(Path(".prose"), CLOCK)[0].command == f"prose gate approve {RUNS[0]} ok"


def test_a10_a_gate_without_its_run(tmp_path: Path) -> None:
    leave(records(tmp_path), request())
    assert [gate.how for gate in pending_gates(tmp_path, CLOCK)] == [Decidable.ENDED]
    with pytest.raises(GateRefused, match=f"run {RUNS[0]} has ended: no run waits at gate ok") as refused:
        resolve(tmp_path, "approve", "ok")
    assert refused.value.hint is not None and f"prose run --resume {RUNS[0]}" in refused.value.hint


def test_approving_by_record_id_and_by_name(tmp_path: Path, runs: Runs) -> None:
    first = runs.wait_at(request("ok", id="ok__3", execution_id=3))
    assert resolve(tmp_path, "approve", "ok", comment="fine") == Resolution(
        RUNS[0], "ok__3", "approved", "user", "fine"
    )
    assert first.result(30) == GateDecision("approved", "user", "fine", source="cli")
    runs.wait_at(request("ok", id="ok__4"))
    runs.wait_at(request("ok", id="ok"))
    assert resolve(tmp_path, "reject", "ok", RUNS[0]).id == "ok", "a record id comes before a gate name"


def test_ambiguous_names(tmp_path: Path, runs: Runs) -> None:
    for run in RUNS:
        runs.wait_at(request(), run)
    with pytest.raises(UsageError, match=f"several runs wait at a gate ok: {RUNS[0]}, {RUNS[1]}"):
        resolve(tmp_path, "approve", "ok")
    assert resolve(tmp_path, "approve", "ok", RUNS[1]).run == RUNS[1]
    assert resolve(tmp_path, "approve", "ok").run == RUNS[0], "only one is left"
    for gate_id in ("x__1", "x__2"):
        runs.wait_at(request("x", id=gate_id))
    with pytest.raises(UsageError, match="several records of gate x are pending: x__1, x__2"):
        resolve(tmp_path, "approve", "x")


def test_refusals(tmp_path: Path, runs: Runs) -> None:
    with pytest.raises(GateRefused, match="no such gate is pending: ok"):
        resolve(tmp_path, "approve", "ok")
    with pytest.raises(GateRefused, match=r"no such run: \.\./x"):
        resolve(tmp_path, "approve", "ok", "../x")
    runs.wait_at(request("mine"), mode="ask")
    with pytest.raises(GateRefused, match="takes no decision from outside"):
        resolve(tmp_path, "reject", "mine")
    runs.wait_at(request("ops", allow=("ops",)), RUNS[1])
    with pytest.raises(GateRefused, match="user may not approve, allowed: ops"):
        resolve(tmp_path, "approve", "ops")
    assert resolve(tmp_path, "approve", "ops", principal="ops").principal == "ops"
    with pytest.raises(GateRefused, match="already resolved: gate ops was approved by ops"):
        resolve(tmp_path, "reject", "ops")
    runs.wait_at(request("none", allow=()), RUNS[1])
    assert resolve(tmp_path, "reject", "none").status == "rejected", "anybody may reject"
    runs.wait_at(request("late", timeout=0.05), RUNS[1]).result(30)
    with pytest.raises(GateRefused, match="too late: gate late timed out"):
        resolve(tmp_path, "approve", "late")


def test_a_command_of_a_run_is_refused(tmp_path: Path, runs: Runs) -> None:
    runs.wait_at(request())
    with pytest.raises(GateRefused, match="called from inside a run"):
        resolve(tmp_path, "approve", "ok", environment={"PROSE_JOB": "x"})
    assert len(pending_gates(tmp_path, CLOCK)) == 1


def test_the_log_of_a_gate(tmp_path: Path, runs: Runs) -> None:
    runs.wait_at(request("ok", id="ok__1__i0--2"))
    runs.wait_at(request("other"))
    resolve(tmp_path, "reject", "ok", comment="no")
    for name in ("ok", "ok__1__i0--2"):
        events = gate_log(tmp_path, name, clock=CLOCK)
        assert [(e.event_type, e.principal, e.comment) for e in events] == [
            ("created", "system", ""),
            ("rejected", "user", "no"),
        ]
        assert events[1].metadata == {"source": "cli"}
    with pytest.raises(GateRefused, match="no such gate: nope"):
        gate_log(tmp_path, "nope", clock=CLOCK)
    records(tmp_path, RUNS[1]).open(request(), outside=True)
    with pytest.raises(UsageError, match="several runs have a gate ok"):
        gate_log(tmp_path, "ok", clock=CLOCK)
    assert len(gate_log(tmp_path, "ok", RUNS[1], clock=CLOCK)) == 1


def test_a19_damaged_files_are_skipped_and_reported(tmp_path: Path) -> None:
    kept = records(tmp_path)
    kept.open(request(), outside=True)
    (kept.directory / "x.pending.json").write_text("{")
    assert [g.record.id for g in pending_gates(tmp_path, CLOCK)] == ["ok"]
    assert damaged_records(tmp_path, CLOCK) == [(RUNS[0], "x.pending.json")]


def test_a19_foreign_files_among_the_records_do_not_break_the_listing(tmp_path: Path) -> None:
    kept = records(tmp_path)
    leave(kept, request())
    os.mkfifo(kept.directory / "pipe.pending.json")
    (kept.directory / "link.pending.json").symlink_to("/dev/zero")
    (kept.directory / "directory.pending.json").mkdir()
    endless = {**record_data(kept.pending()[0]), "attempt": float("inf")}
    (kept.directory / "endless.pending.json").write_text(json.dumps(endless))
    ancient = {**endless, "attempt": 1, "created_at": "0001-01-01T00:00:00+23:59"}
    (kept.directory / "ancient.pending.json").write_text(json.dumps(ancient))
    assert [g.record.id for g in pending_gates(tmp_path, CLOCK)] == ["ok"]
    assert [name.partition(".")[0] for _, name in damaged_records(tmp_path, CLOCK)] == [
        *("ancient", "directory", "endless", "link", "pipe")
    ]
    (kept.directory / "audit.jsonl").unlink()
    os.mkfifo(kept.directory / "audit.jsonl")
    with pytest.raises(GateRefused, match="no such gate: ok"):
        gate_log(tmp_path, "ok", clock=CLOCK)


def test_a8_a_run_that_cannot_be_asked_does_not_hide_other_runs(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test process acts as a command that has replaced a run's socket by its own."""
    runs.wait_at(request("good"))
    other = records(tmp_path, RUNS[1])
    other.open(request("bad"), outside=True)
    with pytest.raises(GateRefused, match=f"run {RUNS[1]} does not answer on its socket"):
        resolve(tmp_path, "approve", "bad")
    monkeypatch.chdir(other.directory)
    look = "prose_kernel.storage.gates.decision_socket.is_marked"
    with socket.socket(socket.AF_UNIX) as forged:
        forged.bind(NAME)
        forged.listen()
        asked = iter([False, True, False, True, True])
        monkeypatch.setattr(look, lambda pid: next(asked))
        assert [(g.record.id, g.how) for g in pending_gates(tmp_path, CLOCK)] == [
            ("good", Decidable.AT_SOCKET),
            ("bad", Decidable.UNREACHABLE),
        ]
        with pytest.raises(GateRefused, match=f"run {RUNS[1]} cannot be asked: what listens in the place"):
            resolve(tmp_path, "approve", "bad")
    monkeypatch.setattr(look, lambda pid: False)
    assert resolve(tmp_path, "approve", "good").status == "approved"


def test_a_comment_of_any_text(tmp_path: Path, runs: Runs) -> None:
    with pytest.raises(UsageError, match="a comment may have 10,000 characters, this one has 10,001"):
        resolve(tmp_path, "approve", "ok", comment="x" * 10_001)
    decision = runs.wait_at(request())
    comment = "\udcff" * 10_000
    assert resolve(tmp_path, "approve", "ok", comment=comment).status == "approved"
    assert decision.result(30).comment == comment
    assert gate_log(tmp_path, "ok", clock=CLOCK)[1].comment == "?" * 10_000
