"""`python -m prose_kernel`: start the kernel. The kernelspec calls this; people use `prose`."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from contextlib import suppress
from types import ModuleType


def main() -> None:
    _remove_working_directory_from_path()
    gc.disable()  # imports leave no garbage to look for; `ProseApp.start` turns it on again
    _import_ipykernel_without_shell()
    from prose_kernel.notebook.app import ProseApp

    ProseApp.launch_instance()


def _remove_working_directory_from_path() -> None:
    """Remove the working directory, which `-m` adds, from the search path: sessions may write Python files there.

    Kernelspecs start Python with `-P`, which never adds it; kernelspecs installed by earlier versions do not.
    """
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109
        del sys.path[0]


def _import_ipykernel_without_shell() -> None:
    """Import ipykernel's base class without IPython's shell.

    The base class needs one exception of IPython, `IPython.core.error.StdinNotImplementedError`. Importing it runs
    `IPython/__init__.py`, which loads the whole shell: 60 modules, a seventh of the start-up time, unused by this
    kernel. So during this import, an empty package with IPython's search path takes IPython's place in `sys.modules`.
    It is removed afterwards: code that imports IPython later gets all of it. Only the kernel's own process does this.
    """
    found = importlib.util.find_spec("IPython")
    if found is None or "IPython" in sys.modules:
        return
    package = ModuleType("IPython")
    package.__path__ = found.submodule_search_locations or []
    sys.modules["IPython"] = package
    with suppress(ImportError):  # another version may need more of IPython, which is then imported as usual
        importlib.import_module("ipykernel.kernelbase")
    for name in [name for name in sys.modules if name.partition(".")[0] == "IPython"]:
        del sys.modules[name]


if __name__ == "__main__":
    main()
