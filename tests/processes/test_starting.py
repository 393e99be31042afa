"""How commands start: shell, directory, environment, failures (exec-and-tasks.md 2.3; hazards 27, 39 to 64)."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import resource
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from needs import needs
from processes.conftest import Runner, marked
from waiting import appears

import prose_kernel.processes
from prose_kernel.processes.cwd_report import LOWEST_DESCRIPTOR
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import LONGEST_ARGUMENT, ShellCommands, resolve_shell
from prose_kernel.runtime.ports import CommandRequest, CommandResult

LONG_SHELLS = ("bash", "dash", "zsh", "busybox", "mksh", "ksh93")


def failed(result: CommandResult) -> tuple[str, int, str | None, str]:
    assert result.spawn_error == result.stderr
    assert (result.stdout, result.cwd_after) == ("", None)
    return result.outcome, result.exit_code, result.kind, result.stderr


def test_the_shell_is_the_given_one_else_bash_else_sh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert resolve_shell(None) == shutil.which("bash")
    assert resolve_shell("dash") == shutil.which("dash")
    assert resolve_shell("/bin/sh") == "/bin/sh"
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert resolve_shell(None) == shutil.which("bash")
    (tmp_path / "sh").write_text("#!/bin/sh\n")
    (tmp_path / "sh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve_shell(None) == str(tmp_path / "sh")
    monkeypatch.chdir(tmp_path)
    assert resolve_shell("./sh") == str(tmp_path / "sh")


async def test_hazard_39_the_shell_is_missing_or_no_program(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(shell: str) -> tuple[str, int, str | None, str]:
        return failed(await ShellCommands(engine, shell).run(CommandRequest("true", "/", 5.0)))

    assert await start("/no/such/shell") == ("spawn_failed", 127, "spawn", "cannot start /no/such/shell: not found")
    (loop := tmp_path / "loop").symlink_to(loop)  # as a directory of PATH, an error for root too
    monkeypatch.setenv("PATH", f"{loop}:{os.environ['PATH']}")
    assert (await start("no_such_shell"))[3] == "cannot start no_such_shell: not found"
    plain = tmp_path / "plain"
    plain.write_text("echo hi")
    assert (await start(str(plain)))[3] == f"cannot start {plain}: permission denied (EACCES)"
    plain.chmod(0o755)
    assert (await start(str(plain)))[3] == "cannot start the command: exec format error (ENOEXEC)"
    assert (await start(str(tmp_path)))[3] == f"cannot start {tmp_path}: permission denied (EACCES)"
    plain.write_text("#!/no/such/interpreter\n")
    assert (await start(str(plain)))[3] == f"cannot start {plain}: its interpreter was not found"


async def test_hazard_40_the_directory_is_missing_or_a_file_or_forbidden(run: Runner) -> None:
    missing, file, closed = (run.directory / name for name in ("missing", "file", "closed"))
    file.write_text("")
    closed.mkdir(mode=0)
    assert failed(await run("true", cwd=str(missing))) == (
        "spawn_failed",
        127,
        "cwd",
        f"directory not found: {missing}",
    )
    assert failed(await run("true", cwd=str(file)))[2:] == ("cwd", f"not a directory: {file}")
    assert failed(await run("true", cwd=str(file / "below")))[2:] == ("cwd", f"not a directory: {file}/below")
    assert failed(await run("true", cwd="/a\0b"))[2:] == ("cwd", "the directory's name cannot be encoded")
    assert failed(await run("true", cwd="/a\ud800b"))[2:] == ("cwd", "the directory's name cannot be encoded")
    if os.getuid() != 0:
        assert failed(await run("true", cwd=str(closed)))[2:] == ("cwd", f"directory not permitted: {closed}")


async def test_hazard_41_a_directory_that_vanishes(run: Runner) -> None:
    gone = run.directory / "gone"
    gone.mkdir()
    under = await run("rmdir ../gone; echo still here", cwd=str(gone))
    assert (under.exit_code, under.stdout, under.cwd_after) == (0, "still here\n", None)
    assert failed(await run("pwd", cwd=str(gone)))[2] == "cwd"
    assert (await run("pwd")).exit_code == 0


@pytest.mark.parametrize("shell", LONG_SHELLS)
async def test_hazard_42_commands_longer_than_an_argument_may_be(engine: Engine, tmp_path: Path, shell: str) -> None:
    needs(shell)
    (tmp_path / "a").mkdir()
    run = Runner(ShellCommands(engine, shell), tmp_path.resolve())
    for text in ("x" * 3_000_000, "😀" * 30_000):
        result = await run(f"cd a; : '{text}'; echo \"$0 $#\"; exit 5")
        assert (result.exit_code, result.stdout, result.stderr) == (5, "exec 0\n", "")
        assert result.cwd_after == f"{run.directory}/a"
        plain = await run(f"cd a; : '{text}'; pwd", track=False)
        assert (plain.exit_code, plain.stdout) == (0, f"{run.directory}/a\n")


async def test_hazard_42_the_border_between_argument_and_memory_file(run: Runner) -> None:
    for length in (LONGEST_ARGUMENT - 1, LONGEST_ARGUMENT, LONGEST_ARGUMENT + 1):
        text = "echo ${#v}"
        text = f"v={'x' * (length - len(text) - 3)};{text}"
        assert len(text) == length
        assert (await run(text)).stdout == f"{length - 13}\n"


async def test_hazard_43_command_and_environment_over_the_total_limit(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(30):
        monkeypatch.setenv(f"BALLAST{index}", "x" * 100_000)
    result = failed(await run("true"))
    assert result[2:] == ("spawn", "cannot start the command: it and the environment are too long (E2BIG)")
    for index in range(30):
        monkeypatch.delenv(f"BALLAST{index}")
    assert (await run("true")).exit_code == 0


async def test_hazard_44_nul_and_lone_surrogates_are_failures_not_crashes(run: Runner) -> None:
    assert failed(await run("echo a\0b"))[2:] == ("spawn", "the command contains a NUL character")
    assert failed(await run("echo \ud800"))[2:] == ("spawn", "the command contains a character that cannot be encoded")


@contextlib.contextmanager
def no_descriptors() -> Iterator[list[int]]:
    """Use up all descriptors of this process. The test can close the yielded descriptors one by one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, _descriptors())) + 48, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        yield held
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


