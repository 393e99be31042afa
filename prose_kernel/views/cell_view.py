"""Turn the events of a running cell into outputs, for the kernel and `%%prose`.

The streams of a bare `exec`, a session's answer, and for a person the progress of `parallel` are shown live. Cards of
bound values and notes about decisions wait until something else is shown, and then precede it: an output is never
above the decision that caused it. Cards of a loop wait for the end of its top-level statement, and become one table.
The outputs of a `parallel` are shown in source order at its join. Nothing is shown twice: output that becomes the value
of a name or an expression is shown only in that value, and a cell's result is omitted if its body has shown it. Saved
notebooks have the same outputs whether or not a person was watching (docs/reference/jupyter.md 5, 7).
"""

from __future__ import annotations

import functools
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct, field

from prose_kernel.errors import RunError
from prose_kernel.language.diagnostics import Diagnostic
from prose_kernel.runs import languages
from prose_kernel.runtime import events as ev
from prose_kernel.runtime.ports import Stream
from prose_kernel.runtime.values import ExecText, Reference, Value
from prose_kernel.views import cards
from prose_kernel.views.bundle import KEPT
from prose_kernel.views.display import Display, Output
from prose_kernel.views.escaping import clip
from prose_kernel.views.file_displays import file_display, image_display
from prose_kernel.views.live_panel import LivePanel
from prose_kernel.views.live_run import LiveRun
from prose_kernel.views.output_limit import CommandView, Limits, quiet_line, where_whole
from prose_kernel.views.output_with_panel import OutputWithPanel
from prose_kernel.views.parallel_view import ParallelView, merged_by_kind
from prose_kernel.views.problems import warning_lines
from prose_kernel.views.session_cards import SessionViews

MAX_DISPLAYS = 20
"""The most displays that a cell makes while it runs; later ones are merged at its end."""
MAX_SWITCHES = 12
"""The most changes between stdout and stderr that are shown in order; later stderr is shown at the end of the cell."""
MAX_ABOUT = 40
"""The most characters of the value that a criterion of VVM is about."""
RECENT_VALUES = 32
"""The number of recently shown values that are recognised if they become the value of the cell."""

DATA = frozenset({"json", "jsonl", "csv"})
"""The declared formats of output that is shown as a whole."""

_COMPOUND = frozenset({"if", "choice", "try", "for", "repeat", "loop", "do", "parallel"})
_BINDING = frozenset({"let", "assign", "output", "input", "return"})


class _LateNotes(Struct):
    """The further notes of a cell with many displays: they share one display, which is replaced for each."""

    notes: list[cards.Note]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    shown: bool = True

    def add(self, notes: list[cards.Note], output: Output) -> None:
        self.notes += notes
        self.shown = False
        if len(self.notes) <= cards.ROWS:  # the display shows no more; its counts are right at the end
            self.update(output)

    def update(self, output: Output) -> None:
        if not self.shown:
            self.shown = True
            output.update(cards.notes_display(self.notes), self.id)


