"""The contract of every store of a run: files, memory, SQLite, PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres import PostgresServer
from storage.backends import RUN, Backend, backends, in_database, notify, tiny_disk

from prose_kernel.errors import Interrupted, RunError, StateError
from prose_kernel.language.source import Source, Span
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.ports import AgentMemory, Binding, CommandResult, Key, SessionRequest, SessionResult, Store
from prose_kernel.runtime.values import ErrorValue, ExecText, Reference, Value
from prose_kernel.storage import bindings
from prose_kernel.storage.database import row_writer
from prose_kernel.storage.database.postgres import PostgresDatabase
from prose_kernel.storage.database.schema import Connection, Database, DatabaseError

LASTING = ["filesystem", "sqlite", "postgres"]
DATABASES = ["sqlite", "postgres"]
SOURCE = Source('let x = "1"\n', "p.prose")


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    yield from backends(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from tiny_disk(tmp_path)


every = pytest.mark.parametrize("backend", ["memory", *LASTING], indirect=True)
lasting = pytest.mark.parametrize("backend", LASTING, indirect=True)
in_databases = pytest.mark.parametrize("backend", DATABASES, indirect=True)


def binding(name: str, value: Value, execution_id: int | None = None, iterations: tuple[int, ...] = ()) -> Binding:
    return Binding(Key(name, execution_id, iterations), "let", value, f"let {name} = …")


def place(ordinal: int, *, depth: int = 0, frame: int | None = None, program: tuple[str, ...] = ()) -> ev.Place:
    return ev.Place(SOURCE, Span(0, 11), ordinal, depth, frame, program=program)


def bound(ordinal: int, name: str = "x") -> ev.Bound:
    return ev.Bound(place(ordinal), name, "let", "1", Key(name))


# ---------------------------------------------------------------- values


@every
async def test_a_value_reads_back_before_and_after_the_flush(store: Store) -> None:
    store.put(binding("plan", "first"))
    store.put(binding("plan", "second"))
    store.put(binding("plan", "inner", 4))
    store.put(binding("data", [1, {"a": None}]))
    for _ in range(2):
        assert store.read(Key("plan")) == "second"
        assert store.read(Key("plan", 4)) == "inner"
        assert store.read(Key("data")) == '[1,{"a":null}]'
        await store.flush()


@every
async def test_a_missing_binding_is_a_state_error_naming_it(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(StateError, match=r"'plan' could not be read: there is no such binding") as caught:
            store.read(Key("plan"))
        assert caught.value.code == "E219"
        store.put(binding("other", "1"))
        await store.flush()


@every
async def test_a_reference_is_stored_with_the_text_it_had(store: Store) -> None:
    store.put(binding("x", "old"))
    store.put(binding("y", Reference(Key("x"), lambda: store.read(Key("x")))))
    store.put(binding("x", "new"))
    await store.flush()
    assert store.read(Key("y")) == "old"


@every
async def test_an_imported_program_has_its_own_store(store: Store) -> None:
    store.put(binding("x", "outer"))
    one, two = (store.nested("local", "tidy", "output x = 1", n) for n in (1, 2))
    inner = one.nested("local", "tidy", "output x = 1")
    for text, inside in (("first", one), ("second", two), ("third", inner)):
        inside.put(binding("x", text))
    await store.flush()
    assert [s.read(Key("x")) for s in (store, one, two, inner)] == ["outer", "first", "second", "third"]
    assert [s.chain for s in (one, two, inner)] == [
        ("local--tidy",),
        ("local--tidy--2",),
        ("local--tidy", "local--tidy"),
    ]
    ahead = store.location(Key("x"), within=("local--tidy--2",))
    assert ahead == two.location(Key("x")) or store.by_value


@every
async def test_similar_names_do_not_collide(store: Store) -> None:
    alike = [
        Key("x"),
        Key("X"),
        Key("x", 1),
        Key("x__1"),
        Key("x", None, (0,)),
        Key("x__i0"),
        Key("x", 1, (0,)),
        Key("x__1__i0"),
        Key("x__i0", 1),
        Key("x__i0", None, (0,)),
        Key("x", None, (0, 0)),
        Key("tidy.x"),
        Key("n" * 300),
        Key("n" * 299 + "m"),
    ]
    for at, key in enumerate(alike):
        store.put(Binding(key, "let", f"value {at}", "let …"))
    for _ in range(2):
        assert [store.read(key) for key in alike] == [f"value {at}" for at in range(len(alike))]
        await store.flush()
    if not store.by_value:
        assert len({store.location(key) for key in alike}) == len(alike)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["", "\n", "---\n", "a\0b", "é" * 60_000, "x" * 200_000, "\r\n", "’", "NULL", "'; DROP TABLE bindings; --"]
)
VALUES: st.SearchStrategy[Value] = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.builds(Key, st.sampled_from(["a", "b", "B"]), st.none() | st.integers(1, 3), st.sampled_from([(), (0,)]))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(KEYS, VALUES) | st.none(), max_size=12))
@every
def test_the_last_stored_value_is_read(backend: Backend, steps: list[tuple[Key, Value] | None]) -> None:
    """A step puts a value or flushes. After the last flush a second process reads the same values."""

    async def through() -> None:
        store, expected = backend.store(f"{RUN}-{len(backend.opened)}"), dict[Key, str]()
        for step in (*steps, None):
            if step is None:
                await store.flush()
                continue
            key, value = step
            store.put(Binding(key, "let", value, "let …"))
            expected[key] = bindings.body(value)
        for key, text in expected.items():
            assert store.read(key) == text
        if backend.lasts:
            again = backend.store(backend.opened[-1].home.run_id)
            assert {key: again.read(key) for key in sorted(expected, key=repr)} == expected
            backend.close()

    asyncio.run(through())


@every
async def test_text_that_cannot_be_encoded_is_stored_with_marks(store: Store) -> None:
    store.put(binding("x", "a\udc80b"))
    await store.flush()
    assert store.read(Key("x")) in ("a?b", "a\udc80b")  # the latter in stores that do not encode text


@lasting
async def test_a_value_that_nests_endlessly_is_the_only_one_lost(backend: Backend) -> None:
    store = backend.store()
    value: Value = "x"
    for _ in range(100_000):
        value = [value]
    store.put(binding("deep", value))
    store.put(binding("x", "kept"))
    with pytest.raises(StateError, match="'deep' could not be stored: its value is nested too deeply"):
        await store.flush()
    await store.flush()  # it is reported once
    assert backend.store().read(Key("x")) == "kept"


@every
async def test_memory_exists_if_its_file_exists(store: Store, tmp_path: Path) -> None:
    """Memories are files in every backend, because sessions read and write them as files."""
    assert not store.has_memory("captain", "project")
    (tmp_path / ".prose" / "agents" / "captain").mkdir(parents=True)
    assert not store.has_memory("captain", "project")
    (tmp_path / ".prose" / "agents" / "captain" / "memory.md").write_text("# Agent Memory: captain\n")
    assert store.has_memory("captain", "project")
    assert not store.has_memory("captain", "true")
    assert store.memory("captain", "project") == ".prose/agents/captain/"


@lasting
async def test_nothing_worth_keeping_leaves_nothing(backend: Backend, tmp_path: Path) -> None:
    kept = backend.open()
    kept.store.record_source("# only a comment\n")
    notify(kept.trace, ev.RunStarted(place(0), "notebook"), ev.CellStarted(place(0), 1), ev.RunEnded(place(0)))
    await kept.store.flush()
    assert list(tmp_path.iterdir()) == []
    assert kept.store.trace_text() == ""


# ---------------------------------------------------------------- a run is opened again


@lasting
async def test_the_same_run_is_opened_again(backend: Backend) -> None:
    for text in ("old", "new"):
        kept = backend.open()
        kept.store.start('let x = "1"\n')
        for name in ("a", "b"):
            kept.store.put(binding(name, text))
        kept.store.nested("local", "tidy", "…").put(binding("a", f"{text} inside"))
        await kept.store.flush()
        kept.store.close()
    third = backend.store()
    assert [third.read(Key("a")), third.nested("local", "tidy", "…").read(Key("a"))] == ["new", "new inside"]
    if backend.kind in DATABASES:
        assert backend.rows("SELECT count(*) FROM bindings") == [(3,)]
        assert backend.rows("SELECT id, program_source FROM run") == [(RUN, 'let x = "1"\n')]


@lasting
async def test_a_resumed_run_writes_its_trace_again(backend: Backend) -> None:
    def life(*events: ev.Event) -> tuple[ev.Event, ...]:
        return (ev.RunStarted(place(0), "p.prose"), *events)

    broken = backend.open()
    broken.store.record_source('let x = "1"')
    notify(broken.trace, *life(bound(1), ev.BlockEntered(place(2), "split", 1, ()), bound(3, "half")))
    await broken.store.flush()
    broken.store.close()

    resumed = backend.open()
    resumed.store.restart()
    resumed.store.hold(True)
    resumed.store.record_source('let x = "1"')
    notify(resumed.trace, *life(bound(1), ev.BlockEntered(place(2), "split", 1, ())))
    await resumed.store.flush()
    resumed.store.hold(False)
    notify(resumed.trace, ev.Failed(place(2), RunError("no")), ev.RunEnded(place(0), RunError("no")))
    await resumed.store.flush()
    lines = resumed.store.trace_text().splitlines()
    assert lines[:-1] == [f"# run:{RUN} p.prose", "", "1→ x ✓", "2→ block:split#1", "2→ ✗ no"]
    assert lines[-1] == "---error 2026-03-01T10:21:07Z no"
    assert resumed.home.paths.program.read_text() == 'let x = "1"\n'


@lasting
async def test_a_replay_writes_little_and_needs_little_memory(backend: Backend) -> None:
    kept = backend.open()
    kept.store.hold(True)
    written = []
    for n in range(300):
        kept.store.put(binding(f"v{n}", "x" * 50_000))
        await kept.store.flush()
        if n % 5 == 4:
            written.append(_written(backend))
    batches = len(set(written)) - 1
    assert 2 <= batches <= 10, "15 MB are written in a few batches"
    kept.store.hold(False)
    await kept.store.flush()
    assert _written(backend) == 300


def _written(backend: Backend) -> int:
    if backend.kind == "filesystem":
        directory = backend.home().directory / "bindings"
        return len(list(directory.iterdir())) if directory.is_dir() else 0
    if backend.kind == "sqlite" and not (backend.home().directory / "state.db").exists():
        return 0
    try:
        return int(backend.rows("SELECT count(*) FROM bindings")[0][0])
    except Exception:  # there is no table yet
        return 0


@lasting
async def test_several_runs_in_parallel(backend: Backend) -> None:
    """Each run has its own thread, as in separate processes."""
    runs = [f"20260301-10150{n}-abcdef" for n in range(6)]
    stores = {run: backend.store(run) for run in runs}

    def work(run: str) -> None:
        async def through() -> None:
            for n in range(20):
                for name in ("x", "y"):
                    stores[run].put(binding(name, f"{run} {n}", n % 3 or None))
                await stores[run].flush()

        asyncio.run(through())

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for run in runs:
        again = backend.store(run)
        assert [again.read(Key("x", frame)) for frame in (None, 1, 2)] == [f"{run} 18", f"{run} 19", f"{run} 17"]


async def flushes_for_ever(store: Store, says: int) -> None:
    for n in itertools.count(1):
        for name in ("x", "y"):
            store.put(binding(name, str(n) * 1000, n))
        await store.flush()
        os.write(says, f"{n}\n".encode())


@lasting
def test_a_run_that_is_killed_has_everything_that_was_flushed(backend: Backend) -> None:
    reads, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(flushes_for_ever(Backend(backend.kind, backend.cwd, backend.url).store(), says))
        finally:
            os._exit(1)
    os.close(says)
    with os.fdopen(reads) as output:
        for line in output:
            if line == "20\n":
                break
        os.kill(child, signal.SIGKILL)
        flushed = [20, *map(int, output.read().split())][-1]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    store = backend.store()
    for n in range(1, flushed + 1):
        assert [store.read(Key(name, n)) for name in ("x", "y")] == [str(n) * 1000] * 2
    store.put(binding("z", "and goes on"))
    asyncio.run(store.flush())
    assert backend.store().read(Key("z")) == "and goes on"


# ---------------------------------------------------------------- the trace


@lasting
async def test_the_trace_is_the_same_in_every_backend(backend: Backend) -> None:
    kept = backend.open()
    inside = place(2, depth=1, frame=1)
    called = place(1, program=("local--tidy",))
    notify(
        kept.trace,
        ev.RunStarted(place(0), "p.prose"),
        bound(1),
        ev.BlockEntered(place(2), "split", 1, ()),
        ev.LoopPass(inside, 0, 2),
        ev.Bound(inside._replace(span=Span(4, 5)), "y", "let", "1", Key("y", 1)),
        ev.LoopPass(inside, 1, 2),
        ev.LoopLeft(inside, 1, 2, "break"),
        ev.BlockLeft(place(2), "split", 1),
        ev.ProgramCalled(place(3), "tidy", "local--tidy", "./tidy.prose", {"x": True}, ("y",)),
        ev.Bound(called, "inner", "let", "1", Key("inner")),
        ev.ProgramReturned(place(3), "tidy"),
        ev.ParallelStarted(place(4), 1, ("a", None), 2, False),
        ev.BranchFinished(place(4)._replace(branches=(ev.BranchStep(1, 0, "a"),)), 1, 0, "a", "done"),
        ev.BranchFinished(place(4)._replace(branches=(ev.BranchStep(1, 1, "_2"),)), 1, 1, None, "cancelled"),
        ev.ParallelJoined(place(4), 1),
        ev.Retried(place(5), 1, 2, 3, 0.5),
        ev.Failed(place(5), RunError("it\nbroke")),
        ev.Caught(place(5), "err", RunError("it broke")),
        ev.RunEnded(place(0)),
    )
    await kept.store.flush()
    assert kept.store.trace_text().splitlines() == [
        f"# run:{RUN} p.prose",
        "",
        "1→ x ✓",
        "2→ block:split#1",
        "  2→ loop:1/2",
        "  2→ y ✓",
        "  2→ loop:2/2 exit(break)",
        "2→ #1 done",
        "3→ import:tidy ✓",
        "4→ ∥start a,_2",
        "4a→ a ✓",
        "4b→ cancelled",
        "4→ ∥done",
        "5→ retry:2/3",
        "5→ ✗ it broke",
        "5→ catch err",
        "---end 2026-03-01T10:21:07Z",
    ]


@in_databases
async def test_rows_of_the_trace_show_their_nesting(backend: Backend) -> None:
    kept = backend.open()
    branch = place(1)._replace(branches=(ev.BranchStep(1, 0, "a"),))
    inner = place(2, depth=1, frame=1)
    notify(
        kept.trace,
        ev.RunStarted(place(0), "p.prose"),
        ev.ParallelStarted(place(1), 1, ("a",), 1, False, "any"),
        ev.Bound(branch, "a", "let", "1", Key("a")),  # the row of the branch shows it
        ev.BranchFinished(branch, 1, 0, "a", "failed", error=RunError("no")),
        ev.ParallelJoined(place(1), 1),
        ev.BlockEntered(place(2), "split", 1, ()),
        ev.LoopPass(inner, 0, None),
        ev.Bound(inner._replace(span=Span(4, 5)), "y", "let", "1", Key("y", 1)),
        ev.LoopPass(inner, 1, None),
        ev.LoopLeft(inner, 1, None, "**done**"),
        ev.BlockLeft(place(2), "split", 1),
        ev.RunEnded(place(0), Interrupted()),
    )
    await kept.store.flush()
    found = [
        (number, status, parent, _json(metadata))
        for number, status, parent, metadata in backend.rows(
            "SELECT id, status, parent_id, metadata FROM execution ORDER BY id"
        )
    ]
    finer = backend.kind == "sqlite"
    assert [(number, status, parent, metadata["event"]) for number, status, parent, metadata in found] == [
        (1, "started" if finer else "executing", None, "parallel"),
        (2, "failed", 1, "branch"),
        (3, "joined" if finer else "completed", None, "parallel"),
        (4, "started" if finer else "executing", None, "block"),
        (5, "iteration" if finer else "executing", 4, "loop"),
        (6, "completed", 5, "bound"),
        (7, "exited" if finer else "completed", 4, "loop"),
        (8, "completed", None, "block"),
        (9, "failed", None, "end"),
    ]
    details = [metadata for *_, metadata in found]
    assert details[0] | {"line": ""} == {
        **{"event": "parallel", "line": "", "parallel_id": 1},
        **{"branches": ["a"], "strategy": "any"},
    }
    assert (details[6]["loop_id"], details[6]["reason"], details[6]["iteration"]) == (5, "**done**", 2)
    assert backend.rows("SELECT program_path, status, state_mode FROM run") == [
        ("p.prose", "interrupted", backend.kind)
    ]
    assert backend.rows("SELECT execution_id, parent_execution_id, block, depth FROM x_frames") == [
        (1, None, "split", 1)
    ]


def _json(data: object) -> dict[str, object]:
    found = json.loads(data) if isinstance(data, str) else data
    assert isinstance(found, dict)
    return found


@in_databases
async def test_the_outcome_of_a_command_is_stored_with_its_value(backend: Backend) -> None:
    store = backend.store()
    result = CommandResult("exited", 3, stdout="out\0", stderr="e\0rr")
    store.put(Binding(Key("x"), "let", ExecText("out\0", result), "let …", "first"))
    store.put(Binding(Key("e"), "let", ErrorValue({"type": "T"}, RunError("no")), "let …"))
    await store.flush()
    assert store.read(Key("x")) == "out\0"
    found = {
        name: (kind, metadata) for name, kind, metadata in backend.rows("SELECT name, kind, metadata FROM bindings")
    }
    assert found["e"] == ("const", None)
    stderr = "e\0rr" if backend.kind == "sqlite" else "e\ufffdrr"
    assert _json(found["x"][1]) == {"label": "first", "exit_code": 3, "stderr": stderr}


@in_databases
async def test_a_large_value_is_a_file_of_the_run(backend: Backend) -> None:
    store = backend.store()
    store.put(binding("plan", "x" * 102_401, 7))
    store.put(binding("small", "x" * 102_400))
    await store.flush()
    (row,) = backend.rows("SELECT value, attachment_path FROM bindings WHERE name = 'plan'")
    assert row == ("(102,401 characters, in the file attachments/plan__7.md of the run)", "attachments/plan__7.md")
    assert (backend.home().directory / str(row[1])).read_text() == "x" * 102_401
    assert len(list(backend.home().attachments.iterdir())) == 1
    store.put(binding("plan", "short", 7))
    await store.flush()
    assert backend.rows("SELECT value, attachment_path FROM bindings WHERE name = 'plan'") == [("short", None)]


@in_databases
async def test_memories_of_agents_are_also_in_the_tables(backend: Backend, tmp_path: Path) -> None:
    """Sessions read and write files; the tables are for queries by other users."""
    kept = backend.open()
    for persist in ("true", "project"):
        directory = kept.store.memory("captain", persist)
        place_of = tmp_path / directory
        place_of.mkdir(parents=True)
        (place_of / "memory.md").write_text(f"of {persist}")
        (place_of / "captain-002.md").write_text("the second")
        (place_of / "captain-001.md").write_text("the first")
        memory = AgentMemory("captain", persist, directory, resume=True)
        request = SessionRequest("resume", "Go on", "c1/s1", agent="captain", memory=memory)
        notify(
            kept.trace, ev.SessionFinished(place(1), 1, request, None, Key("anon_001"), SessionResult("ok", "ok", "x"))
        )
        await kept.store.flush()
    assert backend.rows("SELECT name, scope, memory FROM agents ORDER BY scope") == (
        [("captain", "project", "of project")]
        if backend.kind == "sqlite"
        else [("captain", "execution", "of true"), ("captain", "project", "of project")]
    )
    segments = set(backend.rows("SELECT agent_name, segment_number, prompt, summary FROM agent_segments"))
    assert segments == {("captain", 2, "Go on", "the second")}


@in_databases
async def test_a_session_refers_to_the_row_of_its_own_segment(backend: Backend, tmp_path: Path) -> None:
    """A resumed run replays a session while its agent's memory has a segment of a later one, whose answer is lost."""
    kept = backend.open()
    directory = kept.store.memory("captain", "project")
    (tmp_path / directory).mkdir(parents=True)
    segments = [f"# Segment {n:03}\n\nprompt: {json.dumps(prompt)}\n" for n, prompt in ((1, "Plan it"), (2, "Go on"))]
    for number, text in enumerate(segments, 1):
        (tmp_path / directory / f"captain-{number:03}.md").write_text(text)
    memory = AgentMemory("captain", "project", directory, resume=True)
    for prompt in ("Plan it", "Unknown"):
        request = SessionRequest("session", prompt, "c1/s1", agent="captain", memory=memory)
        result = SessionResult("ok", "ok", "x")
        notify(kept.trace, ev.SessionFinished(place(1), 1, request, None, Key("anon_001"), result))
        await kept.store.flush()
        if prompt == "Plan it":
            rows = backend.rows("SELECT segment_number, prompt, summary FROM agent_segments")
            assert rows == [(1, "Plan it", segments[0])]
    rows = backend.rows("SELECT segment_number, prompt, summary FROM agent_segments ORDER BY segment_number")
    assert rows == [(1, "Plan it", segments[0]), (2, "Unknown", segments[1])]


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_7_2_the_user_s_memory_may_have_its_own_database(
    backend: Backend, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    def remembers(users: Database | None) -> Store:
        kept = backend.open(users=users)
        directory = tmp_path / "home"
        directory.mkdir(exist_ok=True)
        (directory / "memory.md").write_text("likes tea")
        memory = AgentMemory("captain", "user", str(directory), resume=True)
        request = SessionRequest("resume", "Go on", "c1/s1", agent="captain", memory=memory)
        result = SessionResult("ok", "ok", "x")
        notify(kept.trace, ev.SessionFinished(place(1), 1, request, None, Key("anon_001"), result))
        return kept.store

    await remembers(None).flush()
    assert backend.rows("SELECT name, scope, run_id FROM agents") == [("__user__captain", "user", None)]
    url = postgres_server.new_database()
    await remembers(PostgresDatabase(url)).flush()
    assert backend.rows("SELECT count(*) FROM agents") == [(1,)]
    connection = PostgresDatabase(url).connect()
    assert connection.query("SELECT name, scope, memory FROM openprose.agents") == [("captain", "user", "likes tea")]
    connection.close()
    unreachable = remembers(PostgresDatabase("postgresql://me:geheim@127.0.0.1:1/x"))
    with pytest.raises(StateError, match="'memory of captain' could not be stored: connection refused"):
        await unreachable.flush()
    await unreachable.flush()  # reported once


# ---------------------------------------------------------------- a database that refuses


class Faults:
    """A database between the store and a real one that fails on request."""

    def __init__(self, real: Database) -> None:
        self.real = real
        self.failing: DatabaseError | None = None
        self.connects = 0
        self.dialect, self.place, self.local, self.inside = real.dialect, real.place, real.local, real.inside

    def connect(self) -> Connection:
        self.connects += 1
        if self.failing is not None:
            raise self.failing
        return FaultyConnection(self.real.connect(), self)

    def location(self, name: str, execution_id: int | None) -> str:
        return self.real.location(name, execution_id)


class FaultyConnection:
    def __init__(self, real: Connection, faults: Faults) -> None:
        self._real = real
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        if self._faults.failing is not None and name != "close":
            raise self._faults.failing
        return getattr(self._real, name)


@in_databases
async def test_a_database_that_comes_back_gets_everything(backend: Backend) -> None:
    faults = Faults(backend.database(backend.home()))
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 4:
            faults.failing = None

    kept = in_database(faults, backend.home(), pause=pause)
    kept.store.put(binding("a", "before"))
    await kept.store.flush()
    faults.failing = DatabaseError("server closed the connection", lost=True)
    kept.store.put(binding("b", "while it was away"))
    notify(kept.trace, bound(1))
    await kept.store.flush()
    assert waited == [0.05, 0.1, 0.2, 0.4]
    assert [backend.store().read(Key(name)) for name in ("a", "b")] == ["before", "while it was away"]
    kept.store.close()


@in_databases
async def test_an_unreachable_database_is_reported_once_and_gets_everything_later(backend: Backend) -> None:
    faults = Faults(backend.database(backend.home()))
    kept = in_database(faults, backend.home(), pause=lambda _: None)
    store = kept.store
    faults.failing = DatabaseError("server closed the connection", lost=True)
    for name in ("a", "b"):
        store.put(binding(name, "old"))
    with pytest.raises(
        StateError, match=r"^'a' could not be stored: server closed the connection \(and 1 more\)"
    ) as caught:
        await store.flush()
    assert (caught.value.code, caught.value.hint) == (
        "E219",
        "values that are not stored stay in memory, and are tried again with the next flush",
    )
    connects = faults.connects
    await store.flush()
    assert faults.connects == connects + 1, "it is not waited for again"
    store.put(binding("a", "new"))
    with pytest.raises(StateError, match="'a' could not be stored"):
        await store.flush()
    assert store.read(Key("a")) == "new"
    notify(kept.trace, bound(1))
    faults.failing = None
    await store.flush()
    again = backend.store()
    assert [again.read(Key("a")), again.read(Key("b"))] == ["new", "old"]
    assert backend.rows("SELECT count(*) FROM execution") == [(1,)]
    kept.store.close()


@in_databases
async def test_there_is_no_wait_after_a_refusal_without_loss(backend: Backend) -> None:
    faults = Faults(backend.database(backend.home()))
    kept = in_database(faults, backend.home(), pause=lambda _: pytest.fail("it waited"))
    faults.failing = DatabaseError("permission denied for table bindings")
    kept.store.put(binding("a", "1"))
    with pytest.raises(StateError, match="'a' could not be stored: permission denied for table bindings"):
        await kept.store.flush()
    kept.store.close()


@in_databases
async def test_many_events_between_two_flushes_do_not_fill_the_memory(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "_SPILL", 2_000)
    kept = backend.open()
    notify(kept.trace, ev.RunStarted(place(0), "p.prose"))
    for n in range(2_500):
        kept.trace(bound(n))
    assert backend.rows("SELECT count(*) >= 2000 FROM execution")[0][0]
    await kept.store.flush()
    assert backend.rows("SELECT count(*), count(DISTINCT id), max(statement_index) FROM execution") == [
        (2_500, 2_500, 2_499)
    ]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a_store_waits_for_another_writing_program(backend: Backend) -> None:
    other: list[sqlite3.Connection] = []

    def pause(_: float) -> None:
        if other:
            other.pop().close()

    kept = backend.open(pause=pause)
    kept.store.put(binding("a", "1"))
    await kept.store.flush()
    other.append(sqlite3.connect(backend.home().directory / "state.db", isolation_level=None, check_same_thread=False))
    other[0].execute("BEGIN IMMEDIATE")
    kept.store.put(binding("a", "2"))
    await kept.store.flush()
    assert not other and backend.store().read(Key("a")) == "2"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a_state_directory_that_is_a_file(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / ".prose").write_text("in the way")
    store = backend.store()
    store.put(binding("x", "1"))
    assert (store.by_value, store.lost) == (False, None)
    await store.flush()
    assert store.by_value
    assert store.lost == "the state directory '.prose' cannot be written (not a directory); this run is kept in memory"
    assert store.read(Key("x")) == "1"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a_full_disk_is_reported_and_everything_is_stored_later(backend: Backend, small_disk: Path) -> None:
    backend.cwd = small_disk
    store = backend.open(patience=0.0).store
    store.put(binding("a", "old"))
    await store.flush()
    for n in range(8):
        store.put(binding(f"v{n}", str(n) * 60_000))
    with pytest.raises(StateError, match=r"'v0' could not be stored: no space left on the disk \(and 7 more\)"):
        await store.flush()
    store.put(binding("large", "x" * 300_000))
    with pytest.raises(StateError, match="'large' could not be stored: no space left on device"):
        await store.flush()
    assert [store.read(Key("a")), store.read(Key("v7"))] == ["old", "7" * 60_000]
    for n in range(8):
        store.put(binding(f"v{n}", "small"))
    store.put(binding("large", "small"))
    await store.flush()
    again = backend.store()
    assert {again.read(Key(name)) for name in (*(f"v{n}" for n in range(8)), "large")} == {"small"}
    backend.close()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a_damaged_database_is_reported(backend: Backend) -> None:
    file = backend.home().directory / "state.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"something else, and long enough " * 200)
    store = backend.store()
    store.put(binding("b", "2"))
    with pytest.raises(StateError, match=r"'b' could not be stored: it is not a database"):
        await store.flush()
    assert store.read(Key("b")) == "2"
    assert file.read_bytes().startswith(b"something else")
