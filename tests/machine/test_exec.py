"""exec: outcomes, policies, interpolation, directories (openprose.md 5.1 to 5.7)."""

from __future__ import annotations

import pytest
from machine.fakes import Reply, World, lines, value_of

from prose_kernel.runtime.events import CommandFinished, CommandOutput, CommandStarted, Retried
from prose_kernel.runtime.values import ExecText

OUTCOMES = {
    "fine": Reply("out\n"),
    "fails": Reply("out\n", code=3, stderr="bad\n"),
    "hangs": Reply("out\n", kind="timeout"),
    "nowhere": Reply(kind="cwd", stderr="no such directory"),
}


@pytest.mark.parametrize(
    ("command", "code", "kind", "message"),
    [
        ("fails", "E203", "exit", "exec failed with exit code 3"),
        ("hangs", "E204", "timeout", "exec timed out after 2m"),
        ("nowhere", "E205", "cwd", "exec could not start: no such directory"),
    ],
)
async def test_throw(command: str, code: str, kind: str, message: str) -> None:
    w = World(commands_say=dict(OUTCOMES))
    error = await w.fail(lines(f'let x = exec "{command}"'))
    assert (error.code, error.details["kind"], error.message, error.type) == (code, kind, message, "ExecError")
    assert (error.hint is not None) == (kind == "cwd")
    assert w.machine.bindings() == {}
    assert w.store.kept == {}


@pytest.mark.parametrize("command", OUTCOMES)
@pytest.mark.parametrize("policy", ["continue", "ignore"])
async def test_no_error(command: str, policy: str) -> None:
    w = World(commands_say=dict(OUTCOMES))
    await w.run(lines(f'let x = exec "{command}"', f'  on-fail: "{policy}"'))
    value = w.machine.bindings()["x"].value
    assert isinstance(value, ExecText)
    assert value.text == OUTCOMES[command].stdout
    assert value.bare is (policy == "ignore" and command != "fine")
    assert w.store.kept["x"].value is value


async def test_a_bare_exec_leaves_no_binding() -> None:
    w = World()
    await w.run('exec "ls"\n')
    assert w.store.kept == {}
    assert [type(e).__name__ for e in w.of(CommandStarted, CommandOutput, CommandFinished)] == [
        "CommandStarted", "CommandOutput", "CommandFinished",
    ]  # fmt: skip
    assert w.of(CommandStarted)[0].bound_to is None


async def test_trailing_newlines_are_dropped_when_inserted_or_compared() -> None:
    w = World(commands_say={"rev": "abc\n\n"})
    await w.run(
        lines('let rev = exec "rev"', 'exec "push {rev} now"', 'let same = rev == "abc"', 'let sum = rev + "!"')
    )
    assert w.commands.ran[1] == "push abc now"
    assert w.values("same", "sum") == [True, "abc!"]
    assert w.store.text("rev") == "abc\n\n"


@pytest.mark.parametrize(
    ("command", "code", "hint"),
    [
        ("echo {gone}", "E053", "define `gone` first, or write `\\{gone\\}` to pass the braces on"),
        ("echo ${gone}", "E053", "write `$gone`, or `$\\{gone\\}` to keep the braces for the shell"),
        ("{blank}", "E050", None),
    ],
)
async def test_run_time_checks_are_not_covered_by_on_fail(command: str, code: str, hint: str | None) -> None:
    w = World()
    text = lines("block f():", f'  exec "{command}"', "    on-fail: ignore", 'let blank = " "', "do f()")
    error = await w.fail(text)
    assert (error.code, error.type, error.hint) == (code, "ExecError", hint)
    assert w.commands.ran == []


@pytest.mark.parametrize("access", ["r.exit_code", "r[0]"])
async def test_exec_text_has_no_members(access: str) -> None:
    error = await World().fail(lines("block f(r):", f"  return {access}", 'let r = exec "ls"', "do f(r)"))
    assert error.code == "E138"


