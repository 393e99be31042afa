"""Notes that the implementations of ports keep with an answer (docs/durability.md).

A memory, a recording, a count of tokens: each must learn what becomes of the answer that it has taken part in, and
must find its own facts again when the run is resumed. So while a request is asked there is an `Aside`. What is noted in
it is written into the journal together with the answer, and handed back when the answer is replayed. What is left for
`after` happens when the answer is safe in the journal: an undo record, for example, is needed until exactly then.

It is found through the context of the running task, so that nothing has to carry it through the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

cell: ContextVar[str] = ContextVar("prose_kernel_cell", default="")
"""The id of the notebook's cell that runs, as the front end tells it; "" where none does. Recordings keep it beside an
answer (docs/reference/sessions.md 4.2)."""

_asked: ContextVar[Aside | None] = ContextVar("prose_kernel_aside", default=None)


class Aside:
    """Of one request while it is asked. `key` is its name in the journal, whose file is `journal`."""

    __slots__ = ("_after", "journal", "key", "notes")

    def __init__(self, key: str, journal: str) -> None:
        self.key = key
        self.journal = journal
        self.notes: dict[str, object] = {}
        self._after: list[Callable[[bool], None]] = []

    def after(self, then: Callable[[bool], None]) -> None:
        """Call `then` when the answer is in the journal: with false where the program did not get it after all."""
        self._after.append(then)

    def settle(self, kept: bool) -> None:
        """The journal has the answer, or that there is none."""
        after, self._after = self._after, []
        for then in after:
            then(kept)


def current() -> Aside | None:
    """That of the request which is being asked; None where no journal is kept."""
    return _asked.get()


@contextmanager
def asking(aside: Aside) -> Iterator[Aside]:
    """A context for one request: this task, and those that it starts inside the block, act for it."""
    _asked.set(aside)
    try:
        yield aside
    finally:
        _asked.set(None)
