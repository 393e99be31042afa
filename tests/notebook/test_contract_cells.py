"""Cells of a contract file that was opened as a notebook: its parameters, its inline nodes (prose-md.md 10)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notebook.recording import Recording

from prose_kernel.cli.main import main
from prose_kernel.notebook.cells import Cells
from prose_kernel.runtime.asker import Unattended

BRIEF = """\
---
name: brief
kind: function
---

### Parameters

- `topic`: what it is {about}
- `sizes` (default `[1, {"a": null}]`)
- `tone` (optional, default "a {plain} \\"one\\"")

### Execution

```prose
let draft = call writer
  topic: topic
```

## writer

### Parameters

- `topic`

### Execution

```prose
return "about {topic}"
```
"""


@pytest.fixture
async def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cells]:
    path = tmp_path / "brief.prose.md"
    path.write_text(BRIEF)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    made = Cells(tmp_path, Unattended())
    yield made
    await made.close()


async def run(cells: Cells, code: str) -> Recording:
    output = Recording()
    await cells.run(code, output, live=False)
    return output


async def test_parameters_are_declared_when_a_cell_reads_them(cells: Cells) -> None:
    problem = (await run(cells, "let a = topic")).calls[-1][1]
    assert problem.code == "E212"
    for code in ("%input topic=tea\nlet draft = call writer\n  topic: topic", "let all = [sizes, tone]"):
        shown = await run(cells, code)
        assert "error" not in shown.kinds, shown.calls
    assert cells.values() == {
        "topic": "tea",
        "draft": "about tea",
        "sizes": [1, {"a": None}],
        "tone": 'a {plain} "one"',
        "all": [[1, {"a": None}], 'a {plain} "one"'],
    }


async def test_a_cell_that_declares_the_name_itself_is_not_asked(cells: Cells) -> None:
    shown = await run(cells, 'let topic = "mine"\nlet seen = topic')
    assert "error" not in shown.kinds, shown.calls
    assert cells.values() == {"topic": "mine", "seen": "mine"}


async def test_a_default_may_be_replaced(cells: Cells) -> None:
    shown = await run(cells, "%input tone=dry")
    shown = await run(cells, "let seen = tone")
    assert "error" not in shown.kinds, shown.calls
    assert cells.values()["seen"] == "dry"


def test_the_notebook_of_a_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    Path("brief.prose.md").write_text(BRIEF)
    assert main(["notebook", "brief.prose.md"]) == 0
    assert main(["run", "brief.ipynb", "--input", "topic=tea"]) == 0
    assert main(["run", "brief.ipynb"]) == 3
