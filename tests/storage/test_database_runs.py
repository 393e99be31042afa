"""Complete runs with their state in a database: programs, cells, sessions, command line (openprose.md 4.3, 5.10, 7.7)."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import in_a_child
from notebook.recording import Recording
from storage.backends import Backend, backends

from prose_kernel.errors import RunError, StateError
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs import run_assembly
from prose_kernel.runs.resumption import Resumption, resumption
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.ports import Key
from prose_kernel.storage.database import sqlite

PROGRAM = r"""
use "./tidy.prose" as tidy
let a = exec "echo hi"
block twice(n):
  let b = exec "echo \"in $n\""
    env: { n }
  output c = "{b}!"
let d = do twice("1")
parallel:
  p = exec "echo p"
  q = exec "echo q"
parallel for part in ["x", "y"]:
  let w = exec "echo \"$part\""
    env: { part }
let parts = [a, d]
let t = tidy(x: "v")
try:
  throw "oops"
catch as err:
  let e = err
output r = "{a}{d}{t.y}"
"""


@pytest.fixture(params=["filesystem", "sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    (tmp_path / "tidy.prose").write_text('input x: "what"\noutput y = "<{x}>"\n')
    for backend in backends(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")):
        if backend.url:
            monkeypatch.setenv("OPENPROSE_POSTGRES_URL", backend.url)
        yield backend


only = pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)


def workspace(
    backend: Backend, person: Unattended | None = None, resumption: Resumption | None = None, **options: Any
) -> Workspace:
    settings = Settings().changed(state=backend.kind, **options)  # type: ignore[arg-type]
    start = Start(backend.cwd, program_file="p.prose", notebook=False)
    return Workspace(settings, start, asker=person or Unattended(), resumption=resumption)


async def test_a_program_leaves_the_same_state_in_every_backend(backend: Backend) -> None:
    run = workspace(backend)
    try:
        await run.execute(PROGRAM, "p.prose")
        assert {name: value for name, (value, _) in run.outputs().items()} == {"r": "hiin 1!<v>"}
        await run.end()
        assert run.opened.id is not None
        lines = run.opened.trace_text.replace(run.opened.id, "RUN").splitlines()
        concurrent = [line for line in lines if re.match("[34]", line)]
        assert [line for line in lines if line not in concurrent][:-1] == [
            *("# run:RUN p.prose", "", "1→ a ✓", "2→ block:twice#1", "  2→ b ✓", "  2→ c ✓", "2→ #1 done", "2→ d ✓"),
            *("5→ parts ✓", "6→ import:tidy ✓", "6→ t ✓"),
            *("7→ try", "7→ ✗ oops", "7→ catch err", "7→ e ✓", "8→ r ✓"),
        ]
        assert sorted(concurrent) == sorted(
            ["3→ ∥start p,q", "3a→ p ✓", "3b→ q ✓", "3→ ∥done", "4→ loop:1/2", "4→ loop:2/2", "4→ w ✓", "4→ w ✓"]
        )
        assert lines[-1].startswith("---end ")
        again = backend.open(run.opened.id).store
        assert again.trace_text() == run.opened.trace_text
    finally:
        await run.close()


@only
async def test_the_rows_of_a_program(backend: Backend) -> None:
    run = workspace(backend)
    await run.execute(PROGRAM, "p.prose")
    await run.close()
    (run_id,) = (str(row[0]) for row in backend.rows_of_only_run())
    bindings = backend.rows("SELECT name, execution_id, kind, value FROM bindings ORDER BY name, execution_id", run_id)
    found = {(name, frame): (kind, value) for name, frame, kind, value in bindings}
    assert found["a", None] == ("let", "hi\n")
    assert found["b", 1] == ("let", "in 1\n") and found["c", 1][0] == "output"
    assert found["local--tidy.y", None] == ("output", "<v>")
    assert found["err", None][0] == "const"
    where = found["parts", None][1]
    assert "bindings" in where and "$ref" in where
    (imported,) = backend.rows("SELECT alias, source_url, inputs_schema, content_hash FROM imports", run_id)
    assert imported[:2] == ("tidy", "./tidy.prose") and str(imported[3]).startswith("sha256:")
    assert backend.rows("SELECT status, program_path FROM run", run_id) == [("completed", "p.prose")]
    directory = backend.home(run_id).directory
    kept = sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())
    files = ["imports/local--tidy/program.prose", "journal.jsonl", "program.prose"]
    assert kept == [*files, *(["state.db"] if not backend.url else [])]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_the_documented_queries_have_results(backend: Backend) -> None:
    run = workspace(backend)
    await run.execute(PROGRAM.replace('"echo hi"', '"echo hi; exit 3"\n  on-fail: "continue"'), "p.prose")
    lines = run.opened.trace_text.splitlines()[2:]
    await run.close()
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "state.md").read_text()
    (block,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    ((run_id, _),) = backend.rows_of_only_run()
    outputs, failures, log, codes = (backend.rows(text, run_id) for text in block.strip().split(";\n\n"))
    assert ("r", None, "hiin 1!<v>") in outputs
    assert [(row[0], row[2]) for row in failures] == [(7, "oops")]
    assert set(lines) < {row[0] for row in log}  # the program that it calls has its own lines
    assert codes == [("a", 3)]


@only
async def test_a_failed_run_is_recorded_as_failed(backend: Backend) -> None:
    run = workspace(backend)
    with pytest.raises(RunError, match="no"):
        await run.execute('let x = "1"\nthrow "no"', "p.prose")
    await run.close(RunError("no"))
    ((run_id, status),) = backend.rows_of_only_run()
    assert status == "failed"
    errors = backend.rows("SELECT error_message FROM execution WHERE error_message IS NOT NULL", run_id)
    assert errors == [("no",), ("no",)]


@only
async def test_sessions_get_rows_and_the_run_writes_their_answers(backend: Backend, tmp_path: Path) -> None:
    """5.10: a session gets no connection to the database; its reply is its answer."""
    (tmp_path / "answers.yaml").write_text('"Write": "a plan"\n"Check": "fine"\n')
    run = workspace(backend, provider="scripted", script="answers.yaml")
    requests = []
    run.add_listener(lambda event: requests.append(event.request) if type(event).__name__ == "SessionStarted" else None)
    try:
        await run.execute('let plan = session "Write"\nlet ok = session "Check"\n  context: plan', "p.prose")
        run_id = run.opened.id
    finally:
        await run.close()
    assert run_id is not None
    (item,) = requests[1].context
    assert item.row and requests[1].target is None
    if backend.url:
        assert f"run_id='{run_id}'" in item.location and "name='plan'" in item.location
    else:
        assert item.location == f".prose/runs/{run_id}/state.db (bindings table, name='plan', execution_id=NULL)"
    assert ("ok", "fine") in backend.rows("SELECT name, value FROM bindings", run_id)


# ---------------------------------------------------------------- a run that is resumed

KILLED = """
let a = exec "echo run >>a.txt; echo a"
block twice(n):
  let b = exec "echo run >>b.txt; echo b"
  output c = b
