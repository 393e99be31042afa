"""Captured output and live output of commands (exec-and-tasks.md 1.2 "Capture", 2.7, 5.1; hazards 1 to 18)."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import sys
import threading
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes.conftest import HOUR, Clock, Runner, end_of
from waiting import appears, eventually, until

from prose_kernel.processes.command_output import WAITING, Capture, Live
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.process_table import member_of
from prose_kernel.processes.shell import ShellCommands
from prose_kernel.runtime.ports import DEFAULT_MAX_OUTPUT as KEPT
from prose_kernel.runtime.ports import NOTHING_OMITTED, Omitted, Stream


class Seen:
    """A consumer that stores the received pieces."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Stream, str]] = []

    def __call__(self, stream: Stream, text: str) -> None:
        self.pieces.append((stream, text))

    def text(self, stream: Stream = "stdout") -> str:
        return "".join(text for name, text in self.pieces if name == stream)


LEADER = "echo $$ >pid; mv pid leader"


class Lines:
    """A pipe to a command, which prints each line when the test writes it."""

    COMMAND = "while read -r line; do echo $line; done <lines"

    def __init__(self, directory: Path) -> None:
        os.mkfifo(directory / "lines")
        self._end = os.open(directory / "lines", os.O_RDWR)  # does not wait for a reader

    def __enter__(self) -> Lines:
        return self

    def write(self, line: object) -> None:
        os.write(self._end, f"{line}\n".encode())

    def __exit__(self, *_: object) -> None:
        os.close(self._end)


