"""Any program (docs/reference/vvm.md 4, 10.4): it ends in a result or a documented raise, the same in every run."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from machine.fakes import FakeJudge
from machine.vvm_world import Vvm, tree_of
from msgspec import structs

from prose_kernel.errors import VvmRaise
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import format_program, parse
from prose_kernel.runtime.events import Bound, Judged
from prose_kernel.runtime.ports import JudgeRequest, Pick, Verdict
from prose_kernel.runtime.values import LanguageValue

FEW = settings(max_examples=settings().max_examples // 2)  # a program takes a while to think up

NAMES = ("a", "b", "c", "f", "g")
CODE = re.compile(r"R2(?:0[1-9]|1[0-9]|20)")

literals = st.sampled_from(
    (
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
    )
) | st.sampled_from(('{error: {kind: "k"}}', '{ref: "r", summary: "s"}', "{a: 1, b: [true]}", "[1, true, 1.0]"))


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operator = st.sampled_from(("==", "!=", "<", "<=", ">", ">=", "+", "-", "and", "or"))
    function = st.sampled_from(("f", "g", "map", "filter", "reduce", "pmap", "len", "range", "refine", "pack", "a"))
    return st.one_of(
        st.builds("({} {} {})".format, inner, operator, inner),
        st.builds("(not {})".format, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{a: {}, b: {}}}".format, inner, inner),
        st.builds("{}.a".format, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}({})".format, function, inner),
        st.builds("{}({}, {})".format, function, inner, inner),
        st.builds("map({}, f)".format, inner),
        st.builds("pmap([1, {}], g)".format, inner),
        st.builds("reduce({}, g, init={})".format, inner, inner),
        st.builds("?`is {{a}}`({})".format, inner),
    )


expressions = st.recursive(literals | st.sampled_from(NAMES), combined, max_leaves=5)


def indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


@st.composite
def statements(draw: Any, deep: int = 0, loop: bool = False, function: bool = False) -> list[str]:
    """A statement, as its lines."""
    kinds = ["assign", "assign", "assign", "expression", "raise", "pass"]
    kinds += ["break", "continue"] if loop else []
    kinds += ["return", "return"] if function else []
    if deep < 3:
        kinds += ["if", "for", "while", "match", "choose", "constrain", "with", "try", "finally"]
        kinds += ["def"] if function else []
    kind = draw(st.sampled_from(kinds))

    def body(in_loop: bool = loop, in_function: bool = function) -> list[str]:
        inner = draw(st.lists(statements(deep + 1, in_loop, in_function), min_size=1, max_size=3))
        return indented([line for one in inner for line in one])

    def expression() -> str:
        return str(draw(expressions))

    name = draw(st.sampled_from(NAMES[:3]))
    match kind:
        case "assign":
            return [f"{name} = {expression()}"]
        case "expression":
            return [expression()]
        case "return":
            return [f"return {expression()}"]
        case "raise":
            return [draw(st.sampled_from(('raise "boo"', "raise")))]
        case "if":
            return [f"if {expression()}:", *body(), "else:", *body()]
        case "for":
            return [f"for {name} in {expression()}:", *body(True)]
        case "while":  # at most three passes, and then it ends
            return ["n = 0", "while n < 3:", "  n = n + 1", *body(True)]
        case "match":
            cases = ["  case error(_):", *indented(body()), "  case ?`like {}`:", *indented(body())]
            return [f"match {expression()}:", *cases, "  case error(c):", "    pass", "  case _:", *indented(body())]
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
            return [f"def {draw(st.sampled_from(('h', 'g')))}({name}):", *body(False, True)]
        case _:
            return [kind]


@st.composite
def programs(draw: Any) -> str:
    lines = ["n = 0", "a = 1", "b = [1, 2]", 'c = {a: "x"}']
    for head in ("def f(a):", "def g(a, b):"):
        inner = draw(st.lists(statements(1, False, True), min_size=1, max_size=4))
        lines += [head, "  n = 0", *indented([line for one in inner for line in one])]
    for one in draw(st.lists(statements(), min_size=1, max_size=6)):
        lines += one
    return "\n".join(lines) + "\n"


class Oracle(FakeJudge):
    """Answers everything, always the same."""

    async def decide(self, request: JudgeRequest) -> Verdict:
        await asyncio.sleep(0)
        return Verdict((None, True, False)[len(request.text + str(request.subject)) % 3], "oracle")

    async def choose(self, request: JudgeRequest, labels: tuple[str, ...]) -> Pick:
        return Pick(("x", "y", "z")[len(str(request.subject)) % 3], "oracle")


def shown(value: object) -> object:
    """A value, with functions by their names, so that two runs can be compared; booleans differ from numbers."""
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return str(value) if isinstance(value, LanguageValue) else (type(value).__name__, value)


def documented(error: VvmRaise) -> str:
    """The code of an error, which is one of the reference's and says where it arose."""
    assert CODE.fullmatch(error.code), repr(error)
    assert error.location is not None and error.details["statement"]
    return error.code


async def outcome(text: str, program: Any = None, *, listening: bool = True) -> list[object]:
    """All that can be seen of a run."""
    w = Vvm(depth=6, listening=listening)
    w.vvm.ports = structs.replace(w.vvm.ports, judge=Oracle(w))
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


@FEW
@given(programs())
async def test_a_program_ends_in_a_result_or_a_documented_raise_and_the_same_again(text: str) -> None:
    first = await outcome(text)
    assert await outcome(text) == first
    assert (await outcome(text, listening=False))[:3] == first[:3]


@FEW
@given(programs())
async def test_a_formatted_program_does_the_same(text: str) -> None:
    source = Source(text, "cell")
    formatted = format_program(parse(source).program)
    assert (await outcome(formatted))[:4] == (await outcome(text))[:4]


@FEW
@given(programs())
async def test_a_preview_of_any_program_ends(text: str) -> None:
    w = Vvm(depth=6)
    await w.vvm.preview(tree_of(Source(text)), Source(text))
    assert w.vvm.bindings() == {}