let d = do twice("1")
exec "test -e once || {{ touch once; kill -9 {process}; }}"
output r = "{{a}}{{d}}"
"""


async def test_a_killed_run_continues_and_leaves_the_same_state_as_an_unbroken_run(backend: Backend) -> None:
    """The trace and the bindings are written again, without duplicates or gaps."""

    async def killed() -> None:
        run = workspace(Backend(backend.kind, backend.cwd, backend.url))
        process.write_text(str(os.getpid()))
        await run.execute(KILLED.format(process=os.getpid()), "p.prose")

    process = backend.cwd / "process"
    assert in_a_child(backend.cwd, killed) is None
    text = KILLED.format(process=process.read_text())
    (directory,) = (backend.cwd / ".prose" / "runs").iterdir()
    broken = backend.open(directory.name).store
    assert [broken.read(Key("a")), broken.read(Key("d"))] == ["a\n", "b\n"]

    how = resumption(directory / "journal.jsonl")
    run = workspace(backend, resumption=how)
    try:
        await run.restore()
        await run.execute(text, "p.prose")
        await run.end()
        lines = run.opened.trace_text.splitlines()
    finally:
        await run.close()
    assert lines[:-1] == [
        *(f"# run:{directory.name} p.prose", "", "1→ a ✓", "2→ block:twice#1", "  2→ b ✓", "  2→ c ✓"),
        *("2→ #1 done", "2→ d ✓", "3→ ✓", "4→ r ✓"),
    ]
    assert lines[-1].startswith("---end ")
    again = backend.open(directory.name).store
    assert {
        name: again.read(Key(name, frame)) for name, frame in (("a", None), ("b", 1), ("d", None), ("r", None))
    } == {**{"a": "a\n", "b": "b\n", "d": "b\n", "r": "ab"}}
    assert [(backend.cwd / name).read_text() for name in ("a.txt", "b.txt")] == ["run\n", "run\n"]
    if backend.kind != "filesystem":
        assert backend.rows_of_only_run() == [(directory.name, "completed")]
        numbers = backend.rows("SELECT id FROM execution ORDER BY id", directory.name)
        assert numbers == [(n,) for n in range(1, len(lines) - 1)]
    assert (directory / "program.prose").read_text() == text


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_an_interrupt_counts_while_the_run_connects(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    connecting, connected = threading.Event(), threading.Event()

    def keep(*_: object) -> None:
        connecting.set()
        connected.wait()

    monkeypatch.setattr(run_assembly, "keep", keep)
    run = workspace(backend)
    try:
        running = asyncio.create_task(run.execute('exec "touch there"'))
        await asyncio.to_thread(connecting.wait)
        run.interrupt()
        with pytest.raises(asyncio.CancelledError):
            await running
    finally:
        connected.set()
        await run.close()
    assert not (backend.cwd / "there").exists()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a_gate_is_kept_in_memory_if_its_file_cannot_be_created(backend: Backend) -> None:
    (backend.cwd / "taken").touch()
    run = workspace(backend, state_dir="taken")
    try:
        gate = 'gate go:\n  prompt: "Go?"\n  on_reject: continue\n'
        await run.execute(f'{gate}output x = "1"', "p.prose")
        assert run.bindings().keys() == {"x"}
    finally:
        await run.close()


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_after_a_reset_a_resumed_run_is_over(backend: Backend) -> None:
    run = workspace(backend)
    await run.execute('let a = "1"', "p.prose")
    directory = run.opened.directory
    assert directory is not None
    await run.close()
    again = workspace(backend, resumption=resumption(directory / "journal.jsonl"))
    try:
        await again.restore()
        assert again.opened.directory == directory
        await again.reset()
        await again.execute('let b = "2"', "p.prose")
        assert again.opened.directory != directory
        assert again.bindings().keys() == {"b"}
    finally:
        await again.close()


# ---------------------------------------------------------------- notebooks


@pytest.fixture
async def cells(backend: Backend) -> AsyncIterator[Cells]:
    (backend.cwd / "prose.toml").write_text(f'state = "{backend.kind}"\n')
    made = Cells(backend.cwd, Unattended())
    yield made
    await made.close()


async def text(cells: Cells, code: str) -> str:
    output = Recording()
    await cells.run(code, output, live=False)
    assert "error" not in output.kinds, output.calls
    return "\n".join(output.texts)


async def test_cells_keep_their_state_in_the_backend_of_the_settings(cells: Cells, backend: Backend) -> None:
    await text(cells, "# only a comment")
    assert not (backend.cwd / ".prose").exists()
    await text(cells, 'let a = exec "echo hi"')
    await text(cells, "let b = 2")
    seen = await text(cells, "%state")
    kept = {
        "filesystem": "kept",
        "sqlite": "kept in SQLite (state.db), and its files",
        "postgres": "kept in PostgreSQL (",
    }
    assert seen.startswith(f"The run is {kept[backend.kind]}") and "below .prose/runs.\n\n1→ a ✓\n2→ b ✓\n" in seen
    assert "const" not in await text(cells, "%bindings")
    (program,) = backend.cwd.glob(".prose/runs/*/program.prose")
    assert program.read_text() == 'let a = exec "echo hi"\n\nlet b = 2\n'
    if backend.kind != "filesystem":
        run_id = program.parent.name
        assert backend.rows("SELECT program_source FROM run", run_id) == [(program.read_text(),)]
        assert backend.rows("SELECT value FROM bindings WHERE name = 'b'", run_id) == [("2",)]


# ---------------------------------------------------------------- errors at the start


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a50_a_network_drive_is_refused(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "network_drive", lambda directory: "nfs4")
    run = workspace(backend)
    with pytest.raises(StateError, match=r"network drive \(nfs4\)") as refused:
        await run.execute('output x = "y"', "p.prose")
    await run.close()
    assert refused.value.hint is not None and "--state-dir" in refused.value.hint
    assert not list((backend.cwd / ".prose").glob("runs/*"))


@pytest.mark.parametrize("backend", ["filesystem"], indirect=True)
@pytest.mark.parametrize(
    ("url", "reason", "hint"),
    [
        (None, "there is no URL of a PostgreSQL database", "set OPENPROSE_"),
        ("mysql://me:secret@x/y", "its URL does not begin with postgresql://", "check the URL in DATABASE_URL"),
        ("postgresql://me:secret@127.0.0.1:1/y", "connection refused", "check the URL in DATABASE_URL"),
    ],
)
async def test_a50_a_missing_server_is_an_error_and_nothing_runs(
    backend: Backend, url: str | None, reason: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENPROSE_POSTGRES_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    if url is not None:
        monkeypatch.setenv("DATABASE_URL", url)
    backend.kind = "postgres"
    run = workspace(backend)
    with pytest.raises(StateError) as refused:
        await run.execute('exec "touch ran"', "p.prose")
    await run.close()
    shown = f"{refused.value} {refused.value.hint}"
    assert refused.value.code == "E219"
    assert reason.casefold() in shown.casefold() and hint in shown and "secret" not in shown
    assert not (backend.cwd / "ran").exists() and not list((backend.cwd / ".prose").glob("runs/*"))


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_a_database_of_another_version_is_an_error(backend: Backend) -> None:
    backend.database(backend.home()).connect().close()
    backend.change("UPDATE openprose.x_meta SET value = '9' WHERE name = 'schema_version'")
    run = workspace(backend)
    with pytest.raises(StateError, match="has schema version 9; this version of prose_kernel uses"):
        await run.execute('output x = "y"', "p.prose")
    await run.close()
