"""The workers of pytest import a test module when they run its tests.

Left to itself, each worker collects all tests to compare what it has with the other workers: with three of them that is half a
minute of two processors before the first test. Here the process that starts the workers collects, once, while they start;
a worker takes over the ids, and makes the tests of a module when it is sent the first of them.
"""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.warnings import catch_warnings_for_item
from waiting import until

_IDS = "ids.json"
COLLECTION_SECONDS = 300.0
"""With all byte code to be written, on a busy machine."""


def has_workers(config: pytest.Config) -> bool:
    """Whether this process starts workers, to which modules go whole."""
    option = config.getoption
    return option("dist", "no") == "loadscope" and bool(option("tx")) and not option("collectonly")


def place_for_ids(config: pytest.Config) -> Path | None:
    """Where the process that starts the workers will write the ids; None if the workers collect themselves, because a path
    names a part of a module."""
    if any("::" in path for path in config.args):
        return None
    place = tempfile.TemporaryDirectory()
    config.add_cleanup(place.cleanup)
    return Path(place.name)


def collect_for_workers(session: pytest.Session, place: Path) -> None:
    """Collect all tests, and write their ids for the workers. Errors are reported here; a module with an error has no ids."""
    ids: list[str] = []
    try:
        ids = [item.nodeid for item in session.perform_collect()]
    finally:  # in any case: the workers wait
        session.items = []
        (place / "new").write_text(json.dumps(ids))
        (place / "new").rename(place / _IDS)


def keep_all(config: pytest.Config) -> None:
    """Have a worker leave out no test because of `--lf`: only the process that collects all tests knows which ones."""
    for name in ("lfplugin", "lfplugin-collwrapper"):
        if config.pluginmanager.has_plugin(name):
            config.pluginmanager.unregister(name=name)


class Later(pytest.Module):
    """A module of a worker: empty until it is wanted."""

    wanted = False

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return super().collect() if self.wanted else []


def take_over(session: pytest.Session, place: Path, modules: Mapping[str, Later]) -> None:
    """Make the tests of this worker those whose ids were written at the place. It has collected what is in no `Later`."""
    until((place / _IDS).exists, COLLECTION_SECONDS, "all tests are collected")
    ids = json.loads((place / _IDS).read_text())
    ready = {item.nodeid: item for item in session.items}
    session.items = _Items((ready.get(one) or _Id(one) for one in ids), session, modules)


class _Id(NamedTuple):
    """All that xdist reads of a test that does not run yet."""

    nodeid: str


class _Missing(pytest.Item):
    """A test that a worker could not make. If its module cannot be imported, that has been reported."""

    def runtest(self) -> None:
        pytest.fail("collected by one process, but not by the one that has to run it", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


class _Items(list[Any]):
    """The tests of a worker. To look one up imports its module, and makes all tests of that."""

    def __init__(self, tests: Iterable[Any], session: pytest.Session, modules: Mapping[str, Later]) -> None:
        super().__init__(tests)
        self._session, self._modules = session, modules
        self._places = {test.nodeid: n for n, test in enumerate(self)}

    def __getitem__(self, place: Any) -> Any:
        if isinstance(found := super().__getitem__(place), _Id):
            path, _, name = found.nodeid.partition("::")
            if (module := self._modules.get(path)) is not None and not module.wanted:
                self._make(module)
            if isinstance(found := super().__getitem__(place), _Id):
                found = self[place] = _Missing.from_parent(module or self._session, name=name, nodeid=found.nodeid)
        return found

    def _make(self, module: Later) -> None:
        session, config = self._session, self._session.config
        module.wanted = True
        gc.disable()
        try:
            with catch_warnings_for_item(config=config, ihook=config.hook, when="collect", item=None):
                made = [*session.genitems(module)]
                config.hook.pytest_collection_modifyitems(session=session, config=config, items=made)
        finally:
            gc.enable()
        for item in made:
            if (place := self._places.get(item.nodeid)) is not None:
                self[place] = item
            elif not config.getoption("lf", False) and not config.getoption("stepwise", False):  # which leave tests out
                error = pytest.CollectReport(item.nodeid, "failed", "found by only one process, and not run", None)
                config.hook.pytest_collectreport(report=error)
