"""A run that is killed while it stands at a gate, and resumed: in files, SQLite and PostgreSQL (openprose.md 5.9)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from prose_kernel.errors import GateRejected
from prose_kernel.run_journal import resumption
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.settings import Settings
from prose_kernel.state.gates.decisions import pending_gates, resolve_gate
from prose_kernel.state.layout import runs_directory
from prose_kernel.workspace import Start, Workspace

PROGRAM = """let first = exec "echo one >>count; echo one"
gate go:
  prompt: "Publish {first}?"
  timeout: "1h"
let second = exec "echo two"
output done = "{first}{second}"
"""
COMMAND = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())"]
CLOCK = SystemClock()


class Somebody:
    def __init__(self, *answers: str) -> None:
        self.available = bool(answers)
        self.answers = list(answers)
        self.shown: list[str] = []

    async def ask(self, prompt: str, *, password: bool = False) -> str:
        return self.answers.pop(0)

    def show(self, text: str) -> None:
        self.shown.append(text)


@pytest.fixture(params=["filesystem", "sqlite", "postgres"])
def killed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    monkeypatch.chdir(tmp_path)
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    monkeypatch.setenv("OPENPROSE_POSTGRES_URL", url)
    Path("p.prose").write_text(PROGRAM)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    command = [*COMMAND, "run", "p.prose", "--gates=wait", f"--state={request.param}"]
    with subprocess.Popen(command, text=True, **pipes) as running:  # type: ignore[call-overload]
        while not (line := running.stderr.readline()).startswith("gate go of run "):
            assert line, "the run has ended"
        running.kill()
    return Killed(request.param, url)


class Killed:
    """A run whose process was killed at its gate."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        (self.directory,) = runs_directory(Path(".prose")).iterdir()

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        if self.kind == "sqlite":
            with contextlib.closing(sqlite3.connect(self.directory / "state.db")) as lite, lite:
                return lite.execute(statement).fetchall()
        with psycopg.connect(self.url, options="-c search_path=openprose") as post:
            found = post.execute(statement)  # type: ignore[arg-type]
            return found.fetchall() if found.description else []

    def events(self) -> list[str]:
        if self.kind == "filesystem":
            lines = (self.directory / "gates" / "audit.jsonl").read_text().splitlines()
            return [f"{entry['gate_id']} {entry['event_type']}" for entry in map(json.loads, lines)]
        return [
            f"{gate} {event}" for gate, event in self.sql("SELECT gate_id, event_type FROM gate_audit_log ORDER BY id")
        ]

    async def resume(self, *answers: str) -> dict[str, object]:
        person = Somebody(*answers)
        start = Start(Path.cwd(), "p.prose", notebook=False)
        again = Workspace(
            Settings(state=self.kind),  # type: ignore[arg-type]
            start,
            asker=person,
            resumption=resumption(self.directory / "journal.jsonl"),
        )
        failure: GateRejected | None = None
        try:
            await again.restore()
            await again.execute(PROGRAM, "p.prose")
            return {name: str(value) for name, (value, _) in again.outputs().items()}
        except GateRejected as error:
            failure = error
            raise
        finally:
            await again.close(failure)


async def test_the_gate_is_asked_again_and_nothing_else(killed: Killed) -> None:
    outputs = await killed.resume("approve")
    assert "one" in str(outputs["done"]) and "two" in str(outputs["done"])
    assert Path("count").read_text() == "one\n"
    assert killed.events() == ["go created", "go resumed", "go approved"]


async def test_rejected_it_opens_anew_as_the_next_record(killed: Killed) -> None:
    with pytest.raises(GateRejected):
        await killed.resume("reject")
    outputs = await killed.resume("approve")
    assert "two" in str(outputs["done"])
    assert killed.events() == ["go created", "go resumed", "go rejected", "go--2 created", "go--2 approved"]
    assert Path("count").read_text() == "one\n"


@pytest.mark.parametrize("killed", ["sqlite", "postgres"], indirect=True)
async def test_what_was_decided_in_the_database_meanwhile_counts(killed: Killed) -> None:
    killed.sql("UPDATE gates SET status = 'approved', resolved_by = 'user' WHERE status = 'pending'")
    outputs = await killed.resume()
    assert "two" in str(outputs["done"])
    assert killed.events() == ["go created", "go resumed", "go approved"]


def test_a10_until_then_it_is_gone(killed: Killed) -> None:
    from prose_kernel.state.database.postgres import PostgresDatabase

    postgres = PostgresDatabase(killed.url) if killed.url else None
    (gate,) = pending_gates(Path(".prose"), CLOCK, None, postgres)
    assert gate.how == "gone"
    with pytest.raises(Exception, match="has ended: nobody waits at gate go"):
        resolve_gate(Path(".prose"), "approve", "go", clock=CLOCK, environment={}, postgres=postgres)
