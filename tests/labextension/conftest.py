"""Node loads the scripts once for each test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from labextension.script import end_all


@pytest.fixture(autouse=True, scope="module")
def node_ends_with_the_module() -> Iterator[None]:
    yield
    end_all()
