"""Programs (`x.a`, `x[0]`, `for`) and judge rules (`x.a is 1`) read a text that holds JSON in the same way."""

from __future__ import annotations

import pytest

from prose_kernel.errors import RunError
from prose_kernel.judging import facts
from prose_kernel.runtime import structured_text
from prose_kernel.runtime.structured_text import JudgeNeeded
from prose_kernel.runtime.values import Value

TEXTS = [
    '{"a": 1}',
    ' \n{"a": {"b": [1]}}\n ',
    '[{"a": 1}, 2]',
    'Here it is:\n```json\n{"a": 1}\n```\nDone.',
    'plain fence\n```\n{"a": 2}\n```',
    '~~~\n{"a": 1}\n~~~',
    '````json\n{"a": "```"}\n````',
    '```python\n{"a": 1}\n```',
    '```JSON\n{"a": 3}\n```',
    '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```',
    '```python\nx\n```\n```json\n{"a": 1}\n```',
    '```json\n{"a": 1',
    '{"a": NaN}',
    '{"a": 1} and more',
    "```json\n[1, 2, 3]\n```",
    "```json\n5\n```",
    '{"b": 1}',
    "prose without data",
    "[" * 3000,
]


def by_program(read: object, *given: object) -> tuple[bool, Value]:
    """Return whether the program can read the value, and the value."""
    try:
        return True, read(*given)  # type: ignore[operator]
    except (RunError, JudgeNeeded):
        return False, None


@pytest.mark.parametrize("text", TEXTS)
def test_programs_and_rules_see_the_same_member(text: str) -> None:
    assert by_program(structured_text.member, text, "a") == facts.resolve("x.a", {"x": text})


@pytest.mark.parametrize("text", [text for text in TEXTS if not text.lstrip().startswith('{"')])
def test_programs_and_rules_see_the_same_element(text: str) -> None:
    """Both read lists; only programs also read lines and an object's only list as a collection."""
    data = facts.structure(text)
    listed = isinstance(data, list) and len(data) > 0
    assert facts.resolve("x[0]", {"x": text}) == ((True, data[0]) if listed else (False, None))
    if listed:
        assert by_program(structured_text.index, text, 0) == (True, data[0])
