"""Signal dispositions that children inherit, put right before a spawn (exec-and-tasks.md 1.2, spawn points 5 and 6).

"Ignored" is inherited, and a shell cannot even trap a signal that was ignored when it started. Python kernels ignore
SIGINT while idle, and shells start their background jobs with it ignored. A handler is not inherited.
"""

from __future__ import annotations

import signal

_WANTED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def unignore() -> None:
    """Make sure that no child starts with INT, QUIT or TERM ignored. Callable from any thread, cheap when all is well.

    The process itself goes on ignoring them: a C function without effect becomes the handler, under what Python
    believes, since only the main thread may install a Python handler.
    """
    ignored = [number for number in _WANTED if signal.getsignal(number) is signal.SIG_IGN]
    if not ignored:
        return
    import ctypes  # rarely needed, and not cheap

    library = ctypes.CDLL(None)
    harmless = ctypes.cast(library.getpid, ctypes.c_void_p)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.signal.restype = ctypes.c_void_p
    for number in ignored:
        library.signal(number, harmless)


def children_are_lost() -> bool:
    """Whether SIGCHLD is ignored: the system would then throw exit statuses away, and failures would look like 0."""
    return signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
