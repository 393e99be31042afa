"""JSON data: the size of a value and of a growing list (amendment A55), and its text with numbers of any size."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prose_kernel.runtime import json_data
from prose_kernel.runtime.json_data import LEVELS, Measure, indented, joined, json_text, mapped, measure
from prose_kernel.runtime.values import full_text, plain, verbatim

DATA: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(DATA, max_size=5), st.lists(DATA, max_size=5), st.integers(0, 60))
def test_a_joined_list_has_the_size_of_a_new_list_with_the_same_members(
    left: list[Any], right: list[Any], repeated: int
) -> None:
    both = joined(left * repeated, right * repeated)
    assert measure(both) == measure(json.loads(json.dumps(both)))


def test_a_list_referenced_several_times_counts_each_time() -> None:
    once = ["ab"]
    assert measure([once, once]) == Measure(levels=2, members=4, characters=4, plain=True)


def test_a_list_with_values_beyond_json_is_not_plain() -> None:
    assert not measure([{"a": [object()]}]).plain


def test_adding_to_a_large_list_does_not_scan_it(monkeypatch: Any) -> None:
    looked_at = 0
    original = json_data._measured

    def counting(members: Any, kinds: set[type], inner: list[Measure]) -> Measure:
        nonlocal looked_at
        looked_at += len(members)
        return original(members, kinds, inner)

    monkeypatch.setattr(json_data, "_measured", counting)
    grown: list[Any] = []
    for number in range(2_000):
        grown = joined(grown, [{"number": number, "tags": ["x"]}])
        measure(grown)
    # Four members per element; lists of at most 100 elements are measured again each time.
    assert looked_at < 2_000 * 4 + 101 * 100 * 4


# ---------------------------------------------------------------- texts


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


def test_threads_measure_large_values_at_the_same_time() -> None:
    def sizes(number: int) -> set[int]:
        return {measure(["x"] * (101 + number)).members for _ in range(3000)}

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(sizes, range(16))) == [{101 + number} for number in range(16)]
    finally:
        sys.setswitchinterval(interval)
