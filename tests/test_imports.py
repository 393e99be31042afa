"""The package has no circular imports, at module level or inside functions, and modules named by a text exist."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import prose_kernel

ROOT = Path(prose_kernel.__path__[0])
MODULE = re.compile(r"prose_kernel(?:\.\w+){2,}(?::\w+)?")
FUNCTION = re.compile(r"(?:language|machine|views|runs)(?:\.(?:\w+|\{\}))*:(?:\w+|\{\})")
"""The place of a function in `runs/languages.py`, `{}` for each language."""


def test_there_are_no_circular_imports() -> None:
    """grimp reads all import statements of modules and functions, except those for type checkers."""
    graph = grimp.build_graph("prose_kernel", exclude_type_checking_imports=True)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # the package's __init__ imports modules only when their names are read
    needs["prose_kernel"] = {module for module in needs["prose_kernel"] if module == "prose_kernel._version"}
    try:
        order = tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))
    assert len(order) > 200


def test_modules_named_by_a_text_exist() -> None:
    """A renamed module would be missed only when it is loaded lazily, or when its frames are compared."""
    named = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if MODULE.fullmatch(text):
                    named.add(text.removeprefix("prose_kernel."))
                elif FUNCTION.fullmatch(text):
                    named |= {text.replace("{}", language) for language in ("openprose", "vvm")}
    places = {name.partition(":")[0].replace(".", "/") for name in named}
    missing = {
        place for place in places if not (ROOT / place).is_dir() and not (ROOT / place).with_suffix(".py").exists()
    }
    assert len(places) > 60
    assert missing == set()
