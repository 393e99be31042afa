"""Several conditions about the same values in one request: requests, costs, recording and replay (sessions.md 3.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from models.providers.models import conversation
from stubs.model_server import StubServer

from prose_kernel.cli.main import main
from prose_kernel.errors import RunError
from prose_kernel.runs import languages
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.events import Event, Judged
from prose_kernel.runtime.session_options import ModelServer

VVM, PROSE = languages.LANGUAGES["vvm"], languages.default()

CONSTRAIN = """
draft = "A short text about frogs."
constrain draft(attempts=1):
    require ?`is short`
    require ?`is about frogs`
    require ?`rhymes`
export draft
"""
LONG = "A frog is an amphibian. " * 400
CHAIN = f"""
let report = "{LONG}"
if **the report is about cats**:
  let animal = "cat"
elif **the report is about dogs**:
  let animal = "dog"
elif **the report is about frogs**:
  let animal = "frog"
"""


def batch_reply(*answers: str) -> str:
    """Return a model's reply that answers several questions in one request."""
    pairs = enumerate(answers, 1)
    return json.dumps(
        {key: value for n, a in pairs for key, value in ((f"reason_{n}", f"because {n}"), (f"answer_{n}", a))}
    )


class World:
    """Runs workspaces in a directory with the stub server and collects their judgements."""

    def __init__(self, directory: Path, stub: StubServer) -> None:
        self.directory = directory
        self.stub = stub
        self.judged: list[Judged] = []
        stub.reset()

    def hear(self, event: Event) -> None:
        if isinstance(event, Judged):
            self.judged.append(event)

    async def run(self, text: str, language: Any, model: str, **more: Any) -> Any:
        self.judged.clear()
        settings = Settings().changed(
            judge=f"stub:{model}", providers={"stub": ModelServer("openai", self.stub.openai_url, key="")}, **more
        )
        person = ScriptedPerson(available=False)
        start = Start(self.directory, language=language)
        workspace = Workspace(settings, start, asker=person, listeners=[self.hear])
        try:
            await workspace.execute(text, language=language)
            self.usage = workspace.opened.services.usage.total
            return {name: named.info.value for name, named in workspace.bindings().items()}
        finally:
            await workspace.close()

    @property
    def records(self) -> list[dict[str, Any]]:
        files = sorted((self.directory / "cassettes").glob("*.jsonl"))
        found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [record for record in found if record["t"] == "judge"]


@pytest.fixture
def world(tmp_path: Path, stub: StubServer) -> World:
    return World(tmp_path, stub)


# ---------------------------------------------------------------- VVM: all requirements are judged


async def test_requirements_of_one_value_are_one_request(world: World, stub: StubServer) -> None:
    model = stub.script("all", batch_reply("yes", "no", "uncertain"))
    found = await world.run(CONSTRAIN, VVM, model, cassette_mode="auto")
    assert stub.stats.requests == 1
    assert found["draft"]["error"]["data"]["violations"] == ["is about frogs", "rhymes"]
    assert [(one.answer, one.reason) for one in world.judged] == [
        (True, "because 1"),
        (False, "because 2"),
        (None, "because 3"),
    ]
    assert [one.details["together"] for one in world.judged] == [3, 3, 3]
    asked = stub.last.asked.user if stub.last is not None else ""
    assert asked.count("A short text about frogs.") == 1 and "3. Does the value meet this criterion?\nrhymes" in asked
    assert (world.usage.judgements, world.usage.requests) == (3, 1)


async def test_each_condition_has_a_record_with_the_key_of_a_single_request(world: World, stub: StubServer) -> None:
    await world.run(CONSTRAIN, VVM, stub.script("all", batch_reply("yes", "yes", "no")), cassette_mode="auto")
    together = {record["key"]: record["out"] for record in world.records}
    assert len(together) == 3 and all(record["out"]["reason"] for record in world.records)
    stub.reset()
    await world.run(CONSTRAIN, VVM, "err-500", cassette_mode="replay")
    assert [one.answer for one in world.judged] == [True, True, False] and stub.stats.requests == 0
    for file in (world.directory / "cassettes").iterdir():
        file.unlink()
    await world.run(CONSTRAIN, VVM, "json-0-yes", cassette_mode="auto", judge_batch="off")
    assert stub.stats.requests == 3
    assert [record["key"] for record in world.records] == list(together)


async def test_recorded_answers_are_not_asked_again_with_the_rest(world: World, stub: StubServer) -> None:
    first = CONSTRAIN.replace("    require ?`rhymes`\n", "")
    await world.run(first, VVM, stub.script("two", batch_reply("yes", "yes")), cassette_mode="auto")
    stub.reset()
    more = CONSTRAIN.replace("?`is short`", "?`is in English`").replace("?`rhymes`", "?`is funny`")
    await world.run(more, VVM, stub.script("others", batch_reply("no", "yes")), cassette_mode="auto")
    assert stub.stats.requests == 1 and [one.answer for one in world.judged] == [False, True, True]
    assert [bool(one.details.get("replayed")) for one in world.judged] == [False, True, False]


