"""Writes agents' memories to the tables `agents` and `agent_segments` (docs/reference/openprose.md 7.2, 7.8)."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from prose_kernel.access import plain_files
from prose_kernel.errors import StateError
from prose_kernel.runtime.clock import timestamp
from prose_kernel.runtime.ports import AgentMemory, Clock
from prose_kernel.storage.database import schema
from prose_kernel.storage.database.schema import Connection, Database, DatabaseError
from prose_kernel.storage.database.statements import Statements
from prose_kernel.storage.run_directory import RunDirectory

Agents = Mapping[tuple[str, str], tuple[AgentMemory, tuple[str, ...]]]
"""By the program's prefix and the agent: its memory, and the prompts of the sessions that have written it."""

_PROMPT: Final = re.compile(r'^prompt: (".*")$', re.MULTILINE)


def merged(earlier: Agents, later: Agents) -> Agents:
    """Return the union. An agent that is in both has the later memory and the prompts of both."""
    known = {key: (memory, (*earlier[key][1], *prompts)) for key, (memory, prompts) in later.items() if key in earlier}
    return {**earlier, **later, **known}


class AgentRows:
    """Writes the rows of agents. `users` is the database of their memories for the user; None means the run's."""

    def __init__(self, sql: Statements, home: RunDirectory, clock: Clock, users: Database | None) -> None:
        self._sql = sql
        self._home = home
        self._clock = clock
        self._users = users
        self._reported = False

    def write(self, connection: Connection, agents: Agents) -> None:
        """Write the agents that belong to the run's database, in an open transaction. Raises `DatabaseError`."""
        for (prefix, _), (memory, prompts) in agents.items():
            if not self._is_for_user_database(memory):
                self._write(connection, memory, prompts, prefix)

    def write_of_user(self, agents: Agents) -> tuple[Agents, tuple[str, str] | None]:
        """Write agents' memories for the user to the user's database, if that is another one.

        Return the agents that could not be written, and for the first failure also a name and the reason. Nothing
        waits for these rows, because files hold the memories anyway.
        """
        own = {key: found for key, found in agents.items() if self._is_for_user_database(found[0])}
        if self._users is None or not own:
            return {}, None
        try:
            with contextlib.closing(self._users.connect()) as connection, connection.transaction():
                for (prefix, _), (memory, prompts) in own.items():
                    self._write(connection, memory, prompts, prefix)
        except (DatabaseError, StateError) as error:
            problem = (f"memory of {next(iter(own.values()))[0].agent}", str(error))
            known, self._reported = self._reported, True
            return own, None if known else problem
        self._reported = False
        return {}, None

    def _is_for_user_database(self, memory: AgentMemory) -> bool:
        return self._users is not None and memory.scope == "user"

    def _write(self, connection: Connection, memory: AgentMemory, prompts: Sequence[str], prefix: str) -> None:
        """Write the current memory file of an agent, and the segments of its last sessions."""
        sql = self._sql
        scope = memory.scope if memory.scope in ("project", "user") else "execution" if memory.scope == "true" else ""
        project = scope in ("project", "user", "")
        name = f"{prefix}{memory.agent}"
        if self._is_for_user_database(memory):
            name = memory.agent
        elif scope == "user" and sql.dialect.shared:
            name = f"__user__{memory.agent}"
        place, now = self._home.cwd / memory.directory, timestamp(self._clock.now())
        text = self._text_of(place / "memory.md")
        row = sql.row(schema.AGENTS, name, scope or "custom", text, now, now, project=project)
        connection.execute(sql.upsert(schema.AGENTS), row)
        last = _last_segment(place, memory.agent)
        for newest, prompt in enumerate(prompts[-last:] if last else (), max(1, last - len(prompts) + 1)):
            number, segment = self._segment_of(place, memory.agent, prompt, newest)
            values = (name, number, now, sql.clean(prompt), segment)
            row = sql.row(schema.AGENT_SEGMENTS, *values, project=project)
            connection.execute(sql.upsert(schema.AGENT_SEGMENTS), row)

    def _segment_of(self, place: Path, agent: str, prompt: str, newest: int) -> tuple[int, str | None]:
        """Return number and text of the segment that a session with this prompt has added: `newest`, unless that one
        names another prompt. In a replay the memory may have segments of later sessions, whose answers are lost."""
        text = last = self._text_of(place / f"{agent}-{newest:03}.md")
        for number in range(newest, 0, -1):
            if _may_be_of(text, prompt):
                return number, text
            text = self._text_of(place / f"{agent}-{number - 1:03}.md")
        return newest, last

    def _text_of(self, file: Path) -> str | None:
        try:
            return self._sql.clean(plain_files.read(file).decode("utf-8", "replace"))
        except OSError:
            return None


def _may_be_of(segment: str | None, prompt: str) -> bool:
    """Return whether a segment names no other prompt. It may shorten the prompt, or have a form chosen by a session."""
    found = _PROMPT.search(segment or "")
    try:
        return found is None or prompt.startswith(str(json.loads(found[1])).removesuffix("…"))
    except ValueError:
        return True


def _last_segment(directory: Path, agent: str) -> int:
    """Return the number of the newest segment file of an agent; 0 without one."""
    numbered = re.compile(re.escape(agent) + r"-(\d{3,})\.md")
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError:
        return 0
    return max((int(match[1]) for name in names if (match := numbered.fullmatch(name))), default=0)
