"""prose_kernel: write, run, pause, read and test agent workflows in Jupyter.

The names in `__all__` are public; everything else may change. Submodules are imported on first use, because a kernel, a
command line and a test each need only some of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from prose_kernel._version import __version__

if TYPE_CHECKING:
    from prose_kernel.errors import CompileError as CompileError
    from prose_kernel.errors import ProseError as ProseError
    from prose_kernel.errors import RunError as RunError
    from prose_kernel.errors import UsageError as UsageError
    from prose_kernel.language.openprose import compile_source as compile_source
    from prose_kernel.language.openprose import format_program as format_program
    from prose_kernel.run.settings import Settings as Settings
    from prose_kernel.run.workspace import Start as Start
    from prose_kernel.run.workspace import Workspace as Workspace

_PUBLIC = {
    "CompileError": "prose_kernel.errors",
    "ProseError": "prose_kernel.errors",
    "RunError": "prose_kernel.errors",
    "Settings": "prose_kernel.run.settings",
    "Start": "prose_kernel.run.workspace",
    "UsageError": "prose_kernel.errors",
    "Workspace": "prose_kernel.run.workspace",
    "compile_source": "prose_kernel.language.openprose",
    "format_program": "prose_kernel.language.openprose",
}

__all__ = [
    "CompileError",
    "ProseError",
    "RunError",
    "Settings",
    "Start",
    "UsageError",
    "Workspace",
    "__version__",
    "compile_source",
    "format_program",
    "load_ipython_extension",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> object:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: object) -> None:
    """`%load_ext prose_kernel`: add `%%prose`, `%prose …` and the mapping `prose` to a Python notebook."""
    from prose_kernel.notebook.ipython import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """`%unload_ext prose_kernel`: end the run and remove the magics."""
    from prose_kernel.notebook.ipython import unload

    unload(shell)
