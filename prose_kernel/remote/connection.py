"""The connection to a Dask scheduler: a thread with an event loop, the client, and an actor on each worker.

Only this module drives Dask, which is imported in the connection's thread. It submits only actors, because Dask would
repeat a task whose worker is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pkgutil
import secrets
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from prose_kernel._version import __version__
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.processes.cross_loop import call_in_loop
from prose_kernel.processes.termination import GRACE
from prose_kernel.remote.local_cluster import LocalCluster
from prose_kernel.remote.messages import LEASE, Facts, News, Order
from prose_kernel.remote.worker_actor import WorkerActor, versions
from prose_kernel.remote.worker_client import WorkerCapacity, WorkerClient, within
from prose_kernel.remote.worker_host import Superseded
from prose_kernel.runtime.ports import Owner

LOCAL = "local"
INSTALL = "pip install 'prose_kernel[dask]'"

_REACH = 5.0
_CONNECT = 10.0
_ACTOR = 10.0
"""Seconds for a worker to start an actor; a worker whose threads are all busy takes longer."""
_DIRECT = 2.0
_FIRST_WORKER = 5.0
_SLOW = 2.0
"""Seconds to wait for slow workers if others are ready."""
_UPDATE_INTERVAL = 2.0
"""Seconds between two requests for the list of workers."""
_RETRY_REFUSED = 10.0
_LEAVING = "it is being retired"


class SchedulerAddress(Struct, frozen=True):
    """The scheduler to connect to; `url` is the text that the user entered. `resources` belong to a `local` cluster."""

    url: str
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        return self.url == LOCAL

    @property
    def encrypted(self) -> bool:
        return self.local or self.url.startswith("tls://")

    @property
    def place(self) -> tuple[str, int]:
        """Host and port. Raises `UsageError`."""
        found = _place(self.url if "://" in self.url else f"tcp://{self.url}")
        if found is None:
            raise UsageError(
                f"remote: {self.url!r} is not the address of a scheduler",
                hint="write tls://HOST:PORT, tcp://HOST:PORT, or local",
            )
        return found

    @property
    def address(self) -> str:
        host, port = self.place
        shown = f"[{host}]" if ":" in host else host
        return f"{'tls' if self.encrypted else 'tcp'}://{shown}:{port}"


def _place(address: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # fails as a later look-up of the name would
    except ValueError:
        return None
    fits = parts.scheme in ("tcp", "tls") and parts.path in ("", "/") and address.isprintable()
    return (host, port) if fits and host and port else None


class ActorOptions(Struct, frozen=True):
    """The options of every actor, and the directory that its worker must share with this machine."""

    directory: Path
    mark: str
    shell: str | None = None
    grace: float = GRACE
    lease: float = LEASE


class Refused(Exception):
    """A worker cannot be used, with a reason; `again` is true if it may be usable later."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


