"""The size of a value and of a growing list (amendment A55)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from prose_kernel.runtime import data_size
from prose_kernel.runtime.data_size import Measure, joined, measure

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
    original = data_size._measured

    def counting(members: Any, kinds: set[type], inner: list[Measure]) -> Measure:
        nonlocal looked_at
        looked_at += len(members)
        return original(members, kinds, inner)

    monkeypatch.setattr(data_size, "_measured", counting)
    grown: list[Any] = []
    for number in range(2_000):
        grown = joined(grown, [{"number": number, "tags": ["x"]}])
        measure(grown)
    # Four members per element; lists of at most 100 elements are measured again each time.
    assert looked_at < 2_000 * 4 + 101 * 100 * 4
