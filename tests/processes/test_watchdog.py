"""No orphans when the kernel dies (exec-and-tasks.md 1.4; hazards 71, 72, 73, 82; acceptance 10)."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes.conftest import Runner, marked
from waiting import PATIENCE, command_line, eventually, until

from prose_kernel.processes import process_table, system, watchdog_process
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.process_table import Member, job_of, member_of, members
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.processes.watchdog import WARNING
from prose_kernel.runtime.ports import CommandRequest

HOST = Path(__file__).with_name("host.py")
ROOT = Path(__file__).parents[2]


def watchdogs(marker: str) -> list[int]:
    """Return the watchdog processes of an engine."""
    found = []
    for member in members():
        try:
            line = Path(f"/proc/{member.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"watchdog_process.py" in line and marker.encode() in line:
            found.append(member.pid)
    return found


class Host:
    """A separate process with an engine and busy commands."""

    def __init__(self, state: Path, *texts: str, fork: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HOST), str(state), "fork" if fork else "", *texts],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        self.marker = self.process.stdout.readline().strip()
        until(lambda: len(watchdogs(self.marker)) == 1)

    def ended(self, count: int) -> None:
        """Wait until `count` commands have ended."""
        assert self.process.stdout is not None
        assert [self.process.stdout.readline() for _ in range(count)] == ["one ended\n"] * count

    def kill(self, *, group: bool = False) -> None:
        if group:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        until(lambda: not watchdogs(self.marker))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def start(*texts: str, fork: bool = False) -> Host:
        hosts.append(Host(tmp_path / "state", *texts, fork=fork))
        return hosts[-1]

    yield start
    for each in hosts:
        each.close()


def kept(directory: Path) -> list[Path]:
    return sorted(directory.glob("jobs-*"))


def group_count(directory: Path) -> int:
    """Return the number of groups in the private files that are running or left."""
    count = 0
    for file in kept(directory):
        groups = watchdog_process.Groups("")
        groups.take(b"".join(line for line in file.read_bytes().splitlines(True) if line[:1] in b"?+=-"))
        count += len(groups.running) + len(groups.left)
    return count


def ready(directory: Path, *names: str) -> bool:
    return until(lambda: all((directory / name).exists() for name in names))


@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
def test_acceptance_10_hazards_71_72_a_killed_kernel_leaves_nothing(
    host: Callable[..., Host], tmp_path: Path, group: bool
) -> None:
    where = shlex.quote(str(tmp_path))
    victim = host(
        f"touch {where}/obedient; sleep 600",
        f"trap '' TERM INT HUP; touch {where}/stubborn; while :; do sleep 0.1; done",
        f"set -m; timeout 600 sleep 600 & touch {where}/own_group; wait",
        f"sleep 600 & touch {where}/left",
        f"env -i sleep 600 & touch {where}/left_without_marker",
        f"setsid sleep 7.2 & touch {where}/detached",
    )
    assert ready(tmp_path, "obedient", "stubborn", "own_group", "left", "left_without_marker", "detached")
    victim.ended(3)  # the commands that leave processes
    sessions = {member_of(pid).session for pid in marked(victim.marker) if member_of(pid) is not None}  # type: ignore[union-attr]
    detached = [pid for pid in marked(victim.marker) if (m := member_of(pid)) is not None and m.session == pid]
    detached = [pid for pid in detached if b"7.2" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(detached) == 1
    victim.kill(group=group)
    until(lambda: marked(victim.marker) == detached)
    others = sessions - set(detached)
    assert [member.pid for member in members() if member.session in others] == []
    until(lambda: watchdogs(victim.marker) == [])
    os.kill(detached[0], signal.SIGKILL)  # not ended on purpose: it called setsid


def test_a_kernel_that_ends_with_running_commands_leaves_nothing(tmp_path: Path) -> None:
    """The end of the interpreter calls `close`, and does not hang."""
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from prose_kernel.processes.engine import Engine\nfrom prose_kernel.processes.shell import ShellCommands\n"
        "from prose_kernel.runtime.ports import CommandRequest\n"
        "engine = Engine(state_dir=Path(sys.argv[1])); print(engine.marker)\n"
        "result = asyncio.run(ShellCommands(engine).run(CommandRequest('sleep 600 & echo hi', '/', 5.0)))\n"
        "print(result.stdout.strip(), result.background_left)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "state")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    marker, printed = done.stdout.splitlines()
    assert printed == "hi 1"
    assert done.stderr == ""
    assert marked(marker) == watchdogs(marker) == []


_KILLED_WHILE_STARTING = """
import asyncio, os, signal, sys
from pathlib import Path
from prose_kernel.processes import child_process
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runtime.ports import CommandRequest

