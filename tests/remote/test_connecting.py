"""Connecting to a scheduler: conditions for workers, messages, reasons of refusals, and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs_module
from remote.cluster import PROOF, Cluster, Dask
from remote.conftest import Connect, Workers
from waiting import PATIENCE, eventually, until

from prose_kernel._version import __version__
from prose_kernel.errors import UsageError
from prose_kernel.remote import local_cluster
from prose_kernel.remote.commands import INHERITED, RemoteCommands
from prose_kernel.remote.connection import ActorOptions, ClusterConnection, SchedulerAddress
from prose_kernel.remote.messages import Chunk, End, Facts, Inherit, News, Start
from prose_kernel.remote.worker_client import WorkerClient
from prose_kernel.runtime.ports import CommandRequest, CommandResult, Owner


def refusal(commands: RemoteCommands) -> str:
    """Return the error of connecting."""
    with pytest.raises(UsageError) as caught:
        asyncio.run(asyncio.wait_for(commands.connect(), 20))
    return str(caught.value)


# ---------------------------------------------------------------- schedulers and workers that cannot be used


@pytest.mark.parametrize(
    "url",
    [
        *("", "nonsense", "http://host:1", "tcp://host", "tcp://:1", "tls://host:port", "inproc://a:1"),
        *("tcp://[::1", "[", "tcp://a..b:1", f"tcp://{'a' * 70}:1", "tcp://a\0b:1", "tcp://a\nb:1"),
    ],
)
def test_an_invalid_address_is_an_error(url: str, tmp_path: Path) -> None:
    commands = RemoteCommands(url, tmp_path)
    with pytest.raises(UsageError) as caught:
        asyncio.run(commands.connect())
    assert str(caught.value) == f"remote: {url!r} is not the address of a scheduler"
    assert caught.value.hint == "write tls://HOST:PORT, tcp://HOST:PORT, or local"
    commands.close()


def test_a_local_cluster_that_is_closed_while_it_starts_is_not_killed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pid may belong to another process by then."""
    cluster = local_cluster.LocalCluster({})
    monkeypatch.setattr(local_cluster.orphans, "exclude", lambda pid: cluster.close())
    with pytest.raises(UsageError):
        cluster.start()
    until(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))


def test_a_local_cluster_that_is_closed_before_its_process_is_known_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, started, begin = local_cluster.LocalCluster({}), list[subprocess.Popen[str]](), subprocess.Popen

    def sleeping(*_: object, **options: Any) -> subprocess.Popen[str]:
        started.append(begin(["sleep", "600"], **options))
        cluster.close()
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", sleeping)
    with pytest.raises(UsageError):
        cluster.start()
    assert started[0].poll() is not None


