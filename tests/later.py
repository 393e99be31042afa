"""Modules that are imported when a test first uses them. Each process of pytest collects all tests, and one runs them."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """The module with this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for marks of its own
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
