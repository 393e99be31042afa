"""Faults: wrong values in agent configurations and call options."""

from __future__ import annotations

from typing import Final, NamedTuple

UNKNOWN: Final = object()
"""A value that only the run will know."""


class Fault(NamedTuple):
    """A wrong value. `path` leads to it from the option or configuration: keys of objects, indexes of lists.

    `message` is the rest of a sentence that begins with the name of the key; `accepted` describes valid values.
    """

    path: tuple[str | int, ...]
    message: str
    accepted: str

    @property
    def subject(self) -> str:
        """The path as programs write it: `memory.scope`, `skills[0]`."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text

    def __str__(self) -> str:
        return f"`{self.subject}` {self.message}"
