"""Kernels that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook.kernels import Client, kernel


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with kernel(tmp_path_factory.mktemp("notebook"), forks=True) as client:
        yield client


@pytest.fixture
def client(shared: Client) -> Client:
    """The module's kernel, with a run of its own for each test."""
    ran = shared.run("%reset")
    assert ran.status == "ok"
    return shared


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path
