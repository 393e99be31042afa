"""A40: a store that is full, away or damaged while a run works. What the journal has is never asked again."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from durability.test_bad_journals import first_journal, workspace
from postgres import PostgresServer
from storage.backends import tiny_disk
from waiting import until

from prose_kernel.cli.main import main
from prose_kernel.errors import StoreFailed
from prose_kernel.run.journal import resumption
from prose_kernel.storage.database import postgres
from prose_kernel.storage.database.writes import DatabaseWrites
from prose_kernel.storage.runs import Directories, all_runs

SLOW = """let a = exec "echo a >> ran; echo one"
try:
  let b = exec "echo b >> ran; touch ready; until test -e go; do sleep 0.02; done; echo two"
catch:
  exec "echo caught >> ran"
let c = exec "echo c >> ran; echo three"
output all = "{a} {b} {c}"
"""
FULL = """let a = exec "echo a >> {0}/ran; echo one"
try:
  let b = exec "echo b >> {0}/ran; test -e filled || head -c {2} /dev/zero > fill || true; touch filled; head -c {1} /dev/zero | tr '\\\\0' b"
catch:
  exec "echo caught >> {0}/ran"
let c = exec "echo c >> {0}/ran; head -c 30000 /dev/zero | tr '\\\\0' c"
let d = exec "echo d >> {0}/ran; echo four"
output last = d
"""


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_postgres_server: PostgresServer
) -> Iterator[PostgresServer]:
    """A server that is given up after a short while, and a project that uses it."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENPROSE_POSTGRES_URL", "OPENPROSE_POSTGRES_USER_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(DatabaseWrites.__init__.__kwdefaults__, "patience", 0.2)
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 0.5)
    Path(".prose").mkdir()
    Path(".prose/.env").write_text(f"OPENPROSE_POSTGRES_URL={own_postgres_server.new_database()}\n")
    Path("p.prose").write_text(SLOW)
    return own_postgres_server


def stopped(server: PostgresServer) -> Callable[[], None]:
    server.stop(signal.SIGQUIT)
    return server.start


def silent(server: PostgresServer) -> Callable[[], None]:
    pids = [
        int(pid) for (pid,) in _rows(server, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'prose%'")
    ]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def back() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    return back


def without_schema(server: PostgresServer) -> Callable[[], None]:
    _rows(server, "DROP SCHEMA openprose CASCADE")
    return lambda: None


def _rows(server: PostgresServer, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url("test_1"), autocommit=True) as connection:
        found = connection.execute(statement)  # type: ignore[arg-type]
        return found.fetchall() if found.description else []


@pytest.mark.parametrize("lose", [stopped, silent, without_schema])
def test_a40_a_database_lost_while_a_command_runs_repeats_nothing(
    lose: Callable[[PostgresServer], Callable[[], None]], server: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    back = list[Callable[[], None]]()

    def lost() -> None:
        until(Path("ready").exists)
        back.append(lose(server))
        Path("go").touch()

    thread = threading.Thread(target=lost)
    thread.start()
    status = main(["run", "p.prose", "--state=postgres", "--format=json"])
    thread.join()
    back[0]()
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (status, result["error"]["code"], result["error"]["line"]) == (1, "E219", None)
    assert main(["run", "--resume"]) == 0
    assert capfd.readouterr().out == "all: one two three\n"
    assert Path("ran").read_text().split() == ["a", "b", "c"]
    bound = _rows(server, "SELECT name FROM openprose.bindings ORDER BY name")
    assert [name for (name,) in bound] == ["a", "all", "b", "c"]
    assert _rows(server, "SELECT status FROM openprose.run") == [("completed",)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from tiny_disk(tmp_path, 512)


@pytest.mark.parametrize(("state", "size", "fill"), [("filesystem", 30_000, 420_000), ("sqlite", 1_000, 600_000)])
def test_a40_a_full_disk_ends_a_run_that_goes_on_when_there_is_room(
    state: str,
    size: int,
    fill: int,
    tmp_path: Path,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(small_disk)
    Path("p.prose").write_text(FULL.format(tmp_path, size, fill))
    assert main(["run", "p.prose", f"--state={state}", "--format=json"]) == 1
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["error"]["code"] == "E219"
    (run,) = all_runs([Directories(Path(".prose/runs"))])
    assert run.journal is not None
    answered = run.journal.answers()
    ran = (tmp_path / "ran").read_text().split()
    assert "caught" not in ran
    assert main(["run", "--resume"]) == 1  # there is no room yet
    assert (tmp_path / "ran").read_text().split()[:answered] == ran[:answered]
    Path("fill").unlink()
    capfd.readouterr()
    assert main(["run", "--resume"]) == 0
    assert capfd.readouterr().out == "last: four\n"
    ran = (tmp_path / "ran").read_text().split()
    assert [ran.count(name) for name in "abcd"[:answered]] == [1] * answered
    assert ran[-1] == "d"


def test_a40_a_run_killed_after_its_store_has_failed_goes_on_before_that(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its end is missing in the journal; it also is if there was no room for it on the disk."""
    monkeypatch.chdir(small_disk)
    Path("p.prose").write_text(FULL.format(tmp_path, 1_000, 600_000))
    assert main(["run", "p.prose", "--state=sqlite"]) == 1
    (run,) = all_runs([Directories(Path(".prose/runs"))])
    Path("fill").unlink()
    lines = run.path.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'"StoreFailed"' in line)
    run.path.write_bytes(b"".join(lines[: last + 1]))
    capfd.readouterr()
    assert main(["run", "--resume"]) == 0
    assert capfd.readouterr().out == "last: four\n"
    assert (tmp_path / "ran").read_text().split() == ["a", "b", "c", "d"]


async def test_a40_a_cell_that_the_store_has_ended_is_one_that_has_failed(tmp_path: Path, small_disk: Path) -> None:
    run = workspace(small_disk)
    await run.execute(f'let a = exec "echo a >> {tmp_path}/ran; echo one"')
    with pytest.raises(StoreFailed):
        await run.execute(
            f'let f = exec "head -c 600000 /dev/zero > fill || true"\nlet b = exec "echo b >> {tmp_path}/ran; echo two"'
        )
    Path(small_disk, "fill").unlink()
    await run.execute(f'let c = exec "echo {{a}} >> {tmp_path}/ran; echo three"')
    names = run.bindings().keys()
    await run.close()
    again = workspace(small_disk, resumption=resumption(first_journal(small_disk)))
    await again.restore()
    assert again.bindings().keys() == names
    await again.execute(f'let d = exec "echo d >> {tmp_path}/ran"')
    await again.close()
    assert (tmp_path / "ran").read_text().split() == ["a", "one", "d"]
