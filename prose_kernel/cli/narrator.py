"""Print the events of a run as text, for `prose run`.

Results go to stdout: output of bare commands, answers of unbound sessions, the outputs at the end. Remarks go to
stderr: bindings, decisions of gates, retries, warnings.
"""

from __future__ import annotations

import operator
import shutil
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from prose_kernel.cli.ordered_output import SourceOrder
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import RunError
from prose_kernel.runs import languages
from prose_kernel.runtime import events as e
from prose_kernel.runtime.images import picture
from prose_kernel.runtime.ports import CommandResult, Stream
from prose_kernel.runtime.values import ExecText, Reference, Value, full_text
from prose_kernel.views.cards import branch_state, branch_text, verdict
from prose_kernel.views.cell_view import DATA
from prose_kernel.views.escaping import clip
from prose_kernel.views.file_displays import file_text
from prose_kernel.views.live_run import LiveRun, Work
from prose_kernel.views.live_text import BranchNames, elapsed
from prose_kernel.views.output_limit import Limits, OutputWindow, where_whole
from prose_kernel.views.problems import message_line
from prose_kernel.views.refresh import Refresh, Time
from prose_kernel.views.session_cards import as_shown
from prose_kernel.views.tables_of_values import table_of

if TYPE_CHECKING:
    from prose_kernel.runs.workspace import Workspace
    from prose_kernel.storage.transcript import MarkedTrace

PREVIEW_COLUMNS = 100
DELAY = 0.3
"""Seconds after which a running activity is shown live."""
MOST_PASSES = 100
"""The number of passes of one loop that are narrated."""
STEADY = 0.5
"""Seconds between two updates of the live lines if only the elapsed time changes."""


