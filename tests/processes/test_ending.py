"""How commands end: limits, interrupts, cancellation (exec-and-tasks.md 1.2; hazards 19 to 38, 75, 76)."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import signal
import threading
import time
from pathlib import Path

import pytest
from processes.conftest import HOUR, Clock, Runner, end_of, marked, named
from waiting import PATIENCE, appears, eventually, until

from prose_kernel.processes import system
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.process_table import member_of
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.processes.termination import GRACE as GRACE_FOR_USERS
from prose_kernel.processes.termination import ladder
from prose_kernel.runtime.ports import CommandRequest

IMMUNE = "trap '' INT TERM; touch ready{}; while :; do sleep 0.05; done"
"""A command that only KILL ends."""


async def test_the_table_of_exit_codes(run: Runner) -> None:
    """1.2, the `exec` column; also acceptance 1 of 2.11 (the machine's tests cover its `on-fail` half)."""
    seven = await run("exit 7")
    assert (seven.outcome, seven.exit_code, seven.kind, seven.signal) == ("exited", 7, "exit", None)
    inner = await run("sh -c 'kill -TERM $$'; exit $?")
    assert (inner.outcome, inner.exit_code, inner.kind, inner.signal) == ("exited", 143, "exit", None)
    killed = await run("kill -KILL $$")
    assert (killed.outcome, killed.exit_code, killed.kind, killed.signal) == ("signaled", 137, "signal", "SIGKILL")
    assert (await run("no_such_program_anywhere")).exit_code == 127
    (run.directory / "plain").write_text("not a program")
    assert (await run("./plain")).exit_code == 126
    fine = await run("echo warning >&2")
    assert (fine.exit_code, fine.kind, fine.stderr) == (0, None, "warning\n")
    third = await run("exit 3")
    assert (third.exit_code, third.kind) == (3, "exit")


async def test_acceptance_4_the_time_limit(run: Runner, engine: Engine, clock: Clock) -> None:
    printed = asyncio.Event()
    task = run.start("echo before; sleep 600", lambda stream, text: printed.set(), timeout=HOUR)
    await printed.wait()
    await clock.forward(HOUR / 2)
    assert not task.done()
    await clock.forward(HOUR / 2)
    result = await end_of(task)
    assert HOUR <= result.duration < 1.5 * HOUR  # without the grace, because the command obeys
    assert (result.outcome, result.exit_code, result.kind) == ("timed_out", 124, "timeout")
    assert (result.timed_out, result.signal, result.stdout) == (True, None, "before\n")
    assert result.cwd_after is None
    assert marked(engine.marker) == []


def test_users_get_two_seconds_between_the_steps() -> None:
    assert GRACE_FOR_USERS == 2.0
    names = {
        outcome: [(step.signal.name, step.grace) for step in ladder(outcome).steps]
        for outcome in ("timed_out", "cancelled", "interrupted")
    }
    assert names == {
        "timed_out": [("SIGTERM", 2.0), ("SIGKILL", 2.0)],
        "cancelled": [("SIGTERM", 2.0), ("SIGKILL", 2.0)],
        "interrupted": [("SIGINT", 2.0), ("SIGTERM", 2.0), ("SIGKILL", 2.0)],
    }


async def test_hazard_19_term_ignored(run: Runner, clock: Clock) -> None:
    task = run.start(IMMUNE.format(""), timeout=HOUR)
    await appears(run.directory / "ready")
    await clock.forward(HOUR)
    await clock.forward(HOUR / 2)
    assert not task.done()
    await clock.forward(HOUR / 2)
    result = await end_of(task)
    assert result.outcome == "timed_out"
    assert 2 * HOUR <= result.duration < 2.5 * HOUR


async def test_hazard_20_the_leader_obeys_and_its_sibling_does_not(run: Runner, engine: Engine, clock: Clock) -> None:
    task = run.start("(trap '' TERM; touch ready; sleep 600; sleep 600) & sleep 600", timeout=HOUR)
    await appears(run.directory / "ready")
    await clock.forward(HOUR)
    if not system.LINUX:  # elsewhere it gets its grace: whether it ignores TERM is unknown
        await clock.forward(HOUR)
    result = await end_of(task)
    assert result.outcome == "timed_out"
    assert result.background_left == 0
    assert marked(engine.marker) == []


async def test_hazard_21_a_stopped_process_is_ended(run: Runner, clock: Clock) -> None:
    task = run.start("echo $$ >pid; mv pid ready; kill -STOP $$; sleep 600", timeout=HOUR)
    await appears(run.directory / "ready")
    stat = Path("/proc") / (run.directory / "ready").read_text().strip() / "stat"
    await eventually(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))
    await clock.forward(HOUR)
    assert (await end_of(task)).outcome == "timed_out"  # without the grace


