"""Any program ends in a result or a documented raise, the same in every run (docs/reference/vvm.md 4, 10.4)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from choices import Choices, choices
from hypothesis import given
from machine.fakes import FakeJudge
from machine.vvm_world import Vvm, tree_of
from msgspec import structs

from prose_kernel.errors import VvmRaise
from prose_kernel.language.source import Source
from prose_kernel.language.vvm.formatter import format_program
from prose_kernel.language.vvm.parser import parse
from prose_kernel.runtime.events import Bound, Judged
from prose_kernel.runtime.ports import JudgeRequest, Pick, Verdict
from prose_kernel.runtime.values import LanguageValue

NAMES = ("a", "b", "c", "f", "g")
CODE = re.compile(r"R2(?:0[1-9]|1[0-9]|20)")

LITERALS = (
    *(
        "0",
        "1",
        "2",
        "0.5",
        "true",
        "false",
        "()",
        '""',
        '"x"',
        '"{\\"a\\": [1, {}]}"',
        "[]",
        "{}",
        "it",
        "len",
        "range(2)",
    ),
    *('{error: {kind: "k"}}', '{ref: "r", summary: "s"}', "{a: 1, b: [true]}", "[1, true, 1.0]"),
)
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "+", "-", "and", "or")
FUNCTIONS = ("f", "g", "map", "filter", "reduce", "pmap", "len", "range", "refine", "pack", "a")
COMBINED = (
    *("({} OPERATOR {})", "(not {})", "[{}, {}]", "{{a: {}, b: {}}}", "{}.a", "{}[{}]"),
    *(
        "FUNCTION({})",
        "FUNCTION({}, {})",
        "map({}, f)",
        "pmap([1, {}], g)",
        "reduce({}, g, init={})",
        "?`is {{a}}`({})",
    ),
)


def indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


class Program:
    """Generates a program. `leaves` is the number of leaves that the current expression may still have."""

    def __init__(self, choices: Choices) -> None:
        self.below, self.of, self.many = choices.below, choices.of, choices.many
        self.leaves = 0

    def text(self) -> str:
        lines = ["n = 0", "a = 1", "b = [1, 2]", 'c = {a: "x"}']
        for head in ("def f(a):", "def g(a, b):"):
            lines += [head, "  n = 0", *indented(self.several(4, 1, False, True))]
        return "\n".join([*lines, *self.several(6)]) + "\n"

    def expression(self) -> str:
        self.leaves = 5
        return self.inner()

    def inner(self) -> str:
        self.leaves -= 1
        if self.leaves < 1 or not self.below(2):
            return self.of(self.of((NAMES, LITERALS)))
        form = self.of(COMBINED).replace("OPERATOR", self.of(OPERATORS)).replace("FUNCTION", self.of(FUNCTIONS))
        return form.format(*(self.inner() for _ in range(form.replace("{{", "").count("{}"))))

    def several(self, limit: int, deep: int = 0, loop: bool = False, function: bool = False) -> list[str]:
        """Return the lines of at most `limit` statements."""
        return [line for one in self.many(lambda: self.statement(deep, loop, function), limit, 1) for line in one]

    def statement(self, deep: int, loop: bool, function: bool) -> list[str]:
        """Return the lines of a statement."""
        kinds = ["assign", "assign", "assign", "expression", "raise", "pass"]
        kinds += ["break", "continue"] if loop else []
        kinds += ["return", "return"] if function else []
        if deep < 3:
            kinds += ["if", "for", "while", "match", "choose", "constrain", "with", "try", "finally"]
            kinds += ["def"] if function else []
        kind = self.of(kinds)

        def body(in_loop: bool = loop, in_function: bool = function) -> list[str]:
            return indented(self.several(3, deep + 1, in_loop, in_function))

        expression, name = self.expression, self.of(NAMES[:3])
        match kind:
            case "assign":
                return [f"{name} = {expression()}"]
            case "expression":
                return [expression()]
            case "return":
                return [f"return {expression()}"]
            case "raise":
                return [self.of(('raise "boo"', "raise"))]
            case "if":
                return [f"if {expression()}:", *body(), "else:", *body()]
            case "for":
                return [f"for {name} in {expression()}:", *body(True)]
            case "while":  # ends after at most three passes
                return ["n = 0", "while n < 3:", "  n = n + 1", *body(True)]
            case "match":
                cases = ["  case error(_):", *indented(body()), "  case ?`like {}`:", *indented(body())]
                return [
                    f"match {expression()}:",
                    *cases,
                    "  case error(c):",
                    "    pass",
                    "  case _:",
                    *indented(body()),
                ]
            case "choose":
                return [
                    f"choose {expression()} by ?`t` as {name}:",
                    '  option "x":',
                    *indented(body()),
                    '  option "y":',
                    "    pass",
                ]
            case "constrain":
                return [f"{name} = {expression()}", f"constrain {name}():", "  require ?`r {}`", "  require ?`{b}`"]
            case "with":
                return [f"with input {expression()}:", *body()]
            case "try":
                return ["try:", *body(), f"except as {name}:", *body()]
            case "finally":
                return ["try:", *body(), "finally:", *body()]
            case "def":
                return [f"def {self.of(('h', 'g'))}({name}):", *body(False, True)]
            case _:
                return [kind]


programs = choices(1000).map(Program).map(Program.text)


class Oracle(FakeJudge):
    """A judge that always gives the same answer to the same question."""

    async def decide(self, request: JudgeRequest) -> Verdict:
        await asyncio.sleep(0)
        return Verdict((None, True, False)[len(request.text + str(request.subject)) % 3], "oracle")

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return Pick(("x", "y", "z")[len(str(request.subject)) % 3], "oracle")


def shown(value: object) -> object:
    """Return a value comparable between runs: functions become their names, and booleans differ from numbers."""
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return str(value) if isinstance(value, LanguageValue) else (type(value).__name__, value)


def documented(error: VvmRaise) -> str:
    """Return the code of an error, after checking that it is a documented R code and that the error has a location."""
    assert CODE.fullmatch(error.code), repr(error)
    assert error.location is not None and error.details["statement"]
    return error.code


async def outcome(text: str, program: Any = None, *, listening: bool = True) -> list[object]:
    """Run a program and return everything observable about the run."""
    w = Vvm(depth=6, listening=listening)
    w.vvm.host.ports = structs.replace(w.vvm.host.ports, judge=Oracle(w))
    source = Source(text, "cell")
    code: object = None
    try:
        value: object = await w.vvm.run(program if program is not None else tree_of(source), source, cell=True)
    except VvmRaise as raised:
        code, value = documented(raised), raised.value
    names = {name: shown(info.value) for name, info in w.vvm.bindings().items()}
    events = [(e.at, e.question, e.answer) for e in w.of(Judged)]
    assert len({at for at, _, _ in events}) == len(events)
    bound = [(e.name, shown(e.value)) for e in w.of(Bound)]
    assert await w.cell("it") is None
    return [code, shown(value), names, sorted(events) if listening else [], len(bound) if listening else 0]


@given(programs)
async def test_a_program_ends_in_the_same_result_or_documented_raise_twice(text: str) -> None:
    first = await outcome(text)
    assert await outcome(text) == first
    assert (await outcome(text, listening=False))[:3] == first[:3]


@given(programs)
async def test_a_formatted_program_does_the_same(text: str) -> None:
    source = Source(text, "cell")
    formatted = format_program(parse(source).program)
    assert (await outcome(formatted))[:4] == (await outcome(text))[:4]


@given(programs)
async def test_a_preview_of_any_program_ends(text: str) -> None:
    w = Vvm(depth=6)
    await w.vvm.preview(tree_of(Source(text)), Source(text))
    assert w.vvm.bindings() == {}
