"""The number of parallel calls to a server that has reported that it is busy."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from machine.fakes import FakeClock

from prose_kernel.errors import ProviderConnection, ProviderError, ProviderOverloaded, ProviderRateLimit
from prose_kernel.models.providers.model_servers import SKIP_SECONDS, Throttle


class Server:
    """Calls through a throttle, which the test ends."""

    def __init__(self, most: int) -> None:
        self.clock = FakeClock()
        self.throttle = Throttle("stub", most, self.clock)
        self.calls: list[asyncio.Future[None]] = []
        self.begun: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def call(self, number: int) -> None:
        with suppress(ProviderError):
            async with self.throttle.slot():
                self.begun.append(number)
                self.calls.append(asyncio.get_running_loop().create_future())
                await self.calls[-1]

    async def start(self, count: int) -> None:
        self.tasks += [asyncio.create_task(self.call(len(self.tasks) + n)) for n in range(count)]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def end(self, *numbers: int, error: Exception | None = None) -> None:
        for number in numbers:
            if error is None:
                self.calls[number].set_result(None)
            else:
                self.calls[number].set_exception(error)
        await self.settle()


async def test_a_refusal_halves_the_limit_and_each_round_of_answers_adds_one() -> None:
    server = Server(8)
    await server.start(30)
    assert server.begun == list(range(8))
    await server.end(0, 1, 2, error=ProviderOverloaded("busy", busy=True))  # calls of one batch count as one report
    assert (server.throttle.allowed, len(server.begun)) == (4, 8)
    await server.end(3, 4, 5, 6, 7)  # these calls began before the refusal, so they do not report the present load
    assert (server.throttle.allowed, len(server.begun)) == (4, 12)
    await server.end(8, 9, 10, 11)
    assert 4.9 < server.throttle.allowed < 5
    await server.end(12)
    assert 5 < server.throttle.allowed < 5.2
    assert server.begun == list(range(len(server.begun)))  # in the order of their arrival
    for task in server.tasks:
        task.cancel()
    await asyncio.gather(*server.tasks, return_exceptions=True)
    again = asyncio.create_task(server.call(99))  # cancelled calls hold no slot
    await server.settle()
    assert server.begun[-1] == 99
    again.cancel()


async def test_the_limit_never_exceeds_the_settings() -> None:
    server = Server(2)
    await server.start(10)
    for number in range(10):
        await server.end(number)
    assert server.throttle.allowed == 2
    assert not server.throttle.slowed


async def test_no_call_begins_while_the_server_asks_to_wait() -> None:
    server = Server(4)
    await server.start(6)
    await server.end(0, error=ProviderRateLimit("slow down", retry_after=7.0))
    await server.end(1, 2, 3)
    for _ in range(500):  # time moves after 300 turns of the loop for other tasks
        await asyncio.sleep(0)
    assert server.clock.slept == [7.0]  # one of them waits for the pause, the others queue
    assert (server.clock.time, server.begun) == (7.0, [0, 1, 2, 3, 4, 5])
    await server.end(4, error=ProviderRateLimit("slow down", retry_after=60.0))
    assert server.throttle.closed_for == 60.0
    for task in server.tasks:
        task.cancel()


async def test_a43_only_a_pause_that_the_server_asks_for_is_waited_for() -> None:
    server = Server(2)
    for number in range(4):
        await server.start(1)
        await server.end(number, error=ProviderOverloaded("busy", busy=True))
        assert server.throttle.closed_for == 0
    assert (server.throttle.allowed, server.clock.slept) == (1, [])


async def test_a43_a_server_that_asks_for_a_day_is_not_waited_for() -> None:
    server = Server(1)
    await server.start(1)
    await server.end(0, error=ProviderRateLimit("slow down", retry_after=86_400.0))
    with pytest.raises(ProviderOverloaded) as refused:
        async with server.throttle.slot():
            raise AssertionError("it was called")
    assert (refused.value.retryable, server.clock.slept) == (False, [])


async def test_a43_after_three_failures_one_call_probes_the_server_every_half_minute() -> None:
    server = Server(8)
    for number in range(2):
        await server.start(1)
        await server.end(number, error=ProviderConnection("away"))
    assert not server.throttle.is_skipped
    await server.start(1)
    await server.end(2, error=ProviderOverloaded("failed inside"))
    assert server.throttle.is_skipped
    with pytest.raises(ProviderOverloaded):
        async with server.throttle.slot(0.0, elsewhere=True):
            raise AssertionError("it was called")
    server.clock.time += SKIP_SECONDS
    assert not server.throttle.is_skipped
    await server.start(1)  # this call probes the server; other calls skip the server until it ends
    assert (server.begun, server.throttle.is_skipped) == ([0, 1, 2, 3], True)
    await server.end(3)
    assert not server.throttle.is_skipped


async def test_other_failures_leave_the_limit_unchanged() -> None:
    server = Server(4)
    await server.start(3)
    await server.end(0, error=ProviderOverloaded("failed inside"))
    await server.end(1, error=ProviderError("no"))
    assert server.throttle.allowed == 4


async def test_waiting_for_a_pause_is_interrupted_immediately() -> None:
    server = Server(1)
    await server.start(2)
    server.clock.sleep = lambda seconds: asyncio.Event().wait()  # type: ignore[method-assign,assignment,return-value]
    await server.end(0, error=ProviderRateLimit("slow down", retry_after=60.0))
    server.tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await server.tasks[1]
    assert server.begun == [0]


async def test_a_call_with_a_fallback_does_not_wait_for_a_long_pause() -> None:
    """This includes calls that queued before the server closed, even after calls that must wait."""
    server = Server(1)
    await server.start(2)  # a call, and one without a fallback
    refused: list[str] = []

    async def impatient() -> None:
        try:
            async with server.throttle.slot(patience=10.0, elsewhere=True):
                raise AssertionError("it was called")
        except ProviderOverloaded as problem:
            refused.append(str(problem))

    waiting = [asyncio.create_task(impatient()) for _ in range(3)]
    await server.settle()
    assert refused == []
    pause = asyncio.Event()
    server.clock.sleep = lambda seconds: pause.wait()  # type: ignore[method-assign,assignment,return-value]
    await server.end(0, error=ProviderRateLimit("slow down", retry_after=120.0))
    await asyncio.gather(*waiting)
    assert refused == ["stub: the server has asked not to be called for now"] * 3
    with pytest.raises(ProviderOverloaded):  # also between two rounds of a conversation
        await server.throttle.opens(patience=10.0)
    assert server.throttle.allowed == 1 and server.begun == [0]
    for task in server.tasks:
        task.cancel()
    await asyncio.gather(*server.tasks, return_exceptions=True)


async def test_a_short_pause_is_waited_for_by_all() -> None:
    server = Server(1)
    await server.start(1)
    await server.end(0, error=ProviderRateLimit("slow down", retry_after=7.0))
    async with server.throttle.slot(patience=10.0):
        assert server.clock.time == 7.0
