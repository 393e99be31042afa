"""Amendment A54: each model request and each tool call of a session survives a kill."""

from __future__ import annotations

import os
import pickle
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from durability.power import Cut, Disk, disk_of, lay_out
from killing import how_to_resume, in_a_child, journal_in
from models.people import ScriptedPerson
from msgspec import structs
from stubs.model_server import ANSWER, StubServer

from prose_kernel.cli.result_text import lost_requests
from prose_kernel.errors import RunError
from prose_kernel.models.usage_and_prices import UsageLine
from prose_kernel.runs.resumption import resumption
from prose_kernel.runs.settings import Settings
from prose_kernel.runs.workspace import Start, Workspace
from prose_kernel.runtime.journal_records import Answered, Record, Step, StepEnded
from prose_kernel.runtime.session_options import ModelOptions, ModelServer, Price
from prose_kernel.runtime.values import verbatim
from prose_kernel.storage.journal_reading import read
from prose_kernel.storage.run_history import actions_under_way, cells_of
from prose_kernel.views.report import run_report

FUNCTIONS = '''
from pathlib import Path

def mark(word: str) -> str:
    """Write a word down."""
    with Path("ran/all").open("a") as file:
        file.write(f"{word}\\n")
    return f"marked {word}"
'''
PROGRAM = """
agent worker:
  tools: ["mark"]
  permissions:
    read: allow
    write: allow
    bash: allow
    tools: allow
let said = session: worker
  prompt: "Work"
output said = said
"""
RAN = "echo {} $PROSE_AT $PROSE_ATTEMPT >> ran/all"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": "notes.txt"}),
    ("write", {"path": "made.txt", "content": "one two"}),
    ("edit", {"path": "made.txt", "old": "two", "new": "three"}),
    ("exec_command", {"cmd": RAN.format("first")}),
    ("mark", {"word": "second"}),
    ("exec_command", {"cmd": RAN.format("third")}),
]
"""The steps 2, 4, 6, 8, 10 and 12 of the session; the requests to the model are 1, 3, ... 13."""
TURNS = [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in CALLS]


