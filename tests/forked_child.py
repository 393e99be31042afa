"""The forked process of `forked.py`: its streams, and its command or kernel."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO


def to_files(out: str, err: str, broken: Mapping[int, str] | None = None) -> None:
    """Write standard output and error into files. `broken` streams are "closed", "full" or "gone" (a pipe without a reader)."""
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, how in (broken or {}).items():
        if how == "closed":
            os.close(number)
            continue
        reader, writer = os.pipe() if how == "gone" else (-1, os.open("/dev/full", os.O_WRONLY))
        os.dup2(writer, number)
        for descriptor in (reader, writer):
            if descriptor > 2:
                os.close(descriptor)


def _opened(number: int, how: str, lines: int = -1) -> TextIO | None:
    """Open a standard stream like Python; return None if it is closed."""
    try:
        return open(number, how, lines, encoding="utf-8", closefd=False)
    except OSError:
        return None


def to_terminal(name: str, ready: Connection) -> None:
    os.login_tty(os.open(name, os.O_RDWR))
    ready.send(None)
    ready.close()


def to_given(*streams: Connection) -> None:
    """Use the standard streams of another process."""
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()


def run(
    streams: Callable[..., None],
    settings: tuple[object, ...],
    arguments: tuple[str, ...],
    cwd: str,
    environment: dict[str, str],
    status_file: str,
    package: str = "",
) -> None:
    """Run the command, and write its exit status into `status_file`. For `package`, see `forked.python`."""
    import loaded  # noqa: F401  # fails here if it could not be loaded before the fork

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    streams(*settings)
    lines = 1 if os.isatty(1) else -1
    sys.stdin, sys.stdout, sys.stderr = _opened(0, "r"), _opened(1, "w", lines), _opened(2, "w", 1)  # type: ignore[assignment]
    status: object = 1
    try:
        status = _code(package, *arguments) if package else _command(*arguments)
    except SystemExit as ended:
        status = ended.code
    finally:
        atexit._run_exitfuncs()  # type: ignore[attr-defined]
    code = status if isinstance(status, int) else int(status is not None)
    if status_file:
        part = Path(f"{status_file}.part")
        part.write_text(str(code))
        part.rename(status_file)
    sys.exit(code)


def _command(*arguments: str) -> int:
    sys.argv = ["-c", *arguments]
    from prose_kernel.cli.main import main

    return main()


def _code(package: str, text: str, *arguments: str) -> int:
    import prose_kernel

    if not Path(prose_kernel.__file__).is_relative_to(package):
        for name in [name for name in sys.modules if name.partition(".")[0] == "prose_kernel"]:
            del sys.modules[name]
    sys.path.insert(0, package)
    sys.argv = ["-c", *arguments]
    exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
    return 0


def kernel(
    module: str, arguments: tuple[str, ...], cwd: str, environment: dict[str, str], streams: tuple[Connection, ...] = ()
) -> None:
    """Run a kernel as `python -m MODULE ARGUMENTS` does, in its own session, with these standard streams."""
    import loaded  # noqa: F401  # as in `run`

    to_given(*streams)
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))
    sys.path[:0] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.stdin = _opened(0, "r")  # type: ignore[assignment]
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # type: ignore[attr-defined]
