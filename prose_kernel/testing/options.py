"""Options of tests, shared by the command line and the pytest plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prose_kernel.testing.outputs import Rules

SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """`rules` are those of the sanitize files; `lax` compares only outputs of cells marked for it; `live` lets
    providers be called; `first` ends at the first failure; `seconds` is the limit of time for a cell or program."""

    update: bool = False
    live: bool = False
    lax: bool = False
    first: bool = False
    seconds: float = SECONDS
    rules: Rules = field(default_factory=Rules, compare=False)

    @property
    def overrides(self) -> Mapping[str, Any]:
        """The settings of a run under test, which has no live view. A live one records what it is answered."""
        answers = {"cassette_mode": "auto"} if self.live else {"offline": True}
        return {**answers, "telemetry_otel": False, "telemetry_log": ""}
