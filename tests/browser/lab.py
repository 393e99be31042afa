"""A JupyterLab server with all its files in one directory, a browser, and the actions of a user in a notebook.

Playwright's sync API leaves an event loop marked as running in its thread, which would break later asyncio tests. The
browser therefore has its own thread, in which the tests of this directory run (see conftest.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import forked
import nbformat
from needs import needs
from waiting import until

START_SECONDS = 60.0
STEP_MILLISECONDS = 30_000
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",  # drawing without a GPU needs no separate process
    "--js-flags=--no-opt --no-maglev",  # optimizing short scripts costs more than it saves
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WINDOW = {"width": 1200, "height": 900}
KERNELS = {"prose": "prose", "vvm": "vvm", "python3": "python"}
"""The names of the kernels, and their languages. Kernels are forks (`forked.py`), at a fifth of the cost, except after
`Lab.start_installed_kernels`."""
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"


def expect(locator: Any) -> Any:
    """Return Playwright's assertions about a part of the page, which wait. They are imported here, so that these modules
    can be loaded and their tests skipped without Playwright."""
    from playwright.sync_api import expect as assertions

    assertions.set_options(timeout=STEP_MILLISECONDS)
    return assertions(locator)


# ---------------------------------------------------------------- the server


class Server:
    """One `jupyter lab` process in its own process group, with its notebooks in `root`.

    `python` may belong to another environment, whose JupyterLab uses our extension and our kernels, like a separately
    installed server. Kernels in the directory `kernels` precede the installed ones."""

    token = "tok"

    def __init__(self, home: Path, python: str = sys.executable, kernels: Path | None = None) -> None:
        self._python = python
        self.root = home / "root"
        self.root.mkdir()
        self.port = _free_port()
        self._log = (home / "server.log").open("wb")
        environment = _environment(home)
        if kernels is not None:
            environment["JUPYTER_PATH"] = str(kernels)
        _configure(home)
        if python != sys.executable:
            ours = Path(sys.prefix, "share", "jupyter", "labextensions", "prose-kernel")
            theirs = home / "data" / "labextensions" / "prose-kernel"
            theirs.parent.mkdir(parents=True)
            theirs.symlink_to(ours)
        forked.prose("install", "--user", env=environment).check_returncode()
        self._process = subprocess.Popen(
            self._command(home),
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _command(self, home: Path) -> list[str]:
        return [
            *(self._python, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
            *(f"--port={self.port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}"),
            *(f"--ServerApp.root_dir={self.root}", f"--LabServerApp.workspaces_dir={home / 'workspaces'}"),
            "--expose-app-in-browser",  # lets a window open another notebook without a reload
        ]

    def url(self, path: str) -> str:
        joint = "&" if "?" in path else "?"
        return f"http://127.0.0.1:{self.port}/{path}{joint}token={self.token}"

    def wait(self) -> None:
        """Wait until the server answers. Raises `RuntimeError` with the end of its log if it ends."""
        until(lambda: self._process.poll() is not None or self._answers(), START_SECONDS, self._log.name)
        if self._process.poll() is not None:
            raise RuntimeError(f"JupyterLab did not start:\n{Path(self._log.name).read_text()[-3000:]}")

    def _answers(self) -> bool:
        with suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(self.url("api/status"), timeout=5).close()
            return True
        return False

    def close(self) -> None:
        """Terminate the server, which ends its kernels, then kill the rest of its process group."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def end_kernels(self) -> None:
        """End all kernels, and with them the programs that a test has started."""
        for session in self._api("GET", "api/sessions"):
            with suppress(urllib.error.HTTPError):
                self._api("DELETE", f"api/sessions/{session['id']}")

    def _api(self, method: str, path: str) -> Any:
        request = urllib.request.Request(self.url(path), method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or b"null")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PROSE_", "JUPYTER_"))}
    places = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
    }
    (programs := home / "programs").mkdir()
    # At its start, JupyterLab reads a setting for builds from yarn, which takes a second of Node.
    (programs / "node").symlink_to(shutil.which("true") or "/bin/true")
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    return kept | {name: str(home / directory) for name, directory in places.items()} | {"PATH": path}


