"""Show the outputs of a `parallel`: a display of its branches, which is live while a person watches and shows their
results at the end, and then the outputs of the branches in source order."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from prose_kernel.runs.languages import Language
from prose_kernel.runtime.events import BranchFinished, BranchStep, ParallelJoined, ParallelStarted
from prose_kernel.runtime.ports import Stream
from prose_kernel.views import cards
from prose_kernel.views.display import Display
from prose_kernel.views.live_text import BranchNames

if TYPE_CHECKING:
    from prose_kernel.views.cell_view import CellView

BranchPath = tuple[tuple[int, int], ...]
Item = tuple[Stream, str] | Display | cards.Note


class ParallelView:
    """The outermost running parallel construct of a cell, if there is one."""

    def __init__(self, view: CellView) -> None:
        self._view = view
        self._join: Join | None = None

    @property
    def active(self) -> bool:
        return self._join is not None

    def holds(self, branches: tuple[BranchStep, ...]) -> bool:
        """Return whether outputs of these branches are shown at the join."""
        return self._join is not None and bool(branches)

    def add(self, branches: tuple[BranchStep, ...], item: Item) -> bool:
        """Keep an output of a branch until the join; return False outside of branches."""
        if self._join is None or not branches:
            return False
        self._join.branch(branches).append(item)
        return True

    def started(self, event: ParallelStarted) -> None:
        """Begin the view of an outermost construct."""
        view = self._view
        self._join = join = Join(event, view.language)
        if view.panel is not None and view.has_room:
            join.display_id = uuid.uuid4().hex
            view.send(view.panel.join(join.display_id), join.display_id)

    def nested(self, event: ParallelStarted) -> None:
        if self._join is not None:
            self._join.names[event.parallel] = BranchNames(event, self._view.language)

    def branch_finished(self, event: BranchFinished) -> None:
        join, steps, language = self._join, event.place.branches, self._view.language
        if join is None or len(steps) != 1 or not 0 <= steps[0].index < len(join.rows):
            return
        row = join.rows[steps[0].index]
        row.status = cards.branch_state(event, language)
        row.text = cards.branch_text(event, language)

    def joined(self, event: ParallelJoined) -> bool:
        """End a construct; return whether it was the outermost one, whose results are now shown."""
        join = self._join
        if join is None:
            return False
        if join.number == event.parallel:
            self.leave()
            return True
        if event.place.branches:
            fold(join, tuple((s.parallel, s.index) for s in event.place.branches), event.parallel)
        return False

    def leave(self) -> None:
        """End the construct, also after an error: show the results of its branches, then their outputs in order."""
        join, self._join = self._join, None
        if join is None:
            return
        view = self._view
        if view.panel is not None:
            view.panel.joined()
        final = cards.parallel_display(join.rows, join.names[join.number])
        if join.display_id is not None:
            view.replace(final, join.display_id)
        else:
            view.send(final)
        self._show_branches(join)

    def _show_branches(self, join: Join) -> None:
        """Show decisions, then text, then displays, each in source order: no output is above its decision."""
        kept = cards.shown_branches(join.rows)
        shown = set(kept)
        notes: list[cards.Note] = []
        texts: list[tuple[Stream, str]] = []
        displays: list[Display] = []
        left: set[int] = set()
        for path in sorted(join.branches):
            if path[0][1] not in shown:
                left.add(path[0][1])
                continue
            prefix = join.label(path)
            for item in ordered_outputs(join.branches[path]):
                if isinstance(item, cards.Note):
                    notes.append(item)
                elif isinstance(item, Display):
                    displays.append(item)
                else:
                    texts.append((item[0], prefixed(item[1], prefix)))
        if notes:
            self._view.send(cards.notes_display(notes))
        for name, text in texts:
            self._view.write(name, text)
        for display in displays if len(displays) <= 5 else merged_by_kind(displays):
            self._view.send(display)
        if left:
            others = f"what {len(left):,} more branches have shown is not displayed; `%report` has all of it"
            self._view.send(cards.notes_display([cards.Note(others)]))


class Join:
    """An outermost construct: the results of its branches, and their outputs until the join. `names` has the names of
    branches by construct, also of nested ones."""

    def __init__(self, event: ParallelStarted, language: Language) -> None:
        self.number = event.parallel
        self.names = {event.parallel: BranchNames(event, language)}
        self.rows = [cards.BranchRow() for _ in range(event.count)]
        self.branches: dict[BranchPath, list[Item]] = {}
        self.display_id: str | None = None

    def branch(self, steps: tuple[BranchStep, ...]) -> list[Item]:
        return self.branches.setdefault(tuple((step.parallel, step.index) for step in steps), [])

    def label(self, path: BranchPath) -> str:
        return "/".join(self.name(*step) for step in path)

    def name(self, parallel: int, index: int) -> str:
        names = self.names.get(parallel)
        return names[index] if names is not None and index < len(names) else f"_{index + 1}"


def fold(join: Join, outer: BranchPath, inner: int) -> None:
    """Move the outputs of a joined nested `parallel`, in source order, to the enclosing branch."""
    depth = len(outer)
    paths = sorted(p for p in join.branches if len(p) > depth and p[:depth] == outer and p[depth][0] == inner)
    if not paths:
        return
    target = join.branches.setdefault(outer, [])
    for path in paths:
        prefix = join.label(path[depth:])
        for item in ordered_outputs(join.branches.pop(path)):
            target.append((item[0], prefixed(item[1], prefix)) if isinstance(item, tuple) else item)


def ordered_outputs(items: list[Item]) -> list[Item]:
    """Return the outputs of one branch: its decisions, all of its stdout, all of its stderr, then its displays. So the
    order does not depend on the interleaving of a command's two streams."""
    out: list[Item] = []
    for name in ("stdout", "stderr"):
        text = "".join(item[1] for item in items if isinstance(item, tuple) and item[0] == name)
        if text:
            out.append((name, text))
    notes: list[Item] = [item for item in items if isinstance(item, cards.Note)]
    return [*notes, *out, *(item for item in items if isinstance(item, Display))]


def prefixed(text: str, label: str) -> str:
    """Put the branch in front of every line. The text gets a line end at its end, so that branches are separated."""
    body = text[:-1] if text.endswith("\n") else text
    return f"[{label}] " + body.replace("\n", f"\n[{label}] ") + "\n"


def merged_by_kind(displays: list[Display]) -> list[Display]:
    """Merge many displays into one of each kind."""
    kinds: dict[tuple[str, ...], list[Display]] = {}
    for display in displays:
        kinds.setdefault(tuple(display.data), []).append(display)
    merged_by_kind = []
    for kind, members in kinds.items():
        data = {mime: ("" if mime == "text/html" else "\n\n").join(m.data[mime] for m in members) for mime in kind}
        facts = [dict(m.facts) for m in members if m.facts]
        merged_by_kind.append(Display(data, {"parts": facts} if facts else {}))
    return merged_by_kind
