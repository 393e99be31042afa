"""Colours and indentation in JupyterLab with its themes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browser.lab import Lab, Notebook

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

# The pieces of an editor with their colours, neighbours of one style joined (as in CodeMirror since 6.11), and the colour of
# the theme for a kind of token.
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
    """Return the kind of token with the colour of each piece: the expected kind, if several have the colour."""
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


def fence(panel: Any, number: int) -> Any:
    part = panel.locator(".jp-RenderedMarkdown pre").nth(number)
    part.locator("span", has_text="agent").first.wait_for()
    return part


def test_a_prose_notebook_has_colours_and_indents(lab: Lab) -> None:
    """Cells of both languages, fences in texts, and typed text."""
    fences = (f"```prose\n{PROGRAM}\n```", f"```vvm\n{VVM}\n```")
    notebook = lab.notebook(PROGRAM, f"%%vvm\n{VVM}", "", texts=fences)
    for number, expected in enumerate((EXPECTED, VVM_EXPECTED)):
        wait_for_colours(notebook.editor(number))
        assert shown(lab, notebook.editor(number), expected) == expected
        assert shown(lab, fence(notebook.panel, number), expected) == expected
    notebook.cell(2).locator(".cm-content[data-language='prose']").wait_for()
    type_into(notebook, 2, "if x:", "Enter", 'exec "a"')
    assert text_of(notebook, 2) == ["if x:", '  exec "a"']


def test_prose_cells_of_a_python_notebook_have_colours(lab: Lab) -> None:
    notebook = lab.notebook(
        f"%%prose\n{PROGRAM}", f"%%vvm\n{VVM}", "import os\nagent = None", "%%prose", kernel="python3"
    )
    for number, expected in enumerate((EXPECTED, VVM_EXPECTED)):
        wait_for_colours(notebook.editor(number))
        assert shown(lab, notebook.editor(number), expected) == expected
    python = notebook.editor(2)
    python.locator(".cm-line span", has_text="import").wait_for()
    assert "agent" not in {
        text for text, colour, _ in python.evaluate(PIECES) if colour == lab.page.evaluate(THEME, "keyword")
    }
    type_into(notebook, 2, "Control+a", "Delete", "%%prose", "Enter", 'agent "writer": ')
    python.locator(".cm-line span", has_text="%%prose").wait_for()
    type_into(notebook, 2, "Control+a", "Delete", "import os", "Enter", "agent = None")
    python.locator(".cm-line span", has_text="import").wait_for()
    type_into(notebook, 3, "Enter", "if x:", "Enter", 'exec "a"', "Enter", "else:", "Enter", "b", "Control+/")
    assert [line.rstrip() for line in text_of(notebook, 3)] == ["%%prose", "if x:", '  exec "a"', "else:", "  # b"]


def test_a_vvm_notebook_has_colours_indents_and_contrast_in_both_themes(lab: Lab) -> None:
    """Clauses are indented correctly. In the themes, only brackets have less contrast, in all languages."""
    contrast = (Path(__file__).parent / "contrast.js").read_text()
    notebook = lab.notebook(VVM, f"%%prose\n{PROGRAM}", "", kernel="vvm")
    for number, expected in enumerate((VVM_EXPECTED, EXPECTED)):
        wait_for_colours(notebook.editor(number))
        assert shown(lab, notebook.editor(number), expected) == expected
    notebook.cell(2).locator(".cm-content[data-language='vvm']").wait_for()
    type_into(notebook, 2, "match x:", "Enter", "case _:", "Enter", "pass", "Enter", "case error(_):", "Enter", "y")
    assert [line.rstrip() for line in text_of(notebook, 2)] == [
        "match x:",
        "  case _:",
        "    pass",
        "  case error(_):",
        "    y",
    ]
    try:
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            lab.theme(theme)
            wait_for_colours(notebook.editor(0))
            pieces = lab.page.evaluate(contrast, ".jp-CodeCell:first-child .cm-line")
            assert len(pieces) > len(VVM_EXPECTED)
            assert [piece for piece in pieces if piece["contrast"] < 3 and piece["text"].strip("()[]{}")] == []
    finally:
        lab.theme("JupyterLab Light")


def test_files_have_colours(lab: Lab) -> None:
    for name, program, expected in (("program.prose", PROGRAM, EXPECTED), ("program.vvm", VVM, VVM_EXPECTED)):
        path = lab.server.root / name
        path.write_text(program)
        lab.show(path)
        editor = lab.page.locator(".jp-FileEditor:not(.lm-mod-hidden) .cm-content")
        wait_for_colours(editor)
        assert shown(lab, editor, expected) == expected
