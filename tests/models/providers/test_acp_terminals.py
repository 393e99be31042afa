"""Commands that an agent runs in our terminals: under our rules, ended with the session (sessions.md 5)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from models.people import ScriptedPerson
from models.providers.agents import agent
from waiting import eventually

from prose_kernel.runtime import open_request
from prose_kernel.runtime.open_request import OpenRequest
from prose_kernel.runtime.ports import ToolUse
from prose_kernel.runtime.services import HelperEnd


class Shell:
    """A real process for the `Terminal` port, without the engine of real runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.text = ""
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while piece := await self.process.stdout.read(1000):
            self.text += piece.decode()

    def output(self) -> tuple[str, bool]:
        return self.text, False

    @property
    def end(self) -> HelperEnd | None:
        code = self.process.returncode
        return None if code is None else HelperEnd(code if code >= 0 else None)

    async def wait(self) -> HelperEnd:
        await asyncio.shield(self.reading)
        await self.process.wait()
        end = self.end
        assert end is not None
        return end

    async def close(self) -> None:
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.wait()


class Shells:
    def __init__(self) -> None:
        self.started: list[tuple[Sequence[str] | str, str]] = []
        self.shells: list[Shell] = []

    async def start(
        self, command: Sequence[str] | str, cwd: str, env: Mapping[str, str], keep_bytes: int | None
    ) -> Shell:
        self.started.append((command, cwd))
        if command == "no-disk":
            raise OSError("cannot start the command: no disk")
        text = command if isinstance(command, str) else " ".join(command)
        process = await asyncio.create_subprocess_shell(
            text, cwd=cwd, env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        self.shells.append(Shell(process))
        return self.shells[-1]


async def test_a_command_is_run_for_the_agent_when_the_rules_allow_it(tmp_path: Path) -> None:
    shells = Shells()
    async with agent(tmp_path.resolve(), terminals=shells) as bench:
        result = await bench.run("terminals", "run echo hello; exit 3", permissions={"bash": "allow"})
        assert result.text == "True exit 3: hello\n "
        assert result.trace == (ToolUse("bash", "echo hello; exit 3"),)
        assert shells.started == [("echo hello; exit 3", str(bench.cwd))]


async def test_a_command_that_is_not_allowed_or_cannot_start_is_refused(tmp_path: Path) -> None:
    shells = Shells()
    async with agent(tmp_path, terminals=shells) as bench:
        denied = await bench.run("run rm x", permissions={"bash": "deny"})
        assert (denied.text, shells.started) == ("error: the rule is `bash: deny` ", [])
        assert denied.trace == (ToolUse("bash", "rm x", "refused", "the rule is `bash: deny`"),)
        broken = await bench.run("run no-disk", permissions={"bash": "allow"})
        assert broken.trace == (ToolUse("bash", "no-disk", "failed", "cannot start the command: no disk"),)


async def test_a_rule_may_ask_the_person(tmp_path: Path) -> None:
    shells, person = Shells(), ScriptedPerson("n", "y")
    async with agent(tmp_path, terminals=shells, person=person) as bench:
        texts = [(await bench.run("run echo hi", permissions={"bash": "prompt"})).text for _ in range(2)]
        assert texts == ["error: the person said no ", "exit 0: hi\n "]


async def test_an_agent_is_not_silent_while_a_command_runs_for_it(tmp_path: Path) -> None:
    async with agent(tmp_path, terminals=Shells(), timeout=0.3) as bench:
        result = await bench.run("run sleep 0.8; echo done", permissions={"bash": "allow"})
        assert result.text == "exit 0: done\n "


async def test_commands_end_with_their_session(tmp_path: Path) -> None:
    shells = Shells()
    async with agent(tmp_path, terminals=shells, timeout=0.3) as bench:
        task = bench.start("run sleep 100", permissions={"bash": "allow"})
        await eventually(lambda: shells.shells)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert shells.shells[0].end == HelperEnd(None)


async def test_a_command_that_the_agent_does_not_wait_for_never_starts_after_the_session(tmp_path: Path) -> None:
    class Slow(Shells):
        may_start = asyncio.Event()

        async def start(
            self, command: Sequence[str] | str, cwd: str, env: Mapping[str, str], keep_bytes: int | None
        ) -> Shell:
            await self.may_start.wait()
            return await super().start(command, cwd, env, keep_bytes)

    shells = Slow()
    async with agent(tmp_path, terminals=shells) as bench:
        assert (await bench.run("later run sleep 100", "say done", permissions={"bash": "allow"})).text == "done "
        shells.may_start.set()
        assert (await bench.run("run echo next", permissions={"bash": "allow"})).text == "exit 0: next\n "
        assert [command for command, _ in shells.started] == ["echo next"]


async def test_a_command_belongs_to_the_request_of_its_session(tmp_path: Path) -> None:
    class Identified(Shells):
        async def start(
            self, command: Sequence[str] | str, cwd: str, env: Mapping[str, str], keep_bytes: int | None
        ) -> Shell:
            return await super().start(command, cwd, {**env, **open_request.identity()}, keep_bytes)

    async with agent(tmp_path, terminals=Identified()) as bench:
        for at in ("c1/0/s0", "c1/1/s0"):
            with open_request.asking(OpenRequest(at, "", run="r1")):
                result = await bench.run('run echo "$PROSE_AT"', permissions={"bash": "allow"})
            assert result.text == f"exit 0: {at}\n "
