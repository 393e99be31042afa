"""What every test gets: an environment of its own, in which no setting, colour or state of the developer's shows."""

from __future__ import annotations

import os

import hypothesis
import pytest

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No `PROSE_*` setting from outside, and no terminal colours."""
    for name in [n for n in os.environ if n.startswith("PROSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
