"""The stub model server: one for each test module, reset for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stubs.model_server import StubServer


@pytest.fixture(scope="module")
def running_stub() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


@pytest.fixture
def stub(running_stub: StubServer) -> StubServer:
    running_stub.reset()
    return running_stub
