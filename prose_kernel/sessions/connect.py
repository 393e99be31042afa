"""The doors of this room, made from settings in one call: what a workspace plugs into its machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from prose_kernel.machine.ports import Asker, Clock, Commands, Judge, Sessions, User
from prose_kernel.sessions.judge import JudgeChain
from prose_kernel.sessions.providers import select
from prose_kernel.sessions.user import PersonUser, SerialAsker, serial

if TYPE_CHECKING:
    from prose_kernel.sessions.providers.scripted import Script


@dataclass(frozen=True, slots=True)
class Doors:
    """`asker` is the person all of them share: gates must be given the same one, so that questions take turns.

    `commands` is set when commands must not run either (a dry run); None means: run them.
    """

    sessions: Sessions
    judge: Judge
    user: User
    asker: SerialAsker
    commands: Commands | None = None


def connect(
    asker: Asker,
    *,
    provider: str | None = None,
    script: str | None = None,
    judge_rules: Literal["first", "only", "off"] = "first",
    clock: Clock | None = None,
    interrupt: Callable[[], object] | None = None,
) -> Doors:
    """The ports `sessions`, `judge` and `user` for these settings (see `settings.Settings` for each).

    `script` is the path of a script; its judgements count with every provider. `interrupt` cancels the
    run; a person's `:quit` calls it. Raises `UsageError` for an unknown provider or a script that makes no sense.
    """
    person = serial(asker)
    loaded: Script | None = None
    if script:
        from prose_kernel.sessions.providers.scripted import load_script

        loaded = load_script(script)
    commands: Commands | None = None
    if provider == "dry-run":
        from prose_kernel.sessions.providers.dry_run import DryRunCommands

        commands = DryRunCommands()
    return Doors(
        sessions=select(provider, asker=person, script=loaded, clock=clock, interrupt=interrupt),
        judge=JudgeChain(judge_rules, person, loaded, dry_run=commands is not None),
        user=PersonUser(person),
        asker=person,
        commands=commands,
    )