async def test_conditions_decided_by_a_rule_are_not_asked(world: World, stub: StubServer) -> None:
    ruled = CONSTRAIN.replace("is about frogs", 'it contains "frogs"')
    await world.run(ruled, VVM, stub.script("two", batch_reply("yes", "no")), vvm_rules=True, cassette_mode="off")
    assert [one.by for one in world.judged] == ["model", "rules", "model"] and stub.stats.requests == 1


@pytest.mark.parametrize("reply", ['{"reason": "because", "answer": "no"}', "Perhaps. Who knows?"])
async def test_a_model_that_cannot_batch_is_asked_one_by_one(world: World, stub: StubServer, reply: str) -> None:
    if reply.startswith("{"):
        await world.run(CONSTRAIN, VVM, stub.script("one", reply), cassette_mode="off")
        assert [one.answer for one in world.judged] == [False, False, False]
        assert stub.stats.requests == 4  # once together, then each separately, then only separately
        assert world.usage.requests == 4
        return
    with pytest.raises(RunError, match="judgement failed"):
        await world.run(CONSTRAIN, VVM, stub.script("none", reply), cassette_mode="off")


async def test_batches_can_be_switched_off(world: World, stub: StubServer) -> None:
    await world.run(CONSTRAIN, VVM, "json-0-yes", cassette_mode="off", judge_batch="off")
    assert stub.stats.requests == 3


async def test_cases_of_a_match_are_asked_one_by_one_by_default(world: World, stub: StubServer) -> None:
    cases = "".join(f'    case ?`is about {one}`:\n        r = "{one}"\n' for one in ("cats", "dogs", "frogs"))
    text = f'text = "{LONG}"\nmatch text:\n{cases}export r\n'
    model = stub.script("frogs", batch_reply("no", "no", "yes"))
    assert (await world.run(text, VVM, model, cassette_mode="off", judge_batch="ahead"))["r"] == "frogs"
    assert stub.stats.requests == 1
    stub.reset()
    await world.run(text, VVM, "json-0-yes", cassette_mode="off")
    assert stub.stats.requests == 1  # the first case matches: no further request
    assert [len(last.asked.user.split("criterion?")) for last in stub.seen] == [2]


# ---------------------------------------------------------------- OpenProse: an elif is judged only if it is reached


async def test_an_elif_is_asked_ahead_only_if_enabled(world: World, stub: StubServer) -> None:
    model = stub.script("chain", batch_reply("no", "no", "yes"))
    found = await world.run(CHAIN, PROSE, model, cassette_mode="auto", judge_batch="ahead")
    assert found["animal"] == "frog" and stub.stats.requests == 1
    assert len(world.records) == 3
    stub.reset()
    assert (await world.run(CHAIN, PROSE, "err-500", cassette_mode="replay"))["animal"] == "frog"
    assert stub.stats.requests == 0


async def test_by_default_an_elif_is_asked_in_its_turn(world: World, stub: StubServer) -> None:
    await world.run(CHAIN, PROSE, "json-0-no", cassette_mode="off")
    assert stub.stats.requests == 3


async def test_answers_that_were_not_needed_are_not_recorded(world: World, stub: StubServer) -> None:
    model = stub.script("first", batch_reply("yes", "no", "yes"))
    found = await world.run(CHAIN, PROSE, model, cassette_mode="auto", judge_batch="ahead")
    assert found["animal"] == "cat" and len(world.records) == 1 and len(world.judged) == 1


async def test_small_values_are_not_worth_asking_ahead(world: World, stub: StubServer) -> None:
    await world.run(CHAIN.replace(LONG, "Frogs."), PROSE, "json-0-no", cassette_mode="off", judge_batch="ahead")
    assert stub.stats.requests == 3


async def test_only_conditions_about_the_same_values_share_a_request(world: World, stub: StubServer) -> None:
    text = 'let log = "A log."\n' + CHAIN.replace("**the report is about dogs**", "**the log is about dogs**")
    model = stub.script("chain", batch_reply("no", "yes"))
    with pytest.raises(RunError, match=r"cannot decide \*\*the log is about dogs\*\*"):
        await world.run(text, PROSE, model, cassette_mode="off", judge_batch="ahead")
    asked = [last.asked.user for last in stub.seen]
    assert (
        "1. Is this statement true?\nthe report is about cats\n\n2. Is this statement true?\nthe report is about frogs"
        in asked[0]
    )
    others = [conversation(last.body)[0] for last in stub.seen[1:]]
    assert all(one.endswith("Is this statement true?\nthe log is about dogs") for one in others)


