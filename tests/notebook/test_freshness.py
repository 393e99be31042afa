"""`%stale`, `%rerun stale` and `%bindings`: which cells are stale, why, and what made each name."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import html
import threading
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from models.people import ScriptedPerson
from notebook.recording import Recording
from waiting import PATIENCE

from prose_kernel.notebook.cells import Cells
from prose_kernel.notebook.lab_extension import Panel
from prose_kernel.notebook.magics.freshness import freshness_of
from prose_kernel.runs import languages, provenance
from prose_kernel.runs.freshness import check_answer_files
from prose_kernel.runs.provenance import MAX_VERSIONS, Opening
from prose_kernel.runtime import journal_codec as codec
from prose_kernel.runtime.answer_facts import NOT_COMPARED, AnsweredFiles, CommandFiles
from prose_kernel.runtime.journal_records import Answered, Asked
from prose_kernel.runtime.ports import CommandResult, FileRead, FileWrite, SessionResult
from prose_kernel.runtime.requests import Keys
from prose_kernel.storage import file_digests
from prose_kernel.storage.file_digests import FileDigests
from prose_kernel.views.display import Display

SCRIPT = """\
sessions:
  "count*": ["one", "two", "two", "three"]
  "*": "an answer"
judge:
  "*": yes
"""


def displays(output: Recording) -> list[Display]:
    return [call[1] for call in output.calls if isinstance(call[1], Display)]


class Notebook:
    """Cells with ids, run in any order, as a front end does."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.number = 0

    async def run(self, cell: str, code: str, *, fails: bool = False) -> Recording:
        self.number += 1
        output = Recording()
        opening = Opening.of(code, cell or None, self.number)
        problem = await self.cells.run(code, output, live=False, opening=opening)
        assert (problem is not None) == fails, problem
        return output

    async def magic(self, code: str) -> str:
        """The plain text of what a line magic shows."""
        output = Recording()
        problem = await self.cells.run(code, output, live=False)
        assert problem is None, problem
        return "\n".join(display.data["text/plain"] for display in displays(output))

    def why(self) -> dict[str, list[str]]:
        """The stale cells by their ids, and the reasons."""
        return {one.cell.key: [str(reason) for reason in one.reasons] for one in freshness_of(self.cells).stale()}


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "prose.toml").write_text('provider = "scripted"\nscript = "script.yaml"\n')
    made = Cells(tmp_path, ScriptedPerson(available=False))
    yield made
    await made.close()


@pytest.fixture
def book(cells: Cells) -> Notebook:
    return Notebook(cells)


# ---------------------------------------------------------------- what makes a cell stale


