"""`prose report`: the content of the page, for runs of every kind."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs
from report.pages import checked
from sample_files import png

from prose_kernel.cli.main import main
from prose_kernel.runs import settings
from prose_kernel.runs.replay import times_of
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.journal_codec import encode
from prose_kernel.runtime.journal_records import (
    NOTHING,
    Answered,
    Asked,
    Completed,
    Ended,
    Finished,
    Head,
    Record,
    Text,
)
from prose_kernel.runtime.ports import FileWrite, SessionResult, ToolUse, Usage
from prose_kernel.storage.journal_file import JournalFile
from prose_kernel.storage.journal_reading import NAME, JournalRead, read
from prose_kernel.storage.runs import Directories, all_runs, places
from prose_kernel.views import report as report_module
from prose_kernel.views import report_entries
from prose_kernel.views.report import run_report

SCRIPT = """\
sessions:
  "Fail": {error: "the server is down", retryable: false}
  "*": [{error: overloaded}, {reply: "# Notes\\n\\n- **first**\\n- <script>alert(1)</script> [go](javascript:alert(1))"}]
judge:
  "*": yes
"""
PROGRAM = """\
agent writer:
  model: sonnet
  prompt: "You write release notes"
input topic: "About what?"
let log = exec "printf '\\\\033[32mgreen\\\\033[0m one'; echo warned >&2"
parallel:
  tests = exec "echo 12 passed"
  lint = exec "echo clean"
loop until **{tests} are enough** (max: 3):
  exec "echo again"
for x in [1, 2]:
  exec "echo item $X"
    env: { X: x }
block twice(what):
  exec "cat"
    stdin: what
do twice("said {topic}")
let notes = session: writer
  prompt: "Write about {topic}"
  context: log
  retry: 2
gate publish:
  prompt: "Publish it?"
try:
  exec "echo lost >&2; exit 3"
catch as problem:
  let caught = "it failed"
if **{notes} mention a bug**:
  output result = "{topic}: {notes}"
"""
VVM = """\
agent critic(model="sonnet", prompt="You judge")
def ask(item):
  return @critic `Judge {item}`(item)
found = pmap(["one", "two"], ask)
export found
if ?`most of them are good`(found):
  later = 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCRIPT)
    Path("p.prose").write_text(PROGRAM)
    Path("v.vvm").write_text(VVM)
    return tmp_path


def run(name: str, *options: str, status: int = 0) -> None:
    assert main(["run", name, "--provider", "scripted", "--script", "s.yaml", *options]) == status


def report(*arguments: str) -> str:
    assert main(["report", *arguments, "--output", "r.html"]) == 0
    source = Path("r.html").read_text()
    Path("r.html").unlink()
    return source


FULL = ("--input", "topic=birds", "--yes", "publish")


def test_a_report_shows_all_events_of_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("p.prose", *FULL)
    source = report()
    page = checked(source)
    titles = [
        "Graph",
        "Timeline",
        "Where the time went",
        "What happened",
        "Who decided",
        "Bindings",
        "Program",
        "Usage",
    ]
    assert re.findall(r"<h2 id=\"\w+\">([^<]+)", source) == [*titles, "About this run"]
    for part in (
        "p.prose done",
        "7 commands 1 session 2 judgements 1 gate 1 failed",
        "$ echo 12 passed → tests",
        "stdout green one stderr warned",
        "exit code 3 stderr lost",
        "0 passes, left: **12 passed are enough** 9 condition 9 judgement 12 passed are enough yes",
        "2 passes 11 pass 1 12 $ echo item $X",
        "environment X=1",
        "standard input said birds",
        "twice(said birds)",
        "attempt 1 failed: overloaded",
        "prompt Write about birds context log system prompt You write release notes answer Notes first",
        "gate Publish it? approved by user",
        "problem: exec failed with exit code 3",
        "takes branch 1",
        "<script>alert(1)</script> [go](javascript:alert(1))",
        "gate Publish it? approved user",
        "scripted 1 2",
        "input topic birds gate publish approved beforehand",
    ):
        assert part in page.text, part
    assert '<span class="f2">green</span> one' in source
    assert "ms" in page.text
    assert page.tags["svg"] == 2


