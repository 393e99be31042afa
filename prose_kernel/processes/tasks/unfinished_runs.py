"""Pointers to runs that may have unfinished tasks, in files next to the runs (exec-and-tasks.md 4.9).

With them, a start need not read every run that ever existed.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from prose_kernel.access import atomic, plain_files
from prose_kernel.access.jsonl import json_object

_POINTERS = "tasks"


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer to a run that may have unfinished tasks. `notebook` is the notebook that shows their news."""

    state_dir: Path
    run: str
    notebook: str | None

    def write(self) -> None:
        """Write the pointer. Never raises: without it, a later start reports no news, but loses nothing."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic.write_whole(self._path, json.dumps({"notebook": self.notebook}))

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.state_dir / _POINTERS / self.run


def pointers(state_dir: Path) -> list[Pointer]:
    """Return the existing pointers, in the order of the runs."""
    directory = state_dir / _POINTERS
    found = []
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:
        return []
    for name in names:
        notebook: str | None = None
        with contextlib.suppress(OSError, UnicodeDecodeError):
            notebook = json_object(plain_files.read_text(directory / name, plain_files.SMALL)).get("notebook")
        found.append(Pointer(state_dir, name, notebook))
    return found
