"""Messages between the driver and the actor on a worker: frozen data, small and picklable.

The driver sends orders (`Start`, `Stop`, ...) in numbered batches. The actor answers with numbered messages about each
command: `Chunk`s of its output, then its `End`. By the numbers both sides drop repeated messages, so nothing is done
twice even if the transport repeats a call.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from prose_kernel.runtime.ports import CommandRequest, CommandResult, Stream

POLL = 2.0
"""Seconds after which an actor answers without news. The driver's next call is its sign of life."""

SILENCE = 6.0
"""Seconds of waiting beyond the expected time after which the other side counts as lost."""

LEASE = POLL + SILENCE
"""Seconds without a call of the driver after which an actor ends its commands."""


class Start(Struct, frozen=True):
    """Run a command; `number` is unique among all commands of this driver."""

    number: int
    request: CommandRequest


class Stop(Struct, frozen=True):
    """Stop a command that the caller no longer needs."""

    number: int


class Interrupt(Struct, frozen=True):
    """Interrupt all running commands for the user."""


class Hold(Struct, frozen=True):
    """Pause the output of a command (`on`), because its consumer is too slow, or continue it."""

    number: int
    on: bool


class Inherit(Struct, frozen=True):
    """Let commands inherit these variables of the driver. Other variables that match a pattern are not inherited, not
    even from the worker."""

    patterns: tuple[str, ...]
    values: Mapping[str, str]


Order = Start | Stop | Interrupt | Hold | Inherit


class Chunk(Struct, frozen=True):
    """A part of a command's output, in reading order; `at` numbers the messages of this command."""

    number: int
    at: int
    pieces: tuple[tuple[Stream, str], ...]


class End(Struct, frozen=True):
    """A command has ended. The last message about it, sent after all of its output."""

    number: int
    at: int
    result: CommandResult


class Declined(Struct, frozen=True):
    """The worker is being retired and has not started this command. The last message about it."""

    number: int
    at: int


class Leaving(Struct, frozen=True):
    """The worker is being retired: it accepts no more commands. `number` is 0, because this concerns no command."""

    number: int = 0
    at: int = 1


News = Chunk | End | Declined | Leaving


class Facts(Struct, frozen=True):
    """An actor's first message. `instance` is unique for each actor. `proof` is the content of the driver's file, or
    `why_not` the reason why the actor cannot read it. `leaving`: the worker is being retired."""

    instance: str
    versions: Mapping[str, str]
    host: str
    pid: int
    proof: str | None
    why_not: str = ""
    leaving: bool = False
