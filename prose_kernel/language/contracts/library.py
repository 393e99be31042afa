"""The environment of a contract file: other files, and the tools of this machine (prose-md.md 8, 9)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Protocol

from prose_kernel.language.openprose.names import Contract
from prose_kernel.language.source import Source

LIBRARY: Final = "library:"
"""The path that gives the `Library` of a text, where programs are loaded by their paths."""


class Library(Protocol):
    """The files around one text. An address names a file; answers stay the same while a text is compiled."""

    shared: dict[Hashable, Any] | None
    """The compiler's cache for later texts of the directory while no file changes; None: nothing is cached."""

    @property
    def home(self) -> str:
        """The address of the text itself."""

    def resolve(self, importer: str, path: str) -> str:
        """The address that a path leads to (9). Raises `ImportProgramError` (E330)."""

    def siblings(self, importer: str, name: str) -> tuple[str, ...]:
        """The files for a bare name (3.5 steps 5 and 6); several of them when the name is ambiguous."""

    def sibling_names(self, importer: str) -> tuple[str, ...]:
        """Return the names that lead to files next to `importer`, in order."""

    def above(self, importer: str, name: str) -> str | None:
        """The file of that name in the nearest directory upwards, for the subject of a test (7)."""

    def read(self, address: str) -> Source:
        """The text of a contract file. Raises `ImportProgramError` (E215, E330)."""

    def program(self, address: str) -> Contract:
        """The contract of a `.prose` program. Raises `ImportProgramError` (E215, E112)."""

    def handle(self, address: str) -> str:
        """The first part of the name of a call's directory: `local`, or the owner of a dependency (2)."""

    def has_tool(self, name: str) -> bool:
        """Whether this machine has the program `name`."""

    def has_variable(self, name: str) -> bool:
        """Whether the environment variable is set. Its value is never read."""

    def has_skill(self, name: str) -> bool:
        """Whether this machine has a skill (8)."""
