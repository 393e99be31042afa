"""Hazards of tasks by their numbers in docs/contributing/reliability.md, and the limits of 4.10."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes.conftest import HOUR, Clock, end_of
from processes.tasks.desk import AGENT, PERSON, Desk, MakeDesk, stored_events, stored_results
from processes.tasks.test_acceptance import start_kernel
from waiting import PATIENCE, appears, command_line, eventually, processes

from prose_kernel.errors import TaskRefused
from prose_kernel.language.structs import replace
from prose_kernel.processes import system
from prose_kernel.processes.process_table import carries_prefix, members
from prose_kernel.processes.tasks import monitored
from prose_kernel.processes.tasks.ledger import recover_all, sweep
from prose_kernel.processes.tasks.running import Identity
from prose_kernel.processes.tasks.store import Store, StoreError
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.services import CommandCompleted, CommandPromoted, TaskCaller


def alive(marker: str) -> list[int]:
    return [m.pid for m in members() if carries_prefix(m.pid, f"{marker}:task:")]


async def test_3_a_background_child_does_not_delay_the_answer_and_is_ended(desk: Desk) -> None:
    began = time.monotonic()
    receipt = await desk.completed("sleep 60 & echo hi")
    assert time.monotonic() - began < PATIENCE  # it did not wait the minute of the child
    assert (receipt.stdout_preview, receipt.background_ended) == ("hi\n", 1)
    assert "becomes a task by itself" in receipt.summary_text
    assert not desk.processes


async def test_4_35_a_detached_process_ends_with_its_task(desk: Desk) -> None:
    task = await desk.task("setsid sleep 61 & setsid sh -c 'sleep 62 & sleep 63' & echo up; sleep 64")
    await desk.printed(task, "up")
    await eventually(lambda: len(desk.processes) >= 5)
    await desk.service.stop(task, PERSON)
    await desk.end(task)
    assert not desk.processes


def running(program: str) -> list[int]:
    """Return the live processes with these arguments."""
    return [pid for pid in processes(program) if command_line(pid) == f"{program} "]


@pytest.mark.linux
async def test_4_35_an_agents_command_owns_processes_that_detached_without_its_environment(desk: Desk) -> None:
    receipt = await desk.start(
        "setsid env -i sleep 65.1 </dev/null >/dev/null 2>&1 & (setsid sleep 65.2 &) ; sleep 0.1; "
        "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status",
        AGENT,
    )
    assert isinstance(receipt, CommandCompleted)
    assert receipt.background_ended == 2
    assert receipt.stdout_preview == "NoNewPrivs:\t0\nSeccomp:\t0\n", "nothing is taken away where no rule says so"
    assert running("sleep 65.1") == running("sleep 65.2") == []

    task = await desk.task("setsid env -i sleep 65.3 & echo up; sleep 65.4", AGENT)
    await desk.printed(task, "up")
    await desk.service.close()
    assert running("sleep 65.3") == running("sleep 65.4") == []


@pytest.mark.linux
async def test_71_the_monitor_of_an_agents_command_ends_it_when_the_kernel_is_gone(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from processes.tasks.desk import AGENT, Desk; from prose_kernel.processes.engine import Engine\n"
        "from prose_kernel.processes.options import TaskOptions\n"
        "async def main():\n"
        "    desk = Desk(Engine(state_dir=Path(sys.argv[1])), Path(sys.argv[1]), TaskOptions())\n"
        "    task = await desk.task('setsid env -i sleep 65.5 & echo up; sleep 65.6', AGENT)\n"
        "    await desk.printed(task, 'up'); print('ready', flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"}
    kernel = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert kernel.stdout is not None
    assert kernel.stdout.readline() == "ready\n"
    await eventually(lambda: len(running("sleep 65.5")) == len(running("sleep 65.6")) == 1)
    kernel.kill()
    kernel.wait()
    kernel.stdout.close()
    await eventually(lambda: not running("sleep 65.5") and not running("sleep 65.6"))


async def test_35_a_process_detached_by_a_foreground_command_lives_until_the_run_ends(desk: Desk) -> None:
    await desk.completed("setsid sleep 65 & sleep 0.1")
    assert len(desk.processes) == 1
    await desk.service.close()
    assert not desk.processes


async def test_20_21_siblings_and_stopped_processes_end_too(desk: Desk) -> None:
    task = await desk.task("(trap '' TERM; echo a; sleep 66) & kill -STOP $$")
    await desk.printed(task, "a")
    await desk.service.stop(task, PERSON)
    assert (await desk.end(task)).status == "cancelled"
    assert not desk.processes


async def test_26_a_task_that_was_killed_from_outside_has_failed(desk: Desk) -> None:
    task = await desk.task("sleep 0.1; kill -KILL $$")
    ended = await desk.end(task)
    assert (ended.status, ended.exit_status, ended.signal) == ("failed", None, "SIGKILL")
    assert ended.error == {"kind": "signal", "message": "ended by signal SIGKILL"}


@pytest.mark.parametrize("shell", ["bash", "sh"])
async def test_42_a_long_command_runs(desk: Desk, shell: str) -> None:
    for caller in (PERSON, AGENT):
        receipt = await desk.start(f": '{'x' * 300_000}'; echo long", caller, shell=shell)
        assert isinstance(receipt, CommandCompleted)
        assert receipt.stdout_preview == "long\n"


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("caller", [PERSON, AGENT])
@pytest.mark.parametrize("cmd", ["--version", "-i", "+x", "-c 'echo injected'", "--", "-"])
async def test_91_a_command_is_never_an_option_of_the_shell(
    desk: Desk, shell: str, caller: TaskCaller, cmd: str
) -> None:
    receipt = await desk.start(cmd, caller, shell=shell)
    assert isinstance(receipt, CommandCompleted)
    assert (receipt.exit_status, receipt.stdout_preview) == (127, "")
    assert "not found" in receipt.stderr_preview


async def test_55_59_no_input_and_no_startup_files(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rc").write_text("echo startup\n")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "rc"))
    assert (await desk.completed("cat; echo end")).stdout_preview == "end\n"


async def test_login_reads_the_profile(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".profile").write_text("echo from the profile\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "from the profile" in (await desk.completed("true", login=True)).stdout_preview
    assert (await desk.completed("true", login=False)).stdout_preview == ""


async def test_71_72_a_kernel_whose_group_is_killed_leaves_nothing(tmp_path: Path) -> None:
    kernel, marker = start_kernel(tmp_path, tmp_path / "state", "sleep 600 & setsid sleep 601 & wait")
    await eventually(lambda: len(alive(marker)) >= 3)
    kernel.kill()
    kernel.wait()
    await eventually(lambda: not alive(marker))


async def test_81_restarting_twice_reports_once(tmp_path: Path) -> None:
    kernel, _ = start_kernel(tmp_path, tmp_path / "state", "sleep 600")
    kernel.kill()
    kernel.wait()
    first = recover_all(tmp_path, SystemClock(), "another notebook", private=tmp_path / "state")
    assert first.tasks == (), "another notebook's person is not told"
    second = recover_all(tmp_path, SystemClock(), "notebook", private=tmp_path / "state")
    assert [task.status for task in second.tasks] == ["interrupted"]
    assert recover_all(tmp_path, SystemClock(), "notebook", private=tmp_path / "state").tasks == ()
    assert not list((tmp_path / "tasks").iterdir()), "nothing is left to look after"


async def test_82_a_process_number_that_was_reused_is_not_killed(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    private = tmp_path / "state"
    private.mkdir(mode=0o700)
    own = next(member for member in members() if member.pid == stranger.pid)
    boot = system.boot_id()
    for boot_id, ticks in (("00000000-fake", own.ticks), (boot, own.ticks + 1)):
        (private / "jobs-1").write_text(f"boot {boot_id}\nowner 999999 1\nmarker x:exec\n+{stranger.pid} {ticks}\n")
        sweep(private)
        assert stranger.poll() is None
        (private / "jobs-1").unlink(missing_ok=True)
    (private / "jobs-1").write_text(f"boot {boot}\nowner 999999 1\nmarker x:exec\n+{stranger.pid} {own.ticks}\n")
    sweep(private)
    assert stranger.wait(PATIENCE) == -15


async def test_84_stopping_an_ended_task_changes_nothing(desk: Desk) -> None:
    task = await desk.task("sleep 0.05")
    ended = await desk.end(task)
    for _ in range(3):
        assert await desk.service.stop(task, PERSON) == ended
    assert len(desk.results(task)) == 1


async def test_85_running_is_never_reported_after_the_end(make_desk: MakeDesk) -> None:
    desk = make_desk(snapshot_every=0.005)
    script = "while [ ! -e go ]; do sleep 0.01; done; for i in 1 2 3; do echo $i; sleep 0.01; done; : "
    tasks = [await desk.task(f"{script}{n}") for n in range(6)]
    (desk.directory / "go").touch()
    for task in tasks:
        await desk.end(task)
    for task in tasks:
        statuses = [event.task.status for event in desk.events if event.task.task_id == task]
        assert statuses == ["running", "completed"]
        revisions = [event.task.revision for event in desk.events if event.task.task_id == task]
        assert revisions == sorted(revisions)


async def test_86_a_hundred_parallel_tasks_meet_the_limit(desk: Desk) -> None:
    answers = await asyncio.gather(
        *(desk.start(f"exec sleep 67 # {n}", yield_time_ms=0) for n in range(100)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, TaskRefused)]
    assert len(refused) == 68
    assert {answer.kind for answer in refused} == {"task_limit_reached"}
    assert all(answer.retryable for answer in refused)
    assert (await desk.service.active(PERSON, 100)).total_active == 32
    assert len(desk.processes) == 32, "nothing runs for those that were refused"


async def test_an_agents_session_has_its_own_limit(make_desk: MakeDesk) -> None:
    desk = make_desk(per_session=2)
    for number in range(2):
        await desk.task(f"sleep 68; : {number}", AGENT)
    with pytest.raises(TaskRefused, match="of this session"):
        await desk.task("sleep 68; : more", AGENT)
    await desk.task("sleep 68; : more")


async def test_a_window_that_ends_at_the_limit_waits_for_a_place(make_desk: MakeDesk) -> None:
    desk = make_desk(at_once=1)
    waiting = asyncio.ensure_future(desk.start("echo second; touch up; sleep 69", yield_time_ms=1000))
    await appears(desk.directory / "up")
    first = await desk.task("sleep 70")
    wanting = desk.service._manager._waiting_for_place  # tasks whose window is over
    await eventually(lambda: wanting)
    assert not waiting.done()
    await desk.service.stop(first, PERSON)
    receipt = await waiting
    assert isinstance(receipt, CommandPromoted)
    assert receipt.initial_output_preview == "second\n"


async def test_a_window_that_ends_at_the_limit_is_refused_if_no_place_comes_free(make_desk: MakeDesk) -> None:
    desk = make_desk(at_once=1, patience=0.1)
    waiting = asyncio.ensure_future(desk.start("touch up; sleep 71", yield_time_ms=1000))
    await appears(desk.directory / "up")
    await desk.task("sleep 72")
    with pytest.raises(TaskRefused) as refused:
        await waiting
    assert refused.value.kind == "task_limit_reached"
    assert len(desk.processes) == 1


async def test_foreground_commands_wait_for_their_turn(make_desk: MakeDesk) -> None:
    desk = make_desk(foreground=2)
    log = desk.directory / "log"
    cmd = f"echo + >> {log}; sleep 0.05; echo - >> {log}; : "
    await asyncio.gather(*(desk.completed(cmd + str(n)) for n in range(6)))
    running = highest = 0
    for mark in log.read_text().split():
        running += 1 if mark == "+" else -1
        highest = max(highest, running)
    assert highest == 2


async def test_a_task_may_be_given_a_time(make_desk: MakeDesk) -> None:
    desk = make_desk(seconds=0.2)
    task = await desk.task("echo a; sleep 73")
    ended = await desk.end(task)
    assert (ended.status, ended.error) == ("failed", {"kind": "max_runtime", "message": "ended after 0.2 s"})
    assert not desk.processes


async def test_88_a_task_that_writes_for_long_is_bounded(make_desk: MakeDesk) -> None:
    desk = make_desk(log=30_000, snapshot_every=0.01)
    task = await desk.task("for i in $(seq 3000); do echo line $i of many that are written; done; sleep 0.1")
    ended = await desk.end(task)
    assert desk.run_directory is not None
    sizes = {path.name: path.stat().st_size for path in (desk.run_directory / "tasks").iterdir()}
    assert sum(size for name, size in sizes.items() if ".log" in name) <= 30_000
    assert sizes["tasks.sqlite"] < 200_000
    assert ended.output_summary == f"{ended.bytes_seen:,} bytes of output; the log keeps both ends"


async def test_89_the_engine_answers_while_tasks_are_busy(desk: Desk) -> None:
    tasks = [await desk.task(f"yes {number}") for number in range(4)]
    for number, task in enumerate(tasks):
        await desk.printed(task, f"{number}\n")
    for _ in range(30):
        assert (await desk.service.active(PERSON)).total_active == 4


async def test_90_twenty_stubborn_tasks_end_with_the_run_after_one_grace(make_desk: MakeDesk) -> None:
    desk = make_desk(shutdown_grace=HOUR)
    clock = Clock(desk.engine)
    command = "trap 'touch told{0}' TERM; echo up; while :; do sleep 0.1; done"
    tasks = [await desk.task(command.format(n)) for n in range(20)]
    for task in tasks:
        await desk.printed(task, "up")
    close = asyncio.create_task(desk.service.close())
    for n in range(20):
        await appears(desk.directory / f"told{n}")
    await clock.forward(HOUR / 2)
    assert not close.done() and len(desk.processes) >= 20
    await clock.forward(HOUR / 2)
    await end_of(close)
    assert not desk.processes


@pytest.mark.linux
async def test_a_command_of_an_agent_does_not_begin_after_the_run_has_ended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its confinement is planned in a thread while the run ends."""
    plans, go, guard_only = threading.Event(), threading.Event(), monitored.guard_only

    def plan(identity: Identity) -> monitored.Plan | None:
        plans.set()
        go.wait(PATIENCE)
        return guard_only(identity)

    monkeypatch.setattr(monitored, "guard_only", plan)
    starts = asyncio.create_task(desk.start("sleep 60", AGENT, yield_time_ms=0))
    await eventually(plans.is_set)
    await desk.service.close()
    go.set()
    with pytest.raises(TaskRefused, match="the run has ended"):
        await starts
    assert not desk.processes


