"""A contract file in JupyterLab: opened as a notebook without a change, run, changed, and saved as Markdown (jupyter.md 10)."""

from __future__ import annotations

from browser.lab import Lab, Notebook, expect

BRIEF = "---\r\nname: brief\r\nkind: function\r\n---\r\n\r\n### Execution\r\n\r\n~~~~prose\r\nreturn 40 + 2\r\n~~~~\r\n"
# The entries of "Open With", and the command of one of them.
OFFERED = "window.jupyterapp.docRegistry.preferredWidgetFactories('brief.prose.md').map(one => one.name)"
OPEN_WITH = """() => window.jupyterapp.commands.execute(
  'docmanager:open', {path: 'brief.prose.md', factory: 'Notebook'}).then(() => null)"""


def test_a_contract_file_opens_as_a_notebook_and_is_saved_as_markdown(lab: Lab) -> None:
    path = lab.server.root / "brief.prose.md"
    path.write_bytes(BRIEF.encode())
    lab.launcher()
    lab.page.wait_for_selector(".jp-DirListing-item:has-text('brief.prose.md')")
    offered = lab.page.evaluate(OFFERED)
    assert (offered[0], sorted(offered)) == ("Editor", ["Editor", "Markdown Preview", "Notebook"])
    lab.page.evaluate(OPEN_WITH)
    notebook = Notebook(lab.page, path)
    notebook.ready()
    assert lab.page.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty") is False
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


NOTES = """\
---
name: guide
kind: function
---

# A guide

### Parameters

- `topic`: what to write about
- `sizes` (default `[1, 2]`): how long

### Execution

```prose
return "{topic}, {sizes}"
```

## writer

### Returns

- `text`
"""


def test_a_call_asks_for_its_inputs_in_one_form(lab: Lab) -> None:
    (lab.server.root / "guide.prose.md").write_text(NOTES)
    notebook = lab.notebook("%call guide")
    notebook.start(0)
    form = notebook.question(0, "Inputs of guide")
    expect(form).to_contain_text("what to write about")
    assert form.get_by_label("sizes").input_value() == "[1, 2]"
    form.get_by_label("topic").fill("tea")
    form.get_by_role("button", name="Run").click()
    notebook.finish(0)
    notebook.shows(0, "tea, [1,2]")


def test_the_table_of_contents_of_a_contract_file_has_its_nodes_and_sections(lab: Lab) -> None:
    path = lab.server.root / "guide.prose.md"
    path.write_text(NOTES)
    lab.launcher()
    lab.page.wait_for_selector(".jp-DirListing-item:has-text('guide.prose.md')")
    lab.page.evaluate(OPEN_WITH.replace("brief", "guide"))
    Notebook(lab.page, path).ready()
    lab.page.locator("li[data-id='table-of-contents']").click()
    outline = lab.page.locator("#table-of-contents .jp-tocItem-content")
    expect(outline).to_have_text(["A guide", "Parameters", "Execution", "writer", "Returns"])
