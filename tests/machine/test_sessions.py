"""`session`, `resume`, `context` and `retry` (openprose.md 3.13, 4, 7.4)."""

from __future__ import annotations

import asyncio

import pytest
from machine.fakes import Reply, World, lines, value_of

from prose_kernel.errors import ProviderRateLimit, StateError
from prose_kernel.runtime.events import Retried, SessionFinished, SessionStarted
from prose_kernel.runtime.ports import Binding, ContextItem, SessionRequest
from prose_kernel.runtime.values import Reference


async def request_of(*text: str, **world: object) -> SessionRequest:
    w = World(**world)  # type: ignore[arg-type]
    await w.run(lines(*text))
    return w.sessions.requests[-1]


@pytest.mark.parametrize(
    ("session", "task", "system"),
    [
        (['session "do it"'], "do it", None),
        (['session "title"', '  prompt: "body"'], "title\n\nbody", None),
        (["session: a"], "you are a", None),
        (["session: a", '  prompt: "mine"'], "mine", "you are a"),
        (["session: bare", '  prompt: "mine"'], "mine", None),
        (["session:", '  prompt: "mine"'], "mine", None),
    ],
)
async def test_task_and_system(session: list[str], task: str, system: str | None) -> None:
    request = await request_of("agent a:", '  prompt: "you are a"', "agent bare:", "  model: opus", *session)
    assert (request.task, request.system) == (task, system)


async def test_configuration_is_merged() -> None:
    request = await request_of(
        "agent a:", "  model: opus", '  prompt: "p"', '  skills: ["one", "two"]', "  permissions:", '    read: ["*.md"]',
        "    bash: deny", 'let url = "http://x"', "session: a", "  model: haiku", "  permissions:", "    bash: allow", "    network: [url]",
    )  # fmt: skip
    assert (request.agent, request.model, request.skills) == ("a", "haiku", ("one", "two"))
    assert request.permissions == {"read": ("*.md",), "bash": "allow", "network": ("http://x",)}


@pytest.mark.parametrize(
    ("agent", "session", "tools", "bare"),
    [
        ("none", None, (), True),
        ('["a"]', "none", (), True),
        ("none", '["b"]', ("b",), True),
        ('["a"]', '["b"]', ("a", "b"), False),
    ],
)
async def test_a42_tools_none(agent: str, session: str | None, tools: tuple[str, ...], bare: bool) -> None:
    more = [f"  tools: {session}"] if session else []
    request = await request_of("agent a:", f"  tools: {agent}", "session: a", '  prompt: "Go"', *more)
    assert (request.tools, request.bare) == (tools, bare)


async def test_a42_contexts_are_ordered_by_age() -> None:
    w = World()
    await w.run(
        lines(
            'let first = "1"',
            'let second = "2"',
            'first = "3"',
            'for item in ["x"]:',
            '  session "Go"',
            "    context: [item, first, second]",
            'session "End"',
            '  context: "text"',
        )
    )
    items = w.sessions.requests[0].context or ()
    assert [item.name for item in sorted(items, key=lambda item: item.age)] == ["second", "first", "item"]
    assert [item.age for item in w.sessions.requests[1].context or ()] == [()]


async def test_agent_prompts_are_interpolated_when_spawned() -> None:
    request = await request_of("agent a:", '  prompt: "know {topic} and {nothing}"', 'let topic = "tea"', "session: a")
    assert request.task == "know tea and {nothing}"


async def test_unknown_names_stay_and_are_reported_once() -> None:
    w = World()
    await w.run(lines("block f():", "  repeat 2:", '    session "say {later} {never}"', "do f()", "let later = 1"))
    assert w.sessions.tasks == ["say {later} {never}"] * 2
    assert w.warnings() == ["W108"]


async def test_interpolation_takes_members_and_indexes() -> None:
    w = World()
    await w.run(
        lines('let a = { b: [{ c: "deep" }] }', "let i = 0", 'session "{a.b[0].c} {a.b[i].c} {a.b} {{a}} {a }"')
    )
    assert w.sessions.tasks == ['deep deep [{"c":"deep"}] {{a}} {a }']


async def test_every_session_leaves_a_binding() -> None:
    w = World()
    await w.run(
        lines('session "a"', 'let x = session "b"', 'session "c"', "agent z:", '  prompt: "p"', "session lab: z")
    )
    assert list(w.store.kept) == ["anon_001", "x", "anon_002", "anon_003"]
    assert w.store.kept["anon_003"].label == "lab"
    assert w.store.kept["x"].source == 'let x = session "b"'
    assert [r.target.location if r.target else None for r in w.sessions.requests] == [
        "bindings/anon_001.md", "bindings/x.md", "bindings/anon_002.md", "bindings/anon_003.md",
    ]  # fmt: skip


