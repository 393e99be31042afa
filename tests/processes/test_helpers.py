"""Helpers: long-lived processes with a dialogue, which leave nothing (sessions.md 5; exec-and-tasks.md 1.2, 1.4)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from waiting import until

from prose_kernel.processes.engine import Engine
from prose_kernel.processes.long_lived_processes import Helpers, RunningHelper
from prose_kernel.processes.process_table import members
from prose_kernel.runtime import open_request
from prose_kernel.runtime.services import HelperEnd

ROOT = Path(__file__).parents[2]


def marked(entry: str) -> list[int]:
    """Return the live processes with this entry in their environment."""
    found = []
    for member in members():
        try:
            if entry.encode() in Path(f"/proc/{member.pid}/environ").read_bytes().split(b"\0"):
                found.append(member.pid)
        except OSError:
            continue
    return found


class Heard:
    """The output of a helper, with a way to wait for a text."""

    def __init__(self) -> None:
        self.text = ""
        self._changed = asyncio.Event()

    def __call__(self, piece: str) -> None:
        self.text += piece
        self._changed.set()

    async def until(self, text: str) -> None:
        while text not in self.text:
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
async def helpers(tmp_path: Path) -> AsyncIterator[Helpers]:
    engine = Engine(grace=0.3, state_dir=tmp_path / "state")
    yield Helpers(engine)
    await asyncio.to_thread(engine.close)


async def shell(helpers: Helpers, text: str, heard: Callable[[str], None], **env: str) -> RunningHelper:
    return await helpers.start(("sh", "-c", text), env, "/", heard)


async def test_written_lines_are_answered_completely_and_in_order(helpers: Helpers) -> None:
    heard = Heard()
    helper = await helpers.start(("cat",), {}, "/", heard)
    line = "ä" * 1000 + "\n"
    for number in range(300):
        helper.write(f"{number} {line}")
    await heard.until("299 " + line)
    assert heard.text == "".join(f"{number} {line}" for number in range(300))
    assert await helper.stop(1) == HelperEnd(None, "SIGTERM", ours=True)


async def test_a_helper_gets_our_environment_its_own_additions_and_its_directory(
    helpers: Helpers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    for name in open_request.IDENTITY:
        monkeypatch.setenv(name, "that of a run around this one")
    heard = Heard()
    helper = await helpers.start(("env",), {"THEIRS": "2"}, str(tmp_path), heard)
    assert await helper.ended() == HelperEnd(0)
    seen = dict(line.split("=", 1) for line in heard.text.splitlines() if "=" in line)
    assert seen.pop("PROSE_JOB").endswith(":helper")  # the mark of a run
    ours = {name: value for name, value in os.environ.items() if name not in ("PROSE_JOB", *open_request.IDENTITY)}
    assert ours | {"THEIRS": "2"} == seen


async def test_the_end_of_a_helper_and_its_last_stderr_are_reported(helpers: Helpers) -> None:
    heard = Heard()
    helper = await shell(helpers, "echo late; yes complaint | head -c 100000 >&2; echo last words >&2; exit 7", heard)
    assert await helper.ended() == HelperEnd(7)
    assert heard.text == "late\n"
    assert helper.complaints.endswith("complaint\nlast words\n")
    assert len(helper.complaints) <= 8000


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("no-such-agent-anywhere",), "cannot start no-such-agent-anywhere: not found"),
        (("/no/such/agent",), "cannot start /no/such/agent: not found"),
        (("/etc/passwd",), "cannot start /etc/passwd: permission denied (EACCES)"),
    ],
)
async def test_a_failed_start_gives_its_reason(helpers: Helpers, command: tuple[str, ...], message: str) -> None:
    with pytest.raises(OSError, match=f"^{message.replace('(', '.').replace(')', '.')}$"):
        await helpers.start(command, {}, "/", Heard())


async def test_a_stubborn_helper_is_killed_with_all_that_it_started(helpers: Helpers) -> None:
    heard = Heard()
    text = "trap '' TERM; (trap '' TERM; while :; do sleep 0.01; done) & setsid sleep 100 & echo up; while :; do sleep 0.01; done"
    helper = await shell(helpers, text, heard, HELPER_MARK="stubborn")
    await heard.until("up")
    assert len(marked("HELPER_MARK=stubborn")) >= 3
    assert await helper.stop(0.2) == HelperEnd(None, "SIGKILL", ours=True)
    assert marked("HELPER_MARK=stubborn") == []


async def test_a_helper_that_ends_by_itself_leaves_nothing(helpers: Helpers) -> None:
    heard = Heard()
    helper = await shell(helpers, "sleep 100 & exec 1>&- ; exit 3", heard, HELPER_MARK="left")
    assert await helper.ended() == HelperEnd(3)
    assert marked("HELPER_MARK=left") == []


async def test_a_helper_that_reads_nothing_does_not_delay_the_others(helpers: Helpers) -> None:
    deaf, heard = await shell(helpers, "sleep 100", Heard()), Heard()
    deaf.write("x" * 5_000_000)
    cat = await helpers.start(("cat",), {}, "/", heard)
    cat.write("hello\n")
    await heard.until("hello")
    assert (await deaf.stop(1)).ours


async def test_a_cancelled_start_leaves_nothing(helpers: Helpers) -> None:
    starting = asyncio.create_task(shell(helpers, "sleep 100", Heard(), HELPER_MARK="cancelled"))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await asyncio.to_thread(until, lambda: marked("HELPER_MARK=cancelled") == [])


async def test_the_engine_ends_its_helpers_and_starts_none_afterwards(tmp_path: Path) -> None:
    engine = Engine(grace=0.2, state_dir=tmp_path / "state")
    helpers, heard = Helpers(engine), Heard()
    helper = await shell(helpers, "trap '' TERM; echo up; while :; do sleep 0.01; done", heard)
    await heard.until("up")
    await asyncio.to_thread(engine.close)
    assert (await helper.ended()).ours
    with pytest.raises(OSError, match="the process engine is closed"):
        await shell(helpers, "true", Heard())


async def test_a_users_interrupt_does_not_reach_a_helper(tmp_path: Path) -> None:
    engine = Engine(grace=0.2, state_dir=tmp_path / "state")
    helpers, heard = Helpers(engine), Heard()
    helper = await helpers.start(("cat",), {}, "/", heard)
    engine.interrupt()
    helper.write("still here\n")
    await heard.until("still here\n")
    await asyncio.to_thread(engine.close)


_HOST = """
import asyncio, sys
from pathlib import Path
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.long_lived_processes import Helpers

async def main():
    text = "trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & while :; do sleep 0.05; done"
    await Helpers(Engine(state_dir=Path(sys.argv[1]))).start(("sh", "-c", text), {"HELPER_MARK": "orphan"}, "/", print)
    print("up", flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def test_a_killed_kernel_leaves_no_helper(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOST, str(tmp_path / "state")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"up\n"
        until(lambda: len(marked("HELPER_MARK=orphan")) >= 2)
        os.killpg(host.pid, signal.SIGKILL)
        host.wait()
    until(lambda: marked("HELPER_MARK=orphan") == [])
