"""Interaction in JupyterLab: live output, interrupts, completion, inspection, errors, contrast."""

from __future__ import annotations

import os
import re
from pathlib import Path

from browser.conftest import Pictures
from browser.lab import Lab, Notebook, expect

STAR = re.compile(r"^\[\*\]:$")


def test_output_appears_immediately_and_the_stop_button_ends_a_command(lab: Lab) -> None:
    os.mkfifo(lab.server.root / "go")
    notebook = lab.notebook(
        'let kept = "still here"\nexec "echo first; cat go"', 'exec "echo begun; sleep 60"', "output there = kept"
    )
    notebook.start(0)
    notebook.shows(0, "first")
    notebook.prompt(0, STAR)
    (lab.server.root / "go").write_text("second\n")
    notebook.finish(0)
    notebook.shows(0, "second")
    notebook.start(1)
    notebook.shows(1, "begun")
    notebook.ready("Busy")
    notebook.interrupt()
    notebook.finish(1)
    notebook.shows(1, "KeyboardInterrupt")
    notebook.run(2)
    notebook.shows(2, "still here")


def test_branches_are_shown_live_and_end_as_one_card(lab: Lab, pictures: Pictures) -> None:
    os.mkfifo(lab.server.root / "results")
    notebook = lab.notebook(
        'parallel:\n  docs = exec "echo 12 pages"\n  unit = exec "cat results"\n  lint = exec "echo no remarks"'
    )
    notebook.start(0)
    notebook.shows(0, "2 of 3")
    assert notebook.cell(0).locator("progress").get_attribute("value") == "2"
    pictures.take("parallel", notebook.cell(0))
    (lab.server.root / "results").write_text("48 tests pass\n")
    notebook.finish(0)
    notebook.shows(0, "parallel, 3 branches: 3 done")
    assert notebook.outputs(0).count() == 1
    assert notebook.cell(0).locator("progress").count() == 0
    assert [row.split("\t") for row in notebook.cell(0).locator("tr").all_inner_texts()] == [
        ["✓", "docs", "12 pages"],
        ["✓", "unit", "48 tests pass"],
        ["✓", "lint", "no remarks"],
    ]


def test_running_activities_are_shown_and_leave_no_trace(lab: Lab, pictures: Pictures) -> None:
    code = """exec "echo before"
parallel for city in ["oslo", "paris", "rome"] (on-fail: "continue"):
  exec "test $CITY != oslo && echo compiling $CITY && while [ ! -e one ]; do sleep 0.05; done"
    env: { CITY: city }
repeat 3 as i:
  let log = exec "echo fetching $N; while [ ! -e two ]; do sleep 0.05; done"
    env: { N: i }
"""
    notebook = lab.notebook(code, kernel="prose")
    notebook.start(0)
    cell = notebook.cell(0)
    for text in ("1 of 3", "1 failed", "exit code 1", "compiling paris", "compiling rome"):
        notebook.shows(0, text)
    assert [row.split("\t")[:2] for row in cell.locator("tr").all_inner_texts()] == [
        ["✗", "oslo"],
        ["▸", "paris"],
        ["▸", "rome"],
    ]
    pictures.take("live-branches", cell)
    (lab.server.root / "one").touch()
    notebook.shows(0, "pass 1 of 3")
    notebook.shows(0, "fetching 0")
    pictures.take("live-loop", cell)
    (lab.server.root / "two").touch()
    notebook.finish(0)
    notebook.shows(0, "bound 3 times")
    assert cell.locator("progress").count() == 0
    outputs = notebook.save().cells[0].outputs
    assert [output.output_type for output in outputs] == ["stream", "display_data", "stream", "display_data"]
    assert outputs[0].text == "before\n"


