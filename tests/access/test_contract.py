"""One grant model: the session's tools and `Exec` answer the same questions in the same way (A22)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prose_kernel.access import created_code
from prose_kernel.access.created_code import agree, require_agreed, waiting, watch
from prose_kernel.access.globs import Glob
from prose_kernel.access.session_permissions import Policy
from prose_kernel.cli.main import main
from prose_kernel.errors import ImportProgramError, UsageError
from prose_kernel.evaluation import spec
from prose_kernel.evaluation.assertions import PythonFunction
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.exec_tool.capabilities import capabilities
from prose_kernel.processes.exec_tool.tool import AgentPrograms
from prose_kernel.processes.long_lived_processes import Helpers
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.sandbox import mechanisms
from prose_kernel.programs.lock_file import LockFile
from prose_kernel.runs import settings
from prose_kernel.runtime.services import ExecCaller
from prose_kernel.runtime.session_options import Rule

FILES = [
    "docsecret.md", "docs/a.md", "docs/old/a.md", "docs2/a.md", "docs/a.txt", "docs", "README.md", "src/x/y.py",
    "src/y.py", "toolsrun", "tools/run", "tools-2/run", "tools/x/run", "out", "out/deep/a", "linked/a.md", "a b/[x].md",
]  # fmt: skip
PATTERNS: list[tuple[str, ...]] = [
    ("docs**/*.md",), ("docs/**",), ("docs/",), ("docs",), ("**/*.md",), ("**",), ("*",), ("src/**/*.py",),
    ("tools**/run",), ("tools/*",), ("out/", "docs/*.txt"), (".",), ("./docs//*.md",), ("/",), ("~/*",), ("linked/*",),
    ("docs/../src",), ("a b/[x].md",), ("**.md",), ("d?cs/*",), ("*/",), ("~",), ("**/**/run",), ("nowhere/**",),
]  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    work = tmp_path.resolve() / "work"
    (work / "docs").mkdir(parents=True)
    (work / "linked").symlink_to(work / "docs")
    return work


def rules_of(work: Path, kind: str, rule: Rule) -> Policy:
    environment = {"HOME": str(work.parent), "PATH": "/bin"}
    return Policy.of({kind: rule}, {}, str(work), environment=environment)


@pytest.mark.parametrize("patterns", PATTERNS, ids=" ".join)
@pytest.mark.parametrize("kind", ["read", "write", "execute"])
def test_a22_exec_and_session_rules_give_the_same_answer(tree: Path, kind: str, patterns: tuple[str, ...]) -> None:
    record = capabilities(
        ExecCaller("agent", str(tree), {kind: patterns}), ExecOptions(enabled=True), "/bin", str(tree.parent)
    )
    reach = record.reach(binaries=kind == "execute", writable=kind == "write")
    places = [os.path.realpath(tree / name) for name in FILES]
    ours = [place for place in places if reach.covers(place)]
    if any(".." in pattern for pattern in patterns):
        assert ours == []  # sessions refuse the whole block
        return
    policy = rules_of(tree, kind, patterns)
    assert [place for place in places if policy.decide(kind, place).answer == "allow"] == ours  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["allow", "prompt", "deny", "workspace", "perhaps", ""])
@pytest.mark.parametrize("kind", ["read", "write", "execute"])
def test_a22_a_word_means_the_same_for_exec_and_sessions(tree: Path, kind: str, word: str) -> None:
    caller = ExecCaller("agent", str(tree), {kind: rules_of(tree, kind, word).rule(kind)})  # type: ignore[arg-type]
    reach = capabilities(caller, ExecOptions(), "/bin").reach(binaries=True)
    place = str(tree / "README.md")
    allowed = rules_of(tree, kind, word).decide(kind, place).answer != "deny"  # type: ignore[arg-type]
    assert reach.covers(place) == allowed


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentPrograms]:
    engine = Engine(grace=0.3, state_dir=tmp_path_factory.mktemp("state"))
    yield AgentPrograms(engine, ExecOptions(enabled=True), AuditLog(), kernel=lambda: {"PATH": "/bin"})
    engine.close()


async def test_a22_two_stars_inside_a_name_do_not_match_a_neighbour(tree: Path, programs: AgentPrograms) -> None:
    """`execute: ["tools**/run"]` runs `tools-2/run` and not `toolsrun`, both for `Exec` and for the rules of the session."""
    patterns = ("tools**/run",)
    policy = rules_of(tree, "execute", patterns)
    caller = ExecCaller("agent", str(tree), {"read": "workspace", "execute": patterns, "network": "allow"})
    for name, allowed in (("toolsrun", False), ("tools-2/run", True)):
        path = tree / name
        path.parent.mkdir(exist_ok=True)
        shutil.copy("/bin/true", path)
        outcome = await programs.call(caller, name, {"argv": [str(path)]})
        assert (outcome.ok, policy.decide("execute", str(path)).answer) == (allowed, "allow" if allowed else "deny")
        assert allowed or outcome.error == "fs_denied"


def test_a22_a_matcher_needs_linear_time() -> None:
    """Each of these takes a backtracking matcher longer than the age of the universe."""
    assert not Glob("*a" * 30 + "b").matches("a" * 20_000)
    assert not Glob("**/a*" * 30 + "/b").matches("a/" * 10_000)
    assert not Glob("?*" * 40 + "/x").matches("a" * 20_000)


NEVER = [
    ".git/config", ".git", "sub/.git/hooks/pre-commit", ".GIT/config", ".envrc", "sub/deep/.envrc", ".venv/bin/python",
    "sub/.venv/pyvenv.cfg", "prose.toml", "sub/prose.toml", ".prose/runs/x/state.md", "sub/.prose/tasks.db",
]  # fmt: skip


@pytest.mark.parametrize("rule", ["allow", ("**",), ("/",), (".git/", ".venv/**", "**/prose.toml", ".envrc")])
def test_a22_paths_protected_from_writing(tree: Path, rule: Rule) -> None:
    policy = rules_of(tree, "write", rule)
    assert [name for name in NEVER if policy.decide("write", str(tree / name)).answer != "deny"] == []
    reader = rules_of(tree, "read", "allow")
    assert [name for name in NEVER if reader.decide("read", str(tree / name)).answer != "allow"] == []


LOADED = [
    "prose_tools.py", "sub/Prose_Tools.PY", "prose_tools/__init__.py", "conftest.py", "a/b/conftest.py", "pytest.ini",
    "sitecustomize.py", "lib/usercustomize.py", "venv/pyvenv.cfg", "venv/lib/site-packages/evil.pth", "evil.pth",
    "triage.eval.toml", "evals/X.EVAL.TOML", "__pycache__/helper.cpython-311.pyc", "jupyter_lab_config.py",
    "jupyter_server_config.json", "ipython_config.py", "evals/checks.py", "shared/polite.py",
    "src/evil.dist-info/entry_points.txt", "lib/helper.py", "lib/deep/er.py", "servers/tools.py", "servers/start.sh",
    "lib/real.py",
]  # fmt: skip


@pytest.mark.parametrize("rule", ["allow", "prompt", ("**",), ("*.py", "**/*.py"), ("prose_tools.py", "evals/")])
def test_a35_no_session_writes_files_that_code_is_loaded_from(tree: Path, rule: Rule) -> None:
    (tree / "evals").mkdir(exist_ok=True)
    (tree / "evals" / "triage.eval.toml").write_text(
        "[[assert]]\npython = \"checks.py:polite\"\n[[assert]]\npython = '../shared/polite.py:ok'\nbroken ="
    )
    for name in ("lib/deep/er.py", "lib/helper.py", "lib/real.py", "servers/tools.py", "servers/start.sh"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("import deep.er" if name == "lib/helper.py" else "")
    (tree / "lib" / "prose_tools.py").write_text("def f():\n    from helper import x\n")
    (tree / "conftest.py").symlink_to("lib/real.py")
    (tree / "prose.toml").write_text(
        '[mcp.one]\ncommand = ["python", "servers/tools.py"]\n[agents.two]\ncommand = ["./servers/start.sh"]\n'
        '[permissions]\nwrite = ["harmless.py"]\n'
    )
    policy = rules_of(tree, "write", rule)
    assert [name for name in LOADED if policy.decide("write", str(tree / name)).answer != "deny"] == []
    assert "polite.py" not in policy.decide("write", str(tree / "checks.py")).why
    reader = rules_of(tree, "read", "allow")
    assert [name for name in LOADED if reader.decide("read", str(tree / name)).answer != "allow"] == []


REPLACE = """
import os, shutil
def tries(path, name):
    new = name + ".new"
    open(new, "w").write("evil")
    yield lambda: open(path, "w").write("evil")
    yield lambda: open(path, "a").write("evil")
    yield lambda: os.rename(new, path)
    yield lambda: os.remove(path)
    yield lambda: os.truncate(path, 0)
    yield lambda: os.rename(path, path + ".old")
    yield lambda: os.chmod(path, 0o777)
    yield lambda: (os.link(path, name + ".link"), open(name + ".link", "w").write("evil"))
    yield lambda: (os.symlink(path, name + ".sym"), open(name + ".sym", "w").write("evil"))
    yield lambda: open(f"/proc/self/cwd/{path}", "w").write("evil")
    yield lambda: open(f"/proc/{os.getppid()}/root/{os.path.abspath(path)}", "w").write("evil")