async def test_interpolated_members_of_exec_text() -> None:
    error = await World().fail(lines('let r = exec "ls"', "block f(v):", '  session "{v.code}"', "do f(r)"))
    assert error.code == "E138"


async def test_properties_reach_the_port() -> None:
    w = World()
    await w.run(
        lines(
            'let d = "sub"', 'exec "a"', '  cwd: "{d}/x"', '  timeout: "1.5s"', 'exec "b"', '  cwd: "/abs"', 'exec "c"'
        )
    )
    assert [(r.cwd, r.timeout, r.track) for r in w.commands.requests] == [
        ("/start/sub/x", 1.5, False), ("/abs", 120.0, False), ("/start", 120.0, True),
    ]  # fmt: skip


async def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    w = World()
    await w.run(lines('exec "a"', '  cwd: "~/work"'))
    assert w.commands.requests[0].cwd == "/home/me/work"


async def test_a_failing_command_changes_the_directory_and_a_timed_out_one_does_not() -> None:
    w = World(commands_say={"cd a; false": Reply(code=1, cwd="/a"), "cd b; hang": Reply(kind="timeout", cwd="/b")})
    await w.fail('exec "cd a; false"\n', cell=True)
    assert w.machine.cwd == "/a"
    await w.run(lines('exec "cd b; hang"', "  on-fail: ignore"), cell=True)
    assert w.machine.cwd == "/a"
    assert w.of(CommandFinished)[0].directory_changed == "/a"


async def test_the_directory_can_be_set_between_cells() -> None:
    w = World()
    w.machine.cwd = "/elsewhere"
    await w.run('exec "a"\n', cell=True)
    assert w.commands.requests[0].cwd == "/elsewhere"


async def test_finished_event() -> None:
    w = World(commands_say={"make x": 2})
    await w.fail(lines('let t = "x"', 'let r = exec "make {t}"'))
    event = w.of(CommandFinished)[0]
    assert (event.command, event.request.command, event.bound_to, event.on_fail, event.raised) == (
        "make {t}", "make x", "r", "throw", True,
    )  # fmt: skip


async def test_all_bindings_are_stored_before_a_command_starts() -> None:
    w = World()
    text = lines("let a = 1", 'exec "look"')
    seen: list[object] = []
    run = w.commands.run

    async def watching(request: object, on_output: object = None) -> object:
        seen.append((dict(w.store.kept).keys() >= {"a"}, w.store.flushes))
        return await run(request, on_output)  # type: ignore[arg-type]

    w.commands.run = watching  # type: ignore[method-assign,assignment]
    await w.run(text)
    assert seen == [(True, 1)]


async def test_an_arrow_runs_commands_in_order_and_returns_the_last_value() -> None:
    w = World()
    await w.run('let x = exec "a" -> session "b" -> exec "c"\n')
    assert w.value("x") == "c"
    assert sorted(w.store.kept) == ["anon_001", "x"]


async def test_output_kind() -> None:
    w = World()
    assert await w.run('output log = exec "a"\n') == {"log": w.machine.bindings()["log"].value}
    assert w.store.kept["log"].kind == "output"
    assert await value_of(lines('const x = exec "a"')) == "a"


async def test_the_trace_of_bare_commands_is_on_disk_when_the_cell_ends() -> None:
    w = World(commands_say={"fails": 1})
    await w.run('exec "a"\n', cell=True)
    assert w.store.flushes == 1
    await w.fail('exec "fails"\n', cell=True)
    assert w.store.flushes == 2


# ---------------------------------------------------------------- retry (3.13)

LOST = Reply("half\n", kind="lost", code=255)
FAILED = Reply("no\n", code=1)