async def test_paths_and_positions() -> None:
    w = World()
    await w.run(
        lines(
            'let a = session "1"',
            "repeat 2:",
            '  session "2"',
            "parallel:",
            '  session "3"',
            "  parallel for v in [1]:",
            '    session "4"',
        ),
        cell=True,
    )
    assert [r.at for r in w.sessions.requests] == ["c1/1/s0", "c1/2/s0", "c1/2/s1", "c1/3/b0/s0", "c1/3/b1/i0/s0"]
    assert [r.position for r in w.sessions.requests] == [1, 2, 2, 3, 3]
    assert w.sessions.requests[-1].finished == ("a",)


async def test_the_scope_of_a_block() -> None:
    request = await request_of("block f():", '  session "x"', "block g():", "  do f()", "do g()")
    assert request.scope is not None
    scope = request.scope
    assert (scope.execution_id, scope.block, scope.depth, scope.parent_execution_id) == (2, "f", 2, 1)
    assert request.target is not None
    assert request.target.location == "bindings/anon_001__2.md"


async def test_a_value_is_a_reference_and_not_read_when_passed_on() -> None:
    w = World(sessions_say={"a": Reply("written by the session", kind="self")})
    await w.run(lines('let x = session "a"', 'session "b"', "  context: x"))
    value = w.machine.bindings()["x"].value
    assert isinstance(value, Reference)
    assert (value.location, value.summary, value.read()) == ("bindings/x.md", "written", "written by the session")


async def test_a_reference_keeps_its_text_when_the_binding_is_written_again() -> None:
    w = World()
    await w.run(
        lines(
            'let x = session "a"',
            "let y = x",
            "let all = [x]",
            'x = session "b"',
            'session "{x} {y}"',
            "  context: [x, y]",
        )
    )
    assert w.values("x", "y", "all") == ["<b>", "<a>", ["<a>"]]
    assert w.sessions.tasks[-1] == "<b> <a>"


async def test_an_announced_binding_that_is_missing() -> None:
    w = World(sessions_say={"a": Reply("", kind="self")})
    error = await w.fail('let x = session "a"\n  retry: 1\n')
    assert (error.code, len(w.sessions.requests)) == ("E218", 2)


async def test_a_former_value_does_not_count_as_the_announced_binding() -> None:
    w = World(sessions_say={"b": Reply("", kind="self")})
    error = await w.fail('let x = session "a"\nx = session "b"\n')
    assert (error.code, error.message) == ("E218", "the session announced 'x' but did not write it")
    assert w.value("x") == "<a>"


async def test_sessions_that_write_the_same_name_keep_former_values() -> None:
    w = World(sessions_say={"one": Reply("first", kind="self"), "two": Reply("second", kind="self")})
    await w.run(lines('let x = session "one"', "let all = [x]", 'x = session "two"', "let back = x", "x = all[0]"))
    assert w.values("all", "back", "x") == [["first"], "second", "first"]
    assert w.store.text("x") == "first"


async def test_only_errors_of_the_session_are_retried() -> None:
    w = World()
    w.store.put = refuse  # type: ignore[method-assign]
    error = await w.fail('session "a"\n  retry: 3\n')
    assert (error.code, w.sessions.tasks) == ("E219", ["a"])
    assert [(e.final, e.error) for e in w.of(SessionFinished)] == [(True, error)]


def refuse(binding: Binding) -> None:
    raise StateError(f"'{binding.key.name}' could not be stored")


# ---------------------------------------------------------------- by value


async def test_context_is_passed_by_value_if_bindings_have_no_files() -> None:
    w = World(commands_say={"test": Reply("out\n", code=1, stderr="bad\n")})
    w.store.by_value = True
    await w.run(
        lines(
            'let plan = session "plan"',
            'let log = exec "test"',
            '  on-fail: "continue"',
            "let both = [plan, 2]",
            'session "go"',
            "  context: [plan, log, both]",
        )
    )
    request = w.sessions.requests[-1]
    assert request.target is None
    assert [(item.name, item.location, item.text) for item in request.context or ()] == [
        ("plan", None, "<plan>"),
        ("log", None, "exit_code: 1\nstderr:\n  bad\nstdout:\nout\n"),
        ("both", None, '["<plan>",2]'),
    ]
    assert w.warnings() == []


async def test_a_long_value_is_passed_whole_with_a_warning() -> None:
    w = World(sessions_say={"plan": "x" * 2001})
    w.store.by_value = True
    await w.run(lines('let plan = session "plan"', "repeat 2:", '  session "go"', "    context: plan"))
    assert w.sessions.requests[-1].context == (ContextItem("plan", text="x" * 2001),)
    assert w.warnings() == ["W220"]


