"""Replay of recordings: the same values under every schedule, retries, races, cells (sessions.md 4.2)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cassettes.recording import NEVER, JudgeDouble, NobodyCalls, Provider, Recording
from machine.fakes import FakeClock, lines
from models.people import ScriptedPerson
from msgspec import structs

from prose_kernel.cassettes import differences
from prose_kernel.cassettes.recorded_requests import Found, Miss
from prose_kernel.cassettes.recordings import Cassettes
from prose_kernel.errors import (
    ContextTooLong,
    ProviderAuth,
    ProviderConnection,
    ProviderError,
    ProviderRateLimit,
    UsageError,
)
from prose_kernel.runtime.events import Retried, SessionFinished
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult, Usage, Verdict
from prose_kernel.runtime.session_options import CassetteOptions, Surroundings


@pytest.fixture
def there(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def at_random(seed: int) -> Callable[[SessionRequest], float]:
    chance = random.Random(seed)
    return lambda _: chance.random() * 100


def parallel_sessions(count: int) -> str:
    """Return a program with `count` parallel sessions, half of them with the same task."""
    return lines(
        f"let found = parallel for n in [{', '.join(str(n) for n in range(count))}]:",
        f"  if n < {count // 2}:",
        '    session "count the frogs"',
        "  else:",
        '    session "count to {n}"',
    )


@pytest.mark.parametrize(("count", "schedules"), [(200, 2), (20, 20)])
async def test_parallel_sessions_give_the_same_under_any_schedule(there: Recording, count: int, schedules: int) -> None:
    text, clock = parallel_sessions(count), FakeClock()
    provider = Provider(clock, at_random(0))
    live = await there.run(text, "record", provider=provider, clock=clock)
    assert len(set(live["found"])) == count
    assert len(provider.asked) == len(there.records(kind="session")) == count
    for schedule in range(1, schedules + 1):
        assert await there.run(text, "replay", provider=NobodyCalls(), late=at_random(schedule)) == live


async def test_a_replay_calls_no_provider_and_is_marked_as_replayed(there: Recording) -> None:
    text = 'let a = session "Write"\n'
    live = await there.run(text, provider=Provider(FakeClock()))
    assert await there.run(text) == live
    result = next(e.result for e in there.events if isinstance(e, SessionFinished))
    assert result is not None
    assert (result.replayed, result.origin, result.provider, result.usage) == (True, "model", "vendor", None)
    assert result.details == {
        "recorded": "2026-01-01", "provider": "vendor", "model": "big-1", "cassette": "cassettes/session.jsonl",
    }  # fmt: skip


async def test_a_miss_in_replay_never_calls(there: Recording) -> None:
    await there.run('let a = session "Write about frogs"\n', provider=Provider(FakeClock()))
    message = await there.run('let a = session "Write about toads"\n', "replay")
    assert message == (
        "E201 nothing is recorded for session c1/1/s0: the record at the same path is cassettes/session.jsonl, line 2: "
        '`prompt` differs at character 13: "Write about toads" instead of "Write about frogs"'
    )
    assert there.error is not None
    assert there.error.no_answer
    assert there.error.hint == (
        "record it: `prose run --cassette-mode=auto main.prose`, with a provider or a person to answer"
    )


def test_the_command_that_records_an_answer_can_be_typed() -> None:
    assert differences.command("a b.prose").startswith("record it: `prose run --cassette-mode=auto 'a b.prose'`, ")


async def test_auto_calls_only_for_missing_answers(there: Recording) -> None:
    first = await there.run('let a = session "One"\n', provider=Provider(FakeClock()))
    second = Provider(FakeClock())
    both = await there.run('let a = session "One"\nlet b = session "Two"\n', provider=second)
    assert (both["a"], len(second.asked)) == (first["a"], 1)
    assert len(there.records(kind="session")) == 2


async def test_record_replaces_key_and_path(there: Recording) -> None:
    text = 'let a = session "One"\nlet b = session "Two"\n'
    await there.run(text, provider=Provider(FakeClock()))
    again = Provider(FakeClock(), says={"One": "fresh"})
    assert (await there.run(text, "record", provider=again))["a"] == "fresh"
    assert [r["out"]["text"] for r in there.records(kind="session")] == ["fresh", "answer 2 to Two"]
    assert [r["t"] for r in there.records()] == ["head", "session", "session"]
    assert (await there.run(text, "replay"))["a"] == "fresh"


async def test_off_neither_reads_nor_writes(there: Recording) -> None:
    text = 'let a = session "One"\n'
    await there.run(text, provider=Provider(FakeClock()))
    before = there.path().read_bytes()
    provider = Provider(FakeClock(), says={"One": "other"})
    assert (await there.run(text, "off", provider=provider))["a"] == "other"
    assert there.path().read_bytes() == before


@pytest.mark.parametrize(("available", "mode"), [(True, "auto"), (False, "replay")])
async def test_the_mode_follows_the_person(there: Recording, available: bool, mode: str) -> None:
    there.person = ScriptedPerson(available=available)
    assert there.open().mode(there.person) == mode
    assert there.open("record").mode(there.person) == "record"
    unattended = Surroundings(str(there.cwd), attended=False)
    assert Cassettes(CassetteOptions(), unattended, FakeClock()).mode(there.person) == "replay"


# ---------------------------------------------------------------- which record answers


async def test_the_path_comes_before_the_order(there: Recording) -> None:
    text = lines("parallel:", *(f'  {name} = session "same"' for name in "abc"))
    clock = FakeClock()
    delays = {"c1/1/b0/s0": 3.0, "c1/1/b1/s0": 2.0, "c1/1/b2/s0": 1.0}
    live = await there.run(text, provider=Provider(clock, lambda r: delays[r.at]), clock=clock)
    assert len(set(live.values())) == 3
    assert [r["at"] for r in there.records(kind="session")] == ["c1/1/b2/s0", "c1/1/b1/s0", "c1/1/b0/s0"]
    assert await there.run(text, "replay") == live


async def test_renumbered_cells_find_their_records(there: Recording) -> None:
    cells = ['let a = session "One"\n', 'parallel:\n  b = session "same"\n  c = session "same"\n']
    live = await there.run("", provider=Provider(FakeClock()), cells=cells)
    again = await there.run("", "replay", cells=['let n = "x"\n', cells[1], cells[0]])
    assert {name: again[name] for name in live} == live


async def test_repeats(there: Recording) -> None:
    two = 'let a = session "same"\nlet b = session "same"\n'
    three = two + 'let c = session "same"\n'
    live = await there.run(two, provider=Provider(FakeClock()))
    message = await there.run(three, "replay")
    assert message.startswith(
        "E201 nothing is recorded for session c1/3/s0: the same was asked before, and its 2 records"
    )
    again = await there.run(three, "replay", repeats="reuse")
    assert again == {**live, "c": live["b"]}


async def test_the_programs_cassette_comes_first_and_all_are_read(there: Recording) -> None:
    text = 'let a = session "same"\n'
    for name in ("alpha", "beta"):
        await there.run(text, "record", provider=Provider(FakeClock(), says={"same": f"from {name}"}), name=name)
    assert (await there.run(text, "replay", name="beta"))["a"] == "from beta"
    assert (await there.run(text, "replay"))["a"] == "from alpha"
    assert not there.path().exists()


async def test_a_loop_and_blocks_replay_pass_by_pass(there: Recording) -> None:
    text = lines(
        "block ask(n):",
        '  let said = session "about {n}"',
        "  return said",
        "let all = []",
        "repeat 3:",
        '  let s = session "same"',
        "  all = all + s",
        "let x = do ask(1)",
        "let y = [1, 2] | map:",
        '  session "about {item}"',
    )
    live = await there.run(text, provider=Provider(FakeClock()))
    assert len(set(live["all"])) == 3
    assert await there.run(text, "replay") == live


# ---------------------------------------------------------------- attempts


RETRIED = lines('let a = session "Try"', "  retry: 3", '  backoff: "exponential"')


async def test_retries_are_replayed_without_waiting(there: Recording) -> None:
    clock = FakeClock()
    failures = [ProviderRateLimit("slow down", retry_after=2), ProviderConnection("cut"), "at last"]
    live = await there.run(RETRIED, provider=Provider(clock, says={"Try": failures}), clock=clock)
    assert [round(asked / nominal, 2) >= 1 for asked, nominal in zip(clock.slept, [2.0, 2.0], strict=True)] == [
        True,
        True,
    ]
    retries = [(e.attempt, e.delay) for e in there.events if isinstance(e, Retried)]
    assert [(r["t"], r["try"]) for r in there.records()[1:]] == [("error", 1), ("error", 2), ("session", 3)]

    assert await there.run(RETRIED, "replay") == live == {"a": "at last"}
    assert there.clock.slept == []
    assert [(e.attempt, e.delay) for e in there.events if isinstance(e, Retried)] == retries
    errors = [e.error.message for e in there.events if isinstance(e, SessionFinished) and e.error]
    assert errors == ["slow down", "cut"]


async def test_a_failure_that_stays_is_replayed_and_asked_again_in_auto(there: Recording) -> None:
    text = lines("try:", '  let a = session "Try"', "catch as err:", "  let m = err.message")
    gone = Provider(FakeClock(), says={"Try": ProviderConnection("no network")})
    assert await there.run(text, provider=gone) == {"m": "no network"}
    assert await there.run(text, "replay") == {"m": "no network"}
    back = Provider(FakeClock(), says={"Try": "here"})
    assert await there.run(text, provider=back) == {"a": "here"}
    assert await there.run(text, "replay") == {"a": "here"}
    assert [r["t"] for r in there.records()] == ["head", "session"]


async def test_a27_a_person_is_not_asked_where_a_record_is_a_failure(there: Recording) -> None:
    text = lines("try:", '  let a = session "Try"', "catch as err:", "  let m = err.message")
    gone = Provider(FakeClock(), says={"Try": ProviderConnection("no network")})
    assert await there.run(text, provider=gone) == {"m": "no network"}
    kept = there.records()
    person = Provider(FakeClock(), says={"Try": "typed", "New": "typed"})
    assert await there.run(text, provider=person, asks_model=False) == {"m": "no network"}
    assert (person.asked, there.records()) == ([], kept)
    assert await there.run(text + 'let b = session "New"\n', provider=person, asks_model=False) == {
        "b": "typed",
        "m": "no network",
    }


@pytest.mark.parametrize(
    "failure",
    [
        ContextTooLong("too long", hint="cut it"),
        ProviderError("the model `opus` means nothing", retryable=False, hint="cut it"),
    ],
    ids=["too long", "settings"],
)
async def test_a_failure_for_good_is_replayed_and_asked_again_in_auto(there: Recording, failure: ProviderError) -> None:
    wrong = Provider(FakeClock(), says={"Try": failure})
    message = await there.run(RETRIED, provider=wrong)
    assert message == await there.run(RETRIED, "replay") == f"E201 {failure}"
    assert there.error is not None
    assert there.error.hint == "cut it"
    assert len(wrong.asked) == 1
    larger = Provider(FakeClock(), says={"Try": "here"})
    assert await there.run(RETRIED, provider=larger) == await there.run(RETRIED, "replay") == {"a": "here"}


async def test_invalid_settings_are_not_recorded(there: Recording) -> None:
    await there.run(RETRIED, provider=Provider(FakeClock(), says={"Try": ProviderAuth("wrong key")}))
    assert not there.path().exists()


async def test_a_time_limit_is_replayed(there: Recording) -> None:
    text = lines('let a = session "Try"', "  retry: 1", '  timeout: "5s"')
    clock = FakeClock()
    delays = iter([10.0, 1.0])
    live = await there.run(text, provider=Provider(clock, lambda _: next(delays)), clock=clock)
    errors = [e.error for e in there.events if isinstance(e, SessionFinished)]
    assert await there.run(text, "replay") == live
    again = [e.error for e in there.events if isinstance(e, SessionFinished)]
    assert [(type(e), str(e)) for e in again] == [(type(e), str(e)) for e in errors]
    assert str(again[0]) == "session timed out after 5s"
    assert there.clock.time == 0


async def test_realtime_waits_as_long_as_it_took(there: Recording) -> None:
    clock = FakeClock()
    failures = [ProviderConnection("cut"), "done"]
    provider = Provider(clock, lambda _: 3.0, {"Try": failures})
    await there.run(RETRIED, provider=provider, clock=clock)
    await there.run(RETRIED, "replay", realtime=True)
    assert [math.floor(each) for each in there.clock.slept] == [3, 1, 3]
    await there.run(RETRIED, "replay")
    assert there.clock.time == 0


async def test_interrupted_sessions_are_not_recorded(there: Recording) -> None:
    text = lines('let v = parallel ("first"):', '  session "slow"', '  exec "quick"')
    clock = FakeClock()
    provider = Provider(clock, lambda _: NEVER)
    await there.run(text, provider=provider, clock=clock)
    assert provider.cancelled == ["c1/1/b0/s0"]
    assert there.records(kind="session") == []


# ---------------------------------------------------------------- races


RACE = lines('let v = parallel ("first"):', *(f'  {n} = session "{n}"' for n in "abc"), 'let w = session "after {v}"')


@pytest.mark.parametrize("winner", [0, 1, 2])
async def test_a_race_has_the_recorded_winner(there: Recording, winner: int) -> None:
    clock = FakeClock()
    provider = Provider(clock, lambda r: 1.0 if r.at == f"c1/1/b{winner}/s0" or "/2/" in r.at else NEVER)
    live = await there.run(RACE, provider=provider, clock=clock)
    finished = shown(there)
    assert live["v"] == live["abc"[winner]] is not None
    assert there.records(kind="race")[0]["out"] == {"ended": [winner]}
    assert await there.run(RACE, "replay") == live
    assert shown(there) == finished


def shown(there: Recording) -> list[str]:
    """Return the visible events of a run, in order."""
    return [f"{type(e).__name__} {getattr(e, 'status', '')} {getattr(e, 'index', '')}" for e in there.events]


async def test_failures_before_the_decision_are_part_of_the_race(there: Recording) -> None:
    text = lines(
        'let v = parallel ("any", count: 2, on-fail: "continue"):', *(f'  {n} = session "{n}"' for n in "abcd")
    )
    clock = FakeClock()
    delays = {"c1/1/b0/s0": 40.0, "c1/1/b1/s0": 10.0, "c1/1/b2/s0": 30.0, "c1/1/b3/s0": 20.0}
    bad = ProviderError("bad", retryable=False)
    live = await there.run(text, provider=Provider(clock, lambda r: delays[r.at], {"d": bad}), clock=clock)
    assert there.records(kind="race")[0]["out"] == {"ended": [1, 3, 2]}
    assert (live["a"], live["d"]["message"]) == (None, "bad")
    assert await there.run(text, "replay") == live


async def test_a_race_in_a_race_and_in_a_loop(there: Recording) -> None:
    text = lines(
        "let all = []",
        "repeat 2:",
        '  let v = parallel ("first"):',
        "    do:",
        '      session "slow"',
        '    let w = parallel ("first"):',
        '      session "x"',
        '      session "y"',
        "  all = all + v",
    )
    for seed in range(4):
        clock = FakeClock()
        live = await there.run(text, "record", provider=Provider(clock, at_random(seed)), clock=clock)
        assert await there.run(text, "replay") == live


async def test_a_race_over_more_iterations_than_run_concurrently(there: Recording) -> None:
    text = lines(f'let v = parallel for n in [{", ".join(map(str, range(300)))}] ("first"):', '  session "try {n}"')
    clock = FakeClock()
    live = await there.run(text, provider=Provider(clock, lambda r: 1.0 if "/i255/" in r.at else NEVER), clock=clock)
    assert there.records(kind="race")[0]["out"] == {"ended": [255]}
    assert await there.run(text, "replay") == live


async def test_a_race_without_sessions_is_run(there: Recording) -> None:
    await there.run(lines('let v = parallel ("first"):', '  exec "a"', '  exec "b"'), provider=Provider(FakeClock()))
    assert not there.path().exists()


async def test_another_race_at_the_same_path_is_not_decided_beforehand(there: Recording) -> None:
    clock = FakeClock()
    await there.run(
        RACE, provider=Provider(clock, lambda r: 1.0 if "b2" in r.at or "/2/" in r.at else NEVER), clock=clock
    )
    clock = FakeClock()
    other = lines('let v = parallel ("first"):', *(f'  {n} = session "other {n}"' for n in "abc"))
    live = await there.run(other, provider=Provider(clock, lambda r: 1.0 if "b1" in r.at else NEVER), clock=clock)
    assert live["b"] == live["v"]


# ---------------------------------------------------------------- judgements


JUDGED = lines(
    'let draft = session "Draft"',
    "let n = 0",
    "loop until **the draft is good** (max: 5):",
    "  n = n + 1",
    "let verdict = **is the draft short**",
    "choice **how it reads**:",
    '  option "well":',
    "    n = n + 100",
    '  option "badly":',
    "    n = n + 200",
)


async def test_judgements_are_replayed(there: Recording) -> None:
    says = {"the draft is good": [False, Verdict(None, "model", "hm"), True], "how it reads": "badly"}
    text = JUDGED.replace("let verdict = **is the draft short**\n", "")
    judge = JudgeDouble(says)
    live = await there.run(text, provider=Provider(FakeClock()), judge=judge)
    assert live["n"] == 202
    assert await there.run(text, "replay") == live
    records = there.records(kind="judge")
    assert [r["out"].get("label", r["out"].get("answer")) for r in records] == [False, None, True, "badly"]
    assert records[0]["req"]["bindings"].keys() == {"draft"}
    assert records[-1]["req"]["options"] == ["well", "badly"]


async def test_no_progress_is_replayed(there: Recording) -> None:
    text = lines("let n = 0", "loop until **it is done** (max: 5):", "  n = n + 1")
    judge = JudgeDouble({"it is done": [False, Verdict(None, "model", no_progress=True)]})
    live = await there.run(text, provider=Provider(FakeClock()), judge=judge)
    assert live == {"n": 1}
    assert await there.run(text, "replay") == live


async def test_a_judgement_that_is_missing_is_undecided(there: Recording) -> None:
    text = lines("let n = 0", "if **it is done**:", "  n = 1")
    message = await there.run(text, "replay")
    assert message.startswith("E211 nothing is recorded for the condition **it is done**: there is no cassette")
    assert there.error is not None
    assert there.error.no_answer
    await there.run(text, judge=JudgeDouble({"it is done": True}))
    message = await there.run(text.replace("done", "over"), "replay")
    assert "`condition` differs at character 7" in message


async def test_a_judgement_over_other_values_is_another_one(there: Recording) -> None:
    text = lines('let draft = "{x}"', "let n = 0", "if **draft reads well**:", "  n = 1").replace("{x}", "one")
    await there.run(text, judge=JudgeDouble({"draft reads well": True}))
    assert await there.run(text, "replay") == {"draft": "one", "n": 1}
    message = await there.run(text.replace('"one"', '"two"'), "replay")
    assert "`bindings.draft` differs at character 1" in message


# ---------------------------------------------------------------- budgets


async def test_a_budget_ends_a_replay_where_it_ended_the_recorded_run(there: Recording) -> None:
    """In mode `auto`, recorded answers cost nothing, so the next run gets further."""

    class Costly(Provider):
        async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
            return structs.replace(await super().run(request, on_progress), usage=Usage(1, 4, 6, 0.5))

    text = """let n = 0
