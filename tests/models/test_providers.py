"""The keyless providers through the `Sessions` port (sessions.md 3.1, 3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from machine.fakes import FakeClock
from models.people import LeavingPerson, ScriptedPerson, SilentPerson
from scaling import assert_linear

from prose_kernel.errors import NoProvider, ProviderError, UsageError
from prose_kernel.language.structs import replace
from prose_kernel.models.providers.human import HELP, LONGEST, MORE, HumanSessions
from prose_kernel.models.providers.provider_choice import KEYLESS, Choice, Unconfigured, choice_of, judge_choice
from prose_kernel.models.providers.scripted import Reply, Script, ScriptedSessions, load_script
from prose_kernel.runs.provider_chain import connect
from prose_kernel.runs.session_description import DryRunCommands
from prose_kernel.runtime.ports import CommandRequest, ContextItem, SessionRequest, SessionResult, Sessions
from prose_kernel.runtime.session_options import AgentCommand, JudgeOptions, ModelServer, SessionOptions, Surroundings


def request(task: str = "Write a haiku", at: str = "c1/s0", **more: object) -> SessionRequest:
    return SessionRequest("session", task, at, **more)  # type: ignore[arg-type]


async def run(sessions: Sessions, asked: SessionRequest) -> SessionResult:
    return await sessions.run(asked, lambda progress: None)


def scripted(entries: dict[str, object], clock: FakeClock | None = None) -> Sessions:
    return ScriptedSessions(Script(entries), clock or FakeClock())


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
    sessions = ScriptedSessions(script, FakeClock())
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
        ("- a\n- b\n", "script s.yaml isn't a mapping of a pattern to a reply"),
        ('a: "x\n', "script s.yaml isn't YAML at line 2"),
        ("a: {delay: soon}\n", "script: the delay of `a` isn't a duration"),
        ("a: []\n", "script: `a` has an empty list of replies"),
        ("a: [[b]]\n", "script: the answer of `a` is not text"),
        ("/(/: b\n", "script: `/(/` is not a regular expression: missing ), unterminated subpattern at position 0"),
        ("judge: yes\n", "script: `judge` isn't a mapping of a pattern to a reply"),
        ("judge: {a: {b: c}}\n", "script: the answer of `a` is not text"),
        ("\x00", "script s.yaml isn't YAML"),
        ("[" * 1_000, "script s.yaml is nested too deeply"),
    ],
)
def test_invalid_scripts_are_usage_errors(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        load_script(path)
    assert str(refused.value) == message


def test_a_script_of_brackets_is_refused_quickly(tmp_path: Path) -> None:
    def refused(count: int) -> Callable[[], None]:
        path = tmp_path / f"{count}.yaml"
        path.write_text("[" * count)

        def load() -> None:
            with pytest.raises(UsageError):
                load_script(path)

        return load

    assert_linear(refused, 500)


def test_a_missing_script_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^script gone\.yaml cannot be read: no such file or directory$"):
        load_script(tmp_path / "gone.yaml")


# ---------------------------------------------------------------- human


async def test_a16_a_one_line_answer_ends_with_enter_and_the_question_is_last() -> None:
    person = ScriptedPerson("", "  ", "Old pond", "not read")
    context = (ContextItem("plan", text="first this"),)
    result = await run(HumanSessions(person), request(context=context))
    assert (result.text, person.answers) == ("Old pond", ["not read"])
    assert person.transcript == [f"session\n\nContext:\n- plan: first this\n\n({HELP})\n\nWrite a haiku", *["? > "] * 3]


async def test_a16_more_opens_several_lines_ended_by_a_dot() -> None:
    person = ScriptedPerson(":more", "Old pond", "", "..", "::skip", ":smile:", ".")
    asked = request(permissions={"bash": "deny"})
    result = await run(HumanSessions(person), asked)
    assert (result.text, result.summary) == ("Old pond\n\n.\n:skip\n:smile:", "Old pond")
    assert (result.provider, result.origin) == ("human", "human")
    assert person.transcript == [
        f"session\nPermissions:\n  bash: deny\n\n({HELP})\n\nWrite a haiku",
        "? > ",
        MORE,
        *["? > "] * 6,
    ]


async def test_a_larger_box_may_give_all_lines_together() -> None:
    result = await run(HumanSessions(ScriptedPerson("one\ntwo\n.\nafter")), request())
    assert result.text == "one\ntwo"


async def test_skip_is_an_empty_answer() -> None:
    result = await run(HumanSessions(ScriptedPerson(":more", "half", ":skip")), request())
    assert (result.text, result.summary, dict(result.details)) == ("", "skipped", {"skipped": True})


@pytest.mark.parametrize(
    ("line", "message"), [(":fail no idea", "no idea"), (":fail", "failed by the person who answered")]
)
async def test_fail_is_a_failed_attempt(line: str, message: str) -> None:
    with pytest.raises(ProviderError) as failed:
        await run(HumanSessions(ScriptedPerson(line)), request())
    assert (str(failed.value), failed.value.retryable) == (message, True)


async def test_show_shows_again() -> None:
    person = ScriptedPerson(":more", "kept", ":show", ".")
    assert (await run(HumanSessions(person), request())).text == "kept"
    assert person.transcript[0] == person.transcript[5]


async def test_a_person_reads_the_context_itself_and_long_parts_when_they_ask_for_them() -> None:
    plan = "step\n" * LONGEST
    context = (ContextItem("plan", ".prose/runs/r/bindings/plan.md", content=plan), ContextItem("gone", missing=True))
    person = ScriptedPerson(":show", "done")
    await run(HumanSessions(person), request(context=context, memory=None))
    first, whole = (shown for shown in person.transcript if not shown.startswith("?"))
    assert "`:show` shows all]" in first
    assert first.count("step") < 1000
    assert whole.count("step") == LONGEST
    assert "gone: (no result)" in whole
    assert ".prose" not in whole


async def test_quit_interrupts_the_run() -> None:
    running: list[asyncio.Task[SessionResult]] = []
    person = ScriptedPerson(":quit")
    sessions = HumanSessions(person, lambda: running[0].cancel())
    running.append(asyncio.create_task(run(sessions, request())))
    with pytest.raises(asyncio.CancelledError):
        await running[0]


async def test_quit_without_a_run_to_interrupt_is_a_final_failure() -> None:
    with pytest.raises(ProviderError, match="the person who answered quit") as failed:
        await run(HumanSessions(ScriptedPerson(":quit")), request())
    assert not failed.value.retryable


async def test_a_person_who_leaves_counts_as_non_interactive() -> None:
    with pytest.raises(NoProvider, match="no person can answer"):
        await run(HumanSessions(LeavingPerson()), request())


async def test_end_of_input_and_a_missing_person_are_not_a_provider() -> None:
    with pytest.raises(NoProvider, match="the person's input has ended before this session was answered"):
        await run(HumanSessions(ScriptedPerson(":more", "half")), request())
    with pytest.raises(NoProvider, match="no person can answer"):
        await run(HumanSessions(ScriptedPerson(available=False)), request())


async def test_concurrent_sessions_are_asked_one_at_a_time_in_order() -> None:
    person = ScriptedPerson(*[line for n in range(5) for line in (":more", f"answer {n}", "more", ".")])
    sessions = HumanSessions(person)
    results = await asyncio.gather(*(run(sessions, request(f"task {n}", f"c1/b{n}/s0")) for n in range(5)))
    assert [result.text for result in results] == [f"answer {n}\nmore" for n in range(5)]
    assert person.most_asking == 1


async def test_a_cancelled_session_gives_up_its_turn() -> None:
    person = SilentPerson()
    sessions = HumanSessions(person)
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


async def test_text_for_a_person_cannot_control_the_terminal() -> None:
    person = ScriptedPerson("ok")
    await run(HumanSessions(person), request("\x1b[2Jwipe\u202e"))
    assert "\x1b" not in person.transcript[0]
    assert "\ufffd[2Jwipe\ufffd" in person.transcript[0]


# ---------------------------------------------------------------- nothing configured


NOTICE = (
    "No model is configured, so you answer this program's sessions yourself.\n"
    "To use a model: `%provider anthropic` (ANTHROPIC_API_KEY must be set)."
)


def plain(shown: str) -> str:
    """Remove the command that installs missing packages."""
    return shown.replace("; first `%pip install 'prose_kernel[llm]'`", "")


async def test_a16_with_nothing_configured_the_person_answers_after_one_notice_of_two_lines() -> None:
    person = ScriptedPerson("a", "b")
    sessions = Unconfigured(person)
    results = await asyncio.gather(run(sessions, request("one")), run(sessions, request("two")))
    assert [result.text for result in results] == ["a", "b"]
    assert [plain(shown) for shown in person.transcript].count(NOTICE) == 1
    assert plain(person.transcript[0]) == NOTICE and len(NOTICE.splitlines()) == 2


async def test_a16_the_notice_names_the_true_cause_and_commands_that_work_there() -> None:
    person = ScriptedPerson("a")
    person.magic = ""  # type: ignore[attr-defined]
    where = Surroundings(".", environment={"OPENROUTER_API_KEY": "sk-abcdefgh"})
    await run(Unconfigured(person, options=SessionOptions(), where=where), request())
    first, second = person.transcript[0].splitlines()
    assert first == (
        "OPENROUTER_API_KEY is set, but openrouter has no default model, so you answer this program's sessions yourself."
    )
    assert second.startswith("To use a model: `prose run --provider openrouter:MODEL FILE`") and "%" not in second
    for variable in ("GEMINI_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY"):
        other = ScriptedPerson("a")
        where = Surroundings(".", environment={variable: "k"})
        await run(Unconfigured(other, options=SessionOptions(), where=where), request())
        notice = other.transcript[0]
        vendor = {"GEMINI_API_KEY": "google"}.get(variable, variable.partition("_")[0].lower())
        assert f"\nTo use a model: `%provider {vendor}`" in notice
        if "not installed" in notice:
            assert notice.endswith(f"(first `%pip install 'pydantic-ai-slim[{vendor}]'`).")
    off = ScriptedPerson("a")
    off.magic = "%prose "  # type: ignore[attr-defined]
    where = Surroundings(".", environment={"ANTHROPIC_API_KEY": "sk-ant-abcdefgh"})
    await run(Unconfigured(off, options=SessionOptions(autodetect=False), where=where), request())
    assert off.transcript[0].startswith("ANTHROPIC_API_KEY is set, but autodetect is off, so you answer")
    assert "\nTo use a model: `%prose provider anthropic`" in off.transcript[0]


async def test_non_interactive_with_nothing_configured_the_error_names_the_fix() -> None:
    person = ScriptedPerson("a", ".", available=False)
    sessions = Unconfigured(person)
    with pytest.raises(NoProvider) as refused:
        await run(sessions, request())
    assert str(refused.value) == "no model is configured, and no person can answer this session"
    assert "PROSE_PROVIDER=dry-run" in (refused.value.hint or "")
    assert person.transcript == []
    person.available = True  # retryable, because the next cell may allow stdin
    assert (await run(sessions, request())).text == "a"


OPTIONS = SessionOptions(
    servers={"mine": ModelServer("openai", "http://127.0.0.1:9/v1")},
    agents={"opencode": AgentCommand(("opencode", "acp"))},
)


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        (None, Choice("none")),
        ("human", Choice("human")),
        ("replay", Choice("replay")),
        ("anthropic", Choice("model", "anthropic")),
        ("ollama:llama3.3:8b", Choice("model", "ollama", "llama3.3:8b")),
        ("mine", Choice("model", "mine")),
        ("google:gemini", Choice("model", "google", "gemini")),
        ("acp:opencode", Choice("agent", "opencode")),
    ],
)
def test_names_of_providers(name: str | None, choice: Choice) -> None:
    assert choice_of(name, OPTIONS) == choice


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("claude", "there is no provider `claude`", f"one of {', '.join(KEYLESS)}, anthropic, "),
        ("antropic", "there is no provider `antropic`", "did you mean `anthropic`?"),
        ("nope", "there is no provider `nope`", f"one of {', '.join(KEYLESS)}, anthropic, "),  # not openai
        ("acp:goose", "there is no CLI agent `goose`", "configured here: acp:opencode; prose.toml: [agents.goose] "),
    ],
)
def test_providers_that_do_not_exist(name: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        choice_of(name, OPTIONS)
    assert str(refused.value) == message
    assert (refused.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("provider", "judge", "choice"),
    [
        (None, None, Choice("none")),
        ("human", None, Choice("none")),
        ("anthropic", None, Choice("model", "anthropic")),
        ("acp:opencode", None, Choice("agent", "opencode")),
        ("acp:opencode", "mine:judge", Choice("model", "mine", "judge")),
        ("anthropic", "off", Choice("none")),
        ("human", "anthropic", Choice("model", "anthropic")),
    ],
)
def test_the_choice_of_the_judge(provider: str | None, judge: str | None, choice: Choice) -> None:
    assert judge_choice(replace(OPTIONS, provider=provider, judge=JudgeOptions(provider=judge))) == choice


def test_replay_cannot_judge() -> None:
    with pytest.raises(UsageError, match="`replay` cannot judge"):
        judge_choice(replace(OPTIONS, judge=JudgeOptions(provider="replay")))


def test_scripted_without_a_script_is_an_error() -> None:
    with pytest.raises(UsageError, match="provider scripted has no script") as refused:
        connect(ScriptedPerson(), SessionOptions(provider="scripted"))
    assert refused.value.hint is not None and "--script FILE" in refused.value.hint


# ---------------------------------------------------------------- dry run


async def test_a_dry_run_runs_no_command(tmp_path: Path) -> None:
    shown_live: list[str] = []
    asked = CommandRequest(f"touch {tmp_path}/made\necho done", str(tmp_path), 120.0)
    result = await DryRunCommands().run(asked, lambda stream, text: shown_live.append(text))
    assert (result.exit_code, result.stdout) == (0, f"⟦dry-run exec touch {tmp_path}/made⟧\n")
    assert shown_live == [result.stdout]
    assert list(tmp_path.iterdir()) == []