# ---------------------------------------------------------------- context


@pytest.mark.parametrize(
    ("context", "items"),
    [
        ("plan", [ContextItem("plan", location="bindings/plan.md")]),
        ("[plan, n]", [ContextItem("plan", location="bindings/plan.md"), ContextItem("n", location="bindings/n.md")]),
        (
            "{ plan, key: n }",
            [ContextItem("plan", location="bindings/plan.md"), ContextItem("key", location="bindings/n.md")],
        ),
        ("[]", []),
        ('"just {n}"', [ContextItem("context", text="just 5")]),
        ("o.a", [ContextItem("o.a", text="1")]),
        ("o.p", [ContextItem("o.p", location="bindings/plan.md")]),
        ("o.l[0]", [ContextItem("o.l[0]", text='[{"$ref":"bindings/plan.md"}]')]),
        ("nothing", [ContextItem("nothing", missing=True)]),
        ("mem", [ContextItem("mem", location="agents/project/mem/memory.md")]),
    ],
)
async def test_context(context: str, items: list[ContextItem]) -> None:
    request = await request_of(
        "agent mem:", "  persist: project", 'let plan = session "plan"', "let n = 5", "let nothing = null",
        "let o = { a: 1, p: plan, l: [[plan]] }", 'session "go"', f"  context: {context}",
    )  # fmt: skip
    assert request.context == tuple(items)


async def test_no_context_and_agent_context() -> None:
    assert (await request_of('session "x"')).context is None
    request = await request_of("agent a:", '  prompt: "p"', "  context: n", "let n = 1", "session: a")
    assert request.context == (ContextItem("n", location="bindings/n.md"),)


async def test_context_block_with_files() -> None:
    request = await request_of('session "x"', "  context:", '    file: "a.md"', '    file: "b.md"')
    assert request.context is not None
    assert [(item.name, item.text) for item in request.context] == [("file", "a.md"), ("file", "b.md")]


async def test_values_without_a_binding_go_inline_or_are_stored() -> None:
    w = World()
    long = "x" * 2001
    await w.run(
        lines(
            "block f(a, b, c):",
            '  session "in"',
            "    context: [a, b, c]",
            'let t = "text"',
            f'do f("short", "{long}", t)',
            "for v in [7]:",
            '  session "in"',
            "    context: v",
        )
    )
    assert w.sessions.requests[0].context == (
        ContextItem("a", text="short"),
        ContextItem("b", location="bindings/anon_001__1.md"),
        ContextItem("c", location="bindings/t.md"),
    )
    assert w.store.text("anon_001__1") == long
    assert w.sessions.requests[1].context == (ContextItem("v", text="7"),)


@pytest.mark.parametrize(("context", "code"), [("5", "E134"), ("gone", "E132"), ("a", "E132")])
async def test_no_context(context: str, code: str) -> None:
    error = await World().fail(
        lines("agent a:", '  prompt: "p"', "block f():", '  session "x"', f"    context: {context}", "do f()")
    )
    assert error.code == code


# ---------------------------------------------------------------- retry, timeout


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [("none", []), ("linear", [1.0, 1.0, 1.0]), ("exponential", [1.0, 2.0, 4.0]), ("2.5", [2.5, 2.5, 2.5])],
)
async def test_retry(backoff: str, delays: list[float]) -> None:
    w = World(sessions_say={"x": [Reply(fails="a"), Reply(fails="b"), Reply(fails="c"), "fine"]})
    await w.run(lines('let r = session "x"', "  retry: 3", f"  backoff: {backoff}"))
    assert w.value("r") == "fine"
    assert len(w.clock.slept) == len(delays)
    assert all(least <= slept < 1.25 * least for slept, least in zip(w.clock.slept, delays, strict=True))
    assert [r.attempt for r in w.sessions.requests] == [0, 1, 2, 3]
    assert [(e.attempt, e.maximum) for e in w.of(Retried)] == [(1, 3), (2, 3), (3, 3)]
    assert [(e.error.message if e.error else None, e.final) for e in w.of(SessionFinished)] == [
        ("a", False), ("b", False), ("c", False), (None, True),
    ]  # fmt: skip
    assert {e.spawn for e in w.of(SessionStarted, SessionFinished)} == {1}


async def test_the_delay_is_capped() -> None:
    w = World(sessions_say={"x": [Reply(fails="a")] * 8})
    await w.fail(lines('session "x"', "  retry: 7", '  backoff: "exponential"'))
    least = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert all(wait <= slept < 1.25 * wait for slept, wait in zip(w.clock.slept, least, strict=True))


