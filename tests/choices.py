"""Choices from bytes, for Hypothesis strategies that generate whole programs.

Hypothesis draws all bytes together, and each byte is one choice. Drawing each choice separately takes twenty times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Choices:
    """Choices by the bytes of `data`. After its end, each choice is the first option, which is the smallest."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def below(self, count: int) -> int:
        """Return a number from 0 to `count - 1`."""
        return next(self._data, 0) * count // 256

    def of(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.below(len(options))]

    def many(self, make: Callable[[], T], most: int, least: int = 0) -> tuple[T, ...]:
        """Return the results of several calls of `make`."""
        return tuple(make() for _ in range(least + self.below(most - least + 1)))

    def maybe(self, make: Callable[[], T]) -> T | None:
        """Return the result of `make`, or None."""
        return make() if self.below(2) else None

    def bytes(self, count: int) -> bytes:
        """Return the next bytes unchanged."""
        return bytes(next(self._data, 0) for _ in range(count))


def choices(size: int) -> st.SearchStrategy[Choices]:
    """Return a strategy for choices from `size` bytes."""
    return st.binary(min_size=size, max_size=size).map(Choices)