@pytest.mark.slow
async def test_hazard_1_a_flood_on_both_streams_in_constant_memory(run: Runner) -> None:
    """The thorough profile runs the gigabyte of the reference."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = 1024**3 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 1024**3 // 4
    result = await run(f"head -c {size} /dev/zero & head -c {size} /dev/zero >&2; wait")
    assert (result.stdout_bytes, result.stderr_bytes) == (size, size)
    assert result.stdout_truncated and result.stderr_truncated
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


async def test_hazard_2_a_flood_does_not_move_the_limit(run: Runner, clock: Clock) -> None:
    seen = Seen()
    task = run.start("yes & yes >&2", seen, timeout=HOUR)
    await eventually(lambda: len(seen.text()) >= KEPT and seen.text("stderr"))
    await clock.forward(HOUR)
    result = await end_of(task)
    assert result.outcome == "timed_out"
    assert result.stdout == "y\n" * (KEPT // 2)


async def leader_is_gone(run: Runner) -> None:
    """Wait until the command has written `LEADER` and has ended."""
    await appears(run.directory / "leader")
    leader = int((run.directory / "leader").read_text())
    await eventually(lambda: member_of(leader) is None)


async def test_hazard_3_a_background_child_that_keeps_the_pipes(run: Runner, clock: Clock) -> None:
    """Also acceptance 10 of 2.11: draining ends after 100 ms of silence."""
    with clock.stopped():
        task = run.start(f"{LEADER}; sleep 600 & echo hi")
        await leader_is_gone(run)
        await clock.forward(0.09)
        assert not task.done()
        await clock.forward(0.02)
        result = await end_of(task)
    assert (result.stdout, result.pipes_held, result.background_left) == ("hi\n", True, 1)


async def test_hazard_4_a_detached_child_is_not_ended(run: Runner) -> None:
    result = await run("setsid env -i sh -c 'touch ready; exec sleep 7.1' & until [ -e ready ]; do :; done; echo hi")
    assert (result.stdout, result.pipes_held, result.background_left) == ("hi\n", True, 0)


async def test_hazard_5_output_of_a_child_just_after_the_exit_is_captured(run: Runner, clock: Clock) -> None:
    with clock.stopped():
        task = run.start(f"{LEADER}; (until [ -e go ]; do sleep 0.01; done; echo tail) & echo head")
        await leader_is_gone(run)
        await clock.forward(0.09)
        (run.directory / "go").touch()
        result = await end_of(task)
    assert (result.stdout, result.pipes_held) == ("head\ntail\n", False)


async def test_draining_ends_even_when_the_pipe_is_never_silent(run: Runner) -> None:
    result = await run("yes & sleep .05; exit 4")
    assert (result.outcome, result.exit_code, result.pipes_held) == ("exited", 4, True)


async def test_draining_ends_after_a_second(run: Runner, clock: Clock) -> None:
    seen = Seen()
    with clock.stopped(), Lines(run.directory) as lines:
        task = run.start(f"{LEADER}; {Lines.COMMAND} &", seen)
        await leader_is_gone(run)
        for number in range(12):
            lines.write(number)
            await eventually(lambda: seen.text().count("\n") == number + 1)  # noqa: B023
            assert not task.done()
            await clock.forward(0.09 if number < 11 else 0.02)  # never silent for 100 ms
        result = await end_of(task)
    assert (result.stdout, result.pipes_held) == (seen.text(), True)


async def test_hazard_6_closed_streams_are_not_the_end(run: Runner, clock: Clock) -> None:
    task = run.start("exec >&- 2>&-; touch ready; sleep 600", timeout=HOUR)
    await appears(run.directory / "ready")
    await clock.forward(HOUR / 2)
    assert not task.done()
    await clock.forward(HOUR / 2)
    assert (await end_of(task)).outcome == "timed_out"


async def test_hazard_7_characters_may_arrive_in_pieces(run: Runner) -> None:
    seen = Seen()
    result = await run(r"for b in '\303' '\244' '\360' '\237' '\230' '\200'; do printf $b; sleep .06; done", seen)
    assert result.stdout == seen.text() == "ä😀"
    assert result.replaced_bytes == 0


async def test_hazard_8_bytes_that_are_not_utf8_are_replaced_and_counted(run: Runner) -> None:
    seen = Seen()
    result = await run("head -c 1048576 /dev/urandom", seen)
    assert result.stdout_bytes == 1048576
    assert result.stdout_truncated
    assert 0 < result.replaced_bytes <= 1048576
    assert seen.text().startswith(result.stdout)
    exact = await run(r"printf 'a\377\376b\357\277\275'")
    assert (exact.stdout, exact.replaced_bytes) == ("a\ufffd\ufffdb\ufffd", 2)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_hazard_7_8_any_bytes_in_any_pieces_decode_like_the_whole(data: bytes, cuts: list[int]) -> None:
    whole, pieces = Capture(), Capture()
    expected = whole.feed(data, final=True)
    bounds = [0, *sorted(cuts), len(data)]
    text = "".join(pieces.feed(data[a:b]) for a, b in itertools.pairwise(bounds) if a < b)
    text += pieces.feed(b"", final=True)
    assert text == expected == data.decode(errors="replace") == pieces.text
    assert pieces.replaced_bytes == whole.replaced_bytes
    assert (pieces.replaced_bytes == 0) == (data.decode(errors="ignore").encode() == data)
    assert pieces.total_bytes == len(data)


@pytest.mark.parametrize("character", ["x", "ä", "😀"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_acceptance_3_hazards_9_10_the_cap_counts_characters(run: Runner, character: str, stream: str) -> None:
    """Exactly 30,000: no flag. One more: flag, and exactly the first 30,000 kept."""

    def printing(count: int) -> str:
        return f"printf '{character}%.0s' $(seq {count})" + (" >&2" if stream == "stderr" else "")

    full = await run(printing(KEPT))
    assert (getattr(full, stream), getattr(full, f"{stream}_truncated")) == (character * KEPT, False)
    over = await run(printing(KEPT + 1))
    assert (getattr(over, stream), getattr(over, f"{stream}_truncated")) == (character * KEPT, True)
    assert getattr(over, f"{stream}_bytes") == (KEPT + 1) * len(character.encode())
    other = "stderr" if stream == "stdout" else "stdout"
    assert not getattr(over, f"{other}_truncated")


async def test_hazard_11_nul_and_control_characters_are_kept(run: Runner) -> None:
    assert (await run(r"printf 'a\0b\r\n\033[31m'")).stdout == "a\0b\r\n\x1b[31m"


async def test_hazard_12_one_line_of_fifty_megabytes(run: Runner) -> None:
    seen = Seen()
    result = await run(r"head -c 50000000 /dev/zero | tr '\0' x", seen)
    assert result.stdout_bytes == 50_000_000
    assert len(seen.pieces) <= 20 * result.duration + 3
    assert len(seen.text()) == seen.text().count("x") == 50_000_000


async def test_hazard_13_many_small_writes_are_few_deliveries(run: Runner) -> None:
    seen = Seen()
    result = await run("for ((i = 0; i < 100000; i++)); do printf x; done", seen)
    assert seen.text() == "x" * 100_000
    assert len(seen.pieces) <= 20 * result.duration + 3


async def test_two_hundred_thousand_lines_are_complete_in_few_deliveries(run: Runner) -> None:
    seen = Seen()
    result = await run("seq 200000", seen)
    assert seen.text() == "".join(f"{number}\n" for number in range(1, 200_001))
    assert len(seen.pieces) <= 20 * result.duration + 3


@pytest.mark.parametrize("consumer", ["raises", "blocks"])
async def test_hazard_14_a_bad_consumer_changes_nothing(
    run: Runner, consumer: str, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(stream: Stream, text: str) -> None:
        if consumer == "raises":
            raise RuntimeError("no screen")
        until((run.directory / "done").exists)  # blocks until the command has written all of its output

    result = await run("seq 100000; touch done", bad)
    assert (result.outcome, result.exit_code, result.stdout_bytes) == ("exited", 0, 588_895)
    assert (run.directory / "done").exists()
    assert ("no screen" in caplog.text) == (consumer == "raises")


async def test_hazard_14_the_command_continues_while_the_front_end_is_blocked(run: Runner) -> None:
    """The caller's loop is blocked, far longer than a pipe's worth of output needs."""
    task = run.start("seq 1000000; touch done", lambda stream, text: None)
    await asyncio.sleep(0)
    until((run.directory / "done").exists)  # on purpose: blocks this loop
    assert (await task).exit_code == 0


async def test_hazard_15_a_prompt_without_newline_is_shown_immediately(run: Runner, clock: Clock) -> None:
    seen = Seen()
    with clock.stopped():
        task = run.start("printf 'x? '; sleep 600", seen)
        await eventually(lambda: seen.pieces)
    assert seen.pieces == [("stdout", "x? ")]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_hazard_16_escape_sequences_are_stored_verbatim(run: Runner) -> None:
    text = "\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07 50%\r100%\n"
    seen = Seen()
    result = await run(r"printf '\033]52;c;ZXZpbA==\007\033]0;title\007 50%%\r100%%\n'", seen)
    assert result.stdout == seen.text() == text


async def test_hazard_17_a_writer_after_our_close_is_reported_and_nothing_else_happens(run: Runner) -> None:
    """The shell ignores SIGPIPE, which would end it, to see the error."""
    result = await run("(trap '' PIPE; sleep 1; echo late || echo refused >told) 2>/dev/null & echo hi")
    assert (result.stdout, result.pipes_held) == ("hi\n", True)
    report = run.directory / "told"
    await eventually(lambda: report.exists() and report.read_text())
    assert report.read_text() == "refused\n"


async def test_hazard_18_order_within_a_stream_is_exact(run: Runner) -> None:
    seen = Seen()
    await run("for i in $(seq 500); do echo $i; echo e$i >&2; done", seen)
    assert seen.text() == "".join(f"{i}\n" for i in range(1, 501))
    assert seen.text("stderr") == "".join(f"e{i}\n" for i in range(1, 501))


async def test_streams_apart_in_time_arrive_in_the_order_of_their_writing(run: Runner) -> None:
    seen: list[tuple[Stream, str]] = []

    def consume(stream: Stream, text: str) -> None:
        seen.append((stream, text))
        (run.directory / f"seen{len(seen)}").touch()

    shown = "until [ -e seen{} ]; do sleep 0.01; done"
    await run(f"echo 1; {shown.format(1)}; echo 2 >&2; {shown.format(2)}; echo 3", consume)
    assert seen == [("stdout", "1\n"), ("stderr", "2\n"), ("stdout", "3\n")]


async def test_output_is_delivered_in_the_callers_thread_and_before_the_result(run: Runner) -> None:
    threads, seen = set(), Seen()

    def consume(stream: Stream, text: str) -> None:
        threads.add(threading.current_thread())
        seen(stream, text)

    result = await run("seq 10000", consume)
    assert threads == {threading.current_thread()}
    assert len(seen.text()) == result.stdout_bytes


BIG = 150_000_000
"""Characters of a command that a consumer cannot take in while it is busy: far more than may wait."""


def _waiting() -> int:
    """Return the memory of this process in bytes."""
    with Path("/proc/self/statm").open() as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.mark.linux
async def test_a21_output_that_waits_for_a_busy_display_is_bounded_and_its_ends_are_exact(
    engine: Engine, run: Runner
) -> None:
    """The caller's loop is blocked while 150 MB arrive: both ends are shown, with the size of the part between them."""
    pieces: list[tuple[str, Omitted]] = []

    def consume(stream: Stream, text: str, omitted: Omitted = NOTHING_OMITTED) -> None:
        pieces.append((text, omitted))

    shown = Runner(ShellCommands(engine, "bash", displayed=100_000), run.directory)
    before = _waiting()
    task = shown.start(f"(echo first; yes | head -c {BIG}; echo last); touch done", consume)
    await asyncio.sleep(0)
    until((run.directory / "done").exists)  # on purpose: blocks this loop
    assert _waiting() - before < 100_000_000
    result = await task
    texts, gaps = zip(*pieces, strict=True)
    size, lines = sum(gap.size for gap in gaps), sum(gap.lines for gap in gaps)
    assert (texts[0][:8], "".join(texts)[-7:]) == ("first\ny\n", "y\nlast\n")  # the last piece may be one line
    assert size + sum(map(len, texts)) == result.stdout_bytes == BIG + 11
    assert sum(map(len, texts)) < 3_000_000  # both ends, and a piece of a megabyte at each of them
    assert lines + sum(text.count("\n") for text in texts) == BIG // 2 + 2


