"""The English of documentation and package: the patterns of `scripts/prose_style.py` are rare."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest
from cli.generated import DOCS

_SPEC = importlib.util.spec_from_file_location("prose_style", DOCS.parent / "scripts" / "prose_style.py")
assert _SPEC is not None and _SPEC.loader is not None
prose_style = sys.modules["prose_style"] = importlib.util.module_from_spec(
    _SPEC
)  # some names of scripts/ exist in tests too
_SPEC.loader.exec_module(prose_style)

MOST = 10
"""How often all pages together may have each pattern, or a sentence of more than 35 words."""


@pytest.fixture(scope="module")
def found() -> list[prose_style.Found]:
    return [one for page in prose_style.pages() for one in prose_style.findings(page)]


@pytest.mark.parametrize("pattern", ["long", *prose_style.PATTERNS])
def test_sentences_that_are_hard_to_read_are_rare(pattern: str, found: list[prose_style.Found]) -> None:
    places = [f"{one.page}:{one.line}: {one.sentence}" for one in found if one.pattern == pattern]
    assert len(places) <= MOST, "\n".join(places)


MOST_IN_PACKAGE = 20
"""How often the docstrings, comments and texts of all modules together may have each pattern."""


def test_patterns_are_rare_in_the_package() -> None:
    found = [one for path in prose_style.modules() for one in prose_style.findings(path)]
    counts = Counter(one.pattern for one in found if one.pattern != "long")
    assert {name: count for name, count in counts.items() if count > MOST_IN_PACKAGE} == {}


def test_docstrings_comments_and_texts_of_a_module_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""What is recorded replays."""\n\n\ndef told(nobody: str) -> str:\n    # it stands here\n'
        "    return f\"{nobody} is no file \" + 'goes on'\n"
    )
    monkeypatch.setattr(prose_style, "ROOT", tmp_path)
    assert {(one.line, one.pattern) for one in prose_style.findings(module)} == {
        (1, "what-clause"), (5, "stands"), (6, "is no"), (6, "goes on"),
    }  # fmt: skip


def test_code_and_generated_parts_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "Nobody told `nobody`. What is recorded replays.\n\n```text\nnobody\n```\n\n"
        "<!-- generated: keywords -->\nnobody\n<!-- end -->\n\n| one at once | two |\n\n" + "word " * 36 + "\n"
    )
    monkeypatch.setattr(prose_style, "ROOT", tmp_path)
    counts = Counter(one.pattern for one in prose_style.findings(page))
    assert counts == {"told": 1, "what-clause": 1, "at once": 1, "long": 1}
