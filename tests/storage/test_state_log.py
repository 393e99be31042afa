from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from msgspec import structs
from storage.backends import FixedClock

from prose_kernel.errors import ExecError, GateRejected, RunError, SessionError
from prose_kernel.language.source import Source, Span
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.ports import CommandRequest, CommandResult, GateDecision, GateRequest, Key, SessionRequest
from prose_kernel.storage import pending_writes
from prose_kernel.storage.run_directory import RunDirectory
from prose_kernel.storage.state_log import Trace, letter
from prose_kernel.storage.stores import FilesystemStore
from prose_kernel.storage.transcript import ANNOUNCEMENT, InContextTrace

RUN = "20260301-101500-k3x9qa"
SOURCE = Source("…", "tidy.prose")


def at(
    ordinal: int,
    *branches: tuple[int, int, str],
    depth: int = 0,
    execution_id: int | None = None,
    program: tuple[str, ...] = (),
) -> ev.Place:
    steps = tuple(ev.BranchStep(*step) for step in branches)
    return ev.Place(SOURCE, Span(0, 1), ordinal, depth, execution_id, None, steps, program)


def bound(place: ev.Place, name: str, kind: str = "let") -> ev.Bound:
    return ev.Bound(place, name, kind, "value", Key(name))  # type: ignore[arg-type]


SAMPLE: list[ev.Event] = [
    ev.RunStarted(at(0), "tidy.prose"),
    bound(at(1), "notes"),
    ev.ParallelStarted(at(2), 1, ("api", "ui"), 2, iterations=False),
    ev.BranchFinished(at(2, (1, 1, "ui")), 1, 1, "ui", "done", "v"),
    ev.BranchFinished(at(2, (1, 0, "api")), 1, 0, "api", "failed", None, SessionError("timeout")),
    ev.ParallelJoined(at(2), 1),
    ev.LoopPass(at(3), 0, 4),
    ev.Judged(at(3), "good enough", False, "rules"),
    bound(at(3), "draft"),
    ev.LoopPass(at(3), 1, 4),
    ev.Judged(at(3), "good enough", True, "rules"),
    ev.LoopLeft(at(3), 1, 4, "**good enough**"),
    ev.BlockEntered(at(4), "shrink", 1, ("text",)),
    ev.BlockLeft(at(4), "shrink", 1),
    ev.RunEnded(at(0)),
]


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(RunDirectory(Path(".prose"), RUN, cwd=tmp_path))


async def traced(store: FilesystemStore, events: list[ev.Event], chain: tuple[str, ...] = ()) -> str:
    trace = Trace(store.home, FixedClock())
    for event in events:
        trace(event)
    await store.flush()
    place = store.paths.directory
    for name in chain:
        place = place / "imports" / name
    return (place / "state.md").read_text()


async def lines(store: FilesystemStore, *events: ev.Event) -> list[str]:
    return (await traced(store, list(events))).splitlines()


async def test_the_log_of_the_reference(store: FilesystemStore) -> None:
    assert (
        await traced(store, SAMPLE)
        == f"""# run:{RUN} tidy.prose

1→ notes ✓
2→ ∥start api,ui
2b→ ui ✓
2a→ ✗ timeout
2→ ∥done
3→ loop:1/4
3→ draft ✓
3→ loop:2/4 exit(**good enough**)
4→ block:shrink#1
4→ #1 done
---end 2026-03-01T10:21:07Z
"""
    )


async def test_loops(store: FilesystemStore) -> None:
    assert await lines(
        store,
        ev.LoopPass(at(1), 0, None),
        bound(at(1), "x"),
        ev.LoopLeft(at(1), 0, None, "break"),
        ev.LoopPass(at(2), 0, 2),
        bound(at(2), "x"),
        ev.LoopPass(at(2), 1, 2),
        bound(at(2), "x"),
        ev.LoopPass(at(2), 2, 2),
        ev.LoopLeft(at(2), 2, 2, "max"),
        ev.LoopPass(at(3), 0, 1),
        ev.LoopLeft(at(3), 0, 1, "end"),
        ev.LoopPass(at(4), 0, None),
        ev.LoopLeft(at(4), 0, None, "no-progress"),
        bound(at(5), "y"),
    ) == [
        "1→ loop:1/-",
        "1→ x ✓",
        "1→ loop:1/- exit(break)",
        "2→ loop:1/2",
        "2→ x ✓",
        "2→ loop:2/2",
        "2→ x ✓",
        "2→ loop:2/2 exit(max)",
        "3→ loop:1/1",
        "4→ loop:1/- exit(no-progress)",
        "5→ y ✓",
    ]


async def test_spawns_and_inputs(store: FilesystemStore) -> None:
    request = SessionRequest("session", "Do it", "c1/0/s0")

    def done(ordinal: int, **changes: object) -> ev.SessionFinished:
        changed = structs.replace(request, **changes)  # type: ignore[arg-type]
        return ev.SessionFinished(at(ordinal), ordinal, changed, None, Key("anon_001"))

    assert await lines(
        store,
        bound(at(1), "topic", "input"),
        done(2),
        done(3, label="draft"),
        done(4, kind="resume", agent="captain"),
        ev.Retried(at(5), 5, 2, 3, 1.0),
    ) == ["1→ input topic ✓", "2→ ✓", "3→ draft ✓", "4→ captain ✓", "5→ retry:2/3"]