@pytest.mark.linux
async def test_a21_a_command_waits_for_a_display_without_a_limit_and_nothing_is_lost(run: Runner) -> None:
    """The caller's loop is blocked: unread output waits in the pipe, and all of it arrives afterwards."""
    sizes: list[int] = []
    before, peak = _waiting(), 0
    busy = threading.Event()

    def consume(stream: Stream, text: str) -> None:
        nonlocal peak
        if not sizes:
            busy.wait(0.5)  # the command fills all buffers during this time
            peak = _waiting()
        sizes.append(len(text))

    result = await run(f"yes | head -c {BIG}", consume)
    assert sum(sizes) == result.stdout_bytes == BIG
    assert max(sizes) < 20_000_000
    assert peak - before < 100_000_000


async def test_a_command_that_is_cancelled_while_it_waits_for_its_display_ends(run: Runner) -> None:
    reached = asyncio.Event()

    def consume(stream: Stream, text: str) -> None:
        reached.set()

    task = run.start("yes", consume)
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_consumer_that_is_often_full_is_checked_by_one_timer() -> None:
    checks, posted = list[Any](), list[Any]()

    def later(_: float, call: Any) -> object:
        checks.append(call)
        return object()

    loop = SimpleNamespace(time=lambda: 0.0, call_later=later, call_soon_threadsafe=lambda _: None)
    live = Live(loop, lambda call: not posted.append(call), Seen())  # type: ignore[arg-type, func-returns-value]
    for _ in range(5):
        live.feed("stdout", "x" * WAITING)
        assert live.full
        live.deliver()
    assert [call for call in checks if call == live._check] == [live._check]


