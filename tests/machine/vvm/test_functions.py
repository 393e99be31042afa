"""Functions and the standard library of VVM (docs/reference/vvm.md 4.12, 5)."""

from __future__ import annotations

import pytest
from machine.vvm_world import Vvm, raised_by, value_of

from prose_kernel.errors import RunError
from prose_kernel.language.vvm.names import LIBRARY as NAMES
from prose_kernel.machine.vvm.library import LIBRARY
from prose_kernel.runtime.events import BlockEntered, BlockLeft, BranchFinished, Judged, ParallelJoined, PipeProgressed

# ---------------------------------------------------------------- calls (4.12)


async def test_a_function_returns_a_value_or_unit() -> None:
    text = ("def a():", "  return 1", "def b():", "  return", "def c():", "  pass", "[a(), b(), c()]")
    assert await value_of(*text) == [1, None, None]


async def test_positional_and_keyword_arguments() -> None:
    text = ("def f(a, b, c):", "  return [a, b, c]")
    assert await value_of(*text, "[f(1, 2, 3), f(1, c=3, b=2), f(c=1, b=2, a=3)]") == [[1, 2, 3], [1, 2, 3], [3, 2, 1]]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("f(1)", "'b' is missing"),
        ("f()", "a, b are missing"),
        ("f(1, 2, 3)", "3 given, 2 wanted"),
        ("f(1, 2, c=3)", "no parameter 'c'"),
        ("f(1, a=2)", "'a' is given twice"),
    ],
)
async def test_arguments_that_do_not_fit_raise(call: str, reason: str) -> None:
    assert await raised_by("def f(a, b):", "  return 1", call) == ("R208", f"bad arguments to f: {reason}")


async def test_a_value_that_is_not_a_function_is_not_called() -> None:
    for text, kind in (("1()", "a number"), ("()()", "unit"), ('"x"()', "a string"), ("{}(1)", "an object")):
        assert await raised_by(text) == ("R207", f"not callable: {kind}")


async def test_functions_of_a_module_are_hoisted() -> None:
    assert await value_of("x = f()", "def f():", "  return g()", "def g():", "  return 5", "x") == 5


async def test_f1_nested_functions_capture_by_reference() -> None:
    text = (
        "def outer(n):",
        "  def inner(x):",
        "    return x + n + late",
        "  late = 10",
        "  first = inner(1)",
        "  n = 100",
        "  return [first, inner(1), inner]",
        "r = outer(1)",
        "[r[0], r[1], r[2](5)]",
    )
    assert await value_of(*text) == [12, 111, 115]


async def test_a_closure_belongs_to_its_activation() -> None:
    text = ("def adder(n):", "  def add(x):", "    return x + n", "  return add", "a = adder(1)", "b = adder(10)")
    assert await value_of(*text, "[a(1), b(1), a(2)]") == [2, 11, 3]


async def test_a23_a_captured_name_that_is_not_bound_does_not_fall_through() -> None:
    text = ("n = 1", "def outer():", "  def inner():", "    return n", "  r = inner()", "  n = 2", "outer()")
    assert await raised_by(*text) == ("R202", "unbound local: n")


async def test_a_function_sees_the_module_as_it_is_when_called() -> None:
    assert await value_of("n = 1", "def f():", "  return n", "a = f()", "n = 2", "[a, f()]") == [1, 2]


async def test_a_nested_function_binds_when_it_is_reached() -> None:
    text = ("def f():", "  x = inner()", "  def inner():", "    return 1", "f()")
    assert await raised_by(*text) == ("R202", "unbound local: inner")


async def test_assigning_to_a_functions_name_rebinds_it() -> None:
    assert await value_of("def f():", "  return 1", "f = 2", "f") == 2


async def test_functions_are_values() -> None:
    text = ("def f(x):", "  return x + 1", "def twice(g, x):", "  return g(g(x))", "fs = [f, len]", "[twice(fs[0], 1)]")
    assert await value_of(*text) == [3]