async def test_control_flow_and_gates(store: FilesystemStore) -> None:
    gate = GateRequest("ok__2", "ok", "Go?", ("user",), 1800.0, "30m", "throw", 2)
    assert await lines(
        store,
        ev.TryEntered(at(1)),
        ev.Failed(at(1), ExecError("command failed\nwith two lines")),
        ev.Caught(at(1), "err", ExecError("x")),
        ev.FinallyEntered(at(1)),
        ev.ArmChosen(at(2), 0),
        ev.OptionChosen(at(3), "fast\n---end"),
        ev.PipeProgressed(at(4), "map", 2, 7),
        bound(at(5, depth=2, execution_id=9), "inner"),
        ev.GateOpened(at(6), gate),
        ev.GateResolved(at(6), gate, GateDecision("approved", "user")),
    ) == [
        "1→ try",
        "1→ ✗ command failed with two lines",
        "1→ catch err",
        "1→ finally",
        "2→ if:0",
        "3→ choice:fast ---end",
        "4→ pipe:map 2/7",
        "    5→ inner ✓",
        "6→ gate:ok__2 pending",
        "6→ gate:ok__2 approved",
    ]


async def test_branches(store: FilesystemStore) -> None:
    failure = RunError("boom")
    assert await lines(
        store,
        ev.ParallelStarted(at(1), 1, ("a", None, "c"), 3, iterations=False),
        bound(at(1, (1, 0, "a")), "a"),
        bound(at(1, (1, 1, "_2")), "other"),
        ev.BranchFinished(at(1, (1, 0, "a")), 1, 0, "a", "done"),
        ev.Failed(at(1, (1, 1, "_2")), failure),
        ev.BranchFinished(at(1, (1, 1, "_2")), 1, 1, None, "failed", None, failure),
        ev.BranchFinished(at(1, (1, 2, "c")), 1, 2, "c", "cancelled"),
        ev.ParallelJoined(at(1), 1),
        ev.ParallelStarted(at(2), 2, (), 2, iterations=True),
        ev.LoopPass(at(2, (2, 0, "i0")), 0, None),
        ev.BranchFinished(at(2, (2, 0, "i0")), 2, 0, None, "done"),
        ev.BranchFinished(at(2, (2, 1, "i1")), 2, 1, None, "failed", None, RunError("no")),
        ev.ParallelJoined(at(2), 2),
    ) == [
        "1→ ∥start a,_2,c",
        "1b→ other ✓",
        "1a→ a ✓",
        "1b→ ✗ boom",
        "1c→ cancelled",
        "1→ ∥done",
        "2→ loop:1/2",
        "2→ ✗ no",
    ]


async def test_imported_programs_have_their_own_log(store: FilesystemStore) -> None:
    failure = GateRejected("gate ok rejected")
    inside = ("local--tidy",)
    events = [
        ev.RunStarted(at(0), "main.prose"),
        ev.ProgramCalled(at(1), "tidy", "local--tidy"),
        bound(at(1, program=inside), "x"),
        ev.ProgramReturned(at(1), "tidy"),
        ev.ProgramCalled(at(2), "tidy", "local--tidy--2"),
        ev.Failed(at(1, program=("local--tidy--2",)), failure),
        ev.ProgramReturned(at(2), "tidy", failure),
        ev.RunEnded(at(0), failure),
    ]
    assert await traced(store, events) == (
        f"# run:{RUN} main.prose\n\n1→ import:tidy ✓\n2→ ✗ gate ok rejected\n"
        "---error 2026-03-01T10:21:07Z gate ok rejected\n"
    )
    first, second = (
        (store.paths.directory / "imports" / name / "state.md").read_text()
        for name in ("local--tidy", "local--tidy--2")
    )
    assert first == f"# run:{RUN} tidy\n\n1→ x ✓\n---end 2026-03-01T10:21:07Z\n"
    assert second == f"# run:{RUN} tidy\n\n1→ ✗ gate ok rejected\n---error 2026-03-01T10:21:07Z gate ok rejected\n"


async def test_a_run_in_which_nothing_happened_leaves_no_log(store: FilesystemStore, tmp_path: Path) -> None:
    trace = Trace(store.home, FixedClock())
    trace(ev.RunStarted(at(0), "notebook"))
    trace(ev.CellStarted(at(0), 1))
    trace(ev.RunEnded(at(0)))
    await store.flush()
    assert list(tmp_path.iterdir()) == []


async def test_an_unnamed_branch_that_is_one_spawn_has_one_line(store: FilesystemStore) -> None:
    branch = at(1, (1, 0, "_1"))
    later = branch._replace(span=Span(9, 10))
    request, result = CommandRequest("x", "/", 1.0), CommandResult("exited", 0)
    done = ev.CommandFinished(branch, 1, request, "x", None, result, "throw", raised=False)
    assert await lines(
        store,
        done,
        ev.BranchFinished(branch, 1, 0, None, "done"),
        structs.replace(done, place=later),
        ev.BranchFinished(branch, 1, 0, None, "done"),
    ) == ["1a→ ✓", "1a→ ✓", "1a→ ✓"]


