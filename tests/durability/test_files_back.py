"""Going back with files: the tree of any point of a run is restored, and changes by others are kept."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from prose_kernel.cli import runs_recovery
from prose_kernel.cli.main import main
from prose_kernel.storage import file_history

RUNS = 50 if "DURABILITY_EXAMPLES" in os.environ else 2
COMMANDS = 8
FORKS = 20

NAMES = ["a", "b", "c", "d e", "ü", "-f", "$'\\xff\\xfe'"]
CONTENTS = ["printf 'text\\n'", "printf '\\x00\\xff\\x01'", "true", "seq 400", "head -c 70000 /dev/zero"]


def entry(path: Path) -> tuple[str, int, str | bytes]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "link", 0, str(path.readlink())
    return ("directory", stat.S_IMODE(mode), "") if path.is_dir() else ("file", stat.S_IMODE(mode), path.read_bytes())


def tree(directory: Path) -> dict[bytes, tuple[str, int, str | bytes]]:
    found: dict[bytes, tuple[str, int, str | bytes]] = {}
    for place, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name != ".prose"]
        for name in (*directories, *files):
            path = Path(place, name)
            found[os.fsencode(path.relative_to(directory))] = entry(path)
    return found


def quoted(name: str) -> str:
    return name if name.startswith("$") else f"'./{name}'"


def script(chosen: random.Random) -> str:
    """Return shell commands that change files; some of them fail."""

    def path() -> str:
        return "/".join(quoted(chosen.choice(NAMES)) for _ in range(chosen.randint(1, 3)))

    lines = []
    for _ in range(chosen.randint(1, 6)):
        one, other = path(), path()
        lines.append(
            chosen.choice(
                [
                    f"{chosen.choice(CONTENTS)} > {one}",
                    f"echo more >> {one}",
                    f"mkdir -p {one}; {chosen.choice(CONTENTS)} > {one}/{quoted(chosen.choice(NAMES))}",
                    f"rm -rf ./{one}",
                    f"mv ./{one} ./{other}",
                    f"cp -r ./{one} ./{other}",
                    f"ln -sfn ../{other} {one}",
                    f"chmod {chosen.choice(['600', '755', '500', '444'])} ./{one}",
                    f"rm -rf ./{one}; {chosen.choice(CONTENTS)} > {one}",
                ]
            )
        )
    return "\n".join(f"( {line} ) 2>/dev/null" for line in lines) + "\ntrue\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    (directory / "prose.toml").write_text("[run]\nkeep_files = true\n")
    return directory


def run(directory: Path, *commands: str, status: int = 0) -> str:
    """Run a program with these commands, and return the id of the run."""
    Path(directory, "p.prose").write_text("".join(f"exec {json.dumps(command)}\n" for command in commands))
    before = {one.name for one in directory.glob(".prose/runs/*")}
    assert main(["run", "p.prose"]) == status
    (new,) = {one.name for one in directory.glob(".prose/runs/*")} - before
    return new


def fork(run_id: str, at: str, *options: str, status: int = 0) -> None:
    assert main(["runs", "fork", run_id, at, "--files", *options]) == status


@pytest.mark.parametrize("seed", range(RUNS))
def test_the_tree_is_restored_at_every_point_of_a_run(seed: int, place: Path) -> None:
    """The tree has files that git does not track, binary files, links, modes and names that are not UTF-8."""
    chosen = random.Random(seed)
    outside = place.parent
    (outside / "then").mkdir()
    commands = []
    for number in range(COMMANDS):
        (outside / f"{number}.sh").write_text(script(chosen))
        commands.append(f"cp -a . ../then/{number}; bash ../{number}.sh")
    run_id = run(place, *commands)
    trees = [tree(outside / "then" / str(number)) for number in range(COMMANDS)]
    assert any(one != trees[0] for one in trees)
    for _ in range(FORKS):
        at = chosen.randrange(COMMANDS)
        fork(run_id, f"c1/{at + 1}")
        assert tree(place) == trees[at]


def test_a_branch_can_go_back_to_points_before_its_start(place: Path) -> None:
    (place / "a").write_text("0")
    run_id = run(place, *(f"printf {number} > a" for number in range(1, 5)))
    fork(run_id, "c1/3")
    branch = max(place.glob(".prose/runs/*"), key=lambda one: one.stat().st_mtime_ns).name
    assert (place / "a").read_text() == "2"
    assert main(["run", "--resume", branch]) == 0
    assert (place / "a").read_text() == "4"
    for at, content in ((1, "0"), (2, "1"), (4, "3")):
        fork(branch, f"c1/{at}")
        assert (place / "a").read_text() == content


def test_changes_by_others_are_not_overwritten_silently(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("mine", "ours", "removed"):
        (place / name).write_text("before")
    run_id = run(place, "mkdir new; for f in ours removed new/made; do echo run > $f; done")
    for name in ("mine", "ours", "new/extra"):
        (place / name).write_text("person")
    (place / "removed").unlink()
    before = tree(place)
    fork(run_id, "c1/1", status=2)
    error = capfd.readouterr().err
    assert "  ours\n" in error
    assert "mine" not in error
    assert tree(place) == before
    assert len(list(place.glob(".prose/runs/*"))) == 1, "no branch has begun"
    fork(run_id, "c1/1", "--yes")
    assert {name: (place / name).read_text() for name in ("mine", "ours", "removed", "new/extra")} == {
        "mine": "person",
        "ours": "before",
        "removed": "before",
        "new/extra": "person",
    }
    assert not (place / "new/made").exists()
    assert "  new (it is not empty)\n" in capfd.readouterr().out


def test_changes_while_the_person_is_asked_are_not_overwritten(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = run(place, "for f in a b c; do echo run > $f; done")
    (place / "a").write_text("person")

    def change_and_agree(*_: str) -> None:
        (place / "b").write_text("later")

    monkeypatch.setattr(runs_recovery, "confirm", change_and_agree)
    fork(run_id, "c1/1")
    assert (sorted(one.name for one in place.glob("?")), (place / "b").read_text()) == (["b"], "later")
    assert (
        "Files and directories: 2 removed.\nLeft as they are:\n  b (it has just been changed)\n"
        in capfd.readouterr().out
    )


def test_changes_between_two_commands_do_not_belong_to_the_run(place: Path) -> None:
    """A person has changed two files before the run was resumed; the run has changed one of them."""
    (place / "a").write_text("0")
    (place / "b").write_text("0")
    run(place, "printf run > a; exit 1", status=1)
    (place / "a").write_text("person")
    (place / "b").write_text("person")
    (run_id,) = (one.name for one in place.glob(".prose/runs/*"))
    assert main(["run", "--resume", run_id]) == 1
    fork(run_id, "c1/1", status=2)
    fork(run_id, "c1/1", "--yes")
    assert ((place / "a").read_text(), (place / "b").read_text()) == ("0", "person")


def test_changes_by_a_killed_command_are_undone(place: Path) -> None:
    (place / "a").write_text("0")
    (place / "p.prose").write_text('exec "printf 1 > a"\nexec "printf 2 > a; touch b; kill -9 $ME; sleep 60"\n')
    code = "import os; os.environ['ME'] = str(os.getpid())\nfrom prose_kernel.cli.main import main\nmain(['run', 'p.prose'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    (run_id,) = (one.name for one in place.glob(".prose/runs/*"))
    fork(run_id, "c1/2", status=2)
    fork(run_id, "c1/2", "--yes")
    assert (place / "a").read_text() == "1"
    assert not (place / "b").exists()


def test_files_outside_the_directory_are_reported_and_kept(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outside = place.parent / "outside"
    outside.mkdir()
    run_id = run(place, "cd ../outside", "echo x > made; touch ../work/a")
    fork(run_id, "c1/1")
    assert f"{outside} (a command ran there" in capfd.readouterr().out
    assert (outside / "made").exists()
    assert not (place / "a").exists()


def test_caches_git_and_large_files_stay(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file_history, "MOST_BYTES", 10_000)
    (place / ".git").mkdir()
    (place / "large").write_bytes(b"0" * 20_000)
    tagged = "mkdir cache; touch cache/CACHEDIR.TAG"
    run_id = run(place, f"touch .git/x; mkdir __pycache__; touch __pycache__/y; {tagged}; echo >> large; echo > small")
    fork(run_id, "c1/1")
    assert "  large (its content was not kept)\n" in capfd.readouterr().out
    there = {str(one.relative_to(place)) for one in place.rglob("*") if ".prose" not in one.parts}
    assert there == {".git", ".git/x", "__pycache__", "__pycache__/y", "cache", "cache/CACHEDIR.TAG", "large"} | {
        "p.prose",
        "prose.toml",
    }


def test_too_many_files_end_the_file_history_but_not_the_run(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file_history, "MOST_FILES", 20)
    run_id = run(place, "touch $(seq 30)", "touch x")
    assert "no longer kept" in capfd.readouterr().err
    before = tree(place)
    fork(run_id, "c1/1", status=2)
    assert tree(place) == before


def test_a_run_without_kept_files_is_refused(place: Path) -> None:
    (place / "prose.toml").unlink()
    run_id = run(place, "touch a")
    assert not list(place.glob(".prose/runs/*/files*"))
    fork(run_id, "c1/1", status=2)
    assert main(["runs", "fork", run_id, "c1/1"]) == 0
    assert (place / "a").exists()


@pytest.mark.parametrize("path", ["../victim", "/victim", "a/../../victim", "link/victim"])
def test_a_forged_file_history_does_not_lead_outside(path: str, place: Path) -> None:
    outside = place.parent / "victim"
    outside.write_text("keep me")
    (place / "link").symlink_to("..")
    run_id = run(place, "touch a")
    line = {"at": 2, "own": True, "files": {path: None, f"{path}2": ["f", 0o644, "0" * 64]}}
    with (place / ".prose/runs" / run_id / file_history.HISTORY).open("a") as file:
        file.write(json.dumps(line) + "\nno json\n" + json.dumps({"at": 1, "files": {"a": ["f"]}}) + "\n")
    fork(run_id, "c1/1", "--yes")
    assert outside.read_text() == "keep me"
    assert not Path(f"{outside}2").exists()


def test_changed_content_of_the_history_is_not_restored(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "a").write_text("0")
    run_id = run(place, "printf 1 > a")
    for kept in (place / ".prose/runs" / run_id / "files").iterdir():
        kept.write_text("evil")
    fork(run_id, "c1/1")
    assert (place / "a").read_text() == "1"
    assert "  a (its content was not kept)" in capfd.readouterr().out
