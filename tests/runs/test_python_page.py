"""The examples of docs/reference/python.md run, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
BLOCK = re.compile(r"(<!-- not run.*\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = [match[2] for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8")) if match[1] is None]
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), names)
    assert len(examples) >= 7