def test_letters() -> None:
    assert [letter(n) for n in (0, 25, 26, 27, 51, 52, 701, 702)] == ["a", "z", "aa", "ab", "az", "ba", "zz", "aaa"]


async def test_many_passes_stream_in_constant_memory(store: FilesystemStore) -> None:
    trace = Trace(store.home, FixedClock())
    place = at(1)
    passes = 10_000
    tracemalloc.start()
    try:
        for n in range(passes):
            trace(ev.LoopPass(place, n, None))
            trace(bound(place, "x"))
        trace(ev.LoopLeft(place, passes - 1, None, "break"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024, peak
    await store.flush()
    lines = (store.paths.directory / "state.md").read_text().splitlines()
    assert len(lines) == 2 * 100 + 1 + 2 * 100 + 1
    assert lines[198:203] == ["1→ loop:100/-", "1→ x ✓", "1→ … 9,800 passes", "1→ loop:9901/-", "1→ x ✓"]
    assert lines[-2:] == ["1→ x ✓", "1→ loop:10000/- exit(break)"]


async def test_a_log_that_cannot_be_written_neither_raises_nor_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_writes, "_SPILL", 16 * 1024)
    (tmp_path / ".prose").write_text("in the way")
    store = FilesystemStore(RunDirectory(Path(".prose"), RUN, cwd=tmp_path))
    trace = Trace(store.home, FixedClock())
    tracemalloc.start()
    try:
        for n in range(3_000):
            trace(bound(at(n), "x" * 200))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 128 * 1024, peak


def test_in_context_markers() -> None:
    shown: list[str] = []
    trace = InContextTrace(shown.append)
    for event in SAMPLE:
        trace(event)
    assert shown == [ANNOUNCEMENT]
    assert (
        trace.text
        == """1→ notes ✓
∥ [api ui]
∥ [api→ ui✓]
∥ [api✗ ui✓] done
loop:1/4
3→ draft ✓
loop:2/4
loop:2/4 exit(**good enough**)
#1 shrink(text)
#1 done
---end
"""
    )


def test_in_context_gates_and_imports() -> None:
    trace = InContextTrace()
    gate = GateRequest("ok", "ok", "Go?", ("user",), 1800.0, "30m", "throw")
    for event in (
        ev.GateOpened(at(1), gate),
        ev.GateResolved(at(1), gate, GateDecision("timeout", "system")),
        ev.TryEntered(at(2)),
        ev.Caught(at(2), "err", RunError("x")),
        ev.FinallyEntered(at(2)),
        ev.ProgramCalled(at(3), "tidy", "local--tidy"),
        ev.ProgramReturned(at(3), "tidy"),
        bound(at(4, depth=1), "x"),
    ):
        trace(event)
    assert trace.text.splitlines() == [
        "gate:ok → pending",
        "gate:ok → timeout",
        "try→",
        "catch→ err",
        "finally→",
        "use local--tidy → tidy",
        "tidy() → ✓",
        "  4→ x ✓",
    ]


@pytest.mark.parametrize("reason", ["end", "raised", "ended run"])
@pytest.mark.parametrize("passes", [100, 101, 1000, 1001, 1300])
async def test_a_long_loop_keeps_its_first_and_last_hundred_passes(
    store: FilesystemStore, passes: int, reason: str
) -> None:
    trace = Trace(store.home, FixedClock())
    for n in range(passes):
        trace(ev.LoopPass(at(1), n, None))
        trace(ev.LoopPass(at(1), 0, 1))  # another loop in each pass
        trace(ev.LoopLeft(at(1), 0, 1, "end"))
    trace(ev.RunEnded(at(0)) if reason == "ended run" else ev.LoopLeft(at(1), passes - 1, None, reason))
    trace(bound(at(2), "after"))
    await store.flush()
    text = (store.paths.directory / "state.md").read_text()
    if passes <= 1000:
        assert "…" not in text and text.count("loop:1/1") == passes
    else:
        assert f"1→ … {passes - 200:,} passes\n1→ loop:{passes - 99}/-\n" in text and text.count("loop:1/1") == 200
    assert text.endswith("2→ after ✓\n") and f"1→ loop:{passes}/-\n" in text


async def test_a_long_loop_of_branches_keeps_them_by_their_index(store: FilesystemStore) -> None:
    trace = Trace(store.home, FixedClock())
    trace(ev.ParallelStarted(at(1), 7, (), 2000, True))
    for n in reversed(range(2000)):
        trace(ev.LoopPass(at(1, (7, n, f"i{n}")), n, 2000))
        trace(bound(at(1, (7, n, f"i{n}")), "x"))
    trace(ev.ParallelJoined(at(1), 7))
    await store.flush()
    text = (store.paths.directory / "state.md").read_text()
    assert text.count("x ✓") == 200 and "loop:100/2000" in text and "loop:101/2000" not in text
    assert text.endswith("1→ … 1,800 passes\n")
