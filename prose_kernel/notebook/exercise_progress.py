"""A learner's progress in the exercises of a notebook, and the output of the last program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prose_kernel.notebook.checking import OutputRecorder
    from prose_kernel.views.display import Output


class ExerciseProgress:
    """The answers to exercises so far. An exercise is named `NOTEBOOK/NAME`."""

    def __init__(self) -> None:
        self._cell: OutputRecorder | None = None
        self._program: OutputRecorder | None = None
        self._failed: dict[str, int] = {}
        self._solved: set[str] = set()

    def listen(self, output: Output, cwd: Path) -> Output:
        """Return an output for a cell; it records what programs print if this directory has exercises."""
        if not (cwd / "checks").is_dir():
            return output
        from prose_kernel.notebook.checking import OutputRecorder

        self._cell = OutputRecorder(output)
        return self._cell

    def program_begins(self) -> None:
        self._program = self._cell

    @property
    def printed(self) -> str:
        """The output and results of the last program."""
        return self._program.text if self._program is not None else ""

    def attempts(self, exercise: str) -> int:
        """Return the number of failed attempts since the last one that passed."""
        return self._failed.get(exercise, 0)

    def attempted(self, exercise: str, *, passed: bool) -> None:
        self._failed[exercise] = 0 if passed else self.attempts(exercise) + 1
        if passed:
            self._solved.add(exercise)

    def is_solved(self, exercise: str) -> bool:
        """Return whether an attempt has passed, even if a later one has failed."""
        return exercise in self._solved
