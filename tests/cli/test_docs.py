"""Generated pages match the code, and every local link of the documentation has a target."""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from pathlib import Path

import pytest
from cli.generated import DOCS, PAGES

from prose_kernel.runs import reference_pages

ROOT = DOCS.parent
TESTS = ROOT / "tests"
HAZARDS = 102
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make generated`"


# ---------------------------------------------------------------- links, before the site is built


def markdown_of(document: Path) -> str:
    """Return a page, or the text cells of a notebook, without code blocks."""
    text = document.read_text(encoding="utf-8")
    if document.suffix == ".ipynb":
        cells = (cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
        text = "\n\n".join(cell if isinstance(cell, str) else "".join(cell) for cell in cells)
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


@functools.cache
def anchors(document: Path) -> frozenset[str]:
    """Return the anchors of a document's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#{1,6} (.+?)\s*$", markdown_of(document), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain)


def broken(document: Path) -> list[str]:
    """Return the local links of a document without a target."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", markdown_of(document))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        there = file.exists() and (not anchor or file.suffix not in (".md", ".ipynb") or anchor in anchors(file))
        if not there:
            found.append(target)
    return found


@pytest.mark.parametrize("document", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_local_links_and_anchors_have_targets(document: Path) -> None:
    assert broken(document) == []


def test_a_broken_link_and_a_missing_anchor_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `page` of 1.2\n\n```text\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-page-of-12) [b](other.md#no-heading) [c](gone.md) `[d](gone.md)` [e](https://x.test)\n"
    )
    assert broken(page) == ["other.md#no-heading", "gone.md"]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """The build of the site finds the same errors, but after half a minute."""
    text = (DOCS / "site" / "conf.py").read_text(encoding="utf-8")
    listed = {f"{name}.md" for name in re.findall(r'"([\w/-]+)"', text)} | {"README.md"}
    listed |= {
        f"docs/reference/{part}.md" for page in reference_pages.pages() for part, _ in reference_pages.parts(page)
    }
    assert [d for d in DOCUMENTS if str(d.relative_to(ROOT)) not in listed] == []


# ---------------------------------------------------------------- pages that name tests


@functools.cache
def names_in(file: str) -> tuple[str, ...]:
    """Return the names of the tests of a file, which pages call `starting` or `exec_tool/hazards`."""
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


@pytest.mark.parametrize("page", ["contributing/reliability.md", "contributing/security-tests.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = named_tests((DOCS / page).read_text(encoding="utf-8"))
    assert len(named) > 30
    assert [f"{file}::{test}" for file, test in named if not fnmatch.filter(names_in(file), test)] == []


def test_the_page_on_reliability_has_each_hazard_once_with_a_test_or_a_reason() -> None:
    text = (DOCS / "contributing" / "reliability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, HAZARDS + 1))
    bare = [number for number, _, shown in rows if not named_tests(shown) and len(shown.split()) < 3]
    assert bare == []
