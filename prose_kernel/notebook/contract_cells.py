"""Cells of a contract file that was opened as a notebook: the parameters of its nodes (prose-md.md 10).

A cell has no contract. What its script reads of the node's interface is declared before the cell runs, as statements:
`input` for a parameter, which is supplied by `%input` or asked for, `const` for the default of an optional one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError
from prose_kernel.language.contracts import SUFFIX
from prose_kernel.language.contracts.described import TAKES
from prose_kernel.language.contracts.interface import contract_of, truth_names
from prose_kernel.language.contracts.reader import read
from prose_kernel.language.contracts.tree import Node
from prose_kernel.language.source import Source
from prose_kernel.notebook.contract_notebooks import as_file, is_contract_notebook
from prose_kernel.notebook.notebook_files import decoded
from prose_kernel.runs import languages

_literal: Final = languages.default().literal


def declarations(notebook: Path, text: str, bound: Collection[str], supplied: Collection[str]) -> str:
    """The statements that declare what `text` reads of the interfaces in a notebook, and nothing has `bound`. "" where
    there is none, and for a notebook that isn't a contract file or cannot be read."""
    lines: dict[str, str] = {}
    for node in _nodes(notebook):
        for one in contract_of(node).inputs:
            if one.name not in bound and _reads(text, one.name):
                is_given = one.name in supplied or not one.optional
                default = f"const {one.name} = {_literal(one.default, one.name)}\n"
                lines.setdefault(one.name, _asked(node, one.name) if is_given else default)
        for name in truth_names(node) if node.kind == "responsibility" else ():
            if name not in bound and _reads(text, name):
                lines.setdefault(name, f"let {name} = null\n")
    return "".join(lines.values())


def _nodes(notebook: Path) -> Iterator[Node]:
    """The nodes with a script."""
    try:
        content = plain_files.read(notebook)
        text = content.decode("utf-8-sig") if notebook.name.endswith(SUFFIX) else _of_notebook(notebook.name, content)
    except (OSError, UsageError, UnicodeDecodeError):
        return
    file, _ = read(Source.of(text, notebook.name))
    yield from (node for node in file.nodes if node.fences)


def _of_notebook(name: str, content: bytes) -> str:
    if b'"contract"' not in content:
        return ""
    _, data = decoded(name, content)
    return as_file(data) if is_contract_notebook(data.get("metadata", {})) else ""


def _reads(text: str, name: str) -> bool:
    """Whether a text has a name that it doesn't declare itself."""
    own = re.search(rf"^[ \t]*(?:let|const|input)[ \t]+{re.escape(name)}\b", text, re.MULTILINE)
    return own is None and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def _asked(node: Node, name: str) -> str:
    item = node.item(name, TAKES)
    return f"input {name}: {_literal((item.words if item is not None else '') or name, name)}\n"
