"""The tool `Exec` of agents: when it is offered, its results for the model and the trace, and whole runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from machine.fakes import FakeClock
from models.benches import answer_of
from models.people import ScriptedPerson
from stubs.model_server import StubServer

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.models.tools.exec import exec_tools
from prose_kernel.models.tools.session_tools import SessionTools
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.exec_tool.tool import AgentPrograms
from prose_kernel.processes.options import ExecOptions
from prose_kernel.processes.sandbox import mechanisms
from prose_kernel.runs import settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import open_request
from prose_kernel.runtime.ports import SessionProgress, SessionRequest
from prose_kernel.runtime.session_options import Rule, Surroundings

ECHO = {"argv": ["/bin/echo", "hi"]}
GRANTED: dict[str, Rule] = {"execute": ("echo", "printenv", "sleep", "cat"), "network": "allow"}


class Desk:
    """Makes the tools of sessions, and sets which programs the sessions may run."""

    def __init__(self, cwd: Path, engine: Engine) -> None:
        self.cwd = cwd
        self.engine = engine
        self.audit = AuditLog()
        self.warnings: list[str] = []
        self.person = ScriptedPerson(available=False)
        self.progress: list[SessionProgress] = []
        self.programs: AgentPrograms | None = None
        self.use()

    def use(self, kernel: Mapping[str, str] = os.environ, **options: object) -> None:
        chosen = ExecOptions(**{"enabled": True, **options})  # type: ignore[arg-type]
        self.programs = AgentPrograms(self.engine, chosen, self.audit, warn=self.warnings.append, kernel=lambda: kernel)

    def bench(self, rules: dict[str, Rule], host: dict[str, Rule] | None = None, at: str = "c1/s0") -> SessionTools:
        request = SessionRequest("session", "Do it", at, agent="worker", permissions=rules)
        policy = Policy.of(rules, host or {}, str(self.cwd), environment=dict(os.environ))
        approvals = Approvals(self.person, FakeClock())
        tools = exec_tools(request, policy, approvals, self.programs, str(self.cwd))
        where = Surroundings(str(self.cwd), environment=dict(os.environ))
        return SessionTools(request, policy, approvals, where, self.progress.append, tools)

    def events(self) -> list[object]:
        return [event["event"] for event in self.audit.events]


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    engine = Engine(grace=0.3, state_dir=tmp_path / "state")
    (tmp_path / "work").mkdir()
    yield Desk((tmp_path / "work").resolve(), engine)
    await asyncio.to_thread(engine.close)


def offered(bench: SessionTools) -> bool:
    return "Exec" in [spec.name for spec in bench.specs]


# ---------------------------------------------------------------- two opt-ins


async def test_exec_needs_the_setting_and_the_rules(desk: Desk) -> None:
    assert offered(desk.bench(GRANTED))
    assert offered(desk.bench({}, host={"execute": ("echo",)}))
    for rules in ({}, {"execute": "deny"}, {"bash": "allow"}, {"read": "allow", "write": "allow"}):
        assert not offered(desk.bench(rules)), rules
    desk.use(enabled=False)
    assert not offered(desk.bench(GRANTED))
    desk.programs = None
    assert not offered(desk.bench(GRANTED))


@pytest.mark.parametrize(
    ("execute", "listed"),
    [(("true", "/bin/echo", "tools/*.sh", "bin/"), "/bin/echo, bin/, tools/*.sh, true."), ("allow", "")],
)
async def test_the_model_is_told_which_programs_the_rules_list(desk: Desk, execute: Rule, listed: str) -> None:
    (spec,) = (spec for spec in desk.bench({"execute": execute}).specs if spec.name == "Exec")
    assert spec.description.partition("these programs: ")[2] == listed  # the same on each machine, for previews


async def test_a_plain_name_is_answered_with_the_path_that_is_allowed(desk: Desk) -> None:
    desk.use({"PATH": "/usr/bin"})
    bench = desk.bench({"execute": ("true", "bin/")})
    assert (await answer_of(bench, "Exec", {"argv": ["true"]})).endswith("; use /usr/bin/true")
    for other in ("bin", "echo", "./true"):
        assert "; use" not in await answer_of(bench, "Exec", {"argv": [other]})


async def test_a53_a_program_knows_its_request(desk: Desk) -> None:
    with open_request.asking(open_request.OpenRequest("c1/s0", "", "20260101-000000-abcdef", 2)):
        call = {"argv": ["/usr/bin/printenv", *open_request.IDENTITY]}
        answer = json.loads(await answer_of(desk.bench(GRANTED), "Exec", call))
    assert answer["stdout"].split() == ["20260101-000000-abcdef", "c1/s0", "2"]


# ---------------------------------------------------------------- what the model and the trace see


async def test_a15_an_answer_has_seven_fields_and_its_trace_is_the_same_each_time(desk: Desk) -> None:
    answers, traces = [], []
    for _ in range(2):
        bench = desk.bench(GRANTED)
        answers.append(await answer_of(bench, "Exec", ECHO))
        traces.append(bench.trace)
    assert traces[0] == traces[1]
    fields = json.loads(answers[0])
    assert fields.pop("duration_s") > 0 and "duration_s" not in traces[0][0].detail
    assert fields == {
        "exit_code": 0,
        "stdout": "hi\n",
        "stderr": "",
        "stdout_truncated": False,
        "stderr_truncated": False,
        "timed_out": False,
    }
    (use,) = traces[0]
    assert (use.tool, use.summary, use.outcome) == ("Exec", "/bin/echo hi", "ok")


async def test_a_program_that_fails_is_a_result(desk: Desk) -> None:
    bench = desk.bench(GRANTED)
    answer = json.loads(await answer_of(bench, "Exec", {"argv": ["/bin/cat", "/no/such"]}))
    assert answer["exit_code"] == 1 and bench.trace[0].outcome == "ok"


async def test_refusals_and_failures_are_distinguished(desk: Desk) -> None:
    bench = desk.bench(GRANTED)
    for arguments, outcome, word in (
        ({"argv": ["/bin/ls"]}, "refused", "fs_denied"),
        ({"argv": ["/bin/sh", "-c", "echo x"]}, "refused", "fs_denied"),
        ({"argv": ["echo"]}, "failed", "invalid_args"),
        ({"argv": ["/bin/echo"], "timeout_s": 0}, "failed", "invalid_args"),
        ({"argv": "echo hi"}, "failed", "invalid_args"),
        ({}, "failed", "invalid_args"),
        ({"argv": ["/bin/echo"], "background": True}, "failed", "invalid_args"),
    ):
        answer = await answer_of(bench, "Exec", arguments)
        assert word in answer and bench.trace[-1].outcome == outcome, arguments
    assert "hi" in await answer_of(bench, "Exec", ECHO)  # the session continues


async def test_a15_a_tool_that_was_not_granted_is_answered_and_audited(desk: Desk) -> None:
    bench = desk.bench({})
    for name, word in (("Exec", "execute: ["), ("exec_command", "bash: allow"), ("TaskStop", "bash: allow")):
        answer = await answer_of(bench, name, ECHO if name == "Exec" else {})
        assert answer.startswith(f"refused: permission_denied: this session may not use `{name}`"), answer
        assert word in answer and bench.trace[-1].outcome == "refused"
    (denied,) = desk.audit.events
    assert (denied["event"], denied["tool"], denied["error"]) == ("tool.call.denied", "Exec", "permission_denied")
    assert "Say" not in await answer_of(bench, "read", {"path": "nothing"})  # the session continues


async def test_a15_a_refusal_by_shape_is_audited_with_its_kind(desk: Desk) -> None:
    bench = desk.bench(GRANTED)
    for arguments in ({"argv": "echo hi"}, {}, {"argv": ["/bin/echo", 3]}, {**ECHO, "timeout_s": "long"}):
        assert (await answer_of(bench, "Exec", arguments)).startswith("failed: invalid_args: ")
    assert [event["error"] for event in desk.audit.events] == ["invalid_args"] * 4
    assert desk.events() == ["tool.call.denied"] * 4


async def test_a15_the_type_that_is_named_is_the_type_wanted(desk: Desk) -> None:
    bench = desk.bench({})
    answer = await answer_of(bench, "read", {"path": ["a"]})
    assert answer == "failed: invalid arguments: 'path' must be a string"
    assert "timeout_s must be a number" in await answer_of(desk.bench(GRANTED), "Exec", {**ECHO, "timeout_s": "long"})


async def test_a_refusal_names_the_line_that_would_allow_it(desk: Desk) -> None:
    bench = desk.bench({**GRANTED, "read": ("open/",)})
    assert await answer_of(bench, "Exec", {"argv": ["/bin/ls"]}) == (
        'refused: fs_denied: /bin/ls resolves outside the granted prefixes; what would allow it: execute: ["/bin/ls"]'
    )
    assert (await answer_of(bench, "Exec", {**ECHO, "cwd": "/var"})).endswith('what would allow it: read: ["/var/"]')
    shells = desk.bench({"execute": ["/bin/sh"]})
    assert (await answer_of(shells, "Exec", {"argv": ["/bin/sh", "-c", "true"]})).endswith("that needs bash: allow")


async def test_secrets_in_arguments_stay_out_of_the_trace(desk: Desk) -> None:
    bench = desk.bench(GRANTED)
    await answer_of(bench, "Exec", {"argv": ["/bin/echo", "--token", "sk-1", "API_KEY=sk-2"]})
    assert bench.trace[0].summary == "/bin/echo --token '***' 'API_KEY=***'"
    assert "sk-1" in repr(desk.audit.events)  # the private log holds the real arguments


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rules", "argv", "outcome"),
    [
        ({"execute": ("/usr/bin/*",)}, "/bin/echo", "ok"),
        ({"execute": ("/usr/bin/ec?o",)}, "/bin/echo", "ok"),
        ({"execute": ("/usr/",)}, "/bin/echo", "ok"),
        ({"execute": ("/usr/*",)}, "/bin/echo", "refused"),
        ({"execute": ("/usr/**",)}, "/bin/echo", "ok"),
        ({"execute": ("/opt/*",)}, "/bin/echo", "refused"),
        ({"execute": ("nothing-of-that-name",)}, "/bin/echo", "refused"),
        ({"execute": "allow"}, "/bin/echo", "ok"),
        ({"execute": "allow"}, "/bin/sh", "refused"),
        ({"execute": "allow", "bash": "prompt"}, "/bin/sh", "refused"),
        ({"execute": "allow", "bash": "allow"}, "/bin/sh", "ok"),
        ({"execute": ("/bin/sh",)}, "/bin/sh", "refused"),
        ({"execute": ("/bin/env",)}, "/usr/bin/env", "refused"),
        ({"execute": ("tools/hello",)}, "{cwd}/tools/hello", "ok"),
        ({"execute": ("tools/",)}, "{cwd}/tools/hello", "ok"),
        ({"execute": ("tools/hello",), "write": ("out/",)}, "{cwd}/tools/hello", "ok"),
        ({"execute": ("tools/hello",), "write": ("**",)}, "{cwd}/tools/hello", "refused"),
        ({"execute": ("tools/hello",), "write": ("tools/*.txt",)}, "{cwd}/tools/hello", "refused"),
        ({"execute": ("tools/*",)}, "{cwd}/tools/deep/hello", "refused"),
        ({"execute": ("tools/**",)}, "{cwd}/tools/deep/hello", "ok"),
        ({"execute": ("tools/**",)}, "{cwd}/tools/out", "refused"),
    ],
)
async def test_rules_become_grants(desk: Desk, rules: dict[str, Rule], argv: str, outcome: str) -> None:
    for name in ("tools/hello", "tools/deep/hello", "other"):
        path = desk.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (desk.cwd / "tools" / "out").symlink_to(desk.cwd / "other")
    if "write" in rules and not mechanisms().landlock:
        pytest.skip("lists cannot be enforced here")
    bench = desk.bench({"network": "allow", **rules})
    answer = await answer_of(bench, "Exec", {"argv": [argv.format(cwd=desk.cwd)]})
    assert bench.trace[0].outcome == outcome, answer


async def test_what_is_granted_by_accident_is_warned_of_once(desk: Desk) -> None:
    for _ in range(2):
        bench = desk.bench({"execute": ("/usr/bin/", "nothing-of-that-name"), "network": "allow"})
        await answer_of(bench, "Exec", ECHO)
    assert len(desk.warnings) == 2
    assert "/usr/bin/ is granted" in desk.warnings[1] and "nothing-of-that-name" in desk.warnings[0]


async def test_execute_prompt_asks_for_each_program(desk: Desk) -> None:
    bench = desk.bench({"execute": "prompt", "network": "allow"})
    assert "permission_denied" in await answer_of(bench, "Exec", ECHO)
    desk.person = ScriptedPerson("n", "y")
    bench = desk.bench({"execute": "prompt", "network": "allow"}, at="c1/s1")
    assert (await answer_of(bench, "Exec", ECHO)).startswith("refused")
    assert json.loads(await answer_of(bench, "Exec", ECHO))["stdout"] == "hi\n"
    assert any('["/bin/echo", "hi"]' in line for line in desk.person.transcript)
    assert desk.events() == ["tool.call.dispatched", "tool.call.finished"]


@pytest.mark.skipif(bool(mechanisms().network), reason="no network namespaces here")
async def test_network_prompt_asks_once_and_no_means_none(desk: Desk) -> None:
    desk.person = ScriptedPerson("n")
    bench = desk.bench({"execute": ("cat",), "network": "prompt"})
    for _ in range(2):
        answer = json.loads(await answer_of(bench, "Exec", {"argv": ["/bin/cat", "/proc/self/net/dev"]}))
        names = [line.split(":")[0].strip() for line in answer["stdout"].splitlines()[2:]]
        assert names == ["lo"]
    assert len([line for line in desk.person.transcript if line.startswith("?")]) == 1


@pytest.mark.skipif(not mechanisms().landlock, reason="Landlock is not offered here")
async def test_read_lists_of_the_program_limit_the_files_of_exec(desk: Desk) -> None:
    (desk.cwd / "open").mkdir()
    (desk.cwd / "open" / "a").write_text("open")
    (desk.cwd / "secret").write_text("secret")
    bench = desk.bench({**GRANTED, "read": ("open/",)})
    for path, text in (("open/a", "open"), ("secret", "")):
        assert (
            json.loads(await answer_of(bench, "Exec", {"argv": ["/bin/cat", str(desk.cwd / path)]}))["stdout"] == text
        )


# ---------------------------------------------------------------- whole runs


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer() as server:
        yield server


PROGRAM = """agent worker:
  permissions:
    execute: {execute}
    network: allow

