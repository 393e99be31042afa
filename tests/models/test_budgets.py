"""Budgets of runs, blocks, agents and sessions (docs/how-to/budgets.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from killing import answer, in_a_child
from machine.fakes import FakeClock
from models.people import ScriptedPerson
from models.test_runs_resumed import runs, workspace
from msgspec import structs

from prose_kernel.cli.main import main
from prose_kernel.errors import BudgetSpent, ProviderError, RunError, UsageError
from prose_kernel.language.durations_and_budgets import Limits, parse_budget
from prose_kernel.models.providers.scripted import ScriptedSessions
from prose_kernel.models.usage_and_prices import consumed
from prose_kernel.runs import languages
from prose_kernel.runs.settings import Settings, load
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime import budgets
from prose_kernel.runtime.budgets import Budget
from prose_kernel.runtime.events import Event, Warned
from prose_kernel.runtime.ports import SessionProgress, SessionRequest, SessionResult, Usage

# ---------------------------------------------------------------- the text of a budget


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("2 usd, 200k tokens, 30 min, 100 sessions", (2.0, 200_000, 1800.0, 100)),
        ("$2.50", (2.5, None, None, None)),
        ("0.5 $", (0.5, None, None, None)),
        ("1.5M tokens", (None, 1_500_000, None, None)),
        ("2h30m", (None, None, 9000.0, None)),
        ("90 s , 1 session", (None, None, 90.0, 1)),
        ("10_000 tokens", (None, 10_000, None, None)),
        ("1.005M tokens", (None, 1_005_000, None, None)),
    ],
)
def test_budgets_are_parsed_from_text(text: str, limits: tuple[Any, ...]) -> None:
    found = parse_budget(text)
    assert (found.usd, found.tokens, found.seconds, found.sessions) == limits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a budget needs a limit"),
        ("0 usd", "a limit must be more than 0: `0 usd`"),
        ("-1 usd", "not a limit: `-1 usd`"),
        ("lots", "not a limit: `lots`"),
        ("2", "a limit needs a unit: `2`"),
        ("1,000 tokens", "a limit needs a unit: `1`"),
        ("2 usd, $3", "a second limit of money: `$3`"),
        ("1.5 sessions", "sessions are counted in whole numbers: `1.5 sessions`"),
        ("5 euros", "not a limit: `5 euros`"),
        ("$2 tokens", "not a limit: `$2 tokens`"),
        ("30M", "a limit needs a unit: `30M`"),
        ("2 usd,", "a limit is missing next to a comma"),
        (f"{'9' * 400} usd", f"a limit must be less than 1,000,000,000,000,000: `{'9' * 40}`"),
    ],
)
def test_texts_that_are_not_budgets_are_errors(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"limit|counted") as raised:
        parse_budget(text)
    assert str(raised.value) == problem


@given(st.text(max_size=40))
def test_any_text_is_a_budget_or_an_error(text: str) -> None:
    try:
        found = parse_budget(text)
    except ValueError:
        return  # the cases above test the messages
    assert any(one is not None and one > 0 for one in (found.usd, found.tokens, found.seconds, found.sessions))


# ---------------------------------------------------------------- while programs run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = {"sessions": {"*": "Said."}, "judge": {"*": "yes"}}
    Path("script.yaml").write_text(yaml.safe_dump(script))


@pytest.fixture
def _costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session cost ten tokens and half a dollar, and `slow` take an hour."""
    run = ScriptedSessions.run

    async def costly(
        self: ScriptedSessions, request: SessionRequest, on_progress: Callable[[SessionProgress], None]
    ) -> SessionResult:
        if request.task == "slow":
            await self._clock.sleep(3600)
        result = await run(self, request, on_progress)
        return SessionResult(
            result.text, result.summary, "vendor", "model", {"model": "small"}, usage=Usage(1, 4, 6, 0.5)
        )

    monkeypatch.setattr(ScriptedSessions, "run", costly)


class Ran:
    """The outcome of a program: its outputs, the error that ended it, and its warnings."""

    def __init__(self) -> None:
        self.outputs: dict[str, Any] = {}
        self.error: RunError | None = None
        self.warnings: list[str] = []

    def hear(self, event: Event) -> None:
        if isinstance(event, Warned) and event.code in ("W221", "W222"):
            self.warnings.append(event.message)


