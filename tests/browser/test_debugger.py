"""The debugger in JupyterLab's own panels (docs/debugging.md)."""

from __future__ import annotations

from browser.conftest import Pictures
from browser.lab import Lab, Notebook, expect
from waiting import until

PROGRAM = """\
let people = [{name: "Ann", tasks: ["read", "write"]}, {name: "Bob", tasks: []}]

block greet(who, times):
  repeat times:
    let text = "hello {who}"
  output text

let first = do greet("Ann", 2)
output first
"""


def switch_on(notebook: Notebook) -> None:
    """Click the bug; a click before the kernel has answered for the debugger is lost."""
    gutter = notebook.cell(0).locator(".cm-breakpoint-gutter")
    bug = notebook.panel.locator(".jp-DebuggerBugButton")

    def clicked() -> bool:
        if gutter.count():
            return True
        bug.click()
        notebook.page.wait_for_timeout(300)
        return bool(gutter.count())

    until(clicked, 20, "the debugger is not on")


def set_breakpoint(notebook: Notebook, line: int) -> None:
    """Click left of a line, as far as the dot needs it."""
    place = notebook.cell(0).locator(".cm-breakpoint-gutter .cm-gutterElement").nth(line)
    dot = notebook.cell(0).locator(".cm-breakpoint-icon")

    def is_set() -> bool:
        if dot.count() > 0:
            return True
        box = place.bounding_box()
        assert box is not None
        notebook.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        notebook.page.wait_for_timeout(300)
        return bool(dot.count())

    until(is_set, 20, "there is no breakpoint")


def test_breakpoint_variables_steps_and_back(lab: Lab, pictures: Pictures) -> None:
    lab.page.set_viewport_size({"width": 1400, "height": 900})
    notebook = lab.notebook(PROGRAM)
    page = notebook.page
    switch_on(notebook)
    set_breakpoint(notebook, 5)
    notebook.start(0)
    stack, highlighted = page.locator(".jp-DebuggerCallstack"), page.locator(".jp-DebuggerEditor-highlight")
    expect(stack).to_contain_text("greet #1")
    expect(highlighted).to_contain_text("let text")
    expect(page.locator(".jp-DebuggerVariables")).to_contain_text("who")
    pictures.take("debugger", page)
    page.keyboard.press("Escape")
    page.locator("jp-button[title^='Continue']").first.click()
    expect(highlighted).to_contain_text("let text")
    page.locator("jp-button[title^='Step Out']").first.click()
    expect(highlighted).to_contain_text("output first")
    page.evaluate("window.jupyterapp && window.jupyterapp.commands.execute('prose-kernel:go-back')")
