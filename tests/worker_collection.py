"""Workers of pytest-xdist import a test module only when they run its tests.

By default, each worker collects all tests, and their lists are compared. With three workers, that takes half a minute of two
processors before the first test. Here, the process that starts the workers collects once, while they start. A worker reads
the ids, and creates the tests of a module when it receives the first of them.
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
"""The limit for a busy machine without byte code."""


def has_workers(config: pytest.Config) -> bool:
    """Whether this process starts workers that receive whole modules."""
    option = config.getoption
    return option("dist", "no") == "loadscope" and bool(option("tx")) and not option("collectonly")


def place_for_ids(config: pytest.Config) -> Path | None:
    """Return the directory for the ids of tests. None if a path names a part of a module: then the workers collect."""
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
    finally:  # also after an error, because the workers wait
        session.items = []
        (place / "new").write_text(json.dumps(ids))
        (place / "new").rename(place / _IDS)


def keep_all(config: pytest.Config) -> None:
    """Switch off `--lf` in a worker: only the process that collects all tests selects them."""
    for name in ("lfplugin", "lfplugin-collwrapper"):
        if config.pluginmanager.has_plugin(name):
            config.pluginmanager.unregister(name=name)


class DeferredModule(pytest.Module):
    """A module in a worker. It has no tests until it is wanted."""

    wanted = False

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return super().collect() if self.wanted else []


def take_over(session: pytest.Session, place: Path, modules: Mapping[str, DeferredModule]) -> None:
    """Replace the tests of this worker by those with the ids at the place. Tests outside of modules are already collected."""
    until((place / _IDS).exists, COLLECTION_SECONDS, "all tests are collected")
    ids = json.loads((place / _IDS).read_text())
    ready = {item.nodeid: item for item in session.items}
    session.items = _Items((ready.get(one) or _Id(one) for one in ids), session, modules)


class _Id(NamedTuple):
    """The attribute that xdist reads of a test that does not run yet."""

    nodeid: str


class _Missing(pytest.Item):
    """A test that a worker could not create. An error in the import of its module is reported separately."""

    def runtest(self) -> None:
        pytest.fail("collected by one process, but not by the one that has to run it", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


class _Items(list[Any]):
    """The tests of a worker. A lookup imports the module of the test, and creates all tests of this module."""

    def __init__(self, tests: Iterable[Any], session: pytest.Session, modules: Mapping[str, DeferredModule]) -> None:
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

    def _make(self, module: DeferredModule) -> None:
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
            elif not config.getoption("lf", False) and not config.getoption("stepwise", False):  # they select tests
                error = pytest.CollectReport(item.nodeid, "failed", "found by only one process, and not run", None)
                config.hook.pytest_collectreport(report=error)
