"""No SDK is imported before a session needs it: not by the start of a kernel, a cell, or a session without a model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from stubs.model_server import StubServer

import prose_kernel

Imported = Callable[..., str]

HEAVY = (
    "pydantic_ai",
    "pydantic",
    "openai",
    "anthropic",
    "acp",
    "httpx",
    "httpx2",
    "dask",
    "distributed",
    "pygls",
    "lsprotocol",
    "prose_kernel.lsp",
    "psycopg",
    "prose_kernel.remote",
    "opentelemetry",
    "prose_kernel.telemetry",
)

FORKING = """
import asyncio, json, os, sys
from pathlib import Path
from prose_kernel.notebook import app, kernel
from prose_kernel.notebook.cells import Cells
from prose_kernel.runs import languages
from prose_kernel.runtime.asker import Unattended

class Output:
    def stream(self, name, text): pass
    def display(self, display, display_id=None): pass
    def result(self, display): pass
    def page(self, display): pass
    def update(self, display, display_id): pass
    def clear(self): pass
    def error(self, problem): print("error", problem)

async def run(texts):
    cells = Cells(Path.cwd(), Unattended())
    for cell in texts:
        await cells.run(cell, Output(), live=False)
    await cells.close()

def fork(given, among, warm):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if warm:
        Cells(Path.cwd(), None, languages.of_magic(warm)).warm_up()
    for directory, texts in given:
        os.chdir(directory)
        asyncio.run(run(texts))
    names = {".".join(name.split(".")[:depth]) for name in sys.modules for depth in (1, 2, 3, 4)}
    print(sorted(name for name in among if name in names), flush=True)

for line in sys.stdin:
    if not (pid := os.fork()):
        try:
            fork(*json.loads(line))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    print("status", os.waitpid(pid, 0)[1], flush=True)
"""
"""An interpreter that has imported a kernel, forks for each line, and prints the modules that its cells import."""


NOT_FOR_COMMANDS = (
    "prose_kernel.models",
    "prose_kernel.runs.provider_chain",
    "prose_kernel.judging",
    "prose_kernel.cassettes",
    "prose_kernel.access.grants",
    "prose_kernel.access.safe_files",
    "prose_kernel.processes.tasks",
    "prose_kernel.processes.exec_tool",
    "sqlite3",
)
"""Modules that a program with only commands does not need."""


@pytest.fixture(scope="module")
def started() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]  # ends the process


@pytest.fixture
def imported(started: subprocess.Popen[str]) -> Imported:
    """A function that returns the list of the modules `among` that cells in a directory import. `more` has cells in other
    directories, which run before; `warm` is the magic of the language that the kernel warms up for, before all cells."""

    def among(
        directory: Path,
        *cells: str,
        among: tuple[str, ...] = HEAVY,
        more: Sequence[tuple[Path, Sequence[str]]] = (),
        warm: str = "",
    ) -> str:
        assert started.stdin is not None and started.stdout is not None
        given = [(str(place), texts) for place, texts in (*more, (directory, cells))]
        started.stdin.write(json.dumps([given, among, warm]) + "\n")
        started.stdin.flush()
        *seen, status = _until_status(started.stdout)
        assert status == "status 0\n", seen
        return "".join(seen).strip()

    return among


def _until_status(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith("status "):
            return


def test_the_kernel_starts_without_the_shell_of_ipython() -> None:
    """A later import of IPython loads all of it."""
    code = """
import sys
from prose_kernel import __main__ as start
from traitlets.config import Application
Application.launch_instance = classmethod(lambda cls, argv=None, **options: print(cls.__name__))
start.main()
print("IPython" in sys.modules, "ipykernel.kernelbase" in sys.modules)
print([name for name in sys.modules if "debug" in name and name.startswith("prose_kernel")])
import IPython
print(IPython.get_ipython())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == ["ProseApp", "False True", "[]", "None"], ran.stderr


