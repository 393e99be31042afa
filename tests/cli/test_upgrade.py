"""`prose upgrade` turns programs into contract files, and back (prose-md.md 11)."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.contract_world import ContractWorld

PROGRAM = """input topic: "What to look for"

# how it is written
agent writer:
  model: sonnet

let draft = session: writer
  prompt: "Write about {topic}"
if **the draft is bad**:
  draft = session "again"
output notes = session "Notes on {draft}"  # kept
output final = draft
"""


def test_a_program_becomes_a_function_and_a_program_again(world: ContractWorld) -> None:
    world.put("p.prose", PROGRAM)
    assert world.prose("upgrade", "p.prose") == 0
    text = Path("p.prose.md").read_text()
    assert "- `topic`: What to look for\n" in text
    assert "# how it is written\n" in text
    assert text.endswith("return { notes: notes, final: final }\n```\n")
    assert world.prose("compile", "p.prose.md") == 0
    Path("p.prose").unlink()
    assert world.prose("upgrade", "p.prose.md") == 0
    assert Path("p.prose").read_text() == PROGRAM
    assert Path("p.prose.md").read_text() == text


def test_both_forms_give_the_same_result(world: ContractWorld) -> None:
    world.put("p.prose", PROGRAM)
    world.prose("upgrade", "p.prose")
    answers = {"Write about tea": "d", "again": "e", "Notes on": "n"}
    world.put("judge", "")
    found = []
    for name in ("p.prose", "p.prose.md"):
        world.put("a.yaml", f'{{"sessions": {answers}, "judge": {{"*": "yes"}}}}'.replace("'", '"'))
        options = ("--provider", "scripted", "--script", "a.yaml", "--format", "json", "--input", "topic=tea")
        assert world.prose("run", name, *options) == 0
        found.append(world.out.partition('"outputs": ')[2].partition(', "bindings"')[0])
    assert found[0] == found[1] == '{"notes": "n", "final": "e"}'


def test_a_dry_run_shows_the_difference(world: ContractWorld) -> None:
    world.put("p.prose", "output x = 1\n")
    assert world.prose("upgrade", "--dry-run", "p.prose") == 0
    assert "+return x\n" in world.out
    assert not Path("p.prose.md").exists()


@pytest.mark.parametrize(
    "text",
    [
        'let x = 1\ninput y: "late"\n',
        "if **it rains**:\n  output x = 1\n",
        "block b:\n  output x = 1\ndo b()\n",
        'input x: "Optional words"\noutput y = x\n',
        "output x = 1\nreturn x\n",
    ],
)
def test_a_program_that_no_function_can_express_is_refused(world: ContractWorld, text: str) -> None:
    world.put("p.prose", text)
    assert world.prose("upgrade", "p.prose") == 2
    assert "line " in world.err
    assert not Path("p.prose.md").exists()


@pytest.mark.parametrize(
    "sections",
    [
        "### Returns\n\n- `x`: with words\n\n### Execution\n\n```prose\nlet x = 1\n\nreturn x\n```\n",
        "### Returns\n\n- `x`\n\n### Errors\n\n- `e`\n\n### Execution\n\n```prose\nlet x = 1\n\nreturn x\n```\n",
        "### Returns\n\n- `x`\n",
        "### Returns\n\n- `x`\n\n### Execution\n\n```prose\nreturn 1\n```\n",
        "### Returns\n\n- `x`\n\n### Execution\n\n```prose\nlet x = 1\n\nreturn x\n```\n\n## more\n",
        '### Parameters\n\n- `a.b`: words\n\n### Execution\n\n```prose\nsession "x"\n```\n',
    ],
)
def test_converting_back_loses_nothing(world: ContractWorld, sections: str) -> None:
    world.put("p.prose.md", f"---\nname: p\nkind: function\n---\n\n# P\n\n{sections}")
    assert world.prose("upgrade", "p.prose.md") == 2
    assert not Path("p.prose").exists()