@pytest.fixture(autouse=True)
def _project(stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stub.reset()
    (tmp_path / "ran").mkdir()
    (tmp_path / "prose_tools.py").write_text(FUNCTIONS)
    (tmp_path / "notes.txt").write_text("remember the milk")


def server(stub: StubServer, model: str, **more: Any) -> ModelServer:
    priced = {"it": ModelOptions(price=Price(input=1.0, output=2.0))}
    return ModelServer("openai", stub.openai_url, key="", model="it", aliases={"it": model}, options=priced, **more)


def work(stub: StubServer, text: str = PROGRAM, **more: Any) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return a function that runs the program, or resumes the run in the working directory. It returns outputs and usage."""
    servers = more.pop("providers", {"stub": server(stub, stub.script("works", *TURNS, "Read: {results}."))})
    how = more.pop("how", how_to_resume)

    async def go() -> dict[str, Any]:
        settings = Settings().changed(
            **{"provider": "stub", "providers": servers, "cassette_mode": "off", "autodetect": False, **more}
        )
        here = Workspace(
            settings,
            Start(Path.cwd(), "p.prose", notebook=False),
            asker=ScriptedPerson(available=False),
            resumption=how(Path.cwd()),
        )
        try:
            await here.execute(text, "p.prose")
            await here.end(None)
            outputs = {name: verbatim(value) for name, (value, _) in here.outputs().items()}
        except RunError as failed:
            await here.end(failed)
            outputs = {"failed": failed.message}
        finally:
            total = here.opened.services.usage.total
            await here.close()
        return {"outputs": outputs, "usage": total}

    return go


def begins(number: int) -> Callable[[Record], bool]:
    return lambda record: isinstance(record, Step) and record.number == number


def ends(number: int) -> Callable[[Record], bool]:
    return lambda record: isinstance(record, StepEnded) and record.number == number


def commands_run(place: Path) -> list[str]:
    return (place / "ran" / "all").read_text().splitlines()


ONCE = ["first c1/1/s0/t8 1", "second", "third c1/1/s0/t12 1"]


@pytest.mark.parametrize("number", [7, 12])
async def test_a_killed_session_continues_after_its_last_answer(stub: StubServer, tmp_path: Path, number: int) -> None:
    """Requests and calls with a recorded answer are not repeated; the tokens of all requests are counted."""
    assert in_a_child(tmp_path, work(stub), before=begins(number)) is None
    assert stub.stats.requests == number // 2
    if number > 6:
        (tmp_path / "made.txt").write_text("changed by hand")
    ended = await work(stub)()
    assert "marked second" in ended["outputs"]["said"] and "remember the milk" in ended["outputs"]["said"]
    assert commands_run(tmp_path) == ONCE
    assert (tmp_path / "made.txt").read_text() == ("changed by hand" if number > 6 else "one three")
    assert stub.stats.requests == 7
    usage: UsageLine = ended["usage"]
    assert (usage.sessions, usage.requests, usage.uncounted) == (1, 7, 0)
    whole = await work(stub)()  # a replay of the complete run passes over the steps
    assert whole == ended and stub.stats.requests == 7


@pytest.mark.parametrize(
    ("number", "lines"),
    [(8, [ONCE[0], "first c1/1/s0/t8 2", *ONCE[1:]]), (10, [*ONCE[:2], *ONCE[1:]]), (9, ONCE), (13, ONCE)],
)
async def test_a_step_without_an_answer_is_made_again(
    stub: StubServer, tmp_path: Path, number: int, lines: list[str]
) -> None:
    """A command gets the same place and the next attempt number; a request that was sent is counted."""
    assert in_a_child(tmp_path, work(stub), before=ends(number)) is None
    ended = await work(stub)()
    assert commands_run(tmp_path) == lines
    lost = number % 2
    assert stub.stats.requests == 7 + lost
    assert (ended["usage"].requests, ended["usage"].uncounted) == (7 + lost, lost)


STEP = 1 if "DURABILITY_EXAMPLES" in os.environ else 3
"""How much further each process gets: three steps lead to a call or to a request. `make durability` kills at each."""


async def test_a_session_survives_a_kill_at_each_step_while_it_resumes(stub: StubServer, tmp_path: Path) -> None:
    """Each call runs once, and each request is counted."""
    for number in range(2, 14, STEP):
        assert in_a_child(tmp_path, work(stub), before=begins(number)) is None
    ended = await work(stub)()
    assert commands_run(tmp_path) == ONCE
    assert stub.stats.requests == 7 and ended["usage"].requests == 7


async def test_with_fail_the_session_fails_and_its_requests_are_counted(stub: StubServer, tmp_path: Path) -> None:
    assert in_a_child(tmp_path, work(stub), before=begins(9)) is None

    def failing_resumption(place: Path) -> Any:
        path = journal_in(place)
        assert path is not None
        return resumption(path, "fail")

    ended = await work(stub, how=failing_resumption)()
    assert ended["outputs"] == {"failed": "the run was killed while this session was under way"}
    assert commands_run(tmp_path) == ONCE[:1]
    assert stub.stats.requests == 4 and ended["usage"].requests == 4


async def test_a_session_that_its_server_failed_continues_after_the_last_tool_result(
    stub: StubServer, tmp_path: Path
) -> None:
    """The failed attempt is counted too."""
    down = stub.script("down", *TURNS[:4], {"error": 500})
    ended = await work(stub, providers={"stub": server(stub, down)})()
    assert "failed" in ended["outputs"] and stub.stats.requests == 5
    ended = await work(stub)()
    assert commands_run(tmp_path) == ONCE
    assert stub.stats.requests == 8 and ended["usage"].requests == 7  # a refused request consumes nothing


async def test_another_model_continues_the_conversation(stub: StubServer, tmp_path: Path) -> None:
    """The run is resumed with another provider, and with a fallback that had answered before the kill."""
    assert in_a_child(tmp_path, work(stub), before=begins(9)) is None
    model = stub.script("others", *TURNS, "Read by another: {results}.")
    ended = await work(stub, provider="other", providers={"other": server(stub, model)})()
    assert commands_run(tmp_path) == ONCE and stub.stats.requests == 7
    assert ended["outputs"]["said"].startswith("Read by another: ")


async def test_the_fallback_that_answered_is_asked_first_when_the_run_resumes(stub: StubServer, tmp_path: Path) -> None:
    works = stub.script("fallback", *TURNS, "Read: {results}.")
    options = {"it": ModelOptions(price=Price(input=1.0, output=2.0), fallback=("stub:it",))}
    unavailable = structs.replace(server(stub, "err-500-1"), options=options)
    servers = {"away": unavailable, "stub": server(stub, works)}
    assert in_a_child(tmp_path, work(stub, provider="away", providers=servers), before=begins(10)) is None
    sent = stub.stats.requests
    await work(stub, provider="away", providers=servers)()
    assert [line.split()[0] for line in commands_run(tmp_path)] == ["first", "second", "third"]
    assert stub.stats.by_model["err-500-1"] == 1 and stub.stats.requests == sent + 3


async def test_records_of_another_conversation_do_not_count_as_answers(stub: StubServer, tmp_path: Path) -> None:
    """The server of the resumed run is offered no tools. The tokens of the former conversation are counted."""
    assert in_a_child(tmp_path, work(stub), before=begins(9)) is None
    ended = await work(stub, providers={"stub": server(stub, "ok-0", tools=False)})()
    assert ended["outputs"] == {"said": ANSWER}
    assert stub.stats.requests == 5 and ended["usage"].requests == 5


TYPED = """
agent worker:
  permissions:
    read: allow
let said = session: worker
  prompt: "How many?"
  output: { n: number }
  retry: 1
output n = said.n
"""


async def test_typed_answers_and_their_corrections_survive_a_kill(stub: StubServer, tmp_path: Path) -> None:
    """The first answer doesn't fit; the second attempt is killed after its tool, and continues."""
    turns = ['{"n": "many"}', TURNS[0], '{"n": 3}']
    servers = {"stub": server(stub, stub.script("typed", *turns), judge_output="native")}

    def second(record: Record) -> bool:
        return isinstance(record, Step) and record.key.endswith("#1") and record.number == 3

    assert in_a_child(tmp_path, work(stub, TYPED, providers=servers), before=second) is None
    sent = stub.stats.requests
    ended = await work(stub, TYPED, providers=servers)()
    assert ended["outputs"] == {"n": 3}
    assert (sent, stub.stats.requests, ended["usage"].requests) == (2, 3, 3)


async def test_state_in_memory_writes_nothing(stub: StubServer, tmp_path: Path) -> None:
    await work(stub, state="in-context", how=lambda place: None)()
    assert journal_in(tmp_path) is None


async def test_writes_are_bounded_and_the_last_answer_is_written_once(stub: StubServer, tmp_path: Path) -> None:
    await work(stub)()
    path = journal_in(tmp_path)
    assert path is not None
    records = [record for _, record in read(path).records()]
    answered = [record for record in records if isinstance(record, Answered)]
    steps = [record for record in records if isinstance(record, StepEnded)]
    assert len(steps) == 13 and bytes(steps[-1].value) == b"null"
    assert all(len(bytes(one.value)) < 2000 for one in steps) and len(answered) == 1


async def test_lists_and_reports_of_a_killed_run_count_sent_requests(stub: StubServer, tmp_path: Path) -> None:
    assert in_a_child(tmp_path, work(stub), before=ends(8)) is None
    path = journal_in(tmp_path)
    assert path is not None
    found = read(path)
    made = actions_under_way(found)["c1/1/s0"]
    assert (made.requests, made.calls, made.doing.split()[0]) == (4, 3, "exec_command")
    step = next(cells_of(found)).steps[0]
    assert (step.mark, step.made.requests, step.made.calls) == ("under way", 4, 3)
    remarks = lost_requests(found.under_way(), resumption(found))
    assert len(remarks) == 1 and "(4 requests, 3 tool calls, under way: exec_command" in remarks[0]
    page = await run_report(found, "killed", Settings(), str)
    assert "4 requests, 3 tool calls" in page
    assert re.search(r"<b>\d+</b><span>tokens", page)


async def test_no_recorded_step_is_lost_by_a_power_cut(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `durable`, the disk has only synced data, just before the record of a call's answer is synced."""
    cuts = tmp_path.with_name("cuts")

    async def followed() -> None:
        disk = Disk(str(tmp_path))
        disk.install()
        await work(stub, journal="durable")()
        cuts.write_bytes(pickle.dumps(disk.cuts))

    assert in_a_child(tmp_path, followed)
    found: list[Cut] = pickle.loads(cuts.read_bytes())
    drawn = random.Random("steps").sample([cut for cut in found if "ran/all" in cut.current], 2)
    for cut in drawn:
        lay_out(disk_of(cut, "least"), tmp_path)
        monkeypatch.chdir(tmp_path)
        path = journal_in(tmp_path)
        assert path is not None
        known = {one.number for _, one in read(path).records() if isinstance(one, StepEnded)}
        before = [line.split()[0] for line in commands_run(tmp_path)]
        await work(stub, journal="durable")()
        after = Counter(line.split()[0] for line in commands_run(tmp_path))
        for number, word in ((8, "first"), (10, "second"), (12, "third")):
            again = word in before and number not in known
            assert after[word] == 1 + again, (word, known, before)


async def test_after_more_budget_a_session_continues_after_the_last_tool_result(
    stub: StubServer, tmp_path: Path
) -> None:
    ended = await work(stub, budget="100 tokens")()
    assert "the budget of the run is spent" in ended["outputs"]["failed"]
    sent = stub.stats.requests
    assert commands_run(tmp_path) == ONCE[:2]
    ended = await work(stub)()
    assert commands_run(tmp_path) == ONCE
    assert (sent, stub.stats.requests, ended["usage"].requests) == (5, 7, 7)


async def test_a_request_that_was_never_sent_or_refused_is_not_counted_however_often(
    stub: StubServer, tmp_path: Path
) -> None:
    down = {"stub": server(stub, stub.script("down", *TURNS[:2], {"error": 500}))}
    for more in ({"budget": "40 tokens"}, {"budget": "40 tokens"}, {"providers": down}, {"providers": down}):
        assert "failed" in (await work(stub, **more)())["outputs"]
    ended = await work(stub)()
    assert (stub.stats.requests, ended["usage"].requests, ended["usage"].uncounted) == (9, 7, 0)


async def test_a_session_that_began_again_continues_its_new_conversation_after_a_kill(
    stub: StubServer, tmp_path: Path
) -> None:
    """It does not contain the answers of the failed conversation."""
    ended = await work(stub, tool_rounds=2)()
    assert "failed" in ended["outputs"] and stub.stats.requests == 2
    (tmp_path / "notes.txt").write_text("remember the bread")
    assert in_a_child(tmp_path, work(stub), before=begins(9)) is None
    (tmp_path / "notes.txt").write_text("remember the tea")
    ended = await work(stub)()
    assert "remember the bread" in ended["outputs"]["said"]
    assert stub.stats.requests == 9 and ended["usage"].requests == 9