def spawn_and_die(*given, _spawn=child_process.spawn, **more):
    child = _spawn(*given, **more)
    if "sleep 4807" in str(given[0]):
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return child

async def main():
    engine = Engine(state_dir=Path(sys.argv[1]))
    print(engine.marker, flush=True)
    commands = ShellCommands(engine, "sh")
    for text in sys.argv[2:]:
        await commands.run(CommandRequest(text, "/", 3600.0))

child_process.spawn = spawn_and_die
asyncio.run(main())
"""


def started_and_died(program: str, tmp_path: Path, texts: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run a kernel that dies while it starts the last of these commands; it prints its marker and the leader."""
    return subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "state"), *texts],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("texts", [("sleep 4807 & sleep 4807",), ("setsid sleep 33.3 & sleep 0.1", "sleep 4807")])
def test_hazard_71_a_kernel_killed_while_it_starts_a_command_leaves_nothing(
    tmp_path: Path, texts: tuple[str, ...]
) -> None:
    """The kernel dies before it could notify the watchdog of the command: the first one, and a later one."""
    kernel = started_and_died(_KILLED_WHILE_STARTING, tmp_path, texts)
    marker, leader = kernel.stdout.split()
    assert kernel.returncode == -signal.SIGKILL
    detached = [pid for pid in marked(marker) if b"33.3" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    try:
        until(lambda: set(marked(marker)) <= set(detached), what=f"{leader} and its children ended with the kernel")
        assert len(detached) == len(texts) - 1, "what a command detached on purpose is left alone"
    finally:
        for pid in marked(marker):
            os.kill(pid, signal.SIGKILL)


async def test_hazard_73_a_killed_watchdog_is_replaced_and_gets_all_groups_again(
    host: Callable[..., Host], tmp_path: Path
) -> None:
    victim = host(f"touch {shlex.quote(str(tmp_path))}/ready; sleep 600", "sleep 600 & true")
    assert ready(tmp_path, "ready")
    state = tmp_path / "state"
    until(lambda: group_count(state) == 2)
    (first,) = watchdogs(victim.marker)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(now := watchdogs(victim.marker)) == 1 and now != [first])
    victim.kill()
    until(lambda: marked(victim.marker) == [])


async def test_a_watchdog_that_dies_repeatedly_is_reported_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    engine = Engine(on_warning=warnings.append, state_dir=tmp_path)
    try:
        run = Runner(ShellCommands(engine), tmp_path)
        for _ in range(3):
            await run("true")
            until(lambda: len(watchdogs(engine.marker)) == 1)
            assert warnings == []
            before = watchdogs(engine.marker)
            os.kill(before[0], signal.SIGKILL)
            until(lambda before=before: watchdogs(engine.marker) != before)  # type: ignore[misc]
        until(lambda: warnings == [WARNING])
        assert (await run("echo still works")).stdout == "still works\n"
        assert warnings == [WARNING]
    finally:
        engine.close()


async def test_the_watchdog_ignores_signals_and_ends_with_the_engine(engine: Engine, run: Runner) -> None:
    await run("true")
    until(lambda: len(watchdogs(engine.marker)) == 1)
    (pid,) = watchdogs(engine.marker)
    ignoring = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    until(lambda: _ignored(pid) & ignoring == ignoring)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    member = member_of(pid)
    assert member is not None
    assert (member.session, member.group) == (pid, pid)
    assert watchdogs(engine.marker) == [pid]
    engine.close()
    assert watchdogs(engine.marker) == []