for number, path in enumerate(PATHS):
    for attempt, trial in enumerate(tries(path, f"try{number}")):
        try: trial(); print(path, attempt)
        except OSError: pass
open("fine.py", "w").write("fine")
"""


@pytest.mark.skipif(not (mechanisms().apart and mechanisms().scopes), reason="no namespaces, or no Landlock, here")
@pytest.mark.parametrize("bound", [True, False])
async def test_a35_programs_of_sessions_cannot_write_files_that_code_is_loaded_from(
    tree: Path, programs: AgentPrograms, bound: bool
) -> None:
    held = ["prose_tools.py", "conftest.py", "triage.eval.toml", "polite.py"]
    held += ["sub/conftest.py", "prose.toml", ".git/hooks/pre-commit", ".prose/.env"] if bound else []
    for name in held:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("good")
    (tree / "triage.eval.toml").write_text('python = "polite.py:f"')
    rules: dict[str, Rule] = {"read": "allow", "write": ("*.py",) if bound else "deny", "execute": "allow"}
    caller = ExecCaller("agent", str(tree), {**rules, "network": "allow", "bash": "allow"}, bound)
    python = str(Path(sys.executable).resolve())
    script = REPLACE.replace("PATHS", repr(held))
    outcome = await programs.call(caller, "1", {"argv": [python, "-I", "-S", "-c", script], "cwd": str(tree)})
    assert outcome.ok, outcome.message
    assert outcome.result["stdout"] == "" and outcome.result["exit_code"] == 0, outcome.result
    assert [name for name in held if (tree / name).read_text() not in ("good", 'python = "polite.py:f"')] == []
    assert (tree / "fine.py").read_text() == "fine"


def _sets(tree: Path) -> tuple[ExecCaller, str]:
    rules: dict[str, Rule] = {"read": "allow", "write": (".",), "execute": "allow"}
    caller = ExecCaller("agent", str(tree), {**rules, "network": "allow", "bash": "allow"}, True)
    return caller, str(Path(sys.executable).resolve())


CREATED = [
    "conftest.py",
    "prose_tools.py",
    "helper.py",
    "sub/prose.toml",
    "x.eval.toml",
    ".prose/.env",
    "deep/er/.git/config",
]


@pytest.mark.skipif(not (mechanisms().apart and mechanisms().scopes), reason="no namespaces, or no Landlock, here")
async def test_a35_a_command_that_creates_loadable_files_fails(
    tree: Path, programs: AgentPrograms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree)
    (tree / "old").mkdir()
    (tree / "old" / "prose_tools.py").write_text("import other\n")
    caller, python = _sets(tree)
    script = f"""