async def ran(text: str, budget: str = "off", name: str = "p.prose", **more: Any) -> Ran:
    found = Ran()
    settings = Settings().changed(provider="scripted", script="script.yaml", budget=budget, **more)
    start = Start(Path.cwd(), name, notebook=False)
    here = Workspace(settings, start, asker=ScriptedPerson(available=False), clock=FakeClock(), listeners=(found.hear,))
    try:
        await here.execute(text, name)
    except RunError as error:
        found.error = error
    found.outputs = {name: value for name, (value, _) in here.outputs().items()}
    await here.close()
    return found


async def test_a_run_ends_when_its_budget_is_spent() -> None:
    found = await ran('let n = 0\nrepeat 9:\n  session "One"\n  n = n + 1\noutput done = n\n', "3 sessions")
    assert isinstance(found.error, BudgetSpent)
    assert (found.error.code, found.error.location and found.error.location.line) == ("E221", 3)
    assert found.error.message == (
        'the budget of the run is spent (3 sessions): 3 sessions, all of it at line 3, `session "One"`'
    )
    assert found.warnings == ["80 % of the budget of the run is spent (3 sessions)"]


@pytest.mark.usefixtures("_costly")
@pytest.mark.parametrize(
    ("budget", "sessions"), [("25 tokens", 3), ("1.2 usd", 3), ("20 tokens", 2), ("1 usd, 100 tokens", 2)]
)
async def test_tokens_and_money_count(budget: str, sessions: int) -> None:
    """The answer that spends the budget is returned; the next request is refused."""
    text = 'let n = 0\ntry:\n  repeat 9:\n    session "One"\n    n = n + 1\ncatch:\n  session "Two"\noutput done = n\n'
    found = await ran(text.replace('  session "Two"', "  n = n + 0"), budget)
    assert (found.error, found.outputs) == (None, {"done": sessions})


@pytest.mark.usefixtures("_costly")
async def test_the_largest_share_is_named() -> None:
    found = await ran('session "One"\nrepeat 5:\n  session "Two"\n', "25 tokens")
    assert found.error is not None
    assert found.error.message == (
        "the budget of the run is spent (25 tokens): 3 sessions, 30 tokens, 1.5000 usd, most of it at "
        'line 3, `session "Two"` (2 sessions, 20 tokens, 1.0000 usd)'
    )


async def test_a_program_that_ignores_a_spent_budget_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "MOST_CAUGHT", 50)
    text = 'let n = 0\nloop:\n  try:\n    session "One"\n  catch:\n    n = n + 1\n'
    found = await ran(text, "2 sessions")
    assert isinstance(found.error, BudgetSpent)


async def test_a24_a_blocks_budget_is_for_each_call_and_caught_inside_and_around_it() -> None:
    text = """let inside = 0
let around = 0
block work(n) (budget: "2 sessions"):
  repeat n:
    try:
      session "One"
    catch:
      inside = inside + 1
block strict() (budget: "1 session"):
  session "One"
  session "Two"
do work(2)
do work(3)
try:
  do strict
catch:
  around = 1
output caught = "{inside} {around}"
"""
    found = await ran(text)
    assert (found.error, found.outputs) == (None, {"caught": "1 1"})
    found = await ran(text.replace("try:\n  do strict\ncatch:\n  around = 1", "do strict"))
    assert isinstance(found.error, BudgetSpent)
    assert "the budget of block 'strict' is spent (1 session)" in found.error.message


async def test_an_agent_has_one_budget_for_all_its_sessions() -> None:
    text = 'agent a:\n  prompt: "x"\n  budget: "2 sessions"\nlet n = 0\nfor i in [1, 2, 3]:\n  try:\n    session: a\n'
    text += '      prompt: "Go"\n  catch as e:\n    n = i\nsession "One"\noutput failed = n\n'
    assert (await ran(text)).outputs == {"failed": 3}


@pytest.mark.usefixtures("_costly")
async def test_a_sessions_budget_counts_its_attempts() -> None:
    text = 'let n = 0\nfor i in [1, 2]:\n  try:\n    session "slow"\n      budget: "5 min"\n  catch as e:\n    n = n + 1\noutput n = n\n'
    assert (await ran(text)).outputs == {"n": 2}


