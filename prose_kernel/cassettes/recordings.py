"""The recordings of one run: which records exist, which were used, which are still to be written (sessions.md 4.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prose_kernel.runtime.ports import Clock, SessionRequest
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.session_options import CassetteMode, CassetteOptions, Rule, Surroundings

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_files import Entry
    from prose_kernel.cassettes.cassette_store import CassetteStore
    from prose_kernel.cassettes.keys import ToolNames
    from prose_kernel.cassettes.records import Meta

# Nothing is imported, compiled or read before the first session or judgement: most cells have none.


def no_tools(request: SessionRequest) -> tuple[str, ...]:
    return ()


class Cassettes:
    """All recordings that a run may replay, and the one it writes.

    One object for each run, kept when the provider changes; `tool_names` says which tools the permissions of a session
    could ever allow (whoever answers), `permissions` are the host's rules. Raises `UsageError` for options that make
    no sense. Close it when the run ends.
    """

    def __init__(
        self,
        options: CassetteOptions,
        where: Surroundings,
        clock: Clock,
        *,
        tool_names: ToolNames = no_tools,
        permissions: Mapping[str, Rule] | None = None,
    ) -> None:
        self.options = options
        self.where = where
        self.clock = clock
        self._tool_names = tool_names
        self._permissions = dict(permissions or {})
        self._opened: CassetteStore | None = None
        self._warnings: deque[str] = deque()
        self.on_use: Callable[[str, Meta], None] | None = None
        self._mode: CassetteMode = options.mode or "replay"
        if options.name:
            from prose_kernel.cassettes.cassette_files import own_path

            own_path(options, where)  # says now what a name lacks

    @contextmanager
    def answering(self, at: str, asker: Asker) -> Iterator[CassetteStore]:
        """Give the open cassettes to a request at this path ("": one that takes part in no race), and show the person
        what is wrong with them."""
        shelf = self.shelf
        try:
            yield shelf
        finally:
            if at:
                shelf.took_part(at)
            while self._warnings:
                asker.show(f"Warning: {self._warnings.popleft()}")

    @property
    def shelf(self) -> CassetteStore:
        """The cassettes, open: reads them when it is first asked for."""
        if self._opened is None:
            from prose_kernel.cassettes.cassette_store import CassetteStore

            self._opened = CassetteStore(
                self.options, self.where, self.clock, self._tool_names, self._permissions, self._warnings.append
            )
            self._opened.on_use = self.on_use
        return self._opened

    def mode(self, asker: Asker) -> CassetteMode:
        """The mode in force: as chosen, else `auto` in an interactive run, `replay` in any other."""
        answered = asker.available and self.where.attended
        self._mode = self.options.mode or ("auto" if answered else "replay")
        return self._mode

    def note_ask(self, at: str, question: str, answer: str) -> None:
        """Write down a permission question and its answer, for reading; it never grants anything."""
        if self._mode in ("auto", "record"):
            self.shelf.add_at_once("ask", at, {"question": question, "answer": answer}, self.shelf.meta())

    def unused(self) -> tuple[Entry, ...]:
        """Records of the cassettes in use that this run has not needed, in file order."""
        return tuple(self._opened.unused()) if self._opened is not None else ()

    def used(self) -> frozenset[tuple[str, bytes]]:
        """The lines that this run has used, each with the path of its cassette: what `prose cassette prune` keeps."""
        found = self._opened.cassettes if self._opened is not None else ()
        return frozenset((str(one.path), entry.raw) for one in found for entry in one.entries if entry.used)

    def note_used(self, lines: frozenset[tuple[str, bytes]]) -> None:
        """Something beside the program has used these lines, as `used` gives them."""
        if lines:
            self.shelf.note_used(lines)

    def close(self) -> None:
        """The run is over: write what is pending, take out what was replaced. A second call does nothing."""
        if self._opened is not None:
            self._opened.close()


class _Lent(Cassettes):
    """Recordings that many runs use, so that the end of a run does not close them."""

    def close(self) -> None: ...

    def end(self) -> None:
        super().close()


class SharedCassettes:
    """The recordings of many runs in the same place, read once, and ended by whoever has made this. `on_use` gets
    the path of each request that a record answers, and the record's facts."""

    def __init__(self, on_use: Callable[[str, Meta], None]) -> None:
        self._on_use = on_use
        self._made: list[tuple[object, _Lent]] = []

    def __call__(
        self,
        options: CassetteOptions,
        where: Surroundings,
        clock: Clock,
        *,
        tool_names: ToolNames = no_tools,
        permissions: Mapping[str, Rule] | None = None,
    ) -> Cassettes:
        """Those of a run with these options and permissions, which decide what a request is; the arguments of
        `Cassettes`."""
        asked = (options, where, dict(permissions or {}))
        made = next((one for former, one in self._made if former == asked), None)
        if made is None:
            made = _Lent(options, where, clock, tool_names=tool_names, permissions=permissions)
            made.on_use = self._on_use
            self._made.append((asked, made))
        return made

    def used(self) -> frozenset[tuple[str, bytes]]:
        """The lines that the runs have used, each with the path of its cassette."""
        return frozenset().union(*(one.used() for _, one in self._made))

    def end(self) -> None:
        """All runs are over. A second call does nothing."""
        for _, one in self._made:
            one.end()
        self._made.clear()
