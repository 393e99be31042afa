"""Generated pages are what the code says; every local link of the documentation leads somewhere."""

from __future__ import annotations

import fnmatch
import functools
import re
from pathlib import Path

import pytest
from cli.generated import DOCS, PAGES

ROOT = DOCS.parent
TESTS = ROOT / "tests"
HAZARDS = 102
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_local_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in t and not t.startswith("#")]
    assert [t for t in targets if not (document.parent / t.partition("#")[0]).exists()] == []


# ---------------------------------------------------------------- pages that name tests


@functools.cache
def names_in(file: str) -> tuple[str, ...]:
    """The names of the tests of the one file that is meant by `starting` or `exec_tool/hazards`."""
    directory, _, name = file.rpartition("/")
    found = [
        path
        for path in TESTS.rglob(f"test_{name}.py")
        if f"/{path.parent.relative_to(TESTS)}".endswith(f"/{directory}" if directory else "")
    ]
    assert len(found) == 1, f"{file} means {len(found)} files of tests"
    return tuple(re.findall(r"^(?:async )?def test_(\w+)", found[0].read_text(encoding="utf-8"), re.MULTILINE))


def named_tests(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`((?:\w+/)*\w+)::([\w*]+)`", text)


@pytest.mark.parametrize("page", ["reliability.md", "threat-model.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = named_tests((DOCS / page).read_text(encoding="utf-8"))
    assert len(named) > 30
    assert [f"{file}::{test}" for file, test in named if not fnmatch.filter(names_in(file), test)] == []


def test_the_page_on_reliability_has_each_hazard_once_with_a_test_or_a_reason() -> None:
    text = (DOCS / "reliability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, HAZARDS + 1))
    bare = [number for number, _, shown in rows if not named_tests(shown) and len(shown.split()) < 3]
    assert bare == []
