"""The recordings of one run: which records exist, which were used, and which are pending (sessions.md 4.2)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from prose_kernel.runtime.ports import Clock, SessionRequest, Usage
from prose_kernel.runtime.services import Asker
from prose_kernel.runtime.session_options import CassetteMode, CassetteOptions, Rule, Surroundings

if TYPE_CHECKING:
    from prose_kernel.cassettes.cassette_files import PlacedRecord
    from prose_kernel.cassettes.cassette_store import CassetteStore
    from prose_kernel.cassettes.keys import ToolNames
    from prose_kernel.cassettes.records import Meta

# Nothing is imported, compiled or read before the first session or judgement: most cells have none.


def no_tools(request: SessionRequest) -> tuple[str, ...]:
    return ()


@dataclass(eq=False)
class Cassettes:
    """All recordings that a run may replay, and the one it writes.

    Create one for each run; it stays when the provider changes. Close it when the run ends. Raises `UsageError` for
    invalid options.

    - `tool_names` lists the tools that the permissions of a session could allow, for any provider.
    - `permissions` are the host's rules.
    - `on_use` gets the path of each request that a record answers, and the record's facts.
    - `consumed` gets the provider, model and usage of an answer whose request is cancelled while it is recorded.
    """

    options: CassetteOptions
    where: Surroundings
    clock: Clock
    _: KW_ONLY
    tool_names: ToolNames = no_tools
    permissions: Mapping[str, Rule] = field(default_factory=dict)
    on_use: Callable[[str, Meta], None] | None = None
    consumed: Callable[[str, str, Usage | None], object] = lambda provider, model, usage: None
    is_shared: bool = False
    """Whether several runs share it, so that the end of one does not close it."""

    def __post_init__(self) -> None:
        self.warnings: deque[str] = deque()
        self._opened: CassetteStore | None = None
        self._mode: CassetteMode = self.options.mode or "replay"
        if self.options.name:
            from prose_kernel.cassettes.cassette_files import own_path

            own_path(self.options, self.where)  # raises now for an invalid name

    @contextmanager
    def answering(self, at: str, asker: Asker) -> Iterator[CassetteStore]:
        """Yield the open cassettes for a request at this path ("": it takes part in no race), then show their warnings
        to the person."""
        store = self.store
        try:
            yield store
        finally:
            if at:
                store.note_request(at)
            while self.warnings:
                asker.show(f"Warning: {self.warnings.popleft()}")

    @contextmanager
    def counting(self, provider: str, model: str, usage: Usage | None) -> Iterator[None]:
        """Record an answer inside the block."""
        try:
            yield
        except asyncio.CancelledError:
            self.consumed(provider, model, usage)
            raise

    @property
    def store(self) -> CassetteStore:
        """Return the open cassettes; the first access reads them."""
        if self._opened is None:
            from prose_kernel.cassettes.cassette_store import CassetteStore

            self._opened = CassetteStore(self)
        return self._opened

    def mode(self, asker: Asker) -> CassetteMode:
        """Return the current mode: as chosen, else `auto` in an interactive run, `replay` in any other."""
        answered = asker.available and self.where.attended
        self._mode = self.options.mode or ("auto" if answered else "replay")
        return self._mode

    def note_ask(self, at: str, question: str, answer: str) -> None:
        """Record a permission question and its answer, for people; the record never grants anything."""
        if self._mode in ("auto", "record"):
            self.store.add_nowait("ask", at, {"question": question, "answer": answer}, self.store.meta())

    def unused(self) -> tuple[PlacedRecord, ...]:
        """Return the records of used cassettes that this run has not needed, in file order."""
        return tuple(self._opened.unused()) if self._opened is not None else ()

    def used(self) -> frozenset[tuple[str, bytes]]:
        """Return the lines that this run has used, each with the path of its cassette: `prose cassette prune` keeps
        them."""
        found = self._opened.cassettes if self._opened is not None else ()
        return frozenset((str(one.path), entry.raw) for one in found for entry in one.entries if entry.used)

    def note_used(self, lines: frozenset[tuple[str, bytes]]) -> None:
        """Note that another part of the run has used these lines, as returned by `used`."""
        if lines:
            self.store.note_used(lines)

    def close(self) -> None:
        """Write pending records and remove replaced ones. A second call does nothing."""
        if self._opened is not None and not self.is_shared:
            self._opened.close()


class SharedCassettes:
    """The recordings of several runs in the same place, read once, closed by their creator. For `on_use` see
    `Cassettes`."""

    def __init__(self, on_use: Callable[[str, Meta], None]) -> None:
        self._on_use = on_use
        self._made: list[Cassettes] = []

    def shared(self, new: Cassettes) -> Cassettes:
        """Return the recordings with the same options and permissions, which determine what a request is; else `new`,
        which later runs then share."""
        for one in self._made:
            if (one.options, one.where, one.permissions) == (new.options, new.where, new.permissions):
                return one
        new.on_use, new.is_shared = self._on_use, True
        self._made.append(new)
        return new

    def used(self) -> frozenset[tuple[str, bytes]]:
        """Return the lines that the runs have used, each with the path of its cassette."""
        return frozenset().union(*(one.used() for one in self._made))

    def end(self) -> None:
        """Close all recordings after the last run. A second call does nothing."""
        for one in self._made:
            one.is_shared = False
            one.close()
        self._made.clear()