def test_a_connection_that_could_not_start_a_thread_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    commands = RemoteCommands("tcp://no-such-host.invalid:8786", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            asyncio.run(commands.connect())
    assert "cannot be reached" in refusal(commands)
    commands.close()


async def test_a_command_that_begins_while_the_connection_closes_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, go = threading.Event(), threading.Event()

    async def serve(self: ClusterConnection) -> None:
        self._opened.set_result(None)
        await asyncio.Event().wait()

    async def end_commands(self: ClusterConnection) -> None:
        ending.set()
        await asyncio.to_thread(go.wait)

    monkeypatch.setattr(ClusterConnection, "_serve", serve)
    monkeypatch.setattr(ClusterConnection, "_end_commands", end_commands)
    commands = RemoteCommands("tcp://127.0.0.1:1", tmp_path)
    closing = threading.Thread(target=commands.close)
    connected = commands._connected

    async def connected_for_the_last_time() -> None:
        await connected()
        closing.start()
        await asyncio.to_thread(ending.wait)

    monkeypatch.setattr(commands, "_connected", connected_for_the_last_time)
    running = asyncio.create_task(commands.run(CommandRequest("true", str(tmp_path), 60.0)))
    await asyncio.to_thread(ending.wait)
    while not running.done() and not commands._waiting:
        await asyncio.sleep(0)
    go.set()
    assert (await asyncio.wait_for(running, PATIENCE)).outcome == "cancelled"
    closing.join()


async def test_a_worker_that_joins_while_the_next_run_begins_is_claimed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, greeted, go = list[Owner](), asyncio.Event(), asyncio.Event()

    class OneActor:
        async def claim(self, instance: str, owner: Owner) -> None:
            claimed.append(owner)

        async def send_orders(self, *_: object) -> None:
            """Follow no orders."""

        async def exchange(self, *_: object) -> tuple[News, ...]:
            await asyncio.Event().wait()
            return ()

    async def start_actor(self: ClusterConnection, address: str) -> tuple[Facts, Any]:
        greeted.set()
        await go.wait()
        return Facts("instance", {}, "host", 1, None, "", False), OneActor()

    monkeypatch.setattr(ClusterConnection, "_start_actor", start_actor)
    joined = list[WorkerClient]()
    connection = ClusterConnection(
        SchedulerAddress("tcp://h:1"),
        ActorOptions(tmp_path, "mark"),
        joined=joined.append,
        left=lambda worker: None,
        changed=lambda: None,
    )
    connection._starting["one"] = starting = asyncio.ensure_future(connection._add_worker("one", {"nthreads": 1}))
    await greeted.wait()
    await connection.claim(Owner("next", 1))
    go.set()
    await starting
    assert (len(joined), [owner.run for owner in claimed]) == (1, ["next"])
    joined[0].lose()


def test_an_unreachable_scheduler_is_an_error(connect: Connect) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        assert refusal(connect(url)) == f"remote: {url} cannot be reached: connection refused"
    assert refusal(connect("tcp://no-such-host.invalid:8786")).startswith(
        "remote: tcp://no-such-host.invalid:8786 cannot be reached: "
    )


def test_a_server_that_is_not_a_scheduler_is_an_error(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prose_kernel.remote.connection._CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = server.accept()
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                    connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        try:
            assert refusal(connect(url)).startswith(f"remote: {url} does not answer as a Dask scheduler: ")
        finally:
            done.set()
            with contextlib.suppress(OSError), socket.create_connection(server.getsockname()[:2]):
                pass
            thread.join()


def test_a_scheduler_without_workers_is_an_error(
    own: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prose_kernel.remote.connection._FIRST_WORKER", 0.3)
    assert refusal(connect(own.address)) == f"remote: the scheduler {own.address} has no worker"


def test_workers_of_another_version_or_without_the_directory_are_refused_with_the_reason(
    connect: Connect, workers: Workers, tmp_path: Path
) -> None:
    workers(version="0.0.1")
    workers(directory="missing")
    workers(2, directory="other")
    other = f"it has prose_kernel 0.0.1, this is {__version__}"
    missing = "the directory is not there, or is another one (no such file or directory)"
    reasons = f"{other}; the directory is another one; {missing}"
    assert refusal(connect()) == f"remote: none of 4 workers can be used: {reasons}"
    workers(1, nthreads=3)
    usable = connect()
    state = asyncio.run(usable.connect())
    assert (len(state.workers), state.places) == (1, 3)
    assert state.warnings[1] == f"4 workers are not used: {reasons}"
    assert asyncio.run(usable.run(CommandRequest("echo fine", str(tmp_path), 60.0))).stdout == "fine\n"
    assert list(tmp_path.glob(f"{PROOF}*")) == []


def test_a58_a_worker_without_the_package_is_refused_with_that_reason(connect: Connect, workers: Workers) -> None:
    workers(package="missing")
    assert refusal(connect()) == "remote: none of 1 worker can be used: prose_kernel is not installed there"


def test_a_worker_that_starts_later_is_used(connect: Connect, workers: Workers, tmp_path: Path) -> None:
    workers(1, nthreads=1)
    commands = connect()
    assert asyncio.run(commands.connect()).places == 1
    workers(1, nthreads=5)
    until(lambda: commands.state.places == 6)


def test_the_error_without_dask_shows_how_to_install_it(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["distributed"] = None
import asyncio
from pathlib import Path
from prose_kernel.remote.commands import RemoteCommands
from prose_kernel.errors import UsageError
try:
    asyncio.run(RemoteCommands({"tcp://127.0.0.1:1"!r}, Path(".")).connect())
except UsageError as problem:
    print(problem, "|", problem.hint)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert ran.stdout == "remote: Dask is not installed | pip install 'prose_kernel[dask]'\n", ran.stderr


# ---------------------------------------------------------------- messages and variables


def test_messages_can_be_pickled_and_are_small() -> None:
    request = CommandRequest("echo hello", "/work/project", 120.0, stdin="abc", env={"A": "b"}, at="c2/3/b1/i0/x0")
    result = CommandResult("exited", 0, stdout="hello\n", stdout_bytes=6, cwd_after="/work/project")
    for message in (
        Start(1, request),
        Inherit(INHERITED, {"LANG": "C.UTF-8"}),
        Chunk(1, 1, (("stdout", "hello\n"),)),
        End(1, 2, result),
    ):
        sent = pickle.dumps(message)
        assert pickle.loads(sent) == message
        assert len(sent) < 600
    assert len(pickle.dumps(Start(1, CommandRequest("x" * 5000, "/", 1.0)))) < 5400


async def test_only_listed_variables_are_sent_to_workers(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers(1, variable="LC_TIME")  # the driver does not have it
    monkeypatch.setenv("LEAK_SECRET", "secret")
    monkeypatch.setenv("BASH_ENV", "/etc/profile")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("MINE_A", "a b")
    commands = connect(environment=("MINE_*", "BASH_ENV"))

    async def environment() -> dict[str, str]:
        result = await commands.run(CommandRequest("env -0", str(tmp_path), 60.0, env={"OWN": "1"}))
        return dict(entry.split("=", 1) for entry in result.stdout.split("\0") if entry)

    seen = await environment()
    assert {name for name in seen if name.startswith(("LEAK", "MINE", "BASH_ENV", "LC_T"))} == {"MINE_A"}
    assert (seen["TZ"], seen["MINE_A"], seen["LC_ALL"], seen["OWN"]) == ("Asia/Tokyo", "a b", "C.UTF-8", "1")
    assert seen["PROSE_JOB"].startswith(commands.mark)
    monkeypatch.setenv("MINE_A", "changed")
    monkeypatch.delenv("TZ")
    seen = await environment()
    assert (seen["MINE_A"], seen.get("TZ")) == ("changed", None)


async def test_a_shell_function_sent_to_a_worker_may_change_the_directory(
    connect: Connect, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers(1)
    monkeypatch.setenv("BASH_FUNC_go%%", "() {  cd /\n}")
    commands = connect(environment=("BASH_FUNC_*",), shell="bash")
    result = await commands.run(CommandRequest("go", str(tmp_path), 60.0))
    assert (result.outcome, result.cwd_after) == ("exited", "/")


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A certificate and its key, as docs/how-to/many-machines.md makes them."""
    needs_module("cryptography")
    from distributed.security import Security

    made = Security.temporary()
    directory = tmp_path_factory.mktemp("keys")
    for name, text in (("cert.pem", made.tls_ca_file), ("key.pem", made.tls_client_key)):
        (directory / name).write_text(text)
    return directory / "cert.pem", directory / "key.pem"


@pytest.fixture(scope="module")
def tls(dask: Dask, keys: tuple[Path, Path]) -> Iterator[Cluster]:
    cert, key = keys
    with dask.cluster(cert, cert, key) as running:
        running.worker()
        yield running


def test_tls_takes_the_certificates_of_dasks_configuration(
    tls: Cluster, keys: tuple[Path, Path], connect: Connect, tmp_path: Path
) -> None:
    import dask

    cert, key = map(str, keys)
    tls_settings = {"ca-file": cert, "client.cert": cert, "client.key": key}
    with dask.config.set({f"distributed.comm.tls.{name}": path for name, path in tls_settings.items()}):
        commands = connect(tls.address)
        state = asyncio.run(commands.connect())
    assert (state.encrypted, state.warnings) == (True, ())
    assert asyncio.run(commands.run(CommandRequest("echo fine", str(tmp_path), 60.0))).stdout == "fine\n"


def test_a_client_without_the_certificates_cannot_connect(
    tls: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prose_kernel.remote.connection._CONNECT", 1.0)
    assert "does not answer as a Dask scheduler" in refusal(connect(tls.address))
    assert "does not answer as a Dask scheduler" in refusal(connect(tls.address.replace("tls:", "tcp:")))


def test_the_local_cluster_accepts_no_other_user(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_module("cryptography")
    commands = connect("local")
    state = asyncio.run(commands.connect())
    assert (state.url, state.encrypted, len(state.workers), state.warnings) == ("local", True, 2, ())
    assert {worker.address.rpartition(":")[0] for worker in state.workers} == {"tls://127.0.0.1"}
    assert asyncio.run(commands.run(CommandRequest("pwd", str(tmp_path), 60.0))).stdout == f"{tmp_path.resolve()}\n"
    monkeypatch.setattr("prose_kernel.remote.connection._CONNECT", 1.0)
    client = commands._connection._client
    assert "does not answer as a Dask scheduler" in refusal(connect(client.scheduler.address))


def test_a_connection_without_tls_causes_a_warning(connect: Connect, workers: Workers, tcp: Cluster) -> None:
    workers()
    state = asyncio.run(connect().connect())
    assert state.warnings == (
        f"{tcp.address} is not encrypted: anyone who can reach it can run programs on its workers and here; use TLS",
    )


async def test_the_connection_prints_nothing(
    connect: Connect, workers: Workers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workers(2)
    commands = connect()
    await commands.run(CommandRequest("true", str(tmp_path), 60.0))
    await asyncio.to_thread(commands.close)
    await eventually(lambda: True)
    assert capfd.readouterr() == ("", "")
