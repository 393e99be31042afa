"""Shortening of texts that are too long."""

from __future__ import annotations

import pytest

from prose_kernel.language.text import clipped, fitted, screen_width


@pytest.mark.parametrize(
    ("text", "more", "shown"),
    [
        ("four", {}, "four"),
        ("four.", {}, "fou…"),
        ("fo r.", {}, "fo …"),
        ("fo r.", {"tidy": True}, "fo…"),
        ("four.", {"mark": "..."}, "f..."),
        ("four.", {"kept": 4, "mark": "… (5)"}, "four… (5)"),
    ],
)
def test_by_characters(text: str, more: dict[str, object], shown: str) -> None:
    assert clipped(text, 4, **more) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "shown"), [("four", "four"), ("fours", "fou…"), ("木木", "木木"), ("木木x", "木…")])
def test_by_columns(text: str, shown: str) -> None:
    assert fitted(text, 4) == shown
    assert screen_width(shown) <= 4
