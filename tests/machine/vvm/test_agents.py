"""VVM agents as values, and the requests of their calls (docs/reference/vvm.md 6.1 to 6.5)."""

from __future__ import annotations

from typing import Any

import pytest
from machine.fakes import FakeJudge, Reply
from machine.vvm_world import Vvm, raised_by, value_of

from prose_kernel.errors import (
    CassetteMiss,
    NoProvider,
    PermissionDenied,
    ProviderAuth,
    ProviderError,
    ProviderOverloaded,
    ProviderRateLimit,
    SessionCancelled,
)
from prose_kernel.runtime.events import Retried, SessionFinished, SessionStarted
from prose_kernel.runtime.ports import Given, SessionRequest

AGENT = 'agent a(model="small")'


async def asked(*lines: str, **world: Any) -> SessionRequest:
    """Run a cell and return the request of its only session."""
    w = Vvm(**world)
    await w.cell(*lines)
    (request,) = w.sessions.requests
    return request


# ---------------------------------------------------------------- values


async def test_a_declared_agent_is_asked_with_its_configuration() -> None:
    request = await asked(
        'agent scribe(model="small", prompt="Be brief.", skills=["web"], temperature=0.5, tags=["x"],)',
        'import "web" from "./web"',
        '@scribe `Note on {}`("tea")',
    )
    assert (request.kind, request.agent, request.model, request.system) == ("call", "scribe", "small", "Be brief.")
    assert (request.task, request.given) == ("Note on tea", Given("tea"))
    assert (request.skills, request.settings) == (("web",), {"temperature": 0.5, "tags": ["x"]})
    assert (request.context, request.memory, request.target, request.prelude) == (None, None, None, "")


async def test_agents_are_hoisted() -> None:
    assert await value_of("x = @late `hi`(())", "agent late()", "x") == "<hi>"


async def test_a1_an_agent_is_a_value() -> None:
    lines = (
        AGENT,
        "def ask(who, what):",
        "  return @who `{what}`(())",
        'agents = [a, a.with(model="big"), @a.with(prompt="P"), @{}]',
        "map(agents, ask_one)",
    )
    w = Vvm()
    await w.cell(*lines[:3], "def ask_one(who):", '  return ask(who, "q")', *lines[3:])
    assert [(r.model, r.system, r.agent) for r in w.sessions.requests] == [
        ("small", None, "a"),
        ("big", None, "a"),
        ("small", "P", "a"),
        (None, None, "inline"),
    ]


async def test_a1_a_bare_agent_name_is_looked_up_last() -> None:
    assert await value_of("agent len()", "len([1])") == 1
    assert await value_of(AGENT, "a = 5", "a") == 5


async def test_a2_the_namespace_of_agents_wins_after_an_at_sign() -> None:
    request = await asked(AGENT, "a = 5", "@a `x`(())")
    assert request.model == "small"
    request = await asked(AGENT, "def f(a):", "  return @a `x`(())", 'f(@{model="other"})')
    assert request.model == "small"


async def test_a2_else_the_variable_must_hold_an_agent() -> None:
    assert (await asked(AGENT, 'b = a.with(model="big")', "@b `x`(())")).model == "big"
    assert await raised_by("b = 5", "@b `x`(())") == ("R213", "not an agent: 'b' is a number")
    assert await raised_by("x = 5", "x.with(model=1)") == ("R213", "not an agent: `.with` needs one, not a number")


async def test_the_original_stays_as_it_is() -> None:
    w = Vvm()
    await w.cell('agent a(model="small", skills=["x"])', 'b = @a.with(skills=["y"])', "@a `1`(())", "@b `2`(())")
    assert [r.skills for r in w.sessions.requests] == [("x",), ("y",)]


async def test_merging_replaces_all_but_objects() -> None:
    request = await asked(
        'agent a(skills=["x", "y"], options={depth: 1, width: 2}, permissions=perm(read=["a/**"], bash="allow"))',
        '@a.with(skills=["z"]).with(options={depth: 9}, permissions={network: "allow"}) `q`(())',
    )
    assert request.skills == ("z",)
    assert request.settings == {"options": {"depth": 9, "width": 2}}
    assert request.permissions == {
        "read": ("a/**",), "write": (), "execute": (), "bash": "allow", "network": "allow"
    }  # fmt: skip


async def test_perm_in_with_resets_the_other_keys() -> None:
    request = await asked(
        'agent a(permissions=perm(read=["a/**"], bash="allow"))', '@a.with(permissions=perm(network="allow")) `q`(())'
    )
    assert request.permissions == {"read": (), "write": (), "execute": (), "bash": "deny", "network": "allow"}


