"""A cell that waits for a person in JupyterLab: forms with keyboard and mouse, notifications, a reload."""

from __future__ import annotations

import re

from browser.conftest import Pictures
from browser.lab import Lab, expect

STAR = re.compile(r"\*")
NOTIFICATIONS = """() => {
  window.shown = [];
  window.real = window.Notification;
  document.hasFocus = () => false;
  window.Notification = class {
    constructor(title) { window.shown.push(title); }
    close() { window.shown.push('closed'); }
    static requestPermission() { this.permission = 'granted'; return Promise.resolve('granted'); }
  };
  window.Notification.permission = 'default';
}"""
NO_NOTIFICATIONS = """() => {
  window.Notification = window.real;
  delete document.hasFocus;
}"""


def test_questions_are_forms_and_leave_the_outputs_of_an_input_box(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook(
        'gate publish:\n  prompt: """Publish version 1.0?\nIt goes to all customers."""\n  timeout: "10m"\n'
        'input who: "Who is to be greeted?"\noutput greeting = "hello {who}"',
        '%provider human\nlet haiku = session """\n  Write a *haiku* about:\n\n  - rain\n  - roofs\n  """',
        'try:\n  gate late:\n    prompt: "In time?"\n    timeout: "800ms"\ncatch:\n  exec "echo too late"\n'
        'gate never:\n  prompt: "Go on?"',
        'output still = "here"',
    )
    lab.page.evaluate(NOTIFICATIONS)
    notebook.start(0)
    form = notebook.question(0, "gate publish")
    expect(form).to_have_attribute("role", "group")
    expect(form).to_contain_text("It goes to all customers.\ntimeout 10m · 9:5", use_inner_text=True)
    pictures.take("gate", notebook.cell(0))
    assert lab.page.title().startswith("● ")
    form.get_by_role("button", name="Notify me").click()
    form.get_by_label("Reason (optional)").focus()
    lab.page.keyboard.type("dd looks good")  # `dd` does not delete a cell
    lab.page.keyboard.press("Enter")  # does not decide the gate
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Enter")
    notebook.question(0, "input who").get_by_label("who").fill("world")
    lab.page.keyboard.press("Enter")
    notebook.finish(0)
    notebook.shows(0, "approved by user: dd looks good")
    notebook.shows(0, "hello world")
    assert lab.page.evaluate("window.shown") == ["input who waits for you", "closed"]
    lab.page.evaluate(NO_NOTIFICATIONS)
    assert not lab.page.title().startswith("● ")

    notebook.start(1)
    form = notebook.question(1, "session")
    area = form.get_by_label("Your answer")
    expect(form.locator("em")).to_have_text("haiku")
    area.press("Control+Enter")
    expect(form).to_contain_text("Write an answer first.")
    area.fill("rain on old tin roofs\n: a drummer")
    pictures.take("human-session", notebook.cell(1))
    area.press("Control+Enter")
    notebook.finish(1)

    notebook.start(2)
    notebook.question(2, "gate never")
    notebook.shows(2, "too late")
    expect(notebook.cell(2).locator(".prose-question")).to_have_count(1)
    notebook.interrupt()
    notebook.finish(2)
    expect(notebook.cell(2).locator(".prose-question")).to_have_count(0)
    notebook.run(3)
    notebook.shows(3, "here")

    cells = [cell.outputs for cell in notebook.save().cells]
    prompts = [[output.text for output in outputs if output.get("name") == "stdin"] for outputs in cells[:3]]
    asked = "Publish version 1.0?\nIt goes to all customers.\ngate publish, timeout 10m\napprove or reject? "
    answered = f"{asked} approve: dd looks good\nWho is to be greeted? world\n"
    assert prompts == [[answered], [">  :text\nrain on old tin roofs\n: a drummer\n"], []]


def test_a_reloaded_page_shows_the_question_again(lab: Lab) -> None:
    gate = '%%prose\ngate publish:\n  prompt: "Publish?"\noutput answer = "published"'
    notebook = lab.notebook("%load_ext prose_kernel", gate, 'print(prose["answer"])', kernel="python3")
    notebook.run(0)
    notebook.save()
    notebook.start(1)
    notebook.question(1, "gate publish")
    notebook.save()
    lab.reload(notebook)
    notebook.question(1, "gate publish").get_by_role("button", name="Approve").dblclick()
    notebook.shows(1, "approve or reject?  approve")
    notebook.ready()
    notebook.run(2)
    notebook.shows(2, "published")


def test_a29_outputs_of_running_cells_are_restored_after_a_reload(lab: Lab) -> None:
    """The outputs of a running cell, and the cell that waits for it and then runs. The third cell never runs."""
    first = (
        'exec "echo before"\nlet card = "kept"\nif 1 == 1:\n  gate first:\n    prompt: "First?"\n'
        'exec "echo between; until test -e go1; do sleep 0.05; done"\n'
        'gate publish:\n  prompt: "Publish?"\nexec "echo after"\nlet last = "done"'
    )
    go = lab.server.root / "go1"
    go.unlink(missing_ok=True)  # left by a first attempt
    notebook = lab.notebook(first, 'exec "echo second"', "let third = 3")
    notebook.start(0)
    notebook.question(0, "gate first").get_by_role("button", name="Approve").dblclick()
    notebook.shows(0, "between")
    notebook.start(1)  # waits for the first
    notebook.prompt(1, STAR)
    lab.reload(notebook)
    for text in ("before", "kept", "gate first: approved by user", "between"):
        notebook.shows(0, text)
    notebook.prompt(0, STAR)
    go.touch()
    notebook.question(0, "gate publish")
    lab.reload(notebook)
    notebook.question(0, "gate publish").get_by_role("button", name="Approve").dblclick()
    for text in ("after", "gate publish: approved by user", "done"):
        notebook.shows(0, text)
    notebook.finish(0)
    notebook.shows(1, "second")
    notebook.finish(1)
    expect(notebook.cell(0).locator(".prose-question")).to_have_count(0)
    text = notebook.text(0)
    order = ["before", "kept", "first: approved", "between", "publish: approved", "after", "done"]
    assert [text.count(word) for word in order] == [1] * len(order)
    assert sorted(order, key=text.index) == order
    assert [cell.execution_count for cell in notebook.save().cells] == [1, 2, None]
    lab.reload(notebook)
    notebook.ready()
    assert notebook.text(0) == text


def test_a49_a_typed_answer_has_a_form_with_fields(lab: Lab) -> None:
    code = '%provider human\nlet r = session "Review:\\n- it"\n  output: { verdict: "yes" or "no", score: integer, list: [text] }'
    notebook = lab.notebook(code, "output next = r.score + 1")
    notebook.start(0)
    form = notebook.question(0, "session")
    form.get_by_role("button", name="Submit").click()
    expect(form).to_contain_text("verdict is missing")
    form.get_by_text("no", exact=True).click()
    form.get_by_label("score").fill("three")
    form.get_by_label("list").fill("a\nb")
    form.get_by_role("button", name="Submit").click()
    again = notebook.cell(0).locator(".prose-question:has-text('That does not fit'):not(:has(button:disabled))")
    expect(again.get_by_label("score")).to_have_value("three")
    expect(again.get_by_label("list")).to_have_value("a\nb")
    expect(again.get_by_role("radio", name="no")).to_be_checked()
    again.get_by_label("score").fill("3")
    again.get_by_role("button", name="Submit").click()
    notebook.finish(0)
    expect(notebook.cell(0).locator(".prose-question")).to_have_count(0)
    assert notebook.text(0).count("Review:") == 1 and '"score": 3, "list": ["a", "b"]' in notebook.text(0)
    notebook.run(1)
    notebook.shows(1, "4")
