"""The keyless providers through the `Sessions` port (sessions.md 3.1, 3.3)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sessions.people import ScriptedPerson, SilentPerson

from prose_kernel.errors import NobodyToAsk, NoProvider, ProviderError, UsageError
from prose_kernel.machine.ports import CommandRequest, SessionProgress, SessionRequest, SessionResult, Sessions
from prose_kernel.sessions.providers import NOTICE, select
from prose_kernel.sessions.providers.dry_run import DryRunCommands
from prose_kernel.sessions.providers.human import HELP
from prose_kernel.sessions.providers.scripted import Reply, Script, load_script
from prose_kernel.sessions.request import shown


def request(task: str = "Write a haiku", at: str = "c1/s0", **more: object) -> SessionRequest:
    return SessionRequest("session", task, at, **more)  # type: ignore[arg-type]


async def run(sessions: Sessions, asked: SessionRequest) -> SessionResult:
    return await sessions.run(asked, lambda progress: None)


class FakeClock:
    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def scripted(entries: dict[str, object], clock: FakeClock | None = None) -> Sessions:
    return select("scripted", asker=ScriptedPerson(available=False), script=Script(entries), clock=clock or FakeClock())


# ---------------------------------------------------------------- scripted


@pytest.mark.parametrize(
    ("entries", "reply"),
    [
        ({"haiku": "Old pond"}, "Old pond"),
        ({"Write * haiku": "Old pond"}, "Old pond"),
        ({"Write": "first", "*": "second"}, "first"),
        ({"*haiku*": "pattern", "c1/s0": "path"}, "path"),
        ({"/^write/": "no", "/Wri.e a (haiku|poem)$/": "regex"}, "regex"),
        ({"haiku": lambda asked: f"for {asked.at}"}, "for c1/s0"),
        ({"haiku": 42}, "42"),
        ({"sessions": {"haiku": "in its section"}, "judge": {"x": "yes"}}, "in its section"),
    ],
)
async def test_scripted_replies(entries: dict[str, object], reply: str) -> None:
    result = await run(scripted(entries), request())
    assert result == SessionResult(reply, reply, "scripted", "scripted")


async def test_a_list_answers_call_after_call_and_its_last_entry_stays() -> None:
    sessions = scripted({"haiku": [{"error": "overloaded"}, "one", "two"]})
    with pytest.raises(ProviderError, match="overloaded") as failed:
        await run(sessions, request())
    assert failed.value.retryable
    assert [(await run(sessions, request())).text for _ in range(3)] == ["one", "two", "two"]


async def test_delays_go_through_the_clock() -> None:
    clock = FakeClock()
    sessions = scripted({"a": {"reply": "x", "delay": "200ms"}, "b": Reply("y", delay=3), "c": {"delay": 1.5}}, clock)
    assert [(await run(sessions, request(task))).text for task in "abc"] == ["x", "y", ""]
    assert clock.slept == [0.2, 3, 1.5]


async def test_errors_may_be_final() -> None:
    with pytest.raises(ProviderError, match="no credit") as failed:
        await run(scripted({"*": {"error": "no credit", "retryable": False}}), request())
    assert not failed.value.retryable


async def test_a_confirmation_in_the_script_means_that_the_session_wrote_its_binding() -> None:
    result = await run(scripted({"*": "Binding written: poem\nSummary: A frog"}), request())
    assert (result.text, result.summary) == (None, "A frog")


async def test_a_task_that_is_not_in_the_script_is_an_error_with_a_fix() -> None:
    with pytest.raises(NoProvider) as missed:
        await run(scripted({"sonnet": "x"}), request("Write a haiku\nabout frogs"))
    assert str(missed.value) == 'the script has no reply for "Write a haiku" (c1/s0)'
    assert missed.value.hint == "add a key that its task contains, its execution path, or `*`"
    assert not missed.value.retryable


YAML = """\
sessions:
  "Write a haiku*": no          # stays the text it is
  c1/s1: {reply: "late", delay: 50ms}
  Fetch: [{error: overloaded, retryable: false}, 1.10]
judge:
  the tests pass: [no, yes]
extract:
  summary.title: Frogs
items:
  "*": [one, two]
