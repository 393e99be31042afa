"""`%graph`, `%timeline`, `%profile` and `%plan`: what they show, and that nothing of it differs from run to run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from models.people import ScriptedPerson
from notebook.kernels import Client
from notebook.recording import Recording

from prose_kernel.notebook.cells import Cells
from prose_kernel.views.display import Display

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = """\
sessions:
  "slow*": [{error: overloaded}, "at last"]
  "*": "answer"
judge:
  "*": yes
"""
PROGRAM = """\
agent writer:
  model: sonnet
  prompt: "Write"
let plan = exec "echo a plan"
parallel:
  left = session: writer
    prompt: "slow {plan}"
    retry: 1
  right = exec "exit 4"
    on-fail: "continue"
if **{plan} is good**:
  session "Go"
else:
  session "Stop"
"""
VVM = """\
%%vvm
agent critic(model="sonnet")
def ask(item):
  return @critic `Judge {item}`(item)
found = pmap(["one", "two"], ask)
"""

Notebook = Callable[..., Awaitable[Display]]


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "prose.toml").write_text('provider = "scripted"\nscript = "script.yaml"\n')
    made = Cells(tmp_path, ScriptedPerson(available=False))
    yield made
    await made.close()


async def shown(cells: Cells, *codes: str) -> Display:
    """The last display of the last of these cells; nothing for a cell that only prints."""
    for code in codes:
        output = Recording()
        await cells.run(code, output, live=False)
    assert "error" not in output.kinds, output.calls
    return next((call[1] for call in reversed(output.calls) if isinstance(call[1], Display)), Display({}))


def picture_in(markup: str) -> ElementTree.Element:
    """The drawing in HTML that shows it as an image."""
    (source,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', markup)
    return ElementTree.fromstring(b64decode(source))


def text_of(drawing: ElementTree.Element) -> str:
    return "\n".join(text.text or "" for text in drawing.iter("{http://www.w3.org/2000/svg}text"))


async def wrong(cells: Cells, code: str) -> str:
    output = Recording()
    await cells.run(code, output, live=False)
    assert output.kinds[-1] == "error", output.calls
    return "\n".join(output.calls[-1][1].traceback)


def without_figures(text: str) -> str:
    return re.sub(r"(?:, )?\d+(?:\.\d+)? m?s\b", "", text)


# ---------------------------------------------------------------- the graph


async def test_graph_shows_what_became_of_the_steps(cells: Cells) -> None:
    display = await shown(cells, PROGRAM, "%graph")
    assert display.data["text/plain"].splitlines() == [
        "agent writer, sonnet",
        "$ echo a plan → plan  [✓ done]",
        "parallel",
        "  left:",
        "    writer: slow {plan} → left  [✓ done, scripted]",
        "  right:",
        "    $ exit 4 → right  [✗ failed]",
        "**{plan} is good**  [✓ done, scripted]",
        "  yes:",
        "    session: Go  [✓ done, scripted]",
        "  else:",
        "    session: Stop  [not run]",
    ]
    assert display.data["text/markdown"].startswith("```mermaid\nflowchart TD\n")
    drawn = [text_of(picture_in(bundle["text/html"])) for bundle in (display.data, display.person)]
    assert "✓ done, scripted" in drawn[0] and "← plan  → left" in drawn[0]
    assert drawn[0] != drawn[1] and without_figures(drawn[1]) == drawn[0]
    assert without_figures(display.person["text/plain"]) == display.data["text/plain"]
    assert display.metadata["prose"] == {"person": display.person}


async def test_graph_of_a_function_that_a_later_cell_calls(cells: Cells) -> None:
    display = await shown(cells, VVM, "%%vvm\nagain = ask(1)", "%graph all")
    assert display.data["text/plain"].splitlines() == [
        "cell 1",
        "  agent critic, sonnet",
        "  block ask(item)",
        "    critic: Judge {item}  [✓ done ×3, scripted]",
        "    return",
        '  pmap(["one", "two"], ask) → found',
        "cell 2",
        "  ask(1) → again",
    ]


async def test_graph_of_the_program_below_runs_nothing(cells: Cells, tmp_path: Path) -> None:
    display = await shown(cells, '%graph\nexec "touch ran"\nfor i in [1]:\n  exec "true"')
    assert display.data["text/plain"] == "$ touch ran\nfor i in [1]\n  $ true"
    assert not display.person and not (tmp_path / "ran").exists()
    assert "move %timeline to another cell" in await wrong(cells, '%graph\nexec "true"\n%timeline')
    assert "E131" in await wrong(cells, "%graph\nlet x = unheard_of")


async def test_graph_of_a_file(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "lib.vvm").write_text("def twice(x):\n  return x\nexport twice\n")
    assert (await shown(cells, "%graph lib.vvm")).data["text/plain"].splitlines()[0] == "block twice(x)"
    assert "%graph: none.prose cannot be read" in await wrong(cells, "%graph none.prose")


async def test_only_the_last_cells_of_a_long_notebook_are_drawn(cells: Cells) -> None:
    for number in range(45):
        await shown(cells, f"let x{number} = {number}")
    lines = (await shown(cells, "%graph all")).data["text/plain"].splitlines()
    assert lines[:3] == ["… 5 earlier cells", "cell 6", "  let x5 = 5"] and lines[-1] == "  let x44 = 44"


@pytest.mark.parametrize("magic", ["graph", "timeline", "profile"])
async def test_before_anything_has_run(cells: Cells, magic: str) -> None:
    text = (await shown(cells, f"%{magic}")).data["text/plain"]
    assert text in ("No cell has run a program yet.", "Nothing that takes time has run: no command, session or gate.")
    assert (await shown(cells, 'exec "true"', "%reset", f"%{magic}")).data["text/plain"] == text


@pytest.mark.parametrize("magic", ["timeline", "profile"])
async def test_the_last_program_took_no_time_but_an_earlier_one_did(cells: Cells, magic: str) -> None:
    text = (await shown(cells, 'exec "true"', "let x = 1", f"%{magic}")).data["text/plain"]
    assert text == (
        f"Nothing in the last program took time: no command, session or gate. %{magic} all looks at the whole run."
    )
    assert "true" in (await shown(cells, f"%{magic} all")).data["text/plain"]


# ---------------------------------------------------------------- timeline and profile


async def test_timeline(cells: Cells) -> None:
    display = await shown(cells, PROGRAM, "%timeline")
    assert [re.split(r" {2,}", line) for line in display.data["text/plain"].splitlines()] == [
        ["branch", "what", "outcome"],
        ["", "$ echo a plan", "✓"],
        ["[left]", "writer: slow a plan", "✓, 1 retry, scripted"],
        ["[right]", "$ exit 4", "✗ failed"],
        ["", "? a plan is good", "✓, scripted"],
        ["", "Go", "✓, scripted"],
    ]
    assert set(display.data) == set(display.person) == {"image/svg+xml", "text/plain"}
    for bundle in (display.data, display.person):
        drawing = ElementTree.fromstring(bundle["image/svg+xml"])
        names = [element.tag.rpartition("}")[2] for element in drawing.iter()]
        assert names.count("rect") >= 6 and not {"script", "foreignObject", "a", "image", "use"} & set(names)
        assert drawing.find("{*}title") is not None and "writer: slow a plan" in drawing.findtext("{*}desc", "")
    bars = list(ElementTree.fromstring(display.data["image/svg+xml"]).iter("{http://www.w3.org/2000/svg}rect"))[1:]
    assert bars[1].get("x") == bars[2].get("x") > bars[0].get("x", "")  # branches begin at the same step


async def test_profile(cells: Cells) -> None:
    display = await shown(cells, PROGRAM, "%profile")
    rows = [re.split(r" {2,}", line.strip()) for line in display.data["text/plain"].splitlines()]
    assert rows == [
        ["line", "statement", "times", "failed", "answered by"],
        ["4", 'let plan = exec "echo a plan"', "1"],
        ["6", "left = session: writer", "1", "scripted"],
        ["9", 'right = exec "exit 4"', "1", "1"],
        ["11", "if **{plan} is good**:", "1", "scripted"],
        ["12", 'session "Go"', "1", "scripted"],
    ]
    head, *measured, total = display.person["text/plain"].splitlines()
    assert head.split()[6:] == ["time", "share", "tokens", "in", "tokens", "out", "cost"]
    assert len(measured) == 5 and total.split()[:3] == ["all", "5", "1"]
    assert isinstance(display.facts["seconds"], float)


@pytest.mark.parametrize("magic", ["%graph", "%graph all", "%timeline all", "%profile"])
async def test_what_is_saved_is_the_same_in_every_run(cells: Cells, tmp_path: Path, magic: str) -> None:
    first = await shown(cells, PROGRAM, magic)
    again = await shown(cells, "%reset", PROGRAM, magic)
    assert first.data == again.data and first.person.keys() == first.data.keys()
    asked = await shown(cells, f"{magic} --times")
    assert asked.data == again.person and not asked.person


async def test_hostile_text_in_a_timeline_and_a_profile(cells: Cells) -> None:
    program = 'let x = exec "echo \'</title><script>alert(1)</script>&amp;\u202e|`\'"\nexec "true"'
    drawing = (await shown(cells, program, "%timeline")).data["image/svg+xml"]
    assert "<script" not in drawing and ElementTree.fromstring(drawing) is not None
    assert "<script" not in (await shown(cells, "%profile")).data["text/markdown"]


async def test_words_that_make_no_sense(cells: Cells) -> None:
    for line in ("%graph --fast", "%timeline everything", "%profile all all"):
        assert "usage: " + line.split()[0] in await wrong(cells, line)


# ---------------------------------------------------------------- the plan


async def test_plan_has_every_prompt_and_command_as_far_as_known(cells: Cells, tmp_path: Path) -> None:
    await shown(cells, 'let name = "frogs"')
    text = (
        '%plan\nlet log = exec "touch {name}.txt"\nlet story = session "Tell of {name}: {log}"\n'
        'for i in ["a", "b"]:\n  exec "rm {i} {story}"\ngate send:\n  prompt: "Send {name}?"\n  timeout: "5m"\n'
        'exec "cat $WHO"\n  env: { WHO: name }'
    )
    display = await shown(cells, text)
    assert display.data["text/plain"].split("\n\n") == [
        "The program comes to 1 session, 4 commands, 1 gate.",
        "1. command (line 2, for log)\n    touch frogs.txt",
        "2. session (line 3, for story) · answered by scripted · at most $0 · depends on log\n"
        "    Tell of frogs: ⟦log: not known yet⟧",
        "3. command (line 5) · depends on story\n    rm a ⟦story: not known yet⟧",
        "4. command (line 5) · depends on story\n    rm b ⟦story: not known yet⟧",
        "5. gate send, until 5m (line 6)\n    Send frogs?",
        "6. command (line 9)\n    cat $WHO",
        "Cost: 1 session at most $0. Not counted: retries, further passes of loops whose length is not known.",
    ]
    markdown = display.data["text/markdown"]
    assert [f"\n\n**{number}.** " in markdown for number in range(1, 7)] == [True] * 6
    assert not list(tmp_path.glob("*.txt"))
    assert list(cells.names()) == ["name"]


async def test_plan_of_vvm_of_a_file_and_of_nothing(cells: Cells, tmp_path: Path) -> None:
    display = await shown(cells, VVM.replace("%%vvm\n", "%%vvm\n%plan\n"))
    assert display.data["text/plain"].splitlines()[0] == "The program comes to 2 sessions."
    (tmp_path / "one.prose").write_text('exec "echo one"\n')
    assert (await shown(cells, "%plan one.prose")).data["text/plain"].splitlines()[-1] == "    echo one"
    nothing = (await shown(cells, "%plan let x = 1")).data["text/plain"]
    assert nothing == "The program makes no requests and runs no command."
    assert "usage: %plan" in await wrong(cells, "%plan")


async def test_plan_knows_the_most_that_a_session_costs(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("genai_prices")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    await shown(cells, "let x = 1")
    cells.choose(provider="anthropic:claude-sonnet-4-5", cassette_mode="off")
    agent = 'agent w(model="sonnet", permissions=perm(read=[], network="deny"))'
    called = f"%%vvm\n%plan\n{agent}\na = @w `Short`()\nb = @w `About {{}}`(a)"
    text = (await shown(cells, called)).data["text/plain"]
    first, second = (line.rpartition(" · ")[2] for line in text.splitlines() if "session: w (" in line)
    found = re.fullmatch(r"at most \$([\d.]+)", first)
    assert found is not None and 1 < float(found[1]) < 20  # an answer as long as the model's window
    assert second == "depends on a" and "cost unknown" in text
    sums = f"1 session at most ${found[1]}, 1 session an amount that is not known"
    assert text.splitlines()[-1] == f"Cost: {sums}. Not counted: retries."
    tools = (await shown(cells, '%plan session "Look around"')).data["text/plain"].splitlines()  # it has tools
    assert re.search(r"at most \$[\d.]+ for each request$", tools[2])
    assert tools[-1] == "Cost: 1 session an amount that is not known. Not counted: retries."


# ---------------------------------------------------------------- a kernel, and the page


def test_a_kernel_saves_figures_only_in_the_metadata(client: Client) -> None:
    client.run('exec "echo hello"')
    (sent,) = client.run("%timeline").of("display_data")
    assert set(sent["data"]) == {"image/svg+xml", "text/plain"}
    assert " ms" not in sent["data"]["text/plain"] and " ms" in sent["metadata"]["prose"]["person"]["text/plain"]
    assert client.run("%graph").displays == ["$ echo hello  [✓ done]"]
    assert client.run("%graph --times").displays[0].startswith("$ echo hello  [✓ done, ")


async def test_the_page_shows_what_the_magics_show(tmp_path: Path) -> None:
    page = (DOCS / "how-to" / "reports.md").read_text("utf-8")
    for name, content in re.findall(r"^`([\w.-]+)`:\n\n```\w+\n(.*?)^```$", page, re.M | re.S):
        (tmp_path / name).write_text(content)
    (tmp_path / "prose.toml").write_text('provider = "scripted"\nscript = "replies.yaml"\n')
    cells = Cells(tmp_path, ScriptedPerson(available=False))
    compared = 0
    try:
        for kind, text in re.findall(
            r"^```(prose|text)\n(.*?)^```$", re.split("\n## (?:In a notebook|Times)", page)[1], re.M | re.S
        ):
            if kind == "prose":
                display = await shown(cells, text)
            else:
                assert display.data["text/plain"] + "\n" == text
                compared += 1
    finally:
        await cells.close()
    assert compared == 3
