"""The parts of tasks in isolation: fields, redaction, buffers, logs, states, crash-safe records."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes.tasks.desk import stored_results

from prose_kernel.errors import TaskRefused
from prose_kernel.language.structs import replace
from prose_kernel.processes.command_output import STREAM_TAIL, BothEnds, Collected
from prose_kernel.processes.environment import is_secret_name, without_secrets
from prose_kernel.processes.tasks import log as logs
from prose_kernel.processes.tasks.log import Log
from prose_kernel.processes.tasks.records import (
    TaskRecord,
    digest_of,
    display_of,
    ending_of,
    from_row,
    may_follow,
    new_id,
)
from prose_kernel.processes.tasks.requests import FIELDS, read_call
from prose_kernel.processes.tasks.store import Owned, Store, StoreError
from prose_kernel.runtime.redaction import masked
from prose_kernel.runtime.services import TaskStatus

# ---------------------------------------------------------------- fields (4.1)


def test_the_defaults() -> None:
    call = read_call({"cmd": "make"})
    assert (call.yield_time_ms, call.budget, call.login, call.duplicate_policy) == (
        10_000,
        32_000,
        False,
        "reuse_running",
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0, 8_000), (None, 8_000), (1, 1), (64_000, 64_000), (64_001, 64_000), ("100", 100), (10**12, 64_000)],
)
def test_a_budget_is_clamped(given: object, expected: int) -> None:
    assert read_call({"cmd": "x", "max_output_tokens": given}).max_output_tokens == expected


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cmd": ""},
        {"cmd": "  \n"},
        {"cmd": 7},
        {"cmd": ["ls"]},
        {"cmd": "a\0b"},
        {"cmd": "\ud800"},
        {"cmd": "x" * (1024 * 1024 + 1)},
        {"cmd": "x", "yield_time_ms": -1},
        {"cmd": "x", "yield_time_ms": 600_001},
        {"cmd": "x", "yield_time_ms": 1.5},
        {"cmd": "x", "yield_time_ms": True},
        {"cmd": "x", "yield_time_ms": "nan"},
        {"cmd": "x", "yield_time_ms": float("inf")},
        {"cmd": "x", "login": "perhaps"},
        {"cmd": "x", "workdir": 5},
        {"cmd": "x", "duplicate_policy": "both"},
        {"cmd": "x", "status": "running"},
        {"cmd": "x", "task_handle": "y"},
        {"cmd": "x", "background": False},
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(TaskRefused) as refused:
        read_call(fields)
    assert refused.value.kind == "invalid_input"
    assert not refused.value.retryable


def test_a_terminal_is_unsupported() -> None:
    with pytest.raises(TaskRefused) as refused:
        read_call({"cmd": "top", "tty": "true"})
    assert refused.value.kind == "unsupported"


ODD = st.text(st.sampled_from("a1.- \n\0é\u2028\ud800😀"))


@given(
    st.dictionaries(
        st.sampled_from((*FIELDS, "background", "x")),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ODD, st.lists(ODD, max_size=3)),
    )
)
def test_odd_fields_never_raise_another_error(fields: dict[str, object]) -> None:
    try:
        read_call(fields)
    except TaskRefused as refused:
        json.dumps([refused.kind, refused.message, refused.hint, refused.details])


# ---------------------------------------------------------------- secrets (4.1, hazard 100)


def test_names_that_look_like_secrets() -> None:
    environment = {b"A_TOKEN": b"1", b"AWS_X": b"2", b"PATH": b"3", b"OPENAI_API_KEY": b"4", b"credentials_file": b"5"}
    assert without_secrets(environment, ()) == {b"PATH": b"3"}
    assert without_secrets(environment, ("A_TOKEN",)) == {b"A_TOKEN": b"1", b"PATH": b"3"}
    assert all(
        map(
            is_secret_name,
            ("STRIPE_KEY", "GITHUB_PAT", "MYSQL_PWD", "NPM_CONFIG__AUTH", "PGPASSWORD", "SSH_PASSPHRASE"),
        )
    )
    assert not any(map(is_secret_name, ("TERM", "OLDPWD", "SSH_AUTH_SOCK", "KEYBOARD", "PATH")))


@pytest.mark.parametrize(
    "command",
    [
        "curl -H 'Authorization: Bearer s3cretvalue' https://x",
        "curl https://user:s3cretvalue@host/x",
        "API_KEY=s3cretvalue make",
        "export GITHUB_TOKEN='s3cretvalue'",
        "tool --token s3cretvalue run",
        "tool --api-key=s3cretvalue",
        "tool --password 's3cretvalue'",
        "curl -u me:s3cretvalue https://x",
        "curl -H 'X-Api-Key: s3cretvalue' x",
    ],
)
def test_secrets_do_not_show(command: str) -> None:
    assert "s3cretvalue" not in masked(command)
    assert "s3cretvalue" not in display_of(command)
    assert command.split()[0].split("=")[0] in masked(command)


def test_scripts_are_counted_and_lines_are_short() -> None:
    assert display_of("cat <<'EOF' > x\none\ntwo\nEOF\nls") == "cat <<EOF > x [2 lines] ls"
    assert display_of(f"python3 -c '{'print(1);' * 50}'") == "python3 -c [script of 450 characters]"
    assert len(display_of("echo " + "x" * 1000)) == 240
    assert display_of("echo \x1b]0;owned\x07") == "echo \N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}"


@given(st.text(max_size=2000))
def test_a_display_is_one_short_line(command: str) -> None:
    shown = display_of(command)
    assert "\n" not in shown
    assert len(shown) <= 240


# ---------------------------------------------------------------- buffers (4.5)


@given(st.lists(st.text(max_size=50)), st.integers(min_value=2, max_value=60))
def test_a_preview_holds_both_ends(pieces: list[str], budget: int) -> None:
    ends = BothEnds(STREAM_TAIL)
    for piece in pieces:
        ends.add(piece)
    whole = "".join(pieces)
    shown, cut = ends.preview(budget)
    assert cut == (len(whole) > budget)
    if not cut:
        assert shown == whole
    else:
        first, last = shown.split("\n[… ")[0], shown.rsplit(" …]\n", 1)[1]
        assert whole.startswith(first)
        assert whole.endswith(last)
        assert len(first) + len(last) == budget


def test_memory_is_bounded_however_small_the_pieces() -> None:
    ends = BothEnds(1000)
    for number in range(300_000):
        ends.add(str(number % 10))
    assert ends.total == 300_000
    assert ends.tail(5) == "56789"
    assert sum(map(len, ends._tail._pieces)) < 6000  # this bound is tested


def test_streams_share_the_budget() -> None:
    collected = Collected()
    collected.add("stdout", "o" * 1000)
    collected.add("stderr", "e" * 10)
    previews = collected.previews(200)
    assert previews["stderr"] == ("e" * 10, False)
    assert previews["stdout"][0].count("o") >= 190


# ---------------------------------------------------------------- logs (4.5)


def test_a_short_log_is_the_output(tmp_path: Path) -> None:
    log = Log(tmp_path / "t.log", 1000, 2000)
    log.add("hello ")
    assert not log.path.exists()  # type: ignore[union-attr]
    log.open()
    log.add("wörld")
    log.finish()
    assert (tmp_path / "t.log").read_text() == "hello wörld"
    assert (tmp_path / "t.log").stat().st_mode & 0o777 == 0o600
    assert (log.seen, log.kept, log.truncated) == (12, 12, False)


@given(st.lists(st.text(alphabet="aé漢🌊", max_size=400), max_size=40))
def test_a_long_log_keeps_both_ends_and_says_how_much_is_missing(pieces: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "t.log"
        log = Log(path, 400, 1256)
        log.open()
        for piece in pieces:
            log.add(piece)
            assert sum(part.stat().st_size for part in Path(directory).iterdir()) <= 1656
        whole = "".join(pieces)
        unfinished = "".join(logs.read(path))
        log.finish()
        text = path.read_text()
        assert [part.name for part in Path(directory).iterdir()] == ["t.log"]
        assert log.seen == len(whole.encode())
        found = re.search(r"\n\[… ([\d,]+) bytes dropped here …\]\n", text)
        if found is None:
            assert text == whole == unfinished
            return
        first, last = text[: found.start()], text[found.end() :]
        assert whole.startswith(first)
        assert whole.endswith(last)
        dropped = int(found[1].replace(",", ""))
        assert dropped == len(whole.encode()) - len(first.encode()) - len(last.encode())
        assert log.kept == log.seen - dropped


def test_a_log_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "t.log").symlink_to(tmp_path / "victim")
    log = Log(tmp_path / "t.log", 100, 100)
    log.add("x")
    log.open()
    assert log.error is not None
    assert (tmp_path / "victim").read_text() == "precious"


# ---------------------------------------------------------------- states (4.4)


def test_phases_only_move_forward() -> None:
    for before in get_args(TaskStatus):
        for after in get_args(TaskStatus):
            if before in ("completed", "failed", "cancelled", "interrupted"):
                assert not may_follow(before, after)
    assert not may_follow("cancelling", "completed")
    assert not may_follow("running", "queued")


# ---------------------------------------------------------------- records (4.3)


def record(**changes: object) -> TaskRecord:
    made = TaskRecord(
        task_id=new_id(), number=0, summary="s", run_id="r", session=None, cell=None, work_ref=None, cmd="c",
        cmd_digest=digest_of("c"), cmd_display="c", workdir="/", shell="/bin/sh", login=False, yield_time_ms=0,
        max_output_tokens=1, continue_on_result=False, promoted=False, status="queued", created_at="t", updated_at="t",
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_record_reads_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = store.save(record(head="ü\0"), "TaskStatus")
    assert (kept.revision, kept.number) == (1, 1)
    assert from_row(kept.task_id, kept.number, kept.as_json()) == kept
    assert store.find(kept.task_id, number=False) == kept
    assert store.find("1", number=True) == kept
    assert store.find("1", number=False) is None
    store.close()
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "tasks").iterdir())


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"task_id": 1}', None, b"\xff"])
def test_a19_only_a_damaged_record_is_lost(tmp_path: Path, damage: str | bytes | None) -> None:
    store = Store(tmp_path)
    kept = [store.save(replace(store.save(record()), status="running")) for _ in range(3)]
    store._connection.execute("pragma ignore_check_constraints = on")
    text = "" if damage is None else damage
    store._connection.execute("update tasks set record = ? where number = 2", (text,))
    found = store.all()
    assert [found[0], found[2]] == [kept[0], kept[2]]
    assert (found[1].number, found[1].task_id, found[1].ended) == (2, kept[1].task_id, True)
    assert ending_of(found[1]) == "interrupted (its record is damaged)"
    assert store.active() == [kept[0], kept[2]], "nothing is recorded about a task that nobody knows"
    assert store.save(replace(kept[1], status="completed")).summary == "the record of this task is damaged"
    store.prune(0)
    store.close()


def test_the_first_terminal_state_wins(tmp_path: Path) -> None:
    store = Store(tmp_path)
    running = store.save(replace(store.save(record()), status="running"))
    done = store.save(replace(running, status="completed", result_id="one"), "TaskResult")
    assert store.save(replace(running, status="failed", result_id="two"), "TaskResult") == done
    assert store.save(done, "TaskResult") == done
    assert store.save(running) == done
    assert [result for _, result in stored_results(store)] == ["one"]
    store.close()


def test_a_run_has_one_owner_and_other_readers(tmp_path: Path) -> None:
    """Hazard 87: two kernels, one run directory."""
    store = Store(tmp_path)
    kept = store.save(record(status="queued"))
    with pytest.raises(Owned):
        Store(tmp_path)
    looking = Store(tmp_path, mode="look")
    assert looking.find(kept.task_id, number=False) == kept
    looking.request_stop(kept.task_id)
    looking.close()
    assert store.take_requests() == [kept.task_id]
    assert store.take_requests() == []
    store.close()
    Store(tmp_path).close()


def test_old_tasks_are_forgotten_with_their_logs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(5):
        reference = f"tasks/{number}.log"
        (tmp_path / reference).write_text("x")
        store.save(record(status="completed", log_ref=reference, result_id=str(number)), "TaskResult")
    running = store.save(record(status="running"))
    store.prune(2)
    assert [kept.number for kept in store.all()] == [4, 5, running.number]
    assert sorted(path.name for path in (tmp_path / "tasks").glob("*.log")) == ["3.log", "4.log"]
    store.close()


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("a file stands where the directory should be")
    with pytest.raises(StoreError) as problem:
        Store(tmp_path)
    assert str(tmp_path) not in str(problem.value)


CRASH = """
import os, sys, sqlite3
from prose_kernel.language.structs import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from processes.tasks.test_parts import record
from prose_kernel.processes.tasks.store import Store