"""


async def test_a_script_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text(YAML)
    script = load_script(path)
    sessions = select("scripted", asker=ScriptedPerson(), script=script, clock=FakeClock())
    assert (await run(sessions, request())).text == "no"
    assert (await run(sessions, request("other", "c1/s1"))).text == "late"
    with pytest.raises(ProviderError) as failed:
        await run(sessions, request("Fetch it"))
    assert not failed.value.retryable
    assert (await run(sessions, request("Fetch it"))).text == "1.10"
    assert [script.judgement("do the tests pass"), script.judgement("the tests pass")] == ["no", "yes"]
    assert [script.judgement("the tests pass"), script.judgement("other")] == ["yes", None]
    assert (script.extracted("summary.title"), script.items("any text")) == ("Frogs", ("one", "two"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "script s.yaml is no mapping of a pattern to a reply"),
        ('a: "x\n', "script s.yaml is no YAML at line 2"),
        ("a: {replay: x}\n", "script: `a` has no `replay`"),
        ("a: {delay: soon}\n", "script: the delay of `a` is no duration"),
        ("a: []\n", "script: `a` has an empty list of replies"),
        ("a: [[b]]\n", "script: the answer of `a` is no text"),
        ("/(/: b\n", "script: `/(/` is no regular expression: missing ), unterminated subpattern at position 0"),
        ("judge: yes\n", "script: `judge` is no mapping of a pattern to a reply"),
        ("judge: {a: {b: c}}\n", "script: the answer of `a` is no text"),
        ("\x00", "script s.yaml is no YAML"),
    ],
)
def test_scripts_that_make_no_sense(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        load_script(path)
    assert str(refused.value) == message


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^script gone\.yaml cannot be read: No such file or directory$"):
        load_script(tmp_path / "gone.yaml")


# ---------------------------------------------------------------- human


async def test_a_person_reads_the_whole_and_answers_in_lines() -> None:
    person = ScriptedPerson("Old pond", "", "..", "::skip", ":smile:", ".")
    asked = request(permissions={"bash": "deny"})
    result = await run(select("human", asker=person), asked)
    assert (result.text, result.summary) == ("Old pond\n\n.\n:skip\n:smile:", "Old pond")
    assert (result.provider, result.origin) == ("human", "human")
    assert person.transcript == [
        f"session\nPermissions:\n  bash: deny\n\nWrite a haiku\n\n{HELP}",
        *["? > "] * 6,
    ]


async def test_a_larger_box_may_give_all_lines_at_once() -> None:
    result = await run(select("human", asker=ScriptedPerson("one\ntwo\n.\nafter")), request())
    assert result.text == "one\ntwo"


async def test_skip_is_an_empty_answer() -> None:
    result = await run(select("human", asker=ScriptedPerson("half", ":skip")), request())
    assert (result.text, result.summary, dict(result.details)) == ("", "skipped", {"skipped": True})


@pytest.mark.parametrize(
    ("line", "message"), [(":fail no idea", "no idea"), (":fail", "failed by the person who answered")]
)
async def test_fail_is_a_failed_attempt(line: str, message: str) -> None:
    with pytest.raises(ProviderError) as failed:
        await run(select("human", asker=ScriptedPerson(line)), request())
    assert (str(failed.value), failed.value.retryable) == (message, True)


async def test_show_shows_again() -> None:
    person = ScriptedPerson("kept", ":show", ".")
    assert (await run(select("human", asker=person), request())).text == "kept"
    assert person.transcript[0] == person.transcript[3]


async def test_quit_interrupts_the_run() -> None:
    running: list[asyncio.Task[SessionResult]] = []
    person = ScriptedPerson(":quit")
    sessions = select("human", asker=person, interrupt=lambda: running[0].cancel())
    running.append(asyncio.create_task(run(sessions, request())))
    with pytest.raises(asyncio.CancelledError):
        await running[0]


async def test_quit_without_a_run_to_interrupt_is_a_final_failure() -> None:
    with pytest.raises(ProviderError, match="the person who answered quit") as failed:
        await run(select("human", asker=ScriptedPerson(":quit")), request())
    assert not failed.value.retryable


class Leaves(ScriptedPerson):
    async def ask(self, prompt: str) -> str:
        raise NobodyToAsk


async def test_somebody_who_leaves_is_nobody() -> None:
    with pytest.raises(NoProvider, match="nobody is here"):
        await run(select("human", asker=Leaves()), request())


async def test_end_of_input_and_nobody_are_no_provider() -> None:
    with pytest.raises(NoProvider, match="the person's input has ended before this session was answered"):
        await run(select("human", asker=ScriptedPerson("half")), request())
    with pytest.raises(NoProvider, match="nobody is here"):
        await run(select("human", asker=ScriptedPerson(available=False)), request())


async def test_concurrent_sessions_are_asked_one_at_a_time_in_order() -> None:
    person = ScriptedPerson(*[line for n in range(5) for line in (f"answer {n}", "more", ".")])
    sessions = select("human", asker=person)
    results = await asyncio.gather(*(run(sessions, request(f"task {n}", f"c1/b{n}/s0")) for n in range(5)))
    assert [result.text for result in results] == [f"answer {n}\nmore" for n in range(5)]
    assert person.most_asking == 1


async def test_a_cancelled_session_gives_up_its_turn() -> None:
    person = SilentPerson()
    sessions = select("human", asker=person)
    first = asyncio.create_task(run(sessions, request("first")))
    await person.asked.wait()
    person.asked.clear()
    second = asyncio.create_task(run(sessions, request("second")))
    waiting = asyncio.create_task(run(sessions, request("third")))
    await asyncio.sleep(0)
    waiting.cancel()
    first.cancel()
    await person.asked.wait()
    assert "second" in person.transcript[2]
    second.cancel()
    assert [type(r) for r in await asyncio.gather(first, second, waiting, return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 3


async def test_what_a_person_is_shown_cannot_drive_the_terminal() -> None:
    person = ScriptedPerson(".")
    await run(select("human", asker=person), request("\x1b[2Jwipe\u202e"))
    assert "\x1b" not in person.transcript[0]
    assert "\ufffd[2Jwipe\ufffd" in person.transcript[0]


# ---------------------------------------------------------------- nothing configured


async def test_with_nothing_configured_the_person_answers_after_one_notice() -> None:
    person = ScriptedPerson("a", ".", "b", ".")
    sessions = select(None, asker=person)
    results = await asyncio.gather(run(sessions, request("one")), run(sessions, request("two")))
    assert [result.text for result in results] == ["a", "b"]
    assert person.transcript.count(NOTICE) == 1
    assert person.transcript[0] == NOTICE
    assert len(NOTICE.splitlines()) == 4


async def test_with_nothing_configured_and_nobody_here_the_error_names_the_fix() -> None:
    person = ScriptedPerson("a", ".", available=False)
    sessions = select(None, asker=person)
    with pytest.raises(NoProvider) as refused:
        await run(sessions, request())
    assert str(refused.value) == "no model is configured, and nobody is here to answer this session"
    assert "PROSE_PROVIDER=dry-run" in (refused.value.hint or "")
    assert person.transcript == []
    person.available = True  # the next cell may allow stdin
    assert (await run(sessions, request())).text == "a"


def test_providers_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match="there is no provider `claude`") as refused:
        select("claude", asker=ScriptedPerson())
    assert refused.value.hint == "one of scripted, human, dry-run"
    with pytest.raises(UsageError, match="provider scripted has no script"):
        select("scripted", asker=ScriptedPerson())


# ---------------------------------------------------------------- dry run


async def test_a_dry_run_shows_and_marks() -> None:
    seen: list[SessionProgress] = []
    asked = request(at="c2/s1", model="opus", permissions={"bash": "deny"}, skills=("search",))
    result = await select("dry-run", asker=ScriptedPerson(available=False)).run(asked, seen.append)
    assert (result.text, result.origin) == ("⟦dry-run c2/s1⟧", "dry-run")
    assert seen == [SessionProgress("note", shown(asked))]
    assert result.details["permissions"] == {"bash": "deny"}
    assert (result.details["model"], result.details["skills"]) == ("opus", ["search"])
    assert result.details["sizes"] == {"task": 13, "output": 63}


async def test_a_dry_run_runs_no_command(tmp_path: Path) -> None:
    shown_live: list[str] = []
    asked = CommandRequest(f"touch {tmp_path}/made\necho done", str(tmp_path), 120.0)
    result = await DryRunCommands().run(asked, lambda stream, text: shown_live.append(text))
    assert (result.exit_code, result.stdout) == (0, f"⟦dry-run exec touch {tmp_path}/made⟧\n")
    assert shown_live == [result.stdout]
    assert list(tmp_path.iterdir()) == []
