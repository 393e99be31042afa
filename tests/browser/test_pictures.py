"""Pictures in JupyterLab: the extension shows figures that are not saved as data."""

from __future__ import annotations

from base64 import b64decode

from browser.conftest import Pictures
from browser.lab import Lab, expect

PROGRAM = """\
parallel:
  tests = exec "sleep 0.4; echo 12 passed"
  lint = exec "sleep 0.2; echo clean"
exec "echo '<img src=x onerror=document.title=1> `;]'"
"""


def test_figures_in_the_metadata_are_shown(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook(PROGRAM, "%graph", "%timeline", "%profile")
    notebook.run_all()
    notebook.shows(3, "tokens in")
    graph, timeline = (notebook.outputs(number).locator("img") for number in (1, 2))
    expect(graph).to_be_visible()
    expect(timeline).to_be_visible()
    diagram, drawing = (image.first.get_attribute("src") or "" for image in (graph, timeline))
    seen = b64decode(diagram.removeprefix("data:image/svg+xml;base64,")).decode()
    assert "12 passed" in seen and " ms" in seen and "<img" not in seen
    assert graph.evaluate("image => image.naturalWidth") > 100
    assert "%20ms" in drawing
    pictures.take("graph", notebook.cell(1))
    assert " ms" in notebook.text(3)
    pictures.take("timeline", notebook.cell(2))
    saved = notebook.save()
    for cell in saved.cells[1:]:
        (output,) = cell.outputs
        assert not any(" ms" in text for text in output["data"].values())
        assert any(" ms" in text for text in output["metadata"]["prose"]["person"].values())
    assert "JupyterLab" in notebook.page.title()
