"""Services made from options: the order of providers, changes while a run lives, and closing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from stubs.model_server import ANSWER, StubServer

from prose_kernel.cassettes.recorded_requests import Found, Miss
from prose_kernel.errors import CassetteMiss, NoProvider, ProviderError, Undecided, UsageError
from prose_kernel.language.structs import replace
from prose_kernel.models.session_prompt import RULE
from prose_kernel.runs.provider_chain import Facilities, SessionServices, connect
from prose_kernel.runtime.ports import ContextItem, JudgeRequest, SessionRequest, SessionResult
from prose_kernel.runtime.services import HelperEnd
from prose_kernel.runtime.session_options import (
    AgentCommand,
    CassetteOptions,
    JudgeOptions,
    ModelServer,
    SessionOptions,
    Surroundings,
)

TASTE = JudgeRequest("the draft sings", "c1/j0")


@pytest.fixture
def options(stub: StubServer) -> SessionOptions:
    stub.reset()
    return SessionOptions(servers={"stub": ModelServer("openai", stub.openai_url, key="", model="ok-1")})


def somewhere(directory: Path, **more: Any) -> Surroundings:
    return Surroundings(str(directory), **more)


def request(task: str = "Say something", at: str = "c1/1/s0", **more: Any) -> SessionRequest:
    return SessionRequest("session", task, at, **more)


async def run(services: SessionServices, asked: SessionRequest | None = None) -> SessionResult:
    return await services.sessions.run(asked or request(), lambda progress: None)


def records(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((directory / "cassettes").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


# ---------------------------------------------------------------- sessions


async def test_a_model_answers_is_counted_and_is_replayed_for_any_choice(
    tmp_path: Path, options: SessionOptions, stub: StubServer
) -> None:
    live = connect(ScriptedPerson(), replace(options, provider="stub"), somewhere(tmp_path))
    result = await run(live)
    await live.close()
    assert (result.text, result.origin, result.replayed) == (ANSWER, "model", False)
    assert (live.usage.total.sessions, live.usage.total.requests) == (1, 1)
    for provider in (None, "human", "replay", "stub:ok-2", "anthropic"):
        person = ScriptedPerson(available=False)
        services = connect(person, replace(options, provider=provider), somewhere(tmp_path))
        again = await run(services)
        await services.close()
        assert (again.text, again.origin, again.replayed) == (ANSWER, "model", True)
        assert (services.usage.total.replayed, services.usage.total.requests) == (1, 0)
        assert person.transcript == []
    assert stub.stats.requests == 1


async def test_scripted_and_dry_run_do_not_touch_recordings(tmp_path: Path, options: SessionOptions) -> None:
    script = tmp_path / "s.yaml"
    script.write_text('sessions: {"*": scripted}\n')
    recorded = connect(ScriptedPerson("by hand", "."), options, somewhere(tmp_path))
    await run(recorded)
    await recorded.close()
    before = records(tmp_path)
    for chosen in (replace(options, provider="scripted", script=str(script)), replace(options, provider="dry-run")):
        services = connect(ScriptedPerson(), chosen, somewhere(tmp_path))
        result = await run(services)
        await services.close()
        assert result.origin == chosen.provider
        assert services.races is None
    assert records(tmp_path) == before


async def test_replay_calls_no_provider(tmp_path: Path, options: SessionOptions) -> None:
    person = ScriptedPerson("y")
    services = connect(person, replace(options, provider="replay"), somewhere(tmp_path))
    with pytest.raises(CassetteMiss, match="nothing is recorded for session c1/1/s0"):
        await run(services)
    with pytest.raises(Undecided):
        await services.judge.decide(TASTE)
    assert person.transcript == []
    with pytest.raises(UsageError, match="the cassette mode is off"):
        connect(person, replace(options, provider="replay", cassette=CassetteOptions(mode="off")), somewhere(tmp_path))


async def test_interactivity_is_checked_for_each_session(tmp_path: Path, options: SessionOptions) -> None:
    person = ScriptedPerson("by hand", ".", available=False)
    services = connect(person, options, somewhere(tmp_path))
    with pytest.raises(NoProvider, match=r"no person can answer this session$") as nobody:
        await run(services)
    assert "nothing is recorded for session c1/1/s0" in (nobody.value.hint or "")
    with pytest.raises(Undecided, match=r"^cannot decide \*\*the draft sings\*\*: no rule reads it$") as undecided:
        await services.judge.decide(TASTE)
    assert "nothing is recorded for the condition" in (undecided.value.hint or "")
    person.available = True
    assert (await run(services)).text == "by hand"
    person.available = False
    assert (await run(services)).replayed
    await services.close()
    assert person.transcript[0].startswith("No model is configured, so you answer")


async def test_a_chosen_mode_without_a_recording_is_a_miss(tmp_path: Path, options: SessionOptions) -> None:
    chosen = replace(options, cassette=CassetteOptions(mode="replay"))
    services = connect(ScriptedPerson("by hand", "."), chosen, somewhere(tmp_path))
    with pytest.raises(CassetteMiss):
        await run(services)


async def test_a_key_in_the_environment_costs_nothing_before_a_notice(
    tmp_path: Path, options: SessionOptions, stub: StubServer
) -> None:
    chosen = replace(options, servers={"anthropic": ModelServer("anthropic", stub.url, model="ok-1")})
    where = somewhere(tmp_path, environment={"ANTHROPIC_API_KEY": "sk-not-a-real-one"})
    person = ScriptedPerson()
    services = connect(person, chosen, where)
    assert (await run(services)).text == ANSWER
    await run(services, request("And more", "c1/2/s0"))
    await services.close()
    (notice,) = person.transcript
    assert "ANTHROPIC_API_KEY" in notice
    assert "Model: ok-1" in notice
    assert "sk-not" not in notice
    assert notice.endswith("To answer yourself: `%provider human`.")
    for unasked in (replace(chosen, autodetect=False), chosen):
        elsewhere = where if unasked is not chosen else replace(where, attended=False)
        assert connect(person, unasked, elsewhere).detected is None


async def test_a_key_judges_too_after_the_notice(tmp_path: Path, options: SessionOptions, stub: StubServer) -> None:
    chosen = replace(options, servers={"anthropic": ModelServer("anthropic", stub.url, model="json-1-no")})
    where = somewhere(tmp_path, environment={"ANTHROPIC_API_KEY": "sk-not-a-real-one"})
    person = ScriptedPerson()
    services = connect(person, chosen, where)
    verdict = await services.judge.decide(TASTE)
    await services.close()
    assert (verdict.answer, verdict.by) == (False, "model")
    assert len(person.transcript) == 1


def test_a_vendor_without_a_model_is_not_detected(tmp_path: Path, options: SessionOptions) -> None:
    where = somewhere(tmp_path, environment={"OPENROUTER_API_KEY": "sk-not-a-real-one"})
    assert connect(ScriptedPerson(), options, where).detected is None
    named = replace(options, servers={"openrouter": ModelServer(model="some")})
    found = connect(ScriptedPerson(), named, where).detected
    assert found is not None
    assert found.variable == "OPENROUTER_API_KEY"


@pytest.mark.parametrize(
    ("variable", "vendor"), [("OPENAI_API_KEY", "openai"), ("DEEPSEEK_API_KEY", "deepseek"), ("ZAI_API_KEY", "zai")]
)
def test_a_single_key_of_a_vendor_with_default_models_is_enough(
    tmp_path: Path, options: SessionOptions, variable: str, vendor: str
) -> None:
    found = connect(ScriptedPerson(), options, somewhere(tmp_path, environment={variable: "k"})).detected
    assert found is not None and (found.variable, found.choice.name) == (variable, vendor)


# ---------------------------------------------------------------- the judge


async def test_the_order_of_judges(tmp_path: Path, options: SessionOptions, stub: StubServer) -> None:
    script = tmp_path / "s.yaml"
    script.write_text('judge: {"it rains": yes}\n')
    person = ScriptedPerson("n")
    judging = replace(options, provider="stub", script=str(script), judge=JudgeOptions(model="json-1-yes"))
    services = connect(person, judging, somewhere(tmp_path))
    by = [
        (await services.judge.decide(JudgeRequest("docs is empty", "c1/j0", bindings={"docs": ""}))).by,
        (await services.judge.decide(JudgeRequest("it rains", "c1/j1"))).by,
        (await services.judge.decide(JudgeRequest("the draft sings", "c1/j2"))).by,
    ]
    assert by == ["rules", "scripted", "model"]
    await services.close()
    requests = stub.stats.requests
    again = connect(person, replace(judging, judge=JudgeOptions(rules="off")), somewhere(tmp_path))
    assert (await again.judge.decide(JudgeRequest("the draft sings", "c1/j2"))).by == "model"
    assert stub.stats.requests == requests
    assert person.transcript == []
    assert again.usage.total.replayed == 1


async def test_a_judge_named_with_its_model_has_that_model(tmp_path: Path, options: SessionOptions) -> None:
    named = JudgeOptions(provider="stub:json-1-uncertain", model="json-1-yes")
    services = connect(ScriptedPerson(), replace(options, judge=named), somewhere(tmp_path))
    assert (await services.judge.decide(TASTE)).answer is None
    await services.close()


async def test_an_undecided_judge_leaves_the_decision_to_the_person(tmp_path: Path, options: SessionOptions) -> None:
    judged = replace(options, judge=JudgeOptions(provider="stub:nonsense"))
    person = ScriptedPerson("y")
    services = connect(person, judged, somewhere(tmp_path))
    assert (await services.judge.decide(TASTE)).by == "human"
    assert person.transcript[0].startswith("The judge has no answer: ")
    await services.close()
    alone = connect(
        ScriptedPerson(available=False),
        replace(judged, cassette=CassetteOptions(mode="off")),
        somewhere(tmp_path / "other"),
    )
    with pytest.raises(Undecided, match=r"cannot decide \*\*the draft sings\*\*: ") as undecided:
        await alone.judge.decide(TASTE)
    await alone.close()
    assert "write it as a rule" in (undecided.value.hint or "")


async def test_uncertain_is_an_answer_of_models_and_people(tmp_path: Path, options: SessionOptions) -> None:
    judged = replace(options, judge=JudgeOptions(provider="stub:json-1-uncertain"))
    services = connect(ScriptedPerson("y"), judged, somewhere(tmp_path / "a"))
    verdict = await services.judge.decide(TASTE)
    assert (verdict.answer, verdict.by) == (None, "model")
    person = connect(ScriptedPerson("u"), options, somewhere(tmp_path / "b"))
    verdict = await person.judge.decide(TASTE)
    assert (verdict.answer, verdict.by) == (None, "human")
    await services.close()
    await person.close()


# ---------------------------------------------------------------- while a run lives


async def test_a_change_of_provider_keeps_recordings_and_usage(tmp_path: Path, options: SessionOptions) -> None:
    person = ScriptedPerson("by hand", ".")
    first = connect(person, replace(options, provider="stub"), somewhere(tmp_path))
    await run(first)
    second = connect(first.asker, replace(options, provider="human"), somewhere(tmp_path), before=first)
    await first.live.close()
    assert second.cassettes is first.cassettes
    assert second.usage is first.usage
    assert second.context.approvals is first.context.approvals
    assert (await run(second, request("Ask me", "c1/2/s0"))).text == "by hand"
    assert second.usage.total.sessions == 2
    named = replace(options, provider="human", cassette=CassetteOptions(name="named", mode="auto"))
    third = connect(first.asker, named, somewhere(tmp_path), before=second)
    await second.live.close()
    assert third.cassettes is not second.cassettes
    person.answers += ["again", "."]
    await run(third, request("Once more", "c1/3/s0"))
    await third.close()
    assert sorted(path.name for path in (tmp_path / "cassettes").glob("*.jsonl")) == ["named.jsonl", "session.jsonl"]


async def test_an_invalid_choice_changes_nothing(tmp_path: Path, options: SessionOptions) -> None:
    services = connect(ScriptedPerson("by hand", "."), replace(options, provider="human"), somewhere(tmp_path))
    for wrong in (
        replace(options, provider="nobody-knows"),
        replace(options, judge=JudgeOptions(provider="human-like")),
        replace(options, script=str(tmp_path / "gone.yaml")),
        replace(options, cassette=CassetteOptions(name="../../outside")),
    ):
        with pytest.raises(UsageError):
            connect(services.asker, wrong, somewhere(tmp_path), before=services)
    assert (await run(services)).text == "by hand"
    await services.close()
    assert [record["t"] for record in records(tmp_path)] == ["head", "session"]


# ---------------------------------------------------------------- agents


class Helper:
    """A silent agent's process that must be ended."""

    complaints = ""

    def __init__(self) -> None:
        self.stopped = False

    def write(self, text: str) -> None:
        return

    async def ended(self) -> HelperEnd:
        return HelperEnd(1)

    async def stop(self, grace: float) -> HelperEnd:
        self.stopped = True
        return HelperEnd(None, "TERM", True)


