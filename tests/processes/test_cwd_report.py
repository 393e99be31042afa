"""The directory report with all installed shells (exec-and-tasks.md 2.4; hazards 65, 66, 68, 69, 70)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from needs import needs
from processes.conftest import GRACE, Runner

from prose_kernel.processes.cwd_report import parse
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.shell import ShellCommands, resolve_shell

SHELLS = ("bash", "dash", "zsh", "busybox", "mksh", "ksh93")
START = "."
UNCHANGED = None


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    ends: str | None
    """The final directory of the outermost shell, relative to the start; None: no report, the directory stays what it was."""
    whole_text_shells: str | None = ""
    """The same in zsh and ksh93, where it differs: they read the whole text before they run its first line."""


CASES = (
    Case("nothing", ":", START),
    Case("cd", "cd a", "a"),
    Case("cd-then-exit-0", "cd a; exit 0; cd ..", "a"),
    Case("cd-then-exit-3", "cd a; exit 3", "a"),
    Case("cd-then-failure", "cd a; false", "a"),
    Case("errexit", "set -e; cd a; false; cd ..", "a"),
    Case("nounset", "set -u; cd a; echo $nope; cd ..", "a"),
    Case("not-found", "cd a; no_such_program_anywhere", "a"),
    Case("syntax-error-first", "if then", START),
    Case("syntax-error-later", "cd a\nif then\n", "a", START),
    Case("unclosed-quote", "echo 'open", START),
    Case("subshell", "(cd a)", START),
    Case("substitution", "x=$(cd a; pwd -P); echo ${#x} >/dev/null", START),
    Case("pipeline", "{ cd a; echo x; } | cat", START),
    Case("background", "cd a & wait", START),
    Case("comment-last", "cd a # and that is it", "a"),
    Case("here-document", "cd a; cat <<X\nfrom $0\nX", "a"),
    Case("backslash-last", "cd a; echo x \\", "a"),
    Case("own-exit-trap", "trap 'echo bye' EXIT; cd a", "a"),
    Case("closes-descriptors", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; cd a", "a"),
    Case("closes-streams", "exec >&- 2>&-; cd a", "a"),
    Case("redirects-streams", "exec >/dev/null 2>&1 </dev/null; cd a; echo lost", "a"),
    Case("file-size-limit", "ulimit -f 0; cd a", "a"),
    Case("functions-of-the-same-name", "pwd() { echo /evil; }; printf() { echo evil; }; cd a", "a"),
    Case("trace", "set -x; cd a; echo x", "a"),
    Case("link", "cd link", "a"),
    Case("noclobber", "set -C; cd a", "a"),
    Case("odd-separator", "IFS=07; cd a; (exit 7)", "a"),
    Case("name-with-newline", "cd 'new\nline'", "new\nline"),
    Case("name-with-dash", "cd -- -dash", "-dash"),
    Case("positional", 'echo "$0 $# $*"; set -- x y; cd a', "a"),
    Case("directory-gone", "mkdir gone; cd gone; rmdir ../gone", UNCHANGED),
    Case("directory-gone-errexit", "set -e; mkdir gone; cd gone; rmdir ../gone", UNCHANGED),
    Case("replaces-the-shell", "cd a; exec sleep 0", UNCHANGED),
    Case("killed", "cd a; kill -KILL $$", UNCHANGED),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for all tests: its thread and its watchdog cost more than a command."""
    engine = Engine(grace=GRACE, state_dir=tmp_path_factory.mktemp("state"))
    yield engine
    engine.close()


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    needs(request.param)
    return resolve_shell(request.param)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    for name in ("a", "new\nline", "-dash"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a")
    return tmp_path.resolve()


def unwrapped(shell: str, text: str, directory: Path) -> tuple[int, str]:
    flags = {"bash": ["--noprofile", "--norc"], "zsh": ["-f"], "busybox": ["sh"]}.get(Path(shell).name, [])
    done = subprocess.run(
        [shell, *flags, "-c", text, "exec"], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout.decode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hazard_65_every_case_reports_where_the_shell_ended(
    engine: Engine, shell: str, start: Path, case: Case
) -> None:
    result = await Runner(ShellCommands(engine, shell), start)(case.text)
    code, stdout = unwrapped(shell, case.text, start)
    whole_text = Path(shell).name in ("zsh", "ksh93") and case.whole_text_shells != ""
    ends = case.whole_text_shells if whole_text else case.ends
    expected = None if ends is None else os.path.normpath(start / ends)
    assert (result.cwd_after, result.exit_code, result.stdout) == (expected, code, stdout)


async def test_acceptance_2_the_directory_goes_from_command_to_command(run: Runner) -> None:
    """The port's half: the directories that the machine commits (2.4); the machine's tests cover `parallel` and cells."""
    (run.directory / "a" / "b").mkdir(parents=True)
    first = await run("cd a; exit 0")
    assert first.cwd_after == str(run.directory / "a")
    failing = await run("cd b; false", cwd=first.cwd_after)
    assert (failing.exit_code, failing.cwd_after) == (1, str(run.directory / "a" / "b"))
    inner = await run("(cd /)", cwd=failing.cwd_after)
    assert inner.cwd_after == failing.cwd_after
    late = await run("cd /; sleep 10", cwd=failing.cwd_after, timeout=0.2)
    assert late.cwd_after is None


async def test_acceptance_8_a_command_leaves_no_file_that_it_did_not_make(run: Runner) -> None:
    """The port's half: the machine and the store handle bindings."""
    for text in ("echo hi", "exit 3", "cd /", f": {'x' * 200_000}", "sleep 10"):
        await run(text, timeout=0.2)
    assert list(run.directory.iterdir()) == []


async def test_acceptance_9_the_value_of_a_command_keeps_its_last_newline(run: Runner) -> None:
    """The port's half: interpolation strips it, the binding's file keeps it."""
    assert (await run(r"printf 'a\n\n'")).stdout == "a\n\n"


async def test_line_numbers_in_messages_are_the_commands_own(run: Runner) -> None:
    result = await run("echo one\nno_such_program_anywhere")
    assert result.stderr == "exec: line 2: no_such_program_anywhere: command not found\n"


async def test_a_syntax_error_does_not_mention_the_wrapper(run: Runner) -> None:
    result = await run("echo 'open")
    assert result.stderr == "exec: eval: line 1: unexpected EOF while looking for matching `''\n"


async def test_without_tracking_there_is_no_report(run: Runner) -> None:
    (run.directory / "a").mkdir()
    result = await run('cd a; echo "$0 $#"; exit 3', track=False)
    assert (result.cwd_after, result.exit_code, result.stdout) == (None, 3, "exec 0\n")


async def test_an_exit_trap_with_an_exit_is_a_known_blind_spot(run: Runner) -> None:
    """2.4: the report is then "unchanged", never a wrong directory."""
    (run.directory / "a").mkdir()
    result = await run("trap 'cd /; exit 4' EXIT; cd a; exit 3")
    assert (result.cwd_after, result.exit_code) == (None, 4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"/usr\n",
        b"/usr",
        b"usr\n\0",
        b"/usr\0",
        b"/no/such/place\n\0",
        b"\n\0",
        b"/usr\n\0junk\n\0",
        b"/" + b"x" * 5000 + b"\n\0",
        b"/etc/passwd\n\0",
    ],
)
def test_hazard_66_an_invalid_report_is_ignored(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize("data", [b"/usr\n\0", b"/\n\0/usr\n\0", b"junk/usr\n\0/usr\n\0", b"/usr\n\0/bi"])
def test_hazard_66_the_last_complete_record_counts(data: bytes) -> None:
    assert parse(data) == "/usr"


@pytest.mark.parametrize("junk", ["junk", "/tmp", r"/no/such\n\0", r"\0\0\n"])
async def test_hazard_66_a_command_cannot_forge_the_report(run: Runner, junk: str) -> None:
    (run.directory / "a").mkdir()
    result = await run(f"printf '{junk}' >/dev/fd/100; cd a")
    assert result.cwd_after == str(run.directory / "a")


async def test_hazard_68_names_that_are_not_utf8_make_the_round_trip(run: Runner) -> None:
    directory = os.fsencode(run.directory) + b"/caf\xe9"
    Path(os.fsdecode(directory)).mkdir()
    first = await run("cd caf*")
    assert first.cwd_after is not None
    assert os.fsencode(first.cwd_after) == directory
    assert (await run("pwd -P", cwd=first.cwd_after)).exit_code == 0


async def test_hazard_68_a_very_long_path_is_reported(run: Runner) -> None:
    result = await run('for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir "$0$(printf %0250d 1)"; cd exec*; done')
    assert result.cwd_after is not None
    assert len(result.cwd_after) > 3000


async def test_hazard_69_the_physical_path_survives_the_renaming_of_a_link(run: Runner) -> None:
    (run.directory / "real").mkdir()
    (run.directory / "link").symlink_to("real")
    result = await run("cd link")
    (run.directory / "link").rename(run.directory / "other")
    assert result.cwd_after == str(run.directory / "real")
    assert (await run("pwd", cwd=result.cwd_after)).stdout == f"{run.directory}/real\n"


async def test_hazard_70_a_chdir_in_this_process_means_nothing(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    assert (await run("pwd")).stdout == f"{run.directory}\n"
    assert Path.cwd() == Path("/usr")


async def test_hazard_67_fifty_branches_cannot_see_each_other(run: Runner) -> None:
    import asyncio

    for index in range(50):
        (run.directory / f"d{index}").mkdir()
    results = await asyncio.gather(*(run(f"cd d{index}; pwd") for index in range(50)))
    assert [result.cwd_after for result in results] == [str(run.directory / f"d{index}") for index in range(50)]
    assert [result.stdout for result in results] == [f"{run.directory}/d{index}\n" for index in range(50)]
