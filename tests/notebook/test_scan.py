"""Magic lines and literals of a cell, without parsing it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import assert_linear

from prose_kernel.language.incomplete_text import kind_at, literals
from prose_kernel.notebook.cell_scan import segments

DELIMITERS = ("***", "**")

QUOTED = '"""'


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("let x = ", "code"),
        ('exec "ls', "string"),
        ('exec "ls"', "code"),
        ('exec "say \\"', "string"),
        (f"session {QUOTED}\nline one\n", "triple"),
        (f"session {QUOTED}\nline one\n{QUOTED}", "code"),
        (f'session {QUOTED}he said "hi" and ', "triple"),
        ("# a comment", "comment"),
        ("# a comment\n", "code"),
        ("if **the tests", "marker"),
        ("if **done**:", "code"),
        ("if ***one\ntwo ** three", "marker"),
        ('exec "# not a comment"', "code"),
        ('exec "unclosed\nlet y = ', "code"),
    ],
)
def test_the_construct_at_the_cursor(text: str, where: str) -> None:
    assert kind_at(text, len(text), DELIMITERS)[0] == where


@given(st.text(alphabet='"#*\\\n a%{}'))
def test_literals_are_in_order_and_apart(text: str) -> None:
    at = 0
    for region in literals(text, DELIMITERS):
        assert at <= region.start < region.end <= len(text)
        at = region.end


def test_a_cell_without_magics_is_one_text() -> None:
    code = 'let x = 5 \nexec "date +%s"\n'
    assert [(s.magic, s.text) for s in segments(code)] == [(False, code)]


def test_magics_stand_between_statements_and_lines_keep_their_numbers() -> None:
    code = "%cd sub\nlet a = 1\n\n%bindings\nlet b = 2\n%agents"
    found = segments(code)
    assert [(s.magic, s.text.strip(), s.line) for s in found] == [
        (True, "cd sub", 1),
        (False, "let a = 1", 1),
        (True, "bindings", 4),
        (False, "let b = 2", 4),
        (True, "agents", 6),
    ]
    for segment in found:
        if not segment.magic:
            wanted = segment.text.strip()
            line = segment.text[: segment.text.index(wanted)].count("\n")
            assert code.split("\n")[line] == wanted


@pytest.mark.parametrize("quote", [QUOTED, "**", "***"])
def test_a_percent_sign_inside_a_literal_is_not_a_magic(quote: str) -> None:
    code = f"session {quote}\n%bindings\n{quote}\n"
    assert [s.magic for s in segments(code)] == [False]


def test_an_indented_percent_sign_is_not_a_magic() -> None:
    assert [s.magic for s in segments("do:\n  %bindings\n")] == [False]


def test_scanning_is_linear() -> None:
    def work(count: int) -> Callable[[], object]:
        code = (
            ('let x = "a" # "b"\n' * 5 * count) + f"session {QUOTED}" + '"' * (10 * count + 1) + "**" * (3 * count + 1)
        )
        return lambda: (literals(code, DELIMITERS), segments(code + "\n%help"))

    assert_linear(work, 1_250)
