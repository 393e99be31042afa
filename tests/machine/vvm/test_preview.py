"""The requests of agent calls, without running anything (`%prompt`)."""

from __future__ import annotations

from machine.vvm_world import Vvm, tree_of

from prose_kernel.language.source import Source
from prose_kernel.runtime.machine import Preview

AGENT = 'agent a(prompt="Be brief.")'


async def previews(w: Vvm, *lines: str) -> tuple[Preview, ...]:
    source = Source("\n".join(lines) + "\n", "cell")
    return await w.vvm.preview(tree_of(source), source)


async def asked(*lines: str) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """Return the task, the input and the unknown parts of each call."""
    found = await previews(Vvm(), AGENT, *lines)
    return [
        (one.request.task, one.request.given.text if one.request.given is not None else None, one.unknown)
        for one in found
        if one.request is not None
    ]


async def test_every_call_is_listed_and_none_is_made() -> None:
    w = Vvm()
    await w.cell("n = 2", AGENT)
    found = await previews(w, "x = @a `Say {n}`([n, 1])", "@a `Then {x}`()")
    assert [(one.request.task, one.bound_to, one.unknown) for one in found if one.request is not None] == [
        ("Say 2", "x", ()),
        ("Then ⟦x: not known yet⟧", None, ("x",)),
    ]
    request = found[0].request
    assert request is not None and request.system == "Be brief." and request.at == "c2/1/s0"
    assert w.sessions.requests == [] and set(w.vvm.bindings()) == {"n"}
    await w.cell("x = @a `Say {n}`([n, 1])")
    assert w.sessions.requests[0].at == "c2/1/s0"


async def test_a_known_condition_decides_and_an_open_one_shows_all_arms() -> None:
    text = ("n = 1", "if n > 2:", "  @a `no`()", "elif n == 1:", "  @a `yes`()", "else:", "  @a `else`()")
    assert [one[0] for one in await asked(*text)] == ["yes"]
    text = ("if ?`c`(1):", "  x = 1", "  @a `one`()", "else:", "  @a `two`()", "@a `three {x}`()")
    assert [one[0] for one in await asked(*text)] == ["one", "two", "three ⟦x: not known yet⟧"]


async def test_a_comparison_with_an_unknown_value_is_open() -> None:
    text = ("x = @a `q`()", 'y = x == "a"', 'if x == "a":', "  @a `one`()", "if y:", "  @a `two {y}`()")
    assert [one[0] for one in await asked(*text)] == ["q", "one", "two ⟦y: not known yet⟧"]


async def test_calls_in_conditions_and_arguments_are_listed() -> None:
    text = ("if ?`c`(@a `inner`()):", "  pass", "y = len(@a `arg`())", "@a `{y}`(@a `deep`())")
    assert [one[0] for one in await asked(*text)] == ["inner", "arg", "deep", "⟦y: not known yet⟧"]


async def test_loops_over_known_items_run_for_each() -> None:
    text = (
        "for i in range(3):",
        "  @a `item {i}`()",
        "for j in @a `list`():",
        "  @a `one {j}`()",
        "while ?`c`(1):",
        "  @a `w`()",
    )
    assert [one[0] for one in await asked(*text)] == [
        "item 0",
        "item 1",
        "item 2",
        "list",
        "one ⟦j: not known yet⟧",
        "w",
    ]


async def test_calls_inside_functions_are_listed() -> None:
    text = (
        "def f(x):",
        "  y = @a `in {x}`()",
        "  return [x, y]",
        "def g(n):",
        "  if ?`more`(n):",
        "    return g(n + 1)",
        "  return n",
        "r = f(1)",
        "@a `out {r}`()",
        "@a `{q}`()",
        "q = g(1)",
        "@a `{q}`()",
    )
    tasks = [one[0] for one in await asked(*text)]
    assert tasks[:2] == ["in 1", "out ⟦r: not known yet⟧"]
    assert tasks[-1] == "⟦q: not known yet⟧"


async def test_a_function_that_computes_is_known() -> None:
    assert await asked("def double(x):", "  return x + x", "@a `{n}`()", "n = double(4)", "@a `{n}`(n)") == [
        ("8", "8", ())
    ]


async def test_members_of_unknown_values_are_unknown() -> None:
    found = await asked("x = @a `q`()", "@a `{x.title} and {x.more.deep}`(x.list[0])")
    assert found[1] == ("⟦x: not known yet⟧ and ⟦x: not known yet⟧", "⟦x: not known yet⟧", ("x",))


async def test_match_choose_try_and_helpers() -> None:
    text = (
        "match 1:",
        "  case error(e):",
        "    @a `never`()",
        "  case _:",
        "    @a `always`()",
        "match @a `q`():",
        '  case error(kind="timeout"):',
        "    @a `timeout`()",
        "  case ?`nice`:",
        "    @a `nice`()",
        "choose 1 by ?`t` as x:",
        '  option "a":',
        "    @a `a`()",
        '  option "b":',
        "    @a `b {x}`()",
        "try:",
        "  @a `body`()",
        "except as e:",
        "  @a `handler`()",
        "finally:",
        "  @a `final`()",
        "def f(i):",
        "  return @a `map {i}`()",
        "r = [map([1, 2], f), pmap([3], f)]",
        "s = map(@a `items`(), f)",
        "with input @a `given`():",
        "  @a `with`()",
    )
    tasks = [one[0] for one in await asked(*text)]
    assert tasks == [
        "always",
        "q",
        "timeout",
        "nice",
        "a",
        "b ⟦x: not known yet⟧",
        "body",
        "handler",
        "final",
        "map 1",
        "map 2",
        "map 3",
        "items",
        "map ⟦item: not known yet⟧",
        "given",
        "with",
    ]


async def test_a_call_that_would_raise_is_listed_with_its_error() -> None:
    found = await previews(Vvm(), AGENT, "n = 1", "x = @a.with(model=n) `t`()", "@a `after`()")
    assert [one.request.task for one in found if one.request is not None] == ["after"]


async def test_a_preview_changes_nothing() -> None:
    w = Vvm(judge_says={"c": True})
    await w.cell("x = 1", AGENT, "def f():", "  return x")
    await previews(w, "x = 2", "y = f()", "?`c`(1)", "agent b()", "def g():", "  return 1")
    assert await w.cell("[x, f()]") == [1, 1]
    assert w.judge.asked == []
    assert set(w.vvm.known().functions) == {"f"} and set(w.vvm.known().agents) == {"a"}


async def test_functions_of_earlier_cells_see_the_names_of_the_text() -> None:
    w = Vvm()
    await w.cell("x = 1", AGENT, "def f():", "  return @a `{x}`()")
    found = await previews(w, "x = 2", "f()")
    assert [one.request.task for one in found if one.request is not None] == ["2"]


async def test_a_preview_ends_after_200_calls() -> None:
    found = await previews(
        Vvm(),
        AGENT,
        "for i in range(20):",
        *(f"{'  ' * d}for i{d} in range(20):" for d in range(1, 4)),
        f"{'  ' * 4}@a `x`()",
    )
    assert len(found) == 200
