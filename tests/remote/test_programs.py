"""Programs with commands on other machines have the same outputs, byte for byte, in every front end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
from cli.test_docs_examples import blocks, commands, printed
from notebook.test_cells import Person, fine, wrong
from remote.cluster import Cluster
from storage.test_gate_boundary import CLIENT, running
from waiting import PATIENCE, command_line, eventually, processes, until

from prose_kernel.cli import doctor
from prose_kernel.cli.main import main
from prose_kernel.errors import ExecError, UsageError
from prose_kernel.notebook.cells import Cells
from prose_kernel.processes.process_table import carries_prefix, members
from prose_kernel.runs import settings
from prose_kernel.runs.settings import RemoteSettings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.values import ExecText

PROSE = [sys.executable, "-c", "import sys; from prose_kernel.cli.main import main; sys.exit(main())"]
PROGRAM = """
let names = exec "printf 'a\\nb\\nc\\nd\\ne\\nf\\n'"
  format: "lines"
parallel for name, index in names:
  exec "sleep 0.$((RANDOM % 3)); echo \\"$NAME 1\\"; echo \\"$NAME e\\" >&2; sleep 0.$((RANDOM % 2)); echo \\"$NAME 2\\""
    env: { NAME: name }
exec "mkdir -p sub && cd sub && seq 3 > numbers"
let here = exec "pwd; cat numbers"
let big = exec "seq 20000"
let failed = exec "echo half; echo why >&2; exit 3"
  on-fail: "continue"
parallel ("all", on-fail: "continue"):
  one = exec "cd ..; pwd"
  two = exec "exit 4"
let late = exec "sleep 30"
  timeout: "300ms"
  on-fail: "continue"
try:
  exec "kill -KILL $$"
catch as problem:
  output what = "{problem.message}"
