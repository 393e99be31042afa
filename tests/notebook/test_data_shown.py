"""Data, images and files in cells: each is shown as what it is, once, and the same again."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notebook.recording import Recording
from notebook.test_cells import Person, fine, wrong
from sample_files import png

from prose_kernel.notebook.cells import Cells
from prose_kernel.runs.resumption import resumption

IMAGE = b64encode(png()).decode()
LINE = "PNG image, 3 × 2, 72 bytes"
CSV = "name,n\nAnna,1\nBo,22\n"
TABLE = "name   n\n----  --\nAnna   1\nBo    22"


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, Person())
    made.show_warnings = False
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "t.csv").write_text(CSV)
    yield made
    await made.close()


def data(recording: Recording) -> list[tuple[str, object]]:
    return recording.saved()


# ---------------------------------------------------------------- a4: declared data


@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
async def test_a4_a_bare_command_that_declares_its_format_shows_a_table_once(cells: Cells, form: str) -> None:
    files = {"csv": CSV, "jsonl": '{"name": "Anna", "n": 1}\n{"name": "Bo", "n": 22}\n'}
    files["json"] = "[" + files["jsonl"].strip().replace("\n", ",") + "]"
    (cells.cwd / "data").write_text(files[form])
    shown = data(await fine(cells, f'exec "echo working >&2; cat data"\n  format: "{form}"'))
    assert [kind for kind, _ in shown] == ["display", "stream stderr"] or [kind for kind, _ in shown] == [
        "stream stderr",
        "display",
    ]
    (display,) = [content for kind, content in shown if kind == "display"]
    assert isinstance(display, dict)
    assert display["text/plain"] == TABLE and set(display) == {"text/html", "text/markdown", "text/plain"}


async def test_a4_what_is_not_what_it_says_is_shown_as_text_with_the_place(cells: Cells) -> None:
    shown = data(await fine(cells, 'exec "printf \'a,b\\\\n1,2\\\\n3\\\\n\'"\n  format: "csv"'))
    assert shown[0] == ("stream stdout", "a,b\n1,2\n3\n")
    assert isinstance(shown[1][1], dict)
    assert shown[1][1]["text/plain"] == (
        "shown as text: the output is not CSV: 1 value for 2 columns at line 3, column 1 of the data"
    )


async def test_a4_an_object_is_shown_as_json_and_a_failure_as_it_was_printed(cells: Cells) -> None:
    assert (await fine(cells, """exec "echo '{\\"a\\": 1}'"\n  format: "json\"""")).texts == ['{"a": 1}']
    output = await wrong(cells, 'exec "cat t.csv; exit 3"\n  format: "csv"')
    assert output[0] == "ExecError"


async def test_a4_a_flood_shows_its_first_rows(cells: Cells) -> None:
    command = "echo a,b; yes 1,2 | head -c 5000000"
    text, remark = (await fine(cells, f'exec "{command}"\n  format: "csv"')).texts
    assert "stdout was 5,000,004 bytes; the value keeps its first 30,000 characters" in remark
    assert text.startswith("a  b\n-  -\n1  2\n") and text.endswith("… (more rows, which the value does not keep)")


async def test_a4_a_binding_and_a_value_are_tables(cells: Cells) -> None:
    (card,) = (await fine(cells, 'let rows = exec "cat t.csv"\n  format: "csv"')).texts
    assert card == f"rows: text from exec\n{TABLE}"
    (shown,) = data(await fine(cells, 'let small = [{n: 1, name: "x"}]\nsmall\n'.partition("\n")[0]))
    assert isinstance(shown[1], dict) and "text/html" in shown[1]


# ---------------------------------------------------------------- images on stdout


async def test_an_image_on_stdout_is_an_image(cells: Cells) -> None:
    shown = data(await fine(cells, 'exec "cat a.png"'))
    assert shown == [("display", {"image/png": IMAGE, "text/plain": LINE})]
    assert data(await fine(cells, 'exec "cat a.png"')) == shown


async def test_text_before_an_image_is_text(cells: Cells) -> None:
    shown = data(await fine(cells, 'exec "echo drawing; cat a.png; echo note >&2"'))
    assert ("stream stdout", "drawing\n") in shown and ("stream stderr", "note\n") in shown
    assert shown[-1] == ("display", {"image/png": IMAGE, "text/plain": LINE}) or shown[-2][0] == "display"


async def test_a_name_holds_an_image_which_goes_into_commands_as_it_is(cells: Cells) -> None:
    (shown,) = data(await fine(cells, 'let chart = exec "cat a.png"'))
    assert isinstance(shown[1], dict)
    assert shown[1]["text/plain"] == f"chart: text from exec = [{LINE}]"
    assert f'<img src="data:image/png;base64,{IMAGE}"' in shown[1]["text/html"]
    last = (await fine(cells, "%binding chart")).calls[-1][1]
    assert last.data == {"image/png": IMAGE, "text/plain": LINE}
    await fine(cells, 'exec "cat > b.png"\n  stdin: chart')
    assert (cells.cwd / "b.png").read_bytes() == png()
    assert (await fine(cells, 'let said = "see {chart}"')).texts == [f"said: text = see [{LINE}]"]


