"""What a `parallel` shows: the rows of its progress display, and its branches' output in source order at the join."""

from __future__ import annotations

import asyncio

from prose_kernel.presentation import cards
from prose_kernel.presentation.display import Display
from prose_kernel.runtime.events import BranchStep, ParallelStarted
from prose_kernel.runtime.ports import Stream

BranchPath = tuple[tuple[int, int], ...]


class Branch:
    """What one branch has to show: pieces of streams and displays, in its own order."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[tuple[Stream, str] | Display] = []


class Join:
    """An outermost `parallel`: its rows for the progress display, and what its branches show at the join."""

    def __init__(self, event: ParallelStarted) -> None:
        self.number = event.parallel
        names = event.labels or (None,) * event.count
        letters = "i{}" if event.iterations else "_{}"
        start = 0 if event.iterations else 1
        self.rows = [cards.BranchRow(name or letters.format(at + start)) for at, name in enumerate(names)]
        self.total = event.count
        self.branches: dict[BranchPath, Branch] = {}
        self.labels: dict[BranchPath, str] = {}
        self.display_id: str | None = None
        self.timer: asyncio.TimerHandle | None = None

    def branch(self, steps: tuple[BranchStep, ...]) -> Branch:
        path = tuple((step.parallel, step.index) for step in steps)
        found = self.branches.get(path)
        if found is None:
            found = self.branches[path] = Branch()
            self.labels[path] = "/".join(step.label for step in steps)
        return found

    def row(self, steps: tuple[BranchStep, ...]) -> cards.BranchRow | None:
        index = steps[0].index
        return self.rows[index] if 0 <= index < len(self.rows) else None


def fold(join: Join, outer: BranchPath, inner: int) -> None:
    """A nested `parallel` joined: what its branches showed now belongs, in source order, to the branch around it."""
    depth = len(outer)
    paths = sorted(p for p in join.branches if len(p) > depth and p[:depth] == outer and p[depth][0] == inner)
    if not paths:
        return
    target = join.branches.get(outer)
    if target is None:
        target = join.branches[outer] = Branch()
        join.labels[outer] = join.labels[paths[0]].rsplit("/", len(paths[0]) - depth)[0]
    base = len(join.labels[outer]) + 1
    for path in paths:
        prefix = join.labels.pop(path)[base:]
        for item in merged(join.branches.pop(path).items):
            target.items.append(item if isinstance(item, Display) else (item[0], prefixed(item[1], prefix)))


def merged(items: list[tuple[Stream, str] | Display]) -> list[tuple[Stream, str] | Display]:
    """Pieces of one branch: all of its stdout, then all of its stderr, then its displays; so that the order does not
    depend on how the two streams of a command happened to interleave."""
    out: list[tuple[Stream, str] | Display] = []
    for name in ("stdout", "stderr"):
        text = "".join(item[1] for item in items if not isinstance(item, Display) and item[0] == name)
        if text:
            out.append((name, text))
    return out + [item for item in items if isinstance(item, Display)]


def prefixed(text: str, label: str) -> str:
    """Every line with its branch in front; the text ends with a line end, so that branches do not run together."""
    body = text[:-1] if text.endswith("\n") else text
    return f"[{label}] " + body.replace("\n", f"\n[{label}] ") + "\n"


def gathered(displays: list[Display]) -> list[Display]:
    """Many displays as one of each kind."""
    kinds: dict[tuple[str, ...], list[Display]] = {}
    for display in displays:
        kinds.setdefault(tuple(display.data), []).append(display)
    gathered = []
    for kind, members in kinds.items():
        data = {mime: ("" if mime == "text/html" else "\n\n").join(m.data[mime] for m in members) for mime in kind}
        facts = [dict(m.facts) for m in members if m.facts]
        gathered.append(Display(data, {"parts": facts} if facts else {}))
    return gathered