class Guard:
    def __init__(self) -> None:
        self.started: list[tuple[Sequence[str], Helper]] = []

    async def start(self, command: Sequence[str], env: Any, cwd: str, on_output: Any) -> Helper:
        self.started.append((command, Helper()))
        return self.started[-1][1]


async def test_an_agent_starts_with_its_first_session_and_ends_with_the_services(
    tmp_path: Path, options: SessionOptions
) -> None:
    guard = Guard()
    agents = replace(
        options, provider="acp:mute", agents={"mute": AgentCommand(("mute", "--acp"), enforcement="advisory")}
    )
    services = connect(ScriptedPerson(), agents, somewhere(tmp_path), Facilities(guard=guard))
    assert guard.started == []
    with pytest.raises(ProviderError):
        await run(services)
    await services.close()
    ((command, helper),) = guard.started
    assert tuple(command) == ("mute", "--acp")
    assert helper.stopped


async def test_an_agent_is_not_started_without_an_engine_to_end_it(tmp_path: Path, options: SessionOptions) -> None:
    services = connect(
        ScriptedPerson(), replace(options, provider="acp:a", agents={"a": AgentCommand(("a",))}), somewhere(tmp_path)
    )
    with pytest.raises(NoProvider, match="no process engine would end it"):
        await run(services)