UNUSED = (
    "apputils-extension:announcements",  # shows news once
    "lsp-extension:plugin",  # starts a language server for each notebook
    "notebook-extension:export",  # requests all formats, for which the server loads nbconvert
    *(
        f"{name}-extension"
        for name in (
            *("audio", "cell-toolbar", "celltags", "csvviewer", "documentsearch", "extensionmanager"),
            *("htmlviewer", "hub", "imageviewer", "inspector", "javascript", "json", "json-lines"),
            *("logconsole", "mathjax", "mermaid", "metadataform", "pdf", "pluginmanager", "running"),
            *("settingeditor", "terminal", "theme-dark-high-contrast", "vega5", "video", "workspaces"),
        )
    ),
    "application-extension:property-inspector",
    *(
        f"apputils-extension:{name}"
        for name in ("licenses-plugin", "print", "running-sessions-status", "toggle-header")
    ),
    *(f"completer-extension:{name}" for name in ("inline-completer", "inline-completer-factory", "inline-history")),
    *(f"fileeditor-extension:{name}" for name in ("cursor-position", "editor-syntax-status", "tab-space-status")),
    *(
        f"notebook-extension:{name}"
        for name in (
            *("active-cell-tool", "cell-counter-status", "cloned-outputs", "code-console", "copy-output", "log-output"),
            *("metadata-editor", "mode-status", "tools"),
        )
    ),
)
"""Parts of JupyterLab that no test uses; a page loads faster without them."""


def _configure(home: Path) -> None:
    """Configure a server and pages with only the parts that tests use. With `buildCheck`, each page asks a package manager
    whether JupyterLab has to be built. With a blinking cursor, the browser draws 60 frames each second."""
    place = home / "config" / "labconfig"
    place.mkdir(parents=True)
    unused = UNUSED[:2] if os.environ.get("PROSE_SCREENSHOTS") else UNUSED  # pictures show all parts
    page = {"disabledExtensions": {f"@jupyterlab/{name}": True for name in unused}, "buildCheck": False}
    settings = {"@jupyterlab/codemirror-extension:plugin": {"defaultConfig": {"cursorBlinkRate": 0}}}
    (place / "page_config.json").write_text(json.dumps(page))
    (place / "default_setting_overrides.json").write_text(json.dumps(settings))


# ---------------------------------------------------------------- a notebook in the browser


