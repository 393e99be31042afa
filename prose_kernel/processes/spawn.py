"""Starts a child in its own session with two or three pipes and no other descriptors, and notices its end.

See docs/reference/exec-and-tasks.md 1.2. This uses the standard library's vfork path, and never `preexec_fn`, which
would run Python code in a fork of a threaded process.
"""

from __future__ import annotations

import _signal as signals  # type: ignore[import-not-found]  # returns plain numbers, in a fifth of the time
import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.processes import system


class SpawnFailure(Exception):
    """A child could not be started. `kind` is `cwd` if its directory is the reason; `message` is for people."""

    def __init__(self, kind: Literal["spawn", "cwd"], message: str) -> None:
        super().__init__(message)
        self.kind: Literal["spawn", "cwd"] = kind
        self.message = message


class Child(Struct, eq=False):
    """A started child and our ends of its pipes; `stdin` is -1 if it has none. `popen` only holds the PID: the engine
    reaps the child."""

    popen: subprocess.Popen[bytes]
    stdout: int
    stderr: int
    stdin: int = -1

    @property
    def pid(self) -> int:
        return self.popen.pid

    def reaped(self, status: int) -> None:
        """Record the status in `popen`, so that the standard library does not wait for it."""
        self.popen.returncode = os.waitstatus_to_exitcode(status)


def spawn(
    argv: Sequence[str | bytes],
    env: Mapping[bytes, bytes],
    cwd: str,
    keep: Sequence[int] = (),
    *,
    pipe_stdin: bool = False,
    stdin: int = -1,
) -> Child:
    """Start `argv` in a new session. `keep` lists further descriptors to pass on. The child's standard input is a pipe
    with `pipe_stdin`, else the descriptor `stdin` (-1: /dev/null). Raises `SpawnFailure`."""
    stop_ignoring_signals()
    if exit_statuses_are_lost():
        raise SpawnFailure("spawn", "SIGCHLD is ignored in this process: exit codes would be lost")
    opened: list[int] = []
    try:
        for _ in range(3 if pipe_stdin else 2):
            opened += os.pipe()
        popen = subprocess.Popen(
            argv,
            stdin=opened[4] if pipe_stdin else stdin if stdin >= 0 else _null(),
            stdout=opened[1],
            stderr=opened[3],
            env=env,
            cwd=cwd,
            start_new_session=True,
            pass_fds=keep,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        close(opened)
        raise classify(problem, os.fsdecode(argv[0]), cwd) from None
    close((opened[1], opened[3], *opened[4:5]))
    ours = opened[0], opened[2], *opened[5:]
    for descriptor in ours:
        os.set_blocking(descriptor, False)
    system.prefer_for_out_of_memory(popen.pid)
    return Child(popen, *ours)


def classify(problem: Exception, program: str, cwd: str) -> SpawnFailure:
    """Return the failure of a start, with a message free of numbers and paths that differ between runs."""
    import shutil  # only a failed start needs it

    code = problem.errno if isinstance(problem, OSError) else None
    place = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ESTALE)
    if not isinstance(problem, OSError) or code in place:
        reason = directory_problem(cwd)
        if reason is not None:
            return SpawnFailure("cwd", reason)
    if not isinstance(problem, OSError):
        return SpawnFailure("spawn", f"cannot start the command: {problem}")
    # The search of PATH reports its first other error, such as that of an unreadable directory, for a missing program.
    if code == errno.ENOENT or (code in place and "/" not in program and shutil.which(program, os.F_OK) is None):
        missing = "its interpreter was not found" if Path(program).exists() else "not found"
        return SpawnFailure("spawn", f"cannot start {program}: {missing}")
    if code in place:
        return SpawnFailure("spawn", f"cannot start {program}: {_error_text(code)}")
    return SpawnFailure("spawn", start_error(problem))


def start_error(problem: OSError) -> str:
    """Return the message of a failed start that neither the program nor its directory has caused."""
    code = problem.errno
    why = "it and the environment are too long (E2BIG)" if code == errno.E2BIG else _error_text(code)
    return f"cannot start the command: {why}"


