"""The filesystem backend: the `Store` port in a directory (openprose.md 6.5, 7.1, 7.2, 7.4)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import structs

from prose_kernel.errors import StateError
from prose_kernel.runtime.ports import Binding, Key
from prose_kernel.runtime.values import Reference
from prose_kernel.state import bindings, layout
from prose_kernel.state.pending import PendingWrites

_YOUNG: Final = 1_000_000_000
"""Nanoseconds within which two writes might get the same time stamp."""


class FilesystemStore:
    """Keeps a run, or one call of an imported program, below `state_dir/runs/{run_id}`.

    `cwd` is the directory in which the program was started; paths below it are shown relative to it. The first flush
    after `put` or `start` creates the run directory.
    """

    def __init__(
        self,
        state_dir: Path,
        run_id: str,
        *,
        cwd: Path | None = None,
        home: Path | None = None,
        ignore_case: bool | None = None,
    ) -> None:
        cwd = Path.cwd() if cwd is None else cwd
        self.run_id = run_id
        self._state_dir = cwd / state_dir
        self._cwd = cwd
        self._home = home
        self._ignore_case = layout.ignores_case(self._state_dir) if ignore_case is None else ignore_case
        paths = layout.run_paths(self._state_dir, run_id)
        self.pending = PendingWrites(paths.directory)
        self._place(paths, ())

    def _place(self, paths: layout.RunPaths, chain: tuple[str, ...]) -> None:
        self.paths = paths
        self.chain = chain
        self._bindings = f"{paths.bindings}{os.sep}"
        self._names = layout.FileNames(ignore_case=self._ignore_case)
        self._calls: set[str] = set()
        self._sources = 0

    @property
    def directory(self) -> Path:
        """The directory of the run or of the imported program's call; it may not exist yet."""
        return self.paths.directory

    @property
    def state_dir(self) -> Path:
        """The absolute path of the directory that contains `runs/`."""
        return self._state_dir

    # ------------------------------------------------------------ the program

    def start(self, program: str) -> None:
        """Keep a copy of the run's program; the next flush creates the directory (3.1 step 2)."""
        self.pending.put(str(self.paths.program), program)

    def record_source(self, text: str) -> None:
        """Append a cell to the run's copy of the program. This alone does not create the directory."""
        self._sources += 1
        separator = "\n" if self._sources > 1 else ""
        self.pending.log(self.paths.program, f"{separator}{text.rstrip()}\n")

    @property
    def by_value(self) -> bool:
        """Whether context is passed by value: only if the directory cannot be written."""
        return self.pending.unavailable is not None

    @property
    def lost(self) -> str | None:
        reason = self.pending.unavailable
        if reason is None:
            return None
        place = layout.shown(self._state_dir, self._cwd)
        return f"the state directory '{place}' cannot be written ({reason}); this run is kept in memory"

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> FilesystemStore:
        """Return the store of an imported program's call, `imports/{handle}--{slug}[--number]` (6.5)."""
        name = self._call(f"{handle}--{slug}", number)
        store = object.__new__(FilesystemStore)
        store.run_id = self.run_id
        store._state_dir, store._cwd, store._home = self._state_dir, self._cwd, self._home
        store._ignore_case, store.pending = self._ignore_case, self.pending
        store._place(self.paths.imported(name), (*self.chain, name))
        store.start(source)
        return store

    def _call(self, wanted: str, number: int) -> str:
        wanted = layout.file_stem(wanted.replace("/", "_").replace("\0", "_"))
        name = wanted if number == 1 else f"{wanted}--{number}"
        while (name.casefold() if self._ignore_case else name) in self._calls:
            number += 1
            name = f"{wanted}--{number}"
        self._calls.add(name.casefold() if self._ignore_case else name)
        return name

    # ------------------------------------------------------------ bindings

    def put(self, binding: Binding) -> None:
        """Store a binding at the next flush. A reference is read now, because its binding may change."""
        if isinstance(binding.value, Reference):
            binding = structs.replace(binding, value=binding.value.read())
        self.pending.put(self._path(binding.key), binding)

    def read(self, key: Key) -> str:
        """Return the stored text of a binding, flushed or not. Raises `StateError` if it cannot be read."""
        path = self._path(key)
        pending = self.pending.get(path)
        if isinstance(pending, Binding):
            return bindings.body(pending.value)
        try:
            return bindings.value_of(Path(path).read_bytes().decode("utf-8", "replace"))
        except OSError as error:
            reason = "there is no such binding" if isinstance(error, FileNotFoundError) else str(error.strerror).lower()
            raise StateError(f"'{key.name}' could not be read: {reason}", details={"binding": key.name}) from None

    def mark(self, key: Key) -> object:
        """Return size, time and inode of the binding's file; None if it does not exist.

        The time stamp of a very young file is set back, because the next write might otherwise get the same one.
        """
        path = self._path(key)
        try:
            found = os.stat(path)  # noqa: PTH116 - called for every session
            changed = found.st_mtime_ns
            if time.time_ns() - changed < _YOUNG:
                changed -= _YOUNG
                os.utime(path, ns=(found.st_atime_ns, changed))
        except OSError:
            return None
        return found.st_size, changed, found.st_ino

    def location(self, key: Key) -> str:
        return layout.shown(Path(self._path(key)), self._cwd)

    def header(self, binding: Binding) -> str:
        return bindings.header(binding)

    def _path(self, key: Key) -> str:
        return f"{self._bindings}{self._names(key)}"

    # ------------------------------------------------------------ memory

    def memory(self, agent: str, persist: str) -> str:
        """Return the agent's memory directory as sessions see it, with a final `/` (4.4)."""
        return layout.shown(self._memory(agent, persist), self._cwd) + "/"

    def has_memory(self, agent: str, persist: str) -> bool:
        return (self._memory(agent, persist) / "memory.md").is_file()

    def _memory(self, agent: str, persist: str) -> Path:
        home = self._home or Path.home()
        return layout.memory_directory(
            agent, persist, run=self.directory, state_dir=self._state_dir, project=self._cwd, home=home
        )

    # ------------------------------------------------------------ writing

    def log(self, chain: tuple[str, ...]) -> Callable[[str], None]:
        """Return the function that appends whole lines to the trace of the program at `chain`; it never raises."""
        paths = layout.run_paths(self._state_dir, self.run_id)
        for name in chain:
            paths = paths.imported(name)
        place = paths.trace
        return lambda text: self.pending.log(place, text)

    def keep(self) -> None:
        """Let the next flush create the run directory."""
        self.pending.worth_keeping = True

    async def flush(self) -> None:
        """Write everything put so far to disk, in one batch. Raises `StateError` (E219) naming the binding."""
        await self.pending.flush()
