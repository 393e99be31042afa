"""Findings of the compiler in a cell while it is typed."""

from __future__ import annotations

import re

from browser.conftest import Pictures
from browser.lab import Lab, expect


def test_a_mistake_is_underlined_until_it_is_corrected(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook("let plan = 1", "", "%%task\n")
    finding = notebook.cell(1).locator(".prose-finding")
    notebook.editor(1).click()
    lab.page.keyboard.type("let next = plan\nexec ls")
    expect(finding).to_have_text("ls")
    expect(finding).to_have_attribute("title", re.compile(r"\[E004\]\nhint: write `exec \"ls\"`"))
    pictures.take("findings", notebook.cell(1))
    lab.page.keyboard.press("Backspace")
    lab.page.keyboard.press("Backspace")
    lab.page.keyboard.type('"ls"')
    expect(finding).to_have_count(0)
    notebook.editor(2).click()  # lines of a command are not a program
    lab.page.keyboard.type("exec ls")
    notebook.run(0)
    expect(notebook.cell(2).locator(".prose-finding")).to_have_count(0)
    assert lab.problems == []
