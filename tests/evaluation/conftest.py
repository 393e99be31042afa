"""Evaluations in tests run as outside of continuous integration."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
