"""The files of a run whose calls return references (docs/reference/vvm.md 7)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from machine.fakes import FakeClock

from prose_kernel.access.atomic import write_whole
from prose_kernel.errors import RunError, StateError
from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.events import Place, RunEnded, RunStarted
from prose_kernel.storage.answer_files import AnswerFiles

RUN = "20260101-000000-9c0d1e"
PLACE = Place(Source("", "weekly.vvm"), Span(0, 0), 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files(tmp_path: Path, clock: FakeClock) -> AnswerFiles:
    """A run that has started."""
    files = AnswerFiles(tmp_path, RUN, clock)
    files.start("x = 1\n")
    files(RunStarted(PLACE, "reports/weekly.vvm"))
    return files


def log(files: AnswerFiles) -> str:
    return (files.directory / "state.md").read_text()


def test_nothing_is_made_before_the_run_starts(tmp_path: Path, clock: FakeClock) -> None:
    AnswerFiles(tmp_path, RUN, clock)
    assert [*tmp_path.iterdir()] == []


def test_a_run_that_has_started(files: AnswerFiles, tmp_path: Path) -> None:
    run = tmp_path / ".vvm" / "runs" / RUN
    assert sorted(path.name for path in run.iterdir()) == ["bindings", "program.vvm", "state.md"]
    assert (run / "program.vvm").read_text() == "x = 1\n"
    assert log(files) == (
        f"# VVM Run: {RUN}\n\nProgram: reports/weekly.vvm\nStarted: 2026-01-01T00:00:00Z\n"
        "Updated: 2026-01-01T00:00:00Z\nStatus: running\n\n## Binding Index\n\n"
        "| Name | Ref Path | Summary |\n|------|----------|---------|\n\n## Execution Trace\n\n"
        "- [2026-01-01T00:00:00Z] Started\n"
    )


def test_a_run_that_another_language_begins_has_files_from_its_first_text_on(tmp_path: Path, clock: FakeClock) -> None:
    files = AnswerFiles(tmp_path, RUN, clock)
    files(RunStarted(PLACE, "notebook"))
    assert [*tmp_path.iterdir()] == []
    clock.time = 60
    files.record_source("x = 1")
    assert "Started: 2026-01-01T00:01:00Z\nUpdated: 2026-01-01T00:01:00Z\nStatus: running\n" in log(files)
    untouched = AnswerFiles(tmp_path / "other", RUN, clock)
    untouched(RunStarted(PLACE, "notebook"))
    untouched(RunEnded(PLACE, None))
    assert not (tmp_path / "other").exists()


def test_r10_git_ignores_the_directory(files: AnswerFiles, tmp_path: Path) -> None:
    assert (tmp_path / ".vvm" / ".gitignore").read_text() == "*\n"


def test_r10_a_persons_own_ignore_file_stays(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / ".vvm").mkdir()
    (tmp_path / ".vvm" / ".gitignore").write_text("runs/\n")
    AnswerFiles(tmp_path, RUN, clock).start("")
    assert (tmp_path / ".vvm" / ".gitignore").read_text() == "runs/\n"


def test_the_log_of_a_run_as_the_reference_shows_it(files: AnswerFiles, clock: FakeClock) -> None:
    first, second, third = files.target(1), files.target(2), files.target(3)
    clock.time = 40
    assert files.answered("outline", "planner", first, "Five headings.") == "outline"
    clock.time = 100
    assert files.answered(None, "mailer", second, "Message sent.") == "_anon_001"
    assert files.failed("report", "writer", third, "timeout") == "report"
    clock.time = 102
    files(RunEnded(PLACE, None, 1))
    bindings = f".vvm/runs/{RUN}/bindings"
    assert log(files) == (
        f"# VVM Run: {RUN}\n\nProgram: reports/weekly.vvm\nStarted: 2026-01-01T00:00:00Z\n"
        "Updated: 2026-01-01T00:01:42Z\nStatus: completed\n\n## Binding Index\n\n"
        "| Name | Ref Path | Summary |\n|------|----------|---------|\n"
        f"| outline | {bindings}/b000001.md | Five headings. |\n"
        f"| _anon_001 | {bindings}/b000002.md | Message sent. |\n\n## Execution Trace\n\n"
        "- [2026-01-01T00:00:00Z] Started\n"
        "- [2026-01-01T00:00:40Z] outline = @planner (b000001)\n"
        "- [2026-01-01T00:01:40Z] _anon_001 = @mailer (b000002)\n"
        "- [2026-01-01T00:01:40Z] report = @writer (b000003) failed: timeout\n"
        "- [2026-01-01T00:01:42Z] Completed with 1 export\n"
    )


def test_r5_calls_without_a_bound_result_are_counted_separately(files: AnswerFiles) -> None:
    names = [files.answered(None, "a", files.target(n), "") for n in range(1, 4)]
    assert names == ["_anon_001", "_anon_002", "_anon_003"]


def test_r7_a_name_that_is_bound_again_appears_again_and_a_failure_has_no_row(files: AnswerFiles) -> None:
    for number in (1, 2):
        files.answered("draft", "writer", files.target(number), f"Draft {number}.")
    files.failed("draft", "writer", files.target(3), "spawn_failed")
    rows = [line for line in log(files).splitlines() if line.startswith("| draft")]
    assert [row.split(" | ")[2] for row in rows] == ["Draft 1. |", "Draft 2. |"]


def test_many_parallel_calls_do_not_each_write_the_log(
    files: AnswerFiles, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def write(path: Path, *texts: str) -> None:
        written.append(sum(map(len, texts)))
        write_whole(path, *texts)

    monkeypatch.setattr("prose_kernel.storage.answer_files.write_whole", write)
    for number in range(1, 5_001):
        files.answered(None, "a", files.target(number), "It is done.")
    files.flush()
    files.flush()
    assert "_anon_5000 = @a (b005000)" in log(files)
    assert sum(written) < 60 * written[-1]  # in total: proportional to the number of calls
    clock.time += 1
    files.failed(None, "a", files.target(5_001), "timeout")
    assert "(b005001) failed: timeout" in log(files)


def test_a_failed_run(files: AnswerFiles) -> None:
    files(RunEnded(PLACE, RunError("too\nbad"), 0))
    assert "Status: failed\n" in log(files)
    assert log(files).endswith("] Failed: too bad\n")


def test_cells_are_appended(tmp_path: Path, clock: FakeClock) -> None:
    files = AnswerFiles(tmp_path, RUN, clock)
    files.record_source("x = 1\n\n")
    files.record_source("y = 2")
    assert (files.directory / "program.vvm").read_text() == "x = 1\n\ny = 2\n"


def test_a_summary_cannot_break_the_table(files: AnswerFiles) -> None:
    files.answered("a", "x", files.target(1), "one | two\n| three \\| four")
    assert "| one \\| two \\| three \\\\\\| four |\n" in log(files)


def test_no_secret_is_written_into_the_log(files: AnswerFiles) -> None:
    secret = "ghp_" + "a1B2" * 9
    files.answered("a", "x", files.target(1), f"the token is {secret}")
    files(RunEnded(PLACE, RunError(f"no {secret}")))
    assert secret not in log(files)
    assert log(files).count("(withheld: it looks like a secret)") == 2


# ---------------------------------------------------------------- bindings


def test_the_location_of_a_binding(files: AnswerFiles) -> None:
    target = files.target(12)
    assert (target.name, target.location) == ("b000012", f".vvm/runs/{RUN}/bindings/b000012.md")
    assert files.readable == f".vvm/runs/{RUN}/bindings"


def test_a_binding_file_changed_by_the_session_is_read(files: AnswerFiles) -> None:
    target = files.target(1)
    assert files.read(target) is None
    (files.directory / "bindings" / "b000001.md").write_bytes(b"caf\xc3\xa9 \xff")
    assert files.read(target) == "café \N{REPLACEMENT CHARACTER}"
    files.clear(target)
    files.clear(target)
    assert files.read(target) is None


def test_a_binding_that_is_not_a_file_has_no_value(files: AnswerFiles, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    bindings = files.directory / "bindings"
    (bindings / "b000001.md").symlink_to(tmp_path / "secret")
    (bindings / "b000002.md").mkdir()
    os.mkfifo(bindings / "b000003.md")
    assert [files.read(files.target(number)) for number in (1, 2)] == [None, None]
    assert not files.read(files.target(3))
    files.write(files.target(1), "answer")
    assert (tmp_path / "secret").read_text() == "mine"
    assert files.read(files.target(1)) == "answer"


def test_a_binding_that_is_too_large_is_an_error(files: AnswerFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prose_kernel.storage.answer_files.LARGEST", 3)
    files.write(files.target(1), "1234")
    with pytest.raises(StateError, match="'b000001' holds 4 bytes; a binding may have 3"):
        files.read(files.target(1))


def test_a_directory_that_cannot_be_made_is_an_error_of_the_first_call(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / ".vvm").write_text("in the way")
    files = AnswerFiles(tmp_path, RUN, clock)
    files.start("x = 1")
    files(RunStarted(PLACE, "x.vvm"))
    with pytest.raises(StateError, match=r"the run directory '\.vvm/runs' cannot be written"):
        files.write(files.target(1), "x")
    files(RunEnded(PLACE, None))