async def test_a_task_that_was_asked_to_end_is_cancelled_even_when_the_run_ends(make_desk: MakeDesk) -> None:
    """A task being cancelled ends as `cancelled`, and its longer grace does not delay the run's end."""
    desk = make_desk(grace=60.0, shutdown_grace=0.3)
    stopped = await desk.task("trap '' TERM; echo up; while :; do sleep 0.05; done")
    running_on = await desk.task("trap '' TERM; echo up; while :; do sleep 0.06; done")
    for task in (stopped, running_on):
        await desk.printed(task, "up")
    await desk.service.stop(stopped, PERSON)
    began = time.monotonic()
    await desk.service.close()
    assert time.monotonic() - began < PATIENCE
    assert not desk.processes
    store = Store(desk.run_directory)
    kept = {record.task_id: record for record in store.all()}
    assert (kept[stopped].status, kept[stopped].signal, kept[stopped].cancelled_reason) == (
        "cancelled",
        "SIGKILL",
        "stop",
    )
    assert (kept[running_on].status, kept[running_on].interrupted_reason) == ("interrupted", "runtime_shutdown")
    assert sorted(task for task, _ in stored_results(store)) == sorted((stopped, running_on))
    store.close()


async def test_96_101_a_missing_directory_has_its_own_error(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for wrong in ("gone", "file", "/no/such"):
        with pytest.raises(TaskRefused) as refused:
            await desk.start("true", workdir=wrong)
        assert refused.value.kind == "workdir_not_found"
        assert str(tmp_path) not in refused.value.message


async def test_a_store_that_cannot_be_written_ends_the_command(make_desk: MakeDesk, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tasks").write_text("in the way")
    desk = make_desk()
    with pytest.raises(TaskRefused) as refused:
        await desk.start("sleep 74", yield_time_ms=0)
    assert refused.value.kind == "task_store_failed"
    assert not desk.processes
    assert (await desk.completed("echo short")).stdout_preview == "short\n"


async def test_a_record_that_cannot_be_kept_later_does_not_hurt_the_task(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await desk.task("until test -e go; do sleep 0.01; done; echo fine")
    original = Store.save

    def broken(*_: object) -> None:
        raise StoreError("disk i/o error")

    monkeypatch.setattr(Store, "save", broken)
    (desk.directory / "go").touch()
    ended = await desk.end(task)
    assert ended.status == "completed"
    assert (await desk.status(task)).status == "completed", "memory remembers"
    monkeypatch.setattr(Store, "save", original)
    await desk.service.close()
    store = Store(desk.run_directory)
    assert store.all()[0].status == "completed", "and writes it when it can"
    assert len(stored_results(store)) == 1
    store.close()


async def test_without_a_directory_everything_is_in_memory(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk(on_disk=False)
    task = await desk.task("echo kept; sleep 0.1")
    output = await desk.service.output(task, PERSON)
    assert (output.preview, output.artifact) == ("kept\n", None)
    assert [each.status for each in await desk.service.history()] == ["completed"]
    assert list(tmp_path.iterdir()) == []


async def test_a_long_output_of_a_short_command_is_an_artifact(desk: Desk) -> None:
    receipt = await desk.completed("seq 20000", max_output_tokens=100)
    assert receipt.stdout_truncated
    assert receipt.stdout_preview.startswith("1\n2\n")
    assert receipt.stdout_preview.endswith("19999\n20000\n")
    (artifact,) = receipt.artifacts
    assert desk.run_directory is not None
    assert (desk.run_directory / artifact).read_text().count("\n") == 20000


async def test_a_command_with_short_output_leaves_no_file(desk: Desk) -> None:
    await desk.completed("echo hello")
    assert desk.run_directory is not None
    assert not desk.run_directory.exists()


async def test_live_output_comes_while_it_runs_and_stops_at_the_promotion(desk: Desk) -> None:
    seen: list[str] = []
    receipt = await desk.start(
        "echo first; until test -e go; do sleep 0.01; done; echo second", PERSON, lambda _, text: seen.append(text),
        yield_time_ms=300,
    )  # fmt: skip
    assert isinstance(receipt, CommandPromoted)
    (desk.directory / "go").touch()
    await desk.end(receipt.task_id)
    assert seen == ["first\n"]


async def test_14_a_listener_that_raises_changes_nothing(desk: Desk) -> None:
    def listener(event: object) -> None:
        raise RuntimeError("badly written")

    desk.service.subscribe(listener)
    task = await desk.task("sleep 0.05")
    assert (await desk.end(task)).status == "completed"
    assert isinstance(await desk.start("true"), CommandCompleted)


async def test_events_are_kept_with_their_records(desk: Desk) -> None:
    task = await desk.task("sleep 0.05; exit 3")
    await desk.end(task)
    await desk.service.close()
    store = Store(desk.run_directory)
    kinds = [(kind, json.loads(data)["status"]) for kind, _, data in stored_events(store)]
    assert kinds == [("TaskStatus", "running"), ("TaskResult", "failed")]
    assert store.unreported()[0] == replace(store.all()[0])
    store.close()


def test_a_closed_run_starts_nothing(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from prose_kernel.processes.engine import Engine\nfrom prose_kernel.processes.tasks.service import TaskService\n"
        "from prose_kernel.runtime.clock import SystemClock\nfrom prose_kernel.runtime.services import TaskCaller\n"
        "from prose_kernel.errors import TaskRefused\n"
        "async def main():\n"
        "    engine = Engine(state_dir=Path(sys.argv[1]))\n"
        "    service = TaskService(engine, None, sys.argv[1], SystemClock())\n"
        "    await service.start({'cmd': 'sleep 75', 'yield_time_ms': 0}, TaskCaller())\n"
        "    waiting = asyncio.ensure_future(service.output('1', TaskCaller()))\n"
        "    await asyncio.sleep(0)\n"
        "    engine.close()\n"
        "    for work in (waiting, service.start({'cmd': 'true'}, TaskCaller())):\n"
        "        try:\n            print((await work).task.status)\n"
        "        except TaskRefused as refused:\n            print(refused.kind)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False, timeout=30,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.stdout.split()[-1] == "runtime_closed", done.stderr