output where = here
"""


pytestmark = pytest.mark.usefixtures("dask")


@pytest.fixture(scope="module")
def two_workers(tcp: Cluster) -> Iterator[Cluster]:
    pids = [tcp.worker(8) for _ in range(2)]
    yield tcp
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a test may have ended it
            os.kill(pid, signal.SIGKILL)


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.prose("run", *arguments, cwd=directory, env={**os.environ, **environment})


def files_of_run(directory: Path) -> dict[str, str]:
    """Return all files of the run, without its id and the time of its end. Only the journal has durations of commands."""
    [made] = (directory / ".prose" / "runs").iterdir()
    paths = [path for path in made.rglob("*") if path.is_file() and path.name != "journal.jsonl"]
    files = {str(path.relative_to(made)): path.read_text() for path in paths}
    found = {name: re.sub(r"(?<=---end ).*", "", text.replace(made.name, "RUN")) for name, text in files.items()}
    found["state.md"] = "\n".join(sorted(found["state.md"].splitlines()))  # branches log in the order of events
    return found


# ---------------------------------------------------------------- the command line


def test_a53_a_command_on_another_machine_has_its_request_in_its_environment(
    tmp_path: Path, two_workers: Cluster
) -> None:
    (tmp_path / "p.prose").write_text('output all = exec "echo $PROSE_RUN $PROSE_AT $PROSE_ATTEMPT"\n')
    ran = run(tmp_path, "p.prose", "--remote", two_workers.address)
    [made] = (tmp_path / ".prose" / "runs").iterdir()
    assert (ran.returncode, ran.stdout) == (0, f"all: {made.name} c1/1/x0 1\n"), ran.stderr


def test_outputs_equal_those_of_a_local_run_byte_for_byte(tmp_path: Path, two_workers: Cluster) -> None:
    seen = []
    for how in ([], ["--remote", two_workers.address]):
        directory = tmp_path / "same"
        directory.mkdir()
        (directory / "p.prose").write_text(PROGRAM)
        ran = run(directory, "p.prose", *how)
        assert ran.returncode == 0, ran.stderr
        warning = f"Warning: {two_workers.address} is not encrypted"
        errors = [
            line
            for line in ran.stderr.splitlines()
            if not line.startswith((warning, "run directory: ", "to resume it: "))
        ]
        assert (warning in ran.stderr) == bool(how)
        seen.append((ran.stdout, errors, files_of_run(directory)))
        shutil.rmtree(directory)
    here, there = seen
    for one, other in zip(here, there, strict=True):
        assert one == other


async def test_a58_a_program_without_commands_needs_no_scheduler(tmp_path: Path) -> None:
    chosen = settings.load(tmp_path, remote="tcp://127.0.0.1:1")
    workspace = Workspace(chosen, Start(tmp_path, notebook=True), asker=Person())
    try:
        await workspace.execute('block twice(x):\n  return "{x}{x}"\nlet a = do twice("b")')
        assert workspace.bindings()["a"].info.value == "bb"
        assert workspace.remote is None
        for text in ('block later():\n  exec "touch started"', 'use "./m.prose" as m'):
            (tmp_path / "m.prose").write_text('exec "touch started"\n')
            with pytest.raises(UsageError) as caught:
                await workspace.execute(text)
            assert "tcp://127.0.0.1:1 cannot be reached" in str(caught.value)
    finally:
        await workspace.close()
    assert not (tmp_path / "started").exists()


def test_an_unreachable_scheduler_is_an_error_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.prose").write_text('exec "touch started"\n')
    nowhere = "tcp://127.0.0.1:1"
    assert main(["run", "p.prose", "--remote", nowhere]) == 2
    assert capfd.readouterr() == (
        "",
        "Error: remote: tcp://127.0.0.1:1 cannot be reached: connection refused\n"
        "hint: start it with `dask scheduler`, or try `--remote local`\n",
    )
    assert main(["run", "p.prose", "--remote", nowhere, "--provider", "dry-run"]) == 0  # it never connects
    assert not (tmp_path / "started").exists()
    monkeypatch.setenv("PROSE_REMOTE", "nonsense")
    assert main(["run", "p.prose"]) == 2
    assert "'nonsense' is not the address of a scheduler" in capfd.readouterr().err
    assert not (tmp_path / "started").exists()
    assert main(["run", "p.prose", "--remote", "off"]) == 0
    assert (tmp_path / "started").exists()


def test_the_commands_of_the_page_print_its_outputs(tmp_path: Path) -> None:
    """The examples in docs/how-to/many-machines.md run with a local cluster."""
    [program, *_] = blocks("many-machines", "prose")
    (tmp_path / "squares.prose").write_text(program)
    for console in blocks("many-machines", "console"):
        if "squares.prose" in console:
            assert "".join(printed(command, tmp_path) for command in commands(console)) == console
    until(lambda: not processes("prose_kernel.remote.local_cluster"))  # clusters of other tests end, too


def test_the_settings_of_the_page_are_loaded(tmp_path: Path) -> None:
    [table] = blocks("many-machines", "toml")
    (tmp_path / "prose.toml").write_text(table)
    found = settings.load(tmp_path)
    assert found.remote == RemoteSettings("tls://scheduler.example.org:8786", ("DATABASE_URL", "BUILD_*"))
    assert found.on_other_machines


@pytest.mark.parametrize("how", ["interrupt", "kill"])
def test_a_cluster_of_a_run_ends_with_the_run(tmp_path: Path, how: str) -> None:
    (tmp_path / "p.prose").write_text('exec "sleep 62.5 & echo $PROSE_JOB > job; mv job ready; sleep 62"\n')
    process = subprocess.Popen(
        [*PROSE, "run", "p.prose", "--remote", "local"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until((tmp_path / "ready").exists)
    mark = (tmp_path / "ready").read_text().partition("-")[0]
    if how == "interrupt":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    else:
        process.kill()
    _, stderr = process.communicate(timeout=30)
    if how == "interrupt":
        assert process.returncode == 130
        assert stderr.splitlines()[0] == "interrupted"
    until(lambda: not [m for m in members() if carries_prefix(m.pid, mark)])
    until(lambda: not processes("prose_kernel.remote.local_cluster"))


def test_a_run_ends_although_a_worker_is_stopped(tmp_path: Path) -> None:
    program = 'exec "env > seen; echo $PPID > worker; kill -STOP $PPID; sleep 62"\n'
    (tmp_path / "p.prose").write_text(program)
    ran = run(tmp_path, "p.prose", "--remote", "local")
    assert (ran.returncode, "[E203]" in ran.stderr) == (1, True)
    assert "DASK_" not in (tmp_path / "seen").read_text()
    worker = int((tmp_path / "worker").read_text())
    until(lambda: not command_line(worker))  # a zombie has no command line


def test_doctor_reports_whether_the_scheduler_is_usable(
    two_workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def found(**chosen: Any) -> tuple[str, str, str | None]:
        finding = doctor._remote(settings.load(tmp_path, {}, **chosen))
        assert finding.subject == "remote"
        return finding.state, finding.text, finding.fix

    state, text, _ = found()
    assert state == "ok"
    assert re.fullmatch(r"commands run on this machine; for others there is Dask [\d.]+", text)
    state, text, _ = found(remote=two_workers.address)
    assert state == "note"
    assert text.startswith(
        f"{two_workers.address}: 2 workers run 16 commands in parallel; {two_workers.address} is not encrypted"
    )
    assert found(remote="tcp://127.0.0.1:1")[:2] == (
        "broken",
        "tcp://127.0.0.1:1 cannot be reached: connection refused",
    )


# ---------------------------------------------------------------- the notebook


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, Person())
    yield made
    await made.close()


async def test_the_magic_shows_connects_and_disconnects_during_a_run(
    cells: Cells, two_workers: Cluster, tmp_path: Path
) -> None:
    def text(recording: Any) -> str:
        return str(recording.texts[-1])

    assert text(await fine(cells, "%remote")) == "Commands run on this machine."
    await fine(cells, 'let a = exec "echo $PROSE_JOB"')
    shown = await fine(cells, f"%remote connect {two_workers.address}")
    for part in (f"scheduler {two_workers.address}", "encrypted no", "workers 2", "commands in parallel 16"):
        assert part in " ".join(text(shown).split())
    assert len(shown.calls[-1][1].metadata["prose"]["workers"]) == 2
    assert [text for text in cells.asker.shown if "is not encrypted" in text] != []
    there = await fine(cells, 'let b = exec "echo fine"')
    assert not any("tcp://" in text or "127.0.0.1" in text for text in there.texts)
    values = {name: info.value for name, info in cells.workspace.opened.machine.bindings().items()}
    assert isinstance(values["a"], ExecText) and isinstance(values["b"], ExecText)
    assert values["a"].result.worker is None
    assert values["b"].result.worker is not None
    await fine(cells, "%judge off")
    await fine(cells, 'let d = exec "true"')
    machine = cells.workspace.opened.machine
    assert machine.bindings()["d"].value.result.worker is not None  # the judge changed, the machines did not
    assert text(await fine(cells, "%remote disconnect")) == "Commands run on this machine."
    await fine(cells, 'let e = exec "true"')
    assert machine.bindings()["e"].value.result.worker is None


async def test_a_wrong_argument_of_the_magic_changes_nothing(cells: Cells) -> None:
    await fine(cells, "let a = 1")
    name, value, _ = await wrong(cells, "%remote connect tcp://127.0.0.1:1")
    assert "tcp://127.0.0.1:1 cannot be reached: connection refused" in f"{name} {value}"
    assert "connect ADDRESS" in " ".join(await wrong(cells, "%remote on"))
    await fine(cells, 'let b = exec "echo fine"')


SUICIDE = 'exec "echo half; kill -KILL $(ps -o ppid= -p $$); sleep 60"'
"""A command that kills its worker."""


async def test_a_lost_command_is_an_error_that_a_program_can_catch(two_workers: Cluster, tmp_path: Path) -> None:
    for _ in range(2):
        two_workers.worker(8)
    workspace = Workspace(
        settings.Settings().changed(remote=two_workers.address), Start(tmp_path.resolve()), asker=Person()
    )
    try:
        await workspace.execute(f'let caught = ""\ntry:\n  {SUICIDE}\ncatch as problem:\n  caught = problem.message')
        message = "exec was lost with the worker that ran it; it may have run in part"
        assert workspace.opened.machine.bindings()["caught"].value == message
        with pytest.raises(ExecError) as error:
            await workspace.execute(SUICIDE)
        found = error.value
        assert (found.code, found.details["kind"], found.details["exit_code"]) == ("E203", "lost", 255)
        await workspace.execute(f'let on = {SUICIDE}\n  on-fail: "continue"')
        value = workspace.opened.machine.bindings()["on"].value
        assert isinstance(value, ExecText)
        assert (value.result.outcome, value.result.exit_code) == ("lost", 255)
    finally:
        await workspace.close()


async def test_an_interrupt_while_a_cluster_starts_leaves_no_process(tmp_path: Path) -> None:
    workspace = Workspace(settings.Settings().changed(remote="local"), Start(tmp_path.resolve()), asker=Person())
    running = asyncio.ensure_future(workspace.execute('exec "touch started"'))
    await eventually(lambda: processes("prose_kernel.remote.local_cluster"))
    workspace.interrupt()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE)
    await eventually(lambda: processes("prose_kernel.remote.local_cluster") == [], what="the interrupt ends it")
    assert not (tmp_path / "started").exists()
    await workspace.close()


# ---------------------------------------------------------------- gates


@pytest.mark.parametrize("how", ["workers of the user", "local"])
def test_a34_a_command_on_a_local_worker_cannot_decide_a_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_workers: Cluster, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROSE_JOB", raising=False)
    Path("client.py").write_text(CLIENT)
    client = f"env -i {sys.executable} -I -S client.py"
    command = f"{client} > plain; setsid -f {client} > detached; until [ -s detached ]; do sleep 0.05; done"
    Path("p.prose").write_text(f'parallel:\n  gate go:\n    prompt: "Publish?"\n  exec "{command}"\n')
    url = two_workers.address if how != "local" else "local"
    with running("--gates=wait", "--remote", url, expects="gate go of run") as ran:
        until(lambda: Path("detached").exists() and Path("detached").stat().st_size, PATIENCE, "an answer")
        assert ran.poll() is None
    for place in ("plain", "detached"):
        answer = json.loads(Path(place).read_text())
        assert answer.get("inside") is True and "ok" not in answer, (place, answer)