class Notebook:
    """An open notebook, and the actions of a user in it. Cells are code cells, counted from 0."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page = page
        self.path = path

    @property
    def panel(self) -> Any:
        return self.page.locator(PANEL)

    def cell(self, number: int) -> Any:
        return self.panel.locator(".jp-CodeCell").nth(number)

    def editor(self, number: int) -> Any:
        return self.cell(number).locator(".cm-content")

    def outputs(self, number: int) -> Any:
        return self.cell(number).locator(".jp-OutputArea-output")

    def ready(self, state: str = "Idle") -> None:
        """Wait until the kernel is in a state. Both indicators must agree; otherwise a key press can be lost."""
        indicator = f'{PANEL} .jp-Notebook-ExecutionIndicator[data-status="{state.lower()}"]'
        self.page.wait_for_selector(indicator, state="attached")
        self.page.wait_for_selector(f"#jp-main-statusbar:has-text('| {state}')")

    def start(self, number: int) -> None:
        """Press Shift+Enter in a cell."""
        self.editor(number).click()
        self.page.keyboard.press("Shift+Enter")

    def finish(self, number: int) -> None:
        """Wait until the prompt of the cell has a number instead of a star."""
        self.prompt(number, re.compile(r"^\[\d+\]:$"))
        self.ready()

    def prompt(self, number: int, text: re.Pattern[str]) -> None:
        expect(self.cell(number).locator(".jp-InputPrompt")).to_have_text(text)

    def run(self, number: int) -> None:
        self.start(number)
        self.finish(number)

    def text(self, number: int) -> str:
        """Return the text of all outputs of a cell."""
        return "\n".join(self.outputs(number).all_inner_texts())

    def shows(self, number: int, text: str) -> None:
        """Wait until the outputs of a cell show a text."""
        expect(self.cell(number).locator(".jp-Cell-outputWrapper")).to_contain_text(text)

    def question(self, number: int, title: str) -> Any:
        """Wait for the form with a title in a cell until it can be answered, and return it."""
        form = self.cell(number).locator(f".prose-question:not(:has(button:disabled)):has-text('{title}')")
        form.wait_for()
        return form

    def run_all(self) -> None:
        """Choose "Run All Cells", and wait until the last cell has ended."""
        self.menu("Run", "Run All Cells")
        last = self.panel.locator(".jp-CodeCell").count() - 1
        self.finish(last)

    def menu(self, *path: str) -> None:
        self.page.locator(f".lm-MenuBar-itemLabel:text-is('{path[0]}')").click()
        for label in path[1:]:
            self.page.locator(f".lm-Menu-itemLabel:text-is('{label}')").first.click()

    def interrupt(self) -> None:
        """Click the square button of the toolbar."""
        self.panel.locator('[data-jp-item-name="interrupt"] >> css=jp-button').click()

    def save(self) -> nbformat.NotebookNode:
        """Press Ctrl+S, wait until the tab is not marked as changed, and return the content of the file."""
        self.page.keyboard.press("Control+s")
        self.page.wait_for_selector("#jp-main-dock-panel .lm-TabBar-tab.jp-mod-current.jp-mod-dirty", state="detached")
        return nbformat.read(self.path, as_version=4)


# Restores the window to its state after loading: only the launcher, no notification, no dialog, the file browser at the left.
# Waits for the launcher, which would otherwise cover the next document.
CLEAR = """async () => {
  const {shell, commands} = window.jupyterapp;
  for (const widget of [...shell.widgets('main')]) if (!widget.id.startsWith('launcher')) widget.dispose();
  for (const button of document.querySelectorAll('.jp-Dialog .jp-mod-reject')) button.click();
  shell.activateById('filebrowser');
  shell.collapseRight();
  commands.execute('apputils:dismiss-all-notifications').catch(() => null);
  for (let n = 0; n < 300 && ![...shell.widgets('main')].length; n++) await new Promise(done => setTimeout(done, 10));
}"""
RESTORED = "() => window.jupyterapp && window.jupyterapp.restored.then(() => true)"
# Opens a document as the only one of the window. The others are closed afterwards: without any, JupyterLab opens a launcher.
OPEN = """async path => {
  const {shell, commands} = window.jupyterapp;
  const opened = await commands.execute('docmanager:open', {path});
  for (const widget of [...shell.widgets('main')]) if (widget !== opened) widget.dispose();
  shell.activateById(opened.id);
}"""


def kernels_as_forks(place: Path) -> AbstractContextManager[Path]:
    """Return a directory with the installed kernels for a `Server`, which starts them as forks."""
    return forked.as_kernels(
        place, {name: Path(sys.prefix, "share/jupyter/kernels", name, "kernel.json") for name in KERNELS}
    )


class Lab:
    """A browser window, and a server that is started at its first use."""

    def __init__(self, home: Path, page: Any) -> None:
        self._home = home
        self._ends = ExitStack()
        self._server: Server | None = None
        self.page = page
        self.problems: list[str] = []
        self._loaded = False
        page.set_default_timeout(STEP_MILLISECONDS)
        page.on("dialog", lambda dialog: dialog.accept())
        page.on("pageerror", self._hear)

    def _hear(self, error: object) -> None:
        """Record errors of the page, except those of JupyterLab about a notebook that was closed during a request or a save."""
        if not str(error).startswith(("Canceled future for", "Disposed")):
            self.problems.append(str(error))

    @property
    def server(self) -> Server:
        if self._server is None:
            (forks := self._home / "forks").mkdir()
            self._forks = forks / "kernels"
            self._server = Server(self._home, kernels=self._ends.enter_context(kernels_as_forks(forks)))
            self._ends.callback(self._server.close)
            self._server.wait()
        return self._server

    def start_installed_kernels(self) -> None:
        """Start the kernels of this test as they are installed, not as forks."""
        assert self.server
        self._forks.rename(self._forks.with_name("unused"))

    def close(self) -> None:
        self._ends.close()

    def write(self, name: str, cells: Sequence[str], kernel: str = "prose", texts: Sequence[str] = ()) -> Path:
        """Write a notebook of code cells, with texts below them, into the directory of the server."""
        spec = {"name": kernel, "display_name": kernel, "language": KERNELS[kernel]}
        book = nbformat.v4.new_notebook(
            cells=[*map(nbformat.v4.new_code_cell, cells), *map(nbformat.v4.new_markdown_cell, texts)],
            metadata={"kernelspec": spec},
        )
        path = self.server.root / name
        nbformat.write(book, path)
        return path

    def _empty(self) -> None:
        """Close all documents. Escape closes a menu, which would receive the clicks of the next test."""
        self.page.keyboard.press("Escape")
        self.page.evaluate(CLEAR)

    def show(self, path: Path) -> None:
        """Open a file as the only one in the window."""
        name = path.relative_to(self.server.root).as_posix()
        if self._loaded:
            self.page.evaluate(OPEN, name)
        else:
            self.page.goto(self.server.url(f"lab/tree/{name}?reset"))
            self._loaded = True

    def launcher(self) -> None:
        """Close all documents, so that JupyterLab shows its launcher, and refresh the file browser."""
        if self._loaded:
            self._empty()
            self.page.evaluate("window.jupyterapp.commands.execute('filebrowser:refresh').then(() => null)")
        else:
            self.page.goto(self.server.url("lab?reset"))
            self._loaded = True
        self.page.locator(".jp-Launcher").wait_for()

    def reload_before_next_notebook(self) -> None:
        """Open the next notebook in a reloaded page."""
        self._loaded = False

    def reload(self, notebook: Notebook) -> None:
        """Reload the page after JupyterLab has saved that only this notebook is open; otherwise it would also restore the
        notebook of an earlier test. Wait until all is restored, so that the next notebook can be opened in this page. The
        address names no notebook: JupyterLab would open it a second time, later, above the next notebook."""
        until(lambda: self._saved_layout() == [f"notebook:{notebook.path.name}"], what="the layout is saved")
        self.page.goto(self.server.url("lab"))
        self.page.wait_for_function(RESTORED, polling=100)

    def _saved_layout(self) -> list[str] | None:
        """Return the widgets that JupyterLab restores when the page is loaded."""
        for path in (self._home / "workspaces").glob("default*"):
            with suppress(ValueError, KeyError, TypeError):  # half written, or without documents
                return list(json.loads(path.read_text())["data"]["layout-restorer:data"]["main"]["dock"]["widgets"])
        return None

    def clear(self) -> None:
        """Close all documents, then end their kernels (in this order, so that JupyterLab shows no error), then remove settings."""
        if self._loaded:
            self._empty()
        if self._server is not None:
            self._server.end_kernels()
            if not self._forks.exists():
                self._forks.with_name("unused").rename(self._forks)
            (self._server.root / "prose.toml").unlink(missing_ok=True)

    def open(self, path: Path, ready: bool = True) -> Notebook:
        """Open a notebook as the only document of the window and wait for its kernel."""
        self.show(path)
        notebook = Notebook(self.page, path)
        notebook.panel.locator(".jp-CodeCell").first.wait_for()
        if ready:
            notebook.ready()
        return notebook

    def notebook(self, *cells: str, kernel: str = "prose", texts: Sequence[str] = ()) -> Notebook:
        """Write and open a new notebook with cells, and wait for its kernel."""
        number = len(list(self.server.root.glob("cells*.ipynb")))
        return self.open(self.write(f"cells{number}.ipynb", cells, kernel, texts))

    def theme(self, name: str) -> None:
        """Choose a theme in the settings menu, and wait until the page has its colours."""
        self.page.locator(".lm-MenuBar-itemLabel:text-is('Settings')").click()
        self.page.locator(".lm-Menu-itemLabel:text-is('Theme')").click()
        self.page.locator(f".lm-Menu-itemLabel:text-is('{name}')").click()
        self.page.wait_for_selector(f"body[data-jp-theme-name='{name}']", state="attached")


@contextmanager
def browser_window(home: Path) -> Iterator[Lab]:
    """A browser with a window and its server, for use in one thread. They end with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=needs(*BROWSERS), headless=True, args=list(CHROMIUM_OPTIONS)
        )
        try:
            lab = Lab(home, browser.new_page(viewport=WINDOW))
            with closing(lab):
                yield lab
        finally:
            browser.close()
