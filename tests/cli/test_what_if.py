"""`prose what-if`: one answer or model of a run replaced."""

from __future__ import annotations

import re

import pytest

from tests.cli.test_keeping import Place, kept, place, script

__all__ = ["place"]

PROGRAM = """
    let a = session "Say it"
    let b = session "Use {a}"
    let c = session "Alone"
    let d = exec "echo d >> ran; echo d"
    if **the text is good enough**:
      output e = b
    else:
      output e = c
    """


@pytest.fixture
def run(place: Place) -> tuple[str, tuple[str, ...]]:
    options = script(place, Say="hi", Use="used", Alone="alone")
    with (place.path / "script.yaml").open("a") as file:
        file.write("judge:\n  '*': yes\n")
    place.write("p.prose", PROGRAM)
    assert place.prose("run", "p.prose", *options).status == 0
    return place.runs()[0].name, options


def test_another_answer_repeats_the_requests_that_depend_on_it(place: Place, run: tuple[str, tuple[str, ...]]) -> None:
    name, options = run
    place.write("answer.md", "other text")
    place.write("p.prose", "throw 'the text of the run is used'")
    (place.path / "script.yaml").write_text("sessions:\n  'Use other text*': changed\njudge:\n  '*': no\n")
    seen = place.prose("what-if", name, "c1/1/s0=@answer.md", *options, "--yes-rerun", "--why")
    assert (seen.status, kept(seen)) == (0, (3, {"changed": 2}))
    assert place.ran == ["d"], "a command that does not depend on it is kept"
    shown = seen.out.splitlines()
    assert shown[0] == "e: alone"
    changed = [line for line in shown if line.startswith(("answer ", "binding "))]
    assert changed == ["answer c1/1/s0", "answer c1/2/s0", "answer c1/5/j0", "binding a", "binding b", "binding e"]
    assert place.prose("runs", "show", name).status == 0, "the run stays as it is"


def test_bindings_in_sqlite_are_compared(place: Place) -> None:
    options = script(place, Say="hi")
    place.write("p.prose", 'let a = session "Say it"\noutput b = "{a}!"\n')
    assert place.prose("run", "p.prose", *options, "--state=sqlite").status == 0
    seen = place.prose("what-if", place.runs()[0].name, "c1/1/s0=other", *options)
    changed = [line for line in seen.out.splitlines() if line.startswith(("answer ", "binding "))]
    assert (seen.status, changed) == (0, ["answer c1/1/s0", "binding a", "binding b"])


def test_requests_that_would_run_again_are_listed(place: Place, run: tuple[str, tuple[str, ...]]) -> None:
    name, options = run
    seen = place.prose("what-if", name, "c1/1/s0=other", *options)
    assert seen.status == 2
    assert seen.remarks[0].startswith("Error: The run with the change does not use 2 answers of run RUN.")


def test_a_decision_is_reversed(place: Place, run: tuple[str, tuple[str, ...]]) -> None:
    name, options = run
    seen = place.prose("what-if", name, "c1/5/j0=no", *options)
    assert (seen.status, kept(seen), seen.out.splitlines()[0]) == (0, (5, {}), "e: alone")


def test_another_model_is_asked(place: Place, run: tuple[str, tuple[str, ...]]) -> None:
    name, options = run
    (place.path / "script.yaml").write_text("sessions:\n  'Say*': hi\njudge:\n  '*': yes\n")
    seen = place.prose("what-if", name, "c1/1/s0:model=opus", *options, "--yes-rerun", "--why")
    assert kept(seen) == (4, {"changed": 1}), "its answer is the same, so the rest is kept"
    assert "another model is asked" in seen.err


FILES = """
    let a = exec "cat data; echo a >> ran"
      reads: ["data"]
    let b = session "Use {a}"
    output c = exec "echo {b}"
    """


@pytest.mark.parametrize("data", ["then", "now"])
@pytest.mark.parametrize(("at", "text"), [("c1/1/x0", "used"), ("c1/2/s0", "given"), ("c1/3/x0", "given")])
def test_a_given_answer_counts_whatever_has_changed(place: Place, at: str, text: str, data: str) -> None:
    options = script(place, Use="used")
    place.write("data", "then")
    place.write("p.prose", FILES)
    assert place.prose("run", "p.prose", *options).status == 0
    place.write("data", data)
    seen = place.prose("what-if", place.runs()[0].name, f"{at}=given", *options, "--yes-rerun")
    assert (seen.status, seen.out.splitlines()[0]) == (0, f"c: {text}")
    assert place.ran == (["a"] if at == "c1/1/x0" or data == "then" else ["a", "a"])
    assert "was not used" not in seen.err


def test_a_given_answer_that_nothing_asks_for_is_named(place: Place, run: tuple[str, tuple[str, ...]]) -> None:
    _, options = run
    place.write("q.prose", 'if **a**:\n  let b = session "Alone"\n')
    (place.path / "script.yaml").write_text("sessions:\n  'Alone*': alone\njudge:\n  '*': yes\n")
    assert place.prose("run", "q.prose", *options).status == 0
    name = place.runs()[-1].name
    seen = place.prose("what-if", name, "c1/1/j0=no", "c1/1/s0=given", *options, "--yes-rerun")
    assert (seen.status, "the answer for c1/1/s0 was not used" in seen.err) == (0, True), seen.err
    assert "c1/1/j0 was" not in seen.err


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("c1/9/s0=x",), "asked nothing at c1/9/s0"),
        (("nonsense",), "not of the form"),
        (("c1/1/s0:temperature=1",), "not of the form"),
        (("c1/5/j0=perhaps",), "yes or no"),
        (("c1/4/x0:model=opus",), "has no model"),
        (("c1/1/s0=@missing.md",), "missing.md"),
    ],
)
def test_an_invalid_replacement_runs_nothing(
    place: Place, run: tuple[str, tuple[str, ...]], changes: tuple[str, ...], says: str
) -> None:
    name, options = run
    seen = place.prose("what-if", name, *changes, *options, "--yes-rerun")
    assert seen.status == 2 and says in seen.err, seen.err
    assert len(place.runs()) == 1


def test_both_runs_are_shown_side_by_side(place: Place, run: tuple[str, tuple[str, ...]]) -> None:
    name, options = run
    changes = ("c1/1/s0=<b>other</b>", "c1/5/j0=no", "--html", "both.html", *options, "--yes-rerun")
    place.write("both.html", "of another program")
    assert place.prose("what-if", name, *changes).status == 2
    assert len(place.runs()) == 1, "nothing was run"
    (place.path / "both.html").unlink()
    (place.path / "script.yaml").write_text("sessions:\n  'Use *': changed\njudge:\n  '*': no\n")
    seen = place.prose("what-if", name, *changes)
    assert seen.status == 0, seen.err
    shown = (place.path / "both.html").read_text()
    assert re.findall(r'<h2 id="(\w+)">', shown) == ["decisions", "answers", "bindings", "used"]
    assert re.findall(r"<h3><code>(.*?)</code>", shown)[:3] == ["c1/5/j0", "c1/1/s0", "c1/2/s0"]
    assert "&lt;b&gt;other" in shown and "<b>other" not in shown
    assert all(run.name in shown for run in place.runs())
