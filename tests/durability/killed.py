"""A process that runs one program and is killed at one record of its journal, or resumes the run.

It is forked from a server that has loaded everything, so a kill and a resume cost tens of milliseconds. The fake outside
world is the same in every run: scripted answers depend on the journal, never on a counter in memory; a command with
`# after: WORD` ends only after the command that prints WORD has been answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import pickle
import re
import signal
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from durability.cases import CASES, Case
from durability.power import CUTS, Disk

from prose_kernel.errors import CompileError, ProseError, RunError
from prose_kernel.language.source import Source
from prose_kernel.models.providers import scripted
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runs import languages
from prose_kernel.runs.earlier_run import earlier_run
from prose_kernel.runs.resumption import resumption
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace, preload_cell_modules
from prose_kernel.runtime import open_request
from prose_kernel.runtime.journal_records import Answered, Asked, Record
from prose_kernel.runtime.ports import CommandRequest, CommandResult
from prose_kernel.runtime.values import verbatim
from prose_kernel.storage.database.row_writer import RowWriter
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import read

RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9]{6}")
VOLATILE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")
AFTER = re.compile(r"# after: (\w+)")


@dataclass
class Job:
    """The work of a forked process. `kill` is the number of the journal write at which it is killed; `torn` writes half of it.
    With `committing` and `committed`, `kill` counts database transactions. With `power` the journal is durable, and the
    process tracks the content of the disk. With `former` it runs the earlier program whose answers the case keeps."""

    case: str
    place: str
    backend: str = "filesystem"
    url: str = ""
    kill: int = -1
    when: str = "before"
    resume: bool = False
    mark: str = ""
    power: bool = False
    under_way: str = "rerun"
    former: bool = False


# ---------------------------------------------------------------- the outside world


class JournalAnswers:
    """The answered requests of the journal, which decide how the fake world behaves."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {}
        self.answered: Counter[str] = Counter()
        self.changed = asyncio.Event()

    def see(self, record: Record) -> None:
        match record:
            case Asked():
                self.text[record.key] = record.text
            case Answered(cancelled=False) if record.key in self.text:
                self.answered[self.text[record.key]] += 1
                self.changed.set()
                self.changed = asyncio.Event()

    def count(self, holds: str) -> int:
        return sum(count for text, count in self.answered.items() if holds in text)

    async def until(self, word: str) -> None:
        while not self.count(f"say {word}"):
            await self.changed.wait()


class Person:
    """Answers by prompt. If a prompt has several answers, gives the next one that is not in the journal."""

    def __init__(self, answers: dict[str, list[str]], known_answers: JournalAnswers) -> None:
        self.available = bool(answers)
        self.answers = answers
        self.known_answers = known_answers
        self.shown: list[str] = []

    async def ask(self, prompt: str, *, password: bool = False) -> str:
        await asyncio.sleep(0)
        for key, answers in self.answers.items():
            if key in prompt:
                return answers[min(self.known_answers.count(key), len(answers) - 1)]
        raise AssertionError(f"there is no answer to {prompt!r}")

    def show(self, text: str) -> None:
        self.shown.append(text)


