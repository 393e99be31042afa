"""Values from Python that have no literal: a file represents the value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GivenFile:
    """An image or PDF from Python. `path` is the file that holds it, `about` says in words what it is."""

    path: str
    about: str