@pytest.mark.parametrize("line", range(1, 12))
def test_a_consumer_may_take_output_at_any_moment_of_another_announcement(line: int) -> None:
    """The consumer was busy for more than a second, and takes the output in another thread, at this line of `_send`."""
    clock, posted, seen = iter(range(0, 100, 10)), list[Any](), Seen()
    live = Live(SimpleNamespace(time=lambda: next(clock)), lambda call: not posted.append(call), seen)  # type: ignore[arg-type, func-returns-value]
    live.feed("stdout", "a")
    consumer, lines = threading.Thread(target=posted.pop()), itertools.count(1)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is Live._send.__code__ and event == "line" and next(lines) == line:
            consumer.start()
            consumer.join(0.1)  # it may have to wait for a lock
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        live.feed("stdout", "b")
    finally:
        sys.settrace(before)
    if consumer.ident is None:
        consumer.start()
    consumer.join()
    live.feed("stdout", "c")
    for call in posted:
        call()
    assert seen.text() == "abc"


async def test_a_line_every_fifty_milliseconds_is_not_delayed(run: Runner, clock: Clock) -> None:
    """Nor is a line that comes a little early."""
    seen = Seen()
    with Lines(run.directory) as lines:
        task = run.start(Lines.COMMAND, seen)
        with clock.stopped():
            for number in range(24):
                lines.write(number)
                await eventually(lambda: len(seen.pieces) == number + 1)  # noqa: B023
                await clock.forward((0.05, 0.03, 0.07)[number % 3])
    assert (await end_of(task)).stdout == seen.text() == "".join(f"{number}\n" for number in range(24))
