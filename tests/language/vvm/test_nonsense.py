"""Any text is parsed in linear time, always with the same tree and findings, and without an exception."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language.vvm.programs import PROGRAMS
from scaling import assert_linear

from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree as t
from prose_kernel.language.vvm.completion import complete, completeness
from prose_kernel.language.vvm.names import RESERVED
from prose_kernel.language.vvm.parser import parse

QUICK = settings(max_examples=settings().max_examples * 5 // 2, deadline=None, suppress_health_check=list(HealthCheck))
SIGNS = "= == < + - . , : ( ) [ ] { } @ ? ` # & && ; {x} _ \0 \u00e9 $ ' \\ x f kind 1 0.5"
LAYOUT = ['"', '"' * 3, "\n", "\n  ", "\n    ", "\n\t", ":\n  ", " "]
WORDS = st.sampled_from([*sorted(RESERVED), *SIGNS.split(" "), *LAYOUT])
TEXTS = st.one_of(
    st.lists(WORDS, max_size=60).map(" ".join),
    st.lists(WORDS, max_size=60).map("".join),
    st.text(max_size=200),
    st.binary(max_size=200).map(lambda data: data.decode("latin-1")),
)


PARTS = {t.Match: ("cases", t.Case), t.Choose: ("options", t.Option), t.Constrain: ("requirements", t.Require)}


def assert_grammatical(items: tuple[object, ...]) -> None:
    """Assert that bodies contain only statements, and that every part is in its statement."""
    agenda = list(items)
    while agenda:
        item = agenda.pop()
        assert isinstance(item, t.Statement)
        holders: list[object] = [item]
        if type(item) in PARTS:
            field, part = PARTS[type(item)]
            holders = list(getattr(item, field))
            assert all(isinstance(holder, part) for holder in holders)
        elif isinstance(item, t.If):
            holders += item.arms
            agenda.extend(item.otherwise or ())
        elif isinstance(item, t.Try):
            holders.append(item.handler)
            agenda.extend(item.final or ())
        for holder in holders:
            agenda.extend(getattr(holder, "body", ()))


def check(text: str) -> None:
    source = Source.of(text)
    parsed = parse(source)
    places = [(d.line, d.column, d.code) for d in parsed.diagnostics]
    assert places == sorted(places)
    for found in parsed.diagnostics:
        assert found.source_line == source.line_text(found.line)
        assert 1 <= found.column <= len(found.source_line) + 1
        assert found.message and found.render()
    assert_grammatical(parsed.program.items)
    again = parse(source)
    assert (again.diagnostics, again.program) == (parsed.diagnostics, parsed.program)


@QUICK
@given(TEXTS)
def test_any_text_gives_a_tree_and_findings(text: str) -> None:
    check(text)
    assert completeness(text)[0] in ("complete", "incomplete", "invalid")


@QUICK
@given(st.sampled_from(sorted(PROGRAMS.values())), st.data())
def test_damaged_programs(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.one_of(st.just(""), WORDS)) + text[at + data.draw(st.integers(0, 12)) :]
    check(text)


@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS.values())), st.integers(0, 2000))
def test_every_beginning_of_a_program_can_continue(text: str, cut: int) -> None:
    prefix = text[: min(cut, len(text))]
    assert completeness(prefix)[0] in ("complete", "incomplete", "invalid")
    assert complete(prefix, "code", len(prefix), None, {}).start <= len(prefix)


LONG: dict[str, Callable[[int], str]] = {
    "open brackets": lambda n: "x = " + "(" * n,
    "brackets": lambda n: "x = " + "(" * n + "1" + ")" * n,
    "lists": lambda n: "x = " + "[" * n + "]" * n,
    "objects": lambda n: "x = " + "{a: " * n + "1" + "}" * n,
    "calls in calls": lambda n: "x = " + "f(" * n + "1" + ")" * n,
    "inline agents": lambda n: "x = " + "@{a=" * n + "1" + "}" * n,
    "not": lambda n: "x = " + "not " * n + "y",
    "sum": lambda n: "x = " + "1 + " * n + "1",
    "logic": lambda n: "x = " + "a and b or " * n + "c",
    "members": lambda n: "x = a" + ".b" * n,
    "calls": lambda n: "x = a" + "()" * n,
    "derived": lambda n: "x = @a" + ".with()" * n,
    "minus": lambda n: "x = " + "- " * n + "1",
    "elif": lambda n: "if a:\n  b\n" + "elif a:\n  b\n" * n,
    "bodies on one line": lambda n: "if a: " * n,
    "lines of open brackets": lambda n: "x = f(a,\n" * n,
    "open strings": lambda n: 'x = f("a\n' * n,
    "open texts": lambda n: 'x = """a\n' * (n | 1),
    "open templates": lambda n: "x = @a `a\n" * (n | 1),
    "closing brackets": lambda n: ")\n" * n,
    "escapes": lambda n: 'x = "' + "\\q" * n + '"',
    "braces": lambda n: "x = @a `" + "} {" * n + "`()",
    "quotes": lambda n: '"' * n,
    "commas": lambda n: "x = [" + "," * n + "]",
    "else": lambda n: "else:\n  y\n" * n,
    "dedents": lambda n: "if x:\n    y\n  z\n" * n,
    "steps": lambda n: "\n".join(" " * (i % 50) + "x" for i in range(n)),
    "semicolons": lambda n: "x = 1; " * n,
    "one line": lambda n: 'x = "' + "a" * 10 * n + '"; ' + "b " * 10 * n,
    "mojibake": lambda n: "The VM never does this \u201a\u00c4\u00ee refs `stay` as {refs}; it's \u201cfine\u201d\n" * n,
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_long_texts_cost_linear_time(name: str) -> None:
    make = LONG[name]

    def work(size: int) -> Callable[[], object]:
        source = Source(make(size))
        return lambda: parse(source)

    assert_linear(work, 400)


@pytest.mark.parametrize("name", list(LONG)[:13])
def test_ten_thousand_levels(name: str) -> None:
    found = parse(Source(LONG[name](10_000))).diagnostics
    assert len(found) <= 1
    assert all(d.render() for d in found)


@pytest.mark.parametrize(("levels", "codes"), [(500, []), (501, ["V001"]), (10_000, ["V001"])])
def test_a32_brackets_nest_five_hundred_levels(levels: int, codes: list[str]) -> None:
    parsed = parse(Source("x = " + "[" * levels + "]" * levels + "\ny = 1\n"))
    assert [(d.code, d.line) for d in parsed.diagnostics] == [(code, 1) for code in codes]
    value, depth = getattr(parsed.program.items[0], "value", None), 1
    while isinstance(value, t.List) and value.elements:
        value, depth = value.elements[0], depth + 1
    assert depth == (1 if codes else levels)


@pytest.mark.parametrize(("levels", "places"), [(500, []), (501, [("V001", 501)]), (1_000, [("V001", 501)])])
def test_a32_blocks_nest_five_hundred_levels(levels: int, places: list[tuple[str, int]]) -> None:
    text = "".join(" " * depth + "if x:\n" for depth in range(levels)) + " " * levels + "y = 1\n"
    assert [(d.code, d.line) for d in parse(Source(text)).diagnostics] == places


def test_the_language_room_imports_no_other() -> None:
    code = (
        "import sys\nfrom prose_kernel.language.vvm.parser import parse\nfrom prose_kernel.language.source import Source\n"
        "parse(Source('x = 1'))\nprint([m for m in sys.modules if 'lark' in m or 'openprose' in m])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
