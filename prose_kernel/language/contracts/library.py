"""The interface to the environment of a contract file: other files, and the machine's tools (prose-md.md 8, 9)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Protocol

from prose_kernel.language.openprose.names import Contract
from prose_kernel.language.source import Source

LIBRARY: Final = "library:"
"""The path for which the loader of programs returns the `Library` of a text."""


class Library(Protocol):
    """The files around one text. An address identifies a file. Answers don't change while a text is compiled."""

    shared: dict[Hashable, Any] | None
    """The compiler's cache for other texts in the directory, as long as no file changes; None disables it."""

    @property
    def home(self) -> str:
        """The address of the text itself."""

    def resolve(self, importer: str, path: str) -> str:
        """Return the address for a path (9). Raises `ImportProgramError` (E330)."""

    def siblings(self, importer: str, name: str) -> tuple[str, ...]:
        """Return the addresses for a bare name (3.5 steps 5 and 6); several if the name is ambiguous."""

    def sibling_names(self, importer: str) -> tuple[str, ...]:
        """Return the bare names of the files next to `importer`, in order."""

    def above(self, importer: str, name: str) -> str | None:
        """Return the file with this name in the nearest directory, from the importer's upwards; for the subject of a
        test (7)."""

    def read(self, address: str) -> Source:
        """Return the source of a contract file. Raises `ImportProgramError` (E215, E330)."""

    def program(self, address: str) -> Contract:
        """Return the contract of a `.prose` program. Raises `ImportProgramError` (E215, E112)."""

    def handle(self, address: str) -> str:
        """Return the first part of the name of a call's directory: `local`, or the owner of a dependency (2)."""

    def has_tool(self, name: str) -> bool:
        """Return whether this machine has the program `name`."""

    def has_variable(self, name: str) -> bool:
        """Return whether the environment variable is set. Its value is never read."""

    def has_skill(self, name: str) -> bool:
        """Return whether this machine has a skill (8)."""
