"""The life of an agent's process: start, sharing, cancellation, restart, end, and failed starts (sessions.md 5)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from models.providers.agents import TESTS, Bench, agent, marked
from waiting import appears, eventually, until

from prose_kernel.errors import (
    NoProvider,
    ProviderAuth,
    ProviderBadReply,
    ProviderConnection,
    ProviderError,
    ProviderTimeout,
)
from prose_kernel.language.structs import replace
from prose_kernel.models import providers as loading
from prose_kernel.models.json_rpc import Patience

# ---------------------------------------------------------------- starting


async def test_the_first_session_starts_one_process_for_all_sessions(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        assert bench.processes == []
        await asyncio.gather(*(bench.run(f"say {number}") for number in range(4)))
        assert len(bench.processes) == 1
        await bench.sessions.close()
        assert bench.processes == []
        assert (await bench.run("say again")).text == "again "


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("no-such-agent",), "the agent stub could not be started: cannot start no-such-agent: not found"),
        (("/etc/passwd",), "the agent stub could not be started: cannot start /etc/passwd: permission denied (EACCES)"),
        (("true",), "the agent stub ended with exit code 0 before it had answered"),
        (("cat",), "the agent stub does not speak the Agent Client Protocol: Method not found"),
        (("sh", "-c", "echo Usage: stub; sleep 100"), "Protocol: it printed `Usage: stub`"),
        (("sh", "-c", "echo Usage: stub"), "Protocol: it printed `Usage: stub`"),
        (("yes",), "Protocol: it printed `y`"),
        (("head", "-c", "100000000", "/dev/zero"), "the agent stub sent a message that is too long"),
    ],
)
async def test_a_value_that_is_not_an_agent_is_one_clear_error(
    tmp_path: Path, command: tuple[str, ...], message: str
) -> None:
    async with agent(tmp_path, command=command) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run("say x")
        assert str(failed.value).endswith(message)
        assert bench.processes == []


@pytest.mark.parametrize(
    ("start", "error", "message", "hint"),
    [
        ("garbage", ProviderError, "Protocol: it printed `Welcome to the agent!`", "many agents need an option for it"),
        ("exit", ProviderConnection, "the agent stub ended with exit code 3", "its last words: cannot find my soul"),
        ("version", ProviderError, "speaks version 99 of the Agent Client Protocol, not version 1", "install"),
        ("auth", ProviderAuth, "not logged in: Authentication required: run `stub login`", "(Stub Login)"),
        ("nonsense", ProviderBadReply, "answered `initialize` with something that makes no sense", "version"),
        ("fail", ProviderError, "does not speak the Agent Client Protocol: Internal error: no disk", "see `command`"),
    ],
)
async def test_a_bad_start_is_one_clear_error_with_a_hint(
    tmp_path: Path, start: str, error: type[ProviderError], message: str, hint: str
) -> None:
    async with agent(tmp_path, f"start={start}") as bench:
        with pytest.raises(error) as failed:
            await bench.run("say x")
        assert message in str(failed.value)
        assert hint in (failed.value.hint or "")
        assert failed.value.retryable == (error in (ProviderConnection, ProviderBadReply))


@pytest.mark.parametrize(("start", "method"), [("hang", "initialize"), ("deaf", "session/new")])
async def test_a_request_without_an_answer_times_out(
    tmp_path: Path, start: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that are answered have a long time limit; the request without an answer has almost none."""
    from prose_kernel.models.providers.acp_process import AgentProcess

    send = AgentProcess._send

    async def hurries(self: AgentProcess, asked: str, params: dict[str, Any]) -> Any:
        if asked == method:
            self._patience = replace(self._patience, start=0.3)
        return await send(self, asked, params)

    monkeypatch.setattr(AgentProcess, "_send", hurries)
    async with agent(tmp_path, f"start={start}", patience=Patience(30, 0.3, 0.3, 0.3)) as bench:
        with pytest.raises(ProviderTimeout, match=f"the agent stub did not answer `{method}` in time"):
            await bench.run("say x")


async def test_a_banner_and_noise_on_stdout_are_ignored(tmp_path: Path) -> None:
    async with agent(tmp_path, "start=banner", patience=Patience(20, 20, 0.3, 0.3)) as bench:
        assert (await bench.run("noise some text", "say x", "noise {}", "say y")).text == "x y "


async def test_all_sessions_waiting_for_a_failed_start_get_its_error_and_the_next_one_retries(tmp_path: Path) -> None:
    script = tmp_path / "agent"
    script.write_text("#!/bin/sh\necho tried >> tries\nexit 5\n")
    script.chmod(0o755)
    async with agent(tmp_path, command=(str(script),)) as bench:
        for tries in (1, 2):
            failures = await asyncio.gather(*(bench.run("say x") for _ in range(3)), return_exceptions=True)
            assert [type(failure) for failure in failures] == [ProviderConnection] * 3
            assert (tmp_path / "tries").read_text() == "tried\n" * tries


