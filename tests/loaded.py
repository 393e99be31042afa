"""What the process has loaded that `forked.py` forks: all that a command or a kernel may need. Imported only there."""

import gc
import importlib
import pkgutil

import nbformat  # noqa: F401

import prose_kernel
from prose_kernel.__main__ import _import_ipykernel_alone

_import_ipykernel_alone()
ROOMS = (
    "cli",
    "language",
    "machine",
    "access",
    "cassettes",
    "judging",
    "models",
    "notebook",
    "processes",
    "programs",
    "run",
    "runtime",
    "storage",
    "views",
)

_LEFT_OUT = ("__main__", "_process", ".papermill", ".ipython")
"""Scripts, and what other programs than the kernel load."""

if missing := set(ROOMS) - {room.name for room in pkgutil.iter_modules(prose_kernel.__path__)}:
    raise ImportError(f"no such rooms: {sorted(missing)}")
for module in pkgutil.walk_packages(prose_kernel.__path__, "prose_kernel."):
    if module.name.split(".")[1] in ROOMS and not module.name.endswith(_LEFT_OUT):
        try:
            importlib.import_module(module.name)
        except ImportError:  # of an extra that is not installed
            continue
gc.collect()
gc.freeze()  # a forked process that looks through all of it would have to copy it