async def test_hazard_22_a_background_job_immune_to_int(run: Runner, engine: Engine, clock: Clock) -> None:
    task = run.start("sleep 600 & wait")
    await eventually(lambda: named(engine.marker, "sleep"))
    run.commands.interrupt()
    assert (await end_of(task)).outcome == "interrupted"  # without the grace
    assert marked(engine.marker) == []


async def test_hazard_23_a_program_that_cleans_up_keeps_its_exit_code_and_last_output(
    run: Runner, engine: Engine
) -> None:
    engine.grace = 30.0
    task = run.start("trap 'sleep .1; echo bye; exit 7' INT; touch ready; while :; do sleep 0.02; done")
    await appears(run.directory / "ready")
    run.commands.interrupt()
    result = await task
    assert (result.outcome, result.exit_code, result.stdout) == ("interrupted", 7, "bye\n")
    assert result.cwd_after is None


async def test_hazard_24_a_program_that_exits_with_0_at_the_limit_has_timed_out(run: Runner) -> None:
    result = await run("trap 'exit 0' TERM; while :; do sleep 0.02; done", timeout=0.3)
    assert (result.outcome, result.exit_code, result.timed_out) == ("timed_out", 124, True)


async def test_hazard_25_exit_and_limit_in_the_same_instant_have_one_outcome(run: Runner) -> None:
    results = []
    for _ in range(5):
        results += await asyncio.gather(*(run("sleep 0.1", timeout=0.1 + 0.001 * index) for index in range(20)))
    for result in results:
        assert (result.outcome, result.exit_code, result.kind, result.timed_out) in {
            ("exited", 0, None, False),
            ("timed_out", 124, "timeout", True),
        }


async def test_hazard_26_a_kill_from_outside_is_reported_as_such(run: Runner) -> None:
    task = run.start("echo $$ >pid; mv pid ready; sleep 30")
    await appears(run.directory / "ready")
    leader = int((run.directory / "ready").read_text())
    os.killpg(leader, signal.SIGKILL)
    result = await task
    assert (result.outcome, result.exit_code, result.kind, result.signal) == ("signaled", 137, "signal", "SIGKILL")


async def test_hazard_28_sigpipe_is_at_its_default(run: Runner) -> None:
    result = await run("yes | head -1; echo ${PIPESTATUS[0]}")
    assert (result.stdout, result.stderr) == ("y\n141\n", "")


async def test_hazard_29_an_ignored_sigchld_is_reported_never_exit_0(run: Runner) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        result = await run("exit 3")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (result.outcome, result.exit_code, result.kind) == ("spawn_failed", 127, "spawn")
    assert result.stderr == "SIGCHLD is ignored in this process: exit codes would be lost"
    assert (await run("exit 3")).exit_code == 3


