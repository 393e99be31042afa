"""Attacks on `Exec`: none succeeds, and no process is left.

Each test is one way in which an agent, or a granted program, could try to exceed its grants.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from needs import lacking, needs
from processes.exec_tool.conftest import (
    PYTHON,
    SYSTEM,
    Bench,
    compiled,
    ended,
    needs_landlock,
    needs_network,
    needs_scopes,
    program,
    result,
)
from waiting import PATIENCE, appears, processes

from prose_kernel.access.grants import Surface, program_grants
from prose_kernel.processes.environment import REFUSED
from prose_kernel.processes.exec_tool.capabilities import ExecuteRules
from prose_kernel.processes.process_table import members
from prose_kernel.processes.sandbox import Mechanisms

# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/../../{evil}",
        "/usr/bin/./../bin/../..{evil}",
        "//{evil}",
        "/usr/bin/../../../../../..{evil}",
        "/usr/./bin/..//..{evil}",
        "/usr/bin/no-such/../../..{evil}",
        "/usr/bin/env/../../..{evil}",
        "{evil}/",
        "/usr/bin/../..{evil}/.",
    ],
)
async def test_red_team_traversal(bench: Bench, tmp_path: Path, path: str) -> None:
    evil = program(tmp_path / "evil", "#!/bin/sh\necho evil\n")
    outcome = await bench(path.format(evil=evil), agent=bench.agent(*SYSTEM), cwd="/usr")
    assert outcome.error == "fs_denied"


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/root{evil}",
        "/proc/1/root{evil}",
        "/proc/self/cwd/evil",
        "/proc/thread-self/root/bin/sh",
        "/proc/self/exe",
        "/proc/self/fd/0",
        "/dev/fd/0",
        "/dev/stdin",
        "/usr/../proc/self/exe",
        "/sys/kernel/notes",
    ],
)
async def test_red_team_proc(bench: Bench, tmp_path: Path, path: str) -> None:
    evil = program(tmp_path / "evil", "#!/bin/sh\necho evil\n")
    agent = bench.agent(("/", "r"))
    assert (await bench(path.format(evil=evil), agent=agent)).error == "fs_denied"
    assert (await bench("/bin/true", agent=agent, cwd=path.format(evil=tmp_path))).error == "fs_denied"


async def test_red_team_links_into_proc(bench: Bench, tmp_path: Path) -> None:
    for name, target in (("a", "/proc/self/exe"), ("b", "/proc/self/root/bin/echo"), ("c", "/dev/fd/0")):
        (tmp_path / name).symlink_to(target)
        outcome = await bench(str(tmp_path / name), agent=bench.agent(("/", "r")))
        assert outcome.error == "fs_denied", name


async def test_red_team_link_chains_and_loops(bench: Bench, tmp_path: Path) -> None:
    granted = tmp_path / "granted"
    granted.mkdir()
    evil = program(tmp_path / "evil", "#!/bin/sh\necho evil\n")
    for number in range(30):
        (granted / f"l{number}").symlink_to(granted / f"l{number + 1}")
    (granted / "l30").symlink_to(evil)
    (granted / "loop").symlink_to(granted / "loop")
    (granted / "a").symlink_to(granted / "b")
    (granted / "b").symlink_to(granted / "a")
    (granted / "up").symlink_to("..")
    agent = bench.agent((str(granted), "r"))
    for path in ("l0", "loop", "a", "up/evil", "up/granted/up/evil", "loop/x"):
        assert (await bench(str(granted / path), agent=agent, cwd=str(granted))).error == "fs_denied", path
    assert (
        await bench("/bin/true", agent=bench.agent(*SYSTEM, (str(granted), "r")), cwd=str(granted / "up"))
    ).error == ("fs_denied")


async def test_red_team_a_link_gives_no_access_to_its_new_target(bench: Bench, tmp_path: Path) -> None:
    """A grant's prefix is resolved too. Changing a link would widen a grant that names it, so grants name real places."""
    real, other = tmp_path / "real", tmp_path / "other"
    program(real / "tool", "#!/bin/sh\necho real\n")
    program(other / "tool", "#!/bin/sh\necho other\n")
    agent = bench.agent(*SYSTEM, (str(real), "r"))
    (tmp_path / "link").symlink_to(real)
    assert result(await bench(str(tmp_path / "link" / "tool"), agent=agent, cwd="/usr"))["stdout"] == "real\n"
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(other)
    assert (await bench(str(tmp_path / "link" / "tool"), agent=agent, cwd="/usr")).error == "fs_denied"


