"""Every section of the reference that the source or a page cites exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from cli.generated import DOCS, PACKAGE

from prose_kernel.runs import reference_pages

PAGES = ("openprose", "vvm", "exec-and-tasks", "jupyter", "sessions")
DOCUMENTS = [DOCS.parent / "README.md", DOCS.parent / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]

_NUMBER = r"\d+(?:\.\d+)*"
_CITATION = re.compile(
    rf"\b({'|'.join(PAGES)})\.md,?\s+(?:sections?\s+)?({_NUMBER}(?:(?:,| and| to| or)\s+{_NUMBER})*)"
)
_HEADING = re.compile(rf"^#{{2,6}} ({_NUMBER})\.? (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)


def numbers(page: str) -> list[str]:
    """Return the numbers of a page's headings, in the order of its parts."""
    return [number for number, _ in _HEADING.findall(_FENCE.sub("", reference_pages.text(page)))]


def citations(page: str) -> Iterator[tuple[str, str]]:
    """Yield each cited section of a page, and the file that cites it."""
    for path in [*sorted(PACKAGE.rglob("*.py")), *DOCUMENTS]:
        for cited, cited_numbers in _CITATION.findall(path.read_text(encoding="utf-8")):
            if cited == page:
                yield from ((number, path.name) for number in re.findall(_NUMBER, cited_numbers))


@pytest.mark.parametrize("page", PAGES)
def test_every_section_that_is_cited_exists(page: str) -> None:
    cited = list(citations(page))
    known = numbers(page)
    assert cited
    assert sorted({f"{page}.md {number}, in {file}" for number, file in cited if number not in known}) == []


@pytest.mark.parametrize("page", PAGES)
def test_the_section_numbers_of_a_page_are_unique_and_in_order(page: str) -> None:
    found = numbers(page)
    assert found == sorted(set(found), key=lambda number: [int(part) for part in number.split(".")])
