"""Kill a program before and after every record of its journal, resume it, and compare it with the unbroken run.

`python -m durability.matrix [--backends filesystem sqlite postgres] [--cases NAME ...]` prints a table (`make
durability`); the suite takes a sample. In PostgreSQL a program is also killed before and after every transaction, and
resumed without its directory.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from durability.cases import CASES, MATRIX
from durability.killed import Job, counted, former_of, journal_of, prepare, tags_of

from prose_kernel.runtime.journal_records import answers_of
from prose_kernel.storage.journal_reading import read

HERE = Path(__file__).parent
BACKENDS = ["filesystem", "sqlite", "postgres"]


class Server:
    """The process that forks the processes to be killed."""

    def __init__(self) -> None:
        self.cpu = 0.0
        tests = str(HERE.parent)
        code = f"import sys; sys.path.insert(0, {tests!r}); from durability.killed import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, job: Job) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server is gone"
        found: dict[str, Any] = json.loads(line)
        self.cpu += found["cpu"]
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@dataclass
class Row:
    """The result of one program on one backend."""

    case: str
    backend: str
    records: int = 0
    kills: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    problems: list[str] = field(default_factory=list)


SEGMENTS = ".prose/agents/*/*-[0-9][0-9][0-9].md"
SEGMENT = re.compile(r"-\d{3}\.md$")
COMPARED = ("outputs", "bindings", "cwd", "problems", "files", "rows", "raised")


class Matrix:
    """Runs programs on one backend; `url` returns an empty database if the backend needs one."""

    def __init__(self, server: Server, place: Path, backend: str = "filesystem", url: Any = lambda: "") -> None:
        self.server = server
        self.root = place
        self.backend = backend
        self.url = url
        self._count = 0

    def job(self, case: str, **more: Any) -> Job:
        """Return a job in a new directory. All directory names have the same length."""
        self._count += 1
        place = self.root / f"p{self._count:06}"
        prepare(CASES[case], place)
        job = Job(case, str(place), self.backend, self.url(), **more)
        if CASES[case].former:
            before = Job(case, job.place, self.backend, job.url, former=True)
            ended = self.server.run(before)
            assert ended["status"] == 0, (case, ended, errors_of(before))
            for file in (place / "ran").iterdir():
                file.unlink()
        return job

    def unbroken(self, case: str) -> tuple[dict[str, Any], int, Counter[tuple[str, str]]]:
        """Return the result of the unbroken run, the number of its journal writes, and the status of its commands."""
        job = self.job(case)
        ended = self.server.run(job)
        path = journal_of(Path(job.place))
        assert path is not None, (case, ended, errors_of(job))
        assert ended["status"] == 0, (case, ended, errors_of(job))
        lines = read(path).lines
        shutil.rmtree(job.place)
        return ended, lines, Counter()

    def problem_without_directory(self, case: str, kill: int, when: str, expected: dict[str, Any]) -> str | None:
        """Kill a run at one transaction, resume it without its directory, as on another machine, and return the problem.
        Only requests whose answer is not in the database may run again. Such a session adds its segment to a memory
        outside the run a second time."""
        job = self.job(case, kill=kill, when=when)
        place = Path(job.place)
        try:
            killed = self.server.run(job)
            if killed["status"] != 9:
                return "over" if killed["status"] == 0 else f"the run ended with {killed}: {errors_of(job)}"
            path = journal_of(place)
            local = Counter(tags_of(path)) if path is not None else Counter[tuple[str, str]]()
            shutil.rmtree(place / ".prose/runs")
            restored = self._restored_journal(job)
            if restored is None:
                return "over"  # killed before its first transaction
            known = Counter(tags_of(restored))
            unknown = Counter(tag for tag, how in known.elements() if how == "under way")
            unknown.update(tag for tag, _ in (local - known).elements())  # a cancelled one may have begun
            expected = with_segments(expected, len(list(place.glob(SEGMENTS))), sessions_in(restored))
            ended = self.server.run(Job(case, job.place, self.backend, job.url, resume=True))
            if ended["status"] != 0:
                return f"the resumed run ended with {ended}: {errors_of(job)[-900:]}"
            return self.compare(case, expected, ended) or self.compare_counts(place, unknown, 0)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _restored_journal(self, job: Job) -> Path | None:
        """Restore the journal from the database in a new directory. Return None if the database has no run."""
        from prose_kernel.storage.database.kept_runs import PostgresRuns
        from prose_kernel.storage.database.postgres import PostgresDatabase

        database = PostgresDatabase(job.url)
        with contextlib.closing(database.connect()) as connection:
            connection.execute("UPDATE openprose.run SET x_expires = clock_timestamp() - interval '1 s'")
            runs = [str(run) for (run,) in connection.query("SELECT DISTINCT run_id FROM openprose.x_journal")]
        found = [run for run in runs if run != former_of(Path(job.place))]
        if not found:
            return None
        PostgresRuns(database, Path(job.place, ".prose/runs")).fetch_journal(found[0], print)
        return journal_of(Path(job.place))

    def row_without_directory(self, case: str, points: int | None = None) -> Row:
        """Kill at all transactions, or at a random sample of `points`."""
        began, before = time.monotonic(), self.server.cpu
        expected, lines, _ = self.unbroken(case)
        row = Row(f"{case} (elsewhere)", self.backend, lines)
        drawn = random.Random(case)
        chosen = [(kill, when) for kill in range(lines) for when in ("committing", "committed")]
        for kill, when in chosen if points is None else drawn.sample(chosen[:8], points):
            problem = self.problem_without_directory(case, kill, when, expected)
            if problem == "over":
                continue
            row.kills += 1
            if problem is not None:
                row.problems.append(f"{case}, {when} transaction {kill}: {problem}")
        row.seconds, row.cpu = time.monotonic() - began, self.server.cpu - before
        return row

    def problem_of_kill(
        self, case: str, kill: int, when: str, expected: dict[str, Any], *, again: int = 0
    ) -> str | None:
        """Kill a run at one write, resume it (killing the resumed run `again` times), and return the problem."""
        job = self.job(case, kill=kill, when=when)
        place = Path(job.place)
        killed = self.server.run(job)
        try:
            if killed["status"] == 0:
                return "over"
            if killed["status"] != 9:
                return f"the run ended with {killed}: {errors_of(job)}"
            drawn = random.Random(f"{case} {kill} {when}")
            for _ in range(again):
                self.server.run(Job(case, job.place, self.backend, job.url, drawn.randrange(4), when, resume=True))
            path = journal_of(place)
            if path is not None and not path.read_bytes().endswith(b"\n") and b"\n" not in path.read_bytes():
                shutil.rmtree(path.parent)  # killed before the first request: there is nothing to resume
                path = None
            under_way = Counter(tag for tag, how in tags_of(path) if how == "under way") if path else Counter()
            ended = self.server.run(Job(case, job.place, self.backend, job.url, resume=True))
            if ended["status"] != 0:
                return f"the resumed run ended with {ended}: {errors_of(job)[-900:]}"
            return self.compare(case, expected, ended) or self.compare_counts(place, under_way, again)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def compare(self, case: str, expected: dict[str, Any], actual: dict[str, Any]) -> str | None:
        if case.startswith("gate"):
            expected, actual = decided_once(expected, actual)
        if expected["order"] != actual["order"]:  # answers came at other times: log lines may be in another order
            expected, actual = unordered(expected), unordered(actual)
        for part in COMPARED:
            if expected.get(part) != actual.get(part) and not (part == "problems" and actual.get(part) is None):
                return f"{part} differ: {difference(expected.get(part), actual.get(part))}"
        return None

    def compare_counts(self, place: Path, under_way: Counter[str], again: int) -> str | None:
        path = journal_of(place)
        assert path is not None
        ended = Counter(tags_of(path))
        ran = counted(place)
        for tag in {tag for tag, _ in ended} | set(ran):
            least = ended[tag, "answered"]
            most = least + ended[tag, "cancelled"] + under_way[tag] + again
            if not least <= ran.get(tag, 0) <= most:
                return f"{tag} ran {ran.get(tag, 0)} times, not {least} to {most}"
        return None

    def row(self, case: str, points: int | None = None) -> Row:
        """Kill at all points, or at a random sample of `points`."""
        began, before = time.monotonic(), self.server.cpu
        expected, lines, _ = self.unbroken(case)
        row = Row(case, self.backend, lines)
        writes = lines - 2  # the head, the first text and the first request are written together
        chosen = [(kill, when) for kill in range(writes) for when in ("before", "after")]
        chosen += [(kill, "torn") for kill in range(0, writes, 3)]
        if points is not None:
            random.Random(case).shuffle(chosen)
        for kill, when in chosen:
            if row.kills == points:
                break
            problem = self.problem_of_kill(case, kill, when, expected)
            if problem == "over":
                continue
            row.kills += 1
            if problem is not None:
                row.problems.append(f"{case}, {when} write {kill}: {problem}")
        row.seconds, row.cpu = time.monotonic() - began, self.server.cpu - before
        return row


def errors_of(job: Job) -> str:
    file = Path(job.place, ".stderr")
    return file.read_text()[-3000:] if file.exists() else ""


def sessions_in(path: Path) -> int:
    """Return how many sessions of a journal have an answer."""
    return sum(1 for _ in answers_of(read(path).records(), "session"))


def with_segments(outcome: dict[str, Any], made: int, known: int) -> dict[str, Any]:
    """Return an outcome with the segments that a memory outside the run has after a loss: `made` segments from before, and
    one for each session after the first `known` sessions. The database has no rows of the lost sessions."""
    names = sorted(name for name in outcome["files"] if SEGMENT.search(name))
    if made <= known or not names:
        return outcome
    whole = [outcome["files"][name] for name in names]
    files = {name: text for name, text in outcome["files"].items() if name not in names}
    for number, text in enumerate([*whole[:made], *whole[known:]], 1):
        name = SEGMENT.sub(f"-{number:03}.md", names[0])
        files[name] = re.sub(r"\A# Segment \d+", f"# Segment {number:03}", text)
    rows = []
    for row in outcome["rows"]["agent_segments"]:
        _, agent, number, *rest = ast.literal_eval(row)
        moved = number if number <= known else number - known + made
        text = re.sub(r"# Segment \d+", f"# Segment {moved:03}", repr(rest))
        rows.append(repr([None, agent, moved, *ast.literal_eval(text)]))
    return {**outcome, "files": files, "rows": {**outcome["rows"], "agent_segments": sorted(rows)}}


def unordered(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the outcome with the lines of its logs sorted."""
    logs = ("state.md", "audit.jsonl", "log.md")
    files = {n: sorted(t.split("\n")) if n.endswith(logs) else t for n, t in outcome["files"].items()}
    return {**outcome, "files": files}


