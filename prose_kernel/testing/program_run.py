"""One run of a program for a test: offline unless it is a live test, without questions, leaving no files."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

from prose_kernel.cli.execution import Ended, ProgramRun, Request
from prose_kernel.cli.terminal import Screen
from prose_kernel.errors import ProseError
from prose_kernel.runs import settings
from prose_kernel.runs.settings import Settings
from prose_kernel.runtime.asker import Unattended
from prose_kernel.testing.limits import Watch, watched
from prose_kernel.testing.notebook_run import remove_run
from prose_kernel.testing.options import Options


def settings_of(cwd: Path, options: Options, **changes: Any) -> Settings:
    """The settings of a run under test. Raises `UsageError`."""
    chosen = settings.load(cwd, **options.overrides, **changes)
    if options.live:
        return chosen
    return chosen.changed(cassette_mode="off" if chosen.cassette.mode == "off" else "replay")


class TestedRun(ProgramRun):
    """A run whose output is kept in `files`."""

    __test__ = False  # no class of tests

    def __init__(self, request: Request) -> None:
        self.files = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        super().__init__(request, Screen(*self.files.values()))
        self.watch = Watch()
        self._directory: Path | None = None
        self.asker = Unattended(partial(self.screen.line, "stderr"), magic="")  # type: ignore[assignment]

    async def tested(self, seconds: float) -> Ended:
        """Run the program to its end, at the latest when its time is over, and remove what it has left."""
        try:
            with watched(seconds, self.workspace.interrupt) as self.watch:
                ended = await self.through()
        finally:
            if self._directory is not None:
                remove_run(self._directory)
        self.watch.interrupted |= ended.signal is not None and not self.watch.over
        return ended

    async def ended(self, error: ProseError | None) -> Ended:
        ended = await super().ended(error)
        self._directory = ended.run_directory
        return ended

    def _keep_image(self, name: str, data: bytes) -> str:
        return ""  # the directory of the run is removed with the test
