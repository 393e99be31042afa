"""Objects that are made when a program first uses them.

A program without sessions, and whose conditions rules decide, should not pay for providers, recordings and permissions:
the ports of its machine are proxies, and the first call through one of them loads the rooms it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class _Lazy:
    def __init__(self, get: Callable[[], Any]) -> None:
        self._get = get

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)


def lazy(get: Callable[[], T]) -> T:
    """Return a proxy for what `get` returns. `get` is called at each use of an attribute, never before."""
    return cast("T", _Lazy(get))