EMFILE = ("spawn", "cannot start the command: too many open files (EMFILE)")


def _descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


async def test_hazard_49_without_descriptors_nothing_leaks_and_the_next_one_works(run: Runner) -> None:
    await run("true")
    before = _descriptors()
    with no_descriptors() as held:
        results = [await run("true")]
        while results[-1].outcome == "spawn_failed":
            os.close(held.pop())
            results.append(await run("true"))
    assert results[-1].exit_code == 0
    assert {failed(result)[2:] for result in results[:-1]} == {EMFILE}
    assert _descriptors() == before


async def test_hazard_49_the_first_command_does_not_hang_and_the_watchdog_comes_later(
    engine: Engine, run: Runner
) -> None:
    engine.start()
    with no_descriptors():
        assert failed(await run("true"))[2:] == EMFILE
    assert (await run("true")).exit_code == 0
    assert engine._watchdog.pid is not None


async def test_hazard_49_a_command_ends_even_without_a_descriptor_to_observe_it(engine: Engine, run: Runner) -> None:
    task = run.start("trap '' TERM; touch ready; sleep 60; sleep 60")
    await appears(run.directory / "ready")
    with no_descriptors():
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert marked(engine.marker) == []


def test_hazard_51_no_preexec_fn_and_no_pty_in_the_code() -> None:
    for path in Path(prose_kernel.processes.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword):
                assert node.arg not in ("preexec_fn", "shell"), path.name
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert not {alias.name for alias in node.names} & {"pty", "fcntl.lockf"}, path.name


