"""The button on the cards of kept answers. tests/browser/test_kept.py clicks it."""

from __future__ import annotations

from labextension.script import LABEXTENSION

from prose_kernel.views.bundle import KEPT


def test_the_button_replaces_the_line_of_the_card() -> None:
    assert f"const WORDS = '{KEPT}';" in (LABEXTENSION / "static" / "plugins" / "kept.js").read_text("utf-8")
