"""Completed runs as inputs of contract files (docs/reference/prose-md.md 1.6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError
from prose_kernel.runtime.ports import FoundRun

if TYPE_CHECKING:
    from prose_kernel.runs.context import RunContext

_COPIES = ("root.prose.md", "program.prose")


def find_run(context: RunContext, wanted: str) -> FoundRun:
    """The run with this id, or of this directory. Raises `UsageError` for none, and for one that has not ended."""
    from prose_kernel.storage.runs import find, places

    cwd = context.start.cwd
    path = Path(cwd, os.path.expanduser(wanted))  # noqa: PTH111 - an unknown home is left as it is
    where = places(cwd, context.settings.state_dir)
    run = find(where, str(path) if "/" in wanted else wanted)
    if run.state not in ("done", "failed", "interrupted"):
        raise UsageError(f"run {run.id} has not ended: it is {run.state}", hint="prose runs lists them")
    shown = os.path.relpath(run.directory, cwd)
    status = "completed" if run.state == "done" else run.state
    value = {"run": run.id, "path": shown, "root": run.program, "status": status}
    notes = [f"run {run.id} has {run.state}"] if status != "completed" else []
    copy = next((run.directory / name for name in _COPIES if (run.directory / name).is_file()), None)
    if copy is not None and run.program and _text(copy) != _text(cwd / run.program.partition("#")[0]):
        notes.append(f"{run.program} has changed since run {run.id}")
    return FoundRun(value, tuple(notes))


def _text(path: Path) -> str:
    try:
        return plain_files.read_text(path, errors="replace").removeprefix("\ufeff").rstrip()
    except OSError:
        return ""
