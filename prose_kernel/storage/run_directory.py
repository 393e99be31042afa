"""The directory of one run, with the program's copy, journal and logs, even if a database has the bindings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.runtime.ports import Store
from prose_kernel.storage import run_paths
from prose_kernel.storage.pending_writes import PendingWrites

if TYPE_CHECKING:
    from prose_kernel.runtime.events import Listener
    from prose_kernel.storage.database.ownership import Ownership
    from prose_kernel.storage.database.schema import Database


class RunDirectory:
    """The directory `state_dir/runs/{run_id}` and its files.

    `cwd` is the directory in which the program was started: a relative `state_dir` is relative to it, and paths below
    it are shown relative to it. The directory is not created before there is something worth keeping: a binding, the
    program of a file, or a trace line after the heading (`keep`). `pending` holds the contents not written yet.
    """

    def __init__(self, state_dir: Path, run_id: str, *, cwd: Path | None = None) -> None:
        self.run_id = run_id
        self.cwd = Path.cwd() if cwd is None else cwd
        self.state_dir = self.cwd / state_dir
        self.paths = run_paths.run_paths(self.state_dir, run_id)
        self.pending = PendingWrites(self.paths.directory)

    @property
    def directory(self) -> Path:
        """The directory of the run; it may not exist yet."""
        return self.paths.directory

    @property
    def attachments(self) -> Path:
        """The directory for values that are too large for a row of a database."""
        return self.paths.directory / "attachments"

    @property
    def unavailable(self) -> str | None:
        """The reason why the directory cannot be written, as a sentence for people; None if it can."""
        reason = self.pending.unavailable
        if reason is None:
            return None
        return f"the state directory '{self.shown(self.state_dir)}' cannot be written ({reason})"

    def shown(self, path: Path) -> str:
        """Return a path in the form for sessions and people."""
        return run_paths.shown(path, self.cwd)

    def paths_of(self, chain: tuple[str, ...]) -> run_paths.RunPaths:
        """Return the paths of the call of an imported program."""
        paths = self.paths
        for name in chain:
            paths = paths.imported(name)
        return paths

    def log(self, chain: tuple[str, ...]) -> Callable[[str], None]:
        """Return a function that appends whole lines to the trace of the program at `chain`, and never raises."""
        place = self.paths_of(chain).trace
        return lambda text: self.pending.log(place, text)

    def keep(self) -> None:
        """Let the next flush create the directory."""
        self.pending.worth_keeping = True


class RunStore(Store):
    """The base of stores for a whole run: begins, resumes and ends it, and keeps the files that every backend has.

    A store of the same run may be opened again by its id: `put` then replaces an existing binding. `chain` are the
    directory names of the imported programs' calls to which the store belongs. `user_home` contains the memories for
    the user; None means the user's home directory. Memories of agents are files in every backend (4.4).
    """

    chain: tuple[str, ...] = ()  # an attribute: the property of the protocol has no setter

    def __init__(self, home: RunDirectory, chain: tuple[str, ...], user_home: Path | None) -> None:
        self.home = home
        self.chain = chain
        self._user_home = user_home
        self._sources = 0

    def start(self, program: str, copies: Mapping[str, str] | None = None) -> None:
        """Keep the text of a program that is about to run (3.1 step 2); in files, keep `copies` (texts by path in the
        directory) instead if given. The next flush creates the directory."""
        for name, text in (copies or {self.home.paths.program.name: program}).items():
            self.home.pending.put(str(self.home.directory / name), text)

    def record_source(self, text: str) -> str:
        """Add a cell that is about to run to the kept text; return the added text. Does not create the directory."""
        self._sources += 1
        separator = "\n" if self._sources > 1 else ""
        added = f"{separator}{text.rstrip()}\n"
        self.home.pending.log(self.home.paths.program, added)
        return added

    def trace_text(self) -> str:
        """Return the trace up to the last flush, as lines of `state.md` (7.3)."""
        try:
            return plain_files.read_text(self.home.paths.trace, errors="replace")
        except OSError:
            return ""

    def restart(self) -> None:
        """Remove the trace and the text of the program at the next flush: a resumed run writes them again.

        Bindings stay until they are put again. Call this before the trace gets an event.
        """
        self._sources = 0
        self.home.pending.restart()

    def hold(self, held: bool) -> None:
        """Set whether flushes wait until there are some megabytes to write, while a resumed run catches up.

        `hold(False)` itself writes nothing; the next flush writes everything.
        """
        self.home.pending.hold(held)

    async def flush(self) -> None:
        """Write all pending contents in one batch. Raises `StateError` (E219), which names the binding."""
        await self.home.pending.flush()

    def interrupt(self) -> None:
        """Stop waiting for the store, from any thread. Nothing ever waits for files."""

    def close(self) -> None:
        """Release open resources at the end of the run; unflushed data is lost. No file is open between two writes."""

    @property
    def unavailable(self) -> str | None:
        """The reason why bindings cannot be kept, as a sentence for people; None if they can."""
        return self.home.unavailable

    @property
    def by_value(self) -> bool:
        """Whether context is passed by value: only if bindings cannot be kept."""
        return self.unavailable is not None

    @property
    def lost(self) -> str | None:
        return None if self.unavailable is None else f"{self.unavailable}; this run is kept in memory"

    def memory(self, agent: str, persist: str) -> str:
        """Return the agent's memory directory in the form for sessions, with a final `/`."""
        return f"{self.home.shown(self._memory(agent, persist))}/"

    def has_memory(self, agent: str, persist: str) -> bool:
        return (self._memory(agent, persist) / "memory.md").is_file()

    def _memory(self, agent: str, persist: str) -> Path:
        return run_paths.memory_directory(
            agent,
            persist,
            run=self.home.paths_of(self.chain).directory,
            state_dir=self.home.state_dir,
            project=self.home.cwd,
            home=self._user_home or Path.home(),
        )


class StoredRun(Struct, frozen=True):
    """The parts of a run that is stored outside of memory. The directory is on disk; a database may have the bindings.

    `trace` is the listener that writes the trace; `copy` writes the copy of the journal in a database of many runs.
    """

    home: RunDirectory
    store: RunStore
    trace: Listener
    database: Database | None = None
    copy: Ownership | None = None
