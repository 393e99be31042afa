"""The hook before each statement: its arguments and effects; it does not change the run (docs/contributing/architecture.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from machine.fakes import World, lines
from machine.vvm_world import Vvm

from prose_kernel.errors import CompileError, RunError, UsageError
from prose_kernel.runtime.execution_context import ExecutionContext, Node
from prose_kernel.runtime.statement_hook import StackFrame, joined
from prose_kernel.runtime.values import Value


class Observer:
    """Record the frames at each statement, and evaluate expressions at one line."""

    def __init__(self, at: int = 0, *texts: str) -> None:
        self.at, self.texts = at, texts
        self.seen: list[list[tuple[str, int]]] = []
        self.found: list[Value | Exception] = []
        self.scopes: list[dict[str, dict[str, Value]]] = []
        self.failures: list[tuple[int, int]] = []

    def before(self, s: ExecutionContext, node: Node) -> Awaitable[None] | None:
        frames = s.frames(node)
        assert len(frames) == s.level
        places = [(frame.name, line_of(frame)) for frame in frames]
        self.seen.append(places)
        return self.evaluate_all(s, frames) if places[0][1] == self.at else None

    async def evaluate_all(self, s: ExecutionContext, frames: tuple[StackFrame, ...]) -> None:
        self.scopes += [{scope.name: dict(scope.names()) for scope in frame.scopes} for frame in frames]
        for text in self.texts:
            try:
                self.found.append(await s.evaluate(frames[0], text))
            except (RunError, UsageError, CompileError) as error:
                self.found.append(error)

    def failed(self, s: ExecutionContext, node: Node, error: RunError) -> None:
        self.failures.append((s.source.line_column(node.span.start)[0], s.guarded))

    def interrupted(self) -> None:
        return


def line_of(frame: StackFrame) -> int:
    return frame.source.line_column(frame.span.start)[0]


async def test_openprose_has_frames_scopes_and_evaluation() -> None:
    observer = Observer(
        3, "depth + 1", '"{who} of {n}"', "do again(7)", 'exec "ls"', "**is it good**", "missing", "1 +"
    )
    w = World(hook=observer)
    text = lines(
        "let n = 5",
        "block greet(who, depth):",
        '  let text = "hello {who}"',
        "  if depth > 0:",
        "    do greet(who, depth - 1)",
        "block again(x):",
        "  n = x",
        "  output n",
        'do greet("Ann", 1)',
    )
    await w.run(text)
    assert observer.seen[:2] == [[("main.prose", 1)], [("main.prose", 9)]]
    deepest = max(observer.seen, key=len)
    assert [line for _, line in deepest] == [3, 5, 9]
    assert [name for name, _ in deepest][:2] == ["greet #2", "greet #1"]
    first = observer.scopes[0]
    assert first["Locals"] == {"who": "Ann", "depth": 1}
    assert first["Globals"]["n"] == 5
    found = observer.found
    assert found[:3] == [2, "Ann of 5", 7]
    assert w.value("n") == 5, "an evaluation changes nothing"
    assert "no command runs" in str(found[3])
    assert "judged" in str(found[4])
    assert isinstance(found[5], RunError)
    assert isinstance(found[6], CompileError)


async def test_vvm_has_frames_scopes_and_evaluation() -> None:
    observer = Observer(4, "x + k", "add(1)", "it", "nowhere", "@helper `do it`()")
    w = Vvm(hook=observer)
    text = lines("k = 10", "def outer(x):", "  def add(y):", "    return x + y", "  return add(x)", "r = outer(3)")
    await w.run(text)
    assert [line for _, line in max(observer.seen, key=len)] == [4, 5, 6]
    assert [name for name, _ in max(observer.seen, key=len)][:2] == ["add", "outer"]
    first = observer.scopes[0]
    assert first["Locals"] == {"y": 3}
    assert first["Closure"]["x"] == 3
    assert first["Globals"]["k"] == 10
    assert observer.found[0] == 13
    assert observer.found[1] == 4
    assert isinstance(observer.found[3], RunError)


async def test_errors_are_reported_with_the_number_of_handlers_around_them() -> None:
    observer = Observer()
    w = World(hook=observer)
    await w.run(lines("try:", '  throw "a"', "catch as e:", "  let x = 1"))
    with pytest.raises(RunError):
        await w.run(lines('throw "b"'), cell=True)
    assert observer.failures == [(2, 1), (1, 0)]


async def test_a_stopped_statement_stops_all_branches() -> None:
    events: list[str] = []

    class Stopping:
        def before(self, s: ExecutionContext, node: Node) -> Awaitable[None] | None:
            events.append(s.source.slice(node.span).split("\n")[0])
            return self.wait() if "two" in events[-1] else None

        async def wait(self) -> None:
            for _ in range(50):
                await asyncio.sleep(0)
            events.append("released")

        def failed(self, s: ExecutionContext, node: Node, error: RunError) -> None:
            return

        def interrupted(self) -> None:
            return

    w = World(hook=joined([Stopping()]))
    await w.run(lines("parallel:", '  a = session "one"', '  b = session "two"', '  c = session "three"'))
    assert events[1:] == ['a = session "one"', 'b = session "two"', "released", 'c = session "three"']
