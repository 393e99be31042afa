"""The package has no circular imports, at module level or inside functions."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


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
