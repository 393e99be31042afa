"""Options of tests, shared by the command line and the pytest plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prose_kernel.testing.outputs import Rules

SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of tests. `live` allows calls of providers, `lax` compares only outputs of cells marked for it, `first`
    ends at the first failure. `seconds` is the time limit of a cell or program, `rules` are from sanitize files."""

    update: bool = False
    live: bool = False
    lax: bool = False
    first: bool = False
    seconds: float = SECONDS
    rules: Rules = field(default_factory=Rules, compare=False)

    @property
    def overrides(self) -> Mapping[str, Any]:
        """The settings of a run under test. A run with `live` records new answers."""
        answers = {"cassette_mode": "auto"} if self.live else {"offline": True}
        return {**answers, "telemetry_otel": False, "telemetry_log": ""}
