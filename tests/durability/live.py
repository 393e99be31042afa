"""A run with its journal in memory, over scripted ports, and the same run again from any prefix of that journal.

The fake ports answer in one order, by the keys of the requests. A run resumed in the middle sees the rest of that order,
so it can be compared with the unbroken run, event for event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from machine.fakes import World

from prose_kernel.errors import RunError
from prose_kernel.runs.journal import RunJournal
from prose_kernel.runtime.events import CommandOutput, Event, SessionProgressed
from prose_kernel.runtime.host import Host
from prose_kernel.runtime.journal_records import Answered, Asked, Interrupted, Record, Rewound, Text
from prose_kernel.runtime.journal_replay import KnownRecords
from prose_kernel.runtime.requests import describe

ASKED: ContextVar[str] = ContextVar("ASKED", default="")
"""The key of the request that is being answered."""

PATIENCE = 30

Delay = Callable[[str], float | None]
"""Seconds until the request with this key is answered; None: immediately."""


class KeyedJournal(RunJournal):
    """A journal that passes the key of the current request to the fake ports."""

    async def answer(self, s: Any, request: Any, *more: Any, **options: Any) -> Any:
        ASKED.set(describe(request).key)
        return await super().answer(s, request, *more, **options)


@dataclass
class MemoryLog:
    """Collects the records of a run. `written` is called after each record."""

    records: list[Record] = field(default_factory=list)
    written: Callable[[], None] = lambda: None

    def append(self, record: Record) -> None:
        self.records.append(record)
        self.written()

    place = ""

    def rewind(self, to: int) -> None:
        self.append(Rewound(to))

    @property
    def must_flush(self) -> bool:
        return False

    @property
    def problem(self) -> str:
        return ""

    def close(self) -> None:
        """There is nothing to close."""


@dataclass
class Outcome:
    """Everything observable of a run, except the live output of commands and sessions."""

    records: list[Record]
    events: list[Any]
    values: dict[str, Any]
    result: str
    asked_outside: list[str]
    under_way: list[str] = field(default_factory=list)
    order: dict[str, float] = field(default_factory=dict)


def scripted(world: World, delay: Delay) -> list[str]:
    """Delay the answers of a world's ports by `delay`. Return the list that collects the keys of their requests."""
    asked: list[str] = []

    async def pass_time(text: str, seconds: float) -> None:
        asked.append(ASKED.get())
        wait = delay(ASKED.get())
        if wait is not None:
            await world.clock.wait(max(0.0, wait))

    async def sleep(seconds: float) -> None:
        await pass_time("", seconds)

    world.pass_time = pass_time  # type: ignore[method-assign]
    world.clock.sleep = sleep  # type: ignore[method-assign]
    return asked


async def live(
    world: World,
    texts: Sequence[str],
    delay: Delay,
    known: Sequence[Record] = (),
    *,
    interrupt_after: int | None = None,
    and_again: int | None = None,
) -> Outcome:
    """Run texts as cells after the records `known`. Interrupt a text that still runs after `interrupt_after` records,
    and a second time `and_again` passes of the event loop later."""
    asked = scripted(world, delay)
    host: Host = world.machine.host if not hasattr(world, "vvm") else world.vvm.host
    log, under_way = MemoryLog(), list[str]()
    before = KnownRecords(
        iter(list(enumerate(known))), on_live=lambda parked: under_way.extend(one.key for one in parked)
    )
    journal = KeyedJournal(log, host, known=before if known else None)  # type: ignore[arg-type]
    result, loop = [], asyncio.get_running_loop()
    for text in texts:
        task = asyncio.ensure_future(_text(world, journal, text))

        def written(task: asyncio.Future[str] = task) -> None:
            if interrupt_after is not None and len(log.records) == interrupt_after:
                loop.call_soon(journal.interrupt, task)
                if and_again is not None:
                    later(and_again, task)

        def later(passes: int, task: asyncio.Future[str]) -> None:
            if passes:
                loop.call_soon(later, passes - 1, task)
            elif journal.task is task:
                journal.interrupt(task)

        log.written = written
        result.append(await asyncio.wait_for(task, PATIENCE))
    machine = world.vvm if hasattr(world, "vvm") else world.machine
    return Outcome(
        [*known, *log.records],
        [seen(event) for event in world.events if not isinstance(event, (CommandOutput, SessionProgressed))],
        {name: seen(info.value) for name, info in machine.bindings().items()},
        "\n".join(result),
        asked,
        under_way,
    )


async def _text(world: World, run: RunJournal, text: str) -> str:
    try:
        with run.text(Text(0, "any", "cell", text)):
            return seen(await world.run(text, cell=True))
    except RunError as error:
        return f"{type(error).__name__} {error}"
    except asyncio.CancelledError:
        return "interrupted"


def order_of(records: Sequence[Record]) -> dict[str, float]:
    """Return the position of each answer by its key. Cancelled requests have no answer: infinity."""
    order: dict[str, float] = {}
    for at, record in enumerate(records):
        if isinstance(record, Answered):
            order[record.key] = float("inf") if record.cancelled else at
    return order


def in_order_of(outcome: Outcome, world: World, at_once: frozenset[str]) -> Delay:
    """Return delays that give the remaining answers of an outcome in their original order."""
    order = order_of(outcome.records)

    def delay(key: str) -> float | None:
        if key in at_once:
            return None
        when = order.get(key, 0.0)
        return 1e9 if when == float("inf") else when - world.clock.time

    return delay


def at_once_in(outcome: Outcome) -> frozenset[str]:
    return frozenset(r.key for r in outcome.records if isinstance(r, Answered) and r.at_once)


def seen(value: object) -> Any:
    """Return a value or an event as text, objects by their content."""
    if isinstance(value, Event):
        fields = {name: seen(getattr(value, name)) for name in value.__struct_fields__}
        return type(value).__name__, *fields.items()
    if isinstance(value, BaseException):
        return type(value).__name__, str(value), seen(dict(getattr(value, "details", {})))
    return _without_addresses(repr(value))


def _without_addresses(text: str) -> str:
    import re

    return re.sub(r" at 0x[0-9a-f]+", "", text)


def asked_keys(records: Sequence[Record]) -> list[str]:
    return [record.key for record in records if isinstance(record, Asked)]


def was_interrupted(records: Sequence[Record]) -> bool:
    return any(isinstance(record, Interrupted) for record in records)