async def test_hazard_51_spawning_with_busy_threads(run: Runner) -> None:
    stop = threading.Event()

    def allocate() -> None:
        while not stop.is_set():
            [str(number) for number in range(1000)]

    threads = [threading.Thread(target=allocate) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        results = await asyncio.gather(*(run("true") for _ in range(10)))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {result.exit_code for result in results} == {0}


async def test_acceptance_6_hazard_55_standard_input_is_empty(run: Runner) -> None:
    assert ((await run("cat")).exit_code, (await run("cat")).stdout) == (0, "")
    assert (await run("read x; echo $?")).stdout == "1\n"


async def test_acceptance_6_hazard_56_there_is_no_terminal(run: Runner) -> None:
    result = await run("read x </dev/tty", timeout=10)
    assert (result.outcome, result.exit_code) == ("exited", 1)
    assert (await run("tty; ps -o tty= -p $$ 2>/dev/null || echo '?'")).stdout.split() == ["not", "a", "tty", "?"]


async def test_acceptance_7_quotes_and_braces_reach_the_shell_literally(run: Runner) -> None:
    result = await run("""x='$(no)'; echo "$(echo in)" '{a}' "{b}" $x \\$y `echo tick` """)
    assert result.stdout == "in {a} {b} $(no) $y tick\n"


async def test_hazard_57_decoding_does_not_depend_on_the_locale(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    assert (await run("printf 'ä😀'")).stdout == "ä😀"


async def test_hazard_58_umask_and_limits_are_inherited(run: Runner) -> None:
    before = os.umask(0o027)
    try:
        assert (await run("umask; ulimit -n")).stdout == f"0027\n{resource.getrlimit(resource.RLIMIT_NOFILE)[0]}\n"
    finally:
        os.umask(before)


@pytest.mark.parametrize("shell", ["bash", "sh", "zsh"])
async def test_hazard_59_no_startup_file_runs(
    engine: Engine, tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(shell)
    for name in (".bashrc", ".profile", ".bash_profile", ".zshrc", ".zshenv", ".zprofile", "env"):
        (tmp_path / name).write_text("echo started\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ZDOTDIR", str(tmp_path))
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env"))
    monkeypatch.setenv("ENV", str(tmp_path / "env"))
    result = await Runner(ShellCommands(engine, shell), tmp_path)("echo ${BASH_ENV-none} ${ENV-none}")
    assert result.stdout == "none none\n"


async def test_the_environment_follows_the_kernels_and_carries_the_marker(
    run: Runner, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST", "1")
    assert (await run("echo $FIRST $PROSE_JOB")).stdout == f"1 {engine.marker}:exec\n"
    monkeypatch.setenv("FIRST", "2")
    monkeypatch.setenv("PROSE_JOB", "outer:exec")
    assert (await run("echo $FIRST $PROSE_JOB; export FIRST=3")).stdout == f"2 {engine.marker}:exec\n"
    assert (await run("echo $FIRST")).stdout == "2\n"
    monkeypatch.delenv("FIRST")
    assert (await run("echo ${FIRST-none}")).stdout == "none\n"


async def test_hazard_60_only_the_named_descriptors_are_open_in_the_child(run: Runner) -> None:
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        listing = "for f in /proc/$$/fd/*; do [ -e $f ] && echo ${f##*/}; done"
        assert set((await run(listing, track=False)).stdout.split()) <= {"0", "1", "2", "255"}
        (report,) = set((await run(listing)).stdout.split()) - {"0", "1", "2", "255"}
        assert int(report) >= LOWEST_DESCRIPTOR, "of the directory; the lowest number that is free in this process"
        assert int(report) != leaked
    finally:
        os.close(leaked)


@pytest.mark.linux
async def test_hazard_64_a_command_is_chosen_before_the_kernel_when_memory_runs_out(run: Runner) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    inner = int((await run("sleep 0.05; cat /proc/self/oom_score_adj")).stdout)
    assert inner > own or own == 1000


SIGNALS = "grep -E '^Sig(Blk|Ign)' /proc/self/status"


def masks(text: str) -> dict[str, int]:
    return {name: int(mask, 16) for name, mask in (line.split(":") for line in text.splitlines())}


def bits(*numbers: int) -> int:
    return sum(1 << (number - 1) for number in numbers)


async def test_hazard_27_children_start_with_default_dispositions_and_an_empty_mask(run: Runner) -> None:
    wanted = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in wanted}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGINT})
    try:
        result = masks((await run(SIGNALS)).stdout)
        os.kill(os.getpid(), signal.SIGTERM)  # this process still ignores it
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert result["SigBlk"] == 0
    assert result["SigIgn"] & bits(*wanted, signal.SIGPIPE) == 0


async def test_hazard_27_an_interrupt_reaches_a_program_though_the_kernel_ignores_it(
    run: Runner, engine: Engine
) -> None:
    engine.grace = 30.0  # the INT ends it, and no later step
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        task = run.start("trap 'echo got it; exit 9' INT; touch ready; while :; do sleep 0.02; done")
        await appears(run.directory / "ready")
        run.commands.interrupt()
        result = await task
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.stdout, result.exit_code) == ("got it\n", 9)


