"""`rerun = "keep"`: a cell that runs again keeps the answers to what has not changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook.kernels import Client, kernel, vvm_specification
from notebook.test_answers_again import Notebook
from notebook.test_answers_again import settings as stub_settings
from stubs.model_server import StubServer

ASKS = 'session "Say it"'
CALLS = 'agent scribe(prompt="Be brief.")\n@scribe `Say it`()'


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    with StubServer() as server:
        yield server


def settings(directory: Path, stub: StubServer) -> None:
    stub_settings(directory, stub)
    path = directory / "prose.toml"
    path.write_text('rerun = "keep"\n' + path.read_text().replace('mode = "auto"', 'mode = "off"'))


def ran(client: Client, cell: str, code: str) -> str:
    client.channels.session.metadata = {"cellId": cell}
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
    with kernel(directory) as client:
        client.channels.session.metadata = {"cellId": "a"}
        for _ in range(2):
            assert client.run('exec "echo x >> ran; exit 1"\n  reads: []').status == "error"
    assert (directory / "ran").read_text().split() == ["x", "x"]


def test_a_stale_cell_that_runs_again_keeps_what_has_not_changed(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    code = 'exec "echo same >> ran"\n  reads: []\nexec "echo {x} >> ran"\n  reads: []\n'
    with kernel(directory) as client:
        for cell, text in (("a", "let x = 1"), ("b", code), ("a", "let x = 2"), ("c", "%rerun stale --here")):
            ran(client, cell, text)
    assert (directory / "ran").read_text().split() == ["same", "1", "2"]


def test_a_kept_answer_says_so(directory: Path, stub: StubServer) -> None:
    settings(directory, stub)
    code = 'let a = session "Say it"\nexec "echo one"\n  reads: []\nlet b = exec "echo two"\n  reads: []\n'
    stub.script("now", "hi")
    shown, facts = [], []
    with kernel(directory) as client:
        client.channels.session.metadata = {"cellId": "a"}
        for text in (code, code, code, f"%ask again\n{code}"):
            contents = [m["content"] for m in client.run(text).outputs if "data" in m["content"]]
            shown.append("\n".join(content["data"]["text/plain"] for content in contents))
            facts.append(json.dumps([content["metadata"] for content in contents]))
    assert [one.count("%ask again") for one in shown] == [0, 3, 3, 0]
    assert shown[1] == shown[2], "the time is in the metadata"
    assert ['"kept"' in one and '"answered"' in one for one in facts] == [False, True, True, False], facts