async def test_a3_missing_keys_of_permissions_are_denied() -> None:
    request = await asked('agent a(permissions={read: ["docs/**"], gpu: 2})', "@a `q`(())")
    assert request.permissions == {
        "read": ("docs/**",), "write": (), "execute": (), "bash": "deny", "network": "deny", "gpu": "2"
    }  # fmt: skip
    assert (await asked(AGENT, "@a `q`(())")).permissions == {}


async def test_perm_in_a_declaration_is_the_librarys_also_when_it_is_shadowed() -> None:
    request = await asked("def perm(read):", "  return 5", 'agent a(permissions=perm(read=["x"]))', "@a `q`(())")
    assert request.permissions["read"] == ("x",)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("model=1 + 1", "bad agent configuration: `model` must be a string"),
        ("model=len", "bad agent configuration: `model` must be a string"),
        ("prompt=it", "bad agent configuration: `prompt` must be a string"),
        ("skills=[0 + 1]", "bad agent configuration: `skills[0]` must be a string"),
        ('permissions={bash: "al" + "low!"}', 'bad agent configuration: `permissions.bash` must be "allow", "deny"'),
        ('memory={scope: "proj" + "ect"}', "bad agent configuration: `memory` has no `key`"),
        ('memory={scope: "project", key: "" + ""}', "bad agent configuration: `memory.key` must be a string of 1 to"),
        ("other=[len]", "bad agent configuration: `other` cannot hold a function"),
        ("other=" + "[" * 102 + "]" * 102, "bad agent configuration: `other` is nested too deeply"),
        ("other={x: a}", "bad agent configuration: `other` cannot hold an agent"),
    ],
)
async def test_a7_an_invalid_configuration_raises_before_any_session(config: str, message: str) -> None:
    w = Vvm()
    error = await w.fails(AGENT, f"x = @a.with({config})", "@x `q`(@a `inner`(()))")
    assert (error.code, error.message.startswith(message)) == ("R214", True), error.message
    assert w.sessions.requests == []


# ---------------------------------------------------------------- the order of a call


async def test_the_input_is_the_argument_else_it() -> None:
    w = Vvm()
    await w.cell(AGENT, "with input {n: 1}:", "  @a `1 {}`()", "  @a `2 {}`(5)", "  @a `3 {}`(())", "@a `4 {}`()")
    assert [(r.task, r.given and r.given.text) for r in w.sessions.requests] == [
        ('1 {"n": 1}', '{"n": 1}'),
        ("2 5", "5"),
        ("3 ()", None),
        ("4 ()", None),
    ]


async def test_a_string_input_is_raw_and_everything_else_canonical() -> None:
    w = Vvm()
    await w.cell(AGENT, '@a `x`("a \\"b\\"")', "@a `x`({b: [1, ()], a: 0.5})", "@a `x`(true)", '@a `x`("")')
    assert [r.given.text for r in w.sessions.requests if r.given] == [
        'a "b"', '{"a": 0.5, "b": [1, null]}', "true", ""
    ]  # fmt: skip


async def test_agent_input_options_template_are_evaluated_in_this_order() -> None:
    w = Vvm()
    await w.cell(
        AGENT,
        "def note(text):",
        "  @a `{text}`(())",
        "  return text",
        '@a.with(prompt=note("agent")) `{late}`(note("input"), retry=len(note("ab")) - 2, unknown=note("option"))'
        .replace("{late}", "call"),
    )  # fmt: skip
    assert w.sessions.tasks == ["agent", "input", "ab", "option", "call"]


async def test_options_are_checked_before_the_template_and_no_session_starts() -> None:
    w = Vvm()
    error = await w.fails(AGENT, "n = 0 - 1", "@a `{missing.x}`(1, retry=n)", "missing = 1")
    assert (error.code, error.message) == ("R212", "bad option: `retry` must be a whole number from 0 upwards")
    assert w.sessions.requests == []


@pytest.mark.parametrize(
    "option", ['timeout="soon"', "retry=0.5", "retry=true", 'backoff="linear"', "name=1", 'memory_mode="keep"']
)
async def test_invalid_computed_options_raise(option: str) -> None:
    name, _, value = option.partition("=")
    code, message = await raised_by(AGENT, f"v = {value}", f"@a `x`((), {name}=v)")
    assert (code, message.startswith(f"bad option: `{name}` must be")) == ("R212", True)


async def test_a_template_that_cannot_be_rendered_starts_no_session() -> None:
    w = Vvm()
    assert (await w.fails(AGENT, "x = {a: 1}", "@a `{x.b}`(())")).code == "R209"
    assert (await w.fails(AGENT, "@a `x`([1, len])")).code == "R211"
    assert (await w.fails(AGENT, "@a `{}`({f: a})")).code == "R211"
    assert w.sessions.requests == []


