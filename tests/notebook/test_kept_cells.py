"""`rerun = "keep"`: a cell that runs again keeps the answers to what has not changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from notebook.kernels import Client, kernel, specification, vvm_specification
from notebook.test_answers_again import Notebook
from notebook.test_answers_again import settings as stub_settings
from stubs.model_server import StubServer

ASKS = 'session "Say it"'
CALLS = 'agent scribe(prompt="Be brief.")\n@scribe `Say it`()'


def settings(directory: Path, stub: StubServer, rerun: str = "keep") -> None:
    stub_settings(directory, stub)
    path = directory / "prose.toml"
    path.write_text(f'rerun = "{rerun}"\n' + path.read_text().replace('mode = "auto"', 'mode = "off"'))


def ran(client: Client, cell: str, code: str, **how: object) -> str:
    """The output of a cell; `how` it runs again is in the metadata of the request."""
    client.channels.session.metadata = {"cellId": cell, "prose_rerun": how}
    done = client.run(code, allow_stdin=True)
    assert done.status == "ok", done.error
    return "".join(m["content"].get("text", "") for m in done.outputs)


@pytest.mark.parametrize("vvm", [False, True])
def test_an_unchanged_session_is_asked_once(directory: Path, stub: StubServer, vvm: bool) -> None:
    settings(directory, stub)
    with kernel(directory, spec=vvm_specification() if vvm else None, forks=True) as client:
        book = Notebook(client, stub, CALLS if vvm else ASKS)
        assert [book.run("a", "1"), book.run("a", "2"), book.run("b", "3")] == ["1", "1", "3"]
        book.asks = f"%ask again\n{book.asks}"
        assert book.run("a", "4") == "4"
        book.asks = book.asks.replace("%ask again\n", "")
        assert book.run("a", "5") == "4", "the answer that was shown last"
        book.asks = book.asks.replace("Say it", "Say that")
        assert book.run("a", "6") == "6"


def test_only_commands_that_declare_their_files_are_kept(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    (directory / "in.txt").write_text("1")
    code = 'exec "echo undeclared >> ran"\nexec "cat in.txt; echo declared >> ran"\n  reads: ["in.txt"]\n'
    with kernel(directory, forks=True) as client:
        for _ in range(2):
            ran(client, "a", code)
        assert (directory / "ran").read_text().split() == ["undeclared", "declared", "undeclared"]
        (directory / "in.txt").write_text("2")
        assert "2" in ran(client, "a", code)
        assert client.run("%ask nothing").status == "error"


def test_a_command_that_made_its_cell_fail_runs_again(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    with kernel(directory, forks=True) as client:
        client.channels.session.metadata = {"cellId": "a"}
        for _ in range(2):
            assert client.run('exec "echo x >> ran; exit 1"\n  reads: []').status == "error"
    assert (directory / "ran").read_text().split() == ["x", "x"]


@pytest.mark.parametrize("rerun", ["keep", "ask"])
def test_a_stale_cell_that_runs_again_keeps_what_has_not_changed(directory: Path, stub: StubServer, rerun: str) -> None:
    """With the setting and without it."""
    settings(directory, stub, rerun)
    code = 'exec "echo same >> ran"\n  reads: []\nexec "echo {x} >> ran"\n  reads: []\n'
    with kernel(directory, forks=True) as client:
        for cell, text in (("a", "let x = 1"), ("b", code), ("a", "let x = 2"), ("c", "%rerun stale --here")):
            ran(client, cell, text)
    assert (directory / "ran").read_text().split() == ["same", "1", "2"]


def test_a_kept_answer_says_so(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    code = 'let a = session "Say it"\nexec "echo one"\n  reads: []\nlet b = exec "echo two"\n  reads: []\n'
    stub.script("now", "hi")
    shown, facts = [], []
    with kernel(directory, forks=True) as client:
        client.channels.session.metadata = {"cellId": "a"}
        for text in (code, code, code, f"%ask again\n{code}"):
            contents = [m["content"] for m in client.run(text).outputs if "data" in m["content"]]
            shown.append("\n".join(content["data"]["text/plain"] for content in contents))
            facts.append(json.dumps([content["metadata"] for content in contents]))
    assert [one.count("%ask again") for one in shown] == [0, 3, 3, 0]
    assert shown[1] == shown[2], "the time is in the metadata"
    assert ['"kept"' in one and '"answered"' in one for one in facts] == [False, True, True, False], facts


# ---------------------------------------------------------------- asked again, one by one

ECHOES = "".join(f'let {name} = exec "echo {name} >> ran; echo {name}"\n  reads: []\n' for name in "ab")


def places(client: Client, cell: str, code: str, **how: object) -> list[str]:
    """The paths of the kept answers that the cards of a cell show."""
    client.channels.session.metadata = {"cellId": cell, "prose_rerun": how}
    found = []
    for message in client.run(code).outputs:
        facts = message["content"].get("metadata", {}).get("prose", {})
        for fact in (facts, *facts.values()):
            if isinstance(fact, dict) and "kept" in fact:
                assert fact["answered"]
                found.append(fact["at"])
    return found


def test_only_the_answer_that_was_clicked_is_asked_again(directory: Path, stub: StubServer) -> None:
    settings(directory, stub, "ask")
    with kernel(directory, forks=True) as client:
        assert places(client, "a", ECHOES) == []
        kept = places(client, "a", ECHOES, keep=True)
        assert len(kept) == 2
        ran(client, "a", ECHOES, again=[kept[1]])
        assert (directory / "ran").read_text().split() == ["a", "b", "b"]
        ran(client, "a", ECHOES, again=["c99/1/x0", 3])
        assert (directory / "ran").read_text().split() == ["a", "b", "b"], "an unknown path asks nothing"
        ran(client, "a", ECHOES)
    assert (directory / "ran").read_text().split() == ["a", "b", "b", "a", "b"], "the setting counts"


def test_of_equal_requests_the_one_that_was_clicked_is_asked_again(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    same = 'let {} = exec "echo x >> ran; wc -l < ran"\n  reads: []\n'
    code = same.format("a") + same.format("b")
    with kernel(directory, forks=True) as client:
        ran(client, "a", code)
        kept = places(client, "a", code)
        ran(client, "a", code, again=[kept[0]])
        assert ran(client, "b", 'exec "echo {a} {b}"').split() == ["3", "2"]


def test_a_cell_of_several_texts_keeps_all_answers(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    first, second = ECHOES.split("let b")
    code = f"{first}%usage\nlet b{second}"
    with kernel(directory, forks=True) as client:
        for text in (code, code, f"%ask again\n{code}", code):
            ran(client, "a", text)
    assert (directory / "ran").read_text().split() == ["a", "b", "a", "b"]


def test_what_a_failed_cell_did_not_reach_is_kept(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    fails = ECHOES.replace("let b", 'exec "exit 1"\nlet b')
    with kernel(directory, forks=True) as client:
        ran(client, "a", ECHOES)
        for _ in range(2):
            client.channels.session.metadata = {"cellId": "a"}
            assert client.run(fails).status == "error"
        kept = places(client, "a", ECHOES)
        assert len(kept) == 2 and (directory / "ran").read_text().split() == ["a", "b"]
        ran(client, "a", ECHOES, again=[kept[0]])
        ran(client, "a", ECHOES)
    assert (directory / "ran").read_text().split() == ["a", "b", "a"]


def test_equal_requests_of_a_failed_cell_are_kept(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    loop = 'for x in [{}]:\n  exec "echo x >> ran"\n    reads: []\n'
    with kernel(directory, forks=True) as client:
        ran(client, "a", loop.format("1"))
        client.channels.session.metadata = {"cellId": "a"}
        assert client.run(loop.format("1, 2, 3") + 'throw "no"\n').status == "error"
        ran(client, "a", loop.format("1, 2, 3"))
    assert (directory / "ran").read_text().split() == ["x"] * 3


def test_an_answer_that_was_asked_again_is_the_one_after_a_restart(directory: Path, stub: StubServer) -> None:
    stub_settings(directory, stub)
    with kernel(directory, forks=True) as client:
        book = Notebook(client, stub, ASKS)
        assert [book.run("a", "1"), book.run("b", "2")] == ["1", "2"]
        book.restart()
        assert [book.run("a", "x"), book.run("b", "x")] == ["1", "2"]
        client.channels.session.metadata = {"cellId": "a", "prose_rerun": {"keep": True}}
        (shown,) = [m["content"] for m in client.run(ASKS).outputs if "data" in m["content"]]
        at = shown["metadata"]["prose"]["at"]
        stub.script("now", "3")
        client.channels.session.metadata = {"cellId": "a", "prose_rerun": {"again": [at]}}
        client.run(ASKS)
        book.restart()
        assert [book.run("a", "x"), book.run("b", "x")] == ["3", "2"]


def test_in_a_python_notebook_an_answer_is_asked_again(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    code = f"%%prose\n{ECHOES}"
    with kernel(directory, spec=specification("ipykernel_launcher", "signal"), forks=True) as client:
        client.run("%load_ext prose_kernel")
        ran(client, "a", code)
        kept = places(client, "a", code)
        ran(client, "a", code, again=[kept[0]])
        lines = '%prose ask again\n%prose let c = exec "echo c >> ran"'
        for _ in range(2):
            ran(client, "b", lines)
    assert (directory / "ran").read_text().split() == ["a", "b", "a", "c", "c"]


def test_a_cell_whose_language_changes_keeps_its_last_answers_only(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    vvm = '%%vvm\nagent scribe(prompt="Be brief.")\nx = @scribe `Say it`()\nlen(x)'
    stub.script("now", "one", "two")
    with kernel(directory, forks=True) as client:
        for text in (ECHOES, vvm, vvm, ECHOES):
            ran(client, "a", text)
        assert (directory / "ran").read_text().split() == ["a", "b"] * 2
        assert "one" in ran(client, "b", 'exec "echo {x}"\n')


def test_a_kept_judgement_says_so_and_can_be_asked_again(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    path = directory / "prose.toml"
    path.write_text(f'{path.read_text()}[judge]\nmodel = "stub:json-0-yes"\n')
    code = 'let a = "x"\nif **the weather is nice**:\n  a = "y"\nif **a is "y"**:\n  a = "z"\n'
    with kernel(directory, forks=True) as client:
        client.channels.session.metadata = {"cellId": "a"}
        facts, before = [], stub.stats.requests
        for how in ({}, {}, None):
            if how is None:
                how = {"again": [facts[1][0]["at"]]}
            client.channels.session.metadata = {"cellId": "a", "prose_rerun": how}
            decided = [m["content"]["metadata"].get("prose", {}).get("decisions", []) for m in client.run(code).outputs]
            facts.append([one for some in decided for one in some if "kept" in one])
        assert [len(one) for one in facts] == [0, 1, 0], "a rule's decision costs nothing, and is not marked"
        assert stub.stats.requests - before == 2


# ---------------------------------------------------------------- %plan --keep


def planned(client: Client, cell: str, code: str) -> list[list[str]]:
    """The rows of the table that `%plan --keep` shows."""
    client.channels.session.metadata = {"cellId": cell}
    done = client.run(f"%plan --keep\n{code}")
    assert done.status == "ok", done.error
    (shown,) = [m["content"]["data"]["text/markdown"] for m in done.outputs if "data" in m["content"]]
    return [line.strip("| ").split(" | ") for line in shown.splitlines() if line.startswith(("| kept", "| asked"))]


@pytest.mark.parametrize("vvm", [False, True])
def test_a_plan_shows_what_a_cell_would_keep_and_why_the_rest_is_asked(
    directory: Path, stub: StubServer, vvm: bool
) -> None:
    settings(directory, stub)
    stub.script("now", "a word")
    code = CALLS if vvm else ECHOES + 'let s = session "Say {a}"\nexec "echo {s} >> ran"\n'
    with kernel(directory, spec=vvm_specification() if vvm else None, forks=True) as client:
        ran(client, "z", "x = 1" if vvm else 'let x = 1\nexec "echo z >> ran"')
        client.channels.session.metadata = {"cellId": "a"}
        assert client.run(f"%plan --keep\n{code}").error["ename"] == "UsageError", "it has not run"
        ran(client, "a", code)
        rows = planned(client, "a", code)
        assert [row[0] for row in rows] == (["kept"] if vvm else ["kept", "kept", "kept", "asked"])
        assert vvm or "other cells" in rows[3][2]
        changed = code.replace("Say", "Tell")
        rows = planned(client, "a", changed)
        assert [row[0] for row in rows] == (["asked"] if vvm else ["kept", "kept", "asked", "asked"])
        assert "prompt differs" in rows[-1 if vvm else 2][2] or "Tell" in rows[-1 if vvm else 2][2]
        if not vvm:
            assert "reads nothing" in rows[0][2]
            assert (directory / "ran").read_text().split() == ["z", "a", "b", "a", "word"], "nothing was asked or run"
        assert client.run("%bindings").status == "ok"


@pytest.mark.parametrize("mode", ['state = "in-context"', 'journal = "off"'])
def test_a_run_without_a_journal_says_that_it_keeps_nothing(directory: Path, stub: StubServer, mode: str) -> None:
    settings(directory, stub)
    path = directory / "prose.toml"
    path.write_text(f"{mode}\n{path.read_text()}")
    why = "no journal"
    with kernel(directory, forks=True) as client:
        assert ran(client, "a", ECHOES).count(why) == 1
        assert why not in ran(client, "a", ECHOES), "once a run"
        asked = client.run(f"%ask again\n{ECHOES}")
        assert why in str([m["content"] for m in asked.outputs])
        refused = client.run(f"%plan --keep\n{ECHOES}")
        assert refused.error["ename"] == "UsageError" and why in refused.error["evalue"]