def _ignored(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return int(line.split()[1], 16)
    return 0


def test_a_forked_copy_of_the_kernel_does_not_hide_its_death(host: Callable[..., Host], tmp_path: Path) -> None:
    """A copy holds the kernel's end of the pipe open; the watchdog sees the end of the kernel itself."""
    victim = host("sleep 600", fork=True)
    assert victim.process.stdout is not None
    copy = int(victim.process.stdout.readline())
    until(lambda: marked(victim.marker) != [])
    victim.kill()
    until(lambda: marked(victim.marker) == [])
    os.kill(copy, signal.SIGKILL)  # raises if the copy were gone


# ---------------------------------------------------------------- the sweep


def test_kernel_and_watchdog_killed_together_the_next_start_sweeps(host: Callable[..., Host], tmp_path: Path) -> None:
    victim = host("sleep 600 & wait", "sleep 600 & true")
    victim.ended(1)
    state = tmp_path / "state"
    assert len(kept(state)) == 1
    assert kept(state)[0].stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    (watchdog,) = watchdogs(victim.marker)
    left = marked(victim.marker)
    os.kill(victim.process.pid, signal.SIGSTOP)  # it cannot replace the watchdog now
    os.kill(watchdog, signal.SIGKILL)
    victim.kill()
    assert marked(victim.marker) == left
    assert len(left) == 3
    following = host("true")
    until(lambda: marked(victim.marker) == [])
    until(lambda: len(kept(state)) == 1)  # only the file of the live engine is left
    assert len(watchdogs(following.marker)) == 1


_BOTH_KILLED_WHILE_STARTING = _KILLED_WHILE_STARTING.replace(
    "        os.kill(os.getpid(), signal.SIGKILL)",
    "        os.kill(engine._watchdog.pid, signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)",
).replace("    engine =", "    global engine; engine =")


@pytest.mark.parametrize("texts", [("sleep 4807 & sleep 4807",), ("setsid sleep 33.3 & sleep 0.1", "sleep 4807")])
def test_a18_a_command_is_swept_if_kernel_and_watchdog_die_during_its_start(
    host: Callable[..., Host], tmp_path: Path, texts: tuple[str, ...]
) -> None:
    kernel = started_and_died(_BOTH_KILLED_WHILE_STARTING, tmp_path, texts)
    marker, leader = kernel.stdout.split()
    try:
        until(lambda: watchdogs(marker) == [])
        until(lambda: int(leader) in marked(marker))  # no owner can end it, though it may still be starting
        host("true")
        until(lambda: [pid for pid in marked(marker) if not detached(pid)] == [])
        assert len(marked(marker)) == len(texts) - 1, "what a command detached on purpose is left alone"
    finally:
        for pid in marked(marker):
            os.kill(pid, signal.SIGKILL)


def detached(pid: int) -> bool:
    return "33.3" in command_line(pid)


def test_a_living_kernels_file_is_not_touched(host: Callable[..., Host], tmp_path: Path) -> None:
    first = host("sleep 600")
    state = tmp_path / "state"
    until(lambda: group_count(state) == 1)
    before = kept(state)
    watchdog_process.sweep(str(state))
    assert kept(state) == before
    assert marked(first.marker) != []


@pytest.mark.parametrize("stale", ["boot", "ticks"])
def test_hazard_82_a_sweep_kills_only_when_boot_number_and_start_all_match(tmp_path: Path, stale: str) -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        member = member_of(stranger.pid)
        assert member is not None
        boot = "another" if stale == "boot" else system.boot_id()
        ticks = member.ticks + (1 if stale == "ticks" else 0)
        file = tmp_path / "jobs-1"
        file.write_text(f"boot {boot}\nowner 1 1\nmarker x:exec\n+{stranger.pid} {ticks}\n")
        watchdog_process.sweep(str(tmp_path))
        assert not file.exists()
        assert stranger.poll() is None
        file.write_text(f"boot {system.boot_id()}\nowner 1 1\nmarker x:exec\n+{stranger.pid} {member.ticks}\n")
        watchdog_process.sweep(str(tmp_path))
        assert stranger.wait(PATIENCE) == -signal.SIGTERM
    finally:
        stranger.kill()
        stranger.wait()


def test_foreign_files_in_the_state_directory_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("child 1 1\n")
    (tmp_path / "jobs-2").write_text("")
    watchdog_process.sweep(str(tmp_path))
    assert (tmp_path / "notes.txt").exists()


def test_a_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o777)
    open_to_all.chmod(0o777)
    assert not watchdog_process.private(str(open_to_all))
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert not watchdog_process.private(str(tmp_path / "link"))
    assert watchdog_process.private(str(tmp_path / "new"))


