"""Chains of fallbacks: the requests to another model, the messages it continues from, and the reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine.fakes import FakeClock
from models.people import ScriptedPerson
from models.providers.models import WIRES, Live, asked, server
from stubs.model_server import ANSWER, StubServer

from prose_kernel.errors import ProviderError, ProviderOverloaded, Undecided, UsageError
from prose_kernel.models.providers.model_calls import Reply
from prose_kernel.models.providers.model_servers import WaitUntilOpen
from prose_kernel.models.providers.provider_choice import choice_of
from prose_kernel.models.providers.vendors import ModelTarget
from prose_kernel.models.usage_and_prices import CountedJudge, CountedSessions, UsageTotals
from prose_kernel.runs.languages import OPENPROSE, VVM, Language
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.ports import JudgeRequest, Usage
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, SessionOptions

QUESTION = JudgeRequest("it is so", "c1/j0")


def chained(stub: StubServer, wire: str, first: str, then: str, cwd: Path, **more: Any) -> Live:
    """Return a server whose `sonnet` is `first`, with a fallback: the same stub under another name and wire format."""
    other = "chat" if wire == "anthropic" else "anthropic"
    name, found = server(other, stub, aliases={"sonnet": then}, **more.pop("then_more", {}))
    options = {"sonnet": ModelOptions(fallback=(f"{name}:sonnet",)), **more.pop("options", {})}
    more = {"clock": FakeClock(), "aliases": {"sonnet": first}, "options": options, **more}
    return Live(stub, wire, "sonnet", cwd, others={name: found}, **more)


@pytest.mark.parametrize("first", ["err-529", "err-503", "err-500", "err-429", "drop", "cut", "midway", "hang"])
async def test_another_model_answers_where_the_first_cannot_for_now(
    stub: StubServer, tmp_path: Path, first: str
) -> None:
    more = {"timeout": 0.3} if first == "hang" else {}
    async with chained(stub, "anthropic", first, "ok-0", tmp_path, **more) as live:
        result = await live.run()
    assert (result.text, result.provider, result.details["model"]) == (ANSWER, "gateway", "ok-0")
    (why,) = result.details["instead_of"]
    assert why.startswith(f"anthropic {first}: anthropic: ")
    notes = [part.text for part in live.shown if part.kind == "note"]
    assert notes[-1].endswith("; gateway ok-0 is asked instead")
    # with 429 and 503 the stub asks for a pause of 7 seconds; sessions with a fallback don't wait
    assert stub.stats.by_model == {first: 1, "ok-0": 1}


@pytest.mark.parametrize("first", ["err-400", "err-401", "err-403", "err-404", "context", "garbage", "broken", "empty"])
async def test_errors_that_another_model_would_share_use_no_fallback(
    stub: StubServer, tmp_path: Path, first: str
) -> None:
    async with chained(stub, "anthropic", first, "ok-0", tmp_path) as live:
        with pytest.raises(ProviderError):
            await live.run()
    assert stub.stats.by_model == {first: 1}


async def test_a43_a_requested_pause_is_waited_for_at_the_end_of_the_chain(stub: StubServer, tmp_path: Path) -> None:
    async with chained(stub, "chat", "err-429-1", "err-500-1", tmp_path) as live:
        with pytest.raises(ProviderError):
            await live.run()
        assert (await live.run()).provider == "anthropic"  # the first is closed for 7 seconds
        assert (await live.run()).provider == "anthropic"
        assert live.clock.slept == []
        stub.reset()
    async with chained(stub, "chat", "err-429-1", "err-500-2", tmp_path) as live:
        with pytest.raises(ProviderError):
            await live.run()
        assert (await live.run()).provider == "gateway"
        assert live.clock.slept == [7.0]


async def test_a43_a_server_that_failed_three_times_is_skipped_for_half_a_minute(
    stub: StubServer, tmp_path: Path
) -> None:
    async with chained(stub, "chat", "err-500", "ok-0", tmp_path) as live:
        for _ in range(9):
            assert (await live.run()).provider == "anthropic"
        assert stub.stats.by_model == {"err-500": 3, "ok-0": 9}
        live.clock.time += 30
        for _ in range(3):
            await live.run()
        assert stub.stats.by_model == {"err-500": 4, "ok-0": 12}


async def test_a43_a_server_that_fails_every_other_time_is_asked_each_time(stub: StubServer, tmp_path: Path) -> None:
    async with chained(stub, "chat", "err-500-1", "ok-0", tmp_path) as live:
        answers = []
        for _ in range(3):
            answers.append((await live.run()).provider)
            answers.append((await live.run()).provider)
            stub.reset()
    assert answers == ["anthropic", "gateway"] * 3


async def test_a43_an_alias_and_an_agent_may_name_a_model_of_another_server(stub: StubServer, tmp_path: Path) -> None:
    name, other = server("anthropic", stub, aliases={"sonnet": "ok-7"})
    more: Any = {"aliases": {"haiku": f"{name}:sonnet"}, "options": {"haiku": ModelOptions(temperature=0.5)}}
    async with Live(stub, "chat", "ok-1", tmp_path, others={name: other}, **more) as live:
        assert (await live.run(asked(model="haiku"))).details["model"] == "ok-7"
        assert stub.last is not None and stub.last.body["temperature"] == 0.5
        found = await live.run(asked(model=f"{name}:ok-8"))
        assert (found.provider, found.details["model"]) == (name, "ok-8")
        assert (await live.run()).provider == "gateway"


@pytest.mark.parametrize("wire", WIRES)
async def test_the_other_model_continues_where_the_first_has_failed(
    stub: StubServer, wire: str, tmp_path: Path
) -> None:
    """Tool calls are not repeated; the model that continues gets their results."""
    (tmp_path / "notes.txt").write_text("remember the milk")
    calls = [{"name": "read", "arguments": {"path": "notes.txt"}}]
    first = stub.script("fails-later", {"calls": calls}, {"error": 529})
    async with chained(stub, wire, first, "echo-0", tmp_path) as live:
        result = await live.run()
    assert [(use.tool, use.outcome) for use in result.trace] == [("read", "ok")]
    assert stub.stats.by_model == {first: 2, "echo-0": 1}
    assert stub.last is not None and "remember the milk" in str(stub.last.body)


async def test_a_conversation_continues_elsewhere_when_its_server_closes_between_two_rounds(
    stub: StubServer, tmp_path: Path
) -> None:
    async with chained(stub, "anthropic", "ok-0", "ok-1", tmp_path) as live:
        chain = live.servers.chain("anthropic", "sonnet")

        async def refused(*_: object) -> Reply:
            raise ProviderOverloaded("busy", busy=True, retry_after=120)

        async def call(_: object, target: ModelTarget, opens: WaitUntilOpen) -> Reply:
            if target is chain[0]:
                with pytest.raises(ProviderOverloaded):  # another session in the meantime
                    await live.servers.ask(chain[:1], refused)
            await opens()
            return Reply("said", target.model, Usage())

        answer = await live.servers.ask(chain, call)
    assert (answer.by.model, len(answer.failed)) == ("ok-1", 1)


async def test_a_fallback_whose_models_call_no_tools_gets_the_context(stub: StubServer, tmp_path: Path) -> None:
    async with chained(stub, "anthropic", "err-529", "ok-0", tmp_path, then_more={"tools": False}) as live:
        assert (await live.run()).provider == "gateway"
    assert stub.last is not None and "tools" not in stub.last.body


async def test_usage_of_a_failed_model_is_counted_for_that_model(stub: StubServer, tmp_path: Path) -> None:
    usage = UsageTotals()
    async with chained(stub, "anthropic", "midway", "ok-0", tmp_path) as live:
        await CountedSessions(live.sessions, usage).run(asked(), lambda _: None)
    lines = {(line.provider, line.model): (line.sessions, line.requests) for line in usage.lines}
    assert lines == {("anthropic", "midway"): (0, 1), ("gateway", "ok-0"): (1, 1)}


async def test_the_error_of_the_last_model_is_raised(stub: StubServer, tmp_path: Path) -> None:
    async with chained(stub, "anthropic", "err-529", "drop", tmp_path) as live:
        with pytest.raises(ProviderError, match=r"^gateway: the connection broke"):
            await live.run()
    assert stub.stats.by_model == {"err-529": 1, "drop": 1}


async def test_a_judge_has_fallbacks_too(stub: StubServer, tmp_path: Path) -> None:
    usage = UsageTotals()
    async with chained(stub, "anthropic", "err-529", "json-0-yes", tmp_path) as live:
        verdict = await CountedJudge(live.judge, usage).decide(QUESTION)
    assert (verdict.answer, verdict.details["provider"], verdict.details["model"]) == (True, "gateway", "json-0-yes")
    assert verdict.details["instead_of"]
    assert [(line.provider, line.judgements) for line in usage.lines] == [("gateway", 1)]
    stub.reset()
    async with chained(stub, "anthropic", "err-529", "err-500", tmp_path) as live:
        with pytest.raises(Undecided, match="gateway: the server failed inside"):
            await live.judge.decide(QUESTION)
    assert stub.stats.by_model["err-500"] == 3  # the judge retries the whole chain


async def test_sessions_and_judgements_of_a_server_share_its_throttle(stub: StubServer, tmp_path: Path) -> None:
    async with Live(stub, "chat", "err-503", tmp_path, clock=FakeClock(), limit=8) as live:
        for _ in range(2):
            with pytest.raises(ProviderOverloaded) as failed:
                await live.run()
            assert failed.value.retry_after == 7
        assert [part.text for part in live.shown] == ["gateway is busy: it now gets fewer simultaneous calls"]
        with pytest.raises(Undecided):
            await live.judge.decide(QUESTION)
    assert stub.stats.peak == 1


# ---------------------------------------------------------------- settings


def options(*fallback: str, **servers: ModelServer) -> SessionOptions:
    own = ModelServer(options={"sonnet": ModelOptions(fallback=fallback)})
    return SessionOptions(servers={"anthropic": own, **servers})


@pytest.mark.parametrize(
    ("fallback", "message", "hint"),
    [
        (("opsu",), "there is no model `opsu` to fall back to", "did you mean `opus`?"),
        (("olama:opus",), "there is no model `olama:opus` to fall back to", "did you mean `ollama:opus`?"),
        (("ollama:opus",), "the model `opus` means nothing on ollama", 'write in prose.toml: [models.ollama] opus = "MODEL"'),
        (("acp:opencode",), "there is no model `acp:opencode` to fall back to", "a fallback is a model: an alias, SERVER or SERVER:ALIAS"),
        (("sonnet",), "it goes round in a circle: anthropic:sonnet → anthropic:sonnet", "take one of them out"),
        (("mine",), "it goes round in a circle: anthropic:sonnet → mine:default → anthropic:sonnet", "take one of them out"),
    ],
)  # fmt: skip
def test_invalid_chains_are_usage_errors(fallback: tuple[str, ...], message: str, hint: str) -> None:
    mine = ModelServer(
        "openai", "http://x/v1", model="m", options={"default": ModelOptions(fallback=("anthropic:sonnet",))}
    )
    with pytest.raises(UsageError) as refused:
        choice_of("anthropic", options(*fallback, mine=mine))
    assert str(refused.value) == f"[models.anthropic.sonnet] fallback: {message}"
    assert refused.value.hint == hint


# ---------------------------------------------------------------- in a run


@pytest.mark.parametrize(
    ("language", "program"),
    [(OPENPROSE, 'session "Say something."'), (VVM, 'agent a(model="sonnet")\nx = @a `Say something.`(())\n')],
)
async def test_a_run_with_a_fallback_is_recorded_and_replayed(
    stub: StubServer, tmp_path: Path, language: Language, program: str
) -> None:
    """The answering model is in the recording; the key has only the alias, so a replay needs neither server."""
    first = ModelServer(
        "openai",
        stub.openai_url,
        key="",
        model="sonnet",
        aliases={"sonnet": "err-529"},
        options={"sonnet": ModelOptions(fallback=("other",))},
    )
    other = ModelServer("anthropic", stub.url, key="", model="ok-0")
    settings = Settings().changed(provider="first", providers={"first": first, "other": other}, cassette_mode="record")
    lines = []
    for mode in ("record", "replay"):
        workspace = Workspace(
            settings.changed(cassette_mode=mode),
            Start(tmp_path, language=language),
            asker=ScriptedPerson(available=False),
        )
        try:
            await workspace.execute(program)
            lines.append(
                [(one.provider, one.model, one.sessions, one.replayed) for one in workspace.opened.services.usage.lines]
            )
        finally:
            await workspace.close()
    assert lines == [[("other", "ok-0", 1, 0)], [("other", "ok-0", 1, 1)]]
    assert stub.stats.by_model == {"err-529": 1, "ok-0": 1}