async def test_a_broken_image_is_a_line(cells: Cells) -> None:
    (shown,) = data(await fine(cells, 'exec "head -c 60 a.png"'))
    assert isinstance(shown[1], dict) and "image/png" not in shown[1]
    assert shown[1]["text/plain"] == "PNG image, 3 × 2, 60 bytes, broken: its end is missing"


async def test_images_of_branches_come_in_source_order(cells: Cells) -> None:
    (cells.cwd / "b.png").write_bytes(png(5, 4))
    code = 'parallel:\n  exec "sleep 0.1; cat a.png"\n  exec "cat b.png"'
    shown = [content for kind, content in data(await fine(cells, code)) if isinstance(content, dict)]
    assert [one["text/plain"] for one in shown if "image/png" in one] == [LINE, "PNG image, 5 × 4, 71 bytes"]


# ---------------------------------------------------------------- display and %show


async def test_display_shows_the_file_that_a_command_has_made(cells: Cells) -> None:
    code = 'let name = "made"\nexec "echo made; cp a.png made.png"\n  display: "{name}.png"'
    shown = data(await fine(cells, code))
    assert ("stream stdout", "made\n") in shown
    assert shown[-1] == ("display", {"image/png": IMAGE, "text/plain": f"made.png: {LINE}"})


async def test_display_is_relative_to_the_directory_of_the_command(cells: Cells) -> None:
    code = 'exec "mkdir sub; cp a.png sub/x.png"\nlet n = exec "ls"\n  cwd: "sub"\n  display: "x.png"'
    texts = (await fine(cells, code)).texts
    assert f"x.png: {LINE}" in texts and any(text.startswith("n: text from exec = x.png") for text in texts)


async def test_a_file_that_is_not_there_is_an_error_of_the_program(cells: Cells) -> None:
    name, value, traceback = await wrong(cells, 'exec "true"\n  display: "gone.png"')
    assert (name, value) == (
        "ExecError",
        "gone.png cannot be shown: there is no such file [E223]",
    ) or "E223" in traceback
    assert "gone.png cannot be shown: there is no such file" in value and "line 2" in traceback
    caught = 'try:\n  exec "true"\n    display: "gone.png"\ncatch as e:\n  output why = e.message'
    assert (await fine(cells, caught)).texts[-1].startswith("why: text = gone.png cannot be shown")


async def test_a_command_that_fails_shows_no_file(cells: Cells) -> None:
    texts = (await fine(cells, 'exec "exit 3"\n  on-fail: "continue"\n  display: "a.png"')).texts
    assert not any(LINE in text for text in texts)


async def test_show_shows_files_in_both_languages(cells: Cells) -> None:
    for language in ("", "%%vvm\n"):
        assert data(await fine(cells, f"{language}%show a.png")) == [
            ("display", {"image/png": IMAGE, "text/plain": f"a.png: {LINE}"})
        ]
        assert (await fine(cells, f"{language}%show t.csv")).texts == [f"t.csv\n{TABLE}"]


async def test_show_follows_the_directory_of_commands(cells: Cells) -> None:
    await fine(cells, "exec \"mkdir sub; cp a.png 'sub/a b.png'; cd sub\"")
    assert (await fine(cells, "%show 'a b.png'")).texts == [f"a b.png: {LINE}"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%show", "%show: too few words"),
        ("%show gone.png", "%show: gone.png cannot be shown: there is no such file"),
        ("%show a b", "%show: b is not understood"),
        ("%show --all a.png", "%show: --all is not understood"),
        ("%show .", "%show: . cannot be shown: it is a directory"),
    ],
)
async def test_show_says_what_is_wrong(cells: Cells, line: str, message: str) -> None:
    assert (await wrong(cells, line))[:2] == ("UsageError", message)


async def test_show_returns_without_waiting(cells: Cells) -> None:
    await fine(cells, 'exec "mkfifo pipe"')
    async with asyncio.timeout(30):
        _, value, _ = await wrong(cells, "%show pipe")
    assert value == "%show: pipe cannot be shown: it is a pipe, which has no end"


# ---------------------------------------------------------------- the journal


async def test_a_restored_run_has_what_it_had_and_reads_nothing_again(cells: Cells) -> None:
    """Images and files are answers of the outside: the journal holds them."""
    code = 'let chart = exec "cat a.png; date +%N >> ran"\n  display: "t.csv"'
    assert f"t.csv\n{TABLE}" in (await fine(cells, code)).texts
    (history,) = (await fine(cells, "%history")).texts
    assert "text/csv, 20 bytes" in history and f"[{LINE}]" in history
    journal = cells.workspace.opened.journal_file
    await cells.end()
    assert journal is not None
    assert "Anna" in journal.read_text()
    (cells.cwd / "a.png").unlink()
    (cells.cwd / "t.csv").unlink()
    again = Cells(cells.cwd, Person())
    try:
        await again.restore(resumption(journal))
        (shown,) = data(await fine(again, "output shown = chart"))
        assert isinstance(shown[1], dict) and IMAGE in shown[1]["text/html"]
        assert (cells.cwd / "ran").read_text().count("\n") == 1
    finally:
        await again.close()
