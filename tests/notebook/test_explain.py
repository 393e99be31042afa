"""`%explain`: the last error, words, programs in plain words; error codes as links."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from models.people import ScriptedPerson
from notebook.recording import Recording

from prose_kernel.notebook.cells import Cells

PROGRAM = """\
%explain
input topic: "What about?"
agent writer:
  model: sonnet
let plan = exec "touch ran"
parallel:
  left = session: writer
    prompt: "Write about {plan}"
  exec "make"
if **{plan} is *good* `ly`**:
  session "Go"
else:
  gate publish:
    prompt: "Publish?"
loop until **it is done** (max: 3):
  exec "make"
try:
  throw "x"
catch as problem:
  let n = 1 + 2
output result = plan
"""
IN_WORDS = """\
- line 2: takes the value that was given for `topic`, or asks you for it.
- line 3: defines the agent `writer`; no request is made yet.
- line 5: runs the command `touch ran`, and calls what it prints `plan`.
- line 6: runs 2 branches at the same time and waits for all of them:
  - line 7: asks the agent `writer`: `Write about {plan}`, with `plan`, and calls the answer `left`.
  - line 9: runs the command `make`.
- line 10: asks whether `**{plan} is *good* `ly`**`; a rule, a model or you decide:
  - if so:
    - line 11: asks a model, or another provider of sessions: `Go`.
  - otherwise:
    - line 13: `gate publish` stops the program until a person approves.
- line 15: again and again (`loop until **it is done**, at most 3 times`); each time a rule, a model or you decide:
  - line 16: runs the command `make`.
- line 17: is ready for errors:
  - tries this:
    - line 18: `throw "x"`: goes no further here.
  - if that fails:
    - line 20: computes `let n = 1 + 2`.
- line 21: `output result = plan`: a result of the program."""
VVM = """\
%%vvm
%explain
agent critic(model="sonnet")
def ask(item):
  return @critic `Judge {item}`(item)
found = pmap(["one", "two"], ask)
while ?`it can be better`(found):
  found = found + [ask("three")]
"""
VVM_IN_WORDS = """\
- line 3: defines the agent `critic`; no request is made yet.
- line 4: defines `ask(item)`, which runs where it is called:
  - line 5: asks the agent `critic`: `Judge {item}`, with `item`.
  - line 5: `return`: goes no further here.
- line 6: runs `pmap(["one", "two"], ask)`: for all items at the same time, and calls the results `found`.
- line 7: again and again (`while ?`it can be better`(found)`); each time a model or you decide:
  - line 8: calls `ask("three")`.
  - line 8: computes `found = found + [ask("three")]`."""


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    made = Cells(tmp_path, ScriptedPerson(available=False))
    yield made
    await made.close()


async def shown(cells: Cells, code: str) -> str:
    seen = Recording()
    problem = await cells.run(code, seen, live=False)
    assert problem is None, problem
    (text,) = seen.texts
    return text


async def failed(cells: Cells, code: str) -> tuple[str, list[str]]:
    problem = await cells.run(code, Recording(), live=False)
    assert problem is not None
    return problem.evalue, problem.lines("%explain")


async def test_a_program_is_explained_statement_by_statement_and_does_not_run(cells: Cells, tmp_path: Path) -> None:
    assert await shown(cells, PROGRAM) == IN_WORDS
    assert not (tmp_path / "ran").exists() and cells.names() == {}


async def test_a_program_of_vvm_and_a_file(cells: Cells, tmp_path: Path) -> None:
    assert await shown(cells, VVM) == VVM_IN_WORDS
    (tmp_path / "p.prose").write_text('exec "ls"\n')
    assert await shown(cells, "%explain p.prose") == "- line 1: runs the command `ls`."
    assert await shown(cells, "%explain\n# nothing\n") == "- Nothing: the program has no statements."
    assert (await failed(cells, "%explain\nexec ls"))[0] == "`exec` needs a quoted string [E004]"
    many = "%explain\nlet x = 1\n" + "x = 1\n" * 499
    assert (await shown(cells, many)).endswith("\n- … and 100 more")


async def test_the_last_error(cells: Cells) -> None:
    assert (await failed(cells, "%explain"))[0] == "%explain: no cell has failed yet"
    await failed(cells, "exec ls")
    assert (await shown(cells, "%explain")).startswith("#### E004: ")
    await failed(cells, "%explain nonsense")  # a message of a magic isn't an error of the program
    assert (await shown(cells, "%explain")).startswith("#### E004: ")
    await failed(cells, "%%vvm\nx = 2 * 3")
    assert (await shown(cells, "%explain")).startswith("#### V001: ")


@pytest.mark.parametrize(
    ("code", "first", "last"),
    [
        ("%explain loop", "loop: Do something until", "Reference: openprose 3.8, Loops"),
        ("%explain %graph", "%graph [FILE|all] [--times]", "in the cell"),
        ("%explain env", "env: ", "Reference: exec-and-tasks 2.1, Form and checks"),
        ("%%vvm\n%explain raise", "raise: ", "Reference: vvm 4.11, try, raise"),
        ("%explain vvm raise", "raise: ", "Reference: vvm 4.11, try, raise"),
        ("%explain 5.1", "### 5.1 exec", ""),
        ("let loop_count = 3\n%explain loop_count", "loop_count", ""),
    ],
)
async def test_a_word(cells: Cells, code: str, first: str, last: str) -> None:
    seen = Recording()
    assert await cells.run(code, seen, live=False) is None
    text = seen.texts[-1]
    assert text.startswith(first) and text.rstrip().endswith(last)


async def test_what_is_unknown_gets_the_nearest_word(cells: Cells) -> None:
    message, lines = await failed(cells, "%explain lopo")
    assert message == "there is nothing to explain about lopo" and "did you mean `loop`?" in lines[-1]
    assert (await failed(cells, "%explain nopage E001"))[0] == "the reference has no page nopage"


async def test_a_corrected_program_is_next_to_the_one_with_the_mistake(cells: Cells) -> None:
    seen = Recording()
    assert await cells.run("%explain V040", seen, live=False) is None
    data = seen.calls[0][1].data
    columns = data["text/markdown"].split("<td")[1:]
    assert ["@writr `" in column for column in columns] == [True, False]
    assert all("\n\n```vvm\nagent writer" in column for column in columns)  # Markdown inside of HTML
    assert "  draft = @writr `One sentence.`(())  draft = @writer `One sentence.`(())\n" in data["text/plain"]
    assert "\n```diff\n-agent writer(" in await shown(cells, "%explain V209")  # too wide for a terminal


@pytest.mark.parametrize(
    ("base", "link"),
    [
        ("https://x.test/p/", "https://x.test/p/docs/reference/openprose/errors.html#e004-unexpected-token"),
        ("https://x.test/{page}.md", "https://x.test/openprose/errors.md#e004-unexpected-token"),
    ],
)
async def test_an_error_code_leads_to_the_documentation(
    cells: Cells, monkeypatch: pytest.MonkeyPatch, base: str, link: str
) -> None:
    without = (await failed(cells, "exec ls"))[1]
    monkeypatch.setenv("PROSE_DOCS_URL", base)
    assert (await failed(cells, "exec ls"))[1] == [*without, link]


@pytest.mark.parametrize("base", ["nonsense", "javascript:alert(1)", "https://x.test/\x1b]0;t\x07", "https://a b"])
async def test_an_address_that_is_none(cells: Cells, monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    monkeypatch.setenv("PROSE_DOCS_URL", base)
    assert "docs_url (PROSE_DOCS_URL): an address that begins with https://" in (await failed(cells, "let x = 1"))[0]
