"""Paths that begin with `~`."""

from __future__ import annotations

import os


def expanded(path: str | os.PathLike[str]) -> str:
    """Return the path with `~` or `~user` replaced by the home directory. A path with an unknown user is unchanged."""
    return os.path.expanduser(path)  # noqa: PTH111 - `Path.expanduser` raises an error for an unknown user