async def test_a23_the_call_beyond_the_limit_raises() -> None:
    text = ("def f(n):", "  if n <= 1:", "    return 1", "  return 1 + f(n - 1)")
    assert await value_of(*text, "f(100)") == 100
    code, message = await raised_by(*text, "f(101)")
    assert code == "R218" and message.startswith("recursion limit")
    assert await value_of(*text, "f(3)", depth=3) == 3
    caught = ("try:", "  f(101)", "except as e:", "  pass", "f(100)")
    assert await value_of(*text, *caught) == 100


async def test_the_hint_of_the_limit_names_the_setting_as_prose_toml_does() -> None:
    with pytest.raises(RunError) as stopped:
        await value_of("def f(n):", "  return f(n)", "f(1)", depth=2)
    assert stopped.value.hint == "2 calls are nested; `[vvm] depth` in prose.toml allows more"


async def test_calls_may_be_20_000_deep() -> None:
    text = ("def f(n):", "  if n <= 1:", "    return 1", "  return 1 + f(n - 1)", "f(20000)")
    assert await value_of(*text, depth=20_000, listening=False) == 20_000
    assert (await raised_by(*text, depth=19_999, listening=False))[0] == "R218"


async def test_callbacks_count_as_calls() -> None:
    text = ("def f(x):", "  return map([x], f)", "f(1)")
    assert (await raised_by(*text))[0] == "R218"


async def test_calls_are_listed() -> None:
    w = Vvm()
    await w.cell("def f(a, b):", "  return a", "f(1, b=2)")
    entered, left = w.of(BlockEntered), w.of(BlockLeft)
    assert [(e.block, e.arguments, e.execution_id) for e in entered] == [("f", (1, 2), 1)]
    assert [(e.block, e.execution_id) for e in left] == [("f", 1)]


# ---------------------------------------------------------------- plain library functions (5)


async def test_l4_len() -> None:
    assert await value_of('[len("añ"), len([1, 2]), len({a: 1}), len("")]') == [2, 2, 1, 0]
    for text in ("len(1)", "len(())", "len(true)", "len(len)"):
        assert (await raised_by(text))[1].startswith("len: expected a string, a list or an object, not ")


async def test_r8_len_of_a_ref_raises() -> None:
    code, message = await raised_by('len({ref: "x", summary: "y"})')
    assert code == "R215" and message == "len: expected a string, a list or an object, not a ref"


async def test_f3_range() -> None:
    assert await value_of("[range(3), range(0), range(0 - 2), range(n=2)]") == [[0, 1, 2], [], [], [0, 1]]


async def test_a_range_too_large_for_memory_is_refused() -> None:
    assert (await raised_by("range(10000000000000)"))[1] == "range: expected at most 10,000,000, not 10000000000000"


async def test_a23_range_needs_a_whole_number() -> None:
    for text in ("range(2.0)", 'range("2")', "range(true)", "range(())"):
        code, message = await raised_by(text)
        assert code == "R215" and message.startswith("range: expected a whole number")


async def test_perm_fills_all_five_keys() -> None:
    assert await value_of('perm(read=["a"], bash="prompt")') == {
        "read": ["a"],
        "write": [],
        "execute": [],
        "bash": "prompt",
        "network": "deny",
    }
    for text in ('perm(read="a")', "perm(write=[1])", 'perm(bash="yes")', "perm(network=true)"):
        code, message = await raised_by(text)
        assert code == "R215" and message.startswith("perm: expected ")


async def test_a23_perm_takes_only_its_five_keywords() -> None:
    for text in ("perm([])", 'perm(tools="x")'):
        assert (await raised_by(text))[0] == "R208"


async def test_pack_takes_names_and_keywords() -> None:
    text = ("a = 1", "b = 2", "with input 3:", "  r = pack(a, b, it, c=4)", "[r, pack()]")
    assert await value_of(*text) == [{"a": 1, "b": 2, "it": 3, "c": 4}, {}]
    assert await value_of("p = pack", "p(x=1)") == {"x": 1}
    assert (await raised_by("p = pack", "x = 1", "p(x)"))[0] == "R208"
    assert (await raised_by("map([1], pack)"))[0] == "R208"