@pytest.mark.usefixtures("_costly")
async def test_running_sessions_end_when_a_sibling_has_spent_the_budget() -> None:
    text = 'parallel:\n  a = session "slow"\n  b = session "One"\n'
    found = await ran(text, "10 tokens")
    assert isinstance(found.error, BudgetSpent)
    assert found.error.location is not None
    assert found.error.location.line == 2


@pytest.mark.usefixtures("_costly")
async def test_a_budget_of_time_ends_a_running_session() -> None:
    found = await ran('session "slow"\n', "30 min")
    assert isinstance(found.error, BudgetSpent)
    assert found.error.message.startswith("the budget of the run is spent (30 min)")


async def test_on_fail_ignore_does_not_ignore_a_spent_budget() -> None:
    text = 'parallel (on-fail: "ignore"):\n  session "One"\n  session "Two"\noutput done = 1\n'
    found = await ran(text, "1 session")
    assert isinstance(found.error, BudgetSpent)
    assert found.outputs == {}


async def test_vvm_raises_a_spent_budget_and_catches_it_within_its_scope() -> None:
    text = "agent a()\nn = 0\ntry:\n  x = @a `One`(())\n  y = @a `Two`(())\nexcept as e:\n  n = 1\nexport n\n"
    found = await ran(text, "1 session", "p.vvm")
    assert (found.error, found.outputs) == (None, {"n": 1})
    found = await ran("agent a()\nx = @a `One`(())\ny = @a `Two`(())\nexport y\n", "1 session", "p.vvm")
    assert isinstance(found.error, BudgetSpent)


@pytest.mark.usefixtures("_costly")
async def test_a_resumed_run_counts_its_earlier_usage(tmp_path: Path) -> None:
    text = 'session "One"\nsession "Two"\nsession "Three"\nsession "Four"\n'
    assert in_a_child(tmp_path, runs(tmp_path, text), before=answer("c1/3/s0")) is None
    here = workspace(tmp_path, budget="25 tokens, 10 sessions")
    with pytest.raises(BudgetSpent, match="3 sessions, 30 tokens"):
        await here.execute(text, "p.prose")
    await here.close()


async def test_the_strict_profile_knows_no_budgets() -> None:
    found = await ran('session "One"\n  budget: "1 session"\nsession "Two"\n', profile="strict")
    assert found.error is None


@pytest.mark.usefixtures("_costly")
async def test_an_agent_of_the_other_language_is_asked_within_the_budget_of_the_session() -> None:
    """The session's property counts in whichever language the agent was declared."""
    cells = (
        '%%vvm\nagent helper(prompt="You help")\n',
        'let n = 0\nfor i in [1, 2]:\n  try:\n    session: helper\n      prompt: "slow"\n      budget: "5 min"\n'
        "  catch:\n    n = n + 1\noutput n = n\n",
    )
    clock = FakeClock()
    start = Start(Path.cwd(), "n.ipynb", notebook=True)
    settings = Settings(provider="scripted", script="script.yaml")
    here = Workspace(settings, start, asker=ScriptedPerson(available=False), clock=clock)
    for number, cell in enumerate(cells, 1):
        magic, _, rest = cell.partition("\n") if cell.startswith("%%") else ("", "", cell)
        language = languages.of_file("n.vvm" if magic else "n.prose")
        await here.execute(rest, f"cell {number}", language=language)
    assert (here.outputs()["n"][0], clock.time) == (2, 600)
    await here.close()


async def test_an_agent_that_is_defined_again_has_its_new_limits() -> None:
    agent = 'agent a:\n  prompt: "x"\n  budget: "{} session{}"\n'
    ask = 'session: a\n  prompt: "Go"\n'
    start = Start(Path.cwd(), "n.ipynb", notebook=True)
    settings = Settings(provider="scripted", script="script.yaml")
    here = Workspace(settings, start, asker=ScriptedPerson(available=False), clock=FakeClock())
    await here.execute(agent.format(1, "") + ask, "1")
    with pytest.raises(BudgetSpent, match="agent 'a' is spent"):
        await here.execute(ask, "2")
    await here.execute(agent.format(2, "s") + ask, "3")
    with pytest.raises(BudgetSpent, match=r"\(2 sessions\)"):
        await here.execute(ask, "4")
    await here.execute("output fine = 1\n", "5")
    await here.close()