async def test_a13_retry_after_is_honoured_within_the_retry() -> None:
    w = World(sessions_say={"x": [Reply(fails=ProviderRateLimit("slow down", retry_after=20)), "fine"]})
    await w.run(lines('let r = session "x"', "  retry: 1"))
    assert w.value("r") == "fine"
    assert [20 <= slept < 25 for slept in w.clock.slept] == [True]


async def test_a13_branches_wait_different_times_and_each_run_the_same_times() -> None:
    program = lines("parallel:", *(f'  r{n} = session "x"\n    retry: 1\n    backoff: "linear"' for n in range(4)))
    waits = []
    for _ in range(2):
        w = World(sessions_say={"x": [*([Reply(fails="a")] * 4), *(["fine"] * 4)]})
        await w.run(program)
        waits.append(sorted(w.clock.slept))
    assert waits[0] == waits[1] and len(set(waits[0])) == 4


async def test_the_last_failure_propagates() -> None:
    w = World(sessions_say={"x": [Reply(fails="a"), Reply(fails="b")]})
    error = await w.fail(lines('session "x"', "  retry: 1"))
    assert (error.code, error.type, error.message, error.details["kind"]) == ("E201", "SessionError", "b", "error")


async def test_permanent_errors_are_not_retried() -> None:
    w = World(sessions_say={"x": [Reply(fails="a", retryable=False), "fine"]})
    await w.fail(lines('session "x"', "  retry: 5"))
    assert len(w.sessions.requests) == 1


async def test_timeout() -> None:
    w = World(sessions_say={"x": Reply("late", after=10)})
    error = await w.fail(lines('let r = session "x"', '  timeout: "3s"'))
    assert (error.code, error.type, error.details["kind"], error.message) == (
        "E201",
        "TimeoutError",
        "timeout",
        "session timed out after 3s",
    )
    assert w.sessions.cancelled == ["x"]


async def test_a_session_within_its_timeout() -> None:
    w = World(sessions_say={"x": Reply("early", after=2)})
    await w.run(lines('let r = session "x"', "  timeout: 3s"))
    assert w.value("r") == "early"


async def test_an_interrupt_during_a_timed_session() -> None:
    w = World()
    gate = asyncio.Event()

    async def run(request: SessionRequest, on_progress: object) -> object:
        gate.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    w.sessions.run = run  # type: ignore[method-assign,assignment]
    task = asyncio.create_task(w.run(lines('session "x"', '  timeout: "9s"')))
    await gate.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("persist", "keyword", "memory", "code", "warning"),
    [
        ("true", "resume", False, "E018", None),
        ("true", "resume", True, None, None),
        ("project", "resume", False, None, "W118"),
        ("user", "resume", False, None, "W118"),
        ('"mem/"', "resume", False, None, "W118"),
        ("true", "session", True, None, "W011"),
        ("true", "session", False, None, None),
        ("false", "resume", False, "E017", None),
    ],
)
async def test_memory(persist: str, keyword: str, memory: bool, code: str | None, warning: str | None) -> None:
    w = World()
    if memory:
        w.store.memories.add("a")
    text = lines("agent a:", f"  persist: {persist}", '  prompt: "p"', f"{keyword}: a")
    if code is not None:
        assert (await w.fail(text)).code == code
        return
    await w.run(text)
    assert w.warnings() == ([warning] if warning else [])
    found = w.sessions.requests[0].memory
    assert found is not None
    assert (found.agent, found.scope, found.resume) == ("a", persist.strip('"'), keyword == "resume")
    assert found.directory == f"agents/{persist.strip(chr(34))}/a/"


async def test_a_session_starts_the_memory_that_resume_needs() -> None:
    w = World()
    await w.run(
        lines("agent a:", "  persist: true", '  prompt: "p"', "session: a", "let x = resume: a", '  prompt: "more"')
    )
    assert [r.kind for r in w.sessions.requests] == ["session", "resume"]
    assert w.machine.bindings()["x"].spawned == "resume"


async def test_a_session_value_is_read_where_it_is_needed() -> None:
    text = lines('let r = session "x"', "let x = [r.n + 1, r.list[1], r.n == 4, r == r]")
    assert await value_of(text, sessions_say={"x": '{"n": 4, "list": [1, 2]}'}) == [5, 2, True, True]


async def test_prose_members_are_extracted_by_the_judge() -> None:
    text = lines('let r = session "x"', "let x = r.mood")
    assert await value_of(text, sessions_say={"x": "All well."}, judge_says={"extract mood": "fine"}) == "fine"
    error = await World(sessions_say={"x": "All well."}).fail(text)
    assert error.code == "E209"
