"""The files and names in CONTRIBUTING.md and on the page of the architecture exist, and the code in CONTRIBUTING.md needs
no names that its files do not have."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PLACES = (ROOT, ROOT / "prose_kernel")
NEW = {"prose.toml", "cli/hello.py", "models/providers/echo.py", "storage/lines_store.py", "tests/cli/test_hello.py"}
"""The files that the examples add."""

SECTION = re.compile(r"^## (Add .*?)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\d+\. .*?(?=^\d+\. |\Z)", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w./-]+\.(?:py|lark|toml|js|md|json))`")
NAME = re.compile(r"`(_?[A-Z][A-Z_]+|_[a-z_]+)`")


class Part(NamedTuple):
    """A step, and the directories that its paths may be relative to."""

    title: str
    text: str
    places: tuple[Path, ...]

    def files(self) -> dict[str, Path | None]:
        found = FILE.findall(FENCE.sub("", self.text))
        return {name: next((p / name for p in self.places if (p / name).is_file()), None) for name in found}


def steps() -> Iterator[Part]:
    for title, body in SECTION.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        intro = body[: body.index("\n1. ")]
        rooms = [ROOT / "prose_kernel" / room for room in re.findall(r"`([a-z/]+/)`", intro)]
        for number, text in enumerate(STEP.findall(body), 1):
            yield Part(f"{title}, step {number}", text, (*rooms, *PLACES))


STEPS = list(steps())
each = pytest.mark.parametrize("step", STEPS, ids=[step.title for step in STEPS])


def free_names(code: str) -> set[str]:
    """Return the names that a piece of code reads and does not define; none of a piece that does not stand alone."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return set()
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    imported = {
        name.asname or name.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    given = {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    return read - imported - stored - given - defined - vars(builtins).keys()


def names_of(file: Path) -> set[str]:
    path = file.relative_to(ROOT / "tests" if file.is_relative_to(ROOT / "tests") else ROOT)
    return set(vars(importlib.import_module(".".join(path.with_suffix("").parts))))


def test_no_change_needs_more_than_six_steps() -> None:
    assert len(STEPS) > 30
    assert [step.title for step in STEPS if step.title.endswith("step 7")] == []


@each
def test_the_files_and_names_of_a_step_exist(step: Part) -> None:
    files = step.files()
    assert {name for name, file in files.items() if file is None} <= NEW
    text = "\n".join(file.read_text(encoding="utf-8") for file in files.values() if file is not None)
    assert [name for name in NAME.findall(step.text) if name not in text] == []


@each
def test_the_code_of_a_step_uses_names_of_its_files(step: Part) -> None:
    known = {
        name for file in step.files().values() if file is not None and file.suffix == ".py" for name in names_of(file)
    }
    for code in FENCE.findall(step.text):
        assert free_names(textwrap.dedent(code)) - known == set()


def test_the_files_on_the_page_of_the_architecture_exist() -> None:
    """A bare file name belongs to the room that was named before it."""
    page = (ROOT / "docs/contributing/architecture.md").read_text(encoding="utf-8")
    names = {name for name in FILE.findall(page) if not name.endswith("prose.toml")}
    known = {path.name for path in (ROOT / "prose_kernel").rglob("*.*")}
    assert len(names) > 60
    assert sorted(name for name in names if "/" in name and not any((place / name).is_file() for place in PLACES)) == []
    assert sorted(name for name in names if "/" not in name and name not in known | {"pyproject.toml"}) == []