class ClusterConnection:
    """The workers with an actor, updated as workers join and leave.

    `joined`, `left` and `changed` are called in the connection's loop. If not `direct`, all messages go through the
    scheduler, as they do for a worker that cannot be reached from here.
    """

    def __init__(
        self,
        target: SchedulerAddress,
        options: ActorOptions,
        *,
        joined: Callable[[WorkerClient], None],
        left: Callable[[WorkerClient], None],
        changed: Callable[[], None],
        direct: bool = True,
    ) -> None:
        self.target = target
        self._owner: Owner | None = None
        self.workers: dict[str, WorkerClient] = {}
        self._options = options
        self._joined, self._left, self._changed = joined, left, changed
        self._direct = direct
        self._client: Any = None
        self._cluster: LocalCluster | None = None
        self._refused: dict[str, Refused] = {}
        self._retry: dict[str, float] = {}
        self._futures: dict[str, Any] = {}
        self._starting: dict[str, asyncio.Future[None]] = {}
        self._update_now, self._closing = asyncio.Event(), asyncio.Event()
        self._opened: Future[None] = Future()
        self._lock = threading.RLock()  # a signal handler may post while its thread does
        self._ended = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ------------------------------------------------------------ from any thread

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The connection's loop, after `open`."""
        assert self._loop is not None
        return self._loop

    @property
    def begun(self) -> bool:
        """Whether `open` was called."""
        return self._thread is not None

    def open(self, owner: Owner | None = None) -> Future[None]:
        """Connect, in a separate thread, as the owner of a run. The future raises `UsageError` if no worker can run
        commands."""
        if not self.target.local:
            _ = self.target.place
        with self._lock:
            if self._thread is None:
                self._owner = owner
                self._loop = loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._run, name="prose-remote", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no thread can be started
                    self._loop = None
                    loop.close()
                    raise
                self._thread = thread
        return self._opened

    def close(self) -> None:
        """End all commands and disconnect; blocks, for a bounded time. Idempotent."""
        if self._thread is not None:
            self.post(self._closing.set)
            self._thread.join()
        if self._cluster is not None:
            self._cluster.close()

    def post(self, callback: Callable[..., None], *arguments: object) -> bool:
        """Call a function in the connection's loop; return False if it has not begun, or has ended."""
        with self._lock:
            return self._loop is not None and not self._ended and call_in_loop(self._loop, callback, *arguments)

    @property
    def refused(self) -> tuple[str, ...]:
        """The reasons why workers are not used, each once."""
        return tuple(sorted({str(problem) for problem in tuple(self._refused.values())}))

    @property
    def refused_count(self) -> int:
        return len(self._refused)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._main())
        finally:
            _cancel_all(self.loop)
            with self._lock:
                self._ended = True
            self.loop.run_until_complete(asyncio.sleep(0))  # the last calls that were posted
            self.loop.close()

    async def _main(self) -> None:
        serving = asyncio.ensure_future(self._serve())
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait((serving, closing), return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        serving.cancel()
        [ended] = await asyncio.gather(serving, return_exceptions=True)
        await self._end_commands()
        if self._client is not None:
            with contextlib.suppress(Exception):
                await within(self._client.close(), _CONNECT)
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)
        if not self._opened.done():
            unknown = UsageError("remote: disconnected before it was connected")
            self._opened.set_exception(ended if isinstance(ended, Exception) else unknown)

    async def _serve(self) -> None:
        await self._connect()
        await self._wait_for_workers()
        self._opened.set_result(None)
        while True:
            with contextlib.suppress(TimeoutError):
                await within(self._update_now.wait(), _UPDATE_INTERVAL if self.workers else _UPDATE_INTERVAL / 10)
            self._update_now.clear()
            with contextlib.suppress(Exception):  # the scheduler cannot be reached: known workers continue
                await within(self._update_workers(), 2 * _ACTOR)

    async def _connect(self) -> None:
        options: dict[str, Any] = {}
        if self.target.local:
            self._cluster = LocalCluster(self.target.resources)
            starting = asyncio.get_running_loop().run_in_executor(None, self._cluster.start)
            _load()
            from distributed.security import Security

            address, keys = await starting
            options["security"] = Security(require_encryption=True, **keys)
        else:
            _load()
            await self._reach()
            address = self.target.address
        from distributed import Client

        client = Client(
            address, asynchronous=True, set_as_default=False, timeout=_CONNECT, name="prose_kernel", **options
        )
        try:
            self._client = await within(client, 2 * _CONNECT)
        except Exception as problem:
            with contextlib.suppress(Exception):
                await within(client.close(), _REACH)
            raise UsageError(
                f"remote: {self.target.url} does not answer as a Dask scheduler: {_one_line(problem)}",
                hint="check tcp:// or tls://, the certificates in Dask's configuration, and the versions",
            ) from None

    async def _reach(self) -> None:
        """Raise `UsageError` if no scheduler answers; Dask itself would retry without any message."""
        host, port = self.target.place
        try:
            _, writer = await within(asyncio.open_connection(host, port), _REACH)
            writer.close()
        except (OSError, TimeoutError) as problem:
            reason = reason_of(problem, "no answer")
            if ":" in reason or "connect call failed" in reason or "Multiple" in str(problem):
                reason = "connection refused"
            raise UsageError(
                f"remote: {self.target.url} cannot be reached: {reason}",
                hint="start it with `dask scheduler`, or try `--remote local`",
            ) from None

    # ------------------------------------------------------------ workers

    async def claim(self, owner: Owner) -> None:
        """Send the owner of the next run to all actors, before commands of the run start. In the connection's loop."""
        self._owner = owner
        await asyncio.gather(*(worker.claim(owner, self._ladder) for worker in tuple(self.workers.values())))

    @property
    def _ladder(self) -> float:
        """The most seconds that a worker needs to end commands."""
        return _ACTOR + 3 * self._options.grace

    async def _wait_for_workers(self) -> None:
        """Wait for the present workers, but not for slow ones if others are ready, unless this run is resumed: slow
        workers may still run its commands."""
        until = self.loop.time() + _FIRST_WORKER
        resumed = self._owner is not None and self._owner.resumed
        while True:
            await self._update_workers()
            if self._starting:
                await asyncio.wait(self._starting.values(), timeout=None if resumed else _SLOW)
            if resumed and any(problem.again for problem in self._refused.values()):
                await asyncio.sleep(self._options.lease + 3 * self._options.grace)
                resumed = False
            while self._starting and not self.workers:
                await asyncio.wait(self._starting.values(), return_when=asyncio.FIRST_COMPLETED)
            if self.workers:
                return
            if self._refused:
                some = f"{len(self._refused)} worker{'s' if len(self._refused) != 1 else ''}"
                raise UsageError(f"remote: none of {some} can be used: {'; '.join(self.refused)}")
            if self.loop.time() > until:
                hint = "start one with `dask worker SCHEDULER`"
                raise UsageError(f"remote: the scheduler {self.target.url} has no worker", hint=hint)
            await asyncio.sleep(0.1)

    async def _update_workers(self) -> None:
        """Start to add new workers, and give up workers that have left."""
        known: Mapping[str, Any] = (await self._client.scheduler.identity(n_workers=-1))["workers"]
        for address in [address for address in self._refused if address not in known]:
            del self._refused[address]
        for address in [address for address in self.workers if address not in known]:
            self.workers[address].lose()
        now = self.loop.time()
        for address in known:
            refused = self._refused.get(address)
            waits = refused is not None and not (refused.again and self._retry[address] <= now)
            if address not in self.workers and address not in self._starting and not waits:
                self._starting[address] = asyncio.ensure_future(self._add_worker(address, known[address]))

    async def _add_worker(self, address: str, known: Mapping[str, Any]) -> None:
        owner = self._owner
        try:
            facts, actor = await self._start_actor(address)
        except Refused as problem:
            self._refused[address] = problem
            self._retry[address] = self.loop.time() + _RETRY_REFUSED
            self._futures.pop(address, None)
            return
        finally:
            del self._starting[address]
        self._refused.pop(address, None)
        offer = WorkerCapacity(known["nthreads"], known.get("resources") or {})
        worker = WorkerClient(address, offer, facts, actor, self._changed, self._lost)
        self.workers[address] = worker
        if self._owner is not None and self._owner is not owner:  # the next run has begun meanwhile
            await worker.claim(self._owner, self._ladder)
        self._joined(worker)

    def _lost(self, worker: WorkerClient) -> None:
        self.workers.pop(worker.address, None)
        self._futures.pop(worker.address, None)  # this releases the actor, if it still exists
        if worker.leaving:
            self._refused[worker.address] = Refused(_LEAVING)
        self._update_now.set()
        self._left(worker)

    async def _start_actor(self, address: str) -> tuple[Facts, Actor]:
        """Start an actor on a worker, and check that the worker can be used. Raises `Refused`."""
        await self._require_package(address)
        options = self._options
        key = f"prose-actor-{secrets.token_hex(8)}"
        future = self._client.submit(
            WorkerActor,
            options.mark,
            options.shell,
            options.grace,
            options.lease,
            key=key,
            actor=True,
            pure=False,
            retries=0,
            workers=[address],
            allow_other_workers=False,
        )
        self._futures[address] = future
        try:
            problem = await within(future.exception(), _ACTOR)
        except TimeoutError:
            raise Refused("it did not start our actor in time", again=True) from None
        except Exception as failed:
            problem = failed
        if problem is not None:
            raise _refusal(problem)
        actor = Actor(self._client, address, key, direct=self._direct and await self._reachable(address))
        secret = secrets.token_hex(16)
        proof = options.directory / f".prose-remote-{secrets.token_hex(8)}"
        try:
            await asyncio.to_thread(_write_private, proof, secret)
            facts = await within(actor.hello(str(proof), self._owner), self._ladder)
        except OSError as failed:
            raise Refused(f"no file can be written here to prove the directory: {_one_line(failed)}") from None
        except Superseded:
            raise Refused("another process has taken the run over") from None
        except Exception as failed:
            raise Refused(f"its actor does not answer: {_one_line(failed)}", again=True) from None
        finally:
            await asyncio.to_thread(proof.unlink, missing_ok=True)
        _check_facts(facts, secret)
        return facts, actor

    async def _require_package(self, address: str) -> None:
        """Raise `Refused` if the worker can't import this version of prose_kernel: it would not answer to an actor."""
        looked_for = self._client.run(
            pkgutil.resolve_name, "prose_kernel._version:__version__", workers=[address], on_error="return"
        )
        try:
            found = (await within(looked_for, _ACTOR))[address]
        except Exception as failed:
            raise Refused(f"it does not answer: {_one_line(failed)}", again=True) from None
        if isinstance(found, BaseException):
            raise _refusal(found)
        if found != __version__:  # an actor of another version might not understand our messages
            raise Refused(_other_version("prose_kernel", found, __version__))

    async def _reachable(self, address: str) -> bool:
        parts = urlsplit(address)
        try:
            _, writer = await within(asyncio.open_connection(parts.hostname, parts.port), _DIRECT)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def _end_commands(self) -> None:
        """End all commands on all workers simultaneously, within the time of a ladder."""
        workers = tuple(self.workers.values())
        patience = 3 * self._options.grace + LEASE
        await asyncio.gather(*(worker.close(patience) for worker in workers))
        for worker in workers:
            worker.lose()


