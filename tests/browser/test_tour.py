"""The tour notebook in a real JupyterLab: it runs, it shows what is committed, and it is safe to look at unrun."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

from browser.conftest import Pictures
from browser.lab import Lab

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def tour(lab: Lab) -> Path:
    """The tour as it is committed, with everything it may need, in the server's directory."""
    shutil.copytree(NOTEBOOKS, lab.server.root, dirs_exist_ok=True)
    return lab.server.root / "tour.ipynb"


def test_the_tour_runs_and_shows_what_is_committed(lab: Lab, tour: Path, pictures: Pictures) -> None:
    committed = nbformat.read(tour, as_version=4)
    notebook = lab.open(tour)
    notebook.menu("Edit", "Clear Outputs of All Cells")
    notebook.run_all()
    assert _outputs(notebook.save()) == _outputs(committed)


def _outputs(book: nbformat.NotebookNode) -> list[tuple[str, list[Any]]]:
    """Sources and outputs without what may differ; pieces of a stream joined, as JupyterLab joins them."""
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