async def test_a_changed_name_makes_the_cells_below_stale_in_order(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", "let y = x + 1")
    await book.run("c", "let z = y + 1")
    await book.run("d", "let other = 3")
    assert book.why() == {}
    assert await book.magic("%stale") == "No cell is stale."
    await book.run("a", "let x = 10")
    assert book.why() == {"b": ["x was changed by [5]"], "c": ["y may change: [2] is stale"]}
    assert await book.magic("%stale") == (
        "cell  begins with    why\n"
        "[2]   let y = x + 1  x was changed by [5]\n"
        "[3]   let z = y + 1  y may change: [2] is stale"
    )
    await book.run("b", "let y = x + 1")
    assert book.why() == {"c": ["y was changed by [6]"]}


async def test_the_same_value_again_makes_nothing_stale(book: Notebook) -> None:
    await book.run("a", 'let x = exec "echo one"')
    await book.run("b", 'session "{x}"')
    await book.run("a", 'let x = exec "echo one; true"')
    assert book.why() == {}
    await book.run("a", 'let x = exec "echo two"')
    assert list(book.why()) == ["b"]
    await book.run("a", 'let x = exec "echo one"')
    assert book.why() == {}  # and back


async def test_an_answer_of_a_session_is_compared_though_it_lives_in_the_same_place(book: Notebook) -> None:
    await book.run("a", 'let x = session "count"')
    await book.run("b", 'session "{x}"')
    await book.run("a", 'let x = session "count"')
    assert list(book.why()) == ["b"]
    await book.run("b", 'session "{x}"')
    await book.run("a", 'let x = session "count"')
    assert book.why() == {}


async def test_a_name_that_is_bound_again_below_leaves_the_cells_between_fresh(book: Notebook) -> None:
    sources = {"a": "let x = 1", "b": "let y = x", "c": "x = 5", "d": "let z = x"}
    for cell, code in sources.items():
        await book.run(cell, code)
    assert book.why() == {}
    await book.run("a", "let x = 2")
    assert book.why() == {
        "b": ["x was changed by [5]"],
        "c": ["x, which it binds, was bound again by [5]"],
        "d": ["x may change: [3] is stale"],
    }
    await book.magic("%rerun stale")
    assert book.why() == {}
    assert book.cells.values() == {"x": 5, "y": 2, "z": 5}


async def test_a_cell_that_counts_on_is_not_made_stale_by_itself(book: Notebook) -> None:
    await book.run("a", "let n = 0")
    await book.run("b", "n = n + 1")
    await book.run("b", "n = n + 1")
    assert book.why() == {}
    await book.run("a", "let n = 0")
    assert book.why() == {"b": ["n, which it binds, was bound again by [4]"]}


async def test_out_of_order_a_cell_says_what_it_found_instead(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", "let y = x")
    await book.run("c", "x = 5")
    await book.run("b", "let y = x")
    assert book.why() == {"b": ["x was not what [1] makes"]}
    assert await book.magic("%rerun stale") != ""
    assert book.cells.values() == {"x": 5, "y": 1}  # [1] had to run before [4], and [3] after it


async def test_blocks_agents_and_what_they_read_are_inputs(book: Notebook) -> None:
    await book.run("t", 'let tone = "warm"')
    await book.run("a", 'agent writer:\n  model: sonnet\n  prompt: "Write. {tone}"')
    await book.run("b", 'block twice(item):\n  return "{item}{item}{tone}"')
    await book.run("c", 'let s = session: writer\n  prompt: "hello"')
    await book.run("d", 'let u = do twice("x")')
    await book.run("e", "let item = 4")
    assert book.why() == {}
    await book.run("a", 'agent writer:\n  model: opus\n  prompt: "Write. {tone}"')
    assert book.why() == {"c": ["writer was changed by [7]"]}
    await book.run("b", 'block twice(item):\n  return "{item}{tone}"')
    assert list(book.why()) == ["c", "d"]
    await book.run("c", 'let s = session: writer\n  prompt: "hello"')
    await book.run("d", 'let u = do twice("x")')
    await book.run("t", 'let tone = "cold"')
    assert book.why() == {"c": ["tone was changed by [11]"], "d": ["tone was changed by [11]"]}


async def test_functions_agents_and_names_of_vvm_too(book: Notebook) -> None:
    vvm = languages.LANGUAGES["vvm"].magic
    await book.run("a", f'%%{vvm}\nagent critic(model="sonnet")\ntone = "warm"')
    await book.run("b", f"%%{vvm}\ndef ask(item):\n  tail = 1\n  return @critic `Judge {{item}} {{tone}}`(item)")
    await book.run("c", f'%%{vvm}\nfound = pmap(["one"], ask)')
    await book.run("d", f"%%{vvm}\ntail = 3\nlength = len(found)")
    await book.run("e", "let both = tail")
    assert book.why() == {}
    await book.run("a", f'%%{vvm}\nagent critic(model="opus")\ntone = "warm"')
    assert book.why() == {
        "c": ["critic was changed by [6]"],
        "d": ["found may change: [3] is stale"],
        "e": ["tail may change: [4] is stale"],
    }
    await book.run("a", f'%%{vvm}\nagent critic(model="sonnet")\ntone = "cold"')
    assert book.why()["c"] == ["tone was changed by [7]"]
    await book.run("d", f"%%{vvm}\ntail = 4\nlength = len(found)")
    assert book.why()["e"] == ["tail was changed by [8]"]


async def test_names_of_branches_loops_and_bodies(book: Notebook) -> None:
    await book.run("a", "let item = 1\nlet flag = true")
    await book.run("b", 'parallel:\n  left = exec "echo l"\n  right = exec "echo {flag}"')
    await book.run("c", "let found = []\nfor item in [1, 2]:\n  found = found + [item]\noutput both = left")
    await book.run("a", "let item = 2\nlet flag = true")
    assert book.why() == {}  # the loop has an `item` of its own
    await book.run("a", "let item = 2\nlet flag = false")
    assert book.why() == {"b": ["flag was changed by [5]"], "c": ["left may change: [2] is stale"]}


async def test_an_imported_program_and_a_program_that_was_run(book: Notebook, tmp_path: Path) -> None:
    (tmp_path / "lib.vvm").write_text("limit = 3\nexport limit\n")
    (tmp_path / "other.prose").write_text("let made = 1\n")
    await book.run("a", '%%vvm\nfrom "./lib.vvm" import limit\nx = limit')
    await book.run("b", "%run other.prose")
    assert book.why() == {}
    (tmp_path / "lib.vvm").write_text("limit = 4\nexport limit\n")
    assert book.why() == {"a": ["lib.vvm has changed"]}
    (tmp_path / "other.prose").write_text("let made = 2\n")
    assert book.why()["b"] == ["other.prose has changed"]
    (tmp_path / "other.prose").unlink()
    assert book.why()["b"] == ["other.prose has changed"]


async def test_who_calls_what_was_imported_is_stale_when_its_file_is_another_one(
    book: Notebook, tmp_path: Path
) -> None:
    lines = ["def double(n):", "  return n + n", "export double", ""]
    (tmp_path / "lib.vvm").write_text("\n".join(lines))
    (tmp_path / "part.prose").write_text('input n: "?"\noutput twice = n\n')
    await book.run("a", '%%vvm\nfrom "./lib.vvm" import double')
    await book.run("b", "%%vvm\nx = double(2)")
    await book.run("c", 'use "./part.prose" as part')
    await book.run("d", "let y = part(n: 3)")
    (tmp_path / "lib.vvm").write_text("\n".join(lines).replace("n + n", "n + n + 0"))
    (tmp_path / "part.prose").write_text('input n: "?"\noutput twice = "{n}{n}"\n')
    assert book.why() == {
        "a": ["lib.vvm has changed"],
        "b": ["double may change: [1] is stale"],
        "c": ["part.prose has changed"],
        "d": ["part may change: [3] is stale"],
    }
    await book.magic("%rerun stale")
    assert book.why() == {}
    assert "33" in str(book.cells.values()["y"])


# ---------------------------------------------------------------- cells that fail, change, vanish


async def test_what_a_failed_cell_has_bound_counts_and_what_it_had_bound_stays(book: Notebook) -> None:
    await book.run("a", "let x = 1\nlet y = 2")
    await book.run("b", "let p = x")
    await book.run("c", "let q = y")
    await book.run("a", 'x = 7\nthrow "half-way"\ny = 8', fails=True)
    assert book.why() == {"b": ["x was changed by [4]"]}
    await book.run("a", "let x = \n", fails=True)  # nothing of it ran
    assert book.why() == {"b": ["x was changed by [4]"]}


async def test_a_deleted_cell_is_neither_stale_nor_a_reason(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", "let y = x")
    await book.run("a", "let x = 2")
    book.cells.provenance.forget(["b", "unheard of"])
    assert book.why() == {}
    await book.run("b", "let y = x")  # the deletion was undone
    book.cells.provenance.forget(["a"])
    assert book.why() == {}


async def test_the_front_end_tells_the_order_of_the_cells(book: Notebook) -> None:
    await book.run("below", "x = 5")
    await book.run("a", "let other = 1")
    await book.run("b", "let y = x")
    assert book.why() == {}
    book.cells.provenance.set_cell_order([("a", "let other = 1"), ("b", "let y = x"), ("below", "x = 5")])
    await book.run("below", "x = 6")
    assert book.why() == {"b": ["x was changed by [4]"]}  # it had run before, at any position
    await book.run("a", "let x = 1")
    assert book.why() == {"b": ["x was changed by [5]"], "below": ["x, which it binds, was bound again by [5]"]}
    book.cells.provenance.set_cell_order([("a", "let x = 1")])
    assert book.why() == {}


async def test_without_ids_a_text_is_a_cell(book: Notebook) -> None:
    await book.run("", "let x = 1")
    await book.run("", "let y = x")
    await book.run("", "x = 2")
    await book.run("", "let x = 1")
    assert [line.split("  ")[0] for line in (await book.magic("%stale")).splitlines()] == ["cell", "[3]"]


async def test_after_a_reset_nothing_is_known(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", "let y = x")
    await book.run("a", "let x = 2")
    await book.magic("%reset")
    assert book.why() == {}


async def test_what_was_brought_back_is_known_with_its_cells(book: Notebook, tmp_path: Path) -> None:
    sources = {"a": "let x = 1", "b": "let y = x\nlet z = 1", "c": "let w = y"}
    for cell, code in sources.items():
        await book.run(cell, code)
    await book.run("a", "let x = 2")
    await book.magic("%back 3")
    assert book.why() == {}
    assert book.cells.values() == {"x": 1, "y": 1, "z": 1, "w": 1}
    await book.run("a", "let x = 3")
    assert book.why() == {"b": ["x was changed by [5]"], "c": ["y may change: [2] is stale"]}
    await book.cells.end()
    again = Notebook(Cells(tmp_path, ScriptedPerson(available=False)))
    await again.magic("%restore")
    again.cells.provenance.set_cell_order([("a", "let x = 3"), *((key, sources[key]) for key in "bc")])
    assert again.why() == {"b": ["x was changed by [5]"], "c": ["y may change: [2] is stale"]}
    await again.cells.close()


async def test_a_cell_that_was_brought_back_has_its_own_number(book: Notebook, tmp_path: Path) -> None:
    await book.run("other", "%bindings")
    await book.run("a", "let x = 1")
    await book.cells.end()
    again = Notebook(Cells(tmp_path, ScriptedPerson(available=False)))
    again.cells.provenance.set_cell_order(
        [("other", "%bindings"), ("a", "let x = 1")]
    )  # JupyterLab sends the cells first
    await again.magic("%restore")
    assert (await again.magic("%bindings x")).startswith("x: let, number, made by [2] line 1\n")
    await again.cells.close()


async def test_a_cell_that_had_run_twice_is_brought_back_as_it_was_the_last_time(
    book: Notebook, tmp_path: Path
) -> None:
    texts = {"a": "let x = 1", "b": "let y = x"}
    await book.run("a", texts["a"])
    await book.run("b", texts["b"])
    await book.run("a", "let x = 2")
    await book.run("b", texts["b"])
    (run,) = (tmp_path / ".prose/runs").iterdir()
    await book.magic("%reset")
    book.cells.provenance.set_cell_order([("a", "let x = 2"), ("b", texts["b"])])
    await book.magic(f"%restore {run.name}")
    book.cells.provenance.set_cell_order([("a", "let x = 2"), ("b", texts["b"])])
    assert book.why() == {}


async def test_a_hundred_cells(book: Notebook) -> None:
    await book.run("0", "let x0 = 1")
    for number in range(1, 100):
        await book.run(str(number), f"let x{number} = x{number - 1} + 1")
    assert book.why() == {}
    await book.run("0", "let x0 = 2")
    assert len(book.why()) == 99
    await book.magic("%rerun stale")
    assert book.why() == {}
    assert book.cells.values()["x99"] == 101


# ---------------------------------------------------------------- running them again


async def test_stale_cells_run_again_until_a_value_is_the_same(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", "let big = x > 0")
    await book.run("c", 'let seen = exec "echo {big}"')
    await book.run("a", "let x = 2")
    output = await book.run("r", "%rerun stale")
    shown = [display.data["text/plain"] for display in displays(output)]
    assert shown[0] == "[2] let big = x > 0"
    assert not any("let seen" in text for text in shown)  # `big` is what it was
    assert book.why() == {}
    assert await book.magic("%rerun stale") == "No cell is stale."


async def test_an_error_ends_the_rerun_and_the_rest_stays_stale(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", 'if x == 2:\n  throw "no"\nlet y = x')
    await book.run("c", "let z = x")
    await book.run("a", "let x = 2")
    output = await book.run("r", "%rerun stale", fails=True)
    assert output.kinds[-1] == "error"
    why = book.why()
    assert list(why) == ["b", "c"] and why["b"] == ["when it ran again, it did not come to its end"]
    await book.run("a", "let x = 3")
    await book.run("r", "%rerun stale")
    assert book.why() == {}


async def test_cells_that_end_the_run_are_left_to_people(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", "let y = x\n%warnings on\n%rerun stale")
    await book.run("a", "let x = 2")
    assert await book.magic("%rerun stale") == "Run [2] yourself: what it does is not done from here."


async def test_nonsense_is_refused(book: Notebook) -> None:
    for line in ("%rerun", "%rerun all", "%rerun stale --now", "%bindings a b", "%bindings --diff", "%bindings nope"):
        output = await book.run("x", line, fails=True)
        assert output.calls[-1][1].ename == "UsageError"


# ---------------------------------------------------------------- bindings


async def test_bindings_tell_what_made_them_and_the_text_is_as_before(book: Notebook) -> None:
    await book.run("a", "let x = 1")
    await book.run("b", 'let y = exec "echo {x}; echo \\"<b>\\""\nlet z = x + 1')
    output = await book.run("m", "%bindings")
    (display,) = displays(output)
    assert display.data["text/plain"].splitlines()[0].split() == ["name", "kind", "bytes", "from", "preview"]
    assert "made by" not in display.data["text/markdown"]
    person = display.person["text/markdown"]
    shown = html.unescape(person)
    assert "made by [1] line 1" in shown
    assert "made by [2] line 2 from x" in shown
    assert "<b>" not in person
    assert "\n" not in person


async def test_bindings_mark_an_empty_value(book: Notebook) -> None:
    await book.run("a", 'let quiet = exec "true"')
    (display,) = displays(await book.run("m", "%bindings"))
    assert "<em>empty</em> · let" in html.unescape(display.person["text/markdown"])


async def test_a_name_has_a_history_and_a_difference(book: Notebook) -> None:
    await book.run("a", 'let x = "one\\ntwo\\nthree"')
    assert await book.magic("%bindings x --diff") == "x has had one value."
    await book.run("b", 'x = "one\\n2\\nthree"')
    assert await book.magic("%bindings x") == (
        "x: let, text, made by [2] line 1\n"
        '  x = "one\\n2\\nthree"\n'
        "made by  bytes  value\n"
        "[2]      11     one …\n"
        "[1]      13     one …"
    )
    assert await book.magic("%bindings x --diff") == "x [1] → [2]\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    for start in ("1", "2"):
        await book.run("deep", f"%%vvm\nx = [{start}]\nfor i in range(350):\n  x = [x]")
    assert (await book.magic("%bindings x --diff")).startswith("x [3] → [4]\n")
    await book.run("c", "let data = {a: 1, b: [1, 2, 3]}")
    await book.run("c", "data = {a: 2, b: [1, 3]}")
    assert await book.magic("%bindings data --diff") == "data [5] → [6]\n- $.a: 1\n+ $.a: 2\n- $.b[1]: 2"


async def test_the_history_of_values_is_bounded(book: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MAX_VERSIONS + 30):
        await book.run("a", f"let x = {number}")
    versions = book.cells.provenance.names["x"]
    assert len(versions) == MAX_VERSIONS
    monkeypatch.setattr(provenance, "MAX_VALUE_CHARACTERS", 100)
    await book.run("b", f'let big = ["{"x" * 60}", {{a: "{"y" * 60}"}}]')
    await book.run("b", "let big = 1")
    first, last = book.cells.provenance.names["big"]
    assert (first.known, last.known) == (False, True)
    assert "(forgotten)" in await book.magic("%bindings big")


async def test_the_page_shows_what_the_magics_show(book: Notebook) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "freshness.md").read_text(encoding="utf-8")
    first, second = (text.strip() for text in page.split("```prose\n")[1:3] for text in [text.split("```")[0]])
    await book.run("a", first)
    await book.run("b", second)
    history = await book.magic("%bindings plan")
    await book.run("a", first.replace("tea", "coffee"))
    for shown in (await book.magic("%stale"), history):
        assert f"```text\n{shown}\n```" in page, shown


# ---------------------------------------------------------------- files that answers depend on

DECLARED = '{}let data = exec "cat rows.csv"\n  reads: ["rows.csv"]'


async def test_a_cell_whose_command_reads_a_changed_file_is_stale_and_runs_again(
    book: Notebook, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("1")
    await book.run("a", DECLARED.format(""))
    await book.run("b", 'let out = exec "echo {data} >> ran; cat ran"')
    assert "No cell is stale" in await book.magic("%stale")
    (tmp_path / "rows.csv").write_text("2")
    assert "rows.csv has changed" in await book.magic("%stale")
    assert book.why() == {"a": ["rows.csv has changed"], "b": ["data may change: [1] is stale"]}
    (tmp_path / "rows.csv").write_text("1")
    assert "No cell is stale" in await book.magic("%stale")
    (tmp_path / "rows.csv").write_text("2")
    await book.magic("%rerun stale")
    assert (tmp_path / "ran").read_text().split() == ["1", "2"]
    assert "No cell is stale" in await book.magic("%stale")


async def test_files_of_the_last_run_of_a_cell_in_a_run_of_both_languages(book: Notebook, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("1")
    await book.run("a", 'let a = exec "cat one"\n  reads: ["one"]')
    await book.run("v", "%%vvm\nb = 1")
    await book.run("c", 'let c = exec "cat one two"\n  reads: ["one", "t*"]')
    await book.run("a", 'let a = exec "cat one"')
    (tmp_path / "one").write_text("2")
    await book.magic("%stale")
    assert book.why() == {"c": ["one has changed"]}
    await book.run("v", "%%vvm\nb = 2")
    await book.run("c", 'let c = exec "cat one two"\n  reads: ["one", "t*"]')
    assert "No cell is stale" in await book.magic("%stale")
    (tmp_path / "two").unlink()
    await book.magic("%stale")
    assert book.why() == {"c": ["two has changed"]}


async def test_a_file_that_a_later_cell_has_written_makes_nothing_stale(book: Notebook, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1")
    await book.run("a", DECLARED.format(""))
    await book.run("b", 'exec "echo 2 > rows.csv"\n  reads: []\n  writes: ["rows.csv"]')
    assert "No cell is stale" in await book.magic("%stale")
    (tmp_path / "rows.csv").write_text("3")
    await book.magic("%stale")
    assert book.why() == {"a": ["rows.csv has changed"], "b": ["rows.csv has changed"]}


async def test_a_file_that_a_cell_above_has_written_differently_makes_the_cells_below_stale(
    book: Notebook, tmp_path: Path
) -> None:
    write = 'exec "echo {} > rows.csv"\n  reads: []\n  writes: ["rows.csv"]'
    last = 'exec "echo {} >> rows.csv"\n  reads: ["rows.csv"]\n  writes: ["rows.csv"]'
    await book.run("w", write.format(1))
    await book.run("r", DECLARED.format(""))
    await book.run("l", last.format(2))
    assert "No cell is stale" in await book.magic("%stale")
    await book.run("w", write.format(1))
    await book.magic("%stale")
    assert book.why() == {"l": ["rows.csv has changed"]}, "the cell above wrote the same"
    await book.run("w", write.format(3))
    await book.magic("%stale")
    assert book.why() == {"r": ["rows.csv has changed"], "l": ["rows.csv has changed"]}
    await book.run("l", last.format(2))
    await book.magic("%stale")
    assert book.why() == {"r": ["rows.csv has changed"]}, "that the cell below wrote since changes nothing"
    await book.run("r", DECLARED.format(""))
    assert "No cell is stale" in await book.magic("%stale")
    await book.magic("%reset")
    for name in "wrl":
        await book.run(name, {"w": write.format(3), "r": DECLARED.format(""), "l": last.format(2)}[name])
    await book.run("w", write.format(4))
    await book.magic("%rerun stale")
    assert (tmp_path / "rows.csv").read_text().split() == ["4", "2"]
    assert "No cell is stale" in await book.magic("%stale")


def test_files_that_sessions_have_read_and_written(tmp_path: Path) -> None:
    """Also relative to the directory of sessions, where that of commands is another one."""
    (tmp_path / "d").mkdir()
    for name in ("f", "d/f"):
        (tmp_path / name).write_text("new")
    answered = AnsweredFiles(Keys(str(tmp_path / "d"), str(tmp_path)))
    read = FileRead("f", hashlib.sha256(b"old").hexdigest())
    changed = SessionResult("done", "done", "v", "m", reads=(read,), writes=(FileWrite("f", "old", "new"),))
    answered.add(Asked("c1/1/s0", "session", ""), Answered("c1/1/s0", codec.encode(changed)))
    notes = {"files": CommandFiles({"f": read.sha256}, {}, (("f",), ()))}
    command = CommandResult("exited", 0)
    answered.add(Asked("c2/1/x0", "command", ""), Answered("c2/1/x0", codec.encode(command), aside=codec.encode(notes)))
    looked = answered.changes([["c1"], ["c2"]], {}, FileDigests())
    assert looked == [None, "f"], "the session has written another file than the command has read"
    (tmp_path / "f").write_text("other")
    (tmp_path / "d/f").write_text("old")
    assert answered.changes([["c1"], ["c2"]], {}, FileDigests()) == ["f", None]


async def test_a_look_at_files_does_not_replace_what_a_later_one_has_found(
    book: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("1")
    await book.run("a", DECLARED.format(""))
    seen, held, changes = asyncio.Event(), threading.Event(), AnsweredFiles.changes
    loop = asyncio.get_running_loop()

    def slow(*args: Any) -> Any:
        found = changes(*args)
        loop.call_soon_threadsafe(seen.set)
        held.wait(60)
        return found

    monkeypatch.setattr(AnsweredFiles, "changes", slow)
    first = asyncio.create_task(check_answer_files(book.cells.provenance))
    await seen.wait()
    monkeypatch.setattr(AnsweredFiles, "changes", changes)
    (tmp_path / "rows.csv").write_text("2")
    await book.magic("%stale")
    held.set()
    await first
    assert book.why() == {"a": ["rows.csv has changed"]}


async def test_the_panel_looks_at_files_once_at_a_time_and_answers_each_cell(
    book: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("1")
    await book.run("a", DECLARED.format(""))
    looks, link, changes = 0, Heard(), AnsweredFiles.changes
    held = threading.Event()

    def slow(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        held.wait(60)
        return changes(*args)

    monkeypatch.setattr(AnsweredFiles, "changes", slow)
    panel = Panel(book.cells, lambda seconds, work: None)
    panel.opened(link)
    await asyncio.sleep(0)  # the first look has begun
    for name in "bcd":
        book.cells.provenance.begin(Opening.of("", name, None))
        book.cells.provenance.end(failed=False)
        panel.cell_ended()
    (tmp_path / "rows.csv").write_text("2")
    held.set()
    while len(link.stale) < 4:
        await link.something.get()
    assert [one["after"] for one in link.stale][1:] == ["b", "c", "d"]
    assert [one["why"] for one in link.stale[-1]["stale"]] == [["rows.csv has changed"]]
    assert looks == 2
    panel.closed(link)


async def test_a_page_that_is_loaded_again_while_files_are_checked_gets_its_stale_cells(
    book: Notebook, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("1")
    await book.run("a", DECLARED.format(""))
    (tmp_path / "rows.csv").write_text("2")
    panel, former, link = Panel(book.cells, lambda seconds, work: None), Heard(), Heard()
    panel.opened(former)
    await asyncio.sleep(0)  # the check has begun
    panel.closed(former)
    panel.opened(link)
    await asyncio.wait_for(link.something.get(), PATIENCE)
    assert [one["why"] for one in link.stale[-1]["stale"]] == [["rows.csv has changed"]]


class Heard:
    """The messages of a panel."""

    def __init__(self) -> None:
        self.stale: list[Any] = []
        self.something: asyncio.Queue[None] = asyncio.Queue()

    def send(self, data: Mapping[str, Any]) -> None:
        if data["kind"] == "stale":
            self.stale.append(data)
            self.something.put_nowait(None)


async def test_files_of_a_run_that_was_brought_back(book: Notebook, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1")
    await book.run("a", DECLARED.format(""))
    await book.run("b", "let other = 1")
    (run,) = (tmp_path / ".prose/runs").iterdir()
    await book.magic("%reset")
    await book.magic(f"%restore {run.name}")
    book.cells.provenance.set_cell_order([("a", DECLARED.format("")), ("b", "let other = 1")])
    assert "No cell is stale" in await book.magic("%stale")
    (tmp_path / "rows.csv").write_text("2")
    await book.magic("%stale")
    assert book.why() == {"a": ["rows.csv has changed"]}


async def test_files_that_cannot_be_compared_make_their_cell_stale(
    book: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_digests, "MOST_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("1")
    await book.run("a", 'let a = exec "cat 0.csv"\n  reads: ["*.csv"]')
    await book.run("b", 'let b = exec "cat 0.csv"\n  reads: ["0*"]')
    await book.magic("%stale")
    assert book.why() == {"a": [NOT_COMPARED]}


async def test_a_loop_over_unchanged_files_keeps_their_digests_once(book: Notebook, tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.csv").write_text(str(number))
    await book.run("a", 'repeat 20:\n  exec "true"\n    reads: ["*.csv"]')
    current = book.cells.current
    assert current is not None and current.journal is not None
    tracemalloc.start()
    await book.run("a", 'repeat 20:\n  exec "true"\n    reads: ["*.csv"]')
    gc.collect()
    kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*answer_facts.py")])
    tracemalloc.stop()
    assert sum(one.size for one in kept.statistics("filename")) < 100 * 300, "not 20 times the digests of 100 files"
    (tmp_path / "7.csv").write_text("")
    await book.magic("%stale")
    assert book.why() == {"a": ["7.csv has changed"]}