async def test_without_the_library_the_error_names_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    monkeypatch.delitem(sys.modules, "prose_kernel.models.providers.acp_process", raising=False)
    monkeypatch.delitem(sys.modules, "prose_kernel.models.providers.acp_conversation", raising=False)
    monkeypatch.setattr(loading, "_loading", {})
    async with agent(tmp_path) as bench:
        with pytest.raises(NoProvider) as failed:
            await bench.run("say x")
        assert "pip install 'prose_kernel[acp]'" in (failed.value.hint or "")


def test_the_library_is_not_imported_before_the_first_session() -> None:
    code = "import sys, prose_kernel.models.providers.acp, prose_kernel.models.providers.agent_judge as j; "
    code += "sys.exit(any(name in sys.modules for name in ('acp', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, check=False).returncode == 0


# ---------------------------------------------------------------- errors of a session


@pytest.mark.parametrize(
    ("todo", "error", "message", "retryable"),
    [
        ("fail -32603 boom", ProviderError, "the agent stub failed: boom: as the prompt wished", True),
        ("fail -32602 boom", ProviderError, "the agent stub failed: boom: as the prompt wished", False),
        ("fail -32000 Authentication required", ProviderAuth, "the agent stub is not logged in", False),
        ("stop refusal", ProviderError, "the agent stub refused to answer", False),
        ("stop max_turn_requests", ProviderError, "the agent stub stopped at its own limit of requests", False),
        ("stop cancelled", ProviderError, "the agent stub broke off", True),
    ],
)
async def test_errors_of_the_agent(
    tmp_path: Path, todo: str, error: type[ProviderError], message: str, retryable: bool
) -> None:
    async with agent(tmp_path) as bench:
        with pytest.raises(error, match=message) as failed:
            await bench.run(todo)
        assert failed.value.retryable == retryable
        assert len(bench.processes) == 1  # the process survives