class Actor:
    """Calls an actor's methods. Dask's own proxy would repeat a call whose connection broke, wait forever for a lost
    actor, and might use another client of this process."""

    def __init__(self, client: Any, address: str, key: str, *, direct: bool) -> None:
        self._client = client
        self._address = address
        self._key = key
        self._direct = direct

    async def hello(self, proof: str, owner: Owner | None) -> Facts:
        found: Facts = await self._call("hello", proof, owner)
        return found

    async def claim(self, instance: str, owner: Owner) -> None:
        await self._call("claim", instance, owner)

    async def send_orders(self, instance: str, batch: int, orders: Sequence[Order]) -> None:
        await self._call("send_orders", instance, batch, orders)

    async def exchange(self, instance: str, seen: Mapping[int, int]) -> tuple[News, ...]:
        news: tuple[News, ...] = await self._call("exchange", instance, seen)
        return news

    async def close(self, instance: str) -> None:
        await self._call("close", instance)

    async def _call(self, method: str, *arguments: object) -> Any:
        from distributed.protocol import to_serialize

        message = {
            "function": method,
            "actor": self._key,
            "args": [to_serialize(one) for one in arguments],
            "kwargs": {},
        }
        if self._direct:
            answer = await self._client.rpc(self._address).actor_execute(**message)
        else:
            answer = await self._client.scheduler.proxy(worker=self._address, msg={"op": "actor_execute", **message})
        if answer["status"] != "OK":
            raise answer["exception"]
        return answer["result"]