async def test_hazard_29_a_stolen_status_is_reported_never_exit_0(run: Runner) -> None:
    stop = threading.Event()

    def steal() -> None:
        while not stop.is_set():
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                continue

    thread = threading.Thread(target=steal)
    thread.start()
    try:
        results = [await run("sleep 0.02; exit 3") for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    stolen = [result for result in results if result.outcome == "spawn_failed"]
    assert stolen
    assert {result.stderr for result in stolen} == {"the exit code was taken by another part of this process"}
    assert {result.exit_code for result in results} <= {3, 127}


async def test_hazard_34_two_hundred_children_are_all_gone_after_the_limit(run: Runner, engine: Engine) -> None:
    result = await run("for i in $(seq 200); do sleep 30 & done; wait", timeout=1.0)
    assert (result.outcome, result.background_left) == ("timed_out", 0)
    assert marked(engine.marker) == []


async def test_hazard_35_a_process_that_leaves_the_session_is_not_ended(run: Runner) -> None:
    task = run.start("setsid sleep 7.35 & echo $! >pid; mv pid ready; sleep 30", timeout=0.5)
    await appears(run.directory / "ready")
    result = await task
    detached = int((run.directory / "ready").read_text())
    assert result.outcome == "timed_out"
    os.kill(detached, signal.SIGKILL)  # raises if it were gone


async def test_groups_inside_the_session_end_with_the_command(run: Runner, engine: Engine) -> None:
    """`timeout` and job control make new groups, but do not leave the session."""
    result = await run("set -m; timeout 30 sleep 30 & timeout 30 sleep 30", timeout=0.5)
    assert (result.outcome, result.background_left) == ("timed_out", 0)
    assert marked(engine.marker) == []


async def test_hazard_38_a_file_size_limit_does_not_touch_the_capture(run: Runner) -> None:
    result = await run("ulimit -f 0; echo hi; echo x >file", track=True)
    assert result.stdout == "hi\n"
    assert result.exit_code != 0


async def test_hazard_75_ten_stubborn_branches_cost_one_ladder(run: Runner, engine: Engine, clock: Clock) -> None:
    tasks = [run.start(IMMUNE.format(index)) for index in range(10)]
    for index in range(10):
        await appears(run.directory / f"ready{index}")
    with clock.stopped():  # TERM follows immediately after an interrupt that all ignore
        run.commands.interrupt()
        await clock.forward(HOUR)
        await clock.forward(HOUR / 2)
        assert not any(task.done() for task in tasks)
        await clock.forward(HOUR / 2)
    assert {(await end_of(task)).outcome for task in tasks} == {"interrupted"}
    assert marked(engine.marker) == []


async def test_a_process_that_ignores_an_interrupt_gets_no_grace_after_its_leader(
    run: Runner, engine: Engine, clock: Clock
) -> None:
    """A shell starts its background jobs with INT ignored, so there is no reason to wait for them."""
    task = run.start("sh -c 'sleep 600 & sleep 600; wait'")
    await eventually(lambda: named(engine.marker, "sleep") == 2)
    run.commands.interrupt()
    assert (await end_of(task)).outcome == "interrupted"


@pytest.mark.linux  # elsewhere a process's handling of signals is unknown: each gets the grace after TERM
async def test_a_process_that_handles_the_signal_keeps_its_grace_after_its_leader(
    run: Runner, engine: Engine, clock: Clock
) -> None:
    script = "trap 'sleep 0.3; touch cleaned; exit' TERM; touch ready; while :; do sleep 0.05; done"
    task = run.start(f"bash -c {shlex.quote(script)} & exec tail -f /dev/null")
    await appears(run.directory / "ready")
    await eventually(lambda: named(engine.marker, "tail"))
    run.commands.interrupt()
    assert (await end_of(task)).outcome == "interrupted"
    assert (run.directory / "cleaned").exists()


async def test_hazard_76_a_second_interrupt_kills_immediately(run: Runner, clock: Clock) -> None:
    task = run.start(IMMUNE.format(""))
    await appears(run.directory / "ready")
    run.commands.interrupt()
    run.commands.interrupt()
    result = await end_of(task)
    assert (result.outcome, result.exit_code) == ("interrupted", 137)


async def test_obedient_children_end_immediately_on_an_interrupt(run: Runner, engine: Engine) -> None:
    engine.grace = 30.0  # the INT ends them, as the exit code shows, and no later step
    tasks = [run.start("sleep 30") for _ in range(4)]
    # an INT between a shell's fork and exec would be lost by the shell
    await eventually(lambda: named(engine.marker, "sleep") == 4)
    run.commands.interrupt()
    results = await asyncio.gather(*tasks)
    assert {(result.outcome, result.exit_code, result.kind) for result in results} == {("interrupted", 130, "signal")}


async def test_an_interrupt_does_not_touch_later_commands(run: Runner) -> None:
    run.commands.interrupt()
    assert (await run("echo fine")).stdout == "fine\n"


async def test_cancelling_ends_the_group_before_the_call_ends(run: Runner, engine: Engine, clock: Clock) -> None:
    command = "trap '' TERM; (trap '' TERM; sleep 600; sleep 600) & touch ready; while :; do sleep 0.05; done"
    task = run.start(command)
    await appears(run.directory / "ready")
    task.cancel()
    for _ in range(2):
        await clock.forward(HOUR / 3)
        assert not task.done()
        task.cancel()
    await clock.forward(HOUR / 2)
    with pytest.raises(asyncio.CancelledError):
        await end_of(task)
    assert marked(engine.marker) == []


async def test_cancelling_after_an_interrupt_lets_its_ladder_continue(run: Runner, engine: Engine) -> None:
    """The workspace does this: the program gets its INT and its time, and the call ends as cancelled."""
    engine.grace = 30.0
    task = run.start("trap 'sleep .1; touch cleaned; exit 7' INT; touch ready; while :; do sleep 0.02; done")
    await appears(run.directory / "ready")
    run.commands.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (run.directory / "cleaned").exists()


async def test_cancelling_before_the_start_leaves_no_process(run: Runner, engine: Engine) -> None:
    """Hazard 54: a child is not started, or it is ended."""
    tasks = [run.start("touch started; sleep 30") for _ in range(20)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    assert marked(engine.marker) == []


async def test_hazard_54_a_storm_of_interrupts_around_the_spawn(run: Runner, engine: Engine) -> None:
    async def storm() -> None:
        for _ in range(300):
            run.commands.interrupt()
            await asyncio.sleep(0.001)

    storming = asyncio.create_task(storm())
    outcomes = set()
    while not storming.done():
        outcomes |= {result.outcome for result in await asyncio.gather(*(run("sleep 0.01") for _ in range(5)))}
    assert outcomes <= {"exited", "interrupted", "signaled"}
    assert marked(engine.marker) == []


async def test_cancelling_a_draining_command_ends_its_leftover_processes(run: Runner, engine: Engine) -> None:
    task = run.start("echo $$ > leader; (while :; do echo x; sleep .02; done) & touch ready")
    await appears(run.directory / "ready")
    leader = int((run.directory / "leader").read_text())
    await eventually(lambda: member_of(leader) is None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert marked(engine.marker) == []


async def test_hazard_33_changes_of_the_wall_clock_have_no_effect(
    run: Runner, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    # bash loses a TERM that reaches its child before that becomes `sleep`; only KILL would end it
    started = 'sleep 600 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; touch ready; wait'
    task = run.start(started, timeout=HOUR)
    await appears(run.directory / "ready")
    await clock.forward(HOUR)
    result = await end_of(task)
    assert result.outcome == "timed_out"
    assert HOUR <= result.duration < 1.5 * HOUR


def test_a_caller_with_a_closed_loop_leaves_no_process(engine: Engine) -> None:
    """The loop is closed during the call: the next output of the command ends it."""
    commands = ShellCommands(engine, "bash")
    loop = asyncio.new_event_loop()
    request = CommandRequest("while :; do echo x; sleep 0.05; done", "/", 60.0)
    printed = loop.create_future()
    task = loop.create_task(commands.run(request, lambda stream, text: printed.done() or printed.set_result(text)))
    loop.run_until_complete(printed)
    loop.close()
    until(lambda: marked(engine.marker) == [])
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_caller_with_a_closed_loop_leaves_no_process_that_waits_for_a_reader(engine: Engine, tmp_path: Path) -> None:
    """The loop is closed with output that it was told of, and all buffers are full."""
    commands = ShellCommands(engine, "bash")
    loop = asyncio.new_event_loop()
    request = CommandRequest("echo x; until [ -e go ]; do sleep 0.01; done; yes", str(tmp_path), HOUR)
    printed = loop.create_future()
    task = loop.create_task(commands.run(request, lambda stream, text: printed.done() or printed.set_result(text)))
    loop.run_until_complete(printed)
    told, tell = threading.Event(), loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *arguments, **more: (tell(*arguments, **more), told.set())[0]  # type: ignore[method-assign]
    (tmp_path / "go").touch()
    assert told.wait(PATIENCE)
    loop.close()
    until(lambda: marked(engine.marker) == [])
    task._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_a_process_that_survives_kill_is_abandoned_counted_and_reaped_later(
    run: Runner, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals without effect simulate a process in uninterruptible sleep or of another user."""
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: sent.append(number))
    printed = asyncio.Event()
    task = run.start("echo $$; exec sleep 600", lambda stream, text: printed.set(), timeout=HOUR)
    await printed.wait()
    await clock.forward(HOUR)
    await clock.forward(HOUR)
    await clock.forward(2.0)  # after KILL there is no wait of an hour
    result = await end_of(task)
    assert sent.index(signal.SIGTERM) < sent.index(signal.SIGKILL)
    assert (result.outcome, result.exit_code, result.background_left) == ("timed_out", 124, 1)
    monkeypatch.undo()
    leader = int(result.stdout)
    os.kill(leader, signal.SIGKILL)
    await eventually(lambda: not Path(f"/proc/{leader}").exists(), what="no zombie stays")


async def test_without_pidfd_a_thread_sees_the_exit(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(os, "pidfd_open", refused)
    assert (await run("echo hi; exit 3")).exit_code == 3
    assert (await run("sleep 30", timeout=0.2)).outcome == "timed_out"
    left = await run("sleep 60 & echo hi")
    assert (left.pipes_held, left.background_left) == (True, 1)


@pytest.mark.linux
async def test_a_signal_that_was_lost_is_sent_again(run: Runner, engine: Engine, commands: ShellCommands) -> None:
    """A child has the signal handlers of its parent shell until it executes its program."""
    engine.grace = 30.0  # an INT ends it, as the exit code shows, and no later step
    program = (
        "import os, signal; signal.signal(signal.SIGINT, lambda *_: os.execvp('sleep', ['sleep', '60']));"
        "print('ready', flush=True); [signal.sigtimedwait([], 0.01) for _ in range(6000)]"
    )
    ready = asyncio.Event()
    running = run.start(f'python3 -c "{program}"; true', lambda stream, text: ready.set())
    await ready.wait()
    commands.interrupt()
    result = await running
    assert (result.outcome, result.exit_code) == ("interrupted", 130)


async def test_a_command_that_resets_its_handler_to_clean_up_gets_no_second_signal(
    run: Runner, engine: Engine, commands: ShellCommands
) -> None:
    """A second interrupt would end it, but there was only one."""
    engine.grace = 30.0
    program = (
        "import os, signal, sys, time\n"
        "def stop(*_):\n"
        "    signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "    time.sleep(0.2)\n"
        "    print('cleaned', flush=True)\n"
        "    sys.exit(7)\n"
        "signal.signal(signal.SIGINT, stop)\n"
        "os.write(1, b'ready\\n')\n"
        "time.sleep(60)\n"
    )
    (run.directory / "program.py").write_text(program)
    ready = asyncio.Event()
    running = run.start("python3 program.py; exit $?", lambda stream, text: ready.set())
    await ready.wait()
    commands.interrupt()
    result = await running
    assert (result.outcome, result.stdout, result.exit_code) == ("interrupted", "ready\ncleaned\n", 7)