async def test_wrong_arguments_of_the_library_raise() -> None:
    for text in ("len()", "len(1, 2)", "range(m=1)", "map([1])", "refine(1, 2, len)", "reduce([])"):
        code, message = await raised_by(text)
        assert code == "R208" and message.startswith("bad arguments to ")


# ---------------------------------------------------------------- helpers with callbacks (5)

FUNCTIONS = (
    "def double(x):",
    "  return x + x",
    "def small(x):",
    "  return x < 3",
    "def add(a, b):",
    "  return a + b",
    "def bad(x):",
    "  if x == 2:",
    '    return {error: {kind: "two"}}',
    "  if x > 2:",
    '    raise "too big"',
    "  return x",
)


async def test_map_filter_reduce() -> None:
    text = "[map([1, 2], double), filter([1, 5, 2], small), reduce([1, 2, 3], add), reduce([], add, init=7)]"
    assert await value_of(*FUNCTIONS, text) == [[2, 4], [1, 2], 6, 7]
    assert await value_of('map(["a", "bc"], len)') == [1, 2]


@pytest.mark.parametrize("call", ["map([1, 2, 3], bad)", "filter([2, 3], bad)", "reduce([0, 2], second)"])
async def test_helpers_stop_at_the_first_error_value(call: str) -> None:
    text = (*FUNCTIONS, "def second(a, b):", "  return bad(b)", call)
    assert await value_of(*text) == {"error": {"kind": "two"}}


async def test_a_raise_in_a_callback_propagates() -> None:
    for call in ("map([3], bad)", "filter([3], bad)", "pmap([3], bad)", "refine(3, 1, two, two)"):
        text = (*FUNCTIONS, "def two(a, b):", "  return bad(a)", call)
        assert await raised_by(*text) == ("R220", "too big")


async def test_helpers_need_lists_and_functions() -> None:
    for name in ("map", "pmap", "filter"):
        for items in ('"ab"', "{}", "()", '{error: {kind: "x"}}'):
            code, message = await raised_by(f"{name}({items}, len)")
            assert code == "R215" and message.startswith(f"{name}: expected a list")
    assert (await raised_by("reduce(1, len)"))[0] == "R215"


async def test_a23_a_callback_must_be_a_function_also_for_an_empty_list() -> None:
    for call in ("map([], 1)", "pmap([], ())", "filter([], {})", 'reduce([], "f", init=0)', "refine(1, 0, len, 2)"):
        assert (await raised_by(call))[0] == "R215"


async def test_filter_and_refine_need_booleans() -> None:
    assert (await raised_by("filter([1], len2)", "def len2(x):", "  return 1"))[0] == "R203"
    assert (await raised_by("refine(1, 1, two, two)", "def two(x, i):", "  return 1"))[0] == "R203"


async def test_f4_reduce_of_an_empty_list_raises() -> None:
    assert await raised_by(*FUNCTIONS, "reduce([], add)") == ("R216", "reduce of empty list")
    assert await value_of(*FUNCTIONS, "reduce([5], add)") == 5


async def test_a23_an_init_that_is_an_error_value_is_returned() -> None:
    assert await value_of(*FUNCTIONS, 'reduce([1], add, init={error: {kind: "k"}})') == {"error": {"kind": "k"}}


async def test_refine_follows_the_algorithm() -> None:
    text = (
        "def done(x, i):",
        "  return x >= 3",
        "def step(x, i):",
        "  return x + 1",
        "[refine(0, 10, done, step), refine(0, 2, done, step), refine(7, 0, done, step), refine(seed=0, max=3, done=done, step=step)]",
    )
    assert await value_of(*text) == [3, 2, 7, 3]
    assert (await raised_by(*text[:4], "refine(0, 1.0, done, step)"))[0] == "R215"


async def test_f6_refine_takes_error_values_for_candidates() -> None:
    text = ("def done(x, i):", "  return i == 1", "def step(x, i):", '  return {error: {kind: "e"}}')
    assert await value_of(*text, "refine(0, 3, done, step)") == {"error": {"kind": "e"}}


