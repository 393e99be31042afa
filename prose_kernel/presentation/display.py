"""What a front end can do with the outputs of a cell. The kernel and `%%prose` each implement `Output` once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prose_kernel.runtime.ports import Stream


@dataclass(frozen=True, slots=True)
class Display:
    """A MIME bundle. `facts` holds what varies from run to run (durations, models, run ids): it becomes the output's
    metadata under the key `prose` and takes no part in comparisons of notebooks."""

    data: Mapping[str, str]
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, object]:
        return {"prose": dict(self.facts)} if self.facts else {}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error output: stable name and value; the traceback holds prose lines only, with ANSI colours."""

    ename: str
    evalue: str
    traceback: tuple[str, ...]


class Output(Protocol):
    """Where the outputs of one cell go, in the order of the calls."""

    def stream(self, name: Stream, text: str) -> None:
        """Append text to a stream; it is on its way when the call returns."""
        ...

    def display(self, display: Display, display_id: str | None = None) -> None:
        """Show a bundle; with an id it can be replaced later."""
        ...

    def update(self, display: Display, display_id: str) -> None:
        """Replace the bundle shown under an id."""
        ...

    def result(self, display: Display) -> None:
        """The cell's last value. At most once a cell, as the last output."""
        ...

    def error(self, problem: Problem) -> None:
        """The cell failed. At most once, as the last output."""
        ...

    def clear(self) -> None:
        """Remove the outputs that the cell has shown so far."""
        ...

    def page(self, display: Display) -> None:
        """Show help beside the notebook, where the front end has a place for it."""
        ...
