"""Sessions of a CLI agent over the real protocol: requests, replies and permissions (sessions.md 5)."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from models.people import ScriptedPerson, SilentPerson
from models.providers.agents import Bench, agent, request, target
from waiting import appears, eventually

from prose_kernel.errors import PermissionDenied, ProviderBadReply, ProviderError
from prose_kernel.models.providers import acp_conversation
from prose_kernel.models.providers.acp_conversation import AgentConversation
from prose_kernel.models.usage_and_prices import UsageLine, UsageTotals
from prose_kernel.runtime.ports import AgentMemory, ContextItem, FileWrite, ToolUse, Usage

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with agent(tmp_path_factory.mktemp("work").resolve(), person=ScriptedPerson()) as bench:
        yield bench


@pytest.fixture
def bench(shared: Bench) -> Bench:
    """The shared agent, with a person without answers and without host rules."""
    shared.person.answers.clear()
    shared.person.transcript.clear()
    shared.person.available = True
    shared.host.clear()
    shared.progress.clear()
    return shared


# ---------------------------------------------------------------- message and reply


async def test_a_reply_is_the_answer(bench: Bench) -> None:
    result = await bench.run("say Forty two.\\nThat is all.")
    assert (result.text, result.summary) == ("Forty two.\nThat is all. ", "Forty two.")
    assert (result.provider, result.origin, result.trace, result.writes) == ("acp:stub", "agent", (), ())
    assert result.details == {"effects": "partial", "agent": "stub 1.0", "model": "small"}


async def test_the_prompt_is_the_assembled_message_with_the_system_prompt_first(bench: Bench) -> None:
    asked = request(system="Be brief.", program="tour.prose", position=2)
    result = await bench.sessions.run(asked, lambda progress: None)
    assert json.loads(result.text or "") == [
        {"type": "text", "text": "Your instructions (system prompt):\n\nBe brief."},
        {
            "type": "text",
            "text": "Program: tour.prose\nPosition: statement 2\n\nWrite a haiku\n\n"
            "Reply with your answer. Your whole reply is kept as the result.",
        },
    ]


async def test_context_comes_by_name_and_as_links_and_memory_by_value(bench: Bench) -> None:
    memory = AgentMemory("ann", "project", ".prose/agents/ann", resume=True, text="I was here.", segment="s.md")
    context = (ContextItem("plan", ".prose/plan one.md"), ContextItem("lost", missing=True), ContextItem("n", text="7"))
    result = await bench.run("prompt", context=context, memory=memory)
    memory_block, message, link = json.loads(result.text or "")
    assert memory_block["text"] == "Your memory as it is now:\n\nI was here."
    assert "- plan: .prose/plan one.md\n- lost: (no result)\n- n: 7" in message["text"]
    assert link == {"type": "resource_link", "name": "plan", "uri": f"file://{bench.cwd}/.prose/plan%20one.md"}


async def test_the_answer_is_the_text_after_the_last_tool_call(bench: Bench) -> None:
    result = await bench.run("say I will look.", "think hm", 'call read completed {"path": "a.md"}', "say Here it is.")
    assert result.text == "Here it is. "
    steps = [(step.kind, step.text) for step in bench.progress]
    assert "".join(text for kind, text in steps if kind == "text") == "I will look. \n\nHere it is. "
    assert ("tool", "a.md") in steps


async def test_text_before_the_last_tool_call_is_the_answer_if_none_follows(bench: Bench) -> None:
    assert (await bench.run("say The answer.", 'call think completed {"title": "tidy up"}')).text == "The answer. "


async def test_a_confirmation_means_that_the_binding_was_written(bench: Bench) -> None:
    goal = target("haiku", bench.cwd)
    written = goal.header.replace("\n", "\\n") + "old pond"
    confirmation = f"say Binding written: haiku\\nLocation: {goal.location}\\nSummary: A frog"
    result = await bench.run(f"write {goal.location} {written}", confirmation, target=goal)
    assert (result.text, result.summary) == ("old pond", "A frog")
    assert result.writes == ()


async def test_an_empty_reply_at_the_end_is_not_an_answer(bench: Bench) -> None:
    with pytest.raises(ProviderBadReply, match="the agent stub said nothing"):
        await bench.run("think hm")


async def test_usage_is_shown_where_the_agent_reports_it(bench: Bench) -> None:
    assert (await bench.run("usage 10 5 0.25", "say x")).usage == Usage(1, 11, 5, 0.25)
    assert (await bench.run("say x")).usage == Usage(1, counted=False)


@pytest.mark.parametrize(
    ("doing", "tokens"),
    [
        (("usage 10 5 0.25", "stop refusal"), UsageLine("acp:stub", "small", 0, 0, 0, 1, 11, 5, 0.25)),
        (("usage 10 5 0.25", "think hm"), UsageLine("acp:stub", "small", 0, 0, 0, 1, 11, 5, 0.25)),
        (
            ("usage 10 5 0.25", "fail -32603 overloaded"),
            UsageLine("acp:stub", "small", requests=1, cost=0.25, uncounted=1),
        ),
        (("fail -32603 overloaded",), UsageLine("acp:stub", "small", requests=1, unpriced=1, uncounted=1)),
    ],
)
async def test_a14_a_failed_prompt_is_counted_and_unknown_tokens_are_called_unknown(
    bench: Bench, doing: tuple[str, ...], tokens: UsageLine
) -> None:
    totals = UsageTotals()
    with totals.listening("c1/1/s0"), pytest.raises(ProviderError):
        await bench.run(*doing)
    assert totals.lines == (tokens,)


async def test_a14_a_cancelled_prompt_is_counted(bench: Bench) -> None:
    totals = UsageTotals()
    with totals.listening("c1/1/s0"):
        running = asyncio.ensure_future(bench.run("usage 10 5 0.25", "touch begun x", "hang"))
        await eventually(Path(bench.cwd, "begun").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert totals.lines == (UsageLine("acp:stub", "small", 0, 0, 0, 1, 11, 5, 0.25),)


@pytest.mark.parametrize("place", ["the end of the session", "its files"])
async def test_a_prompt_that_is_cancelled_after_its_answer_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    totals, waiting = UsageTotals(), asyncio.Event()

    async def hangs(*_: object) -> None:
        waiting.set()
        await asyncio.get_running_loop().create_future()

    async def in_thread(work: Callable[..., object], *given: object) -> object:
        await hangs() if work.__name__ == "added_to" else None
        return work(*given)

    if place == "the end of the session":
        monkeypatch.setattr(AgentConversation, "close", hangs)
    else:
        monkeypatch.setattr(asyncio, "to_thread", in_thread)
    with totals.listening("c1/1/s0"):
        running = asyncio.ensure_future(bench.run("usage 10 5 0.25", "say x"))
        await waiting.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert totals.lines == (UsageLine("acp:stub", "small", 0, 0, 0, 1, 11, 5, 0.25),)


async def test_a14_a_prompt_that_was_never_sent_is_not_counted(bench: Bench) -> None:
    totals = UsageTotals()
    with totals.listening("c1/1/s0"), pytest.raises(ProviderError):
        await bench.run("say x", model="none")
    assert totals.lines == ()


async def test_hostile_text_stays_text_and_broken_characters_are_replaced(bench: Bench) -> None:
    result = await bench.run("say <script>alert(1)</script>", "half")
    assert result.text == "<script>alert(1)</script> \N{REPLACEMENT CHARACTER}!"


async def test_a_prompt_of_ten_megabytes_and_a_reply_of_ten_arrive_whole(bench: Bench) -> None:
    result = await bench.run("big 10", context=(ContextItem("x", text="y" * 10_000_000),))
    assert result.text == "x" * 10_000_000


async def test_an_endless_reply_is_refused_and_the_agent_survives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_conversation, "LONGEST_REPLY", 4 << 20)
    before = bench.processes
    with pytest.raises(ProviderBadReply, match="the agent stub says more than a reply can hold") as refused:
        await bench.run("big 5")
    assert not refused.value.retryable
    assert (await bench.run("say still here")).text == "still here "
    assert bench.processes == before


# ---------------------------------------------------------------- models


async def test_an_alias_chooses_the_agents_own_model(bench: Bench) -> None:
    result = await bench.run("model", model="opus")
    assert (result.text, result.details["model"]) == ("large ", "large")
    assert (await bench.run("model")).text == "small "


async def test_an_alias_that_is_not_mapped_is_an_error_with_a_fix(bench: Bench) -> None:
    with pytest.raises(ProviderError) as refused:
        await bench.run("model", model="sonnet")
    assert str(refused.value) == "the model `sonnet` is not mapped for the agent stub"
    assert '[models."acp:stub"]' in (refused.value.hint or "")
    assert not refused.value.retryable


async def test_a_model_that_the_agent_does_not_offer_is_an_error_that_lists_what_it_offers(bench: Bench) -> None:
    with pytest.raises(ProviderError, match="the agent stub offers no model `tiny`") as refused:
        await bench.run("model", model="haiku")
    assert (refused.value.hint or "").startswith("it offers small, large;")
    assert not refused.value.retryable


async def test_an_agent_without_models_to_choose_from_refuses_a_model(tmp_path: Path) -> None:
    async with agent(tmp_path, "models=none") as bench:
        assert (await bench.run("say x")).details == {"effects": "partial", "agent": "stub 1.0"}
        with pytest.raises(ProviderError, match="offers no choice of models, so `large` cannot be chosen"):
            await bench.run("model", model="opus")


# ---------------------------------------------------------------- permissions

RM = 'ask execute {"command": "rm -rf build"}'


@pytest.mark.parametrize(
    ("asked", "rules", "answer"),
    [
        (RM, {}, "no-1"),
        (RM, {"bash": "allow"}, "yes-1"),
        (RM, {"bash": "deny"}, "no-1"),
        ('ask execute {"command": ["rm", "x"]}', {"bash": "allow"}, "yes-1"),
        (RM + " always,reject", {"bash": "allow"}, "yes-for-ever"),
        (RM + " once,never", {}, "no-for-ever"),
        (RM + " once", {}, "cancelled"),
        ('ask edit {"path": "out/a.md"}', {"write": ("out/**",)}, "yes-1"),
        ('ask edit {"path": "src/a.md"}', {"write": ("out/**",)}, "no-1"),
        ('ask edit {"path": "out/a.md"} always,reject', {"write": ("out/**",)}, "no-1"),
        ('ask edit {"path": "out/../src/a.md"}', {"write": ("out/**",)}, "no-1"),
        ('ask edit {"path": "out/a.md", "changes": [{"file_path": "/etc/passwd"}]}', {"write": ("out/**",)}, "no-1"),
        ('ask edit {"title": "Edit something"}', {"write": "allow"}, "no-1"),
        ('ask delete {"path": "out/a.md"}', {}, "no-1"),
        ('ask move {"source": "out/a", "destination": "src/a"}', {"write": ("out/**",)}, "no-1"),
        ('ask move {"source": "out/a", "destination": "out/b"}', {"write": ("out/**",)}, "yes-1"),
        ('ask read {"path": "a.md"}', {}, "yes-1"),
        ('ask read {"path": "/etc/passwd"}', {}, "no-1"),
        ('ask read {"path": ".prose/.env"}', {"read": "allow"}, "no-1"),
        ('ask search {"pattern": "x"}', {}, "yes-1"),
        ('ask search {"path": "/etc", "pattern": "x"}', {}, "no-1"),
        ('ask fetch {"url": "https://example.org/a"}', {"network": "allow"}, "yes-1"),
        ('ask fetch {"query": "weather"}', {"network": "allow"}, "yes-1"),
        ('ask think {"title": "a plan"}', {}, "yes-1"),
        ('ask switch_mode {"title": "accept all edits"}', {"write": "allow", "bash": "allow"}, "no-1"),
        ('ask other {"command": "x", "path": "a.md"}', {"write": "allow", "bash": "allow"}, "no-1"),
    ],
)
async def test_what_the_agent_asks_is_answered_by_the_rules(
    bench: Bench, asked: str, rules: dict[str, object], answer: str
) -> None:
    bench.audit.clear()
    result = await bench.run(asked, permissions=rules)
    assert result.text == f"answer: {answer} "
    assert bench.person.transcript == []
    assert [use.outcome for use in result.trace] == ["ok" if answer.startswith("yes") else "refused"]
    refused = [] if answer.startswith("yes") else ["tool.call.denied"]  # A39
    assert [event for event, _ in bench.audit] == refused


async def test_the_rules_of_the_host_count_where_the_program_says_nothing(bench: Bench) -> None:
    bench.host["bash"] = "allow"
    assert (await bench.run(RM)).text == "answer: yes-1 "
    assert (await bench.run(RM, permissions={"bash": "deny"})).text == "answer: no-1 "


async def test_the_person_is_asked_once_or_for_the_whole_run(tmp_path: Path) -> None:
    person = ScriptedPerson("n", "y", "always")
    async with agent(tmp_path, person=person) as bench:
        rules = {"bash": "prompt"}
        answers = [(await bench.run(RM, permissions=rules, agent="ann")).text for _ in range(5)]
        assert answers == ["answer: no-1 ", *["answer: yes-1 "] * 4]
    assert person.answers == []
    shown = [text for text in person.transcript if not text.startswith("?")]
    assert len(shown) == 3
    assert shown[0] == (
        "Permission needed (bash): agent ann · c1/s0 asks for\n\n  | rm -rf build\n\n"
        "always = running any command by agent ann, for the rest of this run"
    )


async def test_non_interactive_means_no(bench: Bench) -> None:
    bench.person.available = False
    result = await bench.run(RM, permissions={"bash": "prompt"})
    assert result.text == "answer: no-1 "
    assert result.trace == (
        ToolUse("bash", "rm -rf build", "refused", "it needs approval, and no person can be asked"),
    )


async def test_an_open_question_ends_with_its_session(tmp_path: Path) -> None:
    person = SilentPerson()
    async with agent(tmp_path, person=person) as bench:
        task = bench.start(RM, permissions={"bash": "prompt"})
        await person.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(bench.processes) == 1  # cancelled by protocol: the process did not have to end


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"read": "deny"}, "`read: deny`"),
        ({"read": "prompt"}, "`read: prompt`"),
        ({"read": ("src/**",)}, "`read: src/**`"),
        ({"network": "deny"}, "`network: deny`"),
        ({"network": ("example.org",)}, "`network: example.org`"),
        ({"read": ("src/**",), "network": "deny"}, "`read: src/**`, `network: deny`"),
    ],
)
async def test_unenforceable_rules_are_refused_before_anything_starts(
    tmp_path: Path, rules: dict[str, object], named: str
) -> None:
    async with agent(tmp_path) as bench:
        with pytest.raises(PermissionDenied) as refused:
            await bench.run("say x", permissions=rules)
        assert str(refused.value).startswith(f"the agent stub cannot be held to {named}: ")
        assert 'enforcement = "advisory"' in (refused.value.hint or "")
        assert bench.processes == []
        bench.host.update(rules)  # type: ignore[arg-type]
        with pytest.raises(PermissionDenied):
            await bench.run("say x")


async def test_unenforceable_rules_run_with_advisory_enforcement(tmp_path: Path) -> None:
    async with agent(tmp_path, enforcement="advisory") as bench:
        rules = {"read": ("src/**",), "network": "deny"}
        result = await bench.run('ask fetch {"url": "https://example.org"}', "read a.md", permissions=rules)
        assert (result.text or "").startswith("answer: no-1 error: reading '")
        assert [use.outcome for use in result.trace] == ["refused", "refused"]
        done = await bench.run('call execute completed {"command": "ls"}', "say done", permissions={"bash": "deny"})
        assert done.trace == (ToolUse("bash", "ls", "ok", "done without asking: the rule is `bash: deny`"),)


@pytest.mark.parametrize("rules", [{"read": ("**",)}, {"read": "allow", "network": "allow"}, {"network": "prompt"}])
async def test_rules_that_forbid_nothing_are_accepted(bench: Bench, rules: dict[str, object]) -> None:
    assert (await bench.run("say x", permissions=rules)).text == "x "


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ('call execute completed {"command": "rm x"}', "bash `rm x`, which is not allowed: the rule is `bash: deny`"),
        ('call edit completed {"path": "src/a.md", "new": "x"}', "edit `src/a.md`, which is not allowed: the rule is"),
    ],
)
async def test_what_was_done_without_asking_against_a_rule_ends_the_session(
    bench: Bench, call: str, named: str
) -> None:
    (bench.cwd / "src").mkdir(exist_ok=True)
    with pytest.raises(PermissionDenied) as refused:
        await bench.run(call, "hang")
    assert str(refused.value).startswith(f"the agent stub did not ask before {named}")


# ---------------------------------------------------------------- files and terminals


async def test_files_are_read_and_written_for_the_agent_under_the_rules(bench: Bench) -> None:
    (bench.cwd / "a.txt").write_text("one\ntwo\nthree\n")
    rules = {"write": ("out/**",)}
    result = await bench.run(
        "read a.txt", "read a.txt 2 1", "write out/b.txt new", "write c.txt no", "read none", permissions=rules
    )
    assert (bench.cwd / "out/b.txt").read_text() == "new"
    assert not (bench.cwd / "c.txt").exists()
    reply = (result.text or "").replace(str(bench.cwd), "")
    assert reply.startswith(
        "content: one\ntwo\nthree\n content: two\n error: writing '/c.txt' is not allowed: the rule is"
    )
    assert reply.endswith("error: Resource not found ")
    assert result.writes == (FileWrite("out/b.txt", None, "new"),)
    assert [(use.tool, use.summary, use.outcome) for use in result.trace] == [
        ("read", "a.txt", "ok"),
        ("read", "a.txt", "ok"),
        ("edit", "out/b.txt", "ok"),
        ("edit", "c.txt", "refused"),
        ("read", "none", "failed"),
    ]


async def test_reported_edits_are_writes_with_the_text_before_and_after(bench: Bench) -> None:
    (bench.cwd / "poem.md").write_text("roses are red\n")
    edit = '{"path": "poem.md", "old": "red", "new": "blue", "output": "done"}'
    new = '{"path": "new.md", "new": "hello"}'
    unchanged = '{"path": "same.md"}'
    result = await bench.run(
        f"call edit completed {edit}",
        f"call edit completed {new}",
        f"call edit failed {unchanged}",
        "say ok",
        permissions={"write": ("*.md",)},
    )
    assert result.writes == (
        FileWrite("poem.md", "roses are red\n", "roses are blue\n"),
        FileWrite("new.md", None, "hello"),
    )
    assert result.trace == (
        ToolUse("edit", "poem.md", "ok", "done"),
        ToolUse("edit", "new.md"),
        ToolUse("edit", "same.md", "failed"),
    )


async def test_a_trace_holds_neither_the_workspaces_path_nor_control_characters(bench: Bench) -> None:
    command = json.dumps({"command": f"ls {bench.cwd}/src \x1b[31m", "output": f"{bench.cwd}/src/a\x07"})
    result = await bench.run(f"call execute completed {command}", "say x", permissions={"bash": "allow"})
    (use,) = result.trace
    assert use.summary == "ls src \N{REPLACEMENT CHARACTER}[31m"
    assert use.detail == "src/a\N{REPLACEMENT CHARACTER}"


async def test_without_terminals_none_are_offered(bench: Bench) -> None:
    assert (await bench.run("terminals", "run ls")).text == "False error: Method not found "


# ---------------------------------------------------------------- parallel sessions


async def test_two_hundred_sessions_run_in_parallel_in_one_process(tmp_path: Path) -> None:
    async with agent(tmp_path, limit=200) as bench:
        tasks = [bench.start(f"say {number}", "wait go", f"say done {number}") for number in range(200)]
        await eventually(lambda: len({step.text for step in bench.progress}) >= 200)
        assert len(bench.processes) == 1
        (tmp_path / "go").touch()
        results = await asyncio.gather(*tasks)
        assert [result.text for result in results] == [f"{number} done {number} " for number in range(200)]


async def test_no_more_than_the_limit_run_in_parallel(tmp_path: Path) -> None:
    async with agent(tmp_path) as bench:
        tasks = [bench.start(f"say up{number}", "wait go", "say x") for number in range(6)]
        await eventually(lambda: len(bench.progress) >= 4)
        (tmp_path / "go").touch()
        assert len(await asyncio.gather(*tasks)) == 6
        assert (await bench.run("most")).text == "4 "  # the default of the settings


async def test_an_agent_that_closes_sessions_gets_a_message_when_one_ends(tmp_path: Path) -> None:
    async with agent(tmp_path, "closes") as bench:
        await bench.run("say x")
        await appears(tmp_path / "closed")


async def test_the_agents_environment_is_ours_with_the_entries_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_TOKEN", "kept")
    async with agent(tmp_path) as bench:
        result = await bench.run("env SOME_API_TOKEN", "env ACP_MARK", "env PROSE_JOB", "cwd")
        assert re.fullmatch(rf"kept {bench.mark} \S+:helper {re.escape(str(tmp_path))} ", result.text)  # A34
    assert sys.modules["acp"]
