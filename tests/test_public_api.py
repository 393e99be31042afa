"""The public names of the package. Removing one of them breaks programs of users."""

from __future__ import annotations

import subprocess
import sys

import pytest

import prose_kernel

PUBLIC = {
    "Asker",
    "AsyncSession",
    "CompileError",
    "Decision",
    "EventStream",
    "MemoryStore",
    "Program",
    "Prompt",
    "ProseError",
    "ProviderError",
    "Result",
    "RunError",
    "Session",
    "Settings",
    "Start",
    "Store",
    "Usage",
    "UsageError",
    "Workspace",
    "__version__",
    "arun",
    "compile",
    "compile_source",
    "events",
    "format_program",
    "load_ipython_extension",
    "run",
    "stream",
    "unload_ipython_extension",
}


def test_the_package_has_these_public_names() -> None:
    assert set(prose_kernel.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_names_exist_and_are_documented(name: str) -> None:
    value = getattr(prose_kernel, name)
    assert isinstance(value, str) or value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = prose_kernel.nonsense


def test_importing_the_package_imports_no_heavy_library() -> None:
    code = "import sys, prose_kernel; print([m for m in ('lark', 'IPython', 'click', 'rich', 'asyncio') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"


def test_importing_the_names_for_annotations_loads_no_machinery_of_runs() -> None:
    """Users annotate their functions with these names, also where nothing runs."""
    unused = (
        "('asyncio', 'lark', 'msgspec', 'prose_kernel.runs.workspace', 'prose_kernel.models', 'prose_kernel.runtime')"
    )
    code = (
        f"import sys; from prose_kernel import Program, Result, Usage; print([m for m in {unused} if m in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
