"""A task service on a separate engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from processes.tasks.desk import GRACE, Desk, MakeDesk

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.options import TaskOptions


@pytest_asyncio.fixture
async def make_desk(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> AsyncIterator[MakeDesk]:
    desks: list[Desk] = []

    def make(*, on_disk: bool = True, directory: Path | None = None, **options: object) -> Desk:
        engine = Engine(grace=GRACE, state_dir=tmp_path_factory.mktemp("state"))
        given = {"shell": "bash", "grace": GRACE, "shutdown_grace": GRACE, **options}
        desks.append(Desk(engine, directory or tmp_path.resolve(), TaskOptions(**given), on_disk=on_disk))  # type: ignore[arg-type]
        return desks[-1]

    yield make
    for desk in desks:
        await desk.close()


@pytest_asyncio.fixture
async def desk(make_desk: MakeDesk) -> Desk:
    return make_desk()