async def test_helpers_report_their_progress() -> None:
    w = Vvm()
    await w.cell('map(["a", "b"], len)')
    assert [(e.operation, e.index, e.total) for e in w.of(PipeProgressed)] == [("map", 1, 2), ("map", 2, 2)]


# ---------------------------------------------------------------- pmap (5, F5)


async def test_pmap_keeps_the_order_of_its_items() -> None:
    w = Vvm(judge_says={f"c{n}": n == 1 for n in range(3)}, order={"c0": 3.0, "c1": 2.0, "c2": 1.0}.__getitem__)
    found = await w.cell("def f(n):", "  return ?`c{n}`(n)", "pmap(range(3), f)")
    assert found == [False, True, False]
    assert [e.question for e in w.of(Judged)] == ["c2", "c1", "c0"]
    assert [e.at for e in w.of(Judged)] == ["c1/1/i2/j0", "c1/1/i1/j0", "c1/1/i0/j0"]
    assert len(w.of(ParallelJoined)) == 1


async def test_f5_any_raise_wins_by_the_order_of_the_items() -> None:
    text = (
        "def f(n):",
        "  ?`c{n}`(n)",
        "  if n == 0:",
        '    return {error: {kind: "first"}}',
        "  if n < 3:",
        "    return nowhere[n]",
        "  return n",
        "pmap(range(5), f)",
    )
    w = Vvm(judge_says={f"c{n}": True for n in range(5)}, order=lambda text: 9.0 - int(text[1:]))
    error = await w.fails(*text)
    assert error.message == "unbound name: nowhere"
    assert len(w.judge.asked) == 5  # no call was cancelled
    assert [e.status for e in w.of(BranchFinished)] == ["done", "done", "failed", "failed", "done"]


async def test_f5_then_the_first_error_value() -> None:
    text = (*FUNCTIONS, "def f(n):", "  ?`c{n}`(n)", "  return {error: {kind: n}}", "pmap([1, 2], f)")
    w = Vvm(judge_says={"c1": True, "c2": True}, order=lambda text: 9.0 - int(text[1:]))
    assert await w.cell(*text) == {"error": {"kind": 1}}


async def test_pmap_of_pmap_has_its_own_paths() -> None:
    text = (
        "def f(n):",
        "  return pmap([n, n], g)",
        "def g(n):",
        "  return ?`c`(n)",
        "pmap([1, 2], f)",
        "pmap([1, 2], g)",
    )
    w = Vvm(judge_says={"c": True})
    await w.cell(*text)
    paths = [e.at for e in w.of(Judged)]
    assert len(set(paths)) == 6
    again = Vvm(judge_says={"c": True}, order=lambda _: 1.0)
    await again.cell(*text)
    assert sorted(e.at for e in again.of(Judged)) == sorted(paths)


async def test_a23_a_missing_answer_in_pmap_ends_the_run() -> None:
    w = Vvm(judge_says={"c1": True})
    text = ("def f(n):", "  return ?`c{n}`(n)", "try:", "  pmap([1, 2], f)", "except as e:", "  x = 1")
    error = await w.fails(*text)
    assert error.no_answer and "x" not in w.vvm.bindings()


async def test_locals_are_private_to_each_invocation() -> None:
    text = ("def f(n):", "  x = n", "  ?`c`(n)", "  return x", "pmap([1, 2, 3], f)")
    assert await value_of(*text, judge_says={"c": True}, order=lambda _: 1.0) == [1, 2, 3]


async def test_many_invocations_are_run() -> None:
    assert await value_of("def f(n):", "  return n + 1", "pmap(range(1000), f)") == list(range(1, 1001))


async def test_an_error_in_a_callback_shows_the_call_of_the_helper() -> None:
    error: RunError = await Vvm().fails("def f(n):", "  return n.x", "pmap([1], f)")
    assert error.call_stack == ("in function f, called at line 3 of cell",)


def test_the_checker_knows_the_whole_library() -> None:
    assert {name: function.parameters for name, function in LIBRARY.items()} == dict(NAMES)  # type: ignore[attr-defined]
