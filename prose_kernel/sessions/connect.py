"""The doors of this room, made from settings in one call: what a workspace plugs into its machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prose_kernel.machine.ports import Asker, Clock, Commands, Judge, Races, SessionRequest, Sessions, User
from prose_kernel.sessions.judge import JudgeChain
from prose_kernel.sessions.options import SessionOptions, Surroundings
from prose_kernel.sessions.providers import select
from prose_kernel.sessions.user import PersonUser, SerialAsker, serial

if TYPE_CHECKING:
    from prose_kernel.sessions.description import Description
    from prose_kernel.sessions.providers.scripted import Script
    from prose_kernel.sessions.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Doors:
    """`asker` is the person all of them share: gates must be given the same one, so that questions take turns.

    `commands` is set when commands must not run either (a dry run); None means: run them. `cassettes` are the
    recordings, `races` what they know of races. Close the doors when the run ends: agents' processes end, and what is
    recorded is on disk.
    """

    sessions: Sessions
    judge: Judge
    user: User
    asker: SerialAsker
    commands: Commands | None = None
    races: Races | None = None
    cassettes: Any = None
    usage: Any = None

    def describe(self, request: SessionRequest) -> Description:
        """What the session would be sent, to whom, with which tools and permissions, and what is recorded for it."""
        from prose_kernel.sessions.description import Description

        return Description.of(request)

    async def close(self) -> None:
        """End what the doors have started. A second call does nothing."""


def connect(
    asker: Asker,
    options: SessionOptions | None = None,
    where: Surroundings | None = None,
    *,
    clock: Clock | None = None,
    interrupt: Callable[[], object] | None = None,
    guard: Callable[[int], None] | None = None,
    more_tools: Sequence[Tool] = (),
) -> Doors:
    """The ports `sessions`, `judge` and `user` for these options.

    A script's judgements count with every provider. `interrupt` cancels the run; a person's `:quit` calls it. Raises
    `UsageError` for an unknown provider or a script that makes no sense.
    """
    options = options or SessionOptions()
    person = serial(asker)
    loaded: Script | None = None
    if options.script:
        from prose_kernel.sessions.providers.scripted import load_script

        loaded = load_script(options.script)
    commands: Commands | None = None
    if options.provider == "dry-run":
        from prose_kernel.sessions.providers.dry_run import DryRunCommands

        commands = DryRunCommands()
    return Doors(
        sessions=select(options.provider, asker=person, script=loaded, clock=clock, interrupt=interrupt),
        judge=JudgeChain(options.judge.rules, person, loaded, dry_run=commands is not None),
        user=PersonUser(person),
        asker=person,
        commands=commands,
    )
