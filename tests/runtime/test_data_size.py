"""The size of a value, and of a list that grows (amendment A55)."""

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
def test_a_joined_list_measures_what_a_new_one_of_the_same_members_does(
    left: list[Any], right: list[Any], repeated: int
) -> None:
    both = joined(left * repeated, right * repeated)
    assert measure(both) == measure(json.loads(json.dumps(both)))


def test_a_list_in_several_places_counts_in_each_of_them() -> None:
    once = ["ab"]
    assert measure([once, once]) == Measure(levels=2, members=4, characters=4, plain=True)


def test_what_is_more_than_json_makes_no_plain_list() -> None:
    assert not measure([{"a": [object()]}]).plain


def test_adding_to_a_large_list_does_not_look_through_it(monkeypatch: Any) -> None:
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
    # Four members an element; lists of at most 100 elements are measured again each time.
    assert looked_at < 2_000 * 4 + 101 * 100 * 4
