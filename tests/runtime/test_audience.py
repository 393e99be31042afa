"""Listeners and the kinds of events they receive."""

from __future__ import annotations

from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.events import ArmChosen, Audience, Event, LoopPass, Place, Warned

PLACE = Place(Source("x", "cell"), Span(0, 1), 1)


class Listener:
    def __init__(self, *kinds: type[Event]) -> None:
        self.kinds = frozenset(kinds)
        self.received: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.received.append(event)


def test_a_listener_with_kinds_gets_only_those_and_no_listener_gets_the_others() -> None:
    loops, everything = Listener(LoopPass), list[Event]()
    audience = Audience((loops,))
    assert not audience[ArmChosen]
    audience.add(everything.append)
    passed, warned = LoopPass(PLACE, 0, None), Warned(PLACE, "W1", "careful")
    audience(passed)
    audience(warned)
    assert loops.received == [passed] and everything == [passed, warned]


def test_changes_of_an_inner_audience_are_seen_by_the_outer_one() -> None:
    inner = Audience()
    outer = Audience((inner,))
    assert not outer[LoopPass]
    one = Listener(LoopPass)
    inner.add(one)
    assert outer[LoopPass] == (one,)
    inner.remove(one)
    assert not outer[LoopPass]
    inner.add(one)
    outer.remove(inner)
    assert not outer[LoopPass]
