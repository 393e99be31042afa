"""Collects the file writes of a run and writes them in batches: whole files, and logs that only grow.

A run and the programs that it imports share one `PendingWrites`. It writes nothing before the first binding or program,
so a notebook that ran only comments leaves no directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from pathlib import Path
from typing import Final

from prose_kernel.access import jsonl, plain_files
from prose_kernel.access.atomic import keep_out_of_git, write_whole
from prose_kernel.errors import StateError, StoreFailed, reason_of
from prose_kernel.runtime.ports import Binding
from prose_kernel.runtime.values import ExecText
from prose_kernel.storage import bindings
from prose_kernel.storage.run_paths import STATE

_NO_MORE_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_SPILL: Final = 256 * 1024
_MOST_UNWRITTEN: Final = 8 * 1024 * 1024
_SMALL_BATCH: Final = 64 * 1024
_PER_FILE: Final = 8 * 1024
MOST_HELD: Final = 4 * 1024 * 1024
"""About how many bytes of values are held back while a resumed run catches up (`hold`)."""
_HINT: Final = "make room, or check who may write to the state directory; the value is kept and will be tried again"
_GAP: Final = "… lines are missing here: the log could not be written\n".encode()


class PendingWrites:
    """The contents that are not yet on disk. Call `put` and `log` in the event loop's thread.

    `flush` writes a large batch in a worker thread, but a small one in the calling thread, because changing threads
    costs more than writing three small files. If `directory` cannot be created, `unavailable` has the reason, and all
    contents stay in memory.
    """

    def __init__(self, directory: Path) -> None:
        self.worth_keeping = False
        self.unavailable: str | None = None
        self._directory = directory
        self._exists = False
        self._files: dict[str, Binding | str] = {}  # by path as `str`, because `Path` is slow to hash
        self._being_written: dict[str, Binding | str] = {}
        self._logs: dict[Path, bytearray] = {}
        self._reported: set[str] = set()
        self._renewed: set[str] = set()
        self._spill_at = _SPILL
        self._weight = 0
        self._held = False
        self._restarted: set[Path] | None = None
        self._swap = threading.Lock()
        self._disk = threading.Lock()

    def hold(self, held: bool) -> None:
        """Set whether flushes wait until there is much to write, while a resumed run catches up."""
        self._held = held

    def restart(self) -> None:
        """Begin every log again: its first piece replaces the content that an earlier process has written."""
        with self._swap:
            self._logs.clear()
            self._restarted = set()

    def put(self, path: str, content: Binding | str) -> None:
        """Set the complete content of the file `path`; the last call before a flush wins."""
        with self._swap:
            files = self._files
            former = files.get(path)
            self._weight += weight(content) + (_PER_FILE if former is None else -weight(former))
            files[path] = content
            if self._reported:
                self._reported.discard(path)
            self._renewed.add(path)
        self.worth_keeping = True

    def get(self, path: str) -> Binding | str | None:
        """Return the content of `path` that is not yet on disk, or None."""
        with self._swap:
            return self._files.get(path) or self._being_written.get(path)

    def log(self, path: Path, text: str) -> None:
        """Append to the log `path`. Never raises. A long log is written before the next flush, in large pieces."""
        if self.unavailable is not None:
            return
        with self._swap:
            log = self._logs.get(path)
            if log is None:
                log = self._logs[path] = bytearray()
            log += text.encode("utf-8", "replace")
            full = len(log) > self._spill_at
        if full and self.worth_keeping and self._disk.acquire(blocking=False):
            try:
                if self.is_available():
                    self._spill(path)
            finally:
                self._disk.release()

    def _spill(self, path: Path) -> None:
        try:
            self._write_log(path)
            self._spill_at = _SPILL
        except OSError:
            with self._swap:
                log = self._logs[path]
                if len(log) > _MOST_UNWRITTEN:  # the log must not fill the memory
                    log[:] = _GAP
            self._spill_at = len(log) + _SPILL  # do not retry with every line

    def is_available(self) -> bool:
        """Create the directory if necessary; return whether it exists. Without it the run stays in memory."""
        if self._exists or self.unavailable is not None:
            return self._exists
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if (state := self._directory.parent.parent).name == STATE:
                keep_out_of_git(str(state))
        except OSError as error:
            self.unavailable = _reason(error)
            self._logs.clear()
            with contextlib.suppress(OSError):
                self._directory.rmdir()  # only if it is empty: files of an earlier process stay
        else:
            self._exists = True
        return self._exists

    async def flush(self) -> None:
        """Write all pending contents. Raises `StateError`, which names contents that could not be written.

        These stay pending. Each failure is reported once and then retried silently, because a later command of the run
        may free space.
        """
        if not self.worth_keeping or self.unavailable is not None:
            return
        if self._held and self._weight + sum(map(len, self._logs.values())) < MOST_HELD:
            return
        if not (self._files or self._being_written or any(self._logs.values())):
            return
        if self._weight <= _SMALL_BATCH and not self._being_written:
            self.write()
        else:
            await asyncio.to_thread(self.write)

    def write(self) -> None:
        """Write all pending contents, as `flush` does, for callers without an event loop."""
        with self._disk:
            if not self.is_available():
                return
            problems = self._write_files()
            for path in list(self._logs):
                try:
                    self._write_log(path)
                except OSError as error:
                    problems[str(path)] = (path.name, _reason(error))
            new = [problem for path, problem in problems.items() if path not in self._reported]
            with self._swap:
                self._reported = set(problems) - self._renewed
        if new:
            raise storage_error(new, _HINT)

    def _write_files(self) -> dict[str, tuple[str, str]]:
        with self._swap:
            batch, self._files, self._weight = self._files, {}, 0
            self._renewed = set()
            self._being_written = batch
        problems: dict[str, tuple[str, str]] = {}
        unwritten: dict[str, Binding | str] = {}
        full: str | None = None
        for path, content in batch.items():
            reason = full
            if reason is None:
                try:
                    if isinstance(content, str):
                        write_whole(path, content)
                    else:
                        write_whole(path, bindings.header(content), bindings.body(content.value))
                    continue
                except OSError as error:
                    reason = _reason(error)
                    full = reason if error.errno in _NO_MORE_ROOM else None
                except RecursionError:
                    reason = "its value is nested too deeply"
                except StateError as error:
                    reason = error.message
            problems[path] = (Path(path).name if isinstance(content, str) else content.key.name, reason)
            unwritten[path] = content
        with self._swap:
            self._files = {**unwritten, **self._files}
            self._being_written = {}
        return problems

    def _write_log(self, path: Path) -> None:
        from prose_kernel.runtime.redaction import hidden_of_process

        with self._swap:
            log = self._logs[path]
            if not log:
                return
            log[:] = data = hidden_of_process()(log.decode("utf-8", "replace")).encode("utf-8", "replace")
        restarted = self._restarted is not None and path not in self._restarted
        written = append(path, data, truncate=restarted)
        with self._swap:
            del self._logs[path][:written]
            if self._restarted is not None:
                self._restarted.add(path)
        if written < len(data):
            raise OSError(errno.ENOSPC, "no space left on the disk")


def append(path: Path, data: bytes, *, truncate: bool = False) -> int:
    """Append to a file, or replace its content; return how many bytes were written. Raises `OSError` for none."""
    with plain_files.closing(jsonl.opened(path)) as descriptor:
        if truncate:
            os.ftruncate(descriptor, 0)
        return os.write(descriptor, data)


def weight(content: Binding | str) -> int:
    """Estimate the size of a content in bytes, without rendering it."""
    value = content if isinstance(content, str) else content.value
    if isinstance(value, str):
        return len(value)
    if isinstance(value, ExecText):
        return len(value.text)
    return _SMALL_BATCH if isinstance(value, (list, dict)) and len(value) > 100 else 0


def _reason(error: OSError) -> str:
    return reason_of(error, type(error).__name__)


def storage_error(problems: list[tuple[str, str]], hint: str) -> StoreFailed:
    """Return the error (E219) for names that could not be stored, each with its reason."""
    name, reason = problems[0]
    others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return StoreFailed(f"'{name}' could not be stored: {reason}{others}", details={"binding": name}, hint=hint)
