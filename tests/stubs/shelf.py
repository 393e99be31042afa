"""A registry for tests: a server on loopback, a separate cache and project, and people who agree or refuse."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from models.people import ScriptedPerson
from msgspec.structs import replace
from stubs.http_server import Server, response, running

from prose_kernel.programs import urls
from prose_kernel.programs.lock_file import LockFile, Pin
from prose_kernel.programs.remote_programs import ProgramCache, RemotePrograms
from prose_kernel.runtime.asker import serial
from prose_kernel.runtime.session_options import ProgramSettings


class Shelf:
    """Programs by path (`dana/outline`) on a server, and the project that uses them."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.lock = LockFile(directory / "prose.lock")
        self.pauses: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/"

    def put(self, path: str, text: str, more: str = "") -> str:
        """Serve a program, and return its URL."""
        self.server.pages["/" + path] = response(text.encode(), more=more)
        return self.url + path

    def resolver(
        self,
        *answers: str,
        person: ScriptedPerson | None = None,
        limits: ProgramSettings | None = None,
        most: int = 100,
        writes: bool = True,
        upgrade: bool = False,
    ) -> RemotePrograms:
        """Return a new resolver, as for a separate process. `answers` are those of the person; without any it is non-interactive."""

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        person = person or ScriptedPerson(*answers, available=bool(answers))
        return RemotePrograms(
            replace(limits or ProgramSettings(seconds=20), registry=self.url, most=most),
            self.lock,
            ProgramCache(self.directory / "cache"),
            asker=serial(person),
            writes=writes,
            upgrade=upgrade,
            sleep=sleep,
        )

    def pin(self, url: str) -> Pin | None:
        return LockFile(self.lock.path).pins().get(url)

    def settings(self, more: str = "") -> None:
        """Configure the project to use this registry."""
        (self.directory / "prose.toml").write_text(
            f"{more}\n[programs]\nregistry = {json.dumps(self.url)}\nseconds = 20\n"
        )

    def command(self) -> list[str]:
        """Return the command of a `prose` process that may call this server."""
        code = (
            "import sys; from prose_kernel.programs import urls; from prose_kernel.cli.main import main; "
            f"urls.plain_http = frozenset({{'127.0.0.1:{self.server.port}'}}); sys.exit(main())"
        )
        return [sys.executable, "-c", code]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def opened(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    with running() as server:
        monkeypatch.setattr(urls, "plain_http", frozenset({f"127.0.0.1:{server.port}"}))
        monkeypatch.setenv("XDG_CACHE_HOME", str(directory / "home-cache"))
        project = directory / "project"
        project.mkdir()
        monkeypatch.chdir(project)
        yield Shelf(server, project)