class CellView:
    """Listens to one cell, and shows its outputs. Call `finish` or `fail` exactly once at its end.

    `live`: a person is watching (`allow_stdin`) and sees running work in `panel`. `limits` bounds the displayed output
    of one command. `directory_name` returns the shown form of a new working directory ("" to hide it).
    """

    def __init__(
        self,
        output: Output,
        *,
        live: bool,
        limits: Limits,
        directory_name: Callable[[str], str] = lambda _: "",
        panel: LivePanel | None = None,
    ) -> None:
        if live and panel is None:
            panel = LivePanel(OutputWithPanel(output))
            output = panel.output
        self.output = output
        self.panel = panel
        self.live = live
        self.limits = limits
        self.directory_name = directory_name
        self.language = languages.default()
        """The language of the running program, which names and formats its values."""
        self._commands: dict[int, CommandView] = {}
        self._declared: dict[int, str] = {}  # the formats of commands whose output is data
        self._cards: dict[str, cards.BoundName] = {}
        self._notes: list[cards.Note] = []
        self._notes_shown: tuple[str, int] | None = None  # the id of the display of `_notes`, and their number in it
        self._card_statement: object = None
        self._cards_wait = False  # cards of a loop or branch wait for the end of the statement
        self._displays = 0
        self._late: list[Display] = []
        self._late_notes: _LateNotes | None = None
        self._stream: Stream | None = None
        self._switches = 0
        self._late_stderr: list[str] = []
        self._branches = ParallelView(self)
        self._sessions = SessionViews(self, live=live, status=panel.run.status if panel is not None else lambda _: "")
        if panel is not None:
            panel.time_passes = self._sessions.time_passes
        self._last: Value = None
        self._last_name: str | None = None
        self._statement = ""  # the kind of the statement that gives the cell its value
        self._shown: deque[object] = deque(maxlen=RECENT_VALUES)
        self._answer_name: str | None = None  # the name that the last answer of a session is bound to
        self._answer: tuple[Value, Value] = (None, None)
        self._joined = False
        self._finished_command: ev.CommandFinished | None = None
        self.shown_error: RunError | None = None
        """The error of the last failed bare command, if the cell shows all of its stderr."""

    def __call__(self, event: ev.Event) -> None:
        if self.panel is not None:
            self.panel.hear(event)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event)

    @property
    def has_room(self) -> bool:
        """Whether the next display gets a separate output."""
        return self._displays < MAX_DISPLAYS

    def on_cell_started(self, event: ev.CellStarted) -> None:
        """Note which kind of statement gives the starting program its value: this decides how the value is shown."""
        self._statement = event.valued
        if self.panel is not None:
            self.panel.run.language = self.language

    # ------------------------------------------------------------ the end of the cell

    def finish(self, value: Value) -> None:
        """End a successful cell. Its last value becomes the result, unless it has been shown already.

        The result of a binding is its card, or the table of several bindings with it. The value of a compound statement
        is not shown, because its body shows it.
        """
        self._branches.leave()
        last = self._take_last(value)
        self._flush_cards()
        self._flush_late()
        if last:
            self.output.result(cards.card_display(last))
        elif self._needs_result(value):
            self.output.result(cards.value_display(value, self.language))
        if self.panel is not None:
            self.panel.end()

    def fail(self) -> None:
        """End a failed or interrupted cell: show all waiting outputs before the error."""
        for command in self._commands.values():
            command.finish(where_whole(None))
        self._sessions.interrupted()
        self.settle()
        self._flush_late()
        if self.panel is not None:
            self.panel.end()

    def settle(self) -> None:
        """Show all waiting outputs before something else is shown in the cell."""
        self._branches.leave()
        self._flush_cards()
        self._last_name = None

    def show_separately(self, display: Display) -> None:
        """Show something that isn't output of the program, without a change of the program's output."""
        self._put(display)

    def result_of_part(self, value: Value) -> None:
        """Show the last value of a finished part of the cell (`%run`) like any other display."""
        self._branches.leave()
        shown = bool(self._cards)
        self.settle()
        if not shown and self._needs_result(value):
            self.send(cards.value_display(value, self.language))

    def warnings(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Show the compiler's warnings about a valid program, before its first output."""
        lines = warning_lines(diagnostics)
        if lines:
            self.send(cards.notes_display([cards.Note(line) for line in lines]))

    def _take_last(self, value: Value) -> list[cards.BoundName]:
        """Return the last card if it shows the cell's value, with the cards of the table that it would follow."""
        name = self._last_name
        if name is None or not (self._last is value or self._statement in _BINDING):
            return []
        card = self._cards.get(name)
        if card is None or card.times > 1 or next(reversed(self._cards)) != name:
            return []
        others = [one for one in self._cards.values() if one is not card]
        if len(others) > 1 or any(one.times > 1 for one in others):
            self._cards = {}
            return [*others, card]
        del self._cards[name]
        return [card]

    def _needs_result(self, value: Value) -> bool:
        if value is None or self._statement in _COMPOUND | _BINDING:
            return False
        if self._last_name is not None and self._last is value:
            return False
        essence = value.result if isinstance(value, ExecText) else value
        return not any(essence is shown for shown in self._shown)

    # ------------------------------------------------------------ outputs

    def send(self, display: Display, display_id: str | None = None) -> None:
        self._flush_before()
        self._put(display, display_id)

    def _put(self, display: Display, display_id: str | None = None) -> None:
        if self._displays >= MAX_DISPLAYS and display_id is None:
            self._late.append(display)
            return
        self._displays += 1
        self._stream = None
        self.output.display(display, display_id)

    def command_view(self) -> CommandView:
        place = self if self.live else None
        return CommandView(self.limits, self.write, lambda note: self.send(quiet_line(note)), place)

    def reserve(self, display: Display) -> str | None:
        """Show a replaceable display for a streaming session and return its id; None if displays are already merged."""
        if not self.has_room:
            return None
        display_id = uuid.uuid4().hex
        self.send(display, display_id)
        return display_id

    def replace(self, display: Display, display_id: str) -> None:
        self.output.update(display, display_id)

    def write(self, name: Stream, text: str) -> None:
        if not text:
            return
        self._flush_before()
        if name != self._stream:
            self._switches += 1
        if self._switches > MAX_SWITCHES and name == "stderr":
            self._late_stderr.append(text)
            return
        self._stream = name
        self.output.stream(name, text)

    def _flush_late(self) -> None:
        if self._late_notes is not None:
            self._late_notes.update(self.output)
        if self._late_stderr:
            self.output.stream("stderr", "".join(self._late_stderr))
            self._late_stderr = []
        late, self._late = self._late, []
        for display in merged_by_kind(late):
            self.output.display(display)

    def _flush_before(self) -> None:
        """Show the cards and notes that precede the next output."""
        if self._cards and not self._cards_wait:
            self._flush_cards()
        self._flush_notes()

    def _flush_notes(self) -> None:
        """Show decisions before their consequences. If the cell has many displays already, further notes share one,
        which is replaced."""
        if not self._notes:
            return
        notes, self._notes = self._notes, []
        shown, self._notes_shown = self._notes_shown, None
        if shown is not None:
            if len(notes) > shown[1]:
                self.output.update(cards.notes_display(notes), shown[0])
        elif self._late_notes is not None:
            self._late_notes.add(notes, self.output)
        elif self.has_room:
            self._put(cards.notes_display(notes))
        else:
            self._late_notes = _LateNotes(notes)
            self._stream = None
            self.output.display(cards.notes_display(notes), self._late_notes.id)

    def _flush_cards(self) -> None:
        self._flush_notes()
        if self._cards:
            found, self._cards, self._cards_wait = list(self._cards.values()), {}, False
            self._put(cards.card_display(found))

    def _begin_visible(self, event: ev.Event) -> None:
        """Show earlier bindings before something begins that may take long or show output."""
        self._joined = False
        if not self._branches.active and self._card_statement != event.place.ordinal:
            self._flush_cards()
        if self.live and self._notes and self._notes_shown is None and self.has_room:
            self._notes_shown = uuid.uuid4().hex, len(self._notes)
            self._put(cards.notes_display(self._notes), self._notes_shown[0])  # what follows may take long

    on_gate_opened = _begin_visible

    # ------------------------------------------------------------ bindings and values

    def on_bound(self, event: ev.Bound) -> None:
        self._last, self._last_name, self._joined = event.value, None, False
        if event.spawned in ("session", "resume") and isinstance(event.value, Reference):
            return  # the answer has been shown under this name
        if self._answer_name == event.name and any(event.value is shown for shown in self._answer):
            return  # the same for an answer that is plain text
        steps = event.place.branches
        if event.place.depth > 0 or event.place.program or (steps and steps[-1].label == event.name):
            return  # a local name of a block or an imported program; or a branch, which has a row
        self._cards_wait = self._cards_wait or event.looped or bool(steps)
        known = self._cards.get(event.name)
        if known is None:
            self._cards[event.name] = cards.BoundName(event.name, event.value, self.language)
        else:
            known.value, known.language, known.times = event.value, self.language, known.times + 1
        self._last_name = event.name
        self._card_statement = event.place.ordinal

    def on_statement_done(self, event: ev.StatementDone) -> None:
        if self._joined and event.place.kind == "parallel":
            self._shown.append(event.value)  # the join has just shown its branches
        if event.value is not None and event.value is not self._last:
            self._last, self._last_name = event.value, None

    # ------------------------------------------------------------ commands

    def on_command_started(self, event: ev.CommandStarted) -> None:
        self._begin_visible(event)
        if event.bound_to is None and not event.consumed:
            if event.format in DATA:
                self._declared[event.spawn] = event.format
            self._commands[event.spawn] = CommandView(
                self.limits,
                functools.partial(self._emit, event),
                functools.partial(self._left_out, event),
                self if self.live and not self._branches.holds(event.place.branches) else None,
            )

    def _left_out(self, event: ev.Event, note: str) -> None:
        """Show the note between the two parts of a long output; in a branch as text, because its displays come last."""
        if self._branches.holds(event.place.branches):
            self._emit(event, "stdout", f"{note}\n")
        else:
            self.send(quiet_line(note))

    def on_command_output(self, event: ev.CommandOutput) -> None:
        held = event.stream == "stdout" and event.spawn in self._declared  # data is shown as a whole
        if (command := self._commands.get(event.spawn)) is not None and not held:
            command.feed(event.stream, event.text, event.omitted)

    def _data(self, event: ev.CommandFinished, command: CommandView) -> None:
        """Show non-text output of a bare command: data in its declared format, or an image."""
        form, result = self._declared.pop(event.spawn, ""), event.result
        if form:
            shown, why = (None, "") if event.raised else cards.data_display(result, form, self.language)
            if shown is None and not result.image:
                command.feed("stdout", result.stdout)
            if shown is not None:
                self._show(event, shown)
            elif why:
                self._note(event, f"shown as text: {why}")
        if result.image:
            self._show(event, image_display(result.image))

    def on_file_shown(self, event: ev.FileShown) -> None:
        self._begin_visible(event)
        self._show(event, file_display(event.file))

    def on_command_finished(self, event: ev.CommandFinished) -> None:
        command = self._commands.pop(event.spawn, None)
        if command is None:
            return self._show_missing_facts(event)
        result = event.result
        self._data(event, command)
        command.finish(where_whole(result))
        self._shown.append(result)
        if event.raised and not command.window.cut:
            self._finished_command = event
        moved = event.directory_changed  # a branch or program restores the directory when it ends
        stays = moved is not None and not event.place.branches and not event.place.program
        card = cards.result_card(event, self.directory_name(moved) if moved is not None and stays else "")
        if card is not None:
            self._show(event, card)
        return None

    def on_retried(self, event: ev.Retried) -> None:
        if event.why:  # a session shows its failed attempts itself
            self._note(event, f"retry {event.attempt} of {event.maximum}: {event.why}")

    def _show_missing_facts(self, event: ev.CommandFinished) -> None:
        """Show a card with the facts that a command's value lacks, unless the bound name has a card."""
        steps = event.place.branches
        if event.bound_to is None or (steps and steps[-1].label == event.bound_to):
            card = cards.result_card(event)
            if card is not None:
                self._show(event, card)

    def on_failed(self, event: ev.Failed) -> None:
        """Note the error of a command whose stderr the cell shows, so that it is not shown twice."""
        if self._finished_command is not None and self._finished_command.place.span == event.place.span:
            self.shown_error = event.error

    def _emit(self, event: ev.Event, name: Stream, text: str) -> None:
        if text and not self._branches.add(event.place.branches, (name, text)):
            self.write(name, text)

    def _show(self, event: ev.Event, display: Display) -> None:
        if not self._branches.add(event.place.branches, display):
            self.send(display)

    # ------------------------------------------------------------ sessions and decisions

    def on_session_started(self, event: ev.SessionStarted) -> None:
        self._begin_visible(event)
        if not self._branches.active and event.bound_to in self._cards:
            self._flush_cards()  # the value that the answer replaces
        self._sessions.started(event)

    def on_session_progressed(self, event: ev.SessionProgressed) -> None:
        self._sessions.progressed(event, alone=not self._branches.holds(event.place.branches))

    def on_session_finished(self, event: ev.SessionFinished) -> None:
        for display in self._sessions.finished(event):
            self._show(event, display)
        if event.result is not None:
            self._answer_name, self._answer = event.bound_to, (event.value, event.result.text)
            self._shown += self._answer

    def on_judged(self, event: ev.Judged) -> None:
        shown = cards.verdict(event.answer)
        rule, colon, why = event.reason.partition(": ")
        by, reason = ("rule", why if colon else rule) if event.by == "rules" else (event.by, event.reason)
        by = "replayed, example verdict written by hand" if by == "authored" else by
        because = f"{by}: {clip(reason, 2000 if by == 'dry-run' else 200)}" if reason else by
        because += f"; {KEPT}" if "kept" in event.details else ""
        about = f"· {clip(event.about, MAX_ABOUT)} " if event.about is not None else ""
        self._note(event, cards.Note(f"{about}→ {shown}", clip(event.question, 120), because, event.details))

    def on_gate_resolved(self, event: ev.GateResolved) -> None:
        decision = event.decision
        ended = {"rejected": "rejected", "approved": "approved", "timeout": "timed out"}[decision.status]
        by = f" by {decision.decided_by}" if decision.status != "timeout" else ""
        comment = f": {clip(decision.comment, 200)}" if decision.comment else ""
        reason = " (no answer was possible)" if decision.reason == "nobody" else ""
        self._note(event, f"gate {event.request.name}: {ended}{by}{reason}{comment}")

    def on_warned(self, event: ev.Warned) -> None:
        self._note(event, f"Warning: {event.message} [{event.code}]")

    def _note(self, event: ev.Event, text: str | cards.Note) -> None:
        note = cards.Note(text) if isinstance(text, str) else text
        if not self._branches.add(event.place.branches, note):
            if self._cards and not (self._cards_wait and self._card_statement == event.place.ordinal):
                self._flush_cards()  # these belong to earlier statements
            self._notes.append(note)
            self._card_statement = event.place.ordinal

    # ------------------------------------------------------------ parallel

    def on_parallel_started(self, event: ev.ParallelStarted) -> None:
        if self._branches.holds(event.place.branches):
            self._branches.nested(event)
            return  # the enclosing branch shows its branches
        self._branches.leave()
        self._flush_cards()
        self._branches.started(event)

    def on_branch_finished(self, event: ev.BranchFinished) -> None:
        self._branches.branch_finished(event)

    def on_parallel_joined(self, event: ev.ParallelJoined) -> None:
        if self._branches.joined(event):
            self._joined = True

    _handlers: ClassVar = ev.handlers(vars())
    kinds: ClassVar = frozenset(_handlers) | LiveRun.kinds