def directory_problem(cwd: str) -> str | None:
    """Return the reason why no command can run in this directory; None if commands can."""
    try:
        mode = Path(cwd).stat().st_mode
    except FileNotFoundError:
        return f"directory not found: {cwd}"
    except NotADirectoryError:
        return f"not a directory: {cwd}"
    except OSError as problem:
        return f"directory not usable: {cwd}: {_error_text(problem.errno)}"
    except ValueError:  # NUL, or a character that no name can have
        return "the directory's name cannot be encoded"
    if not stat.S_ISDIR(mode):
        return f"not a directory: {cwd}"
    return None if os.access(cwd, os.X_OK) else f"directory not permitted: {cwd}"


def _error_text(code: int | None) -> str:
    if code is None:
        return "unknown reason"
    return f"{os.strerror(code).lower()} ({errno.errorcode.get(code, code)})"


def move_above(descriptor: int, lowest: int) -> int:
    """Move a descriptor to a number of at least `lowest`, if the limit on open files allows. Raises `OSError`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        lowest = min(lowest, soft // 2)
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    finally:
        os.close(descriptor)


def close(descriptors: Sequence[int]) -> None:
    """Close the descriptors; errors are ignored, as for -1."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


_MOMENT = 0.05
"""Seconds between two checks of a process, on a system without a descriptor or a free thread to wait for its end."""


class ExitWatch:
    """Calls `ended` in the loop, once, when the child has ended; does not reap it.

    Uses a descriptor; if the system has none, a waiting thread; if it starts no thread either, repeated checks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pid: int, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._descriptor = -1
        self._over = False
        try:
            self._descriptor = system.exit_descriptor(pid)
        except OSError:
            try:
                threading.Thread(target=self._wait, args=(pid,), name="prose-exit", daemon=True).start()
            except RuntimeError:  # the system starts no further thread
                self._poll(pid)
        else:
            loop.add_reader(self._descriptor, self._seen)

    def _wait(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):  # other code reaped it, which our own reaping will find out
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the engine is closed, and has abandoned this process
            self._loop.call_soon_threadsafe(self._seen)

    def _poll(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                if not self._over:
                    self._loop.call_later(_MOMENT, self._poll, pid)
                return
        self._loop.call_soon(self._seen)

    def _seen(self) -> None:
        if not self._over:
            self.stop()
            self._ended()

    def stop(self) -> None:
        """Stop watching. A second call does nothing."""
        self._over = True
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            close((self._descriptor,))
            self._descriptor = -1


_null_descriptor = -1


def _null() -> int:
    # one for all children, to save opening it for each
    global _null_descriptor
    if _null_descriptor < 0:
        _null_descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return _null_descriptor


# Children inherit ignored signals (but not handlers), and a shell cannot even trap a signal that was ignored when it
# started. Python kernels ignore SIGINT while idle, and shells start their background jobs with SIGINT ignored.

_WANTED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def stop_ignoring_signals() -> None:
    """Ensure that no child starts with INT, QUIT or TERM ignored. Callable from any thread, cheap if none is ignored.

    This process still ignores them: a C function without effect becomes their handler. Python doesn't know about it,
    because only the main thread may install a Python handler.
    """
    ignored = [number for number in _WANTED if signals.getsignal(number) == signals.SIG_IGN]
    if not ignored:
        return
    import ctypes  # rarely needed, and not cheap

    library = ctypes.CDLL(None)
    harmless = ctypes.cast(library.getpid, ctypes.c_void_p)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.signal.restype = ctypes.c_void_p
    for number in ignored:
        library.signal(number, harmless)


def exit_statuses_are_lost() -> bool:
    """Return whether SIGCHLD is ignored. The system then discards exit statuses, and failures look like exit code 0."""
    return bool(signals.getsignal(signals.SIGCHLD) == signals.SIG_IGN)


_FROM_BYTE_CODE: Final = (
    "import sys, _frozen_importlib_external as files\n"
    "del sys.argv[0]\n"
    "path = sys.argv[0]\n"
    "exec(files.SourceFileLoader('__main__', path).get_code('__main__'), {'__name__': '__main__', '__file__': path})"
)
"""Loads the byte code of a script. Python compiles a script each time it is started by its path, which takes 5 to 7 ms,
because only modules have byte code. The loader that this uses is part of every interpreter."""


def script_command(path: Path, flags: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs a script of this package in a small interpreter; append the script's arguments."""
    return (sys.executable or "python3", *flags, "-c", _FROM_BYTE_CODE, str(path))
