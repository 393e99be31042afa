"""The forked process of `forked.py`: its streams, and the command."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path


def to_files(out: str, err: str) -> None:
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)


def to_terminal(name: str, ready: Connection) -> None:
    os.login_tty(os.open(name, os.O_RDWR))
    ready.send(None)
    ready.close()


def run(
    streams: Callable[..., None],
    settings: tuple[object, ...],
    arguments: tuple[str, ...],
    cwd: str,
    environment: dict[str, str],
    told: str,
) -> None:
    """Run the command, and write its exit status into the file `told`."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    streams(*settings)
    lines = 1 if os.isatty(1) else -1
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", lines, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["-c", *arguments]
    from prose_kernel.cli.main import main

    status: object = 1
    try:
        status = main()
    except SystemExit as ended:
        status = ended.code
    finally:
        atexit._run_exitfuncs()  # type: ignore[attr-defined]
    code = status if isinstance(status, int) else int(status is not None)
    if told:
        part = Path(f"{told}.part")
        part.write_text(str(code))
        part.rename(told)
    sys.exit(code)
