"""What the workers of pytest report to the process that prints it, and that one's list of tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def only_what_is_shown(config: pytest.Config) -> None:
    """Have this worker send two messages about a test that passes, not six: with most tests the others took more processor
    time than the test."""
    options = config.option
    if options.verbose > 0 or options.durations is not None or options.xmlpath:  # which show or count more
        return
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":  # of a module that xdist sends to each worker
            config.pluginmanager.unregister(plugin)
            plugin.__class__ = _terse(type(plugin))
            config.pluginmanager.register(plugin)


def _terse(inherited: Any) -> Any:
    class Terse(inherited):  # type: ignore[misc]
        pytest_runtest_logstart = pytest_runtest_logfinish = None

        @pytest.hookimpl
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or not report.passed or report.sections:
                super().pytest_runtest_logreport(report)

    return Terse


class Places(list[str]):
    """The ids of all tests. xdist looks for the place of each, one by one."""

    def __init__(self, tests: Iterable[str]) -> None:
        super().__init__(tests)
        self._places = {test: n for n, test in enumerate(self)}

    def index(self, test: str, *_: Any) -> int:
        return self._places[test]
