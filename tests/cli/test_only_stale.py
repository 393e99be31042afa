"""`prose run NOTEBOOK --only-stale`: the cells whose text, inputs or files have changed since the last run."""

from __future__ import annotations

import re

import pytest

from tests.cli.test_keeping import notebook, place, script
from tests.cli.test_resume import Place, Ran

__all__ = ["place"]


def cell(name: str, text: str = "") -> str:
    """Return a cell with a command that logs each of its runs."""
    return f'let {name} = exec "echo {name} >> ran; echo {text or name}"'


def stale(place: Place, *cells: str, options: tuple[str, ...] = ()) -> tuple[Ran, dict[str, str]]:
    """Run the stale cells of a notebook with these cells; return the outcome, and the run cells with their reasons."""
    notebook(place.path / "n.ipynb", *cells)
    place.write("ran", "")
    seen = place.prose("run", "n.ipynb", "--only-stale", *options)
    return seen, dict(re.findall(r"^  (cell \d+): (.*)$", seen.err, re.M))


def begin(place: Place, *cells: str, options: tuple[str, ...] = ()) -> Ran:
    notebook(place.path / "n.ipynb", *cells)
    return place.prose("run", "n.ipynb", *options)


def test_an_edited_cell_and_what_depends_on_it_run(place: Place) -> None:
    cells = [cell("a"), 'let topic = "tea"', cell("b", "{topic}"), cell("c"), 'output d = "{a}{b}{c}"']
    assert begin(place, *cells).status == 0
    assert place.ran == ["a", "b", "c"]
    before = [run.name for run in place.runs()]
    seen, ran = stale(place, *cells)
    assert (seen.status, ran, place.ran) == (0, {}, [])
    assert seen.out == "d: a\ntea\nc\n" or "tea" in seen.out, "the values of the earlier run"
    cells[1] = 'let topic = "coffee"'
    seen, ran = stale(place, *cells)
    assert (seen.status, list(ran), place.ran) == (0, ["cell 2", "cell 3", "cell 5"], ["b"])
    assert "coffee" in seen.out
    assert ran["cell 3"] == "topic was changed by [2]"
    assert [run.name for run in place.runs()][: len(before)] == before, "earlier runs stay"
    seen, ran = stale(place, *cells)
    assert (seen.status, ran) == (0, {}), "a run of stale cells is an earlier run, too"
    cells[1] = 'let topic = "cof" + "fee"'
    assert list(stale(place, *cells)[1]) == ["cell 2"], "the value is the same"


def test_cells_that_are_inserted_moved_or_rebound(place: Place) -> None:
    assert begin(place, "let n = 1", "n = n + 1", cell("a", "{n}")).status == 0
    _, ran = stale(place, "let n = 1", cell("new"), "n = n + 1", cell("a", "{n}"))
    assert (list(ran), place.ran) == (["cell 2"], ["new"])
    seen, ran = stale(place, "let n = 1", cell("new"), "n = n + 2", 'output z = "{n}"')
    assert seen.out.splitlines()[-1] == "z: 3", "n is what the first cell makes"
    assert list(ran) == ["cell 1", "cell 3", "cell 4"]


def test_a_cell_that_reads_a_file_which_an_edited_cell_writes_runs(place: Place) -> None:
    write = 'exec "echo {} > rows"\n  reads: []\n  writes: ["rows"]'
    read = 'output a = exec "cat rows"\n  reads: ["rows"]'
    assert begin(place, write.format(1), read).out.splitlines()[-1] == "a: 1"
    seen, ran = stale(place, write.format(2), read)
    assert (list(ran), seen.out.splitlines()[-1]) == (["cell 1", "cell 2"], "a: 2")
    assert ran["cell 2"] == "rows has changed"


def test_unchanged_requests_of_stale_cells_keep_their_answers(place: Place) -> None:
    options = script(place, Say="hi", Use="used", More="more")
    cells = ["let x = 1", 'let a = session "Say it"\nlet b = session "Use {x}"', 'output c = "{a}{b}"']
    assert begin(place, *cells, options=options).status == 0
    options = script(place, Use="again", More="more")
    cells[0] = "let x = 2"
    seen, ran = stale(place, *cells, options=options)
    assert (seen.status, list(ran), seen.out.splitlines()[-1]) == (0, ["cell 1", "cell 2", "cell 3"], "c: hiagain")
    cells[1] += '\nlet d = session "More"'
    options = script(place, More="more")
    seen, ran = stale(place, *cells, options=options)
    assert (seen.status, list(ran)) == (0, ["cell 2"]), seen.err


def test_files_of_commands_make_a_cell_stale(place: Place) -> None:
    (place.path / "in").mkdir()
    place.write("in/a.txt", "1")
    reads = '\n  reads: ["in/*"]'
    cells = ['let a = exec "cat in/*"' + reads, cell("b"), 'output c = "{a}"']
    assert begin(place, *cells).status == 0
    for name in ("in/a.txt", "in/new.txt"):
        place.write(name, "2")
        seen, ran = stale(place, *cells)
        assert (seen.status, list(ran), ran["cell 1"]) == (0, ["cell 1", "cell 3"], f"{name} has changed")
    assert stale(place, *cells)[1] == {}


def test_failed_cells_and_cells_with_magics_run(place: Place) -> None:
    cells = ['%input who=me\ninput who: "Who?"', cell("a"), 'exec "echo f >> ran; test -f there"', cell("z")]
    assert begin(place, *cells).status == 1
    place.write("there", "")
    seen, ran = stale(place, *cells)
    assert (seen.status, ran, place.ran) == (
        0,
        {"cell 1": "it has magics", "cell 3": "it failed", "cell 4": "it is new or was edited"},
        ["f", "z"],
    )


def test_a_cell_that_uses_a_removed_name_fails(place: Place) -> None:
    assert begin(place, "let x = 1", cell("a", "{x}")).status == 0
    for cells in (("let y = 1", cell("a", "{x}")), (cell("a", "{x}"),), ("let x = x + 1",)):
        seen, _ = stale(place, *cells)
        assert seen.status != 0 and place.ran == []
        assert f"cell {len(cells)} uses x, which no cell above it makes any more" in seen.err


def test_without_an_earlier_run_everything_runs(place: Place) -> None:
    seen, _ = stale(place, cell("a"))
    assert (seen.status, place.ran) == (0, ["a"])
    assert "no earlier run" in seen.err


@pytest.mark.parametrize(
    "options",
    [("p.prose", "--only-stale"), ("n.ipynb", "--only-stale", "--id", "k"), ("n.ipynb", "--only-stale", "--keep", "x")],
)
def test_options_that_exclude_only_stale(place: Place, options: tuple[str, ...]) -> None:
    place.write("p.prose", 'exec "true"')
    notebook(place.path / "n.ipynb", cell("a"))
    assert place.prose("run", *options).status == 2
    assert place.runs() == []


def test_another_input_is_refused(place: Place) -> None:
    cells = ['input who: "Who?"', 'output a = "{who}"']
    assert begin(place, *cells, options=("--input", "who=me")).status == 0
    assert stale(place, *cells)[0].out.splitlines()[-1] == "a: me"
    assert stale(place, *cells, options=("--input", "who=you"))[0].status == 2
