"""Messages between the driver and the actor on a worker: frozen data, small and picklable.

The driver sends (`Start`, `Stop`, ...) in numbered batches; the actor answers with numbered messages of each command:
`Chunk`s of its output, then its `End`. A number lets both sides drop what they have already, so nothing is done twice
even if the transport repeats a call.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from prose_kernel.runtime.ports import CommandRequest, CommandResult, Stream

POLL = 2.0
"""Seconds that an actor lets the driver wait for news. Its coming back is the driver's sign of life."""

SILENCE = 6.0
"""Seconds without an answer, beyond what was asked for, after which the other side counts as lost."""

LEASE = POLL + SILENCE
"""Seconds after which an actor that hears nothing ends its commands."""


class Start(Struct, frozen=True):
    """Run a command; `number` is its own among all of this driver."""

    number: int
    request: CommandRequest


class Stop(Struct, frozen=True):
    """The caller no longer needs a command."""

    number: int


class Interrupt(Struct, frozen=True):
    """A user's interrupt of all running commands."""


class Hold(Struct, frozen=True):
    """Pause the output of a command (`on`) while its consumer cannot take more, or continue it."""

    number: int
    on: bool


class Inherit(Struct, frozen=True):
    """The variables of the driver that commands inherit from now on. Variables that match a pattern and aren't among
    them aren't inherited from the worker either."""

    patterns: tuple[str, ...]
    values: Mapping[str, str]


Order = Start | Stop | Interrupt | Hold | Inherit


class Chunk(Struct, frozen=True):
    """A part of a command's output, in the order in which it was read; `at` counts the messages of this command."""

    number: int
    at: int
    pieces: tuple[tuple[Stream, str], ...]


class End(Struct, frozen=True):
    """A command has ended, and all of its output was sent before. The last message about it."""

    number: int
    at: int
    result: CommandResult


class Declined(Struct, frozen=True):
    """The worker is being retired and has not started this command. The last message about it."""

    number: int
    at: int


class Leaving(Struct, frozen=True):
    """The worker is being retired: it accepts no more commands. It belongs to no command, so its number is 0."""

    number: int = 0
    at: int = 1


News = Chunk | End | Declined | Leaving


class Facts(Struct, frozen=True):
    """An actor introduces itself. `instance` is new for each actor; `proof` is what it read from the driver's file,
    or `why_not` says why it could not. A worker that is `leaving` is being retired."""

    instance: str
    versions: Mapping[str, str]
    host: str
    pid: int
    proof: str | None
    why_not: str = ""
    leaving: bool = False
