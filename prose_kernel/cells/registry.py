"""What a line magic is, and the table of all of them: each magic registers itself where it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prose_kernel.errors import UsageError
from prose_kernel.presentation.display import Display, Output

if TYPE_CHECKING:
    from prose_kernel.cells.runner import Cells
    from prose_kernel.presentation.cell_view import CellView


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a magic: its words (as a shell would split them), the text as written, where to show things.

    `below` is the program text after the magic, for those that look at it instead of letting it run.
    """

    cells: Cells
    words: tuple[str, ...]
    text: str
    output: Output
    view: CellView
    below: str = ""

    def show(self, display: Display) -> None:
        self.output.display(display)

    def say(self, text: str) -> None:
        self.show(Display({"text/plain": text}))


Run = Callable[[Call], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Magic:
    """A magic: how it is written, what it does in one line, what runs it. `raw`: its text is not split into words."""

    name: str
    usage: str
    summary: str
    run: Run
    raw: bool = False


MAGICS: dict[str, Magic] = {}


def magic(usage: str, summary: str, *more: str, raw: bool = False) -> Callable[[Run], Magic]:
    """Register a magic under the name in its usage, and under `more` names."""

    def register(run: Run) -> Magic:
        name = usage.split()[0].removeprefix("%")
        for known in (name, *more):
            MAGICS[known] = Magic(known, usage.replace(f"%{name}", f"%{known}", 1), summary, run, raw)
        return MAGICS[name]

    return register


def use(call: Call, magic: Magic, least: int, most: int) -> None:
    """Raises `UsageError` when a magic is given too few or too many words."""
    if not least <= len(call.words) <= most:
        raise UsageError(
            f"%{magic.name}: {'too few' if len(call.words) < least else 'too many'} words", hint=f"usage: {magic.usage}"
        )