def test_two_reports_of_the_same_answers_differ_only_in_volatile_figures(here: Path) -> None:
    pages = []
    for _ in range(2):
        run("p.prose", *FULL)
        pages.append(report())
    assert pages[0] != pages[1]
    one, other = (checked(page).without_volatile_parts for page in pages)
    assert one == other
    assert not re.search(r"\d m?s\b|\d{8}-\d{6}", " ".join(one))


@pytest.mark.parametrize("state", ["filesystem", "sqlite"])
def test_a_report_is_complete_for_each_kind_of_state(here: Path, state: str) -> None:
    run("p.prose", *FULL, "--state", state)
    assert f"setting state {state}" in checked(report()).text
    assert "This is not all of the run" not in report()


def test_a_run_in_postgresql_has_a_report(here: Path, postgres_url: str) -> None:
    Path(".prose").mkdir()
    Path(".prose/.env").write_text(f"OPENPROSE_POSTGRES_URL={postgres_url}\n")
    run("p.prose", *FULL, "--state", "postgres")
    page = checked(report())
    assert "7 commands 1 session" in page.text
    assert postgres_url not in page.text


def test_a_vvm_run_has_a_report(here: Path) -> None:
    Path("prose.toml").write_text('[vvm]\nstate = "filesystem"\n')
    run("v.vvm")
    page = checked(report())
    for part in (
        "v.vvm done VVM",
        "pmap",
        "critic Judge one",
        "input one",
        "about",
        "most of them are good yes",
        "ask(two)",
    ):
        assert part in page.text, part
    assert "This is not all of the run" not in page.text


def test_a_run_that_failed_shows_the_error_with_its_line(here: Path) -> None:
    Path("f.prose").write_text('let a = 1\nsession "Fail"\nexec "echo never"\n')
    run("f.prose", status=1)
    page = checked(report())
    assert "f.prose failed" in page.text
    assert "at line 2, column 1 of f.prose: the server is down [" in page.text
    assert "session Fail no answer" in page.text
    assert "never" in page.text and "$ echo never not run" in page.text


def truncate_journal(directory: Path, keep: Callable[[Record], bool]) -> None:
    """Truncate a journal as if the process had been killed: keep all records before the first for which `keep` is
    false, without completed work whose turn had not come."""
    found = read(directory / NAME)
    kept: list[Record] = [found.head]
    for _, record in found.records(1):
        if isinstance(record, Completed):
            continue
        if not keep(record):
            break
        kept.append(record)
    (directory / NAME).unlink()
    file = JournalFile(directory / NAME)
    file.copy(kept)
    file.close()


def last_run() -> Path:
    return max(Path(".prose/runs").iterdir(), key=lambda path: (path / NAME).stat().st_mtime_ns)


def test_a_killed_run_shows_the_activities_that_were_running(here: Path) -> None:
    run("p.prose", *FULL)
    before = report()
    answered = iter(["c1/1/x0"])
    truncate_journal(
        last_run(),
        lambda record: isinstance(record, (Text, Asked)) or next(answered, "") == getattr(record, "key", None),
    )
    source = report()
    page = checked(source)
    for part in (
        "p.prose killed",
        "The process of the run was killed",
        "Under way then: command echo 12 passed; command echo clean",
        "tests $ echo 12 passed under way → tests lint $ echo clean under way → lint",
        "[lint] $ echo clean branch lint: $ echo clean: running",
        "7 $ echo 12 passed → tests under way",
    ):
        assert part in page.text, part
    assert len(source) < len(before)


WAITING = """\
let first = exec "echo one"
parallel:
  let a = exec "echo two"
  let b = session "Go"
output all = "{first}{a}{b}"
"""


