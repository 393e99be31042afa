"""Agent calls of VVM answered by models and CLI agents: files written by tools, references read, patches passed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from models.providers.agents import agent
from models.providers.models import WIRES, Live
from stubs.model_server import StubServer

from prose_kernel.errors import PermissionDenied
from prose_kernel.models.session_prompt import RULE
from prose_kernel.runs.languages import LANGUAGES
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.ports import AnswerFile, Given, SessionRequest
from prose_kernel.runtime.session_options import ModelServer

BINDINGS = ".vvm/runs/20260101-000000-9c0d1e/bindings"


def target(cwd: Path, number: int = 2) -> AnswerFile:
    (cwd / BINDINGS).mkdir(parents=True, exist_ok=True)
    return AnswerFile(f"b{number:06d}", f"{BINDINGS}/b{number:06d}.md", "")


def call(task: str = "Do it.", **more: Any) -> SessionRequest:
    return SessionRequest("call", task, "c1/1/s0", agent="scribe", **more)


@pytest.mark.parametrize("wire", WIRES)
class TestModels:
    async def test_the_message_is_the_assembled_one_and_the_prompt_the_system_text(
        self, stub: StubServer, wire: str, tmp_path: Path
    ) -> None:
        request = call(system="Be brief.", prelude="## Memory Context\n---", given=Given("in"), program="x.vvm")
        async with Live(stub, wire, "echo-0", tmp_path) as live:
            result = await live.run(request)
        assert result.text == "===== input\nin\n===== end of input\n\n## Memory Context\n---\n\nDo it."
        assert stub.last is not None and stub.last.asked.system.strip() == f"Be brief.\n\n{RULE}"

    async def test_keys_of_an_agent_that_servers_know_are_sent(
        self, stub: StubServer, wire: str, tmp_path: Path
    ) -> None:
        wanted: dict[str, Any] = {"temperature": 0.25, "max_tokens": 100, "top_p": "high", "seed": True, "colour": 1}
        async with Live(stub, wire, "ok-0", tmp_path, max_tokens=40) as live:
            await live.run(call(settings=wanted))
        assert stub.last is not None
        body = stub.last.body
        assert body["temperature"] == 0.25
        assert {body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")} == {40, None}
        assert not {"top_p", "seed", "colour"} & set(body)

    @pytest.mark.parametrize("tools", [True, False])
    async def test_a42_the_reply_is_the_answer_whatever_it_says(
        self, stub: StubServer, wire: str, tools: bool, tmp_path: Path
    ) -> None:
        goal = target(tmp_path)
        reply = f"Binding written: {goal.name}\nPath: {goal.location}\nSummary: All."
        async with Live(stub, wire, stub.script("says", reply), tmp_path, tools=tools) as live:
            result = await live.run(call(target=goal))
        assert (result.text, result.reply) == (reply, None)
        assert stub.last is not None and goal.location not in json.dumps(stub.last.body)

    async def test_a42_the_bindings_that_the_input_refers_to_are_in_the_message(
        self, stub: StubServer, wire: str, tmp_path: Path
    ) -> None:
        place = target(tmp_path, 1).location
        (tmp_path / place).write_text("the first answer")
        (tmp_path / "other.md").write_text("not for you")
        given = Given("{}", (place, "other.md", f"{BINDINGS}/../state.md", "gone.md"), BINDINGS)
        async with Live(stub, wire, "echo-0", tmp_path) as live:
            result = await live.run(call(given=given, permissions={"read": (), "write": ()}))
            assert f"===== {place}\nthe first answer\n===== end of {place}" in (result.text or "")
            assert "not for you" not in (result.text or "")
            (tmp_path / place).write_text("x" * 50_001)
            result = await live.run(call(given=given))
            assert len(result.text or "") < 11_000 and f"at {place}]" in (result.text or "")

    async def test_r9_the_bindings_of_the_run_are_readable_when_the_input_refers_to_one(
        self, stub: StubServer, wire: str, tmp_path: Path
    ) -> None:
        place = target(tmp_path, 1).location
        (tmp_path / place).write_text("the first answer")
        (tmp_path / BINDINGS).with_name("state.md").write_text("the log")
        calls = [
            {"name": "read", "arguments": {"path": path}} for path in (place, f"{BINDINGS}/../state.md", "other.md")
        ]
        (tmp_path / "other.md").write_text("not for you")
        model = stub.script("reads", {"calls": calls}, "{results}")
        rules = {"read": ("nothing",), "write": ()}
        async with Live(stub, wire, model, tmp_path) as live:
            result = await live.run(call(given=Given("{}", (place,), BINDINGS), permissions=rules))
        assert "the first answer" in result.text
        assert "the log" not in result.text and "not for you" not in result.text
        assert [use.outcome for use in result.trace] == ["ok", "refused", "refused"]
        assert result.reads == ()
        async with Live(stub, wire, model, tmp_path) as live:
            stub.script("reads", {"calls": calls[:1]}, "{results}")
            result = await live.run(call(given=Given("{}"), permissions=rules, target=target(tmp_path)))
        assert result.trace[0].outcome == "refused"  # without a reference there is nothing to read


CALLS = (
    '@{prompt="P"} `Note {}`({n: 1})',
    '@{permissions=perm()} `Note {}`("x")',
    '@{permissions=perm()} `Note`({ref: "a.md"})',
    '@{} `Note`([{ref: "a.md", summary: "s"}])',
    '@{memory={scope: "project", key: "k"}} `Note`("a\\n---\\n\\n## Binding Contract\\n\\nInput:")',
)


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("state", ["in-context", "filesystem"])
async def test_the_preview_equals_the_request_to_the_server(
    stub: StubServer, wire: Any, tools: bool, state: Any, tmp_path: Path
) -> None:
    url = stub.url if wire == "anthropic" else stub.openai_url
    servers = {"stub": ModelServer(wire, url, key="", model="ok-0", tools=tools)}
    settings = Settings().changed(provider="stub", vvm_state=state, providers=servers, cassette_mode="off")
    here = Workspace(settings, Start(tmp_path, language=LANGUAGES["vvm"]), asker=ScriptedPerson(available=False))
    try:
        await here.execute("pass")
        for text in CALLS:
            (found,) = await here.preview(here.compile(text))
            assert found.request is not None
            shown = here.opened.services.describe(found.request)
            await here.execute(text)
            assert stub.last is not None
            sent = stub.last.asked
            assert shown.message.text == sent.user.replace(here.opened.id or "«run»", "«run»")
            assert (shown.system, set(shown.tools)) == (sent.system.strip(), set(sent.tools))
    finally:
        await here.close()


# ---------------------------------------------------------------- CLI agents


async def test_an_agent_gets_the_message_and_its_prompt_apart(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        request = call("do: prompt", system="Be brief.", prelude="## Memory Context\n---", given=Given("in"))
        result = await bench.sessions.run(request, lambda _: None)
    assert json.loads(result.text or "") == [
        {"type": "text", "text": "Your instructions (system prompt):\n\nBe brief."},
        {"type": "text", "text": "## Memory Context\n---\n\ndo: prompt\n\nInput:\n---\nin\n---"},
    ]


async def test_an_agent_writes_its_binding(tmp_path: Path) -> None:
    goal = target(tmp_path)
    confirmation = f"Binding written: {goal.name}\\nPath: {goal.location}\\nSummary: A frog."
    task = f"do: write {goal.location} old pond\ndo: say {confirmation}"
    async with agent(tmp_path) as bench:
        result = await bench.sessions.run(call(task, target=goal, permissions={"write": ()}), lambda _: None)
    assert result.text == "old pond"
    assert (result.reply or "").startswith(f"Binding written: {goal.name}\n")


async def test_an_agent_may_write_no_other_file_of_the_run(tmp_path: Path) -> None:
    goal, other = target(tmp_path), target(tmp_path, 1)
    (tmp_path / other.location).write_text("the first")
    task = f"do: write {other.location} mine now\ndo: write {BINDINGS}/../state.md mine\ndo: say done"
    async with agent(tmp_path) as bench:
        await bench.sessions.run(call(task, target=goal, permissions={"write": ("**",)}), lambda _: None)
    assert (tmp_path / other.location).read_text() == "the first"
    assert not (tmp_path / BINDINGS).with_name("state.md").exists()


async def test_a3_rules_that_an_agent_cannot_be_held_to_are_refused(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"read": (), "write": (), "execute": (), "bash": "deny", "network": "deny"}
    async with agent(tmp_path) as bench:
        with pytest.raises(PermissionDenied, match="cannot be held to"):
            await bench.sessions.run(call(permissions=rules), lambda _: None)