async def test_acceptance_5_branches_run_at_the_same_time_and_apart(run: Runner) -> None:
    """Each branch waits for the other."""
    command = "cd {}; touch here; until [ -e ../{}/here ]; do sleep 0.01; done; pwd"
    (run.directory / "a").mkdir()
    (run.directory / "b").mkdir()
    one, two = await asyncio.gather(run(command.format("a", "b")), run(command.format("b", "a")))
    assert (one.stdout, two.stdout) == (f"{run.directory}/a\n", f"{run.directory}/b\n")


async def test_hazards_46_47_48_programs_that_cannot_run_are_the_shells_to_report(run: Runner) -> None:
    def program(name: str, text: str) -> Path:
        path = run.directory / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    program("no_interpreter", "#!/no/such/interpreter\n")
    program("crlf", "#!/bin/sh\r\n")
    (run.directory / "plain").write_text("echo hi\n")
    (run.directory / "directory").mkdir()
    codes = [(await run(text)).exit_code for text in ("./no_interpreter", "./crlf", "./plain", "./directory")]
    assert set(codes[:2]) <= {126, 127}
    assert codes[2:] == [126, 126]
    busy = run.directory / "busy"
    shutil.copy("/bin/true", busy)
    with busy.open("r+b"):
        assert (await run("./busy")).exit_code == 126
    assert (await run("./busy")).exit_code == 0


async def test_hazard_63_the_shell_corrects_a_stale_pwd(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/usr")
    assert (await run('echo "$PWD"')).stdout == f"{run.directory}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "busybox", "mksh", "ksh"])
async def test_a30_pipefail_in_every_shell_that_has_it(engine: Engine, tmp_path: Path, shell: str) -> None:
    needs(shell)
    commands = ShellCommands(engine, shell)
    for command in ("(exit 3) | cat", f": '{'x' * LONGEST_ARGUMENT}'; (exit 3) | cat"):
        for track in (True, False):
            piped = CommandRequest(command, str(tmp_path), 9.0, track)
            plain = await commands.run(piped)
            result = await commands.run(structs.replace(piped, pipefail=True))
            assert (plain.exit_code, plain.code_hidden) == (0, True)
            assert (result.exit_code, result.kind, result.stderr) == (3, "exit", "")


async def test_a30_a_shell_without_pipefail_is_an_error_that_says_so(engine: Engine, tmp_path: Path) -> None:
    shell = tmp_path / "dash"
    shell.write_text('#!/bin/sh\n[ "$1" = -o ] && { echo "Illegal option -o pipefail" >&2; exit 2; }\nexec sh "$@"\n')
    shell.chmod(0o755)
    commands = ShellCommands(engine, str(shell))
    request = CommandRequest("true | true", str(tmp_path), 9.0)
    assert (await commands.run(request)).exit_code == 0
    refused = failed(await commands.run(structs.replace(request, pipefail=True)))
    assert refused == (
        "spawn_failed",
        127,
        "spawn",
        "the shell dash has no pipefail; choose another one (PROSE_SHELL=bash)",
    )
