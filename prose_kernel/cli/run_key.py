"""`prose run --id KEY`: at most one run for each key (docs/how-to/durability.md, amendment A52).

A file in the state directory names the run of a key. It is locked while that run is begun or resumed, so a second
process with the same key is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prose_kernel.access import atomic, plain_files
from prose_kernel.errors import UsageError, reason_of

if TYPE_CHECKING:
    from prose_kernel.runs.context import RunContext
    from prose_kernel.runs.settings import Settings
    from prose_kernel.storage.runs import KeptRun

_LONGEST: Final = 500


class RunKey:
    """A key whose lock this process holds. `run` is the existing run of the key, if it can be resumed."""

    def __init__(self, key: str, descriptor: int, run: KeptRun | None) -> None:
        self.key = key
        self.run = run
        self._descriptor = descriptor

    def check_program(self, name: str, cwd: Path) -> None:
        """Raise `UsageError` if this key belongs to a run of another program. `name` is a file, or an address."""
        head = self.run.head if self.run is not None else None
        if self.run is None or head is None:
            return
        if head.origin:
            same = head.origin == name
        else:
            program = Path(head.directory, os.path.expanduser(head.program))
            same = os.path.realpath(program) == os.path.realpath(Path(cwd, name))
        if not same:
            hint = "use another key, or run that program"
            raise UsageError(f"--id {self.key}: run {self.run.id} of {head.program} has this key", hint=hint)

    def begin(self, context: RunContext) -> None:
        """Assign the new run to this key. Raises `UsageError` for a run that leaves no journal."""
        settings, start = context.settings, context.start
        in_memory = context.state_setting_applies and settings.state.kind == "in-context"
        if settings.journal == "off" or in_memory or context.leaves_no_files:
            hint = "leave out --in-context; for VVM add --state=filesystem"
            raise UsageError("--id needs a run that keeps a journal", hint=hint)
        try:
            os.pwrite(self._descriptor, f"{start.run_id}\n".encode(), 0)  # all ids have the same length
            os.fsync(self._descriptor)
        except OSError as error:
            raise _unusable(self.key, settings, error) from None


@contextlib.contextmanager
def claimed(key: str, settings: Settings, cwd: Path) -> Iterator[RunKey]:
    """Lock a key inside the block. Raises `UsageError` if another process holds the lock, and for an unusable key."""
    from prose_kernel.storage import runs

    if not key.strip() or not key.isprintable() or len(key) > _LONGEST:
        raise UsageError("--id: a key has 1 to 500 printable characters")
    directory = cwd / settings.state_dir
    try:
        atomic.keep_out_of_git(str(directory))
        path = directory / "keys" / hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        descriptor = plain_files.descriptor(path, os.O_RDWR | os.O_CREAT, 0o600, make=True)
    except OSError as error:
        raise _unusable(key, settings, error) from None
    with plain_files.closing(descriptor):
        try:
            plain_files.lock(descriptor)
        except BlockingIOError:
            hint = "wait until that one has ended"
            raise UsageError(f"--id {key}: another process runs the run with this key", hint=hint) from None
        run_id = os.read(descriptor, 64).decode("ascii", "replace").strip()
        kept = runs.with_id(runs.places(cwd, settings.state_dir), run_id)
        yield RunKey(key, descriptor, kept[0] if kept and kept[0].has_journal else None)


def _unusable(key: str, settings: Settings, error: OSError) -> UsageError:
    return UsageError(f"--id {key}: its file in {settings.state_dir}/keys cannot be used: {reason_of(error)}")