@pytest.mark.parametrize(
    ("between", "requests"), [("**the report is about {other.part}**", 2), ('**the report is bad** or other == "x"', 3)]
)
async def test_nothing_is_asked_ahead_of_a_condition_that_is_more_than_a_marker(
    world: World, stub: StubServer, between: str, requests: int
) -> None:
    text = 'let other = { part: "dogs" }\n' + CHAIN.replace("**the report is about dogs**", between)
    await world.run(text, PROSE, "json-0-no", cassette_mode="off", judge_batch="ahead")
    assert stub.stats.requests == requests
    assert "Decide each" not in stub.seen[0].asked.user  # the text of the second is not known yet


async def test_the_same_question_after_something_happened_is_asked_again(world: World, stub: StubServer) -> None:
    """The answer to an unreached `elif` is not reused for a later `if`."""
    model = stub.script("later", batch_reply("yes", "yes"))
    text = f"""
let report = "{LONG}"
if **the report is about cats**:
  let x = exec "echo changed"
elif **the report is about dogs**:
  let x = "dog"
if **the report is about dogs**:
  let y = 1
elif **the report is about frogs**:
  let y = 2
"""
    await world.run(text, PROSE, model, cassette_mode="off", judge_batch="ahead")
    assert stub.stats.requests == 2


async def test_one_request_counts_once_for_a_budget(world: World, stub: StubServer) -> None:
    await world.run(CONSTRAIN, VVM, stub.script("all", batch_reply("yes", "yes", "yes")), cassette_mode="off")
    once = world.usage.tokens_in + world.usage.tokens_out
    found = await world.run(
        CONSTRAIN,
        VVM,
        stub.script("all", batch_reply("yes", "yes", "yes")),
        cassette_mode="off",
        budget=f"{once + 1} tokens",
    )
    assert found["draft"] == "A short text about frogs."


async def test_a_spent_budget_keeps_answers_already_paid_for(world: World, stub: StubServer) -> None:
    await world.run(CONSTRAIN, VVM, stub.script("all", batch_reply("yes", "yes", "no")), cassette_mode="off")
    once = world.usage.tokens_in + world.usage.tokens_out
    model = stub.script("all", batch_reply("yes", "yes", "no"))
    found = await world.run(CONSTRAIN, VVM, model, cassette_mode="off", budget=f"{once} tokens")
    assert found["draft"]["error"]["data"]["violations"] == ["rhymes"]
    with pytest.raises(RunError) as refused:  # a new question is refused
        await world.run(
            CONSTRAIN + "blue = ?`is blue`(draft)\nexport blue\n",
            VVM,
            model,
            cassette_mode="off",
            budget=f"{once} tokens",
        )
    assert refused.value.code == "E221"


def test_a_run_that_is_resumed_has_the_answers(
    world: World, stub: StubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal holds each condition separately, whichever request answered it."""
    model = stub.script("chain", batch_reply("no", "no", "yes"))
    (world.directory / "prose.toml").write_text(
        f'[judge]\nprovider = "stub:{model}"\nbatch = "ahead"\n[cassette]\nmode = "off"\n'
        f'[providers.stub]\nkind = "openai"\nbase_url = "{stub.openai_url}"\nkey = ""\n'
    )
    (world.directory / "p.prose").write_text(CHAIN + 'exec "test -f go"\noutput found = animal\n')
    monkeypatch.chdir(world.directory)
    assert main(["run", "p.prose"]) == 1
    assert stub.stats.requests == 1
    (world.directory / "go").touch()
    (run,) = [path.name for path in (world.directory / ".prose" / "runs").iterdir()]
    capsys.readouterr()
    assert main(["run", "--resume", run]) == 0
    assert "frog" in capsys.readouterr().out
    assert stub.stats.requests == 1


TYPED = """
let review = session "Review it"
  output:
    approved: boolean
    score: number
    verdict: "approve" or "reject"
if **review.approved and review is approved and review.score < 100**:
  let one = "yes"
if **review.verdict is "reject" or not review.approved**:
  let two = "yes"
else:
  let two = "no"
"""


async def test_a_typed_answer_needs_no_judge(world: World, stub: StubServer) -> None:
    writer = stub.script("writer", json.dumps({"approved": True, "score": 7, "verdict": "approve"}))
    found = await world.run(TYPED, PROSE, "err-500", provider=f"stub:{writer}", cassette_mode="off", judge_rules="only")
    assert (found["one"], found["two"]) == ("yes", "no")
    assert [one.by for one in world.judged] == ["rules", "rules"] and stub.stats.requests == 1