# ---------------------------------------------------------------- descriptions of sessions


def asked_for() -> SessionRequest:
    return request(
        "Review it",
        model="sonnet",
        system="You review.",
        context=(ContextItem("plan", ".prose/runs/20260101-000000-abcdef/bindings/plan.md", content="p" * 1200),),
        permissions={"write": ("out/**",), "bash": "deny"},
        skills=("style",),
    )


async def test_a_session_is_described_without_running_it(
    tmp_path: Path, options: SessionOptions, stub: StubServer
) -> None:
    servers = {"stub": replace(options.servers["stub"], aliases={"sonnet": "ok-7"})}
    where = somewhere(tmp_path, run_directory=f"{tmp_path}/.prose/runs/20260101-000000-abcdef")
    services = connect(ScriptedPerson(), replace(options, provider="stub", servers=servers), where)
    description = services.describe(asked_for())
    assert (description.who, description.model, description.mode) == ("stub", "sonnet → ok-7", "auto")
    assert description.system == f"You review.\n\n{RULE}"
    assert {"read", "write"} <= set(description.tools)
    assert "write: out/**" in description.permissions
    assert "bash: deny" in description.permissions
    assert isinstance(description.found, Miss)
    assert [(item.name, item.characters) for item in description.context] == [("plan", 1200)]
    assert description.sizes["task"] == len("Review it")
    for piece in ("«run»", "Review it", "You review.", "plan 1,200", "miss · ", "mode auto", "skills"):
        assert piece in description.text
    assert "20260101-000000-abcdef" not in description.text
    assert stub.stats.requests == 0
    assert not (tmp_path / "cassettes").exists()
    await run(services, asked_for())
    assert isinstance(services.describe(asked_for()).found, Found | Miss)
    await services.close()
    replaying = connect(ScriptedPerson(available=False), options, where)
    found = replaying.describe(asked_for())
    assert isinstance(found.found, Found)
    assert found.who == "no provider (none is chosen)"
    assert found.recording.startswith("hit: cassettes/session.jsonl line 2, origin model")


