"""The recordings of one run: what is recorded, what is used, what is still to be written (sessions.md 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prose_kernel.machine.ports import Asker, Clock, SessionRequest
from prose_kernel.sessions.options import CassetteMode, CassetteOptions, Rule, Surroundings

ToolNames = Callable[[SessionRequest], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Hit:
    """What would answer a session: the record, and how it was found."""

    key: str
    at: str
    file: str
    line: int
    how: Literal["path", "key", "reuse"]
    origin: str = ""
    provider: str = ""
    resolved: str = ""
    recorded: str = ""


@dataclass(frozen=True, slots=True)
class Miss:
    """That nothing is recorded for a session; `message` and `hint` are what `CassetteMiss` says."""

    key: str
    at: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Unused:
    """A record that the run has not used, of a cassette that it has used."""

    file: str
    line: int
    type: str
    at: str


def no_tools(request: SessionRequest) -> tuple[str, ...]:
    return ()


class Cassettes:
    """All recordings that a run may replay, and the one it writes.

    One object for each run, kept when the provider changes; `tool_names` says which tools the permissions of a session
    could ever allow (whoever answers), `permissions` are the host's rules. Nothing is read before the first session.
    """

    def __init__(
        self,
        options: CassetteOptions,
        where: Surroundings,
        clock: Clock,
        *,
        tool_names: ToolNames = no_tools,
        permissions: Mapping[str, Rule] | None = None,
    ) -> None:
        raise NotImplementedError

    def mode(self, asker: Asker) -> CassetteMode:
        """The mode in force: as chosen, else `auto` where somebody can answer, `replay` where nobody can."""
        raise NotImplementedError

    def find(self, request: SessionRequest) -> Hit | Miss:
        """What a replay would do with this session, without using the record up."""
        raise NotImplementedError

    def note_ask(self, at: str, question: str, answer: str) -> None:
        """Write down a permission question and its answer, for reading; it never grants anything."""
        raise NotImplementedError

    def unused(self) -> tuple[Unused, ...]:
        """Records of the cassettes in use that this run has not needed, in file order."""
        raise NotImplementedError

    def take_warnings(self) -> tuple[str, ...]:
        """What went wrong with recordings since the last call, one line each; `RecordedSessions` shows them itself."""
        raise NotImplementedError

    def close(self) -> None:
        """The run is over: rewrite the cassette if records were replaced. A second call does nothing."""
        raise NotImplementedError
