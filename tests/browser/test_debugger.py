"""The debugger in JupyterLab's own panels (docs/how-to/debugging.md)."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

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


def appears(part: Any, seconds: int = 4) -> bool:
    """Whether a click has had its effect. A second click too early would undo it."""
    with suppress(Exception):  # Playwright's, which is imported late
        part.first.wait_for(state="attached", timeout=1000 * seconds)
    return bool(part.count())


def open_debugged(lab: Lab, program: str, kernel: str = "prose") -> Notebook:
    """Open a notebook with the debugger, in a reloaded page, because the debugger service may return to an earlier notebook.
    The kernel is not a fork: JupyterLab accepts no breakpoints if the kernel has started before its debugger checks it."""
    lab.reload_before_next_notebook()
    lab.start_installed_kernels()
    notebook = lab.notebook(program, kernel=kernel)
    switch_on(notebook)
    return notebook


def switch_on(notebook: Notebook) -> None:
    """Click the bug. A click before the kernel has answered to the debugger is lost."""
    gutter = notebook.cell(0).locator(".cm-breakpoint-gutter")
    bug = notebook.panel.locator(".jp-DebuggerBugButton")

    def is_on() -> bool:
        if gutter.count():
            return True
        bug.click()
        return appears(gutter)

    until(is_on, 30, "the debugger is not on")


def set_breakpoint(notebook: Notebook, line: int) -> None:
    """Click left of a line until its dot appears."""
    place = notebook.cell(0).locator(".cm-breakpoint-gutter .cm-gutterElement").nth(line)
    dot = notebook.page.locator(".jp-DebuggerBreakpoint")

    def is_set() -> bool:
        if dot.count():
            return True
        box = place.bounding_box()
        assert box is not None
        notebook.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return appears(dot, 10)

    until(is_set, 60, "there is no breakpoint")


def button(notebook: Notebook, command: str) -> Any:
    """A button above the call stack."""
    return notebook.page.locator(f"[data-command='debugger:{command}']").first


def switch_off_and_on(notebook: Notebook) -> None:
    """On a busy machine, JupyterLab may show the debugger as on but use the debugger of the earlier page."""
    gutter = notebook.cell(0).locator(".cm-breakpoint-gutter")

    def is_off() -> bool:
        if gutter.count():
            notebook.panel.locator(".jp-DebuggerBugButton").click()
            with suppress(Exception):  # a click while it starts is lost
                gutter.first.wait_for(state="detached", timeout=10_000)
        return not gutter.count()

    until(is_off, 60, "the debugger is not off")
    switch_on(notebook)


def choose(notebook: Notebook, label: str, line: int = 1) -> None:
    """Choose a command of the context menu of a line as soon as it is enabled. A click on a disabled one leaves the menu open."""
    item = notebook.page.locator(f".lm-Menu-item:has(.lm-Menu-itemLabel:text-is('{label}'))")
    tries = itertools.count(1)

    def is_enabled() -> bool:
        notebook.cell(0).locator(".cm-line").nth(line - 1).click(button="right")
        item.wait_for()
        if "lm-mod-disabled" not in item.get_attribute("class"):
            return True
        notebook.page.keyboard.press("Escape")
        if next(tries) % 20 == 0:
            switch_off_and_on(notebook)
        return False

    until(is_enabled, 180, f"{label} stays disabled")
    item.click()
    item.wait_for(state="detached")


def test_a_breakpoint_shows_variables_and_steps(lab: Lab, pictures: Pictures) -> None:
    notebook = open_debugged(lab, PROGRAM)
    page = notebook.page
    set_breakpoint(notebook, 5)
    notebook.start(0)
    line, stack = page.locator(".jp-DebuggerEditor-highlight"), page.locator(".jp-DebuggerCallstack")
    expect(line).to_contain_text("let text")
    expect(stack).to_contain_text("greet #1")
    expect(stack).to_contain_text("Cell [*]:8")
    variables = page.locator(".jp-DebuggerVariables")
    expect(variables).to_contain_text('who"Ann"')
    pictures.take("debugger", page)
    button(notebook, "next").click()
    expect(variables).to_contain_text('text"hello Ann"')
    button(notebook, "stepOut").click()
    expect(line).to_contain_text("output first")
    button(notebook, "continue").click()
    notebook.finish(0)
    expect(line).to_have_count(0)


def test_run_to_line_step_back_and_interrupt_work_while_stopped(lab: Lab) -> None:
    notebook = open_debugged(lab, "a = 1\nb = a + 1\nc = b + 1\nd = c + 1\n", "vvm")
    page = notebook.page
    line, variables = page.locator(".jp-DebuggerEditor-highlight"), page.locator(".jp-DebuggerVariables")
    for _ in range(3):  # the command does nothing before the debugger has answered
        choose(notebook, "Debugger: Run to This Line", 4)
        if appears(line, 12):
            break
    expect(line).to_contain_text("d = c")
    expect(variables).to_contain_text("c3")
    choose(notebook, "Debugger: Go Back One Statement")
    expect(line).to_contain_text("c = b")
    expect(variables).not_to_contain_text("c3")
    notebook.menu("Kernel", "Interrupt Kernel")  # the notice of the debugger covers the button
    notebook.shows(0, "KeyboardInterrupt")
    expect(line).to_have_count(0)
    expect(page.get_by_text("Paused in Debugger")).to_have_count(0)
