"""Start, restart, shutdown, sudden death: nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from notebook.kernels import kernel
from waiting import gone, processes, until

from prose_kernel._version import __version__
from prose_kernel.notebook.kernel import ProseKernel


def test_shutdown_while_a_cell_runs_leaves_no_process(directory: Path) -> None:
    with kernel(directory) as client:
        request = client.send('exec "echo started; sleep 4801"')
        client.until_text(request, "started")
        client.manager.shutdown_kernel()
        assert gone("sleep 4801")


def test_requests_after_a_shutdown_print_nothing(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with kernel(directory) as client:
        for _ in range(200):
            client.channels.shutdown()
        until(lambda: not client.manager.is_alive())
    assert capfd.readouterr().err == ""


def test_a_request_that_resists_its_cancellation_does_not_hold_up_a_shutdown() -> None:
    async def resists() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        await asyncio.sleep(4803)

    async def shut_down() -> None:
        stream = SimpleNamespace(stop_on_recv=lambda: None)
        here = {"control_thread": threading.current_thread(), "control_stream": stream}
        kernel = SimpleNamespace(_loop=asyncio.get_running_loop(), _shut_down=lambda: asyncio.sleep(0), **here)
        request = asyncio.create_task(resists())
        async with asyncio.timeout(10):
            reply = await ProseKernel.do_shutdown(kernel, False)  # type: ignore[arg-type]
        assert reply == {"status": "ok", "restart": False}
        assert not request.done()

    asyncio.run(shut_down())


def test_restart_starts_afresh(directory: Path) -> None:
    with kernel(directory) as client:
        client.run("let a = 1")
        request = client.send("exec \"echo started; trap '' TERM INT; sleep 4802\"")
        client.until_text(request, "started")
        client.manager.restart_kernel()
        client.channels.wait_for_ready(timeout=30)
        assert gone("sleep 4802")
        assert client.run("let b = a").error["ename"] == "SyntaxError"
        assert client.run('exec "echo fine"').text() == "fine\n"


def test_sudden_death_leaves_no_process(directory: Path) -> None:
    with kernel(directory) as client:
        request = client.send('parallel:\n  exec "sleep 4803.1"\n  exec "echo started; sleep 4803.2 & sleep 4803.3"')
        until(lambda: len(processes("sleep 4803.")) >= 3)
        os.kill(client.pid, signal.SIGKILL)
        assert gone("sleep 4803.")
        assert request


def test_a_kernel_that_runs_nothing_writes_nothing(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.run("")
        client.run("%help")
    assert sorted(p.name for p in directory.iterdir() if p.name != ".ipython") == [".jupyter"]


def test_the_end_is_in_the_trace(directory: Path) -> None:
    with kernel(directory, forks=True) as client:
        client.run('let a = exec "echo hi"')
        client.manager.shutdown_kernel()
    (state,) = (directory / ".prose" / "runs").glob("*/state.md")
    assert state.read_text().rstrip().split("\n")[-1].startswith("---end")


def test_history_works_across_sessions(directory: Path) -> None:
    for number in (1, 2):
        with kernel(directory, forks=True) as client:
            client.run(f"let x = {number}")
            content = {"hist_access_type": "tail", "n": 2, "output": False, "raw": True}
            rows = client.ask("history_request", content)["content"]["history"]
            assert rows[-1][2] == f"let x = {number}"
            client.manager.shutdown_kernel()
    assert [row[2] for row in rows] == ["let x = 1", "let x = 2"]


def test_encrypted_transport_works(directory: Path) -> None:
    with kernel(directory, forks=True, transport_encryption="required") as client:
        assert client.run('exec "echo hi"').text() == "hi\n"


def test_ipc_works(directory: Path) -> None:
    with TemporaryDirectory(prefix="ipc") as short:
        path = f"{short}/k"
        with kernel(directory, forks=True, transport="ipc", ip=path) as client:
            assert client.run('exec "echo hi"').text() == "hi\n"


# ---------------------------------------------------------------- the command itself


def test_jupyter_run_runs_a_file_although_it_passes_its_words_on(tmp_path: Path) -> None:
    (tmp_path / "hello.prose").write_text('exec "echo hello"\n')
    run = "from jupyter_client.runapp import RunApp; RunApp.launch_instance()"
    command = [sys.executable, "-W", "ignore", "-c", run, "--kernel=prose", "hello.prose"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "hello\n", "")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("run", "a b.prose"), 2, "hint: the command line is `prose`, such as: prose run 'a b.prose'\n"),
        (("fmt", "--check", "a"), 2, "hint: the command line is `prose`, such as: prose fmt --check a\n"),
        (("--version",), 0, f"{__version__}\n"),
        (("--help",), 0, "--language=<Enum>"),
        ((), 1, ".json cannot be written: not a directory\n"),
    ],
)
def test_the_kernel_started_by_hand(words: tuple[str, ...], status: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path / "notes/jupyter")}
    command = [sys.executable, "-m", "prose_kernel", *words]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    shown = ended.stdout + ended.stderr
    assert ended.returncode == status
    assert said in shown and "Traceback" not in shown


@pytest.mark.parametrize("limit", [20, 26, 30, 44])
def test_too_few_open_files_are_one_error(limit: int, tmp_path: Path) -> None:
    """The libraries of the sockets abort the process at some of these limits."""
    code = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
    code += "runpy.run_module('prose_kernel', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert "cannot open 48 files: too many open files; raise the limit (`ulimit -n`)" in ended.stderr
