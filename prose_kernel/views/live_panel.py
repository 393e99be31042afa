"""The live view in a notebook: its place, its refresh, and the form of its lines.

While branches run, it is shown in the place of their results, which replace it at the join. Other long work (a loop, a
command whose output is bound to a name, a judged condition, a wait before a retry) is shown in a panel, which is
removed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import Final

from prose_kernel.runtime.events import Event
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.running_loops import OpenLoop
from prose_kernel.views.bundle import QUIET, TABLE, card, quiet, row, wide_row
from prose_kernel.views.display import Display
from prose_kernel.views.escaping import Html, html, tag, visible
from prose_kernel.views.live_run import LiveRun
from prose_kernel.views.live_text import RUNS, LiveLine
from prose_kernel.views.output_with_panel import OutputWithPanel
from prose_kernel.views.refresh import Refresh, Time

DELAY: Final = 0.5
"""Seconds after which the panel shows an activity."""
SILENT: Final = 2.0
"""Seconds without output after which the panel shows a command whose output has its own display."""
STEADY: Final = 0.5
"""Seconds between two updates while only the time changes; an unchanged display is not sent again."""


class LivePanel:
    """A listener of all events of a cell that a person watches."""

    def __init__(
        self,
        output: OutputWithPanel,
        clock: Time | None = None,
        loops: Callable[[], Collection[OpenLoop]] = tuple,
        asked: Callable[[SessionRequest], str] | None = None,
    ) -> None:
        clock = clock or Time()
        self.run = LiveRun(
            clock.now,
            loops,
            asked,
            # outside of branches, the output of a bare command has a separate display
            is_shown_elsewhere=lambda work: not work.branches and work.bare,
            has_own_view=lambda work: work.kind == "session" and not work.branches,
        )
        self.output = output
        self._refresh = Refresh(self._draw, clock)
        self._join: str | None = None
        self._joining: Display | None = None
        self._visible = False
        self.time_passes: Callable[[], None] = lambda: None
        """Called periodically while a session with a separate display runs."""

    def hear(self, event: Event) -> None:
        if type(event) in LiveRun.kinds:
            self.run(event)
            self._refresh.changed()

    def join(self, display_id: str) -> Display:
        """Return the first display of starting branches; `display_id` is its id."""
        self._join, self._joining = display_id, live_display(self.run.lines())
        return self._joining

    def joined(self) -> None:
        self._join = None

    def end(self) -> None:
        """Stop the live view at the end of the cell."""
        self._refresh.stop()
        self._join = None
        self.output.remove_panel()

    def _draw(self) -> float | None:
        alone = self.run.oldest_with_own_view()
        if alone is not None and self.output.may_show_panel and self.run.now() - alone >= DELAY:
            self.time_passes()
        if self._join is not None:
            display = live_display(self.run.lines())
            if display != self._joining:
                self.output.update(display, self._join)
                self._joining = display
            return STEADY
        if not self._visible:
            since = self.run.since(SILENT)
            if since is None:
                return DELAY
            if (wait := since + DELAY - self.run.now()) > 0.001:
                return wait
        if lines := self.run.lines():
            self._visible = True
            self.output.show_panel(live_display(lines))
        return STEADY


# ---------------------------------------------------------------- lines


def live_display(lines: Sequence[LiveLine]) -> Display:
    """Return lines as a MIME bundle. It has no collapsible parts, because each update would collapse them again."""
    parts: list[Html] = []
    for in_table, found in groupby(lines, lambda line: line.depth > 0):
        some = list(found)
        parts += [tag("table", *map(_row, some), style=TABLE)] if in_table else map(_block, some)
    return card(parts, map(plain_line, lines))


def _block(line: LiveLine) -> Html:
    bar: Sequence[str] = ()
    if line.done:
        bar = tag("progress", value=str(line.done[0]), max=str(max(line.done[1], 1))), " "
    details = "".join(f" · {part}" for part in (*line.about, line.time) if part)
    mark = "" if line.mark in (RUNS, " ") else f"{line.mark} "
    name = tag("code", line.name) if line.mark.strip() else line.name
    last = quiet(line.last) if line.last else ""
    return tag("div", tag("small", *bar, mark, name, tag("span", details, style=QUIET), last))


def _row(line: LiveLine) -> Html:
    if not line.mark.strip():
        return wide_row(line.name, 4)
    last = quiet(line.last) if line.last else ""
    return row(line.mark, tag("code", line.name), line.time, html(" · ".join(line.about), last), quiet=2)


def plain_line(line: LiveLine) -> str:
    """Return the line as text: mark, name, time, remark, and last printed line."""
    parts = [part for part in (line.name, line.time, *line.about, line.last) if part]
    return f"{'  ' * line.depth}{line.mark} {visible(' · '.join(parts))}".rstrip()
