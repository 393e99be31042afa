"""Parallel output appears in source order, whatever the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from prose_kernel.cli.ordered_output import SourceOrder
from prose_kernel.runtime.events import BranchStep


@dataclass
class Work:
    """The steps of a branch, in order: a step prints a word, or runs branches in parallel."""

    steps: list[str | list[Work]] = field(default_factory=list)

    def words(self) -> list[str]:
        return [w for s in self.steps for w in ([s] if isinstance(s, str) else [w for b in s for w in b.words()])]


words = st.text("abc", min_size=1, max_size=3)
work = st.recursive(
    st.builds(Work, st.lists(words, max_size=3)),
    lambda inner: st.builds(Work, st.lists(words | st.lists(inner, min_size=1, max_size=3), max_size=3)),
    max_leaves=12,
)


class Runner:
    """Runs `Work` one step at a time, and reports to a SourceOrder; the caller chooses the next branch."""

    def __init__(self, order: SourceOrder, joins: bool) -> None:
        self.order = order
        self.joins = joins
        self.numbers = iter(range(10_000))

    def run(self, branch: Work, path: tuple[BranchStep, ...], choose: st.DataObject) -> object:
        for step in branch.steps:
            if isinstance(step, str):
                self.order.say(path, step)
                yield
                continue
            number = next(self.numbers)
            self.order.started(path, number, len(step))
            running = {i: self.run(b, (*path, BranchStep(number, i, f"_{i}")), choose) for i, b in enumerate(step)}
            while running:
                index = choose.draw(st.sampled_from(sorted(running)))
                if next(running[index], running) is running:
                    del running[index]
                    self.order.finished((*path, BranchStep(number, index, f"_{index}")))
                yield
            if self.joins:
                self.order.joined(path, number)


@given(work, st.booleans(), st.data())
def test_output_comes_in_source_order_for_every_schedule(root: Work, joins: bool, data: st.DataObject) -> None:
    output: list[object] = []
    order = SourceOrder(output.append)
    for _ in Runner(order, joins).run(root, (), data):
        pass
    order.close()
    assert output == root.words()


def test_the_first_unfinished_branch_is_live() -> None:
    output: list[object] = []
    order = SourceOrder(output.append)
    a, b = (BranchStep(0, 0, "a"),), (BranchStep(0, 1, "b"),)
    order.started((), 0, 2)
    order.say(b, "b1")
    assert output == []
    order.say(a, "a1")
    assert output == ["a1"]
    order.finished(a)
    assert output == ["a1", "b1"]
    order.say(b, "b2")
    assert output == ["a1", "b1", "b2"]


def test_an_abandoned_parallel_holds_nothing_back() -> None:
    output: list[object] = []
    order = SourceOrder(output.append)
    order.started((), 0, 3)
    order.say((BranchStep(0, 2, "c"),), "c1")
    order.say((), "after")
    assert output == ["c1", "after"]


def test_ten_thousand_branches_come_in_order() -> None:
    output: list[object] = []
    order = SourceOrder(output.append)
    order.started((), 0, 10_000)
    for i in reversed(range(10_000)):
        step = (BranchStep(0, i, f"i{i}"),)
        order.say(step, i)
        order.finished(step)
    order.joined((), 0)
    assert output == list(range(10_000))