async def test_of_several_spent_budgets_the_widest_is_reported() -> None:
    text = 'block b() (budget: "1 session"):\n  session "One"\n    budget: "1 session"\n  session "Two"\ndo b()\n'
    found = await ran(text, "1 session")
    assert found.error is not None
    assert found.error.message.startswith("the budget of the run is spent")


@pytest.mark.usefixtures("_costly")
async def test_the_budget_that_ends_a_session_is_reported_and_no_other() -> None:
    """The last permitted session is not ended by the limit on the number of sessions."""
    text = 'block b() (budget: "30 min"):\n  session "slow"\ndo b()\n'
    found = await ran(text, "1 session")
    assert found.error is not None
    assert found.error.message.startswith("the budget of block 'b' is spent (30 min)")


async def test_fifty_parallel_branches_share_the_limit() -> None:
    text = "let items = []\nrepeat 50:\n  items = items + [1]\nlet n = 0\ntry:\n"
    text += '  parallel for i in items:\n    session "One"\ncatch as e:\n  n = 1\noutput n = n\n'
    first, second = await ran(text, "7 sessions"), await ran(text, "7 sessions")
    assert (first.error, first.outputs) == (None, {"n": 1}) == (second.error, second.outputs)


@pytest.mark.usefixtures("_costly")
async def test_a_retry_under_a_spent_budget_is_refused_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def fails(self: ScriptedSessions, request: SessionRequest, on_progress: object) -> SessionResult:
        asked.append(request.attempt)
        await budgets.placed()
        consumed("vendor", "small", Usage(1, 4, 6, 0.5))
        raise ProviderError("busy")

    monkeypatch.setattr(ScriptedSessions, "run", fails)
    found = await ran('session "One"\n  retry: 3\n  backoff: exponential\n', "20 tokens")
    assert isinstance(found.error, BudgetSpent)
    assert asked == [0, 1]
    assert "2 sessions, 20 tokens" in found.error.message


async def test_the_time_of_a_persons_answer_does_not_count() -> None:
    class Slow(ScriptedPerson):
        async def ask(self, *args: Any, **more: Any) -> Any:
            await clock.wait(7200)
            return await super().ask(*args, **more)

    clock = FakeClock()
    settings = Settings().changed(provider="scripted", script="script.yaml", budget="1 h")
    start = Start(Path.cwd(), "p.prose", notebook=False)
    here = Workspace(settings, start, asker=Slow("bees"), clock=clock)
    text = 'input topic: "What about?"\noutput said = session "About {topic}"\n'
    await here.execute(text, "p.prose")
    assert clock.time == 7200
    assert here.opened.budget is not None
    assert here.opened.budget.seconds == 0
    await here.close()


@pytest.mark.usefixtures("_costly")
async def test_an_agent_remembers_nothing_of_a_session_that_a_budget_has_ended() -> None:
    text = """agent captain:
  prompt: "You lead"
  persist: project
let a = session: captain
  prompt: "One"
exec "cp -r .prose/agents before"
try:
  let b = resume: captain
    prompt: "slow"
    budget: "5 min"
catch:
  let ended = true
exec "diff -r --exclude=.lock .prose/agents before"
output ok = ended
"""
    found = await ran(text)
    assert (found.error, found.outputs) == (None, {"ok": True})


async def test_rules_decide_under_a_spent_budget() -> None:
    text = 'session "One"\nlet n = 0\nif **2 > 1**:\n  n = 1\noutput n = n\n'
    found = await ran(text, "1 session")
    assert (found.error, found.outputs) == (None, {"n": 1})


async def test_an_imported_program_counts_for_the_block_that_calls_it() -> None:
    Path("helper.prose").write_text('session "A"\nsession "B"\noutput said = "x"\n')
    text = 'use "./helper.prose" as helper\nblock b() (budget: "1 session"):\n  let r = helper()\ndo b()\n'
    found = await ran(text)
    assert isinstance(found.error, BudgetSpent)
    assert "the budget of block 'b' is spent (1 session)" in found.error.message


