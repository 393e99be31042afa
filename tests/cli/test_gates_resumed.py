"""Runs that are killed while waiting at a gate, and resumed, in files, SQLite and PostgreSQL (openprose.md 5.9)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import forked
import psycopg
import pytest
from msgspec import structs
from pexpect import EOF
from waiting import until

from prose_kernel.cli.main import main
from prose_kernel.errors import GateRejected, ResumeMismatch, RunError
from prose_kernel.runs import earlier_approvals
from prose_kernel.runs.resumption import resumption
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.journal_records import Answered, Asked, Record
from prose_kernel.runtime.ports import GateDecision
from prose_kernel.storage.gates.records import Approval
from prose_kernel.storage.gates.second_process import Decidable, Decider, pending_gates, resolve_gate
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import read
from prose_kernel.storage.run_paths import runs_directory

PROGRAM = """let first = exec "echo one >>count; echo one"
gate go:
  prompt: "Publish {first}?"
  timeout: "1h"
let second = exec "echo two"
output done = "{first}{second}"
"""
CLOCK = SystemClock()


class GatePerson:
    def __init__(self, *answers: str, when_asked: Callable[[], None] = lambda: None) -> None:
        self.available = bool(answers)
        self.when_asked = when_asked
        self.answers = list(answers)
        self.shown: list[str] = []

    async def ask(self, prompt: str, *, password: bool = False) -> str:
        self.shown.append(prompt)
        self.when_asked()
        return self.answers.pop(0)

    def show(self, text: str) -> None:
        self.shown.append(text)


@pytest.fixture(params=["filesystem", "sqlite", "postgres"])
def killed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    monkeypatch.chdir(tmp_path)
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    monkeypatch.setenv("OPENPROSE_POSTGRES_URL", url)
    Path("p.prose").write_text(PROGRAM)
    with forked.running("run", "p.prose", "--gates=wait", f"--state={request.param}") as run:
        run.wait_for_error_text("gate go of run ")
    return Killed(request.param, url)


class Killed:
    """A run whose process was killed at its gate."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self.when_asked: Callable[[], None] = lambda: None
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

    def details(self) -> list[dict[str, object]]:
        """Return the metadata of the approvals in the gate log."""
        if self.kind == "filesystem":
            lines = (self.directory / "gates" / "audit.jsonl").read_text().splitlines()
            return [entry["metadata"] for entry in map(json.loads, lines) if entry["event_type"] == "approved"]
        rows = self.sql("SELECT metadata FROM gate_audit_log WHERE event_type = 'approved' ORDER BY id")
        return [json.loads(data) if isinstance(data, str) else data for (data,) in rows]

    async def resume(self, *answers: str, yes: bool = False, **settings: Any) -> dict[str, object]:
        person = self.person = GatePerson(*answers, when_asked=self.when_asked)
        start = Start(Path.cwd(), "p.prose", notebook=False, decisions={"go": True} if yes else {})
        again = Workspace(
            Settings().changed(state=self.kind, **settings),  # type: ignore[arg-type]
            start,
            asker=person,
            resumption=resumption(self.directory / "journal.jsonl"),
        )
        failure: RunError | None = None
        try:
            await again.restore()
            await again.execute(PROGRAM, "p.prose")
            return {name: str(value) for name, (value, _) in again.outputs().items()}
        except RunError as error:
            failure = error
            raise
        finally:
            await again.close(failure)


async def test_the_gate_is_asked_again_and_nothing_else(killed: Killed) -> None:
    outputs = await killed.resume("approve")
    assert "one" in str(outputs["done"]) and "two" in str(outputs["done"])
    assert Path("count").read_text() == "one\n"
    assert killed.events() == ["go created", "go resumed", "go approved"]


async def test_a_gate_rejected_while_resuming_opens_again_as_the_next_record(killed: Killed) -> None:
    with pytest.raises(GateRejected):
        await killed.resume("reject")
    outputs = await killed.resume("approve")
    assert "two" in str(outputs["done"])
    assert killed.events() == ["go created", "go resumed", "go rejected", "go--2 created", "go--2 approved"]
    assert Path("count").read_text() == "one\n"


