"""The shell for agents: `exec_command` and the tools on tasks, with real commands, models and CLI agents."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from machine.fakes import FakeClock
from models.benches import answer_of
from models.people import ScriptedPerson
from models.providers.agents import agent
from models.providers.models import ENVIRONMENT, WIRES, server
from stubs.model_server import StubServer
from waiting import appears, eventually

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.models.providers.model_servers import ModelServers
from prose_kernel.models.providers.model_sessions import ModelSessions
from prose_kernel.models.tools.commands import command_tools
from prose_kernel.models.tools.session_tools import SessionTools
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.options import TaskOptions
from prose_kernel.processes.tasks.service import TaskService, TaskTerminals
from prose_kernel.runtime import open_request
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import AgentMemory, SessionProgress, SessionRequest
from prose_kernel.runtime.session_options import Rule, SessionOptions, Surroundings

TOOLS = ["exec_command", "TaskList", "TaskStatus", "TaskOutput", "TaskStop"]
OPEN: dict[str, Rule] = {"bash": "allow", "network": "allow"}


class Shop:
    """A task service, and the tools of sessions that use it."""

    def __init__(self, cwd: Path, tasks: TaskService) -> None:
        self.cwd = cwd
        self.tasks = tasks
        self.person = ScriptedPerson(available=False)
        self.progress: list[SessionProgress] = []
        self.where = Surroundings(str(cwd), environment=dict(os.environ))
        self.approvals = Approvals(self.person, FakeClock())

    def answers(self, *answers: str) -> None:
        self.person = ScriptedPerson(*answers)
        self.approvals = Approvals(self.person, FakeClock())

    def bench(self, rules: dict[str, Rule] | None = None, at: str = "c1/s0", **facts: Any) -> SessionTools:
        stated = OPEN if rules is None else rules
        request = SessionRequest("session", "Do it", at, permissions=stated, **facts)
        return self.bench_of(request)

    def bench_of(self, request: SessionRequest) -> SessionTools:
        policy = Policy.of(request.permissions, {}, str(self.cwd))
        tools = command_tools(request, policy, self.approvals, self.tasks)
        return SessionTools(request, policy, self.approvals, self.where, self.progress.append, tools)


@pytest_asyncio.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    engine = Engine(grace=0.3, state_dir=tmp_path / "state")
    (tmp_path / "work").mkdir()
    cwd = (tmp_path / "work").resolve()
    options = TaskOptions(shell="bash", grace=0.3, shutdown_grace=0.3)
    tasks = TaskService(engine, tmp_path / "run", str(cwd), SystemClock(), options)
    yield Shop(cwd, tasks)
    await tasks.close()
    await asyncio.to_thread(engine.close)


def id_of(answer: str) -> str:
    found = re.search(r"task_[0-9a-f]{16}", answer)
    assert found is not None, answer
    return found[0]


# ---------------------------------------------------------------- permissions


@pytest.mark.parametrize(("bash", "given"), [("allow", True), ("prompt", True), ("deny", False)])
async def test_the_bash_rule_decides_whether_there_is_a_shell(shop: Shop, bash: str, given: bool) -> None:
    names = [spec.name for spec in shop.bench({"bash": bash}).specs]
    assert [name for name in names if name in TOOLS] == (TOOLS if given else [])


async def test_without_a_block_there_is_no_shell(shop: Shop) -> None:
    assert not {spec.name for spec in shop.bench({}).specs} & set(TOOLS)


async def test_prompt_asks_before_each_command_and_shows_all_of_it(shop: Shop) -> None:
    shop.answers("y", "n")
    bench = shop.bench({"bash": "prompt", "network": "allow"}, agent="builder")
    assert "completed: exit 0" in await answer_of(bench, "exec_command", {"cmd": "echo one\necho two", "workdir": "."})
    assert await answer_of(bench, "exec_command", {"cmd": "rm -rf /"}) == "refused: the person said no"
    assert bench.trace[-1].outcome == "refused"
    shown = "\n".join(shop.person.transcript)
    assert "agent builder" in shown
    assert "| echo one\n  | echo two" in shown


async def test_prompt_without_a_person_is_a_refusal(shop: Shop) -> None:
    answer = await answer_of(shop.bench({"bash": "prompt", "network": "allow"}), "exec_command", {"cmd": "touch x"})
    assert answer == "refused: it needs approval, and no person can be asked"
    assert not (shop.cwd / "x").exists()


async def test_always_holds_for_the_commands_of_that_session(shop: Shop) -> None:
    shop.answers("always")
    bench = shop.bench({"bash": "prompt", "network": "allow"}, agent="builder")
    for number in range(3):
        assert "exit 0" in await answer_of(bench, "exec_command", {"cmd": f"echo {number}"})


async def test_the_network_is_asked_about_once(shop: Shop) -> None:
    shop.answers("y")
    bench = shop.bench({"bash": "allow", "network": "prompt"})
    for number in range(2):
        assert "exit 0" in await answer_of(bench, "exec_command", {"cmd": f"echo {number}"})


# ---------------------------------------------------------------- calls


async def test_a53_a_task_knows_its_request(shop: Shop) -> None:
    command = {"cmd": 'echo "$PROSE_RUN $PROSE_AT $PROSE_ATTEMPT"'}
    with open_request.asking(open_request.OpenRequest("c1/s0", "", "20260101-000000-abcdef", 2)):
        receipt = await answer_of(shop.bench(), "exec_command", command)
    assert "20260101-000000-abcdef c1/s0 2" in receipt


async def test_a_result_is_readable_text(shop: Shop) -> None:
    answer = await answer_of(shop.bench(), "exec_command", {"cmd": "echo out; echo err >&2; exit 2"})
    assert answer == "completed: exit 2\n--- stdout ---\nout\n--- stderr ---\nerr"
    assert await answer_of(shop.bench(), "exec_command", {"cmd": "true"}) == "completed: exit 0\n(no output)"


async def test_numbers_and_booleans_may_be_strings(shop: Shop) -> None:
    bench = shop.bench()
    started = await answer_of(
        bench, "exec_command", {"cmd": "echo up; sleep 60", "yield_time_ms": "100", "login": "false"}
    )
    assert started.startswith("promoted_to_task: still running after 100 ms")
    task = id_of(started)
    assert (await answer_of(bench, "TaskOutput", {"task_id": task, "block": "false"})).endswith("--- output ---\nup")
    assert (await answer_of(bench, "TaskOutput", {"task_id": task, "timeout_ms": "50"})).startswith(
        f"task {task}: running (still running when the wait was over)"
    )


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"cmd": "x", "background": True}, "becomes a task by itself"),
        ({"cmd": "x", "cwd": "/"}, "use workdir"),
        ({"cmd": "x", "timeout": 5}, "there is no time limit"),
        ({"cmd": "x", "tty": True}, "leave tty out"),
        ({"cmd": "x", "sumary": "x"}, "did you mean `summary`?"),
        ({"cmd": "x", "workdir": "nowhere"}, "relative to the workspace root"),
        ({"cmd": "x", "shell": "nosuchshell"}, "leave shell out"),
        ({"cmd": "x", "shell": "\ud800"}, "shell: must be a string that can be encoded"),
        ({"cmd": "x", "workdir": "\ud800"}, "workdir: must be a string that can be encoded"),
        ({"cmd": "x", "summary": "\ud800", "yield_time_ms": 0}, "summary: must be a string that can be encoded"),
        ({"cmd": "x", "yield_time_ms": 10**400}, "yield_time_ms: must be a whole number between"),
    ],
)
async def test_wrong_calls_say_what_would_be_right(shop: Shop, fields: dict[str, object], hint: str) -> None:
    bench = shop.bench()
    answer = await answer_of(bench, "exec_command", fields)
    assert hint in answer
    assert bench.trace[-1].outcome == "failed"


@pytest.mark.parametrize("tool", ["TaskStatus", "TaskOutput", "TaskStop"])
async def test_an_unknown_task_is_a_failure_with_a_message(shop: Shop, tool: str) -> None:
    bench = shop.bench()
    assert "task_not_found" in await answer_of(bench, tool, {"task_id": "1"})
    assert "task_id: must be the id of a task" in await answer_of(bench, tool, {"task_id": "\ud800"})


async def test_the_life_of_a_task(shop: Shop) -> None:
    bench = shop.bench()
    assert await answer_of(bench, "TaskList", {}) == "no active tasks"
    task = id_of(await answer_of(bench, "exec_command", {"cmd": "trap '' TERM; sleep 600 & wait", "yield_time_ms": 0}))
    again = await answer_of(bench, "exec_command", {"cmd": "trap '' TERM; sleep 600 & wait"})
    assert again.startswith("already_running: ")
    assert id_of(again) == task
    listed = await answer_of(bench, "TaskList", {})
    assert listed.startswith("1 active task:\n")
    assert "sleep 600" in listed and listed.endswith("(no output)")  # A49
    status = await answer_of(bench, "TaskStatus", {"task_id": task})
    assert status.startswith(f"task {task}: running\n$ trap")
    assert await answer_of(bench, "TaskStop", {"task_id": task}) == f"task {task}: cancelling: it was asked to end"
    ended = await answer_of(bench, "TaskOutput", {"task_id": task})
    assert ended.startswith(f"task {task}: cancelled")
    assert await answer_of(bench, "TaskList", {}) == "no active tasks"
    assert "had ended already" in await answer_of(bench, "TaskStop", {"task_id": task})


async def test_agents_see_their_own_tasks_only(shop: Shop) -> None:
    mine, other = shop.bench(at="c1/s0"), shop.bench(at="c1/s1")
    task = id_of(await answer_of(mine, "exec_command", {"cmd": "sleep 600", "yield_time_ms": 0}))
    assert await answer_of(other, "TaskList", {}) == "no active tasks"
    for tool in ("TaskStatus", "TaskOutput", "TaskStop"):
        assert (await answer_of(other, tool, {"task_id": task})).startswith(
            f"failed: task_not_found: there is no task {task}"
        )
        assert "task_not_found" in await answer_of(mine, tool, {"task_id": "1"}), "agents know ids only, not numbers"
    assert "running" in await answer_of(mine, "TaskStatus", {"task_id": task})


async def test_an_agent_that_remembers_finds_its_tasks_again(shop: Shop) -> None:
    memory = AgentMemory("keeper", "project", ".prose/agents/keeper", resume=True)
    first, later = (shop.bench(at=at, agent="keeper", memory=memory) for at in ("c1/s0", "c2/s0"))
    task = id_of(await answer_of(first, "exec_command", {"cmd": "sleep 600", "yield_time_ms": 0}))
    assert task in await answer_of(later, "TaskList", {})


async def test_what_looks_like_a_secret_stays_with_the_kernel(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_API_KEY", "GITHUB_TOKEN", "AWS_REGION", "DB_PASSWORD", "PLAIN_NAME"):
        monkeypatch.setenv(name, "marmalade")
    answer = await answer_of(shop.bench(), "exec_command", {"cmd": "env | grep marmalade"})
    assert answer == "completed: exit 0\n--- stdout ---\nPLAIN_NAME=marmalade"


async def test_the_trace_of_a_session_holds_no_id_no_time_and_no_place(shop: Shop) -> None:
    bench = shop.bench()
    task = id_of(await answer_of(bench, "exec_command", {"cmd": f"cd {shop.cwd}; sleep 600", "yield_time_ms": 0}))
    await answer_of(bench, "TaskStatus", {"task_id": task})
    await answer_of(bench, "TaskStop", {"task_id": task})
    await answer_of(bench, "TaskOutput", {"task_id": task})
    await answer_of(bench, "TaskStatus", {"task_id": task})
    assert bench.trace[-1].detail.endswith("started {time}, ended {time}")
    for use in bench.trace:
        assert task not in use.summary + use.detail
        assert str(shop.cwd) not in use.summary + use.detail


async def test_cancelling_the_session_ends_the_command_in_its_window(shop: Shop) -> None:
    bench = shop.bench()
    call = asyncio.ensure_future(answer_of(bench, "exec_command", {"cmd": "touch up; sleep 600"}))
    await appears(shop.cwd / "up")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await shop.tasks.history()) == ()


# ---------------------------------------------------------------- models and CLI agents


@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_starts_reads_and_stops_a_task(shop: Shop, stub: StubServer, wire: str) -> None:
    calls = [{"name": "exec_command", "arguments": {"cmd": "echo serving; sleep 600", "yield_time_ms": 100}}]
    model = stub.script(f"server-{wire}", {"calls": calls}, {"calls": [{"name": "TaskList"}]}, "{results}")
    name, found = server(wire, stub)
    where = Surroundings(str(shop.cwd), environment=ENVIRONMENT)

    def bench(request: SessionRequest, on_progress: Any) -> SessionTools:
        return shop.bench_of(request)

    servers = ModelServers(SessionOptions(servers={name: found}), where, SystemClock())
    sessions = ModelSessions(servers, name, model, session_tools=bench, rounds=9)
    try:
        request = SessionRequest("session", "Serve.", "c1/s0", permissions=OPEN)
        result = await sessions.run(request, shop.progress.append)
    finally:
        await servers.close()
    assert [(use.tool, use.outcome) for use in result.trace] == [("exec_command", "ok"), ("TaskList", "ok")]
    assert "promoted_to_task" in (result.text or "")
    assert "serving" in (result.text or "")
    assert [task.status for task in await shop.tasks.history()] == ["running"]


async def test_a_cli_agents_terminal_is_a_task(shop: Shop) -> None:
    async with agent(shop.cwd, terminals=TaskTerminals(shop.tasks)) as bench:
        result = await bench.run("run echo from the terminal; exit 3", permissions=OPEN)
        assert "from the terminal" in (result.text or "")
        assert "3" in (result.text or "")


async def test_a_terminal_is_read_waited_for_and_closed(shop: Shop) -> None:
    terminals = TaskTerminals(shop.tasks)
    quick = await terminals.start(["printf", "%s", "a b"], str(shop.cwd), {}, None)
    assert (await quick.wait()).exit_code == 0
    assert quick.output() == ("a b", False)
    env = {"MY_TOKEN": "given on purpose"}
    long = await terminals.start("echo $MY_TOKEN; echo é$(seq 1 100); sleep 600", str(shop.cwd), env, 20)
    await eventually(lambda: long.output()[0].endswith("100\n"))
    text, cut = long.output()
    assert cut
    assert len(text.encode()) <= 20
    assert long.end is None
    await long.close()
    end = long.end
    assert end is not None
    assert end.signal == "SIGTERM"
    assert long.output() == (text, cut)
    await long.close()
    with pytest.raises(OSError, match="not a directory"):
        await terminals.start("true", str(shop.cwd / "gone"), {}, None)
