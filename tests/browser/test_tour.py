"""The tour notebook in a real JupyterLab: it runs with the committed outputs, and looks the same if it is not trusted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browser.conftest import Pictures
from browser.lab import WINDOW, Lab, Notebook, expect

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def tour(lab: Lab) -> Path:
    """The committed tour with all its files, in the directory of the server."""
    shutil.copytree(NOTEBOOKS, lab.server.root, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    return lab.server.root / "tour.ipynb"


def test_the_tour_runs_with_the_committed_outputs(lab: Lab, tour: Path, pictures: Pictures) -> None:
    committed = nbformat.read(tour, as_version=4)
    notebook = lab.open(tour)
    notebook.menu("Edit", "Clear Outputs of All Cells")
    notebook.run_all()
    saved = notebook.save()
    for cell in saved.cells:
        failed = any(output.output_type == "error" for output in cell.get("outputs", []))
        assert failed == ("raises-exception" in cell.metadata.get("tags", [])), cell.source
    assert _outputs(saved) == _outputs(committed)
    _picture(lab, notebook, pictures)


def _picture(lab: Lab, notebook: Notebook, pictures: Pictures) -> None:
    """Take a picture from the loop to the end of the branches, without the file browser."""
    if not pictures.wanted:
        pictures.take("tour", lab.page)
        return
    cells = notebook.panel.locator(".jp-Cell")
    first = cells.filter(has_text="A loop that fixes the program").first
    last = cells.filter(has_text="unit = exec").first
    lab.page.set_viewport_size({"width": 1200, "height": 3000})
    lab.page.keyboard.press("Control+b")
    first.scroll_into_view_if_needed()
    for cell in (first, last):  # the notebook updates its layout in the larger window
        cell.element_handle().wait_for_element_state("stable")
    top, bottom = first.bounding_box(), last.bounding_box()
    assert top and bottom
    area = {"x": 40, "y": top["y"] + 2, "width": 1120, "height": bottom["y"] + bottom["height"] + 8 - top["y"]}
    pictures.take("tour", lab.page, clip=area)
    lab.page.set_viewport_size(WINDOW)


def test_code_of_the_tours_fits_the_width_of_its_cells(lab: Lab) -> None:
    """The longest lines of all cells of both tours, in a window of 1200 pixels with the file browser open."""
    longest = [
        _longest_lines(nbformat.read(NOTEBOOKS / name, as_version=4)) for name in ("tour.ipynb", "vvm_tour.ipynb")
    ]
    notebook = lab.notebook(*longest)
    for number in range(len(longest)):
        width, shown = notebook.editor(number).evaluate("e => [e.scrollWidth, e.closest('.cm-scroller').clientWidth]")
        assert 0 < width <= shown


def _longest_lines(book: nbformat.NotebookNode) -> str:
    lines = [line for cell in book.cells if cell.cell_type == "code" for line in cell.source.splitlines()]
    return "\n".join(sorted(lines, key=len)[-5:])


def test_an_untrusted_tour_shows_the_same_outputs(lab: Lab, tour: Path) -> None:
    """JupyterLab sanitises the outputs of untrusted files."""
    notebook = lab.open(tour)
    cells = sum(cell.cell_type == "code" for cell in nbformat.read(tour, as_version=4).cells)
    expect(notebook.panel.locator(".jp-CodeCell")).to_have_count(cells)  # cells out of view are added later
    lab.page.wait_for_selector(".jp-StatusItem-trust[title^='Notebook not trusted']")
    untrusted = _shown(notebook)
    styles = _styles(notebook)
    lab.page.keyboard.press("Control+Shift+c")
    lab.page.keyboard.type("trust notebook")
    lab.page.keyboard.press("Enter")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    lab.page.wait_for_selector(".jp-StatusItem-trust[title^='Notebook trusted']")
    assert _shown(notebook) == untrusted
    assert _styles(notebook) == styles
    assert "3px solid" in styles


def _shown(notebook: Notebook) -> list[str]:
    return [notebook.text(number) for number in range(notebook.panel.locator(".jp-CodeCell").count())]


def _styles(notebook: Notebook) -> str:
    rendered = notebook.panel.locator(".jp-RenderedHTML > *")
    return str(rendered.evaluate_all("all => all.map(e => getComputedStyle(e).borderLeft).join(',')"))


def _outputs(book: nbformat.NotebookNode) -> list[tuple[str, list[Any]]]:
    """Return sources and outputs without volatile parts, with pieces of a stream joined, as JupyterLab does."""
    return [(cell.source, _joined(cell.outputs)) for cell in book.cells if cell.cell_type == "code"]


def _joined(outputs: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream":
            if joined and joined[-1][0] == output.name:
                joined[-1] = (output.name, joined[-1][1] + output.text)
            else:
                joined.append((output.name, output.text))
        elif output.output_type == "error":
            joined.append((output.ename, output.evalue, output.traceback))
        else:
            joined.append((output.output_type, dict(output.data)))
    return joined