import os
for name in {[*CREATED, "old/other.py", "fine.py", "docs/fine.md"]!r}:
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    try: open(name, "w").write("import helper")
    except OSError: print(name)
"""
    argv = [python, "-I", "-S", "-c", script]
    outcome = await programs.call(caller, "1", {"argv": argv, "cwd": str(tree)})
    assert (outcome.ok, outcome.error) == (False, "fs_denied")
    created = ["conftest.py", "prose_tools.py", "helper.py", "sub/prose.toml", "x.eval.toml", "deep/er/.git"]
    created += ["old/other.py"]
    assert sorted(waiting(tree)) == sorted(str(tree / name) for name in created)
    assert not (tree / ".prose" / ".env").exists()  # this directory belongs to the run
    assert sum(name in outcome.message for name in created) == 5 and "and 2 more" in outcome.message
    for name in created:
        with pytest.raises(UsageError, match="created by a program"):
            require_agreed([tree / name])
    require_agreed([tree / "fine.py", tree / "old" / "prose_tools.py"])
    again = await programs.call(caller, "2", {"argv": [python, "-I", "-S", "-c", "0"], "cwd": str(tree)})
    assert again.ok, again.message
    monkeypatch.setenv("PROSE_JOB", "1")
    assert main(["trust", "helper.py"]) == 2
    monkeypatch.delenv("PROSE_JOB")
    assert main(["trust"]) == 0
    assert capsys.readouterr().out.splitlines() == sorted(created)
    assert main(["trust", "helper.py", "conftest.py"]) == 0
    require_agreed([tree / "helper.py", tree / "conftest.py"])
    assert main(["trust", "fine.py"]) == 2
    (tree / "prose_tools.py").unlink()
    assert str(tree / "prose_tools.py") not in waiting(tree)
    (tree / "prose_tools.py").write_text("")  # created by the person
    require_agreed([tree / "prose_tools.py"])


@pytest.mark.parametrize("file", ["prose.toml", ".prose/.env", "prose.lock", "x.eval.toml", "checks.py", "server.py"])
async def test_a35_created_files_are_not_used(tree: Path, file: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    if file == "server.py":
        (tree / "prose.toml").write_text('[mcp.one]\ncommand = ["python", "server.py"]\n')
    (tree / "a.eval.toml").write_text('python = "checks.py:f"')
    watching = watch(str(tree), {str(tree): True})
    (tree / file).write_text("f = lambda: True")
    assert file in watching.end()
    engine = Engine(grace=0.3, state_dir=tmp_path_factory.mktemp("state"))

    async def use() -> None:
        match file:
            case "prose.lock":
                LockFile(tree / file).pins()
            case "x.eval.toml":
                spec.read(tree / file)
            case "checks.py":
                PythonFunction(tree, "checks.py:f")
            case "server.py":
                await Helpers(engine).start([sys.executable, file], {}, str(tree), print)
            case _:
                settings.load(tree)

    try:
        with pytest.raises((UsageError, ImportProgramError, OSError), match="was created by a program of a session"):
            await use()
    finally:
        engine.close()


@pytest.mark.parametrize("settled", [False, True])
def test_a35_files_created_before_a_kill_are_found(tree: Path, settled: bool) -> None:
    (tree / "conftest.py").write_text("")
    watching = watch(str(tree), {str(tree): True})
    (tree / "prose.toml").write_text("")
    with pytest.raises(UsageError):  # while the program runs
        require_agreed([tree / "prose.toml"])
    os.close(watching._lock)  # its process is killed
    if settled:
        assert waiting(tree) == [str(tree / "prose.toml")]
    (tree / "pytest.ini").write_text("")
    with pytest.raises(UsageError):
        require_agreed([tree / "prose.toml"])
    require_agreed([tree / "conftest.py", *([tree / "pytest.ini"] if settled else [])])
    assert len(list((tree / ".prose" / "created").iterdir())) == 1
    assert agree(tree / "prose.toml") and (settled or agree(tree / "pytest.ini"))
    assert list((tree / ".prose" / "created").iterdir()) == []


def test_a35_files_created_while_another_process_looks_are_found(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching, listed = watch(str(tree), {str(tree): True}), created_code._listed

    def searched(*given: Any) -> tuple[list[str], bool]:
        monkeypatch.setattr(created_code, "_listed", listed)
        found = listed(*given)
        (tree / "prose.toml").write_text("")  # and only then the program ends
        assert "prose.toml" in watching.end()
        return found

    monkeypatch.setattr(created_code, "_listed", searched)
    require_agreed([tree / "conftest.py"])
    with pytest.raises(UsageError, match="was created by a program of a session"):
        require_agreed([tree / "prose.toml"])


def test_a35_nothing_is_hidden_below_many_directories(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prose_kernel.access.code_files._MOST_DIRECTORIES", 5)
    watching = watch(str(tree), {str(tree): True})
    for number in range(60):
        (tree / f"d{number}").mkdir()
    (tree / "d59" / "e").mkdir()
    (tree / "d59" / "e" / "prose_tools.py").write_text("")
    assert "cannot be searched" in watching.end()
    hidden, other = tree / "d59" / "e" / "prose_tools.py", tree / "d59" / "prose.toml"
    other.write_text("")
    with pytest.raises(UsageError):
        require_agreed([hidden])
    assert agree(hidden)
    require_agreed([hidden])
    with pytest.raises(UsageError):
        require_agreed([other])


def test_a35_other_python_files_may_be_written(tree: Path) -> None:
    policy = rules_of(tree, "write", ("**",))
    harmless = ["tools.py", "my_prose_tools.py", "prose_tools.py.md", "eval.toml", "test_conftest.py", "polite.py"]
    assert [name for name in harmless if policy.decide("write", str(tree / name)).answer != "allow"] == []


def test_a22_names_that_only_look_protected_are_not(tree: Path) -> None:
    policy = rules_of(tree, "write", ("**",))
    harmless = [".github/workflows/ci.yml", ".gitignore", "venv/x", ".envrc.example", "my-prose.toml", "prose.toml.md"]
    assert [name for name in harmless if policy.decide("write", str(tree / name)).answer != "allow"] == []


@pytest.mark.parametrize("name", ["PROSE_JOB", "PROSE_CASSETTE_MODE", "CC", "CXX", "PATH"])
async def test_a22_exec_refuses_variables_that_choose_programs(tree: Path, programs: AgentPrograms, name: str) -> None:
    caller = ExecCaller("agent", str(tree), {"read": "workspace", "execute": "allow", "bash": "allow"})
    outcome = await programs.call(caller, "1", {"argv": ["/usr/bin/env"], "env": {name: "/tmp/x"}})
    assert outcome.error == "invalid_args" and name in outcome.message
