"""An older JupyterLab, and an older and the current Notebook 7: colours, live output, questions, pictures, links. They work
without the features that need a newer front end."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from browser import test_kept
from browser.conftest import Pictures
from browser.lab import WINDOW, Lab, Notebook, Server, expect, kernels_as_forks
from needs import lacking

OLDER = Path(__file__).parents[2] / ".make" / "older-lab" / "bin" / "python"
CELLS = (
    'let topic = "tea"\nparallel:\n  a = exec "echo one"\n  b = exec "echo two"',
    'gate publish:\n  prompt: "Publish?"\ninput who: "Who is greeted?"\noutput greeting = "hello {who}, {topic}"',
    '%graph\nlet plan = "about {topic}"',
    "let = 3",
)


@pytest.fixture(scope="module")
def older(browser_thread: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the older JupyterLab; its notebooks run with the kernels of this environment."""
    if not OLDER.is_file():
        lacking("an older JupyterLab is not installed (`make older-lab` installs it)")
    with kernels_as_forks(tmp_path_factory.mktemp("forks")) as kernels:
        server = Server(tmp_path_factory.mktemp("older"), str(OLDER), kernels)
        server.wait()
        yield server
        server.close()


class Window:
    """A page of one front end. `problems` are errors of our files, not those of the front end."""

    def __init__(self, lab: Lab, server: Server, path: str, *cells: str) -> None:
        self.page: Any = lab.page.context.browser.new_page(viewport=WINDOW)
        self.page.set_default_timeout(30_000)
        self.page.on("dialog", lambda dialog: dialog.accept())
        self.problems: list[str] = []
        self.page.on("console", self._hear)
        book = Lab.write(_WithServer(server), "cells.ipynb", cells)  # type: ignore[arg-type]
        self.notebook = Notebook(self.page, book)
        self.page.goto(server.url(path))
        self.notebook.panel.locator(".jp-CodeCell").nth(len(cells) - 1).wait_for()
        self.page.wait_for_function("() => document.querySelector('.jp-NotebookPanel .cm-content span')")  # colours

    def _hear(self, message: Any) -> None:
        if message.type == "error" and "prose" in f"{message.text} {message.location}":
            self.problems.append(message.text)


class _WithServer:
    """The attribute of a window that `Lab.write` needs."""

    def __init__(self, server: Server) -> None:
        self.server = server


def check_first_notebook(window: Window) -> None:
    """Check the steps of a user in a first notebook."""
    notebook = window.notebook
    expect(notebook.cell(0).locator(".cm-content span").first).to_be_visible()  # `let` has a colour
    notebook.start(0)
    notebook.shows(0, "two")
    notebook.start(1)
    notebook.question(1, "gate publish").get_by_role("button", name="Approve").click()
    form = notebook.question(1, "input who")
    form.get_by_label("who").fill("world")
    form.get_by_label("who").press("Enter")
    notebook.shows(1, "hello world, tea")
    notebook.start(2)
    expect(notebook.cell(2).locator("svg, img").first).to_be_visible()
    notebook.start(3)
    notebook.shows(3, "Error at line 1")
    notebook.outputs(3).get_by_role("link").last.click()
    expect(window.page.locator("#prose-kernel-reference h4")).to_be_visible()
    assert window.problems == []


@pytest.mark.parametrize("path", ["lab/tree/cells.ipynb?reset", "notebooks/cells.ipynb"], ids=["lab", "notebook"])
def test_an_older_front_end_runs_a_notebook(lab: Lab, older: Server, path: str) -> None:
    window = Window(lab, older, path, *CELLS)
    try:
        check_first_notebook(window)
    finally:
        window.page.close()
        older.end_kernels()


def test_notebook_7_runs_a_notebook(lab: Lab, pictures: Pictures) -> None:
    """This includes kept answers, for which older front ends have no button."""
    try:
        metadata.version("notebook")
    except metadata.PackageNotFoundError:
        lacking("Notebook 7 is not installed")
    test_kept.configure_keep(lab)
    window = Window(lab, lab.server, "notebooks/cells.ipynb", *CELLS, test_kept.CELL)
    try:
        check_first_notebook(window)
        pictures.take("notebook-7", window.page)
        test_kept.check_ask_again(lab, window.notebook, len(CELLS))
    finally:
        window.page.close()
