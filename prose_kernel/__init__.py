"""prose_kernel: write, run, pause, read and test agent workflows in Jupyter.

The Python API is described in docs/reference/python.md.

The names in `__all__` are public; everything else may change. Submodules are imported on first use, because the kernel,
the command line and tests each need only some of them.
"""

from __future__ import annotations

from prose_kernel._version import __version__

TYPE_CHECKING = False  # type checkers know this name; importing `typing` would dominate the start of `cli/entry.py`
if TYPE_CHECKING:
    from prose_kernel.errors import CompileError as CompileError
    from prose_kernel.errors import ProseError as ProseError
    from prose_kernel.errors import ProviderError as ProviderError
    from prose_kernel.errors import RunError as RunError
    from prose_kernel.errors import UsageError as UsageError
    from prose_kernel.judging.python_function import Decision as Decision
    from prose_kernel.language.openprose import compile_source as compile_source
    from prose_kernel.language.openprose.formatter import format_program as format_program
    from prose_kernel.models.providers.python_function import Prompt as Prompt
    from prose_kernel.runs.api import AsyncSession as AsyncSession
    from prose_kernel.runs.api import EventStream as EventStream
    from prose_kernel.runs.api import Session as Session
    from prose_kernel.runs.api import arun as arun
    from prose_kernel.runs.api import compile as compile
    from prose_kernel.runs.api import run as run
    from prose_kernel.runs.api import stream as stream
    from prose_kernel.runs.context import Start as Start
    from prose_kernel.runs.execution import Program as Program
    from prose_kernel.runs.execution import Result as Result
    from prose_kernel.runs.execution import Usage as Usage
    from prose_kernel.runs.settings import Settings as Settings
    from prose_kernel.runs.workspace import Workspace as Workspace
    from prose_kernel.runtime import events as events
    from prose_kernel.runtime.ports import Store as Store
    from prose_kernel.runtime.services import Asker as Asker
    from prose_kernel.storage.stores import MemoryStore as MemoryStore

_PUBLIC = {
    "Asker": "prose_kernel.runtime.services",
    "AsyncSession": "prose_kernel.runs.api",
    "CompileError": "prose_kernel.errors",
    "Decision": "prose_kernel.judging.python_function",
    "EventStream": "prose_kernel.runs.api",
    "MemoryStore": "prose_kernel.storage.stores",
    "Program": "prose_kernel.runs.execution",
    "Prompt": "prose_kernel.models.providers.python_function",
    "ProseError": "prose_kernel.errors",
    "ProviderError": "prose_kernel.errors",
    "Result": "prose_kernel.runs.execution",
    "RunError": "prose_kernel.errors",
    "Session": "prose_kernel.runs.api",
    "Settings": "prose_kernel.runs.settings",
    "Start": "prose_kernel.runs.context",
    "Store": "prose_kernel.runtime.ports",
    "Usage": "prose_kernel.runs.execution",
    "UsageError": "prose_kernel.errors",
    "Workspace": "prose_kernel.runs.workspace",
    "arun": "prose_kernel.runs.api",
    "compile": "prose_kernel.runs.api",
    "compile_source": "prose_kernel.language.openprose",
    "events": "prose_kernel.runtime.events",
    "format_program": "prose_kernel.language.openprose.formatter",
    "run": "prose_kernel.runs.api",
    "stream": "prose_kernel.runs.api",
}
"""The module that defines each public name. A public module is listed under its own full name."""

__all__ = ["__version__", "load_ipython_extension", "unload_ipython_extension", *_PUBLIC]


def __getattr__(name: str) -> object:
    from importlib import import_module

    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = import_module(module)
    return found if module.endswith(f".{name}") else getattr(found, name)


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
