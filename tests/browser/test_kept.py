"""The button "Ask again" of kept answers in JupyterLab. `test_other_front_ends.py` tests it in Notebook 7."""

from __future__ import annotations

import re

from browser.conftest import Pictures
from browser.lab import Lab, Notebook, expect

CELL = "".join(f'let {name} = exec "echo {name} >> ran; wc -l < ran"\n  reads: []\n' for name in ("tea", "cups"))


def configure_keep(lab: Lab) -> None:
    """Configure kernels to keep answers, and remove the log of earlier commands."""
    (lab.server.root / "ran").unlink(missing_ok=True)
    lab.server.root.joinpath("prose.toml").write_text('rerun = "keep"\n')


def commands_run(lab: Lab) -> list[str]:
    return (lab.server.root / "ran").read_text().split()


def check_ask_again(lab: Lab, notebook: Notebook, number: int = 0, pictures: Pictures | None = None) -> None:
    """Check that `CELL` keeps its answers when it runs again, and that a click on a button renews one of them."""
    buttons = notebook.cell(number).get_by_role("button", name="Ask again")
    notebook.start(number)
    notebook.prompt(number, re.compile(r"\d"))
    expect(notebook.cell(number)).to_contain_text("cups")
    expect(buttons).to_have_count(0)
    notebook.start(number)
    expect(buttons).to_have_count(2)
    expect(notebook.cell(number).locator(".prose-kept").first).to_contain_text(re.compile(r"kept from \d+:\d\d"))
    assert commands_run(lab) == ["tea", "cups"]
    if pictures is not None:
        pictures.take("kept", notebook.cell(number))
    buttons.nth(1).click()
    expect(buttons).to_have_count(1)
    expect(notebook.outputs(number).nth(1)).to_contain_text("3")
    assert commands_run(lab) == ["tea", "cups", "cups"]


def test_a_click_on_ask_again_renews_one_answer(lab: Lab, pictures: Pictures) -> None:
    configure_keep(lab)
    notebook = lab.notebook(CELL)
    check_ask_again(lab, notebook, pictures=pictures)
    buttons = notebook.cell(0).get_by_role("button", name="Ask again")
    saved = notebook.save()
    assert "button" not in str(saved.cells[0].outputs) and "%ask again" in str(saved.cells[0].outputs)
    lab.reload(notebook)
    expect(buttons).to_have_count(1)  # the kernel still has the answer
    notebook.menu("Kernel", "Restart Kernel…")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    expect(buttons).to_have_count(0)  # after a restart it does not
    expect(notebook.cell(0)).to_contain_text("%ask again")


def test_ask_again_works_in_a_python_notebook(lab: Lab) -> None:
    configure_keep(lab)
    notebook = lab.notebook("%load_ext prose_kernel", f"%%prose\n{CELL}", kernel="python3")
    notebook.run(0)
    notebook.run(1)
    notebook.run(1)
    buttons = notebook.cell(1).get_by_role("button", name="Ask again")
    expect(buttons).to_have_count(2)
    buttons.first.click()
    expect(buttons).to_have_count(1)
    assert commands_run(lab) == ["tea", "cups", "tea"]
