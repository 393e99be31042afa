"""Servers for the tests of one module: one forks processes that are killed, the other is a model server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from durability.matrix import Server
    from stubs.model_server import StubServer


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    from durability.matrix import Server

    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    import session_modules
    from stubs.model_server import StubServer

    session_modules.load()  # before the processes are forked
    with StubServer() as server:
        yield server
