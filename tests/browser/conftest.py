"""One JupyterLab and one browser for all tests of this directory. The tests are skipped without them, with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser.lab import BROWSERS, Lab, browser_window
from needs import needs, needs_module

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FIRST = "tests/browser/test_debugger.py"
"""A module whose tests need a newly loaded page. It runs first, because the first page is newly loaded."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))  # the others keep their order
    for item in items:
        if item.nodeid.startswith("tests/browser/"):  # ids, because paths of all tests would take seconds
            item.add_marker(pytest.mark.browser)
            # Three workers start JupyterLab and Chromium on two cores: failed tests run once more, and are counted.
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run tests with a browser in the thread of the browser."""
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    browser = pyfuncitem.funcargs.get("browser_thread")
    if isinstance(browser, _Browser):
        browser.thread.submit(pyfuncitem.obj, **arguments).result()
    else:
        pyfuncitem.obj(**arguments)
    return True


@dataclass(frozen=True)
class _Browser:
    thread: ThreadPoolExecutor
    lab: Lab


@pytest.fixture(scope="session")
def browser_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Browser]:
    for module in ("jupyterlab", "playwright"):
        needs_module(module)
    needs(*BROWSERS)
    with ThreadPoolExecutor(1, thread_name_prefix="browser") as thread:
        manager = browser_window(tmp_path_factory.mktemp("lab"))
        lab = thread.submit(manager.__enter__).result()
        try:
            yield _Browser(thread, lab)
        finally:
            thread.submit(manager.__exit__, None, None, None).result()


@pytest.fixture
def lab(browser_thread: _Browser) -> Iterator[Lab]:
    """The window. After a test, its documents, kernels and settings are removed; an error of the page fails the test."""
    lab = browser_thread.lab
    lab.problems.clear()
    yield lab
    browser_thread.thread.submit(lab.clear).result()
    assert lab.problems == []


class Pictures:
    """The pictures of the documentation: `PROSE_SCREENSHOTS` writes them again; otherwise tests check that they exist."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted

    def take(self, name: str, page_or_part: object, **options: object) -> None:
        path = IMAGES / f"{name}.png"
        if self.wanted:
            IMAGES.mkdir(parents=True, exist_ok=True)
            page_or_part.screenshot(path=path, **options)  # type: ignore[attr-defined]
        assert path.read_bytes().startswith(b"\x89PNG"), f"{path.name} is missing: PROSE_SCREENSHOTS=1 writes it"


@pytest.fixture
def pictures() -> Pictures:
    return Pictures(wanted=bool(os.environ.get("PROSE_SCREENSHOTS")))
