"""Completeness of VVM text, for notebooks and consoles."""

from __future__ import annotations

import pytest

from prose_kernel.language.vvm.completion import completeness

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
