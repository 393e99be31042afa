"""The chip in the toolbar of a notebook: provider, models, cost, and how much was replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.people import ScriptedPerson
from notebook.recording import Recording

from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.lab_extension import Panel


class Channel:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, data: dict[str, Any]) -> None:
        self.sent.append(data)

    @property
    def who(self) -> dict[str, Any]:
        return [one for one in self.sent if one["kind"] == "who"][-1]


async def test_the_provider_is_named_once_a_session_was_asked(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text('sessions:\n  "*": "answer"\n')
    (tmp_path / "prose.toml").write_text('provider = "scripted"\nscript = "script.yaml"\n')
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    channel, panel = Channel(), Panel(cells, lambda seconds, work: None)
    panel.opened(channel)
    assert channel.who["provider"] == "" and cells.started_workspace is None
    assert await cells.run('session "a"\nsession "b"', Recording(), live=False) is None
    panel.cell_ended()
    seen = channel.who
    assert ("scripted" in seen["provider"], seen["asked"], seen["replayed"], seen["cost"]) == (True, 2, 0, "$0")
    await cells.close()


async def test_a_run_without_a_provider_reports_the_missing_model(tmp_path: Path) -> None:
    """A person is asked only while a cell runs; the chip, which is written between cells, must not deny the answer."""
    person = ScriptedPerson("my answer")
    cells = Cells(tmp_path, person)
    channel, panel = Channel(), Panel(cells, lambda seconds, work: None)
    panel.opened(channel)
    assert await cells.run('session "a"', Recording(), live=False) is None
    person.available = False
    panel.cell_ended()
    assert (channel.who["provider"], channel.who["asked"], channel.who["cost"]) == ("no model", 1, "$0")
    await cells.close()
