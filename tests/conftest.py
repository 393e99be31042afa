"""Fixtures and hooks for all tests: an environment without the settings, colours and state of the developer."""

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

import hypothesis
import pytest
import waiting
import worker_collection
import worker_reports
from _pytest.assertion.rewrite import AssertionRewritingHook
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants, constants_from_module

if TYPE_CHECKING:
    from postgres import PostgresServer
    from stubs.model_server import StubServer

# pytest rewrites the `assert` statements of packages with a plugin: ours, and Hypothesis. Tests use the unchanged code, from
# the same byte code as commands and kernels.
for finder in sys.meta_path:
    if isinstance(finder, AssertionRewritingHook):
        finder._must_rewrite.clear()
        finder._marked_for_rewrite_cache.clear()

# Generating programs takes a while, longer on a busy machine.
SLOW: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", **SLOW, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("fast", **SLOW, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("deep", **SLOW, max_examples=300)  # `make durability`: examples vary
hypothesis.settings.register_profile("thorough", **SLOW, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# The data that Hypothesis stores (tables of characters, constants of the package) takes seconds to compute. By default it is
# stored in the working directory of the first test that uses Hypothesis, which is often a temporary one.
set_hypothesis_home_dir(Path(__file__).parents[1] / ".hypothesis")


@functools.cache
def _constants() -> Constants:
    """Return the constants of all modules of the package, which Hypothesis tries. By default it uses those of the loaded
    modules, which depend on the tests that the worker ran before; a program would then be generated in some runs only."""
    new = Constants()
    for path in sorted(Path(__file__).parents[1].glob("prose_kernel/**/*.py")):
        module = types.ModuleType(path.stem)
        module.__file__ = str(path)
        new |= constants_from_module(module)
    found = providers._local_constants
    found |= new
    return found


assert hasattr(providers, "_get_local_constants")  # fails if a later Hypothesis renames it
providers._get_local_constants = _constants


TEST_VARIABLES = ("PROSE_TESTS_REQUIRE_ALL", "PROSE_SCREENSHOTS", "PROSE_PLATFORM")
"""Variables that configure the tests. They stay in the environment for the workers; the kernel does not use them."""

# The choice of a provider depends on these. They are removed first, because fixtures of modules start kernels, too.
for name in [n for n in os.environ if n.startswith("PROSE_") or n.endswith("_API_KEY")]:
    if name not in TEST_VARIABLES:
        del os.environ[name]
for name in ("CI", "JPY_SESSION_NAME"):
    os.environ.pop(name, None)

# Without byte code, each of hundreds of kernels and commands would compile the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


os.environ[waiting.RUN] = uuid.uuid4().hex  # distinguishes processes of this run from those of other runs

# Tests in the background may ignore signals; their processes must not inherit this.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


SAME_WORKER = {
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
"""Tests that run in one worker because they share something: the browser, a Dask cluster, or the imports of SDKs (over two
seconds of processor time in each worker)."""

LONGEST_FIRST = (
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
"""Tests that take long, longest first. They start first, so that no worker runs one of them last while the others are idle."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect tests without garbage collection, which takes a third less time: tests and modules stay alive."""
    gc.disable()
    try:
        if (place := session.config.stash.get(IDS, None)) is not None and not _is_worker(session.config):
            worker_collection.collect_for_workers(session, place)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()  # later garbage collections skip fourteen thousand tests


_deferred: dict[str, worker_collection.DeferredModule] = {}
"""The modules of a worker that reads the ids of its tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if not _is_worker(parent.config) or IDS not in parent.config.stash:
        return None
    module = worker_collection.DeferredModule.from_parent(parent, path=module_path)
    _deferred[module.nodeid] = module
    return module


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if _is_worker(session.config) and (place := session.config.stash.get(IDS, None)) is not None:
        worker_collection.take_over(session, place, _deferred)
    elif session.config.option.collectonly:  # `make bytecode`: otherwise each worker computes these tables
        _constants()
        charmap.intervals_from_codec("utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        path = item.nodeid
        return next((n for n, place in enumerate(LONGEST_FIRST) if path.startswith(place)), len(LONGEST_FIRST))

    items.sort(key=rank)
    scopes = [item.nodeid.rpartition("::")[0] for item in items]
    _last_of_modules.update(
        item for item, own, after in zip(items, scopes, [*scopes[1:], ""], strict=False) if own != after
    )
    posix = os.environ.get("PROSE_PLATFORM") == "posix"
    for item in items:
        if posix and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs facilities of Linux, which are switched off"))
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.filterwarnings("default"))  # nbval causes warnings


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send whole modules to workers, because their tests share kernels, and those of `SAME_WORKER` to one worker."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shared = (name for place, name in SAME_WORKER.items() if nodeid.startswith(place))
            return next(shared, None) or str(super()._split_scope(nodeid))

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            """Forget completed modules, so that not all tests of a worker are counted after each test."""
            for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
                del workload[scope]
            return int(super()._pending_of(workload))

        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            super().add_node_collection(node, collection)
            if node in self.registered_collections:
                self.registered_collections[node] = worker_reports.Places(self.registered_collections[node])

    config.option.loadscopereorder = False  # `pytest_collection_modifyitems` sorts
    return ByModule(config, log)


HANGS, LATE = 300.0, 60.0
"""Seconds. A test that takes more than `HANGS`, or up to `LATE` less, prints the tracebacks of all threads."""
_watch = {"began": -LATE}
_last_of_modules: set[pytest.Item] = set()
"""The last tests of their modules and classes: a worker runs them only after it has received more tests."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Print tracebacks of hanging tests, like `faulthandler_timeout` of pytest, which starts and ends a thread for each test.
    On a busy machine, that takes longer than most tests."""
    if time.monotonic() > _watch["began"] + LATE:
        faulthandler.dump_traceback_later(HANGS, file=item.config.stash.get(fault_handler_stderr_fd_key, 2))
        _watch["began"] = time.monotonic()
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem in _last_of_modules:
            faulthandler.cancel_dump_traceback_later()
            _watch["began"] = -LATE


def pytest_exception_interact() -> None:
    _watch["began"] = -LATE  # pytest has ended the thread


_FORKS, _IDS = "forks", "ids"


def pytest_configure(config: pytest.Config) -> None:
    """Start the process that forks commands and kernels for all workers; loading it takes as long as two hundred commands.
    Choose the directory for the ids of tests."""
    gc.set_threshold(7000)  # ten times the default: garbage collection took a tenth of the time of tests
    if _is_worker(config):
        import forked

        given = config.workerinput  # type: ignore[attr-defined]
        forked.use_shared(given[_FORKS])
        if given[_IDS]:
            config.stash[IDS] = Path(given[_IDS])
            worker_collection.keep_all(config)
        worker_reports.send_only_displayed_reports(config)
    elif worker_collection.has_workers(config):
        import forked

        config.stash[SHARED] = forked.start_shared()
        if (place := worker_collection.place_for_ids(config)) is not None:
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
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set no terminal colours, and one locale."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


_places: Counter[str] = Counter()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like `tmp_path` of pytest, without links to the last directories and without a search for free numbers. That
    saves half the processor time of a short test."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    place = tmp_path_factory.getbasetemp() / f"{name}-{_places[name.lower()]}"
    _places[name.lower()] += 1
    place.mkdir(mode=0o700)
    return place


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this worker. Tests that stop a server use `own_postgres_server`."""
    from postgres import start_server

    server = start_server()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a database without runs, for one test."""
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
