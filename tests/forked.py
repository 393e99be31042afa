"""`prose` in processes that are forked from one that has everything loaded: a fifth of what an interpreter of its own costs.

For tests of what a command prints and leaves, without a terminal. Tests of a terminal, of signals and of how the
command itself starts and ends run a real one.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["prose_kernel.cli.main", "prose_kernel.cli.run", "prose_kernel.sessions.providers.model_adapter", "nbformat"]
)


def prose(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """`prose ARGUMENTS`, with nothing to read, until it ends."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        environment = dict(os.environ if env is None else env)
        process = _CONTEXT.Process(
            target=_run, args=(arguments, str(cwd or Path.cwd()), environment, str(out), str(err))
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout, out.read_text(), err.read_text())
        return subprocess.CompletedProcess(arguments, process.exitcode, out.read_text(), err.read_text())


def _run(arguments: tuple[str, ...], cwd: str, environment: dict[str, str], out: str, err: str) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["-c", *arguments]
    from prose_kernel.cli.main import main

    try:
        sys.exit(main())
    finally:
        atexit._run_exitfuncs()  # type: ignore[attr-defined]
