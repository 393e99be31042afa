"""Imported programs (openprose.md 6)."""

from __future__ import annotations

import pytest
from machine.fakes import Reply, World, lines

from prose_kernel.runtime.events import ProgramCalled, ProgramReturned, SessionStarted

TIDY = lines('input text: "what"', "let n = 1", 'output result = session "tidy {text}"', "output count = n + 1")


async def test_a_call_returns_an_object() -> None:
    w = World(files={"./tidy.prose": TIDY})
    await w.run(
        lines('use "./tidy.prose"', 'let r = tidy(text: "this")', "let a = r.count", "let { result } = r", "let n = 5")
    )
    assert w.value("r") == {"result": "<tidy this>", "count": 2}
    assert w.values("a", "result", "n") == [2, "<tidy this>", 5]
    assert w.store.inner["local--tidy"].text("n") == "1"
    assert [e.place.program for e in w.of(SessionStarted)] == [("local--tidy",)]
    assert [(e.alias, e.directory) for e in w.of(ProgramCalled)] == [("tidy", "local--tidy")]
    assert [e.error for e in w.of(ProgramReturned)] == [None]


async def test_a_second_call_has_a_separate_directory_and_numbers() -> None:
    program = lines("block f():", "  let v = 1", "do f()", 'session "x"')
    w = World(files={"./p.prose": program})
    await w.run(lines('use "./p.prose" as p', "p()", "p()", 'session "mine"'))
    assert list(w.store.inner) == ["local--p", "local--p--2"]
    for store in w.store.inner.values():
        assert sorted(store.kept) == ["anon_001", "v__1"]
    assert list(w.store.kept) == ["anon_001"]


async def test_isolation() -> None:
    w = World(files={"./p.prose": lines("block f():", "  return secret", "let x = do f()")})
    error = await w.fail(lines('use "./p.prose" as p', "let secret = 1", "p()"))
    assert (error.code, error.details["program"]) == ("E208", "p")


async def test_errors_surface_at_the_call() -> None:
    w = World(files={"./p.prose": lines("let a = 1", 'exec "boom"')}, commands_say={"boom": 4})
    error = await w.fail(lines('use "./p.prose" as p', "let x = 1", "let r = p()"))
    assert error.code == "E203"
    assert error.location is not None
    assert (error.location.source, error.location.line, error.location.column) == ("main.prose", 3, 9)
    assert error.call_stack == ("in program p at line 2 of ./p.prose, called at line 3 of main.prose",)
    assert (error.details["line"], error.details["statement"]) == (2, 'exec "boom"')


async def test_errors_of_a_program_can_be_caught() -> None:
    w = World(files={"./p.prose": 'throw "no"\n'})
    await w.run(lines('use "./p.prose" as p', "try:", "  p()", "catch as e:", "  let x = [e.message, e.program]"))
    assert w.value("x") == ["no", "p"]


@pytest.mark.parametrize(
    ("call", "code"),
    [("p()", "E026"), ('p(text: "a", more: 1)', "E027"), ("q()", "E025"), ('let { nope } = p(text: "a")', "E028")],
)
async def test_contract(call: str, code: str) -> None:
    error = await World(files={"./p.prose": TIDY}).fail(lines('use "./p.prose" as p', call))
    assert error.code == code


async def test_a_missing_later_input_asks_the_user() -> None:
    w = World(
        files={"./p.prose": lines("let a = 1", 'input b: "B?"', "output c = b")},
        user_says={"b": "me"},
        supplied={"b": "no"},
    )
    await w.run(lines('use "./p.prose" as p', "let r = p()"))
    assert w.value("r") == {"c": "me"}


async def test_nested_imports_and_cycles() -> None:
    files = {
        "./a.prose": lines('use "./b.prose"', "output x = b()"),
        "./b.prose": lines('output y = session "deep"'),
        "./c.prose": lines('use "./d.prose"', "d()"),
        "./d.prose": lines('use "./c.prose"', "c()"),
    }
    w = World(files=files)
    await w.run(lines('use "./a.prose"', "let r = a()"))
    assert w.value("r") == {"x": {"y": "<deep>"}}
    assert list(w.store.inner["local--a"].inner) == ["local--b"]
    assert w.of(SessionStarted)[0].place.program == ("local--a", "local--b")
    error = await World(files=files).fail(lines('let x = session "never"', 'use "./c.prose"'))
    assert (error.code, error.message) == ("E112", "import cycle: ./c.prose -> ./d.prose -> ./c.prose")


async def test_a_missing_program_fails_before_anything_runs() -> None:
    w = World()
    error = await w.fail(lines('exec "first"', 'use "./gone.prose"'))
    assert (error.code, error.type) == ("E215", "ImportError")
    assert error.location is not None
    assert (error.location.line, error.location.column) == (2, 5)
    assert w.commands.ran == []


async def test_the_directory_is_a_copy() -> None:
    w = World(
        files={"./p.prose": lines('exec "cd in"', 'exec "pwd in"')},
        commands_say={"cd out": Reply(cwd="/out"), "cd in": Reply(cwd="/in")},
    )
    await w.run(lines('use "./p.prose" as p', 'exec "cd out"', "p()", 'exec "pwd out"'))
    assert [r.cwd for r in w.commands.requests] == ["/start", "/out", "/in", "/out"]


async def test_anonymous_outputs_end_an_imported_program() -> None:
    w = World(files={"./p.prose": lines("output { a: 1 }", 'session "never"'), "./q.prose": "return 7\n"})
    await w.run(lines('use "./p.prose" as p', 'use "./q.prose" as q', "let r = p()", "let s = q()"))
    assert w.values("r", "s") == [{"a": 1}, {"result": 7}]
    assert w.sessions.tasks == []


async def test_calls_in_parallel() -> None:
    w = World(files={"./tidy.prose": TIDY}, order=lambda task: float(-len(task) % 7))
    await w.run(lines('use "./tidy.prose"', 'let x = parallel for t in ["a", "bbb", "cc"]:', "  let r = tidy(text: t)"))
    assert [r["result"] for r in w.value("x")] == ["<tidy a>", "<tidy bbb>", "<tidy cc>"]


async def test_programs_are_browsable_and_known() -> None:
    w = World(files={"./tidy.prose": TIDY})
    await w.run('use "./tidy.prose"\n', cell=True)
    assert [(d.kind, d.name) for d in w.machine.definitions()] == [("program", "tidy")]
    contract = w.machine.known().programs["tidy"]
    assert contract is not None
    assert (dict(contract.inputs), contract.outputs) == ({"text": True}, ("result", "count"))


@pytest.mark.parametrize(
    ("last", "value"),
    [
        (["let n = 1", 'session "tidy"'], "<tidy>"),
        (["for v in [1, 2]:", "  let y = v + 1"], [2, 3]),
        (["do:", "  let o = {a: 5}"], {"a": 5}),
    ],
)
async def test_a49_a_program_without_outputs_returns_its_last_value(last: list[str], value: object) -> None:
    w = World(files={"./p.prose": lines(*last)})
    await w.run(lines('use "./p.prose" as p', "let r = p()", "let s = [p()]"))
    assert w.values("r", "s") == [value, [value]]


async def test_a49_fields_of_a_last_value_can_be_read() -> None:
    w = World(files={"./p.prose": lines("do:", "  let o = {a: 5}")})
    await w.run(lines('use "./p.prose" as p', "let r = p()", "let n = r.a", "let { a } = p()"))
    assert w.values("n", "a") == [5, 5]
