"""The examples of docs/how-to/data-and-images.md give the results that it shows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs_module
from notebook.test_cells import Person, fine
from sample_files import PDF, png

from prose_kernel.notebook.cells import Cells

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "data-and-images.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, Person())
    made.show_warnings = False
    (tmp_path / "chart.png").write_bytes(png(240, 80))
    (tmp_path / "paper.pdf").write_bytes(PDF)
    (tmp_path / "replies.yaml").write_text('sessions: {"*": "Yes: both end at 172."}\n')
    (tmp_path / "prose.toml").write_text('provider = "scripted"\nscript = "replies.yaml"\n')
    for name, kind in (("people.csv", "csv"), ("measured.jsonl", "jsonl")):
        (tmp_path / name).write_text(next(text for found, text in BLOCKS if found == kind), encoding="utf-8")
    yield made
    await made.close()


async def test_each_program_shows_the_output_below_it(cells: Cells) -> None:
    shown = [(text, BLOCKS[at + 1]) for at, (kind, text) in enumerate(BLOCKS) if kind == "prose"]
    assert len(shown) >= 7 and all(kind == "text" for _, (kind, _) in shown)
    for program, (_, expected) in shown:
        texts = [text.rstrip("\n") for text in (await fine(cells, program)).texts]
        assert "\n".join(texts) == expected.rstrip("\n"), program


def test_the_python_cells_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_module("pandas")
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell: Any = InteractiveShell()
    shell.run_line_magic("load_ext", "prose_kernel")
    try:
        found = [text for kind, text in BLOCKS if kind == "python"]
        assert len(found) == 3
        for text in found:
            shell.run_cell(text).raise_error()
    finally:
        shell.run_line_magic("unload_ext", "prose_kernel")
