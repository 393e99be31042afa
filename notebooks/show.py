"""Run a notebook through its kernel, print it as text, write it as HTML.

`python notebooks/show.py NOTEBOOK DIRECTORY`
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

CELL_SECONDS = 120
MOST_LINES = 12


def main(notebook: Path, directory: Path) -> int:
    """Return exit status 1 if a cell fails unexpectedly; the cells up to it are shown."""
    book = nbformat.read(notebook, as_version=4)
    resources = {"metadata": {"path": str(notebook.parent)}}
    failed = None
    try:
        NotebookClient(book, timeout=CELL_SECONDS, resources=resources).execute()
    except CellExecutionError as error:
        failed = error
    print("\n".join(_text(book)))
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / f"{notebook.stem}.html"
    warnings.filterwarnings("ignore", "No lexer found")  # the page is complete without coloured source
    page.write_text(HTMLExporter().from_notebook_node(book)[0], encoding="utf-8")
    if failed:
        print(f"\nA cell failed: {failed.ename}: {failed.evalue}", file=sys.stderr)
    print(f"\nThe notebook with all its output: {page}")
    return 1 if failed else 0


def _text(book: nbformat.NotebookNode) -> Iterator[str]:
    for cell in book.cells:
        if cell.cell_type == "markdown":
            yield "\n" + cell.source
        elif cell.cell_type == "code":
            yield "\n" + "\n".join(f"  │ {line}" for line in cell.source.splitlines())
            for output in cell.outputs:
                yield from _short(_output(output))


def _output(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
    return str(output.data.get("text/plain", ""))


def _short(text: str) -> list[str]:
    lines = text.rstrip("\n").splitlines()
    rest = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"… {rest} more lines"] if rest > 1 else lines


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
