"""No module needs, directly or round about, what needs it: neither when it is loaded nor inside a function."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_import_circle_at_load_or_inside_functions() -> None:
    """grimp reads every import statement of a module, at any place; those for type checkers are left out."""
    graph = grimp.build_graph("prose_kernel", exclude_type_checking_imports=True)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # a package's __init__ is loaded with each of its modules, but names them only where their names are wanted
    needs["prose_kernel"] = {module for module in needs["prose_kernel"] if module == "prose_kernel._version"}
    try:
        order = tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))
    assert len(order) > 200
