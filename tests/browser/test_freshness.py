"""Marks on stale cells, cells that run again in their places, and the panel that follows the run."""

from __future__ import annotations

import re

from browser.conftest import Pictures
from browser.lab import Lab, Notebook, expect

CELLS = (
    'agent writer:\n  model: sonnet\n  prompt: "Write about tea."\nlet topic = "tea"\nlet cups = 2',
    'let plan = "Write about {topic}."',
    'let order = "{plan} {cups} pages."',
    "%rerun stale",
)


def marks(notebook: Notebook) -> list[str]:
    """Return the texts of the marks next to the cells, in order."""
    return [str(dot.get_attribute("aria-label")) for dot in notebook.panel.locator(".prose-stale").all()]


def show_panel(lab: Lab) -> None:
    lab.page.locator('.lm-TabBar-tab[title^="Prose: the run"]').click()


def edit(notebook: Notebook, number: int, text: str) -> None:
    notebook.editor(number).click()
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.insert_text(text)


def test_stale_cells_are_marked_and_run_again(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook(*CELLS)
    for number in range(3):
        notebook.run(number)
    edit(notebook, 0, CELLS[0].replace('topic = "tea"', 'topic = "coffee"'))
    notebook.run(0)
    expect(notebook.panel.locator(".prose-stale")).to_have_count(2)
    assert marks(notebook) == ["Stale: topic was changed by [4]", "May be stale: plan may change: [2] is stale"]
    show_panel(lab)
    panel = lab.page.locator("#prose-panel")
    expect(panel).to_contain_text("Stale cells")
    pictures.take("freshness", lab.page)
    notebook.start(3)
    notebook.shows(1, "Write about coffee.")
    notebook.shows(2, "Write about coffee. 2 pages.")
    expect(notebook.panel.locator(".prose-stale")).to_have_count(0)
    notebook.shows(3, "1 stale cell of the notebook will run again")
    notebook.ready()
    rows = notebook.path.with_name("rows.csv")
    rows.write_text("green")
    edit(notebook, 3, 'let rows = exec "cat rows.csv"\n  reads: ["rows.csv"]')
    notebook.run(3)
    notebook.shows(3, "green")
    rows.write_text("black")
    notebook.run(2)
    expect(notebook.cell(3).locator(".prose-stale")).to_have_attribute("aria-label", "Stale: rows.csv has changed")
    panel.get_by_role("button", name="Run").first.click()
    notebook.shows(3, "black")
    expect(notebook.panel.locator(".prose-stale")).to_have_count(0)
    notebook.ready()


def test_the_panel_follows_the_run_and_links_to_its_cells(lab: Lab, pictures: Pictures) -> None:
    branches = 'parallel:\n  tests = exec "sleep 1; echo 12 passed"\n  lint = exec "sleep 1; echo \'<b>clean\'"'
    notebook = lab.notebook(CELLS[0], branches, "%bindings")
    show_panel(lab)
    panel = lab.page.locator("#prose-panel")
    notebook.run(0)
    expect(panel.locator("[data-name=topic] summary")).to_contain_text("tea")
    expect(panel).to_contain_text("writer agent, sonnet")
    notebook.start(1)
    expect(panel).to_contain_text("line 3 lint: sleep 1")
    notebook.finish(1)
    panel.locator("[data-name=lint] summary").click()
    expect(panel.locator("[data-name=lint] pre")).to_have_text("<b>clean")
    notebook.run(2)
    folded = notebook.outputs(2).locator("details", has_text="tests")
    folded.locator("summary").click()
    expect(folded.locator("pre")).to_have_text("12 passed")
    panel.locator("[data-name=lint] button", has_text="[2] line 3").click()
    expect(notebook.cell(1)).to_have_class(re.compile("jp-mod-active"))
    pictures.take("panel", lab.page)
    assert lab.problems == []
