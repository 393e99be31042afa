"""Sessions in JupyterLab: streamed answers, their tool calls, the stop button."""

from __future__ import annotations

from browser.conftest import Pictures
from browser.lab import WINDOW, Lab, Notebook, expect
from stubs.model_server import StubServer

STORY = """\
# Three frogs

They lived **by the pond** and `croaked`:

- one in the morning
- one at noon
- one never

| frog | tune |
| --- | --- |
| Ada | high |
| Bo | low |

<script>document.title = "taken over"</script>

![a picture](https://evil.example/pixel.png) and [a link](javascript:document.title="taken")

```python
print("a fence that is never closed")
"""
LISTING = {"calls": [{"name": "list", "arguments": {"path": "."}}, {"name": "read", "arguments": {"path": "none.md"}}]}


def open_with_stub(lab: Lab, stub: StubServer, *cells: str) -> Notebook:
    lab.server.root.joinpath("prose.toml").write_text(
        f'provider = "stub:drip"\n[cassette]\nmode = "off"\n[providers.stub]\nkind = "openai"\n'
        f'base_url = "{stub.openai_url}"\nkey = ""\n[models.stub]\nsonnet = "drip"\n'
    )
    return lab.notebook(*cells)


def test_an_answer_is_streamed_and_ends_as_markdown_with_folded_tool_calls(
    lab: Lab, stub: StubServer, pictures: Pictures
) -> None:
    written = stub.script("frogs", {**LISTING, "text": "I shall look around first."}, STORY)
    notebook = open_with_stub(
        lab,
        stub,
        'agent teller:\n  model: sonnet\n  prompt: "Tell a story"\nlet endless = session: teller',
        f"%provider stub:{written}",
        'let story = session "Tell of three frogs"',
        'parallel:\n  left = session "left"\n  right = session "right"',
        '%prompt session "Say it again: {story}"',
    )
    notebook.start(0)
    notebook.shows(0, "endless · teller · sonnet")
    seen = len(notebook.text(0))
    expect(notebook.outputs(0)).to_have_count(1)
    lab.page.wait_for_function(
        f"document.querySelector('.jp-CodeCell .jp-OutputArea-output').innerText.length > {seen + 40}"
    )
    assert notebook.outputs(0).locator("details").count() == 0
    pictures.take("streaming", notebook.cell(0))
    notebook.interrupt()
    notebook.finish(0)
    notebook.shows(0, "interrupted: this answer is not complete")
    notebook.shows(0, "KeyboardInterrupt")
    notebook.run(1)
    notebook.run(2)
    answer = notebook.outputs(2).first
    expect(answer.locator("h1")).to_have_text("Three frogs¶")
    expect(answer.locator("table td").first).to_have_text("Ada")
    expect(answer.locator("strong")).to_have_text("by the pond")
    assert answer.locator("img").count() == 0 and answer.locator("script").count() == 0
    notebook.shows(2, '<script>document.title = "taken over"</script>')
    link = answer.locator("a:has-text('a link')")
    assert "javascript" not in (link.get_attribute("href") or "")
    trace = notebook.outputs(2).nth(1)
    expect(trace.locator("summary")).to_have_text("story: 2 tool calls, 1 without success")
    expect(trace.locator("table")).to_be_hidden()
    trace.locator("summary").click()
    expect(trace.locator("table")).to_be_visible()
    pictures.take("session", notebook.cell(2))
    notebook.run(3)
    assert "left" in notebook.text(3) and "2 done" in notebook.text(3)
    notebook.run(4)
    notebook.shows(4, "Say it again: # Three frogs")
    assert "taken" not in lab.page.title()
    saved = notebook.save()
    (kept, folded) = saved.cells[2].outputs
    assert kept.output_type == "display_data" and set(kept.data) == {"text/markdown", "text/plain"}
    assert kept.metadata["prose"]["model"] == written and set(folded.data) == {"text/html", "text/plain"}
    (interrupted,) = [output for output in saved.cells[0].outputs if output.output_type == "display_data"]
    assert interrupted.data["text/plain"].endswith("■ interrupted: this answer is not complete")


def test_prompt_shows_the_message_of_a_session(lab: Lab, stub: StubServer, pictures: Pictures) -> None:
    notebook = open_with_stub(
        lab,
        stub,
        'agent teller:\n  model: sonnet\n  prompt: "You are terse"\nlet topic = "frogs"\n%provider stub:ok-0',
        '%prompt\nlet story = session: teller\n  prompt: "Tell of {topic}"\n  context: topic',
    )
    notebook.run(0)
    lab.page.set_viewport_size({**WINDOW, "height": 2 * WINDOW["height"]})
    try:
        notebook.run(1)
        notebook.shows(1, "Tell of frogs")
        notebook.shows(1, "sonnet → drip")
        pictures.take("prompt", notebook.cell(1))
    finally:
        lab.page.set_viewport_size(WINDOW)


def test_an_untrusted_notebook_shows_the_same_answer(lab: Lab, stub: StubServer) -> None:
    written = stub.script("untrusted", LISTING, STORY)
    notebook = open_with_stub(lab, stub, f'%provider stub:{written}\nlet story = session "Tell of three frogs"')
    notebook.run(0)
    notebook.save()
    trusted = notebook.text(0)
    lab.server.end_kernels()
    copy = notebook.path.with_name("copy.ipynb")  # a changed copy is not trusted
    copy.write_text(notebook.path.read_text().replace("Tell of", "Tell us of"))
    again = lab.open(copy)
    expect(again.outputs(0)).to_have_count(2)
    assert again.text(0) == trusted
    again.outputs(0).nth(1).locator("summary").click()
    expect(again.outputs(0).nth(1).locator("table")).to_be_visible()
