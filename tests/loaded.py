"""The modules of commands and kernels, loaded in the process that `forked.py` forks. Only that process imports this module."""

import ctypes
import gc
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import session_modules

import prose_kernel

gc.disable()  # the following imports leave no garbage

import ipykernel.kernelapp  # noqa: E402, F401  # with IPython, because kernels of Python notebooks are forked, too

_LEFT_OUT = ("__main__", "_process", ".papermill", ".ipython", ".pytest_plugin")
"""Scripts, and modules that neither commands nor kernels load, like the language server, `lsp`."""

_LATE = ("jupyter_console.app", "nbclient", "nbformat", "regex", "rich._emoji_codes", "rich.panel", "yaml")
"""Modules that many commands, or `jupyter console`, load late. They take 0.2 seconds of processor time."""


def _names() -> Iterator[str]:
    for module in pkgutil.walk_packages(prose_kernel.__path__, "prose_kernel."):
        if not module.name.startswith("prose_kernel.lsp") and not module.name.endswith(_LEFT_OUT):
            yield module.name
    yield from session_modules.NAMES
    yield from _LATE


for name in _names():
    try:
        importlib.import_module(name)
    except ImportError:  # an extra is not installed
        continue


def _warm_up() -> None:
    """Read the parse tables and the names of settings, which take a fifth of a short run."""
    from prose_kernel.language import openprose, vvm
    from prose_kernel.language.source import Source
    from prose_kernel.runs import settings

    openprose.compile_source(Source('let x = exec "a {y}"\noutput z = x | map:\n  session "b"\n'))
    vvm.compile_source(Source("x = @agent `a` ({ y: [1] })\n"))
    settings.load(Path("/"), {})


_warm_up()
gc.enable()
gc.freeze()  # otherwise garbage collection in a fork would copy all memory


_HUGE = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE, Linux 6.1


def _collapse() -> None:
    """Move the loaded modules into huge pages. A fork copies one entry per page, which was most of its processor time (17 of
    25 ms). On a system without this call, nothing changes."""
    call = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, inode, *name = line.split(maxsplit=5)
        begin, end = (int(number, 16) for number in place.split("-"))
        begin, end = -(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]) and begin < end:
            call(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _COLLAPSE)


if sys.platform == "linux":
    _collapse()
