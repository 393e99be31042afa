"""Modules that are imported at their first use, because each process of pytest collects all tests, but runs only some."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """A module by name, imported when an attribute is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest reads such attributes of all objects
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
