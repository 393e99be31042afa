"""Colours and indentation in JupyterLab, as its theme shows them."""

from __future__ import annotations

from pathlib import Path
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

VVM = '''agent writer(model="opus")
# who writes
def note(item):
  text = @writer `On {item.title} {{in}}
short`(it, retry=1)
  return {from: text, words: len(text)}
if not ?`good`(3) and true:
  raise "a\\n"'''

VVM_EXPECTED = {
    "agent": "keyword",
    "writer": "def",
    "model": "property",
    '"opus"': "string",
    "# who writes": "comment",
    "note": "def",
    "item": "def",
    "@writer": "attribute",
    "`On ": "string-2",
    "{item.title}": "variable-2",
    "{{": "string",
    "short`": "string-2",
    "it": "variable-2",
    "retry": "property",
    "1": "number",
    "from:": "property",
    "len": "builtin",
    "not": "keyword",
    "?": "operator",
    "true": "keyword",
    "raise": "keyword",
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


def shown(lab: Lab, editor: Any, expected: dict[str, str] = EXPECTED) -> dict[str, str]:
    """For each piece of the program the kind of token whose colour it has: the one expected, if several have it."""
    pieces = {text: (colour, style) for text, colour, style in editor.evaluate(PIECES)}
    if expected is EXPECTED:
        assert pieces["**the plan is"][1] == "italic"
    colours = {kind: lab.page.evaluate(THEME, kind) for kind in dict.fromkeys(expected.values())}
    return {
        text: kind if text in pieces and pieces[text][0] == colours[kind] else str(pieces.get(text, "no such piece"))
        for text, kind in expected.items()
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


# ---------------------------------------------------------------- VVM


def test_a_vvm_notebook_and_its_prose_cells_have_colours(lab: Lab) -> None:
    notebook = lab.notebook(VVM, f"%%prose\n{PROGRAM}", kernel="vvm")
    for number in (0, 1):
        wait_for_colours(notebook.editor(number))
    assert shown(lab, notebook.editor(0), VVM_EXPECTED) == VVM_EXPECTED
    assert shown(lab, notebook.editor(1)) == EXPECTED


def test_vvm_cells_of_other_notebooks_have_colours(lab: Lab) -> None:
    for kernel in ("prose", "python3"):
        notebook = lab.notebook(f"%%vvm\n{VVM}", kernel=kernel)
        wait_for_colours(notebook.editor(0))
        assert shown(lab, notebook.editor(0), VVM_EXPECTED) == VVM_EXPECTED


def test_a_vvm_file_and_a_fence_have_colours(lab: Lab) -> None:
    (lab.server.root / "program.vvm").write_text(VVM)
    lab.page.goto(lab.server.url("lab/tree/program.vvm?reset"))
    editor = lab.page.locator(".jp-FileEditor:not(.lm-mod-hidden) .cm-content")
    wait_for_colours(editor)
    assert shown(lab, editor, VVM_EXPECTED) == VVM_EXPECTED
    cells = [nbformat.v4.new_markdown_cell(f"```vvm\n{VVM}\n```"), nbformat.v4.new_code_cell("")]
    spec = {"name": "vvm", "display_name": "VVM", "language": "vvm"}
    path = lab.server.root / "vvm-fence.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    fence = lab.open(path).panel.locator(".jp-RenderedMarkdown pre")
    fence.locator("span", has_text="agent").first.wait_for()
    assert shown(lab, fence, VVM_EXPECTED) == VVM_EXPECTED


def test_clauses_of_vvm_go_where_they_belong(lab: Lab) -> None:
    notebook = lab.notebook("", kernel="vvm")
    lab.page.locator(f"{PANEL} .cm-content[data-language='vvm']").wait_for()
    type_into(notebook, 0, "match x:", "Enter", "case _:", "Enter", "pass", "Enter", "case error(_):", "Enter", "y")
    assert [line.rstrip() for line in text_of(notebook, 0)] == [
        "match x:",
        "  case _:",
        "    pass",
        "  case error(_):",
        "    y",
    ]


def test_vvm_can_be_read_in_light_and_dark(lab: Lab) -> None:
    """Colours are those of the theme, whose brackets alone are paler than this, in every language."""
    contrast = (Path(__file__).parent / "contrast.js").read_text()
    notebook = lab.notebook(VVM, kernel="vvm")
    try:
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            lab.theme(theme)
            wait_for_colours(notebook.editor(0))
            pieces = lab.page.evaluate(contrast, ".jp-CodeCell .cm-line")
            assert len(pieces) > len(VVM_EXPECTED)
            assert [piece for piece in pieces if piece["contrast"] < 3 and piece["text"].strip("()[]{}")] == []
    finally:
        lab.theme("JupyterLab Light")
