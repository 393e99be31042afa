"""Fewer messages from the workers of pytest-xdist, and a faster list of tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def send_only_displayed_reports(config: pytest.Config) -> None:
    """Let this worker send two messages about a test that passes, not six. The others take more processor time than most
    tests."""
    options = config.option
    if options.verbose > 0 or options.durations is not None or options.xmlpath:  # these options need more messages
        return
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":  # defined in a module that xdist sends to each worker
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
    """The ids of all tests, with a fast `index`, which xdist calls for each test."""

    def __init__(self, tests: Iterable[str]) -> None:
        super().__init__(tests)
        self._places = {test: n for n, test in enumerate(self)}

    def index(self, test: str, *_: Any) -> int:
        return self._places[test]