async def test_a_description_names_the_reason_why_a_session_cannot_run(tmp_path: Path, options: SessionOptions) -> None:
    services = connect(ScriptedPerson(), replace(options, provider="stub"), somewhere(tmp_path))
    description = services.describe(asked_for())
    assert str(description.problem) == "the model `sonnet` means nothing on stub"
    denied = services.describe(request(permissions={"read": ("../x",)}))
    assert denied.problem is not None
    assert denied.tools == ()


async def test_a_dry_run_describes_and_marks(tmp_path: Path, options: SessionOptions) -> None:
    seen: list[str] = []
    services = connect(ScriptedPerson(available=False), replace(options, provider="dry-run"), somewhere(tmp_path))
    result = await services.sessions.run(replace(asked_for(), at="c2/s1"), lambda progress: seen.append(progress.text))
    assert (result.text, result.origin) == ("⟦dry-run c2/s1⟧", "dry-run")
    (note,) = seen
    for piece in (
        "session c2/s1 · model sonnet",
        "placeholders (this is a dry run)",
        "sonnet (stub: none, anthropic: claude-",
        "mode replay",
        "System prompt:\nYou review.",
    ):
        assert piece in note
    assert (await services.judge.decide(TASTE)).by == "dry-run"
    assert records(tmp_path) == []
