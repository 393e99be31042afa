"""Cells of ProseScript: the magic, the notebook's metadata, completion, a run that is replayed (prose-md.md 10)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notebook.recording import Recording

from prose_kernel.errors import UsageError
from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.completion import complete, completeness_of
from prose_kernel.notebook.inspection import describe
from prose_kernel.notebook.ipython import arguments
from prose_kernel.runs import languages
from prose_kernel.runtime.asker import Unattended

SCRIPT = "%%prose --profile prosescript\n"
ONE_OF = "let ready = 1\nif ready:\n  return {\n    a: 1\n    b: 2\n  }\n"


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, Unattended())
    yield made
    await made.close()


async def run(cells: Cells, code: str) -> Recording:
    output = Recording()
    await cells.run(code, output, live=False)
    return output


async def test_the_magic_chooses_the_profile_of_one_cell(cells: Cells) -> None:
    shown = await run(cells, SCRIPT + ONE_OF)
    assert "error" not in shown.kinds, shown.calls
    assert shown.texts[-1] == '{"a": 1, "b": 2}'
    assert cells.values()["ready"] == 1
    problem = (await run(cells, "loop for each x in [1] (max: 1):\n  let y = x\n")).calls[-1][1]
    assert problem.code == "E004"
    again = await run(cells, SCRIPT + "if ready:\n  let ready = 2\n")
    assert "error" not in again.kinds, again.calls
    assert cells.values()["ready"] == 2


BRIEF = """---
name: brief
kind: function
---

### Parameters

- `topic`: what it is about

### Returns

- `text`: the brief
- `size`: its size

### Execution

```prose
return { text: "about {topic}", size: 1 }
```
"""


async def test_a_cell_calls_programs_next_to_the_notebook(cells: Cells) -> None:
    (cells.cwd / "brief.prose.md").write_text(BRIEF)
    shown = await run(cells, SCRIPT + 'let b = call brief\n  topic: "tea"\nreturn b.text\n')
    assert "error" not in shown.kinds, shown.calls
    assert shown.texts[-1] == "about tea"
    assert cells.values()["b"] == {"text": "about tea", "size": 1}
    wrong = (await run(cells, SCRIPT + "call brief\n  size: 1\n")).calls[-1][1]
    assert wrong.code == "E026"
    (cells.cwd / "bad.prose.md").write_text(BRIEF.replace("return", "throw throw throw").replace("brief", "bad"))
    broken = (await run(cells, SCRIPT + 'call bad\n  topic: "x"\n')).calls[-1][1]
    assert broken.code == "E215"


async def test_a_file_that_changes_between_two_cells_is_read_again(cells: Cells) -> None:
    file, cell = cells.cwd / "brief.prose.md", SCRIPT + 'call brief\n  topic: "tea"\n'
    file.write_text(BRIEF)
    assert "error" not in (await run(cells, cell)).kinds
    file.write_text(BRIEF.replace("- `topic`", "- `subject`: which\n- `topic`"))
    assert (await run(cells, cell)).calls[-1][1].code == "E026"
    file.write_text(BRIEF)
    assert "error" not in (await run(cells, cell)).kinds


@pytest.mark.parametrize("line", ["--profile nonsense", "--profile", "prosescript"])
async def test_other_words_are_refused(cells: Cells, line: str) -> None:
    assert (await run(cells, f"%%prose {line}\nlet x = 1\n")).calls[-1][1].ename == "UsageError"


async def test_the_metadata_chooses_the_profile_of_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"prose": {"profile": "prosescript"}}, "cells": []}
    (tmp_path / "n.ipynb").write_text(json.dumps(data))
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "n.ipynb"))
    made = Cells(tmp_path, Unattended())
    try:
        shown = await run(made, "return {\n  a: 1\n  b: 2\n}\n")
        assert "error" not in shown.kinds, shown.calls
        assert made.language.title == "ProseScript"
        other = await run(made, "%%prose --profile default\nreturn {\n  a: 1\n  b: 2\n}\n")
        assert other.calls[-1][1].code == "E004"
    finally:
        await made.close()


def test_the_magic_in_a_notebook_of_python() -> None:
    assert arguments("--profile prosescript --in a --out b").profile == "prosescript"
    assert arguments("--in a --profile=strict").profile == "strict"
    with pytest.raises(UsageError):
        arguments("--profile a b")


def test_words_of_scripts_are_offered_and_explained(tmp_path: Path) -> None:
    made = Cells(tmp_path, Unattended())
    code = SCRIPT + "let x = ca"
    assert "call" in {offer.text for offer in complete(made, code, len(code)).matches}
    plain = "let x = ca"
    assert "call" not in {offer.text for offer in complete(made, plain, len(plain)).matches}
    assert describe(made, "call", languages.in_profile(languages.default(), "prosescript")) is not None
    assert completeness_of(SCRIPT + "if it's fine:\n  return 1\n", made.language)[0] != "invalid"
