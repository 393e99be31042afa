"""The canonical form of VVM (docs/reference/vvm.md 14)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language.vvm.random_trees import commented, expression, programs
from scaling import assert_linear

from prose_kernel.language.source import Source
from prose_kernel.language.vvm import parse
from prose_kernel.language.vvm import tree as t
from prose_kernel.language.vvm.formatter import format_program


def read(text: str) -> t.Program:
    parsed = parse(Source.of(text))
    assert not parsed.diagnostics, [found.render() for found in parsed.diagnostics]
    return parsed.program


def formatted(text: str) -> str:
    return format_program(read(text))


# ---------------------------------------------------------------- laws


@settings(max_examples=150, deadline=None)
@given(programs)
def test_what_is_printed_parses_to_the_same_program(program: t.Program) -> None:
    text = format_program(program)
    assert read(text) == program
    assert formatted(text) == text


@settings(max_examples=150, deadline=None)
@given(expression)
def test_every_expression_survives(node: t.Expression) -> None:
    program = t.Program((t.Assign(t.Name("x"), node),))
    text = format_program(program)
    assert read(text) == program
    assert formatted(text) == text


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_comment_is_lost_or_moved_past_another(data: st.DataObject) -> None:
    text = data.draw(programs.map(format_program).flatmap(commented))
    program = read(text)
    printed = format_program(program)
    assert read(printed) == program, printed  # with its comments, each alone or behind code as before
    assert formatted(printed) == printed
