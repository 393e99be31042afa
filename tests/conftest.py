"""Fixtures of every test: a separate environment without the developer's settings, colours and state."""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import re
import signal
import sys
import time
import types
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import collected
import hypothesis
import pytest
import reported
import waiting
from _pytest.assertion.rewrite import AssertionRewritingHook
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants, constants_from_module

if TYPE_CHECKING:
    from postgres import PostgresServer
    from stubs.model_server import StubServer

# pytest rewrites the `assert` statements of all packages that bring a plugin: ours, and Hypothesis. We test the code as it is,
# from the byte code that commands and kernels load, too.
for finder in sys.meta_path:
    if isinstance(finder, AssertionRewritingHook):
        finder._must_rewrite.clear()
        finder._marked_for_rewrite_cache.clear()

# Programs take a while to think up; how long depends on the machine, which may be busy.
SLOW: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", **SLOW, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("fast", **SLOW, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("deep", **SLOW, max_examples=300)  # `make durability`: others each time
hypothesis.settings.register_profile("thorough", **SLOW, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# What Hypothesis keeps (tables of characters, constants of the package) takes seconds to compute. It would be kept in the
# directory of the first test that uses Hypothesis, which is often one of its own.
set_hypothesis_home_dir(Path(__file__).parents[1] / ".hypothesis")


@functools.cache
def _constants() -> Constants:
    """The constants of all modules of the package, for Hypothesis to try. It would take those of the modules that are loaded,
    which depends on the tests that a worker ran before; the same program would be thought up in some runs only."""
    new = Constants()
    for path in sorted(Path(__file__).parents[1].glob("prose_kernel/**/*.py")):
        module = types.ModuleType(path.stem)
        module.__file__ = str(path)
        new |= constants_from_module(module)
    found = providers._local_constants
    found |= new
    return found


assert hasattr(providers, "_get_local_constants")  # or a later Hypothesis has another name for it
providers._get_local_constants = _constants


OF_THE_TESTS = ("PROSE_TESTS_REQUIRE_ALL", "PROSE_SCREENSHOTS", "PROSE_PLATFORM")
"""Settings of the tests; they stay, because the workers read them too. The kernel knows nothing of them."""

# The choice of a provider depends on these. They go before anything runs, because fixtures of a module start kernels too.
for name in [n for n in os.environ if n.startswith("PROSE_") or n.endswith("_API_KEY")]:
    if name not in OF_THE_TESTS:
        del os.environ[name]
for name in ("CI", "JPY_SESSION_NAME"):
    os.environ.pop(name, None)

# Hundreds of kernels and commands start; without byte code each of them would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


os.environ[waiting.RUN] = uuid.uuid4().hex  # so that tests distinguish their processes from those of another run

# Tests in the background may ignore interrupts; their processes must not inherit that.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


TOGETHER = {
    "tests/browser/": "browser",
    "tests/remote/": "remote",
    "tests/models/providers/": "providers",
    **dict.fromkeys(
        (
            *("tests/access/test_plain_files.py", "tests/cli/test_docs_examples.py", "tests/cli/test_run_sessions.py"),
            *("tests/cli/test_run_tools.py", "tests/durability/test_completed.py", "tests/durability/test_steps.py"),
            *("tests/judging/test_batches.py", "tests/judging/test_calibration.py", "tests/models/test_commands.py"),
            *("tests/models/test_connect.py", "tests/models/test_exec_tool.py", "tests/models/test_own_tools.py"),
            *("tests/models/test_phrased_inputs.py", "tests/models/test_tools.py"),
        ),
        "providers",
    ),
}
"""Tests that go to one worker, by what they share: the browser, a Dask cluster, the SDKs that they import themselves (over
two seconds of processor time, in each worker)."""

LONG = (
    *(
        "tests/browser/",
        "tests/remote/",
        "tests/models/providers/",
        "tests/runs/test_who_answers.py",
        "tests/processes/test_engine.py",
        "tests/test_rooms.py",
        "tests/test_lazy_imports.py",
        "tests/machine/test_limits.py",
        "tests/runtime/test_foreign_text.py",
    ),
    *("tests/durability/", "tests/cli/", "tests/notebook/", "notebooks/", "tests/processes/", "tests/models/"),
)
"""Tests that take long, longest first: they begin first, so that no worker runs one of them at the end while the others are idle."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without collecting garbage: tests and modules stay. It takes a third less."""
    gc.disable()
    try:
        if (place := session.config.stash.get(IDS, None)) is not None and not _is_worker(session.config):
            collected.collect_for_workers(session, place)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()  # no later collection looks through fourteen thousand tests


_later: dict[str, collected.Later] = {}
"""The modules of a worker that takes over the ids of its tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if not _is_worker(parent.config) or IDS not in parent.config.stash:
        return None
    module = collected.Later.from_parent(parent, path=module_path)
    _later[module.nodeid] = module
    return module


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if _is_worker(session.config) and (place := session.config.stash.get(IDS, None)) is not None:
        collected.take_over(session, place, _later)
    elif session.config.option.collectonly:  # `make bytecode`: Hypothesis's tables too, or each worker would make them
        _constants()
        charmap.intervals_from_codec("utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        path = item.nodeid
        return next((n for n, place in enumerate(LONG) if path.startswith(place)), len(LONG))

    items.sort(key=rank)
    scopes = [item.nodeid.rpartition("::")[0] for item in items]
    _last.update(item for item, own, after in zip(items, scopes, [*scopes[1:], ""], strict=False) if own != after)
    posix = os.environ.get("PROSE_PLATFORM") == "posix"
    for item in items:
        if posix and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs facilities of Linux, which are switched off"))
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.filterwarnings("default"))  # what nbval warns of is not ours


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Modules go to workers whole, because their tests share kernels; those of `TOGETHER` to one, as one module."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shared = (name for place, name in TOGETHER.items() if nodeid.startswith(place))
            return next(shared, None) or str(super()._split_scope(nodeid))

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            """As inherited; what is done is forgotten, so that not all tests of a worker are counted after each of them."""
            for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
                del workload[scope]
            return int(super()._pending_of(workload))

        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            super().add_node_collection(node, collection)
            if node in self.registered_collections:
                self.registered_collections[node] = reported.Places(self.registered_collections[node])

    config.option.loadscopereorder = False  # the order is ours
    return ByModule(config, log)


HANGS, LATE = 300.0, 60.0
"""Where the processes' threads are is written down for a test of more than `HANGS` - `LATE` to `HANGS` seconds."""
_watch = {"began": -LATE}
_last: set[pytest.Item] = set()
"""The last tests of their modules and classes: before one of these a worker waits until it is sent others."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """As pytest's `faulthandler_timeout`, which starts and ends a thread for each test; on a busy machine that took longer
    than most tests."""
    if time.monotonic() > _watch["began"] + LATE:
        faulthandler.dump_traceback_later(HANGS, file=item.config.stash.get(fault_handler_stderr_fd_key, 2))
        _watch["began"] = time.monotonic()
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem in _last:
            faulthandler.cancel_dump_traceback_later()
            _watch["began"] = -LATE


def pytest_exception_interact() -> None:
    _watch["began"] = -LATE  # pytest has just ended the thread


_FORKS, _IDS = "forks", "ids"


def pytest_configure(config: pytest.Config) -> None:
    """One process forks the commands and kernels of all workers: to load it takes as long as two hundred commands. And one
    collects the tests of all workers."""
    gc.set_threshold(7000)  # ten times the usual: to look for garbage took a tenth of the time of the tests
    if _is_worker(config):
        import forked

        given = config.workerinput  # type: ignore[attr-defined]
        forked.use_shared(given[_FORKS])
        if given[_IDS]:
            config.stash[IDS] = Path(given[_IDS])
            collected.keep_all(config)
        reported.only_what_is_shown(config)
    elif collected.has_workers(config):
        import forked

        config.stash[SHARED] = forked.start_shared()
        if (place := collected.place_for_ids(config)) is not None:
            config.stash[IDS] = place


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


SHARED = pytest.StashKey[dict[str, Any]]()
IDS = pytest.StashKey[Path]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[_FORKS] = node.config.stash.get(SHARED, {})
    node.workerinput[_IDS] = str(node.config.stash.get(IDS, ""))


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal colours, and one locale."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


_places: Counter[str] = Counter()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's, in half the processor time of a short test: without a link to the last directory of each name, and
    without pytest's check that a name has no directories."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    place = tmp_path_factory.getbasetemp() / f"{name}-{_places[name.lower()]}"
    _places[name.lower()] += 1
    place.mkdir(mode=0o700)
    return place


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this worker, which no test may stop: `own_postgres_server` is for that."""
    from postgres import start_server

    server = start_server()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a database that holds no run, for one test."""
    return postgres_server.empty_database()


@pytest.fixture
def bare_postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a database without tables, for one test."""
    return postgres_server.bare_database()


@pytest.fixture
def own_postgres_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server for only one test."""
    from postgres import start_server

    server = start_server(like=postgres_server)
    yield server
    server.remove()


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    """A model server for the tests of one module."""
    from stubs.model_server import StubServer

    with StubServer() as server:
        yield server
