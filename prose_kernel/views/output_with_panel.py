"""Show a panel among the outputs of a watched cell, and remove it before the notebook is saved.

Jupyter cannot remove a single output: displays stay in the notebook. So this output keeps the cell's outputs, and
removes the panel by clearing the cell and showing all of them again, in one step (`clear_output` with `wait`, without
flicker). The notebook then has the same outputs as without a watching person (docs/reference/jupyter.md 7). Most cells
do this once, at their end. A cell that has shown much, or has asked the person something (the front end puts the answer
among its outputs), gets no panel.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from prose_kernel.runtime.ports import Stream
from prose_kernel.views.display import Display, ForwardingOutput, Output, Problem

if TYPE_CHECKING:
    from prose_kernel.runtime.services import Asker

MAX_CHARACTERS: Final = 200_000
"""The most characters that are shown a second time."""
MAX_OUTPUTS: Final = 60
"""The most outputs that are shown a second time."""
_REACHES_PERSON: Final = ("ask", "show")
"""The prefixes of an asker's methods that show something to the person."""


class OutputWithPanel(ForwardingOutput):
    """An `Output` that wraps another one. Call `disable_panel` before anything else writes to the cell."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self.may_show_panel = bool(getattr(output, "whole_cell", True))
        """Whether the cell may have a panel."""
        self._shown: list[tuple[Stream, list[str]] | tuple[Display, str | None]] = []
        self._size = 0
        self._panel: str | None = None
        self._last: Display | None = None

    @property
    def in_place(self) -> bool:
        return bool(getattr(self._output, "in_place", True))

    # ------------------------------------------------------------ the panel

    def show_panel(self, display: Display) -> None:
        """Show the panel, or replace its content."""
        if not self.may_show_panel or display == self._last:
            return
        self._last = display
        if self._panel is None:
            self._panel = uuid.uuid4().hex
            self._output.display(display, self._panel)
        else:
            self._output.update(display, self._panel)

    def remove_panel(self, *, more: bool = False) -> None:
        """Remove the panel; `more`: another output follows immediately."""
        if self._panel is None:
            return
        self._panel = self._last = None
        self._output.clear(wait=more or bool(self._shown))
        for shown in self._shown:
            if isinstance(shown[0], Display):
                self._output.display(*shown)
            else:
                self._output.stream(shown[0], "".join(shown[1] or ()))

    def disable_panel(self) -> None:
        """Show no panel in this cell from now on."""
        self.remove_panel()
        self.may_show_panel = False
        self._shown = []

    # ------------------------------------------------------------ the outputs

    def stream(self, name: Stream, text: str) -> None:
        self._output.stream(name, text)
        if not self.may_show_panel:
            return
        if self._shown and self._shown[-1][0] == name:
            self._shown[-1][1].append(text)
        else:
            self._shown.append((name, [text]))
        self._count_size(len(text))

    def display(self, display: Display, display_id: str | None = None) -> None:
        self._output.display(display, display_id)
        if self.may_show_panel:
            self._shown.append((display, display_id))
            self._count_size(_size(display))

    def update(self, display: Display, display_id: str) -> None:
        self._output.update(display, display_id)
        for at, shown in enumerate(self._shown):
            if shown[1] == display_id:
                self._shown[at] = (display, display_id)

    def _count_size(self, size: int) -> None:
        self._size += size
        if self._size > MAX_CHARACTERS or len(self._shown) > MAX_OUTPUTS:
            self.disable_panel()

    def result(self, display: Display) -> None:
        self.remove_panel(more=True)
        self._output.result(display)

    def error(self, problem: Problem) -> None:
        self.remove_panel(more=True)
        self._output.error(problem)

    def clear(self, *, wait: bool = False) -> None:
        self._output.clear(wait=wait)
        self._shown, self._size, self._panel, self._last = [], 0, None, None


def _size(display: Display) -> int:
    return sum(map(len, display.data.values())) + sum(map(len, display.person.values()))


class PanelRemovingAsker:
    """An asker that removes the panel of the cell before it shows something to the person."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self.output: OutputWithPanel | None = None

    def __getattr__(self, name: str) -> Any:
        if self.output is not None and name.startswith(_REACHES_PERSON):
            self.output.disable_panel()
        return getattr(self._asker, name)