class Narrator:
    """A listener that writes to a `Screen`; output of parallel branches comes in source order."""

    def __init__(
        self, screen: Screen, limits: Limits, keep: Callable[[str, bytes], str] = lambda name, data: ""
    ) -> None:
        """`keep` writes an image into the run's directory and returns its path, "" if it cannot be kept."""
        self._screen = screen
        self._keep = keep
        self._live: LiveRun | None = None
        self._clock = Time()
        self._refresh = Refresh(self._draw, self._clock)
        self._limits = limits
        self._order = SourceOrder(operator.call)
        self._bare: dict[int, _BareCommand] = {}
        self._raised: e.CommandFinished | None = None
        self._names: dict[int, BranchNames] = {}
        self.unshown: Value = None
        self._answer: Value = None  # the last answer of a bare session, which has been shown
        # names whose sessions have answered, and which are not bound yet
        self._answered: set[tuple[tuple[e.BranchStep, ...], str]] = set()
        self.language = languages.default()
        """The language of the running program, in which its values are written."""
        self.markers: MarkedTrace | None = None
        """Narrates with the markers of the language, if it has any, instead of the remarks about the same events."""
        self.shown_error: RunError | None = None
        self._narrated = dict(self._handlers)
        self.kinds = frozenset(self._narrated)
        """The kinds of events that it receives."""

    def watch(self, workspace: Workspace) -> None:
        """Show running activities of a workspace's runs if the screen can."""
        if self._screen.redraws:
            self._live = LiveRun(
                self._clock.now,
                workspace.loops,
                workspace.answering,
                is_shown_elsewhere=self._is_printed,
                prints_results=False,  # the narrator prints them
            )
            self.kinds |= LiveRun.kinds

    def _is_printed(self, work: Work) -> bool:
        """Return whether the output of a command goes to the screen immediately."""
        return work.bare and self._order.is_live(work.branches)

    def _draw(self) -> float | None:
        live = self._live
        if live is None:
            return None
        since, now = live.since(), self._clock.now()
        if since is None:
            self._screen.show(())
        elif (wait := since + DELAY - now) <= 0.001:
            self._screen.show(live.lines(max(3, self._screen.rows // 2)))
        else:
            return wait
        return STEADY

    def __call__(self, event: e.Event) -> None:
        if self._live is not None and type(event) in LiveRun.kinds:
            self._live.language = self.language
            self._live(event)
            self._refresh.changed()
        if self.markers is not None and type(event) in self.markers.kinds and not _is_late(event):
            for line in self.markers.lines_of(event):
                self._note(event, line)
        handler = self._narrated.get(type(event))
        if handler is not None:
            handler(self, event)

    def narrate(self, markers: MarkedTrace) -> None:
        """Narrate with these markers instead of some remarks."""
        self.markers = markers
        for kind in (e.Judged, e.Retried, e.Warned):
            self._narrated.pop(kind, None)
        self.kinds |= markers.kinds

    def close(self) -> None:
        """Write the output that waits for its turn, and remove the live lines."""
        self._refresh.stop()
        self._live = None
        for shown in self._bare.values():
            self._show_end(shown, (), None)
        self._bare.clear()
        self._order.close()
        self._screen.rest()

    def _print(self, branches: tuple[e.BranchStep, ...], stream: Stream, text: str) -> None:
        """Write text of a command or session when it is the turn of its branch."""
        self._order.say(branches, partial(self._screen.write, stream, text))

    def _note(self, event: e.Event, text: str, colour: str | None = None) -> None:
        self._order.say(event.place.branches, partial(self._screen.note, text, colour))

    # -------------------------------------------------- commands

    def on_command_started(self, event: e.CommandStarted) -> None:
        if event.bound_to is None and not event.consumed:
            form = event.format if event.format in DATA and self._screen.shares_terminal("stdout") else ""
            self._bare[event.spawn] = _BareCommand(OutputWindow(self._limits), form)

    def on_command_output(self, event: e.CommandOutput) -> None:
        """Show output of a bare command. A pipe gets all of it; a terminal shows a long output without its middle."""
        shown = self._bare.get(event.spawn)
        if shown is None:
            return
        if shown.format and event.stream == "stdout":
            return  # shown as a table when the command has ended
        if not self._screen.shares_terminal(event.stream):
            self._print(event.place.branches, event.stream, event.text)
            return
        if text := shown.window.feed(event.stream, event.text, event.omitted):
            self._print(event.place.branches, event.stream, text)
        if self._live is not None and shown.window.cut:
            self._live.no_longer_shown(event.spawn)

    def on_command_finished(self, event: e.CommandFinished) -> None:
        shown = self._bare.pop(event.spawn, None)
        result = event.result
        if shown is not None and shown.format:
            self._data(event, shown.format)
        if result.image:
            self._image(event, bare=shown is not None)
        if shown is not None:
            self._show_end(shown, event.place.branches, event.result)
            if event.raised and not shown.window.cut:
                self._raised = event
        if result.kind is not None and not event.raised and event.bound_to is None:
            how = result.signal or ("timed out" if result.timed_out else f"exit status {result.exit_code}")
            self._note(event, f"{clip(event.command, 60)}: {how}", "yellow")

    def _data(self, event: e.CommandFinished, form: str) -> None:
        """Show the output of a bare command that is declared to be data, if possible as a table of the right width."""
        text, result = event.result.stdout, event.result
        table = table_of(ExecText(text, result, format=form)) if result.kind is None else None
        if table is not None:
            text = f"{table.fitted(shutil.get_terminal_size().columns)}\n"
        self._print(event.place.branches, "stdout", text)

    def _image(self, event: e.CommandFinished, *, bare: bool) -> None:
        """Write the image of a bare command to a pipe; on a terminal, show its format and the path of the kept file."""
        data = event.result.image
        if bare and self._screen.takes_bytes:
            return self._order.say(event.place.branches, partial(self._screen.write_bytes, data))
        drawn = picture(data)
        assert drawn is not None
        name = event.bound_to or "exec"
        place = self._keep(f"{event.spawn}-{name}.{drawn.suffix}", data)
        text = f"{drawn.text}, kept in {place}" if place else drawn.text
        return self._note(event, f"{event.bound_to}: {text}" if event.bound_to else text)

    def on_file_shown(self, event: e.FileShown) -> None:
        """Show a file that a command declares: as a table or text on a terminal, else a line about it."""
        text = file_text(event.file, shutil.get_terminal_size().columns)
        first, newline, _ = text.partition("\n")
        if newline and self._screen.shares_terminal("stdout"):
            self._print(event.place.branches, "stdout", f"{text}\n")
        else:
            self._note(event, first)

    def _show_end(self, shown: _BareCommand, branches: tuple[e.BranchStep, ...], result: CommandResult | None) -> None:
        """Show the end of a shortened output, after a note about the missing part."""
        parts = shown.window.finish()
        if note := shown.window.left_out():
            self._order.say(branches, partial(self._screen.note, f"{note}; {where_whole(result)}"))
        for stream, text in parts:
            self._print(branches, stream, text)

    def on_failed(self, event: e.Failed) -> None:
        """Remember the error of a command whose stderr was shown, so that it is not shown twice."""
        raised = self._raised
        if raised is not None and raised.place.span == event.place.span:
            self.shown_error = event.error

    # -------------------------------------------------- sessions

    def on_session_progressed(self, event: e.SessionProgressed) -> None:
        """Show notes of a session, and its tool calls."""
        if event.kind == "note":
            self._note(event, event.text)
        elif event.kind == "tool" and event.tool is not None:
            use, how = event.tool, ""
            if use.outcome != "ok":
                detail = clip(use.detail.removeprefix(f"{use.outcome}: "), 160)
                how = f": {use.outcome} ({detail})" if detail else f": {use.outcome}"
            self._note(event, f"{use.tool} {clip(use.summary, 80)}".rstrip() + how)

    def on_session_finished(self, event: e.SessionFinished) -> None:
        if event.result is not None and event.result.origin == "authored":
            shown = as_shown(event)
            who = f"{name}: " if (name := shown.agent or shown.label) else ""
            self._note(event, f"{who}replayed, example text written by hand")
        if event.error is not None and event.final and event.request.kind == "call" and not event.error.no_answer:
            # the error becomes a value of the program, which may never show it: so this line does
            self._note(event, f"{event.request.agent}: {message_line(event.error.message)}", "yellow")
        elif event.error is None and event.bound_to is None and event.consumed:
            if event.request.kind != "call":
                return  # the session renders a function, whose output shows the answer
            self._note(event, f"{event.request.agent or 'session'}: {clip(full_text(event.value), 160)}")
        elif event.error is None and event.bound_to is None:
            self._answer = event.value
            text = self._screen.harmless("stdout", full_text(event.value))
            self._print(event.place.branches, "stdout", text if text.endswith("\n") else f"{text}\n")
        elif event.error is None and event.bound_to is not None:
            self._answered.add((event.place.branches, event.bound_to))

    def on_retried(self, event: e.Retried) -> None:
        why = f": {event.why}" if event.why else ""
        self._note(event, f"retry {event.attempt} of {event.maximum}{why}")

    # -------------------------------------------------- values

    def on_bound(self, event: e.Bound) -> None:
        self.unshown = None
        steps = event.place.branches
        is_branch = bool(steps) and steps[-1].label == event.name  # shown when the branch is done
        answer = (steps, event.name) in self._answered
        self._answered.discard((steps, event.name))
        if (answer or event.spawned is not None) and event.kind != "output" and not is_branch:
            self._value(event, event.name, event.value)

    def _value(self, event: e.Event, name: str, value: Value) -> None:
        """Show the beginning of a value."""
        if self.markers is not None:
            return
        text = self.language.text_of(value).rstrip("\n")
        more = text.count("\n")
        rest = f" (+{more} line{'s' if more > 1 else ''})" if more else ""
        first = clip(text.partition("\n")[0], PREVIEW_COLUMNS)
        self._note(event, f"{name} = {first}{rest}")

    def on_statement_done(self, event: e.StatementDone) -> None:
        shown = event.value is None or event.value is self._answer or isinstance(event.value, ExecText | Reference)
        self.unshown = None if shown else event.value

    # -------------------------------------------------- parallel

    def on_parallel_started(self, event: e.ParallelStarted) -> None:
        self._names[event.parallel] = BranchNames(event, self.language)
        self._order.started(event.place.branches, event.parallel, event.count)

    def on_branch_finished(self, event: e.BranchFinished) -> None:
        if branch_state(event, self.language) == "failed":
            name = self._names[event.parallel][event.index]
            error = event.error
            why = branch_text(event, self.language) if error is None else message_line(error.message)
            self._note(event, f"{clip(name, 60)} failed: {why}", "yellow")
        elif event.label is not None and event.status == "done" and event.value is not None:
            self._value(event, event.label, event.value)
        self._order.finished(event.place.branches)

    def on_parallel_joined(self, event: e.ParallelJoined) -> None:
        self._names.pop(event.parallel, None)
        self._order.joined(event.place.branches, event.parallel)

    # -------------------------------------------------- decisions, warnings

    def on_judged(self, event: e.Judged) -> None:
        answer = verdict(event.answer, 60)
        reason = event.reason if event.by == "dry-run" else clip(event.reason)  # a dry run explains the consequences
        why = f": {reason}" if reason else ""
        mark = self.language.delimiters[-1]
        about = f"{clip(event.about, 40)}: " if event.about is not None else ""
        self._note(event, f"{mark}{clip(event.question, 80)}{mark} {about}{answer} ({event.by}{why})")

    def on_gate_resolved(self, event: e.GateResolved) -> None:
        decision = event.decision
        why = decision.comment or decision.reason or ""
        text = f"gate {event.request.id}: {decision.status} by {decision.decided_by}"
        text += f" ({clip(why)})" if why else ""
        self._note(event, text, "green" if decision.status == "approved" else "red")

    def on_store_waits(self, event: e.StoreWaits) -> None:
        if event.reason is not None:
            text = f"Waiting for {event.store}, at most {elapsed(event.seconds)}: {event.reason}"
            self._screen.note(text, "yellow")

    def on_warned(self, event: e.Warned) -> None:
        line, column = event.place.source.line_column(event.place.span.start)
        self._note(event, f"Warning at line {line}, column {column}: {event.message} [{event.code}]", "yellow")

    _handlers: ClassVar = e.handlers(vars())


class _BareCommand(Struct):
    """A running bare command, with the window that limits its shown output."""

    window: OutputWindow
    format: str = ""


def _is_late(event: e.Event) -> bool:
    """Return whether an event is a pass of a loop after the first `MOST_PASSES`."""
    return isinstance(event, e.LoopPass) and event.index >= MOST_PASSES
