"""JSON text of values with numbers of any size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prose_kernel.runtime.data_size import LEVELS
from prose_kernel.runtime.json_text import indented, json_text, mapped
from prose_kernel.runtime.values import full_text, plain, verbatim


def nested(levels: int) -> Any:
    value: Any = []
    for level in range(levels):
        value = [value] if level % 2 else {"a": value, "b": 1.0}
    return value


def closed(text: str) -> str:
    """The brackets of a text, each closed in the order in which it was opened."""
    open_: list[str] = []
    for character in text:
        if character in "[{":
            open_.append("]" if character == "[" else "}")
        elif character in "]}":
            assert open_.pop() == character
    return "well nested" if not open_ else "not closed"


@pytest.mark.parametrize(
    "options", [{}, {"sort": True}, {"separators": (",", ":")}, {"ascii_only": True}, {"other": repr}]
)
def test_the_slow_and_the_fast_writer_agree(options: dict[str, Any]) -> None:
    value = {"é": [1, 2.5, None, True, 'x\n"', {}, []], "b": {"z": object, "a": [[]]}}
    huge = [value, 10**5000]  # Python's `json` refuses it
    shown = json_text(huge, **options)
    comma = options.get("separators", (", ", ": "))[0]
    assert shown == f"[{json_text(value, **options)}{comma}1{'0' * 5000}]"


TEXTS = st.text(st.one_of(st.characters(), st.sampled_from('"\\\n\x00\x7fé\u2028𝄞\ud800\udfff{}[]:, ')), max_size=6)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)
DATA = st.recursive(LEAVES, lambda data: st.lists(data, max_size=4) | st.dictionaries(TEXTS, data, max_size=4))


@given(DATA)
def test_indented_text_equals_the_standard_librarys(data: object) -> None:
    assert indented(json_text(data)) == json.dumps(data, ensure_ascii=False, indent=2)


def test_indented_text_holds_numbers_of_any_size_and_any_depth() -> None:
    assert indented(json_text({"a": [10**5000]})) == f'{{\n  "a": [\n    1{"0" * 5000}\n  ]\n}}'
    assert indented(json_text([float("nan"), 1])) == "[NaN, 1]"
    deep = nested(LEVELS - 1)
    assert indented(json_text(deep)) == json.dumps(deep, indent=2)


def test_deep_values_are_copied_and_written() -> None:
    deep = nested(LEVELS - 1)
    assert closed(json_text(deep, sort=True)) == "well nested"
    assert json_text(mapped(deep, lambda leaf: leaf)) == json_text(deep)
    assert full_text(deep) == json_text(deep, separators=(",", ":"))
    assert json_text(plain(deep)) == json_text(verbatim(deep)) == json_text(deep)
    assert json_text({"a": deep["a"] if isinstance(deep, dict) else deep[0], "b": 10**5000}).endswith("0}")


def test_a_copy_keeps_the_order_and_asks_for_each_leaf() -> None:
    value = {"b": [1, {"a": 2}], "a": ()}
    assert json.dumps(mapped(value, str)) == '{"b": ["1", {"a": "2"}], "a": "()"}'
    assert mapped(3, str) == "3"


def test_a_value_too_large_for_memory_is_reported_and_not_written() -> None:
    value: Any = [1]
    for _ in range(60):
        value = [value, value]
    assert full_text(value) == '"too large to be written out: it has 3458764513820540926 members"'
    assert str(verbatim({"a": value})).startswith("too large to be written out")
    copy = mapped(value, lambda leaf: leaf)
    assert copy[0] is copy[1]
