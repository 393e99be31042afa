"""A contract file in JupyterLab: opened as a notebook, run, changed, and saved as Markdown (jupyter.md 10)."""

from __future__ import annotations

from browser.lab import Lab, Notebook, expect

BRIEF = "---\r\nname: brief\r\nkind: function\r\n---\r\n\r\n### Execution\r\n\r\n~~~~prose\r\nreturn 40 + 2\r\n~~~~\r\n"
# What "Open With" offers, and what it does.
OFFERED = "window.jupyterapp.docRegistry.preferredWidgetFactories('brief.prose.md').map(one => one.name)"
OPEN_WITH = """() => window.jupyterapp.commands.execute(
  'docmanager:open', {path: 'brief.prose.md', factory: 'Notebook'}).then(() => null)"""


def test_a_contract_file_is_a_notebook_and_saved_as_markdown(lab: Lab) -> None:
    path = lab.server.root / "brief.prose.md"
    path.write_bytes(BRIEF.encode())
    lab.page.goto(lab.server.url("lab?reset"))
    lab.spoil()
    lab.page.wait_for_selector(".jp-DirListing-item:has-text('brief.prose.md')")
    offered = lab.page.evaluate(OFFERED)
    assert (offered[0], sorted(offered)) == ("Editor", ["Editor", "Markdown Preview", "Notebook"])
    lab.page.evaluate(OPEN_WITH)
    notebook = Notebook(lab.page, path)
    notebook.ready()
    notebook.run(0)
    notebook.shows(0, "42")
    notebook.editor(0).click()
    lab.page.keyboard.press("Control+End")
    lab.page.keyboard.type(" + 1")
    lab.page.keyboard.press("Control+s")
    dirty = ".lm-TabBar-tab.jp-mod-current.jp-mod-dirty"
    lab.page.wait_for_selector(f"#jp-main-dock-panel {dirty}", state="detached")
    assert path.read_bytes() == BRIEF.replace("40 + 2", "40 + 2 + 1").encode()
    expect(lab.page.locator(".jp-Dialog")).to_have_count(0)
