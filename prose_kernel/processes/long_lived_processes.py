"""Helpers: long-lived processes used through their standard streams, such as CLI agents (sessions.md 5).

A helper is a process of the engine like any other: it has its own session and group, the watchdog knows it, and it is
ended with everything that it started. But it has no time limit, and a user's interrupt does not reach it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Final

from prose_kernel.access.created_code import require_agreed
from prose_kernel.errors import UsageError
from prose_kernel.processes.child_process import Launch, Process, ProcessRecord, exit_of
from prose_kernel.processes.command_output import no_op
from prose_kernel.processes.cross_loop import call_in_loop
from prose_kernel.processes.engine import Engine, EngineClosed
from prose_kernel.processes.environment import holds_secret
from prose_kernel.processes.spawn import close
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.services import HelperEnd

_CHUNK = 65536
_COMPLAINTS = 8_000
_BACKLOG = 256 * 1024 * 1024
"""Characters of output that may wait for the caller; a helper that prints more is ended."""

COMMON: Final = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TEMP", "TMP", "TZ", "LANG", "LANGUAGE"),
        *("LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONUTF8", "PYTHONIOENCODING"),
        *("PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"),
        *("PYTHONPYCACHEPREFIX", "PYTHONFAULTHANDLER", "PYTHONMALLOC", "PYTHONTRACEMALLOC"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    )
)
"""The variables that an untrusted helper gets. An allow list, because no list of secret names is complete."""

_CLOSED = "the process engine is closed"


class Helpers:
    """The `Guard` port on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        on_output: Callable[[str], None],
        *,
        trusted: bool = True,
    ) -> RunningHelper:
        """See `Guard.start`. A cancelled call ends the helper."""
        try:
            self._engine.start()
        except EngineClosed:
            raise OSError(_CLOSED) from None
        own = dict(os.environ)
        if not trusted:  # even a common variable may hold a secret, such as a proxy's password
            own = {name: value for name, value in own.items() if name in COMMON and not holds_secret(value)}
        # A helper serves many requests, so it must not inherit the identity of an outer run's request.
        environment = {**{name: value for name, value in own.items() if name not in open_request.IDENTITY}, **env}
        argv = (_program(command[0], environment.get("PATH"), cwd), *command[1:])
        try:  # a file created by a program of a session needs a person's agreement
            require_agreed(path for part in argv if "\0" not in part and (path := Path(cwd, part)).is_file())
        except UsageError as problem:
            raise OSError(f"{problem}; {problem.hint}") from None
        encoded = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        # The marker of a run's commands: a process started by a helper must not decide a gate (openprose.md 5.10).
        encoded[b"PROSE_JOB"] = f"{self._engine.marker}:helper".encode()
        # No process carries this `tree`, so the tree is followed only from parent to child.
        launch = Launch(lambda _: (argv, ()), encoded, cwd, None, tree=token_hex(8), pipe_stdin=True)
        helper = RunningHelper(self._engine, launch, on_output)
        await helper.begin()
        return helper


def _program(name: str, path: str | None, cwd: str) -> str:
    """Return the absolute path of a program that is named as on a command line. Raises `OSError`."""
    if "/" in name:
        return str(Path(cwd, os.path.expanduser(name)))
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(f"cannot start {name}: not found")
    return str(Path(found).absolute())


class RunningHelper:
    """The `Helper` port. Callable from any loop; the work is done in the engine's loop."""

    def __init__(self, engine: Engine, launch: Launch, on_output: Callable[[str], None]) -> None:
        self._engine = engine
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._process = Process(engine, launch, _Streams(self._printed), self._done, self._begun)
        self._process.foreground = False
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._end: concurrent.futures.Future[HelperEnd] = concurrent.futures.Future()
        self._stdin = -1
        self._unsent = bytearray()
        self._waiting = False
        # output in transit, and the characters added and removed so far, each counted by one thread only
        self._pieces: deque[str] = deque()
        self._added = 0
        self._taken = 0
        self.complaints = ""

    async def begin(self) -> None:
        """Start the helper. Raises `OSError`."""
        if not self._engine.post(self._engine.submit, self._process):
            raise OSError(_CLOSED)
        try:
            await asyncio.shield(asyncio.wrap_future(self._started))
        except asyncio.CancelledError:
            if self._engine.post(self._engine.cancel, self._process):
                await self.ended()  # a cancelled start must leave no process
            raise

    # ------------------------------------------------------------ the port

    def write(self, text: str) -> None:
        self._engine.post(self._send, text.encode("utf-8", "replace"))

    async def ended(self) -> HelperEnd:
        return await asyncio.shield(asyncio.wrap_future(self._end))

    async def stop(self, grace: float) -> HelperEnd:
        if grace > 0:
            self._engine.post(self._process.stop, "cancelled", grace)
        else:
            self._engine.post(self._process.kill, "cancelled")
        return await self.ended()

    # ------------------------------------------------------------ in the engine's loop

    def _begun(self) -> None:
        self._stdin = self._process.stdin
        self._started.set_result(None)

    def _send(self, data: bytes) -> None:
        if self._stdin >= 0:
            self._unsent += data
            if not self._waiting:
                self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._stdin, self._unsent[:_CHUNK])]
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                self._engine.loop.add_writer(self._stdin, self._flush)
        except OSError:
            self._hang_up()  # the reader is closed
        else:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._engine.loop.remove_writer(self._stdin)

    def _hang_up(self) -> None:
        if self._stdin >= 0:
            self._stop_waiting()
            close((self._stdin,))
            self._stdin = -1
        self._unsent.clear()

    def _printed(self, stream: Stream, text: str) -> None:
        if stream == "stderr":
            self.complaints = (self.complaints + text)[-_COMPLAINTS:]
            return
        if not text:
            return
        self._added += len(text)
        self._pieces.append(text)
        if self._added - self._taken > _BACKLOG:
            self._process.kill("cancelled")
        elif not call_in_loop(self._loop, self._deliver):
            self._process.stop("cancelled")  # the caller's loop is closed: the helper is no longer needed

    def _done(self, record: ProcessRecord) -> None:
        self._hang_up()
        if not self._started.done():
            self._started.set_exception(OSError(record.spawn_error or _CLOSED))
        self._end.set_result(HelperEnd(*exit_of(record.status), record.outcome == "cancelled"))

    # ------------------------------------------------------------ in the caller's loop

    def _deliver(self) -> None:
        while self._pieces:
            piece = self._pieces.popleft()
            self._taken += len(piece)
            self._on_output(piece)


class _Streams:
    """The process's `Feed`, which never pauses the reading."""

    full = False

    def __init__(self, printed: Callable[[Stream, str], None]) -> None:
        self.feed = printed
        self.resume: Callable[[], None] = no_op

    def stop(self) -> None:
        """Do nothing: `RunningHelper._done` handles the end."""
