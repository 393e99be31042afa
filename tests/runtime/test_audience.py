"""Listeners and their events, and which loops run."""

from __future__ import annotations

from prose_kernel.language.source import Source, Span
from prose_kernel.runtime.events import ArmChosen, Audience, Event, LoopPass, Place, Warned

PLACE = Place(Source("x", "cell"), Span(0, 1), 1)


class Hears:
    def __init__(self, *kinds: type[Event]) -> None:
        self.kinds = frozenset(kinds)
        self.heard: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event)


def test_a_listener_with_kinds_gets_only_those_and_no_listener_gets_the_others() -> None:
    loops, everything = Hears(LoopPass), list[Event]()
    audience = Audience((loops,))
    assert not audience[ArmChosen]
    audience.add(everything.append)
    passed, warned = LoopPass(PLACE, 0, None), Warned(PLACE, "W1", "careful")
    audience(passed)
    audience(warned)
    assert loops.heard == [passed] and everything == [passed, warned]


def test_who_comes_and_goes_in_an_inner_audience_is_known_outside() -> None:
    inner = Audience()
    outer = Audience((inner,))
    assert not outer[LoopPass]
    one = Hears(LoopPass)
    inner.add(one)
    assert outer[LoopPass] == (one,)
    inner.remove(one)
    assert not outer[LoopPass]
    inner.add(one)
    outer.remove(inner)
    assert not outer[LoopPass]