@pytest.mark.usefixtures("_costly")
async def test_a_price_that_is_not_known_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ScriptedSessions.run

    async def unpriced(self: ScriptedSessions, request: SessionRequest, on_progress: Any) -> SessionResult:
        return structs.replace(await run(self, request, on_progress), usage=Usage(1, 4, 6))

    monkeypatch.setattr(ScriptedSessions, "run", unpriced)
    found = await ran('repeat 3:\n  session "One"\n', "1 usd, 1000 tokens")
    assert found.error is None
    assert found.warnings == [
        "what vendor small costs is not known: the budget of the run does not count that money (1 usd, 1000 tokens)"
    ]
    assert (await ran('session "One"\n', "1000 tokens")).warnings == []


@pytest.mark.usefixtures("_costly")
async def test_earlier_failed_attempts_count_as_sessions_in_a_resumed_run(tmp_path: Path) -> None:
    text = 'for i in [1, 2]:\n  try:\n    session "slow"\n      timeout: 10s\n  catch:\n    let x = i\nsession "One"\n'
    assert in_a_child(tmp_path, runs(tmp_path, text), before=answer("c1/2/s0")) is None
    here = workspace(tmp_path, budget="100 sessions")
    await here.execute(text, "p.prose")
    assert here.opened.budget is not None
    assert here.opened.budget.spent.sessions == 3
    await here.close()


async def test_a_caught_budget_error_is_caught_again_in_a_run_resumed_without_a_budget(tmp_path: Path) -> None:
    text = 'let n = 0\ntry:\n  repeat 9:\n    session "One"\ncatch:\n  n = 1\nexec "true"\noutput n = n\n'
    assert in_a_child(tmp_path, runs(tmp_path, text, budget="2 sessions"), before=answer("c1/3/x0")) is None
    here = workspace(tmp_path)
    await here.execute(text, "p.prose")
    assert {name: value for name, (value, _) in here.outputs().items()} == {"n": 1}
    await here.close()


# ---------------------------------------------------------------- branches, commands


def branches(count: int, body: str = 'session "Say {i}"') -> str:
    numbers = ", ".join(str(number) for number in range(count))
    return f"let done = []\ntry:\n  parallel for i in [{numbers}]:\n    {body}\ncatch:\n  done = [1]\noutput n = done\n"


@pytest.mark.parametrize("limit", [None, 3])
async def test_a24_permitted_sessions_of_branches_complete_and_the_next_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """Twenty branches with a budget of ten sessions: ten sessions run and answer, and the eleventh is refused."""
    ended: list[str] = []

    async def slow(self: ScriptedSessions, request: SessionRequest, on_progress: object) -> SessionResult:
        async with places:
            await budgets.placed()
            await self._clock.sleep(10 - len(ended) % 3)
            ended.append(request.task)
            return SessionResult("Said.", "", "vendor", "model")

    places = asyncio.Semaphore(limit or 100)
    monkeypatch.setattr(ScriptedSessions, "run", slow)
    found = await ran(branches(20), "10 sessions")
    assert (found.error, found.outputs, len(ended)) == (None, {"n": [1]}, 10)
    found = await ran(branches(20).replace("catch:\n  done = [1]", "finally:\n  done = [2]"), "10 sessions")
    assert isinstance(found.error, BudgetSpent)
    assert (len(ended), "10 sessions" in found.error.message) == (20, True)


async def test_a24_a_session_that_waits_for_its_place_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(self: ScriptedSessions, request: SessionRequest, on_progress: object) -> SessionResult:
        async with places:
            await budgets.placed()
            await self._clock.sleep(10)
            return SessionResult("Said.", "", "vendor", "model")

    places = asyncio.Semaphore(2)
    monkeypatch.setattr(ScriptedSessions, "run", slow)
    text = (
        'parallel ("first"):\n'
        + "".join(f'  a{n} = session "One {n}"\n' for n in range(8))
        + 'session "Two"\noutput n = 1\n'
    )
    found = await ran(text, "5 sessions")
    assert (found.error, found.outputs) == (None, {"n": 1})


async def test_a24_branches_reserve_what_they_are_likely_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty branches of 44 tokens each with a budget of 500 tokens exceed it by at most one request."""
    asked: list[str] = []

    async def costly(self: ScriptedSessions, request: SessionRequest, on_progress: object) -> SessionResult:
        await budgets.placed()
        await budgets.reserve()
        asked.append(request.task)
        await self._clock.sleep(10)
        return SessionResult("Said.", "", "vendor", "model", usage=Usage(1, 14, 30, 0.1))

    monkeypatch.setattr(ScriptedSessions, "run", costly)
    for budget in ("500 tokens", "1.05 usd"):
        asked.clear()
        found = await ran(branches(20), budget)
        assert (found.error, found.outputs, len(asked)) == (None, {"n": [1]}, 12 if "tokens" in budget else 11)


async def test_a24_a_budget_of_time_ends_commands_and_leaves_some_for_cleaning_up() -> None:
    text = """try:
  exec "exec sleep 30"