@contextmanager
def swapping(path: Path, first: Path, second: Path) -> Iterator[None]:
    """Switch a link between two targets in another thread, as fast as possible."""
    stop = threading.Event()
    spare = path.with_name("spare")

    def swap() -> None:
        while not stop.is_set():
            for target in (first, second):
                spare.unlink(missing_ok=True)
                spare.symlink_to(target)
                spare.rename(path)

    path.symlink_to(first)
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def test_red_team_link_swapped_in_a_loop(bench: Bench, tmp_path: Path) -> None:
    good = program(tmp_path / "good" / "tool", "#!/bin/sh\necho good\n")
    evil = program(tmp_path / "bad" / "tool", "#!/bin/sh\necho evil\n")
    link = tmp_path / "link"
    agent = bench.agent(*SYSTEM, (str(good.parent), "r"))
    answers = set()
    with swapping(link, good, evil):
        for turn in range(500):
            outcome = await bench(str(link), agent=agent, cwd="/usr")
            answers.add(str(outcome.result["stdout"]) if outcome.ok else outcome.error)
            if turn > 40 and len(answers) > 1:
                break
    assert answers <= {"good\n", "fs_denied"} and len(answers) == 2


async def test_red_team_directory_swapped_in_a_loop(bench: Bench, tmp_path: Path) -> None:
    good, evil = tmp_path / "good", tmp_path / "evil"
    good.mkdir()
    evil.mkdir()
    agent = bench.agent(*SYSTEM, (str(good), "r"))
    answers = set()
    with swapping(tmp_path / "link", good, evil):
        for _ in range(40):
            outcome = await bench("/bin/pwd", "-P", agent=agent, cwd=str(tmp_path / "link"))
            answers.add(str(outcome.result["stdout"]).strip() if outcome.ok else outcome.error)
    assert answers <= {str(good), "fs_denied"} and str(good) in answers


async def test_red_team_binary_swapped_between_check_and_start(bench: Bench, tmp_path: Path) -> None:
    """Hazard 53: files exchanged by renaming, in a directory that another user may write."""
    place, stop = tmp_path / "bin", threading.Event()
    place.mkdir()
    texts = {name: f"#!/bin/sh\necho {name}\n" for name in ("good", "evil")}

    def swap() -> None:
        while not stop.is_set():
            for name in ("evil", "good"):
                program(tmp_path / "next", texts[name]).rename(place / "tool")

    program(place / "tool", texts["good"])
    thread = threading.Thread(target=swap)
    thread.start()
    kinds = set()
    try:
        for turn in range(500):
            outcome = await bench(str(place / "tool"), agent=bench.agent(*SYSTEM, (str(place), "r")), cwd="/usr")
            kinds.add("ran" if outcome.ok else f"{outcome.error}: {outcome.message}")
            if turn > 40 and "fs_denied: the program changed after it was checked" in kinds:
                break
    finally:
        stop.set()
        thread.join()
    # each run uses a checked file; a file exchanged after the check is refused
    assert "fs_denied: the program changed after it was checked" in kinds
    assert kinds <= {
        "ran",
        "fs_denied: the program changed after it was checked",
        f"tool_failed: {place}/tool is not executable (EACCES)",
        "tool_failed: the program cannot be started: it is open for writing (ETXTBSY)",
        "tool_failed: the program cannot be started: its interpreter was not found (ENOENT)",
        f"tool_failed: {place}/tool: no such program (ENOENT)",
    }