async def test_a_cut_reply_is_marked_and_reported(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        result = await bench.run("say half a", "stop max_tokens")
        assert (result.text, result.details["cut"]) == ("half a ", True)
        assert bench.progress[-1].text == "the reply ends here because the limit of tokens was reached"


@pytest.mark.parametrize(("todo", "how"), [("die 4", "ended with exit code 4"), ("kill", "was ended by SIGKILL")])
async def test_a_dead_agent_fails_its_sessions_and_is_started_again(tmp_path: Path, todo: str, how: str) -> None:
    async with agent(tmp_path) as bench:
        other = await bench.started("hang")
        with pytest.raises(ProviderConnection) as failed:
            await bench.run("complain \x1b[31mout of paper", todo)
        assert str(failed.value) == f"the agent stub {how} before it had answered"
        assert failed.value.hint == "its last words: \N{REPLACEMENT CHARACTER}[31mout of paper"
        assert failed.value.retryable
        with pytest.raises(ProviderConnection, match=how):
            await other
        assert (await bench.run("say well again")).text == "well again "


async def test_the_session_of_a_silent_agent_times_out_and_the_process_stays(tmp_path: Path) -> None:
    async with agent(tmp_path, timeout=0.5) as bench:
        with pytest.raises(ProviderTimeout, match="the agent stub fell silent"):
            await bench.run("say x", "hang")
        assert len(bench.processes) == 1


async def test_a_message_without_end_ends_the_process(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        with pytest.raises(ProviderBadReply, match="the agent stub sent a message that is too long"):
            await bench.run("long 70")
        assert bench.processes == []
        assert (await bench.run("say x")).text == "x "


# ---------------------------------------------------------------- cancelling and ending


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_session_is_cancelled_by_protocol_and_the_others_continue(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        kept = await bench.started("wait go", "say kept")
        task = await bench.started("hang")
        before = bench.processes
        await cancelled(task)  # type: ignore[arg-type]
        (tmp_path / "go").touch()
        assert (await kept).text == "up kept "
        assert bench.processes == before


async def test_an_agent_that_does_not_heed_it_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    async with agent(tmp_path, "ignore=cancel,term") as bench:
        task = await bench.started("fork", "hang")
        await eventually(lambda: len(bench.processes) >= 2)
        await cancelled(task)  # type: ignore[arg-type]
        assert bench.processes == []
        assert (await bench.run("say new")).text == "new "


async def test_an_agent_that_ignores_a_cancellation_ends_after_its_other_sessions(tmp_path: Path) -> None:
    async with agent(tmp_path, "ignore=cancel") as bench:
        kept = await bench.started("wait go", "say kept")
        task = await bench.started("hang")
        (former,) = bench.processes
        await cancelled(task)  # type: ignore[arg-type]
        assert former in bench.processes
        assert (await bench.run("say elsewhere")).text == "elsewhere "
        assert len(bench.processes) == 2
        (tmp_path / "go").touch()
        assert (await kept).text == "up kept "
        assert former not in bench.processes


async def test_a_second_interrupt_kills_immediately(tmp_path: Path) -> None:
    patience = Patience(20, 0.3, cancel=100, grace=100)
    async with agent(tmp_path, "ignore=cancel,term", patience=patience) as bench:
        task = await bench.started("hang")
        task.cancel()
        await appears(tmp_path / "told-to-cancel")  # and it ignores that: its time limit has only begun
        assert not task.done()
        await cancelled(task)  # type: ignore[arg-type]
        assert bench.processes == []


async def test_closing_ends_a_stubborn_agent_and_its_sessions(tmp_path: Path) -> None:
    async with agent(tmp_path, "ignore=cancel,term") as bench:
        task = await bench.started("fork", "hang")
        await bench.sessions.close()
        assert bench.processes == []
        with pytest.raises(ProviderConnection, match="the agent stub was ended"):
            await task


async def test_closing_during_the_start_leaves_nothing(tmp_path: Path) -> None:
    async with agent(tmp_path, "start=hang") as bench:
        task = bench.start("say x")
        await eventually(lambda: bench.processes)
        await bench.sessions.close()
        assert bench.processes == []
        with pytest.raises(asyncio.CancelledError):
            await task


def test_an_agent_can_be_closed_in_another_loop(tmp_path: Path) -> None:
    """A kernel that ends without a message closes its run in a separate loop."""

    async def begin() -> object:
        context = agent(tmp_path, "ignore=term")
        bench = await context.__aenter__()
        await bench.run("say x")
        return bench

    bench = asyncio.run(begin())
    asyncio.run(bench.sessions.close())  # type: ignore[attr-defined]
    assert bench.processes == []  # type: ignore[attr-defined]
    bench.engine.close()  # type: ignore[attr-defined]


def test_an_agent_that_is_starting_can_be_closed_in_another_loop(tmp_path: Path) -> None:
    context = agent(tmp_path, "start=hang")

    async def begin() -> tuple[Bench, asyncio.Task[Any]]:
        bench = await context.__aenter__()
        task = bench.start("say x")
        await eventually(lambda: bench.processes)
        return bench, task

    async def end() -> None:
        await context.__aexit__(None, None, None)
        with pytest.raises(ProviderConnection):
            await task

    with asyncio.Runner() as runner:
        bench, task = runner.run(begin())
        with ThreadPoolExecutor(1) as other:
            other.submit(asyncio.run, bench.sessions.close()).result()
        runner.run(end())


_HOST = """
import asyncio, sys
from pathlib import Path
from models.providers.agents import agent

async def main():
    async with agent(Path(sys.argv[1]), "ignore=cancel,term") as bench:
        print(bench.mark, flush=True)
        task = await bench.started("fork", "hang")
        print("up", flush=True)
        await task

asyncio.run(main())
"""


def test_nothing_is_left_of_an_agent_when_the_kernel_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOST, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
        start_new_session=True,
    ) as host:
        assert host.stdout is not None
        mark = host.stdout.readline().strip()
        assert host.stdout.readline() == "up\n"
        assert marked(f"ACP_MARK={mark}")
        os.killpg(host.pid, signal.SIGKILL)
    until(lambda: not marked(f"ACP_MARK={mark}"))  # the watchdog sends TERM, waits a second, and sends KILL


async def test_a_session_that_begins_keeps_an_agent_that_ignored_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prose_kernel.models.providers.acp_process import AgentProcess

    opening, may_open = asyncio.Event(), asyncio.Event()
    send = AgentProcess._send

    async def slow(self: AgentProcess, method: str, params: dict[str, Any]) -> Any:
        answer = await send(self, method, params)
        if method == "session/new" and self.conversations:
            opening.set()
            await may_open.wait()
        return answer

    monkeypatch.setattr(AgentProcess, "_send", slow)
    async with agent(tmp_path, "ignore=cancel") as bench:
        task = await bench.started("hang")
        (former,) = bench.processes
        begins = bench.start("say kept")
        await opening.wait()
        await cancelled(task)  # type: ignore[arg-type]
        may_open.set()
        assert (await begins).text == "kept "
        assert former not in bench.processes


async def test_an_agent_that_gives_two_sessions_one_id_mixes_nothing(tmp_path: Path) -> None:
    async with agent(tmp_path, "session=1") as bench:
        first = await bench.started("wait go", "say first")
        with pytest.raises(ProviderBadReply, match="the agent stub gave a new session the id of a running one"):
            await bench.run("say second")
        (tmp_path / "go").touch()
        assert (await first).text == "up first "
        assert (await bench.run("say third")).text == "third "


async def test_an_interrupt_while_an_agent_ends_does_not_disturb_the_end_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prose_kernel.models.providers import acp_process

    closing, may_close = asyncio.Event(), asyncio.Event()

    class Slow(acp_process.Connection):
        async def close(self) -> None:
            closing.set()
            await may_close.wait()
            await super().close()

    monkeypatch.setattr(acp_process, "Connection", Slow)
    async with agent(tmp_path, "ignore=cancel") as bench:
        task = await bench.started("hang")
        task.cancel()
        await closing.wait()
        await cancelled(task)  # type: ignore[arg-type]
        may_close.set()
        await bench.sessions.close()