catch:
  exec "echo caught > caught"
finally:
  exec "echo finally >> caught"
output text = exec "cat caught"
"""
    found = await real(text, "1 s")
    assert (found.error, Path("caught").read_text()) == (None, "caught\nfinally\n")
    found = await real('exec "exec sleep 30"\n', "1 s")
    assert isinstance(found.error, BudgetSpent)
    assert found.error.message.startswith("the budget of the run is spent (1 s)")
    block = (
        'block b() (budget: "1 s"):\n  exec "exec sleep 30"\nlet n = 0\ntry:\n  do b\ncatch:\n  n = 1\noutput n = n\n'
    )
    assert (await real(block)).outputs == {"n": 1}


async def test_a24_commands_are_refused_when_the_time_to_clean_up_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "CLEAN_UP", 0.0)
    text = 'try:\n  exec "exec sleep 30"\ncatch:\n  exec "touch never"\n'
    assert isinstance((await real(text, "1 s")).error, BudgetSpent)
    assert not Path("never").exists()


async def real(text: str, budget: str = "off") -> Ran:
    """Run a program whose commands use real time."""
    found = Ran()
    here = Workspace(
        Settings().changed(provider="scripted", script="script.yaml", budget=budget),
        Start(Path.cwd(), "p.prose", notebook=False),
        asker=ScriptedPerson(available=False),
        listeners=(found.hear,),
    )
    try:
        await here.execute(text, "p.prose")
    except RunError as error:
        found.error = error
    found.outputs = {name: value for name, (value, _) in here.outputs().items()}
    await here.close()
    return found


# ---------------------------------------------------------------- settings and options


def test_settings_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("prose.toml").write_text('[budget]\nrun = "1 session"\n')
    assert load(tmp_path, {}).budget.run == "1 session"
    Path("p.prose").write_text('session "One"\nsession "Two"\n')
    assert main(["run", "p.prose", "--provider", "scripted", "--script", "script.yaml"]) == 1
    err = capsys.readouterr().err
    assert "the budget of the run is spent (1 session)" in err
    assert err.rstrip().endswith(" --budget LIMITS"), "the same budget would end the resumed run"
    assert main(["run", "p.prose", "--provider", "scripted", "--script", "script.yaml", "--budget", "off"]) == 0
    capsys.readouterr()
    assert main(["run", "p.prose", "--budget", ""]) == 2
    assert "budget: a budget needs a limit" in capsys.readouterr().err
    assert main(["run", "p.prose", "--budget", "0 usd"]) == 2
    assert "budget: a limit must be more than 0" in capsys.readouterr().err
    Path("prose.toml").write_text('[budget]\nrun = "much"\n')
    with pytest.raises(UsageError, match=r"budget\.run: not a limit: `much`"):
        load(tmp_path, {})


def test_a_run_with_a_budget_continues_with_a_higher_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.prose").write_text('let a = session "One"\nlet b = session "Two"\noutput both = "{a} {b}"\n')
    who = ["--provider", "scripted", "--script", "script.yaml"]
    assert main(["run", "p.prose", *who, "--budget", "1 session"]) == 1
    capsys.readouterr()
    assert main(["run", "--resume", *who, "--budget", "2 sessions", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"both": "Said. Said."}


def test_limits_keep_their_text() -> None:
    assert parse_budget(" 2 usd,30 min ") == Limits("2 usd, 30 min", usd=2.0, seconds=1800.0)


async def test_time_passes_only_while_something_is_running() -> None:
    clock = FakeClock()
    budget = Budget("run", "the run", parse_budget("10 s"), clock)
    await clock.wait(100)
    with budget.open(), budget.open():
        await clock.wait(4)
    await clock.wait(100)
    assert (budget.seconds, budget.time_left, budget.over) == (4, 6, False)
    assert asyncio.get_running_loop().is_running()