def decided_once(expected: dict[str, Any], actual: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both outcomes without the remarks that a gate or an approval was taken over. A run killed between a decision
    and its record decides again; then all gate records are left out."""

    def opened(outcome: dict[str, Any]) -> int:
        return len(re.findall(r"\bcreated\b", json.dumps([outcome["files"], outcome["rows"]])))

    again = opened(actual) > opened(expected)

    def reduced(outcome: dict[str, Any]) -> dict[str, Any]:
        files = {n: text for n, text in outcome["files"].items() if not (again and n.startswith("gates/"))}
        rows = {table: rows for table, rows in outcome["rows"].items() if not (again and table.startswith("gate"))}
        lines = {n: [one for one in text.split("\n") if '"resumed"' not in one] for n, text in files.items()}
        return {
            **outcome,
            "files": {n: "\n".join(kept) for n, kept in lines.items() if any(kept)},
            "rows": {table: [row for row in kept if "resumed" not in row] for table, kept in rows.items()},
        }

    return reduced(expected), reduced(actual)


def difference(expected: Any, actual: Any) -> str:
    """Return the first difference between two outcomes."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *actual]:
            if expected.get(key) != actual.get(key):
                return f"{key}: {difference(expected.get(key), actual.get(key))}"
    if isinstance(expected, str) and isinstance(actual, str) and "\n" in expected + actual:
        lines = list(zip(expected.split("\n") + [""] * 99, actual.split("\n") + [""] * 99, strict=False))
        return difference(*next(((a, b) for a, b in lines if a != b), (expected, actual)))
    if isinstance(expected, list) and isinstance(actual, list):
        return f"missing {[one for one in expected if one not in actual][:2]!r}, new {[one for one in actual if one not in expected][:2]!r}"
    return f"{expected!r}, now {actual!r}"[:600]


@contextmanager
def matrix(backend: str, server: Server) -> Iterator[Matrix]:
    with tempfile.TemporaryDirectory(prefix="prose-kills-") as place:
        if backend != "postgres":
            yield Matrix(server, Path(place), backend)
            return
        from postgres import PostgresServer, programs

        found = programs()
        assert found is not None, "no PostgreSQL is installed (`make tools`)"
        database = PostgresServer(found)
        try:
            yield Matrix(server, Path(place), backend, database.empty_database)
        finally:
            database.remove()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    options.add_argument("--cases", nargs="+", choices=list(MATRIX), default=list(MATRIX))
    options.add_argument("--points", type=int, help="kill so many times at drawn points, not at all of them")
    chosen = options.parse_args()
    problems: list[str] = []
    print(f"{'program':<20} {'backend':<11} {'records':>7} {'kills':>6} {'seconds':>8} {'CPU':>6}")
    for backend in chosen.backends:
        server = Server()
        with matrix(backend, server) as runs:
            rows = []
            for case in chosen.cases:
                for kills in (runs.row, runs.row_without_directory) if backend == "postgres" else (runs.row,):
                    try:
                        row = kills(case, chosen.points)
                    except AssertionError as problem:
                        row = Row(case, backend, problems=[str(problem)])
                    rows.append(row)
                    note = f"  {len(row.problems)} PROBLEMS" if row.problems else ""
                    figures = f"{row.records:>7} {row.kills:>6} {row.seconds:>8.1f} {row.cpu:>6.1f}"
                    print(f"{row.case:<20} {backend:<11} {figures}{note}", flush=True)
                    problems += row.problems
        server.close()
        total = sum(row.kills for row in rows), sum(row.records for row in rows), sum(row.seconds for row in rows)
        print(f"{f'{len(rows)} programs':<20} {backend:<11} {total[1]:>7} {total[0]:>6} {total[2]:>8.1f}", flush=True)
    for problem in problems:
        print(f"\n{problem[:1500]}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