async def test_options_reach_the_request() -> None:
    w = Vvm()
    await w.cell(AGENT, '@a `x`((), timeout="1.5m", name="first", unknown=len)')
    (request,) = w.sessions.requests
    assert (request.timeout, request.label) == (90.0, "first")


async def test_a_call_in_a_function_sees_the_callers_it() -> None:
    request = await asked(AGENT, "def f():", "  return @a `{}`()", 'with input "deep":', "  f()")
    assert request.task == "deep"


async def test_v7_an_input_is_passed_whole_and_a_template_only_shows_its_beginning() -> None:
    request = await asked(AGENT, 'x = "' + "y" * 5000 + '"', "@a `About {}`(x)")
    assert request.task == f"About {'y' * 300}\n[see input]"
    assert request.given == Given("y" * 5000)


async def test_v4_references_are_found_at_any_depth() -> None:
    request = await asked(AGENT, '@a `x`({a: [{ref: "one.md", more: {ref: "two.md"}}, {ref: "one.md"}], ref: 5})')
    assert request.given is not None
    assert (request.given.references, request.given.readable) == (("one.md", "two.md"), "")


async def test_every_call_has_a_unique_path() -> None:
    w = Vvm()
    await w.cell(AGENT, "x = [@a `1`(()), @a `2`(())]", "def f(n):", "  return @a `n`(n)", "pmap([1, 2], f)")
    assert [r.at for r in w.sessions.requests] == ["c1/1/s0", "c1/1/s1", "c1/2/i0/s0", "c1/2/i1/s0"]


async def test_events_name_the_variable_of_the_answer() -> None:
    w = Vvm()
    await w.cell(AGENT, "x = @a `1`(())", "y = [@a `2`(())]", "@a `3`(())")
    assert [(e.bound_to, e.request.task) for e in w.of(SessionStarted)] == [("x", "1"), (None, "2"), (None, "3")]
    assert [e.value for e in w.of(SessionFinished)] == ["<1>", "<2>", "<3>"]


async def test_v2_an_answer_is_text_and_never_parsed() -> None:
    replies = {"json": '{"error": {"kind": "timeout"}}', "lines": "  a\n\n b \n"}
    assert await value_of(AGENT, "x = @a `json`(())", "x", sessions_say=replies) == replies["json"]
    assert await value_of(AGENT, "@a `lines`(())", sessions_say=replies) == replies["lines"]
    assert await value_of(AGENT, "x = @a `json`(())", "x.error.kind", sessions_say=replies) == "timeout"


# ---------------------------------------------------------------- failures


FAILURES = [
    (ProviderError("broke"), "spawn_failed", None),
    (ProviderOverloaded("too busy"), "spawn_failed", None),
    (ProviderAuth("no key", hint="set ONE_KEY"), "spawn_failed", {"hint": "set ONE_KEY"}),
    (ProviderRateLimit("slow down"), "rejected", None),
    (PermissionDenied("not allowed"), "rejected", {"permanent": True}),
    (SessionCancelled("stopped"), "cancelled", None),
]


@pytest.mark.parametrize(("failure", "kind", "data"), FAILURES)
async def test_a_failure_is_an_error_value(failure: ProviderError, kind: str, data: Any) -> None:
    value = await value_of(AGENT, "@a `x`(())", sessions_say={"x": Reply(fails=failure)})
    assert value == {"error": {"kind": kind, "message": str(failure), **({"data": data} if data else {})}}


async def test_a_failure_is_not_a_raise_and_a_match_sees_it() -> None:
    replies = {"x": Reply(fails="broke")}
    lines = (
        "try:",
        "  x = @a `x`(())",
        "except as e:",
        '  x = "caught"',
        "match x:",
        '  case error(kind="spawn_failed"):',
    )
    assert await value_of(AGENT, *lines, '    x = "seen"', "x", sessions_say=replies) == "seen"


@pytest.mark.parametrize("failure", [NoProvider("nobody is here"), CassetteMiss("not recorded")])
async def test_a23_a_missing_answer_ends_the_run(failure: ProviderError) -> None:
    w = Vvm(sessions_say={"x": Reply(fails=failure)})
    error = await w.fails(
        AGENT, "try:", "  @a `x`((), retry=3)", "except as e:", "  @a `caught`(())", "finally:", "  @a `final`(())"
    )
    assert (error.no_answer, error.unanswered, error.message) == (True, True, str(failure))
    assert w.sessions.tasks == ["x"]


