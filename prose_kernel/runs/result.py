"""The results of the Python API: how a program or a cell has ended, and a program that was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prose_kernel.errors import Interrupted, ProseError
from prose_kernel.language.diagnostics import Diagnostic

if TYPE_CHECKING:
    from prose_kernel.runs.languages import Compiled

Status = Literal["completed", "failed", "interrupted"]


@dataclass(frozen=True, slots=True)
class Usage:
    """The consumption of a run. `cost` is in US dollars, as far as prices are known; `replayed` counts answers from
    recordings."""

    sessions: int = 0
    judgements: int = 0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    replayed: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a program or a cell.

    `value` is the value of its last statement, `outputs` and `bindings` are values by name, as JSON data. Texts are
    unchanged, so output of commands ends with its newline. `error` is set if the status is `failed`; it has `code`,
    `message`, `hint` and `location` (`line`, `column`, `text`). `run_id` and `directory` are None for a run in memory.
    """

    status: Status
    value: object = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    bindings: Mapping[str, object] = field(default_factory=dict, repr=False)
    error: ProseError | None = None
    usage: Usage = Usage()
    run_id: str | None = None
    directory: Path | None = None

    def raise_for_error(self) -> Result:
        """Raise `error` if the program failed, and `RunError` if it was interrupted; else return the result."""
        if self.error is not None:
            raise self.error
        if self.status == "interrupted":
            raise Interrupted
        return self


@dataclass(frozen=True, slots=True)
class Program:
    """A program without errors. `inputs` and `gates` are names in the order of the text; `warnings` are diagnostics."""

    name: str
    language: str
    inputs: tuple[str, ...]
    gates: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]
    compiled: Compiled = field(repr=False)