def update(directory, last):
    step = 0
    def count(frame, event, argument):
        # every line of the store's own code is a step; sqlite's own steps are between them
        nonlocal step
        if frame.f_code.co_filename.endswith("tasks/store.py"):
            step += 1
            if step == last:
                os.kill(os.getpid(), 9)
        return count
    store = Store(directory)
    running = store.save(replace(store.save(record(task_id="task")), status="running"), "TaskStatus")
    sys.settrace(count)
    ended = replace(running, status="completed", result_id="r", head="x" * 100000, continue_on_result=True)
    store.save(ended, "TaskResult")
    sys.settrace(None)
    (directory / "survived").touch()
    os.kill(os.getpid(), 9)

last, survived = 0, False
while not survived:  # one process for each step: the last one gets to the end
    last += 1
    directory = Path(sys.argv[1], f"run{{last}}")
    directory.mkdir()
    child = os.fork()
    if child == 0:
        update(directory, last)
    assert os.waitpid(child, 0)[1] == 9
    survived = (directory / "survived").exists()
print(last)
"""


def test_80_a_crash_at_any_step_leaves_the_old_or_the_new_record_and_its_event(tmp_path: Path) -> None:
    """Hazard 80: kill at every step of an update."""
    script = CRASH.format(tests=str(Path(__file__).parents[2]))
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps > 30
    seen = []
    for step in range(1, steps + 1):
        store = Store(tmp_path / f"run{step}")
        (kept,) = store.all()
        seen.append(kept.status)
        assert (kept.status == "completed") == (stored_results(store) == [("task", "r")])
        assert len(store.follow_ups()) == (kept.status == "completed")
        assert kept.head in ("", "x" * 100000)
        store.close()
    assert seen == sorted(seen, reverse=True), "what was kept once stays"
    assert set(seen) == {"running", "completed"}