# ---------------------------------------------------------------- parts


def _check_facts(facts: Facts, secret: str) -> None:
    """Raise `Refused` if the worker differs from this machine in versions or directory, or is being retired."""
    ours = versions()
    for name, version in ours.items():
        if (theirs := facts.versions.get(name, "none")) != version:
            raise Refused(_other_version(name, theirs, version))
    if facts.leaving:
        raise Refused(_LEAVING)
    if facts.proof is None:
        raise Refused(f"the directory is not there, or is another one ({facts.why_not})")
    if facts.proof != secret:
        raise Refused("the directory is another one")


def _other_version(name: str, theirs: str, ours: str) -> str:
    return f"it has {name} {theirs}, this is {ours}"


def _refusal(problem: BaseException) -> Refused:
    text = _one_line(problem)
    if isinstance(problem, ModuleNotFoundError) or "No module named" in text:
        return Refused("prose_kernel is not installed there")
    return Refused(f"our actor cannot be started: {text}")


def _one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:300] or type(problem).__name__


def _write_private(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        path.chmod(0o644)
        file.write(text)


def _load() -> None:
    """Import Dask; silence its log and warnings unless this process has used it before."""
    if sys.modules.get("distributed") is not None:
        return
    try:
        from distributed.versions import VersionMismatchWarning
    except ImportError:
        raise UsageError("remote: Dask is not installed", hint=INSTALL) from None
    import warnings

    warnings.filterwarnings("ignore", category=VersionMismatchWarning)  # `_check_facts` compares the versions
    for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel tasks that Dask has left running."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=2))
