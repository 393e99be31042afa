"""Choices from bytes: for strategies of Hypothesis that make whole programs.

Hypothesis draws the bytes at once, and each of them is one choice: to draw each choice by itself takes twenty times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Choices:
    """The choices by the bytes of `data`; after its end always the first one, which is the smallest."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def below(self, count: int) -> int:
        """A number from 0 to one less than `count`."""
        return next(self._data, 0) * count // 256

    def of(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[self.below(len(options))]

    def many(self, make: Callable[[], T], most: int, least: int = 0) -> tuple[T, ...]:
        """Some of what `make` returns."""
        return tuple(make() for _ in range(least + self.below(most - least + 1)))

    def maybe(self, make: Callable[[], T]) -> T | None:
        """What `make` returns, or nothing."""
        return make() if self.below(2) else None

    def bytes(self, count: int) -> bytes:
        """The next bytes as they are."""
        return bytes(next(self._data, 0) for _ in range(count))


def choices(size: int) -> st.SearchStrategy[Choices]:
    """Choices from a number of bytes."""
    return st.binary(min_size=size, max_size=size).map(Choices)
