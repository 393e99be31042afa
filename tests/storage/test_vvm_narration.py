"""The narration of a VVM run in memory (docs/reference/vvm.md 8)."""

from __future__ import annotations

from typing import Any

import pytest
from machine.fakes import Reply
from machine.vvm_world import Vvm

from prose_kernel.errors import RunError
from prose_kernel.runtime.events import Audience
from prose_kernel.storage.transcript import MarkedTrace

AGENT = 'agent a(model="small")'


async def narration(*lines: str, **world: Any) -> list[str]:
    w = Vvm(**world)
    trace = MarkedTrace()
    host = w.vvm._shared.host
    host.listeners, host.heard = (trace,), Audience((trace,))
    error: RunError | None = None
    try:
        await w.cell(*lines)
    except RunError as problem:
        error = problem
    await w.vvm.end(error)
    return trace.text.splitlines()


def test_the_markers_are_single_code_points() -> None:
    markers = "📍📦✅❌🔄⏳🎯⚡"
    t = MarkedTrace
    assert markers == f"{t.START}{t.VALUE}{t.DONE}{t.FAILED}{t.AGAIN}{t.WAITING}{t.DECIDED}{t.PARALLEL}"
    assert len(markers) == 8


async def test_a_call() -> None:
    assert await narration(AGENT, 'x = @a `Hi {}`("Bob")', sessions_say={"Hi Bob": "hello\nworld"}) == [
        "📍 Run: main.vvm",
        '📍 @a `Hi {}`("Bob")',
        "⏳ @a (model=small)",
        "📦 hello world",
        "✅ x bound",
        "✅ Completed",
    ]


async def test_a_call_that_fails_and_is_repeated() -> None:
    lines = await narration(
        "agent b()", "@b `x`((), retry=1)", sessions_say={"x": [Reply(fails="busy"), Reply(fails="no")]}
    )
    assert lines[1:-1] == ["📍 @b `x`((), retry=1)", "⏳ @b", "❌ @b: busy", "🔄 attempt 2 of 2", "⏳ @b", "❌ @b: no"]


async def test_decisions() -> None:
    lines = await narration(
        'if ?`is it good`("x"):',
        "  pass",
        "choose 1 by ?`which` as c:",
        '  option "cold":',
        "    pass",
        '  option "warm":',
        "    pass",
        judge_says={"is it good": False, "which": "warm"},
    )
    assert lines[1:-1] == ["🎯 ?is it good → false", "🎯 no arm", "🎯 ?which → warm", "🎯 option warm", "✅ c bound"]


async def test_loops_branches_and_functions() -> None:
    lines = await narration("def f(n):", "  return n", "for i in [1]:", "  pass", "pmap([1, 2], f)")
    assert "🔄 iteration 1" in lines and "⚡ 2 at once" in lines
    assert lines.count("📦 f returned") == 2 and "📍 f(2)" in lines


async def test_errors() -> None:
    assert (await narration("try:", '  raise "oops"', "except as e:", "  pass", "finally:", "  pass"))[1:-1] == [
        "📍 try",
        "❌ oops",
        "📍 except as e: oops",
        "✅ e bound",
        "📍 finally",
    ]
    assert (await narration('raise "the\nend"'.replace("\n", "\\n")))[1:] == ["❌ the end", "❌ Failed: the end"]


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\nb", "x" * 10_000])
async def test_no_text_breaks_a_line(text: str) -> None:
    lines = await narration(AGENT, "x = @a `q`(())", sessions_say={"q": text})
    assert len(lines) == 6 and all(len(line) < 200 for line in lines)
