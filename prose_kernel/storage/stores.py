"""The `Store` port without a database: bindings in memory or in files (openprose.md 6.5, 7.1, 7.4, 7.6)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prose_kernel.access import plain_files
from prose_kernel.errors import StateError, reason_of
from prose_kernel.runtime.ports import AnswerFile, Binding, Key
from prose_kernel.storage import bindings, run_paths
from prose_kernel.storage.run_directory import RunDirectory, RunStore


class MemoryStore:
    """Keeps the bindings of a run, or of an imported program's call, in memory. Context is passed by value (7.6),
    except in the replay of a run with another backend."""

    in_files: Final = False
    lost: Final = None

    def __init__(
        self, *, cwd: Path | None = None, home: Path | None = None, chain: tuple[str, ...] = (), by_value: bool = True
    ) -> None:
        self.chain = chain
        self.by_value = by_value
        self._cwd = cwd or Path.cwd()
        self._home = home
        self._bindings: dict[Key, Binding] = {}

    def put(self, binding: Binding) -> None:
        self._bindings[binding.key] = bindings.with_value(binding)

    def read(self, key: Key) -> str:
        if key not in self._bindings:
            raise StateError(f"'{key.name}' could not be read: there is no such binding", details={"binding": key.name})
        return bindings.body(self._bindings[key].value)

    def watch(self, key: Key) -> Callable[[], bool]:
        """Return a function that returns False: no session can write here."""
        return lambda: False

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        """Return the binding's name in the transcript; there is no file to read."""
        return run_paths.key_stem(key)

    def target(self, binding: Binding) -> None:
        """Return None: sessions reply with their answer."""

    def memory(self, agent: str, persist: str) -> str:
        """Return the directory of an agent's memory; the memory for one run has no directory, only a name."""
        place = self._memory(agent, persist)
        return f"agents/{agent}/" if place is None else f"{run_paths.shown(place, self._cwd)}/"

    def has_memory(self, agent: str, persist: str) -> bool:
        place = self._memory(agent, persist)
        return place is not None and (place / "memory.md").is_file()

    def _memory(self, agent: str, persist: str) -> Path | None:
        if persist == "true":
            return None
        state_dir = self._cwd / ".prose"
        home = self._home or Path.home()
        return run_paths.memory_directory(
            agent, persist, run=state_dir, state_dir=state_dir, project=self._cwd, home=home
        )

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> MemoryStore:
        name = f"{handle}--{slug}" if number == 1 else f"{handle}--{slug}--{number}"
        return MemoryStore(cwd=self._cwd, home=self._home, chain=(*self.chain, name), by_value=self.by_value)

    async def flush(self) -> None:
        """Do nothing: there are no pending writes."""


_YOUNG: Final = 1_000_000_000
"""Nanoseconds within which two writes might get the same time stamp."""


class FilesystemStore(RunStore):
    """Keeps the bindings of a run, or of one call of an imported program, in the directory of the run.

    The first flush after `put` creates this directory.
    """

    in_files: Final = True

    def __init__(
        self,
        home: RunDirectory,
        *,
        chain: tuple[str, ...] = (),
        user_home: Path | None = None,
        ignore_case: bool | None = None,
    ) -> None:
        super().__init__(home, chain, user_home)
        self._ignore_case = run_paths.ignores_case(home.state_dir) if ignore_case is None else ignore_case
        self.paths = home.paths_of(chain)
        self._bindings = f"{self.paths.bindings}{os.sep}"
        self._shown = f"{home.shown(self.paths.bindings)}/"
        self._names = run_paths.FileNames(ignore_case=self._ignore_case)
        self._calls = run_paths.CallNames(ignore_case=self._ignore_case)

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> FilesystemStore:
        """Return the store of an imported program's call, `imports/{handle}--{slug}[--number]` (6.5)."""
        chain = (*self.chain, self._calls(handle, slug, number))
        store = FilesystemStore(self.home, chain=chain, user_home=self._user_home, ignore_case=self._ignore_case)
        if source:
            self.home.pending.put(str(store.paths.program), source)
        return store

    def put(self, binding: Binding) -> None:
        """Store a binding at the next flush. A reference is read immediately, because its binding may change."""
        self.home.pending.put(self._path(binding.key), bindings.with_value(binding))

    def read(self, key: Key) -> str:
        """Return the stored text of a binding, flushed or not. Raises `StateError` if it cannot be read."""
        path = self._path(key)
        pending = self.home.pending.get(path)
        if isinstance(pending, Binding):
            return bindings.body(pending.value)
        try:
            return bindings.value_of(plain_files.read(path, plain_files.HUGE).decode("utf-8", "replace"))
        except OSError as error:
            reason = "there is no such binding" if isinstance(error, FileNotFoundError) else reason_of(error)
            raise StateError(f"'{key.name}' could not be read: {reason}", details={"binding": key.name}) from None

    def watch(self, key: Key) -> Callable[[], bool]:
        """Return a function that compares size, time and inode of the binding's file with the present ones.

        The time of a file that was just written is set back, because the next write might get the same time.
        """
        path = self._path(key)
        before = _stamp(path)
        return lambda: _stamp(path) not in (None, before)

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        if not within:
            return f"{self._shown}{self._names(key)}"
        inner = self.home.paths_of((*self.chain, *within))
        return self.home.shown(inner.bindings / run_paths.FileNames(ignore_case=self._ignore_case)(key))

    def target(self, binding: Binding) -> AnswerFile | None:
        """Return the file into which a session writes its answer; None if the directory cannot be written."""
        if self.by_value:
            return None
        return AnswerFile(binding.key.name, self.location(binding.key), bindings.header(binding))

    def _path(self, key: Key) -> str:
        return f"{self._bindings}{self._names(key)}"


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - called for every session
        changed = found.st_mtime_ns
        if time.time_ns() - changed < _YOUNG:
            changed -= _YOUNG
            os.utime(path, ns=(found.st_atime_ns, changed))
    except OSError:
        return None
    return found.st_size, changed, found.st_ino