@pytest.mark.parametrize("killed", ["sqlite", "postgres"], indirect=True)
async def test_a33_an_approval_in_the_database_meanwhile_is_asked_again(killed: Killed) -> None:
    killed.sql("UPDATE gates SET status = 'approved', resolved_by = 'user' WHERE status = 'pending'")
    with pytest.raises(GateRejected):
        await killed.resume("reject", gates="ask")
    killed.sql("UPDATE gates SET status = 'approved', resolved_by = 'user'")
    with pytest.raises(GateRejected):
        await killed.resume("reject")
    assert killed.events() == ["go created", *(f"go--{n} {event}" for n in "23" for event in ("created", "rejected"))]
    killed.sql("UPDATE gates SET status = 'approved', resolved_by = 'user'")
    await killed.resume(gates_resume="replay")


@pytest.mark.parametrize("killed", ["sqlite", "postgres"], indirect=True)
async def test_an_approval_in_the_database_meanwhile_counts_with_replay(killed: Killed) -> None:
    killed.sql("UPDATE gates SET status = 'approved', resolved_by = 'user' WHERE status = 'pending'")
    outputs = await killed.resume(gates_resume="replay")
    assert "two" in str(outputs["done"])
    assert killed.events() == ["go created", "go resumed", "go approved"]


@pytest.mark.parametrize("killed", ["sqlite", "postgres"], indirect=True)
async def test_a_rejection_in_the_database_meanwhile_counts(killed: Killed) -> None:
    killed.sql("UPDATE gates SET status = 'rejected', resolved_by = 'user' WHERE status = 'pending'")
    with pytest.raises(GateRejected):
        await killed.resume("approve")
    assert killed.events() == ["go created", "go resumed", "go rejected"]


# ---------------------------------------------------------------- A33: resuming never approves


def forge(run: Path, change: Callable[[list[Record]], None]) -> None:
    """Change the records of a journal as a malicious command of the run could, with valid checksums."""
    path = run / "journal.jsonl"
    records = [record for _, record in read(path).records()]
    change(records)
    file = JournalFile(forged := path.with_name("forged.jsonl"))
    file.copy(records)
    file.close()
    path.write_bytes(forged.read_bytes())  # in place: the file identifies the process that owns the run (A52)
    forged.unlink()


def approve(records: list[Record]) -> None:
    """Append an approval of the waiting gate."""
    (gate,) = (record for record in records if isinstance(record, Asked) and record.kind == "gate")
    records.append(Answered(gate.key, codec.encode(GateDecision("approved", "user", source="terminal")), t=1))


def head(**changes: Any) -> Callable[[list[Record]], None]:
    def change(records: list[Record]) -> None:
        records[0] = structs.replace(records[0], **changes)
        given = {"supplied": changes["supplied"]} if "supplied" in changes else {}
        records[1] = structs.replace(records[1], **given)

    return change


async def test_a33_a_forged_approval_passes_no_gate(killed: Killed) -> None:
    forge(killed.directory, approve)
    for mode in ("auto", "ask", "wait", "deny"):
        with pytest.raises(GateRejected) as unanswered:
            await killed.resume(gates=mode)
        assert unanswered.value.no_answer and "gate go" in unanswered.value.message
    with pytest.raises(GateRejected) as rejected:
        await killed.resume("reject")
    assert not rejected.value.no_answer
    asked = "".join(killed.person.shown)
    assert 'gate go "Publish one?": approved by user, 1970-01-01 00:00:00 UTC' in asked
    assert killed.events() == ["go created"]
    outputs = await killed.resume("approve")
    assert "two" in str(outputs["done"]) and Path("count").read_text() == "one\n"
    assert killed.events() == ["go created", "go approved"]
    assert killed.details() == [{"source": "terminal", "resumed": True, "first_approved": "1970-01-01T00:00:00.001Z"}]


