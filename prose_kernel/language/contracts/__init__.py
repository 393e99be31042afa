"""The compiler of Contract Markdown (`NAME.prose.md`, docs/reference/prose-md.md).

reader.py and items.py read the nodes and sections of a file (tree.py), units.py compiles their scripts, targets.py
resolves calls, checks.py checks the file, and compile.py combines them. The package imports its modules on first use.
"""

from __future__ import annotations

from typing import Final

SUFFIX: Final = ".prose.md"
STANDARD: Final = {name: f"github.com/openprose/prose/packages/{name}" for name in ("std", "co")}
"""The prefixes of paths to the standard library, and the packages that they abbreviate (9)."""
LIBRARY: Final = "library:"
"""The path for which the loader of programs returns the `Library` (units.py) of a text."""
PRIOR: Final = "prior:"
"""The prefix for items of the truth of an earlier render among the values given to a run (5)."""
_MARK: Final = f"{SUFFIX}#"


def is_contract(name: str) -> bool:
    """Return whether a name is that of a contract file, or of a node in one (`FILE.prose.md#NODE`)."""
    return name.endswith(SUFFIX) or _MARK in name


def file_and_node(name: str) -> tuple[str, str]:
    """Split `FILE.prose.md#NODE` into file and node; the node is "" for the file's own."""
    file, mark, chosen = name.rpartition(_MARK)
    return (f"{file}{SUFFIX}", chosen) if mark and chosen else (name, "")