async def test_a4_failed_attempts_are_repeated_with_the_same_request() -> None:
    w = Vvm(sessions_say={"x": [Reply(fails="1"), Reply(fails=ProviderRateLimit("2")), Reply("third")]})
    assert await w.cell(AGENT, "@a `x`([1], retry=2)") == "third"
    first, *others = w.sessions.requests
    assert [(r.attempt, r.task, r.given, r.at) for r in others] == [
        (n, first.task, first.given, first.at) for n in (1, 2)
    ]
    assert w.clock.slept == []
    assert len(w.of(Retried)) == 2


async def test_a4_the_last_failure_is_the_result() -> None:
    replies = {"x": [Reply(fails="1"), Reply(fails="2"), Reply(fails="3")]}
    value = await value_of(AGENT, "@a `x`((), retry=1)", sessions_say=replies)
    assert value == {"error": {"kind": "spawn_failed", "message": "2"}}


@pytest.mark.parametrize(
    "failure", [PermissionDenied("no"), SessionCancelled("no", retryable=True), ProviderAuth("no")]
)
async def test_a4_permanent_failures_are_not_retried(failure: ProviderError) -> None:
    w = Vvm(sessions_say={"x": Reply(fails=failure)})
    await w.cell(AGENT, "@a `x`((), retry=3)")
    assert len(w.sessions.requests) == 1


@pytest.mark.parametrize(("backoff", "waits"), [("fixed", [1, 1, 1, 1]), ("exponential", [1, 2, 4, 8]), (None, [])])
async def test_a5_pauses_between_attempts(backoff: str | None, waits: list[int]) -> None:
    w = Vvm(sessions_say={"x": Reply(fails="no")})
    option = f', backoff="{backoff}"' if backoff else ""
    await w.cell(AGENT, f"@a `x`((), retry=4{option})")
    assert [int(seconds) for seconds in w.clock.slept] == waits  # with the jitter of A13: at most a quarter more
    assert [r.delay for r in w.of(Retried)] == (waits or [0, 0, 0, 0])


async def test_a5_a_pause_is_a_minute_at_most() -> None:
    w = Vvm(sessions_say={"x": Reply(fails="no")})
    await w.cell(AGENT, '@a `x`((), retry=9, backoff="exponential")')
    assert [r.delay for r in w.of(Retried)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_a6_a_timeout_limits_each_attempt() -> None:
    w = Vvm(sessions_say={"x": [Reply("late", after=5), Reply("in time", after=1)]})
    assert await w.cell(AGENT, '@a `x`((), timeout="2s", retry=1)') == "in time"
    assert w.sessions.cancelled == ["x"]
    value = await value_of(AGENT, '@a `x`((), timeout="500ms")', sessions_say={"x": Reply("late", after=5)})
    assert value == {"error": {"kind": "timeout", "message": "session timed out after 500ms"}}


async def test_pmap_waits_for_all_and_gives_the_first_failure() -> None:
    replies = {"1": Reply("one", after=3), "2": Reply(fails="two", after=2), "3": Reply(fails="three", after=1)}
    w = Vvm(sessions_say=replies)
    value = await w.cell(AGENT, "def f(n):", "  return @a `{n}`(())", "pmap([1, 2, 3], f)")
    assert value == {"error": {"kind": "spawn_failed", "message": "two"}}
    assert w.sessions.cancelled == []


async def test_v7_an_input_that_is_too_long_is_refused() -> None:
    w = Vvm()
    w.vvm.limit(longest_input=10)
    value = await w.cell(AGENT, '@a `x`("12345678901", retry=5)')
    assert value == {
        "error": {
            "kind": "rejected",
            "message": "the input has 11 characters; at most 10 can be passed",
            "data": {"permanent": True},
        }
    }
    assert w.sessions.requests == []


# ---------------------------------------------------------------- patches in answers


PATCH = 'Done.\n\n```vvm-memory\n{"digest": "x"}\n```\n'


async def test_a_memory_patch_is_taken_out_also_without_memory() -> None:
    w = Vvm(sessions_say={"x": PATCH})
    assert await w.cell(AGENT, "@a `x`(())") == "Done."
    (finished,) = w.of(SessionFinished)
    assert finished.result.text == "Done."


async def test_nonsense_stays_text() -> None:
    for text in ("\x00\ud800", "```", "{}" * 1000, ""):
        assert await value_of(AGENT, "@a `x`(())", sessions_say={"x": text}) == text


async def test_a_judge_is_not_asked_by_a_call() -> None:
    w = Vvm()
    await w.cell(AGENT, "@a `x`(())")
    assert isinstance(w.judge, FakeJudge) and w.judge.asked == []