def test_a_killed_run_shows_the_answers_that_waited_for_their_turn(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.prose").write_text(WAITING)
    Path("s.yaml").write_text('sessions:\n  "*": "three"\n')
    run("w.prose")
    found, kept = read(last_run() / NAME), list[Record]()
    answer = SessionResult("three", origin="scripted", usage=Usage(1, 1000, 234))
    usage = {"usage": [["session", "anthropic", "big", {"requests": 1, "tokens_in": 1000, "tokens_out": 234}, False]]}
    for _, record in found.records():
        if isinstance(record, Answered) and "/b" in record.key:
            is_session = "/s" in record.key
            aside, value = (encode(usage), encode(answer)) if is_session else (record.aside, record.value)
            kept.append(Completed(record.key, value, aside=aside, t=record.t + 7))
        elif not isinstance(record, (Completed, Ended, Finished)):
            kept.append(record)
    found.path.unlink()
    file = JournalFile(found.path)
    file.copy(kept)
    file.close()
    page = checked(report())
    for part in (
        "a $ echo two ✓ done → a b session: Go ✓ done, scripted → b",
        "note its branch had not continued yet exit code 0 stdout two",
        "answered by scripted prompt Go answer three",
        "1,234 tokens",
    ):
        assert part in page.text, part
    assert "under way" not in page.text
    assert all(took.answered for took in times_of(read(last_run() / NAME)).values())
    capsys.readouterr()
    (known,) = all_runs(places(here, ".prose"))
    assert known.answers == read(known.path).answers() == 3
    assert main(["runs", "show", known.id]) == 0
    shown = capsys.readouterr().out
    assert "✓ c1/2/b0/x0  command echo two → two\n" in shown
    assert "✓ c1/2/b1/s0  session Go → three\n" in shown
    assert main(["what-if", known.id, "c1/2/b1/s0=four"]) == 0
    compared = capsys.readouterr().out
    assert "-✓ three\n  +✓ four" in compared and "\n-under way" not in compared
    assert "1,234 tokens before" in compared


def test_a_run_killed_while_it_computed_is_not_computed_to_its_end(here: Path) -> None:
    Path("c.prose").write_text('exec "echo once"\nlet n = 0\nloop (max: 100000000):\n  n = n + 1\nexec "echo twice"\n')
    Path("d.prose").write_text('exec "echo once"\nlet n = 0\nexec "echo twice"\n')
    run("d.prose")
    found = read(last_run() / NAME)
    records = [record for _, record in found.records(1)]
    found.path.unlink()
    text = records[0]
    assert isinstance(text, Text)
    file = JournalFile(found.path)
    replaced = Text(1, text.language, "d.prose", Path("c.prose").read_text(), directory=text.directory)
    file.copy([found.head, replaced, *records[1:3]])
    file.close()
    page = checked(report())
    assert "$ echo once" in page.text
    assert "$ echo twice not run" in page.text


def test_a_running_run_has_a_report(here: Path) -> None:
    run("p.prose", *FULL)
    lock = JournalFile(last_run() / NAME)
    lock.continue_from(read(last_run() / NAME))
    try:
        page = checked(report())
    finally:
        lock.close()
    assert "p.prose running" in page.text
    assert "was not over when this report was written" in page.text


SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(1)</script><rect/></svg>'


def test_images_and_shown_files_are_in_the_page(here: Path) -> None:
    Path("a.png").write_bytes(png())
    Path("a.svg").write_text(SVG)
    Path("a.csv").write_text("name,n\nAnn,1\n")
    Path("broken.png").write_bytes(png()[:40])
    shows = "".join(f'exec "true"\n  display: "{name}"\n' for name in ("a.png", "a.svg", "a.csv", "broken.png"))
    Path("i.prose").write_text(f'let drawn = exec "cat a.png"\n{shows}exec "echo last"\n')
    run("i.prose")
    for name in ("a.png", "a.svg", "a.csv"):
        Path(name).unlink()
    source = report()
    page = checked(source)
    drawn = re.findall(r'<img src="data:(image/[a-z+]+);base64,([^"]*)" alt="', source)
    assert [media for media, _ in drawn] == ["image/png", "image/png", "image/svg+xml"]
    assert base64.b64decode(drawn[0][1]) == base64.b64decode(drawn[1][1]) == png()
    assert b"script" not in base64.b64decode(drawn[2][1])
    assert "a.svg: SVG image, 9 × 9" in page.text and "removed: script" in page.text
    assert "Ann   1" in source and "broken: its end is missing" in page.text
    assert "$ echo last" in page.text and "What the journal holds" not in page.text


def test_images_that_are_too_large_are_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.png").write_bytes(png())
    Path("i.prose").write_text('exec "cat a.png"\nexec "cat a.png"\n')
    run("i.prose")
    monkeypatch.setattr("prose_kernel.views.report_entries.PICTURES", len(png()) * 2)
    page = checked(report())
    assert page.tags["img"] == 1 and page.text.count("too large for this page") == 1


def test_differences_of_this_version_are_reported(here: Path) -> None:
    run("p.prose", *FULL)
    found = read(last_run() / NAME)
    rewrite(
        found,
        lambda record: (
            structs.replace(record, digest="0" * 16)
            if isinstance(record, Asked) and record.key == "c1/4/x0"
            else record
        ),
    )
    page = checked(report())
    assert "This is not all of the run: this version of prose_kernel does something else" in page.text
    assert "12 passed" in page.text
    assert "c1/7/g0 gate Publish it? ✓ approved" in page.text
    assert "error" not in page.text


RACES = """\
parallel ("first"):
  a = session "fast"
  b = session "slow"
parallel ("any", count: 1, on-fail: "ignore"):
  c = exec "exit 1"
  d = exec "echo d"
parallel for x in [1, 2, 3] (on-fail: "continue"):
  exec "test $X -lt 3"
    env: { X: x }
choice **which of the two options is better**:
  option "left":
    let z = 1
  option "right":
    let z = 2
let m = ["x", "y"] | map: exec "echo {item}"
"""


def test_races_choices_and_pipelines_are_shown(here: Path) -> None:
    """Reports of runs with and without recorded sessions are complete."""
    Path("r.prose").write_text(RACES)
    Path("s.yaml").write_text('sessions:\n  "slow": {reply: late, delay: 5s}\n  "*": soon\njudge:\n  "*": left\n')
    run("r.prose")
    page = checked(report())
    for part in (
        "2 branches, waits for first",
        "fast → a scripted",
        "slow → b cancelled",
        "3 iterations",
        "item 3",
        "exit code 1",
        "which of the two options is better left",
        "takes left",
        "map over 2 items",
    ):
        assert part in page.text, part
    assert "This is not all of the run" not in page.text
    Path("c.prose").write_text('parallel ("first"):\n  a = exec "echo fast"\n  b = exec "sleep 60"\n')
    assert main(["run", "c.prose"]) == 0
    assert "c1/1/b*/order" in (last_run() / NAME).read_text()
    page = checked(report())
    assert "This is not all of the run" not in page.text
    assert "sleep 60 → b cancelled" in page.text


def test_times_of_a_resumed_run_exclude_the_pause(here: Path) -> None:
    Path("r.prose").write_text('exec "echo one"\nexec "test -f there"\n')
    run("r.prose", status=1)
    (before,) = [took for key, took in times_of(read(last_run() / NAME)).items() if key == "c1/1/x0"]
    assert before.answered >= before.asked > 1_700_000_000_000
    Path("there").touch()
    assert main(["run", "--resume", "--provider", "scripted", "--script", "s.yaml"]) == 0
    page = checked(report())
    assert "r.prose done" in page.text
    assert "2 commands" in page.text


def test_events_in_counted_calls_are_still_reported(here: Path) -> None:
    source = 'block once(n):\n  exec "true {n}"\nlet n = 0\nloop (max: 230):\n  do once("x")\n  n = n + 1\n'
    Path("m.prose").write_text(source)
    run("m.prose")
    page = checked(report())
    assert "230 commands" in page.text
    assert page.text.count("$ true x") >= 230
    assert "and 30 more times" in page.text


def test_imported_programs_are_entries_with_links_to_their_text(here: Path) -> None:
    Path("inner.prose").write_text('input x: "?"\nlet y = exec "echo inner {x}"\noutput z = "{y}"\n')
    Path("o.prose").write_text('use "./inner.prose" as inner\nlet r = inner(x: "one")\noutput all = r.z\n')
    run("o.prose")
    source = report()
    page = checked(source)
    assert "program inner" in page.text and "$ echo inner one → y" in page.text
    assert "o.prose inner.prose" in page.text
    assert re.search(r'class="ln" href="#s2-2"', source)


def test_tools_files_tokens_and_cost_of_a_session_are_shown(here: Path) -> None:
    Path("t.prose").write_text('let a = session "Go"\n')
    Path("s.yaml").write_text('sessions:\n  "*": "done"\n')
    run("t.prose")
    found = read(last_run() / NAME)
    use = ToolUse("read", "src/<main>.py", detail="first line")
    result = SessionResult(
        "an *answer*",
        provider="anthropic",
        origin="model",
        trace=(use, ToolUse("write", "/etc/x", "refused", "not allowed")),
        writes=(FileWrite("out.txt", None, "new"),),
        usage=Usage(2, 1000, 234, 0.0125),
    )
    aside = {
        "usage": [
            [
                "session",
                "anthropic",
                "big",
                {"requests": 2, "tokens_in": 1000, "tokens_out": 234, "cost": 0.0125},
                False,
            ]
        ]
    }
    rewrite(
        found,
        lambda record: (
            structs.replace(record, value=encode(result), aside=encode(aside), error=NOTHING)
            if isinstance(record, Answered)
            else record
        ),
    )
    page = checked(report())
    for part in (
        "answered by model",
        "2 tool calls tool asked read src/<main>.py first line write /etc/x refused not allowed",
        "wrote out.txt answer an answer",
        "1,234 tokens $0.0125 cost",
        "anthropic big 1 0 0 2 1,000 234 $0.0125",
    ):
        assert part in page.text, part


def rewrite(found: JournalRead, change: Callable[[Record], Record]) -> None:
    """Rewrite a journal with changed records."""
    records = [found.head, *(change(record) for _, record in found.records(1))]
    found.path.unlink()
    file = JournalFile(found.path)
    file.copy(records)
    file.close()


def test_secrets_are_redacted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "tok-" + "9f8Xq2LmZ7" * 3
    monkeypatch.setenv("DEPLOY_TOKEN", token)
    Path("prose.toml").write_text('[cassette]\nredact = ["customer-[a-z]+"]\n')
    Path("x.prose").write_text(
        f'let a = exec "echo $DEPLOY_TOKEN customer-jones"\noutput b = "{token} {{a}}"\n'
        'exec "echo \\"<svg xmlns=\'http://www.w3.org/2000/svg\'><text>customer-jones</text></svg>\\" > d.svg"\n'
        '  display: "d.svg"\n'
    )
    run("x.prose")
    source = report()
    (drawing,) = re.findall('data:image/svg[+]xml;base64,([^"]+)', source)
    assert "«secret:custom»" in base64.b64decode(drawing).decode()
    assert token not in source and "jones" not in source
    assert "«env:DEPLOY_TOKEN»" in source and "«secret:custom»" in source


def test_hostile_texts_do_not_make_a_report_grow(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "LISTED", 20_000)
    for name in ("HEADS", "LARGEST"):
        monkeypatch.setattr(report_entries, name, 20_000)
    grows = "&" * 90 + "<script>"
    lines = [f'let v{number} = "{grows}{number}"' for number in range(500)]
    Path("h.prose").write_text("\n".join(lines))
    run("h.prose")
    page = checked(report())
    assert len(page.source) < 400_000 and "more lines" in page.text and page.source.count('class="e value') == 500


def test_the_omitted_middle_of_long_texts_is_reported(here: Path) -> None:
    Path("l.prose").write_text(
        "exec \"seq 1 200000\"\n  max-output: 900000\nexec \"head -c 25000 /dev/zero | tr '\\\\0' '<'\"\n"
    )
    run("l.prose")
    source = report()
    page = checked(source)
    assert re.search(r"… \d+,\d{3} of \d+,\d{3} characters are left out", page.text)
    assert len(source) < 400_000
    assert "prose runs show RUN --format json prints them" in page.text


def test_repeated_passes_of_a_loop_are_counted(here: Path) -> None:
    Path("n.prose").write_text('exec "true"\nlet n = 0\nloop (max: 3000):\n  n = n + 1\noutput m = n\n')
    run("n.prose")
    source = report()
    assert "3,000 passes" in checked(source).text
    assert "and 2,800 more times" in source
    assert len(source) < 300_000


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("v1.2-review.prose", "v1.2-review"),
        ("docs/Größe & Co.prose.md", "Größe-Co"),
        ("translate.vvm", "translate"),
        ("README.md", "README"),
        ("", "run"),
    ],
)
def test_a_report_is_named_after_its_program_and_time(program: str, name: str) -> None:
    def file_name(started: str, run: str = "20261128-073000-0a1b2c") -> str:
        return report_module.file_name(Head(run, program, "openprose", "/", started=started))

    assert file_name("2026-11-28T09:30:00.5+02:00") == f"{name}-2026-11-28-07-30-00-0a1b2c.html"
    assert file_name("../../out", "../../id") == f"{name}-out-id.html"  # a damaged journal cannot change the directory