block work() (budget: "25 tokens"):
  try:
    for i in ["One", "Two", "Three", "Four", "Five"]:
      session "{i}"
      n = n + 1
  catch:
    let spent = true
do work()
"""
    first = await there.run(text, provider=Costly(FakeClock()), counted=True)
    assert first["n"] == 3
    assert {record["t"] for record in there.records()} == {"head", "session"}  # E221 is not recorded as an answer
    again = await there.run(text, "replay", counted=True)
    assert (again, there.error) == (first, None)
    assert (await there.run(text, provider=Costly(FakeClock()), counted=True))["n"] == 5


# ---------------------------------------------------------------- reports


async def test_unused_records_are_reported(there: Recording) -> None:
    await there.run('let a = session "One"\nlet b = session "Two"\n', provider=Provider(FakeClock()))
    await there.run('let b = session "Two"\n', "replay")
    assert there.cassettes is not None
    assert [(u.file, u.line, u.record.t, u.record.at) for u in there.cassettes.unused()] == [
        ("cassettes/session.jsonl", 2, "session", "c1/1/s0")
    ]


async def test_a_lookup_does_not_mark_records_as_used(there: Recording) -> None:
    await there.run('let a = session "One"\n', provider=Provider(FakeClock()))
    cassettes = Cassettes(CassetteOptions(mode="replay"), there.where(), there.clock)
    asked = SessionRequest("session", "One", "c9/1/s0", program="demo.ipynb")
    for _ in range(2):
        hit = cassettes.store.session(asked).replay_result()
        assert isinstance(hit, Found)
        assert (hit.entry.record.at, hit.entry.place) == ("c1/1/s0", "cassettes/session.jsonl, line 2")
        meta = hit.meta
        assert (meta.origin, meta.provider, meta.resolved, meta.recorded) == ("model", "vendor", "big-1", "2026-01-01")
    miss = cassettes.store.session(SessionRequest("session", "Two", "c1/1/s0", program="demo.ipynb")).replay_result()
    assert isinstance(miss, Miss)
    assert "`prompt` differs at character 1" in miss.message
    assert "prose run --cassette-mode=auto demo.ipynb" in miss.hint
    assert cassettes.used() == frozenset()


async def test_the_names_of_cassettes(there: Recording) -> None:
    text = 'let a = session "One"\n'
    for name in ("demo", "recordings/demo.jsonl", "recordings/other"):
        await there.run(text, "record", provider=Provider(FakeClock()), name=name)
    there.notebook = "work/My notebook.ipynb"
    await there.run(text, "record", provider=Provider(FakeClock()))
    there.notebook = "console-1-0815"
    await there.run(text, "record", provider=Provider(FakeClock()))
    made = {p.relative_to(there.cwd).as_posix() for p in there.cwd.rglob("*.jsonl")}
    assert made == {
        "cassettes/demo.jsonl", "recordings/demo.jsonl", "recordings/other.jsonl",
        "cassettes/My notebook.jsonl", "cassettes/session.jsonl",
    }  # fmt: skip
    for bad in ("../out", "/etc/x.jsonl", "a/../../b", "x\ny/z", "/", "./"):
        with pytest.raises(UsageError, match="below the working directory"):
            there.open("auto", name=bad)
