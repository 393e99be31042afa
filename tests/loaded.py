"""Modules that are loaded in the process that `forked.py` forks: all that a command or a kernel may need. Imported only there."""

import ctypes
import gc
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import session_modules

import prose_kernel

gc.disable()  # the imports that follow leave no garbage to look for

import ipykernel.kernelapp  # noqa: E402, F401  # all of it, with IPython: kernels of Python notebooks are forked, too

_LEFT_OUT = ("__main__", "_process", ".papermill", ".ipython", ".pytest_plugin")
"""Scripts, and what other programs than commands and the kernel load; so is the language server, `lsp`."""

_LATE = ("jupyter_console.app", "nbclient", "nbformat", "regex", "rich._emoji_codes", "rich.panel", "yaml")
"""Modules that many commands, or `jupyter console`, load while they run: 0.2 seconds of processor time."""


def _names() -> Iterator[str]:
    for module in pkgutil.walk_packages(prose_kernel.__path__, "prose_kernel."):
        if not module.name.startswith("prose_kernel.lsp") and not module.name.endswith(_LEFT_OUT):
            yield module.name
    yield from session_modules.NAMES
    yield from _LATE


for name in _names():
    try:
        importlib.import_module(name)
    except ImportError:  # of an extra that is not installed
        continue


def _warm_up() -> None:
    """Read what each command reads once, the parse tables and the names of settings: a fifth of a short run."""
    from prose_kernel.language import openprose, vvm
    from prose_kernel.language.source import Source
    from prose_kernel.runs import settings

    openprose.compile_source(Source('let x = exec "a {y}"\noutput z = x | map:\n  session "b"\n'))
    vvm.compile_source(Source("x = @agent `a` ({ y: [1] })\n"))
    settings.load(Path("/"), {})


_warm_up()
gc.enable()
gc.freeze()  # a forked process that looks through all of it would have to copy it


_HUGE = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE, Linux 6.1


def _collapse() -> None:
    """Put what is loaded into huge pages: a fork copies an entry per page, which was most of its processor time (17 ms of
    25). On a system without this call nothing changes."""
    call = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, inode, *name = line.split(maxsplit=5)
        begin, end = (int(number, 16) for number in place.split("-"))
        begin, end = -(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]) and begin < end:
            call(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _COLLAPSE)


if sys.platform == "linux":
    _collapse()
