"""Diagrams of programs: their nodes and edges, and that the Mermaid of JupyterLab accepts them."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from language.programs import PROGRAMS
from needs import lacking, needs

from prose_kernel.language.flow import FlowStep, Way
from prose_kernel.language.source import Source, Span
from prose_kernel.runs import languages
from prose_kernel.views.diagram import CHARACTERS, LINES, NODES, DiagramText, Mark, label, mermaid, outline
from prose_kernel.views.run_pictures import graph_display

ROOT = Path(__file__).parents[2]
STATIC = Path(sys.prefix) / "share/jupyter/lab/static"
CORPUS = sorted((ROOT / "tests/corpus").rglob("*.prose")) + sorted((ROOT / "tests/corpus").rglob("*.vvm"))
EXAMPLES = sorted((ROOT / "prose_kernel/examples").rglob("*.prose")) + sorted(
    (ROOT / "prose_kernel/examples").rglob("*.vvm")
)
HOSTILE = [
    "say \"quotes\" and 'more'",
    "]) } {{ ]] --> n1",
    "`code` ```mermaid",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "&lt;b&gt; #quot; #35; &amp;",
    "%%{init: {}}%% %% comment",
    "end",
    "1. a list",
    "- a list",
    "_emphasis_ **strong** ~~gone~~",
    "https://example.com www.example.com a@b.example",
    "click n1 call alert()",
    "\u202eright to left\u2066 \x07 \x1b[31mred",
    "日本語 🎉 ﬂ°°35¶ß",
    "$math$ \\(x\\)",
    "x" * 100_000,
]


def parsed_by_mermaid(*texts: str) -> list[dict[str, Any]]:
    """Parse diagrams with the Mermaid of JupyterLab and the limits of GitHub, and return their parts."""
    if not STATIC.is_dir():
        lacking("JupyterLab is not installed")
    script = str(Path(__file__).parent / "mermaid.js")
    done = subprocess.run(
        [needs("node"), script, str(STATIC)], input=json.dumps(texts), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(answers) == len(texts)
    return answers


def displayed(text: str) -> str:
    """Return a label as displayed; Mermaid encodes character codes in its own way."""
    return html.unescape(text.replace("ﬂ°°", "&#").replace("ﬂ°", "&").replace("¶ß", ";"))


def flow(text: str, language: str = "openprose") -> tuple[FlowStep, ...]:
    source, described = Source.of(text), languages.LANGUAGES[language]
    return described.flow(described.compile(source, cell=True).program, source)


def drawn(text: str, language: str = "openprose") -> str:
    return mermaid([DiagramText("", flow(text, language))])


@cache
def corpus() -> list[tuple[str, tuple[FlowStep, ...]]]:
    found = [(name, flow(text)) for name, text in PROGRAMS.items()]
    for path in [*CORPUS, *EXAMPLES]:
        language = languages.of_file(path.name)
        try:
            source = language.decode(path.read_bytes(), path.name)
        except Exception:  # not UTF-8: it has no tree
            continue
        found.append((path.name, language.flow(language.compile(source).program, source)))
    assert len(found) > 1400
    return found


# ---------------------------------------------------------------- outlines and diagrams

PROGRAM = """\
use "./publish.prose" as publish
agent writer:
  model: sonnet
block tidy(text):
  exec "tidy"
    stdin: text
input topic: "About what?"
let plan = session: writer
  prompt: "Plan {topic}"
parallel ("any", count: 1):
  left = session "Left"
    context: plan
  right = exec "make right"
loop until **it is good** (max: 3):
  if plan == "bad":
    break
  do tidy(left)
try:
  publish(text: left)
catch as problem:
  throw problem
finally:
  exec "rm draft"
gate send:
  prompt: "Send?"
