"""Statements of VVM (docs/reference/vvm.md 4.1 to 4.5, 4.10, 4.11)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from machine.vvm_world import Vvm, raised_by, value_of

from prose_kernel.errors import RunError, VvmRaise
from prose_kernel.runtime.events import ArmChosen, Bound, FinallyEntered, LoopLeft, LoopPass

# ---------------------------------------------------------------- names (4.2)


async def test_a_name_is_bound_and_read() -> None:
    assert await value_of("x = 1", "x + 2") == 3


async def test_an_unbound_name_raises() -> None:
    assert await raised_by("x") == ("R201", "unbound name: x")
    assert await raised_by("def f():", "  return x", "f()") == ("R201", "unbound name: x")


async def test_blocks_open_no_scope() -> None:
    assert await value_of("if true:", "  a = 1", "for i in [1, 2]:", "  b = i", "[a, b, i]") == [1, 2, 2]


async def test_names_of_a_function_are_local() -> None:
    text = ("x = 1", "def f():", "  x = 2", "  return x", "y = f()", "[x, y]")
    assert await value_of(*text) == [1, 2]


async def test_a_local_that_is_not_bound_yet_does_not_fall_through() -> None:
    assert await raised_by("x = 1", "def f():", "  y = x", "  x = 2", "f()") == ("R202", "unbound local: x")


@pytest.mark.parametrize(
    "binding",
    [
        "for x in []:\n    pass",
        "try:\n    pass\n  except as x:\n    pass",
        "match 1:\n    case error(x):\n      pass",
        "if false:\n    x = 1",
        "if false:\n    def x():\n      pass",
        'if false:\n    choose 1 by ?`c` as x:\n      option "a":\n        pass',
    ],
)
async def test_bindings_of_a_body_are_local_to_it(binding: str) -> None:
    assert await raised_by("x = 1", "def f():", f"  {binding}", "  return x", "f()") == ("R202", "unbound local: x")


async def test_s1_constrain_makes_its_name_local() -> None:
    text = ("x = 1", "def f():", "  y = x", "  x = 2", "  constrain x():", "    require ?`c`", "f()")
    assert (await raised_by(*text))[0] == "R202"


async def test_library_names_can_be_shadowed() -> None:
    assert await value_of("def len(x):", '  return "mine"', 'len("abc")') == "mine"
    assert await value_of("def f(len):", "  return len", "[f(1), len([1])]") == [1, 1]


# ---------------------------------------------------------------- order (4.1)


async def test_evaluation_is_left_to_right() -> None:
    text = (
        "def say(x):",
        '  raise "x"',
        "def a(x):",
        "  return x",
        'r = ""',
        "try:",
        "  [nowhere1, nowhere2]",
        "except as e:",
        "  r = e.error.message",
        "s = ()",
        "try:",
        "  {k: a(1), l: nowhere3, m: nowhere4}",
        "except as e:",
        "  s = e.error.message",
        "t = ()",
        "try:",
        "  nowhere5(nowhere6)",
        "except as e:",
        "  t = e.error.message",
        "[r, s, t]",
    )
    found = await value_of(*text)
    assert found == ["unbound name: nowhere1", "unbound name: nowhere3", "unbound name: nowhere5"]


# ---------------------------------------------------------------- if, loops (4.5)


async def test_if_runs_the_first_arm_that_holds() -> None:
    text = ("def f(n):", "  if n < 1:", "    return 0", "  elif n < 2:", "    return 1", "  else:", "    return 2")
    assert await value_of(*text, "[f(0), f(1), f(2)]") == [0, 1, 2]


async def test_conditions_must_be_booleans() -> None:
    for text in ("if 1:", 'while "yes":', "if true and 1:", "if not ():", "if []:", "if false:\n  pass\nelif 0:"):
        code, message = await raised_by(text, "  pass")
        assert code == "R203" and message.startswith("condition is not a boolean")


async def test_while_tests_before_each_pass() -> None:
    assert await value_of("n = 0", "while n < 5:", "  n = n + 1", "n") == 5
    assert await value_of("n = 0", "while false:", "  n = 1", "n") == 0


async def test_break_and_continue_act_on_the_nearest_loop() -> None:
    text = (
        "found = []",
        "for a in range(5):",
        "  if a == 1:",
        "    continue",
        "  for b in range(5):",
        "    if b == 2:",
        "      break",
        "    found = found + [[a, b]]",
        "  if a == 3:",
        "    break",
        "found",
    )
    assert await value_of(*text) == [[0, 0], [0, 1], [2, 0], [2, 1], [3, 0], [3, 1]]


async def test_for_needs_a_list_and_leaves_its_variable() -> None:
    assert await raised_by('for x in "abc":', "  pass") == ("R204", "for needs a list, not a string")
    assert await value_of("for x in [1, 2]:", "  pass", "x") == 2
    assert (await raised_by("for x in []:", "  pass", "x"))[0] == "R201"


async def test_for_evaluates_its_list_once() -> None:
    assert await value_of("xs = [1, 2]", "for x in xs:", "  xs = xs + [x]", "xs") == [1, 2, 1, 2]


async def test_loops_cross_match_with_input_and_try() -> None:
    text = (
        "n = 0",
        "done = []",
        "while true:",
        "  n = n + 1",
        "  with input n:",
        "    try:",
        "      match it:",
        "        case _:",
        "          if n < 3:",
        "            continue",
        "          break",
        "    finally:",
        "      done = done + [n]",
        "[n, done, it]",
    )
    assert await value_of(*text) == [3, [1, 2, 3], None]


async def test_a_million_passes_take_no_more_memory() -> None:
    import tracemalloc

    w = Vvm(listening=False)
    await w.cell("n = 0", "for i in range(1000):", "  n = n + i")
    tracemalloc.start()
    try:
        await w.cell("n = 0", "while n < 1000:", "  n = n + 1")
        before = tracemalloc.get_traced_memory()[0]
        await w.cell("n = 0", "while n < 50000:", "  n = n + 1")
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


async def test_loops_report_their_passes() -> None:
    w = Vvm()
    await w.cell("for x in [1, 2]:", "  if x == 2:", "    break", "n = 0", "while n < 1:", "  n = n + 1")
    assert [(e.index, e.maximum) for e in w.of(LoopPass)] == [(0, 2), (1, 2), (0, None)]
    assert [(e.index, e.reason) for e in w.of(LoopLeft)] == [(1, "break"), (0, "n < 1")]
    assert [e.arm for e in w.of(ArmChosen)] == [0, 1]
    assert [(e.name, e.value, e.previous, e.place.kind) for e in w.of(Bound)] == [
        ("x", 1, False, "for"),
        ("x", 2, True, "for"),
        ("n", 0, False, "assign"),
        ("n", 1, True, "assign"),
    ]


# ---------------------------------------------------------------- with input (4.10)


async def test_with_input_binds_it_and_restores_it() -> None:
    text = ("a = it", "with input 1:", "  b = it", "  with input it + 1:", "    c = it", "  d = it", "[a, b, c, d, it]")
    assert await value_of(*text) == [None, 1, 2, 1, None]


async def test_it_is_restored_on_every_exit() -> None:
    text = (
        "seen = []",
        "def leave(how):",
        "  for x in [1]:",
        "    with input how:",
        '      if how == "return":',
        "        return it",
        '      if how == "break":',
        "        break",
        '      if how == "continue":',
        "        continue",
        '      raise "r"',
        "  return it",
        'with input "outer":',
        '  for how in ["return", "break", "continue", "raise"]:',
        "    try:",
        "      seen = seen + [leave(how)]",
        "    except as e:",
        "      seen = seen + [it]",
        "    seen = seen + [it]",
        "[seen, it]",
    )
    o = "outer"
    assert await value_of(*text) == [["return", o, o, o, o, o, o, o], None]


async def test_s3_a_function_starts_with_the_it_of_its_call() -> None:
    text = (
        "with input 1:",
        "  a = 1",
        "def f(x):",
        "  return it",
        "with input 2:",
        "  b = [f(0), map([0], f), pmap([0, 1], f), filter([0], lambda), reduce([0, 0], two), refine(0, 1, two, two)]",
        "def lambda(x):",
        "  return it == 2",
        "def two(x, y):",
        "  return it == 2",
        "[b, f(0)]",
    )
    found = await value_of(*text)
    assert found == [[2, [2], [2, 2], [0], True, 0], None]


async def test_every_cell_starts_without_input() -> None:
    w = Vvm()
    await w.fails("with input 1:", '  raise "x"')
    assert await w.cell("it") is None


# ---------------------------------------------------------------- try, raise (4.11)


async def test_except_binds_exactly_the_error_value() -> None:
    text = ("try:", '  raise "boo"', "except as err:", "  pass", "err")
    assert await value_of(*text) == {"error": {"kind": "thrown", "message": "boo"}}
    assert await value_of("try:", "  nowhere", "except as e:", "  pass", "e") == {
        "error": {"kind": "thrown", "message": "unbound name: nowhere"}
    }


async def test_error_values_are_not_caught() -> None:
    text = ('x = "no"', "try:", '  x = {error: {kind: "timeout"}}', "except as e:", '  x = "caught"', "x.error.kind")
    assert await value_of(*text) == "timeout"


async def test_finally_runs_on_every_way_out() -> None:
    text = (
        "log = []",
        "def f(how):",
        "  for x in [1, 2]:",
        "    try:",
        '      if how == "return":',
        "        return g(how)",
        '      if how == "break":',
        "        break",
        '      if how == "continue":',
        "        continue",
        '      if how == "raise":',
        '        raise "r"',
        "    finally:",
        "      count = g(how)",
        "  return ()",
        "def g(x):",
        "  return x",
        "f(0)",
    )
    assert await value_of(*text) is None
    w = Vvm()
    await w.cell(*text)
    assert [e.value for e in w.of(Bound) if e.name == "count"] == [0, 0]
    w.events.clear()
    await w.cell('f("return")', 'f("break")', 'f("continue")')
    assert [e.value for e in w.of(Bound) if e.name == "count"] == ["return", "break", "continue", "continue"]
    w.events.clear()
    await w.fails('f("raise")')
    assert [e.value for e in w.of(Bound) if e.name == "count"] == ["raise"]


@pytest.mark.parametrize(
    ("body", "final", "result"),
    [
        ("return 1", "return 2", 2),
        ('raise "a"', "return 2", 2),
        ("return 1", "pass", 1),
        ("break", "return 2", 2),
        ("return 1", "break", "after"),
        ("return 1", "continue", "after"),
        ('raise "a"', "break", "after"),
        ("break", "continue", "after"),
    ],
)
async def test_s8_an_exit_from_finally_replaces_the_pending_one(body: str, final: str, result: object) -> None:
    text = ("def f():", "  for x in [1]:", "    try:", f"      {body}", "    finally:", f"      {final}")
    assert await value_of(*text, '  return "after"', "f()") == result


async def test_s8_a_raise_in_finally_replaces_another() -> None:
    assert await raised_by("try:", '  raise "a"', "finally:", '  raise "b"') == ("R220", "b")
    text = ("def f():", "  try:", "    return 1", "  finally:", '    raise "b"', "f()")
    assert await raised_by(*text) == ("R220", "b")


async def test_a_raise_in_except_runs_finally_first() -> None:
    w = Vvm()
    error = await w.fails("try:", '  raise "a"', "except as e:", '  raise "b"', "finally:", "  x = 1")
    assert error.message == "b" and w.value("x") == 1


async def test_s9_a_bare_raise_reraises_the_caught_error() -> None:
    assert await raised_by("try:", "  nowhere", "except as e:", "  e = 1", "  raise") == (
        "R201",
        "unbound name: nowhere",
    )
    assert await raised_by("raise") == ("R220", "")
    text = ("def again():", "  raise", "try:", '  raise "a"', "except as e:", "  again()")
    assert await raised_by(*text) == ("R220", "")
    nested = ("try:", '  raise "a"', "except as e:", "  try:", '    raise "b"', "  except as f:", "    pass", "  raise")
    assert await raised_by(*nested) == ("R220", "a")
    inside = (
        "try:",
        '  raise "a"',
        "except as e:",
        "  try:",
        "    raise",
        "  except as f:",
        "    pass",
        "f.error.message",
    )
    assert await value_of(*inside) == "a"
    final = (
        "try:",
        '  raise "a"',
        "except as e:",
        "  pass",
        "finally:",
        "  try:",
        "    raise",
        "  except as f:",
        "    pass",
    )
    assert await value_of(*final, "f.error.message") == ""


async def test_an_uncaught_raise_shows_its_location_and_call_stack() -> None:
    w = Vvm()
    error = await w.fails("def inner(x):", '  raise "no good"', "def outer():", "  return inner(1)", "outer()")
    assert isinstance(error, VvmRaise) and error.value == {"error": {"kind": "thrown", "message": "no good"}}
    assert (error.code, error.type, error.details["statement"]) == ("R220", "thrown", 'raise "no good"')
    assert error.location is not None and (error.location.line, error.location.column) == (2, 3)
    assert error.call_stack == (
        "in function inner, called at line 4 of cell",
        "in function outer, called at line 5 of cell",
    )


async def test_s10_a49_an_interrupt_is_not_catchable_and_finally_starts_no_session() -> None:
    w = Vvm()
    text = "def late(m):\n  return ?`late`(m)\ntry:\n  with input 5:\n    while true:\n      n = 1\nexcept as e:\n  x = 1\nfinally:\n  y = 1\n"
    text += "  try:\n    z = pmap([1, 2], late)\n    v = 1\n  finally:\n    u = 1\n  t = 1\n"
    task = asyncio.ensure_future(w.run(text, cell=True))
    while not w.of(LoopPass):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(w.vvm.bindings()) == {"n", "y", "u"} and not w.judge.asked
    assert await w.cell("it") is None
    assert await w.cell("n") == 1


async def test_a49_a_second_interrupt_ends_finally() -> None:
    w = Vvm()
    task = asyncio.ensure_future(
        w.run("try:\n  while true:\n    n = 1\nfinally:\n  while true:\n    y = 1\n", cell=True)
    )
    for entered in (LoopPass, FinallyEntered):
        while not w.of(entered):
            await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a23_a49_a_missing_answer_skips_except_and_runs_finally() -> None:
    w = Vvm()
    text = ("def f():", "  return ?`c`(1)", "try:", "  with input 2:", "    f()", "except as e:", "  x = 1", "finally:")
    error = await w.fails(*text, "  y = 1", "  ?`d`(2)", "  z = 1")
    assert error.no_answer and not isinstance(error, VvmRaise) and "c" in error.message
    assert set(w.vvm.bindings()) == {"y"}
    assert await w.cell("it") is None


async def test_an_error_does_not_keep_the_frames_it_came_through() -> None:
    with contextlib.suppress(RunError):
        await Vvm(depth=3000, listening=False).cell("def f(n):", "  return f(n + 1)", "f(0)")
    error = await Vvm(depth=3000, listening=False).fails("def f(n):", "  return f(n + 1)", "f(0)")
    entries, trace = 0, error.__traceback__
    while trace is not None:
        entries, trace = entries + 1, trace.tb_next
    assert entries < 100
