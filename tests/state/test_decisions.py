from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from prose_kernel.errors import GateRefused, UsageError
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.state.decisions import Resolution, Verb, gate_log, pending_gates, resolve_gate
from prose_kernel.state.gates import Gatekeeper
from prose_kernel.state.records import FileRecords

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
    return resolve_gate(state_dir, verb, gate, run, clock=CLOCK, environment=options.pop("environment", {}), **options)


class Absent:
    available = False

    def __init__(self) -> None:
        self.shown: list[str] = []

    async def ask(self, prompt: str) -> str:
        raise AssertionError("nobody is here")

    def show(self, text: str) -> None:
        self.shown.append(text)


def test_listing(tmp_path: Path) -> None:
    assert pending_gates(tmp_path, CLOCK) == []
    records(tmp_path).open(request("a", allow=("ops",)), outside=True)
    records(tmp_path, RUNS[1]).open(request("b", id="b__3"), outside=False)
    records(tmp_path, RUNS[1]).open(request("late", timeout=0.0), outside=True)
    one, two = pending_gates(tmp_path, CLOCK)
    assert (one.run, one.id, one.prompt, one.allow, one.decidable) == (RUNS[0], "a", "Go?", ("ops",), True)
    assert one.command == f"prose gate approve {RUNS[0]} a --state-dir {tmp_path}"
    assert (one.deadline - one.opened).total_seconds() == 600
    assert (two.run, two.id, two.name, two.decidable) == (RUNS[1], "b__3", "b", False)
    assert pending_gates(tmp_path, CLOCK, RUNS[1]) == [two]
    with pytest.raises(GateRefused, match="no such run: nope"):
        pending_gates(tmp_path, CLOCK, "nope")


def test_the_command_is_short_in_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    records(Path(".prose")).open(request(), outside=True)
    assert pending_gates(Path(".prose"), CLOCK)[0].command == f"prose gate approve {RUNS[0]} ok"


def test_approving_by_record_id_and_by_name(tmp_path: Path) -> None:
    kept = records(tmp_path)
    record = kept.open(request("ok", id="ok__3", execution_id=3), outside=True)
    assert resolve(tmp_path, "approve", "ok", comment="fine") == Resolution(
        RUNS[0], "ok__3", "approved", "user", "fine"
    )
    assert kept.resolve(record, None) == GateDecision("approved", "user", "fine", source="cli")
    kept.open(request("ok", id="ok__4"), outside=True)
    kept.open(request("ok", id="ok"), outside=True)
    assert resolve(tmp_path, "reject", "ok", RUNS[0]).id == "ok", "a record id comes before a gate name"


def test_names_that_mean_several_records(tmp_path: Path) -> None:
    for run in RUNS:
        records(tmp_path, run).open(request(), outside=True)
    with pytest.raises(UsageError, match=f"several runs wait at a gate ok: {RUNS[0]}, {RUNS[1]}"):
        resolve(tmp_path, "approve", "ok")
    assert resolve(tmp_path, "approve", "ok", RUNS[1]).run == RUNS[1]
    assert resolve(tmp_path, "approve", "ok").run == RUNS[0], "only one is left"
    for gate_id in ("x__1", "x__2"):
        records(tmp_path).open(request("x", id=gate_id), outside=True)
    with pytest.raises(UsageError, match="several records of gate x are pending: x__1, x__2"):
        resolve(tmp_path, "approve", "x")


def test_refusals(tmp_path: Path) -> None:
    kept = records(tmp_path)
    with pytest.raises(GateRefused, match="no such gate is pending: ok"):
        resolve(tmp_path, "approve", "ok")
    with pytest.raises(GateRefused, match=r"no such run: \.\./x"):
        resolve(tmp_path, "approve", "ok", "../x")
    kept.open(request("late", timeout=0.0), outside=True)
    with pytest.raises(GateRefused, match="too late: gate late timed out after 10m"):
        resolve(tmp_path, "approve", "late")
    kept.open(request("mine"), outside=False)
    with pytest.raises(GateRefused, match="takes no decision from outside"):
        resolve(tmp_path, "reject", "mine")
    kept.open(request("ops", allow=("ops",)), outside=True)
    with pytest.raises(GateRefused, match="user may not approve gate ops, allowed: ops"):
        resolve(tmp_path, "approve", "ops")
    assert resolve(tmp_path, "approve", "ops", principal="ops").principal == "ops"
    with pytest.raises(GateRefused, match="already resolved: gate ops was approved by ops"):
        resolve(tmp_path, "reject", "ops")
    kept.open(request("none", allow=()), outside=True)
    assert resolve(tmp_path, "reject", "none").status == "rejected", "anybody may reject"


