"""Objects that are made when a program first uses them.

A program without sessions, and whose conditions rules decide, should not pay for providers, recordings and permissions:
the ports of its machine are proxies, and the first call through one of them loads the rooms it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class _Lazy:
    def __init__(self, get: Callable[[], Any]) -> None:
        self._get = get

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)


def lazy(get: Callable[[], T]) -> T:
    """Return a proxy for what `get` returns. `get` is called at each use of an attribute, never before."""
    return cast("T", _Lazy(get))


class Once(Generic[T]):
    """A value that is made when it is first needed. `made` is None before."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made

    def take(self) -> T | None:
        """Give the value away, if it was made; the next call makes another one."""
        made, self.made = self.made, None
        return made
