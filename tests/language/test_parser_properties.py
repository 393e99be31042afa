"""Properties of parser and formatter for generated programs and for arbitrary text."""

from __future__ import annotations

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from language.programs import PROGRAMS
from language.trees import program, script_program

from prose_kernel.language.diagnostics import Profile
from prose_kernel.language.nodes import Node, rebuilt, walk
from prose_kernel.language.openprose import compile_source
from prose_kernel.language.openprose import tree as t
from prose_kernel.language.openprose.bare_conditions import is_words
from prose_kernel.language.openprose.completion import completeness, expected
from prose_kernel.language.openprose.formatter import expression, format_program
from prose_kernel.language.openprose.lexer import tokenize
from prose_kernel.language.openprose.parser import parse, read_expression
from prose_kernel.language.source import Source

QUICK = settings(max_examples=2 * settings().max_examples, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = st.sampled_from(
    [
        "let", "session", '"', '"""', "**", "***", "if", "else:", "elif", "parallel", ":", "(", ")", "[", "]", "{", "}",
        "\n", "\n  ", "\n    ", "\t", "|", "->", "map:", "reduce", "=", "==", "x", "a.b", "1", "-", "+", "try:",
        "catch", "finally:", "choice", "option", "gate", "agent", "block", "do", "for", "in", "loop", "until", "(max: 3)",
        "call", "record", "append", "to", "loop for each", "if it's so:", "#", "\\", "{x}", "context:", "permissions:", "on_reject:", "throw", "exec", "use", "output", "input", "\0", "'",
        ",",
    ]
)  # fmt: skip
NONSENSE = st.one_of(
    st.text(max_size=200), st.lists(WORDS, max_size=60).map(" ".join), st.lists(WORDS, max_size=60).map("".join)
)
PROFILES = st.sampled_from(["default", "strict", "prosescript", "prosescript-strict"])


@QUICK
@given(program)
def test_what_is_printed_parses_to_the_same_program(tree: t.Program) -> None:
    printed = format_program(tree)
    parsed = parse(Source(printed))
    codes = [d.render() for d in parsed.diagnostics if d.severity == "error" and d.code != "E005"]
    assert not codes, f"{printed}\n{codes}"
    assert format_program(parsed.program) == printed
    assert sorted(map(repr, parsed.program.items)) == sorted(map(repr, tree.items)), printed


def _as_expression(node: Node) -> Node:
    return node.expression if isinstance(node, t.AmbiguousCondition) else node


def _is_words(node: Node) -> bool:
    """Return whether ProseScript reads a condition as words, like `a is []` (prose-md.md 3.4)."""
    conditions = [node.condition] if isinstance(node, t.Arm | t.Loop) and node.condition is not None else []
    return any(
        is_words(expression(one), "if", read_expression) for one in conditions if not isinstance(one, t.Discretion)
    )


@QUICK
@given(script_program)
def test_what_is_printed_of_a_script_parses_to_the_same_program(tree: t.Program) -> None:
    assume(not any(map(_is_words, walk(tree))))
    printed = format_program(tree)
    parsed = parse(Source(printed), "prosescript")
    codes = [d.render() for d in parsed.diagnostics if d.severity == "error" and d.code != "E005"]
    assert not codes, f"{printed}\n{codes}"
    assert format_program(parsed.program) == printed
    read = rebuilt(parsed.program, _as_expression)
    assert sorted(map(repr, read.items)) == sorted(map(repr, tree.items)), printed


@QUICK
@given(NONSENSE, PROFILES)
def test_any_text_gives_a_tree_and_findings(text: str, profile: Profile) -> None:
    source = Source(text)
    compiled = compile_source(source, profile=profile)
    lines = text.count("\n") + 1
    for found in compiled.diagnostics:
        assert 1 <= found.line <= lines
        assert 1 <= found.column <= len(source.line_text(found.line)) + 1
        assert found.source_line == source.line_text(found.line)
        assert found.render()
    assert list(compiled.diagnostics) == sorted(compiled.diagnostics, key=lambda d: (d.line, d.column, d.code))
    assert completeness(text)[0] in ("complete", "incomplete", "invalid")
    assert all(0 <= token.start <= token.end <= len(text) for token in tokenize(text))
    assert all(kind.isupper() for kind in expected(text))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(sorted(PROGRAMS.values())))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 12))
        text = text[:at] + draw(st.one_of(st.just(""), WORDS)) + text[at + length :]
    return text


@QUICK
@given(damaged(), PROFILES)
def test_damaged_programs_are_read_as_far_as_possible(text: str, profile: Profile) -> None:
    compiled = compile_source(Source(text), profile=profile)
    assert all(d.render() for d in compiled.diagnostics)
    if compiled.ok and profile == "default":
        printed = format_program(compiled.program)
        assert format_program(parse(Source(printed)).program) == printed


@QUICK
@given(damaged())
def test_a_finding_is_reported_once(text: str) -> None:
    found = parse(Source(text)).diagnostics
    places = [(d.line, d.column, d.code) for d in found]
    assert len(places) == len(set(places))


@QUICK
@given(st.sampled_from(sorted(PROGRAMS.values())), st.integers(0, 3000))
def test_every_prefix_of_a_program_can_be_completed(text: str, cut: int) -> None:
    prefix = text[: min(cut, len(text))]
    assert isinstance(expected(prefix), frozenset)
    state, indent = completeness(prefix)
    assert state in ("complete", "incomplete", "invalid")
    assert not indent.strip()