def test_a_command_of_a_run_is_refused(tmp_path: Path) -> None:
    records(tmp_path).open(request(), outside=True)
    with pytest.raises(GateRefused, match="called from inside a run"):
        resolve(tmp_path, "approve", "ok", environment={"PROSE_JOB": "x"})
    assert len(pending_gates(tmp_path, CLOCK)) == 1


DECIDER = """
    import sys
    from pathlib import Path
    from prose_kernel.errors import GateRefused
    from prose_kernel.runtime.clock import SystemClock
    from prose_kernel.state.decisions import resolve_gate
    state_dir, verb = Path(sys.argv[1]), sys.argv[2]
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        done = resolve_gate(state_dir, verb, "ok", clock=SystemClock(), environment={})
        print("done", done.status)
    except GateRefused as refused:
        print("refused", refused)
"""


def start(*arguments: str, program: str = DECIDER) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_child_of_the_run_is_refused_even_without_the_mark(tmp_path: Path) -> None:
    records(tmp_path).open(request(), outside=True)  # this process is the run
    with start(str(tmp_path), "approve") as child:
        out, _ = child.communicate("go\n")
    assert out.splitlines()[1].startswith("refused called from inside a run")


def opened_elsewhere(state_dir: Path) -> None:
    """A pending record whose process is not above the deciders."""
    records(state_dir).open(request(), outside=True)
    place = records(state_dir).directory / "ok.pending.json"
    data = json.loads(place.read_text())
    place.write_text(json.dumps({**data, "process": "1:0"}))


@pytest.mark.parametrize("attempt", range(3))
def test_two_processes_racing_for_one_gate(tmp_path: Path, attempt: int) -> None:
    opened_elsewhere(tmp_path)
    with start(str(tmp_path), "approve") as one, start(str(tmp_path), "reject") as two:
        for racer in (one, two):
            assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
        for racer in (one, two):
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = sorted(racer.communicate()[0].strip() for racer in (one, two))
    assert said[0] in ("done approved", "done rejected")
    winner = said[0].removeprefix("done ")
    assert said[1] == f"refused already resolved: gate ok was {winner} by user"
    kept = records(tmp_path)
    data = json.loads((kept.directory / "ok.resolved.json").read_text())
    assert data["decision"] == winner
    assert [e.event_type for e in kept.events()] == ["created", winner]
    assert not list(kept.directory.glob("*.tmp"))


async def test_a_waiting_run_takes_the_decision_of_another_process(tmp_path: Path) -> None:
    person = Absent()
    gates = Gatekeeper(records(tmp_path), person, "wait", CLOCK)
    task = asyncio.create_task(gates.decide(request()))
    while not person.shown:
        await asyncio.sleep(0)
    record = records(tmp_path).find("ok")
    assert record is not None
    assert resolve(tmp_path, "approve", "ok", comment="from a second terminal").status == "approved"
    assert await task == GateDecision("approved", "user", "from a second terminal", source="cli")
    with pytest.raises(GateRefused, match="already resolved: gate ok was approved by user"):
        resolve(tmp_path, "reject", "ok")


def test_the_log_of_a_gate(tmp_path: Path) -> None:
    kept = records(tmp_path)
    kept.open(request("ok", id="ok__1__i0--2"), outside=True)
    kept.open(request("other"), outside=True)
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


def test_damaged_files_are_passed_over(tmp_path: Path) -> None:
    kept = records(tmp_path)
    kept.open(request(), outside=True)
    (kept.directory / "x.pending.json").write_text("{")
    (kept.directory / "y.pending.json").write_text('{"created_at": "2026-03-01T10:15:00Z"}')
    with (kept.directory / "audit.jsonl").open("a") as log:
        log.write("[]\nnot json\n")
    assert [g.id for g in pending_gates(tmp_path, CLOCK)] == ["ok"]
    assert len(kept.events()) == 1