def test_runs_started_in_the_same_second_have_separate_reports(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    second = datetime(2026, 11, 28, 7, 30, tzinfo=UTC)
    monkeypatch.setattr(SystemClock, "now", lambda self: second)
    run("p.prose", *FULL)
    run("p.prose", *FULL)
    capsys.readouterr()
    runs = sorted(one.name for one in Path(".prose/runs").iterdir())
    for one in runs:
        assert main(["report", one]) == 0
    names = capsys.readouterr().out.split()
    assert names == [f"p-2026-11-28-07-30-00-{one[-6:]}.html" for one in runs]
    assert all(f"run {one}" in Path(name).read_text() for one, name in zip(runs, names, strict=True))


def test_a_report_replaces_only_reports(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("p.prose", *FULL)
    capsys.readouterr()
    assert main(["report"]) == 0
    name = capsys.readouterr().out.strip()
    assert re.fullmatch(r"p-\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-[0-9a-f]{6}\.html", name) and checked(Path(name).read_text())
    assert re.search(r"<title>p\.prose, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: done</title>", Path(name).read_text())
    assert f"run {last_run().name}" in Path(name).read_text()
    assert main(["report", last_run().name[:20], "--output", name]) == 0
    Path("mine.html").write_text("<!doctype html>\nmine")
    os.mkfifo("pipe")
    for wrong, message in (
        ("mine.html", "mine.html exists and isn't a report"),
        (".", ". is a directory"),
        ("mine.html/sub/r.html", "mine.html/sub/r.html cannot be written: not a directory"),
        ("pipe", "pipe exists and isn't a report"),
        ("a\0b", "cannot be written"),
        (str(Path("mine.html").absolute()), "Error: mine.html exists and isn't a report"),
    ):
        capsys.readouterr()
        assert main(["report", "--output", wrong]) == 2
        assert message in capsys.readouterr().err
    assert Path("mine.html").read_text() == "<!doctype html>\nmine"
    assert main(["report", "--output", "mine.html", "--force"]) == 0
    checked(Path("mine.html").read_text())
    assert main(["report", "--output", "new/directory/r.html"]) == 0
    checked(Path("new/directory/r.html").read_text())
    capsys.readouterr()
    assert main(["report", "--output", "-"]) == 0
    checked(capsys.readouterr().out)


def test_a_read_only_file_system_is_reported_as_the_reason(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("p.prose", *FULL)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: False)
        for flags, reason in ((0, "permission denied"), (os.ST_RDONLY, "read-only file system")):
            patched.setattr(os, "statvfs", lambda path, flags=flags: SimpleNamespace(f_flag=flags))
            capsys.readouterr()
            assert main(["report", "--output", "r.html"]) == 2
            assert f"r.html cannot be written: {reason}" in capsys.readouterr().err


def test_a_report_replaces_a_link_and_not_its_target(here: Path) -> None:
    run("p.prose", *FULL)
    assert main(["report", "--output", "one.html"]) == 0
    Path("two.html").symlink_to("one.html")
    before = Path("one.html").stat().st_mtime_ns
    assert main(["report", "--output", "two.html"]) == 0
    assert not Path("two.html").is_symlink()
    assert Path("one.html").stat().st_mtime_ns == before


def test_a_missing_run_or_journal_is_an_error(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def error_of(*arguments: str) -> str:
        capsys.readouterr()
        assert main(["report", *arguments]) == 2
        return capsys.readouterr().err

    assert error_of() == "Error: no run is kept here\nhint: prose run FILE begins one\n"
    assert "there is no run 2020" in error_of("2020")
    old = Path(".prose/runs/20200101-000000-abcdef")
    old.mkdir(parents=True)
    assert "run 20200101-000000-abcdef has no journal" in error_of(old.name)
    (old / NAME).write_bytes(b"00000000 nonsense\n")
    assert "20200101-000000-abcdef" in error_of(old.name)
    shutil.rmtree(old)
    assert "there is no run" in error_of(old.name)


def test_writing_a_report_does_not_change_the_run(here: Path) -> None:
    run("p.prose", *FULL)
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    kept = Directories(last_run().parent).run(last_run().name)
    assert json.dumps(asyncio.run(run_report(kept.kept_journal(), kept.state, settings.load(here), str)))
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before
    assert [run.state for run in places(here, ".prose")[0].runs()] == ["done"]
