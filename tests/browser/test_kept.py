"""Kept answers in JupyterLab and Notebook 7: the button that asks one of them again."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from browser.conftest import Pictures
from browser.lab import WINDOW, Lab, Notebook, expect
from needs import lacking

CELL = "".join(f'let {name} = exec "echo {name} >> ran; wc -l < ran"\n  reads: []\n' for name in ("tea", "cups"))


def opened(lab: Lab, **named: str) -> Path:
    (lab.server.root / "ran").unlink(missing_ok=True)
    lab.server.root.joinpath("prose.toml").write_text('rerun = "keep"\n')
    return lab.write("kept.ipynb", [CELL], **named)


def ran(lab: Lab) -> list[str]:
    return (lab.server.root / "ran").read_text().split()


def works(lab: Lab, notebook: Notebook, pictures: Pictures | None = None) -> None:
    """A cell that runs again keeps its answers, and a click on the button of one asks that one again."""
    buttons = notebook.cell(0).get_by_role("button", name="Ask again")
    notebook.start(0)
    notebook.prompt(0, re.compile(r"\d"))
    expect(notebook.cell(0)).to_contain_text("cups")
    expect(buttons).to_have_count(0)
    notebook.start(0)
    expect(buttons).to_have_count(2)
    expect(notebook.cell(0).locator(".prose-kept").first).to_contain_text(re.compile(r"kept from \d+:\d\d"))
    assert ran(lab) == ["tea", "cups"]
    if pictures is not None:
        pictures.take("kept", notebook.cell(0))
    buttons.nth(1).click()
    expect(buttons).to_have_count(1)
    expect(notebook.outputs(0).nth(1)).to_contain_text("3")
    assert ran(lab) == ["tea", "cups", "cups"]


def test_a_click_asks_one_answer_again(lab: Lab, pictures: Pictures) -> None:
    path = opened(lab)
    lab.show(path)
    notebook = Notebook(lab.page, path)
    notebook.ready()
    works(lab, notebook, pictures)
    buttons = notebook.cell(0).get_by_role("button", name="Ask again")
    saved = notebook.save()
    assert "button" not in str(saved.cells[0].outputs) and "%ask again" in str(saved.cells[0].outputs)
    lab.reload(notebook)
    expect(buttons).to_have_count(1)  # the kernel still has the answer
    notebook.menu("Kernel", "Restart Kernel…")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    expect(buttons).to_have_count(0)  # it has forgotten it
    expect(notebook.cell(0)).to_contain_text("%ask again")


def test_in_notebook_7(lab: Lab) -> None:
    try:
        metadata.version("notebook")
    except metadata.PackageNotFoundError:
        lacking("Notebook 7 is not installed")
    path = opened(lab)
    page: Any = lab.page.context.browser.new_page(viewport=WINDOW)
    try:
        page.goto(lab.server.url(f"notebooks/{path.name}"))
        page.wait_for_function("() => document.querySelector('.jp-NotebookPanel .cm-content span')")
        works(lab, Notebook(page, path))
    finally:
        page.close()


def test_in_a_python_notebook(lab: Lab) -> None:
    path = opened(lab, kernel="python3")
    lab.write("kept.ipynb", ["%load_ext prose_kernel", f"%%prose\n{CELL}"], kernel="python3")
    lab.show(path)
    notebook = Notebook(lab.page, path)
    notebook.ready()
    notebook.run(0)
    notebook.run(1)
    notebook.run(1)
    buttons = notebook.cell(1).get_by_role("button", name="Ask again")
    expect(buttons).to_have_count(2)
    buttons.first.click()
    expect(buttons).to_have_count(1)
    assert ran(lab) == ["tea", "cups", "tea"]
