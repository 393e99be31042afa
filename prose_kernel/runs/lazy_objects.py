"""Objects that are made when a program first uses them.

A program without sessions, whose conditions are decided by rules, should not pay for providers, recordings and
permissions: some ports of its machine are proxies, and the first call through a proxy loads the rooms that it needs.
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
    """Return a proxy for the object that `get` returns. Each use of an attribute calls `get`."""
    return cast("T", _Lazy(get))


class Once(Generic[T]):
    """A value that is made when it is first needed; `made` is None until then."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made

    def take(self) -> T | None:
        """Return the value if it was made, and forget it: the next call makes another one."""
        made, self.made = self.made, None
        return made