def test_tab_offers_names_and_keywords(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook('let release = "1.0"\nlet remarks = "none"', "re", 'exec "make"\n  on')
    notebook.run(0)
    assert {"release", "remarks", "repeat"} <= set(_completions(notebook, 1))
    pictures.take("completion", lab.page, clip=_area_of_cells(notebook, 0, 1, below=120))
    lab.page.keyboard.press("Escape")
    assert "on-fail" in _completions(notebook, 2)


def _press_at_end(notebook: Notebook, number: int, key: str) -> None:
    notebook.editor(number).click()
    notebook.page.keyboard.press("Control+End")
    notebook.page.keyboard.press(key)


def _completions(notebook: Notebook, number: int) -> list[str]:
    """Return the completions after Tab at the end of a cell."""
    _press_at_end(notebook, number, "Tab")
    shown = notebook.page.locator(".jp-Completer:not(.lm-mod-hidden) .jp-Completer-match")
    shown.first.wait_for()
    return [str(text) for text in shown.all_inner_texts()]


def test_shift_tab_explains_a_word(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook('let release = "1.0"', "parallel", "release")
    notebook.run(0)
    tooltip = lab.page.locator(".jp-Tooltip")
    _press_at_end(notebook, 1, "Shift+Tab")
    expect(tooltip).to_contain_text("Run branches at the same time and wait for them.")
    pictures.take("inspection", lab.page, clip=_area_of_cells(notebook, 0, 1, below=190))
    lab.page.keyboard.press("Escape")
    expect(tooltip).to_have_count(0)
    _press_at_end(notebook, 2, "Shift+Tab")
    expect(tooltip).to_contain_text("1.0")


def test_an_error_shows_its_line_under_a_caret(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook(
        'let total = "3"\nfor file in ["a.py", "b.py"]:\n  let size = totl', 'exec "ls /nowhere"', 'exec "true"'
    )
    notebook.run(0)
    pictures.take("error", notebook.cell(0))
    lines = notebook.text(0).splitlines()
    caret = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1][lines[caret].index("^") :].startswith("totl")
    assert "`total`" in lines[caret + 1]
    codes = notebook.cell(0).locator(".jp-RenderedText a")
    expect(codes.last).to_have_text(lines[-1].split()[-1])
    codes.last.click()  # the code links to its section of the reference
    section = lab.page.locator("#prose-kernel-reference")
    expect(section.get_by_role("heading")).to_contain_text(f"{codes.last.inner_text()}: ")
    expect(section).to_contain_text("Declare it above this line.")  # the example of its correction
    pictures.take("reference", lab.page, clip={"x": 288, "y": 36, "width": 880, "height": 270})
    notebook.menu("Help", "VVM Reference")
    expect(section.get_by_role("heading").first).to_contain_text("VVM")
    section.locator('a[href$="vvm/errors.md"]').first.click()
    expect(section.get_by_role("heading").first).to_contain_text("errors")
    lab.page.keyboard.press("Alt+w")
    notebook.run(1)
    notebook.shows(1, "exit code 2")
    notebook.run(2)
    assert notebook.text(2) == ""


def test_texts_have_enough_contrast_in_both_themes(lab: Lab) -> None:
    """Text has a contrast of at least 4.5, as in accessibility guidelines. ANSI colours belong to the palette of JupyterLab."""
    notebook = lab.notebook(
        'let name = "text"\nlet n = 3\nlet list = [1, 2]\noutput o = "x"',
        'let tried = exec "echo out; echo err >&2; exit 3"\n  on-fail: "continue"',
        'exec "echo out; echo err >&2; exit 4"',
        'parallel (on-fail: "ignore"):\n  a = exec "echo fine"\n  b = exec "exit 5"',
        "%bindings",
    )
    for number in range(5):
        notebook.run(number)
    contrast = (Path(__file__).parent / "contrast.js").read_text()
    try:
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            lab.theme(theme)
            pieces = lab.page.evaluate(contrast, ".jp-OutputArea-output")
            assert len(pieces) > 30
            assert [piece for piece in pieces if piece["contrast"] < 4.5] == []
    finally:
        lab.theme("JupyterLab Light")


def test_prose_cells_run_in_a_python_notebook(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook(
        "%load_ext prose_kernel",
        '%%prose\nlet files = exec "printf \'a\\\\nb\'"\nparallel:\n  one = exec "echo 1"\n  two = exec "echo 2"',
        'prose["files"].splitlines()',
        '%%prose\nthrow "it is broken"',
        "1 + 1",
        kernel="python3",
    )
    for number in range(5):
        notebook.run(number)
    notebook.shows(1, "parallel, 2 branches: 2 done")
    notebook.shows(2, "['a', 'b']")
    notebook.shows(3, "ThrowError")
    assert "Traceback" not in notebook.text(3)
    notebook.shows(4, "2")
    pictures.take("python", lab.page, clip=_area_of_cells(notebook, 0, 4))


def _area_of_cells(notebook: Notebook, first: int, last: int, below: int = 0) -> dict[str, float]:
    """Return the rectangle of the window with some cells."""
    top, bottom = notebook.cell(first).bounding_box(), notebook.cell(last).bounding_box()
    assert top and bottom
    height = bottom["y"] + bottom["height"] + below - top["y"]
    return {"x": top["x"], "y": top["y"], "width": top["width"], "height": height}
