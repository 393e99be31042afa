"""Positions of editors: UTF-16 by default, any line ends, and no errors for invalid positions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prose_kernel.lsp.documents import Encoding, OpenText, Position

PIECES = st.sampled_from(["a", "é", "😀", "\n", "\r\n", "\r", "\u2028", "\x0c", "\ufeff", " ", "ß"])
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@pytest.mark.parametrize(
    ("encoding", "characters"), [("utf-16", [0, 1, 3, 4]), ("utf-8", [0, 1, 5, 7]), ("utf-32", [0, 1, 2, 3])]
)
def test_characters_are_counted_in_units_of_the_encoding(encoding: Encoding, characters: list[int]) -> None:
    text = OpenText("x\na😀é", encoding)
    assert [text.position(offset) for offset in range(2, 6)] == [Position(1, at) for at in characters]
    assert [text.offset(Position(1, at)) for at in characters] == [2, 3, 4, 5]


def test_a_position_inside_a_character_is_its_beginning() -> None:
    assert OpenText("😀x").offset(Position(0, 1)) == 0


def test_carriage_returns_and_a_byte_order_mark_are_not_part_of_a_source() -> None:
    text = OpenText("\ufeffa\r\nb\rc\r\n")
    assert text.source.text == "a\nb\rc\n"
    assert [text.position(offset) for offset in range(6)] == [
        Position(0, 1), Position(0, 2), Position(1, 0), Position(1, 1), Position(2, 0), Position(2, 1),
    ]  # fmt: skip
    assert text.end == Position(3, 0)


@given(TEXTS, st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_offsets_and_positions_convert_into_each_other(raw: str, encoding: Encoding) -> None:
    text = OpenText(raw, encoding)
    for offset in range(len(text.source.text) + 1):
        assert text.offset(text.position(offset)) == offset


@settings(max_examples=60)
@given(TEXTS, st.integers(-2, 9), st.integers(-2, 9))
def test_any_position_has_an_offset_in_the_text(raw: str, line: int, character: int) -> None:
    text = OpenText(raw)
    assert 0 <= text.offset(Position(line, character)) <= len(text.source.text)


def test_changes_replace_ranges_of_the_text_in_the_editor() -> None:
    text = OpenText("a😀b\r\n\u2028c\n")
    assert text.changed(Position(0, 3), Position(1, 1), "X").raw == "a😀Xc\n"
    assert text.changed(Position(9, 9), Position(9, 9), "end").raw == "a😀b\r\n\u2028c\nend"
    assert text.changed(Position(1, 0), Position(0, 0), "x").raw == "a😀b\r\nx\u2028c\n"
