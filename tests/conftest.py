"""What every test gets: an environment of its own, in which no setting, colour or state of the developer's shows."""

from __future__ import annotations

import os

import hypothesis
import pytest

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Who answers depends on these. They go before anything runs, because fixtures of a module start kernels too.
for name in [n for n in os.environ if n.startswith("PROSE_") or n.endswith("_API_KEY")]:
    del os.environ[name]
for name in ("CI", "JPY_SESSION_NAME"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal colours, and one locale."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
