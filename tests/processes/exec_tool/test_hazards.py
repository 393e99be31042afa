"""Hazards of docs/contributing/reliability.md that concern `Exec` and have no other test in this directory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from processes.exec_tool.conftest import SYSTEM, Bench, ended, needs_scopes, program, result
from waiting import PATIENCE, appears, eventually, processes, until

from prose_kernel.processes import system
from prose_kernel.processes.exec_tool.audit import AuditLog, display
from prose_kernel.processes.exec_tool.tool import Dispatcher, ExecTool
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.process_table import below, members

HOST = Path(__file__).with_name("host.py")

# ---------------------------------------------------------------- output


async def test_hazard_1_a_flood_on_both_streams_at_the_same_time(bench: Bench) -> None:
    code = "import os\nfor _ in range(500):\n    os.write(1, b'o' * 65536); os.write(2, b'e' * 65536)"
    answer = result(await bench.python(code))
    assert answer["stdout"] == "o" * 262_144 and answer["stderr"] == "e" * 262_144
    (event,) = bench.events("finished")
    assert event["stdout_bytes"] == event["stderr_bytes"] == 500 * 65536


async def test_hazard_3_a_background_child_that_keeps_the_pipes(bench: Bench) -> None:
    began = time.monotonic()
    answer = result(await bench("/bin/sh", "-c", "sleep 82.1 & echo hi"))
    assert (answer["stdout"], answer["timed_out"], answer["background_killed"]) == ("hi\n", False, 1)
    assert time.monotonic() - began < PATIENCE and processes("sleep 82.1") == []


async def test_hazard_6_both_streams_closed_early(bench: Bench) -> None:
    answer = result(await bench("/bin/sh", "-c", "exec >&- 2>&-; sleep 83.1", timeout_s=1))
    assert answer["timed_out"] and processes("sleep 83.1") == []


async def test_hazard_7_a_character_split_over_writes(bench: Bench) -> None:
    code = "import os, time\nfor b in '\\U0001f600\\u00e9'.encode():\n    os.write(1, bytes([b])); time.sleep(0.02)"
    assert result(await bench.python(code))["stdout"] == "\U0001f600\u00e9"


async def test_hazard_11_nul_bytes_are_kept(bench: Bench) -> None:
    assert result(await bench("/usr/bin/printf", r"a\0b"))["stdout"] == "a\0b"


async def test_hazard_13_many_tiny_writes(bench: Bench) -> None:
    code = "import os\nfor _ in range(50_000): os.write(1, b'x')"
    assert result(await bench.python(code))["stdout"] == "x" * 50_000


# ---------------------------------------------------------------- exit, signals, time


async def test_hazard_19_term_ignored(bench: Bench) -> None:
    began = time.monotonic()
    answer = result(await bench("/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", timeout_s=1))
    assert answer["timed_out"] and answer["exit_code"] == -9 and 1.9 < time.monotonic() - began < PATIENCE


async def test_hazard_20_the_leader_ends_and_its_sibling_holds_the_pipe(bench: Bench) -> None:
    """Defects U1 and U2."""
    began = time.monotonic()
    script = "(trap '' TERM; sleep 84.1) & setsid sleep 84.2 & sleep 84.3"
    assert result(await bench("/bin/sh", "-c", script, timeout_s=1))["timed_out"]
    assert time.monotonic() - began < PATIENCE and processes("sleep 84.") == []


async def test_hazard_24_term_caught_and_exit_0_at_the_limit(bench: Bench) -> None:
    answer = result(
        await bench("/bin/sh", "-c", "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done", timeout_s=1)
    )
    assert (answer["timed_out"], answer["exit_code"], answer["stdout"]) == (True, 0, "bye\n")


async def test_hazards_27_28_dispositions_and_mask(bench: Bench) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        status = str(result(await bench("/bin/cat", "/proc/self/status"))["stdout"])
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    fields = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    of_the_c_library = 0b11 << 31  # signals 32 and 33, which no program can set
    assert int(fields["SigIgn"], 16) & ~of_the_c_library == int(fields["SigBlk"], 16) == 0


async def test_hazards_31_32_nothing_grows(bench: Bench) -> None:
    agent = bench.agent(*SYSTEM)

    async def some(count: int) -> tuple[int, int]:
        for number in range(count):
            path = "/bin/true" if number % 3 else "/usr/bin/no-such-program"
            await bench(path, agent=agent, cwd="/usr")
        await eventually(lambda: zombies() == [], what="a child that ended is not reaped")
        # the loop's pool grows by itself, up to its own limit
        threads = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
        return len(list(Path("/proc/self/fd").iterdir())), len(threads)

    def children() -> list[str]:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

    def zombies() -> list[str]:
        new = [pid for pid in children() if pid not in there]
        return [pid for pid in new if state(pid) == "Z"]

    def state(pid: str) -> str:
        with suppress(OSError):  # it was reaped
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0]
        return ""

    there = set(children())  # left by other tests of this process
    before = await some(10)
    assert await some(30) <= before


async def test_hazard_33_the_wall_clock_is_not_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert not result(await bench("/bin/true"))["timed_out"]


async def test_hazard_37_too_little_memory_is_reported_by_the_program(bench: Bench) -> None:
    bench.use(memory=4 * 1024 * 1024)
    outcome = await bench.python("print(1)")
    assert not outcome.ok or outcome.result["exit_code"] != 0


async def test_hazard_38_the_file_limit_does_not_touch_the_output(bench: Bench) -> None:
    bench.use(file_bytes=1)
    answer = result(await bench("/bin/dd", "if=/dev/zero", "bs=1M", "count=3", max_output_bytes=4_194_304))
    assert len(str(answer["stdout"])) == 3 * 1024 * 1024 and answer["exit_code"] == 0


# ---------------------------------------------------------------- starting


async def test_hazard_40_the_directory(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("missing", "file"):
        outcome = await bench("/bin/true", cwd=str(tmp_path / place))
        assert outcome.error == "tool_failed" and "cwd" in outcome.message


async def test_hazard_46_a_missing_interpreter(bench: Bench, tmp_path: Path) -> None:
    for text in ("#!/no/such\n", "#!/bin/sh\r\necho x\n"):
        outcome = await bench(str(program(tmp_path / "script", text)))
        assert outcome.error == "tool_failed" and "interpreter" in outcome.message


async def test_hazard_47_a_program_open_for_writing(bench: Bench, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(Path("/bin/true").resolve().read_bytes())
    tool.chmod(0o755)
    with tool.open("ab"):
        outcome = await bench(str(tool))
    assert outcome.error == "tool_failed" and "ETXTBSY" in outcome.message


async def test_hazard_49_no_descriptors_left(bench: Bench) -> None:
    import resource

    assert result(await bench("/bin/true"))["exit_code"] == 0
    agent = bench.agent(*SYSTEM)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 20, hard))
    held: list[int] = []
    try:
        with suppress(OSError):  # the limit is a maximum number, so free descriptors below it are taken, too
            while True:
                held.append(os.dup(0))
        for _ in range(4):
            os.close(held.pop())
        outcome = await bench("/bin/true", agent=agent, cwd="/usr")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
    assert outcome.error in ("tool_failed", "fs_denied")
    assert len(list(Path("/proc/self/fd").iterdir())) <= opened
    assert result(await bench("/bin/true", agent=agent, cwd="/usr"))["exit_code"] == 0


async def test_hazard_54_cancelled_during_the_start(bench: Bench) -> None:
    agent = bench.agent(*SYSTEM)
    for number in range(12):
        call = asyncio.ensure_future(bench("/bin/sleep", "85.1", agent=agent, cwd="/usr"))
        await asyncio.sleep(number * 0.004)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert processes("sleep 85.1") == []


# ---------------------------------------------------------------- environment and terminal


async def test_hazards_55_56_no_input_and_no_terminal(bench: Bench) -> None:
    script = "read x || echo eof; (: </dev/tty) 2>/dev/null || echo no terminal"
    assert result(await bench("/bin/sh", "-c", script))["stdout"] == "eof\nno terminal\n"


async def test_hazard_58_umask_is_its_own(bench: Bench) -> None:
    before = os.umask(0o077)
    try:
        answer = result(await bench("/bin/sh", "-c", "umask"))
    finally:
        os.umask(before)
    assert answer["stdout"] == "0022\n"


async def test_hazard_63_no_stale_directory_in_the_environment(bench: Bench) -> None:
    bench.environment["PWD"] = "/stale"
    assert "PWD" not in str(result(await bench("/usr/bin/env"))["stdout"])


async def test_hazard_64_a_program_goes_before_the_kernel_when_memory_runs_out(bench: Bench) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(str(result(await bench("/bin/cat", "/proc/self/oom_score_adj"))["stdout"])) == min(1000, own + 300)


# ---------------------------------------------------------------- life of the kernel


@pytest.mark.parametrize("also", ["", "monitor", "guards"])
def test_hazards_71_72_the_kernel_is_killed(tmp_path: Path, also: str) -> None:
    """The guard ends the program, even without the monitor. The watchdog ends it if the guard is killed too."""
    script = "(trap '' TERM INT HUP; sleep 86.1) & setsid sleep 86.2 & touch ready; sleep 86.3"
    if also == "guards":
        script = (
            "(trap '' TERM INT HUP; sleep 86.1) & touch ready; sleep 86.3"  # a process in another session would survive
        )
    host = subprocess.Popen(
        [sys.executable, str(HOST), str(tmp_path / "state"), str(tmp_path), "/bin/sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until((tmp_path / "ready").exists)
        pids = processes("sleep 86.")
        ours = [m for m in below((host.pid,), members()) if b"monitor_process" in cmdline(m.pid)]
        (monitor,) = [m.pid for m in ours if m.parent == host.pid]
        killed = {"": [], "monitor": [monitor], "guards": [m.pid for m in ours]}[also]
        if also == "guards":
            # the watchdog knows of it before it runs
            until(lambda: any(b"watchdog_process" in cmdline(m.pid) for m in members() if m.parent == host.pid))
        for pid in killed:
            os.kill(pid, signal.SIGSTOP)
        os.kill(host.pid, signal.SIGKILL)
        for pid in killed:
            with suppress(ProcessLookupError):  # a spare ends with the monitor
                os.kill(pid, signal.SIGKILL)
        host.wait()
        assert ended([*pids, *(m.pid for m in ours)])
    finally:
        host.kill()
        for pid in processes("sleep 86."):
            os.kill(pid, signal.SIGKILL)


def test_detached_processes_end_if_the_kernel_is_killed_before_it_has_read_all_reports(tmp_path: Path) -> None:
    """The guard's end of the socket has an error then, and not only an end."""
    script = "(setsid env -i sleep 89.1 &) ; touch ready; sleep 89.1"
    host = subprocess.Popen(
        [sys.executable, str(HOST), str(tmp_path / "state"), str(tmp_path), "/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert host.stdin is not None and host.stdout is not None

    def started() -> list[int]:
        """The processes that wait for their program, or have become it."""
        return [child for guard in system.children(monitor) for child in system.children(guard)]

    try:
        host.stdout.readline()
        (monitor,) = [m.pid for m in members() if m.parent == host.pid and b"monitor_process" in cmdline(m.pid)]
        until(started)
        guards = system.children(monitor)
        for guard in guards:
            os.kill(guard, signal.SIGSTOP)
        host.stdin.write(b"\n")
        host.stdin.flush()
        until(lambda: any(os.path.realpath(f"/proc/{pid}/fd/1") != os.devnull for pid in started()))
        os.kill(host.pid, signal.SIGSTOP)
        for guard in guards:
            os.kill(guard, signal.SIGCONT)
        until((tmp_path / "ready").exists)
        pids = [m.pid for m in below((host.pid,), members())]
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
        assert ended([*pids, *processes("sleep 89.")])
    finally:
        host.kill()
        host.communicate()
        for pid in processes("sleep 89."):
            os.kill(pid, signal.SIGKILL)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_hazard_90_the_engine_closes_with_stubborn_programs(own_bench: Bench) -> None:
    script = "trap '' TERM; touch ready{0}; sleep 87.{0}; sleep 87.{0}"
    calls = [asyncio.ensure_future(own_bench("/bin/sh", "-c", script.format(n))) for n in range(5)]
    for n in range(5):
        await appears(own_bench.directory / f"ready{n}")
    began = time.monotonic()
    await asyncio.to_thread(own_bench.engine.close)
    assert time.monotonic() - began < PATIENCE and processes("sleep 87.") == []
    assert {(await call).error for call in calls} == {"tool_failed"}
    assert (await own_bench("/bin/true")).error == "tool_failed"


# ---------------------------------------------------------------- security


def test_hazard_100_secrets_in_arguments_are_not_displayed() -> None:
    shown = display(
        [
            "/bin/curl",
            "--token",
            "abc",
            "--api-key=def",
            "-u",
            "x",
            "https://me:pw@host/x",
            "DB_PASSWORD=ghi",
            "--verbose",
            "Authorization: Bearer jkl",
            "--tokens",
            "-v",
            "plain",
        ]
    )
    text = " ".join(shown)
    assert not any(secret in text for secret in ("abc", "def", "me:pw", "ghi", "jkl"))
    assert text.endswith("--tokens -v plain") and "/bin/curl --token *** --api-key=*** -u x https://***@host/x" in text


def test_the_audit_log_is_private_append_only_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "run" / "audit.jsonl"
    log = AuditLog(path)
    for number in range(50):
        log.append("tool.call.dispatched", call=str(number), args={"argv": ["\ud800", "\n", "ä"]})
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_text().splitlines()
    assert len(lines) == 50 and [json.loads(line)["call"] for line in lines] == [str(n) for n in range(50)]


async def test_an_audit_log_that_cannot_be_written(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    warnings: list[str] = []
    for mandatory, error in ((False, None), (True, "tool_failed")):
        log = AuditLog(tmp_path / "file" / "audit.jsonl", mandatory=mandatory, warn=warnings.append)
        tool = ExecTool(bench.engine, ExecOptions(enabled=True), log)
        dispatcher = Dispatcher({"Exec": tool}, bench.capabilities, log)
        agent = bench.agent(*SYSTEM)
        for _ in range(2):
            outcome = await dispatcher.dispatch(agent, "1", "Exec", {"argv": ["/bin/touch", str(tmp_path / "ran")]})
            assert outcome.error == error
        assert (tmp_path / "ran").exists() is not mandatory
        (tmp_path / "ran").unlink(missing_ok=True)
    assert len(warnings) == 1


@needs_scopes
def test_the_probe_says_what_this_machine_can_do() -> None:
    from prose_kernel.processes.sandbox import probe

    lines = {finding.subject: finding for finding in probe()}
    assert set(lines) == {"monitor", "landlock", "no network", "system calls", "apart"}
    assert lines["monitor"].state == lines["landlock"].state == "ok"
