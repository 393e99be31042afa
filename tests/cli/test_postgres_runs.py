"""Runs in PostgreSQL: configuration, parallel runs, gates decided from other machines, and server restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forked
import psycopg
import pytest
from postgres import PostgresServer
from waiting import until

from prose_kernel.cli.main import main

PROGRAM = """input topic: "What about?"
let notes = exec "echo about {topic}"
parallel:
  api = exec "echo one"
  ui = exec "echo two"
output all = "{notes} {api} {ui}"
"""
GATED = """gate go:
  prompt: "Publish?"
  timeout: "1h"
exec "echo gone"
"""
COMMAND = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENPROSE_POSTGRES_URL", "OPENPROSE_POSTGRES_USER_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    Path("p.prose").write_text(PROGRAM)
    Path("g.prose").write_text(GATED)
    return tmp_path


def configure(url: str) -> None:
    Path(".prose").mkdir(exist_ok=True)
    Path(".prose/.env").write_text(f"OPENPROSE_POSTGRES_URL={url}\n")


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement)  # type: ignore[arg-type]
        return found.fetchall() if found.description else []


def run(*arguments: str) -> int:
    return main(["run", *arguments, "--state=postgres"])


def test_a_run_is_in_the_database(here: Path, bare_postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure(bare_postgres_url)
    assert run("p.prose", "--input", "topic=birds") == 0
    out, err = capsys.readouterr()
    assert "all: about birds one two" in out
    assert "E219" not in err
    ((run_id, status, text),) = rows(bare_postgres_url, "SELECT id, status, program_source FROM openprose.run")
    assert (status, text) == ("completed", PROGRAM)
    found = rows(bare_postgres_url, "SELECT run_id, name, kind, value FROM openprose.bindings ORDER BY name")
    assert {(name, value.strip()) for _, name, _, value in found} >= {("notes", "about birds"), ("topic", "birds")}
    assert {run for run, *_ in found} == {run_id}
    (directory,) = Path(".prose/runs").iterdir()
    assert directory.name == run_id
    assert not (directory / "bindings").exists()
    assert bare_postgres_url not in "".join(f.read_text() for f in directory.rglob("*") if f.is_file())


KILLED = """
import os, sys
from prose_kernel.cli.main import main
from prose_kernel.runtime.execution_context import ExecutionContext
ExecutionContext.ask = lambda *_, **__: os._exit(9)
main(sys.argv[1:])
"""


def test_a_run_killed_before_its_first_request_continues(here: Path, postgres_url: str) -> None:
    """Its row is in the database already; a new run would leave that row `running` forever."""
    configure(postgres_url)
    command = [sys.executable, "-c", KILLED, "run", "p.prose", "--input", "topic=birds", "--state=postgres"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 9
    ((killed, status),) = rows(postgres_url, "SELECT id, status FROM openprose.run")
    assert status == "running"
    assert main(["run", "--resume"]) == 0
    assert rows(postgres_url, "SELECT id, status FROM openprose.run") == [(killed, "completed")]


def test_several_runs_in_parallel(here: Path, postgres_url: str) -> None:
    configure(postgres_url)

    def start(number: int) -> str:
        done = forked.prose("run", "p.prose", "--input", f"topic=n{number}", "--state=postgres")
        assert done.returncode == 0, done.stderr
        return done.stdout

    with ThreadPoolExecutor(4) as threads:
        outs = list(threads.map(start, range(4)))
    assert all(f"all: about n{number} one two" in out for number, out in enumerate(outs))
    assert rows(postgres_url, "SELECT count(*), min(status), max(status) FROM openprose.run") == [
        (4, "completed", "completed")
    ]
    values = rows(postgres_url, "SELECT value FROM openprose.bindings WHERE name = 'topic' ORDER BY value")
    assert values == [(f"n{number}",) for number in range(4)]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (None, "there is no URL of a PostgreSQL database"),
        (
            "postgresql://me:geheim@127.0.0.1:1/runs",
            "PostgreSQL at 127.0.0.1:1/runs cannot be used: connection refused",
        ),
        ("mysql://me:geheim@127.0.0.1/runs", "its URL does not begin with postgresql://"),
    ],
)
def test_a50_without_a_server_nothing_runs(
    here: Path, capsys: pytest.CaptureFixture[str], url: str | None, why: str
) -> None:
    if url is not None:
        configure(url)
    assert run("p.prose", "--input", "topic=x") == 1
    err = capsys.readouterr().err
    assert why in err and "[E219]" in err and "geheim" not in err
    assert not Path(".prose/runs").exists()


def test_tables_of_another_version_are_an_error(
    here: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(postgres_url)
    assert run("p.prose", "--input", "topic=x") == 0
    rows(postgres_url, "UPDATE openprose.x_meta SET value = '99'")
    assert run("p.prose", "--input", "topic=x") in (1, 2)
    assert "has schema version 99" in capsys.readouterr().err
    assert rows(postgres_url, "SELECT count(*) FROM openprose.run") == [(1,)]


@pytest.fixture
def waiting(here: Path, postgres_url: str) -> Iterator[forked.Command]:
    """Start a run without a terminal that waits at a gate."""
    configure(postgres_url)
    with forked.Command("run", "g.prose", "--state=postgres") as running:
        line = running.stderr.readline()
        assert line.startswith("gate go of run "), line
        yield running


def test_5_10_a_non_interactive_run_waits_for_a_person_elsewhere(
    waiting: forked.Command, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The decision comes from another directory, as from another machine: with the URL, but without the run's files."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["gates"]) == 0
    assert capsys.readouterr().out == "no gate waits for a decision\n"
    monkeypatch.setenv("OPENPROSE_POSTGRES_URL", postgres_url)
    assert main(["gates"]) == 0
    lines = capsys.readouterr().out.splitlines()
    run_id = lines[0].removeprefix("go  (run ").removesuffix(")")
    assert lines[-1] == f"  prose gate approve {run_id} go"
    assert main(["gate", "approve", run_id, "go", "--comment", "looks right"]) == 0
    assert capsys.readouterr().out == f"gate go of run {run_id}: approved by user\n"
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (0, "gone\n")
    assert "gate go: approved by user (command line) (looks right)" in err
    assert main(["gate", "log", "go"]) == 0
    created, approved = capsys.readouterr().out.splitlines()
    assert "created" in created and "looks right" in approved
    assert main(["gate", "approve", "go"]) == 1
    assert "already resolved: gate go was approved by user" in capsys.readouterr().err


def test_a_service_decides_by_sql(waiting: forked.Command, postgres_url: str) -> None:
    rows(
        postgres_url,
        "UPDATE openprose.gates SET status = 'rejected', resolved_at = now(), resolved_by = 'lead' WHERE status = 'pending'",
    )
    _, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 1
    assert "gate go: rejected by lead (SQL)" in err and "[E213]" in err
    log = rows(postgres_url, "SELECT event_type, principal, metadata FROM openprose.gate_audit_log ORDER BY id")
    assert log == [("created", "system", {}), ("rejected", "lead", {"source": "sql"})]
    opener = "SELECT e.statement_text FROM openprose.gates g JOIN openprose.execution e ON e.id = g.execution_id"
    assert "gate go" in rows(postgres_url, opener)[0][0]


def test_an_interrupt_closes_the_gate(waiting: forked.Command, postgres_url: str) -> None:
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=30)
    log = rows(postgres_url, "SELECT event_type, principal, metadata FROM openprose.gate_audit_log ORDER BY id")
    assert log[1:] == [("rejected", "system", {"reason": "interrupted"})]
    assert rows(postgres_url, "SELECT status FROM openprose.gates") == [("rejected",)]
    assert rows(postgres_url, "SELECT status FROM openprose.run") == [("interrupted",)]


def test_a_server_that_cannot_be_reached_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure("postgresql://me:geheim@127.0.0.1:1/runs")
    assert main(["gates"]) == 0
    out, err = capsys.readouterr()
    assert out == "no gate waits for a decision\n"
    assert err == "Warning: gates in PostgreSQL are not shown: 127.0.0.1:1/runs: connection refused\n"


def test_tables_of_another_version_have_no_gates_to_show(
    here: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(postgres_url)
    assert run("p.prose", "--input", "topic=x") == 0
    rows(postgres_url, "UPDATE openprose.x_meta SET value = '99'")
    assert main(["gates"]) == 0
    assert "it has tables of version 99, this version of prose_kernel uses 2" in capsys.readouterr().err


# ---------------------------------------------------------------- a server that goes away


SLOW = """let first = exec "echo one"
exec "touch ready; while [ ! -e go ]; do sleep 0.02; done"
let second = exec "echo two"
output done = "{first} {second}"
"""


def test_a_database_restarted_in_mid_run_loses_no_binding(here: Path, own_postgres_server: PostgresServer) -> None:
    server = own_postgres_server
    url = server.new_database()
    configure(url)
    Path("s.prose").write_text(SLOW)
    with forked.Command("run", "s.prose", "--state=postgres") as running:
        until(lambda: Path("ready").exists() or running.poll() is not None)
        server.stop()
        server.start()
        Path("go").touch()
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, "done: one two\n"), err
    assert "E219" not in err
    found = rows(url, "SELECT name, value FROM openprose.bindings WHERE name IN ('first', 'second') ORDER BY name")
    assert [(name, value.strip()) for name, value in found] == [("first", "one"), ("second", "two")]
    assert rows(url, "SELECT status FROM openprose.run") == [("completed",)]


# ---------------------------------------------------------------- prose doctor


@pytest.mark.parametrize("tables", [None, "1", "99"])
def test_prose_doctor_reports_the_state_of_the_database(
    here: Path, bare_postgres_url: str, capsys: pytest.CaptureFixture[str], tables: str | None
) -> None:
    configure(bare_postgres_url)
    if tables:
        assert run("p.prose", "--input", "topic=x") == 0
        rows(bare_postgres_url, f"UPDATE openprose.x_meta SET value = '{tables}'")
    main(["doctor", "--no-start"])
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if " PostgreSQL: " in line]
    expected = {None: "the first run makes the tables", "1": "tables of version 1", "99": "has tables of version 99"}
    assert expected[tables] in line and line.startswith("broken" if tables == "99" else "ok")
    assert "URL from .prose/.env" in line and "prose@" not in line


def test_prose_doctor_tries_the_user_s_database(
    here: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(postgres_url)
    monkeypatch.setenv("OPENPROSE_POSTGRES_USER_URL", "postgresql://me:geheim@127.0.0.1:1/mine")
    main(["doctor", "--no-start"])
    out = capsys.readouterr().out
    note = "PostgreSQL of the user: URL from OPENPROSE_POSTGRES_USER_URL; 127.0.0.1:1/mine: connection refused"
    assert f"note   {note}" in out and "geheim" not in out


def test_a_gate_is_found_among_many_runs(here: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure(postgres_url)
    run("p.prose", "--input", "topic=x")
    rows(
        postgres_url,
        "INSERT INTO openprose.run (id, status) SELECT 'r' || n, 'completed' FROM generate_series(100, 400) n;"
        "INSERT INTO openprose.gates (run_id, id, prompt, status) SELECT id, 'go', 'Go?', 'approved' FROM openprose.run;"
        "INSERT INTO openprose.gate_audit_log (run_id, gate_id, event_type, principal, timestamp) "
        "SELECT id, 'go', 'approved', 'lead', now() FROM openprose.run;"
        "UPDATE openprose.gates SET status = 'pending', timeout_at = now() + interval '1h' WHERE run_id = 'r300'",
    )
    capsys.readouterr()
    assert main(["gates"]) == 0
    assert capsys.readouterr().out.startswith("go  (run r300)\n")
    assert main(["gate", "log", "r250", "go"]) == 0
    assert "lead" in capsys.readouterr().out
    assert main(["gate", "approve", "r250", "go"]) == 1
    assert "already resolved: gate go was approved by lead" in capsys.readouterr().err
    assert main(["gate", "approve", "go"]) == 0
    assert capsys.readouterr().out == "gate go of run r300: approved by user\n"


def test_without_the_extra_the_error_names_the_command_that_installs_it(here: Path, tmp_path: Path) -> None:
    """The process cannot import psycopg."""
    configure("postgresql://127.0.0.1:1/runs")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util, sys\nsys.modules['psycopg'] = None\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'psycopg' else real(name, *a)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])}
    command = [*COMMAND, "run", "p.prose", "--input", "topic=x", "--state=postgres"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "pip install 'prose_kernel[postgres]'" in done.stderr