async def test_red_team_a_deleted_directory(bench: Bench, tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    place.rmdir()
    outcome = await bench("/bin/true", cwd=str(place))
    assert outcome.error == "tool_failed" and "directory" in outcome.message


async def test_red_team_not_a_program(bench: Bench, tmp_path: Path) -> None:
    text = program(tmp_path / "text", "echo no shebang\n")
    plain = program(tmp_path / "plain", "#!/bin/sh\n", 0o644)
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, word in (
            (text, "ENOEXEC"),
            (plain, "not executable"),
            (tmp_path / "directory", "regular"),
            (tmp_path / "pipe", "regular"),
            (tmp_path / "socket", "regular"),
            (Path("/dev/null"), "regular"),
        ):
            outcome = await bench(str(path), agent=bench.agent(("/", "r")))
            assert outcome.error == "tool_failed" and word in outcome.message, path


# ---------------------------------------------------------------- write, then run


async def test_red_team_write_then_run(bench: Bench, tmp_path: Path) -> None:
    """Hazard 93."""
    area = tmp_path / "area"
    area.mkdir()
    agent = bench.agent(*SYSTEM, (str(area), "rw"))
    copied = await bench("/bin/cp", "/bin/echo", str(area / "mine"), agent=agent, cwd=str(area))
    assert result(copied)["exit_code"] == 0
    assert (await bench(str(area / "mine"), "hi", agent=agent, cwd=str(area))).error == "fs_denied"
    (tmp_path / "link").symlink_to(area / "mine")
    outcome = await bench(str(tmp_path / "link"), agent=bench.agent((str(tmp_path), "r"), (str(area), "rw")))
    assert outcome.error == "fs_denied"


async def test_red_team_a_writable_directory_above(bench: Bench, tmp_path: Path) -> None:
    tool = program(tmp_path / "opt" / "tools" / "tool", "#!/bin/sh\n")
    agent = bench.agent((str(tmp_path / "opt" / "tools"), "r"), (str(tmp_path), "rw"))
    assert (await bench(str(tool), agent=agent)).error == "fs_denied"


async def test_red_team_write_grant_through_a_link(bench: Bench, tmp_path: Path) -> None:
    tool = program(tmp_path / "real" / "tool", "#!/bin/sh\n")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    agent = bench.agent((str(tmp_path), "r"), (str(tmp_path / "alias"), "rw"))
    assert (await bench(str(tool), agent=agent)).error == "fs_denied"


# ---------------------------------------------------------------- environment


LOADERS = (
    "_ LD_PRELOAD LD_LIBRARY_PATH OPENSSL_CONF OPENSSL_MODULES GIT_DIR MAKEFLAGS WGETRC RIPGREP_CONFIG_PATH "
    "PYTHONPYCACHEPREFIX GLIBC_TUNABLES LUA_INIT_5_4 CARGO_TARGET_X86_64_RUNNER npm_config_node_options"
)


@pytest.mark.parametrize("name", [name.replace("*", "X") for name in REFUSED] + LOADERS.split())
async def test_red_team_loader_variables(bench: Bench, name: str) -> None:
    outcome = await bench("/usr/bin/env", env={name: "/tmp/evil.so"})
    assert outcome.error == "invalid_args"
    assert bench.events("dispatched") == []


async def test_red_team_operators_extend_and_relax_the_list(bench: Bench) -> None:
    bench.use(refuse_env=("MINE_*",), allow_env=("PYTHONPATH",))
    assert (await bench("/usr/bin/env", env={"MINE_X": "1"})).error == "invalid_args"
    assert "PYTHONPATH=/x" in str(result(await bench("/usr/bin/env", env={"PYTHONPATH": "/x"}))["stdout"])


async def test_red_team_secrets_of_the_kernel(own_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's environment is not passed on, nor readable in /proc of the kernel or the monitor."""
    monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
    code = (
        "import os\n"
        "print(dict(os.environ))\n"
        "for pid in [p for p in os.listdir('/proc') if p.isdigit()]:\n"
        "    try: print(open(f'/proc/{pid}/environ', 'rb').read())\n"
        "    except OSError: pass\n"
    )
    answer = result(await own_bench.python(code))
    assert "FAKE_API_KEY" not in str(answer["stdout"]) and answer["stderr"] == ""


async def test_red_team_descriptors_of_the_kernel(bench: Bench, tmp_path: Path) -> None:
    """Hazard 60: not even inheritable descriptors are passed on."""
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        answer = result(await bench("/bin/ls", "/proc/self/fd"))
    assert str(answer["stdout"]).split() == ["0", "1", "2", "3"]  # 3 is the listed directory


# ---------------------------------------------------------------- limits


async def test_red_team_limits_cannot_be_raised(bench: Bench) -> None:
    code = (
        "import resource as r, os, json\n"
        "out = {}\n"
        "for name in ('RLIMIT_AS', 'RLIMIT_FSIZE', 'RLIMIT_NOFILE', 'RLIMIT_CPU', 'RLIMIT_CORE'):\n"
        "    number = getattr(r, name)\n"
        "    soft, hard = r.getrlimit(number)\n"
        "    for wanted in ((hard * 2 + 1,) * 2, (r.RLIM_INFINITY,) * 2):\n"
        "        for pid in (0, os.getppid(), KERNEL):\n"
        "            try: r.prlimit(pid, number, wanted); out[f'{name} {pid > 0}'] = 'raised'\n"
        "            except (OSError, ValueError): pass\n"
        "    out[name] = r.getrlimit(number)\n"
        "print(json.dumps(out))\n"
    )
    found = json.loads(str(result(await bench.python(code.replace("KERNEL", str(os.getpid())), timeout_s=7))["stdout"]))
    mebibyte = 1024 * 1024
    assert found == {
        "RLIMIT_AS": [512 * mebibyte] * 2,
        "RLIMIT_FSIZE": [64 * mebibyte] * 2,
        "RLIMIT_NOFILE": [256] * 2,
        "RLIMIT_CPU": [7, 9],
        "RLIMIT_CORE": [0, 0],
    }


async def test_red_team_no_privileges_to_gain(bench: Bench) -> None:
    """Hazard 96: set-id bits have no effect, and of root's rights only those over files are left."""
    fields = dict(
        line.split(":", 1)
        for line in str(result(await bench("/bin/cat", "/proc/self/status"))["stdout"]).splitlines()
        if ":" in line
    )
    assert fields["NoNewPrivs"].strip() == "1"
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        kept = int(fields[name], 16)
        if os.geteuid() == 0:
            assert kept & ~0b11011 == 0, name
        elif name != "CapBnd":
            assert kept == 0, name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a set-id program")
async def test_red_team_set_id_program(bench: Bench, tmp_path: Path) -> None:
    tool = tmp_path / "id"
    tool.write_bytes(Path("/usr/bin/id").read_bytes())
    os.chown(tool, 65534, 65534)
    tool.chmod(0o6755)
    answer = result(await bench(str(tool), "-u"))
    assert answer["stdout"] == "0\n"  # not the file's owner


# ---------------------------------------------------------------- leaving the tree


async def test_red_team_double_fork(bench: Bench) -> None:
    """Hazard 35."""
    code = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "        for fd in (0, 1, 2): os.close(fd)\n"
        "        os.chdir('/')\n"
        "        time.sleep(300)\n"
        "for _ in range(3): os.wait()\n"  # until all three are in separate sessions
        "print('out')\n"
    )
    answer = result(await bench.python(code, "mark-66.1"))
    assert answer["stdout"] == "out\n" and int(str(answer["background_killed"])) >= 3
    assert processes("mark-66.1") == []


async def test_red_team_a_leader_that_ends_while_its_thread_lives(bench: Bench, tmp_path: Path) -> None:
    """Such a process looks like a zombie in the process table."""
    needs("ps")
    source = (
        "#include <pthread.h>\n#include <unistd.h>\n#include <signal.h>\n"
        "static void *run(void *x) { for (;;) sleep(1); return 0; }\n"
        "int main(void) { pthread_t t; if (fork() == 0) { setsid(); signal(SIGTERM, SIG_IGN);"
        ' pthread_create(&t, 0, run, 0); pthread_exit(0); } usleep(200000); execl("/bin/ps", "ps", "-C", "half-dead",'
        ' "-o", "pid=,stat=", (char *)0); return 1; }\n'
    )
    tool = compiled(tmp_path, "half-dead", source)
    answer = result(await bench(str(tool), timeout_s=10))
    pid, state = str(answer["stdout"]).split()
    assert state.startswith("Z") and answer["background_killed"] == 1
    assert not Path(f"/proc/{pid}").exists()


async def test_red_team_stopped_processes(bench: Bench) -> None:
    """Hazard 21."""
    began = time.monotonic()
    answer = result(await bench("/bin/sh", "-c", "sleep 67.1 & kill -STOP $! ; kill -STOP $$", timeout_s=1))
    assert answer["timed_out"] and time.monotonic() - began < PATIENCE
    assert processes("sleep 67.1") == []


async def test_red_team_two_hundred_children(bench: Bench) -> None:
    """Hazard 34."""
    script = "i=0; while [ $i -lt 200 ]; do (trap '' TERM; exec setsid sleep 68.1) & i=$((i+1)); done; sleep 68.2"
    answer = result(await bench("/bin/sh", "-c", script, timeout_s=3))
    assert answer["timed_out"] and processes("sleep 68.") == []


async def test_red_team_killed_processes_are_forked_again(bench: Bench) -> None:
    """Processes replace each other: each forks its successor in a new session, and ends."""
    code = (
        "import os, sys, time, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        end = time.monotonic() + 20\n"
        "        while time.monotonic() < end:\n"
        "            if os.fork(): os._exit(0)\n"
        "            os.setsid()\n"
        "            time.sleep(0.002)\n"  # computing all the time would prove no more
        "time.sleep(60)\n"
    )
    began = time.monotonic()
    answer = result(await bench.python(code, "mark-69.1", timeout_s=1))
    assert answer["timed_out"] and time.monotonic() - began < PATIENCE
    assert processes("mark-69.1") == []


@needs_scopes
async def test_red_team_the_monitor_and_the_kernel_cannot_be_signalled(bench: Bench) -> None:
    code = (
        "import os, signal\n"
        "done = []\n"
        "for pid in (os.getppid(), int(open(f'/proc/{os.getppid()}/stat').read().rsplit(')')[1].split()[1]), 1):\n"
        "    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL, 0):\n"
        "        try: os.kill(pid, number); done.append((pid, number))\n"
        "        except PermissionError: pass\n"
        "print(done)\n"
    )
    assert result(await bench.python(code))["stdout"] == "[]\n"


@needs_landlock
async def test_red_team_the_monitor_cannot_be_traced(bench: Bench, tmp_path: Path) -> None:
    code = (
        "import os, ctypes\n"
        "parent = os.getppid()\n"
        "print(ctypes.CDLL(None).ptrace(16, parent, 0, 0))\n"
        "for name in ('mem', 'environ', 'maps', 'exe', 'cwd', 'root', 'fd/0'):\n"
        "    try: os.open(f'/proc/{parent}/{name}', os.O_RDONLY); print(name)\n"
        "    except PermissionError: pass\n"
    )
    # without -S: ctypes is outside the files that the granted interpreter needs, and only has to be read
    assert result(await bench(PYTHON, "-I", "-c", code))["stdout"] == "-1\n"


async def test_red_team_a_program_makes_its_guard_its_tracer(bench: Bench) -> None:
    """It stays stopped until its time is over, as below a shell. It has not ended."""
    code = (
        "import ctypes, os, signal\n"
        "print(ctypes.CDLL(None).ptrace(0, 0, 0, 0), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    answer = result(await bench(PYTHON, "-I", "-c", code, timeout_s=1))
    assert answer["stdout"] == "0\n" and answer["timed_out"]


async def test_red_team_a_guard_killed_from_outside(bench: Bench) -> None:
    """Hazard 73: the program ends with its guard, and the call says what happened."""
    call = asyncio.ensure_future(bench("/bin/sh", "-c", "sleep 70.1 & touch ready; sleep 70.2"))
    await appears(bench.directory / "ready")
    pids = processes("sleep 70.")
    (guard,) = [m.parent for m in members() if m.pid in pids and m.session == m.pid]
    os.kill(guard, 9)
    outcome = await asyncio.wait_for(call, PATIENCE)
    assert outcome.error == "tool_failed" and "monitor" in outcome.message
    assert ended(pids)


async def test_red_team_a_guard_stopped_from_outside(bench: Bench) -> None:
    call = asyncio.ensure_future(bench("/bin/sh", "-c", "setsid sleep 71.1 & touch ready; sleep 71.2", timeout_s=3))
    await appears(bench.directory / "ready")
    pids = processes("sleep 71.")
    (guard,) = {m.parent for m in members() if m.pid in pids and m.session == m.pid and m.parent not in pids}
    os.kill(guard, 19)
    outcome = await asyncio.wait_for(call, PATIENCE)
    assert outcome.error == "tool_failed" and ended([*pids, guard])


# ---------------------------------------------------------------- output and arguments


async def test_red_team_output_bomb(bench: Bench) -> None:
    """Hazard 2: a flood on both streams until the limit; the head is kept, memory is not used up."""
    began = time.monotonic()
    answer = result(await bench("/bin/sh", "-c", "yes 74.1 >&2 & yes 74.1", timeout_s=1, max_output_bytes=1024))
    assert answer["timed_out"] and time.monotonic() - began < PATIENCE
    assert len(str(answer["stdout"])) == len(str(answer["stderr"])) == 1024
    assert answer["stdout_truncated"] and answer["stderr_truncated"]
    assert processes("yes 74.1") == []


async def test_red_team_one_endless_line(bench: Bench) -> None:
    answer = result(await bench("/bin/dd", "if=/dev/zero", "bs=1M", "count=30"))
    assert answer["stdout_truncated"] and len(str(answer["stdout"])) == 262_144


async def test_red_team_invalid_utf_8(bench: Bench) -> None:
    """Hazard 8."""
    answer = result(await bench.python("import os; os.write(1, bytes(range(256)) * 8)", max_output_bytes=1024))
    text = str(answer["stdout"])
    assert len(text) <= 1024 and "\ufffd" in text and "ABC" in text


async def test_red_team_argument_floods(bench: Bench) -> None:
    """Hazards 42, 43."""
    for argv in (["x" * 131_072], ["x" * 100_000] * 25, ["\U0001f600" * 40_000], ["y"] * 1_000_000):
        outcome = await bench("/bin/true", *argv)
        assert outcome.error == "tool_failed" and "E2BIG" in outcome.message
    assert result(await bench("/bin/true", *["y" * 1000] * 100))["exit_code"] == 0


async def test_red_team_environment_flood(bench: Bench) -> None:
    outcome = await bench("/bin/true", env={f"N{i}": "x" * 100_000 for i in range(30)})
    assert outcome.error == "tool_failed" and "E2BIG" in outcome.message


# ---------------------------------------------------------------- shells under `bash: deny`


@pytest.mark.parametrize(
    "name",
    ["sh", "bash", "dash", "env", "xargs", "nohup", "setsid", "timeout", "script", "su", "nice", "stdbuf", "flock"],
)
async def test_red_team_shells_and_launchers_are_refused(bench: Bench, name: str) -> None:
    path = next((p for d in ("/bin", "/usr/bin") if (p := Path(d, name)).exists()), None)
    if path is None:
        lacking(f"{name} is not installed")
    for listed in (None, (str(path.resolve()),), ("/usr/bin/*",), ("/**",)):
        agent = bench.agent(
            ("/", "r"), execute=ExecuteRules(listed and program_grants(listed, Surface("/", "/"), None))
        )
        assert (await bench(str(path), agent=agent)).error == "fs_denied", listed
    allowed = bench.agent(("/", "r"), execute=ExecuteRules(None, shells=True))
    assert (await bench(str(path), "--version", agent=allowed)).ok


async def test_red_team_shells_under_another_name(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "innocent").symlink_to("/bin/sh")
    names = [tmp_path / "innocent"]
    shell = Path("/bin/sh").resolve()
    hard = shell.with_name(f"innocent-{os.getpid()}")
    try:
        try:
            os.link(shell, hard)
        except OSError:
            pass
        else:
            names.append(hard)
        for name in names:
            agent = bench.agent(("/", "r"), execute=ExecuteRules(None))
            assert (await bench(str(name), "-c", "echo x", agent=agent)).error == "fs_denied"
    finally:
        hard.unlink(missing_ok=True)


async def test_red_team_the_dynamic_loader_is_refused(bench: Bench) -> None:
    loaders = [p for d in ("/lib64", "/lib", "/usr/lib") for p in Path(d).glob("ld-*.so*")]
    if not loaders:
        pytest.skip("no loader found")
    agent = bench.agent(("/", "r"), execute=ExecuteRules(None))
    assert (await bench(str(loaders[0]), "/bin/sh", "-c", "echo x", agent=agent)).error == "fs_denied"


async def test_red_team_interpreters_have_to_be_named(bench: Bench) -> None:
    """Hazard 94: a directory or a wildcard grants no interpreter where shells are denied."""
    for listed, error in ((None, "fs_denied"), (("/**",), "fs_denied"), ((PYTHON,), None)):
        agent = bench.agent(
            ("/", "r"), execute=ExecuteRules(listed and program_grants(listed, Surface("/", "/"), None))
        )
        assert (await bench(PYTHON, "-I", "-S", "-c", "print(1)", agent=agent)).error == error, listed


# ---------------------------------------------------------------- network


CONNECT = """
import socket, sys
port, name = int(sys.argv[1]), sys.argv[2]
for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, "\\0" + name)):
    try:
        with socket.socket(family) as s: s.connect(address); print("connected")
    except OSError: print("refused")
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"x", ("127.0.0.1", port))
except OSError: pass
"""


async def connects(bench: Bench, **record: object) -> list[str]:
    """Return the connections that an agent's program can make with these rules: TCP, a socket without a file, UDP."""
    agent = bench.agent(("/", "r"), **record)
    name = f"red-team-{os.getpid()}"
    with (
        closing(socket.socket(socket.AF_UNIX)) as local,
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as datagrams,
    ):
        port = server.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        datagrams.setblocking(False)
        local.bind("\0" + name)
        local.listen()
        outcome = await bench(PYTHON, "-I", "-c", CONNECT, str(port), name, agent=agent)
        answers = str(result(outcome)["stdout"]).split()
        try:
            answers.append("received" if datagrams.recv(10) else "")
        except BlockingIOError:
            answers.append("lost")
    return answers


async def test_red_team_network_open_by_default(bench: Bench) -> None:
    assert await connects(bench) == ["connected", "connected", "received"]


@needs_network
async def test_red_team_network_denied(bench: Bench) -> None:
    """Hazard 97."""
    assert await connects(bench, network="none") == ["refused", "refused", "lost"]


async def test_red_team_network_that_cannot_be_denied_is_refused(bench: Bench) -> None:
    bench.use(lambda: Mechanisms("", 0, "the system does not allow it (EPERM)"))
    outcome = await bench("/bin/true", agent=bench.agent(("/", "r"), network="none"))
    assert outcome.error == "tool_failed" and "network namespace" in outcome.message and "EPERM" in outcome.message
    assert bench.events("dispatched") == []
    assert (await bench("/bin/true", agent=bench.agent(("/", "r"), network="best-effort"))).ok
    assert any("network is denied" in line for line in bench.warnings)


@needs_scopes
async def test_red_team_network_best_effort_through_landlock(bench: Bench) -> None:
    from prose_kernel.processes.sandbox import mechanisms

    bench.use(lambda: Mechanisms("", mechanisms().landlock, "not here"))
    assert await connects(bench, network="best-effort") == ["refused", "refused", "received"]


# ---------------------------------------------------------------- enforced lists


@needs_landlock
async def test_red_team_lists_limit_the_files_that_a_program_opens(bench: Bench, tmp_path: Path) -> None:
    for name in ("in", "out", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret" / "file")
    agent = bench.agent(
        *SYSTEM, (str(tmp_path / "in"), "r"), (str(tmp_path / "out"), "rw"), lists_bind="strict", name="confined"
    )

    async def answer(*argv: object) -> tuple[object, str]:
        answer = result(await bench(*map(str, argv), agent=agent, cwd=str(tmp_path / "in")))
        return answer["exit_code"], str(answer["stdout"])

    assert await answer("/bin/cat", tmp_path / "in" / "file") == (0, "in")
    assert await answer("/bin/cat", tmp_path / "out" / "file") == (0, "out")
    assert (await answer("/bin/cp", tmp_path / "in" / "file", tmp_path / "out" / "new"))[0] == 0
    for hidden in (tmp_path / "secret" / "file", tmp_path / "in" / "link", "/etc/shadow", "/root", tmp_path):
        assert (await answer("/bin/cat" if Path(hidden).is_file() else "/bin/ls", hidden))[0] != 0, hidden
    for place in (tmp_path / "in" / "new", tmp_path / "new", "/tmp/prose-red-team", "/usr/new"):
        assert (await answer("/bin/cp", "/bin/true", place))[0] != 0, place
    # a shell that is granted cannot run what the agent wrote either
    assert (await answer("/bin/cp", "/bin/echo", tmp_path / "out" / "mine"))[0] == 0
    assert (await answer("/bin/sh", "-c", f"{tmp_path}/out/mine hi"))[0] == 126


@needs_landlock
async def test_red_team_patterns_bind_files(bench: Bench, tmp_path: Path) -> None:
    from prose_kernel.processes.exec_tool.capabilities import CapabilityRecord, FsGrant

    (tmp_path / "a.md").write_text("open")
    (tmp_path / "key.pem").write_text("secret")
    (tmp_path / "out").mkdir()
    (tmp_path / "log").write_text("")
    grants = (("", "r", "/*.md"), ("/out", "rw", ""), ("/log", "rw", ""))
    record = CapabilityRecord(
        tool_grants=frozenset({"Exec"}),
        fs_grants=(FsGrant("/usr", "r"), *(FsGrant(f"{tmp_path}{place}", mode, rest) for place, mode, rest in grants)),
        lists_bind="strict",
    )
    bench.capabilities.create("patterned", record)
    answers = [
        result(await bench("/bin/cat", str(tmp_path / name), agent="patterned", cwd=str(tmp_path)))["stdout"]
        for name in ("a.md", "key.pem")
    ]
    assert answers == ["open", ""]
    # as with file tools, `out` without a final `/` is only the directory
    for name in ("out/new", "log"):
        result(await bench("/bin/cp", f"{tmp_path}/a.md", f"{tmp_path}/{name}", agent="patterned", cwd=str(tmp_path)))
    assert not (tmp_path / "out" / "new").exists() and (tmp_path / "log").read_text() == "open"


async def test_red_team_lists_that_cannot_bind_are_refused(bench: Bench) -> None:
    bench.use(lambda: Mechanisms(""))
    strict = await bench("/bin/true", agent=bench.agent(("/", "r"), lists_bind="strict"))
    assert strict.error == "tool_failed" and "Landlock" in strict.message
    assert (await bench("/bin/true", agent=bench.agent(("/", "r"), lists_bind="permissive"))).ok
    assert any("lists of files" in line for line in bench.warnings)


async def test_red_team_no_monitor_is_refused(bench: Bench) -> None:
    bench.use(lambda: Mechanisms("this system cannot hand orphans to the monitor"))
    outcome = await bench("/bin/true")
    assert outcome.error == "tool_failed" and "monitor" in outcome.message