async def test_orderly_ends_leave_no_file(tmp_path: Path) -> None:
    engine = Engine(state_dir=tmp_path / "state", grace=0.4)
    task = asyncio.create_task(ShellCommands(engine).run(CommandRequest("sleep 600", "/", 60.0)))
    await eventually(lambda: kept(tmp_path / "state"))
    engine.close()
    assert (await task).outcome == "cancelled"
    assert kept(tmp_path / "state") == []


async def test_a_watchdog_that_cannot_start_is_reported_and_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    warnings: list[str] = []
    engine = Engine(on_warning=warnings.append, state_dir=tmp_path)
    try:
        run = Runner(ShellCommands(engine), tmp_path)
        assert (await run("echo hi")).stdout == "hi\n"
        until(lambda: warnings == [WARNING])
        assert (await run("echo hi")).stdout == "hi\n"
    finally:
        engine.close()
    assert warnings == [WARNING]


# ---------------------------------------------------------------- A49: killed while a command forks and ends


@pytest.mark.parametrize("kind", ["exec", "helper"])
def test_a49_a_process_whose_leader_has_ended_is_found_in_its_first_instant(tmp_path: Path, kind: str) -> None:
    marker, began = f"{tmp_path}:{kind}", system.now()
    shell = ["sh", "-c", "((sleep 4813 &) &)"]
    subprocess.run(shell, start_new_session=True, env={**os.environ, "PROSE_JOB": marker}, check=True)
    until(lambda: [pid for pid in left_of(marker) if b"sleep" in Path(f"/proc/{pid}/comm").read_bytes()])
    groups = watchdog_process.Groups(f"{tmp_path}:exec")
    groups.take(b"?%d\n" % began)
    groups.find_started()
    watchdog_process.end(groups.members_to_end(), groups)
    assert left_of(marker) == []


def left_of(marker: str) -> list[int]:
    return [member.pid for member in members() if job_of(member.pid) == marker]


@pytest.mark.parametrize("line", [b"+%d\n", b"=%d %d %d\n"], ids=["running", "left"])
def test_a49_a_group_missing_from_one_reading_of_the_table_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """The process table misses a process forked during the reading by a process that has since ended."""
    marker, looks = f"{tmp_path}:exec", list[int]()

    def misses() -> list[Member]:
        looks.append(1)
        return [] if len(looks) % 2 else members()

    with subprocess.Popen(["sleep", "4813"], start_new_session=True, env={"PROSE_JOB": marker}) as process:
        member = member_of(process.pid)
        assert member is not None
        groups = watchdog_process.Groups(marker)
        groups.take(line % (process.pid, *member.identity)[: line.count(b"%")])
        monkeypatch.setattr(process_table, "members", misses)
        watchdog_process.end(groups.members_to_end(), groups)
        try:
            assert process.wait(PATIENCE) == -signal.SIGTERM
        finally:
            process.kill()


async def test_a49_a_process_missing_from_the_reading_at_a_commands_end_is_not_forgotten(
    run: Runner, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[int]()

    def misses() -> list[Member]:
        looks.append(1)
        return [] if len(looks) == 1 else members()

    monkeypatch.setattr(process_table, "members", misses)
    assert (await run("((sleep 4813 &) &) ")).exit_code == 0
    assert len(looks) > 1
    await asyncio.to_thread(engine.close)
    assert marked(engine.marker) == []
