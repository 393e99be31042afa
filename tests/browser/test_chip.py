"""The chip in the toolbar: the provider of sessions, their cost, and whether answers were replayed."""

from __future__ import annotations

from browser.conftest import Pictures
from browser.lab import Lab, expect


def test_the_chip_names_the_provider(lab: Lab, pictures: Pictures) -> None:
    (lab.server.root / "chip.yaml").write_text('sessions:\n  "*": "answer"\n')
    notebook = lab.notebook("%provider scripted chip.yaml", 'session "a"')
    chip = notebook.panel.locator(".prose-chip")
    notebook.run(0)
    expect(chip).to_be_hidden()
    notebook.run(1)
    expect(chip).to_contain_text("scripted")
    expect(chip).to_contain_text("live")
    pictures.take("chip", notebook.panel.locator(".jp-NotebookPanel-toolbar"))
    saved = notebook.save()
    assert "prose-chip" not in str(saved)
    assert lab.problems == []