def patch_process(known_answers: JournalAnswers, job: Job) -> None:
    """Kill this process at a journal write, and make the fake world follow the journal."""
    append, write, run = JournalFile.append, JournalFile._write, ShellCommands.run
    written = [0]

    in_database, commit, committed = job.when.startswith("commit"), RowWriter._commit, [0]

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def committing(self: RowWriter, *batch: Any) -> None:
        number, committed[0] = committed[0], committed[0] + 1
        if number != job.kill:
            return commit(self, *batch)
        if job.when == "committed":
            commit(self, *batch)
        die()
        return None

    def appending(self: JournalFile, record: Record) -> None:
        append(self, record)
        known_answers.see(record)

    def writing(self: JournalFile, records: list[Record]) -> None:
        number, written[0] = written[0], written[0] + 1
        if number != job.kill or in_database:
            write(self, records)
        elif job.when == "torn":
            whole = os.write

            def half(descriptor: int, data: bytes) -> int:
                whole(descriptor, data[: len(data) // 2])
                die()
                return 0

            os.write = half  # type: ignore[assignment]
            write(self, records)
        else:
            if job.when == "after":
                write(self, records)
            die()

    async def running(self: ShellCommands, request: CommandRequest, *more: Any, **options: Any) -> CommandResult:
        after, current = AFTER.search(request.command), open_request.current()
        if after is not None and current is not None:
            current.on_result = None  # its process has ended, but the command counts as running until then
        result = await run(self, request, *more, **options)
        if after is not None:
            await known_answers.until(after[1])
        return result

    def next_entry(self: Any, text: str, path: str = "") -> Any:
        key = path if path in self._entries else next((k for k, matches in self._matchers if matches(text)), None)
        if key is None:
            return None
        entries = self._entries[key]
        matches = dict(self._matchers)[key]
        done = sum(count for text, count in known_answers.answered.items() if matches(text))
        return entries[min(done, len(entries) - 1)]

    JournalFile.append = appending  # type: ignore[method-assign]
    JournalFile._write = writing  # type: ignore[method-assign]
    if in_database:
        RowWriter._commit = committing  # type: ignore[method-assign]
    ShellCommands.run = running  # type: ignore[method-assign,assignment]
    scripted._Table.next = next_entry  # type: ignore[method-assign]


# ---------------------------------------------------------------- one run


def settings_of(case: Case, job: Job) -> Settings:
    scripted_by = {"provider": "scripted", "script": "script.json"} if case.script is not None else {}
    more: dict[str, Any] = {**scripted_by, **case.settings}
    if job.power:
        more["journal"] = "durable"
    more["gates_resume"] = "replay"  # a run resumed without a person equals the unbroken one
    return Settings().changed(state=job.backend, cassette_mode="off", autodetect=False, **more)  # type: ignore[arg-type]


def journal_of(place: Path) -> Path | None:
    """Return the journal of the run that is killed."""
    found = sorted([*place.glob(".prose/runs/*/journal.jsonl"), *place.glob(".vvm/runs/*/journal.jsonl")])
    before = former_of(place)
    return next((path for path in found if path.parent.name != before), None)


def former_of(place: Path) -> str:
    """Return the id of the run whose answers are kept; "" if there is none."""
    file = place / ".former"
    return file.read_text() if file.exists() else ""


async def run_case(job: Job) -> dict[str, Any]:
    case, place = CASES[job.case], Path(job.place)
    known_answers = JournalAnswers()
    path = journal_of(place) if job.resume else None
    how = None
    if path is not None:
        for _, record in read(path).records():
            known_answers.see(record)
        how = resumption(path, job.under_way)  # type: ignore[arg-type]
    patch_process(known_answers, job)
    former = former_of(place)
    earlier = next(place.glob(f".*/runs/{former}/journal.jsonl"), None) if former and how is None else None
    language = languages.LANGUAGES[case.cells[0][0]]
    start = Start(
        place,
        "notebook" if case.notebook else f"main.{case.suffix}",
        notebook=case.notebook,
        supplied=case.supplied,
        decisions=case.decisions,
        language=language,
        keep=earlier_run(earlier, language, place) if earlier is not None else None,
    )
    under_way: list[str] = []
    person = Person(case.answers, known_answers)
    workspace = Workspace(
        settings_of(case, job),
        start,
        asker=person,
        resumption=how,
        on_live=lambda asked: under_way.extend(one.key for one in asked),
    )
    error: ProseError | None = None
    problems: list[str] = []
    finished = 0
    try:
        if how is not None:
            finished = len(how.ended_texts)
            await workspace.restore()
        for one, text in ((case.cells[0][0], case.former),) if job.former else case.cells[finished:]:
            try:
                name = "cell" if case.notebook else start.program_file
                await workspace.execute(text, name, language=languages.LANGUAGES[one])
            except RunError as failed:
                if failed.code == "E222":
                    raise
                error = failed
                problems.append(f"{failed.code} {failed.message}")
        if not case.notebook:
            await workspace.end(error if isinstance(error, RunError) else None)
        outcome = {
            "outputs": {name: plain(value, job) for name, (value, _) in workspace.outputs().items()},
            "bindings": {name: plain(one.info.value, job) for name, one in workspace.bindings().items()},
            "cwd": str(workspace.cwd.relative_to(place)),
            "problems": problems if how is None or not case.notebook else None,
        }
        directory = workspace.opened.directory
        if job.former and directory is not None:
            (place / ".former").write_text(directory.name)
    finally:
        await workspace.close(error if isinstance(error, RunError) and not case.notebook else None)
    outcome |= kept_in(directory, job, place)
    outcome["under_way"] = under_way
    outcome["order"] = order_of(place)
    return outcome


def plain(value: Any, job: Job) -> str:
    text = json.dumps(verbatim(value), default=repr, sort_keys=True)
    return normal(re.sub(r" at 0x\w+", "", text), job)


def kept_in(directory: Path | None, job: Job, place: Path) -> dict[str, Any]:
    """Return the rows and files of the run, without the facts that differ between runs."""
    files: dict[str, str] = {}
    rows: dict[str, list[str]] = {}
    if directory is not None:
        for file in sorted(directory.rglob("*")):
            name = str(file.relative_to(directory))
            if not file.is_file() or file.name.startswith(("journal", "lock", "state.db")) or "/." in f"/{name}":
                continue
            files[name] = normal(file.read_text("utf-8", "replace"), job)
        rows = rows_of(directory, job)
    for memory in sorted(place.glob(".vvm/memory/**/*")) + sorted(place.glob(".prose/agents/**/*")):
        if memory.is_file() and not memory.name.startswith(".") and memory.suffix in (".md", ".json", ".jsonl"):
            files[f"memory/{memory.name}"] = normal(memory.read_text(), job)
    return {"files": files, "rows": rows}


def normal(text: str, job: Job) -> str:
    text = text.replace(job.place, "PLACE")
    return VOLATILE.sub("TIME", RUN_ID.sub("RUN", text))


def rows_of(directory: Path, job: Job) -> dict[str, list[str]]:
    if job.backend == "sqlite":
        with contextlib.closing(sqlite3.connect(directory / "state.db")) as lite:
            tables = [name for (name,) in lite.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {one: rows_in(one, lite.execute(f"SELECT * FROM {one}"), job) for one in tables if one not in OWNERS}
    if job.backend == "postgres":
        import psycopg

        with psycopg.connect(job.url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'openprose'")
            tables = [name for (name,) in found.fetchall()]
            kept = [one for one in tables if one not in OWNERS]
            rows = {one: rows_in(one, connection.execute(f"SELECT * FROM openprose.{one}"), job) for one in kept}
            if "x_journal" not in tables:
                return rows
            statement = "SELECT lines FROM openprose.x_journal WHERE run_id = %s ORDER BY start"
            copied = b"".join(lines for (lines,) in connection.execute(statement, (directory.name,)))
            file = (directory / "journal.jsonl").read_bytes()
            if not copied:  # VVM keeps nothing in a database
                return rows
            return {
                **rows,
                "x_journal": ["that of the file" if copied == file else f"{len(copied)} of {len(file)} bytes"],
            }
    return {}


UNSTEADY = {
    "id",
    "duration_ms",
    "started_at",
    "created_at",
    "updated_at",
    "ended_at",
    "completed_at",
    "timestamp",
    "at",
    "x_epoch",
    "x_expires",
    "x_process",
}


OWNERS = {"x_gates", "x_journal", "x_meta", "sqlite_sequence"}
"""Tables with facts about the process, and the count of given numbers."""


def rows_in(table: str, cursor: Any, job: Job) -> list[str]:
    names = [column[0] for column in cursor.description]
    keep = [n for n, name in enumerate(names) if name not in UNSTEADY or (table == "gates" and name == "id")]
    found = [["TIME" if isinstance(row[n], datetime) else row[n] for n in keep] for row in cursor.fetchall()]
    return sorted(normal(repr(row), job) for row in found)


# ---------------------------------------------------------------- the server


LATE_MODULES = (
    *("prose_kernel.machine.vvm.program_text", "prose_kernel.processes.sandbox_syscalls", "prose_kernel.runs.journal"),
    *(
        "prose_kernel.programs.consent",
        "prose_kernel.programs.contract_files",
        "prose_kernel.programs.openprose_imports",
    ),
    *("prose_kernel.programs.vvm_imports", "prose_kernel.storage.answer_files", "filelock", "psutil"),
)
"""Modules that runs load late, in a quarter of their processor time."""


def serve() -> None:
    """Read one job a line, fork a process for it, and print the result."""
    for language in languages.LANGUAGES.values():
        preload_cell_modules(language)
    for name in LATE_MODULES:
        importlib.import_module(name)
    _warm()
    gc.collect()
    gc.freeze()  # otherwise garbage collection in a fork would copy all memory
    for line in sys.stdin:
        print(json.dumps(run(Job(**json.loads(line)))), flush=True)


def _warm() -> None:
    """Load the modules that only a run loads."""
    import tempfile

    for language in languages.LANGUAGES.values():
        language.compile(Source("x = 1\n"))
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "script.json").write_text("{}")

        async def one() -> None:
            workspace = Workspace(
                Settings().changed(provider="scripted", script="script.json", cassette_mode="off", state="in-context"),
                Start(Path(place)),
                asker=Person({}, JournalAnswers()),
            )
            with contextlib.suppress(RunError, CompileError):
                await workspace.execute('let a = 1\nif **a**:\n  session "x"')
            await workspace.close()

        asyncio.run(one())


def run(job: Job) -> dict[str, Any]:
    answer = Path(job.place, f".answer{job.mark}")
    answer.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _child(job, answer)
    usage = os.wait4(pid, 0)
    status, cpu = usage[1], usage[2].ru_utime + usage[2].ru_stime
    ended: dict[str, Any] = {"status": status, "cpu": cpu}
    if answer.exists():
        ended |= json.loads(answer.read_text())
    return ended


def _child(job: Job, answer: Path) -> None:
    code = 1
    Path(job.place, ".pid").write_text(str(os.getpid()))
    try:
        os.chdir(job.place)
        os.environ["OPENPROSE_POSTGRES_URL"] = job.url
        os.environ["C"] = str(Path(job.place, "ran"))
        os.environ["HOME"] = str(Path(job.place, "home"))
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
        with open(Path(job.place, ".stderr"), "ab", 0) as errors:  # noqa: PTH123
            os.dup2(errors.fileno(), 2)
        disk = Disk(job.place)
        if job.power and not job.resume:
            disk.install()
        outcome = asyncio.run(run_case(job))
        if disk.cuts:
            Path(f"{job.place}.{CUTS}").write_bytes(pickle.dumps(disk.cuts))
        answer.write_text(json.dumps(outcome))
        code = 0
    except BaseException as problem:
        answer.write_text(json.dumps({"raised": f"{type(problem).__name__}: {problem}"}))
        traceback.print_exc()
    finally:
        os._exit(code)


# ---------------------------------------------------------------- the client


def prepare(case: Case, place: Path) -> None:
    """Prepare the directory in which a case runs."""
    for name in ("ran", "home"):
        (place / name).mkdir(parents=True)
    if case.script is not None:
        (place / "script.json").write_text(json.dumps(case.script))
    if not case.notebook:
        (place / f"main.{case.suffix}").write_text(case.cells[0][1])
    for name, text in case.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def counted(place: Path) -> dict[str, int]:
    """Return how often each command has run."""
    return {file.name: len(file.read_text().splitlines()) for file in sorted((place / "ran").iterdir())}


def order_of(place: Path) -> list[str]:
    """Return the order in which the program got its answers, with the answers that needed no wait."""
    path = journal_of(place)
    answers = [] if path is None else [one for _, one in read(path).records() if isinstance(one, Answered)]
    return [f"{one.key}{' at once' if one.at_once else ''}" for one in answers]


def tags_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the counter and the status of each command in a journal."""
    asked: dict[str, str] = {}
    for _, record in read(path).records():
        if isinstance(record, Asked) and record.kind == "command":
            asked[record.key] = record.text
        elif isinstance(record, Answered) and record.key in asked:
            how = "kept" if record.kept else "cancelled" if record.cancelled else "answered"
            for tag in re.findall(r">> \$C/(\w+)", asked.pop(record.key)):
                yield tag, how
    for text in asked.values():
        for tag in re.findall(r">> \$C/(\w+)", text):
            yield tag, "under way"


if __name__ == "__main__":
    serve()