let a = session: worker
  prompt: "Run it"
"""


async def run(
    tmp_path: Path, stub: StubServer, model: str, execute: str, table: str
) -> tuple[str, list[dict[str, object]]]:
    """Return the answer of a session in a separate run, and the audit log of that run."""
    (tmp_path / "prose.toml").write_text(
        f'provider = "stub"\n[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\n'
        f'model = "{model}"\n{table}'
    )
    found = settings.load(tmp_path, {}, state_dir=str(tmp_path / ".prose"), cassette_mode="off")
    workspace = Workspace(found, Start(tmp_path), asker=ScriptedPerson())
    try:
        await workspace.execute(PROGRAM.format(execute=execute))
        answer = str(workspace.opened.machine.bindings()["a"])
        directory = workspace.opened.directory
        assert directory is not None
        log = directory / "audit.jsonl"
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    finally:
        await workspace.close()
    return answer, events


async def test_acceptance_27_through_a_whole_run(tmp_path: Path, stub: StubServer) -> None:
    calls = [{"name": "Exec", "arguments": ECHO}]
    model = stub.script("exec", {"calls": calls}, "{results}")
    answer, events = await run(tmp_path, stub, model, '["/bin/echo"]', "[exec]\nenabled = true\n")
    assert "hi" in answer
    assert [event["event"] for event in events] == ["tool.call.dispatched", "tool.call.finished"]
    assert (events[0]["tool"], events[0]["ok"], events[0]["args"]) == ("Exec", True, ECHO)


async def test_acceptance_27_a_refusal_through_a_whole_run(tmp_path: Path, stub: StubServer) -> None:
    calls = [{"name": "Exec", "arguments": {"argv": ["/bin/ls"]}}]
    model = stub.script("denied", {"calls": calls}, "{results}")
    answer, events = await run(tmp_path, stub, model, '["/bin/echo"]', "[exec]\nenabled = true\n")
    assert "fs_denied" in answer
    assert [(event["event"], event["error"]) for event in events] == [("tool.call.denied", "fs_denied")]


async def test_acceptance_2_without_the_setting_there_is_no_such_tool(tmp_path: Path, stub: StubServer) -> None:
    calls = [{"name": "Exec", "arguments": ECHO}]
    model = stub.script("off", {"calls": calls}, "{results}")
    answer, events = await run(tmp_path, stub, model, '["/bin/echo"]', "")
    assert "hi" not in answer.split()
    assert [(event["event"], event["tool"], event["error"]) for event in events] == [
        ("tool.call.denied", "Exec", "permission_denied")
    ]


async def test_a39_refused_and_made_up_calls_are_audited_without_exec(tmp_path: Path, stub: StubServer) -> None:
    calls = [
        {"name": "read", "arguments": {"path": "/etc/passwd"}},
        {"name": "teleport\u200b", "arguments": {"key": "sk-secret"}},
        {"name": "exec_command", "arguments": {"cmd": "ls"}},
        {"name": "list", "arguments": {}},
    ]
    model = stub.script("refused", {"calls": calls}, "{results}")
    _, events = await run(tmp_path, stub, model, "deny", "")
    assert [(event["event"], event["tool"], event["error"]) for event in events] == [
        ("tool.call.denied", "read", "permission_denied"),
        ("tool.call.denied", "teleport\u200b", "tool_not_found"),
        ("tool.call.denied", "exec_command", "permission_denied"),
    ]
    assert "sk-secret" not in repr(events) and all(event["args_sha256"] for event in events)
    assert stub.last is not None and stub.last.asked.tools and "Exec" not in stub.last.asked.tools