def test_providers_of_models_import_no_sdk_before_a_session_runs() -> None:
    code = (
        "import sys, prose_kernel.models.providers.model_sessions, prose_kernel.models.providers.model_judge\n"
        "import prose_kernel.models.providers.vendors\n"
        "print([m for m in ('pydantic_ai', 'pydantic', 'openai', 'anthropic', 'httpx2', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_preload_of_dasks_nannies_loads_no_modules_that_run_commands() -> None:
    code = (
        "import sys, prose_kernel.remote.worker_draining\n"
        "print([name for name in sys.modules if name.startswith('prose_kernel.processes')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


ORDINARY = 'let a = exec "echo 1"\nif **a is "1"**:\n  output b = a'
SESSION = 'session "Say something"'


NO_SDK = {
    "nothing": ("", [ORDINARY]),
    "models chosen": ('provider = "anthropic"\n[judge]\nprovider = "openai:x"\n', [ORDINARY]),
    "an agent chosen": ('provider = "acp:a"\n[agents.a]\ncommand = ["a"]\n', [ORDINARY]),
    "scripted": ('provider = "scripted"\nscript = "s.yaml"\n', [ORDINARY, SESSION]),
    "dry-run": ('provider = "dry-run"\n', [ORDINARY, SESSION]),
}


def test_cells_without_models_import_no_sdk(imported: Imported, tmp_path: Path) -> None:
    """All run in one process, because each of them would add to the list."""
    directories = []
    for name, (settings, cells) in NO_SDK.items():
        place = tmp_path / name
        place.mkdir()
        (place / "prose.toml").write_text(settings)
        (place / "s.yaml").write_text('sessions:\n  "*": "fine"\n')
        directories.append((place, cells))
    *more, (last, cells) = directories
    assert imported(last, *cells, more=more) == "[]"


def test_a_local_import_loads_no_modules_for_remote_programs(imported: Imported, tmp_path: Path) -> None:
    (tmp_path / "lib.prose").write_text("output x = 1\n")
    among = ("httpx2", "filelock", "prose_kernel.access.grants", "prose_kernel.programs.remote_programs")
    assert imported(tmp_path, 'use "./lib.prose"\nlet r = lib()', among=among) == "[]"


def test_a_replay_imports_no_sdk(imported: Imported, tmp_path: Path) -> None:
    """The recorded session imports one, which shows that the list works."""
    with StubServer() as stub:
        table = f'[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nmodel = "ok-1"\n'
        (tmp_path / "prose.toml").write_text(f'provider = "stub"\n{table}[cassette]\nmode = "auto"\n')
        assert "pydantic_ai" in imported(tmp_path, SESSION)
        requests = stub.stats.requests
    assert requests == 1
    assert imported(tmp_path, SESSION) == "[]"


def test_a_cell_loads_only_the_modules_that_it_uses(imported: Imported, tmp_path: Path) -> None:
    command, session = 'let a = exec "echo 1"\noutput b = a', 'if **a is "1"**:\n  output c = a'
    assert imported(tmp_path, command, 'parallel:\n  exec "true"\n  exec "true"', among=NOT_FOR_COMMANDS) == "[]"
    loaded = imported(tmp_path, command, session, among=NOT_FOR_COMMANDS)
    assert "prose_kernel.judging" in loaded
    assert "sqlite3" not in loaded
    assert "prose_kernel.processes.tasks" in imported(tmp_path, "%tasks", among=NOT_FOR_COMMANDS)


LANGUAGES = tuple(f"prose_kernel.{room}.{name}" for room in ("language", "machine") for name in ("openprose", "vvm"))


def test_a_cell_loads_only_its_language(imported: Imported, tmp_path: Path) -> None:
    def used(*cells: str) -> str:
        return imported(tmp_path, *cells, "%bindings", "%help", among=LANGUAGES)

    assert used("let a = 1", "a?", "%help let") == str([name for name in LANGUAGES if "openprose" in name])
    assert used("%%vvm\na = 1", "%%vvm\na + 1", "a?", "%agents") == str([name for name in LANGUAGES if "vvm" in name])
    assert used("let a = 1", "%%vvm\na + 1") == str(sorted(LANGUAGES))


@pytest.mark.parametrize("language", ["openprose", "vvm"])
def test_a_kernel_warms_up_only_its_language(imported: Imported, tmp_path: Path, language: str) -> None:
    magic = {"openprose": "prose"}.get(language, language)
    assert imported(tmp_path, among=LANGUAGES, warm=magic) == str([name for name in LANGUAGES if language in name])


def test_the_warm_up_loads_all_modules_of_the_first_command(imported: Imported, tmp_path: Path) -> None:
    package = Path(prose_kernel.__file__).parent
    every = tuple(".".join(path.with_suffix("").relative_to(package.parent).parts) for path in package.rglob("*.py"))
    warm = imported(tmp_path, among=every, warm="prose")
    assert imported(tmp_path, 'exec "true"', among=every, warm="prose") == warm


def test_the_warm_up_on_other_systems_loads_no_modules_for_linux(tmp_path: Path) -> None:
    warm = "from pathlib import Path; from prose_kernel.notebook.cells import Cells; Cells(Path.cwd(), None).warm_up()"
    loaded = "import sys; print(*(name for name in sys.modules if name.startswith('prose_kernel.processes.sandbox')))"
    command = [sys.executable, "-c", f"{warm}; {loaded}"]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PROSE_PLATFORM": "posix"}, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "\n"