@pytest.mark.parametrize(
    ("backoff", "delays"), [("none", []), ("linear", [1.0, 1.0]), ("exponential", [1.0, 2.0]), ("2.5", [2.5, 2.5])]
)
async def test_a58_a_failed_command_is_repeated(backoff: str, delays: list[float]) -> None:
    w = World(commands_say={"x": [Reply(kind="timeout"), LOST, Reply("yes\n", cwd="/tmp")]})
    await w.run(lines('let r = exec "x"', "  retry: 3", f"  backoff: {backoff}", 'exec "y"'))
    assert (w.value("r"), [r.attempt for r in w.commands.requests]) == ("yes", [0, 1, 2, 0])
    assert [r.cwd for r in w.commands.requests] == [*[w.commands.requests[0].cwd] * 3, "/tmp"]
    assert len(w.clock.slept) == len(delays)
    assert all(least <= slept < 1.25 * least for slept, least in zip(w.clock.slept, delays, strict=True))
    assert [(e.attempt, e.maximum, bool(e.why)) for e in w.of(Retried)] == [(1, 3, True), (2, 3, True)]
    assert [(e.spawn, e.result.kind) for e in w.of(CommandFinished)] == [(1, None), (2, None)]
    assert len(w.of(CommandStarted)) == 2


async def test_a58_on_fail_applies_to_the_last_attempt() -> None:
    w = World(commands_say={"x": [FAILED, Reply("no\n", code=2)]})
    error = await w.fail(lines('exec "x"', "  retry: 1"))
    assert (error.code, error.details["exit_code"]) == ("E203", 2)
    w = World(commands_say={"x": [FAILED, Reply("second\n", code=2)]})
    await w.run(lines('let r = exec "x"', "  retry: 1", "  on-fail: continue"))
    value = w.machine.bindings()["r"].value
    assert isinstance(value, ExecText) and (value.result.exit_code, value.result.stdout) == (2, "second\n")
    assert len(w.commands.requests) == 2


async def test_a58_retry_lost_repeats_only_lost_commands() -> None:
    w = World(commands_say={"x": [LOST, FAILED, Reply("yes\n")]})
    assert (await w.fail(lines('exec "x"', "  retry: lost"))).details["kind"] == "exit"
    assert len(w.commands.requests) == 2
    w = World(commands_say={"x": [LOST] * 9})
    assert (await w.fail(lines('exec "x"', "  retry: lost"))).details["kind"] == "lost"
    assert len(w.commands.requests) == 4


@pytest.mark.parametrize("reply", [Reply(kind="spawn"), Reply(kind="cwd")])
async def test_a58_a_command_that_cannot_start_is_not_repeated(reply: Reply) -> None:
    w = World(commands_say={"x": [reply, Reply("yes\n")]})
    assert (await w.fail(lines('exec "x"', "  retry: 5"))).code == "E205"
    assert len(w.commands.requests) == 1


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("too many open files (EMFILE)", "raise the limit (`ulimit -n`) where this program is started"),
        (
            "resource temporarily unavailable (EAGAIN)",
            "end other programs, or raise the limits (`ulimit -u`, `ulimit -v`)",
        ),
        ("it and the environment are too long (E2BIG)", None),
        ("not found", None),
    ],
)
async def test_a_command_without_system_resources_has_a_hint(reason: str, hint: str | None) -> None:
    w = World(commands_say={"x": [Reply(kind="spawn", stderr=f"cannot start the command: {reason}")]})
    assert (await w.fail('exec "x"')).hint == hint


async def test_a58_the_strict_profile_ignores_retry() -> None:
    w = World(commands_say={"x": [FAILED, Reply("yes\n")]})
    with pytest.raises(Exception, match="exit code 1"):
        await w.run(lines('exec "x"', "  retry: 5"), profile="strict")
    assert len(w.commands.requests) == 1


async def test_a58_needs_reach_the_commands() -> None:
    w = World()
    await w.run(lines('exec "x"', "  needs: { GPU: 2, memory: 0.5, ssd: true }", 'exec "y"'))
    assert [dict(r.needs) for r in w.commands.requests] == [{"GPU": 2.0, "memory": 0.5, "ssd": 0.0}, {}]
