"""Colours and indentation in JupyterLab, as its theme shows them."""

from __future__ import annotations

from typing import Any

import nbformat
from browser.lab import PANEL, Lab, Notebook

PROGRAM = '''agent writer:
  model: opus
# who writes
let plan = session: writer
  prompt: "On {topic} {in short}"
if **the plan is
    good** and 3 > 2:
  exec """
  echo {plan}
  """'''

EXPECTED = {
    "agent": "keyword",
    "writer": "def",
    "model:": "property",
    "# who writes": "comment",
    "let": "keyword",
    "session": "keyword",
    '"On ': "string",
    "{topic}": "variable-2",
    ' {in short}"': "string",
    "**the plan is": "string-2",
    "    good**": "string-2",
    "and": "keyword",
    "3": "number",
    ">": "operator",
    "  echo ": "string",
    "{plan}": "variable-2",
}

# The pieces of an editor and their colours, neighbours of one look as one (CodeMirror joins them since 6.11); and what
# colour the theme has for a kind of token.
PIECES = """root => {
  const pieces = [];
  for (const span of root.querySelectorAll('span')) {
    const {color, fontStyle} = getComputedStyle(span);
    const last = pieces[pieces.length - 1];
    const joins = last && last[3] === span.previousSibling && last[1] === color && last[2] === fontStyle;
    if (joins) [last[0], last[3]] = [last[0] + span.textContent, span];
    else pieces.push([span.textContent, color, fontStyle, span]);
  }
  return pieces.map(piece => piece.slice(0, 3));
}"""
THEME = """kind => {
  const probe = document.body.appendChild(document.createElement('span'));
  probe.style.color = `var(--jp-mirror-editor-${kind}-color)`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}"""


def wait_for_colours(editor: Any) -> None:
    editor.locator(".cm-line span", has_text="agent").first.wait_for()


def shown(lab: Lab, editor: Any) -> dict[str, str]:
    """For each piece of the program the kind of token whose colour it has."""
    kinds = {lab.page.evaluate(THEME, kind): kind for kind in dict.fromkeys(EXPECTED.values())}
    pieces = {text: (colour, style) for text, colour, style in editor.evaluate(PIECES)}
    assert pieces["**the plan is"][1] == "italic"
    return {
        text: kinds.get(pieces[text][0], pieces[text][0]) if text in pieces else "no such piece" for text in EXPECTED
    }


def text_of(notebook: Notebook, number: int) -> list[str]:
    return list(notebook.editor(number).locator(".cm-line").all_inner_texts())


def type_into(notebook: Notebook, number: int, *keys: str) -> None:
    notebook.editor(number).click()
    for key in keys:
        if key in ("Enter", "Control+/", "Control+a", "Delete"):
            notebook.page.keyboard.press(key)
        else:
            notebook.page.keyboard.type(key)


def test_a_prose_notebook_has_colours(lab: Lab) -> None:
    notebook = lab.notebook(PROGRAM)
    wait_for_colours(notebook.editor(0))
    assert shown(lab, notebook.editor(0)) == EXPECTED


def test_a_prose_cell_of_a_python_notebook_has_colours_as_long_as_it_is_one(lab: Lab) -> None:
    notebook = lab.notebook(f"%%prose\n{PROGRAM}", "import os\nagent = None", kernel="python3")
    wait_for_colours(notebook.editor(0))
    assert shown(lab, notebook.editor(0)) == EXPECTED
    python = notebook.editor(1)
    python.locator(".cm-line span", has_text="import").wait_for()
    assert "agent" not in {
        text for text, colour, _ in python.evaluate(PIECES) if colour == lab.page.evaluate(THEME, "keyword")
    }
    type_into(notebook, 1, "Control+a", "Delete", "%%prose", "Enter", 'agent "writer": ')
    python.locator(".cm-line span", has_text="%%prose").wait_for()
    type_into(notebook, 1, "Control+a", "Delete", "import os", "Enter", "agent = None")
    python.locator(".cm-line span", has_text="import").wait_for()


def test_a_file_has_colours(lab: Lab) -> None:
    (lab.server.root / "program.prose").write_text(PROGRAM)
    lab.page.goto(lab.server.url("lab/tree/program.prose?reset"))
    editor = lab.page.locator(".jp-FileEditor:not(.lm-mod-hidden) .cm-content")
    wait_for_colours(editor)
    assert shown(lab, editor) == EXPECTED


def test_a_fence_has_colours(lab: Lab) -> None:
    cells = [nbformat.v4.new_markdown_cell(f"```prose\n{PROGRAM}\n```"), nbformat.v4.new_code_cell("")]
    spec = {"name": "prose", "display_name": "Prose", "language": "prose"}
    path = lab.server.root / "fence.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    fence = lab.open(path).panel.locator(".jp-RenderedMarkdown pre")
    fence.locator("span", has_text="agent").first.wait_for()
    assert shown(lab, fence) == EXPECTED


def test_enter_after_a_colon_indents_and_else_goes_back(lab: Lab) -> None:
    notebook = lab.notebook("", "%%prose", kernel="python3")
    type_into(notebook, 1, "Enter", "if x:", "Enter", 'exec "a"', "Enter", "else:", "Enter", "b", "Control+/")
    assert [line.rstrip() for line in text_of(notebook, 1)] == [
        "%%prose",
        "if x:",
        '  exec "a"',
        "else:",
        "  # b",
    ]
    prose = lab.notebook("")
    lab.page.locator(f"{PANEL} .cm-content[data-language='prose']").wait_for()
    type_into(prose, 0, "if x:", "Enter", 'exec "a"')
    assert text_of(prose, 0) == ["if x:", '  exec "a"']
