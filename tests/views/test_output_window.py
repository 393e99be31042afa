"""The displayed parts of a long output: the beginning, the size of the omitted part, the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prose_kernel.runtime.ports import Stream
from prose_kernel.views.output_limit import Limits, OutputWindow

Pieces = list[tuple[Stream, str]]


def shown(pieces: Pieces, limits: Limits) -> tuple[str, str, str]:
    """Return the beginning, the note, and the end."""
    window = OutputWindow(limits)
    head = "".join(window.feed(stream, text) for stream, text in pieces)
    tail = "".join(text for _, text in window.finish())
    return head, window.left_out(), tail


def numbers(count: int) -> str:
    return "".join(f"{i}\n" for i in range(1, count + 1))


@pytest.mark.parametrize("limits", [Limits(0, 0), Limits(48_894, 0), Limits(0, 10_000), Limits(48_894, 10_000)])
def test_a21_output_within_the_limits_is_shown_immediately(limits: Limits) -> None:
    assert shown([("stdout", numbers(10_000))], limits) == (numbers(10_000), "", "")


def test_a21_lines_in_the_middle_are_left_out_and_counted() -> None:
    head, note, tail = shown([("stdout", numbers(10_000))], Limits(0, 1_000))
    assert head == numbers(1_000)
    assert tail.splitlines() == [str(i) for i in range(9_901, 10_001)]
    assert note == "… 8,900 lines (44,500 bytes) not displayed"


def test_a21_the_limit_counts_bytes_and_splits_no_line() -> None:
    text = "".join(f"{i:04} {'ä' * 10}\n" for i in range(1_000))  # 26 bytes a line
    head, note, tail = shown([("stdout", text)], Limits(1_000, 0))
    assert head == text[: 16 * 38]
    assert tail == text[-16 * 3 :]
    assert note == f"… {1_000 - 38 - 3:,} lines (24,934 bytes) not displayed"


def test_a21_a_very_long_line_keeps_its_beginning_and_its_end() -> None:
    head, note, tail = shown([("stdout", "a" * 500), ("stdout", "b" * 5_000 + "c" * 100)], Limits(1_000, 10))
    assert (head, tail) == ("a" * 500 + "b" * 500, "c" * 100)
    assert note == "… 4,500 bytes not displayed"


def test_a21_an_output_slightly_over_the_limit_is_shown_completely() -> None:
    head, note, tail = shown([("stdout", numbers(1_050))], Limits(0, 1_000))
    assert (head + tail, note) == (numbers(1_050), "")


def test_a21_both_streams_share_the_limits_and_keep_their_order() -> None:
    window = OutputWindow(Limits(0, 10))
    pieces: Pieces = [("stdout", numbers(8)), ("stderr", "e\n" * 50), ("stdout", "last\n")]
    assert [window.feed(*piece) for piece in pieces] == [numbers(8), "e\ne\n", ""]
    assert window.last_line == "last"
    assert window.finish() == [("stdout", "last\n")]


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("aä\n", max_size=40)), max_size=20),
    st.integers(0, 60),
    st.integers(0, 8),
)
def test_a21_all_omitted_bytes_are_counted(pieces: Pieces, size: int, lines: int) -> None:
    whole = "".join(text for _, text in pieces)
    limits = Limits(size, lines)
    head, note, tail = shown(pieces, limits)
    assert whole.startswith(head)
    assert not limits.reached(len(head.encode()), head.count("\n"))
    hidden = len(whole.encode()) - len(head.encode()) - len(tail.encode())
    assert (note == "") == (hidden == 0)
    if hidden:
        assert f"{hidden:,} byte" in note
