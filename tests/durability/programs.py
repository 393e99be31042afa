"""Hypothesis strategies for OpenProse programs with branches, loops, errors and retries."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st


@dataclass
class Generated:
    """A program, and the texts of its commands and sessions that fail."""

    text: str
    fails: set[str] = field(default_factory=set)


class _Writer:
    """Draws one program. Each command and session has its own text; loops add their counter to it."""

    def __init__(self, draw: st.DrawFn, computing: bool) -> None:
        self.draw = draw
        self.computing = computing
        self.lines: list[str] = []
        self.fails: set[str] = set()
        self.names = 0
        self.asked = 0
        self.loops: list[str] = []
        self.in_parallel = 0
        self.in_block = False

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def text(self, prefix: str) -> str:
        self.asked += 1
        words = [f"{prefix}{self.asked}"]
        if self.draw(st.integers(0, 6)) == 0:
            self.fails.add(words[0])
        words += [f"{{{one}}}" for one in self.loops]
        return " ".join(words)

    def put(self, depth: int, line: str) -> None:
        self.lines.append("  " * depth + line)

    def body(self, depth: int, limit: int = 3) -> None:
        for _ in range(self.draw(st.integers(1, limit))):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        kinds = ["exec", "exec", "let", "session", "gather"]
        if self.computing:
            kinds += ["compute", "compute"]
        if depth < 4:
            kinds += ["parallel", "parallel", "for", "pmap", "try", "repeat", "if"]
            kinds += [] if self.in_block else ["do"]
        getattr(self, f"_{self.draw(st.sampled_from(kinds))}")(depth)

    # ------------------------------------------------------------ simple statements

    def _exec(self, depth: int) -> None:
        self.put(depth, f'exec "{self.text("c")}"')
        how = self.draw(st.sampled_from(["", "continue", "ignore"]))
        if how:
            self.put(depth + 1, f'on-fail: "{how}"')

    def _let(self, depth: int) -> None:
        self.put(depth, f'let {self.name()} = exec "{self.text("c")}"')

    def _session(self, depth: int) -> None:
        self.put(depth, f'let {self.name()} = session "{self.text("s")}"')
        if self.draw(st.booleans()):
            self.put(depth + 1, "retry: 2")
            self.put(depth + 1, f'backoff: "{self.draw(st.sampled_from(["none", "linear", "exponential"]))}"')

    def _gather(self, depth: int) -> None:
        self.put(depth, f'all = all + "{self.asked}"')

    def _compute(self, depth: int) -> None:
        self.put(depth, f"repeat {self.draw(st.integers(1, 40))}:")
        self.put(depth + 1, "n = n + 1")
        self.put(depth, 'all = all + "{n}"')

    # ------------------------------------------------------------ statements with bodies

    def _parallel(self, depth: int) -> None:
        strategy = self.draw(st.sampled_from(["", '"first"', '"any"', '"any", count: 2']))
        failing = self.draw(st.sampled_from(["", 'on-fail: "continue"', 'on-fail: "ignore"']))
        modifiers = ", ".join(one for one in (strategy, failing) if one)
        self.put(depth, f"parallel ({modifiers}):" if modifiers else "parallel:")
        self.in_parallel += 1
        for _ in range(self.draw(st.integers(2, 4))):
            if self.draw(st.booleans()):
                self.put(depth + 1, f'{self.name()} = exec "{self.text("c")}"')
            else:
                self.put(depth + 1, "do:")
                self.body(depth + 2, 2)
        self.in_parallel -= 1

    def _for(self, depth: int) -> None:
        item = self.name()
        parallel = "parallel " if self.draw(st.booleans()) else ""
        self.put(depth, f"{parallel}for {item} in [1, 2, 3]:")
        self._loop(depth, item)

    def _pmap(self, depth: int) -> None:
        self.put(depth, f"let {self.name()} = [1, 2] | pmap:")
        self._loop(depth, "item")

    def _repeat(self, depth: int) -> None:
        count = self.name()
        self.put(depth, f"repeat 2 as {count}:")
        self._loop(depth, count)

    def _loop(self, depth: int, item: str) -> None:
        if item not in self.loops:
            self.loops.append(item)
            self.body(depth + 1, 2)
            self.loops.pop()
        else:
            self.body(depth + 1, 2)

    def _try(self, depth: int) -> None:
        self.put(depth, "try:")
        self.body(depth + 1, 2)
        if self.draw(st.integers(0, 3)) == 0:
            self.put(depth + 1, 'throw "no"')
        catches = self.draw(st.booleans())
        if catches:
            self.put(depth, "catch as err:")
            self.put(depth + 1, 'all = all + "{err.message}"')
            self.body(depth + 1, 1)
        if not catches or self.draw(st.booleans()):
            self.put(depth, "finally:")
            self.body(depth + 1, 1)

    def _if(self, depth: int) -> None:
        self.put(depth, f"if n > {self.draw(st.integers(0, 20))}:")
        self.body(depth + 1, 1)
        self.put(depth, "else:")
        self.body(depth + 1, 1)

    def _do(self, depth: int) -> None:
        self.put(depth, f"let {self.name()} = do work({self.draw(st.integers(0, 2))})")

    def block(self) -> None:
        self.in_block = True
        self.put(0, "block work(depth):")
        self.loops.append("depth")
        self.body(1, 2)
        self.put(1, "if depth > 0:")
        self.put(2, "do work(depth - 1)")
        self.loops.pop()
        self.in_block = False


@st.composite
def programs(draw: st.DrawFn, *, computing: bool = False) -> Generated:
    """Draw a program."""
    writer = _Writer(draw, computing)
    writer.put(0, "let n = 0")
    writer.put(0, "let all = []")
    writer.block()
    writer.body(0, 5)
    writer.put(0, "output done = all")
    return Generated("\n".join(writer.lines) + "\n", writer.fails)