@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
async def test_a33_an_option_or_the_setting_confirms(killed: Killed) -> None:
    forge(killed.directory, approve)
    shutil.copytree(killed.directory, saved := Path("saved"), ignore=shutil.ignore_patterns("*.sock"))
    assert "two" in str((await killed.resume(yes=True))["done"])
    assert [one["source"] for one in killed.details()] == ["option"]
    shutil.rmtree(killed.directory)
    saved.rename(killed.directory)
    earlier_approvals._APPROVED.clear()  # another process
    assert "two" in str((await killed.resume(gates_resume="replay"))["done"])
    assert [one["source"] for one in killed.details()] == ["journal"]
    assert "gate go" in "".join(killed.person.shown)


@pytest.mark.parametrize(
    "change",
    [
        head(decisions={"go": True}),
        head(supplied={"go": "approve"}),
        head(settings={"gates_resume": "replay", "gates": "wait"}, decisions={"go": True}),
    ],
)
@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
def test_a33_a_forged_beginning_approves_nothing(
    killed: Killed, change: Callable[[list[Record]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    forge(killed.directory, change)
    assert main(["run", "--resume"]) == 3, capsys.readouterr().err
    assert Path("count").read_text() == "one\n"
    assert main(["run", "--resume", "--yes", "go"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("option", ["--yes", "--no"])
def test_a33_a_decision_names_its_gate(
    option: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.prose").write_text("output a = 1\n")
    assert main(["run", "p.prose", option, name]) == 2
    assert "the name of a gate is empty" in capsys.readouterr().err


def nameless(records: list[Record]) -> None:
    approve(records)
    (at,) = (at for at, record in enumerate(records) if isinstance(record, Asked) and record.kind == "gate")
    records[at] = structs.replace(records[at], gate="", record="")


@pytest.mark.parametrize(("change", "line"), [(nameless, 6), (head(decisions={"": True}), 1)])
@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
def test_a33_an_approval_of_no_gate_is_a_damaged_record(
    killed: Killed,
    change: Callable[[list[Record]], None],
    line: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forge(killed.directory, change)
    run = killed.directory.name
    for setting in ("ask", "replay"):
        monkeypatch.setenv("PROSE_GATES_RESUME", setting)
        for option in ([], ["--yes", "go"]):
            assert main(["run", "--resume", *option]) == 2
            assert f"line {line} of the journal of run {run} is damaged" in capsys.readouterr().err
    assert Path("count").read_text() == "one\n"


@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
def test_a33_a_forged_directory_lets_no_settings_be_read_there(
    killed: Killed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = Path.cwd(), Path.cwd() / "other"
    other.mkdir()
    (other / "prose.toml").write_text("nonsense = 1\n")
    shutil.copytree(killed.directory, saved := Path("saved"), ignore=shutil.ignore_patterns("*.sock"))
    for forged in ({"directory": str(other)}, {"program": "/tmp/other/p.ipynb"}, {"program": f"{here.parent}/p.prose"}):
        forge(killed.directory, head(**forged))
        assert main(["run", "--resume", killed.directory.name]) == 2
        printed = capsys.readouterr().err
        assert ("was begun in another directory" in printed) is ("directory" in forged)
        assert ("is outside of its directory" in printed) is ("program" in forged)
        assert "nonsense" not in printed
        shutil.rmtree(killed.directory)
        shutil.copytree(saved, killed.directory)
    monkeypatch.chdir(other)
    (other / "prose.toml").unlink()
    assert main(["run", "--resume", str(here / killed.directory), "--yes", "go"]) == 2
    assert f"cd {here} && prose run --resume {killed.directory.name}" in capsys.readouterr().err
    assert main(["run", "../p.prose", "--resume", "--yes", "go"]) == 0, capsys.readouterr().err
    assert (here / "count").read_text() == "one\n"


@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
def test_a33_decision_files_need_permission_again(killed: Killed, capsys: pytest.CaptureFixture[str]) -> None:
    """Decision files count only if the person who resumes the run permits them, whatever the journal says."""
    forge(killed.directory, head(gate_files=True))
    with forked.running("run", "--resume", "--gates=wait") as run:
        run.wait_for_error_text("gate go of run ")
        now = datetime.now(UTC).isoformat()
        decision = {"gate_id": "go", "decision": "approved", "principal": "user", "timestamp": now, "comment": ""}
        (killed.directory / "gates" / "go.resolved.json").write_text(json.dumps(decision))
        until(lambda: "go ignored" in killed.events())
        assert run.process.exitcode is None


@pytest.mark.parametrize("how", ["--gates=ask", "--gates=wait", "--gates=auto"])
@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
def test_a33_the_command_line_asks_once_for_all_approvals(
    killed: Killed, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(killed.directory, approve)
    assert main(["run", "--resume", how]) == 3
    assert "--yes go" in capsys.readouterr().err
    again = forked.Terminal("run", "--resume", how, cwd=Path.cwd())
    again.expect("of an earlier process")
    again.expect("gate go .Publish one.*approved by user")
    again.sendline("yes")
    again.expect("onetwo|two")
    again.expect(EOF)
    assert [one["source"] for one in killed.details()] == ["terminal"]


@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
async def test_a33_an_approval_that_was_not_listed_stops_the_replay(killed: Killed) -> None:
    """The journal is read at the start and again during the replay: a command may change it in between."""
    forge(killed.directory, approve)
    journal = killed.directory / "journal.jsonl"

    def change() -> None:
        with journal.open("r+b") as file:  # in place, with the same size
            data = file.read()
            file.seek(0)
            file.write(data.replace(b'"by":"user"', b'"by":"boss"'))

    killed.when_asked = change
    with pytest.raises(ResumeMismatch, match="no person has confirmed"):
        await killed.resume("approve")
    assert Path("count").read_text() == "one\n"


@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
def test_a33_a_complete_run_prints_its_outputs_and_asks_nothing(
    killed: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--resume", "--yes", "go"]) == 0
    earlier_approvals._APPROVED.clear()  # another process
    capsys.readouterr()
    assert main(["run", "--resume", killed.directory.name]) == 0
    assert "two" in capsys.readouterr().out


def test_a10_a_gate_of_a_killed_run_is_listed_as_ended(killed: Killed) -> None:
    from prose_kernel.storage.database.postgres import PostgresDatabase

    postgres = PostgresDatabase(killed.url) if killed.url else None
    (gate,) = pending_gates(Path(".prose"), CLOCK, None, postgres)
    assert gate.how is Decidable.ENDED
    with pytest.raises(Exception, match="has ended: no run waits at gate go"):
        resolve_gate(Path(".prose"), "approve", "go", clock=CLOCK, by=Decider({}), postgres=postgres)


@pytest.mark.parametrize("killed", ["filesystem"], indirect=True)
def test_a33_a_run_that_is_resumed_by_a_run_is_not_approved(
    killed: Killed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command may kill its run and resume it, even at a pseudo-terminal."""
    forge(killed.directory, approve)
    again = forked.Terminal("run", "--resume", cwd=Path.cwd(), env={**os.environ, "PROSE_JOB": "1"})
    again.expect("only when its earlier approvals are confirmed")
    again.expect(EOF)
    monkeypatch.setenv("PROSE_JOB", "1")  # only now: the fork server would inherit the mark, with all its children
    assert main(["run", "--resume", "--yes", "go"]) == 2
    assert "called from inside a run" in capsys.readouterr().err


async def test_a39_the_suggested_command_escapes_hidden_characters_in_a_name() -> None:
    decision = GateDecision("approved", "user")
    given = [Approval(name, name, "", decision, 0) for name in ("go", "g\u200bo now")]
    with pytest.raises(GateRejected) as refused:
        await earlier_approvals.EarlierApprovals("r", given=given).confirm(GatePerson(), {}, None, believe=False)
    assert refused.value.hint is not None and "--yes go --yes 'g\\u200bo now'" in refused.value.hint
