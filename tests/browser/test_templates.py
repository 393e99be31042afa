"""Templates of the launcher: a click creates a file and opens it."""

from __future__ import annotations

from browser.conftest import Pictures
from browser.lab import Lab, Notebook, expect


def test_a_template_in_the_launcher_creates_and_opens_a_file(lab: Lab, pictures: Pictures) -> None:
    root = lab.server.root
    for name in ("Commands.ipynb", "Commands 1.ipynb", "brief.prose.md"):
        (root / name).unlink(missing_ok=True)
    (root / "Commands.ipynb").write_text("{}")
    lab.launcher()
    cards = lab.page.locator(".jp-Launcher-section:has-text('Prose') .jp-LauncherCard")
    card = cards.filter(has_text="Commands")
    card.wait_for()
    pictures.take("templates", lab.page.locator(".jp-Launcher-content"))
    card.click()
    notebook = Notebook(lab.page, root / "Commands 1.ipynb")
    notebook.ready()
    expect(notebook.panel.locator("h1")).to_contain_text("Commands")
    notebook.run(0)
    notebook.shows(0, "Commands 1.ipynb")
    assert (root / "Commands.ipynb").read_text() == "{}", "an existing file stays"
    lab.page.evaluate(
        "() => window.jupyterapp.commands.execute('prose-kernel:new-contract', {cwd: ''}).then(() => null)"
    )
    expect(lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")).to_contain_text("three sentences")
    assert (root / "brief.prose.md").read_text().startswith("---\nname: brief\n")
