"""What an editor asks: is a text complete, and what could come next."""

from __future__ import annotations

import pytest

from prose_kernel.language.vvm.editing import completeness, expected

COMPLETE = [
    ("", "complete", ""),
    ("x = 1", "complete", ""),
    ("@a `task`()", "complete", ""),
    ("if x:", "incomplete", "  "),
    ("  # note\nif x:  # note", "incomplete", "  "),
    ("if x:\n  y = 1", "incomplete", "  "),
    ("if x:\n  y = 1\n", "incomplete", "  "),
    ("if x:\n  y = 1\n\n", "complete", ""),
    ("if x:\n  y = 1\n  ", "complete", ""),
    ("def f():\n    while x:", "incomplete", "      "),
    ("x = [", "incomplete", "  "),
    ("x = [\n    1,", "incomplete", "    "),
    ("agent a(\n  model=\"x\",", "incomplete", "  "),
    ("x = @a `text", "incomplete", ""),
    ('x = """text', "incomplete", ""),
    ("match x:", "incomplete", "  "),
    ("match x:\n  case _:\n    pass\n\n", "complete", ""),
    ("try:\n  x = 1\n\n", "incomplete", ""),
    ("def f():\n  try:\n    x = 1\n\n", "incomplete", "  "),
    ("try:\n  x = 1\nexcept as e:", "incomplete", "  "),
    ("try:\n  x = 1\nfinally:\n  y = 1\n\n", "complete", ""),
    ("try:\n  x = 1\ny = 2", "invalid", ""),
    ('x = "text', "invalid", ""),
    ("x = = 1", "invalid", ""),
    ("x = ", "invalid", ""),
    ("if x = 1:", "invalid", ""),
    ("if x:\ny = 1", "invalid", ""),
    ("\tx = 1", "invalid", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "state", "indent"), COMPLETE)
def test_completeness(text: str, state: str, indent: str) -> None:
    assert completeness(text) == (state, indent)


OPERANDS = {"NAME", "STRING", "NUMBER", "LPAR", "LSQB", "LBRACE", "AT", "QUESTION", "IT", "TRUE", "FALSE", "NOT"}
BEHIND = {"AND", "OR", "PLUS", "MINUS", "COMPARISON", "DOT", "LPAR", "LSQB"}
EXPECTED = [
    ("x = ", OPERANDS),
    ("x = not", OPERANDS),
    ("while ", OPERANDS),
    ("x = a and ", OPERANDS),
    ("return x ", BEHIND | {"NEWLINE"}),
    ("if x ", BEHIND | {"COLON"}),
    ("choose x ", BEHIND | {"BY"}),
    ("choose x by ", {"QUESTION"}),
    ("choose x by ?`a` ", {"AS"}),
    ("for x ", {"IN"}),
    ("x.", {"NAME"}),
    ("x.wi", {"NAME"}),
    ("@", {"NAME", "LBRACE"}),
    ("@scri", {"NAME", "LBRACE"}),
    ("match x:\n  ", {"CASE", "NEWLINE"}),
    ("match x:\n  ca", {"CASE", "NEWLINE"}),
    ("match x:\n  case ", {"ERROR", "NAME", "QUESTION"}),
    ("constrain x():\n  ", {"REQUIRE", "NEWLINE"}),
    ("export ", {"NAME", "AT"}),
    ('from "a" ', {"IMPORT"}),
    ('from "a" import b ', {"AS", "NEWLINE"}),
    ("with ", {"INPUT"}),
    ("try:\n  x\nexcept ", {"AS"}),
    ("try:", {"NEWLINE"}),
    ('x = """a', set()),
    ("x = @a `b ", set()),
    ("x = 1 # a", set()),
]


@pytest.mark.parametrize(("text", "kinds"), EXPECTED)
def test_expected(text: str, kinds: set[str]) -> None:
    assert expected(text) == kinds


@pytest.mark.parametrize("before", ["", "x = 1\n", "def f():\n  x = 1\n", "x = [\n1\n]\n", "if x:\n  y\n\n"])
def test_statements_begin_where_a_line_begins(before: str) -> None:
    kinds = expected(before)
    assert kinds >= OPERANDS | {"IF", "FOR", "MATCH", "TRY", "AGENT", "DEF", "EXPORT", "RETURN", "PASS"}
    assert not kinds & {"CASE", "EXCEPT", "IN", "AS", "BY", "AND", "COLON"}
    assert ("ELSE" in kinds) == before.startswith("if")
