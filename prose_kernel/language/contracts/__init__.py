"""Contract Markdown, `NAME.prose.md`: text in; nodes, sections, programs and findings out.

Implements docs/reference/prose-md.md. Nothing is imported before it is used.
"""

from __future__ import annotations

from typing import Final

SUFFIX: Final = ".prose.md"
STANDARD: Final = {name: f"github.com/openprose/prose/packages/{name}" for name in ("std", "co")}
"""The prefixes of paths to the standard library and the packages that they mean (9)."""
PRIOR: Final = "prior:"
"""Before the name of an item of the truth of an earlier render, among the values that are supplied (5)."""
_MARK: Final = f"{SUFFIX}#"


def is_contract(name: str) -> bool:
    """Whether a text of this name is a contract file, or a node of one (`FILE.prose.md#NODE`)."""
    return name.endswith(SUFFIX) or _MARK in name


def file_and_node(name: str) -> tuple[str, str]:
    """The two parts of `FILE.prose.md#NODE`; the second is "" for the file's own node."""
    file, mark, chosen = name.rpartition(_MARK)
    return (f"{file}{SUFFIX}", chosen) if mark and chosen else (name, "")
