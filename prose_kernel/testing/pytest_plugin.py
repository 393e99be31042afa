"""A pytest plugin: `pytest --prose` collects notebooks of the Prose and VVM kernels, and programs with a snapshot.

pytest loads this module wherever the package is installed, so it imports the package only when there is something to
collect. It does not interfere with nbval: both can run on the same notebooks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prose_kernel.testing.options import SuiteOptions
    from prose_kernel.views.test_results import Outcome, Tested


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the applicable options of `prose test`, and the setting `prose = true` of a configuration file."""
    group = parser.getgroup("prose", "OpenProse and VVM notebooks and programs")
    group.addoption("--prose", action="store_true", help="Test notebooks and programs with a snapshot.")
    group.addoption("--prose-live", action="store_true", help="Let providers answer what is not recorded.")
    group.addoption("--prose-lax", action="store_true", help="Compare only outputs of cells marked NBVAL_CHECK_OUTPUT.")
    group.addoption("--prose-timeout", type=float, metavar="SECONDS", help="Limit for each cell or program: 300.")
    group.addoption("--prose-sanitize-with", action="append", metavar="FILE", help="Replacements before comparing.")
    parser.addini("prose", "Test notebooks and programs as with --prose.", type="bool", default=False)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a notebook, or a program with a snapshot."""
    config = parent.config
    if not (config.getoption("--prose") or config.getini("prose")):
        return None
    from prose_kernel.testing.suite import found_test

    test = found_test(file_path)
    return ProseFile.from_parent(parent, path=file_path, test=test) if test is not None else None


class Difference(Exception):
    """A test found differences, which the message shows."""


class ProseFile(pytest.File):
    """A notebook or program, or the snapshot of a missing program. It runs once, when its first test runs."""

    def __init__(self, *, test: Path, **more: Any) -> None:
        super().__init__(**more)
        self._test = test
        self._tested: Tested | None = None

    def collect(self) -> Iterable[pytest.Item]:
        """Yield a test for each cell or case, and for a notebook those of the file as a whole."""
        from prose_kernel.errors import UsageError
        from prose_kernel.testing.suite import names_of

        try:
            names = names_of(self._test)
        except UsageError as problem:
            raise self.CollectError(str(problem)) from None
        for name in names:
            yield ProseItem.from_parent(self, name=name)

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcome of each cell or case by name."""
        if self._tested is None:
            from prose_kernel.testing.suite import TestedFile, run_all, run_one

            target, options = TestedFile(self._test, self._test.name), self._options()
            if "PYTEST_XDIST_WORKER" in os.environ:  # other workers may use the same directory
                self._tested = run_one(target, options)
            else:
                self._tested = run_all([target], options, 1, lambda tested: None)[0]
        if self._tested.interrupted:
            raise KeyboardInterrupt
        return {outcome.name: outcome for outcome in self._tested.outcomes}

    def _options(self) -> SuiteOptions:
        from prose_kernel.errors import UsageError
        from prose_kernel.runs.run_assembly import add_prose_to_path
        from prose_kernel.testing.options import SECONDS, SuiteOptions
        from prose_kernel.testing.outputs import Rules

        add_prose_to_path()
        chosen = self.config.getoption
        try:
            rules = Rules(chosen("--prose-sanitize-with") or ())
        except UsageError as problem:
            raise pytest.UsageError(str(problem)) from None
        seconds = chosen("--prose-timeout") or SECONDS
        return SuiteOptions(live=chosen("--prose-live"), lax=chosen("--prose-lax"), seconds=seconds, rules=rules)


class ProseItem(pytest.Item):
    """A cell, a case of a program, or a check of the whole file."""

    parent: ProseFile

    def runtest(self) -> None:
        """Raise `Difference` if the test failed."""
        outcome = self.parent.outcomes().get(self.name)
        if outcome is None:
            from prose_kernel.testing.suite import WHOLE

            if self.name in WHOLE:
                return
            pytest.skip("an earlier cell did not end, or the notebook could not be run")
        if outcome.status == "skipped":
            pytest.skip(outcome.why)
        if outcome.status == "failed":
            raise Difference(outcome.text())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return only the differences, without a Python traceback of this package."""
        if isinstance(excinfo.value, Difference):
            return f"{self.path.name}, {self.name}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}::{self.name}"
