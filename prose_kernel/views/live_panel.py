"""The live view in a notebook: where it is shown, how often, and how its lines look.

While branches run, it stands where their results will be: that display is replaced at the join. Everything else that
takes long (a loop, a command whose output a name takes, a condition that is judged, a wait before a retry) is in a
panel which the stage takes away again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from prose_kernel.runtime.events import Event
from prose_kernel.runtime.open_loops import OpenLoop
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.views.bundle import LEFT, QUIET, QUIET_LEFT, TABLE, card, quiet
from prose_kernel.views.display import Display
from prose_kernel.views.live_run import LiveRun, Work
from prose_kernel.views.live_words import RUNS, Line
from prose_kernel.views.refresh import Refresh, Time
from prose_kernel.views.safety import html_text, visible
from prose_kernel.views.stage import Stage

DELAY: Final = 0.5
"""Seconds that something has to take before the panel shows it."""
SILENT: Final = 2.0
"""Seconds without output after which a command that shows its own is worth a panel."""
STEADY: Final = 0.5
"""Seconds between two looks while only the time changes; what still says the same is not sent again."""


class LivePanel:
    """Hears all events of a cell while a person watches."""

    def __init__(
        self,
        stage: Stage,
        clock: Time | None = None,
        loops: Callable[[], Collection[OpenLoop]] = tuple,
        asked: Callable[[SessionRequest], str] | None = None,
    ) -> None:
        clock = clock or Time()
        self.run = LiveRun(clock.now, loops, asked)
        self.run.own = _shown_itself
        self.run.apart = lambda work: work.session and not work.branches
        self.stage = stage
        self._refresh = Refresh(self._draw, clock)
        self._join: str | None = None
        self._joining: Display | None = None
        self._visible = False
        self.time_passes: Callable[[], None] = lambda: None
        """Called now and then while a session runs that has a display of its own."""

    def hear(self, event: Event) -> None:
        if type(event) in LiveRun.kinds:
            self.run(event)
            self._refresh.changed()

    def join(self, display_id: str) -> Display:
        """Branches begin: what their display shows at first. `display_id` is where it stands."""
        self._join, self._joining = display_id, live_display(self.run.lines())
        return self._joining

    def joined(self) -> None:
        self._join = None

    def end(self) -> None:
        """The cell is over: nothing is shown live any more."""
        self._refresh.stop()
        self._join = None
        self.stage.take_away()

    def _draw(self) -> float | None:
        alone = self.run.alone()
        if alone is not None and self.stage.open and self.run.now() - alone >= DELAY:
            self.time_passes()
        if self._join is not None:
            display = live_display(self.run.lines())
            if display != self._joining:
                self.stage.update(display, self._join)
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
            self.stage.panel(live_display(lines))
        return STEADY


def _shown_itself(work: Work) -> bool:
    """Outside of branches, what a bare command prints has a place of its own."""
    return not work.branches and work.bare


# ---------------------------------------------------------------- how the lines look


def live_display(lines: Sequence[Line]) -> Display:
    """Lines as a MIME bundle. Nothing in it folds: each update would fold it again."""
    markup, table = "", ""
    for line in lines:
        if line.depth:
            table += _row(line)
            continue
        markup += _closed(table) + _block(line)
        table = ""
    return card(markup + _closed(table), map(plain_line, lines))


def _closed(rows: str) -> str:
    return f"<table {TABLE}>{rows}</table>" if rows else ""


def _block(line: Line) -> str:
    bar = f'<progress value="{line.done[0]}" max="{max(line.done[1], 1)}"></progress> ' if line.done else ""
    beside = "".join(f" · {html_text(part)}" for part in (*line.about, line.time) if part)
    name = f"<code>{html_text(line.name)}</code>" if line.mark.strip() else html_text(line.name)
    name = name if line.mark in (RUNS, " ") else f"{line.mark} {name}"
    last = quiet(line.last) if line.last else ""
    return f"<div><small>{bar}{name}<span {QUIET}>{beside}</span>{last}</small></div>"


def _row(line: Line) -> str:
    if not line.mark.strip():
        return f'<tr><td colspan="4" {QUIET_LEFT}>{html_text(line.name)}</td></tr>'
    last = quiet(line.last) if line.last else ""
    return (
        f"<tr><td {LEFT}>{line.mark}</td><td {LEFT}><code>{html_text(line.name)}</code></td>"
        f"<td {QUIET_LEFT}>{html_text(line.time)}</td>"
        f"<td {LEFT}>{html_text(' · '.join(line.about))}{last}</td></tr>"
    )


def plain_line(line: Line) -> str:
    """The line as text: mark, name, time, what is said beside it, and what it has printed last."""
    parts = [part for part in (line.name, line.time, *line.about, line.last) if part]
    return f"{'  ' * line.depth}{line.mark} {visible(' · '.join(parts))}".rstrip()
