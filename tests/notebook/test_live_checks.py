"""The findings in a cell that is typed: those of the compiler, against what the run knows, without running anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from notebook.recording import Recording

from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.lab_extension import MAX_CHARACTERS, MAX_FINDINGS, Panel, findings


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, ScriptedPerson(available=False))
    yield made
    await made.close()


def found(cells: Cells, code: str, *above: str) -> list[tuple[str, str]]:
    """The text that each finding is about, and its code."""
    units = code.encode("utf-16-le")
    return [
        (
            units[2 * one["from"] : 2 * one["to"]].decode("utf-16-le"),  # type: ignore[operator]
            str(one["message"]).partition("[")[2].partition("]")[0],
        )
        for one in findings(cells, code, above)
    ]


def test_what_is_wrong_is_found_where_it_is(cells: Cells) -> None:
    assert found(cells, "let x = 1\nexec ls") == [("ls", "E004")]
    assert found(cells, 'let x = "😀"\nlet y = zz') == [("zz", "E131")]  # editors count the emoji as two
    assert found(cells, "%%vvm\nx = len(zz)\nexport x") == [("zz", "V701")]
    assert found(cells, 'exec "make"\n  model: opus') == [("model", "W005")]
    assert [code for _, code in found(cells, "let x = (")] == ["E105"]
    assert cells.started_workspace is None


def test_a_hint_is_part_of_the_message(cells: Cells) -> None:
    (one,) = findings(cells, "exec ls", ())
    assert one["severity"] == "error" and str(one["message"]).endswith('\nhint: write `exec "ls"`')


@pytest.mark.parametrize(
    "code", ["", "# a comment", "let x = 1", "%bindings", "%%task\nlet = 3", "name?", "let x = 1\n%bindings\nlet y = x"]
)
def test_nothing_is_found(cells: Cells, code: str) -> None:
    assert findings(cells, code, ()) == []


async def test_names_of_the_run_and_of_cells_above(cells: Cells) -> None:
    assert found(cells, "let y = plan", "let plan = 1") == []  # it will be there when the cells run in order
    assert found(cells, "let y = paln", "let plan = 1") == [("paln", "E131")]
    assert found(cells, 'session: writer\n  prompt: "x"', "agent writer:\n  model: opus") == []
    assert await cells.run("let plan = 1", Recording(), live=False) is None
    assert found(cells, "let y = plan") == []
    assert found(cells, "let plan = 2") == []  # a cell that runs again


async def test_programs_are_read_and_none_is_fetched(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "lib.prose").write_text('input topic: "?"\noutput result = topic\n')
    assert [code for _, code in found(cells, 'use "./lib.prose" as lib\nlet r = lib()')] == ["E026"]
    assert found(cells, 'use "https://nowhere.invalid/p.prose" as p') == []


def test_there_are_bounds(cells: Cells) -> None:
    assert len(findings(cells, "exec ls\n" * (MAX_FINDINGS + 10), ())) <= MAX_FINDINGS
    assert findings(cells, "exec ls\n" + "#" * MAX_CHARACTERS, ()) == []


async def test_warnings_that_are_switched_off_and_settings_that_make_no_sense(cells: Cells, tmp_path: Path) -> None:
    cells.show_warnings = False
    assert found(cells, 'exec "make"\n  model: opus') == []
    (tmp_path / "prose.toml").write_text("nonsense = 1\n")
    assert findings(cells, "exec ls", ()) == []


async def test_the_channel_answers_unless_a_cell_runs(cells: Cells) -> None:
    class Channel:
        def __init__(self) -> None:
            self.sent: list[dict[str, Any]] = []

        def send(self, data: dict[str, Any]) -> None:
            self.sent.append(data)

    channel, panel = Channel(), Panel(cells, lambda seconds, work: None)
    asked = {"do": "check", "cell": "c1", "text": "exec ls", "above": [3, "let x = 1"]}

    class Asking(Recording):
        def stream(self, name: str, text: str) -> None:
            panel.received(channel, asked)

    assert await cells.run('exec "echo 1"', Asking(), live=False) is None
    assert channel.sent == []
    panel.received(channel, asked)
    panel.received(channel, asked | {"above": "nonsense"})
    (answer,) = channel.sent
    assert (answer["kind"], answer["cell"], len(answer["findings"])) == ("findings", "c1", 1)