output all = plan + right
"""


def test_a_program_has_an_outline() -> None:
    assert outline([DiagramText("", flow(PROGRAM))]).splitlines() == [
        "import ./publish.prose",
        "agent writer, sonnet",
        "block tidy(text)",
        "  $ tidy",
        'input topic: "About what?"',
        "writer: Plan {topic} → plan",
        "parallel (any)",
        "  left:",
        "    session: Left → left",
        "  right:",
        "    $ make right → right",
        "loop until **it is good**, at most 3 times",
        '  plan == "bad"',
        "    yes:",
        "      break",
        "  do tidy",
        "try",
        "  publish",
        "  catch:",
        "    throw problem",
        "  finally:",
        "    $ rm draft",
        "gate send",
        "output all = plan + right",
    ]


def test_a_program_has_a_diagram() -> None:
    (found,) = parsed_by_mermaid(drawn(PROGRAM))
    nodes = {displayed(text): node for node, text in found["nodes"].items()}
    edges = {(source, target): text for source, target, text in found["edges"]}

    def edge(source: str, target: str) -> str | None:
        return edges.get((nodes[source], nodes[target]))

    assert [displayed(title) for title in found["groups"].values()] == ["block tidy(text)"]
    assert edge("writer: Plan {topic}", "parallel (any)") == ""  # only control flow
    assert edge("parallel (any)", "session: Left") == "left"
    assert edge("writer: Plan {topic}", "session: Left") == "plan"  # the value passes the fork
    assert edge("session: Left", "join") == edge("$ make right", "join") == ""
    assert edge("$ make right", "output all = plan + right") == "right"
    assert edge("writer: Plan {topic}", "output all = plan + right") == "plan"
    assert edge("agent writer, sonnet", "writer: Plan {topic}") == ""
    assert edge("import ./publish.prose", "publish") == ""
    assert edge("tidy", "do tidy") == ""
    loop = "loop until **it is good**, at most 3 times"
    assert edge(loop, 'plan == "bad"') == "each" and edge("do tidy", loop) == ""
    assert edge("break", "try") == "" and edge("break", "do tidy") is None  # it leaves the loop
    assert edge("try", "throw problem") == "error"
    assert edge("throw problem", "$ rm draft") is None and edge("publish", "$ rm draft") == ""


def test_a_vvm_program_has_an_outline_and_a_diagram() -> None:
    text = (
        'agent critic(model="sonnet")\ndef ask(item):\n  return @critic `Judge {item}`(item)\n'
        "found = pmap([1, 2], ask)\nif ?`all is well`(found):\n  verdict = @critic `Praise`(found)\nelse:\n"
        '  raise "bad"\nchoose verdict by ?`tone` as tone:\n  option "glad":\n    x = 1\n  option "sad":\n    x = 2\n'
        "export x\n"
    )
    assert outline([DiagramText("", flow(text, "vvm"))]).splitlines() == [
        "agent critic, sonnet",
        "block ask(item)",
        "  critic: Judge {item}",
        "  return",
        "pmap([1, 2], ask) → found",
        "?`all is well`(found)",
        "  yes:",
        "    critic: Praise → verdict",
        "  else:",
        '    raise "bad"',
        "choose by ?`tone` → tone",
        "  glad:",
        "    x = 1",
        "  sad:",
        "    x = 2",
        "export x",
    ]
    (found,) = parsed_by_mermaid(drawn(text, "vvm"))
    nodes = {node: displayed(text) for node, text in found["nodes"].items()}
    edges = {(nodes[source], nodes[target], text) for source, target, text in found["edges"]}
    assert {("ask", "pmap([1, 2], ask)", ""), ("x = 1", "export x", "x"), ("x = 2", "export x", "x")} <= edges


def test_diagrams_show_states_and_figures() -> None:
    steps = flow('exec "a"\nexec "b"\nexec "c"')
    marks = {steps[0].span: Mark("done", "✓ done ×2", "3 s, $0.01"), steps[1].span: Mark("failed", "✗ failed")}
    display = graph_display([DiagramText("", steps, marks)])
    assert display.data["text/plain"] == "$ a  [✓ done ×2]\n$ b  [✗ failed]\n$ c  [not run]"
    assert display.person["text/plain"] == "$ a  [✓ done ×2, 3 s, $0.01]\n$ b  [✗ failed]\n$ c  [not run]"
    found, seen = parsed_by_mermaid(
        *(bundle["text/markdown"].strip("`").removeprefix("mermaid") for bundle in (display.data, display.person))
    )
    assert [displayed(text) for text in found["nodes"].values()] == [
        "$ a<br/>✓ done ×2",
        "$ b<br/>✗ failed",
        "$ c<br/>not run",
    ]
    assert displayed(seen["nodes"]["n1"]) == "$ a<br/>✓ done ×2, 3 s, $0.01"
    assert [edge[:2] for edge in found["edges"]] == [["n1", "n2"], ["n2", "n3"]]


# ---------------------------------------------------------------- every program

_TEXT = r'"[^"\n`<>\[\]|]*(?:<br/>[^"\n`<>\[\]|]*)*"'
_SHAPE = r"(?:\[\[|\[/|\[\\|\(\[|\{\{|[\[({>])" + _TEXT + r"(?:\]\]|/\]|\\\]|\]\)|\}\}|[\])}])"
_LINE = re.compile(
    rf"flowchart TD|  accTitle: Flow of a program| *end| +subgraph s\d+ \[{_TEXT}\]| +n\d+{_SHAPE}"
    rf"|  n\d+ (?:-->|-\.->)(?:\|{_TEXT}\|)? n\d+|  n\d+ -\.- n\d+"
    r"|  classDef [a-z]+ [a-z0-9#:,\- ]+|  class n\d+(?:,n\d+)* [a-z]+"
)
"""The grammar of our diagrams, which is much narrower than the grammar of Mermaid."""


def test_diagrams_of_the_corpora_match_a_narrow_grammar() -> None:
    for name, steps in corpus():
        text = mermaid([DiagramText("", steps)])
        unmatched = [line for line in text.splitlines() if not _LINE.fullmatch(line)]
        assert not unmatched, (name, unmatched)
        assert outline([DiagramText("", steps)])


def test_mermaid_accepts_diagrams_of_programs() -> None:
    """All programs that people wrote, and a sample of the corpora."""
    programs = corpus()
    chosen = [*programs[: len(PROGRAMS)], *programs[len(PROGRAMS) :: 12], *programs[-len(EXAMPLES) :]]
    answers = parsed_by_mermaid(*(mermaid([DiagramText("", steps)]) for _, steps in chosen))
    assert [
        (name, answer["error"]) for (name, _), answer in zip(chosen, answers, strict=True) if "error" in answer
    ] == []


# ---------------------------------------------------------------- hostile and huge


def test_hostile_labels_are_inert() -> None:
    steps = tuple(FlowStep("session", text, Span(at, at + 1)) for at, text in enumerate(HOSTILE))
    ways = tuple(Way(text, (FlowStep("value", text, Span(0, 0)),)) for text in HOSTILE)
    titled = [DiagramText(text, (FlowStep("if", text, Span(0, 0), ways=ways),)) for text in HOSTILE[:3]]
    found, others = parsed_by_mermaid(mermaid([DiagramText("", steps)]), mermaid(titled))
    assert len(found["nodes"]) == len(HOSTILE) and len(found["edges"]) == len(HOSTILE) - 1
    assert len(others["groups"]) == 3 and len(others["nodes"]) == 3 * (1 + len(HOSTILE))
    for text in (*found["nodes"].values(), *others["groups"].values()):
        assert not re.search(r'[<>`"&@*~]|\d\. |_\w+_|://|www\.\w', text.replace("<br/>", ""))
    assert displayed(found["nodes"]["n4"]) == "session: <script>alert(1)</script><img src=x onerror=alert(1)>"
    assert displayed(found["nodes"]["n13"]).startswith("session: \\u202eright to left\\u2066 \u2407")
    assert len(found["nodes"]["n16"]) < 100


@given(st.text(max_size=200))
def test_labels_have_no_special_characters(text: str) -> None:
    made = label(text, 60)
    assert re.fullmatch(r"(?:[^\W_]|_(?=[^\W_])|[ ,\-/(?!={}…→✓✗×·.):]|#\d+;)*", made)
    assert made.isprintable() and len(html.unescape(re.sub(r"#(\d+);", r"&#\1;", made))) <= 60


def huge_program(kind: str) -> str:
    match kind:
        case "long":
            return "\n".join(f'let x{i} = session "{"<&" * 40}{i}"' for i in range(10_000))
        case "deep":
            return "".join(f"{'  ' * i}if **a{i}**:\n" for i in range(400)) + "  " * 400 + 'exec "x"\n'
        case "wide":
            return "parallel:\n" + "".join(f'  exec "{"é🎉" * 50}{i}"\n' for i in range(500))
        case _:
            return "".join(f"block b{i}(x):\n" + '  exec "y"\n' * 20 for i in range(200)) + "do b1(1)\n"


@pytest.mark.parametrize("kind", ["long", "deep", "wide", "blocks"])
def test_a_huge_program_is_summarised(kind: str) -> None:
    steps = flow(huge_program(kind))
    text = mermaid([DiagramText("", steps)])
    assert len(text) <= CHARACTERS
    assert re.search(r"and [\d,]+ more (?:statements|branches)|\d statements? inside", text)
    shown = outline([DiagramText("", steps)]).splitlines()
    assert len(shown) <= LINES + 1
    (found,) = parsed_by_mermaid(text)
    assert "error" not in found and len(found["nodes"]) <= NODES


def test_an_empty_program_has_nothing_to_draw() -> None:
    assert outline([DiagramText("", ())]) == "nothing to draw"
    (found,) = parsed_by_mermaid(mermaid([DiagramText("", ())]))
    assert list(found["nodes"].values()) == ["nothing to draw"]
